// Looking at many jobs part by part, and changing them.
import { ask, field, jobs, watched } from "./actions.js";
import { get, path, post } from "./api.js";
import { count, h, setText } from "./dom.js";

const POLL_MS = 500;
const lost = (unread) => unread ? `, ${count(unread)} unread` : "";

/** Ask until there is no more, or it is stopped; show how far it came. */
export class Looking {
  constructor() {
    this.bar = h("progress", { "aria-label": "Jobs looked at", max: 1, value: 0 });
    this.note = h("span", { class: "note", role: "status" });
    this.button = h("button", { type: "button", on: { click: () => this.stop() } }, "Stop");
    this.element = h("div", { class: "bar", hidden: true }, this.bar, this.note, this.button);
  }

  /**
   * take: given each reply, shows it, and gives what has been found, in words; "" ends it.
   * Gives whether it came to the end; `wrong` says why it could not.
   */
  async run(what, query, take) {
    const me = this.serial = {};
    [this.looked, this.unread, this.newest, this.wrong] = [0, 0, null, ""];
    this.element.hidden = this.button.hidden = this.bar.hidden = false;
    setText(this.note, "Looking");
    this.note.classList.remove("bad");
    let [cursor, told] = ["", ""];
    try {
      do {
        const part = await get(path(what), { ...query, cursor });
        if (this.serial !== me) return false;
        this.looked += part.looked;
        this.unread += part.unread;
        this.newest ??= part.newest_job;
        cursor = part.cursor;
        told = take(part);
        this.bar.max = Math.max(1, part.total, this.looked);
        this.bar.value = cursor ? this.looked : this.bar.max;
        setText(this.note, `Looked at ${count(this.looked)} of ${jobs(Math.max(part.total, this.looked))}: ${told}${lost(this.unread)}`);
      } while (cursor && !this.isFull);
      this.#ended();
      return !cursor;
    } catch (error) {
      if (this.serial !== me) return false;
      setText(this.note, this.wrong = error.message);
      this.note.classList.add("bad");
      this.#ended();
      return false;
    }
  }

  #ended() {
    [this.serial, this.isFull] = [null, false];
    this.button.hidden = this.bar.hidden = true;
  }

  /** End it behind this reply. */
  enough() { this.isFull = true; }

  stop() {
    if (this.serial) setText(this.note, `${this.note.textContent}; stopped`);
    this.#ended();
  }
}

const ENDED = { done: "Done", stopped: "Stopped", failed: "Failed" };

/** What was begun to change many jobs, and how far it is. done: called when one has ended. */
export class Runs {
  constructor(done) {
    this.done = done;
    this.element = h("div", { role: "status" });
  }

  /** Those that were begun before, or by others. */
  async shown() {
    const { runs } = await get(path("runs"));
    runs.filter((run) => run.state === "running").forEach((run) => this.follow(run));
  }

  remove() { this.isGone = true; }

  async follow(run) {
    const bar = h("progress", { "aria-label": `Run ${run.run}`, max: Math.max(1, run.count) });
    const note = h("span", { class: "note" });
    const stop = h("button", { type: "button", on: { click: () => post(path("runs", run.run, "stop")) } }, "Stop");
    this.element.append(h("div", { class: "bar card" }, bar, note, stop));
    for (;;) {
      bar.value = run.done + run.skipped;
      const end = ENDED[run.state] ?? "Under way";
      setText(note, `${end}: ${run.what}: ${count(run.done)} of ${jobs(run.count)} changed, ${count(run.skipped)} skipped${lost(run.unread)}${run.why ? `: ${run.why}` : ""}`);
      if (run.state !== "running" || this.isGone) break;
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
      try { run = await get(path("runs", run.run)); } catch (error) { run = { ...run, state: "failed", why: error.message }; }
    }
    stop.hidden = bar.hidden = true;
    if (!this.isGone) this.done();
  }

  /**
   * Ask what is to be done with many jobs, and begin it.
   *
   * home: the tube that they are dead letters of; "" if they are none, or of several tubes.
   * all: how many dead letters that tube has; 0 if it is not known.
   */
  async change({ given, number, newest, home = "", all = 0, ids = undefined }) {
    const place = given.tube ? `in ${given.tube}${await watched(given.tube)}` : "in the tubes that they are in";
    const back = home && `ready in ${home}${await watched(home)}, their attempts counted from 0.`;
    const words = {
      ...(home && { return: () => `Returns ${jobs(number)}: ${back}` }),
      ...(all > number && { "kick-dead": () => `Returns all dead letters of ${home}, ${jobs(all)}: ${back}` }),
      kick: () => `Makes ${jobs(number)} ready ${place}.`,
      move: ({ to }) => `Takes ${jobs(number)} to ${to || "that tube"}, each as it is.`,
      delete: () => `Deletes ${jobs(number)} for good.`,
    };
    const names = { return: `Return to ${home}`, "kick-dead": `Return all of ${home}`, kick: "Kick", move: "Move", delete: "Delete" };
    const choice = h("select", { name: "action", on: { change: shown } }, Object.keys(words).map((name) => h("option", { value: name }, names[name])));
    const to = h("input", { name: "to", maxlength: 200, spellcheck: "false" });
    const toField = field("To the tube", to);
    ask({
      title: `Change ${jobs(number)}`, button: "Do it", isDanger: true, fields: [field("What", choice), toField],
      impact: (values) => `${words[values.action](values)} What has changed since it was counted is skipped.`,
      run: async ({ action, to: target }) => {
        const whole = action === "kick-dead" ? { tube: home, count: all } : { ...given, ids, count: number, newest_job: newest };
        this.follow(await post(path("runs"), { action, ...whole, ...(action === "move" && { to: target }) }));
      },
    });
    function shown() {
      toField.hidden = choice.value !== "move";
      to.required = !toField.hidden;
    }
    shown();
  }
}
