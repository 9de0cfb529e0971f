"""Importing lowerbound is cheap and leaves no trace."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import lowerbound
from lowerbound import names

PROBE = """
import json, sys
import jax
known = set(sys.modules)
HEAVY = {"arviz", "arviz_base", "matplotlib", "pandas", "scipy.stats", "sklearn", "xarray"}
before = {name: repr(value) for name, value in jax.config.values.items()}
import lowerbound
assert not {"jax.numpy", "numpyro", "scipy"} & (set(sys.modules) - known), "names come on first use"
lowerbound.fit
after = {name: repr(value) for name, value in jax.config.values.items()}
print(json.dumps({
    "heavy": sorted(HEAVY & set(sys.modules)),
    "config": sorted(name for name in before if before[name] != after[name]),
    "arrays": len(jax.live_arrays()),
}))
"""


def test_import_is_light_and_changes_no_global_state() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"heavy": [], "config": [], "arrays": 0}


def test_version_is_that_of_the_distribution() -> None:
    assert lowerbound.__version__ == version("lowerbound")


def test_public_names_are_there_before_they_are_used() -> None:
    imported = {name for name in vars(names) if not name.startswith("__")}
    assert set(lowerbound.__all__) == imported | {"__version__"}
    assert set(lowerbound.__all__) <= set(dir(lowerbound))
    for name in lowerbound.__all__:
        assert getattr(lowerbound, name) is getattr(names, name)
    with pytest.raises(AttributeError, match="module 'lowerbound' has no attribute 'fits'"):
        lowerbound.fits  # noqa: B018
