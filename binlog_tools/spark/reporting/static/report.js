// The page of a report: figures and tables of the JSON in #content.
//
// All text goes through textContent, or onto a canvas; there is no markup made of text here.
"use strict";

(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const now = content.period;
  const ALL = "all tubes";
  const MAX_LINES = 8;
  const HEIGHT = 240;
  /** Of figures on paper, A4 across, so that two rows of them stand on a page. */
  const [PRINT_WIDTH, PRINT_WIDE, PRINT_HEIGHT] = [470, 980, 150];
  /** Tiles in a row, at most, where there is room, and where there is some. */
  const [WIDE_TILES, SOME_TILES] = [8, 4];
  /** Pixels for half of the time under the right edge. */
  const EDGE = 28;
  const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((number) => `--c${number}`);
  const STATES = [["ready", 0], ["reserved", 1], ["delayed", 2], ["buried", 3]];
  const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"], [1, "ms"], [0.001, "µs"]];
  /** Milliseconds that a logarithmic axis marks: what people count in. */
  const LEAST = 0.001;
  const LENGTHS = [LEAST, 0.01, 0.1, 1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000, 8_640_000_000, 86_400_000_000];
  const NO_TUBE = "No tube here has this in its name.";
  const plots = new Map();
  const root = document.documentElement;
  const chosen = { tube: ALL, filter: "", metric: "ready", zoom: null, theme: "auto" };

  /** An element; children are elements or text. */
  function h(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const countText = (value) => (value === null ? "-" : value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 }));

  /** Milliseconds in the unit that suits them. */
  function lengthText(milliseconds) {
    if (milliseconds === null) return "-";
    if (milliseconds <= LEAST) return "≤ 1 µs";
    const [size, unit] = UNITS.find(([least]) => milliseconds >= least * 0.9995) ?? [1e-6, "ns"];
    return `${Number((milliseconds / size).toPrecision(3))} ${unit}`;
  }

  const timeText = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 16);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // ---- What is drawn

  /** Known by the minute only: what stood in the queue. */
  const STANDING = new Set(["ready", "reserved", "delayed", "buried", "oldest"]);

  /** Where a tube's numbers of a name are: all tubes together have narrower steps. */
  function place(period, tube, name) {
    const steps = period.fine && !STANDING.has(name) ? period.fine : period;
    const series = tube === ALL ? steps.whole : steps.tubes;
    const at = series.names.indexOf(tube);
    return { series, numbers: at < 0 ? null : series.numbers[at] };
  }

  /** The beginnings of the steps, and the end of the last. */
  const timesOf = ({ start, width, count }) => Array.from({ length: count + 1 }, (_, at) => start + at * width);

  /** What is left out was nothing in every step; of lengths, nothing is no measurement. */
  function valuesOf({ series, numbers }, name) {
    const isLength = /_p\d+$|oldest/.test(name);
    const found = numbers === null ? null : numbers[name];
    const values = found ?? new Array(series.count).fill(numbers === null || isLength ? null : 0);
    // Nobody waits: there is no oldest.  A wait of 0 was measured; the axis begins at 1 µs.
    const shown = !isLength ? values : values.map((value) => (value === null || (value === 0 && name === "oldest") ? null : Math.max(value, LEAST)));
    return [...shown, shown.at(-1) ?? null];
  }

  const perMinute = (values, { width }) => values.map((value) => (value === null ? null : value * 60 / width));

  const FIGURES = {
    depth: {
      title: "Jobs in the queue", of: "ready", text: "",
      note: () => `How many jobs there were at the end of each step of ${lengthText(place(now, chosen.tube, "ready").series.width * 1000)}, by what they were doing, one above the other.`,
      rows() {
        const at = place(now, chosen.tube, "ready");
        return STATES.map(([name, number]) => ({ label: name, values: valuesOf(at, name), colour: COLOURS[number] })).reverse();
      },
      isStack: true, show: countText,
    },
    flow: {
      title: "Arrivals and throughput", of: "puts", text: "Jobs put, jobs deleted and failed runs (time-out, release, bury or lost connection), a minute on average in each step.",
      rows() {
        const at = place(now, chosen.tube, "puts");
        const rate = (name) => perMinute(valuesOf(at, name), at.series);
        return [
          { label: "put", values: rate("puts"), colour: COLOURS[0], fill: true }, { label: "deleted", values: rate("deletes"), colour: COLOURS[1] },
          { label: "failed", values: rate("failed"), colour: COLOURS[3] },
        ];
      },
      show: (value) => (value === null ? "-" : `${countText(value)}/min`),
    },
    share: {
      title: "Share of failed runs", of: "reserves", text: "Of 100 runs that began in each step, how many ended in a time-out, release, bury or lost connection. A gap is a step in which none began.",
      rows() {
        const at = place(now, chosen.tube, "reserves");
        const runs = valuesOf(at, "reserves");
        const values = valuesOf(at, "failed").map((failed, step) => (runs[step] ? Math.min(100, 100 * failed / runs[step]) : null));
        return [{ label: "failed", values, colour: COLOURS[3], fill: true }];
      },
      show: (value) => (value === null ? "-" : `${value.toFixed(1)} %`),
    },
    wait: { title: "How long jobs wait", of: "wait", text: "From ready to reserved: half of them, 95 and 99 of 100 waited no longer. A gap is a step in which none was reserved.", rows: () => percentiles("wait"), isLog: true, show: lengthText },
    run: { title: "How long jobs run", of: "run", text: "From reserved to the end of the run. A gap is a step in which none ended.", rows: () => percentiles("run"), isLog: true, show: lengthText },
    tubes: {
      title: "Tubes side by side", text: "",
      note: () => `The busiest ${MAX_LINES} of the tubes that the filter lets through, in steps of ${lengthText(tubeSteps().width * 1000)}.`,
      rows: () => filtered().slice(0, MAX_LINES).map((tube, number) => {
        const at = place(now, tube, chosen.metric);
        return { label: tube, values: METRICS[chosen.metric].of(at), colour: COLOURS[number] };
      }),
      times: () => timesOf(tubeSteps()),
    },
  };

  const METRICS = {
    ready: { text: "ready jobs", of: (at) => valuesOf(at, "ready"), show: countText },
    buried: { text: "buried jobs", of: (at) => valuesOf(at, "buried"), show: countText },
    puts: { text: "jobs put a minute", of: (at) => perMinute(valuesOf(at, "puts"), at.series), show: countText },
    deletes: { text: "jobs deleted a minute", of: (at) => perMinute(valuesOf(at, "deletes"), at.series), show: countText },
    failed: { text: "failed runs a minute", of: (at) => perMinute(valuesOf(at, "failed"), at.series), show: countText },
    wait_p50: { text: "wait, p50", of: (at) => valuesOf(at, "wait_p50"), show: lengthText, isLog: true },
    wait_p95: { text: "wait, p95", of: (at) => valuesOf(at, "wait_p95"), show: lengthText, isLog: true },
    wait_p99: { text: "wait, p99", of: (at) => valuesOf(at, "wait_p99"), show: lengthText, isLog: true },
    run_p50: { text: "run, p50", of: (at) => valuesOf(at, "run_p50"), show: lengthText, isLog: true },
    run_p95: { text: "run, p95", of: (at) => valuesOf(at, "run_p95"), show: lengthText, isLog: true },
    run_p99: { text: "run, p99", of: (at) => valuesOf(at, "run_p99"), show: lengthText, isLog: true },
    oldest: { text: "oldest job still waiting at a minute's end", of: (at) => valuesOf(at, "oldest"), show: lengthText, isLog: true },
  };

  function percentiles(name) {
    const at = place(now, chosen.tube, name);
    return [
      { label: "p50", values: valuesOf(at, `${name}_p50`), colour: COLOURS[1] }, { label: "p95", values: valuesOf(at, `${name}_p95`), colour: COLOURS[0] },
      { label: "p99", values: valuesOf(at, `${name}_p99`), colour: COLOURS[3] },
    ];
  }

  const tubeSteps = () => place(now, now.tubes.names[0], chosen.metric).series;
  const filtered = () => now.tubes.names.filter(named);

  // ---- Figures

  function drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    let free = -Infinity;
    for (const { at, kind } of content.marks) {
      const x = plot.valToPos(at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour("--soft");
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const label = kind === "stop" ? "ordered stop" : kind;
      const width = ctx.measureText(label).width;
      // A label that would stand on the one before it, or outside, is left to the table.
      if (x > free && x + width < bbox.left + bbox.width) {
        ctx.fillText(label, x + 3 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
        free = x + width + 8 * devicePixelRatio;
      }
    }
    ctx.restore();
  }

  function tell(plot) {
    const at = plot.cursor.idx;
    const where = document.getElementById("at");
    if (at === null || at === undefined || plot.cursor.left < 0) { where.textContent = ""; return; }
    const near = content.marks.filter((mark) => Math.abs(plot.valToPos(mark.at, "x") - plot.cursor.left) < 6).slice(-3);
    where.textContent = [`${timeText(plot.data[0][at])} UTC`, ...near.map((mark) => `${mark.kind}: ${mark.text}`)].join(" · ");
  }

  function zoomed(plot, key) {
    if (key !== "x" || plot.isFollowing) return;
    const { min, max } = plot.scales.x;
    const all = plot.data[0];
    chosen.zoom = min <= all[0] && max >= all.at(-1) ? null : { min, max };
    follow(plot);
  }

  function follow(source) {
    document.getElementById("zoom").disabled = chosen.zoom === null;
    for (const [plot] of plots.values()) {
      if (plot === source) continue;
      plot.isFollowing = true;
      plot.setScale("x", chosen.zoom ?? { min: plot.data[0][0], max: plot.data[0].at(-1) });
      // uPlot tells of the change later, in a microtask of its own.
      queueMicrotask(() => { plot.isFollowing = false; });
    }
  }

  const axis = (isX, more) => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif", ...(isX ? {} : { size: 64 }), ...more });

  /** The least and the most that is seen. A step that began before the left edge counts, which uPlot leaves out. */
  function extent(plot) {
    const [first, last] = plot.series[0].idxs;
    const seen = plot.data.slice(1).filter((_, at) => plot.series[at + 1].show)
      .flatMap((values) => values.slice(Math.max(0, first - 1), last + 1)).filter((value) => value !== null);
    return seen.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  }

  function linearRange(plot) {
    const high = extent(plot)[1];
    return [0, high > 0 ? high * 1.05 : 1];
  }

  /** Of a logarithmic axis of lengths: from mark to mark, so that there are two at least. */
  function logRange(plot) {
    const [low, high] = extent(plot);
    if (low === Infinity || low <= 0) return [1, 1000];
    const from = LENGTHS.findLast((length) => length <= low) ?? LENGTHS[0];
    const to = LENGTHS.find((length) => length >= high && length > from) ?? LENGTHS.at(-1);
    return [from, to];
  }

  /** Days have their date; within a day, midnight has it. */
  function timeMarks(plot, seconds, index, space, step) {
    return seconds.map((each) => {
      const text = timeText(each);
      if (step >= 28 * 86_400) return text.slice(0, 7);
      if (step >= 86_400 || text.endsWith("00:00")) return text.slice(5, 10);
      return step >= 60 ? text.slice(11) : new Date(each * 1000).toISOString().slice(11, step < 1 ? 21 : 19);
    });
  }

  /** Steps before a gap: one between two gaps would have no line. */
  function lastOfRuns(plot, at) {
    const values = plot.data[at];
    return [...values.keys()].filter((step) => step < values.length - 1 && values[step] !== null && values[step + 1] === null);
  }

  function options(figure, rows, width) {
    const { isLog, show, isStack } = figure;
    const stepped = uPlot.paths.stepped({ align: 1 });
    const series = rows.map((row, at) => ({
      label: row.label, stroke: colour(row.colour), width: 1.5, points: isLog ? { show: true, size: 4, fill: colour(row.colour), filter: lastOfRuns } : { show: false }, spanGaps: false,
      paths: stepped, fill: isStack || row.fill ? `${colour(row.colour)}${isStack ? "" : "33"}` : undefined,
      value: (plot, _, __, index) => (index === null ? "" : show(rows[at].values[index])),
    }));
    return {
      width, height: heightNow(), padding: [null, EDGE, null, null], tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { sync: { key: "report" }, drag: { x: true, y: false } },
      scales: { x: { time: true }, y: isLog ? { distr: 3, range: logRange } : { range: linearRange } },
      axes: [axis(true, { values: timeMarks, space: 66 }), axis(false, { ...(isLog ? { splits: (plot) => LENGTHS.filter((length) => length >= plot.scales.y.min && length <= plot.scales.y.max), filter: (_, splits) => splits } : {}), values: (plot, splits) => splits.map((value) => (value === null ? "" : show(value).replace("/min", ""))) })],
      series: [{ value: (plot, seconds) => (seconds === null ? "" : timeText(seconds)) }, ...series],
      hooks: { draw: [drawMarks], setCursor: [tell], setScale: [zoomed] },
    };
  }

  /** Each line on top of those behind it; the legend still says what each row is. */
  function stacked(rows) {
    const sums = rows[0].values.map(() => 0);
    return rows.map(({ values }) => values.map((value, at) => (sums[at] += value ?? 0))).reverse();
  }

  function draw(key) {
    const figure = { ...FIGURES[key], ...(key === "tubes" ? METRICS[chosen.metric] : {}) };
    const box = document.getElementById(`plot-${key}`);
    plots.get(key)?.[0].destroy();
    plots.delete(key);
    const rows = figure.rows();
    const drawn = rows.filter(({ values }) => values.some((value) => value !== null));
    const nothing = rows.length ? "Nothing was measured here in this time: that is not the same as zero." : NO_TUBE;
    box.replaceChildren();
    if (figure.note) document.getElementById(`text-${key}`).textContent = figure.note();
    if (!drawn.length) {
      box.append(h("p", { class: "empty" }, nothing));
      return;
    }
    const times = figure.times ? figure.times() : timesOf(place(now, chosen.tube, figure.of).series);
    // A stack is drawn from the top, so that each area covers the lower part of the one before.
    const shown = figure.isStack ? rows : drawn;
    const columns = figure.isStack ? stacked([...rows].reverse()) : shown.map(({ values }) => values);
    const plot = new uPlot(options(figure, shown, widthOf(box)), [times, ...columns], box);
    plots.set(key, [plot, box]);
    if (chosen.zoom) follow(null);
  }

  let isPrinting = false;
  const heightNow = () => (isPrinting ? PRINT_HEIGHT : HEIGHT);
  const widthOf = (box) => (isPrinting ? (box.id === "plot-tubes" ? PRINT_WIDE : PRINT_WIDTH) : Math.max(240, Math.floor(box.getBoundingClientRect().width)));
  const drawAll = () => { if (now) Object.keys(FIGURES).forEach(draw); };

  // ---- Tables

  const isNumber = (cell) => typeof cell === "number";
  const LONG = new Set(["sample", "text"]);
  /** Columns from which on a table has narrower ones. */
  const MANY = 13;

  function cellOf(cell, name, isText) {
    const text = cell === null || cell === undefined ? "-" : isNumber(cell) ? countText(cell) : String(cell);
    const kind = LONG.has(name) ? "text long" : isText ? "text name" : "";
    return h("td", kind ? { class: kind, ...(isText ? { title: text } : {}) } : {}, text);
  }

  /** Without the columns that have nothing in any row. */
  function filled({ head, rows, ...rest }) {
    const kept = head.map((_, at) => at).filter((at) => at === 0 || rows.some((row) => row[at] !== null));
    return { ...rest, head: kept.map((at) => head[at]), rows: rows.map((row) => kept.map((at) => row[at])) };
  }

  function tableOf(whole) {
    const { key, title, text, head, rows } = filled(whole);
    const isText = head.map((name, at) => at === 0 || rows.some((row) => typeof row[at] === "string" && !/^[\d.,]+ ?(%|ns|µs|ms|s|min|h|d)?$/.test(row[at])));
    const body = rows.map((row) => {
      const made = h("tr", {}, ...row.map((cell, at) => cellOf(cell, head[at], isText[at])));
      if (head[0] === "tube") made.dataset.tube = row[0];
      return made;
    });
    const most = Math.max(1, ...rows.flat().filter(isNumber));
    const table = h("table", { class: `numbers${key === "hours" ? " heat" : head.length >= MANY ? " many" : ""}` }, h("thead", {}, h("tr", {}, ...head.map((name, at) => h("th", { scope: "col", ...(isText[at] ? { class: "text" } : {}) }, name)))), h("tbody", {}, ...body));
    if (key === "hours") body.forEach((line, at) => [...line.cells].slice(1).forEach((cell, hour) => { cell.style.background = `rgb(var(--heat) / ${Math.round(70 * rows[at][hour + 1] / most)}%)`; }));
    return h("section", { id: key === "tubes" ? "table-tubes" : key, class: "table" }, h("h2", {}, title), h("p", {}, text), h("p", { class: "hint", hidden: "" }, "Wider than the page: scroll it sideways to see all columns."), h("p", { class: "unnamed", hidden: "" }, NO_TUBE), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table));
  }

  const named = (name) => name.toLowerCase().includes(chosen.filter.toLowerCase());

  function filterRows() {
    for (const section of document.querySelectorAll("section.table")) {
      const rows = [...section.querySelectorAll("tr[data-tube]")];
      for (const row of rows) row.hidden = row.dataset.tube !== ALL && !named(row.dataset.tube);
      const isEmpty = chosen.filter !== "" && rows.length > 0 && rows.every((row) => row.hidden || row.dataset.tube === ALL);
      section.querySelector(".unnamed").hidden = !isEmpty;
      section.querySelector(".scroll").hidden = isEmpty;
    }
    hintAtWidth();
  }

  /** Says of tables that have columns outside of what is seen. */
  function hintAtWidth() {
    for (const scroll of document.querySelectorAll(".scroll")) {
      scroll.parentElement.querySelector(".hint").hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
    }
  }

  // ---- What can be chosen

  function choose(tube) {
    chosen.tube = tube;
    document.getElementById("tube").value = tube;
    ["depth", "flow", "share", "wait", "run"].forEach(draw);
  }

  function go({ figure, tube }) {
    if (now && (!tube || now.tubes.names.includes(tube))) choose(tube || ALL);
    document.getElementById(figure)?.scrollIntoView({ block: "start" });
  }

  function setTheme(name) {
    chosen.theme = name;
    const isDark = !isPrinting && (name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches));
    root.dataset.theme = isDark ? "dark" : "light";
    drawAll();
  }

  const pick = (id, label, values, chosenAt, change) => {
    const select = h("select", { id, onchange: (event) => change(event.target.value) }, ...values.map(([value, text]) => h("option", { value }, text)));
    select.value = chosenAt;
    return h("label", { for: id }, label, select);
  };

  function bar() {
    const filter = h("input", { id: "filter", type: "search", placeholder: "part of a name", oninput: (event) => { chosen.filter = event.target.value; filterRows(); if (now) draw("tubes"); } });
    const zoom = h("button", { id: "zoom", type: "button", disabled: "", onclick: () => { chosen.zoom = null; follow(null); } }, "Whole time");
    return h("div", { class: "bar" },
      now ? pick("tube", "Figures of", [ALL, ...now.tubes.names].map((name) => [name, name]), ALL, choose) : null,
      h("label", { for: "filter" }, "Tubes named", filter),
      now ? zoom : null,
      pick("theme", "Colours", [["auto", "as the system"], ["light", "light"], ["dark", "dark"]], "auto", setTheme),
      h("span", { class: "at", id: "at", role: "status" }, ""));
  }

  function figures() {
    const made = Object.entries(FIGURES).map(([key, { title, text }]) => h("section", { id: key }, h("h2", {}, title), h("p", { id: `text-${key}` }, text),
      key === "tubes" ? pick("metric", "", Object.entries(METRICS).map(([value, metric]) => [value, metric.text]), chosen.metric, (value) => { chosen.metric = value; draw("tubes"); }) : null,
      h("div", { class: "plot", id: `plot-${key}` })));
    return h("div", { class: "figures" }, ...made);
  }

  const said = (title, kind, items, list = "ul") => (items.length ? h("section", { class: kind }, h("h2", {}, title), h(list, {}, ...items)) : null);

  /** How many stand in a row, so that the last row is as full as can be. */
  const inRows = (count, most) => Math.max(SOME_TILES, Math.ceil(count / Math.ceil(count / most)) || 1);

  function page() {
    const findings = content.findings.map((finding) => h("li", {}, finding.text, " ", h("button", { type: "button", class: "go", onclick: () => go(finding) }, "show")));
    const tiles = content.tiles.map(([number, what]) => h("li", {}, h("b", {}, number), h("span", {}, what)));
    const tileList = h("ul", { class: "tiles" }, ...tiles);
    for (const [name, most] of [["--wide", WIDE_TILES], ["--some", SOME_TILES]]) tileList.style.setProperty(name, inRows(tiles.length, most));
    const parts = [
      h("header", {}, h("h1", {}, content.title), h("p", {}, content.text)),
      said("What this report does not know", "missing", content.notes.map((note) => h("li", {}, note))),
      said("What to look at first", "findings", findings.length ? findings : [h("li", {}, "No rule found anything that stands out.")], "ol"),
      tileList, bar(), now ? figures() : null, ...content.tables.map(tableOf),
      h("footer", {}, "All times are UTC. Drag along a figure to zoom in, double-click to see the whole time. What each number means: docs/spark-live.md. Figures: uPlot, © Leon Sorokin, MIT licence."),
    ];
    document.getElementById("report").replaceChildren(...parts.filter((part) => part !== null));
  }

  /** Minutes may hold a few busy seconds: those are shown at first, from the first busy step to the end of the last. */
  function firstZoom() {
    if (!now?.fine) return null;
    const { start, count, width, numbers } = now.fine.whole;
    const busy = [...Array(count).keys()].filter((at) => ["puts", "deletes", "failed", "reserves"].some((name) => numbers[0][name]?.[at]));
    return busy.length ? { min: start + busy[0] * width, max: start + (busy.at(-1) + 1) * width } : null;
  }

  // ---- Start

  page();
  hintAtWidth();
  chosen.zoom = firstZoom();
  if (chosen.zoom) document.getElementById("zoom").disabled = false;
  setTheme("auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(chosen.theme));
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => { for (const [plot, box] of plots.values()) plot.setSize({ width: widthOf(box), height: heightNow() }); hintAtWidth(); }, 150);
  });
  const print = (is) => { isPrinting = is; setTheme(chosen.theme); };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  root.dataset.ready = "yes";
})();
