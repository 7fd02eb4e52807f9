// <time-histogram>: messages over time by protocol, with a brush that sets the time range of the filter. Keys do what the mouse does.

import * as filter from "./filter.js";
import { Loader, isStopped } from "./fetch.js";
import { clock, count, day, draw, duration, iso, make } from "./format.js";

const HEIGHT = 100;
const PAGE = 10; // bars that PageUp and PageDown move by
const KEYS = "Arrow keys move, with Shift they extend the range, Enter applies it, Escape clears it";

class TimeHistogram extends HTMLElement {
  #loader = new Loader();

  connectedCallback() {
    this.brush = this.cursor = null;
    this.svg = draw("svg", { viewBox: `0 0 1000 ${HEIGHT}`, preserveAspectRatio: "none", tabindex: 0, role: "slider", "aria-orientation": "horizontal", "aria-description": KEYS });
    this.axis = make("div", "axis");
    this.tip = make("div", "tip", null, { hidden: "" });
    this.replaceChildren(this.svg, this.axis, this.tip);
    this.svg.addEventListener("pointerdown", (event) => this.begin(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.end(event));
    this.svg.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.svg.addEventListener("keydown", (event) => this.press(event));
    this.svg.addEventListener("blur", () => this.clear());
    for (const name of ["filterchange", "lakechange"]) document.addEventListener(name, () => this.load());
    this.load();
  }

  async load() {
    this.classList.add("busy");
    try {
      this.data = await this.#loader.get("/histogram.json", { q: filter.current() });
      this.show();
    } catch (error) {
      if (isStopped(error)) return;
      this.data = null;
      this.svg.replaceChildren();
      this.axis.textContent = error.message;
    }
    this.classList.remove("busy");
  }

  show() {
    const { start, width, series, errors, violations } = this.data;
    const bars = errors.length, names = Object.keys(series);
    const sums = errors.map((_, bar) => names.reduce((sum, name) => sum + series[name][bar], 0));
    const most = Math.max(1, ...sums);
    // The root makes short bars visible beside long ones.
    const scale = (value) => (value === 0 ? 0 : Math.max(1.5, (HEIGHT - 8) * Math.sqrt(value / most)));
    const groups = names.map((name) => draw("g", { class: `p-${name}` }));
    const marks = draw("g", { class: "h-errors" });
    for (let bar = 0; bar < bars; bar++) {
      const x = (1000 * bar) / bars, wide = Math.max(1, 1000 / bars - 0.8);
      let y = HEIGHT;
      names.forEach((name, index) => {
        const value = series[name][bar];
        if (!value) return;
        const high = (scale(sums[bar]) * value) / sums[bar];
        y -= high;
        groups[index].append(draw("rect", { x, y, width: wide, height: high }));
      });
      if (violations[bar] || errors[bar]) marks.append(draw("rect", { x, y: Math.max(0, y - 5), width: Math.max(wide, 2), height: 3.5 }));
    }
    this.svg.replaceChildren(...groups, marks);
    const end = start + bars * width, total = sums.reduce((sum, value) => sum + value, 0);
    this.svg.setAttribute("aria-label", total ? `Time range: ${count(total)} messages from ${iso(start)} to ${iso(end)}` : "Time range: no messages");
    for (const [name, value] of Object.entries({ min: 0, max: Math.max(0, bars - 1), now: 0, text: total ? "the whole range" : "no messages" })) this.svg.setAttribute(`aria-value${name}`, value);
    const places = width >= 1e6 ? 0 : 3;
    const label = (us) => (end - start > 8.64e10 ? `${day(us)} ${clock(us, 0).slice(0, 5)}` : clock(us, places));
    this.axis.replaceChildren(...(total ? [0, 0.25, 0.5, 0.75, 1].map((at) => make("span", "", label(start + at * (end - start)))) : [make("span", "", "No messages with a time")]));
    this.sums = sums;
    this.brush = this.cursor = null;
  }

  bar(event) {
    const box = this.svg.getBoundingClientRect();
    const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
    return Math.floor(share * this.sums.length);
  }

  begin(event) {
    if (!this.data || !this.sums.some(Boolean)) return;
    this.svg.setPointerCapture(event.pointerId);
    this.isDragging = true;
    this.from = this.cursor = this.bar(event);
    this.stretch();
  }

  // Draws the brush from the bar where it began to the cursor.
  stretch() {
    const bars = this.sums.length, [first, last] = this.range();
    this.brush ??= this.svg.appendChild(draw("rect", { class: "h-brush", y: 0, height: HEIGHT }));
    this.brush.setAttribute("x", (1000 * first) / bars);
    this.brush.setAttribute("width", (1000 * (last - first + 1)) / bars);
  }

  range() {
    return [Math.min(this.from, this.cursor), Math.max(this.from, this.cursor)];
  }

  // What is in a bar.
  describe(bar) {
    const { start, width, series, errors, violations } = this.data;
    const said = Object.entries(series).filter(([, bars]) => bars[bar]).map(([name, bars]) => `${name} ${count(bars[bar])}`);
    if (errors[bar]) said.push(`${count(errors[bar])} faulty`);
    if (violations[bar]) said.push(`${count(violations[bar])} broken rules`);
    return `${clock(start + bar * width, 3)} + ${duration(width)}: ${said.join(", ") || "nothing"}`;
  }

  move(event) {
    if (!this.data || !this.sums?.length) return;
    if (this.isDragging) {
      this.cursor = this.bar(event);
      this.stretch();
    }
    this.tip.textContent = this.describe(this.bar(event));
    this.tip.hidden = false;
  }

  end(event) {
    if (!this.isDragging) return;
    this.isDragging = false;
    this.cursor = this.bar(event);
    this.apply();
  }

  // Sets the time range to the brush.
  apply() {
    const [first, last] = this.range(), { start, width } = this.data;
    this.clear();
    const range = [`since:${iso(start + first * width)}`, `until:${iso(start + (last + 1) * width - 1)}`];
    if (this.dataset.goto) location.assign(`${this.dataset.goto}?${new URLSearchParams({ q: range.join(" ") })}`);
    else filter.add(...range);
  }

  clear() {
    this.brush?.remove();
    this.brush = this.cursor = null;
    this.isDragging = false;
    this.tip.hidden = true;
  }

  press(event) {
    const bars = this.sums?.length ?? 0, hasBrush = this.brush !== null;
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: PAGE, PageDown: -PAGE, Home: -bars, End: bars }[event.key];
    if (!this.data || event.altKey || event.ctrlKey || event.metaKey) return;
    if (way !== undefined && this.sums.some(Boolean)) this.step(way, event.shiftKey);
    else if (event.key === "Enter" && hasBrush) this.apply();
    else if (event.key === "Escape" && hasBrush) this.clear();
    else if (event.key !== "Escape" || this.dataset.goto || !filter.dropRange()) return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Moves the cursor by some bars; the first step is to the first bar with messages, or from the right to the last one.
  step(way, isExtending) {
    const last = this.sums.length - 1, isFirst = this.cursor === null;
    if (isFirst) this.cursor = way > 0 && way <= last ? this.sums.findIndex(Boolean) : way < -last ? 0 : this.sums.findLastIndex(Boolean);
    else this.cursor = Math.max(0, Math.min(last, this.cursor + way));
    if (isFirst || !isExtending) this.from = this.cursor;
    this.stretch();
    const [begin, end] = this.range(), { start, width } = this.data, sum = this.sums.slice(begin, end + 1).reduce((all, value) => all + value, 0);
    this.tip.textContent = begin === end ? this.describe(begin) : `${clock(start + begin * width, 3)} to ${clock(start + (end + 1) * width, 3)}: ${count(sum)} messages`;
    this.tip.hidden = false;
    this.svg.setAttribute("aria-valuenow", this.cursor);
    this.svg.setAttribute("aria-valuetext", this.tip.textContent);
  }
}

customElements.define("time-histogram", TimeHistogram);
