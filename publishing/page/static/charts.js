// The charts. The page loads uPlot first; colours come from the style sheet.
/* global uPlot */
import { increments, timeLabels, zoneName } from "./times.js";

const drawn = new Map();

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const LIGHT = ["#1f5fa8", "#b05f00", "#1b7f4b", "#a02c78", "#5b46b2", "#0b7285", "#8a5a2b", "#b3261e", "#4d6b00", "#566473"];
const DARK = ["#7db7f5", "#f2b25c", "#6fd0a0", "#e894c8", "#c3b3f7", "#5fd0e0", "#d9b38c", "#ff8f86", "#b5d35c", "#9aa8b5"];

// Colour of a curve, by its slot.
export const colourOf = (slot) => (document.documentElement.dataset.theme === "dark" ? DARK : LIGHT)[slot % LIGHT.length];

// The slots of these values, as a map: all different, and the same for the same values at every time. Ten curves have ten colours.
export function slotsOf(values) {
  const slots = new Map();
  for (const value of [...values].sort((a, b) => a - b)) {
    let slot = value % LIGHT.length;
    for (let tried = 1; [...slots.values()].includes(slot); tried += 1) slot = ((value + tried) % LIGHT.length) + LIGHT.length * Math.floor(tried / LIGHT.length);
    slots.set(value, slot);
  }
  return slots;
}

function axis(extra = {}) {
  return { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, ...extra };
}

const shortPercent = (x) => `${Number((100 * x).toFixed(3))}`.replace("-", "−");
const percentAxis = (unit = " %") => axis({ size: 62, space: (u, i, low, high, height) => Math.min(30, height / 5), values: (_, ticks) => ticks.map((x) => `${shortPercent(x)}${unit}`) });

function draw(box, options, data) {
  drawn.get(box)?.destroy();
  const chart = new uPlot({ width: box.clientWidth, height: box.clientHeight, legend: { show: false }, ...options }, data, box);
  chart.root.setAttribute("aria-hidden", "true"); // the box has the label, the table the numbers
  drawn.set(box, chart);
  return chart;
}

// False if the box has another size than its chart.
export const fits = (box) => !drawn.has(box) || (drawn.get(box).width === box.clientWidth && drawn.get(box).height === box.clientHeight);

// The canvas of the chart in a box.
export const canvasOf = (box) => box.querySelector("canvas");

// Calls `zoom` with the ends of a dragged selection on the x axis, and with null after a double click.
function zooming(zoom) {
  return {
    drag: { x: true, y: false, setScale: false },
    bind: { dblclick: () => () => { zoom(null); return null; } },
    hook: (u) => {
      if (u.select.width < 3) return;
      const ends = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      zoom(ends);
    },
  };
}

// Axis with a label at every n-th bar, so that the labels fit. Long labels of few bars are slanted.
function labelAxis(labels, width, [first, last]) {
  const room = width / Math.max(1, last - first + 1);
  const shown = labels.slice(first, last + 1);
  const longest = shown.reduce((most, text) => Math.max(most, text.length), 0);
  const slanted = room >= 20 && 7 * (longest + 1) > room;
  const every = slanted ? 1 : Math.max(1, Math.ceil(46 / room));
  const letters = slanted ? 13 : Math.max(3, Math.floor((room * every) / 7) - 1);
  const shorten = (text) => (text.length <= letters ? text : `${text.slice(0, letters - 1)}…`);
  return axis({
    grid: { show: false },
    splits: () => labels.map((_, i) => i).filter((i) => i >= first && i <= last && (i - first) % every === 0),
    values: (_, ticks) => ticks.map((i) => shorten(labels[i])),
    ...(slanted ? { rotate: 40, size: 22 + 5 * Math.min(13, longest) } : {}),
  });
}

function whiskers(h) {
  return (u) => {
    const pen = u.ctx;
    const [first, last] = [Math.max(0, Math.floor(u.scales.x.min)), Math.min(h.low.length - 1, Math.ceil(u.scales.x.max))];
    const step = u.bbox.width / Math.max(1, u.scales.x.max - u.scales.x.min);
    const cap = Math.min(6 * devicePixelRatio, step / 4);
    pen.save();
    pen.beginPath();
    pen.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    pen.clip();
    pen.strokeStyle = colour("ink");
    pen.globalAlpha = step > 8 * devicePixelRatio ? 1 : 0.35; // many whiskers must not cover the bars
    pen.lineWidth = step > 8 * devicePixelRatio ? 1.5 * devicePixelRatio : Math.max(0.5, 0.6 * devicePixelRatio);
    for (let i = first; i <= last; i += 1) {
      if (h.low[i] === null) continue;
      pen.setLineDash(h.dashed?.has(i) ? [3 * devicePixelRatio, 2 * devicePixelRatio] : []);
      pen.beginPath();
      const x = u.valToPos(i, "x", true);
      const [low, high] = [u.valToPos(h.low[i], "y", true), u.valToPos(h.high[i], "y", true)];
      pen.moveTo(x, low);
      pen.lineTo(x, high);
      if (cap > 2) {
        pen.moveTo(x - cap, low); pen.lineTo(x + cap, low);
        pen.moveTo(x - cap, high); pen.lineTo(x + cap, high);
      }
      pen.stroke();
    }
    pen.restore();
  };
}

function rangeOf(h, [first, last]) {
  let [low, high] = [0, 1e-6];
  for (let i = first; i <= last; i += 1) {
    for (const x of [h.low[i], h.high[i], h.frequencies[i], h.truth?.[i] ?? null]) {
      if (x !== null) [low, high] = [Math.min(low, x), Math.max(high, x)];
    }
  }
  return high > 1e-6 || low < 0 ? [low * 1.05, high * 1.05] : [0, 1];
}

// Bars with whiskers for the intervals and, in a simulation, the truth as points.
//
// h: labels, frequencies, low, high, truth (or null), fills (colour of each bar), dashed (positions of dashed
// whiskers). view: [first, last] position, or null for all. read(i): the cursor is on bar i. choose(i): bar i was
// clicked. zoom: see `zooming`. at: the position from which arrow keys start, -1 for none. below: true for a chart below another
// one with the same bars, which has the labels.
export function barChart(box, h, { view, read, choose, zoom, at = -1, below = false }) {
  const n = h.labels.length;
  const places = h.labels.map((_, i) => i);
  const ends = view ?? [0, n - 1];
  const range = n ? rangeOf(h, ends) : [0, 1];
  const wide = ends[1] - ends[0] + 1 <= 200;
  const fill = { unit: 3, values: () => h.fills };
  const series = [{}, {
    stroke: colour("accent"), fill: colour("bar"), width: wide ? 1 : 0, points: { show: false },
    paths: uPlot.paths.bars({ size: [0.75, 60], disp: { fill, stroke: fill } }),
  }];
  if (h.truth) {
    series.push({ stroke: colour("truth"), paths: () => null, points: { show: true, size: wide ? 8 : 3, width: 2, stroke: colour("truth"), fill: colour("card") } });
  }
  const zoomed = zooming(zoom);
  let pressed = 0;
  const chart = draw(box, {
    padding: [null, 16, null, null],
    scales: { x: { time: false, range: () => [ends[0] - 0.6, ends[1] + 0.6] }, y: { range: () => range } },
    axes: [below ? { show: false } : labelAxis(h.labels, box.clientWidth - 70, ends), percentAxis(below ? "" : " %")],
    series,
    cursor: { y: false, drag: zoomed.drag, bind: zoomed.bind, points: { show: false } },
    hooks: {
      draw: [whiskers(h)],
      setSelect: [zoomed.hook],
      setCursor: [(u) => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) read(u.cursor.idx); }],
    },
  }, [places, h.frequencies, ...(h.truth ? [h.truth] : [])]);
  chart.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
  chart.over.addEventListener("click", (event) => {
    if (choose && Math.abs(event.clientX - pressed) < 3 && chart.cursor.idx !== null) choose(chart.cursor.idx);
  });
  box.onkeydown = (event) => {
    if (event.key === "Enter" && choose && at >= 0) choose(at);
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -n, End: n }[event.key];
    if (!move) return;
    event.preventDefault();
    at = Math.min(ends[1], Math.max(ends[0], at + move));
    chart.setCursor({ left: chart.valToPos(at, "x"), top: 10 });
    read(at);
  };
}

// ---- over time

// Dashed vertical marks: [seconds, colour] each, or [seconds, colour, text].
function marks(list) {
  return (u) => {
    const [pen, wide] = [u.ctx, Math.max(1, Math.round(2 * devicePixelRatio))];
    pen.save();
    pen.lineWidth = wide;
    pen.setLineDash([4 * wide, 2 * wide]);
    pen.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    pen.textAlign = "left";
    for (const [at, stroke, text] of list) {
      if (at < u.scales.x.min || at > u.scales.x.max) continue;
      const x = Math.round(u.valToPos(at, "x", true)) + (wide % 2) / 2; // whole pixels, so that the line is sharp
      pen.strokeStyle = stroke;
      pen.beginPath();
      pen.moveTo(x, u.bbox.top);
      pen.lineTo(x, u.bbox.top + u.bbox.height);
      pen.stroke();
      if (!text) continue;
      const room = pen.measureText(text).width + 4 * wide;
      pen.fillStyle = stroke;
      pen.fillText(text, Math.max(u.bbox.left, Math.min(x + 2 * wide, u.bbox.left + u.bbox.width - room)), u.bbox.top + 10 * devicePixelRatio);
    }
    pen.restore();
  };
}

const ROOM = 0.22; // part of the chart's width for the labels at the ends of the lines
const LINE_PX = 14; // distance between two labels

// The label of each line beside its last point, in its colour. Labels that would overlap move apart.
function endLabels(lines, room) {
  return (u) => {
    const [pen, high] = [u.ctx, LINE_PX * devicePixelRatio];
    const ends = lines.map(({ label, slot, frequencies }) => ({ label, stroke: colourOf(slot), y: frequencies.findLast((x) => x !== null) ?? null }))
      .filter(({ y }) => y !== null).map((end) => ({ ...end, y: u.valToPos(end.y, "y", true) })).sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i) end.y = Math.max(end.y, ends[i - 1].y + high); });
    const over = (ends.at(-1)?.y ?? 0) - (u.bbox.top + u.bbox.height);
    for (let i = ends.length - 1, limit = u.bbox.top + u.bbox.height; over > 0 && i >= 0; i -= 1, limit -= high) ends[i].y = Math.min(ends[i].y, limit);
    pen.save();
    pen.font = `${12 * devicePixelRatio}px system-ui, "DejaVu Sans", sans-serif`;
    [pen.textAlign, pen.textBaseline] = ["left", "middle"];
    for (const { label, stroke, y } of ends) {
      let text = label;
      while (text.length > 2 && pen.measureText(text).width > room * devicePixelRatio) text = `${text.slice(0, -2)}…`;
      pen.fillStyle = stroke;
      pen.fillText(text, u.bbox.left + u.bbox.width + 6 * devicePixelRatio, y);
    }
    pen.restore();
  };
}

const timeAxis = () => axis({ size: 46, space: 60, incrs: increments(), values: (_, ticks, __, ___, increment) => timeLabels(ticks, increment) });
const tzDate = (second) => (zoneName() === "UTC" ? uPlot.tzDate(new Date(1000 * second), "Etc/UTC") : new Date(1000 * second));

const FROM_ZERO = { range: (_, __, high) => [0, Math.max(1, high) * 1.05] };

// The scale of a line chart: from zero for people, and logarithmic for positive numbers of very different sizes.
function scaleOf(lines, numbers) {
  if (!numbers || numbers === "people") return numbers ? FROM_ZERO : {};
  const found = lines.flatMap((line) => [...line.frequencies, ...line.low]).filter((x) => x !== null);
  const [least, most] = [Math.min(...found), Math.max(...found)];
  return least > 0 && most > 20 * least ? { distr: 3 } : {};
}

// Lines of shares over time, with bands for the intervals. s: seconds (ends of the spans), lines (slot, frequencies, low,
// high, label). view: [from, to] in seconds. list: the marks. numbers: "numbers" or "people" if the lines are no shares.
export function lineChart(box, s, { view, zoom, list, read, numbers = null }) {
  const data = [s.seconds];
  const series = [{}];
  const bands = [];
  s.lines.forEach((line, i) => {
    const stroke = colourOf(line.slot);
    data.push(line.frequencies, line.high, line.low);
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    series.push({ stroke, width: 2, points: { show: s.seconds.length < 30, size: 5, fill: stroke } }, edge, { ...edge });
    bands.push({ series: [3 * i + 2, 3 * i + 3], fill: `${stroke}2b` });
  });
  const zoomed = zooming(zoom);
  const room = Math.min(Math.round(ROOM * box.clientWidth), 12 + 7 * Math.max(0, ...s.lines.map(({ label }) => label.length)));
  draw(box, {
    tzDate,
    padding: [null, room, null, null],
    scales: { x: { time: true, range: () => view }, y: scaleOf(s.lines, numbers) },
    axes: [timeAxis(), numbers ? axis({ size: 62 }) : percentAxis()],
    series,
    bands,
    cursor: { drag: zoomed.drag, bind: zoomed.bind },
    hooks: { draw: [marks(list), endLabels(s.lines, room - 8)], setSelect: [zoomed.hook], setCursor: [(u) => read(u.cursor.idx ?? null)] },
  }, data);
}

// Number of reports in every step. A bar ends at the end of its step.
export function stepsChart(box, s, { view, zoom }) {
  const zoomed = zooming(zoom);
  draw(box, {
    tzDate,
    scales: { x: { time: true, range: () => view }, y: FROM_ZERO },
    axes: [timeAxis(), axis({ size: 62, values: (_, ticks) => ticks.map((n) => (n >= 1e6 ? `${n / 1e6} M` : n >= 1e4 ? `${n / 1e3} k` : n)) })],
    series: [{}, { stroke: colour("accent"), fill: colour("bar"), points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 60], align: -1 }) }],
    cursor: { drag: zoomed.drag, bind: zoomed.bind, points: { show: false } },
    hooks: { setSelect: [zoomed.hook] },
  }, [s.seconds, s.reports]);
}
