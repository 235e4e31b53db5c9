// A map of blocks for each device: events across, addresses upwards, the level above it. All of it is made here, so
// where no script runs nothing is shown that does nothing.
const LEVEL = "#9fb0c3", GREY = "#767676"; // the level is of all groups, and has the colour of none
const CHART = 130, MAP = 420, ROW = 16, ROWS = 4, LARGEST = 10;
const isDark = matchMedia("(prefers-color-scheme: dark)");
const rgb = colour => [1, 3, 5].map(start => parseInt(colour.slice(start, start + 2), 16));
const packed = ([red, green, blue]) => (0xff000000 | blue << 16 | green << 8 | red) >>> 0;
const column = (Kind, text) => {
  const bytes = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  return new Kind(bytes.buffer);
};

class BlockMap {
  constructor(place, data) {
    this.data = data;
    this.n = data.n_events;
    for (const name of ["first", "last", "stack", "segment_first", "segment_last"])
      this[name] = column(Uint32Array, data[name]);
    for (const name of ["bottom", "size", "segment_bottom", "segment_size"]) this[name] = column(Float64Array, data[name]);
    this.levels = this.level(this.first, this.last, this.size);
    this.reserved = this.level(this.segment_first, this.segment_last, this.segment_size);
    if (data.n_left_out) this.levels = this.stairs(data.peaks);
    this.rows = this.nested();
    this.peak = data.peaks.reduce((best, point) => point[1] > best[1] ? point : best)[0];
    this.top = Math.max(1, this.levels.reduce((a, b) => Math.max(a, b), 0), this.reserved.reduce((a, b) => Math.max(a, b), 0));
    this.cursor = data.marks.length ? data.marks[data.marks.length - 1][0] : this.peak;
    this.sought = "";
    this.chosen = -1;
    this.colour();
    this.build(place);
    this.whole();
    this.tell();
  }

  level(first, last, size) {
    const levels = new Float64Array(this.n + 2);
    for (let i = 0; i < first.length; i += 1) { levels[first[i]] += size[i]; levels[last[i]] -= size[i]; }
    for (let state = 1; state <= this.n; state += 1) levels[state] += levels[state - 1];
    return levels.subarray(0, this.n + 1);
  }

  // A row for each depth of annotations within annotations; deeper ones than there are rows are not drawn.
  nested() {
    const open = [], rows = [];
    for (const [first, last, name] of this.data.phases) {
      while (open.length && open[open.length - 1] <= first) open.pop();
      if (open.length < ROWS) (rows[open.length] ??= []).push([first, last, name]);
      open.push(last);
    }
    return rows;
  }

  stairs(points) {
    const levels = new Float64Array(this.n + 1);
    points.forEach(([event, bytes], i) => levels.fill(bytes, event, i + 1 < points.length ? points[i + 1][0] : this.n + 1));
    return levels;
  }

  // The largest groups have a colour each, the same as in the page's other pictures.
  colour() {
    const held = new Map();
    for (let i = 0; i < this.first.length; i += 1) {
      const group = this.data.stacks[this.stack[i]].group;
      const there = this.first[i] <= this.peak && this.peak < this.last[i] ? this.size[i] : 0;
      held.set(group, (held.get(group) ?? 0) + there + this.size[i] * 1e-9);
    }
    const names = [...held.keys()].sort((a, b) => held.get(b) - held.get(a));
    const given = this.data.colours;
    this.colours = new Map(names.map(name => [name, given[name] ?? GREY]));
    this.groups = names.filter(name => given[name]);
    this.n_grey = names.length - this.groups.length;
  }

  build(place) {
    const title = `Blocks of ${this.data.device}: events from left to right, addresses upwards`;
    const region = element("section", "", {"aria-label": title});
    region.append(element("h2", title, {style: "font-size:15px;margin:16px 0 4px"}));
    const bar = element("div", "", {class: "tools", style: "display:flex;flex-wrap:wrap;gap:6px;align-items:center"});
    const act = (text, name, doing) => {
      const button = element("button", text, {type: "button", title: name, "aria-label": name});
      button.addEventListener("click", doing);
      bar.append(button);
    };
    act("+", "zoom in", () => this.zoom(0.5, this.cursor));
    act("\u2212", "zoom out", () => this.zoom(2, this.cursor));
    act("\u25c0", "earlier", () => this.pan(-0.5));
    act("\u25b6", "later", () => this.pan(0.5));
    act("whole trace", "show the whole trace", () => this.whole());
    act("peak", "go to the event with the most live bytes", () => this.go(this.peak));
    for (const [event, name] of this.data.marks.slice(-3)) act(`event ${countWords(event)}`, name, () => this.go(event));
    bar.append(searchBox("part of a file, line or function", text => { this.sought = text; this.draw(); }));
    this.readout = element("div", "", {style: "min-height:1.4em;font-size:13px;overflow-wrap:anywhere"});
    const canvas = (height, name, more) => {
      const style = `display:block;width:100%;height:${height}px;margin-bottom:4px;touch-action:none`;
      const made = element("canvas", "", {"aria-label": name, style, ...more});
      this.listen(made);
      return made;
    };
    this.chart = canvas(CHART, `Live and reserved bytes of ${this.data.device} along the trace`, {role: "img"});
    this.strip = canvas(ROW * this.rows.length, "Annotated parts of the program along the trace", {role: "img"});
    const keys = "Left and right move the event, up and down the addresses, Page Up and Page Down choose the block above and " +
                 "below, plus and minus zoom, Home and End go to the ends.";
    this.map = canvas(MAP, `${title}. ${keys}`, {role: "application", tabindex: "0"});
    const key = colourLegend(this.groups.map(name => [name, this.colours.get(name)]));
    if (this.n_grey) key.append(element("span", `${countWords(this.n_grey)} more groups are grey`));
    key.append(element("span", "plain background: reserved, and free"));
    if (this.data.n_left_out)
      key.append(element("span", `${countWords(this.data.n_left_out)} blocks, the smallest or in no segment, are not drawn`));
    this.details = element("div", "", {"aria-live": "polite", style: "font-size:13px"});
    region.append(bar, this.readout, this.chart, ...(this.rows.length ? [this.strip] : []), this.map, key, this.details);
    place.append(region);
    new ResizeObserver(() => this.draw()).observe(this.map);
    isDark.addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => { if (isDark.matches) this.paint(false); }); // paper is white
    addEventListener("afterprint", () => this.paint());
  }

  listen(canvas) {
    let from = null, hasMoved = false;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const factor = event.deltaY > 0 ? 1.25 : 0.8;
      if (event.shiftKey && canvas === this.map) this.zoomUp(factor, this.height(event)); else this.zoom(factor, this.state(event));
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => { from = event; hasMoved = false; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", event => {
      if (!from) { this.hover(event, canvas); return; }
      const box = canvas.getBoundingClientRect();
      hasMoved ||= Math.abs(event.clientX - from.clientX) + Math.abs(event.clientY - from.clientY) > 3;
      if (!hasMoved) return;
      this.shift(-(event.clientX - from.clientX) / box.width * (this.hi - this.lo));
      if (canvas === this.map) this.shiftUp((event.clientY - from.clientY) / box.height * (this.above - this.below));
      from = event;
      this.draw();
    });
    canvas.addEventListener("pointerup", event => {
      if (from && !hasMoved) {
        this.chosen = canvas === this.map ? this.at(this.state(event), this.height(event)) : -1;
        this.set(this.state(event));
      }
      from = null;
    });
    canvas.addEventListener("pointerleave", () => { if (!from) this.readout.textContent = ""; });
    canvas.addEventListener("dblclick", () => this.whole());
    canvas.addEventListener("keydown", event => {
      const step = Math.max(1, Math.round((this.hi - this.lo) / 200));
      const doing = {
        ArrowLeft: () => this.set(this.cursor - step), ArrowRight: () => this.set(this.cursor + step),
        ArrowUp: () => { this.shiftUp((this.above - this.below) / 10); this.draw(); },
        ArrowDown: () => { this.shiftUp(-(this.above - this.below) / 10); this.draw(); },
        PageUp: () => this.neighbour(1), PageDown: () => this.neighbour(-1),
        Home: () => this.set(0), End: () => this.set(this.n),
        "+": () => this.zoom(0.5, this.cursor), "=": () => this.zoom(0.5, this.cursor), "-": () => this.zoom(2, this.cursor),
      }[event.key];
      if (!doing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      doing();
    });
  }

  state(event) {
    const box = this.map.getBoundingClientRect();
    return Math.floor(this.lo + (event.clientX - box.left) / box.width * (this.hi - this.lo));
  }

  height(event) {
    const box = this.map.getBoundingClientRect();
    return this.above - (event.clientY - box.top) / box.height * (this.above - this.below);
  }

  whole() { [this.lo, this.hi, this.below, this.above] = [0, this.n + 1, 0, this.data.height || 1]; this.draw(); }

  zoom(factor, at) {
    const width = Math.min(this.n + 1, Math.max(4, (this.hi - this.lo) * factor));
    const share = (Math.min(this.hi, Math.max(this.lo, at + 0.5)) - this.lo) / (this.hi - this.lo);
    this.lo = Math.max(0, Math.min(this.n + 1 - width, at + 0.5 - share * width));
    this.hi = this.lo + width;
    this.draw();
  }

  zoomUp(factor, at) {
    const all = this.data.height || 1, height = Math.min(all, Math.max(512, (this.above - this.below) * factor));
    const share = (at - this.below) / (this.above - this.below);
    this.below = Math.max(0, Math.min(all - height, at - share * height));
    this.above = this.below + height;
    this.draw();
  }

  shift(states) {
    const width = this.hi - this.lo;
    this.lo = Math.max(0, Math.min(this.n + 1 - width, this.lo + states));
    this.hi = this.lo + width;
  }

  shiftUp(bytes) {
    const height = this.above - this.below;
    this.below = Math.max(0, Math.min((this.data.height || 1) - height, this.below + bytes));
    this.above = this.below + height;
  }

  pan(share) { this.shift(share * (this.hi - this.lo)); this.draw(); }

  go(event) {
    const width = Math.min(this.n + 1, Math.max(50, (this.n + 1) / 20));
    this.lo = Math.max(0, Math.min(this.n + 1 - width, event - width / 2));
    this.hi = this.lo + width;
    this.set(event);
  }

  set(event) {
    this.cursor = Math.max(0, Math.min(this.n, event));
    if (this.cursor < this.lo || this.cursor >= this.hi) this.shift(this.cursor - (this.lo + this.hi) / 2);
    this.draw();
    this.tell();
  }

  at(state, height) {
    for (let i = 0; i < this.first.length; i += 1)
      if (this.first[i] <= state && state < this.last[i] && this.bottom[i] <= height && height < this.bottom[i] + this.size[i])
        return i;
    return -1;
  }

  liveAt(state) {
    const live = [];
    for (let i = 0; i < this.first.length; i += 1) if (this.first[i] <= state && state < this.last[i]) live.push(i);
    return live;
  }

  // Choose the block above or below, of those that are live at the event under the cursor.
  neighbour(step) {
    const live = this.liveAt(this.cursor).sort((a, b) => this.bottom[a] - this.bottom[b]);
    if (!live.length) return;
    const at = live.indexOf(this.chosen);
    this.chosen = live[at < 0 ? (step > 0 ? 0 : live.length - 1) : Math.min(live.length - 1, Math.max(0, at + step))];
    this.draw();
    this.tell();
  }

  hover(event, canvas) {
    const state = this.state(event);
    if (state < 0 || state > this.n) return;
    const within = this.data.phases.filter(([first, last]) => first <= state && state < last).map(([, , name]) => name);
    const parts = within.length ? `; within ${within.join(", ")}` : "";
    const block = canvas === this.map ? this.at(state, this.height(event)) : -1;
    this.readout.textContent = block < 0
      ? `event ${countWords(state)}: ${sizeWords(this.levels[state])} live of ${sizeWords(this.reserved[state])} reserved${parts}`
      : `${sizeWords(this.size[block])}, ${this.life(block)}: ${this.data.stacks[this.stack[block]].label}${parts}`;
  }

  life(block) {
    const since = this.first[block] ? `from event ${countWords(this.first[block])}` : "from before the trace";
    return `${since} ${this.last[block] > this.n ? "to its end" : `to event ${countWords(this.last[block])}`}`;
  }

  // What is live at the event under the cursor, and what of the reserved memory is free there.
  tell() {
    const live = this.liveAt(this.cursor);
    const marks = this.data.marks.filter(([event]) => event === this.cursor).map(([, name]) => name);
    const lines = [`Event ${countWords(this.cursor)} of ${countWords(this.n)}${marks.map(mark => `, ${mark}`).join("")}: ` +
                   `${sizeWords(this.levels[this.cursor])} live in ${countWords(live.length)} ${this.data.n_left_out ? "of the drawn blocks" : live.length === 1 ? "block" : "blocks"}; ` +
                   `${sizeWords(this.reserved[this.cursor])} reserved, the largest free piece ${sizeWords(this.hole(live))}`];
    this.details.replaceChildren(element("div", lines[0], {style: "margin:6px 0;font-weight:600"}));
    if (live.includes(this.chosen)) {
      const size = `${sizeWords(this.size[this.chosen])}, ${this.life(this.chosen)}`;
      this.details.append(element("div", "The chosen block"), this.entry(this.stack[this.chosen], size, true),
                          element("div", "The largest call stacks"));
    }
    const held = this.byStack(live);
    for (const [stack, blocks, bytes] of held.slice(0, LARGEST)) {
      const life = blocks.length > 1 ? `in ${countWords(blocks.length)} blocks` : this.life(blocks[0]);
      this.details.append(this.entry(stack, `${sizeWords(bytes)} ${life}`, false));
    }
    if (held.length > LARGEST) this.details.append(element("div", `and ${countWords(held.length - LARGEST)} smaller ones`));
  }

  // [stack, blocks, bytes] of each call stack, the largest first.
  byStack(live) {
    const found = new Map();
    for (const block of live) {
      const row = found.get(this.stack[block]) ?? [this.stack[block], [], 0];
      row[1].push(block);
      row[2] += this.size[block];
      found.set(this.stack[block], row);
    }
    return [...found.values()].sort((a, b) => b[2] - a[2]);
  }

  // A call stack in one line, with *size*; its frames unfold.
  entry(number, size, isOpen) {
    const stack = this.data.stacks[number], part = element("details"), summary = element("summary", "", {style: "cursor:pointer;padding:2px 0"});
    summary.append(colourSwatch(this.colours.get(stack.group)), `${size}: `, element("code", stack.label));
    part.append(summary, element("pre", stack.frames.join("\n") || "no frames were recorded",
                                 {style: "white-space:pre-wrap;margin:2px 0 6px 24px;font-size:12px"}));
    part.open = isOpen;
    return part;
  }

  hole(live) {
    const blocks = live.slice().sort((a, b) => this.bottom[a] - this.bottom[b]);
    const segments = [];
    for (let i = 0; i < this.segment_first.length; i += 1)
      if (this.segment_first[i] <= this.cursor && this.cursor < this.segment_last[i])
        segments.push([this.segment_bottom[i], this.segment_bottom[i] + this.segment_size[i]]);
    segments.sort((a, b) => a[0] - b[0]);
    let largest = 0, next = 0;
    for (const [start, end] of segments) {
      let free = start;
      while (next < blocks.length && this.bottom[blocks[next]] < end) {
        largest = Math.max(largest, this.bottom[blocks[next]] - free);
        free = Math.max(free, this.bottom[blocks[next]] + Math.ceil(this.size[blocks[next]] / 512) * 512);
        next += 1;
      }
      largest = Math.max(largest, end - free);
    }
    return largest;
  }

  draw() { this.pending ??= requestAnimationFrame(() => { this.pending = null; this.paint(); }); }

  surface(canvas, height) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return [context, width];
  }

  paint(dark = isDark.matches) {
    this.ink = dark ? "#e6e6e6" : "#222222";
    this.free = dark ? "#3a3f45" : "#e4e7eb";
    this.paintChart();
    this.paintStrip();
    this.paintMap();
  }

  // The maximum of each pixel: a spike of one event is as high as it was.
  paintChart() {
    const [context, width] = this.surface(this.chart, CHART);
    const room = CHART - 18;
    const highest = (levels, pixel) => {
      const start = Math.max(0, Math.floor(this.lo + pixel / width * (this.hi - this.lo)));
      const end = Math.max(start + 1, Math.min(this.n + 1, Math.floor(this.lo + (pixel + 1) / width * (this.hi - this.lo))));
      let most = 0;
      for (let state = start; state < end; state += 1) most = Math.max(most, levels[state]);
      return most / this.top * room;
    };
    context.fillStyle = this.free;
    for (let pixel = 0; pixel < width; pixel += 1) { const high = highest(this.reserved, pixel); context.fillRect(pixel, CHART - high, 1, high); }
    context.fillStyle = LEVEL;
    for (let pixel = 0; pixel < width; pixel += 1) { const high = highest(this.levels, pixel); context.fillRect(pixel, CHART - high, 1, high); }
    context.fillStyle = this.ink;
    context.font = "11px system-ui, sans-serif";
    context.fillText(`${sizeWords(this.top)}: live bytes, and reserved behind them; events ${countWords(Math.ceil(this.lo))} to ${countWords(Math.min(this.n, Math.floor(this.hi)))}`, 2, 11);
    this.paintMarks(context, width, CHART);
  }

  paintStrip() {
    if (!this.rows.length) return;
    const [context, width] = this.surface(this.strip, ROW * this.rows.length);
    context.font = "11px system-ui, sans-serif";
    this.rows.forEach((row, depth) => row.forEach(([first, last, name], number) => {
      const left = Math.max(0, (first - this.lo) / (this.hi - this.lo) * width);
      const right = Math.min(width, (last - this.lo) / (this.hi - this.lo) * width);
      if (right <= 0 || left >= width) return;
      context.fillStyle = `rgba(74,144,217,${number % 2 ? 0.25 : 0.4})`;
      context.fillRect(left, depth * ROW + 1, Math.max(1, right - left), ROW - 2);
      if (right - left < 30) return;
      context.save();
      context.beginPath();
      context.rect(left, depth * ROW, right - left - 2, ROW);
      context.clip();
      context.fillStyle = this.ink;
      context.fillText(name, left + 3, depth * ROW + 12);
      context.restore();
    }));
  }

  // Pixel by pixel: blocks do not lie on each other, so a picture costs as much as it has pixels, however many they are.
  paintMap() {
    const [context, wide] = this.surface(this.map, MAP);
    const width = this.map.width, height = this.map.height, across = width / (this.hi - this.lo), up = height / (this.above - this.below);
    const image = context.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    const edge = devicePixelRatio > 1 ? 2 : 1;
    const rectangle = (first, last, bottom, size, colour) => {
      const left = Math.max(0, Math.floor((first - this.lo) * across));
      const right = Math.min(width, Math.max(left + 1, Math.floor((last - this.lo) * across)));
      const high = Math.max(0, Math.floor(height - (bottom + size - this.below) * up));
      let low = Math.min(height, Math.max(high + 1, Math.floor(height - (bottom - this.below) * up)));
      if (last <= this.lo || bottom + size <= this.below) return;
      if (low - high > 5 * edge) low -= edge;
      for (let row = high; row < low; row += 1) pixels.fill(colour, row * width + left, row * width + right);
    };
    const free = rgb(this.free);
    for (let i = 0; i < this.segment_first.length; i += 1)
      rectangle(this.segment_first[i], this.segment_last[i], this.segment_bottom[i], this.segment_size[i], packed(free));
    const isSought = this.data.stacks.map(stack => !this.sought ||
      `${stack.label}\n${stack.frames.join("\n")}`.toLowerCase().includes(this.sought));
    const colours = this.data.stacks.map((stack, number) => {
      const colour = rgb(this.colours.get(stack.group) ?? GREY);
      return packed(isSought[number] ? colour : colour.map((part, i) => part * 0.15 + free[i] * 0.85));
    });
    for (let i = 0; i < this.first.length; i += 1)
      if (this.first[i] < this.hi && this.bottom[i] < this.above)
        rectangle(this.first[i], this.last[i], this.bottom[i], this.size[i], colours[this.stack[i]]);
    context.putImageData(image, 0, 0);
    this.paintMarks(context, wide, MAP);
    this.paintChosen(context, wide);
  }

  paintChosen(context, width) {
    if (this.chosen < 0) return;
    const x = state => (state - this.lo) / (this.hi - this.lo) * width, y = height => MAP - (height - this.below) / (this.above - this.below) * MAP;
    const left = x(this.first[this.chosen]), high = y(this.bottom[this.chosen] + this.size[this.chosen]);
    context.strokeStyle = this.ink;
    context.lineWidth = 2;
    context.strokeRect(left, high, Math.max(2, x(this.last[this.chosen]) - left), Math.max(2, y(this.bottom[this.chosen]) - high));
    context.lineWidth = 1;
  }

  paintMarks(context, width, height) {
    const line = (event, colour, dash) => {
      const x = (event + 0.5 - this.lo) / (this.hi - this.lo) * width;
      context.strokeStyle = colour;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height);
      context.stroke();
      context.setLineDash([]);
    };
    for (const [event] of this.data.marks) line(event, "#d11f1f", [5, 3]);
    line(this.cursor, this.ink, []);
  }
}

drawAll("blocks", (place, data) => new BlockMap(place, data));
