"""What pages point at outside of docs/ (sources, tests, folders, notebooks), as pages too.

The site stands alone: it has no repository to send a reader to. So whatever a page of `docs/` links
to elsewhere in the tree becomes a page of the site, under `tree/`.
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path

LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".yml": "yaml",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".json": "json",
}
FOLDER = "tree"


def targets(text: str, place: Path, root: Path) -> dict[str, Path]:
    """What a page links to in the tree, by the text of the link: what exists, anchors left out."""
    found = {}
    for _, link, _ in LINK.findall(_without_code(text)):
        path = link.partition("#")[0]
        if not path or ":" in path:
            continue
        target = Path(os.path.normpath(place.parent / path))
        if target.is_relative_to(root) and target.exists():
            found[link] = target
    return found


def uri(target: Path, root: Path) -> str:
    """The page of a file or a folder: of one in docs/, itself."""
    if is_page(target, root):
        return str(target.relative_to(root / "docs"))
    parts = [part.lstrip(".") for part in target.relative_to(root).parts]  # MkDocs skips dots
    return "/".join([FOLDER, *parts]) + ".md"


def is_page(target: Path, root: Path) -> bool:
    """Whether it is in docs/, and so a page as it stands."""
    return target.is_relative_to(root / "docs")


def relinked(text: str, place: Path, page: str, root: Path) -> str:
    """A page whose links lead to the pages of what they point at, wherever its file stood."""
    found = targets(text, place, root)

    def replaced(match: re.Match[str]) -> str:
        target = found.get(match[2])
        if target is None:
            return match[0]
        _, mark, anchor = match[2].partition("#")
        there = os.path.relpath(uri(target, root), os.path.dirname(page) or ".")
        return f"{match[1]}{there}{mark}{anchor}{match[3]}"

    return LINK.sub(replaced, text)


def page_of(target: Path, root: Path) -> str:
    """A file or a folder as Markdown."""
    head = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"
    title = f"# {target.relative_to(root)}\n\n"
    if target.is_dir():
        return head + title + _listing(target)
    if target.suffix == ".md":
        return target.read_text("utf-8")
    if target.suffix == ".ipynb":
        return head + _notebook(target)
    text = target.read_text("utf-8").rstrip("\n")
    fence = "`" * 4
    return f"{head}{title}{fence}{LANGUAGES.get(target.suffix, 'text')}\n{text}\n{fence}\n"


def _listing(folder: Path) -> str:
    """What a folder holds, with the first line that each module says of itself."""
    names = sorted(
        path for path in folder.iterdir() if path.name[0] not in "._" or path.name == "__init__.py"
    )
    rows = [f"| `{path.name}{'/' * path.is_dir()}` | {_first_line(path)} |" for path in names]
    return "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def _first_line(path: Path) -> str:
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py" or not module.exists():
        return ""
    said = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return said.split("\n\n")[0].replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _notebook(path: Path) -> str:
    """The cells of a notebook, without what they print."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(
        text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in parts
    )


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
