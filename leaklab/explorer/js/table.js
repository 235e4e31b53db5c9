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
function makeTable(data, { label, choose = null, chosen = -1, name = "" } = {}) {
  const state = { column: -1, down: true, words: "", chosen, all: false };
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

  function order() {
    const wanted = state.words.split(/\s+/).filter(Boolean);
    const places = data.rows.map((_, place) => place).filter((place) => {
      const text = data.rows[place].join(" ").toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    if (state.column >= 0) {
      const sign = state.down ? -1 : 1;
      places.sort((a, b) => {
        const [left, right] = [data.rows[a][state.column], data.rows[b][state.column]];
        const missing = (left ?? null) === null || (right ?? null) === null;
        return (missing ? 1 : sign) * compareCells(left, right) || a - b;
      });
    }
    return places;
  }

  function pick(place) {
    state.chosen = place;
    for (const row of body.children) row.setAttribute("aria-selected", String(Number(row.dataset.place) === place));
    choose(place);
  }

  function row(place) {
    const cells = data.columns.map(({ kind }, position) =>
      makeCell(cellWords(data.rows[place][position], kind), kind));
    if (!choose) return make("tr", { "data-place": place }, ...cells);
    return make("tr", {
      "data-place": place, tabindex: 0, class: "ll-row", "aria-selected": String(state.chosen === place),
      onclick: () => pick(place),
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          event.stopPropagation();
          pick(place);
        } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
          event.preventDefault();
          event.stopPropagation();
          const next = event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
          event.currentTarget[next]?.focus();
        }
      },
    }, ...cells);
  }

  function fill() {
    const places = order();
    const shown = state.all ? places : places.slice(0, SHOWN_ROWS);
    body.replaceChildren(...shown.map(row));
    const words = places.length === data.rows.length ? counted(places.length, "row") : `${places.length} of ${counted(data.rows.length, "row")}`;
    const more = data.left_out ? `, ${data.left_out} more in the report` : "";
    count.replaceChildren(`${words}${more} `);
    if (shown.length < places.length) {
      count.append(button(`show all ${places.length}`, "show every row", () => { state.all = true; fill(); }));
    }
  }

  fill();
  if (!data.rows.length) return make("p", { class: "ll-faint" }, "nothing");
  return make("div", { class: `ll-table ${name}` },
    make("div", { class: "ll-bar" }, filter, count),
    make("div", { class: "ll-scroll" },
      make("table", { "aria-label": label }, make("thead", {}, make("tr", {}, ...heads)), body)));
}
