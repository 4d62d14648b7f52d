// Charts as SVG. Text is set as text and never as markup, so that names from a log cannot become script.

const SVG = "http://www.w3.org/2000/svg";
export const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((number) => `var(--c${number})`);

export function element(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function format(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

// Round steps of 1, 2 or 5 times a power of ten.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + step / 1e6; tick += 1) found.push(tick * step);
  return found;
}

function shown(label, room) {
  const text = String(label);
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

// lines: {x: [], y: [], low: [], high: [], colour, dashed}; x are numbers, or places of labels.
export function lineChart(place, { lines, labels = null, xText = format, height = 220 }) {
  const width = Math.max(place.clientWidth, 240);
  const known = lines.flatMap((line) => line.y.map((_, i) => [line.x[i], line.low[i], line.high[i]]));
  if (!known.length) return empty(place);
  let low = Math.min(...known.map((point) => point[1]));
  let high = Math.max(...known.map((point) => point[2]));
  if (high - low < 1e-12) [low, high] = [low - 0.5, high + 0.5];
  const from = Math.min(...known.map((point) => point[0]));
  const to = Math.max(...known.map((point) => point[0]));
  const edge = { left: 46, right: 12, top: 8, bottom: 24 };
  const span = to - from || 1;
  const x = (value) => edge.left + ((value - from) / span) * (width - edge.left - edge.right);
  const y = (value) => height - edge.bottom - ((value - low) / (high - low)) * (height - edge.top - edge.bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const tick of ticks(low, high, 4)) {
    svg.append(element("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: edge.left - 6, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  const places = labels
    ? labels.map((label, i) => [i, shown(label, Math.max(4, Math.floor(width / labels.length / 8)))])
    : ticks(from, to === from ? from + 1 : to, Math.max(2, Math.floor(width / 110))).map((tick) => [tick, xText(tick)]);
  let free = -Infinity;
  for (const [value, label] of places) {
    if (value < from || value > to) continue;
    const anchor = x(value) < edge.left + 20 ? "start" : x(value) > width - 40 ? "end" : "middle";
    // a label that would run into the one before it is left out; letters are about 7 wide
    const room = 7 * String(label).length;
    const start = x(value) - (anchor === "start" ? 0 : anchor === "end" ? room : room / 2);
    if (!labels && start < free) continue;
    free = start + room + 6;
    svg.append(element("text", { x: x(value), y: height - 6, "text-anchor": anchor }, label));
  }
  for (const line of lines) draw(svg, line, x, y, labels !== null);
  place.replaceChildren(svg);
}

function draw(svg, line, x, y, dots) {
  if (!dots) {
    const upper = line.high.map((value, i) => `${x(line.x[i])},${y(value)}`);
    const lower = line.low.map((value, i) => `${x(line.x[i])},${y(value)}`).reverse();
    svg.append(element("polygon", { points: [...upper, ...lower].join(" "), fill: line.colour, opacity: 0.16 }));
  }
  if (!dots || line.dashed) {
    const path = line.y.map((value, i) => `${x(line.x[i])},${y(value)}`).join(" ");
    const style = { fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-linejoin": "round" };
    svg.append(element("polyline", { points: path, ...style, ...(line.dashed ? { "stroke-dasharray": "6 4" } : {}) }));
  }
  if (dots || line.y.length === 1) {
    line.y.forEach((value, i) => {
      const at = x(line.x[i] + (line.shift || 0));
      const ends = { x1: at, x2: at, y1: y(line.low[i]), y2: y(line.high[i]) };
      svg.append(element("line", { ...ends, stroke: line.colour, opacity: 0.5 }));
      svg.append(element("circle", { cx: at, cy: y(value), r: 3.5, fill: line.colour }));
    });
  }
}

// Shares of several parts over time, stacked to one.
export function areaChart(place, { x: xs, parts, xText, height = 220 }) {
  const width = Math.max(place.clientWidth, 240);
  if (xs.length < 2) return empty(place);
  const edge = { left: 46, right: 12, top: 8, bottom: 24 };
  const span = xs[xs.length - 1] - xs[0] || 1;
  const x = (value) => edge.left + ((value - xs[0]) / span) * (width - edge.left - edge.right);
  const y = (value) => height - edge.bottom - value * (height - edge.top - edge.bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  let below = xs.map(() => 0);
  for (const part of parts) {
    const above = below.map((value, i) => value + part.shares[i]);
    const upper = xs.map((value, i) => `${x(value)},${y(above[i])}`);
    const lower = xs.map((value, i) => `${x(value)},${y(below[i])}`).reverse();
    svg.append(element("polygon", { points: [...upper, ...lower].join(" "), fill: part.colour, opacity: 0.75 }));
    below = above;
  }
  for (const share of [0, 0.5, 1]) {
    svg.append(element("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(share), y2: y(share) }));
    svg.append(element("text", { x: edge.left - 6, y: y(share) + 4, "text-anchor": "end" }, `${share * 100} %`));
  }
  for (const [value, anchor] of [[xs[0], "start"], [xs[xs.length - 1], "end"]]) {
    svg.append(element("text", { x: x(value), y: height - 6, "text-anchor": anchor }, xText(value)));
  }
  place.replaceChildren(svg);
}

export function bar(share, colour) {
  const svg = element("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(element("rect", { width: Math.max(0, Math.min(1, share)) * 100, height: 10, fill: colour }));
  const track = document.createElement("div");
  track.className = "track";
  track.append(svg);
  return track;
}

function empty(place) {
  const note = document.createElement("p");
  note.className = "empty";
  note.textContent = "nothing to show yet";
  place.replaceChildren(note);
}
