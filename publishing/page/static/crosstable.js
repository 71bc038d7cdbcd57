// The cross table of a pair of attributes, or of cohorts and values: a table whose cells are coloured by their share.
import { $, capital, element, explained, grouped, percent, plural, shaded, silence, table } from "./dom.js";
import { linkFiles, state, tableQuery } from "./state.js";
import { periodOf } from "./times.js";

// For each value of `?table=`: the numbers that the cells show, and the words for them.
const PARTS = {
  all: { of: (t) => t.cells, words: () => "of all people" },
  rows: { of: (t) => t.within_rows, words: (t) => `within each ${t.rows.name}` },
  columns: { of: (t) => t.within_columns, words: (t) => `within each ${t.columns.name}` },
};

// The choices for the select, once a table is known.
export const choices = (t) => Object.entries(PARTS).map(([name, part]) => [name, part.words(t)]);

function sum(side, i) {
  const { shares, low, high } = side.shares;
  const made = shaded(shares[i], low[i], high[i], Infinity);
  made.classList.add("sum");
  return made;
}

function tested(t) {
  const box = $("cross-test");
  if (t.rows.kind === "cohort" || !t.reports) return box.replaceChildren();
  if (t.interval_withheld) return box.replaceChildren(element("span", "No intervals and no test: the levels' histograms differ, so an estimate over all levels can be biased.", { class: "late" }));
  if (!t.independence) return box.replaceChildren("Too few reports for the ", explained("test of independence", "independence"), ".");
  const { p } = t.independence;
  const chance = p < 1e-4 ? "less than 1 in 10,000" : percent(p);
  const said = p < 0.05 ? `${capital(t.rows.name)} and ${t.columns.name} depend on each other` : "No clear dependence";
  return box.replaceChildren(`${said}: `, explained("the chance", "independence"), ` of a table at least this uneven, if the two were independent, is ${chance}.`);
}

export function drawTable(t) {
  const { shares, low, high } = PARTS[state.table].of(t);
  const n = t.columns.labels.length;
  const truth = state.table === "all" ? t.truth : null;
  const known = shares.some((x) => x !== null);
  const strongest = Math.max(0, ...shares.filter((x) => x !== null));
  $("cross-title").textContent = `${capital(t.rows.name)} and ${t.columns.name} together`;
  $("cross-when").textContent = periodOf(t);
  const box = $("cross-summary");
  if (!known) box.replaceChildren(t.reports ? "There is no estimate from these counts." : `${capital(silence(t.complete))} in this ${t.span}: there is no estimate.`);
  else {
    const own = t.rows.kind === "cohort" ? plural(t.reports, "report")
      : `${plural(t.reports, "report")} of both together, ${grouped(t.rows.reports)} of ${t.rows.name} and ${grouped(t.columns.reports)} of ${t.columns.name}`;
    box.replaceChildren(`Shares ${PARTS[state.table].words(t)}, from `, explained(own, t.rows.kind === "cohort" ? "reports" : "together"), ". Under each share its ", explained("95 % interval", "cell"), ". The colour grows with the share.");
    if (truth) box.append(" The ", explained("truth", "truth"), " is below.");
  }
  if (!t.complete) box.append(" ", element("span", "Incomplete: reports may be missing.", { class: "late" }));
  tested(t);
  const head = [element("th", `${t.rows.name} ↓ ${t.columns.name} →`, { scope: "col" }), ...t.columns.labels.map((label) => element("th", label, { scope: "col", class: "number" })),
    element("th", "all", { scope: "col", class: "number" })];
  const rows = t.rows.labels.map((label, i) => element("tr", [element("th", label, { scope: "row" }), ...t.columns.labels.map((_, j) => {
    const at = i * n + j;
    const made = shaded(shares[at], low[at], high[at], strongest);
    if (truth) made.append(element("span", `truth ${percent(truth[at])}`, { class: "ends" }));
    return made;
  }), sum(t.rows, i)]));
  const last = element("tr", [element("th", "all", { scope: "row" }), ...t.columns.labels.map((_, j) => sum(t.columns, j)), element("td")]);
  table($("cross-table"), head, [...rows, last]);
  linkFiles("cross", "table", tableQuery(), t.step);
}
