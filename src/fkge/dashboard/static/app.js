// The live page. The server sends events, this draws them; what has not changed is not drawn again.

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
  waiting: "There is no simulation in this folder yet. This page waits for one.",
  ready: "The simulation is created and has not started.",
  running: "",
  interrupted: "The simulation was interrupted. Nothing is lost: fkge simulate --resume continues it.",
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
  const running = state.arms.filter((arm) => arm.state === "running").map((arm) => arm.name);
  const doing = running.length ? `Running: ${running.join(" and ")}.` : "Starting.";
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
    return make("li", {}, make("span", { class: "name", id }), make("span", { class: "detail" }),
      make("progress", { "aria-labelledby": id }));
  }, (item, arm) => {
    say($(".name", item), arm.name);
    const bar = $("progress", item);
    bar.max = arm.total || 1;
    bar.value = arm.state === "pending" ? 0 : arm.done;
  });
  tick();
}

function tick() {
  for (const arm of live.state?.arms ?? []) {
    const detail = $(".detail", $("#arms").items?.get(arm.name) ?? document.createElement("li"));
    if (!detail) continue;
    const elapsed = arm.state === "running" ? Date.now() / 1000 + live.ahead - arm.began : arm.seconds;
    const again = arm.restarts ? `, resumed ${arm.restarts === 1 ? "once" : `${arm.restarts} times`}` : "";
    const part = arm.total && arm.state !== "finished" ? `${Math.floor((100 * arm.done) / arm.total)}%, ` : "";
    const words = { running: "", finished: "finished in ", interrupted: "interrupted after " };
    say(detail, arm.state === "pending" ? "pending" : `${part}${words[arm.state]}${duration(elapsed)}${again}`);
  }
}

/** Keep one child per item, by its name; children that stay keep their focus. */
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

const COLUMNS = ["state", "epochs", "alone", "federated", "Δ", "accepted", "rejected", "rolled back", "sent", "ε"];

function drawOwners() {
  const { state } = live;
  const table = $("#owners");
  const baseline = state.baseline ?? "alone";
  say($("#baseline-head"), baseline);
  say($("#owners-caption"),
    `Best validation MRR so far, ${baseline} and federated; Δ at equal epochs. Then the outcome of exchanges.`);
  const paid = state.owners.some((owner) => owner.spent !== null);
  show($("#epsilon-head"), paid);
  keyed($("tbody", table), state.owners, (owner) => {
    const link = make("a", { href: `#/owner/${encodeURIComponent(owner.name)}` }, owner.name);
    const row = make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, link));
    COLUMNS.forEach((label, i) => {
      row.append(make("td", { role: "cell", class: i < 2 ? null : "n", "data-label": i === 2 ? baseline : label }));
    });
    const bar = make("progress", { "aria-label": `epochs of ${owner.name}` });
    row.cells[2].append(make("div", {}, bar, make("span", { class: "epochs" })));
    return row;
  }, (row, owner) => {
    const texts = cells(owner, baseline);
    texts.forEach((text, i) => (i === 1 ? null : say(row.cells[i + 1], text)));
    const bar = $("progress", row);
    bar.max = owner.epochs || 1;
    bar.value = Math.min(owner.epoch, owner.epochs || 1);
    say($(".epochs", row), `${many(owner.epoch)} of ${many(owner.epochs)}`);
    row.cells[5].className = `n ${texts[4].startsWith("+") ? "up" : texts[4] ? "down" : ""}`;
    show(row.cells[10], paid);
  });
}

function cells(owner, baseline) {
  const [before, after, then] = [owner.best[baseline], owner.best.federated, owner.baseline];
  const both = after !== undefined && then !== null;
  const whom = owner.peers.length ? ` with ${owner.peers.join(", ")}` : "";
  return [
    owner.why ? `dead: ${owner.why}` : owner.state + whom,
    "",
    score(before), score(after), both ? signed(after - then) : "",
    ...(owner.federated ? [many(owner.accepted), many(owner.rejected), many(owner.backtracked), size(owner.sent)]
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
  if (at > 0) list.scrollTop = at + 1; // keep the position of a reader who has scrolled down
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
    const data = JSON.parse(event.data);
    figures.set(data.name, data);
    if (live.state) drawAll(live.state.figures);
  });
  source.addEventListener("error", () => {
    lost();
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); // the browser does not retry by itself any more
  });
}

async function lost() {
  const box = $("#connection");
  show(box, true);
  say(box, "The connection is lost; trying again. The page shows the last known state.");
  try {
    if ((await fetch("/api/state")).status === 401) say(box, LOCKED);
  } catch { /* still offline */ }
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
