const DATA = JSON.parse(document.getElementById("data").textContent);
const RUNGS = DATA.rungs;
const GLYPHS = ["○", "◔", "◑", "◒", "◕", "●"];
const MEASURED = RUNGS.indexOf("measured");
const MEANING = [
  "nothing shown yet", "compiled for the real instruction set", "correct in emulation",
  "the compiled object is correct on a model of the processor",
  "correct on the hardware", "correct and timed on the hardware",
];
const BAD = new Set(DATA.bad);
const DASHES = { float32: "", float16: "6 3", bfloat16: "2 3" };
const LIMIT_LOG2 = 2;

// ---- data

const INTERNED = new Set([
  "op", "set", "workload", "size", "dtype", "verdict", "reason", "detail", "precision", "method",
  "basis", "venue", "author", "source", "noisy", "tolerance", "file", "quarantine", "carried",
]);

function revive(row) {
  const record = {};
  DATA.fields.forEach((field, i) => {
    record[field] = INTERNED.has(field) ? DATA.strings[row[i]] : row[i];
  });
  record.column = DATA.columns[record.column];
  record.guard = record.guard.map((i) => DATA.strings[i]);
  record.findings = record.findings.map((i) => DATA.strings[i]);
  record.counted = record.counted.map((i) => DATA.strings[i]);
  return record;
}

DATA.columns.forEach((column, i) => { column.index = i; column.label = `${column.tool}@${column.target}`; });
const RECORDS = DATA.rows.map(revive);
const BACKENDS = distinct(DATA.columns.map((c) => c.backend)).sort();
const DTYPES = distinct(RECORDS.map((r) => r.dtype));
const SETS = distinct(RECORDS.map((r) => r.set));
const WORKLOADS = distinct(RECORDS.map((r) => r.workload));
const BASELINES = distinct([DATA.baseline, ...RECORDS.flatMap((r) => Object.keys(r.speedup))]);

// ---- state; the address bar holds it, so that a view can be sent to somebody

const state = { backend: new Set(), dtype: new Set(), set: new Set(), workload: "", find: "", baseline: DATA.baseline, swap: false, unsupported: false, cell: "" };

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const known = { backend: BACKENDS, dtype: DTYPES, set: SETS };
  for (const key of Object.keys(known)) {
    const values = (given.get(key) || "").split(",").filter((v) => known[key].includes(v));
    state[key] = new Set(values);
  }
  state.workload = WORKLOADS.includes(given.get("workload")) ? given.get("workload") : "";
  state.find = given.get("find") || "";
  state.baseline = BASELINES.includes(given.get("baseline")) ? given.get("baseline") : DATA.baseline;
  state.swap = given.get("swap") === "1";
  state.unsupported = given.get("unsupported") === "1";
  state.cell = given.get("cell") || "";
}

function writeHash() {
  const out = new URLSearchParams();
  for (const key of ["backend", "dtype", "set"]) if (state[key].size) out.set(key, [...state[key]].join(","));
  if (state.workload) out.set("workload", state.workload);
  if (state.find) out.set("find", state.find);
  if (state.baseline !== DATA.baseline) out.set("baseline", state.baseline);
  if (state.swap) out.set("swap", "1");
  if (state.unsupported) out.set("unsupported", "1");
  if (state.cell) out.set("cell", state.cell);
  const text = out.toString().replaceAll("%2C", ",").replaceAll("%40", "@").replaceAll("%3A", ":");
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

// Half of all backend-target pairs cannot exist (CUDA C++ on an AMD GPU); they would bury the rest.
const POSSIBLE = new Set(RECORDS.filter((r) => r.verdict !== "unsupported").map((r) => r.column));
const IMPOSSIBLE = POSSIBLE.size ? DATA.columns.length - POSSIBLE.size : 0;

// A product's name finds its architecture.
const productsBy = (word) => DATA.products.filter((p) => `${p.name} ${p.title}`.toLowerCase().includes(word));
const saidOf = (record) => `${record.op} ${record.column.label}`.toLowerCase();

function matches(record, word) {
  return saidOf(record).includes(word) || productsBy(word).some((p) => p.arch === record.column.target);
}

function drawProducts(records) {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const named = distinct(words.filter((w) => !records.some((r) => saidOf(r).includes(w))).flatMap(productsBy));
  const lines = named.map((p) => `${p.title} (${p.name}) is ${p.arch}: what is shown was found for ${p.arch}, not on that product.`);
  $("products").hidden = !lines.length;
  $("products").replaceChildren(...lines.map((line) => el("p", {}, line)));
}

function visible() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  return RECORDS.filter((r) =>
    (!IMPOSSIBLE || state.unsupported || POSSIBLE.has(r.column)) &&
    (!state.backend.size || state.backend.has(r.column.backend)) &&
    (!state.dtype.size || state.dtype.has(r.dtype)) &&
    (!state.set.size || state.set.has(r.set)) &&
    (!state.workload || r.workload === state.workload) &&
    words.every((word) => matches(r, word)));
}

// ---- aggregation; the same rules as portkern/report/table.py, over what the filters leave

function speedupOf(record, baseline = state.baseline) {
  const found = record.evidence === MEASURED && !record.noisy ? record.speedup[baseline] : null;
  return found && typeof found[0] === "number" && found[0] > 0 ? found[0] : null;
}

function summarize(records) {
  const logs = records.map((r) => speedupOf(r)).filter((s) => s !== null).map(Math.log);
  const counts = (key) => records.reduce((sum, r) => sum.set(r[key], (sum.get(r[key]) || 0) + 1), new Map());
  const verdicts = counts("verdict");
  return {
    records, verdicts, rungs: counts("evidence"),
    verdict: DATA.verdicts.find((v) => verdicts.has(v)),
    evidence: Math.min(...records.map((r) => r.evidence)),
    passed: verdicts.get("passed") || 0,
    failed: records.filter((r) => BAD.has(r.verdict)).length,
    n: logs.length,
    noisy: records.filter((r) => r.noisy).length,
    speedup: logs.length ? Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length) : null,
  };
}

const keyOf = (op, column) => `${op}:${column.label}`;

function pivot(records) {
  const cells = new Map();
  for (const [op, part] of grouped(records, "op")) {
    for (const [column, both] of grouped(part, "column")) cells.set(keyOf(op, column), summarize(both));
  }
  return cells;
}

// ---- words

const figure = (v) => (typeof v === "number" ? v.toPrecision(2).replace(/\.?0+e/, "e") : v);

function micros(us) {
  if (typeof us !== "number") return us;
  if (us >= 1e5) return `${(us / 1e3).toFixed(0)} ms`;
  if (us >= 1e3) return `${(us / 1e3).toPrecision(3)} ms`;
  return `${us.toPrecision(3)} µs`;
}

function interval(speedup) {
  if (!speedup) return "";
  const [value, low, high] = speedup.map((v) => (typeof v === "number" ? v.toFixed(2) : v));
  return `${value}× [${low}, ${high}]`;
}

function reasonsOf(records) {
  const counts = new Map();
  for (const r of records) if (r.reason) counts.set(r.reason, (counts.get(r.reason) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// ---- cards, filters, legend

// A mean over a CPU's kernels and a GPU's would say nothing of either.
const oneKind = (records) => distinct(records.filter((r) => speedupOf(r) !== null).map((r) => r.column)).length < 2;

function drawCards(records) {
  const all = summarize(records);
  const card = (value, label, bad) => el("div", { class: bad ? "card bad" : "card" }, el("b", {}, String(value)), el("span", {}, label));
  const measured = all.rungs.get(MEASURED) || 0;
  $("cards").replaceChildren(
    card(records.length === RECORDS.length ? records.length : `${records.length} / ${RECORDS.length}`, "cells"),
    card(`${all.passed + all.failed} / ${records.length}`, "judged"),
    card(all.passed, "passed"),
    card(all.failed, "failed", all.failed > 0),
    card(measured, "measured"),
    card([...Array(MEASURED).keys()].slice(2).reduce((sum, e) => sum + (all.rungs.get(e) || 0), 0), "verified, executed or emulated"),
    card(records.filter((r) => r.evidence === 1 && !BAD.has(r.verdict)).length, "built only"),
    ...(all.noisy ? [card(all.noisy, "measured, noisy: in no mean")] : []),
    ...(oneKind(records) ? [card(all.speedup === null ? "–" : times(all.speedup), `geomean vs ${state.baseline}, n = ${all.n}`)] : []),
  );
}

function chips(name, key, options) {
  if (options.length < 2) return null;
  const toggle = (option) => () => {
    if (!state[key].delete(option)) state[key].add(option);
    draw();
  };
  return el("fieldset", { class: "group", "aria-label": name }, el("span", { class: "name" }, name),
    ...options.map((option) => el("button", { type: "button", class: "chip", "data-filter": `${key}=${option}`, "aria-pressed": "false", onclick: toggle(option) }, option)));
}

function chooser(name, key, options, any) {
  const choose = (event) => { state[key] = event.target.value; draw(); };
  const list = any === null ? options : ["", ...options];
  return el("label", { class: "group" }, el("span", { class: "name" }, name),
    el("select", { "data-choice": key, onchange: choose }, ...list.map((o) => el("option", { value: o }, o || any))));
}

function buildFilters() {
  const find = el("input", { type: "search", id: "find", placeholder: "op or target", "aria-label": "Find op or target", oninput: (e) => { state.find = e.target.value; draw(); } });
  const swap = el("button", { type: "button", class: "chip", id: "swap", "aria-pressed": "false", onclick: () => { state.swap = !state.swap; draw(); } }, "Swap axes");
  const parts = [
    chips("Backend", "backend", BACKENDS), chips("Dtype", "dtype", DTYPES), chips("Workloads", "set", SETS),
    WORKLOADS.length > 1 ? chooser("Size", "workload", WORKLOADS, "any") : null,
    BASELINES.length > 1 ? chooser("Speedup vs", "baseline", BASELINES, null) : null, find, swap,
    IMPOSSIBLE ? el("button", { type: "button", class: "chip", id: "unsupported", "aria-pressed": "false", onclick: () => { state.unsupported = !state.unsupported; draw(); } }, `Show ${plural(IMPOSSIBLE, "unsupported pair")}`) : null,
  ];
  $("filters").replaceChildren(...parts.filter(Boolean));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
}

function showFilters() {
  for (const chip of document.querySelectorAll("[data-filter]")) {
    const [key, ...rest] = chip.dataset.filter.split("=");
    chip.setAttribute("aria-pressed", String(state[key].has(rest.join("="))));
  }
  for (const select of document.querySelectorAll("[data-choice]")) select.value = state[select.dataset.choice];
  if ($("find") !== document.activeElement) $("find").value = state.find;
  $("swap").setAttribute("aria-pressed", String(state.swap));
  if (IMPOSSIBLE) $("unsupported").setAttribute("aria-pressed", String(state.unsupported));
}

function buildLegend() {
  const item = (swatch, text) => el("span", { class: "item" }, swatch, text);
  $("legend").replaceChildren(
    el("span", { class: "item" }, "slower 0.25×", el("span", { class: "ramp", role: "img", "aria-label": "colour scale, logarithmic, from 0.25 through 1 to 4 times" }), "4× faster"),
    ...RUNGS.map((rung, i) => item(el("span", { class: `swatch ${rung}` }, el("span", { class: "word" }, GLYPHS[i])), `${rung}: ${MEANING[i]}`)).reverse(),
    item(el("span", { class: "swatch failed" }, "✕"), "evaluated and failed"),
  );
}

// ---- the grid

function tint(speedup) {
  const log = Math.max(-LIMIT_LOG2, Math.min(LIMIT_LOG2, Math.log2(speedup)));
  const much = Math.round((Math.abs(log) / LIMIT_LOG2) ** 0.75 * 100); // most speedups are near 1
  return { style: `--tint: var(--${log < 0 ? "slow" : "fast"}); --much: ${much}%`, strong: much > 80 };
}

function describe(op, column, cell) {
  const counts = [...cell.rungs].sort((a, b) => b[0] - a[0]).map(([e, n]) => `${n} ${RUNGS[e]}`).join(", ");
  const speed = cell.speedup === null ? "" : `, ${times(cell.speedup)} versus ${state.baseline}`;
  return `${op} on ${column.label}: ${words(cell.verdict)}${speed}; ${counts}`;
}

function cellButton(op, column, cell) {
  const key = keyOf(op, column);
  const attributes = {
    type: "button", "data-key": key, tabindex: "-1", "aria-label": describe(op, column, cell),
    "aria-expanded": String(state.cell === key), onclick: () => open(key),
  };
  const make = (kind, ...children) => el("button", { ...attributes, class: `cell ${kind}` }, ...children);
  if (BAD.has(cell.verdict)) {
    const word = words(cell.verdict);
    const part = word.length < 9 ? el("span", { class: "part" }, `${cell.failed}/${cell.records.length}`) : null;
    return make("failed", `✕ ${word}`, part);
  }
  const glyph = el("span", { class: "glyph" }, GLYPHS[cell.evidence]);
  if (cell.speedup !== null) {
    const colour = tint(cell.speedup);
    attributes.style = colour.style;
    const part = cell.n < cell.records.length ? el("span", { class: "part" }, `${cell.n}/${cell.records.length}`) : null;
    return make(colour.strong ? "measured strong" : "measured", glyph, times(cell.speedup), part);
  }
  const best = Math.max(...cell.rungs.keys());
  const lowest = cell.evidence === 0 ? words(cell.verdict) : RUNGS[cell.evidence];
  const word = best > cell.evidence ? `${cell.rungs.get(best)}/${cell.records.length} ${RUNGS[best]}` : lowest;
  return make(RUNGS[cell.evidence], el("span", { class: "word" }, glyph, word));
}

function slot(cells, op, column) {
  const cell = cells.get(keyOf(op, column));
  return el("td", {}, cell ? cellButton(op, column, cell) : el("span", { class: "gone", "aria-label": "not in this run" }, "·"));
}

function total(records) {
  const all = summarize(records);
  const speed = all.speedup === null || !oneKind(records) ? null : el("b", {}, times(all.speedup));
  const best = Math.max(...all.rungs.keys());
  const good = records.filter((r) => r.evidence === best && !BAD.has(r.verdict)).length;
  const rest = all.passed || !best || !good ? `${all.passed}/${all.records.length}` : `${good}/${all.records.length} ${RUNGS[best]}`;
  return el("td", { class: "total" }, speed, el("span", { class: all.failed ? "bad-text" : "quiet" }, `${speed ? " " : ""}${rest}`));
}

function drawGrid(records) {
  const cells = pivot(records);
  const shown = new Set(records.map((r) => r.column));
  const rows = grouped(records, "op");
  const ops = DATA.ops.filter((op) => rows.has(op));
  const rank = (c) => DATA.targets.indexOf(c.target) * 1000 + c.index;
  const columns = DATA.columns.filter((c) => shown.has(c)).sort((a, b) => rank(a) - rank(b));
  const opsAcross = (DATA.columns.length >= DATA.ops.length) !== state.swap;
  const grid = $("grid");
  grid.classList.toggle("flipped", !opsAcross);
  if (!records.length) grid.replaceChildren(el("tbody", {}, el("tr", {}, el("td", { class: "quiet" }, RECORDS.length ? "Nothing matches these filters." : "No records."))));
  else if (opsAcross) gridOpsAcross(grid, cells, ops, columns, grouped(records, "column"));
  else gridOpsDown(grid, cells, ops, columns, rows, grouped(records, "column"));
  const target = grid.querySelector(`[aria-expanded="true"]`) || grid.querySelector(".cell");
  if (target) target.tabIndex = 0;
  document.body.dataset.records = records.length;
  document.body.dataset.cells = cells.size;
}

const byOp = (records, op) => records.filter((r) => r.op === op);

function grouped(records, key) {
  const parts = new Map();
  for (const r of records) {
    const part = parts.get(r[key]);
    if (part) part.push(r);
    else parts.set(r[key], [r]);
  }
  return parts;
}

function gridOpsAcross(grid, cells, ops, columns, byColumn) {
  const head = el("thead", {}, el("tr", {}, el("th", { class: "group" }, ""), el("th", { class: "item" }, ""),
    ...ops.map((op) => el("th", { scope: "col" }, op)), el("th", { scope: "col" }, "geomean, passed")));
  const bodies = distinct(columns.map((c) => c.target)).map((target) => {
    const members = columns.filter((c) => c.target === target);
    return el("tbody", {}, ...members.map((column, i) => el("tr", {},
      i === 0 ? el("th", { class: "group", scope: "rowgroup", rowspan: String(members.length), title: target }, target) : null,
      el("th", { class: "item", scope: "row" }, column.tool),
      ...ops.map((op) => slot(cells, op, column)), total(byColumn.get(column)))));
  });
  grid.replaceChildren(head, ...bodies);
}

// Operators that are drawn at once; the rest when the end of those is scrolled to.
const FIRST_OPS = 100;

function gridOpsDown(grid, cells, ops, columns, byOp, byColumn) {
  const targets = distinct(columns.map((c) => c.target));
  const head = el("thead", {},
    el("tr", {}, el("th", { class: "item" }, ""), ...targets.map((t) => el("th", { scope: "colgroup", colspan: String(columns.filter((c) => c.target === t).length) }, t)), el("th", {}, "")),
    el("tr", {}, el("th", { class: "item" }, ""), ...columns.map((c) => el("th", { scope: "col" }, c.tool)), el("th", { scope: "col" }, "passed")));
  const drawn = (op) => el("tr", {}, el("th", { class: "item", scope: "row" }, op), ...columns.map((column) => slot(cells, op, column)), total(byOp.get(op)));
  const body = el("tbody");
  inParts(body, ops, FIRST_OPS, drawn, state.cell ? ops.findIndex((op) => state.cell.startsWith(`${op}:`)) : 0);
  const foot = el("tfoot", {}, el("tr", {}, el("th", { class: "item", scope: "row" }, "all"), ...columns.map((c) => total(byColumn.get(c))), el("td", {})));
  grid.replaceChildren(head, body, foot);
}

// Rows are made as far as somebody looks, and at least to the one of that number.
function inParts(body, items, size, drawn, least) {
  let next = 0;
  const more = () => {
    body.append(...items.slice(next, next + size).map(drawn));
    next += size;
    if (next >= items.length) return;
    const end = el("tr", {}, el("td", { class: "quiet" }, `${items.length - next} more`));
    body.append(end);
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((e) => e.isIntersecting)) return;
      seen.disconnect();
      end.remove();
      more();
    }, { rootMargin: "800px" });
    seen.observe(end);
  };
  while (size <= least) size *= 2;
  more();
}

function moveFocus(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const here = event.target.closest(".cell");
  if (!step || !here) return;
  event.preventDefault();
  const rows = [...$("grid").rows].map((row) => [...row.querySelectorAll("td:not(.total)")]).filter((row) => row.length);
  let y = rows.findIndex((row) => row.some((td) => td.contains(here)));
  let x = rows[y].findIndex((td) => td.contains(here));
  for (;;) {
    y += step[0]; x += step[1];
    const td = rows[y] && rows[y][x];
    if (!td) return;
    const next = td.querySelector(".cell");
    if (!next) continue;
    here.tabIndex = -1; next.tabIndex = 0; next.focus();
    return;
  }
}

// ---- tooltip

function showTip(button) {
  const cell = pivotNow.get(button.dataset.key);
  if (!cell) return;
  const first = cell.records[0];
  const line = (...children) => el("div", {}, ...children);
  const lines = [line(el("b", {}, `${first.op} · ${first.column.label}`))];
  const verdicts = [...cell.verdicts].map(([v, n]) => `${n} ${words(v)}`).join(", ");
  const rungs = [...cell.rungs].sort((a, b) => b[0] - a[0]).map(([e, n]) => `${n} ${RUNGS[e]}`).join(", ");
  lines.push(line(`Verdict: ${verdicts}`), line(`Evidence: ${rungs}`));
  if (cell.speedup !== null) lines.push(line(`${times(cell.speedup)} vs ${state.baseline}, geomean of ${cell.n}`));
  const one = cell.records.length === 1 ? first : null;
  if (one && one.timing) lines.push(line(`${micros(one.timing[0])}, CI ${interval(one.speedup[state.baseline])}`));
  if (cell.noisy) lines.push(line(el("span", { class: "quiet" }, `Noisy, in no mean (${cell.noisy}): ${cell.records.find((r) => r.noisy).noisy}`)));
  const worst = cell.records.filter((r) => r.errors && typeof r.errors[0] === "number").sort((a, b) => b.errors[0] - a.errors[0])[0];
  if (worst) lines.push(line(`Error vs fp64: ${figure(worst.errors[0])} (framework ${figure(worst.errors[1])})`));
  const failing = cell.records.find((r) => BAD.has(r.verdict));
  if (failing) lines.push(line(el("span", { class: "bad-text" }, words(failing.verdict)), ` ${failing.workload} ${failing.dtype}: ${failing.detail.split("\n")[0].slice(0, 200)}`));
  for (const [reason, n] of reasonsOf(cell.records).slice(0, 2)) lines.push(line(el("span", { class: "quiet" }, `Missing (${n}): ${reason.slice(0, 240)}`)));
  lines.push(line(el("span", { class: "quiet" }, first.venue || DATA.environments[first.environment])));
  const tip = $("tip");
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const at = button.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 12))}px`;
  tip.style.top = `${at.bottom + size.height + 12 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
  button.setAttribute("aria-describedby", "tip");
}

function hideTip(event) {
  $("tip").hidden = true;
  const button = event && event.target.closest && event.target.closest(".cell");
  if (button) button.removeAttribute("aria-describedby");
}

// ---- tables below

const cellLink = (op, column, label) => el("button", { type: "button", class: "link", onclick: () => open(keyOf(op, column)) }, label);

function drawFailures(records) {
  const bad = records.filter((r) => BAD.has(r.verdict));
  drawBad("failures", "Failures", bad.filter((r) => !r.quarantine), (r) => r.detail);
  drawBad("quarantine", "In quarantine", bad.filter((r) => r.quarantine), (r) => `${r.quarantine}; ${r.detail}`);
}

function drawBad(name, head, bad, detail) {
  $(`s-${name}`).hidden = !bad.length;
  $(`h-${name}`).textContent = `${head} (${bad.length})`;
  table($(name), [["Op"], ["Backend and target"], ["Workload"], ["Dtype"], ["Verdict"], ["Detail"]], bad.map((r) => row([], () => [
    text(cellLink(r.op, r.column, r.op), "tight"), text(r.column.label, "tight"), text(`${r.set}/${r.workload}`, "tight"), text(r.dtype),
    text(el("span", { class: "bad-text" }, words(r.verdict)), "tight"), text(expandable(detail(r))),
  ], { class: "bad" })));
}

function drawReasons(records) {
  const reasons = reasonsOf(records);
  $("s-reasons").hidden = !reasons.length;
  const places = grouped(records, "reason");
  table($("reasons"), [["Cells", true], ["Reason"], ["Where"]], reasons.map(([reason, n]) => {
    const where = distinct(places.get(reason).map((r) => r.column.label));
    return row([], [text(n, "num"), text(reason), text(where.length > 8 ? `${where.slice(0, 8).join(", ")} and ${where.length - 8} more` : where.join(", "))]);
  }));
}

function drawResources(records) {
  const shown = new Set(records.map((r) => `${keyOf(r.op, r.column)} ${r.dtype}`));
  const rows = DATA.resources.filter(([, op, dtype, column]) => shown.has(`${keyOf(op, DATA.columns[column])} ${dtype}`));
  $("s-resources").hidden = !rows.length;
  const heads = [["Kernel"], ["Op"], ["Dtype"], ["Backend"], ["Target"], ["Registers", true, "per thread; VGPRs on AMD"], ["AGPRs", true], ["SGPRs", true], ["Spills", true], ["Shared / LDS", true], ["Threads", true], ["Occupancy", true]];
  table($("resources"), heads, rows.map(([kernel, op, dtype, index, registers, agprs, sgprs, spills, shared, threads, occupancy]) => {
    const column = DATA.columns[index];
    const spilled = spills ? el("span", { class: "bad-text" }, String(spills)) : spills;
    return row([kernel, op, dtype, column.tool, column.target, registers, agprs, sgprs, spills, shared, threads, occupancy], () => [
      text(el("code", {}, kernel)), text(cellLink(op, column, op)), text(dtype), text(column.tool), text(column.target, "tight"),
      text(registers, "num"), text(agprs, "num"), text(sgprs, "num"), text(spilled, "num"), text(shared === null ? null : bytes(shared), "num"),
      text(threads, "num"), text(occupancy === null ? null : `${Math.round(occupancy * 100)} %`, "num"),
    ]);
  }), { sortable: true, compare: byValue });
}

// ---- charts over size

// What a chart shows of a record: its value or null, the interval's ends, and where that is on an
// axis with a mark at each integer.
const SPEEDUP = {
  value: (r) => speedupOf(r), ends: (r) => r.speedup[state.baseline].slice(1), at: Math.log2, mark: (e) => (e < -3 ? `1/${2 ** -e}×` : `${2 ** e}×`),
  one: 0, least: [-0.6, 0.6], pad: 0.15, said: (r) => interval(r.speedup[state.baseline]), title: (op) => `Speedup of ${op} over size`,
};
const ROOFLINE = {
  value: (r) => (typeof r.roofline === "number" && r.evidence === MEASURED && !r.noisy ? r.roofline : null), ends: () => [], at: (v) => v * 5, mark: (e) => `${e * 20} %`,
  one: 5, least: [0, 5], pad: 0.2, said: (r) => `${Math.round(r.roofline * 100)} % of the bound by ${r.basis}`, title: (op) => `Share of the roofline of ${op} over size`,
};

function overSize(op, selected, records, shown) {
  const measured = byOp(records, op).filter((r) => shown.value(r) !== null);
  if (!measured.length) return el("p", { class: "quiet small" }, "No measured cell of this op yet: nothing to draw.");
  const inBytes = measured.every((r) => r.bytes);
  const x = (r) => Math.max(1, inBytes ? r.bytes : r.elements);
  const W = 610, H = 250, L = 52, R = 14, T = 12, B = 36;
  const span = (values, pad) => { const a = Math.min(...values), b = Math.max(...values); return [a - pad, b + pad]; };
  const [x0, x1] = span(measured.map((r) => Math.log2(x(r))), 0.6);
  const edges = measured.flatMap((r) => [shown.value(r), ...shown.ends(r)]).filter((v) => typeof v === "number" && v > 0).map(shown.at);
  const [y0, y1] = span([...edges, ...shown.least], shown.pad);
  const px = (v) => L + ((Math.log2(v) - x0) / (x1 - x0)) * (W - L - R);
  const mark = (e) => T + (1 - (e - y0) / (y1 - y0)) * (H - T - B);
  const py = (v) => mark(shown.at(v));
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": shown.title(op) });
  axes(chart, { W, H, L, R, T, B, x0, x1, y0, y1, px, mark, inBytes, shown });
  const columns = distinct(measured.map((r) => r.column)).sort((a, b) => a.index - b.index);
  const colour = (column) => SERIES[columns.indexOf(column) % SERIES.length];
  const order = [...columns].sort((a, b) => (a === selected) - (b === selected));
  for (const column of order) for (const dtype of DTYPES) {
    const points = measured.filter((r) => r.column === column && r.dtype === dtype).sort((a, b) => x(a) - x(b));
    if (points.length) series(chart, points, { px, py, x, shown, colour: colour(column), dash: DASHES[dtype] || "", strong: column === selected || !columns.includes(selected) });
  }
  return el("div", {}, chart, curveKey(columns, selected, colour, distinct(measured.map((r) => r.dtype))));
}

function axes(chart, { W, H, L, R, T, B, x0, x1, y0, y1, px, mark, inBytes, shown }) {
  const step = Math.max(1, Math.ceil((y1 - y0) / 6));
  for (let e = Math.ceil(y0); e <= y1; e += 1) {
    if (e % step) continue;
    const y = mark(e);
    chart.append(svg("line", { x1: L, x2: W - R, y1: y, y2: y, class: e === shown.one ? "one" : "axis" }));
    const label = svg("text", { x: L - 6, y: y + 4, "text-anchor": "end" });
    label.textContent = shown.mark(e);
    chart.append(label);
  }
  const stride = Math.max(1, Math.ceil((x1 - x0) / 7));
  for (let e = Math.ceil(x0); e <= x1; e += 1) {
    if (e % stride) continue;
    const label = svg("text", { x: px(2 ** e), y: H - B + 16, "text-anchor": "middle" });
    label.textContent = inBytes ? bytes(2 ** e) : `2^${e}`;
    chart.append(svg("line", { x1: px(2 ** e), x2: px(2 ** e), y1: T, y2: H - B, class: "axis" }), label);
  }
  const title = svg("text", { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle" });
  title.textContent = inBytes ? "least traffic" : "product of the axes";
  chart.append(title);
}

function series(chart, points, { px, py, x, shown, colour, dash, strong }) {
  const group = svg("g", { opacity: strong ? 1 : 0.38 });
  const path = points.map((r) => `${px(x(r)).toFixed(1)},${py(shown.value(r)).toFixed(1)}`).join(" ");
  group.append(svg("polyline", { points: path, fill: "none", stroke: colour, "stroke-width": strong ? 2 : 1.2, "stroke-dasharray": dash }));
  for (const r of points) {
    const [low, high] = shown.ends(r);
    const cx = px(x(r));
    if (strong && low > 0 && high > 0) group.append(svg("line", { x1: cx, x2: cx, y1: py(low), y2: py(high), stroke: colour, "stroke-width": 1 }));
    const title = svg("title");
    title.textContent = `${r.column.label} ${r.dtype} ${r.workload}: ${shown.said(r)}`;
    group.append(svg("circle", { cx, cy: py(shown.value(r)), r: strong ? 3.2 : 2.2, fill: colour }, title));
  }
  chart.append(group);
}

function curveKey(columns, selected, colour, dtypes) {
  const sample = (stroke, dash) => svg("svg", { viewBox: "0 0 22 10" }, svg("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke, "stroke-width": 2.5, "stroke-dasharray": dash }));
  return el("div", { class: "key" },
    ...columns.map((c) => el("span", { class: c === selected || !columns.includes(selected) ? "item" : "item faded" }, sample(colour(c), ""), c.label)),
    ...(dtypes.length > 1 ? dtypes.map((d) => el("span", { class: "item quiet" }, sample("currentColor", DASHES[d] || ""), d)) : []));
}

// ---- portability: of each backend, what is shown on its targets

// A target's efficiency is the geometric mean of the shares of the roofline of its measured cells.
function efficiency(records) {
  const logs = records.map((r) => ROOFLINE.value(r)).filter((v) => v > 0).map(Math.log);
  return logs.length ? Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length) : null;
}

function targetsOf(records) {
  const parts = new Map(records.map((r) => [r.column, []]));
  for (const r of records) parts.get(r.column).push(r);
  return [...parts].map(([column, part]) => ({ column, cell: summarize(part), efficiency: efficiency(part) }));
}

// Pennycook, Sewall and Lee's PP: the harmonic mean of the efficiencies, 0 where a target fails.
function pennycook(targets) {
  if (targets.some((t) => t.cell.failed)) return 0;
  return targets.length / targets.reduce((sum, t) => sum + 1 / t.efficiency, 0);
}

function drawPortability(records) {
  const possible = records.filter((r) => r.verdict !== "unsupported");
  const tools = distinct(possible.map((r) => r.column.tool));
  $("s-portability").hidden = distinct(possible.map((r) => r.column.target)).length < 2;
  table($("portability"), [["Backend"], ["Targets", true], ["Passed by all cells", true], ["Targets by their weakest evidence"], ["Measured targets, the most efficient first"], ["PP of the measured", true, "harmonic mean of the efficiencies; 0 where one fails"], ["PP of all", true, "0 where one fails; not known until all are measured"]], tools.map((tool) => {
    const targets = targetsOf(possible.filter((r) => r.column.tool === tool));
    const clean = targets.filter((t) => t.cell.passed === t.cell.records.length);
    const measured = targets.filter((t) => t.efficiency !== null).sort((a, b) => b.efficiency - a.efficiency);
    const rungs = RUNGS.map((name, e) => [e, name, targets.filter((t) => !t.cell.failed && t.cell.evidence === e).length]).reverse().filter(([, , n]) => n);
    const failed = targets.filter((t) => t.cell.failed).length;
    const all = failed ? "0" : measured.length === targets.length ? pennycook(targets).toFixed(2) : "not known";
    return row([], [
      text(tool, "tight"), text(targets.length, "num"), text(clean.length, "num"),
      text([...rungs.map(([e, name, n]) => `${GLYPHS[e]} ${n} ${name}`), ...(failed ? [`✕ ${failed} with failures`] : [])].join(", ")),
      text(cascade(measured)), text(measured.length ? pennycook(measured).toFixed(2) : null, "num"), text(all, "num"),
    ]);
  }));
}

// As a cascade plot has it: efficiencies in falling order, one bar each.
function cascade(measured) {
  if (!measured.length) return null;
  const W = 26, H = 34;
  const chart = svg("svg", { viewBox: `0 0 ${W * measured.length} ${H}`, role: "img", style: `width:${W * measured.length}px`, "aria-label": measured.map((t) => `${t.column.target} ${Math.round(t.efficiency * 100)} %`).join(", ") });
  measured.forEach((t, i) => {
    const height = Math.max(1, Math.min(1, t.efficiency) * H);
    const title = svg("title");
    title.textContent = `${t.column.target}: ${Math.round(t.efficiency * 100)} % of the roofline`;
    chart.append(svg("rect", { x: i * W + 2, width: W - 4, y: 0, height: H, class: "room" }), svg("rect", { x: i * W + 2, width: W - 4, y: H - height, height, fill: SERIES[0] }, title));
  });
  return el("div", { class: "cascade" }, chart, el("span", { class: "quiet" }, measured.map((t) => t.column.target).join(", ")));
}

// ---- the panel

function open(key) {
  state.cell = state.cell === key ? "" : key;
  draw();
  if (state.cell) $("panel").focus();
}

function close() {
  const key = state.cell;
  state.cell = "";
  draw();
  const button = document.querySelector(`.cell[data-key="${CSS.escape(key)}"]`);
  if (button) button.focus();
}

function drawPanel(records) {
  const panel = $("panel");
  const cell = pivotNow.get(state.cell);
  panel.hidden = !cell;
  document.body.classList.toggle("open", Boolean(cell));
  if (!cell) { panel.replaceChildren(); return; }
  const { op, column } = cell.records[0];
  panel.replaceChildren(
    el("button", { type: "button", class: "close", "aria-label": "Close", onclick: close }, "×"),
    el("h2", {}, `${op} on ${column.label}`), facts(cell),
    el("h3", {}, `Speedup vs ${state.baseline} over size`), overSize(op, column, records, SPEEDUP),
    ...rooflineChart(op, column, records),
    el("h3", {}, plural(cell.records.length, "workload")), workloadTable(cell), ...changeTable(op, column), ...resourceTable(op, column), ...logs(cell));
  panel.scrollTop = 0;
  $("grid").querySelector(`[aria-expanded="true"]`).scrollIntoView({ block: "nearest", inline: "nearest" });
}

function rooflineChart(op, column, records) {
  if (!byOp(records, op).some((r) => ROOFLINE.value(r) !== null)) return [];
  return [el("h3", {}, "Share of the roofline over size"), overSize(op, column, records, ROOFLINE)];
}

function facts(cell) {
  const { records } = cell;
  const list = [];
  const add = (name, ...values) => values.filter(Boolean).forEach((v, i) => list.push(el("dt", {}, i ? "" : name), el("dd", {}, v)));
  add("Verdict", [...cell.verdicts].map(([v, n]) => `${n} ${words(v)}`).join(", "));
  add("Evidence", [...cell.rungs].sort((a, b) => b[0] - a[0]).map(([e, n]) => `${GLYPHS[e]} ${n} ${RUNGS[e]}`).join(", "));
  add("Next rung", ...reasonsOf(records).map(([reason, n]) => `${reason} (${n})`));
  for (const baseline of BASELINES) {
    const logs = records.map((r) => speedupOf(r, baseline)).filter((s) => s !== null).map(Math.log);
    if (logs.length) add(`vs ${baseline}`, `${times(Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length))}, geomean of ${logs.length}`);
  }
  add("Carried over", ...distinct(records.map((r) => r.carried)).filter(Boolean).map((run) => `from ${run}, as nothing that decides it changed`));
  add("Venue", ...distinct(records.map((r) => r.venue)));
  add("Timed with", ...distinct(records.map((r) => r.method)));
  add("Roofline", ...distinct(records.map((r) => r.basis)));
  add("Precision", ...distinct(records.map((r) => r.precision)));
  add("Tolerance", ...distinct(records.map((r) => r.tolerance)));
  add("Source", ...distinct(records.map((r) => `${r.author}${r.source ? ` · ${r.source}` : ""}`)));
  add("Guard", ...distinct(records.flatMap((r) => r.guard)));
  add("Findings", ...distinct(records.flatMap((r) => r.findings)));
  add("Counted", ...distinct(records.flatMap((r) => r.counted.map((line) => `${r.set}/${r.workload} ${r.dtype}: ${line}`))));
  add("Again", el("code", {}, commandOf(records)));
  add("Environment", ...distinct(records.map((r) => DATA.environments[r.environment])));
  return el("dl", { class: "facts" }, ...list);
}

// In a shell, from the folder in which the run was made.
function commandOf(records) {
  const [first] = records;
  const list = (values) => (values.length > 1 ? `[${values.join(",")}]` : values[0]);
  const sets = list(distinct(records.map((r) => r.set)));
  const dtypes = list(distinct(records.map((r) => r.dtype)));
  const { backend, target } = first.column;
  const op = first.op.split(".")[0];
  return first.file
    ? `portkern check op=${op} backend=${backend} target=${target} source=${first.file} workloads=${sets} dtypes=${dtypes}`
    : `portkern matrix ops=${op} backends=${backend} targets=${target} workloads=${sets} dtypes=${dtypes} run=again`;
}

function resourceTable(op, column) {
  const rows = DATA.resources.filter(([, of, , index]) => of === op && DATA.columns[index] === column);
  if (!rows.length) return [];
  const node = el("table", { class: "plain" });
  const heads = [["Kernel"], ["Dtype"], [column.target.startsWith("gfx") ? "VGPRs" : "Registers", true], ["Spills", true], [column.target.startsWith("gfx") ? "LDS" : "Shared", true], ["Occupancy", true, "the fraction that the build allows"]];
  table(node, heads, rows.map(([kernel, , dtype, , registers, , , spills, shared, , occupancy]) => row([], [
    text(el("code", {}, kernel)), text(dtype), text(registers, "num"), text(spills, "num"),
    text(shared === null ? null : bytes(shared), "num"), text(occupancy === null ? null : `${Math.round(occupancy * 100)} %`, "num"),
  ])));
  return [el("h3", {}, "Build"), el("div", { class: "scroll" }, node)];
}

function changeTable(op, column) {
  const rows = DATA.changes.filter(([of, , , , index]) => of === op && DATA.columns[index] === column);
  if (!rows.length) return [];
  const node = el("table", { class: "plain" });
  table(node, [["Workload"], ["Dtype"], ["Earlier runs and this one", false, "of the time that was compared, as multiples of the earlier runs' median"], ["Since"], ["Detail"]], rows.map(([, set, workload, dtype, , change, regressed, detail, recent]) => row([], [
    text(`${set}/${workload}`, "tight"), text(dtype), text(recent.length > 1 ? trend(recent) : null),
    text(regressed ? el("span", { class: "bad-text" }, change) : change, "tight"), text(detail),
  ])));
  return [el("h3", {}, "Since earlier runs"), el("div", { class: "scroll" }, node)];
}

// The last run is the dot; the line is the median of those before.
function trend(values) {
  const W = 90, H = 24, pad = 3;
  const low = Math.min(...values, 0.9), high = Math.max(...values, 1.1);
  const x = (i) => pad + (i / (values.length - 1)) * (W - 2 * pad);
  const y = (v) => pad + (1 - (v - low) / (high - low)) * (H - 2 * pad);
  const last = values.length - 1;
  const said = values.map((v) => `${v.toFixed(2)}×`).join(", ");
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "trend", "aria-label": said },
    svg("line", { x1: 0, x2: W, y1: y(1), y2: y(1), class: "axis" }),
    svg("polyline", { points: values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.2 }),
    svg("circle", { cx: x(last), cy: y(values[last]), r: 2.6, fill: SERIES[1] }));
  const title = svg("title");
  title.textContent = said;
  chart.append(title);
  return chart;
}

function workloadTable(cell) {
  const base = state.baseline;
  const node = el("table", { class: "plain" });
  const heads = [["Workload"], ["Dtype"], ["Result"], ["Time", true, "median; p20 to p80 in the tooltip"], [base, true], ["Speedup [95 % CI]", true], ["Roofline", true], ["Error", true, "relative to the float64 reference"], ["Framework", true, "the framework's own error against the same reference"]];
  table(node, heads, cell.records.map((r) => {
    const bad = BAD.has(r.verdict);
    const result = bad ? el("span", { class: "bad-text" }, `✕ ${words(r.verdict)}`) : `${GLYPHS[r.evidence]} ${r.evidence ? RUNGS[r.evidence] : words(r.verdict)}`;
    const time = r.timing ? el("span", { title: `p20 ${micros(r.timing[1])}, p80 ${micros(r.timing[2])}, n = ${r.timing[3]}` }, micros(r.timing[0])) : null;
    return row([], [
      text(el("span", { title: r.size }, `${r.set}/${r.workload}`), "tight"), text(r.dtype), text(result, "tight"), text(time, "num"),
      text(r.baselines[base] === undefined ? null : micros(r.baselines[base]), "num"), text(interval(r.speedup[base]), "num"),
      text(typeof r.roofline === "number" ? `${Math.round(r.roofline * 100)} %` : null, "num"),
      text(r.errors ? figure(r.errors[0]) : null, "num"), text(r.errors ? figure(r.errors[1]) : null, "num"),
    ], bad ? { class: "bad" } : {});
  }));
  return el("div", { class: "scroll" }, node);
}

function logs(cell) {
  const failing = cell.records.filter((r) => BAD.has(r.verdict) && r.detail);
  if (!failing.length) return [];
  return [el("h3", {}, "What went wrong"), ...failing.slice(0, 20).map((r) =>
    el("div", {}, el("div", { class: "quiet small" }, `${r.set}/${r.workload} ${r.dtype}`), el("pre", {}, r.detail)))];
}

// ---- putting it together

let pivotNow = new Map();

function draw() {
  const records = visible();
  pivotNow = pivot(records);
  hideTip();
  showFilters();
  drawCards(records);
  drawProducts(records);
  drawGrid(records);
  drawPanel(records);
  drawFailures(records);
  drawReasons(records);
  drawPortability(records);
  drawResources(records);
  writeHash();
}

buildFilters();
buildLegend();
const grid = $("grid");
grid.addEventListener("keydown", moveFocus);
for (const name of ["pointerover", "focusin"]) grid.addEventListener(name, (e) => { const b = e.target.closest(".cell"); if (b) showTip(b); });
for (const name of ["pointerout", "focusout"]) grid.addEventListener(name, hideTip);
document.addEventListener("keydown", (e) => { if (e.key === "Escape") { hideTip(); if (state.cell) close(); } });
addEventListener("hashchange", () => { readHash(); draw(); });
readHash();
draw();
document.body.dataset.ready = "1";
