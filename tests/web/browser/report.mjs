// Uses the page of a report as people do, and prints what it found as JSON.
//
// node report.mjs CHROMIUM FILE TUBE
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file, tube] = process.argv.slice(2);
const found = { errors: [] };
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"] });
const page = await (await browser.newContext({ viewport: { width: 420, height: 900 }, colorScheme: "dark" })).newPage();
page.on("console", (message) => message.type() === "error" && found.errors.push(message.text()));
page.on("pageerror", (error) => found.errors.push(String(error)));
page.on("request", (request) => request.url().startsWith("file:") || found.errors.push(request.url()));
await page.goto(pathToFileURL(file).href);

const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
found.theme = [await theme()];
await page.selectOption("#theme", "light");
found.theme.push(await theme());
found.overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

const over = page.locator("#plot-flow .u-over");
await over.scrollIntoViewIfNeeded();
const { x, y } = await over.boundingBox();
await page.mouse.move(x + 50, y + 60);
await page.mouse.down();
await page.mouse.move(x + 120, y + 60, { steps: 5 });
await page.mouse.up();
await page.waitForFunction(() => !document.getElementById("zoom").disabled);
await page.mouse.move(x + 60, y + 60);
await page.waitForFunction(() => document.getElementById("at").textContent);
found.at = await page.locator("#at").textContent();
await page.click("#zoom");
found.whole = await page.locator("#zoom").isDisabled();

await page.fill("#filter", tube);
found.rows = await page.locator("#table-tubes tr[data-tube]:visible").count();
await page.selectOption("#tube", tube);
found.legend = await page.locator("#plot-tubes .u-series .u-label").allTextContents();

const hints = () => page.locator("section.table .hint:visible").count();
found.hints = [await hints()];
await page.fill("#filter", "no such tube");
found.unnamed = await page.locator("#table-tubes p:visible").last().textContent();
found.unnamedTables = await page.locator("tr[data-tube]:visible").count();
found.unnamedFigure = await page.locator("#plot-tubes").textContent();
await page.fill("#filter", "");
found.shownTables = await page.locator("tr[data-tube]:visible").count() > 0;
await page.setViewportSize({ width: 1280, height: 900 });
await page.waitForFunction(() => ![...document.querySelectorAll(".hint")].some((hint) => !hint.hidden));
found.hints.push(await hints());
found.cut = await page.evaluate(() => [...document.querySelectorAll(".scroll")].filter((each) => each.scrollWidth > each.clientWidth + 1).length);
found.tileRows = await page.evaluate(() => new Set([...document.querySelectorAll(".tiles li")].map((tile) => tile.getBoundingClientRect().top)).size);
console.log(JSON.stringify(found));
await browser.close();
