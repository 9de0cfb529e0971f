"""A program made safe is the same function, and holds no call that its kernel would divide."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowerbound
from lowerbound.compiled import jit, jitted, unsplit
from lowerbound.compiled.rewriting import inner

Array = Any


@pytest.fixture(autouse=True)
def divides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As though this jaxlib divided batches of a hundredth of the work that some jaxlib divide.

    So the batches of the tests are small, and the programs that are not rewritten run unharmed.
    """
    monkeypatch.setattr(jitted, "kernels_divide", lambda: True)
    monkeypatch.setattr(unsplit, "SPLIT_FROM", 2_000)


def positive(batch: tuple[int, ...], d: int, seed: int) -> np.ndarray:
    a = np.random.default_rng(seed).normal(size=(*batch, d, d))
    return a @ a.swapaxes(-1, -2) + d * np.eye(d)


def long_batches(jaxpr: Any) -> list[str]:
    """The calls of a program for CPU whose kernels would divide their batch."""
    found = [e.primitive.name for e in jaxpr.eqns if unsplit.divided(e)]
    for equation in jaxpr.eqns:
        parts = list(inner(equation))
        if "branches_platforms" in equation.params:  # all but those of CPU are left as they were
            platforms = equation.params["branches_platforms"]
            if platforms is not None:
                parts = [p for p, of in zip(parts, platforms, strict=True) if of and "cpu" in of]
        for part in parts:
            found += long_batches(part)
    return found


def check(function: Callable[..., Any], *args: Any) -> None:
    with jax.enable_x64(True):
        args = jax.tree.map(jnp.asarray, args)
        safe = jit(function)
        assert long_batches(jax.make_jaxpr(function)(*args).jaxpr), "the test tests nothing"
        assert not long_batches(safe.trace(*args).jaxpr.jaxpr)
        found, expected = safe(*args), jax.jit(function)(*args)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11), found, expected)


def solved(a: Array, b: Array) -> Array:
    return jnp.linalg.solve(a, b[:, None])


def log_density(a: Array, b: Array) -> Array:
    factor = jnp.linalg.cholesky(a)
    half = jax.scipy.linalg.solve_triangular(factor, b, lower=True)
    return -0.5 * half @ half - jnp.log(jnp.diagonal(factor)).sum()


def in_a_scan(a: Array, b: Array) -> Array:
    def step(carry: Array, _: None) -> tuple[Array, Array]:
        new = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(a), carry, lower=True)
        return new, new.sum()

    return jax.lax.scan(step, b, None, length=3)


def in_a_while(a: Array, b: Array) -> Array:
    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        n, x = carry
        return n + 1, jnp.linalg.solve(a, x)

    return jax.lax.while_loop(lambda c: (c[0] < 3) & (c[1][0] < 1e9), step, (0, b))


@jax.custom_jvp
def with_its_own_derivative(a: Array, b: Array) -> Array:
    return log_density(a, b)


@with_its_own_derivative.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return jax.jvp(log_density, primals, tangents)


@jax.custom_vjp
def with_its_own_gradient(a: Array, b: Array) -> Array:
    return log_density(a, b)


with_its_own_gradient.defvjp(
    lambda a, b: jax.vjp(log_density, a, b), lambda back, cotangent: back(cotangent)
)


@pytest.mark.parametrize(
    "function",
    [
        jnp.linalg.cholesky,
        jnp.linalg.eigh,
        jnp.linalg.qr,
        partial(jnp.linalg.qr, mode="complete"),
        jnp.linalg.svd,
        jnp.linalg.inv,
        jnp.linalg.slogdet,
        jnp.linalg.eigvals,
        jax.scipy.linalg.schur,
        jax.lax.linalg.hessenberg,
        jax.lax.linalg.tridiagonal,
        lambda a: jax.lax.linalg.qr(a, pivoting=True),
        lambda a: jnp.linalg.cholesky(a + 0j),
    ],
)
def test_each_kernel(function: Callable[..., Any]) -> None:
    check(jax.vmap(function), positive((67,), 5, 0))


def test_branches() -> None:
    def function(a: Array, sign: Array) -> Array:
        return jax.lax.cond(sign > 0, jnp.linalg.inv, jnp.linalg.cholesky, a)

    check(function, positive((67,), 5, 0), np.array(1.0))
    check(function, positive((67,), 5, 0), np.array(-1.0))


def test_a_tridiagonal_solve() -> None:
    rng = np.random.default_rng(0)
    low, upper = rng.normal(size=(2, 67, 20))
    function = jax.vmap(jax.lax.linalg.tridiagonal_solve)
    check(function, low, rng.normal(size=(67, 20)) + 5, upper, rng.normal(size=(67, 20, 1)))


@pytest.mark.parametrize(
    "function",
    [
        solved,
        log_density,
        in_a_scan,
        in_a_while,
        with_its_own_derivative,
        with_its_own_gradient,
        jax.grad(log_density, (0, 1)),
        jax.grad(with_its_own_derivative, (0, 1)),
        jax.grad(jax.checkpoint(log_density), (0, 1)),
        jax.grad(lambda a, b: in_a_scan(a, b)[1].sum(), (0, 1)),
        jax.jit(log_density),
        jit(log_density),
        jax.grad(jit(log_density)),
    ],
)
def test_each_place_in_a_program(function: Callable[..., Any]) -> None:
    check(jax.vmap(function), positive((67,), 5, 0), np.random.default_rng(1).normal(size=(67, 5)))


@settings(max_examples=10)
@given(
    batch=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    d=st.integers(2, 7),
    columns=st.integers(1, 4),
    left=st.booleans(),
    lower=st.booleans(),
    transpose=st.booleans(),
)
def test_triangular_solves_of_any_shape(
    batch: tuple[int, ...], d: int, columns: int, left: bool, lower: bool, transpose: bool
) -> None:
    a = positive(batch, d, 0)
    b = np.random.default_rng(1).normal(size=(*batch, *((d, columns) if left else (columns, d))))
    solve = partial(
        jax.lax.linalg.triangular_solve, left_side=left, lower=lower, transpose_a=transpose
    )

    def value(a: Array, b: Array) -> Array:
        return (solve(a, b) ** 2).sum()

    with jax.enable_x64(True):
        for function in (solve, jax.grad(value, (0, 1))):
            found, expected = jit(function)(a, b), jax.jit(function)(a, b)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9), found, expected)


def test_small_batches_and_programs_without_linear_algebra_stay_as_they_are() -> None:
    a = positive((2,), 3, 0)
    for function in (jnp.linalg.cholesky, jnp.sin):
        assert "while" not in str(jit(function).trace(a).jaxpr)
        assert "scan" not in str(jit(function).trace(a).jaxpr)


def test_static_and_donated_arguments() -> None:
    @partial(jit, static_argnames=("power",), donate_argnames=("a",))
    def function(a: Array, *, power: int) -> Array:
        return jnp.linalg.cholesky(a) ** power

    a = positive((67,), 5, 0)
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            function(jnp.asarray(a), power=2), np.linalg.cholesky(a) ** 2, rtol=1e-9
        )
        function(jnp.asarray(a), power=2)
        assert function._outer._cache_size() == 1
        function(jnp.asarray(a), power=3)
        assert function._outer._cache_size() == 2


def test_every_jit_of_the_library_is_made_safe() -> None:
    """Nothing else jits or traces: `jax.jit` and its kin occur in `compiled` alone.

    Programs that are traced elsewhere might hang, or hold arrays of the user's (`traced`).
    """
    root = pathlib.Path(lowerbound.__file__).parent
    makers = {"jit", "pmap", "make_jaxpr"}
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.parent.name == "compiled":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            attribute = isinstance(node, ast.Attribute) and node.attr in makers
            if attribute and isinstance(node.value, ast.Name) and node.value.id == "jax":
                found.append(f"{path.relative_to(root)}:{node.lineno}")
            names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else ()
            if makers & set(names) and str(node.module).startswith("jax"):
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not found, f"jitted or traced outside of lowerbound.compiled: {found}"
