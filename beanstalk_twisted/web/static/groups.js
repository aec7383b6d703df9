// Buried jobs and dead letters, counted by what is alike.
import { age, count, h } from "./dom.js";
import { beginning, jobLink } from "./jobs.js";
import { Looking, Runs } from "./looking.js";
import { searchLink } from "./search.js";
import { Table } from "./table.js";
import { tubeLink } from "./tubes.js";

const MAX_GROUPS = 1000;
const SAMPLE_BYTES = 160;
const REASONS = { "max-reserves": "reserved too often", "max-age": "too old", release: "released", ttr: "TTR ended", disconnect: "connection lost" };
const WAYS = { reason: "By reason", body: "By kind of body" };

const why = (group) => (group.dead_from ? `dead: ${REASONS[group.dead_reason] ?? group.dead_reason}` : "buried by a worker");

/** What means just the jobs of a group. */
function meaning(group) {
  const where = group.dead_from ? `dead-from=${group.dead_from},dead-reason=${group.dead_reason}` : "dead-from=";
  return { tube: group.tube, states: "buried", where, ...(group.fingerprint && { fingerprint: group.fingerprint }) };
}

/**
 * Groups of a tube's buried jobs, or of all tubes.
 *
 * isLazy: they are counted when it is asked for.
 */
export function groupsCard({ live, tube = "", isLazy = false }) {
  const [looking, known] = [new Looking(), new Map()];
  const runs = new Runs(() => look());
  let [way, mayWrite] = ["reason", false];
  const name = (text) => h("span", { class: "name" }, tubeLink(text));
  const table = new Table({
    heading: "Buried jobs", keyOf: (group) => group.key, empty: "",
    load: async () => ({ rows: [...known.values()].sort((one, other) => other.jobs - one.jobs), next: "" }),
    tools: Object.entries(WAYS).map(([key, label]) => h("button", { type: "button", "aria-pressed": String(!isLazy && key === way), on: { click: (event) => { way = key; pressed(event.target); look(); } } }, label)),
    columns: [
      ...(tube ? [] : [{ label: "Tube", cell: (group) => name(group.tube) }]),
      { label: "Why", cell: (group) => h("div", { class: "why" }, why(group), actions(group)) },
      { label: "Died in", isWide: true, cell: (group) => (group.dead_from ? name(group.dead_from) : "") },
      { label: "Jobs", isNumber: true, cell: (group) => count(group.jobs) },
      { label: "Oldest", isNumber: true, cell: (group) => age(group.oldest_age) },
      { label: "Newest", isNumber: true, isWide: true, cell: (group) => age(group.newest_age) },
      { label: "Sample", cell: (group) => h("span", {}, jobLink(group.sample), " ", h("code", { class: "body" }, beginning(group.body))) },
    ],
  });

  // What is not looked at yet has no head either.
  const [, scroll, pages] = table.element.children;
  scroll.hidden = pages.hidden = isLazy;

  function actions(group) {
    const change = mayWrite && h("button", { type: "button", on: { click: () => act(group) } }, "Change");
    return h("span", { class: "pick" }, h("a", { href: searchLink(meaning(group)) }, "Show"), change || null);
  }

  function act(group) {
    const dead = [...known.values()].filter((each) => each.dead_from && each.dead_from === group.dead_from);
    // Those of a tube may be in any tube: a look at one tube has not counted all of them.
    const all = tube || !wasWhole ? 0 : dead.reduce((sum, each) => sum + each.jobs, 0);
    return runs.change({ given: meaning(group), number: group.jobs, newest: looking.newest, home: group.dead_from ?? "", all });
  }

  function pressed(button) {
    for (const each of button.parentNode.querySelectorAll("[aria-pressed]")) each.setAttribute("aria-pressed", String(each === button));
  }

  let wasWhole = false;
  function add(group) {
    const key = [group.tube, group.dead_from, group.dead_reason, group.fingerprint].join(" ");
    const before = known.get(key);
    if (!before) { known.set(key, { ...group, key }); return; }
    before.jobs += group.jobs;
    before.oldest_age = Math.max(before.oldest_age, group.oldest_age);
    before.newest_age = Math.min(before.newest_age, group.newest_age);
  }

  async function look() {
    known.clear();
    scroll.hidden = false;
    table.empty = "None so far.";
    mayWrite = Boolean(live.about.may_write);
    wasWhole = await looking.run("groups", { tube, states: "buried", by: way, body_bytes: SAMPLE_BYTES }, (part) => {
      part.groups.forEach(add);
      if (known.size >= MAX_GROUPS) looking.enough();
      table.refresh();
      const many = known.size >= MAX_GROUPS ? ", and no further: choose a tube, or group by reason" : "";
      return `${count(known.size)} ${known.size === 1 ? "group" : "groups"}${many}`;
    });
    scroll.hidden = Boolean(looking.wrong) && !known.size;
    table.empty = wasWhole ? "No job is buried." : "None was found.";
    await table.refresh();
  }

  return {
    element: h("div", {}, runs.element, looking.element, table.element),
    async shown() { await Promise.all([runs.shown(), isLazy || look()]); },
    refresh() { if (mayWrite !== Boolean(live.about.may_write) && !looking.serial && known.size) look(); },
    remove() { looking.stop(); runs.remove(); },
  };
}

export function deadPage({ live }) {
  const card = groupsCard({ live });
  return {
    ...card, title: "Dead letters",
    element: h("div", {}, h("h1", {}, "Dead letters and buried jobs"), card.element),
  };
}
