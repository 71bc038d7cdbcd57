// The charts. The page loads uPlot first; colours come from the style sheet.
/* global uPlot */

const drawn = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function palette() {
  return document.documentElement.dataset.theme === "dark"
    ? ["#7db7f5", "#f2b25c", "#6fd0a0", "#e894c8", "#c3b3f7", "#9aa8b5"]
    : ["#1f5fa8", "#b05f00", "#1b7f4b", "#a02c78", "#5b46b2", "#566473"];
}

function axis(extra = {}) {
  return { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, ...extra };
}

const percentAxis = () => axis({ size: 58, values: (_, ticks) => ticks.map((x) => `${Number((100 * x).toFixed(3))} %`) });

function draw(box, options, data) {
  drawn.get(box)?.destroy();
  const chart = new uPlot({ width: box.clientWidth, height: box.clientHeight, legend: { show: false }, ...options }, data, box);
  drawn.set(box, chart);
  return chart;
}

// Axis with short labels if the labels fit, otherwise with indices.
function labelAxis(labels, width) {
  const room = width / Math.max(1, labels.length);
  const fits = room >= 34;
  const shorten = (text) => (text.length * 7 <= room ? text : `${text.slice(0, Math.max(2, Math.floor(room / 7) - 1))}…`);
  return axis({
    grid: { show: false },
    splits: fits ? () => labels.map((_, i) => i) : undefined,
    values: (_, ticks) => ticks.map((i) => (Number.isInteger(i) && labels[i] !== undefined ? (fits ? shorten(labels[i]) : labels[i].length <= 6 ? labels[i] : `#${i + 1}`) : "")),
  });
}

function whiskers(h) {
  return (u) => {
    const pen = u.ctx;
    const [first, last] = [Math.max(0, Math.floor(u.scales.x.min)), Math.min(h.values.length - 1, Math.ceil(u.scales.x.max))];
    const step = u.bbox.width / Math.max(1, u.scales.x.max - u.scales.x.min);
    const cap = Math.min(6 * devicePixelRatio, step / 4);
    pen.save();
    pen.beginPath();
    pen.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    pen.clip();
    pen.strokeStyle = colour("ink");
    pen.globalAlpha = step > 8 * devicePixelRatio ? 1 : 0.35; // many whiskers must not cover the bars
    pen.lineWidth = step > 8 * devicePixelRatio ? 1.5 * devicePixelRatio : Math.max(0.5, 0.6 * devicePixelRatio);
    pen.beginPath();
    for (let i = first; i <= last; i += 1) {
      if (h.low[i] === null) continue;
      const x = u.valToPos(i, "x", true);
      const [low, high] = [u.valToPos(h.low[i], "y", true), u.valToPos(h.high[i], "y", true)];
      pen.moveTo(x, low);
      pen.lineTo(x, high);
      if (cap > 2) {
        pen.moveTo(x - cap, low); pen.lineTo(x + cap, low);
        pen.moveTo(x - cap, high); pen.lineTo(x + cap, high);
      }
    }
    pen.stroke();
    pen.restore();
  };
}

// Bars with whiskers for the intervals and, in a simulation, the truth as points. Calls `read(i)` when the cursor moves;
// arrow keys start from position `at`, -1 for none.
export function barChart(box, h, read, at = -1) {
  const places = h.values.map((_, i) => i);
  const numbers = [...h.low, ...h.high, ...h.frequencies, ...(h.truth ?? [])].filter((x) => x !== null);
  const range = numbers.length ? [numbers.reduce((a, b) => Math.min(a, b), 0) * 1.05, numbers.reduce((a, b) => Math.max(a, b), 1e-6) * 1.05] : [0, 1];
  const series = [
    {},
    { stroke: colour("accent"), fill: colour("bar"), width: h.values.length > 200 ? 0 : 1, points: { show: false }, paths: uPlot.paths.bars({ size: [0.75, 60] }) },
  ];
  if (h.truth) {
    series.push({ stroke: colour("truth"), paths: () => null, points: { show: true, size: h.values.length > 200 ? 3 : 8, width: 2, stroke: colour("truth"), fill: colour("card") } });
  }
  const chart = draw(box, {
    scales: { x: { time: false, range: [-0.6, h.values.length - 0.4] }, y: { range: () => range } },
    axes: [labelAxis(h.labels, box.clientWidth - 60), percentAxis()],
    series,
    cursor: { y: false, drag: { x: true, y: false }, points: { show: false } },
    hooks: {
      draw: [whiskers(h)],
      setCursor: [(u) => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) read(u.cursor.idx); }],
    },
  }, [places, h.frequencies, ...(h.truth ? [h.truth] : [])]);
  box.onkeydown = (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -places.length, End: places.length }[event.key];
    if (!move) return;
    event.preventDefault();
    at = Math.min(places.length - 1, Math.max(0, at + move));
    chart.setCursor({ left: chart.valToPos(at, "x"), top: 10 });
    read(at);
  };
}

// Index of the line of the value that jumped, or -1.
export const lineOf = (s, change) => s.lines.findIndex((line) => line.value === change.value);

// Dashed vertical marks at the jumps of the values that have a line.
function jumpMarks(s, colours) {
  return (u) => {
    const [pen, wide] = [u.ctx, Math.max(1, Math.round(2 * devicePixelRatio))];
    pen.save();
    pen.lineWidth = wide;
    pen.setLineDash([4 * wide, 2 * wide]);
    for (const change of s.changes) {
      const line = lineOf(s, change);
      if (line < 0 || change.changed_at < u.scales.x.min || change.changed_at > u.scales.x.max) continue;
      const x = Math.round(u.valToPos(change.changed_at, "x", true)) + (wide % 2) / 2; // whole pixels, so that the line is sharp
      pen.strokeStyle = colours[line % colours.length];
      pen.beginPath();
      pen.moveTo(x, u.bbox.top);
      pen.lineTo(x, u.bbox.top + u.bbox.height);
      pen.stroke();
    }
    pen.restore();
  };
}

const stepAxis = () => axis({ values: (_, ticks) => ticks.map((x) => (Number.isInteger(x) ? x : "")) });

// Lines of shares over time, with bands for the intervals and marks at detected jumps.
export function lineChart(box, s) {
  const colours = palette();
  const data = [s.steps];
  const series = [{}];
  const bands = [];
  s.lines.forEach((line, i) => {
    const stroke = colours[i % colours.length];
    data.push(line.frequencies, line.high, line.low);
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    series.push({ stroke, width: 2, points: { show: s.steps.length < 30, size: 5, fill: stroke } }, edge, { ...edge });
    bands.push({ series: [3 * i + 2, 3 * i + 3], fill: `${stroke}33` });
  });
  draw(box, {
    scales: { x: { time: false, range: ends(s.steps) } },
    axes: [stepAxis(), percentAxis()],
    series,
    bands,
    cursor: { drag: { x: true, y: false } },
    hooks: { draw: [jumpMarks(s, colours)] },
  }, data);
}

// Number of reports in every step.
export function stepsChart(box, s) {
  draw(box, {
    scales: { x: { time: false, range: ends(s.steps) }, y: { range: (_, __, high) => [0, Math.max(1, high) * 1.05] } },
    axes: [stepAxis(), axis({ size: 58, values: (_, ticks) => ticks.map((n) => (n >= 1e6 ? `${n / 1e6} M` : n >= 1e4 ? `${n / 1e3} k` : n)) })],
    series: [{}, { stroke: colour("accent"), fill: colour("bar"), points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 60] }) }],
  }, [s.steps, s.reports]);
}

const ends = (steps) => [steps[0] - 0.6, steps[steps.length - 1] + 0.6];
