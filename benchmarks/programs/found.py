"""Which programs a tree holds, and their code as cells."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = re.compile(r"^(\s*)([!%].*)$", re.MULTILINE)  # lines that only IPython reads
FOLDER = re.compile(r"^(?:# )?%cd +([\w./-]+) *$", re.MULTILINE)  # one of them that is heeded
JUPYTEXT = re.compile(r"^# +jupytext:", re.MULTILINE)  # a notebook that is kept as a script
SKIPPED = {".git", ".venv", "build", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class Program:
    """A script or a notebook."""

    path: Path
    name: str  # relative to the tree
    arguments: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with the arguments."""
        return " ".join((self.name, *self.arguments))

    def cells(self) -> list[str]:
        """Its code: a script is one cell. Lines for the shell and for IPython do nothing."""
        text = self.path.read_text()
        if self.path.suffix == ".py":
            return statements(text) if JUPYTEXT.search(text) else [text]
        written = [
            "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]
        return [plain(cell) for cell in written]


def statements(text: str) -> list[str]:
    r"""The statements of a notebook that is kept as a script, each on its own lines of it.

    >>> statements("# %cd ..\nx = 5\n\nprint(\n  x)")
    ['import os; os.chdir("..")', '\nx = 5', '\n\n\nprint(\n  x)']
    """
    text = heeded(text)
    lines, found, ended = text.splitlines(), [], 0
    for part in ast.parse(text).body:
        first = min([part.lineno, *(d.lineno for d in getattr(part, "decorator_list", ()))])
        if first > ended:  # not the second of a line
            found.append("\n" * (first - 1) + "\n".join(lines[first - 1 : part.end_lineno]))
            ended = part.end_lineno or first
    return found


def heeded(text: str) -> str:
    """Code that goes to a folder as the notebook does."""
    return FOLDER.sub(r'import os; os.chdir("\1")', text)


def plain(cell: str) -> str:
    r"""A cell without magic; `%%time` and the like leave the code below them.

    >>> print(plain("%matplotlib inline\nx = 5\n%cd ../data\n!ls"))
    pass  # %matplotlib inline
    x = 5
    import os; os.chdir("../data")
    pass  # !ls
    """
    cell = heeded(cell)
    try:
        ast.parse(cell)
    except SyntaxError:
        return MAGIC.sub(r"\1pass  # \2", cell)
    return cell


def programs(tree: Path, pattern: str = "") -> Iterator[Program]:
    """Notebooks and scripts that import NumPyro, by name; modules that do nothing give no rows."""
    for path in sorted([*tree.rglob("*.py"), *tree.rglob("*.ipynb")]):
        name = path.relative_to(tree).as_posix()
        if set(path.relative_to(tree).parts) & SKIPPED or not re.search(pattern, name):
            continue
        if path.name.startswith(("_", "test_", "conf")) or "numpyro" not in path.read_text():
            continue
        if path.suffix == ".ipynb" or re.search(r"__main__|^\w.*\.run\(", path.read_text(), re.M):
            yield Program(path, name)


def of_numpyro(tree: Path, pattern: str = "") -> Iterator[Program]:
    """The programs of NumPyro's source tree: its examples, then its notebooks."""
    parts = [part for part in ("examples", "notebooks/source") if (tree / part).is_dir()]
    if not parts:
        raise SystemExit(f"Expected NumPyro's folders examples and notebooks/source in {tree}.")
    for part in parts:
        for found in programs(tree / part):
            name = f"{part.split('/')[0]}/{found.name}"
            if re.search(pattern, name):
                yield Program(found.path, name)
