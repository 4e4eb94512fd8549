
// ---- data; numbers with intervals are computed where the page is made, never here

const DATA = JSON.parse($("data").textContent);
const METRICS = DATA.metrics;
const VENUES = { measured: "● measured on hardware", emulated: "◑ emulated", "": "○ evidence not known", any: "◑ in all places at once, measured or emulated" };
const MARKS = { no_code: "N", rejected: "R", build_failed: "B", crashed: "C", timed_out: "T", wrong: "W", suspicious: "S", passed: "✓" };
const DASHED = ["", "7 3", "2 3", "9 3 2 3"];
const backends = distinct(DATA.places.map(([backend]) => backend));
const ks = distinct(DATA.figures.map((f) => f[2]).filter((k) => k !== null)).sort((a, b) => a - b);
// The headline is of the largest k that all models have a number for.
const lacks = (k) => DATA.figures.some((f) => f[1] === "pass" && f[2] === k && !DATA.scopes[f[0]][2] && !DATA.scopes[f[0]][4] && f[4] === null && f[9]);
const lastK = [...ks].reverse().find((k) => !lacks(k)) || ks[0] || 1;
const placeName = (i) => DATA.places[i].join(" on ");
const suiteName = (suite) => suite || "no suite";

const FIGURES = new Map();
for (const [scope, metric, k, p, value, low, high, n, tasks, samples, reason] of DATA.figures) {
  const key = [...DATA.scopes[scope], metric, k, p].join("\n");
  FIGURES.set(key, { value, low, high, n, tasks, samples, reason: DATA.reasons[reason] });
}

function figureOf({ model, venue, backend = "", target = "", suite = state.suite }, { metric, k = null, p = null }) {
  return FIGURES.get([model, venue, backend, target, suite, metric, k, p].join("\n"));
}

const kOf = (metric) => (METRICS[metric].at_k ? state.k : null);
const thresholds = distinct(DATA.figures.filter((f) => f[1] === "fast").map((f) => f[3])).sort((a, b) => a - b);

// As `Figure.title` has it.
function titleOf({ metric, k, p }) {
  const title = METRICS[metric].title.replace("@k", `@${k}`);
  return p === null || p === undefined ? title : title.replace("_p", `_${p}`);
}

// ---- state; the address bar holds it, so that a view can be sent to somebody

const state = { venue: new Set(), backend: new Set(), suite: "", k: lastK, find: "", heat: "", op: "", sample: "" };

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const among = (key, known) => new Set((given.get(key) || "").split(",").filter((v) => given.has(key) && known.includes(v)));
  state.venue = among("venue", DATA.venues);
  state.backend = among("backend", backends);
  state.suite = DATA.suites.includes(given.get("suite")) ? given.get("suite") : "";
  state.k = ks.includes(Number(given.get("k"))) ? Number(given.get("k")) : lastK;
  state.find = given.get("find") || "";
  state.heat = heatChoices().some((c) => keyOf(c) === given.get("heat")) ? given.get("heat") : firstHeat();
  state.op = given.get("op") || "";
  state.sample = given.get("sample") || "";
}

function writeHash() {
  const out = new URLSearchParams();
  for (const key of ["venue", "backend"]) if (state[key].size) out.set(key, [...state[key]].join(","));
  for (const key of ["suite", "find", "op", "sample"]) if (state[key]) out.set(key, state[key]);
  if (state.heat !== firstHeat()) out.set("heat", state.heat);
  if (state.k !== lastK) out.set("k", state.k);
  const text = out.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

const anywhere = DATA.scopes.some((scope) => scope[1] === "any") ? ["any"] : [];
const venues = () => DATA.venues.filter((v) => !state.venue.size || state.venue.has(v));
const shownPlaces = () => DATA.places.map((_, i) => i).filter((i) => !state.backend.size || state.backend.has(DATA.places[i][0]));

// ---- words

const UNITS = {
  share: (v) => `${(100 * v).toFixed(v > 0 && v < 0.0995 ? 1 : 0)} %`,
  times,
  count: (v) => (v < 1e4 ? v.toFixed(0) : `${(v / 1000).toFixed(v < 1e5 ? 1 : 0)}k`),
  usd: (v) => `$${v < 0.1 ? v.toPrecision(2) : v.toFixed(2)}`,
  seconds: (v) => (v < 100 ? `${v.toPrecision(2)} s` : v < 6000 ? `${(v / 60).toPrecision(2)} min` : `${(v / 3600).toFixed(1)} h`),
};
const said = (figure, unit) => `${UNITS[unit](figure.value)}${figure.low === null ? "" : ` [${ends(figure, unit)}]`}`;
const ends = (figure, unit) => [figure.low, figure.high].map((v) => UNITS[unit](v).replace(/ %$|×$|^\$/, "")).join(", ");
const isUntimed = (choice, figure) => METRICS[choice.metric].timed && figure && figure.value === null;

function why(label, reason) {
  return el("span", { class: "why", title: reason, tabindex: "0" }, label, el("span", { class: "sr" }, `: ${reason}`));
}

// A number with its interval, or the mark of what is none.
function figureNodes(choice, figure) {
  if (!figure) return ["–"];
  if (figure.value === null) return [why(METRICS[choice.metric].timed && /timed|time/.test(figure.reason) ? "not timed" : /not looked for/.test(figure.reason) ? "not looked for" : "none", figure.reason)];
  const { unit } = METRICS[choice.metric];
  const number = figure.reason ? why(UNITS[unit](figure.value), figure.reason) : UNITS[unit](figure.value);
  return figure.low === null ? [number] : [number, el("span", { class: "ends" }, ends(figure, unit))];
}

const dot = (model) => el("span", { class: "dot", style: `background: ${SERIES[model % SERIES.length]}`, "aria-hidden": "true" });
const modelName = (model) => el("span", { class: "model" }, dot(model), el("span", {}, DATA.models[model]));
const modelHead = (model) => el("th", { scope: "row" }, modelName(model));

// ---- filters

function chips(name, key, options, label = (o) => o) {
  if (options.length < 2) return null;
  const toggle = (option) => () => { if (!state[key].delete(option)) state[key].add(option); draw(); };
  return el("fieldset", { class: "group", "aria-label": name }, el("span", { class: "name" }, name),
    ...options.map((o) => el("button", { type: "button", class: "chip", "data-filter": key, "data-option": o, "aria-pressed": "false", onclick: toggle(o) }, label(o))));
}

function chooser(name, key, options, read = String) {
  if (options.length < 2) return null;
  return el("label", { class: "group" }, el("span", { class: "name" }, name),
    el("select", { "data-choice": key, onchange: (e) => { state[key] = read(e.target.value); draw(); } },
      ...options.map(([value, label]) => el("option", { value }, label))));
}

function buildFilters() {
  const suites = DATA.suites.length > 1 ? [["", "all"], ...DATA.suites.filter(Boolean).map((s) => [s, s])] : [];
  const find = el("input", { type: "search", id: "find", placeholder: "operator", "aria-label": "Find an operator", oninput: (e) => { state.find = e.target.value; drawTasks(); writeHash(); } });
  $("filters").replaceChildren(...[
    chips("Evidence", "venue", DATA.venues, (v) => VENUES[v].slice(0, 2) + (v || "not known")),
    chips("Backend", "backend", backends), chooser("Suite", "suite", suites),
    chooser("k", "k", ks.map((k) => [String(k), String(k)]), Number), find].filter(Boolean));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
}

function showFilters() {
  for (const chip of document.querySelectorAll("[data-filter]")) chip.setAttribute("aria-pressed", String(state[chip.dataset.filter].has(chip.dataset.option)));
  for (const select of document.querySelectorAll("[data-choice]")) select.value = String(state[select.dataset.choice]);
  if ($("find") !== document.activeElement) $("find").value = state.find;
}

// ---- leaderboard

function boardChoices() {
  const { k } = state;
  const fast = thresholds.includes(1) ? [{ metric: "fast", k, p: 1 }] : [];
  const at = (metric) => ({ metric, k });
  return [...(k > 1 && ks.includes(1) ? [{ metric: "pass", k: 1 }] : []), at("pass"), ...fast, at("speedup_geometric"), at("efficiency"), at("portable_pass"),
    { metric: "pp_architectural" }, { metric: "heldout" }, { metric: "cheat" }, { metric: "no_code" }, at("build"), { metric: "tokens_per_solved" }, { metric: "usd_per_solved" }, { metric: "seconds_per_solved" }];
}

function drawBoard() {
  const [only] = state.backend.size === 1 ? state.backend : [""];
  $("board").replaceChildren(...[...venues(), ...(state.venue.size ? [] : anywhere)].flatMap((venue) => {
    const models = DATA.models.map((_, i) => i);
    const at = (model, choice) => figureOf({ model, venue, backend: only }, choice);
    // That there is no time is said; what a source of samples does not have is left out.
    const says = (figure) => figure && (figure.value !== null || /timed|looked for/.test(figure.reason));
    const choices = boardChoices().filter((c) => models.some((m) => says(at(m, c))));
    const present = models.filter((m) => choices.some((c) => at(m, c)));
    if (!present.length) return [];
    const node = el("table", { class: "plain", "data-venue": venue });
    const first = choices.find((c) => c.metric === "pass") || choices[0];
    const order = [...present].sort((a, b) => byValue(valueOf(at(b, first)), valueOf(at(a, first))));
    const heads = [["Model"], ["Tasks", true, "with their samples"], ...choices.map((c) => [titleOf(c), true, METRICS[c.metric].says])];
    table(node, heads, order.map((m) => {
      const figures = choices.map((c) => at(m, c));
      const cells = figures.map((f, i) => el("td", { class: "num" }, ...figureNodes(choices[i], f)));
      const of = at(m, first) || figures.find(Boolean);
      return row([DATA.models[m], of.tasks, ...figures.map(valueOf)], [modelHead(m), el("td", { class: "num" }, String(of.tasks), el("span", { class: "ends" }, plural(of.samples, "sample"))), ...cells]);
    }), { sortable: true, compare: byValue });
    return [el("h3", {}, VENUES[venue]), el("div", { class: "scroll" }, node)];
  }));
  if (!$("board").childElementCount) $("board").append(el("p", { class: "quiet" }, "Nothing matches these filters."));
}

const valueOf = (figure) => (figure ? figure.value : null);

function drawDifferences() {
  const shown = DATA.differences.map((d) => {
    const [first, second, metric, k, p, venue, value, low, high, n, , holm, isShown, tasks, sentence] = d;
    return { first, second, metric, k, p, venue, value, low, high, n, holm, isShown, tasks, sentence };
  }).filter((d) => venues().includes(d.venue));
  $("s-differences").hidden = !shown.length;
  shown.sort((a, b) => (b.isShown - a.isShown) || (a.holm ?? 2) - (b.holm ?? 2));
  table($("differences"), [["Shown"], ["In words"], ["p", true], ["Tasks", true], ["Metric"], ["Evidence"]], shown.map((d) => row([], [
    text(d.isShown ? el("b", {}, "● shown") : el("span", { class: "quiet" }, "○ not shown"), "tight"),
    text(d.sentence, "words"), text(d.holm === null ? null : d.holm < 0.001 ? "< 0.001" : d.holm.toFixed(3), "num"), text(d.tasks, "num"),
    text(titleOf(d), "tight"), text(d.venue || "not known"),
  ])));
}

// ---- heat map

function heatChoices() {
  const at = ["build", "pass", "speedup_geometric", "speedup_correct_geometric", "efficiency"].map((metric) => ({ metric }));
  return [...at, ...thresholds.map((p) => ({ metric: "fast", p })), { metric: "heldout" }, { metric: "cheat" }, { metric: "no_code" }]
    .filter(({ metric, p = null }) => DATA.figures.some((f) => f[1] === metric && f[3] === p));
}

const keyOf = ({ metric, p = null }) => (p === null ? metric : `${metric}:${p}`);

function firstHeat() {
  const keys = heatChoices().map(keyOf);
  return keys.includes("pass") ? "pass" : keys[0] || "";
}

function drawHeat() {
  const choices = heatChoices();
  const plain = choices.find((c) => keyOf(c) === state.heat);
  if (!plain) return;
  const choice = { ...plain, k: kOf(plain.metric) };
  const places = shownPlaces();
  const head = el("thead", {}, el("tr", {}, el("td", {}), ...places.map((i) => el("th", { scope: "col" }, DATA.places[i][0], el("span", {}, DATA.places[i][1])))));
  const bodies = venues().map((venue) => {
    const at = (model, i) => figureOf({ model, venue, backend: DATA.places[i][0], target: DATA.places[i][1] }, choice);
    const rows = DATA.models.map((_, m) => m).filter((m) => places.some((i) => at(m, i)));
    if (!rows.length) return null;
    return el("tbody", {}, el("tr", { class: "venue" }, el("th", { colspan: String(places.length + 1), scope: "rowgroup" }, VENUES[venue])),
      ...rows.map((m) => el("tr", {}, modelHead(m), ...places.map((i) => heatCell(m, i, choice, at(m, i))))));
  });
  $("heat").replaceChildren(el("table", { class: "heat", "aria-label": `${titleOf(choice)} of each model and place` }, head, ...bodies.filter(Boolean)));
}

function heatCell(model, place, choice, figure) {
  const where = `${DATA.models[model]}, ${placeName(place)}`;
  if (!figure) return el("td", { class: "nothing", title: `${where}: no samples` }, "·");
  if (figure.value === null) return el("td", { class: isUntimed(choice, figure) ? "untimed" : "nothing", title: `${where}: ${figure.reason}` }, ...figureNodes(choice, figure));
  const { unit, better } = METRICS[choice.metric];
  const log = unit === "times" ? Math.max(-2, Math.min(2, Math.log2(Math.max(figure.value, 0.01)))) / 2 : Math.min(1, figure.value);
  const much = Math.round(Math.abs(log) * 100);
  const kind = `${(better < 0 || log < 0) ? "slow " : ""}${much > 80 ? "strong" : ""}`;
  return el("td", { class: kind, style: `--much: ${much}%`, title: `${where}: ${said(figure, unit)}, ${plural(figure.samples, "sample")} of ${plural(figure.tasks, "task")}` }, ...figureNodes(choice, figure));
}

function buildLegend() {
  const choices = heatChoices();
  const options = choices.map((c) => [keyOf(c), titleOf({ ...c, k: "k" })]);
  const select = chooser("Shown", "heat", options);
  if (select) select.querySelector("select").addEventListener("change", drawHeat);
  const swatch = el("span", { class: "swatch built" }, "");
  $("legend").replaceChildren(...[select, el("span", { class: "item" }, swatch, "not timed: neither 0 nor slow"), el("span", { class: "item" }, "· not asked for")].filter(Boolean));
  $("legend").classList.add("filters");
}

// ---- charts

const BOX = { W: 560, H: 300, L: 66, R: 26, T: 12, B: 40 };

function frame(label, { x, y, ticksX, ticksY, nameX, nameY, wordX, wordY }) {
  const { W, H, L, R, T, B } = BOX;
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  const put = (content, attributes) => { const node = svg("text", attributes); node.textContent = content; chart.append(node); };
  for (const v of ticksY) {
    chart.append(svg("line", { x1: L, x2: W - R, y1: y(v), y2: y(v), class: "axis" }));
    put(wordY(v), { x: L - 6, y: y(v) + 4, "text-anchor": "end" });
  }
  for (const v of ticksX) {
    chart.append(svg("line", { x1: x(v), x2: x(v), y1: T, y2: H - B, class: "axis" }));
    put(wordX(v), { x: x(v), y: H - B + 16, "text-anchor": "middle" });
  }
  put(nameX, { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle" });
  put(nameY, { x: 12, y: (T + H - B) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(T + H - B) / 2})` });
  return chart;
}

const SHARES = [0, 0.2, 0.4, 0.6, 0.8, 1];
const upShare = (v) => BOX.T + (1 - Math.min(1, v)) * (BOX.H - BOX.T - BOX.B);
const percents = (v) => `${Math.round(v * 100)} %`;

function titled(node, content) {
  const title = svg("title");
  title.textContent = content;
  node.append(title);
  return node;
}

function modelKey(models, glyph) {
  return el("div", { class: "key" }, ...models.map((m) => el("span", { class: "item" }, glyph(m), DATA.models[m])));
}

const chartOf = (caption, chart, key) => el("figure", {}, el("figcaption", {}, caption), chart, key);

// Sewall and others' cascade: over the number of places, with a strip that names them below.
function cascadeChart(kind) {
  const lines = DATA.cascades.map(readCascade).filter((c) => c.kind === kind && c.steps.length);
  const count = Math.max(0, ...lines.map((c) => c.steps.length));
  if (count < 2) return null; // of one place there is nothing to fall off
  const { W, L, R } = BOX;
  const x = (i) => L + 14 + ((i - 1) / (count - 1)) * (W - L - R - 28);
  const whole = [...Array(count).keys()].map((i) => i + 1);
  const label = lines.map((c) => `${DATA.models[c.model]}: ${c.value === null ? c.reason : percents(c.value)}`).join("; ");
  const chart = frame(`${kind} efficiency over places; performance portability: ${label}`, { x, y: upShare, ticksX: whole, ticksY: SHARES, nameX: "places, the most efficient first", nameY: "efficiency", wordX: String, wordY: percents });
  lines.forEach((line) => chart.append(cascadeLine(line, x)));
  return chartOf(`By ${kind} efficiency`, chart, el("div", {}, modelKey(lines.map((c) => c.model), lineGlyph), strip(lines, count)));
}

const readCascade = ([model, op, dtype, kind, value, blocked, mean, steps, reason]) => ({ model, op, dtype, kind, value, blocked, mean, steps, reason });
const dashOf = (model) => DASHED[Math.floor(model / SERIES.length) % DASHED.length];
const lineGlyph = (m) => svg("svg", { viewBox: "0 0 22 10" }, svg("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: SERIES[m % SERIES.length], "stroke-width": 2.5, "stroke-dasharray": dashOf(m) }));

function cascadeLine({ model, steps }, x) {
  const stroke = SERIES[model % SERIES.length];
  const points = (pick) => steps.map((s, i) => `${x(i + 1).toFixed(1)},${upShare(pick(s)).toFixed(1)}`).join(" ");
  const group = svg("g", {},
    svg("polyline", { points: points((s) => s[1]), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dashOf(model) }),
    svg("polyline", { points: points((s) => s[2]), fill: "none", stroke, "stroke-width": 1.4, "stroke-dasharray": "3 4", opacity: 0.8 }));
  steps.forEach(([place, efficiency, portability], i) => group.append(titled(
    svg("circle", { cx: x(i + 1), cy: upShare(efficiency), r: 3.5, fill: stroke }),
    `${DATA.models[model]}, ${placeName(place)}: ${percents(efficiency)}, portability so far ${percents(portability)}`)));
  return group;
}

function strip(lines, count) {
  const node = el("table", { class: "plain" });
  const heads = [["Model"], ["PP", true, "Pennycook's metric over all places"], ["Blocked by"], ["Mean of supported", true], ...[...Array(count).keys()].map((i) => [`${i + 1}`])];
  table(node, heads, lines.map((c) => row([], [modelHead(c.model), text(c.value === null ? why("not known", c.reason) : percents(c.value), "num"),
    text(c.blocked === null ? null : placeName(c.blocked)), text(c.mean === null ? null : percents(c.mean), "num"),
    ...[...Array(count).keys()].map((i) => text(c.steps[i] ? `${placeName(c.steps[i][0])} ${percents(c.steps[i][1])}` : null, "tight"))])));
  return el("div", { class: "scroll" }, node);
}

function drawCascade() {
  const charts = ["application", "architectural"].map(cascadeChart).filter(Boolean);
  $("s-cascade").hidden = !charts.length;
  $("cascade").replaceChildren(el("div", { class: "charts" }, ...charts));
}

// Round numbers within; of a logarithmic axis 1, 2 and 5 times powers of ten.
function logTicks(low, high) {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) for (const m of [1, 2, 5]) all.push(m * 10 ** e);
  const within = all.filter((v) => v >= low && v <= high);
  return within.length > 6 ? within.filter((v) => Math.log10(v) % 1 === 0) : within;
}

// A point with both its intervals for each model, and one row of a table for those who do not see it.
function scatter(caption, points, { nameX, nameY, wordX, tickX = wordX, wordY, log, domain }) {
  const { W, L, R } = BOX;
  const edges = points.flatMap((p) => [p.x.value, p.x.low, p.x.high]).filter((v) => v !== null && (!log || v > 0));
  const [low, high] = domain || [Math.min(...edges) / 1.3, Math.max(...edges) * 1.3];
  const at = log ? Math.log10 : (v) => v;
  const x = (v) => L + ((at(Math.max(v, low)) - at(low)) / (at(high) - at(low) || 1)) * (W - L - R);
  const label = points.map((p) => `${DATA.models[p.model]} ${p.where}: ${nameX} ${wordX(p.x.value)}, ${nameY} ${wordY(p.y.value)}`).join("; ");
  const chart = frame(`${caption}. ${label}`, { x, y: upShare, ticksX: log ? logTicks(low, high) : SHARES, ticksY: SHARES, nameX, nameY, wordX: tickX, wordY });
  for (const p of points) chart.append(scatterPoint(p, x, `${DATA.models[p.model]} ${p.where}: ${wordX(p.x.value)}, ${wordY(p.y.value)}`));
  const round = (m) => svg("svg", { viewBox: "0 0 22 10" }, svg("circle", { cx: 11, cy: 5, r: 4.5, fill: SERIES[m % SERIES.length] }));
  return chartOf(caption, chart, modelKey(distinct(points.map((p) => p.model)), round));
}

function scatterPoint({ model, x: across, y: up, hollow }, x, title) {
  const stroke = SERIES[model % SERIES.length];
  const group = svg("g", {});
  if (across.low !== null) group.append(svg("line", { x1: x(across.low), x2: x(across.high), y1: upShare(up.value), y2: upShare(up.value), stroke, opacity: 0.5 }));
  if (up.low !== null) group.append(svg("line", { x1: x(across.value), x2: x(across.value), y1: upShare(up.low), y2: upShare(up.high), stroke, opacity: 0.5 }));
  group.append(titled(svg("circle", { cx: x(across.value), cy: upShare(up.value), r: 5, stroke, "stroke-width": 2, fill: hollow ? "var(--paper)" : stroke }), title));
  return group;
}

const known = (figure) => figure && figure.value !== null;

function drawCost() {
  const costs = ["usd_per_solved", "tokens_per_solved", "seconds_per_solved"];
  const choice = { metric: "pass", k: ks.includes(1) ? 1 : state.k };
  const charts = costs.flatMap((cost) => venues().map((venue) => {
    const points = DATA.models.map((_, model) => ({ model, where: "", x: figureOf({ model, venue }, { metric: cost }), y: figureOf({ model, venue }, choice) })).filter((p) => known(p.x) && known(p.y) && p.x.value > 0);
    const { title, unit } = METRICS[cost];
    return points.length ? scatter(`${title}, ${VENUES[venue]}`, points, { nameX: title, nameY: titleOf(choice), wordX: UNITS[unit], tickX: unit === "seconds" ? (v) => `${v} s` : UNITS[unit], wordY: percents, log: true }) : null;
  })).filter(Boolean);
  $("s-cost").hidden = !charts.length;
  $("cost").replaceChildren(el("div", { class: "charts" }, ...charts));
}

function drawHeldout() {
  const pass = { metric: "pass", k: ks.includes(1) ? 1 : state.k };
  const charts = venues().map((venue) => {
    const scopes = DATA.models.flatMap((_, model) => ["", ...backends].filter((b) => !b || !state.backend.size || state.backend.has(b)).map((backend) => ({ model, venue, backend })));
    const points = scopes.map((s) => ({ model: s.model, where: s.backend || "all", hollow: Boolean(s.backend), x: figureOf(s, pass), y: figureOf(s, { metric: "heldout" }) })).filter((p) => known(p.x) && known(p.y));
    return points.length ? scatter(`${VENUES[venue]}; filled: all backends, hollow: one`, points, { nameX: `seen: ${titleOf(pass)}`, nameY: "held-out, of correct ones", wordX: percents, wordY: percents, log: false, domain: [0, 1] }) : null;
  }).filter(Boolean);
  $("s-heldout").hidden = !charts.length;
  $("heldout").replaceChildren(el("div", { class: "charts" }, ...charts));
}

// ---- tables of pairs

function pairTable(section, node, heads, entries) {
  $(section).hidden = !entries.length;
  const models = DATA.models.map((_, i) => i).filter((m) => entries.some((e) => e.model === m));
  const keys = distinct(entries.map((e) => e.key));
  table($(node), [...heads.map((h) => [h]), ...models.map((m) => [DATA.models[m], true])], keys.map((key) => {
    const own = entries.filter((e) => e.key === key);
    return row([], [...own[0].names.map((name) => text(name, "tight")), ...models.map((m) => {
      const found = own.find((e) => e.model === m);
      return el("td", { class: "num", title: found ? found.title : "" }, ...(found ? figureNodes({ metric: "pass" }, found) : ["–"]));
    })]);
  }));
}

function drawTranslation() {
  pairTable("s-translation", "translation", ["From", "To", "Evidence"], DATA.translations.filter((t) => venues().includes(t[3])).map(([model, donor, backend, venue, value, low, high, n, tasks, samples]) => (
    { key: [donor, backend, venue].join("\n"), names: [donor, backend, venue || "not known"], model, value, low, high, n, reason: "", title: `${plural(samples, "sample")} of ${plural(tasks, "task")}` })));
}

function drawDivergence() {
  pairTable("s-divergence", "divergence", ["Between", "and"], DATA.divergences.map(([model, first, second, value, low, high, n]) => (
    { key: `${first} ${second}`, names: [placeName(first), placeName(second)], model, value, low, high, n, reason: "", title: plural(n, "operator") })));
}

// ---- tasks

const TASK_FIELDS = ["model", "op", "suite", "dtype", "place", "venue", "samples", "unevaluated", "correct", "timed", "cheats", "value", "low", "high", "speedup", "efficiency", "us"];
const TASKS = DATA.tasks.map((values) => Object.fromEntries(TASK_FIELDS.map((field, i) => [field, values[i]])));

function visibleTasks() {
  const places = new Set(shownPlaces());
  const venueSet = new Set(venues());
  const find = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  return TASKS.filter((t) => places.has(t.place) && venueSet.has(t.venue) && (!state.suite || t.suite === state.suite) &&
    find.every((word) => `${DATA.ops[t.op]} ${t.suite} ${t.dtype}`.toLowerCase().includes(word)));
}

function drawTasks() {
  const groups = new Map();
  for (const task of visibleTasks()) {
    const key = [task.suite, task.op, task.dtype].join("\n");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(task);
  }
  const several = DATA.suites.length > 1;
  const dtypes = distinct(TASKS.map((t) => t.dtype)).length > 1;
  const heads = [["Operator"], ...(several ? [["Suite"]] : []), ...(dtypes ? [["Dtype"]] : []), ...DATA.models.map((m) => [m, true])];
  const rows = [...groups.values()].map((tasks) => taskRow(tasks, several, dtypes));
  table($("tasks"), heads, rows, { sortable: true, compare: byValue });
  document.body.dataset.tasks = groups.size;
}

function taskRow(tasks, several, dtypes) {
  const [{ op, suite, dtype }] = tasks;
  const name = DATA.ops[op];
  const cells = DATA.models.map((_, model) => taskCell(tasks.filter((t) => t.model === model), op, dtype));
  const names = [...(several ? [suite] : []), ...(dtypes ? [dtype] : [])];
  const open = el("button", { type: "button", class: "link", onclick: () => openTask(op, dtype) }, name);
  return row([name, ...names, ...cells.map((c) => c.share)], [el("th", { scope: "row" }, open), ...names.map((n) => text(n, "tight")), ...cells.map((c) => c.node)]);
}

function taskCell(tasks, op, dtype) {
  const sum = (field) => tasks.reduce((total, t) => total + t[field], 0);
  const evaluated = sum("samples") - sum("unevaluated");
  const best = Math.max(0, ...tasks.map((t) => t.speedup || 0));
  if (!tasks.length) return { share: null, node: el("td", { class: "num" }, "–") };
  const label = evaluated ? `${sum("correct")}/${evaluated}` : "not evaluated";
  const link = el("button", { type: "button", class: "link", onclick: () => openTask(op, dtype) }, label);
  const more = [best ? `best ${times(best)}` : "", sum("cheats") ? plural(sum("cheats"), "cheat") : ""].filter(Boolean).join(", ");
  return { share: evaluated ? sum("correct") / evaluated : null, node: el("td", { class: "num" }, link, more ? el("span", { class: "ends" }, more) : null) };
}

// ---- the panel: samples of a task, unpacked when they are looked at

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

let unpacked = null;
const samplesOnce = () => { unpacked ??= unpack($("samples").textContent); return unpacked; };
let textsRead = null;
const texts = () => { textsRead ??= JSON.parse($("texts").textContent); return textsRead; };

const INTERNED = new Set(["dtype", "cheat", "donor", "device", "baseline", "detail"]);

function sampleAt(all, i) {
  const sample = { number: i };
  for (const [field, column] of Object.entries(all)) if (field !== "strings") sample[field] = INTERNED.has(field) ? all.strings[column[i]] : column[i];
  sample.status = sample.status < 0 ? null : DATA.statuses[sample.status];
  sample.evidence = DATA.evidence[sample.evidence];
  return sample;
}

function openTask(op, dtype, sample = "") {
  state.op = `${DATA.ops[op]}:${dtype}`;
  state.sample = String(sample);
  writeHash();
  return drawPanel();
}

function close() {
  state.op = state.sample = "";
  writeHash();
  drawPanel();
}

async function drawPanel() {
  const panel = $("panel");
  const at = state.op.lastIndexOf(":");
  const op = DATA.ops.indexOf(state.op.slice(0, at));
  const dtype = state.op.slice(at + 1);
  panel.hidden = op < 0;
  document.body.classList.toggle("open", op >= 0);
  if (op < 0) { panel.replaceChildren(); return; }
  const all = await samplesOnce();
  const samples = [];
  all.op.forEach((of, i) => { if (of === op && all.strings[all.dtype[i]] === dtype) samples.push(sampleAt(all, i)); });
  const box = el("div", { id: "sample" });
  panel.replaceChildren(
    el("button", { type: "button", class: "close", "aria-label": "Close", onclick: close }, "×"),
    el("h2", {}, `${DATA.ops[op]}, ${dtype}`), el("p", { class: "quiet small" }, "✓ correct, and by letter what was not: No code, Rejected, Build failed, Crashed, Timed out, Wrong, Suspicious; – not evaluated."),
    el("div", { class: "scroll" }, marksTable(samples)), ...portabilityOf(op, dtype), box);
  const chosen = samples.find((s) => String(s.number) === state.sample);
  if (chosen) await showSample(chosen); else panel.focus();
  document.body.dataset.panel = state.op;
}

function marksTable(samples) {
  const node = el("table", { class: "plain" });
  const pairs = distinct(samples.map((s) => `${s.place}:${s.model}`)).sort(byValue);
  table(node, [["Place"], ["Model"], ["Samples"], ["Correct", true], ["Best", true]], pairs.map((pair) => {
    const [place, model] = pair.split(":").map(Number);
    const own = samples.filter((s) => s.place === place && s.model === model);
    const right = own.filter((s) => s.status === "passed");
    const fastest = Math.max(0, ...right.map((s) => s.speedup || 0));
    const kinds = distinct(right.map((s) => s.evidence)).join(", ");
    return row([], [text(placeName(place), "tight"), el("td", {}, modelName(model)), el("td", {}, el("div", { class: "marks" }, ...own.map(mark))),
      text(`${right.length}/${own.filter((s) => s.status).length}`, "num"), text(fastest ? times(fastest) : right.length ? why("not timed", kinds || "no time is known") : null, "num")]);
  }));
  return node;
}

function mark(sample) {
  const kind = sample.cheat ? "cheat" : sample.status === "passed" ? "passed" : sample.status ? "" : "unknown";
  const told = [`sample ${sample.index}`, sample.status ? words(sample.status) : "not evaluated", sample.cheat].filter(Boolean).join(", ");
  return el("button", { type: "button", class: `mark ${kind}`, "data-sample": sample.number, "aria-pressed": "false", "aria-label": told, title: told, onclick: () => { state.sample = String(sample.number); writeHash(); showSample(sample); } }, sample.status ? MARKS[sample.status] || "?" : "–");
}

function portabilityOf(op, dtype) {
  const own = DATA.portability.map(readCascade).filter((c) => c.op === op && c.dtype === dtype);
  if (!own.length) return [];
  const node = el("table", { class: "plain" });
  table(node, [["Model"], ["Efficiency"], ["PP", true], ["Blocked by"], ["Places, the most efficient first"]], own.map((c) => row([], [
    text(DATA.models[c.model]), text(c.kind), text(c.value === null ? why("not known", c.reason) : percents(c.value), "num"), text(c.blocked === null ? null : placeName(c.blocked)),
    text(c.steps.map(([place, efficiency]) => `${placeName(place)} ${percents(efficiency)}`).join(", "))])));
  return [el("h3", {}, "Performance portability"), el("div", { class: "scroll" }, node)];
}

async function showSample(sample) {
  for (const button of document.querySelectorAll(".mark")) button.setAttribute("aria-pressed", String(button.dataset.sample === String(sample.number)));
  const kept = texts().samples[sample.number];
  const said = kept ? await unpack(kept) : null;
  const prompts = said ? await Promise.all(said.calls.map((call) => unpack(texts().prompts[call.prompt]))) : [];
  const parts = said ? said.calls.flatMap((call, i) => callParts(call, prompts[i], said.calls.length > 1)) : [];
  $("sample").replaceChildren(
    el("h2", {}, `Sample ${sample.index} of ${DATA.models[sample.model]}, ${placeName(sample.place)}`), sampleFacts(sample, Boolean(said)),
    ...(said && said.records.length ? [el("h3", {}, "Records"), recordTable(said.records)] : []), ...parts,
    ...(said && said.source ? [el("h3", {}, "Kernel as it was evaluated"), el("details", {}, el("summary", {}, plural(said.source.trim().split("\n").length, "line")), el("pre", {}, said.source))] : []));
  $("sample").scrollIntoView({ block: "nearest" });
  document.body.dataset.sample = sample.number;
}

function callParts(call, prompt, several) {
  const name = several ? ` (${call.role})` : "";
  return [el("h3", {}, `Prompt${name}`), ...prompt.map(([role, content]) => el("details", { open: role === "user" }, el("summary", {}, role), el("pre", {}, content))),
    el("h3", {}, `Reply${name}`), el("pre", {}, call.reply || call.error || "no reply")];
}

function recordTable(records) {
  const node = el("table", { class: "plain" });
  table(node, [["Workload"], ["Verdict"], ["Evidence"], ["Time", true], ["Speedup", true], ["Detail"]], records.map((r) => row([], [
    text(r.workload, "tight"), text(r.verdict === "passed" ? r.verdict : el("span", { class: "bad-text" }, words(r.verdict)), "tight"), text(el("span", { title: r.venue }, r.evidence)),
    text(r.us === null ? null : `${r.us} µs`, "num"), text(r.speedup === null ? null : times(r.speedup), "num"), text(expandable(r.detail))])));
  return el("div", { class: "scroll" }, node);
}

// Paths of records are anybody's: only those below the page become links.
function links(path) {
  const folder = path.split("#")[0];
  const parts = folder.split("/");
  if (!folder || folder.startsWith("/") || parts.includes("..") || /^[a-z][a-z0-9+.-]*:/i.test(folder)) return null;
  const base = `./${parts.map(encodeURIComponent).join("/")}`;
  return el("span", {}, ...["calls.jsonl", "attempts.jsonl", "records.jsonl"].flatMap((name, i) => [i ? ", " : "", el("a", { href: `${base}/${name}` }, name)]), " in ", el("a", { href: `${base}/` }, folder));
}

function sampleFacts(s, embedded) {
  const list = [];
  const add = (name, value) => { if (value !== null && value !== undefined && value !== "") list.push(el("dt", {}, name), el("dd", {}, value)); };
  add("Ended", s.status ? el("span", { class: s.status === "passed" ? "" : "bad-text" }, words(s.status)) : "not evaluated");
  add("Why", s.detail ? expandable(s.detail) : "");
  add("Cheat", s.cheat);
  add("Evidence", s.evidence + (s.device ? ` (${s.device})` : ""));
  add("Held-out", s.heldout === null ? "" : s.heldout ? "correct" : "not correct");
  if (s.status === "passed") add("Speedup", s.speedup === null ? "not timed" : `${times(s.speedup)} against ${s.baseline || "the baseline"}`);
  add("Time", s.us === null ? "" : `${s.us} µs`);
  add("Roofline", s.efficiency === null ? "" : percents(s.efficiency));
  add("Given kernel", s.donor);
  add("Tokens", s.tokens_in === null && s.tokens_out === null ? "" : `${s.tokens_in ?? "?"} in, ${s.tokens_out ?? "?"} out`);
  add("Cost", [s.usd === null ? "" : UNITS.usd(s.usd), s.seconds === null ? "" : UNITS.seconds(s.seconds)].filter(Boolean).join(", "));
  add("Files", links(s.path));
  if (!embedded) add("Texts", s.path ? "too many to be in the page; they are in the files" : "prompt and reply were not kept");
  return el("dl", { class: "facts" }, ...list);
}

// ---- putting it together

function draw() {
  showFilters();
  drawBoard();
  drawDifferences();
  drawHeat();
  drawCascade();
  drawCost();
  drawHeldout();
  drawTranslation();
  drawDivergence();
  drawTasks();
  writeHash();
}

readHash();
buildFilters();
buildLegend();
document.addEventListener("keydown", (e) => { if (e.key === "Escape" && state.op) close(); });
addEventListener("hashchange", () => { readHash(); draw(); drawPanel(); });
draw();
drawPanel();
document.body.dataset.ready = "1";
