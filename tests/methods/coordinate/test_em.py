"""Variational EM: laws of the ascent, and agreement with empirical Bayes in closed form."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound import errors
from lowerbound.ascent import State
from lowerbound.bound import elbo
from lowerbound.compiled import quickly
from lowerbound.methods.coordinate.variational_em import Maximising
from lowerbound.rewrite.parameters import parameter_inputs
from lowerbound.run.problem import Problem
from tests.laws.compilations import counted

EXACT = lb.CAVI(tolerance=1e-13)
CENTRES = np.array([-2.0, 0.0, 2.0])
COLUMNS = np.array([0.0, 3.0, 0.0, -2.0, 0.0, 4.0])


def maximised(model, *args, method=EXACT, seed=0, **kwargs):
    found = lb.fit(model, *args, method=method, seed=seed, **kwargs)
    assert found.converged, found.stop_reason
    return found


def message(error, model, *args, method=EXACT):
    with pytest.raises(error) as caught:
        lb.fit(model, *args, method=method)
    assert type(caught.value) is error
    return re.sub(r"\.py:\d+", ".py:N", str(caught.value))


# --- Models ---


def many_means(y):
    """Normal means with an unknown prior."""
    m = numpyro.param("m", 0.0)
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(m, s))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def regression(x, y):
    """Linear regression; the precisions of prior and noise are parameters."""
    alpha = numpyro.param("alpha", 1.0, constraint=constraints.positive)
    beta = numpyro.param("beta", 1.0, constraint=constraints.positive)
    w = numpyro.sample("w", dist.Normal(0, 1 / jnp.sqrt(alpha)).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ w, 1 / jnp.sqrt(beta)), obs=y)


def mixture(y):
    """A mixture of known components; its weights are a parameter."""
    w = numpyro.param("w", jnp.ones(3) / 3, constraint=constraints.simplex)
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(w))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)


def factors(y):
    """Two effects that meet in one likelihood, with a scale of each as a vector parameter."""
    scales = numpyro.param("scales", jnp.ones(2), constraint=constraints.positive)
    share = numpyro.param("share", 0.5, constraint=constraints.unit_interval)
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("columns", y.shape[1], dim=-1):
        b = numpyro.sample("b", dist.Normal(0.0, scales[1]))
        kept = numpyro.sample("kept", dist.Bernoulli(share))
    with numpyro.plate("rows", y.shape[0], dim=-2):
        a = numpyro.sample("a", dist.Normal(0.0, scales[0]))
        with numpyro.plate("cells", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(a + b * kept, 1 / jnp.sqrt(tau)), obs=y)


def reordered(y):
    """The same, its sites in another order."""
    share = numpyro.param("share", 0.5, constraint=constraints.unit_interval)
    with numpyro.plate("columns", y.shape[1], dim=-1):
        kept = numpyro.sample("kept", dist.Bernoulli(share))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    scales = numpyro.param("scales", jnp.ones(2), constraint=constraints.positive)
    rows = numpyro.plate("rows", y.shape[0], dim=-2)
    with rows:
        a = numpyro.sample("a", dist.Normal(0.0, scales[0]))
    with numpyro.plate("columns again", y.shape[1], dim=-1):
        b = numpyro.sample("b", dist.Normal(0.0, scales[1]))
    with rows, numpyro.plate("cells", y.shape[1], dim=-1):
        numpyro.sample("y", dist.Normal(a + b * kept, 1 / jnp.sqrt(tau)), obs=y)


def normals(seed):
    return (3.0 + 2.0 * np.random.default_rng(seed).normal(size=50),)


def lines(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 4))
    return x, x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.5 * rng.normal(size=60)


def clusters(seed):
    rng = np.random.default_rng(seed)
    return (rng.choice(CENTRES, p=[0.3, 0.1, 0.6], size=80) + rng.normal(size=80),)


def table(seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(20, 1)) * 2.0 + COLUMNS + 0.3 * rng.normal(size=(20, 6)),)


CASES = {
    "many means": (many_means, normals),
    "regression": (regression, lines),
    "mixture": (mixture, clusters),
    "factors": (factors, table),
}


# --- Laws ---


@pytest.mark.parametrize("case", CASES)
def test_the_elbo_never_falls(case):
    model, data = CASES[case]
    for seed in range(3):
        history = maximised(model, *data(seed), seed=seed).history.elbo
        assert len(history) > 3
        assert (np.diff(history) >= -1e-12 * abs(history[1:])).all()


@pytest.mark.parametrize("case", CASES)
def test_at_the_end_the_elbo_is_stationary_in_the_parameters(case):
    """Its gradient vanishes to the root of the tolerance, and every direction is downhill."""
    model, data = CASES[case]
    found = maximised(model, *data(0))
    with jax.enable_x64(True):
        planned = Maximising(Problem(model, data(0)), EXACT)
        joint, family = planned.ascent.engine.joint, found.q.family
        state = State.of(family, found.q.parameters)

        def bound(values):
            arrays = joint.compress({**planned.inputs, **parameter_inputs(values)})
            return elbo(family, joint.summands, arrays, state.naturals, state.means)

        values = {name: jnp.asarray(value) for name, value in found.parameters.items()}
        value, slopes = quickly(jax.value_and_grad(bound))(values)
        assert float(value) == pytest.approx(found.elbo, rel=1e-12)
        if model is mixture:  # on the simplex: the gradient is the same in every entry
            slopes = {"w": slopes["w"] - slopes["w"].mean()}
        for slope in slopes.values():
            assert abs(np.asarray(slope)).max() < 2e-4


@pytest.mark.parametrize("case", CASES)
def test_with_the_parameters_fixed_coordinate_ascent_finds_the_same_q(case):
    model, data = CASES[case]
    args = data(0)
    found = maximised(model, *args)
    laws = {name: found.posterior[name] for name in found.sites}
    with jax.enable_x64(True):
        discrete = {n: np.asarray(law.probs) for n, law in laws.items() if hasattr(law, "probs")}
    means = {n: found.mean(n) for n in laws if n not in discrete}
    sds = {n: found.sd(n) for n in means}
    init = means | {n: probs.argmax(axis=-1) for n, probs in discrete.items()}
    method = lb.CAVI(tolerance=1e-13, init=init)  # from there: there may be other maxima
    fixed = lb.fit(handlers.substitute(model, data=found.parameters), *args, method=method)
    assert found.elbo == pytest.approx(fixed.elbo, rel=1e-11)
    assert lb.fit(found.program, *args, method=method).elbo == fixed.elbo
    for site in means:
        np.testing.assert_allclose(means[site], fixed.mean(site), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sds[site], fixed.sd(site), rtol=1e-4, atol=1e-5)
    for site, probs in discrete.items():
        with jax.enable_x64(True):
            np.testing.assert_allclose(probs, fixed.posterior[site].probs, atol=1e-4)


def test_the_order_of_sites_does_not_matter():
    args = table(0)
    near = {"b": COLUMNS, "kept": COLUMNS != 0.0}  # of the maxima, the same for both
    method = lb.CAVI(tolerance=1e-13, init=near)
    first, second = (maximised(m, *args, method=method) for m in (factors, reordered))
    assert first.elbo == pytest.approx(second.elbo, rel=1e-10)
    for name, value in first.parameters.items():
        np.testing.assert_allclose(value, second.parameters[name], rtol=1e-4)


def test_a_second_fit_compiles_nothing():
    maximised(regression, *lines(0))
    with counted() as compiled:
        maximised(regression, *lines(1))
    assert compiled == []


def test_the_constraint_is_part_of_what_was_compiled():
    def bounded(high):
        def model(y):
            s = numpyro.param("s", 0.5, constraint=constraints.interval(0.0, high))
            with numpyro.plate("rows", len(y)):
                z = numpyro.sample("z", dist.Normal(3.0, s))
                numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

        return model

    (y,) = normals(0)
    inside = np.sqrt(np.mean((y - 3.0) ** 2) - 1.0)
    wide = maximised(bounded(10.0), y).parameters["s"]
    assert wide == pytest.approx(inside, rel=1e-6)
    narrow = lb.fit(bounded(1.0), y, method=lb.CAVI()).parameters["s"]
    assert narrow == pytest.approx(1.0, abs=1e-3)


# --- Empirical Bayes, against oracles ---


@pytest.mark.parametrize("seed", range(3))
def test_many_means_attain_the_maximum_of_the_marginal_likelihood(seed):
    (y,) = normals(seed)
    found = maximised(many_means, y)
    assert found.parameters["m"] == pytest.approx(y.mean(), abs=1e-8)
    assert found.parameters["s"] == pytest.approx(np.sqrt(y.var() - 1.0), rel=1e-6)
    evidence = -0.5 * len(y) * (np.log(2 * np.pi * y.var()) + 1.0)
    assert found.elbo == pytest.approx(evidence, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_regression_attains_the_maximum_of_the_evidence(seed):
    """The fixed point of MacKay (1992)."""
    x, y = lines(seed)
    found = maximised(regression, x, y)
    alpha = beta = 1.0
    for _ in range(500):
        covariance = np.linalg.inv(alpha * np.eye(4) + beta * x.T @ x)
        mean = beta * covariance @ x.T @ y
        effective = 4 - alpha * np.trace(covariance)
        alpha = effective / (mean @ mean)
        beta = (len(y) - effective) / np.sum((y - x @ mean) ** 2)
    assert found.parameters["alpha"] == pytest.approx(alpha, rel=1e-5)
    assert found.parameters["beta"] == pytest.approx(beta, rel=1e-5)
    marginal = np.eye(len(y)) / beta + x @ x.T / alpha
    evidence = -0.5 * (
        np.linalg.slogdet(2 * np.pi * marginal)[1] + y @ np.linalg.solve(marginal, y)
    )
    assert found.elbo == pytest.approx(evidence, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_a_mixture_are_those_of_em(seed):
    (y,) = clusters(seed)
    found = maximised(mixture, y)
    likelihood = np.exp(-0.5 * (y[:, None] - CENTRES) ** 2) / np.sqrt(2 * np.pi)
    weights = np.full(3, 1 / 3)
    for _ in range(20_000):
        shares = likelihood * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    assert found.elbo == pytest.approx(np.log(likelihood @ weights).sum(), rel=1e-11)
    np.testing.assert_allclose(found.parameters["w"], weights, atol=1e-4)


def test_a_weight_may_end_on_the_edge_of_the_simplex():
    y = np.random.default_rng(0).normal(size=40) + 20.0
    found = maximised(mixture, y)
    np.testing.assert_allclose(found.parameters["w"], [0.0, 0.0, 1.0], atol=1e-9)
    alone = -0.5 * np.sum((y - 2.0) ** 2) - 20 * np.log(2 * np.pi)
    assert found.elbo == pytest.approx(alone, rel=1e-12)


def test_a_prior_variance_may_vanish():
    """Data that vary less than their noise: the maximum is at s = 0."""
    y = 0.3 * np.random.default_rng(0).normal(size=50)
    found = maximised(many_means, y, method=lb.CAVI())
    assert found.parameters["s"] < 1e-2
    evidence = -0.5 * np.sum((y - y.mean()) ** 2) - 25 * np.log(2 * np.pi)
    assert found.elbo == pytest.approx(evidence, rel=1e-4)
    assert found.elbo <= evidence


def test_more_parameters_than_a_hessian_is_for():
    """A mean and a spread for every group: L-BFGS instead of Newton's method."""

    def groups(y):
        n = y.shape[0]
        m = numpyro.param("m", jnp.zeros(n))
        s = numpyro.param("s", jnp.ones(n), constraint=constraints.positive)
        with numpyro.plate("groups", n, dim=-2), numpyro.plate("rows", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Normal(m[:, None], s[:, None]))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    rng = np.random.default_rng(0)
    y = 5.0 * rng.normal(size=(30, 1)) + 3.0 * rng.normal(size=(30, 40))
    found = maximised(groups, y)
    np.testing.assert_allclose(found.parameters["m"], y.mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(found.parameters["s"], np.sqrt(y.var(axis=1) - 1.0), rtol=1e-3)
    evidence = -0.5 * 40 * (np.log(2 * np.pi * y.var(axis=1)) + 1.0)
    assert found.elbo == pytest.approx(evidence.sum(), rel=1e-9)


def test_parameters_that_multiply_each_other():
    """Means of rank one: their maximum likelihood is the first term of the singular values."""

    def outer(y):
        u = numpyro.param("u", jnp.ones(y.shape[0]))
        v = numpyro.param("v", jnp.ones(y.shape[1]) / y.shape[1], constraint=constraints.simplex)
        with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", y.shape[1]):
            z = numpyro.sample("z", dist.Normal(u[:, None] * v, 1.0))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    rng = np.random.default_rng(0)
    y = np.outer(rng.uniform(5, 10, size=7), [0.1, 0.2, 0.3, 0.4]) + 0.1 * rng.normal(size=(7, 4))
    left, size, right = np.linalg.svd(y)
    best = size[0] * np.outer(left[:, 0], right[0])
    found = maximised(outer, y)
    values = found.parameters
    np.testing.assert_allclose(np.outer(values["u"], values["v"]), best, atol=1e-5)
    evidence = -0.25 * np.sum((y - best) ** 2) - 0.5 * y.size * np.log(4 * np.pi)
    assert found.elbo == pytest.approx(evidence, rel=1e-11)


def test_a_parameter_that_enters_quadratically_is_solved_in_one_step():
    """The M step is then a closed form: one step from a start far away."""
    (y,) = normals(0)

    def located(y):
        m = numpyro.param("m", 1e6)
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal(0.0, 0.01))
            numpyro.sample("y", dist.Normal(m + z, 1.0), obs=y)

    found = maximised(located, y)
    assert found.parameters["m"] == pytest.approx(y.mean(), abs=1e-6)
    assert len(found.history.elbo) <= 10


# --- Starts ---


def test_restarts_keep_the_best():
    args = table(1)
    many = maximised(factors, *args, method=lb.CAVI(restarts=3, tolerance=1e-11))
    assert len(many.restarts) == 3
    kept = max(many.restarts, key=lambda one: one.elbo)
    assert many.elbo == kept.elbo == many.history.elbo[-1]
    assert many.stop_reason == kept.reason
    assert len(many.history.elbo) == len(many.history.seconds) == kept.sweeps


def test_parameters_may_be_started_by_the_method():
    (y,) = normals(0)
    method = lb.CAVI(init={"s": 30.0, "m": -5.0}, max_sweeps=1, tolerance=0.0)
    begun = lb.fit(many_means, y, method=method)
    assert begun.parameters == {"s": pytest.approx(30.0), "m": -5.0}


def test_it_says_when_it_stops_too_soon():
    with pytest.warns(errors.ConvergenceWarning) as caught:
        found = lb.fit(many_means, *normals(0), method=lb.CAVI(max_sweeps=3))
    assert str(caught[0].message) == (
        "The fit stopped before it converged: reached max_sweeps=3.\n"
        "Raise max_sweeps, or loosen tolerance."
    )
    assert not found.converged
    assert found.stop_reason == "stopped: reached max_sweeps=3"


# --- Errors ---


def test_a_parameter_that_runs_away():
    def model(x, y):
        s = numpyro.param("s", 1.0, constraint=constraints.positive)
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)
            numpyro.sample("x", dist.Normal(x, s), obs=x)

    x, y = lines(0)
    text = message(errors.ArgumentError, model, x[:, 0], y)
    assert re.sub(r"to \S+ in sweep \d+", "to N in sweep N", text) == (
        "The ELBO has no maximum in the parameter 's': it has run away to N in sweep N.\n"
        "Expected data that determine it. Give 's' a prior with numpyro.sample, bound it with "
        "constraint=dist.constraints.interval(...), or start it elsewhere."
    )


def two_shifts(y, unused):
    a = numpyro.param("a", 0.5)
    b = numpyro.param("b", 0.5)
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z + b + (0.0 if unused else a), 1.0), obs=y)


def test_a_parameter_that_nothing_depends_on():
    assert message(errors.ArgumentError, two_shifts, *normals(0), True) == (
        "The ELBO does not depend on the parameter 'a'.\n"
        "Expected a single maximum. Give 'a' a prior with numpyro.sample, or fix it: "
        "numpyro.handlers.substitute(model, data={'a': value})."
    )


def test_a_flat_direction_is_told():
    """The maximum is attained, by many values: the sum of the two is what counts."""
    (y,) = normals(0)
    fit = lb.fit(two_shifts, y, False)
    assert sum(fit.parameters.values()) == pytest.approx(y.mean(), abs=1e-6)
    assert re.fullmatch(
        "The ELBO is flat along a direction of '[ab]': other values are as good.",
        fit.notes[-1],
    )


def test_no_latent_site_is_left():
    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), 1.0), obs=y)

    assert message(errors.ArgumentError, model, *normals(0)) == (
        "The model has parameters, 'm', but no latent site: there is no posterior.\n"
        "Expected at least one numpyro.sample without obs. Give a parameter a prior with "
        "numpyro.sample; for maximum likelihood alone, hand numpyro.infer.util.log_density to an "
        "optimiser."
    )


def test_a_support_that_depends_on_a_parameter():
    def model(y):
        shift = numpyro.param("shift", 0.1)
        with numpyro.plate("rows", len(y)), handlers.mask(mask=y > shift):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    assert message(errors.UnsupportedModelError, model, *normals(0)) == (
        "The support of site 'z', or its mask, depends on a numpyro.param.\n"
        "Expected both to be fixed: fix that parameter with numpyro.handlers.substitute(model, "
        "data={...})."
    )


def test_a_parameter_that_python_inspects():
    def model(y):
        s = numpyro.param("s", 1.0, constraint=constraints.positive)
        z = numpyro.sample("z", dist.Normal(0.0, s if s > 0 else 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    assert message(errors.UnsupportedModelError, model, *normals(0)) == (
        "The program inspects the values of its arguments and of the parameter 's'   "
        "(test_em.py:N).\n"
        "Expected parameters to enter by operations that JAX can trace: compute what Python needs "
        "of the data beforehand, and pass it as an argument."
    )


def test_it_watches_no_held_out_data():
    method = lb.CAVI(monitor=(1,))
    assert message(errors.SettingError, many_means, *normals(0), method=method) == (
        "CAVI got monitor=(1,) for a model with numpyro.param sites.\n"
        "Expected monitor=None: variational EM runs without it. Give the parameters priors with "
        "numpyro.sample, or fix them with numpyro.handlers.substitute."
    )


@pytest.mark.parametrize(
    ("asked", "what", "why", "drop"),
    [
        ({"devices": "all"}, "computing got devices=", "runs on one device", "them"),
        (
            {"precision": "float32"},
            'computing got precision="float32"',
            "computes in double precision",
            "it",
        ),
    ],
)
def test_one_device_in_double_precision(asked, what, why, drop):
    with lb.computing(**asked):
        text = message(errors.UnableError, many_means, *normals(0), method=lb.CAVI())
    assert text == (
        f"{what} with lb.CAVI() for a model with numpyro.param sites, which {why}.\n"
        f"Expected a model of latent sites alone. Drop {drop}, give the parameters priors with "
        "numpyro.sample, or fix them with numpyro.handlers.substitute."
    )


def test_an_interrupted_run_is_that_of_its_last_sweeps(monkeypatch):
    """The restart under way counts, with what it has come to."""
    step, calls = Maximising.step, []

    def interrupted(self, state, until):
        calls.append(until)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return step(self, state, until)

    monkeypatch.setattr(Maximising, "step", interrupted)
    with lb.interruptible():
        found = lb.fit(factors, *table(1), method=lb.CAVI(restarts=3, tolerance=0.0))
    assert not found.converged
    assert found.stop_reason.startswith("stopped: interrupted after sweep ")
    assert [one.reason for one in found.restarts] == [found.stop_reason]
    assert len(found.history.elbo) == found.restarts[0].sweeps > 8


def test_a_parameter_inside_an_expectation_by_quadrature():
    """An offset of the linear predictor is the mean of the effects, written otherwise."""
    group = np.repeat(np.arange(5), 8)
    y = (np.arange(40) * 7 % 10 < 3 + group).astype(int)

    def model(group, y, inside):
        offset = numpyro.param("offset", 0.0)
        with numpyro.plate("groups", 5):
            effect = numpyro.sample("effect", dist.Normal(0.0 if inside else offset, 1.0))
        logits = effect[group] + (offset if inside else 0.0)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    inner, outer = (maximised(model, group, y, inside) for inside in (True, False))
    assert inner.elbo == pytest.approx(outer.elbo, abs=1e-9)
    assert inner.parameters["offset"] == pytest.approx(outer.parameters["offset"], abs=1e-5)
