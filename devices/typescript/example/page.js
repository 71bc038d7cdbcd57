/** A page that counts the words of a text. `usage.js` counts the use of the page. */

import { count } from "./usage.js";

const find = (id) => document.getElementById(id);
let began = 0;

find("text").addEventListener("input", () => {
  const n = find("text").value.split(/\s+/).filter(Boolean).length;
  find("words").textContent = `${n} ${n === 1 ? "word" : "words"}`;
});

find("text").addEventListener("focus", () => (began = performance.now()));

find("text").addEventListener("change", () => {
  const seconds = (performance.now() - began) / 1000;
  count((activity) => activity.took("write", { seconds }));
});

find("export").addEventListener("click", () => {
  const href = URL.createObjectURL(new Blob([find("text").value], { type: "text/plain" }));
  Object.assign(document.createElement("a"), { href, download: "text.txt" }).click();
  URL.revokeObjectURL(href);
  count((activity) => activity.used("export"));
});

count((activity) => activity.seen());
