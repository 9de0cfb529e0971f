"""Variational EM by gradients: against closed forms, on networks, and through all of `Fit`."""

import re
from functools import partial

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
from lowerbound.methods.parameters.gradients import GradientSteps
from tests.laws.compilations import counted
from tests.methods.parameters import programs

FEW = lb.EM(steps=300)


def few(model, *args, method=FEW, **kwargs):
    """A fit that ends before it has converged, and says so."""
    with pytest.warns(errors.ConvergenceWarning, match="steps"):
        return lb.fit(model, *args, method=method, **kwargs)


# --- Oracles ---


def most_likely(x, K):
    """The maximum of the likelihood of probabilistic PCA (Tipping and Bishop 1999)."""
    values = np.sort(np.linalg.eigvalsh(np.cov(x.T, bias=True)))[::-1]
    noise = values[K:].mean()
    size = np.log(values[:K]).sum() + (len(values) - K) * np.log(noise)
    return -0.5 * len(x) * (len(values) * (np.log(2 * np.pi) + 1.0) + size), np.sqrt(noise)


def test_loadings_attain_the_maximum_likelihood():
    x = programs.factors(0)
    best, noise = most_likely(x, 2)
    fit = lb.fit(programs.loadings, x, method=lb.EM())
    assert fit.converged, fit.stop_reason
    # q is the posterior at the maximum: log p - log q does not vary, and is the evidence.
    assert fit.elbo == pytest.approx(best, abs=0.01)
    assert fit.elbo_error < 0.01
    assert fit.parameters["s"] == pytest.approx(noise, rel=1e-3)
    np.testing.assert_allclose(fit.parameters["mu"], x.mean(axis=0), atol=1e-3)
    W = fit.parameters["W"]
    covariance = W @ W.T + noise**2 * np.eye(4)
    exact = lb.fit(programs.loadings, x)
    assert exact.method == "CAVI()"
    assert exact.elbo == pytest.approx(best, abs=0.01)
    other = exact.parameters["W"]
    np.testing.assert_allclose(covariance, other @ other.T + noise**2 * np.eye(4), atol=0.01)


def test_batches_of_rows_come_near_the_same_maximum():
    x = programs.factors(1)
    best, _ = most_likely(x, 2)
    fit = lb.fit(programs.loadings, x, method=lb.EM(batch_size=32, steps=3000))
    assert fit.elbo < best + 4 * fit.elbo_error
    assert fit.elbo > best - 4.0
    assert "A step takes 32 of them." in fit.plan.notes[-1]


def test_a_prior_scale_is_that_of_quadrature():
    """The same ELBO, maximised by coordinate ascent with exact integrals."""
    x, y = programs.labels(0)
    exact = lb.fit(programs.logistic, x, y, method=lb.CAVI(tolerance=1e-12))
    fit = lb.fit(programs.logistic, x, y, method=lb.EM())
    assert fit.converged
    assert fit.parameters["s"] == pytest.approx(exact.parameters["s"], rel=0.01)
    assert fit.elbo == pytest.approx(exact.elbo, abs=4 * fit.elbo_error + 1e-3)
    np.testing.assert_allclose(fit.mean("w"), exact.mean("w"), atol=0.02)
    np.testing.assert_allclose(fit.sd("w"), exact.sd("w"), rtol=0.02)
    # Without latent sites of their own, rows have the densities that any Gaussian gives them.
    found, expected = (f.log_predictive(x[:5], y[:5], draws=2000) for f in (fit, exact))
    np.testing.assert_allclose(found, expected, atol=0.05)


# --- Networks ---


@pytest.fixture(scope="module")
def images():
    x = programs.squares(0)
    return x, lb.fit(programs.autoencoder, x, method=lb.EM(steps=3000, tolerance=1e-3))


def test_the_decoder_of_an_autoencoder_learns(images):
    x, fit = images
    mean = x.mean(axis=0)
    blank = np.sum(x * np.log(mean) + (1 - x) * np.log(1 - mean))
    assert fit.history.elbo[-1] > fit.history.elbo[0] + 100
    assert fit.elbo > blank + 50  # the ELBO pays for z, the mean does not
    drawn = fit.predictive(draws=400)["x"].mean(axis=0)
    error = np.mean((drawn - x) ** 2)
    assert error < 0.7 * np.mean((mean - x) ** 2)


def test_its_parameters_are_the_tree_that_was_registered(images):
    x, fit = images
    shapes = jax.tree.map(np.shape, fit.parameters)
    assert shapes == {
        "decoder$params": {
            "Dense_0": {"kernel": (2, 8), "bias": (8,)},
            "Dense_1": {"kernel": (8, 16), "bias": (16,)},
        }
    }
    # NumPyro takes it as it is.
    plain = handlers.substitute(programs.autoencoder, data=fit.parameters)
    values = {name: draws[0] for name, draws in fit.sample(1).items()}
    with jax.enable_x64(True):
        found, _ = numpyro.infer.util.log_density(plain, (x,), {}, values)
        assert found == pytest.approx(float(fit.model().log_density(values, {"x": x})))


def test_its_q_is_one_gaussian_a_row(images):
    _, fit = images
    law = fit.posterior["z"]
    assert law.batch_shape == (60,)
    assert law.event_shape == (2,)
    draws = fit.sample(4000, seed=1)["z"]
    scale = fit.sd("z")
    np.testing.assert_allclose(draws.mean(axis=0), fit.mean("z"), atol=0.1 * scale.max())
    np.testing.assert_allclose(draws.std(axis=0), scale, rtol=0.1)
    np.testing.assert_allclose(fit.mean("z"), law.mean, atol=1e-6)
    covariance = np.cov(draws[:, 0].T)
    np.testing.assert_allclose(law.covariance_matrix[0], covariance, atol=0.15 * covariance.max())
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo)


def test_new_rows_have_gaussians_and_densities(images):
    x, fit = images
    again = fit.local(x[:8])["z"]
    assert again.batch_shape == (8,)
    odd = np.random.default_rng(0).integers(0, 2, size=(8, 16)) * 1.0
    densities = fit.log_predictive(np.concatenate([x[:8], odd]), draws=400)
    assert densities.shape == (16,)
    # An average of p / q is above the ELBO of a row, up to noise; that of mere noise is not.
    assert densities[:8].mean() > fit.elbo / len(x) - 1.0
    assert densities[8:].mean() < densities[:8].mean() - 2.0


def test_a_file_holds_the_tree(images, tmp_path):
    x, fit = images
    fit.save(tmp_path / "fit.lb")
    again = lb.load(tmp_path / "fit.lb", programs.autoencoder)
    assert again.elbo == fit.elbo
    jax.tree.map(np.testing.assert_array_equal, again.parameters, fit.parameters)
    np.testing.assert_array_equal(again.mean("z"), fit.mean("z"))
    new = again.predictive(x[:5], draws=10)["x"]
    np.testing.assert_array_equal(new, fit.predictive(x[:5], draws=10)["x"])


def test_topics_of_products_of_experts():
    """Words of two topics that do not meet are told apart."""
    rng = np.random.default_rng(0)
    words = np.repeat([[0.3, 0.3, 0.3, 0.04, 0.03, 0.03], [0.03, 0.04, 0.03, 0.3, 0.3, 0.3]], 20, 0)
    counts = np.stack([rng.multinomial(40, row) for row in words])
    fit = lb.fit(programs.topics, counts, method=lb.EM(steps=3000, tolerance=1e-3))
    theta = fit.mean("theta")
    assert theta.shape == (40, 2)
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, atol=1e-6)
    first = theta[:20, 0].mean() > 0.5
    assert ((theta[:, 0] > 0.5) == np.repeat([first, not first], 20)).all()


def test_a_network_with_priors_goes_to_the_ladder():
    """`random_flax_module` turns every leaf into a latent site: no parameter is left."""
    from numpyro.contrib.module import ParamShape

    def network(x, y):
        held = {"w": jnp.zeros(3), "v": jnp.zeros(3)}
        numpyro.param("net$params", held)
        values = {}
        for name in list(held):
            shape, held[name] = held[name].shape, ParamShape(held[name].shape)
            values[name] = numpyro.sample(f"net/{name}", dist.Normal().expand(shape).to_event())
        with numpyro.plate("rows", len(y)):
            mean = jnp.tanh(x[:, None] * values["w"]) @ values["v"]
            numpyro.sample("y", dist.Normal(mean, 0.3), obs=y)

    x = np.linspace(-2, 2, 20)
    plan = lb.explain(network, x, np.tanh(x))
    assert plan.method == "Gaussian"
    assert {row.site for row in plan.rows} == {"net/v", "net/w"}


# --- The run ---


def test_equal_programs_compile_once_whatever_their_data():
    method = lb.EM(steps=100, batch_size=16)

    def run(seed):
        return few(programs.autoencoder, programs.squares(seed, 30), method=method, seed=seed)

    fit = run(0)
    fit.log_predictive(programs.squares(2, 8), draws=5)
    with counted() as compiled:
        run(1)
        fit.log_predictive(programs.squares(3, 8), draws=5)
    assert compiled == []


def test_an_interrupted_run_is_measured_where_it_stands(monkeypatch):
    step, calls = GradientSteps.step, []

    def interrupted(self, state, until):
        calls.append(until)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return step(self, state, until)

    monkeypatch.setattr(GradientSteps, "step", interrupted)
    with lb.interruptible():
        fit = lb.fit(programs.loadings, programs.factors(0), method=FEW)
    assert fit.stop_reason == "stopped: interrupted after window 2"
    assert fit.restarts[0].sweeps == 200
    assert len(fit.history.elbo) == 2
    assert fit.elbo == pytest.approx(fit.history.elbo[-1], abs=5 * fit.elbo_error + 50)


# --- Discrete sites ---


def test_discrete_sites_are_summed_out():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-4.0, 1.0, 20), rng.normal(4.0, 1.0, 40)])
    method = lb.EM(steps=1000, init={"m": np.array([-2.0, 2.0])})
    fit = few(programs.groups, y, method=method)
    assert fit.parameters["share"][0] == pytest.approx(1 / 3, abs=0.05)
    assert (fit.posterior["kind"].probs.argmax(axis=-1) == (y > 0)).all()
    new = fit.local(np.array([-3.5, 4.2]))["kind"].probs  # exactly, given what rows share
    np.testing.assert_allclose(new, [[1.0, 0.0], [0.0, 1.0]], atol=1e-3)


# --- The plan ---


def test_the_plan_says_what_it_costs(capsys):
    x = programs.squares(0)
    plan = lb.explain(programs.autoencoder, x)
    assert plan.method == "Variational EM"
    assert plan.rows[0].family == "Gaussian (full, 2 a row)"
    assert re.sub(r"\(\w+\.py:\d+\)", "(N)", "\n".join(plan.ladder)) == (
        "   coordinate ascent, parameters maximised: 'z' enters 'x' through softplus(z) (N)\n"
        "-> gradients, a Gaussian by rows: 168 numbers of parameters, by stochastic gradients of "
        "the ELBO"
    )
    assert plan.notes == (
        "Parameters 'decoder$params' (4 arrays): maximised with the ELBO (variational EM), 168 "
        "numbers without uncertainty.",
        "Each of 60 rows has a Gaussian of its own, optimised without an encoder: plainly slower "
        "than a trained encoder. A step takes all rows.",
    )


def test_exact_updates_come_first():
    x = programs.factors(0)
    plan = lb.explain(programs.loadings, x)
    assert plan.method == "CAVI"
    assert plan.ladder == (
        "-> coordinate ascent, parameters maximised: every site has an optimal factor given the "
        "parameters",
    )


def test_a_parameter_of_a_free_form_factor():
    """Coordinate ascent has no update of a support that moves: gradients do not mind."""

    def model(y):
        top = numpyro.param("top", 3.0, constraint=constraints.positive)
        scale = numpyro.sample("scale", dist.HalfCauchy(top))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    y = np.random.default_rng(0).normal(size=20)
    plan = lb.explain(model, y)
    assert plan.method == "Variational EM"
    assert "depends on a numpyro.param" in plan.ladder[0]


def test_state_and_random_keys_are_told():
    def model(y):
        numpyro.primitives.mutable("net$state", {"mean": jnp.zeros(2)})
        w = numpyro.param("w", jnp.zeros(2))
        kept = jax.random.bernoulli(numpyro.prng_key(), 0.9, (2,))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal())
            numpyro.sample("y", dist.Normal(jnp.sinh(z) + jnp.sum(w * kept), 1.0), obs=y)

    notes = lb.explain(model, np.zeros(5) + np.arange(5)).notes
    assert "State 'net$state' (running averages, say) stays as it starts." in notes
    assert (
        "The program asks for a random key (dropout, say): it gets the same one every time."
        in notes
    )


# --- Errors ---


def error_of(error, call):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, error)
    return str(caught.value)


def test_nothing_to_maximise():
    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal()), 1.0), obs=y)

    assert error_of(errors.ArgumentError, partial(lb.fit, model, np.arange(3.0), method="em")) == (
        "EM got a model without numpyro.param: there is nothing to maximise.\n"
        'Expected at least one. Use method="auto", or lb.Gaussian().'
    )


def test_a_start_of_something_else():
    x = programs.factors(0)
    call = partial(lb.fit, programs.loadings, x, method=lb.EM(init={"V": 1.0}))
    assert error_of(errors.ArgumentError, call) == (
        "EM got init for 'V', which is no parameter and no latent site.\n"
        "Expected names among W, mu, s, z."
    )


def test_a_start_without_a_finite_density():
    def model(y):
        s = numpyro.param("s", 1.0)
        z = numpyro.sample("z", dist.Normal())
        numpyro.factor("never", jnp.where(s + z > 1e9, 0.0, -jnp.inf))
        numpyro.sample("y", dist.Normal(jnp.tanh(z), 1.0), obs=y)

    call = partial(lb.fit, model, np.arange(3.0), method=lb.EM())
    assert error_of(errors.ArgumentError, call) == (
        "The log density is not finite at the median of the prior, nor at zero, with the "
        "parameters as they start.\nExpected a finite density there. Start the parameters, or the "
        "latent sites, elsewhere: lb.EM(init={...})."
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rank": 3}, 'EM got rank=3.\nExpected "auto", "full" or "diagonal".'),
        ({"steps": 0}, "EM got steps=0.\nExpected an integer of at least 1, or None."),
        ({"tolerance": -1}, "EM got tolerance=-1.\nExpected a number of at least 0."),
    ],
)
def test_settings(settings, text):
    assert error_of(errors.ArgumentError, partial(lb.EM, **settings)) == text


def test_other_methods_say_what_to_use():
    x = programs.factors(0)
    text = error_of(errors.ParameterSiteError, partial(lb.fit, programs.loadings, x, method="svi"))
    assert "with method=lb.CAVI() or lb.EM()" in text
