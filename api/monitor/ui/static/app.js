"use strict";
/* The dashboard. Every value from the server becomes text (textContent, text nodes, attributes); no markup is made of
   strings, and the page's policy refuses it. Paths are relative, so the page works below any base path. */

const REFRESH_MS = 2000;
const ROW_PX = 52;
const AROUND = 8; // rows above and below what is seen
const ROWS_AT_ONCE = 200;
const HISTORY = 60; // points of a sparkline
const FEED_MAX = 300;

/* ---------------------------------------------------------------- elements */

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function setText(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

function svgEl(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function sparkline() {
  const svg = svgEl("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" });
  const area = svgEl("polygon", { points: "" });
  const line = svgEl("polyline", { points: "" });
  svg.append(area, line);
  return {
    svg,
    show(values) {
      if (values.length < 2) {
        line.setAttribute("points", "");
        area.setAttribute("points", "");
        return;
      }
      const top = Math.max(...values, 1e-9);
      const step = 100 / (HISTORY - 1);
      const left = 100 - step * (values.length - 1);
      const points = values.map((value, at) => `${(left + at * step).toFixed(1)},${(29 - (27 * value) / top).toFixed(1)}`);
      line.setAttribute("points", points.join(" "));
      area.setAttribute("points", `${left.toFixed(1)},30 ${points.join(" ")} 100,30`);
    },
  };
}

/* ---------------------------------------------------------------- numbers */

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100000 ? whole.format(value) : short.format(value);
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let left = value;
  let unit = 0;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${units[unit]}`;
}

function perSecond(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 10) return `${value.toFixed(1)}/s`;
  return `${count(Math.round(value))}/s`;
}

function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  const seconds = ns / 1e9;
  if (seconds < 0.001) return `${Math.round(ns / 1e3)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/* ---------------------------------------------------------------- asking the server */

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function get(path, parameters) {
  const query = new URLSearchParams(parameters || {}).toString();
  const answer = await fetch(query ? `${path}?${query}` : path, { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok && path !== "healthz") throw new Refused(answer.status, (await answer.text()).slice(0, 500));
  return answer.json();
}

/* How fast a counter grows, from what it was before; a counter that has gone back has begun again. */
class Rates {
  constructor() {
    this.seen = new Map();
  }

  note(key, value) {
    const now = performance.now();
    const known = this.seen.get(key);
    if (known === undefined) {
      this.seen.set(key, { value, now, rate: null, history: [] });
      return null;
    }
    if (now - known.now >= 500) {
      known.rate = value < known.value ? 0 : ((value - known.value) * 1000) / (now - known.now);
      known.value = value;
      known.now = now;
      known.history.push(known.rate);
      if (known.history.length > HISTORY) known.history.shift();
    }
    return known.rate;
  }

  history(key) {
    const known = this.seen.get(key);
    return known === undefined ? [] : known.history;
  }

  keepOnly(limit) {
    for (const key of this.seen.keys()) {
      if (this.seen.size <= limit) return;
      this.seen.delete(key);
    }
  }
}

const rates = new Rates();

/* ---------------------------------------------------------------- a table that draws only what is seen */

class VirtualTable {
  /* columns: {label, class, make(cell) -> update(row)}; load(offset, limit) -> {total, rows}; open(row) */
  constructor({ name, label, columns, load, open, key, short: isShort, none }) {
    Object.assign(this, { columns, load, open, none: none || "Nothing to show." });
    this.key = key || (() => null);
    this.known = new Map(); // index -> row
    this.drawn = new Map(); // index -> {element, updates}
    this.total = 0;
    this.focused = 0;
    this.asked = 0;
    this.head = el("div", { class: "vt-head", role: "row", "aria-rowindex": 1 });
    for (const column of columns) {
      this.head.append(el("div", { class: column.class || "", role: "columnheader" }, column.label));
    }
    this.space = el("div", { class: "vt-space", role: "rowgroup" });
    this.empty = el("div", { class: "none", hidden: true }, this.none);
    this.scroller = el("div", { class: isShort ? "vt-scroll short" : "vt-scroll", tabindex: -1 }, this.head, this.space, this.empty);
    this.element = el("div", { class: `card t-${name}`, role: "table", "aria-label": label }, this.scroller);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.space.addEventListener("keydown", (event) => this.onKey(event));
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.scroller);
  }

  end() {
    this.resizes.disconnect();
    clearTimeout(this.later);
  }

  range() {
    const seen = Math.ceil((this.scroller.clientHeight || 400) / ROW_PX);
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - AROUND);
    return [first, Math.min(first + seen + 2 * AROUND, first + ROWS_AT_ONCE)];
  }

  restart() {
    this.known.clear();
    this.scroller.scrollTop = 0;
    return this.refresh();
  }

  async refresh() {
    const [first, end] = this.range();
    const number = ++this.asked;
    const found = await this.load(first, end - first);
    if (number !== this.asked) return;
    this.total = found.total;
    for (const at of this.known.keys()) {
      if (at >= this.total || (at >= first && at < end) || Math.abs(at - first) > 600) this.known.delete(at);
    }
    found.rows.forEach((row, at) => this.known.set(first + at, row));
    this.draw();
  }

  draw() {
    this.element.setAttribute("aria-rowcount", this.total + 1);
    this.space.style.height = `${this.total * ROW_PX}px`;
    this.empty.hidden = this.total > 0;
    const [first, wanted] = this.range();
    const end = Math.min(wanted, this.total);
    for (const [at, drawn] of this.drawn) {
      if (at < first || at >= end) {
        drawn.element.remove();
        this.drawn.delete(at);
      }
    }
    let lacks = false;
    for (let at = first; at < end; at += 1) {
      const row = this.known.get(at);
      if (row === undefined) lacks = true;
      this.show(at, row);
    }
    if (lacks) {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.refresh().catch(failed), 60);
    }
  }

  show(at, row) {
    let drawn = this.drawn.get(at);
    if (drawn === undefined) {
      const element = el("div", { class: this.open ? "vt-row link" : "vt-row", role: "row", "aria-rowindex": at + 2 });
      element.tabIndex = at === this.focused ? 0 : -1;
      element.style.top = `${at * ROW_PX}px`;
      const updates = this.columns.map((column) => {
        const cell = el("div", { class: `cell ${column.class || ""}`, role: "cell" });
        element.append(cell);
        return column.make(cell);
      });
      element.addEventListener("click", (event) => {
        if (event.target.closest("a, button") === null) this.opened(at);
      });
      element.addEventListener("focus", () => this.focusOn(at, false));
      drawn = { element, updates };
      this.drawn.set(at, drawn);
      this.space.append(element);
    }
    drawn.element.classList.toggle("empty", row === undefined);
    if (row !== undefined) drawn.updates.forEach((update) => update(row));
  }

  opened(at) {
    const row = this.known.get(at);
    if (row !== undefined && this.open) this.open(row);
  }

  focusOn(at, move = true) {
    const before = this.drawn.get(this.focused);
    if (before) before.element.tabIndex = -1;
    this.focused = Math.max(0, Math.min(at, this.total - 1));
    if (move) {
      const top = this.focused * ROW_PX;
      const height = this.scroller.clientHeight - 36;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + ROW_PX > this.scroller.scrollTop + height) this.scroller.scrollTop = top + ROW_PX - height;
      this.draw();
    }
    const now = this.drawn.get(this.focused);
    if (now) {
      now.element.tabIndex = 0;
      if (move) now.element.focus({ preventScroll: true });
    }
  }

  onKey(event) {
    if (!event.target.classList.contains("vt-row")) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) this.focusOn(this.focused + steps[event.key]);
    else if (event.key === "Home") this.focusOn(0);
    else if (event.key === "End") this.focusOn(this.total - 1);
    else if (event.key === "Enter" || event.key === " ") this.opened(this.focused);
    else return;
    event.preventDefault();
  }
}

/* Makers of cells: each returns what updates the cell for a row. */

function textCell(value) {
  return (cell) => (row) => setText(cell, value(row));
}

function nameCell(main, sub) {
  return (cell) => {
    const above = el("div", { class: "main" });
    const below = el("div", { class: "sub" });
    cell.append(above, below);
    return (row) => {
      setText(above, main(row));
      setText(below, sub(row));
      cell.title = main(row);
    };
  };
}

function pillCell(state) {
  return (cell) => {
    const pill = el("span", { class: "pill" });
    cell.append(pill);
    return (row) => {
      const [kind, text, why] = state(row);
      pill.className = `pill ${kind}`;
      setText(pill, text);
      cell.title = why || "";
    };
  };
}

function sparkCell(key) {
  return (cell) => {
    const spark = sparkline();
    cell.append(spark.svg);
    return (row) => spark.show(rates.history(key(row)));
  };
}

function replicaChips(list, replicas) {
  const said = JSON.stringify(replicas);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(
    ...replicas.map((replica) => {
      const isBehind = replica.lag > 0 || replica.current === false;
      const kind = !replica.up ? "down" : replica.leader ? "leader" : isBehind ? "behind" : "";
      const lag = replica.up && replica.lag > 0 ? ` −${count(replica.lag)}` : "";
      const state = !replica.up ? "offline" : replica.leader ? "leader" : isBehind ? `behind by ${count(replica.lag)} entries` : "current";
      return el("span", { class: `chip ${kind}`, title: `${replica.name}: ${state}`, "aria-label": `${replica.name}: ${state}` }, `${replica.name}${lag}`);
    }),
  );
}

function replicasCell(cell) {
  const list = el("div", { class: "chips" });
  cell.append(list);
  return (row) => replicaChips(list, row.replicas);
}

/* ---------------------------------------------------------------- state of the page */

const page = { view: null, varz: null, isDown: false, timer: null };
const $ = (id) => document.getElementById(id);

let noticeTimer = null;
function notice(text) {
  const box = $("notice");
  setText(box, text);
  box.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (box.hidden = true), 6000);
}

function failed(error) {
  if (error instanceof Refused) {
    notice(error.message);
    return;
  }
  if (!page.isDown) {
    page.isDown = true;
    setHealth("bad", "unreachable", String(error));
  }
}

function setHealth(kind, text, why) {
  const pill = $("health");
  pill.className = `pill ${kind}`;
  setText(pill, text);
  pill.title = why || "";
}

async function lookAtServer() {
  const [varz, health] = await Promise.all([get("varz"), get("healthz")]);
  page.isDown = false;
  page.varz = varz;
  setText($("server"), varz.server_name);
  setText($("cluster"), `${varz.cluster && varz.cluster.name ? `cluster ${varz.cluster.name} · ` : ""}jetraft ${varz.jetraft_version} · up ${varz.uptime}`);
  document.title = `${varz.server_name} · jetraft`;
  if (health.status === "ok") setHealth("good", "healthy", health.notice);
  else setHealth("bad", "unhealthy", health.error);
}

async function refresh() {
  clearTimeout(page.timer);
  if (!document.hidden) {
    try {
      await lookAtServer();
      if (page.view) await page.view.refresh();
    } catch (error) {
      failed(error);
    }
    rates.keepOnly(5000);
  }
  page.timer = setTimeout(refresh, REFRESH_MS);
}

/* ---------------------------------------------------------------- what the server tells by itself */

const feed = { rows: [], source: null, listeners: new Set(), soon: null };

const SAID = {
  stream_added: ["good", "Stream added", (event) => `${event.stream} in ${event.account}${event.leader ? `, led by ${event.leader}` : ""}`],
  stream_gone: ["warn", "Stream gone", (event) => `${event.stream} in ${event.account}: deleted, or moved away from this node`],
  leader_changed: ["", "New leader", (event) => `${named(event)}: ${event.leader} leads in term ${event.term}${event.before ? `, before it ${event.before}` : ""}`],
  leader_elected_again: ["", "Elected again", (event) => `${named(event)}: ${event.leader} leads in term ${event.term}`],
  leader_lost: ["bad", "No leader", (event) => `${named(event)}: ${event.before} leads no more`],
  node_offline: ["bad", "Node offline", (event) => `${event.node} cannot be reached from this node`],
  node_online: ["good", "Node online", (event) => `${event.node} is reached again`],
  log_failed: ["bad", "Log failed", (event) => `${named(event)}: ${event.reason}`],
  dropped: ["warn", "Events dropped", (event) => `${count(event.count)} events came faster than this page took them`],
  too_large: ["warn", "Large event", (event) => `an event of ${bytes(event.bytes)} is not shown`],
};

function named(event) {
  return event.account ? `${event.stream} in ${event.account}` : "meta group";
}

function addEvent(kind, what, text) {
  feed.rows.unshift({ at: new Date(), kind, what, text });
  feed.rows.length = Math.min(feed.rows.length, FEED_MAX);
  for (const listener of feed.listeners) listener();
}

function onChange(event) {
  const said = SAID[event.what];
  if (said) addEvent(said[0], said[1], said[2](event));
  if (feed.soon === null) {
    feed.soon = setTimeout(() => {
      feed.soon = null;
      refresh();
    }, 150);
  }
}

const figures = { latest: null, listeners: new Set() };

function listen() {
  if (feed.source) feed.source.close();
  const source = new EventSource("ui/events");
  feed.source = source;
  const parsed = (act) => (message) => act(JSON.parse(message.data));
  source.addEventListener("figures", parsed((found) => {
    figures.latest = found;
    for (const listener of figures.listeners) listener(found);
  }));
  source.addEventListener("change", parsed(onChange));
  source.addEventListener("dropped", parsed((found) => onChange({ what: "dropped", ...found })));
}

function feedList(className) {
  const list = el("ol", { class: `feed ${className || ""}`, role: "log", "aria-label": "Events", tabindex: 0 });
  const empty = el("div", { class: "none" }, "Nothing has happened since this page was opened.");
  const element = el("div", { class: "card" }, list, empty);
  let drawn = null;
  const draw = () => {
    empty.hidden = feed.rows.length > 0;
    const fresh = drawn === null ? feed.rows.slice() : feed.rows.slice(0, Math.max(0, feed.rows.indexOf(drawn)));
    drawn = feed.rows[0] || null;
    for (const row of fresh.reverse()) {
      const time = el("time", { datetime: row.at.toISOString() }, row.at.toLocaleTimeString("en-GB"));
      list.prepend(el("li", { class: "fresh" }, time, el("span", { class: `what ${row.kind}` }, row.what), el("span", {}, row.text)));
    }
    while (list.children.length > FEED_MAX) list.lastChild.remove();
  };
  feed.listeners.add(draw);
  draw();
  return { element, end: () => feed.listeners.delete(draw) };
}

function events(root) {
  const list = feedList("tall");
  root.append(el("h1", {}, "Events"), el("p", { class: "muted" }, "What this node has noticed since this page was opened: leaders, nodes, streams."), list.element);
  return { refresh: async () => {}, end: list.end };
}

/* ---------------------------------------------------------------- views */

function toolbar({ label, sorts, onChange }) {
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": label, id: "filter", autocomplete: "off", spellcheck: "false" });
  const state = { filter: "", sort: sorts ? sorts[0][0] : "" };
  let wait = null;
  filter.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      state.filter = filter.value.trim();
      onChange();
    }, 200);
  });
  const bar = el("div", { class: "bar", role: "search" }, filter);
  if (sorts) {
    const select = el("select", { "aria-label": "Order" }, ...sorts.map(([value, text]) => el("option", { value }, text)));
    select.addEventListener("change", () => {
      state.sort = select.value;
      onChange();
    });
    bar.append(el("label", {}, "Order", select));
  }
  const total = el("span", { class: "muted", "aria-live": "polite" });
  bar.append(total);
  return { bar, state, total };
}

function tableView({ title, label, sorts, table, loader, about }) {
  return (root) => {
    const tools = toolbar({ label, sorts, onChange: () => list.restart().catch(failed) });
    const list = new VirtualTable({
      ...table,
      label: title,
      load: async (offset, limit) => {
        const found = await loader(tools.state, offset, limit);
        setText(tools.total, `${whole.format(found.total)} ${about}`);
        return found;
      },
    });
    root.append(el("h1", {}, title), tools.bar, list.element);
    return { refresh: () => list.refresh(), end: () => list.end() };
  };
}

/* --- overview */

function tile(name, { meter } = {}) {
  const value = el("div", { class: "value" }, "–");
  const more = el("div", { class: "more" });
  const spark = meter ? null : sparkline();
  const bar = meter ? el("meter", { min: 0, max: 1, "aria-label": name }) : null;
  const element = el("section", { class: "tile", "aria-label": name }, el("div", { class: "name" }, name), value, more, spark ? spark.svg : bar);
  return {
    element,
    show(text, below, history) {
      setText(value, text);
      setText(more, below || "");
      if (spark && history) spark.show(history);
    },
    fill(used, size) {
      bar.hidden = !(size > 0);
      bar.value = size > 0 ? Math.min(1, used / size) : 0;
      bar.high = 0.85;
      bar.optimum = 0;
    },
  };
}

const gauges = new Map();
function gauge(key, value) {
  const known = gauges.get(key) || [];
  known.push(value);
  if (known.length > HISTORY) known.shift();
  gauges.set(key, known);
  return known;
}

function nodesOf(varz, routez) {
  const meta = varz.jetstream && varz.jetstream.meta;
  const byName = new Map();
  byName.set(varz.server_name, { name: varz.server_name, own: true, up: true, current: true, lag: meta ? meta.pending : 0, heard: 0 });
  for (const peer of (meta && meta.replicas) || []) {
    byName.set(peer.name, { name: peer.name, up: !peer.offline, current: peer.current, lag: peer.lag || 0, heard: peer.active });
  }
  for (const route of routez.routes || []) {
    const known = byName.get(route.remote_name) || { name: route.remote_name, up: true, current: null, lag: null, heard: null };
    known.route = route;
    byName.set(route.remote_name, known);
  }
  for (const node of byName.values()) node.leader = Boolean(meta) && meta.leader === node.name;
  return [...byName.values()];
}

const nodeColumns = [
  { label: "Node", make: nameCell((row) => row.name, (row) => (row.own ? "this node" : row.route ? `${row.route.ip}:${row.route.port}` : "no route")) },
  { label: "State", make: pillCell((row) => (!row.up ? ["bad", "offline"] : row.current === false ? ["warn", "behind"] : ["good", row.current === null ? "connected" : "current"])) },
  { label: "Meta group", make: textCell((row) => (row.leader ? "leader" : row.current === null ? "–" : "follower")) },
  { label: "Lag", class: "num middle", make: textCell((row) => (row.lag ? `${count(row.lag)} entries` : row.lag === null ? "–" : "0")) },
  { label: "Last heard", class: "num middle", make: textCell((row) => (row.own ? "now" : row.heard === null ? "–" : `${duration(row.heard)} ago`)) },
  { label: "Queued", class: "num middle", make: textCell((row) => (row.route ? bytes(row.route.pending_size) : "–")) },
];

function overview(root) {
  const tiles = {
    in: tile("Messages in"),
    out: tile("Messages out"),
    traffic: tile("Bytes in and out"),
    connections: tile("Connections"),
    groups: tile("Groups led"),
    api: tile("JetStream API"),
    delay: tile("Loop delay"),
    cpu: tile("Processor"),
    memory: tile("Memory of the process"),
    storage: tile("File storage", { meter: true }),
    ram: tile("Memory storage", { meter: true }),
  };
  const nodes = new VirtualTable({ name: "nodes", label: "Nodes", columns: nodeColumns, short: true, load: async () => ({ total: found.length, rows: found }) });
  const log = feedList();
  let found = [];
  root.append(
    el("h1", {}, "Overview"),
    el("div", { class: "tiles" }, ...Object.values(tiles).map((one) => one.element)),
    el("h2", {}, "Nodes of the cluster, as this node sees them"),
    nodes.element,
    el("h2", {}, "What has changed"),
    log.element,
  );
  const showPlane = (plane) => {
    for (const way of ["in", "out"]) {
      const total = plane[`${way}_msgs`];
      const rate = rates.note(`node.${way}`, total);
      tiles[way].show(perSecond(rate), `${count(total)} since the start`, rates.history(`node.${way}`));
    }
    const moved = rates.note("node.bytes", plane.in_bytes + plane.out_bytes);
    tiles.traffic.show(moved === null ? "–" : `${bytes(moved)}/s`, `${bytes(plane.in_bytes)} in, ${bytes(plane.out_bytes)} out`, rates.history("node.bytes"));
    tiles.connections.show(count(plane.connections), `${count(plane.slow_consumers)} slow ones were cut`, gauge("connections", plane.connections));
  };
  const showFigures = (told) => {
    showPlane(told);
    tiles.delay.show(duration(told.loop_delay_ns), "the longest of a second", gauge("delay", told.loop_delay_ns));
  };
  const show = () => {
    const varz = page.varz;
    if (!figures.latest) showPlane(varz.jetraft.plane);
    tiles.cpu.show(`${varz.cpu.toFixed(1)} %`, `of one of ${varz.cores} cores`, gauge("cpu", varz.cpu));
    tiles.memory.show(bytes(varz.mem), "resident", gauge("mem", varz.mem));
    const raft = varz.jetraft.raft;
    if (raft) tiles.groups.show(`${count(raft.groups_led)} of ${count(raft.groups)}`, raft.groups_failed ? `${count(raft.groups_failed)} with a failed log` : "no log has failed", gauge("led", raft.groups_led));
    const jetstream = varz.jetstream && varz.jetstream.stats;
    if (!jetstream) return;
    const { api, storage, memory } = jetstream;
    tiles.api.show(perSecond(rates.note("node.api", api.total)), `${count(api.errors)} of ${count(api.total)} refused`, rates.history("node.api"));
    const { max_storage: most, max_memory: mostInMemory } = varz.jetstream.config;
    tiles.storage.show(bytes(storage), `of ${bytes(most)}, ${bytes(jetstream.reserved_storage)} reserved`);
    tiles.storage.fill(storage, most);
    tiles.ram.show(bytes(memory), `of ${bytes(mostInMemory)}, ${bytes(jetstream.reserved_memory)} reserved`);
    tiles.ram.fill(memory, mostInMemory);
  };
  figures.listeners.add(showFigures);
  return {
    async refresh() {
      show();
      found = nodesOf(page.varz, await get("routez"));
      await nodes.refresh();
    },
    end() {
      nodes.end();
      log.end();
      figures.listeners.delete(showFigures);
    },
  };
}

/* --- streams */

const streamKey = (row) => `stream ${row.account} ${row.name}`;

function noteStreams(rows) {
  for (const row of rows) row.rate = rates.note(streamKey(row), row.last_seq);
}

function streamState(row) {
  if (row.failed) return ["bad", "log failed", row.failed];
  if (!row.leader) return ["bad", "no leader", "no member leads the group, as far as this node knows"];
  if (row.lost > 0) return ["bad", "damaged", `${count(row.lost)} messages are damaged on every replica`];
  if (row.replicas.some((replica) => !replica.up)) return ["warn", "degraded", "a replica is offline"];
  if (row.why_not) return ["warn", "not serving", row.why_not];
  return ["good", "ok"];
}

const streamColumns = [
  { label: "Stream", make: nameCell((row) => row.name, (row) => `${row.account} · ${row.storage}${row.subjects.length ? ` · ${row.subjects.join(", ")}` : ""}`) },
  { label: "Messages", class: "num", make: textCell((row) => count(row.messages)) },
  { label: "Bytes", class: "num middle", make: textCell((row) => bytes(row.bytes)) },
  { label: "Rate", class: "num rate", make: textCell((row) => perSecond(row.rate)) },
  { label: "", class: "spark middle", make: sparkCell(streamKey) },
  { label: "Consumers", class: "num wide", make: textCell((row) => count(row.consumers)) },
  { label: "Leader", class: "wide", make: textCell((row) => row.leader || "–") },
  { label: "Replicas and lag", class: "middle", make: replicasCell },
  { label: "State", make: pillCell(streamState) },
];

const streamPath = (account, name) => `#/stream/${encodeURIComponent(account)}/${encodeURIComponent(name)}`;

const streams = tableView({
  title: "Streams",
  label: "Filter streams",
  about: "streams with a replica on this node",
  sorts: [["", "account, name"], ["name", "name"], ["messages", "most messages"], ["bytes", "most bytes"], ["consumers", "most consumers"], ["lag", "largest lag"]],
  table: { name: "streams", columns: streamColumns, open: (row) => (location.hash = streamPath(row.account, row.name)) },
  loader: async ({ filter, sort }, offset, limit) => {
    const desc = sort && sort !== "name" ? "1" : "0";
    const found = await get("ui/streams", { filter, sort, desc, offset, limit });
    noteStreams(found.rows);
    return found;
  },
});

/* --- consumers */

function consumerState(row) {
  if (row.paused) return ["warn", "paused"];
  if (!row.pull && !row.push_bound) return ["warn", "no listener"];
  return ["good", row.pull ? "pull" : "push"];
}

const consumerColumns = [
  { label: "Consumer", make: nameCell((row) => row.name, (row) => row.filters.join(", ") || "all subjects") },
  { label: "Stream", class: "middle", make: nameCell((row) => row.stream, (row) => row.account) },
  { label: "Lag", class: "num", make: textCell((row) => count(row.num_pending)) },
  { label: "Unacked", class: "num", make: textCell((row) => count(row.num_ack_pending)) },
  { label: "Oldest unacked", class: "num wide", make: textCell((row) => duration(row.oldest_unacked_ns)) },
  { label: "Redelivered", class: "num middle", make: textCell((row) => count(row.num_redelivered)) },
  { label: "Waiting", class: "num wide", make: textCell((row) => count(row.num_waiting)) },
  { label: "State", class: "middle", make: pillCell(consumerState) },
];

const consumers = tableView({
  title: "Consumers",
  label: "Filter consumers",
  about: "consumers of streams that this node leads",
  table: { name: "consumers", columns: consumerColumns, open: (row) => (location.hash = streamPath(row.account, row.stream)) },
  loader: ({ filter }, offset, limit) => get("ui/consumers", { filter, offset, limit }),
});

/* --- connections */

const connectionColumns = [
  { label: "Connection", make: nameCell((row) => row.name || `${row.lang || "client"} ${row.cid}`, (row) => `#${row.cid} · ${row.ip}:${row.port}${row.lang ? ` · ${row.lang} ${row.version || ""}` : ""}`) },
  { label: "User", class: "middle", make: nameCell((row) => row.authorized_user || "–", (row) => row.account || "$G") },
  { label: "Waits for it", class: "num", make: textCell((row) => bytes(row.pending_bytes)) },
  { label: "RTT", class: "num", make: textCell((row) => row.rtt || "–") },
  { label: "Sent to it", class: "num middle", make: textCell((row) => count(row.out_msgs)) },
  { label: "From it", class: "num middle", make: textCell((row) => count(row.in_msgs)) },
  { label: "Subscriptions", class: "num wide", make: textCell((row) => count(row.subscriptions)) },
  { label: "Idle", class: "num wide", make: textCell((row) => row.idle) },
  { label: "Up", class: "num wide", make: textCell((row) => row.reason || row.uptime) },
];

function connections(root) {
  const sort = el("select", { "aria-label": "Order" }, ...[["pending", "slowest first"], ["rtt", "longest round trip"], ["msgs_to", "most sent to"], ["msgs_from", "most received from"], ["subs", "most subscriptions"], ["idle", "longest idle"], ["cid", "oldest"]].map(([value, text]) => el("option", { value }, text)));
  const state = el("select", { "aria-label": "Which" }, el("option", { value: "open" }, "open"), el("option", { value: "closed" }, "closed lately"));
  const total = el("span", { class: "muted", "aria-live": "polite" });
  const list = new VirtualTable({
    name: "connections",
    label: "Connections",
    columns: connectionColumns,
    load: async (offset, limit) => {
      const order = state.value === "closed" ? "stop" : sort.value;
      const found = await get("connz", { sort: order, state: state.value, auth: "1", offset, limit });
      setText(total, `${whole.format(found.total)} connections of this node`);
      return { total: found.total, rows: found.connections };
    },
  });
  for (const select of [sort, state]) select.addEventListener("change", () => list.restart().catch(failed));
  root.append(el("h1", {}, "Connections"), el("div", { class: "bar" }, el("label", {}, "Order", sort), el("label", {}, "Show", state), total), list.element);
  return { refresh: () => list.refresh(), end: () => list.end() };
}

/* --- accounts */

const accountColumns = [
  { label: "Account", make: nameCell((row) => row.name, (row) => (row.name === (page.varz && page.varz.system_account) ? "system account" : row.jetstream ? "with JetStream" : "")) },
  { label: "Clients", class: "num", make: textCell((row) => count(row.conns)) },
  { label: "Streams", class: "num", make: textCell((row) => count(row.streams)) },
  { label: "Consumers", class: "num middle", make: textCell((row) => count(row.consumers)) },
  { label: "In files", class: "num", make: textCell((row) => bytes(row.storage)) },
  { label: "In memory", class: "num wide", make: textCell((row) => bytes(row.memory)) },
  { label: "API calls", class: "num middle", make: textCell((row) => count(row.api_requests)) },
  { label: "Received", class: "num wide", make: textCell((row) => count(row.received)) },
  { label: "Sent", class: "num wide", make: textCell((row) => count(row.sent)) },
];

const accounts = tableView({
  title: "Accounts",
  label: "Filter accounts",
  about: "accounts; figures are those of this node",
  table: { name: "accounts", columns: accountColumns },
  loader: async ({ filter }, offset, limit) => {
    const [statz, held] = await Promise.all([get("accstatz", { unused: "1" }), get("ui/accounts", { limit: 500 })]);
    const byName = new Map(held.rows.map((row) => [row.name, row]));
    const rows = statz.account_statz
      .filter((row) => row.acc.toLowerCase().includes(filter.toLowerCase()))
      .map((row) => ({ ...byName.get(row.acc), name: row.acc, jetstream: byName.has(row.acc), conns: row.conns, received: row.received.msgs, sent: row.sent.msgs }));
    return { total: rows.length, rows: rows.slice(offset, offset + limit) };
  },
});

/* --- Raft groups */

const groupColumns = [
  { label: "Group", make: nameCell((row) => row.stream, (row) => `${row.account ? `${row.account} · ` : ""}${row.group_id}`) },
  { label: "Role here", make: pillCell((row) => (row.failed ? ["bad", "failed", row.failed] : [row.role === "leader" ? "good" : row.leader ? "" : "warn", row.role])) },
  { label: "Term", class: "num middle", make: textCell((row) => count(row.term)) },
  { label: "Members", class: "middle", make: replicasCell },
  { label: "Committed", class: "num", make: textCell((row) => count(row.commit_index)) },
  { label: "Not applied", class: "num middle", make: textCell((row) => count(row.commit_index - row.applied_index)) },
  { label: "Not on disk", class: "num wide", make: textCell((row) => count(row.last_index - row.durable_index)) },
  { label: "Proposals", class: "num wide", make: textCell((row) => count(row.proposals_queued + row.proposals_waiting)) },
  { label: "Elections", class: "num wide", make: textCell((row) => count(row.elections_won)) },
];

const groups = tableView({
  title: "Raft groups",
  label: "Filter groups",
  about: "groups with a member on this node",
  table: { name: "groups", columns: groupColumns },
  loader: ({ filter }, offset, limit) => get("ui/groups", { filter, offset, limit }),
});

/* --- one stream */

function facts(list, pairs) {
  const said = JSON.stringify(pairs);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

function streamPage(account, name) {
  return (root) => {
    const rate = tile("Rate");
    const size = tile("Messages");
    const stored = tile("Bytes");
    const subjects = tile("Subjects");
    const chips = el("div", { class: "chips" });
    const state = el("span", { class: "pill" });
    const list = el("dl", { class: "facts" });
    const config = el("pre", { tabindex: 0, "aria-label": "Configuration" });
    const table = new VirtualTable({
      name: "consumers",
      label: "Consumers",
      columns: consumerColumns,
      short: true,
      none: "No consumers here; they are shown by the node that leads the stream.",
      load: (offset, limit) => get("ui/consumers", { acc: account, stream: name, offset, limit }),
    });
    root.append(
      el("p", {}, el("a", { href: "#/streams" }, "← Streams")),
      el("h1", {}, name),
      el("div", { class: "bar" }, state, chips, el("span", { class: "muted" }, `account ${account}`)),
      el("div", { class: "tiles" }, rate.element, size.element, stored.element, subjects.element),
      el("h2", {}, "Consumers"),
      table.element,
      el("div", { class: "columns" }, el("section", {}, el("h2", {}, "State"), el("div", { class: "card pad" }, list)), el("section", {}, el("h2", {}, "Configuration"), el("div", { class: "card" }, config))),
    );
    return {
      async refresh() {
        const { row, info } = await get("ui/stream", { acc: account, stream: name });
        const key = streamKey(row);
        rate.show(perSecond(rates.note(key, row.last_seq)), row.leads ? "led by this node" : `led by ${row.leader || "no node"}`, rates.history(key));
        size.show(count(row.messages), `${whole.format(row.first_seq)} to ${whole.format(row.last_seq)}`, gauge(`${key} messages`, row.messages));
        stored.show(bytes(row.bytes), `${row.storage} storage`, gauge(`${key} bytes`, row.bytes));
        subjects.show(count(row.num_subjects), `${count(row.num_deleted)} deleted inside`, gauge(`${key} subjects`, row.num_subjects));
        const [kind, text, why] = streamState(row);
        state.className = `pill ${kind}`;
        setText(state, text);
        state.title = why || "";
        replicaChips(chips, row.replicas);
        facts(list, [
          ["Leader", row.leader || "none"],
          ["Leader since", (info.cluster && info.cluster.leader_since) || "–"],
          ["Raft group", (info.cluster && info.cluster.raft_group) || "–"],
          ["Term", row.term],
          ["Created", info.created],
          ["First message", info.state.messages ? info.state.first_ts : "–"],
          ["Last message", info.state.last_seq ? info.state.last_ts : "–"],
          ["Publishes in flight", count(row.in_flight)],
          ["Damaged on every replica", count(row.lost)],
        ]);
        setText(config, JSON.stringify(info.config, null, 2));
        await table.refresh();
      },
      end: () => table.end(),
    };
  };
}

/* ---------------------------------------------------------------- which view */

const VIEWS = [
  ["overview", "Overview", overview],
  ["streams", "Streams", streams],
  ["consumers", "Consumers", consumers],
  ["connections", "Connections", connections],
  ["accounts", "Accounts", accounts],
  ["raft", "Raft", groups],
  ["events", "Events", events],
];

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  const [, name, ...rest] = location.hash.split("/");
  if (page.view && page.view.end) page.view.end();
  const main = $("main");
  const root = el("div", {});
  let tab = name;
  if (name === "stream" && rest.length === 2) {
    page.view = streamPage(decoded(rest[0]), decoded(rest[1]))(root);
    tab = "streams";
  } else {
    const [key, , make] = VIEWS.find(([key]) => key === name) || VIEWS[0];
    page.view = make(root);
    tab = key;
  }
  main.replaceChildren(root);
  for (const link of $("tabs").children) {
    if (link.dataset.view === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  refresh();
}

function kept(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch {
    /* a browser without storage forgets it */
  }
  return null;
}

function start() {
  const theme = kept("jetraft-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    kept("jetraft-theme", root.dataset.theme);
  });
  $("tabs").append(...VIEWS.map(([key, title]) => el("a", { href: `#/${key}`, "data-view": key }, title)));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, textarea, select") || !$("filter")) return;
    event.preventDefault();
    $("filter").focus();
  });
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  addEventListener("hashchange", route);
  listen();
  route();
}

start();
