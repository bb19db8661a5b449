// Shared by the pages: elements, number formats, tables, figures, and requests to the server.

export const $ = (selector, within = document) => within.querySelector(selector);
export const narrow = matchMedia("(max-width: 40rem)");

/** The last state from the server; `ahead`: seconds that its clock is ahead of ours. */
export const live = { state: null, ahead: 0 };

/** An element with attributes and children. Strings become text nodes: labels are data, never markup. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (![null, undefined, false].includes(value)) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

export const score = (value) => value?.toFixed(3).replace(/^(-?)0\./, "$1.") ?? "";
export const signed = (value) => (value < 0 ? "−" : "+") + score(Math.abs(value));
export const epsilon = (value) => (value === null ? "∞" : Number(value.toPrecision(4)).toLocaleString("en"));
export const many = (value) => value.toLocaleString("en");

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; bytes >= 999.5 && i < units.length - 1; i += 1) bytes /= 1000;
  return `${i === 0 || bytes >= 9.95 ? Math.round(bytes) : bytes.toFixed(1)} ${units[i]}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** The readable part of a label: of a URL, what follows the last slash or hash. */
export function short(label) {
  const last = /^[a-z][a-z0-9+.-]*:\/\/.*[/#](.+)$/i.exec(label);
  return last ? last[1] : label;
}

export async function ask(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given);
  const answer = await fetch(`${path}?${query}`);
  if (answer.status === 401) throw new Error(LOCKED);
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error ?? `the server answered ${answer.status}`);
  return data;
}

export const LOCKED = "The server was restarted with another token: open the address that it printed.";

/** A table with a caption; columns of numbers have heads that begin with "#". */
export function table(caption, heads, rows) {
  const kinds = heads.map((head) => (head.startsWith("#") ? "n" : "wide"));
  return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    make("table", {}, make("caption", {}, make("span", {}, caption)),
      make("thead", {}, make("tr", {}, ...heads.map((head, i) =>
        make("th", { scope: "col", class: kinds[i] }, head.replace("#", ""))))),
      make("tbody", {}, ...rows.map((row) => make("tr", { class: row.hit ? "hit" : null },
        ...row.map((cell, i) =>
          make(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: kinds[i] }, cell)))))));
}

export function draw(holder, drawn) {
  const svg = drawn && (narrow.matches ? drawn.narrow : drawn.wide);
  show(holder, Boolean(svg));
  if (!svg || holder.drawn === svg) return;
  holder.drawn = svg;
  const parsed = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
  const old = $("svg", holder);
  if (old) old.replaceWith(parsed);
  else holder.append(parsed);
}
