"""A run that is killed at any moment goes on to the same numbers, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.store.lives import RUNS

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        *((name, 3) for name in RUNS),
        *(pytest.param(name, 20, marks=pytest.mark.slow) for name in RUNS),
    ],
)
def test_killed_runs_end_as_if_never_killed(name, kills, tmp_path):
    """Exact. That none of 15 late kills lands in a write has probability below 1e-4: a write takes
    at least half of the time between two checkpoints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.lives", name, str(tmp_path), "0", str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == kills
    assert report["inside"] >= 1 or kills < 20
    with np.load(tmp_path / "interrupted.npz") as a, np.load(tmp_path / "straight.npz") as b:
        assert set(a) == set(b)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)
    names = [path.name for path in (tmp_path / "run").iterdir()]
    assert len(names) == 2  # no left-over of a killed write
