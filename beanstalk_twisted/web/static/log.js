// The log: what it holds, what waits for the disk, how long syncs take.
import { get, path } from "./api.js";
import { age, bytes, count, h, mean, setText } from "./dom.js";
import { factList } from "./jobs.js";
import { Plot } from "./plots.js";

const FACTS = [
  ["Size", (log) => bytes(log.total_bytes)],
  ["Of living jobs", (log) => `${bytes(log.live_bytes)} (${count((100 * log.live_bytes) / Math.max(1, log.total_bytes))} %)`],
  ["Segments", (log) => count(log.segments)],
  ["To be compacted", (log) => bytes(log.debt_bytes)],
  ["Made ready for records", (log) => bytes(log.preallocated_bytes)],
  ["Free on the disk", (log) => (log.disk_free_bytes === null ? "not known yet" : bytes(log.disk_free_bytes))],
  ["Disk full", (log) => (log.is_full ? "yes: new jobs are refused" : "no")],
  ["Not yet on disk", (log) => bytes(log.unsynced_bytes)],
  ["Oldest of it", (log) => (log.unsynced_bytes ? age(log.oldest_unsynced_seconds) : "none")],
  ["Failed syncs", (log) => count(log.fsync_errors)],
];

/** A histogram as a table: up to which bound, how many, as a bar. */
function histogram(title, what, { bounds, counts, sum }, unit, average = unit) {
  const total = counts.reduce((all, one) => all + one, 0);
  const most = Math.max(1, ...counts);
  const rows = counts.map((one, at) => h("tr", {}, h("td", { class: "bound" }, at < bounds.length ? `up to ${unit(bounds[at])}` : "more"), h("td", { class: "number" }, count(one)),
    h("td", { class: "share" }, h("meter", { min: 0, max: most, value: one, "aria-hidden": "true" }))));
  const mean = total ? `${count(total)}, ${average(sum / total)} each on average` : "none yet";
  return h("section", { class: "card" }, h("div", { class: "bar" }, h("h2", {}, title), h("span", { class: "note" }, mean)),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, what), h("th", { scope: "col", class: "number" }, "How many"), h("th", { scope: "col" }, h("span", { class: "sr" }, "Share")))), h("tbody", {}, rows)));
}

const duration = (seconds) => (seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : age(seconds));

export function logPage({ live }) {
  const [facts, histograms, note] = [h("div", { class: "card" }), h("div", { class: "plots" }), h("p", { class: "note", role: "status" })];
  const plot = new Plot("Size", ["All of it", "Living jobs"], bytes, Array.from({ length: 44 }, (_, power) => 2 ** power));
  const show = () => live.recent.length && plot.show(live.columns(["log_bytes", "live_bytes"], true));
  live.addEventListener("rows", show);

  async function refresh() {
    try {
      const log = await get(path("log"));
      facts.replaceChildren(factList(FACTS.map(([label, value]) => [label, value(log)])));
      histograms.replaceChildren(histogram("Syncs", "Took", log.fsync_seconds, duration), histogram("Commits", "Changes", log.group_commit_size, count, mean));
      setText(note, "");
    } catch (error) {
      setText(note, error.message);
    }
  }

  return {
    title: "Log", element: h("div", {}, h("h1", {}, "Log"), note, facts, h("div", { class: "plots" }, plot.element), histograms),
    shown() { show(); return refresh(); }, refresh,
    recolour: () => plot.recolour(),
    remove() { live.removeEventListener("rows", show); plot.remove(); },
  };
}
