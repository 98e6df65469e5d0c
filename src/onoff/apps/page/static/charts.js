// Small charts as SVG, drawn at the size of their box: lines over numbers, beliefs at four moments, and over time.

const SVG = "http://www.w3.org/2000/svg";

function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// About six round values from low to high.
function ticks(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((value) => value >= rough);
  const values = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) values.push(+v.toPrecision(6));
  return values;
}

// curves: [{kind, x, y}]; axes: {x, y: names with units, xs, ys: [low, high], whole}
export function lines(box, curves, axes, label) {
  const width = box.clientWidth, height = box.clientHeight;
  if (!width || !curves.length) return;
  const left = 46, right = 10, top = 8, bottom = 42;
  const [x0, x1] = axes.xs, [y0, y1] = axes.ys;
  const X = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const Y = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const svg = s("svg", { width, height, role: "img", "aria-label": label });
  for (const y of ticks(y0, y1)) {
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: Y(y), y2: Y(y) }));
    svg.append(s("text", { x: left - 7, y: Y(y) + 4, "text-anchor": "end" }, String(y)));
  }
  const xs = axes.whole ? Array.from({ length: x1 - x0 + 1 }, (_, i) => x0 + i) : ticks(x0, x1);
  for (const x of xs) svg.append(s("text", { x: X(x), y: height - bottom + 17, "text-anchor": "middle" }, String(x)));
  svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: Y(y0), y2: Y(y0) }));
  const middle = (top + height - bottom) / 2;
  svg.append(s("text", { class: "name", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, axes.x));
  svg.append(s("text", { class: "name", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, axes.y));
  for (const { kind, x, y } of curves) {
    const points = x.map((value, i) => `${X(value).toFixed(1)},${Y(y[i]).toFixed(1)}`);
    svg.append(s("polyline", { class: `curve ${kind}`, points: points.join(" ") }));
    if (!["outer", "everything", "openly"].includes(kind) && x.length < 12)
      for (let i = 0; i < x.length; i++) svg.append(s("circle", { class: `point ${kind}`, cx: X(x[i]), cy: Y(y[i]), r: 3.2 }));
  }
  box.replaceChildren(svg);
}

// What the server believes about one request at four moments: a line for each choice.
const MOMENTS = ["habits", "before", "at", "after"];
export function moments(width, height, choices, rows, wanted, top, kind) {
  const left = 30, right = 66, above = 8, bottom = 20;
  const X = (i) => left + 16 + (i / 3) * (width - left - right - 24);
  const Y = (p) => above + (1 - p / top) * (height - above - bottom);
  const percent = (p) => `${(100 * p).toFixed(0)} %`;
  const last = rows.at(-1), guess = last.indexOf(Math.max(...last));
  const label = `${kind === "naive" ? "a naive client" : "with onoff"}: ${choices[wanted]} ` +
    rows.map((row, i) => `${MOMENTS[i]} ${(100 * row[wanted]).toFixed(1)} %`).join(", ") + `; best guess after everything since: ${choices[guess]}, ${percent(last[guess])}`;
  const svg = s("svg", { width, height, role: "img", "aria-label": label, class: `moments ${kind}` });
  for (const p of [0, top / 2, top]) {
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: Y(p), y2: Y(p) }));
    svg.append(s("text", { x: left - 5, y: Y(p) + 4, "text-anchor": "end" }, `${Math.round(100 * p)}${p ? "" : " %"}`));
  }
  MOMENTS.forEach((word, i) => svg.append(s("text", { class: "tiny", x: X(i), y: height - 5, "text-anchor": "middle" }, word)));
  const order = choices.map((_, i) => i).filter((i) => i !== wanted);
  for (const i of [...order, wanted]) {
    const points = rows.map((row, at) => `${X(at).toFixed(1)},${Y(row[i]).toFixed(1)}`).join(" ");
    svg.append(s("g", { class: i === wanted ? "truth" : "other" }, s("title", {}, `${choices[i]}: ${rows.map((row) => `${(100 * row[i]).toFixed(1)} %`).join(", ")}`),
      s("polyline", { points }), ...(i === wanted ? rows.map((row, at) => s("circle", { cx: X(at), cy: Y(row[i]), r: 3 })) : [])));
  }
  // names at the end: of what was wanted, and of the best guess if that is another; they must not lie on each other
  const names = [...new Set([wanted, guess])].map((i) => ({ i, y: Y(last[i]) + 4 })).sort((a, b) => a.y - b.y);
  if (names.length === 2 && names[1].y - names[0].y < 11) names[1].y = names[0].y + 11;
  for (const { i, y } of names) {
    const short = choices[i].length > 10 ? `${choices[i].slice(0, 9)}…` : choices[i];
    svg.append(s("text", { class: i === wanted ? "tiny truth" : "tiny", x: width - right + 2, y }, short));
  }
  return svg;
}

// Over the steps: what was believed before each (a line), after everything since (a dot), and where it was true.
export function overtime(box, steps, [before, after], truth, label) {
  const width = box.clientWidth, height = box.clientHeight;
  if (!width) return;
  const left = 56, right = 10, top = 8, bottom = 52, each = (width - left - right) / Math.max(12, steps.length);
  const X = (i) => left + (i + 0.5) * each, Y = (p) => top + (1 - p) * (height - top - bottom);
  const svg = s("svg", { width, height, role: "img", "aria-label": label, class: "overtime" });
  for (const p of [0, 0.5, 1]) {
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: Y(p), y2: Y(p) }));
    svg.append(s("text", { x: left - 7, y: Y(p) + 4, "text-anchor": "end" }, `${100 * p} %`));
  }
  const every = Math.ceil(22 / each), half = Math.max(2, Math.min(9, each / 2 - 1));
  steps.forEach((step, i) => {
    const g = s("g", {}, s("title", {}, `step ${step}: ${(100 * before[i]).toFixed(1)} % before, ${(100 * after[i]).toFixed(1)} % after`));
    if (Math.abs(after[i] - before[i]) > 0.01) g.append(s("line", { class: "moved", x1: X(i), x2: X(i), y1: Y(before[i]), y2: Y(after[i]) }));
    g.append(s("line", { class: "prior", x1: X(i) - half, x2: X(i) + half, y1: Y(before[i]), y2: Y(before[i]) }));
    g.append(s("circle", { class: "dot", cx: X(i), cy: Y(after[i]), r: Math.min(4.5, half) }));
    if (truth[i]) g.append(s("path", { class: "up", d: `M${X(i) - 4.5} ${Y(0) + 11}h9l-4.5 -7z` }));
    if (i % every === 0) g.append(s("text", { x: X(i), y: height - bottom + 26, "text-anchor": "middle" }, String(step)));
    svg.append(g);
  });
  const middle = (top + height - bottom) / 2;
  svg.append(s("text", { class: "name", x: (left + width - right) / 2, y: height - 7, "text-anchor": "middle" }, "step"));
  svg.append(s("text", { class: "name", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, "belief"));
  box.replaceChildren(svg);
}
