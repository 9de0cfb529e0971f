"""A fit that is interrupted goes on from its last whole pass."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lowerbound.errors import StorageError
from lowerbound.estimators import LatentDirichletAllocation
from lowerbound.topics.looks.watch import Trail
from lowerbound.topics.native import library
from tests.topics.asked import asked

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

ROOT = Path(__file__).parents[2]


def corpus(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(60, 0.1), size=6)
    theta = rng.dirichlet(np.full(6, 0.3), size=300)
    return np.stack([rng.multinomial(30, row) for row in theta @ beta])


def lda(**settings) -> LatentDirichletAllocation:
    return asked(6, **{"tolerance": 0.0, "max_passes": 9, "n_jobs": 1, **settings})


class StopError(Exception):
    """Stands for whatever ends a process."""


def interrupted(
    model: LatentDirichletAllocation, X, looks: int, checkpoint: Path, monkeypatch
) -> None:
    """A fit that ends after so many looks."""
    with_look, seen = Trail.with_look, []

    def counted(self, look, *given):
        if len(seen) == looks:
            raise StopError
        seen.append(look)
        return with_look(self, look, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trail, "with_look", counted)
        with pytest.raises(StopError):
            model.fit(X, progress=False, checkpoint=checkpoint)


def assert_same(found: LatentDirichletAllocation, straight: LatentDirichletAllocation) -> None:
    np.testing.assert_array_equal(found.components_, straight.components_)
    np.testing.assert_array_equal(found.document_prior_, straight.document_prior_)
    np.testing.assert_array_equal(found.snapshots_.words, straight.snapshots_.words)
    for name in ("elbo", "held_out", "rows"):
        mine, whole = (getattr(one.result_.history, name) for one in (found, straight))
        np.testing.assert_array_equal(mine, whole)
    assert found.result_.stop_reason == straight.result_.stop_reason
    assert found.result_.elbo == straight.result_.elbo


@pytest.mark.parametrize("looks", [1, 4, 8])
@pytest.mark.parametrize(
    "settings",
    [
        {"inference": "svi", "batch_size": 64},
        {"inference": "svi", "batch_size": 64, "document_prior": "learn", "topic_prior": "learn"},
        {"inference": "svi", "validation_fraction": 0.0},
    ],
    ids=["svi", "svi that learns priors", "svi by its ELBO"],
)
def test_batches_go_on_bit_for_bit(settings, looks, tmp_path, monkeypatch):
    X = corpus()
    straight = lda(**settings).fit(X)
    model, path = lda(**settings), tmp_path / "run.lb"
    interrupted(model, X, looks, path, monkeypatch)
    assert path.exists()
    assert_same(model.fit(X, checkpoint=path), straight)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["cavi", "collapsed"])
def test_sweeps_go_on_from_their_topics(method, seed, tmp_path, monkeypatch):
    """Gamma and phi are found anew, so the numbers are close, not equal."""
    X = corpus(seed)
    passes = {"max_passes": 18}
    straight = lda(inference=method, **passes).fit(X)
    model, path = lda(inference=method, **passes), tmp_path / "run.lb"
    interrupted(model, X, 4, path, monkeypatch)
    model.fit(X, checkpoint=path)
    assert model.n_iter_ == straight.n_iter_
    assert len(model.result_.history.rows) == len(straight.result_.history.rows)
    assert model.result_.elbo == pytest.approx(straight.result_.elbo, rel=0.01)
    if method == "cavi":
        assert np.all(np.diff(model.result_.history.elbo) >= -1e-9 * abs(model.result_.elbo))


def test_other_settings_and_documents_are_refused(tmp_path, monkeypatch):
    path, X = tmp_path / "run.lb", corpus()
    interrupted(lda(inference="svi"), X, 2, path, monkeypatch)
    advice = (
        "Expected the settings and the corpus that it was made with. Delete the file to start "
        "anew, or name another."
    )
    with pytest.raises(StorageError) as raised:
        lda(inference="svi", forgetting=0.9).fit(X, checkpoint=path)
    told = f"{path} holds the checkpoint of another fit, with forgetting 0.7 (now 0.9)."
    assert str(raised.value) == f"{told}\n{advice}"
    X[0, 0] += 1
    with pytest.raises(StorageError, match="another fit, with digest of documents"):
        lda(inference="svi").fit(X, checkpoint=path)
    X[0, 0] -= 1
    with pytest.raises(StorageError, match="another fit, with digest of priors"):
        lda(inference="svi", document_prior=0.3).fit(X, checkpoint=path)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "run.lb"
    path.write_bytes(b"no archive")
    with pytest.raises(StorageError, match="damaged or is no topics checkpoint of lowerbound"):
        lda(inference="svi").fit(corpus(), checkpoint=path)


KILLED = """
import sys
from tests.topics.test_checkpoint import corpus, lda
model = lda(inference="svi", batch_size=64, max_passes=40)
print(model.fit(corpus(), checkpoint=sys.argv[1]).components_.tobytes().hex()[:64])
"""


def written(path: Path) -> int:
    """When the file was last put in its place; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_kills(tmp_path):
    """Killed again and again, a fit ends with the same bits."""
    path = tmp_path / "run.lb"
    straight = lda(inference="svi", batch_size=64, max_passes=40).fit(corpus())
    command = [sys.executable, "-c", KILLED, str(path)]
    for _ in range(50):
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        seen = written(path)
        while child.poll() is None and written(path) in (0, seen):
            time.sleep(0.01)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        if child.returncode == 0:
            break
    assert out.strip() == straight.components_.tobytes().hex()[:64]
