// The page of one owner: its scores, its ledger, and queries to its models.

import { $, ask, draw, epsilon, live, make, many, say, score, short, show, signed, size, table } from "./parts.js";
import { suggest } from "./suggest.js";

export const owner = { name: null, asked: 0, due: 0, state: "" };

function route() {
  const found = /^#\/owner\/(.+)$/.exec(location.hash);
  try {
    return found ? decodeURIComponent(found[1]) : null;
  } catch {
    return null;
  }
}

export function drawRoute(moved = false) {
  if (location.hash && !location.hash.startsWith("#/")) return; // the skip link
  const name = route();
  show($("#overview"), name === null);
  show($("#owner"), name !== null);
  if (name === null) {
    owner.name = null;
    if (moved) $("#main").focus();
    return;
  }
  if (name !== owner.name) {
    Object.assign(owner, { name, state: "" });
    say($("#owner-title"), name);
    say($("#owner-lead"), "");
    for (const id of ["answers", "neighbors", "examples", "owner-tables", "ledger"]) $(`#${id}`).replaceChildren();
    $("#ask").reset();
    $("#near").reset();
    draw($("#owner-figure"), null);
    show($("#policy-section"), false);
    scrollTo(0, 0);
    $("#owner-title").focus();
    drawExamples(name);
  }
  const { state } = live;
  const data = state && state.status + JSON.stringify(state.owners.find((one) => one.name === name) ?? null);
  if (data && data !== owner.state) {
    owner.state = data;
    clearTimeout(owner.due);
    owner.due = setTimeout(drawOwner, Math.max(0, 3000 - (Date.now() - owner.asked)), name);
  }
}

async function drawOwner(name) {
  owner.asked = Date.now();
  try {
    const data = await ask(`/api/owner/${encodeURIComponent(name)}`);
    if (owner.name !== name) return;
    const { state } = live;
    const now = state.owners.find((one) => one.name === name);
    const doing = now.why ? `dead: ${now.why}` : now.state + (now.peers.length ? ` with ${now.peers.join(", ")}` : "");
    const spent = `${many(now.epoch)} of ${many(now.epochs)} epochs`;
    const lead = [state.now ? `In ${state.now}: ${doing}, ${spent}.` : "Nothing has started."];
    if (data.result) {
      const { model, entities, relations, triples } = data.result;
      lead.push(`${model}; ${many(entities)} entities, ${many(relations)} relations, ${many(triples)} training triples.`);
    }
    say($("#owner-lead"), lead.join(" "));
    owner.figure = data.figure;
    draw($("#owner-figure"), data.figure);
    $("#owner-tables").replaceChildren(...ownerTables(data));
    show($("#policy-section"), data.policy !== null);
    say($("#policy"), data.policy ?? "");
    await drawLedger(name);
  } catch (error) {
    if (owner.name === name) say($("#owner-lead"), String(error.message ?? error));
  }
}

function ownerTables(data) {
  const out = [];
  const federated = data.arms.federated;
  if (data.test) {
    const arms = Object.keys(data.test);
    const parts = ["strict", "chained", "held"].filter((part) => data.test.federated?.[part]);
    const gain = (found) => (found ? `${signed(found.difference)} (${signed(found.low)} … ${signed(found.high)})` : "");
    const rows = parts.map((part) => [part, many(data.test.federated[part].triples),
      ...arms.map((arm) => score(data.test[arm][part]?.mrr)), ...(data.versus ? [gain(data.versus[part]?.mrr)] : [])]);
    const heads = ["facts", "#number", ...arms.map((arm) => `#${arm}`)];
    if (data.versus) heads.push(`#gain over ${live.state.baseline}, 95%`);
    const meaning = "Strict: no other owner holds them; held: a partner does; chained: another owner, by links.";
    out.push(table(`MRR on test facts. ${meaning}`, heads, rows));
  }
  if (federated && Object.keys(federated.learned).length) {
    const tested = federated.tests > 0; // without validations nothing shows what was useful
    out.push(table("Peers it learned from: updates aggregated before the score improved, of all that were translated",
      ["peer", "#useful", "#translated"], Object.entries(federated.learned).map(([peer, [good, all]]) =>
        [peer, tested ? many(Math.min(good, all)) : "not validated", many(all)])));
  }
  return out;
}

async function drawLedger(name) {
  const box = $("#ledger");
  const { ledger } = await ask(`/api/ledger/${encodeURIComponent(name)}`);
  if (owner.name !== name) return;
  const text = JSON.stringify(ledger);
  if (box.shown === text && box.children.length) return;
  box.shown = text;
  if (ledger === null) {
    const none = "It has no ledger yet: one is created at its first exchange.";
    return box.replaceChildren(make("p", { class: "quiet" }, none));
  }
  if (ledger.error) return box.replaceChildren(make("p", { class: "notice" }, ledger.error));
  const counts = `Entries: ${many(ledger.head.rows)}; notes: ${many(ledger.head.notes)}.`;
  const parts = [make("p", { class: "quiet" }, `The ledger is intact. ${counts}`)];
  if (ledger.budgets.length) {
    parts.push(table(`Spent. Not covered: ${ledger.uncovered}`,
      ["for one", "#budget ε", "#at δ", "#spent ε", "#left ε", "#steps or queries"],
      ledger.budgets.map((b) => [`${b.unit}, ${b.relation}`, epsilon(b.epsilon), String(b.delta),
        epsilon(b.spent.epsilon), epsilon(b.left), many(b.spent.count)])));
  }
  if (ledger.entries.length) {
    parts.push(table("Paid for", ["mechanism", "unit", "peer", "#paid", "#events", "#sent", "#bytes"],
      ledger.entries.map((e) => [e.mechanism, e.unit, e.peer ?? "none yet", many(e.paid), many(e.paid_count),
        many(e.left), size(e.nbytes)])));
  }
  parts.push(ledger.unprotected.length
    ? table("Sent without protection", ["what", "to", "#messages", "#size"],
        ledger.unprotected.map((u) => [u.what, u.peer, many(u.messages), size(u.nbytes)]))
    : make("p", {}, "Nothing was sent without protection."));
  box.replaceChildren(...parts);
}

// -- queries --------------------------------------------------------------------------------------------

const PARTS = ["head", "relation", "tail"];

async function drawExamples(name) {
  try {
    const { examples } = await ask("/api/examples", { owner: name });
    if (owner.name !== name || !examples.length) return;
    const buttons = examples.map((one) => make("button", { type: "button", class: "plain", onclick: () => fill(one) },
      `${short(one.head)} · ${short(one.relation)} · ?`));
    $("#examples").replaceChildren(make("span", { class: "quiet" }, "From its test set:"), ...buttons);
  } catch { /* the simulation does not exist yet; labels can still be typed */ }
}

function fill(one) {
  for (const part of PARTS) $(`#${part}`).value = one[part] ?? "";
  $("#ask").requestSubmit();
}

async function answer(box, path, parameters, drawn) {
  const question = { owner: owner.name, ...parameters };
  const asked = JSON.stringify(question);
  box.asked = asked;
  box.replaceChildren(make("p", { class: "quiet" }, "…"));
  let parts;
  try {
    const { arms } = await ask(path, question);
    parts = Object.entries(arms).map(([arm, data]) =>
      make("div", {}, make("h3", {}, arm === "federated" ? "After: federated" : `Before: ${arm}`),
        ...(data.missing ? [make("p", { class: "quiet" }, `${data.missing}.`)] : drawn(arm, data))));
  } catch (error) {
    parts = [make("p", { class: "notice" }, error.message)];
  }
  if (box.asked === asked) box.replaceChildren(make("div", { class: "pair" }, ...parts));
}

const plain = (value) => value?.toFixed(3).replace("-", "−") ?? "no number";
const MARKS = { train: "in training", valid: "in validation" };

function drawPredictions(arm, data) {
  const rows = data.answers.map((one) => {
    const true_ = one.split?.startsWith("test");
    const mark = true_ ? make("span", { class: "true" }, "✓ true, not in training")
      : make("span", { class: "mark" }, one.split ? MARKS[one.split] ?? one.split : "");
    const label = make("div", {}, make("span", { title: one.label }, short(one.label)), mark);
    const row = [String(one.place), label, plain(one.score)];
    row.hit = true_;
    return row;
  });
  const found = data.true.map((one) => one.place);
  const unseen = data.unseen === 1 ? "one true answer" : `${many(data.unseen)} true answers`;
  const places = !data.unseen ? "The test set has no answer to this."
    : found.length ? `Of ${unseen} not in training, the best has rank ${many(found[0])}.`
      : "The true answers not in training rank below 1,000.";
  return [make("p", { class: "places" }, places), table(`Answers, ${arm}`, ["rank", "answer", "#score"], rows)];
}

function drawNeighbors(arm, data) {
  const label = (one) => make("div", {}, make("span", { title: one.label }, short(one.label)));
  const rows = data.answers.map((one, i) => [String(i + 1), label(one), plain(one.similarity)]);
  return [table(`Nearest, ${arm}`, ["rank", "entity", "#cosine"], rows)];
}

$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  answer($("#answers"), "/api/predict", given, drawPredictions);
});

$("#near").addEventListener("submit", (event) => {
  event.preventDefault();
  answer($("#neighbors"), "/api/neighbors", { entity: $("#entity").value }, drawNeighbors);
});

document.querySelectorAll("input[data-kind]").forEach((input) => suggest(input, () => owner.name));
