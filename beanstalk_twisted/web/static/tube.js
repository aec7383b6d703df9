// One tube: figures, plots with its history, policy, jobs.
import { flushTube, forgetKey, kickTube, pauseTube, putJob, resumeTube } from "./actions.js";
import { get, path } from "./api.js";
import { age, compact, count, h, inWords, setText } from "./dom.js";
import { groupsCard } from "./groups.js";
import { factList, jobTable } from "./jobs.js";
import { Plot } from "./plots.js";
import { editPolicy, policyPairs } from "./policy.js";

const POINTS = 900;
const DEPTHS = ["ready", "reserved", "delayed", "buried"];

const FACTS = [
  ...DEPTHS.map((state) => [inWords(state), (tube) => count(tube[state])]),
  ["Urgent", (tube) => count(tube.urgent)],
  ["Oldest ready", (tube) => (tube.ready ? age(tube.oldest_ready_age_seconds) : "none")],
  ["Put", (tube) => count(tube.total_jobs)],
  ["Deleted", (tube) => count(tube.deletes)],
  ["Timed out", (tube) => count(tube.timeouts)],
  ["Connections that use it", (tube) => count(tube.using)],
  ["Connections that watch it", (tube) => count(tube.watching)],
  ["Waiting workers", (tube) => count(tube.waiting)],
  ["Paused", (tube) => (tube.pause_seconds_left ? `for ${age(tube.pause_seconds_left)} more` : "no")],
];

/** Rates of what is counted come from the point before; a tube that was made anew counts from 0. */
function rates(points) {
  return ["total_jobs", "deletes", "timeouts"].map((key) => points.map((point, at) => {
    const before = points[at - 1];
    return before && point.at > before.at && point[key] >= before[key] ? (point[key] - before[key]) / (point.at - before.at) : null;
  }));
}

export function tubePage({ live, words: [name] }) {
  const [facts, policy, tools, note] = [h("div", { class: "card" }), h("div", { class: "card", hidden: true }), h("div", { class: "actions" }), h("p", { class: "note", role: "status" })];
  const plots = [new Plot("Jobs", DEPTHS.map(inWords), compact), new Plot("Jobs a second", ["Put", "Deleted", "Timed out"], compact)];
  const jobs = jobTable(name);
  const groups = groupsCard({ live, tube: name, isLazy: true });
  let points = [];
  let offered = "";

  /** What the server has kept of it, before the points that this page has asked for. */
  async function remember() {
    try {
      const { fields, rows } = await get(path("tubes", name, "history"));
      const kept = rows.map((row) => Object.fromEntries(fields.map((field, at) => [field, row[at]])));
      points = [...kept.map((row) => ({ ...row, at: row.at_ms / 1000 })), ...points];
    } catch { /* There is no such tube yet: nothing to remember. */ }
  }

  async function refreshTube() {
    try {
      const tube = await get(path("tubes", name));
      facts.replaceChildren(factList(FACTS.map(([label, value]) => [label, value(tube)])));
      showPolicy(policyPairs(tube.policy));
      points.push({ at: Date.now() / 1000, ...tube });
      if (points.length > POINTS) points.shift();
      const times = points.map((point) => point.at);
      plots[0].show([times, ...DEPTHS.map((state) => points.map((point) => point[state]))]);
      plots[1].show([times, ...rates(points)]);
      setText(note, "");
      offer(tube);
    } catch (error) {
      setText(note, error.status === 404 ? "There is no such tube now: it is made by the first that uses it." : error.message);
      if (error.status === 404) offer({ name, ready: 0, delayed: 0, buried: 0, reserved: 0 }, false);
    }
  }

  function showPolicy(pairs) {
    policy.hidden = pairs.length === 0;
    policy.replaceChildren(h("h2", {}, "Policy"), factList(pairs));
  }

  function offer(tube, isThere = true) {
    const now = JSON.stringify([isThere, tube.buried + tube.delayed > 0, tube.pause_seconds_left > 0]);
    if (!live.about.may_write || offered === now) return;
    offered = now;
    const button = (label, action, isOff = false, kind = null) =>
      h("button", { type: "button", class: kind, disabled: isOff, on: { click: () => action(name, refresh) } }, label);
    tools.replaceChildren(
      button("Put a job", putJob),
      button("Kick", kickTube, !(tube.buried + tube.delayed)),
      tube.pause_seconds_left > 0 ? button("Resume", resumeTube) : button("Pause", pauseTube),
      button("Policy", editPolicy),
      button("Forget a key", forgetKey, !isThere),
      button("Flush", flushTube, !isThere, "danger"));
  }

  const refresh = () => Promise.all([refreshTube(), jobs.refresh()]);
  return {
    title: name,
    element: h("div", {}, h("h1", {}, name), note, tools, facts, h("div", { class: "plots" }, plots.map((plot) => plot.element)), policy, groups.element, jobs.element),
    shown: () => Promise.all([remember().then(refreshTube), jobs.refresh()]), refresh,
    recolour: () => plots.forEach((plot) => plot.recolour()),
    remove: () => { groups.remove(); plots.forEach((plot) => plot.remove()); },
  };
}
