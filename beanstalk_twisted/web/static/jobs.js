// A tube's jobs, and one job.
import { cancelJob, deleteJob, editJob, kickJob, moveJob, returnJob } from "./actions.js";
import { get, path } from "./api.js";
import { age, bytes, count, h, inWords, setText, when } from "./dom.js";
import { Table } from "./table.js";
import { tubeLink } from "./tubes.js";

const PAGE_ROWS = 50;
const BEGINNING_BYTES = 120;
const STATES = ["all", "ready", "reserved", "delayed", "buried"];

export const jobLink = (id) => h("a", { href: `#/jobs/${id}` }, String(id));

/** The bytes of a body as the API shows it. */
function bytesOf(body) {
  if (body.text !== undefined) return new TextEncoder().encode(body.text);
  return Uint8Array.from(atob(body.base64), (letter) => letter.charCodeAt(0));
}

export function beginning(body) {
  if (!body) return "";
  const text = body.text ?? `base64 ${body.base64}`;
  return body.truncated ? `${text}…` : text;
}

function timeLeft(job) {
  if (job.state === "reserved") return `${age(job.time_left)} of its TTR`;
  if (job.state !== "delayed") return "none";
  return job.after_group && !job.time_left ? "until its group ends" : `${age(job.time_left)} of its delay`;
}

const number = (key, label) => ({ label, isNumber: true, isWide: true, cell: (job) => count(job[key]) });

const COLUMNS = [
  { label: "Job", cell: (job) => jobLink(job.id) },
  { label: "State", cell: (job) => job.state },
  { label: "Priority", isNumber: true, cell: (job) => count(job.pri) },
  { label: "Age", isNumber: true, cell: (job) => age(job.age) },
  { label: "Time left", isNumber: true, isWide: true, cell: timeLeft },
  number("reserves", "Reserves"), number("timeouts", "Timeouts"), number("releases", "Releases"), number("kicks", "Kicks"),
  { label: "Size", isNumber: true, isWide: true, cell: (job) => bytes(job.size) },
  { label: "Body", cell: (job) => h("code", { class: "body" }, beginning(job.body)) },
];

export function jobTable(tube) {
  let state = "all";
  const choice = h("select", { "aria-label": "State", on: { change: () => { state = choice.value; table.first(); } } },
    STATES.map((name) => h("option", { value: name }, name === "all" ? "All states" : name)));
  const table = new Table({
    heading: "Jobs", columns: COLUMNS, keyOf: (job) => job.id, tools: [choice], empty: "There is no job in this state.",
    async load({ place }) {
      const { jobs, cursor } = await get(path("tubes", tube, "jobs"), { state, limit: PAGE_ROWS, body_bytes: BEGINNING_BYTES, cursor: place });
      return { rows: jobs, next: cursor ?? "" };
    },
  });
  return table;
}

// One job.

const HEX_BYTES = 16;
const MAX_HEX_ROWS = 4096;

function hex(data) {
  const rows = [];
  for (let at = 0; at < data.length && rows.length < MAX_HEX_ROWS; at += HEX_BYTES) {
    const part = [...data.slice(at, at + HEX_BYTES)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(3 * HEX_BYTES)} ${letters}`);
  }
  if (data.length > HEX_BYTES * rows.length) rows.push(`and ${bytes(data.length - HEX_BYTES * rows.length)} more`);
  return rows.join("\n");
}

function json(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return null; }
}

/** The ways to show a body, by name. */
function viewsOf(body) {
  const text = body.text ?? new TextDecoder().decode(bytesOf(body));
  const asJson = body.truncated ? null : json(text);
  return { ...(asJson !== null && { JSON: asJson }), Text: text, Hex: hex(bytesOf(body)) };
}

function bodyCard(body) {
  const views = viewsOf(body);
  const shown = h("pre", { tabindex: 0, "aria-label": "Body" });
  const buttons = Object.keys(views).map((name) => h("button", { type: "button", on: { click: () => choose(name) } }, name));
  function choose(name) {
    setText(shown, views[name]);
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
  }
  choose(Object.keys(views)[0]);
  const note = body.truncated ? "its beginning" : "";
  return h("section", { class: "card" }, h("div", { class: "bar" }, h("h2", {}, "Body"), buttons, h("span", { class: "note" }, bytes(body.size), " ", note)), shown);
}

const since = (seconds, now) => `${when(now - seconds * 1000)}, ${age(seconds)} ago`;

const FACTS = [
  ["State", (job) => job.state],
  ["Tube", (job) => tubeLink(job.tube)],
  ["Priority", (job) => count(job.pri)],
  ["Put", (job, now) => since(job.age, now)],
  ["Deadline", (job, now) => (job.time_left ? `${when(now + job.time_left * 1000)}, in ${timeLeft(job)}` : timeLeft(job))],
  ["Held by", ({ holder }) => holder && `connection ${holder.connection}, ${holder.peer || "this machine"}`],
  ["Reserved since", ({ holder }, now) => holder && since(holder.reserved_seconds, now)],
  ["Last touched", ({ holder }, now) => holder && (holder.touched_seconds + 0.5 < holder.reserved_seconds ? since(holder.touched_seconds, now) : "not since it was reserved")],
  ["TTR", (job) => age(job.ttr)],
  ["Delay when put or released", (job) => age(job.delay)],
  ["Times reserved", (job) => count(job.reserves)], ["Times timed out", (job) => count(job.timeouts)], ["Times released", (job) => count(job.releases)],
  ["Times buried", (job) => count(job.buries)], ["Times kicked", (job) => count(job.kicks)],
  ["Segment of the log", (job) => (job.file ? count(job.file) : "none")],
];
const KNOWN = new Set(["id", "tube", "state", "pri", "age", "delay", "ttr", "time_left", "file", "reserves", "timeouts", "releases", "buries", "kicks", "body", "holder"]);

/** Facts as a list, without those that have no value; what we have no words for comes with the server's. */
export function factList(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

export function jobPage({ live, words: [id] }) {
  const heading = h("h1", {}, `Job ${id}`);
  const [facts, tools, body, note] = [h("div", { class: "card" }), h("div", { class: "actions" }), h("div"), h("p", { class: "note", role: "status" })];
  let shownBody = "";

  async function refresh() {
    try {
      const shown = await get(path("jobs", id));
      const rest = Object.entries(shown).filter(([key]) => !KNOWN.has(key)).map(([key, value]) => [inWords(key), String(value)]);
      facts.replaceChildren(factList([...FACTS.map(([label, value]) => [label, value(shown, Date.now())]), ...rest]));
      setText(note, "");
      if (JSON.stringify(shown.body) !== shownBody) {
        shownBody = JSON.stringify(shown.body);
        body.replaceChildren(bodyCard(shown.body));
      }
      offer(shown);
    } catch (error) {
      setText(note, error.status === 404 ? "There is no such job: it was deleted, or never put." : error.message);
      offered = "";
      tools.replaceChildren();
    }
  }

  let [offered, job] = ["", null];
  function offer(newest) {
    job = newest;
    const now = `${job.state} ${job.dead_from ?? ""}`;
    if (!live.about.may_write || offered === now) return;
    offered = now;
    const isHeld = job.state === "reserved";
    const toTube = () => { location.hash = `#/tubes/${encodeURIComponent(job.tube)}`; };
    tools.replaceChildren(
      job.dead_from ? h("button", { type: "button", disabled: isHeld, on: { click: () => returnJob(job, refresh) } }, `Return to ${job.dead_from}`) : "",
      h("button", { type: "button", disabled: !["buried", "delayed"].includes(job.state), on: { click: () => kickJob(job, refresh) } }, "Kick"),
      h("button", { type: "button", disabled: isHeld, on: { click: () => moveJob(job, refresh) } }, "Move"),
      h("button", { type: "button", disabled: isHeld, on: { click: () => editJob(job, refresh) } }, "Edit"),
      h("button", { type: "button", class: "danger", disabled: isHeld, on: { click: () => deleteJob(job, toTube) } }, "Delete"),
      h("button", { type: "button", class: "danger", disabled: !isHeld, on: { click: () => cancelJob(job, toTube) } }, "Cancel job"));
  }

  return { title: `Job ${id}`, element: h("div", {}, heading, note, tools, facts, body), shown: refresh, refresh };
}
