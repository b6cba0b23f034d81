"use strict";
// Sorts and filters tables, selects the costs of the front's figures, and links points in figures to rows of the table.
// Without JavaScript, the figures of the objectives and all rows are visible, and other figures are folded.

const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
for (const part of all(".scripted")) part.hidden = false;

// Tables: a click on a heading sorts by its column; rows without a value come last.
const keyOf = (row, column) => {
  const cell = row.cells[column], key = cell ? cell.dataset.key : undefined;
  if (key === undefined || key === "") return null;
  return cell.classList.contains("number") ? Number(key) : key;
};
const order = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
const sortBy = (heading) => {
  const table = heading.closest("table"), column = heading.cellIndex, body = table.tBodies[0];
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = Array.from(body.rows, (row) => [keyOf(row, column), row]);
  rows.sort(([a], [b]) => a === null ? (b === null ? 0 : 1) : b === null ? -1 : descending ? order(b, a) : order(a, b));
  body.append(...rows.map(([, row]) => row));
};
for (const button of all("button.sort")) button.addEventListener("click", () => sortBy(button.closest("th")));

// Table of trials: filter by words and state.
const words = document.getElementById("filter-words"), state = document.getElementById("filter-state");
const filter = () => {
  const terms = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of document.getElementById("trials-table").tBodies[0].rows) {
    const text = row.textContent.toLowerCase(), selected = state.value;
    const isOnFront = row.classList.contains("front");
    const fits = selected === "" || row.dataset.state === selected || (selected === "front" && isOnFront);
    row.hidden = !(fits && terms.every((word) => text.includes(word)));
    shown += row.hidden ? 0 : 1;
  }
  document.getElementById("filter-count").textContent = shown + " shown";
};
if (words) {
  words.addEventListener("input", filter);
  state.addEventListener("change", filter);
}

// Front: one figure per selected cost.
const panels = document.getElementById("front-panels"), others = document.getElementById("front-others");
const boxes = all("#front-axes input");
if (panels && others) {
  panels.append(...all("figure", others));
  others.remove();
}
const choose = () => {
  const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
  for (const figure of panels.children) figure.hidden = !chosen.includes(figure.dataset.x);
};
for (const box of boxes) box.addEventListener("change", choose);
if (boxes.length) choose();

// Marks of trials in figures: a circle or a line over the drawing, with a text on hover.
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
const ofTrial = (trial) => all('[data-trial="' + trial + '"]');
const light = (trial, on) => {
  for (const element of ofTrial(trial)) element.classList.toggle("lit", on);
};
const select = (trial) => {
  for (const other of all(".chosen")) other.classList.remove("chosen");
  for (const element of ofTrial(trial)) element.classList.add("chosen");
};
const place = (event) => {
  const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + "px";
  const below = event.clientY + 18, fits = below + tip.offsetHeight < window.innerHeight;
  tip.style.top = (fits ? below : event.clientY - tip.offsetHeight - 10) + "px";
};
const draw = (svg, [trial, text, points]) => {
  const point = document.createElementNS(svg.namespaceURI, points.length > 1 ? "polyline" : "circle");
  const shape = points.length > 1 ? { points: points.join(" ") } : { cx: points[0][0], cy: points[0][1], r: 6 };
  for (const [name, value] of Object.entries(shape)) point.setAttribute(name, value);
  point.classList.add("point");
  point.dataset.trial = trial;
  point.addEventListener("pointerenter", (event) => {
    light(trial, true);
    tip.textContent = text;
    tip.hidden = false;
    place(event);
  });
  point.addEventListener("pointermove", place);
  point.addEventListener("pointerleave", () => {
    light(trial, false);
    tip.hidden = true;
  });
  point.addEventListener("click", () => {
    select(trial);
    const row = document.getElementById("trial-" + trial);
    if (!row) return;
    row.hidden = false;
    row.scrollIntoView({ block: "center" });
  });
  svg.append(point);
};
for (const marks of all("figure > script")) {
  const svg = marks.parentElement.querySelector("svg");
  for (const mark of JSON.parse(marks.textContent)) draw(svg, mark);
}
for (const row of all("tr[data-trial]")) {
  row.addEventListener("pointerenter", () => light(row.dataset.trial, true));
  row.addEventListener("pointerleave", () => light(row.dataset.trial, false));
}
for (const link of all("a[data-mark]")) link.addEventListener("click", () => select(link.dataset.mark));

// A link to a folded element unfolds it.
const unfold = () => {
  const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.hidden = false;
  target.scrollIntoView({ block: "start" });
};
window.addEventListener("hashchange", unfold);
unfold();
