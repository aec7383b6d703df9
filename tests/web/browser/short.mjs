// Opens the report of a short history, and prints what it found as JSON.
//
// node short.mjs CHROMIUM FILE
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file] = process.argv.slice(2);
const found = { errors: [] };
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"] });
const page = await (await browser.newContext({ viewport: { width: 900, height: 900 } })).newPage();
page.on("console", (message) => message.type() === "error" && found.errors.push(message.text()));
page.on("pageerror", (error) => found.errors.push(String(error)));
await page.goto(pathToFileURL(file).href);

/** The opacity of a figure's first pixels at the left edge, from the top down. */
const column = (key) => page.evaluate((name) => {
  const canvas = document.querySelector(`#${name} canvas`);
  const [over, whole] = [document.querySelector(`#${name} .u-over`), canvas].map((each) => each.getBoundingClientRect());
  const scale = canvas.width / whole.width;
  const [left, top] = [over.left - whole.left + 6, over.top - whole.top].map((each) => Math.round(each * scale));
  const pixels = canvas.getContext("2d").getImageData(left, top, 1, Math.floor(over.height * scale)).data;
  return [...Array(pixels.length / 4).keys()].map((at) => pixels[4 * at + 3]);
}, key);
const depth = await column("plot-depth");
found.top = Math.max(...depth.slice(0, 4));
found.filled = depth.filter((opacity) => opacity === 255).length / depth.length;

const over = page.locator("#plot-flow .u-over");
await over.scrollIntoViewIfNeeded();
const { x, y } = await over.boundingBox();
await page.mouse.move(x + 1, y + 60);
await page.waitForFunction(() => document.getElementById("at").textContent);
found.at = await page.locator("#at").textContent();
found.legend = await page.locator("#plot-flow .u-series").allTextContents();
console.log(JSON.stringify(found));
await browser.close();
