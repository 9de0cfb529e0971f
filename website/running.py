"""The code of a page, run block by block as a reader would run it.

`python -m website.running PAGE ...` runs pages, and leaves the pictures that they save in
`docs/images/gallery`. `make pictures` does so for the gallery.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "images" / "gallery"
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A page as it is read: its code, what it says is printed, and the pictures that it shows."""

    name: str
    code: tuple[str, ...]
    said: tuple[str, ...]
    pictures: tuple[str, ...]


def text_of(path: Path) -> Text:
    """Read a page. Blocks that are `python` are run; those without a language say what is printed.

    Blocks with a title are code of others, and only read.
    """
    text = path.read_text("utf-8")
    blocks = BLOCK.findall(text)
    return Text(
        name=path.name,
        code=tuple(code for language, code in blocks if language == "python"),
        said=tuple(
            line for language, said in blocks if language == "" for line in said.splitlines()
        ),
        pictures=tuple(re.findall(r"!\[[^\]]*\]\([^)]*images/gallery/([\w.-]+)\)", text)),
    )


def run(page: Text, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the code of a page in a folder: the names that it leaves, and what it prints."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot

    names: dict[str, Any] = {"__name__": page.name}
    printed = io.StringIO()
    with _within(folder), contextlib.redirect_stdout(printed):
        for number, code in enumerate(page.code):
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)
    matplotlib.pyplot.close("all")
    return names, printed.getvalue().splitlines()


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(arguments: list[str]) -> int:
    """Run pages and keep their pictures; the exit code."""
    given = argparse.ArgumentParser(prog="python -m website.running", description=main.__doc__)
    given.add_argument("pages", nargs="+", type=Path)
    given.add_argument("--data", type=Path, help="a folder of files that pages read")
    asked = given.parse_args(arguments)
    PICTURES.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for path in asked.pages:
        page = text_of(path)
        with tempfile.TemporaryDirectory() as folder:
            if asked.data is not None:
                shutil.copytree(asked.data, folder, dirs_exist_ok=True)
            _, printed = run(page, Path(folder))
            for picture in page.pictures:
                shutil.copy(Path(folder) / picture, PICTURES)
        print(f"--- {path}", *printed, sep="\n")
        missing = [line for line in page.said if line not in printed]
        wrong += len(missing)
        print(*(f"*** not printed: {line}" for line in missing), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
