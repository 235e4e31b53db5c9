"use strict";
// The heap as an icicle: below each object what it alone keeps alive, as wide as its bytes. Made here as a whole, so
// where no script runs nothing is shown that does nothing.
const COLOURS = {parameter: "#9ec9f5", gradient: "#f7c59f", "optimizer state": "#c7b8ea", "saved for backward": "#f4a6a0",
                 buffer: "#a9dcc9", tensor: "#f2df8c", array: "#b9d98c", other: "#d5d9de"};
const FOLDED = new Set(["libraries", "the interpreter", "nothing that is seen keeps it", "leaklab itself"]);
const ROW = 26, LEAST = 3;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const words = bytes => {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit ? bytes.toPrecision(3) : Math.round(bytes)} ${UNITS[unit]}`;
};
const count = number => number.toLocaleString("en");
const made = (name, text = "", attributes = {}) => {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

class Icicle {
  constructor(place, data) {
    this.root = this.node(data, null);
    this.focus = this.chosen = this.root;
    this.sought = "";
    this.build(place);
    this.draw();
  }

  node([label, expression, kind, part, size, small, nSmall, number, children], above) {
    const node = {label, expression, kind, part, size, number, above, depth: above ? above.depth + 1 : 0};
    node.children = children.map(child => this.node(child, node));
    if (nSmall) node.children.push({label: `${count(nSmall)} smaller`, expression: "", kind: "", part: "other", size: small,
                                    number: -1, above: node, depth: node.depth + 1, children: []});
    return node;
  }

  build(place) {
    const title = "What keeps what alive: as wide as the bytes that come back if it goes";
    const region = made("section", "", {"aria-label": title});
    region.append(made("h2", title, {style: "font-size:15px;margin:16px 0 4px"}));
    this.crumbs = made("nav", "", {"aria-label": "from the whole to what is shown", style: "font-size:13px;min-height:1.9em"});
    const label = made("label", "highlight "), input = made("input", "", {type: "search", size: "28", placeholder: "part of a name or a type"});
    input.addEventListener("input", () => { this.sought = input.value.trim().toLowerCase(); this.draw(); });
    label.append(input);
    const legend = made("div", "", {style: "display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;margin:4px 0"});
    for (const [part, colour] of Object.entries(COLOURS)) {
      const entry = made("span");
      entry.append(made("span", "", {style: `display:inline-block;width:10px;height:10px;margin-right:5px;background:${colour}`}), part);
      legend.append(entry);
    }
    this.plot = made("div", "", {role: "group", "aria-label": "a click or Enter zooms in, arrow keys walk, Backspace zooms out",
                                 style: "position:relative;overflow:hidden"});
    this.plot.addEventListener("keydown", event => this.key(event));
    this.details = made("div", "", {"aria-live": "polite", style: "font-size:13px;margin-top:6px;overflow-wrap:anywhere"});
    region.append(this.crumbs, label, legend, this.plot, this.details);
    place.append(region);
    new ResizeObserver(() => this.draw()).observe(this.plot);
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
    if (!node.button) return;
    node.button.tabIndex = 0;
    node.button.focus();
  }

  zoom(node) {
    this.focus = this.chosen = node.children.length ? node : node.above ?? node;
    this.draw();
    this.choose(this.focus);
  }

  tell() {
    const {label, expression, kind, part, size, above, number} = this.chosen;
    const share = above ? `, ${(100 * size / (above.size || 1)).toFixed(1)} % of ${above.label}` : "";
    const own = size - this.chosen.children.reduce((sum, child) => sum + child.size, 0);
    this.details.replaceChildren(made("div", `${label}: ${words(size)}${kind ? " come back if it goes" : ""}${share}`, {style: "font-weight:600"}));
    if (kind) this.details.append(made("div", `${kind}${part === "other" ? "" : `, ${part}`}; ${words(own)} of its own${number < 0 ? "" : `; number ${number}`}`));
    if (expression) this.details.append(made("code", expression));
  }

  draw() {
    const width = this.plot.clientWidth, all = [];
    if (!width) return;
    const had = this.plot.contains(document.activeElement);
    const forget = node => { node.button = null; node.children.forEach(forget); };
    forget(this.root);
    const place = (node, left, room, row) => {
      all.push([node, left, room, row]);
      // What is not the reader's own stays folded until somebody goes there.
      if (node !== this.focus && node.depth === 1 && FOLDED.has(node.label)) return;
      let at = left;
      for (const child of node.children) {
        const wide = room * child.size / (node.size || 1);
        if (wide >= LEAST) place(child, at, wide, row + 1);
        at += wide;
      }
    };
    place(this.focus, 0, width, 0);
    this.plot.style.height = `${(Math.max(...all.map(one => one[3])) + 1) * ROW}px`;
    this.plot.replaceChildren(...all.map(([node, left, room, row]) => this.box(node, left, room, row)));
    this.crumbs.replaceChildren();
    for (let node = this.focus; node; node = node.above) {
      const button = made("button", node.label, {type: "button", title: `show ${node.label}`});
      const target = node;
      button.addEventListener("click", () => this.zoom(target));
      this.crumbs.prepend(button, node === this.focus ? "" : " \u203a ");
    }
    if (!this.chosen.button) this.chosen = this.focus;
    this.chosen.button.tabIndex = 0;
    if (had) this.chosen.button.focus();
    this.tell();
  }

  box(node, left, room, row) {
    const text = room > 40 ? `${node.label}  ${words(node.size)}` : "";
    const isFaint = this.sought && !`${node.label}\n${node.expression}\n${node.kind}`.toLowerCase().includes(this.sought);
    const button = made("button", text, {
      type: "button", tabindex: "-1", title: `${node.label}: ${words(node.size)}`, "aria-label": `${node.label}, ${words(node.size)}, ${node.part}`,
      style: `position:absolute;left:${left}px;top:${row * ROW}px;width:${Math.max(1, room - 1)}px;height:${ROW - 2}px;padding:0 4px;` +
             `border:0;border-radius:2px;overflow:hidden;white-space:pre;text-overflow:ellipsis;text-align:left;font-size:12px;cursor:pointer;` +
             `color:#111;background:${COLOURS[node.part] ?? COLOURS.other};${isFaint ? "opacity:.25" : ""}`});
    button.addEventListener("click", () => node.children.length && node !== this.focus ? this.zoom(node) : this.choose(node));
    button.addEventListener("focus", () => { if (this.chosen !== node) this.choose(node); });
    node.button = button;
    return button;
  }
}

for (const data of document.querySelectorAll("script[data-leaklab=icicle]"))
  new Icicle(data.parentElement, JSON.parse(data.textContent).root);
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
