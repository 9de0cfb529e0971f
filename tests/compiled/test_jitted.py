"""Programs that are compiled ahead of need, and calls that wait for them."""

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.compiled import jit, jitted
from lowerbound.compiled.waiting import started
from tests.laws.compilations import counted


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, np.float32)


def test_a_call_finds_what_was_prepared():
    traces = []

    def doubled(pair: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        traces.append(pair)
        return {"sum": jnp.sin(pair[0]) + pair[1].sum(), "one": jnp.ones(())}

    function = jit(doubled)
    with counted() as compilations:
        found = function.prepare((shape(3), shape(2)))
        again = function.prepare((shape(3), shape(2)))
        given = np.zeros(3, np.float32), np.ones(2, np.float32)
        np.testing.assert_array_equal(function(given)["sum"], np.full(3, 2.0))
        function(jax.device_put(given))
    assert found == again == {"sum": shape(3), "one": shape()}
    assert len(compilations) == len(traces) == 1


def test_results_of_one_are_what_the_next_is_prepared_for():
    first, second = jit(lambda x: (x @ x, x[0])), jit(lambda pair: pair[0] @ pair[1])
    with counted() as compilations:
        assert second.prepare(first.prepare(shape(4, 4))) == shape(4)
        second(first(np.ones((4, 4), np.float32)))
    assert len(compilations) == 2


def test_threads_that_call_at_once_wait_for_one_compilation():
    together, threads = threading.Barrier(4), 4

    def slow(x: jax.Array) -> jax.Array:
        for _ in range(30):
            x = jnp.sin(x @ x)
        return x

    function = jit(slow)

    def called(_: int) -> np.ndarray:
        together.wait()
        return np.asarray(function(np.ones((5, 5), np.float32)))

    with counted() as compilations, ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(called, range(threads)))
    assert len(compilations) == 1
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


def test_a_call_waits_for_what_is_being_compiled(monkeypatch):
    ready, compiled = threading.Event(), []

    def held(function, found: Future) -> Future:
        def late() -> None:
            ready.wait()
            compiled.append(function())

        return started(late, found)

    monkeypatch.setattr(jitted, "started", held)
    function = jit(lambda x: x + 1.0)
    function.prepare(shape(6))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(function, np.zeros(6, np.float32))
        assert not waits.done()
        assert not compiled
        ready.set()
        np.testing.assert_array_equal(waits.result(), np.ones(6))
    assert len(compiled) == 1


def test_a_compilation_that_failed_is_tried_again_by_the_call(monkeypatch):
    def failing(function, found: Future) -> Future:
        found.set_exception(RuntimeError("out of memory"))
        return found

    function = jit(lambda x: x + 1.0)
    with monkeypatch.context() as patched:
        patched.setattr(jitted, "started", failing)
        function.prepare(shape(7))
        with pytest.raises(RuntimeError, match="out of memory"):
            function(np.zeros(7, np.float32))
    np.testing.assert_array_equal(function(np.zeros(7, np.float32)), np.ones(7))


def test_what_cannot_be_traced_is_an_error_of_each_call():
    def wrong(x: jax.Array) -> jax.Array:
        raise ValueError("not this")

    function = jit(wrong)
    for call in (function.prepare, function, function):
        with pytest.raises(ValueError, match="not this"):
            call(np.zeros(8, np.float32))


def test_python_ends_while_something_is_being_compiled():
    program = """
import jax, jax.numpy as jnp, numpy as np
from lowerbound.compiled import jit
def slow(x):
    for i in range(100):
        x = jnp.sin(x @ x) + jnp.cumsum(x, axis=i % 2)
    return x
jit(slow).prepare(np.ones((5, 5), np.float32))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
