// Numbers, sizes and times for people; elements made without markup, so that no text becomes script.

// As `ACTING` in wirelake/text.py, but for lines and tabs: characters that act on the text around them, or are invisible.
const ACTING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/gu;

// Text with these characters written out, for people; what is sent to the server again stays exact.
export function visible(text) {
  return String(text).replace(ACTING, (one) => {
    const code = one.codePointAt(0);
    const [mark, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(width, "0")}`;
  });
}

export function make(tag, name = "", text = null, attributes = {}) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== null && text !== undefined) element.textContent = visible(text);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, /^(title|aria-)/.test(key) ? visible(value) : value);
  return element;
}

export function draw(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export const count = (number) => number.toLocaleString("en-US");

export function size(octets) {
  if (octets < 1024) return `${octets} B`;
  let value = octets;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    value /= 1024;
    if (value < 1000 || unit === "GiB") return `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
  }
}

export function duration(microseconds) {
  for (const [factor, unit, most] of [[1, "µs", 1e3], [1e3, "ms", 1e3], [1e6, "s", 120], [6e7, "min", 120], [3.6e9, "h", 48]]) {
    const value = microseconds / factor;
    if (value < most) return `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(value < 1 ? 2 : 1)} ${unit}`;
  }
  return `${(microseconds / 8.64e10).toFixed(1)} d`;
}

const part = (value, width) => String(value).padStart(width, "0");

export function clock(us, places = 6) {
  if (us === null || us === undefined) return "no time";
  const date = new Date(Math.floor(us / 1000));
  const fraction = part(((us % 1e6) + 1e6) % 1e6, 6).slice(0, places);
  const time = `${part(date.getUTCHours(), 2)}:${part(date.getUTCMinutes(), 2)}:${part(date.getUTCSeconds(), 2)}`;
  return places ? `${time}.${fraction}` : time;
}

export const day = (us) => new Date(us / 1000).toISOString().slice(0, 10);

// A time as filters take it; exact to the microsecond.
export const iso = (us) => `${day(us)}T${clock(us)}Z`;
