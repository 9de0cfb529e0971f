"""The parts of a page: headings, tables that scroll within themselves, pictures, code."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from lowerbound.reporting.stylesheet import STYLE
from lowerbound.result.verdicts import Verdict

WIDE = 5.8  # inches from which a picture scrolls on a phone instead of shrinking
DOTS = 150  # of a picture, per inch
Part = Iterable[str]


def page(title: str, parts: Part) -> str:
    """A whole page: nothing in it is fetched from elsewhere."""
    head = (
        f"<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        f"<title>{escape(title)}</title>\n"
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        "<link rel=icon href='data:,'>\n"
        f"<style>{STYLE}</style>\n</head>\n"
    )
    body = "\n".join(parts)
    return f"{head}<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"


def verdict_card(verdict: Verdict) -> str:
    """How far to trust the fit: in words, and coloured."""
    cure = f"<p>Do better by <code>{escape(verdict.cure)}</code>.</p>" if verdict.cure else ""
    reason = verdict.reason[:1].upper() + verdict.reason[1:]
    return (
        f"<section class='verdict {verdict.trust}'>\n"
        f"<p class=advice>{escape(verdict.advice)}</p>\n<p>{escape(reason)}.</p>\n{cure}\n"
        "</section>"
    )


def picture(figure: Any, caption: str) -> str:
    """A Matplotlib figure inside the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS, facecolor="white")
    data = base64.b64encode(buffer.getvalue()).decode()
    width, height = (round(float(side) * DOTS) for side in figure.get_size_inches())
    text, shown = escape(caption, quote=True), round(width * 96 / DOTS)
    wide = " class=wide" if figure.get_size_inches()[0] >= WIDE else ""
    return (
        f"<figure{wide}><div class=scroll><img alt='{text}' width={shown} "
        f"height={round(height * 96 / DOTS)} src='data:image/png;base64,{data}'></div>"
        f"<figcaption>{text}</figcaption></figure>"
    )


def table(columns: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Numbers in columns, the first a name."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in ("", *columns))
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return (
        "<div class=scroll tabindex=0><table>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def words(entries: Mapping[str, str]) -> str:
    """Names and what is said of them."""
    body = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>"
        for name, text in entries.items()
        if text
    )
    return f"<table class=words><tbody>\n{body}\n</tbody></table>"


def code(text: str) -> str:
    """Lines as they are."""
    return f"<div class=scroll tabindex=0><pre>{escape(text)}</pre></div>"


def heading(text: str) -> str:
    """The title of a section."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, kind: str = "") -> str:
    """A sentence or two."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def cell(value: Any) -> str:
    """A number with the digits that it needs.

    >>> cell(1234.5678), cell(1e-5), cell(0.25), cell("x"), cell(float("nan"))
    ('1,234.568', '1e-05', '0.250', 'x', '-')
    """
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    return f"{value:,.3f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"
