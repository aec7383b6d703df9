// The stream of figures: history first, then a row each second.
import { get, path } from "./api.js";

const RECENT_ROWS = 300;
const LONG_MS = 30_000;
const LONG_ROWS = 720;
const RETRY_MS = 5000;
const SILENT_MS = 5000; // five rows are missing
const GIVE_UP_MS = 15_000; // a connection may be gone without an end that a browser hears of

/** Whether the server says that this is not for us; a stream does not tell why it ended. */
async function isDenied() {
  try { await get(path("server")); } catch ({ status }) { return status === 401 || status === 403; }
  return false;
}

/**
 * Holds the rows and tells who listens.  Events: `rows` (there are new ones), `state` (connected,
 * lost, paused, denied; each second while there is no data).  Closed while the page is hidden; then
 * it goes on behind the last row it has.
 *
 * silentSeconds: since when nothing came, from `SILENT_MS` on; 0 before, and while nothing is to come.
 */
export class Live extends EventTarget {
  fields = [];
  recent = [];
  long = [];
  about = {};
  state = "connecting";
  silentSeconds = 0;
  #heard = 0;
  #opened = 0;
  #source = null;
  #lastId = "";
  #retry = 0;
  #peaks = null;

  start() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close("paused") : this.#begin()));
    if (!document.hidden) this.#begin();
    setInterval(() => this.#listen(), 1000);
  }

  #begin() {
    this.#heard = performance.now();
    this.#open();
  }

  /** Say how long there was no data; connect again if that lasts. */
  #listen() {
    if (document.hidden || this.state === "denied") return;
    const now = performance.now();
    if (now - this.#heard < SILENT_MS) return;
    if (this.#source && now - Math.max(this.#heard, this.#opened) >= GIVE_UP_MS) {
      this.#close("lost");
      this.#open();
    }
    this.silentSeconds = Math.round((now - this.#heard) / 1000);
    this.#tell(this.state);
  }

  #open() {
    clearTimeout(this.#retry);
    if (this.#source) return;
    this.#opened = performance.now();
    this.#source = new EventSource(`live?after=${encodeURIComponent(this.#lastId)}`);
    this.#source.addEventListener("hello", (event) => this.#hello(event));
    this.#source.addEventListener("tick", (event) => this.#tick(event));
    this.#source.onerror = async () => {
      const isRefused = this.#source.readyState === EventSource.CLOSED;
      this.#close("lost");
      if (isRefused && await isDenied()) {
        // A browser would ask its reader for a token each time.
        if (!this.#source) this.#tell("denied");
        return;
      }
      this.#retry = setTimeout(() => document.hidden || this.#open(), RETRY_MS);
    };
  }

  #close(state) {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
    this.#tell(state);
  }

  #tell(state) {
    if (state !== "live" && state !== "lost" && state !== "connecting") this.silentSeconds = 0;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #live() {
    [this.#heard, this.silentSeconds] = [performance.now(), 0];
    this.#tell("live");
  }

  #hello(event) {
    const { fields, counted, resumed, recent, long, ...about } = JSON.parse(event.data);
    [this.fields, this.counted, this.about, this.#lastId] = [fields, new Set(counted), about, event.lastEventId];
    if (!resumed) [this.recent, this.long, this.#peaks] = [[], long, null];
    for (const row of recent) this.#feed(row);
    this.#live();
    this.dispatchEvent(new Event("rows"));
  }

  #tick(event) {
    const { row, ...about } = JSON.parse(event.data);
    [this.about, this.#lastId] = [about, event.lastEventId];
    this.#feed(row);
    this.#live();
    this.dispatchEvent(new Event("rows"));
  }

  #feed(row) {
    this.recent.push(row);
    if (this.recent.length > RECENT_ROWS) this.recent.shift();
    const last = this.long.at(-1);
    if (last && row[0] <= last[0]) return;
    this.#peaks = this.#peaks
      ? row.map((value, at) => (at === 0 || this.counted.has(this.fields[at]) ? value : Math.max(value, this.#peaks[at])))
      : row;
    if (row[0] - (last ?? this.recent[0])[0] >= LONG_MS) {
      this.long.push(this.#peaks);
      if (this.long.length > LONG_ROWS) this.long.shift();
      this.#peaks = null;
    }
  }

  /** The newest value of a field; 0 before there is one. */
  now(field) {
    return this.recent.at(-1)?.[this.fields.indexOf(field)] ?? 0;
  }

  /** How often a second a counted field grew, over the newest `seconds`. */
  rateNow(field, seconds = 5) {
    const at = this.fields.indexOf(field);
    const [last, first] = [this.recent.at(-1), this.recent.at(-1 - seconds) ?? this.recent[0]];
    return last && last[0] > first[0] ? ((last[at] - first[at]) * 1000) / (last[0] - first[0]) : 0;
  }

  /** Columns for a plot: times in seconds, then one column a field; of counted ones rates. */
  columns(fields, isLong) {
    const rows = isLong ? [...this.long, ...this.recent.slice(-1)] : this.recent;
    const offset = this.about.wall_offset_ms ?? 0;
    const times = rows.map((row) => (row[0] + offset) / 1000);
    return [times, ...fields.map((field) => this.#column(rows, field))];
  }

  #column(rows, field) {
    const at = this.fields.indexOf(field);
    if (!this.counted?.has(field)) return rows.map((row) => row[at]);
    return rows.map((row, place) => {
      const before = rows[place - 1];
      return before && row[0] > before[0] ? ((row[at] - before[at]) * 1000) / (row[0] - before[0]) : null;
    });
  }
}
