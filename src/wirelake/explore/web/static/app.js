// Starts the elements of a page, the keys, the theme, and the look for new commits.

import "./filter.js";
import "./histogram.js";
import "./list.js";
import "./ladder.js";
import "./bytes.js";
import { compare } from "./actions.js";
import { Loader } from "./fetch.js";

const POLL = 2_000; // milliseconds between two looks for a new commit
const THEMES = ["", "light", "dark"];
const PAGES = { g: "/messages", s: "/sessions", v: "/violations", o: "/", e: "/exchanges" };

const root = document.documentElement;
const dialog = document.getElementById("keys");

function theme(name) {
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  localStorage.setItem("theme", name);
}

const saved = localStorage.getItem("theme");
if (saved) root.dataset.theme = saved;
const turn = () => theme(THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length]);
document.getElementById("theme").addEventListener("click", turn);
document.getElementById("help").addEventListener("click", () => dialog.showModal());

// Rows of tables that the server rendered: j and k move, Enter opens.
const rows = () => [...document.querySelectorAll("[data-href]")];
function stepRow(by) {
  const all = rows(), at = all.findIndex((row) => row.classList.contains("current"));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
  for (const row of all) row.classList.toggle("current", row === next);
  next?.scrollIntoView({ block: "nearest" });
  next?.querySelector("a")?.focus({ preventScroll: true });
}

const element = () => document.querySelector("message-list, session-ladder");
const follow = (rel) => document.querySelector(`a[rel="${rel}"]`)?.click();

function step(by) {
  if (element()) element().step(by);
  else if (rows().length) stepRow(by);
  else follow(by > 0 ? "next" : "prev");
}

function open() {
  if (element()) element().open();
  else location.assign(document.querySelector("[data-href].current")?.dataset.href ?? location.href);
}

document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // narrow pages show a part of them

let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey && event.key === "Enter" && event.target.id === "sql") event.target.form.requestSubmit();
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isGoing && PAGES[event.key]) {
    location.assign(PAGES[event.key]);
    return;
  }
  isGoing = event.key === "g";
  if (isGoing) setTimeout(() => { isGoing = false; }, 1500);
  const isRow = event.target === document.body || event.target.closest(".view, [data-href], main") === event.target;
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => event.target.classList?.contains("view") && step(1),
    ArrowUp: () => event.target.classList?.contains("view") && step(-1),
    Home: () => element()?.jump("first"),
    End: () => element()?.jump("last"),
    Enter: () => isRow && open(),
    n: () => element()?.step(1, true),
    p: () => element()?.step(-1, true),
    c: compare,
    m: () => element()?.mark(),
    t: turn,
    "?": () => dialog.showModal(),
    "/": () => (document.querySelector("session-ladder input") ?? document.getElementById("q") ?? document.getElementById("sql"))?.focus(),
  };
  if (keys[event.key] && keys[event.key]() !== false && event.key !== "Enter") event.preventDefault();
});

// A new commit never moves the page under the reader: a button says how much is new, and waits to be clicked.
const news = document.getElementById("news");
const loader = new Loader();
let known = null; // the count and the number of the commit that the page shows
async function look() {
  if (document.hidden) return;
  try {
    const list = document.querySelector("message-list"), filter = list ? { q: new URLSearchParams(location.search).get("q") } : {};
    known = list ? list.known ?? null : known ?? await loader.get("/messages/count.json");
    if (known === null) return;
    const { number } = await loader.get("/state.json");
    if (number === known.number) return;
    const { count } = await loader.get("/messages/count.json", filter);
    const more = count - known.count;
    if (list && more <= 0) return;
    news.textContent = more > 0 ? `${more.toLocaleString("en-US")} new` : "Changed";
    news.setAttribute("aria-label", more > 0 ? `${more} new messages: show them` : "The lake has changed: show it");
    news.hidden = false;
  } catch {
    // the server is gone, or the filter is wrong; the page stays
  }
}
news.addEventListener("click", () => {
  const list = document.querySelector("message-list");
  news.hidden = true;
  if (!list) location.reload();
  list?.refresh();
  document.dispatchEvent(new CustomEvent("lakechange"));
});
document.addEventListener("filterchange", () => { news.hidden = true; });
setInterval(look, POLL);
look();
