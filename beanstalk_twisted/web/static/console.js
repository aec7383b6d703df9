// The page: which view is shown, the stream's state, theme and keys.
import { connectionsPage } from "./connections.js";
import { h, setText } from "./dom.js";
import { deadPage } from "./groups.js";
import { jobPage } from "./jobs.js";
import { Live } from "./live.js";
import { logPage } from "./log.js";
import { overview } from "./overview.js";
import { searchPage } from "./search.js";
import { tubePage } from "./tube.js";
import { tubesPage } from "./tubes.js";

const REFRESH_MS = 2000;
const [main, stateShown, trouble, dialog] = ["main", "state", "trouble", "dialog"].map((id) => document.getElementById(id));
const live = new Live();
let view = null;
let isKnown = false; // what the server is, and whether it may be changed

/** By the first word of the address behind `#/`. */
const VIEWS = {
  "": overview,
  tubes: (asked) => (asked.words[0] ? tubePage(asked) : tubesPage(asked)),
  jobs: jobPage,
  search: searchPage,
  dead: deadPage,
  connections: connectionsPage,
  log: logPage,
};

function go() {
  const words = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const make = VIEWS[words[0]] ?? nowhere;
  view?.remove?.();
  view = make({ live, words: words.slice(1) });
  main.replaceChildren(view.element);
  document.title = `${view.title} · ${live.about.host ?? "beanstalk-twisted"}`;
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.hash.replace(/^#\/?/, "") === words[0];
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  delete main.dataset.ready;
  const shown = view;
  Promise.resolve(view.shown?.()).finally(() => { if (view === shown) main.dataset.ready = ""; });
}

function decoded(word) {
  try { return decodeURIComponent(word); } catch { return word; }
}

function nowhere() {
  return { title: "Not found", element: h("div", {}, h("h1", {}, "Not found"), h("p", {}, "There is no such page. ", h("a", { href: "#/" }, "Overview"))) };
}

// The stream's state.

const STATES = { connecting: "Connecting", live: "Live", lost: "Connection lost, retrying", paused: "Paused", denied: "Not allowed" };

live.addEventListener("state", () => {
  const [why, isDenied, silent] = [live.about.why_not_ready ?? "", live.state === "denied", live.silentSeconds];
  // Said once: a reader of the screen is not to hear each second.
  stateShown.setAttribute("aria-live", silent && document.body.classList.contains("silent") ? "off" : "polite");
  setText(stateShown, silent ? `No data for ${silent} s` : live.state === "live" && why ? "Not ready" : STATES[live.state]);
  stateShown.className = live.state === "live" && !why && !silent ? "live" : live.state === "lost" || isDenied || why || silent ? "bad" : "";
  document.body.classList.toggle("silent", silent > 0);
  if (isDenied) trouble.replaceChildren("Not allowed: ", h("a", { href: `login${location.hash}` }, "log in"), " with a token that may look at all tubes.");
  else setText(trouble, why ? `Not ready: ${why}` : "");
  trouble.hidden = !why && !isDenied;
  if (!live.about.host) return;
  if (!isKnown) { isKnown = true; view?.refresh?.(); }
  setText(document.getElementById("host"), live.about.host);
  document.getElementById("access").hidden = !live.about.has_access;
  setText(document.getElementById("version"), `beanstalk-twisted ${live.about.version}${live.about.may_write ? "" : " · read-only (no --http-write)"}${live.about.replication ? ` · ${live.about.replication}` : ""}`);
});

setInterval(() => { if (!document.hidden && !dialog.open && live.state === "live" && !live.silentSeconds) view?.refresh?.(); }, REFRESH_MS);

// Theme.

const THEMES = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const themeButton = document.getElementById("theme");
let theme = stored() ?? "system";

function stored() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function paint() {
  const isDark = theme === "dark" || (theme === "system" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  setText(themeButton, `Theme: ${theme}`);
  view?.recolour?.();
}

function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try { localStorage.setItem("theme", theme); } catch { /* It is not kept. */ }
  paint();
}

themeButton.addEventListener("click", nextTheme);
dark.addEventListener("change", paint);

// Find, and keys.

const find = document.getElementById("find-text");
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = find.value.trim();
  if (text) location.hash = /^[0-9]+$/.test(text) ? `#/jobs/${text}` : `#/tubes/${encodeURIComponent(text)}`;
});

const KEYS = { o: "#/", t: "#/tubes", s: "#/search", b: "#/dead", c: "#/connections", l: "#/log" };
const HELP = [["/", "Open a tube or a job"], ["o", "Overview"], ["t", "Tubes"], ["s", "Search"], ["b", "Dead letters, buried jobs"], ["c", "Connections"], ["l", "Log"], ["d", "Change the theme"], ["?", "These keys"]];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (KEYS[event.key]) location.hash = KEYS[event.key];
  else if (event.key === "/") { event.preventDefault(); find.focus(); }
  else if (event.key === "d") nextTheme();
  else if (event.key === "?") showKeys();
});

function showKeys() {
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, "Keys"),
    h("dl", { class: "facts" }, HELP.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
    h("button", { value: "close" }, "Close")));
  dialog.showModal();
}

paint();
addEventListener("hashchange", () => { dialog.close(); go(); main.focus({ preventScroll: true }); });
go();
live.start();
