// The filter of a page: its terms, the field where it is typed, and the address that keeps it.

import { make, visible } from "./format.js";

const input = document.getElementById("q");
const tokens = document.getElementById("tokens");
const problem = document.getElementById("filter-error");

// The same cut as `wirelake.explore.filters` makes: spaces divide terms, quotes keep them together.
const TERM = /(?:[^\s"]|"[^"]*(?:"|$))+/g;

export const current = () => new URLSearchParams(location.search).get("q") ?? "";
export const terms = (text = current()) => text.match(TERM) ?? [];
const fieldOf = (term) => term.replace(/^-/, "").split(":")[0];

export function term(field, value, exclude = false) {
  const text = String(value).replaceAll('"', "?");
  const quoted = /[\s,]/.test(text) ? `"${text}"` : text;
  return `${exclude ? "-" : ""}${field}:${quoted}`;
}

export function set(text) {
  const query = new URLSearchParams(location.search);
  query.delete("after");
  query.delete("offset");
  if (text.trim()) query.set("q", text.trim()); else query.delete("q");
  history.pushState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  changed();
}

export function add(...more) {
  const kept = terms().filter((one) => !more.some((other) => ["since", "until"].includes(fieldOf(other)) && fieldOf(one) === fieldOf(other)));
  set([...kept.filter((one) => !more.includes(one)), ...more].join(" "));
}

// Removes the time range; says whether there was one.
export function dropRange() {
  const kept = terms().filter((one) => !["since", "until"].includes(fieldOf(one)));
  if (kept.length === terms().length) return false;
  set(kept.join(" "));
  return true;
}

export function remove(one) {
  set(terms().filter((other) => other !== one).join(" "));
}

export function fail(text) {
  if (!problem) return;
  problem.hidden = !text;
  problem.textContent = visible(text);
}

function changed() {
  fail("");
  show();
  document.dispatchEvent(new CustomEvent("filterchange"));
}

function show() {
  if (!input) return;
  input.value = current();
  tokens.replaceChildren(...terms().map((one) => {
    const item = make("li", one.startsWith("-") ? "not" : "");
    const button = make("button", "", "×", { type: "button", "aria-label": `Remove ${one}` });
    button.addEventListener("click", () => live() ? remove(one) : location.assign(without(one)));
    item.append(make("span", "", one), button);
    return item;
  }));
}

// Pages with a list follow the filter without loading anew.
const live = () => document.querySelector("message-list") !== null;

function without(one) {
  const query = new URLSearchParams(location.search);
  query.set("q", terms().filter((other) => other !== one).join(" "));
  return `${location.pathname}?${query}`;
}

if (input) {
  input.form.addEventListener("submit", (event) => {
    if (!live()) return;
    event.preventDefault();
    set(input.value);
  });
  addEventListener("popstate", changed);
  show();
}
