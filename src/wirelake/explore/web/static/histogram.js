// <time-histogram>: messages over time by protocol, with a brush that sets the time range of the filter.

import * as filter from "./filter.js";
import { Loader, isStopped } from "./fetch.js";
import { clock, count, day, draw, duration, iso, make } from "./format.js";

const HEIGHT = 100;

class TimeHistogram extends HTMLElement {
  #loader = new Loader();

  connectedCallback() {
    this.svg = draw("svg", { viewBox: `0 0 1000 ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.axis = make("div", "axis");
    this.tip = make("div", "tip", null, { hidden: "" });
    this.replaceChildren(this.svg, this.axis, this.tip);
    this.svg.addEventListener("pointerdown", (event) => this.begin(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.end(event));
    this.svg.addEventListener("pointerleave", () => { this.tip.hidden = true; this.hover?.remove(); });
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
    this.svg.setAttribute("aria-label", total ? `${count(total)} messages from ${iso(start)} to ${iso(end)}` : "No messages");
    const places = width >= 1e6 ? 0 : 3;
    const label = (us) => (end - start > 8.64e10 ? `${day(us)} ${clock(us, 0).slice(0, 5)}` : clock(us, places));
    this.axis.replaceChildren(...(total ? [0, 0.25, 0.5, 0.75, 1].map((at) => make("span", "", label(start + at * (end - start)))) : [make("span", "", "No messages with a time")]));
    this.sums = sums;
  }

  bar(event) {
    const box = this.svg.getBoundingClientRect();
    const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
    return Math.floor(share * this.sums.length);
  }

  begin(event) {
    if (!this.data || !this.sums.some(Boolean)) return;
    this.svg.setPointerCapture(event.pointerId);
    this.from = this.bar(event);
    this.brush = draw("rect", { class: "h-brush", y: 0, height: HEIGHT });
    this.svg.append(this.brush);
    this.stretch(event);
  }

  stretch(event) {
    const bars = this.sums.length, [first, last] = [this.from, this.bar(event)].sort((a, b) => a - b);
    this.brush.setAttribute("x", (1000 * first) / bars);
    this.brush.setAttribute("width", (1000 * (last - first + 1)) / bars);
    return [first, last];
  }

  move(event) {
    if (!this.data || !this.sums?.length) return;
    if (this.brush) this.stretch(event);
    const bar = this.bar(event), { start, width, series, errors, violations } = this.data;
    const said = Object.entries(series).filter(([, bars]) => bars[bar]).map(([name, bars]) => `${name} ${count(bars[bar])}`);
    if (errors[bar]) said.push(`${count(errors[bar])} faulty`);
    if (violations[bar]) said.push(`${count(violations[bar])} broken rules`);
    this.tip.textContent = `${clock(start + bar * width, 3)} + ${duration(width)}: ${said.join(", ") || "nothing"}`;
    this.tip.hidden = false;
  }

  end(event) {
    if (!this.brush) return;
    const [first, last] = this.stretch(event), { start, width } = this.data;
    this.brush.remove();
    this.brush = null;
    const range = [`since:${iso(start + first * width)}`, `until:${iso(start + (last + 1) * width - 1)}`];
    if (this.dataset.goto) location.assign(`${this.dataset.goto}?${new URLSearchParams({ q: range.join(" ") })}`);
    else filter.add(...range);
  }
}

customElements.define("time-histogram", TimeHistogram);
