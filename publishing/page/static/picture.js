// Saves a chart as a PNG picture, with a title and a line of words above.
import { canvasOf, colour } from "./charts.js";
import { $ } from "./dom.js";
import { about, state } from "./state.js";

// box: the chart's box. of: the answer drawn. what: the chart's name. steps: for the name of the file.
export function download(box, of, what, ...steps) {
  const chart = canvasOf(box);
  const scale = devicePixelRatio;
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [chart.width + 32 * scale, chart.height + 82 * scale];
  const pen = picture.getContext("2d");
  pen.fillStyle = colour("card");
  pen.fillRect(0, 0, picture.width, picture.height);
  const write = (text, y, size, ink) => {
    pen.font = `${size * scale}px system-ui, "DejaVu Sans", sans-serif`;
    pen.fillStyle = colour(ink);
    pen.fillText(text, 16 * scale, y * scale, chart.width); // a long text becomes narrow
  };
  const by = of.estimator ? `${about(of.estimator).label}, 95 % intervals` : "";
  write(`${state.survey.title ?? state.survey.name}: ${$("attribute-title").textContent}, ${what}`, 30, 18, "ink");
  write([$("when").textContent, by].filter(Boolean).join("; "), 54, 13, "soft");
  pen.drawImage(chart, 16 * scale, 66 * scale);
  picture.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${[state.survey.name, of.attribute, of.cohort, of.span, what, ...steps].filter(Boolean).join("-").replace(/[^\w.-]+/g, "_")}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
}
