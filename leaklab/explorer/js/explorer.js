// The explorer: verdict, buttons, list, sections; questions to the kernel are numbered and wait for their answers.

const WAIT_MS = 400;

// `ask(name, arguments)` resolves to the kernel's answer, or rejects with its sentence.
function makeLine(model, onWait) {
  const waiting = new Map();
  let last = 0;
  const listen = (content, buffers) => {
    const question = waiting.get(content.answer);
    if (!question) return;
    clearTimeout(question.timer);
    if (content.accepted) { onWait("working..."); return; }
    waiting.delete(content.answer);
    if (!waiting.size) onWait("");
    if (content.error) question.reject(new Error(content.error));
    else question.resolve({ ...content, buffers });
  };
  model.on("msg:custom", listen);
  const ask = (name, values = {}) => new Promise((resolve, reject) => {
    last += 1;
    const id = `${Date.now()} ${last}`; // two views of one widget must not take each other's answers
    const timer = setTimeout(() => onWait("busy: the kernel is at work, perhaps on a cell; your request comes next"), WAIT_MS);
    waiting.set(id, { resolve, reject, timer });
    model.send({ ...values, ask: name, id });
  });
  return { ask, stop: () => model.off("msg:custom", listen) };
}

function listData(record) {
  const heap = record.mode === "heap";
  const columns = heap
    ? [["retained", "bytes"], ["holder", "text"], ["what", "text"], ["place", "text"]]
    : [["outcome", "text"], ["what", "text"], ["holder", "text"], ["count_per_run", "number"], ["bytes_per_run", "bytes"], ["retained", "bytes"], ["cause", "text"]];
  const titles = { holder: heap ? "expression" : "held by", place: "begins at", outcome: "verdict", count_per_run: "count per run", bytes_per_run: "bytes per run" };
  const cells = (item) => columns.map(([name]) => item[name] ?? null);
  return {
    columns: columns.map(([name, kind]) => ({ name: titles[name] ?? name, kind })),
    rows: record.items.map(cells),
    groups: (record.groups ?? []).map((group) => ({ places: group.places, cells: cells(group.row), words: group.words })),
    left_out: 0,
  };
}

// To save and to run the cell is the notebook's also while the focus is in here: it is told as if the key were pressed beside
// the explorer. Where nobody wants it, the key stays with the explorer. Returns what stops this.
function passKeysOn(root) {
  const pass = (event) => {
    const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
    const isSave = key.toLowerCase() === "s" && ctrlKey !== metaKey && !shiftKey && !altKey;
    const isRun = key === "Enter" && shiftKey && !ctrlKey && !metaKey && !altKey;
    if (!(isSave || isRun) || !root.contains(event.target)) return;
    const same = new KeyboardEvent("keydown", {
      key, shiftKey, ctrlKey, metaKey, altKey, code: event.code, keyCode: event.keyCode, bubbles: true, cancelable: true,
    });
    if (root.parentElement.dispatchEvent(same)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  window.addEventListener("keydown", pass, true); // before the document, where Notebook 7 listens
  return () => window.removeEventListener("keydown", pass, true);
}

function render({ model, el }) {
  const status = make("div", { class: "ll-status", role: "status" });
  const wait = make("div", { class: "ll-wait", role: "status" });
  const question = make("div", { class: "ll-question" });
  const root = make("div", { class: "leaklab" });
  const line = makeLine(model, (words) => { wait.textContent = words; });
  const answer = make("div", { class: "ll-answer" }, wait, status, question); // the one place for all answers and errors
  const state = { number: 0, panel: "", stops: [], object: null, kept: {} };
  const say = (words, isBad = false) => { status.textContent = words; status.classList.toggle("ll-bad", isBad); };

  function stopPanel() {
    for (const stop of state.stops.splice(0)) stop();
  }

  // Ask; where the kernel wants to be sure, show what it will do and ask again.
  async function act(name, values = {}) {
    question.replaceChildren();
    try {
      const answer = await line.ask(name, values);
      if (answer.confirm) {
        const yes = button("do it", "go ahead", () => act(name, { ...values, sure: true }), "yes");
        question.replaceChildren(make("pre", {}, answer.confirm), yes, button("cancel", "do nothing", () => question.replaceChildren(), "no"));
        yes.focus();
        return;
      }
      if (answer.message) say(answer.message);
      if (answer.comparison) {
        const { title, fixed, lines } = answer.comparison;
        say("compared");
        question.replaceChildren(make("div", { class: fixed ? "ll-comparison ll-good" : "ll-comparison ll-worse" },
          make("b", {}, title), make("ul", {}, ...lines.map((words) => make("li", {}, words)))),
          button("ok", "close", () => question.replaceChildren(), "no"));
      }
    } catch (error) {
      say(error.message, true);
    }
  }

  function toolbar(record) {
    if (record.mode === "heap") {
      return make("div", { class: "ll-bar ll-tools" },
        button("look again", "look at the living heap again", () => act("again"), "again"),
        button("Clear Out[] and last error", "drop outputs and tracebacks that the notebook keeps; asks first", () => act("release"), "release"),
        button("close", "close the explorer and free all of it", () => model.send({ ask: "close" }), "close"));
    }
    const others = make("select", { class: "ll-others", "aria-label": "check to compare with" }, make("option", { value: "" }, "the last check"),
      ...record.others.map((name) => make("option", { value: name }, name)));
    const file = make("input", { class: "ll-file", value: "leaklab_report.html", "aria-label": "file to export to, .html, .json or .csv" });
    file.addEventListener("keydown", (event) => event.stopPropagation());
    return make("div", { class: "ll-bar ll-tools" },
      button("run again", "check the same cell again; asks first", () => act("again"), "again"),
      button("Clear Out[] and last error", "drop outputs and tracebacks that the notebook keeps; asks first", () => act("release"), "release"),
      others, button("compare", "compare this check with the chosen one", () => act("compare", { with: others.value }), "compare"),
      file, button("export", "save the report to this file", () => act("export", { path: file.value }), "export"),
      button("close", "close the explorer and free all of it", () => model.send({ ask: "close" }), "close"));
  }

  function showPanel(record, tabs, body, panels, title) {
    stopPanel();
    if (state.panel !== title) say("");
    state.panel = title;
    for (const tab of tabs) {
      const isIt = tab.dataset.panel === title;
      tab.setAttribute("aria-selected", String(isIt));
      tab.tabIndex = isIt ? 0 : -1;
    }
    const [, fill, about] = panels.find(([name]) => name === title);
    const item = record.items[state.number];
    const object = about === OBJECT ? state.object : null;
    const show = (name, chosen) => { state.object = chosen; showPanel(record, tabs, body, panels, name); };
    const group = record.groups?.find(({ places }) => places.includes(state.number));
    const context = {
      record, item, group, object, target: object ? object.target : state.number, ask: line.ask, act, say, kept: state.kept,
      keep: (stop) => state.stops.push(stop), forget: () => show(title, null),
      go: (name, chosen) => { show(name, chosen); tabs.find((tab) => tab.dataset.panel === name).focus(); },
    };
    body.setAttribute("aria-label", title);
    body.replaceChildren(about !== ALL && !item && !object ? paragraph("There is nothing in the list above.") : fill(context));
  }

  function show() {
    stopPanel();
    const record = model.get("record");
    if (!record?.mode) { root.replaceChildren(paragraph("This explorer is closed.", "ll-faint")); return; }
    const panels = record.mode === "heap" ? HEAP_PANELS : REPORT_PANELS;
    Object.assign(state, { object: null, kept: {} });
    if (!panels.some(([title]) => title === state.panel)) state.panel = record.items.length || record.mode === "heap" ? panels[0][0] : "Runs";
    state.number = Math.min(state.number, Math.max(record.items.length - 1, 0));
    const body = make("div", { class: "ll-panel", role: "tabpanel" });
    const tabs = panels.map(([title]) => button(title, title, () => showPanel(record, tabs, body, panels, title), "tab"));
    tabs.forEach((tab, place) => {
      tab.dataset.panel = panels[place][0];
      tab.setAttribute("role", "tab");
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = tabs[(place + step + tabs.length) % tabs.length];
        next.click();
        next.focus();
      });
    });
    const list = makeTable(listData(record), {
      label: record.mode === "heap" ? "largest retainers" : "leaks", chosen: state.number, name: "ll-list",
      choose: (place) => {
        Object.assign(state, { number: place, object: null });
        const [, , about] = panels.find(([title]) => title === state.panel);
        showPanel(record, tabs, body, panels, about === ALL ? panels.find(([, , other]) => other !== ALL)[0] : state.panel);
      },
    });
    const word = record.outcome ? make("b", { class: `ll-outcome ll-is-${record.outcome}` }, record.outcome.toUpperCase()) : make("b", {}, "HEAP");
    const notes = record.notes.length
      ? make("details", {}, make("summary", {}, `notes (${record.notes.length})`), make("ul", {}, ...record.notes.map((note) => make("li", {}, note)))) : null;
    root.replaceChildren(
      make("div", { class: "ll-head" }, word, " ", ...withCode(record.title)),
      ...record.lines.map((words) => paragraph(words, "ll-faint")),
      list, ...(notes ? [notes] : []), toolbar(record),
      make("div", { class: "ll-tabs", role: "tablist", "aria-label": "sections" }, ...tabs), answer, body,
      paragraph(record.environment, "ll-faint"));
    showPanel(record, tabs, body, panels, state.panel);
  }

  el.append(root);
  const stopKeys = passKeysOn(root);
  // Letters typed here are none of the notebook's commands.
  root.addEventListener("keydown", (event) => { if (event.target.closest("input, select, button, textarea")) event.stopPropagation(); });
  // Notebook 7 looks for its commands before the page sees the key, and at what has the focus first.
  root.addEventListener("focusin", (event) => { event.target.dataset.lmSuppressShortcuts = "true"; });
  root.dataset.jpSuppressContextMenu = "true";
  model.on("change:record", show);
  show();
  return () => {
    stopPanel();
    stopKeys();
    line.stop();
    model.off("change:record", show);
  };
}

export default { render };
