// Memory as an icicle: below each object what it alone keeps alive, or below each call those that it made, as wide as
// the bytes. Pages of heap files and the explorer draw it with this one script; it makes all that it shows, so where no
// script runs nothing is shown.
const PART_COLOURS = {parameter: "#9ec9f5", gradient: "#f7c59f", "optimizer state": "#c7b8ea", "saved for backward": "#f4a6a0",
                      buffer: "#a9dcc9", tensor: "#f2df8c", array: "#b9d98c", other: "#d5d9de"};
const FOLDED_GROUPS = new Set(["libraries", "the interpreter", "no visible holder", "leaklab itself"]);
const ROW_HEIGHT = 26, LEAST_WIDTH = 3, LEAST_LABEL = 40, LOST_SHARE = 0.25;

// `devices`: [name, tree] for each memory, a tree as `icicle_rows` writes it. `onChoose(node, device)` is told what is
// looked at, by a click or with the keyboard. `frames` is the title where the nodes are lines of code and no objects.
class Icicle {
  constructor(place, devices, onChoose = null, frames = "") {
    this.onChoose = onChoose;
    this.frames = frames;
    this.devices = devices.map(([name, data]) => ({name, root: this.node(data, null)}));
    this.sought = "";
    this.drawnWidth = 0;
    this.build(place);
    this.show(this.devices[0]);
  }

  node([label, expression, kind, part, size, small, nSmall, number, children], above) {
    const node = {label, expression, kind, part, size, number, above, depth: above ? above.depth + 1 : 0};
    node.children = children.map(child => this.node(child, node));
    if (nSmall) node.children.push({label: `${countWords(nSmall)} smaller`, expression: "", kind: "", part: "other",
                                    size: small, number: -1, above: node, depth: node.depth + 1, children: []});
    return node;
  }

  build(place) {
    const title = this.frames || "What keeps what alive: as wide as the bytes that come back if it goes";
    const region = element("section", "", {"aria-label": title, class: "icicle"});
    region.append(element("h2", title, {style: "font-size:15px;margin:16px 0 4px"}));
    if (this.devices.length > 1) region.append(this.switches());
    this.crumbs = element("nav", "", {"aria-label": "from the whole to what is shown", style: "font-size:13px;min-height:1.9em"});
    const search = searchBox(this.frames ? "part of a name or a file" : "part of a name or a type", text => { this.sought = text; this.draw(); });
    this.plot = element("div", "", {class: "icicle-plot", role: "group", "aria-label": "a click or Enter zooms in, arrow keys walk, Backspace zooms out",
                                    style: "position:relative;overflow:hidden"});
    this.plot.addEventListener("keydown", event => this.key(event));
    this.details = element("div", "", {"aria-live": "polite", style: "font-size:13px;margin-top:6px;overflow-wrap:anywhere"});
    region.append(this.crumbs, search, ...(this.frames ? [] : [colourLegend(Object.entries(PART_COLOURS))]), this.plot, this.details);
    place.append(region);
    this.watch = new ResizeObserver(() => { if (this.plot.clientWidth !== this.drawnWidth) this.draw(); });
    this.watch.observe(this.plot);
  }

  // The memory of the host and of each accelerator: bytes of one are not those of another.
  switches() {
    const bar = element("div", "", {role: "group", "aria-label": "whose memory", style: "display:flex;flex-wrap:wrap;gap:6px;font-size:13px;margin:4px 0"});
    for (const device of this.devices) {
      device.button = element("button", `${device.name} ${sizeWords(device.root.size)}`, {type: "button", title: `show the memory of ${device.name}`});
      device.button.addEventListener("click", () => this.show(device));
      bar.append(device.button);
    }
    return bar;
  }

  show(device) {
    this.device = device;
    const [yours] = device.root.children; // the first group, where there is one; a small program is lost in its libraries
    const isLost = yours?.label === "your variables" && yours.children.length && yours.size < LOST_SHARE * device.root.size;
    this.focus = this.chosen = isLost ? yours : device.root;
    for (const each of this.devices) each.button?.setAttribute("aria-pressed", String(each === device));
    this.draw();
  }

  stop() {
    this.watch.disconnect();
  }

  key(event) {
    const at = this.chosen, siblings = at.above && at !== this.focus ? at.above.children.filter(node => node.button) : [at];
    const beside = step => siblings[siblings.indexOf(at) + step];
    const next = {
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), ArrowUp: () => at === this.focus ? null : at.above,
      ArrowDown: () => at.children.find(node => node.button), Home: () => this.focus,
    }[event.key];
    if (next) {
      event.preventDefault();
      const node = next();
      if (node) this.choose(node);
    } else if (event.key === "Backspace" || event.key === "Escape") {
      event.preventDefault();
      if (this.focus.above) this.zoom(this.focus.above);
    }
  }

  choose(node) {
    if (this.chosen.button) this.chosen.button.tabIndex = -1;
    this.chosen = node;
    this.tell();
    if (node.button) {
      node.button.tabIndex = 0;
      node.button.focus({preventScroll: true});
    }
    this.onChoose?.(node, this.device.name);
  }

  zoom(node) {
    this.focus = this.chosen = node.children.length ? node : node.above ?? node;
    this.draw();
    this.choose(node.button ? node : this.focus);
  }

  tell() {
    const {label, expression, kind, part, size, above, number} = this.chosen;
    const share = above ? `, ${(100 * size / (above.size || 1)).toFixed(1)} % of ${above.label}` : "";
    const own = size - this.chosen.children.reduce((sum, child) => sum + child.size, 0);
    this.details.replaceChildren(element("div", `${label}: ${sizeWords(size)}${kind ? " come back if it goes" : ""}${share}`, {style: "font-weight:600"}));
    if (kind) this.details.append(element("div", `${kind}${part === "other" ? "" : `, ${part}`}; ${sizeWords(own)} of its own${number < 0 ? "" : `; number ${number}`}`));
    if (expression) this.details.append(element("code", expression));
  }

  draw() {
    const width = this.drawnWidth = this.plot.clientWidth, all = [];
    if (!width) return;
    const had = this.plot.contains(document.activeElement);
    const forget = node => { node.button = null; node.children.forEach(forget); };
    for (const device of this.devices) forget(device.root);
    const place = (node, left, room, row) => {
      all.push([node, left, room, row]);
      // What is not the reader's own stays folded until somebody goes there.
      if (node !== this.focus && node.depth === 1 && FOLDED_GROUPS.has(node.label)) return;
      let at = left;
      for (const child of node.children) {
        const wide = room * child.size / (node.size || 1);
        if (wide >= LEAST_WIDTH) place(child, at, wide, row + 1);
        at += wide;
      }
    };
    place(this.focus, 0, width, 0);
    this.plot.style.height = `${(Math.max(...all.map(one => one[3])) + 1) * ROW_HEIGHT}px`;
    this.plot.replaceChildren(...all.map(([node, left, room, row]) => this.box(node, left, room, row)));
    const isCut = ({button}) => button.scrollWidth > button.clientWidth;
    for (const node of all.map(([node]) => node).filter(isCut)) node.button.textContent = node.label; // rather than half its bytes
    this.crumbs.replaceChildren();
    for (let node = this.focus; node; node = node.above) {
      const button = element("button", node.label, {type: "button", title: `show ${node.label}`});
      const target = node;
      button.addEventListener("click", () => this.zoom(target));
      this.crumbs.prepend(button, node === this.focus ? "" : " \u203a ");
    }
    if (!this.chosen.button) this.chosen = this.focus;
    this.chosen.button.tabIndex = 0;
    if (had) this.chosen.button.focus({preventScroll: true});
    this.tell();
  }

  colour({label, part}) {
    if (!this.frames) return PART_COLOURS[part] ?? PART_COLOURS.other;
    const colours = Object.values(PART_COLOURS); // one for each file
    return colours[[...label.split(":")[0]].reduce((sum, letter, place) => sum + (place + 1) * letter.codePointAt(0), 0) % colours.length];
  }

  box(node, left, room, row) {
    const text = room > LEAST_LABEL ? `${node.label}  ${sizeWords(node.size)}` : "";
    const isFaint = this.sought && !`${node.label}\n${node.expression}\n${node.kind}`.toLowerCase().includes(this.sought);
    const button = element("button", text, {
      type: "button", tabindex: "-1", title: `${node.label}: ${sizeWords(node.size)}`, "aria-label": `${node.label}, ${sizeWords(node.size)}${this.frames ? "" : `, ${node.part}`}`,
      style: `position:absolute;left:${left}px;top:${row * ROW_HEIGHT}px;width:${Math.max(1, room - 1)}px;height:${ROW_HEIGHT - 2}px;padding:0 4px;` +
             `border:0;border-radius:2px;overflow:hidden;white-space:pre;text-overflow:ellipsis;text-align:left;font-size:12px;cursor:pointer;` +
             `outline-color:#111;outline-offset:-2px;color:#111;background:${this.colour(node)};${isFaint ? "opacity:.25" : ""}`});
    button.addEventListener("click", () => node.children.length && node !== this.focus ? this.zoom(node) : this.choose(node));
    button.addEventListener("focus", () => { if (this.chosen !== node) this.choose(node); });
    node.button = button;
    return button;
  }
}
