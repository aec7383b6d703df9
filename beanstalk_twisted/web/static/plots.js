// Plots over time, by uPlot.  Each series has a dash of its own: colour is not the only cue.
/* global uPlot */
import { clock, h, setText } from "./dom.js";

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const HEIGHT = 170;
const LEAST_S = 60;
const SVG = "http://www.w3.org/2000/svg";

function sample(at) {
  const svg = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "line");
  const put = (element, values) => Object.entries(values).forEach(([key, value]) => element.setAttribute(key, value));
  put(svg, { width: 26, height: 8, "aria-hidden": "true", class: `line${at}` });
  put(line, { x1: 0, y1: 4, x2: 26, y2: 4, "stroke-width": 2, "stroke-dasharray": DASHES[at].join(" ") });
  svg.append(line);
  return svg;
}

/**
 * A plot with its legend.
 *
 * series: `[label, ...]`; format: a value as text, for the axis and the legend; steps: between
 * the axis's labels, if round decimal numbers do not look round.
 */
export class Plot {
  constructor(title, series, format, steps = null) {
    Object.assign(this, { title, series, format, steps });
    this.values = series.map(() => h("b"));
    const legend = series.map((label, at) => h("li", {}, sample(at), h("span", {}, label), this.values[at]));
    this.heading = h("h2", {}, title);
    this.when = h("time", { class: "when" });
    this.canvas = h("div", { class: "canvas", role: "img", "aria-label": `${title}: no figures yet` });
    this.element = h("section", { class: "plot" }, h("div", { class: "plot-head" }, this.heading, this.when), h("ul", { class: "legend" }, legend), this.canvas);
    this.watcher = new ResizeObserver(() => this.#fit());
    this.watcher.observe(this.canvas);
    this.data = [[], ...series.map(() => [])];
  }

  /** Draw columns: times in seconds, then one a series. */
  show(columns) {
    this.data = columns;
    if (this.plot) this.plot.setData(columns);
    else this.#fit();
    this.#tell(null);
  }

  #fit() {
    const width = Math.floor(this.canvas.clientWidth);
    if (!width || this.data[0].length === 0) return;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.#make(width);
  }

  #make(width) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const span = (u) => u.scales.x.max - u.scales.x.min;
    this.plot = new uPlot({
      width, height: HEIGHT, legend: { show: false }, padding: [8, 30, 0, 0],
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 6 } },
      scales: { x: { range: () => this.#span() }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, space: 90, size: 28, values: (u, ticks) => ticks.map((s) => clock(s * 1000, span(u) < 240)) },
        { ...axis, space: 36, ...(this.steps && { incrs: this.steps }), values: (u, ticks) => ticks.map((value) => this.format(value)), size: (u, labels) => 14 + 7.2 * Math.max(3, ...(labels ?? [""]).map((label) => label.length)) },
      ],
      series: [{}, ...this.series.map((label, at) => ({ label, stroke: colour(`--s${at}`), width: 2, dash: DASHES[at], points: { show: false } }))],
      hooks: { setCursor: [(u) => this.#tell(u.cursor.idx)] },
    }, this.data, this.canvas);
  }

  /** What is shown, seconds: at least a minute, also of a single point. */
  #span() {
    const last = this.data[0].at(-1);
    return [Math.min(this.data[0][0], last - LEAST_S), last];
  }

  #tell(at) {
    const [times, ...columns] = this.data;
    const place = at ?? times.length - 1;
    if (place < 0) return;
    const values = columns.map((column) => column[place]);
    values.forEach((value, series) => setText(this.values[series], value === null || value === undefined ? "" : this.format(value)));
    setText(this.when, at === null || at === undefined ? "" : clock(times[place] * 1000, true));
    if (at === null) this.canvas.setAttribute("aria-label", `${this.title}: ${this.series.map((label, n) => `${label} ${this.values[n].textContent}`).join(", ")}`);
  }

  /** Draw anew with the colours of the theme. */
  recolour() {
    this.plot?.destroy();
    this.plot = null;
    this.#fit();
  }

  remove() {
    this.watcher.disconnect();
    this.plot?.destroy();
  }
}
