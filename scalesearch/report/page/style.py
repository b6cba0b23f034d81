"""The page's looks: one column that a phone can show, in the light or the dark that the reader's system asks for."""

CSS = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #222222; --soft: #5c5c5c; --grid: #e6e6e6; --raised: #f5f6f8;
  --link: #005a8d; --mark: #fff3c4; --good: #00664a; --bad: #a5342a;
  --front: #0072b2; --over: #8a3a6a; }
@media (prefers-color-scheme: dark) { :root { --page: #15171b; --ink: #e8e8e8; --soft: #a8acb3; --grid: #33373e;
  --raised: #1f2228; --link: #7cc0ee; --mark: #4a4014; --good: #5fcfa9;
  --bad: #f08c80; --front: #56b4e9; --over: #dd9bc4; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 3.2rem; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 1.2rem 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--grid); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
a { color: var(--link); }
nav { position: sticky; top: 0; z-index: 2; background: var(--page); border-bottom: 1px solid var(--grid);
  white-space: nowrap; overflow-x: auto; padding: .5rem 1rem; }
nav a { margin-right: .8rem; font-size: .9rem; }
figure { margin: .8rem 0; }
figcaption { font-size: .85rem; color: var(--soft); max-width: 60rem; }
svg.figure { width: 100%; max-width: 46rem; height: auto; display: block; fill: var(--ink); }
.spread svg.figure { max-width: 72rem; }
svg.letters { position: absolute; }
svg.figure * { stroke-linejoin: round; stroke-linecap: butt; }
.point { pointer-events: all; cursor: pointer; }
/* An unseen mark over a point shows as a ring; a line becomes thick. */
.point circle { fill: none; }
.point.lit circle, .point:target circle { stroke: var(--ink); stroke-width: 1.6; }
.point.lit > path, .point:target > path { stroke-width: 4 !important; stroke-opacity: 1 !important; }
#tip { position: fixed; z-index: 3; pointer-events: none; max-width: min(24rem, 90vw); padding: .35rem .6rem;
  background: var(--ink); color: var(--page); border-radius: .3rem; font-size: .8rem; white-space: pre-line; }
.panels { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: .8rem 0; }
.tile { background: var(--raised); border-radius: .4rem; padding: .5rem .8rem; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.tile span { font-size: .8rem; color: var(--soft); }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
p.caption { font-size: .85rem; color: var(--soft); margin-top: .8rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--grid); text-align: left; vertical-align: top; }
th { vertical-align: bottom; background: var(--raised); }
td.number { text-align: right; white-space: nowrap; }
td.words { text-align: left; }
button.sort { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0;
  text-align: left; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
tr.front td { font-weight: 600; }
tr:target td, tr.chosen td, tr.lit td { background: var(--mark); }
.failed { color: var(--bad); }
.complete { color: var(--good); }
.tools { display: flex; flex-wrap: wrap; gap: .8rem; align-items: center; margin: .5rem 0; font-size: .9rem; }
.tools input, .tools select { font: inherit; padding: .25rem .4rem; color: var(--ink); background: var(--raised);
  border: 1px solid var(--grid); border-radius: .3rem; max-width: 100%; }
fieldset.tools { border: 1px solid var(--grid); border-radius: .4rem; padding: .2rem .8rem .4rem; gap: .2rem 1rem; }
legend { color: var(--soft); font-size: .85rem; padding: 0 .3rem; }
.ledger { margin: .3rem 0; }
pre { font-size: .8rem; background: var(--raised); padding: .6rem .8rem; border-radius: .4rem; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .15rem 1rem; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
details summary { cursor: pointer; }
.files { white-space: nowrap; }
[hidden] { display: none !important; }
footer { color: var(--soft); font-size: .85rem; padding-bottom: 3rem; }
@media print { nav, .tools { display: none; } }
"""
