"""Rows spread over devices: the same numbers as on one, in one process or in two.

The laws run in processes of their own (`many_devices`), since a process sees one CPU device unless
it is told otherwise before JAX starts.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import Mesh

import lowerbound as lb
from lowerbound.compute.devices import Placement, placement
from lowerbound.errors import ArgumentError
from lowerbound.methods.stochastic.opened import batch_size
from tests.compute.many_devices import TWO, ZOO, assert_same, case_of, fitted
from tests.methods.stochastic.batched import ALL

ROOT = Path(__file__).parents[2]
SECONDS = 240


def start(*arguments: str, flags: str = "") -> subprocess.Popen[str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.compute.many_devices", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(*processes: subprocess.Popen[str]) -> list[str]:
    """What the processes print; none outlives the test."""
    try:
        ended = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, ended, strict=True):
        assert process.returncode == 0, errors[-4000:]
    return [printed for printed, _ in ended]


# Rows that do not divide, an exact sweep over local factors, entries that are missing.
FEW = ["hierarchical_regression", "univariate_mixture", "missing_data"]


@pytest.mark.parametrize(
    "names",
    [FEW, pytest.param([name for name in ZOO if name not in FEW], marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def test_four_devices_give_the_numbers_of_one(names):
    flags = "--xla_force_host_platform_device_count=4"
    (printed,) = output(start("four", *names, flags=flags))
    assert printed.splitlines() == [*names, "four devices: same numbers"]


SOME = [("mixture", "averaged"), ("regression", "plain"), ("topics", "memoized")]


@pytest.mark.parametrize(
    "runs",
    [SOME, pytest.param([run for run in ALL if run not in SOME], marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def test_minibatches_on_four_devices_give_the_numbers_of_one(runs):
    """Batches of 16 or 8 rows, a last one that is shorter, and every kind of stochastic fit."""
    flags = "--xla_force_host_platform_device_count=4"
    named = [word for run in runs for word in run]
    (printed,) = output(start("minibatches", *named, flags=flags))
    assert printed.split() == named


def test_a_batch_that_devices_cannot_share():
    class Four(Placement):
        count = 4

    four = Four(Mesh(np.asarray(jax.devices()), ("rows",)))
    with pytest.raises(ArgumentError) as caught:
        batch_size(lb.SVI(batch_size=10), 100, four)
    assert str(caught.value) == (
        "SVI got batch_size=10 for 4 devices.\nExpected a multiple of 4, as many rows on each "
        "device. Use batch_size=12."
    )
    assert batch_size(lb.SVI(), 102, four) == 100
    assert batch_size(lb.SVI(), 3, None) == 3


@pytest.mark.parametrize("name", TWO)
def test_two_processes_give_the_numbers_of_one(name, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [start("process", address, str(rank), str(tmp_path), name) for rank in (0, 1)]
    printed = output(*both)
    one = fitted(name, None, restarts=2, sweeps=20)
    for rank in (0, 1):
        assert_same(one, lb.load(tmp_path / f"{name}-{rank}.lb", case_of(name).model))
    for text in printed:
        assert text.endswith(
            "Argument 'x' of process 1 differs from that of process 0.\n"
            "Expected the same call of fit in every process: each takes its own rows of the same "
            "data.\n"
        )


def test_one_named_device_gives_the_same_numbers():
    name = "linear_regression_unknown_noise"
    one = fitted(name, None)
    for devices in (1, "all", jax.devices(), Mesh(np.asarray(jax.devices()), ("any",))):
        assert_same(one, fitted(name, devices))


def test_none_is_no_placement():
    assert placement(None) is None


@pytest.mark.parametrize("devices", ["some", 1.5, True, [], ["cpu"], {"cpu": 1}])
def test_no_choice_of_devices(devices):
    with pytest.raises(ArgumentError) as caught:
        placement(devices)
    assert str(caught.value) == (
        f"devices={devices!r} is no choice of devices.\n"
        'Expected None (one device), a number of devices, "all", a sequence of JAX devices, or a '
        "jax.sharding.Mesh of one axis."
    )


@pytest.mark.parametrize("count", [0, -1, 1000])
def test_too_many_or_too_few_devices(count):
    with pytest.raises(ArgumentError) as caught:
        placement(count)
    assert str(caught.value) == (
        f"devices={count}, but JAX sees 1 (cpu).\nExpected a number from 1 to 1. On CPU, set "
        "XLA_FLAGS=--xla_force_host_platform_device_count=N before JAX starts."
    )


def test_a_device_named_twice():
    (device,) = jax.devices()
    with pytest.raises(ArgumentError) as caught:
        placement([device, device])
    assert str(caught.value) == (
        f"devices names a device twice: {device}, {device}.\nExpected every device once."
    )


def test_a_mesh_of_two_axes():
    with pytest.raises(ArgumentError) as caught:
        placement(Mesh(np.asarray(jax.devices()).reshape(1, 1), ("a", "b")))
    assert str(caught.value) == (
        "devices is a mesh with axes a, b.\nExpected a mesh of one axis: the rows of the data are "
        "all that is spread."
    )


def test_rows_that_do_not_divide():
    class Three(Placement):
        count = 3

    three = Three(Mesh(np.asarray(jax.devices()), ("rows",)))
    with pytest.raises(ArgumentError) as caught:
        three.shard(np.zeros((4, 2)))
    assert str(caught.value) == (
        "An array of shape (4, 2) cannot be spread along axis 0.\nExpected a multiple of 3 rows, "
        "as many on each of 3 devices. Pad the rows, or choose another number of devices."
    )
    assert three.padded(4) == 6


def fit_on(devices, model, *args):
    with lb.computing(devices=devices):
        return lb.fit(model, *args, method=lb.CAVI())


def test_a_model_without_a_data_plate():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(ArgumentError) as caught:
        fit_on(1, model, np.arange(4.0))
    assert str(caught.value) == (
        "devices spreads the rows of the data, but the model has no data plate: its observations "
        "are not declared independent.\nPut the observed sites into one numpyro.plate, or use "
        "devices=None."
    )


def coupled(y):
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z - jnp.concatenate([jnp.zeros(1), z[:-1]]), 1.0), obs=y)


def path(y):
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        before = jnp.concatenate([jnp.zeros(1), z[:-1]])
        numpyro.sample("y", dist.Normal(2.0 * z * before, 1.0), obs=y)


@pytest.mark.parametrize("model", [coupled, path])
def test_rows_that_share_a_factor(model):
    with pytest.raises(ArgumentError) as caught:
        fit_on(1, model, np.arange(4.0))
    assert str(caught.value) == (
        "devices spreads the rows of the data, but one factor of 'z' couples them.\n"
        "Use devices=None, or lb.CAVI(blocks=...) with a factor of its own for every row."
    )


def test_rows_that_are_updated_in_turn():
    def model(y):
        with numpyro.plate("data", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Normal(2.0 * z * z[::-1], 1.0), obs=y)

    with pytest.raises(ArgumentError) as caught:
        fit_on(1, model, np.arange(4.0))
    assert str(caught.value) == (
        "devices spreads the rows of the data, but the rows of 'z' meet in one term and are "
        "updated one after the other.\nUse devices=None."
    )
