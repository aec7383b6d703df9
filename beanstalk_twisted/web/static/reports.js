// The folder of reports: each opens in a tab of its own, in which it may run nothing; the tables of
// those that are JSON are shown here.
import { get, path } from "./api.js";
import { bytes, count, h, setText, when } from "./dom.js";
import { factList } from "./jobs.js";
import { Table } from "./table.js";

// What is shown of a file, which anybody may have made.
const [MAX_TABLES, MAX_COLUMNS, PAGE_ROWS] = [50, 50, 25];

const fileOf = (name) => `reports/${encodeURIComponent(name)}`;

const COLUMNS = [
  { label: "Report", cell: ({ name, is_shown: isShown }) => (isShown ? h("a", { href: fileOf(name), target: "_blank", rel: "noopener" }, name) : `${name} (too large to be shown)`) },
  { label: "Here", cell: ({ name, is_shown: isShown }) => (isShown && name.endsWith(".json") ? h("a", { href: `#/${fileOf(name)}`, "aria-label": `Tables of ${name}` }, "Tables") : "") },
  { label: "Made", isNumber: true, cell: (row) => when(row.modified_ms) },
  { label: "Size", isNumber: true, cell: (row) => bytes(row.size) },
];

export function reportsPage({ words: [name] }) {
  if (name) return tablesPage(name);
  const [how, command] = [h("p", { class: "note" }), h("code", { class: "body" })];
  const table = new Table({
    heading: "Reports, the newest first", columns: COLUMNS, keyOf: (row) => row.name, empty: "There is no report in the folder.",
    async load() {
      const { reports, next } = await get(path("reports")).catch((error) => ({ reports: [], next: error.message }));
      how.replaceChildren("Made by ", command);
      command.replaceChildren(next);
      return { rows: reports, next: "" };
    },
  });
  const refresh = () => table.refresh();
  return { title: "Reports", element: h("div", {}, h("h1", { class: "sr" }, "Reports"), table.element, how), shown: refresh, refresh };
}

const shownCell = (cell) => (typeof cell === "number" ? count(cell) : h("span", { class: "name" }, cell === null ? "none" : String(cell)));

/** A table of a report, by pages. */
function tableOf({ title, text, head, rows }) {
  const columns = head.slice(0, MAX_COLUMNS).map((label, at) => ({ label: String(label), isNumber: typeof rows[0]?.[at] === "number", cell: ({ row }) => shownCell(row[at] ?? null) }));
  return new Table({
    heading: String(title), columns, keyOf: (each) => each.at, empty: "There is nothing in it.", tools: [h("p", { class: "note" }, String(text))],
    async load({ place }) {
      const from = Number(place || 0);
      const end = from + PAGE_ROWS;
      return { rows: rows.slice(from, end).map((row, at) => ({ row, at: from + at })), next: end < rows.length ? String(end) : "", note: `${count(rows.length)} rows` };
    },
  });
}

function tablesPage(name) {
  const [heading, note, body] = [h("h1", {}, name), h("p", { class: "note", role: "status" }), h("div")];

  async function shown() {
    try {
      const report = await (await fetch(fileOf(name))).json();
      const tables = report.tables.slice(0, MAX_TABLES).map(tableOf);
      setText(heading, String(report.title));
      setText(note, String(report.text));
      body.replaceChildren(h("div", { class: "card" }, factList(report.tiles.map(([number, what]) => [String(what), String(number)]))), ...tables.map((table) => table.element));
      await Promise.all(tables.map((table) => table.refresh()));
    } catch {
      setText(note, "This is no report with tables, or it is not there any more.");
    }
  }

  return { title: "Report", element: h("div", {}, heading, note, body), shown };
}
