// The whole server: figures, plots, tubes.
import { drain, undrain } from "./actions.js";
import { age, bytes, compact, count, h, rate, setText } from "./dom.js";
import { Plot } from "./plots.js";
import { tubeTable } from "./tubes.js";

const seconds = (ms) => age(ms / 1000);

/** Label, value of the newest rows, and when it is worth a look. */
const TILES = [
  ["Ready", (live) => count(live.now("ready"))],
  ["Reserved", (live) => count(live.now("reserved"))],
  ["Delayed", (live) => count(live.now("delayed"))],
  ["Buried", (live) => count(live.now("buried")), (live) => live.now("buried") > 0],
  ["Oldest ready", (live) => (live.now("ready") ? seconds(live.now("oldest_ms")) : "none")],
  ["Put", (live) => `${rate(live.rateNow("puts"))}/s`],
  ["Ended", (live) => `${rate(live.rateNow("ended"))}/s`],
  ["Timed out", (live) => count(live.now("timeouts"))],
  ["Connections", (live) => count(live.now("connections"))],
  ["Waiting workers", (live) => count(live.now("waiting")), (live) => live.now("ready") > 0 && live.now("waiting") === 0 && live.now("reserved") === 0],
  ["Log", (live) => (live.about.has_log ? bytes(live.now("log_bytes")) : "none")],
  ["Not yet on disk", (live) => (live.about.has_log ? seconds(live.now("unsynced_ms")) : "none")],
];

const PLOTS = [
  ["Jobs a second", [["Put", "puts"], ["Ended", "ended"], ["Timed out", "timeouts"]], compact],
  ["Jobs", [["Ready", "ready"], ["Reserved", "reserved"], ["Delayed", "delayed"], ["Buried", "buried"]], compact],
  ["Oldest ready job", [["Age", "oldest_ms"]], seconds, [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800, 2592000].map((s) => s * 1000)],
  ["Log", [["All of it", "log_bytes"], ["Living jobs", "live_bytes"]], bytes, Array.from({ length: 44 }, (_, power) => 2 ** power)],
];

export function overview({ live }) {
  const tiles = TILES.map(([label, value, isBad]) => ({ value, isBad, shown: h("dd", {}, "–"), element: null, label }));
  for (const tile of tiles) tile.element = h("div", { class: "tile" }, h("dt", {}, tile.label), tile.shown);
  const plots = PLOTS.map(([title, series, format, steps]) => ({ fields: series.map(([, field]) => field), plot: new Plot(title, series.map(([label]) => label), format, steps) }));
  let isLong = false;
  const ranges = [["5 minutes", false], ["6 hours", true]].map(([label, long]) =>
    h("button", { type: "button", "aria-pressed": String(long === isLong), on: { click: () => choose(long) } }, label));

  function choose(long) {
    isLong = long;
    ranges.forEach((button, at) => button.setAttribute("aria-pressed", String((at === 1) === long)));
    show();
  }

  const drains = h("button", { type: "button", hidden: true, on: { click: () => (live.about.drains ? undrain() : drain()) } });

  function show() {
    drains.hidden = !live.about.may_write;
    setText(drains, live.about.drains ? "Take new jobs" : "Refuse new jobs");
    if (!live.recent.length) return;
    for (const tile of tiles) {
      setText(tile.shown, tile.value(live));
      tile.element.classList.toggle("bad", Boolean(tile.isBad?.(live)));
    }
    for (const { fields, plot } of plots) plot.show(live.columns(fields, isLong));
  }

  const tubes = tubeTable();
  live.addEventListener("rows", show);
  return {
    title: "Overview",
    element: h("div", {}, h("h1", { class: "sr" }, "Overview"), h("dl", { class: "tiles" }, tiles.map((tile) => tile.element)),
      h("div", { class: "split" }, h("div", { class: "ranges", role: "group", "aria-label": "Time shown" }, ranges), h("div", { class: "actions" }, drains)),
      h("div", { class: "plots" }, plots.map(({ plot }) => plot.element)), tubes.element),
    shown() { show(); return tubes.refresh(); },
    refresh: () => tubes.refresh(),
    recolour: () => plots.forEach(({ plot }) => plot.recolour()),
    remove() { live.removeEventListener("rows", show); plots.forEach(({ plot }) => plot.remove()); },
  };
}
