// A table that is sorted by its heads and filtered by a line of text; rows can be chosen, with the keyboard too.

const SHOWN_ROWS = 200;

function cellWords(value, kind) {
  if (value === null || value === undefined) return "";
  return kind === "bytes" ? bytesWords(value) : kind === "number" ? numberWords(value) : String(value);
}

const LONG = 60; // letters: a longer text is clipped by the page and told whole by its title

function makeCell(words, kind) {
  if (kind !== "text") return make("td", { class: "ll-right" }, words);
  return make("td", {}, words.length > LONG ? make("div", { class: "ll-clip", title: words }, words) : words);
}

function compareCells(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

// `data`: {columns: [{name, kind}], rows: [[...]], left_out}. `choose(index)` is called with the row's place in `rows`.
// `data.groups`, where there are any: {places, cells, words}, rows that are folded into one.
function makeTable(data, { label, choose = null, chosen = -1, name = "" } = {}) {
  const state = { column: -1, down: true, words: "", chosen, all: false, open: new Set() };
  const groups = data.groups ?? [];
  const groupOf = new Map(groups.flatMap((group) => group.places.map((place) => [place, group])));
  const lineOf = new WeakMap();
  const body = make("tbody");
  const count = make("span", { class: "ll-faint", "aria-live": "polite" });
  const heads = data.columns.map((column, position) =>
    make("th", { class: column.kind === "text" ? "" : "ll-right", scope: "col", "aria-sort": "none" },
      button(column.name, `sort by ${column.name}`, () => sortBy(position), "sort")));
  const filter = make("input", {
    type: "search", class: "ll-filter", placeholder: "filter", "aria-label": `filter ${label}`,
    oninput: () => { state.words = filter.value.toLowerCase(); fill(); },
  });

  function sortBy(position) {
    if (state.column === position) state.down = !state.down;
    else Object.assign(state, { column: position, down: data.columns[position].kind !== "text" });
    heads.forEach((head, place) =>
      head.setAttribute("aria-sort", place !== position ? "none" : state.down ? "descending" : "ascending"));
    fill();
  }

  function sorted(lines) {
    if (state.column < 0) return lines;
    const sign = state.down ? -1 : 1;
    return lines.sort((a, b) => {
      const [left, right] = [a.cells[state.column], b.cells[state.column]];
      const missing = (left ?? null) === null || (right ?? null) === null;
      return (missing ? 1 : sign) * compareCells(left, right) || a.place - b.place;
    });
  }

  // What is shown, from the top: rows and heads of groups. Who searches is shown what fits, folded or not.
  function order() {
    const wanted = state.words.split(/\s+/).filter(Boolean);
    const lines = data.rows.map((cells, place) => ({ place, cells }));
    if (wanted.length) {
      return sorted(lines.filter(({ cells }) => wanted.every((word) => cells.join(" ").toLowerCase().includes(word))));
    }
    const tops = lines.filter(({ place }) => !groupOf.has(place));
    const heads = groups.map((group) => ({ place: group.places[0], cells: group.cells, group }));
    const inOrder = sorted([...tops, ...heads].sort((a, b) => a.place - b.place));
    return inOrder.flatMap((line) => (state.open.has(line.group)
      ? [line, ...sorted(line.group.places.map((place) => ({ place, cells: data.rows[place], inside: true })))] : [line]));
  }

  // A row is chosen; so is the head that it is folded into.
  const isChosen = ({ place, group }) => (group ? !state.open.has(group) && group.places.includes(state.chosen) : place === state.chosen);

  function pick(place) {
    state.chosen = place;
    for (const row of body.children) row.setAttribute("aria-selected", String(isChosen(lineOf.get(row))));
    choose(place);
  }

  function fold(group) {
    if (!state.open.delete(group)) state.open.add(group);
    fill();
    for (const row of body.children) if (lineOf.get(row).group === group) row.querySelector("button").focus();
  }

  function head(line) {
    const isOpen = state.open.has(line.group);
    const cells = data.columns.map(({ kind }, position) => makeCell(cellWords(line.cells[position], kind), kind));
    const start = button(`${isOpen ? "▾" : "▸"} ${line.group.words}`, isOpen ? "fold these rows" : "show these rows", () => fold(line.group), "fold");
    start.setAttribute("aria-expanded", String(isOpen));
    cells[0].replaceChildren(start);
    return make("tr", { class: "ll-row ll-group", "aria-selected": String(isChosen(line)), onkeydown: walk, onclick: (event) => event.target === start || fold(line.group) }, ...cells);
  }

  function walk(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    event.stopPropagation();
    const next = event.currentTarget[event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling"];
    (next?.querySelector(".ll-fold") ?? next)?.focus();
  }

  function row(line) {
    const { place, cells, inside } = line;
    const filled = data.columns.map(({ kind }, position) => makeCell(cellWords(cells[position], kind), kind));
    if (!choose) return make("tr", {}, ...filled);
    return make("tr", {
      tabindex: 0, class: inside ? "ll-row ll-inside" : "ll-row", "aria-selected": String(isChosen(line)),
      onclick: () => pick(place),
      onkeydown: (event) => {
        walk(event);
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          event.stopPropagation();
          pick(place);
        }
      },
    }, ...filled);
  }

  function lineRow(line) {
    const made = line.group ? head(line) : row(line);
    lineOf.set(made, line);
    return made;
  }

  function fill() {
    const lines = order();
    const shown = state.all ? lines : lines.slice(0, SHOWN_ROWS);
    body.replaceChildren(...shown.map(lineRow));
    const shownRows = lines.filter(({ group }) => !group).length;
    const total = counted(data.rows.length, "row");
    const words = shownRows === data.rows.length ? total : state.words ? `${shownRows} of ${total}` : `${total}, ${data.rows.length - shownRows} of them folded`;
    const more = data.left_out ? `, ${data.left_out} more in the report` : "";
    count.replaceChildren(`${words}${more} `);
    if (shown.length < lines.length) {
      count.append(button(`show all ${lines.length}`, "show every row", () => { state.all = true; fill(); }));
    }
  }

  fill();
  if (!data.rows.length) return make("p", { class: "ll-faint" }, "nothing");
  return make("div", { class: `ll-table ${name}` },
    make("div", { class: "ll-bar" }, filter, count),
    make("div", { class: "ll-scroll" },
      make("table", { "aria-label": label }, make("thead", {}, make("tr", {}, ...heads)), body)));
}
