// What changes something: each asks first, with its impact.
import { get, path, post } from "./api.js";
import { age, count, h, setText } from "./dom.js";

const dialog = document.getElementById("dialog");
const MAX_TEMPLATES = 50;

const watchers = (number) => `, which ${number ? count(number) : "no"} ${number > 1 ? "connections watch" : "connection watches"}`;

/** How many connections watch a tube, in words that follow its name; "" if the server does not say. */
export async function watched(tube) {
  try {
    return watchers((await get(path("tubes", tube))).watching);
  } catch ({ status }) {
    return status === 404 ? watchers(0) : "";
  }
}

export const jobs = (number) => (number === 1 ? "1 job" : `${count(number)} jobs`);

/**
 * Ask, and do it.
 *
 * impact: text, or a function from the fields' values to text; fields: elements with a name;
 * run: given the values, does it; done: called when it is done.  An error that begins with a field's
 * name is shown beside that field.
 */
export function ask({ title, impact, fields = [], button, isDanger = false, run, done }) {
  const impactShown = h("p", { class: `told ${isDanger ? "impact" : "note"}` });
  const problem = h("p", { class: "impact", role: "alert", hidden: true });
  const values = () => Object.fromEntries(new FormData(form));
  const tell = () => setText(impactShown, typeof impact === "function" ? impact(values()) : impact);
  const submit = h("button", { type: "submit", class: isDanger ? "danger" : null }, button);
  const form = h("form", { on: { submit: send, input: tell } }, h("h2", { id: "dialog-title" }, title), fields, problem,
    h("div", { class: "ask" }, impactShown, h("div", { class: "actions" }, submit, h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"))));

  async function send(event) {
    event.preventDefault();
    submit.disabled = true;
    form.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    try {
      await run(values());
      dialog.close();
      await done?.();
    } catch (error) {
      problem.hidden = false;
      setText(problem, error.message);
      const wrong = form.elements.namedItem(error.message.split(" ", 1)[0]);
      if (wrong instanceof HTMLElement) {
        wrong.setAttribute("aria-invalid", "true");
        wrong.parentElement.append(problem);
        wrong.focus();
      }
    }
    submit.disabled = false;
  }

  dialog.replaceChildren(form);
  tell();
  dialog.showModal();
  return form;
}

export const field = (label, element) => h("label", {}, label, element);
const numberField = (label, name, value, least = 0) => field(label, h("input", { name, type: "number", min: least, max: 4294967295, required: true, value }));

export function drain() {
  ask({
    title: "Refuse new jobs", button: "Refuse them", isDanger: true, run: () => post(path("server", "drain")),
    impact: "Producers get DRAINING for each put, in all tubes, until new jobs are taken again. Workers go on.",
  });
}

export function undrain() {
  ask({ title: "Take new jobs", button: "Take them", impact: "Puts are taken again, in all tubes.", run: () => post(path("server", "undrain")) });
}

export function pauseTube(name, done) {
  ask({
    title: `Pause ${name}`, button: "Pause", fields: [numberField("Seconds", "seconds", 60, 1)], done,
    impact: ({ seconds }) => `For ${age(Number(seconds))} no job of this tube is handed out. Jobs that are reserved go on, and jobs can be put.`,
    run: ({ seconds }) => post(path("tubes", name, "pause"), { seconds: Number(seconds) }),
  });
}

export function resumeTube(name, done) {
  ask({ title: `Resume ${name}`, button: "Resume", impact: "Its jobs are handed out again from now on.", done, run: () => post(path("tubes", name, "pause"), { seconds: 0 }) });
}

export async function kickTube(name, done) {
  const tube = await get(path("tubes", name));
  const [kind, most] = tube.buried ? ["buried", tube.buried] : ["delayed", tube.delayed];
  ask({
    title: `Kick jobs of ${name}`, button: "Kick", fields: [numberField("How many at most", "count", most, 1)], done,
    impact: (values) => `Makes ${count(Math.min(Number(values.count), most))} of ${count(most)} ${kind} jobs ready in ${name}${watchers(tube.watching)}.`,
    run: (values) => post(path("tubes", name, "kick"), { count: Number(values.count) }),
  });
}

export async function flushTube(name, done) {
  const tube = await get(path("tubes", name));
  const counts = { buried: tube.buried, delayed: tube.delayed, ready: tube.ready, all: tube.buried + tube.delayed + tube.ready };
  const states = h("select", { name: "state" }, Object.keys(counts).map((state) => h("option", { value: state }, `${state} (${count(counts[state])})`)));
  ask({
    title: `Flush ${name}`, button: "Delete them", isDanger: true, fields: [field("Jobs", states)], done,
    impact: ({ state }) => `Deletes ${jobs(counts[state])} permanently, and those that arrive until it is done. Reserved jobs stay (${count(tube.reserved)}).${state === "all" ? " Unique keys of deleted jobs are forgotten." : ""}`,
    run: ({ state }) => post(path("tubes", name, "flush"), { state }),
  });
}

export function forgetKey(name, done) {
  ask({
    title: `Forget a unique key of ${name}`, button: "Forget it", done,
    fields: [field("Unique key", h("input", { name: "key", required: true, maxlength: 200, spellcheck: "false" }))],
    impact: ({ key }) => `Another put with the key ${key} makes a new job, although a job with it was deleted before.`,
    run: ({ key }) => post(path("tubes", name, "forget-key"), { key }),
  });
}

export async function kickJob({ id, state, tube }, done) {
  const who = await watched(tube);
  ask({ title: `Kick job ${id}`, button: "Kick", impact: `It is ${state}; it becomes ready in ${tube}${who}.`, done, run: () => post(path("jobs", id, "kick")) });
}

/** Take a dead letter back to the tube that it died in. */
export async function returnJob({ id, state, dead_from: home }, done) {
  const who = await watched(home);
  ask({
    title: `Return job ${id} to ${home}`, button: "Return", done,
    impact: `It becomes ready in ${home}${who}. Its attempts are counted from 0.`,
    async run() {
      await post(path("jobs", id, "move"), { tube: home });
      if (state === "buried") await post(path("jobs", id, "kick"));
    },
  });
}

export function deleteJob({ id, tube, state }, done) {
  ask({ title: `Delete job ${id}`, button: "Delete it", isDanger: true, impact: `Deletes this ${state} job of ${tube} for good.`, done, run: () => post(path("jobs", id, "delete")) });
}

export function cancelJob({ id, tube }, done) {
  ask({ title: `Cancel job ${id}`, button: "Cancel the job", isDanger: true, impact: `Deletes this job of ${tube} for good, although a worker has it. The worker learns of it at its next touch.`, done, run: () => post(path("jobs", id, "cancel")) });
}

export function moveJob({ id, tube }, done) {
  ask({
    title: `Move job ${id}`, button: "Move", fields: [field("To the tube", h("input", { name: "tube", required: true, maxlength: 200, value: tube }))], done,
    impact: (values) => `Takes it from ${tube} to ${values.tube}, in one step; its workers there get it.`,
    run: (values) => post(path("jobs", id, "move"), { tube: values.tube }),
  });
}

const jobFields = ({ priority, delay, ttr }) => [numberField("Priority (0 first)", "priority", priority), numberField("Delay, seconds", "delay", delay), numberField("TTR, seconds", "ttr", ttr, 1)];
const numbers = (values) => ({ priority: Number(values.priority), delay: Number(values.delay), ttr: Number(values.ttr) });
const bodyField = (text) => { const area = h("textarea", { name: "body", spellcheck: "false" }); area.value = text; return area; };

export function editJob({ id, state, pri, delay, ttr, body }, done) {
  const isText = body.text !== undefined && !body.truncated;
  ask({
    title: `Edit job ${id}`, button: "Save", done,
    fields: [...jobFields({ priority: pri, delay: state === "delayed" ? delay : 0, ttr }), isText ? field("Body", bodyField(body.text)) : h("p", { class: "note" }, "Its body is no short text, and stays as it is.")],
    impact: (values) => `Job ${id} has these values from now on${Number(values.delay) ? `, and is ready in ${age(Number(values.delay))}` : ""}.`,
    run: (values) => post(path("jobs", id, "edit"), { ...numbers(values), ...(isText && values.body.replaceAll("\r\n", "\n") !== body.text && { body: values.body }) }),
  });
}

// Put, from templates that this browser keeps.

function templates() {
  try {
    const kept = JSON.parse(localStorage.getItem("templates") ?? "{}");
    return kept && typeof kept === "object" ? kept : {};
  } catch { return {}; }
}

function keepTemplate(name, values) {
  const kept = Object.entries({ ...templates(), [name]: values }).slice(-MAX_TEMPLATES);
  localStorage.setItem("templates", JSON.stringify(Object.fromEntries(kept)));
}

export function putJob(tube, done) {
  const kept = templates();
  const choice = h("select", { name: "template", on: { change: fill } }, h("option", { value: "" }, "none"), Object.keys(kept).map((name) => h("option", { value: name }, name)));
  const form = ask({
    title: `Put a job into ${tube}`, button: "Put", done,
    fields: [field("Template", choice), field("Body", bodyField("")), ...jobFields({ priority: 65536, delay: 0, ttr: 60 }), field("Keep as a template named (this browser only)", h("input", { name: "keep", maxlength: 60 }))],
    impact: ({ body, delay }) => `One job of ${count(new TextEncoder().encode(body).length)} bytes, ${Number(delay) ? `ready in ${age(Number(delay))}` : "ready at once"}.`,
    async run({ body, keep, ...values }) {
      // First, since it may fail: the job would be put twice.
      if (keep) keepTemplate(keep, { body, ...numbers(values) });
      await post(path("tubes", tube, "jobs"), { body, ...numbers(values) });
    },
  });
  function fill() {
    for (const [name, value] of Object.entries(kept[choice.value] ?? {})) if (form.elements[name]) form.elements[name].value = value;
    form.dispatchEvent(new Event("input"));
  }
}
