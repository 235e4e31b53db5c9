// The strip: one moment after the other arrives, the lines are drawn anew, the button shows the report that came last.
// Text only ever becomes text: nothing here parses a string as HTML.

const SERIES = [
  ["heap", "native heap"],
  ["rss", "process (resident)"],
  ["accelerator", "accelerator, allocated"],
  ["reserved", "accelerator, reserved"],
];
const MOST_POINTS = 600;
const LEFT = 78, RIGHT = 10, TOP = 12, BOTTOM = 22, HEIGHT = 130;
const LEAST_EXTENT = 2 ** 20; // the allocator's noise of some KiB would look like a mountain
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

function draw(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

function bytesWords(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = Math.abs(size);
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${size < 0 ? "-" : ""}${value.toFixed(digits)} ${units[unit]}`;
}

function signed(size) {
  return size < 0 ? bytesWords(size) : `+${bytesWords(size)}`;
}

// Every other point goes when there are too many: the page keeps as much after a week as after a minute.
class Points {
  constructor(levels) {
    this.rows = (levels.seconds || []).map((seconds, row) => {
      const point = { seconds, step: levels.step[row] };
      for (const [name] of SERIES) point[name] = levels[name][row];
      return point;
    });
    this.every = 1;
    this.skipped = 0;
    this.last = null;
  }
  add(now) {
    const point = { seconds: now.seconds, step: now.step };
    for (const [name] of SERIES) point[name] = now[name];
    this.last = point;
    this.skipped += 1;
    if (this.skipped < this.every) return;
    this.skipped = 0;
    this.rows.push(point);
    if (this.rows.length > MOST_POINTS) {
      this.rows = this.rows.filter((_row, place) => place % 2 === 0);
      this.every *= 2;
    }
  }
  all() {
    return this.last && this.last !== this.rows[this.rows.length - 1] ? [...this.rows, this.last] : this.rows;
  }
}

function secondOf(step, rows) {
  const after = rows.findIndex((row) => row.step >= step);
  if (after < 0) return rows[rows.length - 1].seconds;
  if (after === 0) return rows[0].seconds;
  const [a, b] = [rows[after - 1], rows[after]];
  return b.step === a.step ? b.seconds : a.seconds + ((step - a.step) / (b.step - a.step)) * (b.seconds - a.seconds);
}

function stepMarks(first, last) {
  const apart = Math.max((last - first) / 6, 1);
  const power = 10 ** Math.floor(Math.log10(apart));
  const spacing = [1, 2, 5, 10].map((factor) => power * factor).find((size) => size >= apart);
  const marks = [];
  for (let step = Math.ceil(first / spacing) * spacing; step <= last; step += spacing) marks.push(step);
  return marks;
}

function chart(rows, changes, width) {
  const svg = draw("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", class: "lls-chart" });
  svg.append(draw("title", {}, "memory since the first look"));
  const lines = SERIES.map(([name]) => {
    const known = rows.filter((row) => row[name] !== null && row[name] !== undefined);
    return [name, known.map((row) => [row.seconds, row[name] - known[0][name]])];
  }).filter(([, points]) => points.length);
  const values = lines.flatMap(([, points]) => points.map(([, value]) => value));
  const least = Math.min(0, ...values);
  const extent = Math.max(Math.max(0, ...values) - least, LEAST_EXTENT);
  const first = rows[0].seconds;
  const seconds = Math.max(rows[rows.length - 1].seconds - first, 1e-9);
  const across = (at) => LEFT + ((at - first) / seconds) * (width - LEFT - RIGHT);
  const down = (value) => HEIGHT - BOTTOM - ((value - least) / extent) * (HEIGHT - TOP - BOTTOM);
  for (const value of [least, least + extent]) {
    svg.append(
      draw("line", { x1: LEFT, x2: width - RIGHT, y1: down(value), y2: down(value), class: "lls-grid" }),
      draw("text", { x: LEFT - 6, y: down(value) + 4, "text-anchor": "end" }, signed(value)),
    );
  }
  svg.append(draw("text", { x: LEFT - 6, y: HEIGHT - 6, "text-anchor": "end" }, "step"));
  for (const step of stepMarks(rows[0].step, rows[rows.length - 1].step)) {
    const x = across(secondOf(step, rows));
    svg.append(
      draw("line", { x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4, class: "lls-tick" }),
      draw("text", { x, y: HEIGHT - 6, "text-anchor": "middle" }, step.toLocaleString("en")),
    );
  }
  for (const change of changes.slice(-40)) {
    const x = across(secondOf(change.step, rows));
    const mark = draw("g", { class: `lls-mark lls-${change.state.replace(" ", "-")}` });
    mark.append(
      draw("title", {}, `step ${change.step.toLocaleString("en")}: ${change.state}: ${change.words}`),
      draw("line", { x1: x, x2: x, y1: TOP - 6, y2: HEIGHT - BOTTOM }),
      draw("circle", { cx: x, cy: TOP - 6, r: 3.5 }),
    );
    svg.append(mark);
  }
  for (const [name, points] of lines) {
    const path = points.map(([at, value]) => `${across(at).toFixed(1)},${down(value).toFixed(1)}`).join(" ");
    svg.append(draw("polyline", { points: path, class: `lls-line lls-of-${name}` }));
  }
  return svg;
}

function facts(now) {
  const of = now.total === null ? "" : ` of ${now.total.toLocaleString("en")}`;
  const words = [`step ${now.step.toLocaleString("en")}${of}`];
  if (now.seconds > 0 && now.step) words.push(`${(now.step / now.seconds).toPrecision(3)} steps a second`);
  const calm = now.state === "warming up" ? "nothing is known yet" : "no growth is known";
  words.push(now.perStep > 0 ? `${signed(now.perStep)} per step` : calm);
  if (now.full !== null) words.push(`memory full at step ${now.full.toLocaleString("en")}`);
  if (now.tensors !== null) words.push(`${now.tensors.toLocaleString("en")} tensors at the last look`);
  if (now.holder) words.push(`held by ${now.holder}`);
  if (now.checking) words.push("checking a stretch");
  return words;
}

function render({ model, el }) {
  const first = model.get("first");
  const points = new Points(first.levels);
  let now = first.now;
  let news = first.news;
  let waits = false;
  const badge = make("span", { class: "lls-badge" });
  const title = make("span", { class: "lls-title" });
  const words = make("span", { class: "lls-facts" });
  const more = make("button", { type: "button", class: "lls-button", "aria-expanded": "false" }, "Report so far");
  const place = make("div", { class: "lls-place" });
  const legend = make("div", { class: "lls-legend" });
  const lastWords = make("div", { class: "lls-last", role: "status" });
  const report = make("pre", { class: "lls-report" });
  report.hidden = true;
  const root = make("div", { class: "leaklab-strip" },
    make("div", { class: "lls-head" }, badge, title, words, more), place, legend, lastWords, report);
  el.append(root);

  more.addEventListener("click", () => {
    report.hidden = !report.hidden;
    more.setAttribute("aria-expanded", String(!report.hidden));
    // Answered at once only while no cell runs; until then what came with the last change is shown.
    if (!report.hidden) model.send({ ask: "news" });
  });

  function show() {
    waits = false;
    const rows = points.all();
    badge.textContent = (now.alarm ? "ALARM, " : "") + now.state;
    badge.className = `lls-badge lls-${now.state.replace(" ", "-")}`;
    title.textContent = now.name;
    words.textContent = facts(now).join("  ·  ");
    if (rows.length) place.replaceChildren(chart(rows, news.changes, Math.max(root.clientWidth - 22, 320)));
    legend.replaceChildren(...SERIES.filter(([name]) => now[name] !== null).map(([name, called]) => {
      const start = rows.find((row) => row[name] !== null);
      const change = start ? ` (${signed(now[name] - start[name])})` : "";
      return make("span", {}, make("i", { class: `lls-key lls-of-${name}` }), `${called} ${bytesWords(now[name])}${change}`);
    }));
    const latest = news.changes[news.changes.length - 1];
    lastWords.textContent = latest ? `step ${latest.step.toLocaleString("en")}: ${latest.state}: ${latest.words}` : "";
    if (report.textContent !== news.report) report.textContent = news.report;
  }

  function soon() {
    if (waits) return;
    waits = true;
    requestAnimationFrame(show);
  }

  function received(message) {
    if (message.now) {
      now = message.now;
      points.add(now);
    }
    if (message.news) news = message.news;
    soon();
  }

  model.on("msg:custom", received);
  const watcher = new ResizeObserver(soon);
  watcher.observe(root);
  show();
  model.send({ ask: "news" });
  return () => {
    watcher.disconnect();
    model.off("msg:custom", received);
  };
}

export default { render };
