// Explanations of the numbers, for readers who do not know the method. A button with data-why
// shows its explanation while the pointer is on it or while it has the focus. Escape hides the explanation.
import { element } from "./dom.js";

const WHY = {
  unchanged: "For a participant whose value never changes: the number of people, of 100, whom the best guesser gets right from all reports of this attribute. The guesser knows nothing else and considers all values equally likely beforehand. \"At most\" marks an upper bound, rounded up; all other chances are exact. If the survey has several attributes, below is the chance of a guesser who sees the reports of the whole device, if the other answers give the strongest possible hints. The privacy loss in nats follows: each nat multiplies the odds between two values by at most 2.72.",
  changing: "For a participant whose values may change at every step: the number of people, of 100, whose value at one step the best guesser gets right from all reports of this attribute. If the survey has several attributes, below is the same number from the whole device with the strongest possible hints. \"At most\" marks an upper bound: the true chance may be smaller. The privacy loss in nats between any two sequences of values follows.",
  year: "The same number after 365 more days, or after the survey's last step if that is earlier, if the participant keeps reporting.",
  blind: "The chance of a right guess without any report: one divided by the number of values. If people choose several values, the guess is whether a person chose one value, and the chance is 50 %. Somebody who knows that one value is common is right more often: see the sentences below the table.",
  reports: "The number of randomized reports that this estimate uses, and at least how many people sent them. The service cannot tell people apart. It divides the reports by the largest number that one person can send in this time.",
  steps: "The number of time steps with reports behind this estimate.",
  share: "The estimated share of people with this value, in per cent. The unbiased estimate of a rare value can be negative.",
  several: "Each share is the share of people who chose this value. The last bars tell how many values people choose: \"at most 1\" is the share of people who chose one value or none.",
  chosen: "The mean number of values that a person chooses.",
  error: "The standard error: the typical distance between the estimate and the truth. In about two of three cases the distance is smaller.",
  interval: "The interval contains the true share in about 95 of 100 cases. It covers the randomization and the choice of the people, if those who report are a random sample. With an order or many values, some intervals hold only on average over the values: values that differ from all others can miss more often. If people round their numbers, most intervals can miss; those of mi hold. With 100 values, expect about five intervals without the truth.",
  truth: "The true share. Only a simulation knows it.",
  others: "All values that are not shown, together. Their sum has no interval here.",
  cohort: "A public fact about each device, such as its version or its country. Reports carry it in clear. The histogram of a cohort uses only its own reports, and needs the least number of people that the survey states.",
  mean: "The mean of the people's numbers. The value counts the numbers of a bin as evenly spread. The interval reaches from the mean if all numbers lay at the lower ends of their bins to the mean if all lay at the upper ends.",
  percentile: "The number below which 50, 90 or 99 of 100 people lie. The value counts the numbers of a bin as evenly spread. The interval consists of whole bins, so a percentile is only as precise as its bin is narrow. The interval contains the true percentile in about 95 of 100 cases.",
  difference: "The later share minus the earlier share, or one cohort's share minus the other's, in percentage points.",
  ends: "The interval contains the true difference in about 95 of 100 cases or more, for each value by itself.",
  clear: "Clear: the difference is more than chance. Of the values that are marked so, about 5 of 100 or fewer have no true difference. Without any true difference, some value would be marked in about 5 of 100 comparisons or fewer.",
  together: "The reports of both attributes together give the cells. The reports of each attribute alone also count, for the sums of the rows and columns. The histogram shows the same shares of the cells.",
  cell: "The interval contains the true share in about 95 of 100 cases, for each cell by itself. If a row or a column may have no people at all, nothing is known about the shares within it: the share is missing, and its interval goes from 0 to 100 %.",
  independence: "A chi-squared test that allows for the noise of the reports. If the two attributes are independent, a chance below 5 % occurs in about 5 of 100 cases.",
  rejected: "Envelopes (one or more reports) that the service refused to count, since the survey began, with the reason.",
};

let shown = null;
const tip = element("div", "", { id: "tip", role: "tooltip", hidden: "" });

// A button with an explanation. `why` is a key of the explanations.
export const explained = (text, why) => element("button", text, { type: "button", class: "why", "data-why": why });

function place() {
  const at = shown.getBoundingClientRect();
  const { clientWidth: wide } = document.documentElement;
  const width = Math.min(360, wide - 16);
  tip.style.width = `${width}px`;
  tip.style.left = `${Math.max(8, Math.min(at.left, wide - width - 8))}px`;
  const below = at.bottom + 4;
  tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : Math.max(4, at.top - tip.offsetHeight - 4)}px`;
}

function show(button) {
  if (shown === button) return;
  hide();
  shown = button;
  tip.textContent = WHY[button.dataset.why];
  tip.hidden = false;
  button.setAttribute("aria-describedby", "tip");
  place();
}

function hide() {
  shown?.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}

const button = (event) => (event.target instanceof Element ? event.target.closest("[data-why]") : null);

// Draws. If a button with the keyboard's focus is drawn again, the button at the same place of the same box gets the focus.
export function keepFocus(draw) {
  const focused = document.activeElement;
  const box = focused?.matches("button") ? focused.parentElement.closest("[id]") : null;
  const place = box ? [...box.querySelectorAll("button")].indexOf(focused) : -1;
  draw();
  if (box && !focused.isConnected) box.querySelectorAll("button")[place]?.focus({ preventScroll: true });
  if (shown && !shown.isConnected) hide();
}

export function startExplaining() {
  document.querySelector("main").append(tip);
  for (const kind of ["mouseover", "focusin", "click"]) {
    document.addEventListener(kind, (event) => { if (button(event)) show(button(event)); });
  }
  document.addEventListener("mouseout", (event) => {
    const to = event.relatedTarget;
    if (shown && to !== tip && to !== shown && document.activeElement !== shown) hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", () => { if (shown) place(); }, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}
