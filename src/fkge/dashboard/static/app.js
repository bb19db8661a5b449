// The live page. The server tells (events), this draws; nothing is drawn again that has not changed.

import { drawRoute, owner } from "./owner.js";
import { $, draw, duration, epsilon, live, LOCKED, make, many, narrow } from "./parts.js";
import { say, score, show, signed, size } from "./parts.js";

// -- figures -------------------------------------------------------------------------------------------

const figures = new Map();

function drawAll(names) {
  for (const holder of document.querySelectorAll("[data-figure]")) {
    const name = holder.dataset.figure;
    draw(holder, names.includes(name) ? figures.get(name) : null);
  }
  show($("#no-figures"), names.length === 0);
}

// -- the overview --------------------------------------------------------------------------------------

const LEADS = {
  waiting: "There is no simulation in this folder yet. This page waits for it.",
  ready: "The simulation is made and has not begun.",
  running: "",
  interrupted: "Nobody is working on this simulation. Nothing is lost: fkge simulate --resume takes it up again.",
  finished: "",
};

function drawState() {
  const { state } = live;
  const { status } = state;
  const pill = $("#status");
  say(pill, status);
  pill.className = `pill ${status}`;
  document.title = `${state.federation ?? state.run} · ${status} · fkge`;
  say($("#title"), state.federation ?? state.run);
  const running = state.arms.filter((arm) => arm.state === "under way").map((arm) => arm.name);
  const doing = running.length ? `Under way: ${running.join(" and ")}.` : "It begins.";
  say($("#lead"), state.headline ?? (LEADS[status] || doing));
  const about = `Folder ${state.run}, engine ${state.engine}, seed ${state.seed}, privacy ${state.privacy}.`;
  say($("#about"), state.engine ? about : "");
  for (const section of document.querySelectorAll("#overview [data-once]")) show(section, status !== "waiting");
  drawArms();
  drawOwners();
  drawLog();
  drawAll(state.figures);
  drawRoute();
}

function drawArms() {
  const { state } = live;
  const list = $("#arms");
  keyed(list, state.arms, (arm) => {
    const id = `arm-${arm.name}`;
    return make("li", {}, make("span", { class: "name", id }), make("span", { class: "told" }),
      make("progress", { "aria-labelledby": id }));
  }, (item, arm) => {
    say($(".name", item), arm.name);
    const bar = $("progress", item);
    bar.max = arm.total || 1;
    bar.value = arm.state === "due" ? 0 : arm.done;
  });
  tick();
}

function tick() {
  for (const arm of live.state?.arms ?? []) {
    const told = $(".told", $("#arms").items?.get(arm.name) ?? document.createElement("li"));
    if (!told) continue;
    const elapsed = arm.state === "under way" ? Date.now() / 1000 + live.ahead - arm.began : arm.seconds;
    const again = arm.restarts ? `, taken up again ${arm.restarts === 1 ? "once" : `${arm.restarts} times`}` : "";
    const part = arm.total && arm.state !== "over" ? `${Math.floor((100 * arm.done) / arm.total)}%, ` : "";
    const word = arm.state === "under way" ? "" : `${arm.state}, `;
    say(told, arm.state === "due" ? "due" : `${part}${word}${duration(elapsed)}${again}`);
  }
}

/** Keep one child per thing, by its name; children that stay keep their focus. */
function keyed(parent, things, create, update) {
  parent.items ??= new Map();
  const names = new Set(things.map((thing) => thing.name));
  for (const [name, child] of parent.items) if (!names.has(name)) (child.remove(), parent.items.delete(name));
  things.forEach((thing, i) => {
    let child = parent.items.get(thing.name);
    if (!child) parent.items.set(thing.name, (child = create(thing)));
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
    update(child, thing);
  });
}

const COLUMNS = ["does", "epochs", "alone", "federated", "Δ", "kept", "turned down", "went back", "sent", "ε"];

function drawOwners() {
  const { state } = live;
  const table = $("#owners");
  const lone = state.before ?? "alone";
  say($("#before-head"), lone);
  say($("#owners-caption"),
    `Best validation MRR so far, ${lone} and federated; Δ at equal epochs. Then what came of exchanges.`);
  const paid = state.owners.some((owner) => owner.spent !== null);
  show($("#epsilon-head"), paid);
  keyed($("tbody", table), state.owners, (owner) => {
    const link = make("a", { href: `#/owner/${encodeURIComponent(owner.name)}` }, owner.name);
    const row = make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, link));
    COLUMNS.forEach((label, i) => {
      row.append(make("td", { role: "cell", class: i < 2 ? null : "n", "data-label": i === 2 ? lone : label }));
    });
    const bar = make("progress", { "aria-label": `epochs of ${owner.name}` });
    row.cells[2].append(make("div", {}, bar, make("span", { class: "epochs" })));
    return row;
  }, (row, owner) => {
    const texts = cells(owner, lone);
    texts.forEach((text, i) => (i === 1 ? null : say(row.cells[i + 1], text)));
    const bar = $("progress", row);
    bar.max = owner.epochs || 1;
    bar.value = Math.min(owner.epoch, owner.epochs || 1);
    say($(".epochs", row), `${many(owner.epoch)} of ${many(owner.epochs)}`);
    row.cells[5].className = `n ${texts[4].startsWith("+") ? "up" : texts[4] ? "down" : ""}`;
    show(row.cells[10], paid);
  });
}

function cells(owner, lone) {
  const [before, after, then] = [owner.best[lone], owner.best.federated, owner.alongside];
  const both = after !== undefined && then !== null;
  const whom = owner.peers.length ? ` with ${owner.peers.join(", ")}` : "";
  return [
    owner.why ? `dead: ${owner.why}` : owner.state + whom,
    "",
    score(before), score(after), both ? signed(after - then) : "",
    ...(owner.met ? [many(owner.accepted), many(owner.turned_down), many(owner.backtracked), size(owner.sent)]
      : ["", "", "", ""]),
    owner.spent === null ? "" : epsilon(owner.spent),
  ];
}

function drawLog() {
  const { state } = live;
  const list = $("#log");
  const { first, lines } = state.log;
  if (list.run !== state.run || (list.next ?? 0) > first + lines.length) {
    list.replaceChildren();
    list.run = state.run;
    list.next = first;
  }
  const at = list.scrollTop;
  for (let i = Math.max(0, list.next - first); i < lines.length; i += 1) {
    const [arm, time, owner, text] = lines[i];
    const when = make("span", { class: "when" }, `${arm} ${duration(time)}`);
    list.prepend(make("li", {}, when, make("strong", {}, owner), ` ${text}`));
  }
  if (at > 0) list.scrollTop = at + 1; // whoever reads further down is not moved
  while (list.children.length > 200) list.lastChild.remove();
  list.next = first + lines.length;
  const latest = lines.at(-1);
  say($("#latest"), latest ? `${latest[2]} ${latest[3]}` : "");
}

// -- listening -----------------------------------------------------------------------------------------

function listen() {
  const source = new EventSource("/events");
  source.addEventListener("clock", (event) => {
    live.ahead = Number(event.data) - Date.now() / 1000;
    show($("#connection"), false);
    owner.state = "";
  });
  source.addEventListener("trouble", (event) => {
    const text = JSON.parse(event.data);
    show($("#connection"), text !== "");
    say($("#connection"), text);
  });
  source.addEventListener("state", (event) => {
    live.state = JSON.parse(event.data);
    drawState();
  });
  source.addEventListener("figure", (event) => {
    const told = JSON.parse(event.data);
    figures.set(told.name, told);
    if (live.state) drawAll(live.state.figures);
  });
  source.addEventListener("error", () => {
    lost();
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); // the browser has given up; we have not
  });
}

async function lost() {
  const box = $("#connection");
  show(box, true);
  say(box, "The connection is lost; trying again. What is shown is how it was.");
  try {
    if ((await fetch("/api/state")).status === 401) say(box, LOCKED);
  } catch { /* still away */ }
}

$("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});
addEventListener("hashchange", () => drawRoute(true));
narrow.addEventListener("change", () => {
  if (!live.state) return;
  drawAll(live.state.figures);
  if (owner.name) draw($("#owner-figure"), owner.figure);
});
setInterval(tick, 1000);
drawRoute();
listen();
