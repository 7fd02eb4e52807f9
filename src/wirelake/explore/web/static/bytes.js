// <byte-view>: fields and bytes of a message, each leading to the other. <hex-dump>: bytes alone.

import { Loader } from "./fetch.js";
import { make } from "./format.js";

const LINE = 16;
const HEIGHT = 20;

const octets = (hex) => Uint8Array.from({ length: hex.length / 2 }, (_, index) => parseInt(hex.slice(2 * index, 2 * index + 2), 16));
const shown = (octet) => (octet >= 0x20 && octet < 0x7f ? String.fromCharCode(octet) : "·");

// Lines of bytes, of which only those in view exist.
class HexView {
  constructor(data, label) {
    this.data = data;
    this.cursor = -1;
    this.view = make("div", "hex", null, { tabindex: "0", role: "group", "aria-label": label, "aria-roledescription": "bytes in hex" });
    this.tall = make("div", "tall");
    this.tall.style.height = `${Math.ceil(data.length / LINE) * HEIGHT}px`;
    this.tall.style.position = "relative";
    this.view.append(this.tall);
    this.lines = new Map();
    this.lit = [-1, -1];
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.view);
    this.onpoint = () => {};
    this.onkeep = () => {};
    this.view.addEventListener("pointerover", (event) => { const at = this.at(event); if (at !== null) this.onpoint(at); });
    this.view.addEventListener("pointerleave", () => this.onpoint(null));
    this.view.addEventListener("click", (event) => { const at = this.at(event); if (at !== null) { this.move(at); this.onkeep(at); } });
    this.view.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -LINE, ArrowDown: LINE }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      this.move(Math.max(0, Math.min(this.data.length - 1, this.cursor + by)));
      this.onkeep(this.cursor);
    });
  }

  at(event) {
    const at = event.target.dataset?.at;
    return at === undefined ? null : Number(at);
  }

  move(at) {
    this.cursor = at;
    this.reveal(at);
    this.paint();
  }

  light(start, stop) {
    this.lit = [start, stop];
    this.paint();
  }

  reveal(at) {
    const top = Math.floor(at / LINE) * HEIGHT;
    if (top < this.view.scrollTop || top + HEIGHT > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = Math.max(0, top - this.view.clientHeight / 3);
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / HEIGHT) - 4), last = Math.min(Math.ceil(this.data.length / LINE), first + Math.ceil((this.view.clientHeight || 600) / HEIGHT) + 8);
    for (const [number, line] of this.lines) if (number < first || number >= last) { line.remove(); this.lines.delete(number); }
    for (let number = first; number < last; number++) {
      if (this.lines.has(number)) continue;
      const line = make("div", "octets");
      line.style.top = `${number * HEIGHT}px`;
      line.append(make("span", "at", (number * LINE).toString(16).padStart(6, "0")));
      const text = make("span", "text");
      for (let index = 0; index < LINE; index++) {
        const at = number * LINE + index, octet = this.data[at];
        const cell = make("i", "", octet === undefined ? "  " : octet.toString(16).padStart(2, "0"));
        line.append(cell);
        if (octet === undefined) continue;
        const letter = make("u", octet >= 0x20 && octet < 0x7f ? "" : "odd", shown(octet));
        cell.dataset.at = letter.dataset.at = at;
        text.append(letter);
      }
      line.append(text);
      this.tall.append(line);
      this.lines.set(number, line);
    }
    this.paint();
  }

  paint() {
    for (const line of this.lines.values()) for (const cell of line.querySelectorAll("[data-at]")) {
      const at = Number(cell.dataset.at);
      cell.classList.toggle("lit", at >= this.lit[0] && at < this.lit[1]);
      cell.classList.toggle("cursor", at === this.cursor && cell.localName === "i");
    }
  }
}

class ByteView extends HTMLElement {
  async connectedCallback() {
    let data;
    try {
      data = await new Loader().get(this.dataset.src);
    } catch {
      return; // the fallback inside stays
    }
    this.tabs = make("div", "", null, { role: "tablist", "aria-label": "Layers" });
    this.what = make("span", "what", "", { role: "status", "aria-live": "polite" });
    this.panel = make("div", "", null, { role: "tabpanel", id: "layer" });
    const pages = data.layers.flatMap((layer) => (layer.text ? [{ ...layer, name: layer.name, kind: "text" }, { ...layer, name: `${layer.name} bytes`, kind: "bytes" }] : [{ ...layer, kind: "bytes" }]));
    pages.forEach((page, index) => {
      const tab = make("button", "", `${page.name}`, { type: "button", role: "tab", "aria-controls": "layer" });
      tab.append(" ", make("small", "", `${page.size}`));
      tab.addEventListener("click", () => this.show(page, tab));
      tab.addEventListener("keydown", (event) => {
        const next = { ArrowLeft: tab.previousElementSibling, ArrowRight: tab.nextElementSibling }[event.key];
        if (next?.role === "tab") { next.focus(); next.click(); }
      });
      this.tabs.append(tab);
      if (index === 0) queueMicrotask(() => this.show(page, tab));
    });
    const head = make("div", "tabs");
    head.append(this.tabs, this.what);
    this.replaceChildren(head, this.panel);
  }

  show(page, tab) {
    for (const one of this.tabs.querySelectorAll("[role=tab]")) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
    }
    this.what.textContent = "";
    if (page.kind === "text") {
      this.panel.replaceChildren(make("pre", "document", page.text));
      return;
    }
    const halves = make("div", "halves"), half = make("div");
    const table = make("table", "fields"), body = make("tbody");
    const head = table.createTHead().insertRow();
    for (const [text, name] of [["Field", ""], ["Value", ""], ["Offset", "n"], ["Bytes", "n"]]) head.append(make("th", name, text, { scope: "col" }));
    const hex = new HexView(octets(page.hex), `${page.name}, ${page.size} bytes`);
    let group = "", kept = null;
    const rows = page.fields.map((field) => {
      if (field.group !== group && field.group) {
        const heading = body.insertRow();
        heading.className = "group";
        heading.append(make("th", "", field.group, { colspan: "4", scope: "rowgroup" }));
      }
      group = field.group;
      const row = body.insertRow();
      row.tabIndex = 0;
      row.append(make("th", "", field.name, { scope: "row" }), make("td", "", field.value), make("td", "n", field.start), make("td", "n", field.stop - field.start));
      row.addEventListener("pointerenter", () => point(field));
      row.addEventListener("pointerleave", () => point(kept));
      row.addEventListener("focus", () => { kept = field; point(field); hex.reveal(field.start); });
      row.addEventListener("click", () => { kept = field; point(field); hex.reveal(field.start); });
      return row;
    });
    const point = (field, at = null) => {
      rows.forEach((row, index) => {
        row.classList.toggle("lit", page.fields[index] === field);
        row.classList.toggle("kept", page.fields[index] === kept);
      });
      if (field) hex.light(field.start, field.stop); else hex.light(-1, -1);
      this.what.textContent = field ? `${at === null ? `${field.start}..${field.stop - 1}` : `byte ${at}`}: ${field.group ? `${field.group}, ` : ""}${field.name}` : "";
    };
    const fieldAt = (at) => page.fields.find((field) => field.start <= at && at < field.stop);
    hex.onpoint = (at) => (at === null ? point(kept) : point(fieldAt(at), at));
    hex.onkeep = (at) => {
      kept = fieldAt(at);
      point(kept, at);
      rows[page.fields.indexOf(kept)]?.scrollIntoView({ block: "nearest" });
    };
    table.append(body);
    half.append(table);
    halves.append(half, hex.view);
    this.panel.replaceChildren(halves);
    hex.draw();
  }
}

class HexDump extends HTMLElement {
  connectedCallback() {
    const hex = new HexView(octets(this.dataset.hex), "bytes");
    hex.view.style.height = `${Math.min(Math.ceil(hex.data.length / LINE), 16) * HEIGHT}px`;
    hex.view.style.overflow = "auto";
    this.replaceChildren(hex.view);
    hex.draw();
  }
}

customElements.define("byte-view", ByteView);
customElements.define("hex-dump", HexDump);
