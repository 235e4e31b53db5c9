// Lay DOT out as SVG: by the Graphviz that the kernel sends once to each page, else by one that the kernel has.

const GRAPHVIZ = Symbol.for("leaklab.graphviz");
const TAGS = new Set(["svg", "g", "path", "polygon", "polyline", "ellipse", "text", "title"]);
const ATTRIBUTES = new Set([
  "viewBox", "width", "height", "transform", "class", "id", "d", "points", "cx", "cy", "rx", "ry", "x", "y", "fill", "stroke",
  "stroke-width", "stroke-dasharray", "text-anchor", "font-family", "font-size", "font-weight", "font-style", "textLength",
]);

// One for all explorers of the page; a failure is forgotten, so that the next graph tries again.
function graphviz(ask) {
  globalThis[GRAPHVIZ] ??= (async () => {
    const { buffers } = await ask("renderer");
    const address = URL.createObjectURL(new Blob([buffers[0]], { type: "text/javascript" }));
    try {
      return await (await import(/* webpackIgnore: true */ address)).Graphviz.load();
    } finally {
      URL.revokeObjectURL(address);
    }
  })();
  return globalThis[GRAPHVIZ].catch((error) => {
    delete globalThis[GRAPHVIZ];
    throw error;
  });
}

// Copy what is known to be harmless, and nothing else.
function cleaned(element) {
  const copy = document.createElementNS(SVG_SPACE, element.localName);
  for (const { name, value } of element.attributes) if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.nodeValue);
    else if (child.nodeType === Node.ELEMENT_NODE && TAGS.has(child.localName)) copy.append(cleaned(child));
  }
  return copy;
}

function parsed(text) {
  const root = new DOMParser().parseFromString(text.slice(text.indexOf("<svg")), "image/svg+xml").documentElement;
  if (root.localName !== "svg") throw new Error("the layout is no picture");
  return cleaned(root);
}

async function layout(dot, ask) {
  try {
    const engine = await graphviz(ask);
    return parsed(engine.layout(dot, "svg", "dot"));
  } catch {
    return parsed((await ask("draw", { dot })).svg);
  }
}
