"""The skin of a page: one self-contained HTML document, light and dark, for phone, desk and paper.

Nothing is loaded from anywhere. The only script is a switch between light and dark, and the page needs it for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fkge.report.svg import escape
from fkge.report.theme import DARK, FIGURES, FONT, LIGHT, properties

_STYLE = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 var(--font); }
.wrap { max-width: 70rem; margin: 0 auto; padding: 0 clamp(1rem, 4vw, 2.5rem); }
header { padding: 2.5rem 0 0; }
header .over { display: flex; justify-content: space-between; align-items: center; gap: 1rem; color: var(--quiet);
  font-size: .875rem; margin: 0; max-width: none; }
h1 { font-size: clamp(1.75rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -.02em; margin: .4rem 0 .6rem;
  overflow-wrap: anywhere; }
.lead { font-size: clamp(1.05rem, 2.6vw, 1.3rem); line-height: 1.45; max-width: 44rem; margin: 0 0 1.25rem; }
h2 { font-size: 1.35rem; letter-spacing: -.01em; margin: 3.25rem 0 .75rem; padding-top: 1.25rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1.02rem; margin: 1.75rem 0 .5rem; }
p, ul, dl { max-width: 44rem; margin: 0 0 .9rem; }
ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
a { color: var(--accent); text-underline-offset: .15em; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 2px; }
.skip { position: absolute; left: -100vw; top: 0; background: var(--paper); padding: .5rem 1rem; z-index: 2; }
.skip:focus { left: 0; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.25rem; padding: 0; margin: 0;
  font-size: .925rem; max-width: none; }
button { font: inherit; color: var(--ink); background: none; border: 1px solid var(--stone); border-radius: 1rem;
  padding: .15rem .8rem; cursor: pointer; }
.note { border-left: 3px solid var(--warm); background: var(--panel); padding: .75rem 1rem; margin: 1.5rem 0 0;
  max-width: 44rem; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px;
  background: var(--rule); border: 1px solid var(--rule); border-radius: 8px; overflow: hidden; margin: 1.75rem 0 0;
  max-width: none; }
.tiles div { flex: 1 1 13rem; background: var(--paper); padding: .9rem 1.1rem; }
.tiles dt { color: var(--quiet); font-size: .85rem; line-height: 1.35; }
.tiles dd { margin: .15rem 0 0; font-size: 1.45rem; font-weight: 600; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 1rem 0 1.5rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; min-width: 100%; }
caption { text-align: left; padding: 0 0 .5rem; }
caption span { display: inline-block; position: sticky; left: 0; max-width: min(44rem, calc(100vw - 2.5rem)); }
caption small { display: block; font-size: inherit; color: var(--quiet); }
th, td { padding: .4rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } thead th { color: var(--quiet); font-weight: 500; vertical-align: bottom; }
thead tr:first-child th[colspan] { text-align: center; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); padding-left: 0; }
.text { text-align: left; } td.text { white-space: normal; min-width: 12rem; }
tfoot th, tfoot td { border-top: 1px solid var(--quiet); border-bottom: 0; }
.sure { font-weight: 600; } .worse { color: var(--warm); font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: 1.75rem 2rem;
  margin: 1rem 0; }
figure { margin: 1rem 0 1.5rem; } .figures figure { margin: 0; }
figcaption { color: var(--quiet); font-size: .9rem; max-width: 44rem; margin-top: .5rem; }
.one { max-width: 32rem; } .pair { display: grid; gap: 1.5rem 3rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); align-items: start; }
.narrow, .middle { display: none; }
dl.facts { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .35rem 1.25rem; }
dl.facts dt { color: var(--quiet); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
details { margin: 1rem 0; } summary { cursor: pointer; }
pre { background: var(--panel); padding: 1rem; overflow-x: auto; font-size: .8rem; line-height: 1.5; border-radius: 8px;
  max-height: 32rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
footer { color: var(--quiet); font-size: .875rem; padding: 2rem 0 3rem; }
@media (max-width: 66rem) { .wide { display: none; } .middle { display: block; } }
@media (max-width: 44rem) {
  .middle { display: none; } .narrow { display: block; max-width: 30rem; }
  dl.facts { grid-template-columns: 1fr; gap: 0; } dl.facts dd { margin-bottom: .6rem; }
}
"""

_PRINT = """
@page { size: A4; margin: 14mm; }
@media print {
  body { font-size: 10pt; } .wrap { max-width: none; padding: 0; }
  nav, .skip, button, details:not([open]) { display: none; }
  h2 { margin-top: 1.5rem; } h2, h3, caption { break-after: avoid; }
  figure, tr, .tiles, .note, .scroll { break-inside: avoid; } tfoot { display: table-row-group; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } .many { font-size: 6pt; } .most { font-size: 5pt; }
  th, td { padding: .2rem .35rem; }
  th:first-child { position: static; white-space: normal; }
  .figures { grid-template-columns: repeat(2, 1fr); }
  .pair { grid-template-columns: repeat(2, 1fr); }
  .middle { display: block; } .wide, .narrow { display: none !important; }
  pre { max-height: none; white-space: pre-wrap; }
}
"""

_SWITCH = """
const root = document.documentElement, button = document.getElementById("theme");
button.hidden = false;
button.onclick = () => {
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
};
"""


def colours() -> str:
    """Light, dark where the reader or the switch says so, and light on paper."""
    light, dark = properties(LIGHT), properties(DARK)
    return (
        f":root {{ color-scheme: light dark; --font: {FONT}; {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="light"] {{ color-scheme: light; }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f"@media print {{ :root:root:root {{ color-scheme: light; {light} }} }}\n"
    )


def document(title: str, over: str, lead: str, top: str, sections: Sequence[tuple[str, str, str]], foot: str) -> str:
    """A whole page.

    Args:
        title, over, lead: the heading, a line above it and a sentence below it: texts.
        top: HTML below that.
        sections: (id, heading, HTML) each; the headings make up the table of contents.
        foot: the last line: a text.
    """
    contents = "".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(heading)}</h2>{inside}</section>'
        for name, heading, inside in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · {escape(over)}</title>
<link rel="icon" href="data:,">
<style>{colours()}{_STYLE}{FIGURES}{_PRINT}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<div class="wrap">
<header>
<p class="over"><span>{escape(over)}</span><button id="theme" type="button" hidden>Light or dark</button></p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
</header>
<main id="main">{top}{body}</main>
<footer>{escape(foot)}</footer>
</div>
<script>{_SWITCH}</script>
</body>
</html>
"""


def table(
    caption: str,
    about: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    groups: Sequence[tuple[str, int]] = (),
    foot: Iterable[Sequence[str]] = (),
    texts: Sequence[int] = (),
) -> str:
    """A table that scrolls where it is wider than its place. Its first column names its rows.

    Args:
        caption, about: texts.
        columns: headings: texts.
        rows, foot: cells as HTML; a cell may begin with ``!class!`` to be of that class.
        groups: (heading, columns) above the columns; they cover all of them.
        texts: columns that hold running text.
    """
    above = "".join(
        f'<th scope="colgroup" colspan="{many}">{escape(word)}</th>' if word else f'<td colspan="{many}"></td>'
        for word, many in groups
    )
    head = "".join(
        f'<th scope="col"{" class=" + chr(34) + "text" + chr(34) if i in texts else ""}>{escape(column)}</th>'
        for i, column in enumerate(columns)
    )

    def row(cells: Sequence[str]) -> str:
        first, *others = cells
        return (
            f'<tr><th scope="row">{first}</th>'
            + "".join(_cell(i + 1, c, texts) for i, c in enumerate(others))
            + "</tr>"
        )

    role = ' class="most"' if len(columns) > 14 else ' class="many"' if len(columns) > 10 else ""  # smaller on paper
    more = f"<small>{escape(about)}</small>" if about else ""
    body, feet = "".join(map(row, rows)), "".join(map(row, foot))
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table{role}>'
        f"<caption><span><strong>{escape(caption)}</strong>{more}</span></caption>"
        f"<thead>{f'<tr>{above}</tr>' if above else ''}<tr>{head}</tr></thead><tbody>{body}</tbody>"
        f"{f'<tfoot>{feet}</tfoot>' if feet else ''}</table></div>"
    )


def _cell(column: int, cell: str, texts: Sequence[int]) -> str:
    role = "text" if column in texts else ""
    if cell.startswith("!"):
        _, role, cell = cell.split("!", 2)
    return f'<td class="{role}">{cell}</td>' if role else f"<td>{cell}</td>"


def figure(svg: str, caption: str = "", role: str = "") -> str:
    """A figure with a caption (a text)."""
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{f' class={chr(34)}{role}{chr(34)}' if role else ''}>{svg}{told}</figure>"


def paragraph(*sentences: str) -> str:
    """Texts as one paragraph; nothing if there are none."""
    return f"<p>{escape(' '.join(sentences))}</p>" if any(sentences) else ""


def bullets(sentences: Iterable[str]) -> str:
    """Texts as a list."""
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """(word, HTML) pairs as a list of facts; those without HTML are left out."""
    inside = "".join(f"<dt>{escape(word)}</dt><dd>{html}</dd>" for word, html in pairs if html)
    return f'<dl class="facts">{inside}</dl>'


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """(word, figure) pairs, large; texts."""
    inside = "".join(f"<div><dt>{escape(word)}</dt><dd>{escape(value)}</dd></div>" for word, value in pairs)
    return f'<dl class="tiles">{inside}</dl>'
