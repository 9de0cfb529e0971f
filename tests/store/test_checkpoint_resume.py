"""An interrupted run goes on to the same numbers; other models, data and files are refused."""

import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import api
from lowerbound.compute import engine
from lowerbound.errors import ArgumentError, StorageError
from lowerbound.methods.coordinate import sweeping
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.run import resume
from lowerbound.store.checkpoint import Keeper, available
from tests.models import test_diagonal_mixture, test_lda, test_probit_regression

CASES = [test_diagonal_mixture.CASE, test_lda.CASE, test_probit_regression.CASE]


def coin(y, prior=1.0):
    p = numpyro.sample("p", dist.Beta(prior, 1.0))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


Y = np.array([1, 0, 1, 1])


class InterruptionError(Exception):
    pass


def interrupted(monkeypatch, folder, writes, model, *args, every=2, **kwargs):
    """Fit, and break off after so many checkpoints, or earlier where the run has ended."""
    write, count = Keeper.write, []

    def breaking(self, step, document):
        write(self, step, document)
        count.append(step)
        if len(count) == writes:
            raise InterruptionError

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "write", breaking)
        with pytest.raises(InterruptionError):
            lb.fit(model, *args, checkpoint=lb.Checkpoint(folder, every=every), **kwargs)
    engine._engines.clear()  # so that the next life compiles for itself


def assert_same(found, expected):
    """Everything but the seconds is equal, bit for bit."""
    for name in ("elbo", "converged", "stop_reason", "method", "seed", "restarts", "precision"):
        assert getattr(found, name) == getattr(expected, name), name
    np.testing.assert_array_equal(found.history.elbo, expected.history.elbo)
    np.testing.assert_array_equal(found.history.held_out, expected.history.held_out)
    leaves, structure = jax.tree.flatten(found.q.parameters)
    others, other = jax.tree.flatten(expected.q.parameters)
    assert structure == other
    for one, two in zip(leaves, others, strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
    assert found.elbo_terms == expected.elbo_terms


# --- The same numbers ---


@pytest.mark.parametrize("restarts", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resumed_runs_equal_uninterrupted_ones(case, restarts, tmp_path, monkeypatch):
    args, kwargs = case.arguments(0)
    method = lb.CAVI(restarts=restarts, max_sweeps=25, tolerance=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.ConvergenceWarning)
        expected = lb.fit(case.model, *args, method=method, seed=2, **kwargs)
        assert len(expected.history.elbo) > 4
        interrupted(
            monkeypatch, tmp_path, 2, case.model, *args, method=method, seed=2, **kwargs
        )  # fmt: skip
        assert available(tmp_path) == (2, 4)
        assert_same(lb.resume(tmp_path, case.model, *args, **kwargs), expected)
        # A finished run gives its result at once.
        with monkeypatch.context() as patch:
            patch.setattr(sweeping, "advance", None)
            again = lb.resume(tmp_path, case.model, *args, **kwargs)
        assert_same(again, expected)


@pytest.mark.parametrize(
    "writes", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
def test_monitored_runs(writes, tmp_path, monkeypatch):
    """The score is looked at after sweeps 1, 3, 7, ...; checkpoints lie between."""
    (x,), _ = test_diagonal_mixture.CASE.arguments(0)
    model, held_out = test_diagonal_mixture.model, x[:10]
    method = lb.CAVI(monitor=(held_out,), restarts=2, tolerance=1e-7)
    expected = lb.fit(model, x[10:], K=3, method=method)
    assert len(expected.history.held_out) > 3
    interrupted(monkeypatch, tmp_path, writes, model, x[10:], K=3, method=method)
    assert_same(lb.resume(tmp_path, model, x[10:], K=3), expected)


def test_checkpoints_change_nothing(tmp_path):
    (x,), _ = test_diagonal_mixture.CASE.arguments(0)
    for every in (1, 3, 100):
        for method in (lb.CAVI(), lb.CAVI(monitor=(x,), tolerance=1e-5)):
            expected = lb.fit(test_diagonal_mixture.model, x, method=method)
            checkpoint = lb.Checkpoint(tmp_path / f"{every}{method!r}", every=every)
            found = lb.fit(test_diagonal_mixture.model, x, method=method, checkpoint=checkpoint)
            assert_same(found, expected)


def test_seconds_go_on(tmp_path, monkeypatch):
    (x,), _ = test_diagonal_mixture.CASE.arguments(0)
    interrupted(monkeypatch, tmp_path, 2, test_diagonal_mixture.model, x)
    seconds = lb.resume(tmp_path, test_diagonal_mixture.model, x).history.seconds
    assert (np.diff(seconds) > 0).all()


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, monkeypatch):
    (x,), _ = test_diagonal_mixture.CASE.arguments(0)
    expected = lb.fit(test_diagonal_mixture.model, x)
    interrupted(monkeypatch, tmp_path, 2, test_diagonal_mixture.model, x)
    newest = sorted(tmp_path.iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    assert_same(lb.resume(tmp_path, test_diagonal_mixture.model, x), expected)


# --- Methods as plain data ---


@dataclass(frozen=True)
class Schedule:
    delay: float = 1.0


@dataclass(frozen=True)
class Other:
    schedule: object = None


def test_methods_survive_as_plain_data(tmp_path):
    masked = np.ma.masked_invalid([1.0, np.nan])
    monitor = {"x": masked, "more": ({"masked": 1},), "n": np.float32(2.0)}
    method = CAVI(3, 1e-5, 7, [("a", "b"), ("c",)], {"a": jnp.arange(3.0)}, monitor)
    keep = Keeper(lb.Checkpoint(tmp_path), record={"method": resume.method_record(method)})
    keep.write(1, {})
    record = resume.read(tmp_path, 1)["run"]["method"]
    found = resume.method_from(record, [CAVI])
    assert repr(found) == repr(method)
    np.testing.assert_array_equal(found.init["a"], [0.0, 1.0, 2.0])
    assert found.blocks == [("a", "b"), ("c",)]
    assert found.monitor["more"] == ({"masked": 1},)
    np.testing.assert_array_equal(found.monitor["x"].mask, [False, True])
    assert found.monitor["n"].dtype == np.float32


def test_settings_may_be_records():
    method = Other(Schedule(2.0))
    record = resume.method_record(method)
    assert resume.method_from(record, [Other, Schedule]) == method


def test_settings_that_no_checkpoint_holds():
    with pytest.raises(ArgumentError) as caught:
        resume.method_record(Other(schedule=len))
    assert str(caught.value) == (
        "Other got schedule=<built-in function len>, which a checkpoint cannot hold.\nExpected "
        "settings that are numbers, texts, arrays, or lists and dicts of them, when "
        "checkpoint=... is given."
    )


# --- Data as a few words ---


def test_fingerprints_tell_calls_apart():
    def words(*args, **kwargs):
        return resume.fingerprint(coin, args, kwargs)

    assert words(Y) == words(y=Y) == words(Y.copy())
    assert words(Y)["y"].startswith("int64 of shape (4,); sha256 ")
    others = [Y[::-1], Y.astype(float), Y[:3], Y[None], np.ma.masked_array(Y, Y == 0)]
    assert len({words(other)["y"] for other in [Y, *others]}) == 6
    assert words(Y, prior=1.0) != words(Y, prior=2.0)
    assert words(Y, prior=len) == words(Y, prior=len)


def test_large_arrays_are_read_in_part(monkeypatch):
    """A change of the dtype, of the shape or of one of the chosen rows is seen."""
    monkeypatch.setattr(resume, "DIGESTED", 1000)
    x = np.arange(10_000.0).reshape(-1, 5)
    words = resume.fingerprint(coin, (x,), {})
    assert resume.fingerprint(coin, (x.copy(),), {}) == words
    for row in (0, -1):
        changed = x.copy()
        changed[row, 2] += 1
        assert resume.fingerprint(coin, (changed,), {}) != words
    assert resume.fingerprint(coin, (x[:-1],), {}) != words


# --- Refusals ---


@pytest.fixture
def folder(tmp_path):
    lb.fit(coin, Y, checkpoint=tmp_path / "run")
    return tmp_path / "run"


def refused(text, *args, **kwargs):
    with pytest.raises(StorageError) as caught:
        lb.resume(*args, **kwargs)
    assert str(caught.value) == text


ADVICE = "Expected a folder that lb.fit(..., checkpoint=...) wrote to. Start the run with lb.fit."


def test_no_checkpoints(tmp_path):
    absent = tmp_path / "absent"
    refused(f"There is no folder {absent}.\n{ADVICE}", absent, coin, Y)
    refused(f"{tmp_path} holds no checkpoint.\n{ADVICE}", tmp_path, coin, Y)


def test_a_used_folder_is_refused_before_any_work(folder, monkeypatch):
    monkeypatch.setattr(api, "_climbed", None)
    with pytest.raises(StorageError, match="already holds checkpoints, the last of step"):
        lb.fit(coin, Y, checkpoint=folder)


def test_another_model(folder):
    def urn(y):
        coin(y)

    refused(
        f"{folder} holds a run of coin(y, prior); found the model urn(y).\nPass the model that was "
        "fitted. If it was only renamed, set model.__name__ = 'coin'.",
        folder,
        urn,
        Y,
    )


def test_an_edited_model(folder):
    def edited(y, prior=1.0):
        p = numpyro.sample("p", dist.Beta(prior, 2.0))
        with numpyro.plate("tosses", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    edited.__name__ = "coin"
    refused(
        f"{folder} holds a run of another program of the name coin: its distributions or constants "
        "were changed.\nExpected the model as it was when the run started. Undo the change, or "
        "start again in an empty folder.",
        folder,
        edited,
        Y,
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((Y[:3],), {}, "'y' was int64 of shape (4,); found int64 of shape (3,)"),
        ((Y * 1.0,), {}, "'y' was int64 of shape (4,); found float64 of shape (4,)"),
        ((1 - Y,), {}, "'y' was int64 of shape (4,); found other values"),
        ((Y,), {"prior": 2.0}, "'prior' was absent; found 2.0"),
    ],
)
def test_other_data(folder, args, kwargs, text):
    refused(
        f"{folder} holds a run on other data: argument {text}.\n"
        "Expected the arguments that the run was started with, unchanged.",
        folder,
        coin,
        *args,
        **kwargs,
    )


def test_another_format(folder):
    for path in folder.iterdir():
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = archive.comment.replace(b"format 2", b"format 3")
    newest = sorted(folder.iterdir())[-1]
    refused(
        f"{newest} has format 3; this version of lowerbound ({lb.__version__}) reads format 2.\n"
        "Update lowerbound to read it.",
        folder,
        coin,
        Y,
    )


def test_all_checkpoints_damaged(folder):
    for path in folder.iterdir():
        path.write_bytes(b"x")
    newest = sorted(folder.iterdir())[-1]
    with pytest.raises(StorageError, match=f"^{re.escape(str(newest))} is damaged or is no check"):
        lb.resume(folder, coin, Y)


def rewritten(folder, **changes):
    """The newest checkpoint with another record of the run."""
    step = available(folder)[-1]
    document = resume.read(folder, step)
    record = {**document["run"], **changes}
    Keeper(lb.Checkpoint(folder), record=record).write(step, document["progress"])


def test_other_devices(folder):
    rewritten(folder, platform="abacus")
    refused(
        f"{folder} holds a run on abacus; found {jax.default_backend()}.\nExpected the same kind "
        "of device, as precision depends on it. Set JAX_PLATFORMS=abacus.",
        folder,
        coin,
        Y,
    )


def test_other_versions(folder):
    versions = {**resume.versions(), "jax": "0.0.1"}
    rewritten(folder, versions=versions)
    with pytest.warns(resume.ResumeWarning) as caught:
        lb.resume(folder, coin, Y)
    assert str(caught[0].message) == (
        f"The run in {folder} was made with jax 0.0.1 (now {jax.__version__}).\nIt goes on, but "
        "perhaps not bit for bit as it would have. Install those versions to get the same bits."
    )


def test_another_number_of_processes(folder):
    for path in list(folder.iterdir()):
        path.rename(Path(str(path).replace("of-1", "of-2")))
    refused(
        f"{folder} holds checkpoints of 2 processes; found 1, of which this is number 0.\n"
        "Expected as many processes as before, each with its own files. Start as many.",
        folder,
        coin,
        Y,
    )


def test_a_record_that_does_not_fit_together(folder):
    rewritten(folder, method={"record": "Guess", "settings": {}})
    with pytest.raises(StorageError, match="its record does not fit together"):
        lb.resume(folder, coin, Y)


def test_states_of_other_shapes(folder):
    step = available(folder)[-1]
    document = resume.read(folder, step)
    progress = document["progress"]
    progress = {**progress, "state": {**progress["state"], "elbo": np.zeros(2)}}
    Keeper(lb.Checkpoint(folder), record=document["run"]).write(step, progress)
    refused(
        "The checkpoint does not fit the model: its arrays have other shapes.\nExpected the model "
        "that the run was started with. Undo the change, or start again in an empty folder.",
        folder,
        coin,
        Y,
    )
