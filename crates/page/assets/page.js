"use strict";
// The page of a gradvine node. It reads `status.json`, `curves.json` and the stream `events` of the
// node that serves it, and draws them. It sends nothing else: the page is read-only.
//
//   receive -> model -> schedule -> one animation frame -> the parts that changed
//
// Texts come from other nodes, so they enter the document only through `textContent`. A page that
// was written holds its data in the element `data`, and makes no request: a report. What only a
// report has is in `report.js`.

const VERSION = 1;
const LIMIT = {
  points: 2000, // of one curve; older ones are thinned out above that
  events: 10000, // kept
  shown: 200, // events in the document at once
  coloured: 12, // nodes with a line colour each; above that, lines are grey
  labelled: 16, // nodes with a label beside them; above that, names point outwards
  highlighted: 5, // lines drawn strongly among the grey ones
  links: 300, // above that, only links with something particular are drawn one by one
  arrows: 300, // above that, only arrows to nodes that hold up the run are drawn
  bins: 400, // points of a drawn line
  added: 16, // rows or events that a frame makes: their first layout takes longer than they do
  frame_ms: 4, // of work in an animation frame, after which no further part begins; painting adds
  quiet_s: 6, // without data, the connection counts as lost
};

// State -> word, symbol, tone. The tone is a class; it gives the colour.
const STATES = {
  starting: ["starting", "dots", "quiet"],
  computing: ["computing", "play", "good"],
  waiting: ["waiting", "wait", "warn"],
  sending: ["sending", "send", "busy"],
  encoding: ["encoding", "pack", "busy"],
  checkpoint: ["saving a checkpoint", "save", "busy"],
  choosing: ["choosing", "fork", "busy"],
  finishing: ["finishing", "flag", "good"],
  done: ["done", "done", "good"],
  failed: ["failed", "cross", "bad"],
  left: ["left", "left", "quiet"],
  silent: ["silent", "mute", "bad"],
  unknown: ["unknown", "ask", "quiet"],
  short: ["missed rounds", "left", "warn"],
};
const RUN_STATES = {
  ...STATES,
  training: ["training", "play", "good"],
  "held-up": ["held up", "wait", "warn"],
  stopped: ["stopped", "stop", "quiet"],
  diverged: ["diverged", "cross", "bad"],
  unfinished: ["unfinished", "dots", "warn"],
};
const LEVELS = {
  info: ["info", "info", "quiet"],
  warning: ["warning", "warn", "warn"],
  error: ["error", "cross", "bad"],
};
const ENDED = ["done", "failed", "stopped"];

const model = {
  status: null, // the last status
  nodes: new Map(), // name -> record of the node
  links: new Map(), // name -> Map of name -> link, from the first one's point of view
  edges: [], // {a, b, ab, ba, down, relayed, known, rate}
  events: [], // oldest first
  curves: new Map(), // name -> series
  selected: null,
  about: null, // of a report: what it was made from
};

/** Whether the run is over, and this is its report: times and rates then have no meaning. */
const isReport = () => model.about !== null;

// ---------------------------------------------------------------------------------------- elements

const $ = (id) => document.getElementById(id);

/** Sets the attributes of an element and adds its children. */
function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const make = (tag, attributes = {}, ...children) =>
  dress(document.createElement(tag), attributes, children);

const draw = (tag, attributes = {}, ...children) =>
  dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** Sets the text of an element, if it differs. */
function put(element, text) {
  if (element.shownText === text) return;
  element.shownText = text;
  element.textContent = text;
}

/** Sets an attribute, if it differs; `null` removes it. */
function mark(element, key, value) {
  if (value === null) element.removeAttribute(key);
  else if (element.getAttribute(key) !== String(value)) element.setAttribute(key, value);
}

function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

/** Makes the children of `parent` those of `items`, in order; an element stays with its key. */
function keyed(parent, items, keyOf, create, update) {
  const known = (parent.keyedChildren ??= new Map());
  const keys = items.map(keyOf);
  const wanted = new Set(keys);
  for (const [key, element] of known) {
    if (wanted.has(key)) continue;
    element.remove();
    known.delete(key);
  }
  let at = parent.firstElementChild;
  items.forEach((item, index) => {
    let element = known.get(keys[index]);
    if (!element) known.set(keys[index], (element = create(item)));
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  });
}

function symbol(id) {
  return draw("svg", { class: "symbol", "aria-hidden": "true" }, draw("use", { href: `#i-${id}` }));
}

/** Shows a symbol and a word in the colour of a state. */
function putState(element, [word, icon, tone], base, text = word) {
  if (element.shownState !== icon + tone) {
    element.shownState = icon + tone;
    element.className = `${base} ${tone}`;
    element.replaceChildren(symbol(icon), make("span"));
  }
  put(element.lastChild, text);
}

/** A button with the name of a node, which selects the node. */
function nameButton(name) {
  const button = make("button", { type: "button", class: "name" });
  put(button, name);
  button.addEventListener("click", () => choose(name));
  return button;
}

/** The look of a state; one that this page does not know shows its own word. */
const lookOf = (states, key) =>
  Object.hasOwn(states, key) ? states[key] : [String(key), "ask", "quiet"];

const stateOf = (node) => lookOf(STATES, node.state);

// --------------------------------------------------------------------------------------- numbers

const NONE = "–";

function number(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

const whole = (value) => (value ?? null) === null ? NONE : value.toLocaleString("en-GB");

const share = (value) => `${Math.round(value * 100)} %`;

function scaled(value, units) {
  if (typeof value !== "number") return NONE;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
}

const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]);
const rate = (value) => scaled(value, ["B/s", "kB/s", "MB/s", "GB/s"]);

function duration(seconds) {
  if (typeof seconds !== "number") return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(2))} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 119.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(seconds / 3600);
  if (hours < 48) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A time of day, with the date if that is not today. */
function clock(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return String(text);
  const day = time.toDateString() === new Date().toDateString();
  return (day ? "" : `${time.toLocaleDateString("en-CA")} `) + time.toLocaleTimeString("en-GB");
}

const words = (text) => text.replaceAll("_", " ");

function listing(names) {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const sent = (node) => sum(node.links.map((link) => link.sent_bytes_s));
const received = (node) => sum(node.links.map((link) => link.received_bytes_s));
/** Not known in a report whose run has no bytes of links. */
const receivedBytes = (node) => !isReport() || node.links.some((link) => link.received_bytes >= 0)
  ? node.received_bytes : undefined;

// ----------------------------------------------------------------------------------------- model

/** Takes over a status. `whole`: its events are all events, not only the new ones. */
function accept(status, whole) {
  check(status);
  if (whole) model.events = [];
  const last = model.events.at(-1)?.number ?? -Infinity;
  model.events.push(...status.events.filter((event) => event.number > last));
  model.events.splice(0, Math.max(0, model.events.length - LIMIT.events));
  model.status = status;
  model.nodes = new Map(status.nodes.map((node) => [node.name, node]));
  model.links = new Map(
    status.nodes.map((node) => [node.name, new Map(node.links.map((link) => [link.to, link]))]),
  );
  model.edges = edgesOf(status);
  if (model.selected !== null && !model.nodes.has(model.selected)) model.selected = null;
  if (isReport()) return;
  for (const node of status.nodes) extend(node, Date.parse(status.time) / 1000);
}

function check(data) {
  if (data?.version === VERSION) return;
  throw new Trouble(`The node sends version ${data?.version} of its data, and this page ` +
    `understands version ${VERSION}. Load the page again from this node.`);
}

/** The links of the topology, and those outside it that a node reports, as seen from both ends. */
function edgesOf(status) {
  const edges = new Map();
  const add = (a, b) => {
    const key = [a, b].sort().join("\n");
    if (edges.has(key) || !model.nodes.has(a) || !model.nodes.has(b)) return;
    const ab = model.links.get(a).get(b);
    const ba = model.links.get(b).get(a);
    const ends = [ab, ba].filter(Boolean);
    edges.set(key, {
      key, a, b, ab, ba,
      known: ends.length > 0,
      down: ends.some((link) => !link.up),
      relayed: ends.some((link) => link.relayed),
      rate: Math.max(0, ...ends.flatMap((link) => isReport()
        ? [link.sent_bytes ?? 0, link.received_bytes ?? 0]
        : [link.sent_bytes_s, link.received_bytes_s])),
    });
  };
  for (const [a, b] of status.edges) add(a, b);
  for (const node of status.nodes) for (const link of node.links) add(node.name, link.to);
  return [...edges.values()];
}

function acceptCurves(curves) {
  check(curves);
  model.curves = new Map(curves.series.map((series) => [series.node, newSeries(series)]));
}

/** The names of measures come from other nodes: their table has no prototype to overwrite. */
function newSeries(given = {}) {
  const measures = Object.assign(Object.create(null), given.measures);
  return { round: [], time_s: [], bytes: [], loss: [], consensus: [], ...given, measures };
}

/** Appends what a node reports to its curve, if the node has done rounds since its last point. */
function extend(node, now_s) {
  let series = model.curves.get(node.name);
  if (!series) model.curves.set(node.name, (series = newSeries()));
  const length = series.round.length;
  const last = length ? series.round[length - 1] : -1;
  // Seconds and bytes go on from the last point: the counters of a restarted node begin at 0.
  const sent = node.sent_bytes;
  if (!series.offset || sent < series.sent) {
    const behind = length ? node.round - last : 0;
    const perRound = last > 0 ? (series.bytes[length - 1] ?? 0) / last : 0;
    const start_s = length ? series.time_s[length - 1] ?? 0 : node.uptime_s ?? 0;
    series.offset = {
      time: start_s + behind * (node.round_s ?? 0) - now_s,
      bytes: length ? (series.bytes[length - 1] ?? 0) + behind * perRound - sent : 0,
    };
  }
  series.sent = sent;
  const measured = node.evaluated !== undefined && node.evaluated !== series.evaluated;
  if (node.round > last) {
    const time = series.offset.time + now_s;
    append(series, [node.round, time, sent + series.offset.bytes], node);
    if (length && measured) putMeasures(series, node);
  } else if (measured) {
    putMeasures(series, node);
  }
  series.evaluated = node.evaluated;
  if (series.round.length > LIMIT.points) thin(series);
}

function append(series, [round, time_s, amount], node) {
  series.round.push(round);
  series.time_s.push(time_s);
  series.bytes.push(amount);
  series.loss.push(node.loss ?? null);
  series.consensus.push(node.consensus ?? null);
  for (const key of Object.keys(node.measures)) {
    series.measures[key] ??= new Array(series.round.length - 1).fill(null);
  }
  for (const values of Object.values(series.measures)) values.push(null);
}

/** Puts measures at the first point at or after the round in which they were evaluated. */
function putMeasures(series, node) {
  let at = series.round.length - 1;
  while (at > 0 && series.round[at - 1] >= node.evaluated) at -= 1;
  for (const [key, value] of Object.entries(node.measures)) {
    series.measures[key] ??= new Array(series.round.length).fill(null);
    series.measures[key][at] = value;
  }
}

/** Drops every second point of the older three quarters; points with measures go last. */
function thin(series) {
  const columns = Object.values(series.measures);
  const recent = series.round.length * 0.75;
  const measured = (i) => columns.some((values) => values[i] !== null);
  const even = (_, i) => i >= recent || i % 2 === 0;
  const kept = series.round.map((_, i) => i).filter((i) => even(null, i) || measured(i));
  const final = kept.length > LIMIT.points * 0.9 ? kept.filter(even) : kept;
  const pick = (values) => final.map((i) => values[i]);
  for (const key of ["round", "time_s", "bytes", "loss", "consensus"]) {
    series[key] = pick(series[key]);
  }
  for (const key of Object.keys(series.measures)) {
    series.measures[key] = pick(series.measures[key]);
  }
}

const holdsUp = (name) => model.status.holding_up.includes(name);

/** Selects a node, or none with `null`. */
function choose(name) {
  model.selected = name;
  if (name !== null) {
    const node = model.nodes.get(name);
    say(`${name} is selected. State: ${stateOf(node)[0]}. ${node.reason}`);
  }
  schedule();
}

/** Selects the node `step` places after the selected one. */
function chooseNext(step) {
  const names = [...model.nodes.keys()];
  if (names.length === 0) return;
  const at = names.indexOf(model.selected);
  const next = at < 0 && step < 0 ? -1 : at + step;
  choose(names[(next + names.length) % names.length]);
}

const say = (text) => put($("spoken"), text);

// ----------------------------------------------------------------------------------------- frames

const PARTS = {
  top: renderTop,
  problems: renderProblems,
  network: renderNetwork,
  holders: renderHolders,
  detail: renderDetail,
  curves: renderCurves,
  table: renderTable,
  events: renderEvents,
};
const waiting = new Set(); // parts to render in the next frame
let frame = 0;
let fault = ""; // a part that could not be drawn

/** Renders the parts, or all, in the next animation frame. Nothing is drawn in a hidden tab. */
function schedule(...parts) {
  for (const part of parts.length ? parts : Object.keys(PARTS)) waiting.add(part);
  if (waiting.has("curves")) for (const chart of charts.values()) chart.old = true;
  requestFrame();
}

function requestFrame() {
  if (frame === 0 && waiting.size > 0 && !document.hidden) frame = requestAnimationFrame(render);
}

/** Renders all parts now: what was written does not change. */
function drawAll() {
  show($("main"), true);
  for (const draws of Object.values(PARTS)) while (draws() === "unfinished");
}

/** Renders what waits, until the time for one frame is used up; the rest follows in the next. */
function render() {
  frame = 0;
  if (!model.status) return;
  const start = performance.now();
  show($("main"), true);
  const unfinished = [];
  for (const part of waiting) {
    waiting.delete(part);
    try {
      if (PARTS[part]() === "unfinished") unfinished.push(part);
    } catch (error) {
      console.error(error);
      fault = `This page could not draw a part (${part}): ${error.message}`;
      complain(fault);
    }
    if (performance.now() - start > LIMIT.frame_ms) break;
  }
  for (const part of unfinished) waiting.add(part);
  requestFrame();
  // A chart draws in a microtask queued above; the measure ends after it.
  queueMicrotask(() => {
    performance.clearMeasures("frame");
    performance.measure("frame", { start });
  });
}

function renderTop() {
  const status = model.status;
  const state = lookOf(RUN_STATES, status.state);
  const size = status.nodes.length;
  put($("run"), status.run);
  put($("served"), model.about ?? `${status.topology} of ${size} node${size === 1 ? "" : "s"}, ` +
    `as ${status.node} sees it · gradvine ${status.program}`);
  putState($("badge"), state, "badge");
  put($("sentence"), status.sentence);
  const done = status.rounds > 0 ? Math.min(1, status.round / status.rounds) : 0;
  if ($("bar").value !== done) $("bar").value = done;
  put($("round"), `round ${whole(status.round)} of ${whole(status.rounds)} ` +
    `(${done < 1 ? Math.floor(done * 100) : 100} %)`);
  put($("eta"), status.eta_s === undefined ? "" : `about ${duration(status.eta_s)} left`);
  put($("utilisation"), status.utilisation === undefined ? "" :
    `${share(status.utilisation)} of the time goes into gradients`);
  document.title = `${state[0]} · ${status.run} · gradvine`;
  // A sentence in which only numbers changed is not read out again.
  const essence = [...status.holding_up, status.sentence.replace(/[\d.,]+/g, "#")].join("\n");
  if (renderTop.essence !== essence) say(`${state[0]}: ${status.sentence}`);
  renderTop.essence = essence;
}

function renderProblems() {
  const down = model.edges.filter((edge) => edge.down);
  show($("problems"), down.length > 0);
  keyed($("problem-list"), down, (edge) => edge.key,
    ({ a, b }) => make("li", {},
      make("p", {}, symbol("cross"), nameButton(a), " – ", nameButton(b)), make("ul")),
    (item, { a, b, ab, ba }) => {
      const sides = [[a, ab], [b, ba]];
      keyed(item.lastChild, sides, ([name]) => name, () => make("li"), (side, [name, link]) => {
        put(side, `${name}: ${linkNews(link, model.nodes.get(name))}`);
      });
    });
}

/** What a node says of a link, with the age of its word where that is old. */
function linkNews(link, node) {
  const old = node.state === "silent" && node.age_s !== undefined;
  const age = old ? `, ${duration(node.age_s)} ago` : "";
  if (!link) return "no record of this link";
  if (link.up) return `says that it is up${age}`;
  return (link.reason || "down, and gives no reason") + age;
}

function renderHolders() {
  const holders = model.status.holding_up.filter((name) => model.nodes.has(name));
  show($("no-holders"), holders.length === 0);
  keyed($("holders"), holders, (name) => name,
    (name) => make("li", {}, nameButton(name), " ", make("span"), make("p")),
    (item, name) => {
      const node = model.nodes.get(name);
      putState(item.children[1], stateOf(node), "state");
      put(item.lastChild, node.reason);
    });
}

// ---------------------------------------------------------------------------------------- network

const net = { places: new Map(), focused: null };

/** Places the nodes on a circle, clockwise from the top, in units of pixels. */
function layout(names, available) {
  const many = names.length > LIMIT.labelled;
  const width = Math.max(available, 300);
  const longest = Math.min(16, Math.max(...names.map((name) => name.length)));
  const side = many ? 26 + longest * (available < 500 ? 4.5 : 6) : 46 + Math.max(14, longest) * 8.5;
  const height = many ? Math.min(width, 640) : Math.min(width, 460);
  const radiusX = width / 2 - (many ? side : Math.min(side, width * 0.32));
  const radiusY = height / 2 - (many ? side : 56);
  const radius = Math.max(40, Math.min(radiusX, radiusY));
  // A few nodes may fill an ellipse: the labels then keep a distance.
  const stretch = many ? 1 : Math.min(1.35, Math.max(1, radiusX / radius));
  const size = Math.max(4, Math.min(18, (radius * 2.4) / names.length));
  const places = new Map(names.map((name, index) => {
    const angle = (index / names.length) * 2 * Math.PI - Math.PI / 2;
    const [x, y] = [Math.cos(angle), Math.sin(angle)];
    return [name, { x: width / 2 + x * radius * stretch, y: height / 2 + y * radius, angle, size }];
  }));
  const beside = width / 2 - radius * stretch - size - 14; // for a label
  Object.assign(net, { places, many, size, letters: many ? 16 : Math.floor(beside / 8.5) });
  const svg = $("network");
  mark(svg, "viewBox", `0 0 ${width} ${height}`);
  mark(svg, "width", width);
  mark(svg, "height", height);
  mark(svg, "class", many ? "many" : null);
  // A name that points outwards has the room between two nodes.
  const room = ((radius + size + 7) * 2 * Math.PI) / names.length;
  svg.style.setProperty("--name", `${Math.min(12, Math.max(7, room * 0.85)).toFixed(1)}px`);
}

function renderNetwork() {
  const { nodes } = model.status;
  if (nodes.length === 0) return;
  layout(nodes.map((node) => node.name), $("network-box").clientWidth);
  const counts = Object.keys(STATES)
    .map((state) => [state, nodes.filter((node) => node.state === state).length])
    .filter(([, count]) => count > 0);
  keyed($("counts"), counts, ([state]) => state, () => make("li", {}, make("span")),
    (item, [state, count]) => {
      putState(item.firstChild, STATES[state], "state", `${count} ${STATES[state][0]}`);
    });
  const largest = Math.max(1, ...model.edges.map((edge) => edge.rate));
  // Of very many links, those with nothing particular are one path.
  const plain = (edge) => model.edges.length > LIMIT.links && edge.known && !edge.down &&
    !edge.relayed && edge.a !== model.selected && edge.b !== model.selected;
  mark($("net-plain"), "d", model.edges.filter(plain).map(edgePath).join(""));
  const own = model.edges.filter((edge) => !plain(edge));
  keyed($("net-edges"), own, (edge) => edge.key, createEdge, (element, edge) => {
    updateEdge(element, edge, largest);
  });
  let arrows = nodes.flatMap((node) => node.waits_for.map((to) => [node.name, to]))
    .filter(([, to]) => net.places.has(to));
  if (arrows.length > LIMIT.arrows) arrows = arrows.filter(([, to]) => holdsUp(to));
  keyed($("net-arrows"), arrows.slice(0, LIMIT.arrows), (pair) => pair.join("\n"),
    () => draw("path", { class: "arrow", "marker-end": "url(#head)" }),
    (path, [from, to]) => mark(path, "d", arrowPath(from, to)));
  keyed($("net-nodes"), nodes, (node) => node.name, createNode, updateNode);
}

function edgePath(edge) {
  const [a, b] = [net.places.get(edge.a), net.places.get(edge.b)];
  return `M${a.x.toFixed(1)} ${a.y.toFixed(1)}L${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
}

function createEdge(edge) {
  // The third path is not seen; it is wide, and catches the pointer.
  const group = draw("g", {}, draw("path"), draw("path", { class: "cut" }),
    draw("path", { class: "hit" }));
  group.tip = () => edgeTip(edge.key);
  return group;
}

function updateEdge(group, edge, largest) {
  const [line, cut, hit] = group.children;
  const path = edgePath(edge);
  const chosen = [edge.a, edge.b].includes(model.selected) ? " chosen" : "";
  const look = edge.down ? " down" : !edge.known ? " unheard" : edge.relayed ? " relayed" : "";
  mark(line, "class", `link${look}${chosen}`);
  const width = 1 + Math.round(2 * (net.many ? 2.5 : 6) * Math.sqrt(edge.rate / largest)) / 2;
  mark(line, "stroke-width", edge.down ? 2.5 : width);
  mark(line, "d", path);
  mark(hit, "d", path);
  const [a, b] = [net.places.get(edge.a), net.places.get(edge.b)];
  const [x, y, r] = [(a.x + b.x) / 2, (a.y + b.y) / 2, net.many ? 4 : 7];
  const cross = `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
  mark(cut, "d", edge.down ? cross : "");
}

function edgeTip(key) {
  const edge = model.edges.find((candidate) => candidate.key === key);
  if (!edge) return [];
  const way = (from, link) => {
    if (!link) return `${from} has no record of this link`;
    if (!link.up) return `${from}: ${link.reason || "down"}`;
    if (isReport()) {
      return `${from} sent ${bytes(link.sent_bytes)} and received ${bytes(link.received_bytes)}`;
    }
    return `${from} sends ${rate(link.sent_bytes_s)} and receives ${rate(link.received_bytes_s)}`;
  };
  const delays = [edge.ab, edge.ba].map((link) => link?.rtt_ms).filter((ms) => ms !== undefined);
  const kind = !edge.known ? "not known" : edge.down ? "down" : edge.relayed ? "relayed" : "direct";
  return [
    `${edge.a} – ${edge.b}: ${kind}`,
    delays.length ? `round trip ${[...new Set(delays.map((ms) => duration(ms / 1e3)))].join(" / ")}`
      : "round trip not known",
    way(edge.a, edge.ab),
    way(edge.b, edge.ba),
  ];
}

/** A curve beside the link, from the edge of one node to the edge of the other. */
function arrowPath(from, to) {
  const [a, b] = [net.places.get(from), net.places.get(to)];
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const bow = Math.min(26, Math.max(8, length * 0.14)) * (net.many ? 0.6 : 1);
  const gap = a.size + (net.many ? 2 : 7);
  const at = (x, y, along, aside) =>
    `${(x + ux * along - uy * aside).toFixed(1)} ${(y + uy * along + ux * aside).toFixed(1)}`;
  return `M${at(a.x, a.y, gap, bow / 3)}Q${at((a.x + b.x) / 2, (a.y + b.y) / 2, 0, bow)} ` +
    at(b.x, b.y, -gap, bow / 3);
}

function createNode(node) {
  const group = draw("g", { role: "button", tabindex: "-1" },
    draw("circle", { class: "ring" }), draw("circle", { class: "dot" }), draw("use"),
    draw("text", { class: "label" }), draw("text", { class: "label small" }));
  const name = node.name;
  group.tip = () => nodeTip(name);
  group.addEventListener("click", () => choose(name));
  group.addEventListener("focus", () => (net.focused = name));
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      const all = [...$("net-nodes").children];
      all[(all.indexOf(group) + step + all.length) % all.length].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      choose(name);
    } else {
      return;
    }
    event.preventDefault();
  });
  return group;
}

function updateNode(group, node) {
  const { x, y, angle, size } = net.places.get(node.name);
  const [word, icon, tone] = stateOf(node);
  const holds = holdsUp(node.name);
  const chosen = node.name === model.selected;
  const [ring, dot, use, label, small] = group.children;
  mark(group, "class", `node ${tone}${holds ? " holds" : ""}${chosen ? " chosen" : ""}`);
  mark(group, "aria-pressed", chosen);
  mark(group, "aria-label", `${node.name}, ${word}${holds ? ", holds up the run" : ""}`);
  const entry = [net.focused, model.selected].find((name) => net.places.has(name)) ??
    model.status.nodes[0].name;
  mark(group, "tabindex", node.name === entry ? 0 : -1);
  for (const circle of [ring, dot]) {
    mark(circle, "cx", x.toFixed(1));
    mark(circle, "cy", y.toFixed(1));
  }
  mark(dot, "r", size);
  mark(ring, "r", size + (net.many ? 3 : 5));
  const half = size * 0.6;
  mark(use, "href", `#i-${icon}`);
  mark(use, "x", (x - half).toFixed(1));
  mark(use, "y", (y - half).toFixed(1));
  mark(use, "width", (2 * half).toFixed(1));
  mark(use, "height", (2 * half).toFixed(1));
  const cut = node.name.length > net.letters;
  put(label, cut ? `${node.name.slice(0, net.letters - 1)}…` : node.name);
  if (net.many) {
    const left = Math.cos(angle) < -1e-6;
    const degrees = (angle * 180) / Math.PI + (left ? 180 : 0);
    const away = size + 7;
    mark(label, "transform",
      `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${degrees.toFixed(2)})`);
    mark(label, "x", left ? -away : away);
    mark(label, "y", 3.5);
    mark(label, "text-anchor", left ? "end" : "start");
    put(small, "");
    return;
  }
  const aside = Math.abs(Math.cos(angle)) > 0.3;
  const way = Math.sign(Math.cos(angle));
  const anchor = !aside ? "middle" : way > 0 ? "start" : "end";
  const above = Math.sin(angle) < 0;
  const labelX = aside ? x + way * (size + 12) : x;
  const labelY = aside ? y : above ? y - size - 26 : y + size + 24;
  mark(label, "transform", null);
  put(small, holds && net.letters > 12 ? `${word}, holds up` : word);
  for (const [text, down] of [[label, 0], [small, 16]]) {
    mark(text, "x", labelX.toFixed(1));
    mark(text, "y", (labelY + down).toFixed(1));
    mark(text, "text-anchor", anchor);
  }
}

function nodeTip(name) {
  const node = model.nodes.get(name);
  if (!node) return [];
  const lines = [`${name}: ${stateText(node)}`, `round ${whole(node.round)}`];
  if (node.reason) lines.push(`${name} ${node.reason}`);
  if (node.waits_for.length) lines.push(`waits for ${listing(node.waits_for)}`);
  return lines;
}

/** Shows the tip of what lies under the pointer in the drawing. */
function pointTip(event) {
  const lines = event?.target.closest("#network g")?.tip?.() ?? [];
  show($("tip"), lines.length > 0);
  if (lines.length > 0) writeTip(lines, event.clientX, event.clientY);
}

/** Shows lines beside a point of the window. */
function writeTip(lines, atX, atY) {
  const tip = $("tip");
  show(tip, true);
  tip.replaceChildren(...lines.map((line) => make("p", {}, line)));
  const x = Math.min(atX + 14, innerWidth - tip.offsetWidth - 8);
  const below = atY + 18;
  const y = below + tip.offsetHeight > innerHeight ? atY - tip.offsetHeight - 10 : below;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${y}px`;
}

/** Shows the last point at or before the pointer of the line under it. */
function tipPoint({ plot, near, metric, range }, at) {
  if (!plot.over.matches(":hover")) return;
  const [, series] = linesOf().find(([name]) => name === near) ?? [];
  const values = series && valuesOf(series, metric);
  const end = plot.data[0][at] + (range[1] - range[0]) / LIMIT.bins / 2;
  const isBefore = (x, index) => x <= end && (values[index] ?? null) !== null;
  const point = series ? series[view.axis].findLastIndex(isBefore) : -1;
  show($("tip"), point >= 0);
  if (point < 0) return;
  const place = `${view.axis === "round" ? "round " : ""}${acrossText(series[view.axis][point])}`;
  const box = plot.over.getBoundingClientRect();
  writeTip([near, `${number(values[point])} at ${place}`],
    box.left + plot.cursor.left, box.top + plot.cursor.top);
}

// ----------------------------------------------------------------------------------------- detail

function stateText(node) {
  const word = stateOf(node)[0];
  if (isReport()) return word;
  if (node.state === "unknown") return `${word}: no record has come from it`;
  if (node.state !== "silent") return `${word} for ${duration(node.since_s)}`;
  const said = node.said ? `, then ${lookOf(STATES, node.said)[0]}` : "";
  return `${word}, last heard ${duration(node.age_s)} ago${said}`;
}

function renderDetail() {
  // Without a selection, the first node that holds up the run is shown.
  const node = model.nodes.get(model.selected ?? model.status.holding_up[0]);
  show($("detail"), Boolean(node));
  show($("detail-hint"), model.selected === null);
  show($("detail-close"), model.selected !== null);
  put($("detail-title"), !node ? "Selected node"
    : model.selected === null ? `${node.name}, which holds up the run` : node.name);
  if (!node) return;
  putState($("detail-state"), stateOf(node), "state", stateText(node) +
    (node.reason ? `. ${node.name} ${node.reason}` : ""));
  show($("warnings-title"), node.warnings.length > 0);
  const warnings = node.warnings.map((text, index) => ({ text, index })).reverse();
  keyed($("warnings"), warnings, ({ text, index }) => `${node.name}\n${index}\n${text}`,
    () => make("li"), (item, { text }) => put(item, text));
  keyed($("links"), node.links, (link) => `${node.name}\n${link.to}`,
    (link) => make("tr", {}, make("th", { scope: "row" }, nameButton(link.to)),
      make("td", {}, make("span"), make("p")), make("td"), make("td"), make("td")),
    (row, link) => {
      const kind = !link.up ? ["down", "cross", "bad"]
        : link.relayed ? ["relayed", "fork", "warn"] : ["direct", "done", "good"];
      putState(row.children[1].firstChild, kind, "state");
      put(row.children[1].lastChild, link.reason);
      put(row.children[2], link.rtt_ms === undefined ? NONE : duration(link.rtt_ms / 1e3));
      const way = (total, now) => isReport() ? bytes(total) : rate(now);
      put(row.children[3], way(link.sent_bytes, link.sent_bytes_s));
      put(row.children[4], way(link.received_bytes, link.received_bytes_s));
    });
  keyed($("facts"), factsOf(node), ([label]) => label,
    ([label]) => make("div", {}, make("dt", {}, label), make("dd")),
    (item, [, text]) => put(item.lastChild, text));
}

function factsOf(node) {
  const optional = (label, value, format) => (value === undefined ? [] : [[label, format(value)]]);
  const live = (facts) => (isReport() ? [] : facts);
  return [
    ["number", String(node.number)],
    ["member", node.member ? "yes" : "no"],
    ["round", whole(node.round)],
    ...live([
      ["last record", node.age_s === undefined ? NONE : `${duration(node.age_s)} ago`],
      ["in this state for", duration(node.since_s)],
      ["waits for", listing(node.waits_for) || "none"],
    ]),
    ...optional("state in its last record", node.said, (said) => lookOf(STATES, said)[0]),
    ...optional("loss", node.loss, number),
    ...Object.entries(node.measures).map(([key, value]) => [words(key), number(value)]),
    ...optional("evaluated in round", node.evaluated, whole),
    ...optional("consensus", node.consensus, number),
    ...live([["share of time", sharesText(node) || NONE]]),
    ...optional("time of a round", node.round_s, duration),
    ...optional("time of a gradient", node.gradient_s, duration),
    ["sent", bytes(node.sent_bytes)],
    ["received", bytes(receivedBytes(node))],
    ...live([["checkpoint", checkpointText(node)], ["outages", whole(node.outages)]]),
    ...optional("running for", node.uptime_s, duration),
    ...optional("program", node.program, (program) => `gradvine ${program}`),
  ];
}

function checkpointText(node) {
  if (!node.checkpoint) return "none";
  return `round ${whole(node.checkpoint.round)}, ${duration(node.checkpoint.age_s)} ago`;
}

function sharesOf(node) {
  const { computing = 0, mixing = 0, evaluating = 0, disk = 0, waiting: waits = 0 } = node.shares;
  if (Object.keys(node.shares).length === 0) return null;
  const known = { computing, mixing, evaluating, disk, waiting: waits };
  return { ...known, other: Math.max(0, 1 - sum(Object.values(known))) };
}

function sharesText(node) {
  const shares = Object.entries(sharesOf(node) ?? {});
  return shares.map(([key, part]) => `${key} ${share(part)}`).join(", ");
}

// ------------------------------------------------------------------------------------------ table

const order = { by: "worst", down: false, sorted_ms: 0, names: [] };
const text = (format) => (cell, node) => put(cell, format(node));

/** The columns: key, title, how to fill a cell, what to sort by, whether only one page has it. */
function columnsOf(measures) {
  const columns = [
    ["state", "State", (cell, node) => {
      if (!cell.firstChild) cell.append(make("span"), make("p", { class: "quiet" }));
      putState(cell.firstChild, stateOf(node), "state");
      const quiet = isReport() ? "" : node.state === "silent" ? `heard ${duration(node.age_s)} ago`
        : node.state === "unknown" ? "no record" : `for ${duration(node.since_s)}`;
      put(cell.lastChild, (holdsUp(node.name) ? "holds up · " : "") + quiet);
    }, (node) => badness(node)],
    ["round", "Round", (cell, node) => {
      if (!cell.firstChild) cell.append(make("span"), make("p", { class: "quiet" }));
      put(cell.firstChild, whole(node.round));
      const ahead = node.round - model.status.round;
      put(cell.lastChild, ahead > 0 ? `+${whole(ahead)}` : "");
    }, (node) => node.round],
    ["round_s", "Round time", text((node) => duration(node.round_s)), (node) => node.round_s,
      "live"],
    ["loss", "Loss", text((node) => number(node.loss)), (node) => node.loss],
    ...measures.map((key) => [`measure ${key}`, words(key),
      text((node) => number(node.measures[key])), (node) => node.measures[key]]),
    ["waits", "Waits for", text((node) => listing(node.waits_for) || NONE),
      (node) => node.waits_for.length, "live"],
    ["shares", "Share of time", fillShares, (node) => sharesOf(node)?.computing, "live"],
    ["sends", "Sends", text((node) => rate(sent(node))), sent, "live"],
    ["receives", "Receives", text((node) => rate(received(node))), received, "live"],
    ["checkpoint", "Checkpoint", text((node) => node.checkpoint
      ? `${duration(node.checkpoint.age_s)} ago` : "none"),
    (node) => node.checkpoint?.age_s, "live"],
    ["outages", "Outages", text((node) => whole(node.outages)), (node) => node.outages, "live"],
    ["sent", "Sent", text((node) => bytes(node.sent_bytes)), (node) => node.sent_bytes, "report"],
    ["received", "Received", text((node) => bytes(receivedBytes(node))), receivedBytes, "report"],
  ];
  const other = isReport() ? "live" : "report";
  const hasLoss = !isReport() || model.status.nodes.some((node) => node.loss !== undefined);
  return columns.filter(([key, , , , only]) => only !== other && (key !== "loss" || hasLoss));
}

function fillShares(cell, node) {
  const parts = ["computing", "mixing", "evaluating", "disk", "waiting", "other"];
  if (!cell.firstChild) {
    cell.append(make("div", { class: "stack", "aria-hidden": "true" },
      ...parts.map((part) => make("i", { class: `s-${part}` }))), make("span", { class: "quiet" }));
  }
  const shares = sharesOf(node);
  show(cell.firstChild, shares !== null);
  mark(cell, "title", sharesText(node));
  if (!shares) return put(cell.lastChild, NONE);
  parts.forEach((part, index) => {
    cell.firstChild.children[index].style.width = `${(shares[part] * 100).toFixed(1)}%`;
  });
  const most = parts.reduce((best, part) => (shares[part] > shares[best] ? part : best));
  put(cell.lastChild, `${share(shares[most])} ${most}`);
}

/** 0 for the nodes that need a look first. */
function badness(node) {
  const place = ["failed", "silent", "unknown", "short"].indexOf(node.state);
  if (place >= 0) return place;
  return holdsUp(node.name) ? 4 : node.state === "left" ? 6 : 5;
}

function sortedNames(columns) {
  const nodes = [...model.status.nodes];
  const missing = (value) => value === undefined || value === null;
  const by = order.by === "name" ? (node) => node.name.toLowerCase()
    : columns.find(([key]) => key === order.by)?.[3];
  const compare = (a, b) => (missing(a) || missing(b)) ? missing(a) - missing(b)
    : (a < b ? -1 : a > b ? 1 : 0) * (order.down ? -1 : 1);
  if (order.by === "worst" || !by) {
    nodes.sort((a, b) => badness(a) - badness(b) || a.round - b.round);
  } else {
    nodes.sort((a, b) => compare(by(a), by(b)));
  }
  return nodes.map((node) => node.name);
}

function renderTable() {
  const measures = measureNames();
  const columns = columnsOf(measures);
  renderHeads(columns);
  // Rows keep their places for some seconds, and while the pointer or the focus is on one.
  const now = performance.now();
  const still = now - order.sorted_ms < 3000 || $("rows").matches(":hover, :focus-within");
  const same = order.names.length === model.nodes.size &&
    order.names.every((name) => model.nodes.has(name));
  if (!still || !same) {
    order.names = sortedNames(columns);
    order.sorted_ms = now;
  }
  const key = columns.map(([id]) => id).join("\n");
  const names = order.names.slice(0, $("rows").childElementCount + LIMIT.added);
  keyed($("rows"), names, (name) => `${name}\n${key}`,
    (name) => make("tr", {}, make("th", { scope: "row" }, nameButton(name)),
      ...columns.map(([id]) => make("td", { class: `c-${id.split(" ")[0]}` }))),
    (row, name) => {
      const node = model.nodes.get(name);
      const chosen = name === model.selected;
      const old = ["silent", "unknown"].includes(node.state) ? " old" : "";
      mark(row, "class", `${holdsUp(name) ? "holds" : ""}${chosen ? " chosen" : ""}${old}`);
      mark(row.firstChild.firstChild, "aria-pressed", chosen);
      columns.forEach(([, , fill], index) => fill(row.children[index + 1], node));
    });
  return names.length < order.names.length ? "unfinished" : "finished";
}

function renderHeads(columns) {
  keyed($("heads"), [["name", "Node"], ...columns], ([id]) => id, ([id, title]) => {
    const button = make("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      order.down = order.by === id ? !order.down : false;
      order.by = id;
      order.names = [];
      schedule("table");
    });
    return make("th", { scope: "col" }, button);
  }, (head, [id]) => {
    const sorted = order.by === id;
    mark(head, "aria-sort", sorted ? (order.down ? "descending" : "ascending") : null);
  });
  mark($("worst"), "aria-pressed", order.by === "worst");
}

function measureNames() {
  const names = new Set(model.status.nodes.flatMap((node) => Object.keys(node.measures)));
  for (const [, series] of linesOf()) {
    for (const key of Object.keys(series.measures)) names.add(key);
  }
  return [...names];
}

// ----------------------------------------------------------------------------------------- curves

const charts = new Map(); // metric -> {plot, names, legend, old: to be drawn anew, ..}
const view = { axis: "round", last: 1, log: false, zoom: null, built: "", lines: null, strong: [],
  marks: [] };

const valuesOf = (series, metric) =>
  metric.startsWith("measure ") ? series.measures[metric.slice(8)] : series[metric];

/** The lines of the charts with their names: of each node; a report can have other ones. */
function linesOf() {
  if (view.lines) return view.lines;
  return [...model.nodes.keys()].map((name) => [name, model.curves.get(name) ?? newSeries()]);
}

/** The ends of the band around a line, if it has one. */
function bandOf(series, metric) {
  const key = metric.replace("measure ", "");
  return series.low?.[key] ? [series.low[key], series.high[key]] : null;
}

/** The extent of the x axis: the zoomed one, else the last part of all points. */
function extent(curves) {
  if (view.zoom) return view.zoom;
  let [low, high] = [Infinity, -Infinity];
  for (const series of curves) {
    const across = series[view.axis];
    low = Math.min(low, across[0] ?? Infinity);
    high = Math.max(high, across.at(-1) ?? -Infinity);
  }
  if (!(low < high)) return Number.isFinite(low) ? [low, low + 1] : [0, 1];
  return [high - (high - low) * view.last, high];
}

/** The mean of the values in each of the bins of [low, high]; `null` where there is none. */
function sample(across, values, low, high) {
  const [count, out] = [LIMIT.bins, new Array(LIMIT.bins).fill(null)];
  const width = (high - low) / count;
  const between = (x0, y0, x1, y1, x) => y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
  let [x0, y0, bin, held] = [null, null, -1, 0];
  for (let i = 0; i < across.length; i += 1) {
    const [x, y] = [across[i], values[i] ?? null];
    if (x === null || y === null || (view.log && y <= 0)) continue;
    // Lines that cross the border of the view are drawn up to it.
    if (x0 !== null && x0 < low && x > low) out[0] = between(x0, y0, x, y, low);
    if (x0 !== null && x0 < high && x > high) out[count - 1] ??= between(x0, y0, x, y, high);
    if (x > high) break;
    [x0, y0] = [x, y];
    if (x < low) continue;
    const place = Math.min(count - 1, Math.floor((x - low) / width));
    held = place === bin ? held + 1 : 1;
    out[place] = held === 1 ? y : out[place] + (y - out[place]) / held;
    bin = place;
  }
  return out;
}

/** The median of the lines in each bin; a line keeps its value until its next one, or its end. */
function median(lines) {
  const ends = lines.map((line) => line.findLastIndex((value) => value !== null));
  const last = lines.map(() => null);
  const held = new Float64Array(lines.length);
  return Array.from({ length: LIMIT.bins }, (_, bin) => {
    let count = 0;
    lines.forEach((line, index) => {
      if (line[bin] !== null) last[index] = line[bin];
      if (last[index] !== null && bin <= ends[index]) held[count++] = last[index];
    });
    return count ? held.subarray(0, count).sort()[count >> 1] : null;
  });
}

function renderCurves() {
  const [names, curves] = [linesOf().map(([name]) => name), linesOf().map(([, series]) => series)];
  const metrics = ["loss", ...measureNames().map((key) => `measure ${key}`), "consensus"].filter(
    (metric) => curves.some((series) => valuesOf(series, metric)?.some((value) => value !== null)),
  );
  show($("no-curves"), metrics.length === 0);
  show($("unzoom"), view.zoom !== null);
  const built = [names, metrics, view.axis, view.log].flat().join("\n");
  if (built !== view.built) {
    buildCharts(names, curves, metrics);
    view.built = built;
    return "unfinished";
  }
  // One chart a frame: many lines take some time to draw.
  const [chart, next] = [...charts.values()].filter(({ old }) => old);
  if (chart && !chart.plot) {
    chart.plot = createPlot(chart);
    return "unfinished";
  }
  if (chart) renderChart(chart, names, curves);
  return next ? "unfinished" : "finished";
}

function renderChart(chart, names, curves) {
  const [low, high] = (chart.range = extent(curves));
  const step = (high - low) / LIMIT.bins;
  const lines = curves.map((series) =>
    sample(series[view.axis], valuesOf(series, chart.metric) ?? [], low, high));
  const rows = [Array.from({ length: LIMIT.bins }, (_, bin) => low + (bin + 0.5) * step), ...lines];
  chart.strong = strongNames(names);
  if (chart.many) {
    const none = new Array(LIMIT.bins).fill(null);
    const slots = Array.from({ length: LIMIT.highlighted }, (_, slot) => chart.strong[slot]);
    rows.push(median(lines), ...slots.map((name) => lines[names.indexOf(name)] ?? none));
  } else {
    names.forEach((name, index) => {
      chart.plot.series[index + 1].width = name === model.selected ? 4 : 2;
    });
    for (const index of chart.banded) {
      const series = curves[index];
      for (const end of bandOf(series, chart.metric)) {
        rows.push(sample(series[view.axis], end, low, high));
      }
    }
  }
  chart.plot.setData(rows);
  chart.old = false;
  readValues(chart);
}

/** The lines drawn strongly among many: the selected node, then those that hold up the run. */
function strongNames(names) {
  const strong = new Set([model.selected, ...view.strong, ...model.status.holding_up]);
  return [...strong].filter((name) => names.includes(name)).slice(0, LIMIT.highlighted);
}

function buildCharts(names, curves, metrics) {
  for (const { plot } of charts.values()) plot?.destroy();
  charts.clear();
  const figures = metrics.map((metric) => {
    const title = words(metric.replace("measure ", ""));
    const label = `${title} of ${names.length < 8 ? listing(names) : "each"}`;
    const many = names.length > LIMIT.coloured;
    const banded = many ? [] : [...names.keys()].filter((index) => bandOf(curves[index], metric));
    const place = make("div", { class: "plot", role: "img", "aria-label": label });
    const legend = make("ul", { class: "legend" });
    const figure = make("figure", {}, make("figcaption", {}, title), place, legend);
    charts.set(metric, { metric, names, place, legend, many, banded, range: [0, 1], strong: [],
      old: true, near: null, zoomed_ms: -Infinity });
    return figure;
  });
  $("charts").replaceChildren(...figures);
}

function createPlot(chart) {
  const plot = new uPlot(chartOptions(chart), null, chart.place);
  plot.over.addEventListener("pointerleave", () => show($("tip"), false));
  plot.over.addEventListener("click", () => {
    if (chart.near === null || performance.now() - chart.zoomed_ms < 400) return;
    if (model.nodes.has(chart.near)) choose(chart.near);
    else if (isReport()) chooseRun(chart.near);
  });
  return plot;
}

const colour = (key) => getComputedStyle(document.documentElement).getPropertyValue(key).trim();

function chartOptions(chart) {
  const line = (stroke, width, dash) => ({ stroke, width, dash, spanGaps: true, points: {
    show: (plot, index) => plot.data[index].filter((value) => value !== null).length < 30,
    size: width + 3 } });
  const look = (index) => [colour(`--line-${index % 6}`), 2, index % 12 < 6 ? [] : [7, 4]];
  const series = chart.many
    ? [...chart.names.map(() => line(colour("--line-grey"), 1)),
      line(colour("--text"), 2.5, [8, 4]),
      ...Array.from({ length: LIMIT.highlighted }, (_, slot) => line(...look(slot)))]
    : chart.names.map((_, index) => line(...look(index)));
  const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
  const bands = chart.banded.map((index, place) => {
    const low = chart.names.length + 1 + 2 * place;
    series.push({ ...edge }, { ...edge });
    return { series: [low + 1, low], fill: `${colour(`--line-${index % 6}`)}22` };
  });
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--grid"), width: 1 },
    ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
  const seconds = [0.01, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400,
    21600, 43200, 86400, 172800, 604800, 2592000];
  return {
    width: Math.max(200, chart.place.clientWidth),
    height: 210,
    legend: { show: false },
    series: [{}, ...series],
    bands,
    scales: {
      x: { time: false, range: () => chart.range },
      y: { distr: view.log ? 3 : 1 },
    },
    axes: [
      { ...axis, space: 70, size: 32, ...(view.axis === "time_s" ? { incrs: seconds } : {}),
        values: (_, splits) => splits.map(acrossText) },
      { ...axis, size: 58, values: (_, splits) => splits.map((v) => v === null ? "" : number(v)) },
    ],
    cursor: {
      sync: { key: "curves", scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { show: !chart.many },
      bind: { dblclick: () => () => zoom(null) },
    },
    hooks: {
      draw: [drawMarks],
      setCursor: [() => readValues(chart)],
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width < 4) return;
        chart.zoomed_ms = performance.now();
        zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  };
}

/** Draws the rounds in which the members of a run changed. */
function drawMarks(plot) {
  const { ctx, bbox } = plot;
  if (view.axis !== "round") return;
  ctx.save();
  ctx.strokeStyle = colour("--quiet");
  ctx.setLineDash([4, 4]);
  for (const round of view.marks) {
    const at = Math.round(plot.valToPos(round, "x", true));
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function zoom(range) {
  view.zoom = range;
  schedule("curves");
}

function acrossText(value) {
  if (view.axis === "round") return whole(value);
  return view.axis === "bytes" ? bytes(value) : duration(value);
}

/** Writes the values at the cursor, or else the last ones, under a chart. */
function readValues(chart) {
  const { plot, names } = chart;
  if (!plot?.data?.[0]?.length) return;
  const at = plot.cursor.idx ?? null;
  const value = (index) => {
    let bin = at ?? LIMIT.bins - 1;
    while (bin > 0 && (plot.data[index][bin] ?? null) === null) bin -= 1;
    return plot.data[index][bin] ?? null;
  };
  const [count, x] = [names.length, plot.data[0][at]];
  const place = acrossText(view.axis === "time_s" ? x : Math.round(x));
  const entries = [["", at === null ? "last values"
    : view.axis === "round" ? `round ${place}` : place]];
  if (chart.many) {
    entries.push(["median", number(value(count + 1)), "median"]);
    chart.strong.forEach((name, slot) => {
      entries.push([name, number(value(count + 2 + slot)), slot]);
    });
  } else {
    names.forEach((name, index) => {
      const low = names.length + 1 + 2 * chart.banded.indexOf(index);
      const [least, most] = chart.banded.includes(index)
        ? [number(value(low)), number(value(low + 1))] : ["", ""];
      const band = least === most ? "" : ` (${least} to ${most})`;
      const shown = number(value(index + 1));
      if (shown !== NONE || !isReport()) entries.push([name, shown + band, index]);
    });
  }
  chart.near = null;
  if (at !== null && plot.cursor.top >= 0) {
    const distance = (index) => {
      const y = value(index + 1);
      return y === null ? Infinity : Math.abs(plot.valToPos(y, "y") - plot.cursor.top);
    };
    const best = names.reduce((least, _, i) => (distance(i) < distance(least) ? i : least), 0);
    if (distance(best) < 14) chart.near = names[best];
    tipPoint(chart, at);
    if (chart.many && chart.near && !chart.strong.includes(chart.near)) {
      entries.push([chart.near, number(value(best + 1)), "grey"]);
    }
  }
  keyed(chart.legend, entries, ([name, , mark]) => `${name}\n${mark}`, ([name, , look]) => {
    const dashed = look === "median" || look % 12 >= 6;
    const swatch = draw("svg", { class: "swatch", viewBox: "0 0 22 8", "aria-hidden": "true" },
      draw("path", { d: "M0 4h22",
        class: `l-${look >= 0 ? look % 6 : look}${dashed ? " dash" : ""}` }));
    return make("li", {}, ...(name ? [swatch, `${name} `] : []), make("b"));
  }, (item, [name, shown]) => {
    put(item.lastChild, shown);
    mark(item, "class", name && name === chart.near ? "near" : null);
  });
}

// ----------------------------------------------------------------------------------------- events

const log = { level: "info", node: "", text: "", before: Infinity };

function renderEvents() {
  const nodes = [...model.nodes.keys()];
  if ($("event-node").length !== nodes.length + 1) {
    const options = nodes.map((name) => make("option", {}, name));
    $("event-node").replaceChildren(make("option", { value: "" }, "all"), ...options);
    $("event-node").value = log.node;
  }
  const levels = { info: Object.keys(LEVELS), warning: ["warning", "error"], error: ["error"] };
  const wanted = levels[log.level];
  const found = model.events.filter((event) =>
    (log.level === "info" || wanted.includes(event.level)) &&
    (log.node === "" || event.node === log.node) &&
    (log.text === "" || event.text.toLowerCase().includes(log.text)));
  // A page of older events keeps its place while new ones come.
  let end = found.length;
  if (log.before !== Infinity) end = found.findLastIndex((event) => event.number < log.before) + 1;
  const start = Math.max(0, end - LIMIT.shown);
  const page = found.slice(start, end).reverse();
  const some = page.slice(0, $("events").childElementCount + LIMIT.added);
  keyed($("events"), some, (event) => event.number, (event) => {
    const look = lookOf(LEVELS, event.level);
    const level = make("span");
    putState(level, look, "state");
    const time = make("time", { datetime: event.time, title: event.time }, clock(event.time));
    return make("li", { class: look[2] }, time, level, make("p", {}, event.text));
  }, () => {});
  log.oldest = page.at(-1)?.number;
  const place = `${whole(found.length - end + 1)} to ${whole(found.length - start)} of `;
  put($("event-count"), `${page.length ? place : ""}${whole(found.length)}`);
  show($("older"), start > 0);
  show($("newest"), log.before !== Infinity);
  return some.length < page.length ? "unfinished" : "finished";
}

function filterEvents(change) {
  Object.assign(log, { before: Infinity }, change);
  schedule("events");
}

// ------------------------------------------------------------------------------------- connection

/** A failure that is told to the reader in its own sentence. */
class Trouble extends Error {}

const token = new URLSearchParams(location.search).get("token");
const connection = { state: "connecting", heard_ms: 0, failures: 0, stream: null, timer: 0 };

const address = (path) => (token === null ? path : `${path}?token=${encodeURIComponent(token)}`);

async function load(path) {
  let response;
  try {
    response = await fetch(address(path), {
      cache: "no-store",
      headers: token === null ? {} : { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(15000),
    });
  } catch {
    throw new Trouble("The node does not answer. It has ended, or the network is cut.");
  }
  if (response.status === 401 || response.status === 403) {
    throw new Trouble(token === null
      ? "This node wants a token. Open the address that it printed, which ends in ?token=…"
      : "This node does not accept the token in the address. Open the address that it printed.");
  }
  if (!response.ok) throw new Trouble(`The node answered ${path} with error ${response.status}.`);
  try {
    return await response.json();
  } catch {
    throw new Trouble(`The node sent a ${path} that this page cannot read.`);
  }
}

/** Loads the whole state, then follows the stream. After any failure, `lost` tries again. */
async function connect() {
  try {
    const [status, curves] = await Promise.all([load("status.json"), load("curves.json")]);
    acceptCurves(curves);
    hear(status, true);
  } catch (error) {
    return lost(error);
  }
  const stream = (connection.stream = new EventSource(address("events")));
  let first = true;
  stream.addEventListener("status", async (message) => {
    try {
      const status = JSON.parse(message.data);
      const last = model.events.at(-1)?.number ?? -1;
      const gap = first && status.events.length > 0 && status.events[0].number > last + 1;
      first = false;
      hear(gap ? await load("status.json") : status, gap);
    } catch (error) {
      lost(error);
    }
  });
  stream.addEventListener("error", () => lost(new Trouble("")));
}

function hear(status, whole) {
  accept(status, whole);
  Object.assign(connection, { state: "live", heard_ms: Date.now(), failures: 0 });
  complain("");
  schedule();
  showConnection();
}

function lost(error) {
  if (!(error instanceof Trouble)) console.error(error);
  connection.stream?.close();
  connection.stream = null;
  clearTimeout(connection.timer);
  connection.state = "lost";
  connection.failures += 1;
  connection.timer = setTimeout(connect, Math.min(10, 2 ** (connection.failures - 1)) * 1000);
  const ended = ENDED.includes(model.status?.state);
  if (error.message && !ended) {
    complain(error instanceof Trouble ? error.message
      : `The node sent data that this page cannot read: ${error.message}`);
  }
  showConnection();
}

/** Shows a message, or else the fault of this page, if there is one. */
function complain(message) {
  put($("alert"), message || fault);
  show($("alert"), (message || fault) !== "");
}

function showConnection() {
  if (document.hidden) return;
  const seconds = Math.round((Date.now() - connection.heard_ms) / 1000);
  const ago = connection.heard_ms ? `${duration(Math.max(1, seconds))} ago` : "";
  const ended = ENDED.includes(model.status?.state);
  const looks = {
    connecting: [["connecting", "dots", "quiet"]],
    live: [["live", "play", "good"]],
    lost: ended ? [["ended", "stop", "quiet"], `connection ended ${ago}; trying again`]
      : [["lost", "cross", "bad"], ago ? `connection lost ${ago}; trying again`
        : "no connection; trying again"],
    saved: [["saved", "save", "quiet"],
      isReport() ? "report" : `saved at ${clock(model.status?.time)}`],
  };
  putState($("connection"), looks[connection.state][0], "connection", looks[connection.state][1]);
  document.body.classList.toggle("stale", connection.state === "lost" && !ended);
}

function watch() {
  const quiet = Date.now() - connection.heard_ms > LIMIT.quiet_s * 1000;
  if (connection.state === "live" && quiet && !document.hidden) lost(new Trouble(""));
  if (connection.state === "lost") showConnection();
}

// ------------------------------------------------------------------------------------------- start

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if ($("help").open) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (!$("tip").hidden) show($("tip"), false);
    else choose(null);
    return;
  }
  if (typing) return;
  const actions = {
    j: () => chooseNext(1),
    k: () => chooseNext(-1),
    "/": () => $("filter").focus(),
    "?": () => $("help").showModal(),
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}

/** Draws the charts anew, in the colours that hold now. */
function recolour() {
  view.built = "";
  if (isReport()) redrawSections();
  while (model.status && renderCurves() === "unfinished");
}

function listen() {
  show($("help-button"), true);
  document.addEventListener("keydown", press);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) schedule();
    watch();
    showConnection();
  });
  const input = (id, type, act) => $(id).addEventListener(type, () => act($(id)));
  input("help-button", "click", () => $("help").showModal());
  input("detail-close", "click", () => choose(null));
  input("axis", "change", ({ value }) => {
    view.axis = value;
    zoom(null);
  });
  input("range", "change", ({ value }) => {
    view.last = Number(value);
    zoom(null);
  });
  input("log", "change", ({ checked }) => {
    view.log = checked;
    schedule("curves");
  });
  input("unzoom", "click", () => zoom(null));
  input("worst", "click", () => {
    Object.assign(order, { by: "worst", down: false, names: [] });
    schedule("table");
  });
  input("level", "change", ({ value }) => filterEvents({ level: value }));
  input("event-node", "change", ({ value }) => filterEvents({ node: value }));
  input("filter", "input", ({ value }) => filterEvents({ text: value.trim().toLowerCase() }));
  input("older", "click", () => {
    filterEvents({ before: log.oldest });
    $("events").parentElement.scrollTop = 0;
  });
  input("newest", "click", () => filterEvents({}));
  $("network").addEventListener("pointermove", pointTip);
  $("network").addEventListener("pointerleave", () => pointTip(null));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    recolour();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    recolour();
  });
  new ResizeObserver(() => {
    for (const { plot, place } of charts.values()) {
      if (plot?.width === place.clientWidth) continue;
      plot?.setSize({ width: place.clientWidth, height: 210 });
    }
  }).observe($("charts"));
  new ResizeObserver(() => schedule("network")).observe($("network-box"));
}

function start() {
  listen();
  const saved = $("data");
  if (saved === null) {
    showConnection();
    setInterval(watch, 1000);
    connect();
    return;
  }
  try {
    const data = JSON.parse(saved.textContent);
    if (data.runs) return openReport(data);
    const { status, curves } = data;
    acceptCurves(curves);
    accept(status, true);
    connection.state = "saved";
    showConnection();
    drawAll();
  } catch (error) {
    if (!(error instanceof Trouble)) console.error(error);
    complain(error instanceof Trouble ? error.message : "The data in this file cannot be read.");
  }
}

start();
