// The page: draws the state that arrives as server-sent events, and sends clicks. It keeps nothing itself.
import { bars, lines } from "./charts.js";

const $ = (id) => document.getElementById(id);
const KINDS = {
  everything: "everything, always", inner: "the paper's scheme", optimum: "optimum (proved)", outer: "outer bound (not always reachable)",
};
const MANY = 12; // sources beyond which the panels take the whole width: names and bars need it
const PROVED = 1e-5; // a gap that nobody sees
let state = null; // the newest
let figure = null; // the curves of the symmetric chain
let refusal = ""; // what the last click was refused for
let lost = false; // whether the program behind the page is away
let reached = 0; // the serial number of the state after the last click that was answered
let chosen = null; // where the switch was put, until a state knows of it: older ones may arrive meanwhile
const privacy = () => (chosen ? chosen.on : state.private);

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const status = (on) => h("span", { class: on ? "status on" : "status off" }, on ? "ON" : "OFF");
const percent = (p) => `${(100 * p).toFixed(0)} %`;
const size = (bytes) => (bytes < 10000 ? `${bytes} B` : `${(bytes / 1000).toFixed(1)} kB`);

// A button that does nothing now. Not `disabled`: that would take the focus away from who has just pressed it.
const idle = (button) => button.getAttribute("aria-disabled") === "true";

async function post(path, body, seconds = 10) {
  refusal = "";
  try {
    const answer = await fetch(path, { method: "POST", body: body instanceof File ? body : JSON.stringify(body ?? {}),
      signal: AbortSignal.timeout(1000 * seconds) });
    const { error, serial } = await answer.json();
    if (error) refusal = error;
    else reached = serial;
  } catch (error) {
    refusal = error.name === "TimeoutError"
      ? `No answer in ${seconds} seconds. A browser has few connections to one address: close other windows with this page, and try again.`
      : "The program behind this page did not answer. Is onoff page still running?";
  }
  notice();
  return refusal;
}

// Clicks are sent one after the other: requests on several connections may overtake each other.
let turn = Promise.resolve();
function inTurn(path, body) {
  turn = turn.then(() => post(path, body));
  return turn;
}

// Errors, in words, at the foot of the window: nothing moves to make room for them.
function notice() {
  const words = lost
    ? "The program behind this page is gone. If onoff page is started again, the page goes on by itself."
    : state?.busy || refusal || state?.trouble || "";
  $("notice").hidden = !words;
  $("notice").className = lost || refusal ? "bad" : state?.busy ? "busy" : "warn";
  if ($("notice-words").textContent !== words) $("notice-words").textContent = words;
  $("notice-close").hidden = !refusal || lost;
}

function drawCards() {
  const { names, habits } = state;
  document.body.classList.toggle("many", names.length > MANY);
  if ($("cards").dataset.names !== names.join("\n")) {
    $("cards").dataset.names = names.join("\n");
    $("cards").replaceChildren(...names.map((name) => {
      const card = h("button", { class: "card", title: name }, h("b", {}, name), h("small", {}, ""), h("span", { class: "habit" }));
      card.addEventListener("click", () => idle(card) || inTurn("/ask", { source: name, private: privacy() }));
      return card;
    }));
  }
  [...$("cards").children].forEach((card, i) => {
    const share = habits[i] ? `${percent(habits[i])} next` : "never next";
    card.setAttribute("aria-disabled", !habits[i]);
    card.children[1].textContent = share;
    card.children[2].style.setProperty("--part", `${100 * habits[i]}%`);
    card.setAttribute("aria-label", `ask for ${names[i]}, ${share}, privacy ${privacy() ? "ON" : "OFF"}`);
  });
}

function drawAsk() {
  const on = privacy();
  $("title").textContent = state.title;
  $("privacy").setAttribute("aria-checked", on);
  $("privacy-word").textContent = on ? "ON" : "OFF";
  $("privacy-hint").textContent = on ? "hides what you ask" : "cheaper, not hidden";
  for (const id of ["privacy", "stop", "play"]) $(id).disabled = false;
  $("play").setAttribute("aria-pressed", state.autoplay);
  $("play").textContent = state.autoplay ? "Stop the reader" : "Let a reader click for me";
  $("now").setAttribute("aria-disabled", state.queue.length !== 1);
  const chips = state.queue.map((wish) => h("li", {}, status(wish.private), wish.source));
  if (chips.length === 1) chips.push(h("li", { class: "ghost" }, "waits for the next"));
  $("queue").replaceChildren(...(chips.length ? chips : [h("li", { class: "ghost" }, "empty: choose a source")]));
  const { pid, url, wanted } = state.server;
  $("server").className = pid && wanted ? "pill good" : "pill bad";
  $("server").textContent = wanted ? (pid ? "server running" : "server starting") : pid ? "server stopping" : "server stopped";
  $("server").title = pid ? `${url}, process ${pid}` : "";
  $("stop").textContent = wanted ? "Stop the server" : "Start the server";
}

function dots(set, wanted, names) {
  const inside = new Set(set);
  const words = set.length === names.length ? "everything" : set.map((i) => names[i]).join(", ") || "nothing yet";
  return h("span", { class: "dots", role: "img", "aria-label": words, title: words }, ...names.map((_, i) =>
    h("i", { class: `${inside.has(i) ? "in" : ""}${i === wanted ? " wanted" : ""}` })));
}

function drawSteps() {
  const { names, steps } = state;
  $("no-steps").hidden = steps.length > 0;
  $("count").textContent = state.message ? `arrived: “${state.message}”` : "";
  $("steps").replaceChildren(...[...steps].reverse().map((step) => h("tr", step.bytes ? {} : { class: "pending" },
    h("td", {}, String(step.step)),
    h("td", {}, status(step.private), step.made_private ? h("span", { title: "asked OFF, made ON: first of a stream, or without a next request" }, "*") : ""),
    h("td", { class: "want", title: names[step.wanted] }, names[step.wanted]),
    h("td", { class: "saw" }, dots(step.saw, step.wanted, names), step.times > 1 ? h("small", { title: "the same query was sent again" }, ` ${step.times}×`) : ""),
    h("td", { class: "open", title: step.private ? "everything" : names[step.wanted] }, step.private ? "everything" : names[step.wanted]),
    h("td", { class: "number" }, step.bytes ? String(step.bytes) : "pending"),
    h("td", { class: "number lag" }, String(step.lag)))));
  const last = steps.at(-1);
  const words = last ? `Step ${last.step}, privacy ${last.private ? "ON" : "OFF"}, wanted ${names[last.wanted]}, ` +
    (last.bytes ? `the server saw ${last.saw.length} of ${names.length}` : "pending") : "";
  if ($("log").textContent !== words) $("log").textContent = words;
}

function drawBeliefs() {
  const { names, beliefs } = state;
  const box = $("beliefs"), stacked = getComputedStyle(document.querySelector(".versus")).display === "none";
  const width = stacked ? box.clientWidth : Math.floor((box.clientWidth - 16) / 2), height = 160;
  const most = Math.max(0.2, ...beliefs.flatMap((b) => [...b.ours, ...b.naive, ...b.prior]));
  const top = [0.2, 0.3, 0.4, 0.6, 0.8, 1].find((value) => value >= most - 1e-9) ?? 1;
  const rows = [0, 1, 2].map((i) => {
    const b = beliefs[i];
    if (!b) return h("div", { class: "belief ghost" }, h("p", {}, i || beliefs.length ? "" : "No private request yet."));
    const side = (belief, bits, kind) => {
      const guess = belief.indexOf(Math.max(...belief));
      return h("div", { class: "side", "data-bits": bits.toFixed(6) }, bars(width, height, names, belief, b.prior, b.wanted, top, kind),
        h("p", {}, stacked ? `${kind === "naive" ? "a naive client" : "with onoff"}: ` : "", h("b", {}, `${bits.toFixed(3)} bits`), " learned", h("br"), `best guess: ${names[guess]}, ${percent(belief[guess])}`));
    };
    return h("div", { class: "belief", "data-step": b.step }, h("h3", {}, `Step ${b.step}: you wanted ${names[b.wanted]}`),
      h("div", { class: "pair" }, side(b.ours, b.ours_bits, "onoff"), side(b.naive, b.naive_bits, "naive")));
  });
  box.replaceChildren(...rows);
}

function legend(box, words, values = () => "") {
  box.replaceChildren(...["everything", "inner", "optimum", "outer"].filter((kind) => words[kind]).map((kind) =>
    h("span", { class: `key ${kind}` }, h("i"), words[kind], h("b", {}, values(kind)))));
}

function drawCosts() {
  const { costs, names } = state;
  if (!costs.length) return $("cost").replaceChildren(h("p", { class: "empty" }, "computing …"));
  const x = costs.map((row) => row.lag);
  const curves = [["everything", "everything"], ["outer", "outer"], ["inner", "paper"], ["optimum", "optimum"]].map(
    ([kind, key]) => ({ kind, x, y: costs.map((row) => row[key] ?? row.inner) }));
  lines($("cost"), curves, { x: "lag: steps since privacy was last ON", y: "messages per request: lower is better", whole: true,
    xs: [1, 8], ys: [0, names.length + 0.4] },
    `Cost in messages per request at lag 1: everything ${names.length}, paper ${costs[0].paper.toFixed(2)}, ` +
    `optimum ${costs[0].optimum.toFixed(2)}, bound ${costs[0].outer.toFixed(2)}`);
  const ends = Object.fromEntries(curves.map(({ kind, y }) => [kind, kind === "everything" ? ` ${y[0]}` : ` ${y[0].toFixed(2)} → ${y.at(-1).toFixed(2)}`]));
  const gap = Math.max(...costs.map((row) => row.gap));
  const optimum = gap < PROVED ? KINDS.optimum : `best plan found (proved: at most ${(100 * gap).toPrecision(2)} % above the optimum)`;
  legend($("cost-legend"), { ...KINDS, optimum }, (kind) => ends[kind]);
}

function drawBytes() {
  const { bytes: { onoff, everything, naive }, names } = state;
  const row = (name, value, kind) => {
    const bar = h("span", { class: `fill ${kind}` });
    bar.style.width = everything ? `${(100 * value) / everything}%` : "0";
    const each = value ? h("small", {}, ` ${((names.length * value) / everything).toFixed(2)} messages each`) : "";
    return h("div", { class: "total" }, h("span", {}, name, each), h("span", { class: "number" }, size(value)), h("span", { class: "trough" }, bar));
  };
  $("bytes").replaceChildren(row("everything, always", everything, "everything"), row("onoff", onoff, "optimum"), row("naive client", naive, "naive"));
}

function drawFigure() {
  if (!figure) return;
  const curves = (list) => list.map((c) => ({ kind: c.key.split(",")[0], x: c.x, y: c.y }))
    .sort((a, b) => ["outer", "inner", "optimum"].indexOf(a.kind) - ["outer", "inner", "optimum"].indexOf(b.kind));
  const y = "rate = wanted / downloaded: higher is better", ys = [0, 1.02], alpha = Number($("alpha").value);
  lines($("over-alpha"), curves(figure.alpha), { x: "α, the probability to stay", y, xs: [0, 1], ys, marker: alpha },
    `Rates over alpha, ${$("n").value} sources`);
  lines($("over-lag"), curves(figure.lag), { x: "steps since privacy was last ON", y, whole: true, xs: [1, 6], ys },
    `Rates over time, alpha ${alpha}`);
  legend($("figure-legend"), { ...KINDS, everything: "" });
}

function settle() {
  if (chosen && state.serial >= chosen.since) chosen = null;
}

function draw() {
  if (state) for (const part of [drawCards, drawAsk, drawSteps, drawBeliefs, drawCosts, drawBytes]) part();
  notice();
}

// Sliders: their numbers at once, the curves once they rest; an answer that is overtaken is dropped.
let asked = 0, resting = 0;
async function loadFigure() {
  const mine = ++asked, query = new URLSearchParams({ n: $("n").value, alpha: $("alpha").value });
  try {
    const answer = await fetch(`/figure?${query}`);
    const found = await answer.json();
    if (mine === asked && answer.ok) { figure = found; drawFigure(); }
  } catch { /* the notice already says that the program is away; the next slide asks again */ }
}
function slid() {
  $("n-out").textContent = $("n").value;
  $("alpha-out").textContent = Number($("alpha").value).toFixed(2);
  clearTimeout(resting);
  resting = setTimeout(loadFigure, 120);
  drawFigure();
}

function theme(choice) {
  const dark = choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (choice) document.documentElement.dataset.theme = choice;
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", dark ? "switch to light colours" : "switch to dark colours");
  return dark;
}

$("privacy").addEventListener("click", () => {
  const mine = (chosen = { on: !privacy(), since: Infinity });
  draw(); // at once
  inTurn("/switch", { private: mine.on }).then((refused) => { mine.since = refused ? 0 : reached; settle(); draw(); });
});
$("now").addEventListener("click", () => idle($("now")) || inTurn("/now"));
$("play").addEventListener("click", () => inTurn("/play", { on: !state.autoplay }));
$("stop").addEventListener("click", () => post("/server", { on: !state.server.wanted }, 60));
$("notice-close").addEventListener("click", () => { refusal = ""; notice(); });
$("n").addEventListener("input", slid);
$("alpha").addEventListener("input", slid);
$("use").addEventListener("click", async () => {
  if (!(await post("/symmetric", { n: Number($("n").value), alpha: Number($("alpha").value) }, 300))) $("ask").scrollIntoView();
});
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  if (!file) return;
  const words = await post(`/chain?${new URLSearchParams({ name: file.name })}`, file, 300);
  $("file-words").textContent = words || `${file.name} is loaded.`;
  $("file").value = ""; // so that the same file can be tried again
});
$("theme").addEventListener("click", () => { const dark = theme(localStorage.theme); theme((localStorage.theme = dark ? "light" : "dark")); });

theme(localStorage.theme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(localStorage.theme));
// Only while somebody is looking: a browser has six connections to one address, for all its tabs together.
let events = null;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource("/events");
  events.onmessage = (event) => { state = JSON.parse(event.data); lost = false; settle(); draw(); };
  events.onerror = () => { lost = true; chosen = null; notice(); };
}
document.addEventListener("visibilitychange", look);
look();
new ResizeObserver(() => { draw(); drawFigure(); }).observe(document.querySelector("main"));
loadFigure();
