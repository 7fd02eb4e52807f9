// <message-list>: messages by filter, more of them while the reader scrolls.

import { toggle } from "./actions.js";
import * as filter from "./filter.js";
import { Loader, isStopped } from "./fetch.js";
import { clock, count, day, duration, make, size, visible } from "./format.js";
import { VirtualRows } from "./rows.js";

const STEPS = [[5_000, 1_000], [400, 500]]; // with so many rows, so many more are asked for at a time
const CELLS = { time: "", protocol: "v", from: "v wide", arrow: "wide", to: "v wide", kind: "v", name: "v", subject: "v wide", size: "n wide", body: "x" };
const TITLES = { time: "Time, UTC", protocol: "Protocol", from: "From", to: "To", kind: "Kind", name: "Name", subject: "Subject", size: "Size", body: "Body" };

class MessageList extends HTMLElement {
  #loader = new Loader();
  #counter = new Loader();
  #after = null;
  #isLoading = false;
  #isDone = false;

  connectedCallback() {
    this.order = this.dataset.order;
    this.state = make("span", "", "searching…", { role: "status", "aria-live": "polite" });
    this.total = make("span");
    const order = make("button", "", "", { type: "button" });
    const name = () => { order.textContent = this.order === "newest" ? "newest first" : "oldest first"; };
    name();
    order.addEventListener("click", () => {
      this.order = this.order === "newest" ? "oldest" : "newest";
      name();
      this.search();
    });
    const bar = make("div", "bar-line");
    bar.append(this.state, this.total, make("span", "grow"), make("small", "", "Click a value to filter by it; with Alt, to exclude it"), order);
    this.list = new VirtualRows("Messages", (line, row) => this.fill(line, row));
    this.list.onend = () => this.more();
    this.detail = make("div", "detail", null, { role: "group", "aria-label": "Values of the current message" });
    this.list.onselect = (row) => this.describe(row);
    const head = make("div", "m-line m-head", null, { "aria-hidden": "true" });
    head.append(...Object.entries(CELLS).map(([cell, name]) => make("span", name.replace(/\b[vx]\b/, ""), TITLES[cell] ?? "")));
    this.replaceChildren(bar, head, this.list.view, this.detail);
    this.list.view.addEventListener("click", (event) => this.pick(event));
    this.list.view.addEventListener("dblclick", (event) => this.open(this.list.at(event)));
    document.addEventListener("filterchange", () => this.search());
    this.search();
  }

  async search() {
    this.#after = null;
    this.#isDone = false;
    this.#isLoading = true; // an empty list asks for nothing by itself
    this.state.textContent = "";
    this.list.set([]);
    this.detail.replaceChildren();
    this.#isLoading = false;
    this.count();
    await this.more();
  }

  async count() {
    this.total.textContent = "";
    this.total.title = "counting…";
    this.known = null;
    try {
      this.known = await this.#counter.get("/messages/count.json", { q: filter.current() });
      this.total.textContent = filter.current() ? `${count(this.known.count)} of ${count(this.known.of)} shown` : `of ${count(this.known.count)}`;
      this.total.title = "";
    } catch (error) {
      if (!isStopped(error)) this.total.textContent = "";
    }
  }

  // Shows what newer commits brought. With the oldest first, new messages come below, and the reader's place stays.
  async refresh() {
    if (this.order === "newest" || !this.list.rows.length) {
      await this.search();
      return;
    }
    const before = this.list.rows.length, last = this.list.rows[before - 1];
    this.count();
    if (!this.#isDone || this.#isLoading) return;
    this.#after = `${last.ts ?? ""}.${last.id}`;
    this.#isDone = false;
    await this.more();
    if (this.list.rows.length > before) this.list.select(before);
  }

  async more() {
    if (this.#isLoading || this.#isDone) return;
    this.#isLoading = true;
    if (!this.state.textContent.includes("still")) this.state.textContent = this.list.rows.length ? `${count(this.list.rows.length)} messages, searching…` : "searching…";
    try {
      const page = await this.#loader.get("/messages.json", { q: filter.current(), order: this.order, after: this.#after, limit: STEPS.find(([least]) => this.list.rows.length >= least)?.[1] });
      const { rows } = this.list;
      rows.push(...page.rows);
      this.#after = page.after;
      this.#isDone = page.after === null;
      this.#isLoading = false;
      this.state.textContent = rows.length ? `${count(rows.length)} messages${page.is_searching ? ", still searching…" : this.#isDone ? "" : " so far"}` : page.is_searching ? "still searching…" : "No message passes this filter.";
      this.list.set(rows, { keep: true }); // asks for more, if the reader sees the end
    } catch (error) {
      if (isStopped(error)) return;
      this.#isLoading = false;
      this.#isDone = true;
      this.state.textContent = "";
      filter.fail(error.message);
    }
  }

  fill(line, row) {
    if (!line.firstChild) {
      line.classList.add("m-line");
      for (const name of Object.values(CELLS)) line.append(make("span", name, null, { role: "gridcell" }));
      line.firstChild.append(make("a", "", null, { tabindex: "-1" }));
    }
    const [{ firstChild: time }, protocol, from, arrow, to, kind, name, subject, octets, body] = line.children;
    time.textContent = clock(row.ts);
    time.title = row.ts === null ? "" : day(row.ts);
    time.href = `/messages/${row.id}`;
    value(protocol, "protocol", row.protocol);
    protocol.className = `v p-${row.protocol}`;
    value(from, "from", row.sender);
    arrow.textContent = "→";
    value(to, "to", row.receiver);
    value(kind, "kind", row.kind);
    value(name, "name", row.name);
    value(subject, "subject", row.subject);
    octets.textContent = size(row.size);
    marks(body, row);
    body.append(visible(row.excerpt ?? ""));
    body.dataset.ends = visible(`${row.sender ?? "?"} → ${row.receiver ?? "?"}`); // for narrow pages
    line.classList.toggle("broken", row.severity === "error");
  }

  pick(event) {
    const index = this.list.at(event);
    if (index === null) return;
    this.list.select(index);
    const cell = event.target.closest("[data-field]");
    if (cell?.dataset.value) filter.add(filter.term(cell.dataset.field, cell.dataset.value, event.altKey));
  }

  // The values of the current message, each with a button to include and one to exclude it: for keys, and for fingers.
  describe(row) {
    const values = [["protocol", row.protocol], ["from", row.sender], ["to", row.receiver], ["kind", row.kind], ["name", row.name], ["subject", row.subject], ["session", row.session], ["id", row.correlation], ["status", row.answer ?? row.status], ["rule", row.rules?.[0]?.split(" ").pop()]];
    const chips = values.filter(([, text]) => text).map(([field, text]) => {
      const chip = make("span", "chip"), shown = `${field}:${field === "session" ? text.slice(0, 8) : text}`;
      for (const [sign, exclude, what] of [["+", false, "Show only"], ["−", true, "Hide"]]) {
        const button = make("button", "small", sign, { type: "button", "aria-label": `${what} ${shown}` });
        button.addEventListener("click", () => filter.add(filter.term(field, text, exclude)));
        chip.append(button);
      }
      chip.append(make("span", "", shown));
      return chip;
    });
    this.detail.replaceChildren(make("a", "", "open", { href: `/messages/${row.id}` }), ...(row.session ? [make("a", "", "session", { href: `/sessions/${row.session}#${row.id}` })] : []), ...chips);
  }

  async mark() {
    const row = this.list.rows[this.list.current];
    if (!row) return;
    await toggle(row);
    this.list.draw();
  }

  step(by) {
    this.list.step(by);
  }

  jump(to) {
    this.list.select(to === "first" ? 0 : this.list.rows.length - 1);
  }

  open(index = this.list.current) {
    const row = this.list.rows[index];
    if (row) location.assign(`/messages/${row.id}`);
  }
}

function value(cell, field, text) {
  cell.textContent = visible(text ?? "");
  cell.dataset.field = field;
  cell.dataset.value = text ?? "";
}

export function marks(cell, row) {
  const badges = (row.rules ?? []).map((rule) => make("span", `badge s-${row.severity}`, rule, { "data-field": "rule", "data-value": rule.split(" ").pop() }));
  if (row.answer && row.answer !== "answered" && row.answer !== "confirmed") badges.push(make("span", `badge t-${row.answer}`, row.answer, { "data-field": "status", "data-value": row.answer }));
  if (row.status !== "ok" && !badges.length) badges.push(make("span", `badge t-${row.status}`, row.status, { "data-field": "status", "data-value": row.status }));
  if ((row.attempts ?? 1) > 1) badges.push(make("span", "badge t-late", `sent ${row.attempts} times`));
  if (row.mark || row.comments) {
    const comments = row.comments ? `${row.comments} comment${row.comments === 1 ? "" : "s"}` : "";
    badges.unshift(make("span", `badge mark m-${row.mark ?? "none"}`, row.mark && comments ? `${row.mark} +${row.comments}` : row.mark ?? comments, { title: comments }));
  }
  if (row.latency_us !== null && row.latency_us !== undefined) badges.push(make("small", "", duration(row.latency_us)));
  cell.replaceChildren(...badges);
}

customElements.define("message-list", MessageList);
