// The button "Apply and prove": writes the changed cell into the notebook's own editor, so that its undo takes it back,
// and tells the kernel, which checks again. Text only ever becomes text: nothing here parses a string as HTML.

// What CodeMirror itself does to find the editor of an element; its newer releases have another name for the way.
function editorOf(content) {
  const tile = content.cmTile;
  return tile?.root?.view ?? tile?.view ?? content.cmView?.view ?? null;
}

function cellWith(text, near) {
  const notebook = near.closest(".jp-Notebook");
  if (!notebook) return null;
  const own = near.closest(".jp-CodeCell");
  const cells = [own, ...notebook.querySelectorAll(".jp-CodeCell")].filter(Boolean);
  const editors = cells.map((cell) => cell.querySelector(".jp-Editor .cm-content")).filter(Boolean).map(editorOf);
  return editors.find((view) => view && view.state.doc.toString().trim() === text.trim()) ?? null;
}

function write(from, to, near) {
  const view = cellWith(from, near);
  if (!view) return false;
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: to }, userEvent: "input.paste" });
  return true;
}

// The card of the change, in the report above: the button belongs beside what it writes, where the card is still there.
function placeFor(near) {
  const cards = near.closest(".jp-OutputArea")?.querySelectorAll('summary[data-leaklab="copy"]') ?? [];
  return cards[0]?.closest("details") ?? null;
}

function button(words, hint) {
  const made = document.createElement("button");
  made.className = "llp-button";
  made.textContent = words;
  made.title = hint;
  return made;
}

function render({ model, el }) {
  const box = document.createElement("div");
  box.className = "leaklab-prove";
  const said = document.createElement("span");
  said.setAttribute("role", "status");

  const draw = () => {
    const { old, changed, where, state, words } = model.get("shown");
    said.textContent = words;
    const parts = [];
    if (state === "offered") {
      const go = button("Apply and prove", `write the change into ${where}, and check again`);
      go.addEventListener("click", () => {
        go.disabled = true;
        model.send({ did: write(old, changed, el) ? "applied" : "not found" });
      });
      parts.push(go);
    }
    if (state === "applied") {
      const back = button("Undo", `write the old text into ${where}`);
      back.addEventListener("click", () => {
        model.send({ did: write(changed, old, el) ? "undone" : "not found" });
      });
      parts.push(back);
    }
    box.replaceChildren(...parts, said);
    const card = state === "applied" ? null : placeFor(el);
    if (card) card.after(box);
    else el.append(box);
  };
  model.on("change:shown", draw);
  // Once the widget is part of the page: before that it does not know which report it belongs to.
  const first = requestAnimationFrame(draw);
  return () => {
    cancelAnimationFrame(first);
    model.off("change:shown", draw);
    box.remove();
  };
}

export default { render };
