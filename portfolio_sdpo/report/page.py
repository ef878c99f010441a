"""The page around a report: style sheet, script and frame. Nothing in it is fetched from anywhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f7f8; --card: #ffffff; --ink: #1d2329; --muted: #5f6b76; --line: #e1e5e9; --cash: #c3cad1;
  --accent: #0072B2; --good: #00694d; --bad: #a84300; --up: 0,114,178; --down: 213,94,0; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161a; --card: #1a2026; --ink: #e7ebee; --muted: #9aa6b1; --line: #2e3740; --cash: #4b5660;
  --accent: #56B4E9; --good: #4fc9a4; --bad: #f2955a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; font-weight: 650; }
h2 { font-size: 1.12rem; margin: 0; font-weight: 650; }
p { margin: 0 0 10px; max-width: 96ch; }
.sub, figcaption, caption, .note { color: var(--muted); }
.sub { max-width: none; }
.lead { margin: 14px 0 18px; font-size: 1.05rem; }
figcaption, .note, caption { font-size: .86rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(168px, 1fr)); gap: 12px; margin: 0 0 16px; }
.card, section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.card { padding: 12px 16px; }
.card dt { color: var(--muted); font-size: .84rem; }
.card dd { margin: 0; }
.card .figure { font-size: 1.5rem; font-weight: 600; line-height: 1.35; font-variant-numeric: tabular-nums; }
.card .more { color: var(--muted); font-size: .84rem; }
.card .rival { display: flex; justify-content: space-between; gap: 10px; line-height: 1.3; padding-top: 4px; }
.card .rival span:last-child { white-space: nowrap; }
section { padding: 18px 20px; margin: 0 0 16px; }
.head { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: center; justify-content: space-between;
  margin-bottom: 8px; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
.scroll:focus-visible, button:focus-visible, select:focus-visible, summary:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; padding: 6px 0 8px; }
caption span { display: block; }
/* Of a table that is wider than the screen, the words stay where they can be read. */
@media (max-width: 1180px) { caption span { position: sticky; left: 0; width: calc(100vw - 94px); } }
figcaption { margin: 2px 0 10px; max-width: 120ch; }
th, td { text-align: right; padding: 6px 8px; border-bottom: 1px solid var(--line); white-space: nowrap;
  vertical-align: top; }
thead th { color: var(--muted); font-weight: 500; font-size: .82rem; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--card); }
tbody tr:last-child > * { border-bottom: 0; }
tr.agent th { font-weight: 650; }
tr.first-benchmark > * { border-top: 2px solid var(--line); }
small { display: block; color: var(--muted); font-size: .76rem; line-height: 1.35; font-weight: 400; }
td.words { text-align: left; white-space: normal; }
.good { color: var(--good); } .bad { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: 6px 8px; margin: 4px 0 6px; padding: 0; list-style: none; }
.legend button, .legend span.key { display: inline-flex; align-items: center; gap: 7px; font: inherit;
  font-size: .84rem; color: var(--ink); background: none; border: 1px solid var(--line); border-radius: 999px;
  padding: 3px 11px; }
.legend span.key { border-color: transparent; padding: 2px 6px; }
.legend button, .zoom { cursor: pointer; }
.zoom { font: inherit; font-weight: 400; color: var(--accent); background: none; border: 1px solid var(--line);
  border-radius: 999px; padding: 1px 10px; }
.zoom[aria-pressed="true"] { border-color: var(--accent); font-weight: 600; }
.legend button[aria-pressed="false"] { color: var(--muted); border-style: dashed; }
.legend button[aria-pressed="false"] svg { opacity: .35; }
.swatch { width: 12px; height: 12px; border-radius: 2px; display: inline-block; }
.hatched { background-image: repeating-linear-gradient(135deg, transparent 0 3px, var(--card) 3px 4.5px); }
label { font-size: .88rem; display: inline-flex; gap: 7px; align-items: center; }
select { font: inherit; font-size: .88rem; color: var(--ink); background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 4px 8px; max-width: 62vw; }
input[type=checkbox] { accent-color: var(--accent); width: 16px; height: 16px; }
figure { margin: 0; }
.plot { width: 100%; min-height: 200px; }
details { margin-top: 10px; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; padding: 4px 0; }
.monthly td, .monthly th { text-align: right; padding: 5px 8px; }
.monthly th:first-child { text-align: left; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; font-size: .9rem; }
.facts dt { color: var(--muted); } .facts dd { margin: 0; overflow-wrap: anywhere; }
code { font-family: ui-monospace, "SF Mono", Consolas, monospace; font-size: .86em; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: 8px 0 0; }
ul.notes { margin: 8px 0 0; padding-left: 20px; font-size: .86rem; }
@media (max-width: 640px) {
  main { padding: 18px 12px 48px; } section { padding: 14px 12px; border-radius: 6px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; } .card { padding: 10px 12px; }
  .card .figure { font-size: 1.25rem; }
  caption span { width: calc(100vw - 56px); } .facts { grid-template-columns: 1fr; } .facts dd { margin-bottom: 6px; }
  /* A wide table becomes a list: every cell stands behind its own heading, and none is cut off. */
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, caption, tbody, tr, tbody th { display: block; } tbody th { position: static; white-space: normal; }
  tbody tr { padding: 6px 0; border-bottom: 1px solid var(--line); }
  tr.first-benchmark { border-top: 2px solid var(--line); } tr.first-benchmark > * { border-top: 0; }
  th, td { border-bottom: 0; padding: 2px 0; }
  td { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 12px; white-space: normal; }
  td::before { content: attr(data-label); color: var(--muted); text-align: left; grid-row: 1 / 20; }
  .pair tbody tr { display: grid; grid-template-columns: 1fr auto; } .pair td { display: block; }
  .pair td::before { display: none; }
  td.words { display: block; } td.words::before { display: none; } td:empty { display: none; }
  .monthly tbody tr { display: grid; grid-template-columns: repeat(4, 1fr); gap: 2px; }
  .monthly tbody th { grid-column: 1 / -1; text-align: left; }
  .monthly td, .monthly th { display: block; padding: 3px 4px; }
  .monthly td::before { display: block; font-size: .72rem; text-align: right; } }
@page { size: A4; margin: 12mm; }
@media print { body { background: #fff; font-size: 12px; } main { padding: 0; max-width: none; }
  section { padding: 8px 10px; } .card, tr, figure { break-inside: avoid; } .scroll { overflow: visible; }
  table { font-size: 8.6px; } thead th { font-size: 8px; } small { font-size: 7.4px; }
  th, td, .monthly th, .monthly td { padding: 2px 3px; white-space: normal; } td { white-space: nowrap; }
  caption span { position: static; width: auto; } .cards { grid-template-columns: repeat(5, 1fr); gap: 6px; }
  .card .figure { font-size: 1.1rem; } }
"""

SCRIPT = """
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const small = matchMedia("(max-width: 640px)"), touch = matchMedia("(hover: none)");
  // Named one by one: some of plotly's own buttons would send the figure to a server.
  const config = {displaylogo: false, responsive: true,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]};
  const hidden = new Set(figures.hidden);
  const chosen = {};

  // Colours of the style sheet are written var(--name) in the figures.
  const themed = (spec) => {
    const style = getComputedStyle(document.documentElement);
    const text = JSON.stringify(spec).replace(/"var\\(--(\\w+)\\)"/g,
      (_, name) => JSON.stringify(style.getPropertyValue("--" + name).trim()));
    return JSON.parse(text);
  };

  // The days that figures over days show; null: all of them. Of a straight line its part in between; a bar is that of
  // a month and stands at its first day.
  let days = null;
  const cut = (trace) => {
    const [low, high] = days, {x, y, type} = trace, bars = type === "bar";
    const start = bars ? low.slice(0, 8) + "01" : low, inside = (day) => start <= day && day <= high;
    if (x.length === 2 && y[0] === y[1] && !bars) trace.x = x.map((day) => day < low ? low : day > high ? high : day);
    else [trace.x, trace.y] = [x, y].map((values) => values.filter((_, place) => inside(x[place])));
  };

  // The figures of one part follow the same choice: "time-risk" and "time-exposure" that of "time".
  const partOf = (element) => element.dataset.figure.split("-")[0];
  const draw = (element) => {
    const {figure} = element.dataset;
    const stored = figures.specs[figure];
    const found = "data" in stored ? stored : stored[chosen[partOf(element)] ?? Object.keys(stored)[0]];
    element.hidden = !found;
    if (!found) return;
    const spec = themed(found);
    for (const trace of spec.data) if (trace.meta) trace.visible = !hidden.has(trace.meta);
    if (figure === "equity" && document.getElementById("log").checked) spec.layout.yaxis.type = "log";
    if (days && spec.layout.xaxis.type === "date") {
      spec.data.forEach(cut);
      if (spec.layout.xaxis.range) spec.layout.xaxis.range = days;
    }
    if (touch.matches) spec.layout.dragmode = false;
    if (small.matches) {
      spec.layout.height = Math.round(spec.layout.height * 0.85);
      spec.layout.yaxis.title = undefined;
    }
    Plotly.react(element, spec.data, spec.layout, {...config, displayModeBar: touch.matches ? false : "hover"});
  };
  const plots = [...document.querySelectorAll("[data-figure]")];
  const drawAll = () => plots.forEach(draw);
  const drawParts = (...names) => plots.filter((plot) => names.includes(partOf(plot))).forEach(draw);

  for (const button of document.querySelectorAll("button[data-strategy]")) button.addEventListener("click", () => {
    const name = button.dataset.strategy, show = button.getAttribute("aria-pressed") === "false";
    show ? hidden.delete(name) : hidden.add(name);
    for (const other of document.querySelectorAll("button[data-strategy]"))
      if (other.dataset.strategy === name) other.setAttribute("aria-pressed", show);
    drawParts("equity", "drawdown");
  });
  document.getElementById("log").addEventListener("change", () => drawParts("equity"));

  for (const button of document.querySelectorAll("button.zoom")) button.addEventListener("click", () => {
    const show = button.getAttribute("aria-pressed") === "false";
    days = show ? [button.dataset.from, button.dataset.to] : null;
    for (const other of document.querySelectorAll("button.zoom"))
      other.setAttribute("aria-pressed", show && other === button);
    drawAll();
  });

  // Choosing a strategy in one place chooses it wherever it can be chosen.
  const choose = (key) => {
    for (const select of document.querySelectorAll("select[data-detail]")) {
      if (![...select.options].some((option) => option.value === key)) continue;
      select.value = key;
      const part = select.dataset.detail;
      chosen[part] = key;
      for (const panel of document.querySelectorAll(`[data-panel="${part}"]`)) panel.hidden = panel.dataset.key !== key;
      drawParts(part);
    }
  };
  for (const select of document.querySelectorAll("select[data-detail]"))
    select.addEventListener("change", () => choose(select.value));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  small.addEventListener("change", drawAll);
  for (const select of document.querySelectorAll("select[data-detail]")) chosen[select.dataset.detail] = select.value;
  drawAll();
})();
"""

# Not even a mistake in a figure can make the page ask anybody for anything.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def render_page(title: str, body: str, figures: dict[str, Any], data: dict[str, Any], plotly_js: str) -> str:
    """The whole document: `body` is HTML, `figures` is what the script draws, `data` is for other programs."""
    scripts = f"""<script type="application/json" id="figures">{inline_json(figures)}</script>
<script>{plotly_js}</script>
<script>{SCRIPT}</script>
"""
    return render_document(title, body, data, scripts=scripts)


def render_document(title: str, body: str, data: Any, *, style: str = "", scripts: str = "") -> str:
    """A page in the house's look: `body` is HTML, `style` comes after the style sheet, `data` is for other programs."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="data">{inline_json(data)}</script>
{scripts}</body>
</html>
"""


def inline_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in.

    >>> inline_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def render_section(title: str, content: str, control: str = "") -> str:
    """A part of the page with a heading, and a control beside it."""
    return f"<section><div class='head'><h2>{escape(title)}</h2>{control}</div>{content}</section>"


def render_figure(name: str, caption: str) -> str:
    """The place where the script draws a figure, with its caption."""
    label = escape(caption, quote=True)
    return (
        f"<figure><div class='plot' data-figure='{name}' role='img' aria-label='{label}'></div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def render_panel(part: str, key: str, shown: bool, content: str) -> str:
    """Content that is shown when the control of its part selects its key."""
    return f"<div data-panel='{part}' data-key='{key}'{'' if shown else ' hidden'}>{content}</div>"
