"""Whether every link, anchor and resource of a built site is there, and none is fetched from afar.

`python -m website.checking FOLDER` prints what is wrong, and fails where anything is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself, as opposed to what a reader may follow.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
RELATIONS = ("canonical", "prev", "next")  # links that no browser fetches


@dataclass
class Read(HTMLParser):
    """The anchors of a page, what it links to, and what it fetches."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to or fetches."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        wanted = FETCHED.get(tag)
        if wanted in given and given.get("rel") not in RELATIONS:
            self.fetched.append(given[wanted])


def read(text: str) -> Read:
    """What there is in the text of a page."""
    page = Read()
    page.feed(text)
    return page


def faults(folder: Path) -> list[str]:
    """A line for every link, anchor and resource that is not in the folder of a site."""
    pages = {path: read(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(folder)
        if path.name == "404.html":  # served from any place: its links are absolute
            continue
        found += [f"{here} fetches {link}" for link in page.fetched if _is_remote(link)]
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if _is_remote(link) or parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                found.append(f"{here}: nothing at {link}")
            elif parts.fragment and target in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[target].anchors and not anchor.startswith("__"):
                    found.append(f"{here}: no anchor {link}")
    return found


def _is_remote(link: str) -> bool:
    return link.startswith(("http://", "https://", "//"))


def main(folder: str) -> int:
    """Print the faults of a site; the exit code."""
    found = faults(Path(folder).resolve())
    print("\n".join(found) or "No link leads nowhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
