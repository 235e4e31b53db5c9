// The sections of the explorer: each is made from the record when it is first shown.

function paragraph(words, name = "") {
  return make("p", name ? { class: name } : {}, words);
}

// What stands between backticks is code; text as it is, where one has no partner.
function withCode(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

function factList(facts) {
  return make("dl", { class: "ll-facts" }, ...facts.flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)]));
}

const running = (values) => values.reduce((sums, value) => [...sums, (sums[sums.length - 1] ?? 0) + (value ?? 0)], []);

function growthPanel({ record, item }) {
  const of = (name) => record.runs.map((run) => run[name]);
  const heap = of("heap");
  const change = heap.every((value) => value !== null) ? heap.map((value) => value - heap[0]) : [];
  const device = of("accelerator").every((value) => value !== null) ? of("accelerator") : [];
  // What the last run made is current, and no leak.
  const kept = item?.kept?.length ? item.kept.slice(0, -1) : of("kept");
  const unit = item?.kept?.length ? item.unit : "objects";
  // Where nothing leaks, the last runs made what is alive: summed up by run it would seem to climb.
  const isLeak = record.outcome === "leak";
  return make("div", { class: "ll-charts" },
    chart(`${unit} that runs 1 to n left behind`, isLeak ? running(kept) : []),
    chart("bytes of the tensors that runs 1 to n left behind", isLeak ? running(of("tensor_bytes")) : [], { words: bytesWords }),
    chart("native heap since run 1", change, { words: bytesWords }),
    chart("accelerator memory", device, { words: bytesWords }));
}

function survivors({ record, item }) {
  const kept = item?.kept?.length ? item.kept : record.runs.map((run) => run.kept);
  if (!kept.length) return paragraph("No run was measured.");
  return make("div", {},
    chart("objects still alive at the end, by the run that made them", kept, { bars: true }),
    paragraph(`${kept.join(" ")}`, "ll-mono"),
    paragraph("A leak shows as a bar for run after run; the last run's objects are current.", "ll-faint"));
}

// What Graph and Autograd are about: the chosen row, or an object that was chosen in the memory.
function aboutLine({ object, item, forget }) {
  if (!object) return item.graph ? paragraph(item.holder, "ll-faint ll-mono") : factList(item.facts);
  return make("p", { class: "ll-about" }, "about ", make("code", {}, object.title), " ",
    button("back to the row", "show what is chosen in the list above again", forget, "row-again"));
}

function graphPanel(context) {
  const { item, object, target, ask, say, keep } = context;
  const recorded = object ? null : item.graph;
  const graph = makeGraph(recorded ?? { live: false, nodes: [], links: [], notes: [] }, target, ask, say);
  keep(graph.stop);
  if (!recorded) graph.element.querySelector(".ll-look").click();
  const path = !object && item.path ? make("details", {}, make("summary", {}, "path as text"), make("pre", {}, item.path)) : null;
  return make("div", {}, aboutLine(context), graph.element, explainPanel(context), path);
}

function sites({ item }) {
  if (!item.sites?.length) {
    return paragraph("No source lines: either tracing was off (use --sites) or the objects were created outside Python.", "ll-faint");
  }
  return make("div", {}, ...item.sites.map(({ site, lines }) => make("div", {},
    make("p", {}, make("code", {}, site)),
    lines.length ? make("pre", { class: "ll-source" }, ...lines.map(([number, text, isIt]) =>
      make("div", { class: isIt ? "ll-it" : "" }, `${String(number).padStart(5)}  ${text}`))) : null)));
}

function changedCell(text) {
  const words = "Copy the changed cell";
  const copy = button(words, "copy the whole cell with this change", async () => {
    copy.textContent = (await copyText(text)) ? "Copied" : "Select it below and copy it by hand";
    setTimeout(() => (copy.textContent = words), 2000);
  }, "copy-cell");
  return make("div", {}, copy, make("details", {}, make("summary", {}, "The whole changed cell"), make("pre", {}, text)));
}

// Merged paths, each line with its depth: a list in a list for what is below it.
function pathTree(lines) {
  const root = make("ul", { class: "ll-ways" });
  const lists = [root];
  for (const [depth, words] of lines) {
    lists.length = Math.min(depth + 1, lists.length);
    const below = make("ul");
    lists[lists.length - 1].append(make("li", {}, ...withCode(words), below));
    lists.push(below);
  }
  for (const empty of root.querySelectorAll("ul:empty")) empty.remove();
  return root;
}

function paths({ item, group }) {
  const parts = [];
  if (item.ways?.length) parts.push(make("h4", {}, "Paths to what it keeps"), pathTree(item.ways));
  if (group?.paths.length) parts.push(make("h4", {}, `Paths to the ${group.words} of this line`), pathTree(group.paths));
  return parts;
}

function changePanel(context) {
  const { item } = context;
  const lines = [...paths(context), make("h4", {}, "Source"), sites({ item })];
  if (!item.advice?.length) {
    return make("div", {}, paragraph("No rule knows this cause: 'Why is it alive?' below the graph looks for what would free it."), ...lines, factList(item.facts));
  }
  const blocks = item.advice.map(({ code, label, text }) =>
    code ? make("div", {}, label ? make("b", {}, label) : null, codeBlock(text)) : make("p", { class: "ll-prose" }, ...withCode(text)));
  return make("div", {}, make("p", { class: "ll-strong" }, ...withCode(item.title)), ...blocks, item.cell ? changedCell(item.cell) : null, ...lines, factList(item.facts));
}

function stacksPicture({ record, keep }) {
  if (!record.stacks) return null;
  const place = make("div", { class: "ll-map" });
  const picture = new Icicle(place, [["", record.stacks]], null, "What leaks, by call stack: as wide as the bytes that every run leaves");
  keep(() => picture.stop());
  return place;
}

function runsPanel(context) {
  return make("div", {}, growthPanel(context), survivors(context), stacksPicture(context));
}

function tablesPanel({ record }) {
  const names = Object.keys(record.tables);
  const place = make("div");
  const show = (name) => place.replaceChildren(makeTable(record.tables[name], { label: name, name: `ll-table-${name.toLowerCase()}` }));
  const choice = make("select", { class: "ll-which", "aria-label": "which table", onchange: () => show(choice.value) },
    ...names.map((name) => make("option", { value: name }, name)));
  show(names[0]);
  return make("div", {}, names.length > 1 ? make("div", { class: "ll-bar" }, choice) : make("h4", {}, names[0]), place);
}

function asked(name, words, explain, show) {
  return ({ target, ask, say }) => {
    const result = make("div", { class: "ll-result", "aria-live": "polite" });
    const start = button(words, explain, async () => {
      result.setAttribute("aria-busy", "true");
      try {
        show(result, await ask(name, { target }), ask);
      } catch (error) {
        result.replaceChildren();
        say(error.message, true);
      } finally {
        result.removeAttribute("aria-busy");
      }
    }, name);
    return make("div", {}, make("div", { class: "ll-bar" }, start, make("span", { class: "ll-faint" }, explain)), result);
  };
}

function explained(explanation) {
  const cuts = explanation.cut.map(({ code, text }) => (code ? codeBlock(text) : paragraph(text)));
  return [paragraph(explanation.title, "ll-strong"), ...(cuts.length ? [paragraph("To let it go:"), ...cuts] : []), make("pre", {}, explanation.text)];
}

const explainPanel = asked("explain", "Why is it alive?", "every reason why the object is alive now, and the fewest references to cut",
  (result, { explanation }) => result.replaceChildren(...explained(explanation)));

const lookBehind = asked("autograd", "look behind it", "what the autograd graph behind the object keeps alive",
  (result, { autograd }, ask) => {
    const tables = Object.entries(autograd.tables).filter(([, table]) => table.rows.length);
    result.replaceChildren(paragraph(autograd.title, "ll-strong"), ...autograd.lines.map((line) => paragraph(line)),
      ...tables.flatMap(([name, table]) => [make("h4", {}, name), makeTable(table, { label: name })]),
      ...(autograd.dot ? [make("h4", {}, "Graph"), makePicture(autograd.dot, autograd.title, ask)] : []));
  });

function autogradPanel(context) {
  return make("div", {}, aboutLine(context), lookBehind(context));
}

// Title, what makes it, and what it is about: all of the check, the chosen row, or that or an object of the memory.
const ALL = 0, ROW = 1, OBJECT = 2;
const REPORT_PANELS = [
  ["Change", changePanel, ROW], ["Runs", runsPanel, ALL], ["Graph", graphPanel, OBJECT], ["Autograd", autogradPanel, OBJECT],
  ["Memory", memoryPanel, ALL], ["Tables", tablesPanel, ALL],
];
const HEAP_PANELS = [
  ["Memory", memoryPanel, ALL], ["Graph", graphPanel, OBJECT], ["Autograd", autogradPanel, OBJECT], ["Tables", tablesPanel, ALL],
];
