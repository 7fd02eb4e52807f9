// The filter of a page: its terms, the field where it is typed, and the address that keeps it.

import { make, visible } from "./format.js";

const input = document.getElementById("q");
const tokens = document.getElementById("tokens");
const problem = document.getElementById("filter-error");

// Words that combine terms.
const KEYWORD = /^(?:and|or|not)$/i;

export const current = () => new URLSearchParams(location.search).get("q") ?? "";

// The conditions that must all hold, cut as `wirelake.filters` does: terms, groups, and what follows a "not". A choice is one condition.
export function terms(text = current()) {
  const found = [];
  let prefix = "";
  for (const word of words(text)) {
    if (/^or$/i.test(word)) return [`(${text.trim()})`];
    if (/^not$/i.test(word)) prefix += "not ";
    else if (!/^and$/i.test(word)) {
      found.push(prefix + word);
      prefix = "";
    }
  }
  return found;
}

// Spaces divide words; quotes and parentheses keep them together.
function words(text) {
  const found = [""];
  let isQuoted = false, depth = 0;
  for (const char of text) {
    if (char === '"') isQuoted = !isQuoted;
    else if (!isQuoted) {
      if (depth === 0 && (/\s/.test(char) || (char === "(" && KEYWORD.test(found.at(-1))))) found.push("");
      depth += { "(": 1, ")": -1 }[char] ?? 0;
    }
    found.push(found.pop() + (isQuoted || depth || char.trim() ? char : ""));
  }
  return found.filter(Boolean);
}

const fieldOf = (term) => term.replace(/^-/, "").split(":")[0];

export function term(field, value, exclude = false) {
  const text = String(value).replace(/[*?[]/g, "[$&]");
  const quoted = /[\s,()"']|&&|\|\|/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
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
    const item = make("li", /^-|^not /.test(one) ? "not" : "");
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
