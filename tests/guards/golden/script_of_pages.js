
const copyCell = async summary => {
  const text = summary.nextElementSibling.textContent, words = summary.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  summary.textContent = done ? "Copied" : "Select it and copy it by hand";
  setTimeout(() => { summary.textContent = words; }, 2000);
};
"use strict";
const UNITS = {B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, PiB: 1024 ** 5,
               us: 1e-6, ms: 1e-3, s: 1};
const button = (text, name, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = name;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", act);
  return made;
};
const number = text => {
  const found = /^\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\w*)/i.exec(text);
  return found ? parseFloat(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1) : NaN;
};
const compare = (a, b, up) => {
  const x = number(a), y = number(b);
  if (!a || !b) return a ? -1 : b ? 1 : 0;
  if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
  return (isNaN(x) ? a.localeCompare(b) : x - y) * (up ? 1 : -1);
};
const sort = (head, column) => {
  const body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = row => row.cells[column].textContent.trim();
  body.append(...[...body.rows].sort((a, b) => compare(text(a), text(b), up)));
};
for (const head of document.querySelectorAll("thead th")) {
  const column = head.cellIndex;
  head.classList.add("sorts");
  head.tabIndex = 0;
  head.title = "sort by this column";
  head.addEventListener("click", () => sort(head, column));
  head.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    sort(head, column);
  });
}
for (const title of document.querySelectorAll('summary[data-leaklab="copy"]')) {
  title.addEventListener("click", () => copyCell(title));
}
const zoomable = image => {
  const frame = document.createElement("div"), tools = document.createElement("div");
  let width = 0, from = null;
  frame.className = "graph";
  frame.tabIndex = 0;
  tools.className = "tools";
  const zoom = factor => {
    width = factor ? Math.min(Math.max((width || image.clientWidth) * factor, 40), 12000) : 0;
    image.style.maxWidth = width ? "none" : "100%";
    image.style.width = width ? width + "px" : "";
  };
  tools.append(button("+", "zoom in", () => zoom(1.4)), button("\u2212", "zoom out", () => zoom(1 / 1.4)),
               button("fit", "fit the graph to the page", () => zoom(0)));
  image.replaceWith(frame);
  frame.before(tools);
  frame.append(image);
  image.draggable = false;
  frame.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
  }, {passive: false});
  frame.addEventListener("pointerdown", event => {
    if (event.button) return;
    from = {x: event.clientX + frame.scrollLeft, y: event.clientY + frame.scrollTop};
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", event => {
    if (from) frame.scrollTo(from.x - event.clientX, from.y - event.clientY);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => { from = null; });
};
document.querySelectorAll('img[src^="data:image/svg+xml"]').forEach(zoomable);
const openAll = open => document.querySelectorAll("details").forEach(part => { part.open = open; });
const bar = document.createElement("div");
bar.className = "tools";
bar.append(button("open all", "unfold every part", () => openAll(true)),
           button("close all", "fold every part", () => openAll(false)));
document.querySelector("h1").after(bar);
const follow = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", follow);
follow();
addEventListener('beforeprint', () => {
  const undo = [], waiting = [];
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    undo.push(() => { part.open = false; });
  }
  for (const part of document.querySelectorAll("[data-leaklab=evidence], [data-leaklab=figures]")) {
    if (part.dataset.leaklab === "evidence") {
      waiting.push(part);
      continue;
    }
    for (const one of waiting.splice(0)) {
      const place = document.createComment("");
      const of = document.createElement("span");
      of.textContent = `: ${one.parentElement.closest("details").querySelector("summary").textContent.trim()}`;
      one.replaceWith(place);
      one.querySelector("summary").append(of);
      part.before(one);
      undo.push(() => { of.remove(); place.replaceWith(one); });
    }
  }
  addEventListener("afterprint", () => { for (const step of undo) step(); }, {once: true});
});
