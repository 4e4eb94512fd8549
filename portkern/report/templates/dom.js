"use strict";
// Shared by the pages. All text goes through textContent: the data holds the words of models, of
// compilers and of kernels.
const FIRST_ROWS = 200;
// Okabe and Ito's palette without its yellow, which vanishes on white.
const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8b6fc0", "#7a7a7a"];

const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const distinct = (values) => [...new Set(values)];
const times = (v) => `${v.toFixed(v < 10 ? 2 : v < 100 ? 1 : 0)}×`;
const words = (verdict) => verdict.replaceAll("_", " ");
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = n ? Math.min(units.length - 1, Math.floor(Math.log2(n) / 10)) : 0;
  return `${Number((n / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

function table(node, heads, rows, { sortable = false, compare = null } = {}) {
  let sorted = { index: -1, down: false };
  let limit = FIRST_ROWS;
  const body = el("tbody");
  const fill = () => {
    const list = sorted.index < 0 ? rows : [...rows].sort((a, b) => compare(a.keys[sorted.index], b.keys[sorted.index]) * (sorted.down ? -1 : 1));
    body.replaceChildren(...list.slice(0, limit).map((row) => row.node));
    if (rows.length > limit) body.append(el("tr", {}, el("td", { colspan: String(heads.length) }, el("button", { type: "button", class: "link", onclick: () => { limit = rows.length; fill(); } }, `Show all ${rows.length} rows`))));
  };
  const cells = heads.map(([name, numeric, title], index) => {
    const th = el("th", { scope: "col", class: numeric ? "num" : "", title });
    if (!sortable) { th.append(name); return th; }
    th.append(el("button", { type: "button", onclick: () => {
      sorted = { index, down: sorted.index === index ? !sorted.down : Boolean(numeric) };
      for (const other of cells) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      fill();
    } }, name));
    return th;
  });
  fill();
  node.replaceChildren(el("thead", {}, el("tr", {}, ...cells)), body);
}

// The cells of a row that may never be looked at are given by a function.
const row = (keys, cells, attributes = {}) => ({
  keys,
  get node() {
    this.made ??= el("tr", attributes, ...(typeof cells === "function" ? cells() : cells));
    return this.made;
  },
});
const text = (value, kind = "") => el("td", { class: kind }, value === null || value === undefined || value === "" ? "–" : value instanceof Node ? value : String(value));

function byValue(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function expandable(detail) {
  const [first, ...rest] = detail.split("\n");
  if (!rest.join("").trim() && first.length < 220) return first || "no detail recorded";
  const summary = first.length < 220 ? first : `${first.slice(0, 220)}…`;
  return el("details", {}, el("summary", {}, summary), el("pre", {}, detail));
}
