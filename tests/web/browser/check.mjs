// Walks through the console in a real browser, and prints what it found as JSON.
//
// node check.mjs CHROMIUM ADDRESS PICTURES JOB TUBE GUARDED WEAK STRONG PROCESS DEAD
//
// PROCESS is that of the server at ADDRESS; DEAD is the id of a dead letter.
// GUARDED is a console that asks for tokens; one that may look at all tubes is STRONG.
import { mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, address, pictures, job, tube, guarded, weak, strong, server, dead] = process.argv.slice(2);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIZES = { wide: { width: 1400, height: 1000 }, phone: { width: 420, height: 900 } };
const PAGES = { overview: "", tubes: "tubes", tube: `tubes/${encodeURIComponent(tube)}`, job: `jobs/${job}`, connections: "connections", log: "log", search: `search/${encodeURIComponent("text=script&any_case=1&states=ready,delayed,buried")}`, dead: "dead", kinds: "dead", missing: "tubes/not-there" };
// Those that ask for what is not there.
const MISSING = /status of 404/;
const found = { errors: [], violations: [], overflows: [], dialogs: 0, impacts: [] };

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"] });

/**
 * Errors of scripts, and of the Content-Security-Policy; a dialog of its own means that markup ran.
 *
 * missing: what is no error.
 */
function watch(page, missing = /^$/) {
  page.on("console", (message) => message.type() === "error" && !missing.test(message.text()) && found.errors.push(message.text()));
  page.on("pageerror", (error) => found.errors.push(String(error)));
  page.on("dialog", (dialog) => { found.dialogs += 1; return dialog.dismiss(); });
}

/** Once with the page's own policy, for errors; axe needs it off. */
async function walk(bypassCSP, sizes, visit) {
  for (const colorScheme of ["light", "dark"]) {
    for (const size of sizes) {
      const viewport = SIZES[size];
      const context = await browser.newContext({ viewport, colorScheme, bypassCSP, reducedMotion: "reduce" });
      const page = await context.newPage();
      watch(page, MISSING);
      for (const [name, where] of Object.entries(PAGES)) {
        await page.goto(`${address}/#/${where}`);
        await page.waitForSelector("#state.live");
        await page.waitForSelector("main[data-ready]");
        if (name === "kinds") await page.getByRole("button", { name: "By kind of body" }).click();
        await visit(page, `${name}-${size}-${colorScheme}`);
      }
      await context.close();
    }
  }
}

/** How much wider than its window the page is: as it is, and with labels as long as German ones. */
function widths() {
  const over = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const before = over();
  const texts = [];
  for (const label of document.querySelectorAll("dt, th, h2, nav a, button, option, .legend span, .note, #state")) {
    const words = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) texts.push([words.currentNode, words.currentNode.data]);
  }
  for (const [node, text] of texts) node.data = text.replace(/\p{L}{3,}/gu, "$&verarbeitungsverwaltung");
  const after = over();
  for (const [node, text] of texts) node.data = text;
  return [before, after];
}

async function picture(page, name) {
  await page.waitForTimeout(name.startsWith("overview") ? 2500 : 400);
  await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true });
  const [over, overLong] = await page.evaluate(widths);
  if (over > 0) found.overflows.push(`${name}: ${over} px`);
  if (overLong > 0) found.overflows.push(`${name} with long labels: ${overLong} px`);
}

async function check(page, name) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  found.violations.push(...violations.map(({ id, nodes }) => `${name}: ${id}: ${nodes[0].html}`));
}

/** The dialog, when it is open: until then it has what was asked before. */
async function dialogOf(page) {
  await page.waitForSelector("#dialog[open]");
  return page.locator("#dialog");
}

/** Fill in the dialog, and confirm it. */
async function confirm(page, values) {
  const dialog = await dialogOf(page);
  for (const [name, value] of Object.entries(values)) {
    const field = dialog.locator(`[name=${name}]`);
    if ((await field.evaluate((element) => element.tagName)) === "SELECT") await field.selectOption(value);
    else await field.fill(value);
  }
  found.impacts.push(await dialog.locator(".told").textContent());
  await dialog.locator("button[type=submit]").click();
  await page.waitForFunction(() => !document.getElementById("dialog").open);
}

const press = (page, name) => page.locator(".actions button", { hasText: new RegExp(`^${name}$`) }).click();

/** All that changes something, on a tube of its own. */
async function act() {
  const context = await browser.newContext({ viewport: SIZES.wide });
  const page = await context.newPage();
  watch(page, /status of 40[04]/);
  const get = async (where) => (await page.request.get(`${address}/api/v1/${where}`)).json();
  await page.goto(`${address}/#/tubes/made`);
  await page.waitForSelector("#state.live");
  await page.waitForSelector(".actions button");
  found.offered_at_first = await page.locator(".actions button:enabled").allTextContents();
  await press(page, "Put a job");
  await confirm(page, { body: '{"n": 1}', priority: "7", delay: "600", keep: "mine" });
  await press(page, "Put a job");
  await confirm(page, { template: "mine", delay: "0" });
  found.put = (await get("tubes/made/jobs?body_bytes=9")).jobs.map(({ state, pri, body }) => [state, pri, body.text]);
  await page.waitForSelector(".actions button:enabled:text-is('Kick')");
  await press(page, "Kick");
  await confirm(page, { count: "1" });
  await press(page, "Pause");
  await confirm(page, { seconds: "300" });
  const tube = await get("tubes/made");
  found.kicked_and_paused = [tube.ready, tube.delayed, tube.pause_seconds_left > 0];
  await press(page, "Resume");
  await confirm(page, {});
  await press(page, "Policy");
  await page.fill("#dialog [name=max-age]", "0");
  await page.click("#dialog button[type=submit]");
  found.wrong = await page.textContent("#dialog label:has([aria-invalid]) [role=alert]");
  await confirm(page, { "max-age": "", "max-jobs": "1", backoff: "5" });
  found.policy = (await get("tubes/made")).policy;
  await press(page, "Policy");
  await confirm(page, { "max-jobs": "", backoff: "" });
  const id = (await get("tubes/made/jobs")).jobs[0].id;
  found.id = id;
  await page.goto(`${address}/#/jobs/${id}`);
  await press(page, "Edit");
  await confirm(page, { body: "<script>alert(1)</script>", priority: "3" });
  await press(page, "Move");
  await confirm(page, { tube: "elsewhere" });
  const job = await get(`jobs/${id}`);
  found.edited_and_moved = [job.tube, job.pri, job.body.text];
  await press(page, "Delete");
  await confirm(page, {});
  found.deleted = (await page.request.get(`${address}/api/v1/jobs/${id}`)).status();
  await page.goto(`${address}/#/tubes/made`);
  await press(page, "Flush");
  await confirm(page, { state: "all" });
  found.flushed = (await page.request.get(`${address}/api/v1/tubes/made`)).status();
  await page.goto(`${address}/#/`);
  await press(page, "Refuse new jobs");
  await confirm(page, {});
  await page.waitForSelector("#trouble:not([hidden])");
  found.drains = await page.textContent("#trouble");
  await press(page, "Take new jobs");
  await confirm(page, {});
  await page.waitForSelector("#state.live");
  await context.close();
}

/** A tube that a path cannot name, and one with a history from before the page was opened. */
async function visit() {
  const context = await browser.newContext({ viewport: SIZES.wide });
  const page = await context.newPage();
  watch(page);
  await page.goto(`${address}/#/tubes/..`);
  await page.waitForSelector(".facts dd");
  found.dots = [await page.textContent("h1"), await page.textContent(".facts dd")];
  await page.goto(`${address}/#/tubes/${encodeURIComponent(tube)}`);
  const rows = async () => (await (await page.request.get(`${address}/api/v1/tubes/${encodeURIComponent(tube)}/history`)).json()).rows.length;
  while ((await rows()) < 1) await page.waitForTimeout(500);
  await page.reload();
  await page.waitForSelector(".u-wrap canvas");
  found.history = await rows();
  await page.goto(`${address}/#/connections`);
  found.held = await page.textContent("td .plain li");
  found.connections = await page.locator("tbody tr").count();
  await page.goto(`${address}/#/log`);
  await page.getByRole("link", { name: "Show the jobs" }).click();
  await page.waitForSelector("[role=status]:text-matches('found$')");
  found.keep = [await page.inputValue("[name=where]"), await page.locator("tbody tr").count()];
  await context.close();
}

/** Groups and what a search has found, changed as a whole. */
async function actOnMany() {
  const context = await browser.newContext({ viewport: SIZES.phone });
  const page = await context.newPage();
  watch(page);
  const ended = async (text) => { await page.waitForSelector(`[role=status] .note:text-matches("^Done.*${text}")`); return page.locator("[role=status] .note").last().textContent(); };
  await page.goto(`${address}/#/dead`);
  await page.locator("tr", { hasText: "doomed" }).getByRole("button", { name: "Change" }).click();
  await confirm(page, { action: "kick" });
  found.runs = [await ended("2 of 2 jobs changed")];
  await page.locator("tr", { hasText: "dying-too" }).getByRole("button", { name: "Change" }).click();
  await page.locator("#dialog [name=action]").selectOption("move");
  await page.screenshot({ path: `${pictures}/change-phone.png` });
  await confirm(page, { action: "return" });
  found.runs.push(await ended("1 of 1 job changed"));
  await page.locator("tr", { hasText: "grave" }).first().getByRole("button", { name: "Change" }).click();
  const choice = (await dialogOf(page)).locator("[name=action]");
  found.choices = await choice.locator("option").allTextContents();
  found.chosen = await choice.inputValue();
  await page.screenshot({ path: `${pictures}/return-phone.png` });
  await choice.selectOption("kick");
  found.kick_there = await page.locator("#dialog .told").textContent();
  await confirm(page, { action: "kick-dead" });
  found.runs.push(await ended("3 of 3 jobs changed"));
  await page.goto(`${address}/#/search`);
  await page.getByLabel("Text in the body").fill("DOOMED body");
  await page.getByLabel("Any case").check();
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=2 found");
  await page.locator("tbody input").first().check();
  await press(page, "Change 1 ticked");
  await confirm(page, { action: "delete" });
  found.runs.push(await ended("delete"));
  await press(page, "Change all 1 found");
  await confirm(page, { action: "move", to: "elsewhere" });
  found.runs.push(await ended("move"));
  await page.goBack();
  await page.waitForFunction(() => location.hash === "#/search");
  await page.goto(`${address}/#/tubes/${encodeURIComponent(tube)}`);
  await page.getByRole("button", { name: "By kind of body" }).click();
  await page.locator("tbody").first().locator("tr").first().getByRole("link", { name: "Show" }).click();
  await page.waitForFunction(() => document.title.startsWith("Search"));
  await page.waitForSelector("text=1 found");
  await context.close();
}

/** A dead letter goes back from its own page, and from what a search has found. */
async function returnOne() {
  const page = await browser.newPage({ viewport: SIZES.wide });
  watch(page);
  const get = async (where) => (await page.request.get(`${address}/api/v1/${where}`)).json();
  await page.goto(`${address}/#/jobs/${dead}`);
  await page.getByRole("button", { name: "Kick", exact: true }).click();
  found.kick_one = await (await dialogOf(page)).locator(".told").textContent();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Return to mortal" }).click();
  await confirm(page, {});
  await page.getByRole("button", { name: "Return to mortal" }).waitFor({ state: "detached" });
  const job = await get(`jobs/${dead}`);
  found.returned = [job.tube, job.state, job.reserves, job.dead_from ?? null];
  await page.goto(`${address}/#/search/${encodeURIComponent("where=dead-from=mortal&begun=1")}`);
  await page.getByRole("button", { name: "Change all 3 found" }).click();
  found.chosen_of_found = await (await dialogOf(page)).locator("[name=action]").inputValue();
  await page.close();
}

/** The server hangs for longer than a connection is waited for, then its stream is refused. */
async function hang() {
  const page = await browser.newPage({ viewport: SIZES.wide });
  watch(page, /ERR_FAILED/);
  const shown = async () => [await page.textContent("#state"), await page.evaluate(() => Number(getComputedStyle(document.querySelector("main")).opacity))];
  await page.goto(`${address}/`);
  await page.waitForSelector("#state.live");
  await page.waitForSelector("main[data-ready]");
  found.hangs = [await shown()];
  process.kill(Number(server), "SIGSTOP");
  await page.waitForSelector("#state:text-matches('^No data')");
  found.hangs.push(await shown());
  await page.screenshot({ path: `${pictures}/silent.png` });
  await page.waitForSelector("#state:text-matches('for (1[6-9]|[2-9][0-9]) s')");
  process.kill(Number(server), "SIGCONT");
  await page.waitForSelector("#state.live");
  found.hangs.push(await shown());
  await page.route(/\/live\?/, (route) => route.abort());
  await page.reload();
  await page.waitForSelector("#state:text-matches('^No data')");
  found.hangs.push(await shown());
  await page.unroute(/\/live\?/);
  await page.waitForSelector("#state.live");
  found.hangs.push(await shown());
  await page.close();
}

/** A condition that is wrong. */
async function mistake() {
  const page = await browser.newPage({ viewport: SIZES.wide });
  watch(page, /status of 400/);
  await page.goto(`${address}/#/search/${encodeURIComponent("where=color%3Dred&begun=1")}`);
  found.wrong_search = [await page.textContent(".note.bad"), await page.getAttribute("[name=where]", "aria-invalid"), await page.locator(".listing").isHidden()];
  await page.screenshot({ path: `${pictures}/mistake.png` });
  await page.close();
}

/** A token that may not look, and one that may; then another site, with the login's cookie. */
async function logIn() {
  const context = await browser.newContext({ viewport: SIZES.phone });
  const other = await context.newPage();
  watch(other, /status of 40[13]/);
  await other.goto(`${guarded}/#/connections`);
  await other.waitForSelector("#trouble:not([hidden])");
  found.denied = [await other.textContent("#state"), await other.textContent("#trouble")];
  await other.screenshot({ path: `${pictures}/denied.png` });
  await other.click("#trouble a");
  await other.fill("#token", weak);
  await other.keyboard.press("Enter");
  found.denied.push(await other.textContent("#trouble:not([hidden])"));
  await other.screenshot({ path: `${pictures}/login.png` });
  await other.fill("#token", strong);
  await other.click("button[type=submit]");
  await other.waitForSelector("#state.live");
  found.logged_in = new URL(other.url()).pathname + new URL(other.url()).hash;
  found.cookies = (await context.cookies()).map(({ name, httpOnly, sameSite, expires }) => [name.replace(/\d+$/, "PORT"), httpOnly, sameSite, expires]);
  found.readable = await other.evaluate(() => document.cookie);
  found.attacks = await attacks(context);
  found.rates = await other.evaluate(async () => {
    const { compact, rate } = await import("/static/dom.js");
    return [...[0, 1 / 30, 0.2, 12.34, 1500].map(compact), ...[0.01, 123.4].map(rate)];
  });
  await other.goto(`${guarded}/#/connections`);
  found.nobody = await other.textContent("td.empty");
  await other.click("#access");
  await other.click("#out");
  await other.waitForSelector("#trouble:not([hidden])");
  found.logged_out = [await other.textContent("#state"), (await context.cookies()).length];
  await context.close();
}

/** What a page of another port, to which the cookie goes too, gets: forms, scripts and frames. */
async function attacks(context) {
  const site = createServer((_, reply) => reply.setHeader("Content-Type", "text/html").end("<h1>Other</h1>"));
  await new Promise((listens) => site.listen(0, "127.0.0.1", listens));
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${site.address().port}/`);
  const got = await page.evaluate(async (where) => {
    const asked = async (path, how) => { try { return (await fetch(where + path, { credentials: "include", ...how })).status; } catch { return "refused"; } };
    const own = { "X-Beanstalk-Request": "1" };
    return [
      await asked("/api/v1/server"),
      await asked("/logout", { method: "POST" }),
      await asked("/logout", { method: "POST", headers: own }),
      (await fetch(`${where}/logout`, { method: "POST", mode: "no-cors", credentials: "include" }).catch(() => ({ type: "blocked" }))).type,
    ];
  }, guarded);
  await page.close();
  site.close();
  return got;
}

/** Keys, and a stream that ends while nobody sees the page. */
async function keys() {
  const page = await browser.newPage({ viewport: SIZES.wide });
  watch(page);
  await page.goto(`${address}/`);
  await page.waitForSelector("#state.live");
  await page.keyboard.press("c");
  await page.waitForFunction(() => document.title.startsWith("Connections"));
  await page.keyboard.press("/");
  await page.keyboard.type(job);
  await page.keyboard.press("Enter");
  await page.waitForFunction((id) => document.title.startsWith(`Job ${id}`), job);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("?");
  found.help = await page.locator("#dialog dd").count();
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.goBack();
  await page.waitForFunction(() => document.title.startsWith("Connections"));
  found.dialog_after_back = await page.evaluate(() => document.getElementById("dialog").open);
  const hide = (isHidden) => page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
  await hide(true);
  found.while_hidden = await page.textContent("#state");
  await hide(false);
  await page.waitForSelector("#state.live");
  await page.close();
}

mkdirSync(pictures, { recursive: true });
await keys();
await mistake();
await logIn();
await act();
await visit();
await returnOne();
await actOnMany();
await hang();
await walk(false, ["wide", "phone"], picture);
await walk(true, ["wide"], check);
await browser.close();
console.log(JSON.stringify(found));
