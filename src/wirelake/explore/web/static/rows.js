// VirtualRows: a scrolling view of many rows of one height. Only the rows in view exist as elements, and they are used again.

import { make } from "./format.js";

const SPARE = 12; // rows above and below the view
const TALLEST = 15_000_000; // pixels that browsers scroll reliably
const MARGIN = 50_000; // pixels at both ends of the rows where the element scrolls exactly to the end

export class VirtualRows {
  #pool = [];
  #frame = 0;
  #offset = 0; // pixels of the rows above the element's own top; 0 unless the rows are taller than an element may be
  #scrolled = 0; // scrollTop when the rows were last drawn

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
      this.#offset = this.#scrolled = this.view.scrollTop = 0;
    }
    this.draw();
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  // The pixel of all rows that is at the top of the view. Above `TALLEST` a long way, as with the scrollbar's handle, is a share of all
  // rows; a short way, as with the wheel, is as many pixels as the reader moved.
  #place(whole, shown) {
    const scrolled = this.view.scrollTop, tall = Math.min(whole, TALLEST), last = Math.max(0, whole - shown);
    if (whole <= TALLEST) this.#offset = 0;
    else if (Math.abs(scrolled - this.#scrolled) > 2 * shown) this.#offset = Math.round((scrolled / (tall - shown)) * last) - scrolled;
    const top = Math.max(0, Math.min(last, scrolled + this.#offset));
    this.#to(top, whole, shown);
    return top;
  }

  // Scrolls the element to a pixel of the rows: exactly near both ends, anywhere between them.
  #to(top, whole, shown) {
    const tall = Math.min(whole, TALLEST), spare = whole - tall, last = whole - shown;
    let offset = Math.max(0, Math.min(spare, this.#offset));
    if (top < MARGIN) offset = 0;
    else if (top > last - MARGIN) offset = spare;
    else if (Math.min(top - offset, tall - shown - (top - offset)) < MARGIN / 10) offset = Math.round((top * spare) / last);
    this.#offset = offset;
    if (Math.abs(this.view.scrollTop - (top - offset)) >= 1) this.view.scrollTop = top - offset;
    this.#scrolled = this.view.scrollTop;
  }

  draw() {
    const height = this.height, shown = this.view.clientHeight, whole = this.rows.length * height;
    this.tall.style.height = `${Math.min(whole, TALLEST)}px`;
    this.view.setAttribute("aria-rowcount", this.rows.length);
    const top = this.#place(whole, shown);
    const first = Math.max(0, Math.floor(top / height) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((top + shown) / height) + SPARE);
    while (this.#pool.length < last - first) {
      const line = make("div", "line", null, { role: "row" });
      this.#pool.push(line);
      this.tall.append(line);
    }
    this.#pool.forEach((line, slot) => {
      const index = first + slot;
      line.hidden = index >= last;
      if (line.hidden) return;
      line.style.top = `${index * height - this.#offset}px`;
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
    this.onselect(this.rows[this.current], this.current); // may change the height of the view
    const height = this.height, shown = this.view.clientHeight, whole = this.rows.length * height;
    const row = this.current * height, top = this.#place(whole, shown);
    if (centre) this.#show(row - shown / 2, whole, shown);
    else if (row < top) this.#show(row, whole, shown);
    else if (row + height > top + shown) this.#show(row + height - shown, whole, shown);
    this.draw();
    this.view.setAttribute("aria-activedescendant", `row-${this.current}`);
  }

  #show(top, whole, shown) {
    this.tall.style.height = `${Math.min(whole, TALLEST)}px`;
    this.#to(Math.round(Math.max(0, Math.min(whole - shown, top))), whole, shown);
  }

  step(by) {
    const top = this.#place(this.rows.length * this.height, this.view.clientHeight);
    this.select(this.current < 0 ? (by > 0 ? Math.ceil(top / this.height) : this.rows.length - 1) : this.current + by);
  }

  at(event) {
    const line = event.target.closest(".line");
    return line === null ? null : Number(line.dataset.index);
  }
}
