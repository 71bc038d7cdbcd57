// Downloads a chart as a PNG file, with title, times and legend.
import { canvasOf, colour } from "./charts.js";

function wrap(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (pen.measureText(longer).width > width && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

// box: the chart's box. caption: title, lines, keys ([text, colour, dash] each), name of the file.
export function download(box, { title, lines, keys, name }) {
  const [chart, scale] = [canvasOf(box), devicePixelRatio];
  const pad = 12 * scale;
  const picture = document.createElement("canvas");
  const pen = picture.getContext("2d");
  const small = `${13 * scale}px system-ui, "DejaVu Sans", sans-serif`;
  const line = 20 * scale;
  pen.font = small;
  const words = lines.flatMap((text) => wrap(pen, text, chart.width));
  const legend = keys.map(([text]) => pen.measureText(text).width + 2.6 * line);
  let [legendRows, filled] = [keys.length ? 1 : 0, 0];
  const places = legend.map((width) => {
    if (filled && filled + width > chart.width) { legendRows += 1; filled = 0; }
    const place = [filled, legendRows - 1];
    filled += width;
    return place;
  });
  picture.width = chart.width + 2 * pad;
  picture.height = chart.height + 2 * pad + line * (1.4 + words.length + legendRows);
  pen.fillStyle = colour("card");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.textBaseline = "top";
  pen.fillStyle = colour("ink");
  pen.font = `600 ${17 * scale}px system-ui, "DejaVu Sans", sans-serif`;
  pen.fillText(title, pad, pad);
  pen.font = small;
  pen.fillStyle = colour("soft");
  words.forEach((text, i) => pen.fillText(text, pad, pad + line * (1.3 + i)));
  const top = pad + line * (1.4 + words.length);
  keys.forEach(([text, stroke, dash], i) => {
    const [x, row] = places[i];
    pen.strokeStyle = stroke;
    pen.lineWidth = 3 * scale;
    pen.setLineDash(dash.map((length) => length * scale));
    pen.beginPath();
    pen.moveTo(pad + x, top + line * (row + 0.4));
    pen.lineTo(pad + x + 1.4 * line, top + line * (row + 0.4));
    pen.stroke();
    pen.fillStyle = colour("ink");
    pen.fillText(text, pad + x + 1.7 * line, top + line * row);
  });
  pen.drawImage(chart, pad, top + line * legendRows);
  picture.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${name.replace(/[^\w.-]+/g, "_")}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
}
