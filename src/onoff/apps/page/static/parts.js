// What both modes draw alike: cards, the table of steps, the bytes.

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const percent = (p) => `${(100 * p).toFixed(0)} %`;
export const status = (on) => h("span", { class: on ? "status on" : "status off" }, on ? "ON" : "OFF");
const size = (bytes) => (bytes < 10000 ? `${bytes} B` : `${(bytes / 1000).toFixed(1)} kB`);

// A button that does nothing now. Not `disabled`: that would take the focus away from who has just pressed it.
export const idle = (button) => button.getAttribute("aria-disabled") === "true";

const SVG = "http://www.w3.org/2000/svg";
function padlock() {
  const svg = document.createElementNS(SVG, "svg"), body = document.createElementNS(SVG, "rect"), bow = document.createElementNS(SVG, "path");
  for (const [name, value] of Object.entries({ viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" })) svg.setAttribute(name, value);
  for (const [name, value] of Object.entries({ x: 2.5, y: 7, width: 11, height: 7.5, rx: 1.6 })) body.setAttribute(name, value);
  bow.setAttribute("d", "M5 7V5a3 3 0 0 1 6 0v2");
  svg.append(body, bow);
  return svg;
}

// world: that of the mode; on: where the switch stands; ask(name), lock(name, on): what clicks do.
export function drawCards(names, world, on, ask, lock) {
  const box = $("cards"), locked = new Set(world.sensitive ?? []);
  if (box.dataset.names !== names.join("\n")) {
    box.dataset.names = names.join("\n");
    box.replaceChildren(...names.map((name) => {
      const card = h("button", { class: "card", title: name }, h("b", {}, name), h("small", {}, ""), h("span", { class: "habit" }));
      const key = h("button", { class: "lock in-past", "aria-pressed": "false" }, padlock());
      card.addEventListener("click", () => idle(card) || ask(name));
      key.addEventListener("click", () => idle(key) || lock(name, key.getAttribute("aria-pressed") !== "true"));
      return h("div", { class: "slot" }, card, key);
    }));
  }
  [...box.children].forEach((slot, i) => {
    const [card, key] = slot.children, chance = world.habits[i];
    const share = chance ? `${percent(chance)} next` : "never next";
    slot.classList.toggle("locked", locked.has(i));
    card.setAttribute("aria-disabled", !chance);
    card.children[1].textContent = share;
    card.children[2].style.setProperty("--part", `${100 * chance}%`);
    card.setAttribute("aria-label", `ask for ${names[i]}, ${share}, privacy ${on ? "ON" : "OFF"}`);
    key.setAttribute("aria-pressed", locked.has(i));
    key.setAttribute("aria-label", `${names[i]} is sensitive`);
    key.title = locked.has(i) ? "sensitive: unlock it in a new stream" : "make it sensitive in a new stream";
  });
}

function squares(set, wanted, names) {
  const inside = new Set(set);
  const words = set.length === names.length ? "everything" : set.map((i) => names[i]).join(", ") || "nothing yet";
  return h("span", { class: "squares", role: "img", "aria-label": words, title: words }, ...names.map((_, i) =>
    h("i", { class: `square${inside.has(i) ? " in" : ""}${i === wanted ? " wanted" : ""}` })));
}

export function drawSteps(names, world, nothing) {
  const { steps } = world, locked = new Set(world.sensitive ?? []);
  if ($("saw-names").dataset.names !== names.join("\n")) {
    $("saw-names").dataset.names = names.join("\n");
    $("saw-names").replaceChildren(...names.map((name) => h("span", {}, name.length > 12 ? `${name.slice(0, 11)}…` : name)));
  }
  $("no-steps").hidden = steps.length > 0;
  $("no-steps").textContent = nothing;
  $("count").textContent = world.message ? `arrived: “${world.message}”` : "";
  $("steps").replaceChildren(...[...steps].reverse().map((step) => {
    const naive = step.naive.length === names.length ? "everything" : names[step.wanted];
    return h("tr", {},
      h("td", {}, String(step.step)),
      h("td", {}, status(step.private), step.made_private ? h("span", { title: "asked OFF, made ON: first of a stream, or without a next request" }, "*") : ""),
      h("td", { class: "want", title: names[step.wanted] }, ...(locked.has(step.wanted) ? [padlock(), h("span", { class: "hidden" }, "locked: ")] : []), names[step.wanted]),
      h("td", { class: "saw" }, squares(step.saw, step.wanted, names)),
      h("td", { class: "open", title: naive }, naive),
      h("td", { class: "number" }, String(step.bytes)),
      h("td", { class: "number since" }, String(step.lag)));
  }));
  const last = steps.at(-1);
  const words = last ? `Step ${last.step}, privacy ${last.private ? "ON" : "OFF"}, wanted ${names[last.wanted]}, ` +
    `the server saw ${last.saw.length} of ${names.length}` : "";
  if ($("log").textContent !== words) $("log").textContent = words;
}

export function drawBytes(names, { bytes: { onoff, everything, naive } }) {
  const row = (name, value, kind) => {
    const bar = h("span", { class: `fill ${kind}` });
    bar.style.width = everything ? `${(100 * value) / everything}%` : "0";
    const each = value ? h("small", {}, ` ${((names.length * value) / everything).toFixed(2)} messages each`) : "";
    return h("div", { class: "total" }, h("span", {}, name, each), h("span", { class: "number" }, size(value)), h("span", { class: "trough" }, bar));
  };
  $("bytes").replaceChildren(row("everything, always", everything, "everything"), row("onoff", onoff, "past"), row("naive client", naive, "naive"));
}

export function legend(box, kinds, values = () => "") {
  box.replaceChildren(...Object.entries(kinds).map(([kind, words]) => h("span", { class: `key ${kind}` }, h("i"), words, h("b", {}, values(kind)))));
}
