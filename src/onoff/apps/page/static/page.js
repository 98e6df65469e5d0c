// The page: draws the state that arrives as server-sent events, and sends clicks. It keeps choices of view alone.
import { $, drawBytes, drawCards, drawSteps, h, idle, status } from "./parts.js";
import { drawCosts, drawHidden, drawSensitive } from "./views.js";

const MANY = 12; // sources beyond which the panels take the whole width: names and bars need it
const MODES = ["past", "both"];
const PACE = 1100; // milliseconds between two clicks of the simulated reader
const SWITCHING = 0.24; // how often the simulated reader switches privacy, independently of what is read
const WARNING = "Your requests do not follow these habits. Beliefs and promises are relative to the habits: a server that knows yours better may learn more.";
let state = null; // the newest
let mode = location.hash === "#both" ? "both" : "past";
let refusal = ""; // what the last click was refused for
let lost = false; // whether the program behind the page is away
let reached = 0; // the serial number of the state after the last click that was answered
let chosen = null; // where the switch was put, until a state knows of it: older ones may arrive meanwhile
let reader = null; // the timer of the simulated reader, while it clicks
let planned = false; // whether the promise `both` was asked for
const world = () => state[mode];
const privacy = () => (chosen ? chosen.on : world().private);

async function post(path, body, seconds = 10) {
  refusal = "";
  notice();
  try {
    const answer = await fetch(path, { method: "POST", body: JSON.stringify(body ?? {}),
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
  const to = `/${mode}/${path}`;
  turn = turn.then(() => post(to, body));
  return turn;
}

// Errors, in words, at the foot of the window: nothing moves to make room for them.
function notice() {
  const words = lost
    ? "The program behind this page is gone. If onoff page is started again, the page goes on by itself."
    : refusal || (state && world()?.trouble) || "";
  $("notice").hidden = !words;
  $("notice").className = lost || refusal ? "bad" : "warn";
  if ($("notice-words").textContent !== words) $("notice-words").textContent = words;
  $("notice-close").hidden = !refusal || lost;
}

function drawAsk() {
  const on = privacy(), { queue } = world();
  $("title").textContent = state.title;
  $("privacy").setAttribute("aria-checked", on);
  $("privacy-word").textContent = on ? "ON" : "OFF";
  $("privacy-hint").textContent = on ? "hides what you ask" : "cheaper, not hidden";
  for (const id of ["privacy", "play"]) $(id).disabled = false;
  $("play").setAttribute("aria-pressed", reader !== null);
  $("play").textContent = reader ? "Stop the reader" : "Let a reader click for me";
  $("now").setAttribute("aria-disabled", queue.length !== 1);
  const chips = queue.map((wish) => h("li", {}, status(wish.private), wish.source));
  if (chips.length === 1) chips.push(h("li", { class: "ghost" }, "waits for the next"));
  $("queue").replaceChildren(...(chips.length ? chips : [h("li", { class: "ghost" }, "empty: choose a source")]));
  $("warning").textContent = world().knowledge?.warning ? WARNING : "";
}

// A click of the simulated reader, who follows the habits.
function read() {
  if (!world() || world().queue.length > 2) return;
  let left = Math.random();
  const source = world().habits.findIndex((chance) => (left -= chance) < 0);
  const on = Math.random() < SWITCHING ? !privacy() : privacy();
  if (source >= 0) inTurn("ask", { source: state.names[source], private: on }); // else rounding has left nothing
}

function drawStream() {
  const { stream, beginning, sensitive } = state.past, locked = sensitive.map((i) => state.names[i]).join(", ");
  const ahead = beginning ? `, and ${beginning === 1 ? "one more request asks" : `${beginning} more requests ask`} for everything` : "";
  const words = stream ? `This is a new stream with ${locked ? `${locked} locked` : "nothing locked"}${ahead}.` : "";
  if ($("stream").textContent !== words) $("stream").textContent = words;
}

// The promise `both` needs plans: they are made when its tab is first opened.
function plan() {
  if (mode !== "both" || state.both || planned) return;
  planned = true;
  post("/both/open_both", {}, 300);
}

function draw() {
  if (state) {
    const { names } = state, there = world() !== null;
    document.body.dataset.mode = mode;
    document.body.classList.toggle("many", names.length > MANY);
    document.body.classList.toggle("absent", !there);
    $("mode").setAttribute("aria-labelledby", `tab-${mode}`);
    $("planning").hidden = there;
    $("planning").textContent = there ? "" : state.planning ? `Planning for ${state.title} …` : state.unplanned;
    for (const name of MODES) {
      $(`tab-${name}`).setAttribute("aria-selected", name === mode);
      $(`tab-${name}`).tabIndex = name === mode ? 0 : -1;
    }
    drawCosts(names, state.costs, state.gap);
    if (there) {
      drawCards(names, world(), privacy(), (source) => inTurn("ask", { source, private: privacy() }), (source, on) => inTurn("lock", { source, on }));
      drawAsk();
      drawSteps(names, world(), mode === "past" ? "Nothing yet. Choose a source above." : "Nothing yet. Choose two sources above: the first is made when the second is known.");
      drawHidden(names, world().knowledge, mode === "past" ? " since" : "");
      if (mode === "past") {
        drawStream();
        drawSensitive(names, world());
      }
      drawBytes(names, world());
    }
    plan();
  }
  notice();
}

function settle() {
  if (chosen && state.serial >= chosen.since) chosen = null;
}

function open(name) {
  if (name === mode && name === "both" && state && !state.planning) planned = false; // after a failure: again
  mode = name;
  chosen = null;
  refusal = "";
  history.replaceState(null, "", name === "past" ? location.pathname : `#${name}`);
  draw();
}

function theme(choice) {
  const dark = choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (choice) document.documentElement.dataset.theme = choice;
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", dark ? "switch to light colours" : "switch to dark colours");
  return dark;
}

$("privacy").addEventListener("click", () => {
  if (idle($("privacy"))) return;
  const mine = (chosen = { on: !privacy(), since: Infinity });
  draw(); // at once
  inTurn("switch", { private: mine.on }).then((refused) => { mine.since = refused ? 0 : reached; settle(); draw(); });
});
$("now").addEventListener("click", () => idle($("now")) || inTurn("make_now"));
$("play").addEventListener("click", () => {
  if (reader) clearInterval(reader);
  reader = reader ? null : setInterval(read, PACE);
  draw();
});
$("notice-close").addEventListener("click", () => { refusal = ""; notice(); });
for (const name of MODES) {
  $(`tab-${name}`).addEventListener("click", () => open(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = MODES[(MODES.indexOf(name) + step + MODES.length) % MODES.length];
    open(next);
    $(`tab-${next}`).focus();
  });
}
addEventListener("hashchange", () => open(location.hash === "#both" ? "both" : "past"));
$("theme").addEventListener("click", () => { const dark = theme(localStorage.theme); theme((localStorage.theme = dark ? "light" : "dark")); });

theme(localStorage.theme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(localStorage.theme));
const events = new EventSource("/events");
events.onmessage = (event) => { state = JSON.parse(event.data); lost = false; settle(); draw(); };
events.onerror = () => { lost = true; chosen = null; planned = false; notice(); };
new ResizeObserver(draw).observe(document.querySelector("main"));
