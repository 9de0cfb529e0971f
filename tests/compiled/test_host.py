"""Programs that NumPy runs: what it computes is what XLA computes, or it does not take them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.compiled.host import OnHost, hosted, lightly, on_host, readily
from lowerbound.compiled.host.operations import PLAIN
from lowerbound.compute.engine import forget
from lowerbound.methods.gaussian.target import target_for
from lowerbound.model import trace_model
from tests.laws.compilations import counted

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 3))
DEFINITE = MATRIX @ MATRIX.T + np.eye(3)
INSIDE = RNG.uniform(0.1, 0.9, size=(4, 3))
TWO = ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter", "eq", "ne",
       "lt", "le", "gt", "ge")  # fmt: skip
OTHER = ("not", "and", "or", "xor", "clamp", "stop_gradient", "acosh", "copy_p")
SLOW = ("igamma", "igammac", "bessel_i0e", "bessel_i1e")  # XLA takes seconds to compile these


def same(function, *args):
    """NumPy's outputs are those of the compiled function."""
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(*args)
        run = hosted(closed)
        assert run is not None
        expected = jax.tree.leaves(jax.jit(function)(*args))
    for ours, theirs in zip(run(*jax.tree.leaves(args)), expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert_allclose(ours, np.asarray(theirs), rtol=1e-11, atol=1e-13)


def test_every_operation_of_one_array_or_two():
    lax = jax.lax
    ones = [n for n in PLAIN if hasattr(lax, n) and n not in (*TWO, *OTHER, *SLOW)]

    def every(x, y):
        single = [getattr(lax, name)(x) for name in ones]
        double = [getattr(lax, name)(x, y) for name in TWO]
        return single, double, lax.acosh(1.0 + x), lax.clamp(0.2, x, 0.5), ~(x < y) & (y > 0.5)

    same(every, INSIDE, INSIDE[::-1].copy())


def shapes(x):
    parts = jnp.split(x, [1, 3], axis=0)
    padded = jax.lax.pad(x, 0.5, ((1, -1, 1), (-1, 2, 0)))
    chosen = jnp.where(x > 0.5, x, -x), jnp.argmax(x, axis=1), x[::-1, 1:], x.T.reshape(2, 6)
    sums = jnp.cumsum(x, axis=1), jax.lax.cumsum(x, axis=0, reverse=True), jnp.prod(x, axis=0)
    stacked = jnp.stack([x, 2 * x], axis=1), jnp.concatenate([x, x]), jnp.arange(3) * x
    return parts, padded, chosen, sums, stacked, jnp.tri(4, 3) * x, x.any(), x.max(), x**-3


def indices(x, i):
    taken = x[i], x[:, i % 3], x[i, i % 3], jnp.take(x, i, axis=0, mode="clip")
    added = jnp.zeros((4, 3)).at[i].add(x[i]), jnp.zeros(4).at[i].add(1.0, mode="drop")
    return (
        taken,
        added,
        jax.lax.dynamic_slice(x, (1, 1), (2, 2)),
        jnp.take_along_axis(x, i[:, None] % 3, 1),
    )


def algebra(x, a):
    root = jnp.linalg.cholesky(a)
    solved = jax.scipy.linalg.solve_triangular(root, x.T, lower=True)
    turned = jax.scipy.linalg.solve_triangular(root, x.T, lower=True, trans=1)
    several = jnp.einsum("ij,kj,jl->kil", x, x, a)
    return root, solved, turned, several, jax.nn.logsumexp(x, axis=1), jax.nn.softplus(x)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (shapes, (INSIDE,)),
        (indices, (INSIDE, np.array([3, 0, 0, 2]))),
        (algebra, (INSIDE, DEFINITE)),
        (lambda x: loops(x), (INSIDE,)),
        (lambda x: orders(x), (INSIDE,)),
    ],
)
def test_structure_indexing_and_algebra(function, args):
    same(function, *args)


def test_what_does_not_change_is_computed_once():
    def function(x, y):
        return x * jnp.sum(jnp.exp(y * y))

    closed = jax.make_jaxpr(function)(np.ones(2), np.ones(3))
    whole, part = hosted(closed), hosted(closed, {1: np.arange(3.0)})
    assert len(part.steps) == 1 < len(whole.steps)
    x = np.array([1.0, -2.0])
    assert_allclose(part(x)[0], whole(x, np.arange(3.0))[0], rtol=1e-7)


def test_what_nothing_reads_is_left_out():
    def function(x):
        jnp.exp(x).sum()
        return 2 * x

    assert len(hosted(jax.make_jaxpr(function)(np.ones(2))).steps) == 1


def test_the_operations_of_a_loop_are_counted():
    def function(x):
        return jax.lax.fori_loop(0, 3, lambda n, v: jnp.exp(v) + jnp.sin(v), x)

    found = hosted(jax.make_jaxpr(function)(np.ones(2)))
    assert len(found.steps) < 3 < found.operations


def test_a_matrix_without_a_root_has_no_numbers_in_it():
    closed = jax.make_jaxpr(jnp.linalg.cholesky)(np.eye(2))
    assert np.isnan(hosted(closed)(-np.eye(2))[0]).any()


def loops(x):
    grown = jax.lax.while_loop(lambda v: v.sum() < 10.0, lambda v: 2 * v + x[0], x[1])
    each = jax.vmap(lambda v: jax.lax.while_loop(lambda w: w[0] < 5.0, lambda w: 2 * w, v))(x)
    counted = jax.lax.fori_loop(0, 3, lambda n, v: v * x[n] + n, x[0])
    rows = jax.lax.scan(lambda v, row: (v + row, (v * row, v.sum())), x[0], x, reverse=True)
    either = [jax.lax.cond(x[0, n] > x[1, n], jnp.exp, jnp.negative, x[0]) for n in range(3)]
    return grown, each, counted, rows, either, jax.vmap(lambda v: jax.lax.map(jnp.exp, v))(x)


def orders(x):
    signed = jnp.stack([-jnp.inf, -1.0, -0.0, 0.0, x[0, 0], jnp.inf, jnp.nan])
    pairs = jnp.broadcast_arrays(signed[:, None], signed)
    ranked = jax.lax.le_to_p.bind(*pairs), jax.lax.lt_to_p.bind(*pairs)
    return ranked, jnp.searchsorted(jnp.cumsum(x[0]), x[1])


def random(x):
    return x + jax.random.normal(jax.random.key(0))


KEY = jax.random.key(0)


def closed_over(x):
    return x + jax.random.normal(KEY)


def ordered(x):
    return jnp.sort(jnp.stack([x, -x]))[0]


@pytest.mark.parametrize("function", [ordered, random, closed_over])
def test_what_numpy_lacks_is_compiled(function):
    assert hosted(jax.make_jaxpr(function)(1.0)) is None
    assert_allclose(lightly(function)(1.0), jax.jit(function)(1.0), rtol=1e-6)


def test_what_computes_much_is_compiled():
    found = lightly(lambda x: jnp.exp(x).sum())
    assert isinstance(found(np.zeros(10)), np.ndarray)
    assert isinstance(found(np.zeros(1_000_000)), jax.Array)


def test_more_runs_are_compiled_sooner():
    x = np.zeros(2_000)
    once, often = (lightly(lambda x: jnp.exp(x).sum(), runs) for runs in (1, 1_000))
    assert isinstance(once(x), np.ndarray)
    assert isinstance(often(x), jax.Array)


@pytest.mark.parametrize("function", [jnp.exp, random], ids=["exp", "random"])
def test_what_users_call_returns_arrays_of_jax(function):
    found = readily(function)(np.ones(2))
    assert isinstance(found, jax.Array)
    assert_allclose(found, function(np.ones(2)), rtol=1e-6)


def test_a_function_is_traced_once_whether_numpy_runs_it_or_not():
    seen = []

    def function(tree):
        seen.append(tree)
        return {"sum": jnp.sort(tree["x"]).sum(), "same": tree["x"]}

    found = on_host(function, 1, {"x": np.ones(3)})
    assert not isinstance(found, OnHost)
    given = jax.jit(found)({"x": np.arange(3.0)})
    assert_allclose(given["sum"], 3.0)
    assert_allclose(given["same"], np.arange(3.0))
    assert len(seen) == 1


def test_a_small_fit_compiles_its_sweeps_alone():
    def line(x, y):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 13):
            numpyro.sample("y", dist.Normal(slope * x, 1 / jnp.sqrt(tau)), obs=y)

    x = np.linspace(-1.0, 1.0, 13)
    lb.fit(line, x, np.cos(x), method=lb.CAVI())  # JAX compiles single operations once
    forget()
    with counted() as compiled:
        fit = lb.fit(line, x, np.sin(x), method=lb.CAVI())
        assert np.isfinite([fit.mean("slope"), fit.sd("tau")]).all()
    assert len(compiled) == 1, compiled


# --------------------------------------------------------------------------------------------------
# Log densities with their gradients


def mixture(y):
    w = numpyro.sample("w", dist.Dirichlet(np.ones(2)))
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    law = dist.MixtureSameFamily(dist.Categorical(probs=w), dist.Normal(mu, 1.0))
    numpyro.sample("y", law.expand([len(y)]).to_event(1), obs=y)


def effects(y):
    s = numpyro.sample("s", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", 3):
        a = numpyro.sample("a", dist.StudentT(4.0, 0.0, s))
    logits = a[np.arange(len(y)) % 3]
    numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=(y > 0).astype(float))


def correlated(y):
    rho = numpyro.sample("rho", dist.Uniform(-1.0, 1.0))
    covariance = jnp.eye(2) + rho * (1.0 - jnp.eye(2))
    law = dist.MultivariateNormal(np.zeros(2), covariance)
    numpyro.sample("y", law.expand([len(y) // 2]).to_event(1), obs=y.reshape(-1, 2))


@pytest.mark.parametrize("model", [mixture, effects, correlated])
def test_log_p_and_its_gradient_are_those_of_xla(model):
    y = RNG.normal(size=8)
    with jax.enable_x64(True):
        target = target_for(trace_model(model, (y,)))
        vectors = np.random.default_rng(1).normal(size=(70, target.size))
        ours = target(vectors, few=True)
        assert not {"few", "batch"} & set(target.compiled)
        theirs = target(vectors)
    for one, other in zip(ours, theirs, strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_what_follows_from_constants_alone_is_left_to_the_run():
    """XLA works it out as it compiles, number by number: 4 s for the codes of 40,000 words."""
    codes = np.arange(6) % 3

    def function(shift):
        return jnp.exp(jnp.arange(3.0))[codes] + shift

    found = on_host(function, 1e9, 1.0)
    assert not isinstance(found, OnHost)
    lowered = jax.jit(found).lower(1.0).as_text()
    assert "optimization_barrier" in lowered
    assert "optimization_barrier" not in jax.jit(function).lower(1.0).as_text()
    assert_allclose(jax.jit(found)(1.0), function(1.0))
