() => {
  const undo = [], waiting = [];
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    undo.push(() => { part.open = false; });
  }
  for (const part of document.querySelectorAll("[data-leaklab=evidence], [data-leaklab=figures]")) {
    if (part.dataset.leaklab === "evidence") {
      waiting.push(part);
      continue;
    }
    for (const one of waiting.splice(0)) {
      const place = document.createComment("");
      const of = document.createElement("span");
      of.textContent = `: ${one.parentElement.closest("details").querySelector("summary").textContent.trim()}`;
      one.replaceWith(place);
      one.querySelector("summary").append(of);
      part.before(one);
      undo.push(() => { of.remove(); place.replaceWith(one); });
    }
  }
  addEventListener("afterprint", () => { for (const step of undo) step(); }, {once: true});
}
