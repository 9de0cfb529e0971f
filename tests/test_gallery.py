"""The analyses of the gallery run, print what they say, and make the pictures that they show."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from website.running import PICTURES, ROOT, run, text_of

pytestmark = [
    pytest.mark.judged,
    pytest.mark.filterwarnings("ignore::lowerbound.errors.TrustWarning"),
    pytest.mark.filterwarnings("ignore::lowerbound.errors.LadderWarning"),
    pytest.mark.filterwarnings("ignore::lowerbound.errors.ConvergenceWarning"),
]
GALLERY = ROOT / "docs" / "gallery"
MIXED = Path(os.environ.get("LOWERBOUND_MIXED", ROOT.parent / "shared" / "data" / "mixed"))
PAGES = sorted(path for path in GALLERY.glob("*.md") if path.name != "index.md")
SLOW = {"basketball", "diabetes", "digits", "iris", "lynx-hare", "sleepstudy", "wine"}


def marked(path: Path) -> object:
    marks = [pytest.mark.slow] if path.stem in SLOW else []
    return pytest.param(path, id=path.stem, marks=marks)


def write_tables(page: str, folder: Path) -> None:
    """The tables that lme4 has under another licence, where they are at hand."""
    if page not in ("sleepstudy.md", "cbpp.md"):
        return
    if not MIXED.is_dir():
        pytest.skip(f"the data of lme4 are not in {MIXED}; LOWERBOUND_MIXED names another folder")
    with np.load(MIXED / page.replace(".md", ".npz")) as kept:
        if page == "sleepstudy.md":
            subject = [f"s{number:02d}" for number in kept["subject"]]
            columns = {"Reaction": kept["y"], "Days": kept["days"], "Subject": subject}
        else:
            columns = {"herd": kept["herd"] + 1, "period": kept["period"] + 1}
            columns |= {"incidence": kept["y"], "size": kept["size"]}
        pd.DataFrame(columns).to_csv(folder / page.replace(".md", ".csv"), index=False)


@pytest.mark.parametrize("path", [marked(path) for path in PAGES])
def test_an_analysis_runs_and_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    page = text_of(path)
    write_tables(page.name, tmp_path)
    _, printed = run(page, tmp_path)
    assert [line for line in page.said if line not in printed] == []
    assert page.pictures
    for picture in page.pictures:
        assert (tmp_path / picture).stat().st_size > 5_000


def test_most_analyses_are_fast() -> None:
    assert {path.stem for path in PAGES} > SLOW
    assert 2 * len(SLOW) < len(PAGES)
    assert len(PAGES) >= 12


def test_every_picture_is_kept_small_and_shown_by_one_page() -> None:
    shown = [picture for path in PAGES for picture in text_of(path).pictures]
    assert sorted(shown) == sorted(path.name for path in PICTURES.iterdir())
    assert max(path.stat().st_size for path in PICTURES.iterdir()) < 80_000


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_an_analysis_has_all_its_parts_and_is_listed(path: Path) -> None:
    text = path.read_text("utf-8")
    parts = ["**The question.**", "## The model", "## The picture", "## What one learns"]
    assert [part for part in [*parts, "## How far to trust it"] if part not in text] == []
    assert f"]({path.name})" in (GALLERY / "index.md").read_text("utf-8")
    assert f"gallery/{path.name}" in (ROOT / "mkdocs.yml").read_text("utf-8")
