
for (const data of document.querySelectorAll("script[data-leaklab=icicle]"))
  new Icicle(data.parentElement, JSON.parse(data.textContent).devices);
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
