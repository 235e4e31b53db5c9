async summary => {
  const text = summary.nextElementSibling.textContent, words = summary.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  summary.textContent = done ? "Copied" : "Select it and copy it by hand";
  setTimeout(() => { summary.textContent = words; }, 2000);
}
