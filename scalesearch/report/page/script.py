"""The page's script: sorting, filtering, the choice of axes, from a point to its row and back. Without it, the figures
of the objectives stand there, the others are folded, and all rows are shown.
"""

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

for (const part of document.querySelectorAll(".scripted")) part.hidden = false;

const panels = document.getElementById("front-panels"), others = document.getElementById("front-others");
const boxes = document.querySelectorAll("#front-axes input");
if (panels && others) {
  panels.append(...others.querySelectorAll("figure"));
  others.remove();
}
const choose = () => {
  const chosen = Array.from(boxes).filter((box) => box.checked).map((box) => box.value);
  for (const figure of panels.children) figure.hidden = !chosen.includes(figure.dataset.x);
};
for (const box of boxes) box.addEventListener("change", choose);
if (boxes.length) choose();

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
const light = (trial, on) => {
  for (const one of document.querySelectorAll('[data-trial="' + trial + '"]')) one.classList.toggle("lit", on);
};
const place = (event) => {
  const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + "px";
  const below = event.clientY + 18, fits = below + tip.offsetHeight < window.innerHeight;
  tip.style.top = (fits ? below : event.clientY - tip.offsetHeight - 10) + "px";
};
for (const point of document.querySelectorAll(".point")) {
  const title = point.querySelector("title"), said = title ? title.textContent : "";
  if (title) title.remove();  // what the pointer rests on is said at once, not also by the browser after a while
  point.addEventListener("pointerenter", (event) => {
    light(point.dataset.trial, true);
    tip.textContent = said;
    tip.hidden = said === "";
    place(event);
  });
  point.addEventListener("pointermove", place);
  point.addEventListener("pointerleave", () => {
    light(point.dataset.trial, false);
    tip.hidden = true;
  });
  point.addEventListener("click", () => {
    const row = document.getElementById("trial-" + point.dataset.trial);
    if (!row) return;
    for (const other of document.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    row.hidden = false;
    row.classList.add("chosen");
    row.scrollIntoView({ block: "center" });
  });
}
for (const row of document.querySelectorAll("tr[data-trial]")) {
  row.addEventListener("pointerenter", () => light(row.dataset.trial, true));
  row.addEventListener("pointerleave", () => light(row.dataset.trial, false));
}

const unfold = () => {
  const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.hidden = false;
  target.scrollIntoView({ block: target.closest("svg") ? "center" : "start" });
};
window.addEventListener("hashchange", unfold);
unfold();
"""
