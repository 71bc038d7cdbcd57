// The start page: reads its table again every five seconds.
const EVERY_MS = 5000;

try { // the theme that was chosen on the page of a survey
  const theme = localStorage.getItem("theme");
  if (["light", "dark"].includes(theme)) document.documentElement.dataset.theme = theme;
} catch { /* without storage: the system's theme */ }

// Replaces the sentence and the rows. The scrolled region stays, and so does the focus.
function replace(shown, found) {
  const link = document.activeElement.closest("#surveys a")?.getAttribute("href");
  for (const part of ["p", "tbody"]) shown.querySelector(part).replaceWith(document.adoptNode(found.querySelector(part)));
  if (link) [...shown.querySelectorAll("a")].find((a) => a.getAttribute("href") === link)?.focus({ preventScroll: true });
}

async function refresh() {
  let lost = true;
  try {
    const answer = await fetch("/", { headers: { Accept: "text/html" } });
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("surveys");
    const shown = document.getElementById("surveys");
    lost = !found;
    if (found && found.innerHTML !== shown.innerHTML) replace(shown, found);
  } catch { /* the next attempt follows */ }
  document.getElementById("lost").textContent = lost ? "The service does not answer; retrying." : "";
  setTimeout(refresh, EVERY_MS);
}

setTimeout(refresh, EVERY_MS);
