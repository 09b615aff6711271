"use strict";
// What only a report has: several runs of which one is shown, or all compared; sections of tables,
// charts and texts. It stands before `page.js`, which it uses.

const report = { data: null, shown: null, charts: [] }; // shown: the index of a run; null for all

/** Shows the data of a report. */
function openReport(data) {
  check(data);
  report.data = data;
  connection.state = "saved";
  document.body.classList.add("report");
  const several = data.all !== null;
  if (several) {
    const option = ({ name }, index) => make("option", { value: index }, name);
    $("which").replaceChildren(make("option", { value: "" }, "all runs"), ...data.runs.map(option));
    $("which").addEventListener("change", ({ target }) =>
      showRun(target.value === "" ? null : Number(target.value)));
    show($("which-label"), true);
  }
  show($("seeds-label"), data.all?.groups.length > 0);
  $("seeds").addEventListener("change", () => {
    putLines();
    schedule("curves");
  });
  showRun(several ? null : 0);
}

/** Shows a run by its place, or all compared. */
function showRun(index) {
  const { runs, all, about } = report.data;
  const part = index === null ? all : runs[index];
  report.shown = index;
  Object.assign(model, { about, selected: null });
  document.body.classList.toggle("compared", index === null);
  acceptCurves(part.curves);
  accept(part.status, true);
  Object.assign(view, { marks: part.marks, zoom: null });
  Object.assign(order, { names: [] });
  putLines();
  for (const place of ["first", "beside", "rest"]) fill(place, part[place]);
  show($("seeds-label"), index === null && all.groups.length > 0);
  $("which").value = index ?? "";
  showConnection();
  drawAll();
}

/** Shows the run of a line. */
function chooseRun(name) {
  const index = report.data.runs.findIndex((run) => run.name === name);
  if (index < 0 || report.shown !== null) return;
  showRun(index);
  scrollTo(0, 0);
}

/** The lines of the charts: of the run and its nodes, or of all runs. */
function putLines() {
  const { runs, all } = report.data;
  const line = (series) => [series.node, newSeries(series)];
  view.lines = null;
  if (report.shown === null) {
    view.strong = [];
    const each = runs.map(({ name, whole }) => ({ ...whole, node: name }));
    view.lines = ($("seeds").checked && all.groups.length ? all.groups : each).map(line);
  } else {
    // The mean of one node is that node, but for what a process that sees all nodes has measured.
    const { whole, curves } = runs[report.shown];
    const means = curves.series.length > 1 || whole.consensus ? [line(whole)] : [];
    view.lines = [...means, ...linesOf()];
    view.strong = means.map(([name]) => name);
  }
  // On an ideal virtual network nothing takes time.
  const takesTime = view.lines.some(([, series]) => series.time_s.some((time) => time > 0));
  $("axis").querySelector("[value=time_s]").disabled = !takesTime;
  if (!takesTime && view.axis === "time_s") $("axis").value = view.axis = "round";
}

// ---------------------------------------------------------------------------------------- sections

const BLOCKS = {
  text: ({ text }) => [make("p", {}, text)],
  notes: notesOf,
  table: tableOf,
  matrix: matrixOf,
  chart: chartOf,
  file: ({ title, text }) =>
    [make("details", {}, make("summary", {}, title), make("pre", {}, text))],
};

function fill(id, sections) {
  for (const { plot } of report.charts.filter((chart) => chart.within === id)) plot.destroy();
  report.charts = report.charts.filter((chart) => chart.within !== id);
  $(id).replaceChildren(...sections.map((section) => {
    const title = `${section.id}-title`;
    return make("section", { id: section.id, class: "panel", "aria-labelledby": title },
      make("h2", { id: title }, section.title),
      ...section.blocks.flatMap((block) => BLOCKS[block.kind](block, id)));
  }));
}

function notesOf({ notes }) {
  return [make("ul", { class: "notes" }, ...notes.map(({ level, name, text }) => {
    const state = make("span");
    const [, icon, tone] = LEVELS[level];
    putState(state, [name, icon, tone], "state");
    return make("li", {}, state, make("span", {}, text));
  }))];
}

/** A box that scrolls, and says so where its content is wider than it. */
function scrolling(caption, table, rows) {
  const hint = make("p", { class: "quiet hint", hidden: "" }, "Scroll sideways for more columns.");
  const long = rows > 24 ? " tall" : "";
  const box = make("div",
    { class: `scroll${long}`, tabindex: "0", role: "group", "aria-label": caption }, table);
  new ResizeObserver(() => show(hint, box.scrollWidth > box.clientWidth)).observe(box);
  return [hint, box];
}

function tableOf({ caption, head, rows, left_out: leftOut }) {
  const isFigure = (cell) => cell === "nothing" || "figure" in cell || "best" in cell;
  const right = head.map((_, column) => rows.length && rows.every((row) => isFigure(row[column])));
  const headOf = (title, column) =>
    make("th", { scope: "col", class: right[column] ? "n" : "" }, title);
  const cellOf = (cell) => {
    if (cell === "nothing") return make("td", { class: "n" }, NONE);
    const [[kind, text]] = Object.entries(cell);
    if (kind === "name") return make("th", { scope: "row" }, text);
    if (kind === "word") return make("td", {}, text);
    const content = kind === "best" ? make("strong", {}, `${text}*`) : text;
    return make("td", { class: "n" }, content);
  };
  const table = make("table", { class: "figures" }, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head.map(headOf))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cellOf)))));
  const note = leftOut ? [make("p", { class: "quiet" }, leftOut)] : [];
  return [...scrolling(caption, table, rows.length), ...note];
}

/** Each cell has the colour of right or wrong, by the root of its share of the class. */
function matrixOf({ caption, classes, rows }) {
  const cellOf = (row, count, right) => {
    const shade = count === 0 ? 0 : Math.sqrt(count / sum(row));
    const strong = shade > 0.6 ? " strong" : "";
    const cell = make("td", { class: `n ${right ? "hit" : "miss"}${strong}` }, whole(count));
    cell.style.setProperty("--s", shade.toFixed(2));
    return cell;
  };
  const line = (row, index) => make("tr", {}, make("th", { scope: "row" }, classes[index]),
    ...row.map((count, other) => cellOf(row, count, other === index)));
  const head = ["class", ...classes].map((name) => make("th", { scope: "col" }, name));
  const table = make("table", { class: "figures confusion" }, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows.map(line)));
  return [...scrolling(caption, table, rows.length), make("p", { class: "quiet" }, "Blue rows are classified " +
    "correctly, orange ones not: the stronger, the larger the share of the class.")];
}

/** A chart of shares over shares, with the names of its lines. */
function chartOf(chart, within) {
  const host = make("div", { class: "plot square", role: "img", "aria-label": chart.title });
  const many = chart.curves.length > LIMIT.coloured;
  const legend = chart.curves.map(({ name }, index) => {
    const look = many ? "grey" : index % 6;
    const dash = !many && index % 12 >= 6 ? " dash" : "";
    const swatch = draw("svg", { class: "swatch", viewBox: "0 0 22 8", "aria-hidden": "true" },
      draw("path", { d: "M0 4h22", class: `l-${look}${dash}` }));
    return make("li", {}, swatch, ` ${name}`);
  });
  // A chart has one y at an x: points above each other are drawn very near to each other.
  const data = uPlot.join(chart.curves.map(({ points }) =>
    [points.map(([x], index) => x + index * 1e-9), points.map(([, y]) => y)]));
  const start = () => new uPlot(squareOptions(chart, many, host.clientWidth), data, host);
  const kept = { within, plot: { destroy() {} }, redraw() {
    kept.plot.destroy();
    kept.plot = start();
  } };
  report.charts.push(kept);
  new ResizeObserver(() => {
    if (host.clientWidth > 0 && kept.plot.width !== host.clientWidth) kept.redraw();
  }).observe(host);
  return [make("figure", {}, make("figcaption", {}, chart.title), host,
    make("ul", { class: "legend" }, ...legend), make("p", { class: "quiet" }, chart.note))];
}

function squareOptions(chart, many, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--grid"), width: 1 },
    ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif",
    labelFont: "13px system-ui, sans-serif" };
  const percent = (_, splits) => splits.map((value) => `${Number((value * 100).toFixed(1))} %`);
  const line = (_, index) => ({ spanGaps: true, width: 2, points: { show: false },
    stroke: colour(many ? "--line-grey" : `--line-${index % 6}`),
    dash: !many && index % 12 >= 6 ? [7, 4] : [] });
  return { width, height: 340, legend: { show: false }, cursor: { show: false },
    series: [{}, ...chart.curves.map(line)],
    scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1] } },
    axes: [{ ...axis, label: chart.across, values: percent },
      { ...axis, label: chart.upwards, size: 56, values: percent }] };
}

/** Draws the charts of the sections anew, in the colours that hold now. */
function redrawSections() {
  for (const { redraw } of report.charts) redraw();
}
