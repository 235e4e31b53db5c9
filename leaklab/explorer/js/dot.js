// Write a graph of nodes and references as DOT; every text in it is escaped.

const LINE_WIDTH = 38;
const MAX_LINES = 4;

function escapeLabel(text) {
  const safe = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (letter) => safe[letter]);
}

function wrapped(text) {
  const letters = [...text];
  const lines = [];
  while (letters.length && lines.length < MAX_LINES) {
    let end = Math.min(LINE_WIDTH, letters.length);
    if (end < letters.length) {
      const blank = letters.slice(0, end + 1).lastIndexOf(" ");
      if (blank > LINE_WIDTH / 3) end = blank;
    }
    lines.push(letters.splice(0, end).join("").trim());
  }
  if (letters.length) lines[MAX_LINES - 1] = "...";
  return lines.filter(Boolean).map(escapeLabel).join("<BR/>") || "?";
}

function nodeLabel(node, folded) {
  const parts = [`<B>${wrapped(node.kind || "object")}</B>`];
  if (node.summary) parts.push(wrapped(node.summary));
  if (node.note) parts.push(`<FONT POINT-SIZE="9">${wrapped(node.note)}</FONT>`);
  if (folded) parts.push(`<FONT POINT-SIZE="9"><I>its holders are folded away</I></FONT>`);
  return `<${parts.join("<BR/>")}>`;
}

// The keys of `graph` whose nodes are shown when the holders of the `folded` ones are not.
function shownKeys(graph, folded) {
  const holders = new Map();
  for (const link of graph.links) holders.set(link.held, [...(holders.get(link.held) ?? []), link.holder]);
  const ends = graph.nodes.filter((node) => !graph.links.some((link) => link.holder === node.key));
  const seen = new Set();
  const todo = ends.map((node) => node.key);
  while (todo.length) {
    const key = todo.pop();
    if (seen.has(key)) continue;
    seen.add(key);
    if (!folded.has(key)) todo.push(...(holders.get(key) ?? []));
  }
  return seen.size ? seen : new Set(graph.nodes.map((node) => node.key));
}

// Fonts by one name each: Graphviz in the page knows how wide these two are, and takes Times for any list.
function toDot(graph, folded) {
  const shown = shownKeys(graph, folded);
  const names = new Map(graph.nodes.map((node, place) => [node.key, `n${place}`]));
  const lines = [
    "digraph {",
    'graph [rankdir=TB bgcolor="transparent" nodesep=0.35 ranksep=0.32 pad=0.15]',
    'node [shape=box style="rounded,filled" fontname="Arial" fontsize=11 margin="0.14,0.07" height=0.3]',
    'edge [fontname="Courier" fontsize=10 arrowsize=0.7]',
  ];
  graph.nodes.forEach((node) => {
    if (!shown.has(node.key)) return;
    const look = node.role === "root" ? ' shape=plaintext style=""' : node.role === "more" ? ' style="rounded,filled,dashed"' : "";
    const name = names.get(node.key);
    lines.push(`${name} [id="${name}" class="ll-node ll-${node.role} ll-is-${node.status}"${look} label=${nodeLabel(node, folded.has(node.key))}]`);
  });
  for (const link of graph.links) {
    if (!shown.has(link.holder) || !shown.has(link.held)) continue;
    const label = link.reference ? ` label=<&#160;${wrapped(link.reference)}&#160;>` : "";
    lines.push(`${names.get(link.holder)} -> ${names.get(link.held)} [class="ll-link${link.suspect ? " ll-suspect" : ""}"${label}]`);
  }
  return `${lines.join("\n")}\n}`;
}
