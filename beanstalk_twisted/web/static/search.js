// Search of bodies and fields, over all jobs.
import { age, bytes, count, h } from "./dom.js";
import { beginning, jobLink } from "./jobs.js";
import { Looking, Runs } from "./looking.js";
import { Table } from "./table.js";
import { tubeLink } from "./tubes.js";

const MAX_ROWS = 200;
const BEGINNING_BYTES = 120;
const STATES = ["ready", "reserved", "delayed", "buried"];

/** Where a search is shown: its fields are in the address. */
export const searchLink = (given) => `#/search/${encodeURIComponent(new URLSearchParams(Object.entries(given).filter(([, value]) => value)))}`;

function labelled(label, name, value, more) {
  return h("label", {}, label, h("input", { name, value, spellcheck: "false", autocomplete: "off", ...more }));
}

function check(label, name, value, isOn) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, value, checked: isOn }), label);
}

/** The form, with what is given. */
function formOf(given) {
  const states = given.states ? given.states.split(",") : STATES;
  return h("form", { class: "card asked", role: "search", "aria-label": "Jobs", on: { submit: send } },
    labelled("Text in the body", "text", given.text ?? "", { maxlength: 1000 }),
    check("Any case", "any_case", "1", given.any_case === "1"),
    labelled("Tube", "tube", given.tube ?? "", { maxlength: 200, placeholder: "all" }),
    labelled("Where", "where", given.where ?? "", { class: "where", maxlength: 2000, placeholder: "timeouts>=3, age>3600, group=night", title: "Up to 8 conditions with commas between" }),
    given.fingerprint ? labelled("Kind of body", "fingerprint", given.fingerprint, { maxlength: 16 }) : null,
    h("fieldset", {}, h("legend", {}, "States"), STATES.map((state) => check(state, "states", state, states.includes(state)))),
    h("button", { type: "submit" }, "Search"));

  function send(event) {
    event.preventDefault();
    const values = new FormData(event.target);
    const chosen = values.getAll("states");
    const isSome = chosen.length && chosen.length < STATES.length;
    const next = searchLink({ ...Object.fromEntries(values), states: isSome ? chosen.join(",") : "", begun: "1" });
    if (location.hash === next) dispatchEvent(new Event("hashchange"));
    else location.hash = next;
  }
}

export function searchPage({ live, words: [text = ""] }) {
  const given = Object.fromEntries(new URLSearchParams(text));
  const isBegun = text !== "";
  delete given.begun;
  const [chosen, looking] = [new Set(), new Looking()];
  const runs = new Runs(() => search());
  const form = formOf(given);
  let [found, rows, wasWhole] = [0, [], false];
  const tick = (job) => h("input", { type: "checkbox", "aria-label": `Job ${job.id}`, on: { change: (event) => { if (event.target.checked) chosen.add(job.id); else chosen.delete(job.id); offer(); } } });
  const table = new Table({
    heading: "Found", keyOf: (job) => job.id, empty: "", load: async () => ({ rows, next: "", note: found > rows.length ? `the first ${count(rows.length)} of ${count(found)}` : "" }),
    columns: [
      { label: "Job", cell: (job) => h("span", { class: "tick" }, live.about.may_write ? tick(job) : null, jobLink(job.id)) },
      { label: "Tube", cell: (job) => h("span", { class: "name" }, tubeLink(job.tube)) },
      { label: "State", cell: (job) => job.state },
      { label: "Priority", isNumber: true, isWide: true, cell: (job) => count(job.pri) },
      { label: "Age", isNumber: true, cell: (job) => age(job.age) },
      { label: "Reserves", isNumber: true, isWide: true, cell: (job) => count(job.reserves) },
      { label: "Timeouts", isNumber: true, isWide: true, cell: (job) => count(job.timeouts) },
      { label: "Size", isNumber: true, isWide: true, cell: (job) => bytes(job.size) },
      { label: "Body", cell: (job) => h("code", { class: "body" }, beginning(job.body)) },
    ],
  });
  const home = /(?:^|,)\s*dead-from=([^,\s]+)/.exec(given.where ?? "")?.[1] ?? "";
  const button = (act) => h("button", { type: "button", on: { click: act } });
  const [some, all] = [button(() => runs.change({ given, home, number: chosen.size, newest: looking.newest, ids: [...chosen] })), button(() => runs.change({ given, home, number: found, newest: looking.newest }))];
  const tools = h("div", { class: "actions", hidden: true }, all, some);

  /** What can be changed: what is ticked, or as many of all as were counted. */
  function offer() {
    tools.hidden = !live.about.may_write || !found;
    all.textContent = `Change all ${count(found)} found`;
    all.disabled = !wasWhole;
    some.textContent = `Change ${count(chosen.size)} ticked`;
    some.disabled = !chosen.size;
  }

  async function search() {
    [found, rows, wasWhole] = [0, [], false];
    chosen.clear();
    table.element.hidden = false;
    table.empty = "None so far.";
    await table.refresh();
    wasWhole = await looking.run("search", { ...given, limit: MAX_ROWS, body_bytes: BEGINNING_BYTES }, (part) => {
      found += part.jobs.length;
      if (rows.length < MAX_ROWS) {
        rows = [...rows, ...part.jobs].slice(0, MAX_ROWS);
        table.refresh();
      }
      return `${count(found)} found`;
    });
    offer();
    table.element.hidden = Boolean(looking.wrong) && !found;
    form.elements.namedItem(looking.wrong.split(" ", 1)[0])?.setAttribute?.("aria-invalid", "true");
    table.empty = wasWhole ? "No job is found." : "None was found.";
    await table.refresh();
  }

  table.element.hidden = true;
  return {
    title: "Search", element: h("div", {}, h("h1", {}, "Search jobs"), form, runs.element, looking.element, tools, table.element),
    async shown() { await Promise.all([runs.shown(), isBegun && search()]); },
    refresh() { offer(); if (!table.element.hidden && !table.element.querySelector("input")) table.refresh(); },
    remove() { looking.stop(); runs.remove(); },
  };
}
