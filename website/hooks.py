"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from website import checking, outside, public_names  # noqa: E402


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and pages of what others point at outside of docs/."""
    silent = public_names.untold(public_names.all_names())
    if silent:
        raise PluginError("Public names without documentation:\n  " + "\n  ".join(silent))
    for page in public_names.pages():
        text = public_names.text_of(page)
        files.append(File.generated(config, f"reference/{page.path}.md", content=text))
    for name, place in places().items():
        if not outside.is_page(place, ROOT):
            text = outside.page_of(place, ROOT)
            files.append(File.generated(config, name, content=text))
    return files


@functools.cache
def places() -> dict[str, Path]:
    """Where the text of a page comes from, by its name: docs/, and what is linked from there."""
    asked = [ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    found: dict[str, Path] = {}
    while asked:
        place = asked.pop()
        name = outside.uri(place, ROOT)
        if name in found:
            continue
        found[name] = place
        if place.suffix == ".md":
            asked += outside.targets(place.read_text("utf-8"), place, ROOT).values()
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to the pages that were made for what they point at."""
    name = page.file.src_uri
    place = places().get(name)
    return markdown if place is None else outside.relinked(markdown, place, name, ROOT)


def on_post_build(config: Any) -> None:
    """Fail where a link or an anchor of the finished site leads nowhere, or out of it."""
    faults = checking.faults(Path(config["site_dir"]))
    if faults:
        raise PluginError("The site has faults:\n  " + "\n  ".join(faults))
