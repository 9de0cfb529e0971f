"""Run by the tests of devices in processes of their own, where JAX sees several devices.

`python -m tests.compute.many_devices four NAME ...` checks the laws on four simulated devices, for
models of the zoo, and `python -m tests.compute.many_devices minibatches NAME HOW ...` those of
minibatches;
`python -m tests.compute.many_devices process ADDRESS RANK FOLDER NAME ...` is one of two processes.
"""

import sys
import warnings

import jax
import numpy as np

import lowerbound as lb
from lowerbound.compute.devices import placement
from lowerbound.compute.engine import engine_for
from lowerbound.compute.spread import SpreadArray, spread_rows
from lowerbound.errors import ArgumentError
from lowerbound.joint import inputs_of
from lowerbound.methods.coordinate.start import chances, start
from lowerbound.model import trace_model
from tests.methods.stochastic.batched import assert_close, batched, numbers
from tests.models.case import Case
from tests.models.zoo import CASES

# name -> number of devices: both divide the rows and do not.
ZOO = {
    "linear_regression_unknown_noise": 4,
    "hierarchical_regression": 3,
    "anova": 4,
    "probit_regression": 4,
    "univariate_mixture": 4,
    "missing_data": 4,
    "lda": 4,
}
TWO = ("univariate_mixture", "linear_regression_unknown_noise")


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def fitted(name: str, devices, restarts: int = 1, sweeps: int = 6):
    """A few sweeps on a model of the zoo, whether or not they converge."""
    case = case_of(name)
    args, kwargs = case.arguments(0)
    method = lb.CAVI(restarts=restarts, tolerance=0.0, max_sweeps=sweeps)
    with lb.computing(devices=devices):
        return lb.fit(case.model, *args, method=method, progress=False, **kwargs)


def assert_same(one, many) -> None:
    """The same numbers to 1e-10: parameters, ELBO of every sweep, restarts."""
    close = {"rtol": 1e-10, "atol": 1e-10}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(b, a, **close), one.q.parameters, many.q.parameters
    )
    np.testing.assert_allclose(many.history.elbo, one.history.elbo, **close)
    elbos = [[r.elbo for r in fit.restarts] for fit in (one, many)]
    np.testing.assert_allclose(elbos[1], elbos[0], **close)


def check_zoo(*names: str) -> None:
    for name in names:
        one, many = fitted(name, None), fitted(name, ZOO[name])
        assert_same(one, many)
        assert many.q.family.blocks == one.q.family.blocks, name
        print(name)


def check_restarts() -> None:
    one, many = fitted("diagonal_mixture", None, 3), fitted("diagonal_mixture", 4, 3)
    assert_same(one, many)
    np.testing.assert_allclose(sum(many.elbo_terms.values()), many.elbo, rtol=1e-9)


def check_no_device_holds_all_rows() -> None:
    """Nor does a sweep make an array of all rows on the way."""
    rows = 404
    x = np.random.default_rng(0).normal(size=rows)
    with jax.enable_x64(True):
        model = trace_model(case_of("univariate_mixture").model, (x,), {"K": 3})
        spread = spread_rows(model, placement("all"))
        engine = engine_for(model, np.dtype(float), spread=spread)
        arrays = engine.prepare(inputs_of(model))
        held = [a.array for a in arrays if isinstance(a, SpreadArray)]
        assert held, "no array of rows"
        assert {a.addressable_data(0).shape[0] for a in held} == {rows // 4}
        chance = jax.tree.map(lambda a: a[0], chances(engine, 0, 1, "random", None))
        states = engine.compile(
            lambda arrays, chance: start(engine, arrays, chance, "random", {}, None), arrays, chance
        )(arrays, chance)
        jitted, shapes = spread.jit(engine.sweep, (arrays, states), object)
        text = jitted.lower(*shapes).compile().as_text()
    assert f"[{rows // 4}" in text
    assert f"[{rows}" not in text


def four(*names: str) -> None:
    assert len(jax.devices()) == 4
    mesh = placement("all")
    assert (mesh.count, mesh.processes, mesh.process) == (4, 1, 0)
    np.testing.assert_array_equal(mesh.fetch(mesh.shard_local(np.arange(8.0))), np.arange(8.0))
    check_zoo(*names)
    check_restarts()
    check_no_device_holds_all_rows()
    print("four devices: same numbers")


def minibatches(*runs: str) -> None:
    for name, how in zip(runs[::2], runs[1::2], strict=True):
        assert_close(numbers(batched(name, how, 4)), numbers(batched(name, how)))
        print(name, how)


def process(address: str, rank: int, folder: str, *names: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank)
    mesh = placement("all")
    assert (mesh.count, mesh.processes, mesh.process) == (2, 2, rank)
    own = np.arange(3) + 3 * rank
    np.testing.assert_array_equal(mesh.fetch(mesh.shard_local(own)), np.arange(6))
    for name in names:
        fit = fitted(name, "all", restarts=2, sweeps=20)
        fit.save(f"{folder}/{name}-{rank}.lb")
    other = np.arange(6.0) + rank
    try:
        with lb.computing(devices="all"):
            lb.fit(case_of("univariate_mixture").model, other, K=2, method=lb.CAVI())
    except ArgumentError as error:
        print(error)
    jax.distributed.shutdown()


if __name__ == "__main__":
    warnings.simplefilter("error")
    with lb.computing(verdicts=False):
        if sys.argv[1] == "four":
            four(*sys.argv[2:])
        elif sys.argv[1] == "minibatches":
            minibatches(*sys.argv[2:])
        else:
            process(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
