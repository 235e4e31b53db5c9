// What drawings share, on pages and in the explorer. Text only ever becomes text: nothing here parses a string as HTML.
const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// As leaklab writes them everywhere: three digits, never a fourth after rounding.
function sizeWords(bytes) {
  let unit = 0;
  while (bytes >= 999.5 && unit < SIZE_UNITS.length - 1 && (unit || bytes >= 1023.5)) { bytes /= 1024; unit += 1; }
  const digits = !unit || bytes >= 99.95 ? 0 : bytes < 9.995 ? 2 : 1;
  return `${bytes.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits})} ${SIZE_UNITS[unit]}`;
}

function countWords(number) {
  return number.toLocaleString("en");
}

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function colourSwatch(colour) {
  return element("span", "", {style: `display:inline-block;width:10px;height:10px;margin-right:5px;background:${colour};-webkit-print-color-adjust:exact;print-color-adjust:exact`});
}

// *colours*: [name, colour] of each.
function colourLegend(colours) {
  const row = element("div", "", {style: "display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;margin:4px 0"});
  for (const [name, colour] of colours) {
    const entry = element("span");
    entry.append(colourSwatch(colour), name);
    row.append(entry);
  }
  return row;
}

// A box whose text is told to *seek*, trimmed and in small letters, each time it changes.
function searchBox(hint, seek) {
  const label = element("label", "highlight ", {class: "tools"}), input = element("input", "", {type: "search", placeholder: hint, size: "28"});
  input.addEventListener("input", () => seek(input.value.trim().toLowerCase()));
  label.append(input);
  return label;
}

// Draw the data of each script element of a kind in the element that it stands in.
function drawAll(kind, draw) {
  for (const data of document.querySelectorAll(`script[data-leaklab=${kind}]`)) draw(data.parentElement, JSON.parse(data.textContent));
}
