// The graph of one object: pan, zoom, search, fold; open a node or ignore a holder by asking the kernel.

const HELP = "Enter opens a node's further holders, h ignores the holder, f folds, / searches, + and - zoom, 0 fits, arrows move";

// `ask(name, arguments)` answers as the kernel does; `say(words)` shows a sentence. Returns {element, look}.
function makeGraph(recorded, target, ask, say) {
  const state = { graph: recorded, folded: new Set(), scale: 1, x: 0, y: 0, words: "", focus: "", turn: 0 };
  const stage = make("div", { class: "ll-stage", tabindex: 0, role: "group", "aria-label": `graph of references. ${HELP}` });
  const notes = make("div", { class: "ll-notes ll-faint", "aria-live": "polite" });
  const ignored = make("div", { class: "ll-ignored" });
  const search = make("input", {
    type: "search", class: "ll-filter ll-search", placeholder: "search ( / )", "aria-label": "search the graph",
    oninput: () => { state.words = search.value.toLowerCase(); mark(); },
    onkeydown: (event) => {
      event.stopPropagation();
      if (event.key === "Enter") hits()[0]?.focus();
      if (event.key === "Escape") stage.focus();
    },
  });
  const bar = make("div", { class: "ll-bar" },
    search,
    button("+", "zoom in", () => zoom(1.25), "zoom-in"),
    button("-", "zoom out", () => zoom(0.8), "zoom-out"),
    button("fit", "fit the graph to the page", fit, "fit"),
    button("Load live references", "find the object in the living heap, and every independent path to it", () => look("", ""), "look"),
    button("open", "show all holders of the chosen node", () => onChosen(open), "open"),
    button("Ignore this holder", "find the paths that are left without the chosen holder", () => onChosen(hide), "hide"),
    button("fold", "fold the holders of the chosen node away, or unfold them", () => onChosen(fold), "fold"),
    button("reset", "forget what was opened, ignored and folded", () => { state.folded.clear(); look("reset", ""); }, "reset"));
  const element = make("div", { class: "ll-graph" }, bar, ignored, stage, notes, make("p", { class: "ll-faint" }, HELP));

  const nodes = () => [...stage.querySelectorAll(".ll-node")];
  const hits = () => nodes().filter((node) => node.classList.contains("ll-hit"));
  const keyOf = (node) => state.graph.nodes[Number(node.id.slice(1))].key;
  const nodeOf = (key) => state.graph.nodes.find((node) => node.key === key);

  function onChosen(action) {
    if (nodeOf(state.focus)) action(state.focus);
    else say("choose a node first: click it, or go there with Tab");
  }

  async function look(change, key) {
    stage.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("look", { target, change, key });
      state.graph = answer.graph;
      state.focus = answer.graph.focus || state.focus; // a node of the report has another key among the living
      await drawAgain();
    } catch (error) {
      say(error.message, true);
    } finally {
      stage.removeAttribute("aria-busy");
    }
  }

  const open = (key) => look("open", key);

  function hide(key) {
    const role = nodeOf(key).role;
    if (role !== "object") say("only an object between a root and what is asked about can be ignored", true);
    else look("hide", key);
  }

  function fold(key) {
    if (!state.folded.delete(key)) state.folded.add(key);
    drawAgain();
  }

  function keys(event) {
    const at = event.target.closest?.(".ll-node");
    const key = at ? keyOf(at) : "";
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    const does = {
      "/": () => search.focus(), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit,
      ...(at ? { Enter: () => open(key), " ": () => open(key), h: () => hide(key), f: () => fold(key) } : {}),
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) move(...moves[event.key]);
    else if (does[event.key]) does[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has commands on single letters
  }

  function place() {
    const group = stage.querySelector("svg");
    if (group) group.style.transform = `translate(${state.x}px, ${state.y}px) scale(${state.scale})`;
  }

  function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
    const scale = Math.min(Math.max(state.scale * factor, 0.1), 6);
    state.x = x - ((x - state.x) * scale) / state.scale;
    state.y = y - ((y - state.y) * scale) / state.scale;
    state.scale = scale;
    place();
  }

  function move(x, y) {
    state.x += x;
    state.y += y;
    place();
  }

  function fit() {
    const svg = stage.querySelector("svg");
    if (!svg || !stage.clientWidth) return;
    const [wide, high] = [svg.viewBox.baseVal.width * 4 / 3, svg.viewBox.baseVal.height * 4 / 3];
    state.scale = Math.min((stage.clientWidth - 16) / wide, (stage.clientHeight - 16) / high, 1.2);
    state.x = (stage.clientWidth - wide * state.scale) / 2;
    state.y = (stage.clientHeight - high * state.scale) / 2;
    place();
  }

  function mark() {
    for (const node of nodes()) {
      const { kind, summary, note, expression } = nodeOf(keyOf(node));
      const text = [kind, summary, note, expression].join(" ").toLowerCase();
      node.classList.toggle("ll-hit", Boolean(state.words) && text.includes(state.words));
    }
    if (state.words) say(`${counted(hits().length, "node")} found`);
  }

  function choose(node) {
    state.focus = keyOf(node);
    for (const other of nodes()) other.classList.toggle("ll-chosen", other === node);
    const { kind, summary, expression, holders } = nodeOf(state.focus);
    const known = holders === undefined ? "" : `, ${counted(holders, "direct holder")}`;
    say(`${expression || kind}${summary ? ` ${summary}` : ""}${known}`);
  }

  function prepare(svg) {
    svg.setAttribute("role", "presentation");
    for (const node of svg.querySelectorAll(".ll-node")) {
      const record = state.graph.nodes[Number(node.id.slice(1))];
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", [record.kind, record.summary, record.note, record.expression].filter(Boolean).join(", "));
      node.querySelector("title").textContent = record.expression || record.kind;
      node.addEventListener("focus", () => choose(node));
      node.addEventListener("click", () => node.focus());
      node.addEventListener("dblclick", () => open(record.key));
    }
  }

  async function drawAgain() {
    const turn = ++state.turn;
    const had = stage.contains(document.activeElement) && document.activeElement !== stage;
    const dot = toDot(state.graph, state.folded);
    let svg;
    try {
      svg = await layout(dot, ask);
    } catch (error) {
      if (turn === state.turn) stage.replaceChildren(make("p", { class: "ll-faint" }, error.message));
      return;
    }
    if (turn !== state.turn) return; // a later graph has overtaken this one
    prepare(svg);
    stage.replaceChildren(svg);
    stage.dataset.live = String(state.graph.live);
    notes.replaceChildren(...state.graph.notes.map((note) => make("p", {}, note)));
    const hidden = state.graph.hidden ?? [];
    ignored.replaceChildren(...(hidden.length ? ["ignored: "] : []), ...hidden.map(([key, words]) =>
      button(`${words} ×`, "take this holder into account again", () => look("show", key), "show")));
    mark();
    fit();
    if (had) (nodes().find((node) => keyOf(node) === state.focus) ?? stage).focus({ preventScroll: true });
  }

  stage.addEventListener("keydown", keys);
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !stage.contains(document.activeElement)) return; // the page scrolls on
    event.preventDefault();
    const frame = stage.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1, event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  let held = null;
  stage.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".ll-node")) { held = [event.clientX, event.clientY]; stage.setPointerCapture(event.pointerId); }
  });
  stage.addEventListener("pointermove", (event) => {
    if (!held) return;
    move(event.clientX - held[0], event.clientY - held[1]);
    held = [event.clientX, event.clientY];
  });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { held = null; });
  const watch = new ResizeObserver(() => { if (stage.clientWidth && !stage.dataset.sized) { stage.dataset.sized = "1"; fit(); } });
  watch.observe(stage);
  drawAgain();
  return { element, stop: () => watch.disconnect() };
}

// A picture of a graph without anything to ask: pan and zoom by the page's own means.
function makePicture(dot, label, ask) {
  const stage = make("div", { class: "ll-picture ll-scroll", role: "img", "aria-label": label }, "drawing...");
  // The bundled Graphviz knows how wide Arial and Courier are, and takes Times for any list of fonts.
  const known = dot.replaceAll("Helvetica,Arial,sans-serif", "Arial").replaceAll("Courier,monospace", "Courier");
  layout(known, ask).then((svg) => stage.replaceChildren(svg), (error) => stage.replaceChildren(error.message));
  return stage;
}
