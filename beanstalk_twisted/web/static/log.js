// The log: what it holds, which segments there are and why, what waits for the disk, how long syncs take.
import { get, path } from "./api.js";
import { age, bytes, count, h, mean, setText } from "./dom.js";
import { factList } from "./jobs.js";
import { Plot } from "./plots.js";
import { searchLink } from "./search.js";
import { Table } from "./table.js";

const COMPACTION = { archive: "waits for the archive", unchecked: "waits for a check of bodies", space: "waits for space", stopped: "has ended", copying: "at work", freeing: "at work" };

const FACTS = [
  ["Size", (log) => bytes(log.total_bytes)],
  ["Of living jobs", (log) => `${bytes(log.live_bytes)} (${count((100 * log.live_bytes) / Math.max(1, log.total_bytes))} %)`],
  ["Segments", (log) => count(log.segments)],
  ["Compaction", (log) => COMPACTION[log.oldest_kept] ?? "has nothing to do"],
  ["Compacted from", (log) => bytes(log.may_be_bytes)],
  ["To be compacted", (log) => bytes(log.debt_bytes)],
  ["Made ready for records", (log) => bytes(log.preallocated_bytes)],
  ["Free on the disk", (log) => (log.disk_free_bytes === null ? "not known yet" : bytes(log.disk_free_bytes))],
  ["Disk full", (log) => (log.is_full ? "yes: new jobs are refused" : "no")],
  ["Not yet on disk", (log) => bytes(log.unsynced_bytes)],
  ["Oldest of it", (log) => (log.unsynced_bytes ? age(log.oldest_unsynced_seconds) : "none")],
];

const living = (log) => `${count(log.oldest_jobs)} living ${log.oldest_jobs === 1 ? "job" : "jobs"} or kept keys (${bytes(log.oldest_live_bytes)})`;

/** Why the oldest segment is still there, and so all that follow it: they are freed in their order. */
const KEPT = {
  written: () => "It is the one that is being written.",
  archive: () => "The archive does not have it yet. If it stays so, the server's log says why.",
  unchecked: () => "Its bodies were left by the start, and are not checked yet. If it stays so, the server's log says why.",
  read: () => "The body of a job is being read from it.",
  stopped: () => "Compaction has ended: the server's log says why. Run binlog-inspect check on the directory.",
  small: (log) => `The log may have ${bytes(log.may_be_bytes)} before it is compacted: by default twice what lives, and two segments. In this segment: ${living(log)}.`,
  space: (log) => `The disk is full, so what lives in it cannot be written again: ${living(log)}. Free some space.`,
  copying: (log) => `It is being compacted: ${living(log)} are still to be written again.`,
  freeing: () => "Nothing lives in it any more. It is deleted as soon as that is on disk.",
};

/** Where the jobs of a segment are shown. */
const jobsOf = (segment) => searchLink({ where: `file=${segment}` });

const SEGMENT_ROWS = 25;
const known = (value, shown) => (value === null ? "not known" : shown(value));
const states = (row) => [row.is_sealed ? "finished" : "being written", row.is_archived === null ? null : row.is_archived ? "archived" : "not archived"].filter(Boolean).join(", ");

const COLUMNS = [
  { label: "Segment", cell: (row) => String(row.number) },
  { label: "File", isWide: true, cell: (row) => row.name },
  { label: "State", cell: states },
  { label: "Size", isNumber: true, cell: (row) => bytes(row.size) },
  { label: "Living", isNumber: true, cell: (row) => `${bytes(row.live_bytes)} (${count((100 * row.live_bytes) / Math.max(1, row.size))} %)` },
  { label: "Living jobs", isNumber: true, cell: (row) => (row.jobs ? h("a", { href: jobsOf(row.number) }, count(row.jobs)) : "0") },
  { label: "Begun", isNumber: true, isWide: true, cell: (row) => known(row.age_seconds, (seconds) => `${age(seconds)} ago`) },
  { label: "LSNs", isNumber: true, isWide: true, cell: (row) => known(row.first_lsn, (first) => `${first} to ${known(row.last_lsn, String)}`) },
];

function segmentTable() {
  return new Table({
    heading: "Segments, the oldest first", columns: COLUMNS, keyOf: (row) => row.number, empty: "There is no segment behind this one any more.",
    async load({ place }) {
      const { segments, after } = await get(path("log", "segments"), { after: place, limit: SEGMENT_ROWS });
      return { rows: segments, next: after === null ? "" : String(after) };
    },
  });
}

const totalOf = (counts) => counts.reduce((all, one) => all + one, 0);

/** How many and how much each on average, since the start and since the values before. */
function inShort({ counts, sum }, before, average) {
  const [total, newest] = [totalOf(counts), totalOf(counts) - totalOf(before?.counts ?? counts)];
  const all = total ? `${count(total)}, ${average(sum / total)} each on average` : "none yet";
  return newest > 0 ? `${all}; just now ${count(newest)}, ${average((sum - before.sum) / newest)} each` : all;
}

/** A histogram as a table: up to which bound, how many, as a bar; before: as it was a moment ago, if known. */
function histogram(title, what, values, before, unit, average = unit) {
  const { bounds, counts } = values;
  const most = Math.max(1, ...counts);
  const rows = counts.map((one, at) => h("tr", {}, h("td", { class: "bound" }, at < bounds.length ? `up to ${unit(bounds[at])}` : "more"), h("td", { class: "number" }, count(one)),
    h("td", { class: "share" }, h("meter", { min: 0, max: most, value: one, "aria-hidden": "true" }))));
  return h("section", { class: "card" }, h("div", { class: "bar" }, h("h2", {}, title), h("span", { class: "note" }, inShort(values, before, average))),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, what), h("th", { scope: "col", class: "number" }, "How many"), h("th", { scope: "col" }, h("span", { class: "sr" }, "Share")))), h("tbody", {}, rows)));
}

const duration = (seconds) => (seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : age(seconds));

export function logPage({ live }) {
  const [facts, histograms, note] = [h("div", { class: "card" }), h("div", { class: "plots" }), h("p", { class: "note", role: "status" })];
  const plot = new Plot("Size", ["All of it", "Living jobs"], bytes, Array.from({ length: 44 }, (_, power) => 2 ** power));
  const [kept, which, segments, sizes] = [h("span"), h("a", {}, "Show the jobs"), segmentTable(), h("div", { class: "plots" }, plot.element)];
  const pinned = h("section", { class: "card" }, h("h2", {}, "Why the oldest segment is still there"), h("p", {}, kept, " ", which));
  const hide = (isHidden) => [facts, pinned, sizes, histograms, segments.element].forEach((part) => { part.hidden = isHidden; });
  const show = () => live.recent.length && plot.show(live.columns(["log_bytes", "live_bytes"], true));
  live.addEventListener("rows", show);

  let before = {};

  async function refresh() {
    try {
      const log = await get(path("log"));
      facts.replaceChildren(factList(FACTS.map(([label, value]) => [label, value(log)])));
      histograms.replaceChildren(histogram("Syncs", "Took", log.fsync_seconds, before.fsync_seconds, duration), histogram("Commits", "Changes", log.group_commit_size, before.group_commit_size, count, mean));
      before = log;
      setText(kept, KEPT[log.oldest_kept]?.(log) ?? log.oldest_kept);
      which.hidden = !log.oldest_jobs;
      which.href = jobsOf(log.oldest_segment);
      hide(false);
      setText(note, "");
      await segments.refresh();
    } catch (error) {
      hide(error.status === 404);
      setText(note, error.message);
    }
  }

  return {
    title: "Log", element: h("div", {}, h("h1", {}, "Log"), note, facts, pinned, sizes, histograms, segments.element),
    shown() { show(); return refresh(); }, refresh,
    recolour: () => plot.recolour(),
    remove() { live.removeEventListener("rows", show); plot.remove(); },
  };
}
