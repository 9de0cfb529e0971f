"""Memory: how much a program holds, maps in parts that fit, and refusals before any allocation."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.ascent.adam import start
from lowerbound.ascent.few_draws import window
from lowerbound.cost import Limits, limits, mapped, parts, peak_bytes, run_bytes
from lowerbound.cost.memory import SHARE
from lowerbound.errors import TooLargeError
from lowerbound.methods.gaussian.noisy import _mean_program
from lowerbound.methods.gaussian.target import BATCH, target_for
from lowerbound.model import trace_model


def square(x):
    return jnp.outer(jnp.sort(x), jnp.sort(x)).sum()


def outer_chain(x):
    big = jnp.cumsum(jnp.outer(x, x), axis=0)
    return jnp.sort(big, axis=1).sum()


def twice(x):
    inner = jax.jit(lambda y: jnp.cumsum(y))
    return inner(x) + inner(2.0 * x)


def looped(x):
    def body(total, row):
        return total + jnp.sort(jnp.outer(row, x), axis=0).sum(), None

    return jax.lax.scan(body, 0.0, x)[0]


@pytest.mark.parametrize("function", [square, outer_chain, twice, looped])
@pytest.mark.parametrize("size", [300, 1000])
def test_the_peak_is_what_the_compiler_allocates(function, size):
    x = np.linspace(0.0, 1.0, size, dtype=np.float32)
    estimate = peak_bytes(jax.make_jaxpr(function)(x).jaxpr)
    allocated = run_bytes(jax.jit(function).lower(x).compile())
    assert allocated / 4 <= estimate <= 4 * allocated + 64


def test_what_is_fused_is_not_held():
    x = np.ones((1000, 1000))
    wide = jax.make_jaxpr(lambda x: jnp.exp(-(jnp.sin(x) ** 2)).sum())(x)
    assert peak_bytes(wide.jaxpr) < x.size
    kept = jax.make_jaxpr(lambda x: jnp.cumsum(x, axis=1).sum())(x)
    assert peak_bytes(kept.jaxpr) >= x.size * 4


def test_what_is_free_is_less_than_the_machine_has(tmp_path, monkeypatch):
    found = limits()
    assert 0 < found.budget <= SHARE * found.free
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr("lowerbound.cost.memory._GROUPS", ((str(limit), str(used)),))
    monkeypatch.setattr("lowerbound.cost.memory._of_machine", lambda: 10**10)
    limit.write_text("3000000000\n")
    used.write_text("1000000000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 500000000\n")
    assert limits().free == 2_500_000_000
    limit.write_text("max\n")  # a container without a limit
    assert limits().free == 10**10
    monkeypatch.setattr("lowerbound.cost.memory._GROUPS", ((str(tmp_path / "none"), str(used)),))
    assert limits().free == 10**10


def small(free):
    """A machine with so many bytes free, on which even small work is looked at."""
    return lambda: Limits(free)


@pytest.fixture
def tight(monkeypatch):
    def to(free):
        monkeypatch.setattr(parts, "limits", small(free))
        monkeypatch.setattr(parts, "_SMALL", 0)

    return to


@pytest.mark.parametrize("count", [1, 7, 64])
def test_parts_give_what_one_map_gives(count, tight):
    x = np.random.default_rng(0).normal(size=(count, 50))
    keys = jax.random.split(jax.random.key(0), count)

    def function(row, key):
        return {"sorted": jnp.sort(row), "drawn": square(row) + jax.random.normal(key)}

    whole = jax.jit(jax.vmap(function))(x, keys)
    for free in (10**9, 40_000 * 20, 40_000):
        tight(free)
        found = jax.jit(lambda x, k: mapped(function, x, k))(x, keys)
        for name, array in whole.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6)


def test_parts_hold_less_at_once(tight):
    x = np.random.default_rng(0).normal(size=(64, 200))

    def taken():
        return run_bytes(jax.jit(lambda x: mapped(outer_chain, x)).lower(x).compile())

    whole = taken()
    tight(4_000_000)
    assert taken() < whole / 4


def test_one_part_that_does_not_fit_is_refused_with_the_numbers(tight):
    tight(100_000)
    text = re.escape(
        "Not enough memory: one draw needs about 1 MB, and 0 MB are free.\n"
        "Expected work that fits; nothing was allocated. Use less at once (fewer rows with "
        "method=lb.SVI(batch_size=...), fewer draws), a coarser model, or a machine with more "
        "memory."
    )
    with pytest.raises(TooLargeError, match=text):
        jax.jit(lambda x: mapped(outer_chain, x, what="one draw"))(np.ones((4, 300), np.float32))


# --------------------------------------------------------------------------------------------------
# Programs


def long_series(y=None):
    """A normaliser that is a large sum, in every row."""
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        terms = jnp.arange(1.0, 2001.0)
        inside = -shape * jnp.log(terms) - scale * terms / 1000 + 0.0 * y[:, None]
        log_total = jax.scipy.special.logsumexp(jnp.cumsum(inside, axis=1) / 2000, axis=1)
        numpyro.factor("density", -shape * jnp.log(y) - scale * y / 1000 - log_total)


def expensive(y=None):
    centre = numpyro.sample("centre", dist.StudentT(3.0, 0.0, 2.0))
    width = numpyro.sample("width", dist.LogNormal(0.0, 1.0))
    grid = jnp.linspace(-8.0, 8.0, 3000)
    with numpyro.plate("rows", len(y)):
        near = jnp.cumsum(jnp.exp(-((grid - centre) ** 2) / width + 0 * y[:, None]), axis=1)
        numpyro.factor("density", -((y - centre) ** 2) / width - jnp.log(near[:, -1]))


@pytest.mark.parametrize("model", [long_series, expensive])
def test_points_are_evaluated_as_many_at_once_as_fit(model, tight):
    y = np.random.default_rng(1).gamma(2.0, 1.0, 40)
    with jax.enable_x64(True):
        program = trace_model(model, (y,))
        assert target_for(program).batch == BATCH
        tight(100_000_000)
        target = target_for(program)
        assert 1 <= target.batch < BATCH
        tight(1_000_000)
        with pytest.raises(TooLargeError, match="the log density with its gradient at one point"):
            target_for(program)


def normal(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.deterministic("wide", mu * jnp.ones(2000))
    with numpyro.plate("rows", 30):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def test_draws_that_do_not_fit_are_refused_before_they_are_made(tight):
    fit = lb.fit(normal, np.random.default_rng(0).normal(size=30))
    tight(1_000_000)
    with pytest.raises(TooLargeError, match="a set of 1,000,000 draws of the latent sites"):
        fit.sample(1_000_000)
    with pytest.raises(TooLargeError, match="the result for all 1000 points"):
        fit.sample(1000)  # 16 MB of the deterministic site
    with pytest.raises(TooLargeError, match="the result for all 9000 points"):
        fit.predictive(draws=9000)
    tight(10_000_000)
    assert fit.predictive(draws=1000)["y"].shape == (1000, 30)
    assert fit.log_predictive().shape == (30,)


@pytest.mark.parametrize("columns", [0, 2])
def test_steps_over_draws_in_parts_are_those_over_all(columns, tight):
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(300, 6))

    def function(vector):
        return -jnp.sum(jnp.cumsum(jnp.log1p((matrix @ vector) ** 2)))

    free = {"loc": rng.normal(size=6), "log_scale": np.full(6, -1.0)}
    free |= {"factor": rng.normal(size=(6, columns))} if columns else {}

    def found():
        run = jax.jit(lambda adam, key: window(function, adam, key, 0.1, 5, 8))
        compiled = run.lower(start(free), jax.random.key(0)).compile()
        return compiled(start(free), jax.random.key(0)), compiled.as_text().count("while(")

    with jax.enable_x64(True):
        (adam, elbo), loops = found()
        tight(20_000)
        (parts_adam, parts_elbo), more = found()
    assert more > loops
    np.testing.assert_allclose(parts_elbo, elbo, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), adam, parts_adam)


def test_a_density_of_many_states_is_averaged_in_parts(tight):
    y = np.random.default_rng(1).gamma(2.0, 1.0, 40)
    with jax.enable_x64(True):
        target = target_for(trace_model(expensive, (y,)))
        vectors = np.random.default_rng(3).normal(size=(16, 2))
        whole = _mean_program(target).lower(vectors, target.arguments).compile()
        target.compiled.pop("mean")
        tight(30_000_000)
        some = _mean_program(target).lower(vectors, target.arguments).compile()
        expected, values = whole(vectors, target.arguments), some(vectors, target.arguments)
    target.compiled.pop("mean")
    assert run_bytes(some) < run_bytes(whole) / 2
    np.testing.assert_allclose(values[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(values[1], expected[1], rtol=1e-9)
