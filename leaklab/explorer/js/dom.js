// Make elements. Text only ever becomes text: nothing here parses a string as HTML.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function button(words, title, action, name = "") {
  return make("button", { type: "button", title, class: name ? `ll-button ll-${name}` : "ll-button", onclick: action }, words);
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function bytesWords(size) {
  if (size === null || size === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = Math.abs(size);
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 ? (Number.isInteger(value) ? 0 : 1) : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${size < 0 ? "-" : ""}${value.toFixed(digits)} ${units[unit]}`;
}

function numberWords(value) {
  if (value === null || value === undefined) return "";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) < 0.01 ? value.toPrecision(1) : value.toLocaleString("en", { maximumFractionDigits: 2 });
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without a secure address or without leave: the old way, by a selection.
    const area = make("textarea", { class: "ll-offstage" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function codeBlock(text) {
  const word = button("copy", "copy this code", async () => {
    word.textContent = (await copyText(text)) ? "copied" : "select it and copy by hand";
    setTimeout(() => (word.textContent = "copy"), 2000);
  }, "copy");
  return make("div", { class: "ll-code" }, word, make("pre", {}, text));
}
