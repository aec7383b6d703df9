// Elements and words.  Text from the server becomes text nodes only: nothing here parses HTML.

/** An element.  Properties: `class`, `on` (listeners by event), `data`, else attributes; null leaves one out. */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set an element's text if it differs, so that what is selected stays so. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A key of the API as a label. */
export const inWords = (key) => key.replaceAll(/[_-]/g, " ").replace(/^./, (letter) => letter.toUpperCase());

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const small = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const second = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const count = (number) => whole.format(number);
const digits = (number, large) => (Math.abs(number) < 1 ? small : number < large ? tenths : whole).format(number);
export const compact = (number) => (number < 1000 ? digits(number, 1000) : short.format(number));
export const mean = (number) => tenths.format(number);
export const rate = (number) => digits(number, 100);
export const when = (ms) => moment.format(ms);
export const clock = (ms, hasSeconds) => (hasSeconds ? second : minute).format(ms);

/** Seconds in words: the two largest units, the second one left out if it is 0. */
export function age(seconds) {
  if (seconds < 10) return `${tenths.format(seconds)} s`;
  const rounded = Math.round(seconds);
  if (rounded < 60) return `${rounded} s`;
  const [large, small, size] = rounded < 3600 ? ["min", "s", 60] : rounded < 86400 ? ["h", "min", 3600] : ["d", "h", 86400];
  const rest = Math.floor((rounded % size) / (size === 86400 ? 3600 : size / 60));
  return `${Math.floor(rounded / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${(size < 100 ? tenths : whole).format(size)} ${units[unit]}`;
}
