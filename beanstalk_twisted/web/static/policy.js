// A tube's policy: a form of the keys that the server knows, asked about with what it means for the jobs there are.
import { ask, jobs } from "./actions.js";
import { get, path, post } from "./api.js";
import { age, bytes, count, h, inWords } from "./dom.js";

/** Units of keys whose values are plain numbers. */
const UNITS = { "max-age": ["seconds", (value) => age(value)], "max-bytes": ["", bytes], "max-job-size": ["bytes", bytes] };
const labelOf = (key) => [inWords(key), UNITS[key]?.[0]].filter(Boolean).join(", ");
const jsonKey = (key) => key.replaceAll("-", "_");

/** What each key means for a tube as it is, from its new value, as text. */
const IMPACTS = {
  "max-reserves": (value) => `A job that comes back after ${count(value)} reserves is a dead letter from now on; those that did before stay.`,
  "dead-letter": (value) => `Dead letters are moved to ${value} from now on.`,
  backoff: (value) => `Jobs that come back are delayed: ${value}, seconds. Those that are ready stay ready.`,
  "max-age": (value, tube, values) => {
    const end = values.expired === "delete" ? "deleted" : "dead letters";
    const oldest = tube.ready ? ` The oldest ready job is ${age(tube.oldest_ready_age_seconds)} old.` : "";
    return `Jobs older than ${age(Number(value))} that nobody holds are ${end} at once, those that are there too.${oldest}`;
  },
  expired: (value) => (value === "delete" ? "Jobs older than max-age are deleted for good." : "Jobs older than max-age are dead letters."),
  "max-jobs": (value, tube) => limited(tube.ready + tube.reserved + tube.delayed + tube.buried, Number(value), jobs),
  "max-bytes": (value, tube) => limited(tube.body_bytes, Number(value), bytes),
  "max-job-size": (value) => `Bodies larger than ${bytes(Number(value))} are refused; jobs that have them stay.`,
  "max-reserved": (value, tube) => `At most ${jobs(Number(value))} reserved at once; now ${count(tube.reserved)}.${tube.reserved > Number(value) ? ` ${jobs(tube.reserved - Number(value))} over it go on, and no other is handed out until they end.` : ""}`,
  rate: (value) => `Jobs are handed out at ${value} a second at most.`,
};

function limited(now, most, inUnits) {
  const over = now - most;
  return over > 0
    ? `There are ${inUnits(now)}, ${inUnits(over)} over the limit: they stay, and puts are refused until fewer are there.`
    : `There are ${inUnits(now)} of at most ${inUnits(most)}.`;
}

/** The keys whose value differs from the tube's. */
function changed(values, policy) {
  return Object.entries(values).map(([key, value]) => [key, value.trim()]).filter(([key, value]) => value !== String(policy[jsonKey(key)] ?? ""));
}

const isSet = (key) => !["name", "file"].includes(key) && !key.endsWith("_from");

/** A policy as pairs of label and value; a value of the file says so. */
export function policyPairs(policy) {
  return Object.entries(policy ?? {}).filter(([key]) => isSet(key))
    .map(([key, value]) => [inWords(key), `${UNITS[key.replaceAll("_", "-")]?.[1](value) ?? value}${policy[`${key}_from`] === "file" ? " (file of --tubes)" : ""}`]);
}

export async function editPolicy(name, done) {
  const none = { ready: 0, reserved: 0, delayed: 0, buried: 0, policy: {} };
  const [{ keys }, tube] = await Promise.all([get(path("policy-keys")), get(path("tubes", name)).catch(() => none)]);
  const { policy } = tube;
  const field = ({ key, expected }) => {
    const isFiles = policy[`${jsonKey(key)}_from`] === "file";
    return h("label", {}, labelOf(key), h("input", { name: key, value: policy[jsonKey(key)], disabled: isFiles, placeholder: "none", autocomplete: "off", spellcheck: "false", maxlength: 220 }),
      h("small", {}, isFiles ? "Set by the file of --tubes; change it there." : expected));
  };
  ask({
    title: `Policy of ${name}`, button: "Set", done, fields: [h("div", { class: "grid" }, keys.map(field))],
    impact(values) {
      const lines = changed(values, policy).map(([key, value]) => (value ? IMPACTS[key]?.(value, tube, values) : `${inWords(key)} holds no longer.`) ?? `${inWords(key)} is ${value}.`);
      return lines.length ? lines.join("\n") : "Nothing is changed. An empty field removes what it says.";
    },
    run: async (values) => {
      const asked = changed(values, policy).map(([key, value]) => [key, value || null]);
      if (asked.length) await post(path("tubes", name, "policy"), Object.fromEntries(asked));
    },
  });
}
