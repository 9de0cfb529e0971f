"""Docstrings of the library as Markdown: settings become a list, examples keep their block.

In the source a setting is a line of its own, `name: what it means`, with its further lines
indented. Markdown would run these lines together, and read an indented one as code.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SETTING = re.compile(r"^([A-Za-z_]\w*(?:, \w+)*): (.*)")


def as_markdown(text: str) -> str:
    """A docstring with its settings as a list, and its examples in a fenced block."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(_as_block(paragraph) for paragraph in paragraphs)


def _as_block(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if SETTING.match(lines[0]):
        return "\n".join(_as_item(line) for line in _settings(lines))
    if all(line.startswith("    ") for line in lines):  # a formula on lines of its own
        return "\n".join(["```text", *(line[4:] for line in lines), "```"])
    return re.sub(r"<(?=[^\s<>]*[ ,])", "&lt;", paragraph)  # <λ, t(z)> is no tag


def _settings(lines: list[str]) -> list[str]:
    """The settings of a paragraph, one on each line, where several share a line."""
    text = " ".join(line.strip() for line in lines)
    return re.sub(r"(?<=[.;]) (?=[a-z_]\w*(?:, [a-z_]\w*)*: )", "\n", text).splitlines()


def _as_item(line: str) -> str:
    found = SETTING.match(line)
    if found is None:
        return f"- {line}"
    names = ", ".join(f"`{name}`" for name in found[1].split(", "))
    return f"- {names}: {found[2]}"


class Markdown(Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Replace the text of an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
