"""The page's script: sorting, filtering, from a point to its row. Without it, all is shown."""

JS = """
"use strict";
const keyOf = (row, at) => {
  const cell = row.cells[at], key = cell ? cell.dataset.key : undefined;
  if (key === undefined || key === "") return null;
  return cell.classList.contains("number") ? Number(key) : key;
};
const order = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
const sortBy = (heading) => {
  const table = heading.closest("table"), at = heading.cellIndex, body = table.tBodies[0];
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(body.rows, (row) => [keyOf(row, at), row]);
  rows.sort(([a], [b]) => a === null ? (b === null ? 0 : 1) : b === null ? -1 : down ? order(b, a) : order(a, b));
  body.append(...rows.map(([, row]) => row));
};
for (const button of document.querySelectorAll("button.sort"))
  button.addEventListener("click", () => sortBy(button.closest("th")));

const words = document.getElementById("filter-words"), state = document.getElementById("filter-state");
const filter = () => {
  const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const row of document.getElementById("candidates-table").tBodies[0].rows) {
    const text = row.textContent.toLowerCase(), kind = state.value;
    const fits = kind === "" || row.dataset.state === kind || (kind === "front" && row.classList.contains("front"));
    row.hidden = !(fits && wanted.every((word) => text.includes(word)));
    shown += row.hidden ? 0 : 1;
  }
  document.getElementById("filter-count").textContent = shown + " shown";
};
if (words) {
  document.getElementById("filter-tools").hidden = false;
  words.addEventListener("input", filter);
  state.addEventListener("change", filter);
}

for (const point of document.querySelectorAll(".point"))
  point.addEventListener("click", () => {
    const row = document.getElementById("trial-" + point.dataset.trial);
    if (!row) return;
    for (const other of document.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    row.hidden = false;
    row.classList.add("chosen");
    row.scrollIntoView({ block: "center" });
  });
"""
