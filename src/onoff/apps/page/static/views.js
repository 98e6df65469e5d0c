// Beliefs, sensitive reads, and what both promises cost.
import { lines, moments, overtime } from "./charts.js";
import { $, h, legend, percent } from "./parts.js";

const PROVED = 1e-5; // a gap that nobody sees
const shown = () => (innerWidth <= 640 ? 2 : 3); // requests

// The width of one of two charts, and whether they stand one above the other.
function sides() {
  const box = $("beliefs"), stacked = getComputedStyle(document.querySelector(".versus")).display === "none";
  return [stacked ? box.clientWidth : Math.floor((box.clientWidth - 16) / 2), stacked];
}
const scale = (most) => [0.2, 0.3, 0.4, 0.6, 0.8, 1].find((value) => value >= most - 1e-9) ?? 1;
const caption = (stacked, kind) => (stacked ? `${kind === "naive" ? "a naive client" : "with onoff"}: ` : "");

export function drawHidden(names, knowledge, since) {
  const found = (knowledge?.hidden ?? []).slice(0, shown()), [width, stacked] = sides(), height = innerWidth <= 640 ? 124 : 150;
  const rows = found.map((one) => {
    const top = scale(Math.max(0.2, ...[...one.ours.rows, ...one.naive.rows].flat()));
    const side = (view, kind) => {
      const told = view.rows.map((row) => row[one.wanted]), last = view.rows.at(-1), guess = last.indexOf(Math.max(...last));
      return h("div", { class: "side", "data-bits": view.bits.toFixed(6) }, moments(width, height, one.choices, view.rows, one.wanted, top, kind),
        h("p", {}, caption(stacked, kind), h("b", {}, told.map(percent).join(" → ")), h("br"), `${view.bits.toFixed(3)} bits learned${since}`, h("br"),
          `best guess: ${one.choices[guess]}`));
    };
    const words = one.private ? `Step ${one.step}, ON: you wanted ${names[one.source]}` : `Step ${one.step}, OFF: you wanted ${names[one.source]}, which is locked`;
    return h("div", { class: "belief", "data-step": one.step }, h("h3", { title: words }, words),
      h("div", { class: "pair" }, side(one.ours, "onoff"), side(one.naive, "naive")));
  });
  $("beliefs").replaceChildren(...(rows.length ? rows : [h("p", { class: "empty" }, "No private request yet.")]));
}

export function drawSensitive(names, world) {
  const found = world.knowledge?.sensitive, locked = world.sensitive.map((i) => names[i]).join(", ");
  const known = found && locked && !world.beginning;
  for (const id of ["sensitive-charts", "sensitive-legend"]) $(id).hidden = !known;
  if (!known) {
    $("sensitive-words").textContent = locked ? `Locked: ${locked}. Make a request in this stream to see what the server believes.`
      : "No source is locked. Lock one above: then no query tells which locked source you read, nor whether you read any.";
    return;
  }
  const reads = found.read.filter(Boolean).length;
  $("sensitive-words").textContent = `Locked: ${locked}, read at ${reads} of these ${found.steps.length} steps. Habits let the server guess before every step ` +
    "how likely a locked source comes next: that is not hidden. The promise is that no query, then or later, moves the guess.";
  for (const [id, view, name] of [["some-ours", found.ours, "with onoff"], ["some-naive", found.naive, "a naive client"]])
    overtime($(id), found.steps, view, found.read, `${name}: belief that a locked source was read, by step, before and after: ` +
      found.steps.map((step, i) => `${step}: ${percent(view[0][i])}, ${percent(view[1][i])}`).join("; "));
}

export function drawCosts(names, costs, gap) {
  if (!costs.past) return $("cost").replaceChildren(h("p", { class: "empty" }, "computing …"));
  const { past, locked = [], both = [], paper = [] } = costs;
  const flat = (value) => past.map(() => value);
  const values = { everything: flat(names.length), paper, both, locked, past, openly: flat(1) };
  const kinds = {
    everything: "everything, always", paper: "both, the paper's scheme",
    both: gap < PROVED ? "both (no scheme costs less: proved)" : `both (at most ${(100 * gap).toPrecision(2)} % above the least)`,
    locked: "past with what is locked", past: "past", openly: "asking openly",
  };
  const curves = Object.entries(values).filter(([, y]) => y.length).map(([kind, y]) => ({ kind, x: y.map((_, i) => i + 1), y }));
  const ends = Object.fromEntries(curves.map(({ kind, y }) => [kind, new Set(y).size < 2 ? ` ${y[0]}` : ` ${y[0].toFixed(2)} → ${y.at(-1).toFixed(2)}`]));
  lines($("cost"), curves, { x: "steps since privacy was last ON", y: "messages per request", whole: true,
    xs: [1, past.length], ys: [0, names.length + 0.4] },
    `Cost in messages per request, from step 1 to step ${past.length} after ON: ${curves.map(({ kind }) => `${kinds[kind]} ${ends[kind]}`).join("; ")}`);
  legend($("cost-legend"), Object.fromEntries(curves.map(({ kind }) => [kind, kinds[kind]])), (kind) => ends[kind]);
}
