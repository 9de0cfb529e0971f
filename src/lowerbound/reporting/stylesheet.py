"""How a page looks: on a wide screen, on a phone, in the dark, on paper."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1c1c; --faint: #5f5f5f;
        --line: #dcdcdc; --wash: #f5f5f4; --all: #00664b; --means: #855800; --nothing: #a33f00; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e8e8e6; --faint: #a3a3a0; --line: #3a3d41; --wash: #202327;
          --all: #4fd0a5; --means: #f0b74a; --nothing: #ff9161; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
       font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 56rem; margin: 0 auto; padding: 1.5rem 1.1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .7rem; padding-top: .5rem;
     border-top: 1px solid var(--line); }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.verdict { border-left: .45rem solid var(--trust); background: var(--wash);
           padding: .8rem 1.1rem; margin: 1rem 0; border-radius: 0 .4rem .4rem 0; }
.verdict.all { --trust: var(--all); } .verdict.means { --trust: var(--means); }
.verdict.nothing { --trust: var(--nothing); }
.verdict .advice { color: var(--trust); font-size: 1.3rem; font-weight: 650; line-height: 1.3; }
.small, figcaption { color: var(--faint); font-size: .9rem; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { background: var(--wash); padding: .1rem .3rem; border-radius: .2rem; font-size: .9em;
       overflow-wrap: anywhere; }
pre { background: var(--wash); padding: .8rem 1rem; font-size: .8rem; line-height: 1.45; margin: 0;
      width: max-content; min-width: 100%; }
.scroll { overflow-x: auto; border-radius: .3rem; }
.scroll:focus-visible { outline: 2px solid var(--faint); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--line);
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; }
.words td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.words td:first-child { color: var(--faint); white-space: nowrap; vertical-align: top; }
figure { margin: 1.4rem 0; }
figcaption { margin-top: .5rem; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .3rem; }
@media (prefers-color-scheme: dark) { img { padding: .4rem; } }
@media screen and (max-width: 40rem) {
  main { padding: 1rem .9rem 3rem; } h1 { font-size: 1.35rem; }
  table { font-size: .82rem; } th, td { padding-right: .6rem; }
  .wide img { max-width: none; width: 40rem; } }
@media print {
  :root { --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; --wash: #f7f7f7;
          --all: #00664b; --means: #855800; --nothing: #a33f00; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.4rem; } tr, .verdict { break-inside: avoid; }
  figure { break-inside: avoid; } img { max-height: 20cm; width: auto; }
  thead { display: table-header-group; } .scroll { overflow: visible; }
  pre { font-size: 7pt; white-space: pre-wrap; overflow-wrap: anywhere; width: auto; } }
"""
