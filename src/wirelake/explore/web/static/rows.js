// VirtualRows: a scrolling view of many rows of one height. Only the rows in view exist as elements, and they are used again.

import { make } from "./format.js";

const SPARE = 12; // rows above and below the view
const TALLEST = 15_000_000; // pixels that browsers scroll reliably

export class VirtualRows {
  #pool = [];
  #frame = 0;

  constructor(label, fill) {
    this.rows = [];
    this.current = -1;
    this.fill = fill;
    this.view = make("div", "view", null, { tabindex: "0", role: "grid", "aria-readonly": "true", "aria-label": label });
    this.tall = make("div", "tall", null, { role: "rowgroup" });
    this.view.append(this.tall);
    this.view.addEventListener("scroll", () => this.#later(), { passive: true });
    new ResizeObserver(() => this.#later()).observe(this.view);
    this.onend = () => {};
    this.onselect = () => {};
  }

  get height() {
    return parseFloat(getComputedStyle(this.view).getPropertyValue("--row")) || 28;
  }

  set(rows, { keep = false } = {}) {
    this.rows = rows;
    if (!keep) {
      this.current = -1;
      this.view.scrollTop = 0;
    }
    this.draw();
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  draw() {
    const height = this.height, shown = this.view.clientHeight;
    this.tall.style.height = `${Math.min(this.rows.length * height, TALLEST)}px`;
    this.view.setAttribute("aria-rowcount", this.rows.length);
    const first = Math.max(0, Math.floor(this.view.scrollTop / height) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.view.scrollTop + shown) / height) + SPARE);
    while (this.#pool.length < last - first) {
      const line = make("div", "line", null, { role: "row" });
      this.#pool.push(line);
      this.tall.append(line);
    }
    this.#pool.forEach((line, slot) => {
      const index = first + slot;
      line.hidden = index >= last;
      if (line.hidden) return;
      line.style.top = `${index * height}px`;
      line.id = `row-${index}`;
      line.dataset.index = index;
      line.setAttribute("aria-rowindex", index + 1);
      line.setAttribute("aria-selected", String(index === this.current));
      this.fill(line, this.rows[index], index);
      line.classList.toggle("current", index === this.current);
    });
    if (last >= this.rows.length - 2 * SPARE) this.onend();
  }

  select(index, { centre = false } = {}) {
    if (!this.rows.length) return;
    this.current = Math.max(0, Math.min(this.rows.length - 1, index));
    const height = this.height, top = this.current * height, view = this.view;
    if (centre) view.scrollTop = top - view.clientHeight / 2;
    else if (top < view.scrollTop) view.scrollTop = top;
    else if (top + height > view.scrollTop + view.clientHeight) view.scrollTop = top + height - view.clientHeight;
    this.draw();
    view.setAttribute("aria-activedescendant", `row-${this.current}`);
    this.onselect(this.rows[this.current], this.current);
  }

  step(by) {
    this.select(this.current < 0 ? (by > 0 ? Math.floor(this.view.scrollTop / this.height) : this.rows.length - 1) : this.current + by);
  }

  at(event) {
    const line = event.target.closest(".line");
    return line === null ? null : Number(line.dataset.index);
  }
}
