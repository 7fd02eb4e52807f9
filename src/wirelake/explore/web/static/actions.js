// <export-menu>: files and commands of the filter. Buttons that choose two things to compare. Marks of messages.

import * as filter from "./filter.js";
import { Loader } from "./fetch.js";
import { make } from "./format.js";

class ExportMenu extends HTMLElement {
  #loader = new Loader();

  connectedCallback() {
    document.addEventListener("filterchange", () => this.load());
    addEventListener("keydown", (event) => { if (event.key === "Escape") this.firstElementChild.open = false; });
  }

  async load() {
    const compare = document.getElementById("diff");
    if (compare) compare.href = `/diff?${new URLSearchParams({ a: filter.current() })}`;
    try {
      const { rows } = await this.#loader.get("/exports.json", { q: filter.current() });
      this.querySelector("ul").replaceChildren(...rows.map((row) => {
        const item = make("li");
        item.append(make("a", "", row.title, { href: row.href, download: "" }), make("code", "", row.command));
        return item;
      }));
    } catch {
      // the list says what is wrong with the filter
    }
  }
}

// The first click chooses a side, the second one compares. The choice is kept while the browser's tab is open.
function chosen(button) {
  const first = sessionStorage.getItem("compare"), own = button.dataset.operand;
  if (first && first !== own && first.split(":")[0] === own.split(":")[0]) {
    sessionStorage.removeItem("compare");
    location.assign(`/diff?${new URLSearchParams({ a: first, b: own })}`);
  } else {
    sessionStorage.setItem("compare", own);
    location.assign(`/diff?${new URLSearchParams({ a: own })}`);
  }
}

for (const button of document.querySelectorAll(".compare")) {
  const first = sessionStorage.getItem("compare"), own = button.dataset.operand;
  if (first && first !== own && first.split(":")[0] === own.split(":")[0]) button.textContent = `Compare with ${first.slice(0, first.indexOf(":") + 9)}`;
  button.addEventListener("click", () => chosen(button));
}

// Marks a message as important, or removes its mark.
export async function toggle(row) {
  const secret = document.querySelector("meta[name=secret]").content;
  const body = new URLSearchParams({ secret, about: "message", id: row.id, action: "mark", mark: row.mark ? "" : "important" });
  const response = await fetch("/comments", { method: "POST", body, headers: { accept: "application/json" } });
  if (response.ok) row.mark = (await response.json()).mark;
}

export const compare = () => document.querySelector(".compare")?.click();

customElements.define("export-menu", ExportMenu);
