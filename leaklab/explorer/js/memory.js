// The memory: its icicle, a search over all objects, and an inspector for the one that was chosen.

const INSPECT_AFTER_MS = 150; // somebody who walks with the arrow keys asks about where they stop

function field(words, attributes) {
  return make("label", { class: "ll-field" }, words, make("input", { type: "text", spellcheck: "false", ...attributes }));
}

function onEnter(element, action) {
  element.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the notebook has commands on single letters
    if (event.key === "Enter") action();
  });
}

// `context.kept` outlives the panel: what was read, and which object was looked at. `go(panel, object)` opens a section.
function memoryPanel({ ask, act, say, keep, kept, go }) {
  const map = make("div", { class: "ll-map" }, paragraph("reading the memory...", "ll-faint"));
  const results = make("div", { class: "ll-found" });
  const drawer = make("aside", { class: "ll-drawer", "aria-label": "inspector" }, paragraph("Choose an object in the picture or in the table to see what it is, who holds it, and what it costs.", "ll-faint"));
  const title = make("span", { class: "ll-faint" });
  let timer = 0;
  let turn = 0;
  let icicle = null;

  const objectOf = (number) => `object ${kept.memory.moment} ${number}`;

  async function tried(action, busy) {
    busy.setAttribute("aria-busy", "true");
    try {
      return await action();
    } catch (error) {
      say(error.message, true);
      return null;
    } finally {
      busy.removeAttribute("aria-busy");
    }
  }

  async function read(again) {
    const answer = kept.memory && !again ? kept : await tried(() => ask("memory", { again }), map);
    if (!answer) { map.replaceChildren(paragraph("The memory could not be read.", "ll-faint")); return; }
    if (again) { results.replaceChildren(); kept.chosen = -1; }
    kept.memory = answer.memory;
    icicle?.stop();
    map.replaceChildren();
    title.textContent = kept.memory.title;
    icicle = new Icicle(map, kept.memory.devices, (node) => {
      clearTimeout(timer);
      if (node.number >= 0) timer = setTimeout(() => inspect(node.number), INSPECT_AFTER_MS);
    });
    map.append(...kept.memory.notes.map((note) => paragraph(note, "ll-faint")));
    if (kept.chosen >= 0) inspect(kept.chosen);
  }

  async function inspect(number) {
    const asked = ++turn;
    const answer = await tried(() => ask("inspect", { target: objectOf(number) }), drawer);
    if (!answer || asked !== turn) return; // a later choice has overtaken this one
    kept.chosen = number;
    drawer.replaceChildren(...inspected(answer.inspected));
  }

  function inspected(found) {
    const target = objectOf(found.number);
    const result = make("div", { class: "ll-result", "aria-live": "polite" });
    const shown = async (question, fill) => {
      const answer = await tried(() => ask(question, { target }), result);
      if (answer) result.replaceChildren(...fill(answer));
    };
    const name = field("variable ", { class: "ll-name", value: "found", size: "12" });
    const put = () => act("put", { target, name: name.querySelector("input").value });
    onEnter(name, put);
    const copy = button("copy expression", found.expression ? "copy the Python expression for it" : "Python has no expression for it", async () => {
      say((await copyText(found.expression)) ? `copied: ${found.expression}` : "this page may not copy: select the expression by hand");
    }, "copy-expression");
    copy.disabled = !found.expression;
    const holders = found.holders.rows.length
      ? makeTable(found.holders, { label: "holders", name: "ll-holders", choose: (place) => inspect(found.numbers[place]) })
      : paragraph("no object that Python shows holds it", "ll-faint");
    return [
      make("h4", { class: "ll-mono" }, found.title),
      make("div", { class: "ll-bar" }, copy,
        button("show in graph", "what leads to it, as a graph", () => go("Graph", { target, title: found.title }), "in-graph"),
        button("why alive?", "every reason why it is alive now, and the fewest references to cut", () => shown("explain", ({ explanation }) => explained(explanation)), "why"),
        button("show values", "the first values in it, as far as no code of its class has to run", () => shown("values", ({ values }) => [make("pre", {}, values.join("\n"))]), "values")),
      make("div", { class: "ll-bar" }, name, button("put into variable", "a weak reference: the variable does not keep the object alive", put, "put")),
      result, factList(found.facts),
      make("h4", {}, `Holders: ${found.n_holders.toLocaleString("en")}`), holders,
    ];
  }

  const kind = field("type ", { class: "ll-kind", placeholder: "any", size: "16" });
  const where = field("where ", { class: "ll-where", placeholder: "dtype == 'float32' and bytes > 1 MiB", size: "44" });
  const valueOf = (label) => label.querySelector("input").value;
  async function search() {
    const answer = await tried(() => ask("search", { kind: valueOf(kind), where: valueOf(where) }), results);
    if (!answer) return;
    const { found } = answer;
    say(found.title);
    results.replaceChildren(makeTable(found.table, { label: "objects found", name: "ll-objects", choose: (place) => inspect(found.numbers[place]) }));
  }
  onEnter(kind, search);
  onEnter(where, search);

  const file = make("input", { class: "ll-file-of-memory", value: "leaklab_memory.html", "aria-label": "file to save the memory to, .html or .heap" });
  onEnter(file, () => act("export_heap", { path: file.value }));
  keep(() => { clearTimeout(timer); icicle?.stop(); });
  read(false);
  return make("div", { class: "ll-memory" },
    make("div", { class: "ll-shape" },
      make("div", { class: "ll-bar" }, button("read again", "read the memory again, as it is now", () => read(true), "read"), title,
        make("span", { class: "ll-space" }), file, button("save", "save it as a page (.html), or as a file that leaklab.load opens (.heap)", () => act("export_heap", { path: file.value }), "save-memory")),
      map,
      make("div", { class: "ll-bar", role: "search" }, kind, where, button("find", "search all objects; the language is that of leaklab.find", search, "find")),
      results),
    drawer);
}
