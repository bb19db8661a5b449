// Suggestions below a field: the ARIA combobox pattern, with a list.

import { $, ask, make, short, show } from "./parts.js";

/** Let `input` suggest labels of the owner that `whose()` names. */
export function suggest(input, whose) {
  const what = $("label", input.parentElement).textContent;
  const list = make("ul", { role: "listbox", id: `${input.id}-list`, "aria-label": `Labels for ${what}`, hidden: true });
  input.parentElement.append(list);
  const fixed = {
    role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id,
    autocomplete: "off", spellcheck: "false",
  };
  for (const [key, value] of Object.entries(fixed)) input.setAttribute(key, value);
  let chosen = -1;
  let timer = 0;

  const open = (shown) => {
    show(list, shown);
    input.setAttribute("aria-expanded", String(shown));
    if (!shown) choose(-1);
  };
  const choose = (i) => {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = i;
    const option = list.children[chosen];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", option.id);
    } else input.removeAttribute("aria-activedescendant");
  };
  const take = (i) => {
    input.value = list.children[i].dataset.label;
    open(false);
  };
  const look = async () => {
    const typed = input.value;
    let labels = [];
    try {
      const asked = { owner: whose(), kind: input.dataset.kind, prefix: typed.slice(0, 100) };
      ({ labels } = await ask("/api/labels", asked));
    } catch { /* no suggestions; the query will report the error */ }
    if (input.value !== typed || document.activeElement !== input) return;
    chosen = -1;
    list.replaceChildren(...labels.map((label, i) => make("li", {
      role: "option", id: `${list.id}-${i}`, "data-label": label, "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(), onclick: () => take(i),
    }, short(label), short(label) === label ? null : make("small", {}, label))));
    // A label that is typed completely would only cover what is below.
    open(labels.length > 1 || (labels.length === 1 && labels[0] !== typed));
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 120);
  });
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    const shown = !list.hidden;
    const last = list.children.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (!shown) look();
      else choose(chosen + step > last ? 0 : chosen + step < 0 ? last : chosen + step);
    } else if (event.key === "Enter" && shown && chosen >= 0) {
      event.preventDefault();
      take(chosen);
    } else if (event.key === "Escape" && shown) {
      event.preventDefault();
      open(false);
    }
  });
}
