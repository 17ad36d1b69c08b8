"""The HTML of a page: frame, style and the pieces that sections consist of.

Arguments are plain text and are escaped; the sections of `page` are HTML.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe3e8; --paper: #fff; --box: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #a3aebc; --line: #39424e; --paper: #14181d; --box: #1e242b; }
  img { background: #fff; border-radius: .4rem; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 62rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: .2rem 0 .6rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; padding-top: .8rem; border-top: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 46rem; } .soft { color: var(--soft); }
.tiles, .pictures { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); }
.tiles { margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: var(--soft); font-size: .9rem; }
figure { margin: 0; min-width: 0; } figcaption { color: var(--soft); font-size: .92rem; }
img { display: block; width: 100%; height: auto; } .single { max-width: 36rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.number, th.number { text-align: right; white-space: nowrap; }
table.values th { width: 12rem; font-weight: 400; color: var(--soft); } td { overflow-wrap: anywhere; }
pre { background: var(--box); border-radius: .4rem; padding: .7rem .9rem; white-space: pre-wrap;
      overflow-wrap: anywhere; }
@media (max-width: 30rem) { body { padding: .8rem .8rem 2rem; } h1 { font-size: 1.3rem; }
  table.values th { width: 8rem; } }
"""

# the browser fetches nothing
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, sections: Iterable[str]) -> str:
    """Return a whole page; it refers to no other file."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style>'
    )
    body = "\n".join(sections)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def tile(value: str, label: str) -> str:
    """Return a value in large type with a label below."""
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'


def picture(png: bytes, alt: str, caption: str = "") -> str:
    """Return a picture that is part of the page."""
    data = base64.b64encode(png).decode()
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{data}">{below}</figure>'


def table(lines: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values."""
    inside = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    return f'<table class="values">{inside}</table>'
