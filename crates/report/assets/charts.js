// The curves of a report: each figure's data stands in it as JSON. Without this script the still
// picture of each stays.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const UNITS = {
    bytes: (value) => {
      const steps = ["B", "kB", "MB", "GB", "TB"];
      let step = 0;
      for (; Math.abs(value) >= 1000 && step < steps.length - 1; step++) value /= 1000;
      return `${+value.toPrecision(4)} ${steps[step]}`;
    },
    percent: (value) => `${+(100 * value).toFixed(2)} %`,
    seconds: (value) => `${+value.toPrecision(5)} s`,
    plain: (value) => {
      const size = Math.abs(value);
      if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
      return String(+value.toPrecision(5));
    },
  };

  /** Columns of one x and, for each run, its mean, least and greatest. */
  function columns(data, axis) {
    const tables = data.series.map((run) => run[axis].length === 0 ? [[], [], [], []]
      : [run[axis], run.mean, run.least ?? run.mean, run.greatest ?? run.mean]);
    return uPlot.join(tables);
  }

  function options(data, axis, log, width) {
    const { unit: across, words } = data.axes[axis];
    const [x, y] = [UNITS[across], UNITS[data.unit]];
    const label = (show) => (plot, value) => value == null ? "–" : show(value);
    const series = [{ label: words, value: label(x) }];
    const bands = [];
    for (const [index, run] of data.series.entries()) {
      const colour = run.colour[dark.matches ? 1 : 0];
      series.push({ label: run.name, stroke: colour, width: 2, dash: run.dash, spanGaps: true,
        value: label(y), points: { show: run.mean.length === 1 } });
      const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
      series.push({ ...edge, label: `${run.name}, least` });
      series.push({ ...edge, label: `${run.name}, greatest` });
      bands.push({ series: [3 * index + 3, 3 * index + 2], fill: `${colour}22` });
    }
    const lines = { stroke: paint("--faint"), grid: { stroke: paint("--rule"), width: 1 },
      ticks: { stroke: paint("--rule"), width: 1 } };
    return {
      width, height: 320, series, bands, legend: { live: true, markers: { width: 3 } },
      cursor: { drag: { x: true, y: true, uni: 20 }, focus: { prox: 24 } },
      scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
      axes: [
        { ...lines, label: words, values: (plot, all) => all.map((value) => x(value)) },
        { ...lines, size: 76,
          values: (plot, all) => all.map((value) => value == null ? "" : y(value)) },
      ],
      hooks: {
        draw: [(plot) => axis === "rounds" && drawMarks(plot, data.marks)],
        setCursor: [(plot) => moveTip(plot, data, x, y)],
      },
    };
  }

  /** Rounds in which the members changed. */
  function drawMarks(plot, marks) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = paint("--faint");
    ctx.setLineDash([4, 4]);
    for (const { round } of marks) {
      const at = Math.round(plot.valToPos(round, "x", true));
      if (at < bbox.left || at > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** The figure of the line that is nearest to the cursor, beside it. */
  function moveTip(plot, data, x, y) {
    const { left, top, idx } = plot.cursor;
    let best = null;
    if (idx != null && left >= 0) {
      for (const [index, run] of data.series.entries()) {
        const value = plot.data[3 * index + 1][idx];
        if (value == null) continue;
        const far = Math.abs(plot.valToPos(value, "y") - top);
        if (!best || far < best.far) best = { far, run, value };
      }
    }
    plot.tip.hidden = !best;
    if (!best) return;
    plot.tip.textContent = `${best.run.name}: ${y(best.value)} at ${x(plot.data[0][idx])}`;
    const room = plot.over.clientWidth - plot.tip.offsetWidth;
    plot.tip.style.left = `${Math.max(0, Math.min(left + 12, room))}px`;
    plot.tip.style.top = `${Math.max(0, top - 34)}px`;
  }

  function button(text, pressed, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-pressed", String(pressed));
    button.addEventListener("click", act);
    return button;
  }

  function show(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const host = document.createElement("div");
    const bar = document.createElement("p");
    bar.className = "bar";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `Axes of ${data.title}`);
    let [axis, log, plot] = [Object.keys(data.axes)[0], data.log ?? false, null];
    const draw = () => {
      plot?.destroy();
      const width = Math.min(976, Math.max(280, figure.clientWidth));
      plot = new uPlot(options(data, axis, log, width), columns(data, axis), host);
      plot.tip = document.createElement("div");
      plot.tip.className = "tip";
      plot.tip.hidden = true;
      plot.over.append(plot.tip);
      // The edges of bands are no lines of their own.
      for (const [index, row] of [...host.querySelectorAll(".u-series")].entries()) {
        if (index > 0 && index % 3 !== 1) row.style.display = "none";
      }
      const axes = Object.entries(data.axes);
      const buttons = axes.length < 2 ? [] : axes.map(([key, { name }]) =>
        button(name, key === axis, () => { axis = key; draw(); }));
      if (data.log != null) {
        buttons.push(button("logarithmic", log, () => { log = !log; draw(); }));
      }
      const focused = [...bar.children].indexOf(document.activeElement);
      bar.hidden = buttons.length === 0;
      bar.replaceChildren(...buttons);
      bar.children[focused]?.focus();
    };
    for (const still of figure.querySelectorAll(".picture")) still.classList.add("still");
    figure.querySelector(".drawn")?.classList.add("still");
    figure.prepend(bar, host);
    draw();
    dark.addEventListener("change", draw);
    let drawn = figure.clientWidth;
    new ResizeObserver(() => {
      if (figure.clientWidth === drawn) return;
      drawn = figure.clientWidth;
      draw();
    }).observe(figure);
  }

  for (const figure of document.querySelectorAll("figure.curves")) show(figure);
})();
