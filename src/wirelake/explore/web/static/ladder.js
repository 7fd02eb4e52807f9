// <session-ladder>: a session as a sequence diagram. Only the rows in view are drawn.

import { toggle } from "./actions.js";
import { Loader, isStopped } from "./fetch.js";
import { clock, count, duration, make, size, visible } from "./format.js";
import { marks } from "./list.js";
import { VirtualRows } from "./rows.js";

const WINDOW = 10_000;
const LEAST_PAUSE = 2_000; // microseconds
const LONG_PAUSES = 20; // times the median
const ALWAYS_PAUSE = 2_000_000; // microseconds

class SessionLadder extends HTMLElement {
  #loader = new Loader();

  connectedCallback() {
    this.state = make("span", "", "loading…", { role: "status", "aria-live": "polite" });
    this.search = make("input", "", null, { type: "search", placeholder: "Search in this session", "aria-label": "Search in this session" });
    this.found = make("span");
    this.previous = make("button", "", "← earlier", { type: "button" });
    this.next = make("button", "", "later →", { type: "button" });
    const bar = make("div", "bar-line");
    bar.append(this.state, make("span", "grow"), this.previous, this.next, this.found, this.search);
    this.head = make("div", "l-head");
    this.detail = make("div", "detail", null, { "aria-live": "polite" });
    this.list = new VirtualRows("Messages of the session in order of time", (line, row) => this.fill(line, row));
    this.list.onselect = (row) => this.select(row);
    this.replaceChildren(bar, this.head, this.list.view, this.detail);
    this.list.view.addEventListener("click", (event) => {
      const index = this.list.at(event);
      if (index !== null) this.list.select(index);
    });
    this.list.view.addEventListener("dblclick", () => this.open());
    this.search.addEventListener("input", () => this.seek());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1, true);
    });
    this.previous.addEventListener("click", () => this.load(Math.max(0, this.data.first - WINDOW)));
    this.next.addEventListener("click", () => this.load(this.data.first + WINDOW));
    this.load(Number(new URLSearchParams(location.search).get("first") ?? 0));
  }

  async load(first) {
    this.state.textContent = "loading…";
    try {
      this.data = await this.#loader.get(this.dataset.src, { first });
    } catch (error) {
      if (!isStopped(error)) this.state.textContent = error.message;
      return;
    }
    const { rows, total, lanes } = this.data;
    this.lanes = new Map(lanes.map((name, index) => [name, index]));
    this.places = lanes.map((_, index) => (lanes.length < 2 ? 50 : 8 + (84 * index) / (lanes.length - 1)));
    this.begin = Math.min(...[rows[0]?.ts, this.data.incidents[0]?.ts].filter((ts) => ts !== null && ts !== undefined));
    const end = first + rows.length;
    this.state.textContent = total > rows.length ? `messages ${count(first + 1)} to ${count(end)} of ${count(total)}` : `${count(total)} messages`;
    this.previous.hidden = first === 0;
    this.next.hidden = end >= total;
    const places = make("div", "lanes");
    lanes.forEach((name, index) => {
      const label = make("span", "", name, { title: name });
      label.style.left = `${this.places[index]}%`;
      places.append(label);
    });
    this.head.replaceChildren(make("span", "", "since the start"), places, make("span", "", "body"));
    this.list.set(woven(this.data));
    this.seek();
    const wanted = location.hash.slice(1);
    const index = wanted ? this.list.rows.findIndex((row) => row.id === wanted) : -1;
    if (index >= 0) this.list.select(index, { centre: true });
  }

  fill(line, row) {
    line.className = `line l-line ${row.type ?? "message"}`;
    const cell = { role: "gridcell" }, time = make("span", "", null, cell), canvas = make("div", "draw", null, cell), body = make("span", "x", null, cell);
    for (const place of this.places) {
      const rail = make("i", "rail");
      rail.style.left = `${place}%`;
      canvas.append(rail);
    }
    if (row.ts !== null && row.ts !== undefined) {
      const link = row.id ? make("a", "", `+${duration(row.ts - this.begin)}`, { href: `/messages/${row.id}`, tabindex: "-1", title: clock(row.ts) }) : make("small", "", `+${duration(row.ts - this.begin)}`);
      time.append(link);
    }
    if (row.type === "gap") canvas.append(make("span", "pause", `${duration(row.pause)} of silence`));
    else if (row.type) {
      canvas.append(make("span", "pause", row.type === "violation" ? `${row.clause ?? ""} ${row.name}` : row.type === "unreadable" ? `${size(row.size)} unreadable: ${row.name}` : row.text));
      if (row.type !== "event") body.textContent = visible(row.text);
    } else this.arrow(canvas, body, row);
    if (!row.type) {
      line.classList.toggle("match", this.needle !== "" && contains(row, this.needle));
      line.classList.toggle("pair", this.pair !== undefined && (row.id === this.pair.request || row.request === this.pair.id));
      line.classList.toggle("broken", row.severity === "error");
    }
    line.replaceChildren(time, canvas, body);
    line.setAttribute("aria-label", visible(spoken(row)));
  }

  arrow(canvas, body, row) {
    const last = this.places.length - 1;
    let from = row.to_server ? 0 : last, to = row.to_server ? last : 0;
    if (this.data.session.server === null) {
      from = 0;
      to = this.lanes.get(row.receiver) ?? last;
    }
    const [left, right] = [this.places[Math.min(from, to)], this.places[Math.max(from, to)]];
    const arrow = make("i", `arrow p-${row.protocol} ${from === to ? "self" : from < to ? "right" : "left"}`);
    arrow.style.left = `${left}%`;
    arrow.style.width = `${right - left}%`;
    const label = make("span", "label");
    label.style.left = `${left}%`;
    label.style.width = `${Math.max(right - left, 30)}%`;
    label.append(make("b", "", row.name), visible(` ${row.subject ?? ""}${row.correlation ? ` (${row.correlation.slice(0, 13)})` : ""} `));
    canvas.append(arrow, label);
    marks(body, row);
    body.append(visible(row.excerpt ?? ""));
  }

  select(row) {
    this.pair = row.type ? undefined : row;
    if (row.id) history.replaceState(null, "", `${location.pathname}${location.search}#${row.id}`);
    const parts = [];
    if (row.type) parts.push(make("b", "", row.type === "gap" ? `${duration(row.pause)} of silence` : row.name), make("span", "", row.text ?? ""));
    else {
      parts.push(make("b", "", `${row.kind} ${row.name}`), make("span", "", `${row.sender ?? "?"} → ${row.receiver ?? "?"}`), make("span", "", clock(row.ts)), make("span", "", size(row.size)));
      if (row.subject) parts.push(make("span", "", row.subject));
      for (const rule of row.rules ?? []) parts.push(make("span", `badge s-${row.severity}`, rule));
      if (row.latency_us !== null && row.latency_us !== undefined) parts.push(make("span", "", `answers after ${duration(row.latency_us)}`));
      parts.push(make("a", "", "open", { href: `/messages/${row.id}` }));
    }
    this.detail.replaceChildren(...parts);
    this.list.draw();
  }

  seek() {
    this.needle = this.search.value.trim().toLowerCase();
    this.hits = this.needle ? this.list.rows.flatMap((row, index) => (contains(row, this.needle) ? [index] : [])) : [];
    this.found.textContent = this.needle ? `${count(this.hits.length)} found` : "";
    if (this.hits.length) this.list.select(this.hits[0], { centre: true });
    else this.list.draw();
  }

  async mark() {
    const row = this.list.rows[this.list.current];
    if (!row?.id) return;
    await toggle(row);
    this.list.draw();
  }

  step(by, inMatches = false) {
    if (!inMatches) {
      this.list.step(by);
      return;
    }
    if (!this.hits.length) return;
    const after = by > 0 ? this.hits.find((index) => index > this.list.current) : this.hits.findLast((index) => index < this.list.current);
    this.list.select(after ?? this.hits.at(by > 0 ? 0 : -1), { centre: true });
  }

  jump(to) {
    this.list.select(to === "first" ? 0 : this.list.rows.length - 1);
  }

  open() {
    const row = this.list.rows[this.list.current];
    if (row?.id) location.assign(`/messages/${row.id}`);
  }
}

// Messages and incidents in one order, with pauses between them.
function woven({ rows, incidents }) {
  const all = [];
  let at = 0;
  for (const row of rows) {
    while (at < incidents.length && incidents[at].ts !== null && row.ts !== null && incidents[at].ts < row.ts) all.push(incidents[at++]);
    all.push(row);
  }
  all.push(...incidents.slice(at));
  const pauses = [];
  for (let index = 1; index < all.length; index++) if (all[index].ts !== null && all[index - 1].ts !== null) pauses.push(all[index].ts - all[index - 1].ts);
  const sorted = pauses.toSorted((a, b) => a - b), median = sorted[sorted.length >> 1] ?? 0;
  const least = Math.min(ALWAYS_PAUSE, Math.max(LEAST_PAUSE, LONG_PAUSES * median));
  const result = [];
  all.forEach((row, index) => {
    const before = all[index - 1]?.ts ?? null;
    if (before !== null && row.ts !== null && row.ts - before >= least) result.push({ type: "gap", pause: row.ts - before, ts: null });
    result.push(row);
  });
  return result;
}

const contains = (row, needle) => [row.name, row.subject, row.correlation, row.excerpt, row.kind, row.text, ...(row.rules ?? [])].some((text) => text?.toLowerCase().includes(needle));

function spoken(row) {
  if (row.type === "gap") return `${duration(row.pause)} of silence`;
  if (row.type) return `${row.type}: ${row.text}`;
  return `${row.to_server ? "client" : "server"}: ${row.kind} ${row.name} ${row.subject ?? ""} ${(row.rules ?? []).join(", ")}`;
}

customElements.define("session-ladder", SessionLadder);
