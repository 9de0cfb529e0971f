"""The tree of the source: folders of some fifteen modules, and no two modules of one name."""

from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "lowerbound"
MODULES = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
MOST = 15


def test_no_folder_is_a_drawer():
    sizes = Counter(path.parent.relative_to(SOURCE) for path in MODULES)
    assert MODULES
    assert {str(folder): size for folder, size in sizes.items() if size > MOST} == {}


def test_no_two_modules_share_a_name():
    names = Counter(path.stem for path in MODULES)
    names.update({path.name for path in SOURCE.iterdir() if path.is_dir()})
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_says_what_it_is_for():
    for folder in {path.parent for path in MODULES}:
        text = (folder / "__init__.py").read_text()
        assert text.startswith('"""'), folder
