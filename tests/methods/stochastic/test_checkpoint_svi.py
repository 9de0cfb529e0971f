"""Stochastic runs that stop and go on: the same numbers, bit for bit, wherever they stopped."""

from dataclasses import replace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compute import engine
from lowerbound.errors import StorageError
from lowerbound.methods.stochastic import stepping, visiting
from lowerbound.store.checkpoint import Keeper, available
from tests.methods.stochastic.batched import METHODS, MODELS, lasting, numbers
from tests.run.models import line


class InterruptionError(Exception):
    pass


def options(name, how, units=None):
    method = lasting(METHODS[how], units, batch_size=MODELS[name].batch_size)
    return {**MODELS[name].arguments, "method": method, "seed": 1}


def interrupted(monkeypatch, folder, writes, every, model, **call):
    """Fit, and break off after so many checkpoints."""
    write, steps = Keeper.write, []

    def breaking(self, step, document):
        write(self, step, document)
        steps.append(step)
        if len(steps) == writes:
            raise InterruptionError

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "write", breaking)
        with pytest.raises(InterruptionError):
            lb.fit(model, checkpoint=lb.Checkpoint(folder, every=every), **call)
    engine._engines.clear()  # so that the next life compiles for itself
    return steps


def assert_equal(found, expected):
    found, expected = numbers(found), numbers(expected)
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


# An evaluation every 2 steps and a pass of 6 visits: the third checkpoint lies inside both.
RUNS = [
    ("regression", "plain", 3, 11),
    ("regression", "averaged", 5, 23),
    ("mixture", "memoized", 5, 20),
    pytest.param("mixture", "averaged", 3, 12, marks=pytest.mark.slow),
    pytest.param("topics", "memoized", 5, 16, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "how", "every", "last"), RUNS)
def test_resumed_runs_equal_uninterrupted_ones(name, how, every, last, tmp_path, monkeypatch):
    """The uninterrupted run keeps no checkpoints: neither they nor their distance count."""
    model, call = MODELS[name].model, options(name, how, last)
    expected = lb.fit(model, **call)
    steps = interrupted(monkeypatch, tmp_path, 3, every, model, **call)
    assert steps == [every, 2 * every, 3 * every]
    resumed = {k: v for k, v in call.items() if k not in ("method", "seed")}
    assert_equal(lb.resume(tmp_path, model, **resumed), expected)
    assert available(tmp_path)[-1] == last
    # A finished run gives its result without another step.
    with monkeypatch.context() as patch:
        patch.setattr(stepping, "advance", None)
        patch.setattr(visiting, "visit", None)
        assert_equal(lb.resume(tmp_path, model, **resumed), expected)


@pytest.mark.parametrize("how", ["averaged", "memoized"])
def test_runs_that_stop_by_themselves(how, tmp_path, monkeypatch):
    """Also when the last thing a run did was to settle."""
    model, call = MODELS["regression"].model, options("regression", how)
    method = call["method"]
    loose = {"tolerance": 1e-2}
    if how == "averaged":
        loose = {"details": replace(method.details, **loose)}
    call["method"] = replace(method, **loose)
    expected = lb.fit(model, **call)
    assert expected.converged
    interrupted(monkeypatch, tmp_path, 3, 3, model, **call)
    resumed = {k: v for k, v in call.items() if k not in ("method", "seed")}
    for _ in range(2):
        assert_equal(lb.resume(tmp_path, model, **resumed), expected)


def test_seconds_go_on(tmp_path, monkeypatch):
    model, call = MODELS["regression"].model, options("regression", "plain", 12)
    interrupted(monkeypatch, tmp_path, 3, 2, model, **call)
    seconds = lb.resume(tmp_path, model, **MODELS["regression"].arguments).history.seconds
    assert len(seconds) == 6
    assert (np.diff(seconds) > 0).all()


# --- Refusals ---


def coin(y, prior=1.0):
    p = numpyro.sample("p", dist.Beta(prior, 1.0))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


Y = np.array([1, 0, 1, 1, 0, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = tmp_path_factory.mktemp("svi") / "run"
    lb.fit(coin, Y, method=lb.SVI(batch_size=2, steps=4), checkpoint=lb.Checkpoint(run, every=2))
    return run


def refused(text, *args, **kwargs):
    with pytest.raises(StorageError) as caught:
        lb.resume(*args, **kwargs)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((Y[:4],), {}, "'y' was int64 of shape (6,); found int64 of shape (4,)"),
        ((1 - Y,), {}, "'y' was int64 of shape (6,); found other values"),
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


def test_another_model(folder):
    refused(
        f"{folder} holds a run of coin(y, prior); found the model regression(x, y).\nPass the "
        "model that was fitted. If it was only renamed, set model.__name__ = 'coin'.",
        folder,
        MODELS["regression"].model,
        *line(),
    )
