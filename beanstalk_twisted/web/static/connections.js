// Who is connected, what each does, and which jobs it holds.  Requests of the API, which have
// connections too, are left out.
import { get, path } from "./api.js";
import { age, bytes, count, h } from "./dom.js";
import { jobLink } from "./jobs.js";
import { Table } from "./table.js";
import { tubeLink } from "./tubes.js";

const PAGE_ROWS = 100;

function held(row) {
  const jobs = row.held.map(({ id, reserved_seconds: since, seconds_left: left }) => h("li", {}, jobLink(id), ` for ${age(since)}, ${age(left)} left`));
  if (row.reserved > jobs.length) jobs.push(h("li", {}, `and ${count(row.reserved - jobs.length)} more`));
  return jobs.length ? h("ul", { class: "plain" }, jobs) : "none";
}

const COLUMNS = [
  { label: "Peer", cell: (row) => row.peer || "this machine" },
  { label: "Number", isNumber: true, isWide: true, cell: (row) => String(row.connection) },
  { label: "Role", cell: (row) => row.role || "none yet" },
  { label: "Waits for", isNumber: true, isWide: true, cell: (row) => (row.role.includes("waiting") ? age(row.waiting) : "no") },
  { label: "Holds", isNumber: true, isWide: true, cell: (row) => count(row.reserved) },
  { label: "Held jobs", cell: held },
  { label: "Uses", isWide: true, cell: (row) => tubeLink(row.using) },
  { label: "Watches", isNumber: true, isWide: true, cell: (row) => count(row.watching) },
  { label: "Buffered", isNumber: true, isWide: true, cell: (row) => bytes(row.buffered) },
];

export function connectionsPage() {
  const table = new Table({
    heading: "Connections", columns: COLUMNS, keyOf: (row) => row.connection, search: "Peer, role or tube", empty: "",
    async load({ search, place }) {
      const { connections } = await get(path("connections"));
      const others = connections.filter((row) => !row.is_request);
      const found = others.filter(({ peer, role, using, connection }) => [peer, role, using, String(connection)].some((text) => text.includes(search)));
      const from = Number(place || 0);
      const end = from + PAGE_ROWS;
      table.empty = others.length ? "There is no such connection." : "Nobody is connected.";
      return { rows: found.slice(from, end), next: end < found.length ? String(end) : "", note: `${count(found.length)} of ${count(others.length)}` };
    },
  });
  const refresh = () => table.refresh();
  return { title: "Connections", element: h("div", {}, h("h1", { class: "sr" }, "Connections"), table.element), shown: refresh, refresh };
}
