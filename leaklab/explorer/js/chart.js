// Small charts in SVG, in the colours of the page.

const SVG_SPACE = "http://www.w3.org/2000/svg";

function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG_SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

// `values` by run; a missing one breaks the line. `words(value)` names a value.
function chart(title, values, { bars = false, words = numberWords } = {}) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return null;
  const [width, height, left, bottom, top] = [520, 170, 74, 24, 12];
  const low = Math.min(0, ...known);
  const high = Math.max(...known, low + 1e-9);
  const span = Math.max(high - low, Number.EPSILON);
  const x = (place) => left + ((place + 0.5) * (width - left - 8)) / values.length;
  const y = (value) => top + ((high - value) / span) * (height - bottom - top);
  const picture = draw("svg", {
    viewBox: `0 0 ${width} ${height}`, class: "ll-chart", role: "img",
    "aria-label": `${title}: from ${words(known[0])} to ${words(known[known.length - 1])} in ${values.length} runs`,
  });
  for (const value of [low, low + span / 2, high]) {
    picture.append(draw("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: "ll-grid" }));
    picture.append(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, words(value)));
  }
  const step = Math.max(1, Math.ceil(values.length / 12));
  values.forEach((_, place) => {
    if (place % step === 0) picture.append(draw("text", { x: x(place), y: height - 6, "text-anchor": "middle" }, String(place + 1)));
  });
  if (bars) {
    const wide = Math.max(((width - left - 8) / values.length) * 0.75, 1);
    values.forEach((value, place) => {
      const bar = draw("rect", {
        x: x(place) - wide / 2, width: wide, y: y(Math.max(value, 0)), height: Math.max(Math.abs(y(value) - y(0)), value ? 1 : 0), class: "ll-mark",
      });
      bar.append(draw("title", {}, `run ${place + 1}: ${words(value)}`));
      picture.append(bar);
    });
  } else {
    const points = values.map((value, place) => (value === null || value === undefined ? null : `${x(place)},${y(value)}`));
    picture.append(draw("polyline", { points: points.filter(Boolean).join(" "), class: "ll-line" }));
    values.forEach((value, place) => {
      if (points[place] === null) return;
      const dot = draw("circle", { cx: x(place), cy: y(value), r: 3, class: "ll-mark" });
      dot.append(draw("title", {}, `run ${place + 1}: ${words(value)}`));
      picture.append(dot);
    });
  }
  return make("figure", { class: "ll-figure" }, make("figcaption", {}, title), picture);
}
