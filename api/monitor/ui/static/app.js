"use strict";
/* The dashboard. Every value from the server becomes text (textContent, text nodes, attributes); no markup is made of
   strings, and the page's policy refuses it. Paths are relative, so the page works below any base path. */

const REFRESH_MS = 2000;
const ROW_PX = 52;
const AROUND = 8; // rows above and below what is seen
const ROWS_AT_ONCE = 200;
const HISTORY = 60; // points of a sparkline
const HISTORY_MIN = 15; // as wide as it is drawn at first
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
      const step = 100 / (Math.max(values.length, HISTORY_MIN) - 1);
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

function plural(value, word) {
  return `${whole.format(value)} ${word}${value === 1 ? "" : "s"}`;
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

/* ---------------------------------------------------------------- who is signed in */

const who = { status: { signed_in: false }, listeners: new Set() };

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", "X-Jetraft-Dashboard": "1" },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {
    /* an answer of another service need not be JSON */
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "ui/login") setWho({ signed_in: false });
    throw new Refused(answer.status, found && found.error ? found.error.description : text.slice(0, 300));
  }
  return found === null ? text : found;
}

/* A request of the user who is signed in, with the user's rights; errors of the API are refusals. */
async function request(subject, payload, headers) {
  const found = await post("ui/request", { subject, payload: payload === undefined ? "" : payload, headers: headers || {} });
  if (found && found.error) throw new Refused(found.error.code, found.error.description);
  return found;
}

const api = (operation, payload) => request(`$JS.API.${operation}`, payload);

function setWho(status) {
  const changed = status.signed_in !== who.status.signed_in || status.account !== who.status.account || status.user !== who.status.user;
  who.status = status;
  setText($("user"), status.signed_in ? `${status.user || "anonymous"} · ${status.account}` : "");
  const button = $("sign");
  button.hidden = false;
  setText(button, status.signed_in ? "Sign out" : "Sign in");
  if (!changed) return;
  listen();
  for (const listener of who.listeners) listener();
}

async function lookWho() {
  setWho(await get("ui/session"));
}

/* Whether the user who is signed in may be asked about a stream of this account. */
const isOf = (account) => who.status.signed_in && who.status.account === account;

function dialog(title, { small } = {}) {
  const box = el("dialog", { class: small ? "small" : "", "aria-label": title }, el("h2", {}, title));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  return box;
}

function field(label, input) {
  return el("label", { class: "block" }, label, input);
}

function buttons(...made) {
  return el("div", { class: "bar" }, ...made);
}

/* Keys of users: base 32 of a prefix, 32 bytes and a checksum. A seed stays in the browser; what it signs is sent. */

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PKCS8 = [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20]; // before an Ed25519 seed
const USER_PREFIX = 20 << 3;

function fromBase32(text) {
  const found = [];
  let [bits, held] = [0, 0];
  for (const letter of text) {
    const value = BASE32.indexOf(letter);
    if (value < 0) throw new Error("this is no key");
    held = ((held << 5) | value) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      found.push((held >> bits) & 0xff);
    }
  }
  return new Uint8Array(found);
}

function toBase32(data) {
  let [text, bits, held] = ["", 0, 0];
  for (const byte of data) {
    held = ((held << 8) | byte) & 0xfff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += BASE32[(held >> bits) & 31];
    }
  }
  return bits ? text + BASE32[(held << (5 - bits)) & 31] : text;
}

function crc16(data) {
  let crc = 0;
  for (const byte of data) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

const toBase64Url = (data) => btoa(String.fromCharCode(...data)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

/* The login of a file of credentials, or of a seed alone. */
async function loginByKey(text) {
  if (!window.isSecureContext || !crypto.subtle) throw new Error("a browser signs with a key only over HTTPS, or on localhost");
  const seed = /\bSU[A-Z2-7]{56}\b/.exec(text);
  if (seed === null) throw new Error("there is no seed of a user in this file");
  const jwt = /eyJ[\w-]*\.[\w-]+\.[\w-]+/.exec(text);
  const raw = fromBase32(seed[0]).subarray(2, 34);
  const key = await crypto.subtle.importKey("pkcs8", new Uint8Array([...PKCS8, ...raw]), { name: "Ed25519" }, true, ["sign"]);
  const { ticket, nonce } = await post("ui/challenge", {});
  const sig = toBase64Url(new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, key, new TextEncoder().encode(nonce))));
  if (jwt !== null) return { ticket, sig, jwt: jwt[0] };
  const { x } = await crypto.subtle.exportKey("jwk", key);
  const body = new Uint8Array([USER_PREFIX, ...bytesOf(x.replaceAll("-", "+").replaceAll("_", "/"))]);
  const crc = crc16(body);
  return { ticket, sig, nkey: toBase32([...body, crc & 0xff, crc >> 8]) };
}

function signIn() {
  const box = dialog("Sign in", { small: true });
  const user = el("input", { autocomplete: "username", name: "user", spellcheck: "false", autocapitalize: "off" });
  const password = el("input", { type: "password", autocomplete: "current-password", name: "pass" });
  const token = el("input", { type: "password", autocomplete: "off", name: "token" });
  const key = el("input", { type: "file" });
  const said = el("p", { class: "error", role: "alert" }, who.status.why_not || "");
  const go = el("button", { type: "submit" }, "Sign in");
  const form = el(
    "form",
    {},
    el("p", { class: "muted" }, who.status.needs_login === false ? "This server asks clients for no login: leave the fields empty." : "As a NATS client does: the page may then do what this user may."),
    field("User", user),
    field("Password", password),
    el("p", { class: "muted" }, "or"),
    field("Token, or the JWT of a bearer", token),
    who.status.has_keys ? el("p", { class: "muted" }, "or") : null,
    who.status.has_keys ? field("Credentials file, or file with the seed of an nkey: it stays in the browser", key) : null,
    said,
    buttons(go, el("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    const secret = token.value.trim();
    const isJwt = who.status.has_operators && /^eyJ[\w-]*\.[\w-]+\.[\w-]+$/.test(secret);
    const typed = secret ? (isJwt ? { jwt: secret } : { token: secret }) : { user: user.value, pass: password.value };
    try {
      const login = key.files.length > 0 ? await loginByKey(await key.files[0].text()) : typed;
      setWho(await post("ui/login", login));
      box.close();
      notice(`Signed in to account ${who.status.account}`);
      refresh();
    } catch (error) {
      setText(said, error.message);
    } finally {
      go.disabled = false;
    }
  });
  box.append(form);
  box.showModal();
}

async function signOut() {
  try {
    await post("ui/logout", {});
  } catch (error) {
    failed(error);
  }
  setWho({ signed_in: false });
  lookWho().catch(failed);
  refresh();
}

const signInOrOut = () => (who.status.signed_in ? signOut() : signIn());

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
    if (row === undefined || drawn.row === row) return; // a scroll draws again what a refresh has not changed
    drawn.row = row;
    drawn.updates.forEach((update) => update(row));
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
  denied: ["warn", "Not permitted", (event) => event.reason],
  signed_out: ["warn", "Signed out", () => "the sign-in has ended"],
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
  if (event.what === "signed_out") lookWho().catch(failed);
  if (said) addEvent(said[0], said[1], said[2](event));
  if (feed.soon === null) {
    feed.soon = setTimeout(() => {
      feed.soon = null;
      refresh();
    }, 150);
  }
}

/* An advisory in one line: its kind, and the fields that say what it is about. */
function onAdvisory({ subject, payload }) {
  let found = {};
  try {
    found = JSON.parse(payload);
  } catch {
    /* shown by its subject alone */
  }
  const kind = String(found.type || subject).split(".").pop().replaceAll("_", " ");
  const about = ["stream", "consumer", "action", "leader", "stream_seq", "deliveries", "reason"].filter((name) => found[name] !== undefined && found[name] !== "");
  const client = found.client ? [found.client.user || found.client.name, found.client.acc].filter(Boolean).join(" · ") : "";
  addEvent("", kind, [...about.map((name) => `${name.replace("_", " ")} ${found[name]}`), client].filter(Boolean).join(", ") || subject);
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
  source.addEventListener("advisory", parsed(onAdvisory));
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
  root.append(el("h1", {}, "Events"), el("p", { class: "muted" }, "What this node has noticed since this page was opened: leaders, nodes, streams. Who is signed in sees the advisories of the account, too."), list.element);
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
        setText(tools.total, `${plural(found.total, about[0])} ${about[1]}`);
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

function figuresOf(varz) {
  const stats = varz.jetstream && varz.jetstream.stats;
  const raft = varz.jetraft && varz.jetraft.raft;
  return { cpu: varz.cpu, mem: varz.mem, connections: varz.connections, storage: stats ? stats.storage : null, led: raft ? raft.groups_led : null };
}

function nodesOf(varz, routez) {
  const meta = varz.jetstream && varz.jetstream.meta;
  const byName = new Map();
  byName.set(varz.server_name, {
    name: varz.server_name,
    own: true,
    up: true,
    current: true,
    lag: meta ? meta.pending : 0,
    heard: 0,
    figures: figuresOf(varz),
  });
  for (const peer of (meta && meta.replicas) || []) {
    byName.set(peer.name, { name: peer.name, up: !peer.offline, current: peer.current, lag: peer.lag || 0, heard: peer.active, figures: {} });
  }
  for (const route of routez.routes || []) {
    const known = byName.get(route.remote_name) || { name: route.remote_name, up: true, current: null, lag: null, heard: null, figures: {} };
    known.route = route;
    byName.set(route.remote_name, known);
  }
  for (const node of byName.values()) node.leader = Boolean(meta) && meta.leader === node.name;
  return [...byName.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

/* Figures and health of the other nodes: what the system account may ask them, when its user is signed in. */
async function askNodes(nodes) {
  if (!who.status.is_system) return;
  await Promise.all(nodes.filter((node) => node.route && node.up).map(async (node) => {
    const to = `$SYS.REQ.SERVER.${node.route.remote_id}`;
    try {
      const [varz, health] = await Promise.all([request(`${to}.VARZ`), request(`${to}.HEALTHZ`)]);
      node.figures = figuresOf(varz.data || varz);
      const told = health.data || health;
      if (told.status && told.status !== "ok") node.ill = told.error || told.status;
    } catch (error) {
      node.ill = error.message;
    }
  }));
}

function nodeState(row) {
  if (!row.up) return ["bad", "offline"];
  if (row.ill) return ["bad", "unhealthy", row.ill];
  if (row.current === false) return ["warn", "behind"];
  return ["good", row.current === null ? "connected" : "current"];
}

const nodeColumns = [
  { label: "Node", make: nameCell((row) => row.name, (row) => (row.own ? "this node" : row.route ? `${row.route.ip}:${row.route.port}` : "no route")) },
  { label: "State", make: pillCell(nodeState) },
  { label: "Meta group", make: textCell((row) => (row.leader ? "leader" : row.current === null ? "–" : "follower")) },
  { label: "Lag", class: "num middle", make: textCell((row) => (row.lag === null ? "–" : count(row.lag))) },
  { label: "Last heard", class: "num middle", make: textCell((row) => (row.own ? "now" : row.heard === null ? "–" : duration(row.heard))) },
  { label: "Queued", class: "num wide", make: textCell((row) => (row.route ? bytes(row.route.pending_size) : "–")) },
  { label: "Processor", class: "num wide", make: textCell((row) => (row.figures.cpu === undefined ? "–" : `${Number(row.figures.cpu).toFixed(1)} %`)) },
  { label: "Memory", class: "num middle", make: textCell((row) => bytes(row.figures.mem)) },
  { label: "Leads", class: "num wide", make: textCell((row) => count(row.figures.led)) },
  { label: "In files", class: "num wide", make: textCell((row) => bytes(row.figures.storage)) },
  { label: "Clients", class: "num wide", make: textCell((row) => count(row.figures.connections)) },
];

function overview(root) {
  const tiles = {
    in: tile("Messages in"),
    out: tile("Messages out"),
    traffic: tile("Bytes in and out"),
    connections: tile("Connections"),
    groups: tile("Groups led"),
    api: tile("JetStream API"),
    turns: tile("Turns"),
    delay: tile("Loop delay"),
    cpu: tile("Processor"),
    memory: tile("Memory of the process"),
    storage: tile("File storage", { meter: true }),
    ram: tile("Memory storage", { meter: true }),
  };
  const nodes = new VirtualTable({ name: "nodes", label: "Nodes", columns: nodeColumns, short: true, load: async () => ({ total: found.length, rows: found }) });
  const log = feedList();
  const hint = el("p", { class: "muted" }, "A user of the system account who is signed in sees processor, memory, groups led, files and clients of the other nodes, too.");
  let found = [];
  root.append(
    el("h1", {}, "Overview"),
    el("div", { class: "tiles" }, ...Object.values(tiles).map((one) => one.element)),
    el("h2", {}, "Nodes of the cluster, as this node sees them"),
    hint,
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
    tiles.turns.show(perSecond(rates.note("node.turns", told.turns_ended)), "rounds of the node's work", rates.history("node.turns"));
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
      const seen = nodesOf(page.varz, await get("routez"));
      await askNodes(seen);
      found = seen;
      hint.hidden = seen.length < 2 || Boolean(who.status.is_system);
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

/* The streams of this node, or, to who is signed in, those of the account on all nodes. */
function streams(root) {
  const sorts = [["", "account, name"], ["name", "name"], ["messages", "most messages"], ["bytes", "most bytes"], ["consumers", "most consumers"], ["lag", "largest lag"]];
  const tools = toolbar({ label: "Filter streams", sorts, onChange: () => list.restart().catch(failed) });
  const which = el("select", { "aria-label": "Which streams" }, el("option", { value: "node" }, "of this node"), el("option", { value: "account" }, "of the account, on all nodes"));
  const create = el("button", { type: "button", onclick: createStream }, "New stream");
  const choice = el("label", {}, "Show", which);
  const show = () => {
    choice.hidden = create.hidden = !who.status.signed_in;
    if (!who.status.signed_in) which.value = "node";
  };
  const ofAccount = async (offset, limit) => {
    const found = await api("STREAM.LIST", { offset });
    return { total: found.total, rows: (found.streams || []).slice(0, limit).map((info) => rowOfInfo(who.status.account, info)) };
  };
  const ofNode = ({ filter, sort }, offset, limit) => get("ui/streams", { filter, sort, desc: sort && sort !== "name" ? "1" : "0", offset, limit });
  const list = new VirtualTable({
    name: "streams",
    label: "Streams",
    columns: streamColumns,
    open: (row) => (location.hash = streamPath(row.account, row.name)),
    load: async (offset, limit) => {
      const isAll = which.value === "account";
      const found = isAll ? await ofAccount(offset, limit) : await ofNode(tools.state, offset, limit);
      setText(tools.total, `${plural(found.total, "stream")} ${isAll ? `of account ${who.status.account}` : "with a replica on this node"}`);
      noteStreams(found.rows);
      return found;
    },
  });
  which.addEventListener("change", () => list.restart().catch(failed));
  tools.bar.append(el("span", { class: "grow" }), choice, create);
  root.append(el("h1", {}, "Streams"), tools.bar, list.element);
  who.listeners.add(show);
  show();
  return {
    refresh: () => list.refresh(),
    end() {
      list.end();
      who.listeners.delete(show);
    },
  };
}

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
  sorts: [["lag", "largest lag"], ["unacked", "most unacknowledged"], ["oldest", "oldest unacknowledged"], ["redelivered", "most redelivered"], ["waiting", "most waiting pulls"], ["name", "name"], ["", "stream, as created"]],
  about: ["consumer", "of streams that this node leads"],
  table: { name: "consumers", columns: consumerColumns, open: (row) => (location.hash = streamPath(row.account, row.stream)) },
  loader: ({ filter, sort }, offset, limit) => get("ui/consumers", { filter, sort, desc: sort && sort !== "name" ? "1" : "0", offset, limit }),
});

/* --- connections */

const connectionColumns = [
  { label: "Connection", make: nameCell((row) => row.name || `${row.lang || "client"} ${row.cid}`, (row) => `#${row.cid} · ${row.ip}:${row.port}${row.lang ? ` · ${row.lang} ${row.version || ""}` : ""}`) },
  { label: "User", class: "middle", make: nameCell((row) => row.authorized_user || "–", (row) => row.account || "$G") },
  { label: "Pending", class: "num", make: textCell((row) => bytes(row.pending_bytes)) },
  { label: "RTT", class: "num", make: textCell((row) => row.rtt || "–") },
  { label: "Sent to it", class: "num middle", make: textCell((row) => count(row.out_msgs)) },
  { label: "From it", class: "num middle", make: textCell((row) => count(row.in_msgs)) },
  { label: "Subjects", class: "num wide", make: textCell((row) => count(row.subscriptions)) },
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
      setText(total, `${plural(found.total, "connection")} of this node`);
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
  about: ["account", "· figures are those of this node"],
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
  about: ["group", "with a member on this node"],
  table: { name: "groups", columns: groupColumns },
  loader: ({ filter }, offset, limit) => get("ui/groups", { filter, offset, limit }),
});

/* --- changing things: all of it as requests of the user who is signed in */

function confirmed({ title, text, word, act, danger = true }) {
  const box = dialog(title, { small: true });
  const said = el("p", { class: "error", role: "alert" });
  const typed = word ? el("input", { autocomplete: "off", spellcheck: "false", "aria-label": `Type ${word} to confirm` }) : null;
  const go = el("button", { type: "submit", class: danger ? "danger" : "", disabled: Boolean(word) }, title);
  if (typed) typed.addEventListener("input", () => (go.disabled = typed.value !== word));
  const form = el("form", {}, el("p", {}, text), typed ? field(`Type ${word} to confirm`, typed) : null, said, buttons(go, el("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      notice(await act());
      box.close();
      refresh();
    } catch (error) {
      setText(said, error.message);
      go.disabled = false;
    }
  });
  box.append(form);
  box.showModal();
}

/* Lines of two texts, with what was taken out and put in: by the longest common subsequence. */
function difference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(["", `  ${a[i]}`]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) {
      lines.push(["del", `- ${a[i]}`]);
      i += 1;
    } else {
      lines.push(["add", `+ ${b[j]}`]);
      j += 1;
    }
  }
  return lines;
}

const pretty = (value) => JSON.stringify(value, null, 2);
const LINES_MAX = 1500; // of a configuration that is compared

/* Edit a configuration: the text, then what changes, then the change. `load` gives the configuration in force, null for
   something new; it is asked again before the change, so that nobody's change is taken back unseen. */
async function editor({ title, initial, load, apply }) {
  let base = load ? await load() : null;
  const box = dialog(title);
  const text = el("textarea", { spellcheck: "false", "aria-label": "Configuration as JSON" });
  text.value = pretty(base || initial);
  const said = el("p", { class: "error", role: "alert" });
  const changes = el("pre", { class: "diff", hidden: true, tabindex: 0, "aria-label": "Changes" });
  const look = el("button", { type: "button" }, "Show changes");
  const go = el("button", { type: "button", hidden: true }, "Apply");
  const back = el("button", { type: "button", class: "quiet", hidden: true }, "Edit");
  const showing = (isShowing) => {
    text.hidden = isShowing;
    look.hidden = isShowing;
    changes.hidden = !isShowing;
    go.hidden = !isShowing;
    back.hidden = !isShowing;
  };
  const compare = () => {
    const wanted = JSON.parse(text.value);
    const [before, after] = [base ? pretty(base) : "", pretty(wanted)];
    if (before.split("\n").length + after.split("\n").length > 2 * LINES_MAX) throw new Error(`more than ${LINES_MAX} lines are not compared`);
    const lines = difference(before, after).filter(([kind, line]) => kind || line.trim());
    changes.replaceChildren(...lines.map(([kind, line]) => el("span", { class: kind }, line)));
    return { wanted, differs: lines.some(([kind]) => kind) };
  };
  const guarded = (act) => async () => {
    setText(said, "");
    try {
      await act();
    } catch (error) {
      setText(said, error.message);
    }
  };
  look.addEventListener("click", guarded(() => {
    if (!compare().differs) throw new Error("nothing has changed");
    showing(true);
  }));
  back.addEventListener("click", () => showing(false));
  go.addEventListener("click", guarded(async () => {
    const { wanted } = compare();
    if (load) {
      const now = await load();
      if (pretty(now) !== pretty(base)) {
        base = now;
        compare();
        throw new Error("somebody has changed it meanwhile: look at the changes again");
      }
    }
    go.disabled = true;
    try {
      notice(await apply(wanted));
    } finally {
      go.disabled = false;
    }
    box.close();
    refresh();
  }));
  box.append(text, changes, said, buttons(look, go, back, el("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel")));
  box.showModal();
}

/* What a server adds to a configuration by itself is no part of what one edits. */
function editable(config) {
  const kept = { ...config };
  if (kept.metadata) {
    kept.metadata = Object.fromEntries(Object.entries(kept.metadata).filter(([name]) => !name.startsWith("_nats.")));
    if (Object.keys(kept.metadata).length === 0) delete kept.metadata;
  }
  delete kept.pause_until;
  return kept;
}

const NEW_STREAM = { name: "NEW", subjects: ["new.>"], retention: "limits", storage: "file", num_replicas: 1, max_age: 0, max_bytes: -1, max_msgs: -1, discard: "old", duplicate_window: 120000000000 };
const NEW_CONSUMER = { durable_name: "worker", ack_policy: "explicit", deliver_policy: "all", ack_wait: 30000000000, max_deliver: -1, max_ack_pending: 1000 };

const createStream = () =>
  editor({
    title: "New stream",
    initial: NEW_STREAM,
    apply: async (config) => {
      await api(`STREAM.CREATE.${config.name}`, config);
      location.hash = streamPath(who.status.account, config.name);
      return `Stream ${config.name} is there`;
    },
  }).catch(failed);

function streamActions(name) {
  const button = (text, act, kind) => el("button", { type: "button", class: kind || "quiet", onclick: () => Promise.resolve(act()).catch(failed) }, text);
  return [
    button("Edit", () =>
      editor({
        title: `Edit ${name}`,
        load: async () => editable((await api(`STREAM.INFO.${name}`)).config),
        apply: async (config) => {
          await api(`STREAM.UPDATE.${name}`, config);
          return `Stream ${name} has the new configuration`;
        },
      }),
    ),
    button("New consumer", () =>
      editor({
        title: `New consumer of ${name}`,
        initial: NEW_CONSUMER,
        apply: async (config) => {
          const consumer = config.name || config.durable_name;
          if (!consumer) throw new Error("a consumer has a name or a durable_name");
          await api(`CONSUMER.CREATE.${name}.${consumer}`, { stream_name: name, config, action: "create" });
          return `Consumer ${consumer} is there`;
        },
      }),
    ),
    button("Step down", () =>
      confirmed({
        title: "Step down",
        danger: false,
        text: `The leader of ${name} hands its leadership to another replica.`,
        act: async () => {
          await api(`STREAM.LEADER.STEPDOWN.${name}`);
          return `The leader of ${name} has handed over`;
        },
      }),
    ),
    button("Purge", () => purge(name), "danger"),
    button("Delete", () =>
      confirmed({
        title: "Delete",
        word: name,
        text: `The stream, its messages and its consumers are deleted on all replicas. There is no way back.`,
        act: async () => {
          await api(`STREAM.DELETE.${name}`);
          location.hash = "#/streams";
          return `Stream ${name} is deleted`;
        },
      }), "danger"),
  ];
}

function purge(name) {
  const box = dialog(`Purge ${name}`, { small: true });
  const subject = el("input", { placeholder: "all subjects", autocomplete: "off", spellcheck: "false" });
  const keep = el("input", { type: "number", min: 0, placeholder: "none" });
  const upTo = el("input", { type: "number", min: 1, placeholder: "the last one" });
  const typed = el("input", { autocomplete: "off", spellcheck: "false" });
  const said = el("p", { class: "error", role: "alert" });
  const go = el("button", { type: "submit", class: "danger", disabled: true }, "Purge");
  typed.addEventListener("input", () => (go.disabled = typed.value !== name));
  const form = el("form", {}, field("Messages of subject", subject), field("Keep the newest", keep), field("Up to before sequence", upTo), field(`Type ${name} to confirm`, typed), said, buttons(go, el("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = {};
    if (subject.value.trim()) wanted.filter = subject.value.trim();
    if (keep.value) wanted.keep = Number(keep.value);
    if (upTo.value) wanted.seq = Number(upTo.value);
    try {
      const found = await api(`STREAM.PURGE.${name}`, wanted);
      notice(`${plural(found.purged, "message")} of ${name} removed`);
      box.close();
      refresh();
    } catch (error) {
      setText(said, error.message);
    }
  });
  box.append(form);
  box.showModal();
}

async function consumerDialog(stream, name) {
  const info = await api(`CONSUMER.INFO.${stream}.${name}`);
  const box = dialog(`Consumer ${name}`);
  const list = el("dl", { class: "facts" });
  facts(list, [
    ["Lag", count(info.num_pending)],
    ["Unacknowledged", count(info.num_ack_pending)],
    ["Redelivered", count(info.num_redelivered)],
    ["Waiting pulls", count(info.num_waiting)],
    ["Delivered up to", whole.format(info.delivered.stream_seq)],
    ["Acknowledged up to", whole.format(info.ack_floor.stream_seq)],
    ["Paused", info.paused ? `for ${duration(info.pause_remaining)} more` : "no"],
    ["Created", info.created],
  ]);
  const peek = peekPanel(stream, info);
  const minutes = el("input", { type: "number", min: 1, value: 15, "aria-label": "Minutes" });
  const said = el("p", { class: "error", role: "alert" });
  const button = (text, act, kind) =>
    el("button", { type: "button", class: kind || "quiet", onclick: async () => {
      try {
        const done = await act();
        box.close();
        if (done) notice(done);
        refresh();
      } catch (error) {
        setText(said, error.message);
      }
    } }, text);
  const pauseFor = async (until) => {
    const found = await api(`CONSUMER.PAUSE.${stream}.${name}`, until);
    return found.paused ? `Consumer ${name} is paused for ${duration(found.pause_remaining)}` : `Consumer ${name} delivers again`;
  };
  box.append(
    list,
    el("h2", {}, "Next messages"),
    peek,
    el("h2", {}, "Configuration"),
    el("pre", { tabindex: 0 }, pretty(info.config)),
    said,
    buttons(
      info.paused ? button("Resume", () => pauseFor({})) : null,
      button("Pause", () => pauseFor({ pause_until: new Date(Date.now() + Number(minutes.value) * 60000).toISOString() })),
      el("label", {}, "for minutes", minutes),
      el("span", { class: "grow" }),
      button("Edit", () => {
        editor({
          title: `Edit consumer ${name}`,
          load: async () => editable((await api(`CONSUMER.INFO.${stream}.${name}`)).config),
          apply: async (config) => {
            await api(`CONSUMER.CREATE.${stream}.${name}`, { stream_name: stream, config, action: "update" });
            return `Consumer ${name} has the new configuration`;
          },
        }).catch(failed);
      }),
      button("Delete", () => {
        confirmed({
          title: "Delete",
          word: name,
          text: `Consumer ${name} of ${stream} is deleted; what it has not acknowledged is forgotten.`,
          act: async () => {
            await api(`CONSUMER.DELETE.${stream}.${name}`);
            return `Consumer ${name} is deleted`;
          },
        });
      }, "danger"),
      button("Close", () => ""),
    ),
  );
  box.showModal();
}

/* --- what a consumer delivers next, without taking it */

const PEEKED = 10; // messages that are looked for at once

/* The next `many` messages that a consumer wants behind a sequence: read from the stream as its user may read it. Of
   several filters each has its own next one, and the lowest is the consumer's. */
async function nextOf(stream, config, behind, many) {
  const filters = config.filter_subjects && config.filter_subjects.length ? config.filter_subjects : [config.filter_subject || ">"];
  if (filters.length > PEEKED) throw new Error(`the next messages of more than ${PEEKED} filters are not looked for`);
  const ahead = await Promise.all(filters.map((filter) => messageFrom(stream, behind + 1, filter)));
  const found = [];
  while (found.length < many) {
    const here = ahead.filter((message) => message !== null);
    if (here.length === 0) break;
    const next = here.reduce((one, other) => (other.seq < one.seq ? other : one));
    found.push(next);
    for (const [at, message] of ahead.entries()) {
      if (message !== null && message.seq === next.seq) ahead[at] = await messageFrom(stream, next.seq + 1, filters[at]);
    }
  }
  return found;
}

/* Messages that are out for an acknowledgement lie behind the floor and up to what was delivered; the consumer does not
   say which of them are acknowledged, so only those behind what was delivered are shown. */
function peeked(info, found, behind) {
  const said = [found.length === 0 ? "There is none after it." : `${plural(found.length, "message")} after ${whole.format(behind)}`];
  if (info.num_ack_pending > 0) said.push(`${plural(info.num_ack_pending, "message")} not acknowledged may come again before`);
  if (info.config.deliver_policy === "last_per_subject") said.push("at first only the last ones of their subjects are delivered");
  return said.join("; ");
}

function peekPanel(stream, info) {
  const card = messageCard();
  const list = el("div", { class: "chips", role: "group", "aria-label": "Next messages" });
  const said = el("p", { class: "muted", role: "status" }, "They stay where they are: the consumer is not asked for them.");
  let behind = info.delivered.stream_seq;
  const show = (message, button) => {
    for (const other of list.children) other.setAttribute("aria-pressed", String(other === button));
    card.show(message);
  };
  const look = el("button", { type: "button", class: "quiet", onclick: async () => {
    look.disabled = true;
    try {
      const found = await nextOf(stream, info.config, behind, PEEKED);
      setText(said, peeked(info, found, behind));
      if (found.length === 0) return;
      behind = found[found.length - 1].seq;
      list.replaceChildren(...found.map((message) => {
        const text = `${whole.format(message.seq)} ${message.subject}`;
        const button = el("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => show(message, button) }, text);
        return button;
      }));
      show(found[0], list.firstChild);
      setText(look, "Look further");
    } catch (error) {
      setText(said, error.message);
    } finally {
      look.disabled = false;
    }
  } }, "Look at the next messages");
  return el("section", { class: "peek", "aria-label": "Next messages of the consumer" }, el("div", { class: "bar" }, look, said), list, card.element);
}

/* --- messages of a stream */

const SHOWN_BYTES = 65536;
const HEX_BYTES = 4096;

async function messageAt(stream, wanted) {
  try {
    return (await api(`STREAM.MSG.GET.${stream}`, wanted)).message;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/* The first message from a sequence on, of a subject; null without one. */
const messageFrom = (stream, seq, subject) => messageAt(stream, { seq: Math.max(1, seq), next_by_subj: subject || ">" });

/* The last one before a sequence: by steps that double, then by halves, because what lies between may be deleted. */
async function messageBefore(stream, seq, subject) {
  let found = null;
  for (let step = 1; found === null; step *= 2) {
    const from = Math.max(1, seq - step);
    const next = await messageFrom(stream, from, subject);
    if (next !== null && next.seq < seq) found = next;
    else if (from === 1) return null;
  }
  let [low, high] = [found.seq, seq - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const next = await messageFrom(stream, middle, subject);
    if (next !== null && next.seq < seq) {
      found = next;
      low = next.seq;
    } else high = middle - 1;
  }
  return found;
}

/* The first message of a moment or later: messages are in the order of their times. */
async function messageSince(stream, at, subject) {
  const { state } = await api(`STREAM.INFO.${stream}`);
  let [low, high] = [state.first_seq, state.last_seq + 1];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const next = await messageFrom(stream, middle, "");
    if (next === null || new Date(next.time) >= at) high = middle;
    else low = next.seq + 1;
  }
  return messageFrom(stream, low, subject);
}

function bytesOf(base64) {
  const text = atob(base64 || "");
  const found = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) found[at] = text.charCodeAt(at);
  return found;
}

function headersOf(message) {
  const lines = new TextDecoder().decode(bytesOf(message.hdrs)).split("\r\n").slice(1);
  return lines.filter((line) => line.includes(":")).map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]);
}

function hexOf(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.slice(0, 8).join(" ").padEnd(23)}  ${hex.slice(8).join(" ").padEnd(23)}  ${text}`);
  }
  return lines.join("\n");
}

/* The forms in which a payload can be shown, the best one first. */
function formsOf(data) {
  const forms = [];
  let text = null;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    /* not text */
  }
  if (text !== null && data.length <= SHOWN_BYTES && /^\s*[[{"]/.test(text)) {
    try {
      forms.push(["JSON", pretty(JSON.parse(text)), data.length]);
    } catch {
      /* not JSON */
    }
  }
  if (text !== null) forms.push(["Text", text.slice(0, SHOWN_BYTES), Math.min(data.length, SHOWN_BYTES)]);
  forms.push(["Hex", hexOf(data.subarray(0, HEX_BYTES)), Math.min(data.length, HEX_BYTES)]);
  return forms;
}

function messageCard() {
  const list = el("dl", { class: "facts" });
  const headers = el("dl", { class: "facts mono" });
  const headersTitle = el("h2", {}, "Headers");
  const tabs = el("div", { class: "subtabs" });
  const body = el("pre", { tabindex: 0, "aria-label": "Payload" });
  const more = el("p", { class: "muted" });
  const element = el("div", { class: "card pad", hidden: true }, list, headersTitle, headers, tabs, body, more);
  let preferred = null;
  const show = (message) => {
    element.hidden = message === null;
    if (message === null) return;
    const data = bytesOf(message.data);
    facts(list, [["Subject", message.subject], ["Sequence", whole.format(message.seq)], ["Time", message.time], ["Payload", `${whole.format(data.length)} bytes`]]);
    const found = headersOf(message);
    headersTitle.hidden = found.length === 0;
    facts(headers, found);
    const forms = formsOf(data);
    const choose = (name) => {
      const [chosen, text, shown] = forms.find(([form]) => form === name) || forms[0];
      setText(body, text);
      setText(more, shown < data.length ? `the first ${whole.format(shown)} of ${whole.format(data.length)} bytes` : "");
      for (const button of tabs.querySelectorAll("[aria-pressed]")) button.setAttribute("aria-pressed", button.textContent === chosen);
    };
    tabs.replaceChildren(
      ...forms.map(([form]) => el("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => choose((preferred = form)) }, form)),
      el("button", { type: "button", class: "quiet", onclick: () => download(message, data) }, "Download"),
    );
    choose(preferred);
  };
  return { element, show };
}

function download(message, data) {
  const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  el("a", { href: url, download: `message-${message.seq}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function messagesPanel(name) {
  const card = messageCard();
  const seq = el("input", { class: "seq", type: "number", min: 1, placeholder: "sequence", "aria-label": "Sequence" });
  const subject = el("input", { class: "subject", type: "search", placeholder: "subject, or a pattern", "aria-label": "Subject", spellcheck: "false" });
  const time = el("input", { type: "datetime-local", step: 1, "aria-label": "Time" });
  const follow = el("input", { type: "checkbox" });
  const said = el("p", { class: "muted", role: "status" }, "");
  let current = null;
  const only = () => subject.value.trim();
  const show = (message, none) => {
    setText(said, message === null ? none : "");
    if (message === null) return;
    current = message;
    seq.value = message.seq;
    card.show(message);
  };
  const act = (what, none) => async () => {
    setText(said, "…");
    try {
      show(await what(), none);
    } catch (error) {
      setText(said, error.message);
    }
  };
  const last = () => messageAt(name, { last_by_subj: only() || ">" });
  const first = act(() => messageFrom(name, 1, only()), "There is no message.");
  const newest = act(last, "There is no message.");
  const previous = act(() => (current === null ? last() : messageBefore(name, current.seq, only())), "There is none before.");
  const next = act(() => messageFrom(name, current === null ? 1 : current.seq + 1, only()), "There is none behind.");
  const exact = act(() => (only() ? messageFrom(name, Number(seq.value), only()) : messageAt(name, { seq: Number(seq.value) })), "There is no message of this sequence.");
  const since = act(() => (time.value ? messageSince(name, new Date(time.value), only()) : last()), "There is no message since then.");
  const button = (text, label, onclick) => el("button", { type: "button", class: "quiet", "aria-label": label, onclick }, text);
  const onEnter = (input, then) => input.addEventListener("keydown", (event) => event.key === "Enter" && then());
  onEnter(seq, exact);
  onEnter(subject, newest);
  onEnter(time, since);
  const element = el(
    "div",
    {},
    el(
      "div",
      { class: "bar" },
      button("|◀", "First message", first),
      button("◀", "Message before", previous),
      button("▶", "Next message", next),
      button("▶|", "Last message", newest),
      seq,
      button("Go", "Go to the sequence", exact),
      subject,
      time,
      button("Since", "Go to the time", since),
      el("label", {}, follow, "follow"),
      el("span", { class: "grow" }),
      button("Publish", "Publish a message", () => publish(name, newest)),
      button("Delete message", "Delete this message", () => current && confirmed({
        title: "Delete message",
        text: `Message ${whole.format(current.seq)} of ${name} is deleted.`,
        act: async () => {
          await api(`STREAM.MSG.DELETE.${name}`, { seq: current.seq, no_erase: true });
          return "The message is deleted";
        },
      })),
    ),
    said,
    card.element,
  );
  newest();
  return { element, refresh: async () => (follow.checked ? newest() : undefined) };
}

function publish(name, then) {
  const box = dialog(`Publish to ${name}`, { small: true });
  const subject = el("input", { required: true, autocomplete: "off", spellcheck: "false" });
  const headers = el("textarea", { spellcheck: "false", placeholder: "Nats-Msg-Id: one", "aria-label": "Headers" });
  headers.rows = 3;
  headers.style.minHeight = "60px";
  const body = el("textarea", { spellcheck: "false", "aria-label": "Payload" });
  body.style.minHeight = "140px";
  const said = el("p", { class: "error", role: "alert" });
  const form = el("form", {}, field("Subject", subject), field("Headers, one a line", headers), field("Payload", body), said, buttons(el("button", { type: "submit" }, "Publish"), el("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const lines = headers.value.split("\n").filter((line) => line.includes(":"));
    const named = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()]));
    try {
      const ack = await request(subject.value.trim(), body.value, named);
      notice(`Stored as ${whole.format(ack.seq)} of ${ack.stream}${ack.duplicate ? ", which was there" : ""}`);
      box.close();
      then();
    } catch (error) {
      setText(said, error.message);
    }
  });
  box.append(form);
  box.showModal();
}

/* --- one stream */

function facts(list, pairs) {
  const said = JSON.stringify(pairs);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

/* A row as ui/streams gives it, from an info of the API: of a stream that may have no replica on this node. */
function rowOfInfo(account, info) {
  const cluster = info.cluster || {};
  const others = (cluster.replicas || []).map((peer) => ({ name: peer.name, leader: false, up: !peer.offline, current: peer.current, lag: peer.lag || 0 }));
  const leader = cluster.leader ? [{ name: cluster.leader, leader: true, up: true, current: true, lag: 0 }] : [];
  return {
    account,
    name: info.config.name,
    storage: info.config.storage,
    subjects: (info.config.subjects || []).slice(0, 3),
    leader: cluster.leader || "",
    leads: page.varz !== null && cluster.leader === page.varz.server_name,
    messages: info.state.messages,
    bytes: info.state.bytes,
    first_seq: info.state.first_seq,
    last_seq: info.state.last_seq,
    num_subjects: info.state.num_subjects || 0,
    num_deleted: info.state.num_deleted || 0,
    lost: info.state.lost && info.state.lost.msgs ? info.state.lost.msgs.length : 0,
    consumers: info.state.consumer_count,
    in_flight: null,
    term: null,
    failed: "",
    why_not: "",
    replicas: [...leader, ...others].sort((one, other) => (one.name < other.name ? -1 : 1)),
  };
}

function rowOfConsumer(account, info) {
  const { config } = info;
  return {
    account,
    stream: info.stream_name,
    name: info.name,
    pull: !config.deliver_subject,
    filters: config.filter_subjects || (config.filter_subject ? [config.filter_subject] : []),
    num_pending: info.num_pending,
    num_ack_pending: info.num_ack_pending,
    num_redelivered: info.num_redelivered,
    num_waiting: info.num_waiting,
    oldest_unacked_ns: null,
    paused: Boolean(info.paused),
    push_bound: Boolean(info.push_bound),
  };
}

async function streamFacts(account, name) {
  try {
    return await get("ui/stream", { acc: account, stream: name });
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404 || !isOf(account)) throw error;
    const info = await api(`STREAM.INFO.${name}`);
    return { row: rowOfInfo(account, info), info };
  }
}

async function consumersOf(account, stream, offset, limit) {
  const here = () => get("ui/consumers", { acc: account, stream, offset, limit });
  if (!isOf(account)) return here();
  let found = null;
  try {
    found = await api(`CONSUMER.LIST.${stream}`, { offset });
  } catch (error) {
    if (error instanceof Refused && error.status === 403) return here(); // a user who may not list them
    throw error;
  }
  return { total: found.total, rows: (found.consumers || []).slice(0, limit).map((info) => rowOfConsumer(account, info)) };
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
    const actions = el("div", { class: "bar" });
    const messages = el("section", { "aria-label": "Message viewer" });
    let panel = null;
    let mode = "";
    const table = new VirtualTable({
      name: "consumers",
      label: "Consumers",
      columns: consumerColumns,
      short: true,
      none: "No consumers here. The node that leads the stream shows them, and so does this one to who is signed in.",
      load: (offset, limit) => consumersOf(account, name, offset, limit),
      open: (row) => (isOf(account) ? consumerDialog(name, row.name).catch(failed) : notice(`Sign in to account ${account} to look at a consumer.`)),
    });
    const show = () => {
      const now = isOf(account) ? "own" : "other";
      if (now === mode) return;
      mode = now;
      panel = now === "own" ? messagesPanel(name) : null;
      messages.replaceChildren(el("h2", {}, "Messages"), panel ? panel.element : el("p", { class: "muted" }, `Sign in to account ${account} to read messages and to change the stream.`));
      actions.replaceChildren(...(panel ? streamActions(name) : []));
      table.refresh().catch(failed);
    };
    root.append(
      el("p", {}, el("a", { href: "#/streams" }, "← Streams")),
      el("h1", {}, name),
      el("div", { class: "bar" }, state, chips, el("span", { class: "muted" }, `account ${account}`)),
      actions,
      el("div", { class: "tiles" }, rate.element, size.element, stored.element, subjects.element),
      el("h2", {}, "Consumers"),
      table.element,
      messages,
      el("div", { class: "columns" }, el("section", {}, el("h2", {}, "State"), el("div", { class: "card pad" }, list)), el("section", {}, el("h2", {}, "Configuration"), el("div", { class: "card" }, config))),
    );
    who.listeners.add(show);
    show();
    return {
      async refresh() {
        const { row, info } = await streamFacts(account, name);
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
          ["Term", row.term === null ? "–" : row.term],
          ["Created", info.created],
          ["First message", info.state.messages ? info.state.first_ts : "–"],
          ["Last message", info.state.last_seq ? info.state.last_ts : "–"],
          ["Publishes in flight", count(row.in_flight)],
          ["Damaged on every replica", count(row.lost)],
        ]);
        setText(config, pretty(info.config));
        await table.refresh();
        if (panel) await panel.refresh();
      },
      end() {
        table.end();
        who.listeners.delete(show);
      },
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

/* Keys of the whole page: not while something is typed, nor under a dialog, nor with a key of the browser. */
function onPageKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/" && $("filter")) $("filter").focus();
  else if (event.key === "s" && !$("sign").hidden && !document.querySelector("dialog[open]")) signInOrOut();
  else return;
  event.preventDefault();
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
  document.addEventListener("keydown", onPageKey);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  addEventListener("hashchange", route);
  $("sign").addEventListener("click", signInOrOut);
  listen();
  lookWho().catch(failed);
  route();
}

start();
