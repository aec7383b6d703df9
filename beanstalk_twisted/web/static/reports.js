// The folder of reports: each opens in a tab of its own, in which it may run nothing.
import { get, path } from "./api.js";
import { bytes, h, when } from "./dom.js";
import { Table } from "./table.js";

const COLUMNS = [
  { label: "Report", cell: ({ name, is_shown: isShown }) => (isShown ? h("a", { href: `reports/${encodeURIComponent(name)}`, target: "_blank", rel: "noopener" }, name) : `${name} (too large to be shown)`) },
  { label: "Made", isNumber: true, cell: (row) => when(row.modified_ms) },
  { label: "Size", isNumber: true, cell: (row) => bytes(row.size) },
];

export function reportsPage() {
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
