// How heavy the console is, and how long a browser that has nothing of it takes to its first plot.
//
// node tests/web/browser/first_plot.mjs CHROMIUM ADDRESS
import { chromium } from "playwright-core";

const LOADS = 7;
const [executablePath, address] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"] });
const times = [];
for (let load = 0; load < LOADS; load += 1) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 } });
  const page = await context.newPage();
  await page.goto(`${address}/`);
  times.push(await page.evaluate(() => new Promise((found) => {
    const look = () => (document.querySelector(".u-wrap canvas") ? found(Math.round(performance.now())) : requestAnimationFrame(look));
    look();
  })));
  if (!load) {
    const sizes = await page.evaluate(() => performance.getEntries().filter(({ name }) => !name.includes("/live") && !name.includes("/api/")).map((entry) => entry.encodedBodySize ?? 0));
    console.log(`${(sizes.reduce((all, size) => all + size, 0) / 1024).toFixed(1)} KiB of ${sizes.filter(Boolean).length} files, compressed`);
  }
  await context.close();
}
await browser.close();
times.sort((one, other) => one - other);
console.log(`first plot after ${times.join(", ")} ms`);
