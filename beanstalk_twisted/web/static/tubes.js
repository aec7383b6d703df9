// The table of tubes.
import { get, path } from "./api.js";
import { age, count, h } from "./dom.js";
import { Table } from "./table.js";

const PAGE_ROWS = 25;
const MAX_OFFSET = 1000;

export const tubeLink = (name) => h("a", { href: `#/tubes/${encodeURIComponent(name)}` }, name);

const number = (key, label, more = {}) => ({ label, isNumber: true, sort: key, cell: (row) => count(row[key]), ...more });

const COLUMNS = [
  { label: "Tube", sort: "name", cell: (row) => tubeLink(row.name) },
  number("ready", "Ready"),
  number("reserved", "Reserved"),
  number("delayed", "Delayed", { isWide: true }),
  number("buried", "Buried"),
  { label: "Oldest ready", isNumber: true, isWide: true, cell: (row) => (row.ready ? age(row.oldest_ready_age_seconds) : "none") },
  number("waiting", "Waiting workers", { isWide: true }),
  number("total_jobs", "Put", { isWide: true, sort: "" }),
  number("deletes", "Deleted", { isWide: true, sort: "" }),
  { label: "Paused", isNumber: true, isWide: true, cell: (row) => (row.pause_seconds_left ? age(row.pause_seconds_left) : "no") },
];

export function tubeTable() {
  return new Table({
    heading: "Tubes", columns: COLUMNS, keyOf: (row) => row.name, sort: "ready", search: "Search names", empty: "No tube has that in its name.",
    async load({ sort, search, place }) {
      const from = Number(place || 0);
      const { tubes, matches, total } = await get(path("tubes"), { sort, search, limit: PAGE_ROWS, offset: from });
      const end = from + tubes.length;
      const note = search ? `${count(matches)} of ${count(total)}` : `${count(total)} in all`;
      return { rows: tubes, next: end < matches && end <= MAX_OFFSET ? String(end) : "", note };
    },
  });
}

export function tubesPage() {
  const table = tubeTable();
  const refresh = () => table.refresh();
  return { title: "Tubes", element: h("div", {}, h("h1", { class: "sr" }, "Tubes"), table.element), shown: refresh, refresh };
}
