"""The site: what its checks find, and that every page and public name has a place in it."""

import inspect
import re
from pathlib import Path

import pytest

import lowerbound as lb
import lowerbound.estimators
from website import checking, outside, public_names
from website.running import ROOT, Text, run, text_of


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    shown = [name for page in public_names.pages() for name in page.names]
    assert len(shown) == len(set(shown))
    modules = [
        f"{lb.__name__}.{name}" for name in lb.__all__ if inspect.ismodule(getattr(lb, name))
    ]
    assert set(shown) == set(public_names.all_names()) - set(modules)


def test_every_public_name_setting_and_method_is_documented() -> None:
    assert public_names.untold(public_names.all_names()) == []


def test_what_is_not_documented_is_found() -> None:
    class Silent:
        pass

    class Estimator:
        """Has one setting with words, and one without: told."""

        def __init__(self, told: int = 0, kept_quiet: int = 0) -> None: ...

        def get_params(self) -> None:
            """Names it as scikit-learn does."""

        def answer(self): ...

    Estimator.answer.__module__ = "lowerbound.somewhere"
    assert public_names.untold({"lb.Silent": Silent, "lb.Estimator": Estimator}) == [
        "lb.Silent has no docstring",
        "lb.Estimator: its docstring does not mention 'kept_quiet'",
        "lb.Estimator.answer has no docstring",
    ]


def test_every_page_of_docs_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", text, re.MULTILINE))
    assert pages - listed == set()
    made = {f"reference/{page.path}.md" for page in public_names.pages()}
    assert listed - pages == made


def test_a_site_with_faults_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<h1 id="here">x</h1>')
    (tmp_path / "index.html").write_text(
        '<script src="https://elsewhere.org/x.js"></script><a href="https://elsewhere.org">ok</a>'
        '<a href="there.html#here">ok</a><a href="there.html#nowhere">no</a>'
        '<a href="gone.html">no</a><img src="gone.png">'
    )
    assert checking.faults(tmp_path) == [
        "index.html fetches https://elsewhere.org/x.js",
        "index.html: no anchor there.html#nowhere",
        "index.html: nothing at gone.html",
        "index.html: nothing at gone.png",
    ]
    assert checking.main(str(tmp_path)) == 1


def test_links_out_of_docs_lead_to_pages_of_the_site() -> None:
    place = ROOT / "docs" / "contributing" / "rule.md"
    text = "[a](../../src/lowerbound/api.py) [b](../design.md#x) [c](https://x.org) [d](gone.md)"
    found = outside.relinked(text, place, "contributing/rule.md", ROOT)
    assert found == (
        "[a](../tree/src/lowerbound/api.py.md) [b](../design.md#x) [c](https://x.org) [d](gone.md)"
    )
    assert "def fit(" in outside.page_of(ROOT / "src/lowerbound/api.py", ROOT)
    assert "| `api.py` |" in outside.page_of(ROOT / "src/lowerbound", ROOT)


def test_settings_in_docstrings_become_a_list() -> None:
    pytest.importorskip("griffe", reason="a part of the extra [docs]")
    from website.docstrings import as_markdown

    text = "A method.\n\nfew: a number\n    of rows. more: another.\n\n>>> 1 + 1\n2"
    assert as_markdown(text) == (
        "A method.\n\n- `few`: a number of rows.\n- `more`: another.\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


def test_code_of_others_is_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python\nprint("ours")\n```\n```python title="theirs"\n1 / 0\n```\n```\nours\n```\n'
    )
    read = text_of(page)
    assert read == Text("page.md", ('print("ours")\n',), ("ours",), ())
    assert run(read, tmp_path)[1] == ["ours"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_python_on_pages_is_run_by_a_test_or_marked_as_not_ours(path: Path) -> None:
    """Pages with code have a test by their name; titles say whose the rest is."""
    languages = set(re.findall(r"^```([^\n`]+)$", path.read_text("utf-8"), re.MULTILINE))
    titled = {language for language in languages if "title=" in language}
    assert [title for title in titled if "(not run here)" not in title] == []
    if "python" in languages:
        tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests").glob("test_*.py"))
        folder = path.parent.name in ("gallery", "contributing")
        assert folder or f'"{path.name}"' in tests
