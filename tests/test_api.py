"""`fit`: its arguments, its errors, its warnings."""

import functools
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors
from tests.run.models import clusters, line, mixture, regression


def message(error, *args, **kwargs):
    with pytest.raises(error) as caught:
        lb.fit(*args, **kwargs)
    return str(caught.value)


def test_more_components_than_rows():
    x, _ = clusters(n=5)
    text = message(errors.TooManyComponentsError, mixture, x, K=7)
    assert text == (
        "K = 7 components for 5 rows of data.\nExpected at most one component per row. Use K <= 5."
    )


def test_zero_variance_column():
    x, _ = clusters()
    x[:, 1] = 3.0
    text = message(errors.ZeroVarianceError, mixture, x, K=2)
    assert text == (
        "Column 1 of 'x' has zero variance: every entry is 3.\n"
        "Expected values that vary. Drop the column, or give its scale a fixed value."
    )


def test_a_constant_column_of_the_design_is_fine():
    x, y = line()
    x[:, 1] = 1.0
    assert lb.fit(regression, x, y).converged


def test_reserved_argument_names():
    def model(y, seed):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = np.arange(4.0)
    text = message(errors.ReservedNameError, model, y)
    assert "functools.partial(model, seed=...)" in text
    assert lb.fit(functools.partial(model, seed=3), y).converged


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ({"restarts": 0}, "CAVI got restarts=0.\nExpected an integer of at least 1."),
        ({"tolerance": -1.0}, "CAVI got tolerance=-1.0.\nExpected a number of at least 0."),
        ({"max_sweeps": 0}, "CAVI got max_sweeps=0.\nExpected an integer of at least 1."),
        ({"init": "middle"}, "CAVI got init='middle'."),
        ({"blocks": ["mu"]}, "Expected a list of tuples of site names"),
        ({"blocks": [("mu",), ("mu",)]}, "every site in one block at most"),
    ],
)
def test_settings_are_checked(method, text):
    with pytest.raises(errors.ArgumentError) as caught:
        lb.CAVI(**method)
    assert text in str(caught.value)


def test_where_to_compute_is_checked():
    with (
        pytest.raises(errors.ArgumentError, match='Expected "float32", "float64" or None'),
        lb.computing(precision="half"),
    ):
        lb.fit(regression, *line())


def test_unknown_method_and_checkpoint():
    y = line()[1]
    assert 'Expected "auto", "cavi"' in message(errors.ArgumentError, regression, y, method="nuts")
    text = message(errors.ArgumentError, regression, *line(), checkpoint=3)
    assert "fit got checkpoint=3." in text


def test_init_is_checked():
    x, y = line()
    for init, part in [
        ({"gamma": 1.0}, "no latent site of the model"),
        ({"beta": np.zeros(3)}, "Expected the shape of the site, (2,)"),
        ({"tau": np.nan}, "NaN or infinite"),
    ]:
        assert part in message(errors.ArgumentError, regression, x, y, method=lb.CAVI(init=init))


def test_blocks_are_checked_and_obeyed():
    x, y = line()
    text = message(errors.ArgumentError, regression, x, y, method=lb.CAVI(blocks=[("b", "tau")]))
    assert "no latent site of the model" in text
    joint = lb.fit(regression, x, y)
    apart = lb.fit(regression, x, y, method=lb.CAVI(blocks=[("beta",), ("tau",)]))
    assert {row.family for row in joint.plan.rows} == {"Normal-Gamma(beta, tau)"}
    assert {row.family for row in apart.plan.rows} == {"MultivariateNormal", "Gamma"}
    assert apart.elbo < joint.elbo  # a smaller family cannot have a higher bound


def test_improper_posterior_is_named():
    def model(y):
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    text = message(errors.LowerboundError, model, np.arange(5.0))
    assert "'a', 'b'" in text
    assert "proper prior" in text


def test_a_flat_prior_with_a_proper_posterior_fits():
    def model(y):
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a, 2.0), obs=y)

    y = np.arange(5.0)
    fit = lb.fit(model, y)
    np.testing.assert_allclose(fit.mean("a"), y.mean(), rtol=1e-12)
    np.testing.assert_allclose(fit.sd("a"), 2.0 / np.sqrt(5), rtol=1e-12)


def test_stopping_early_warns_and_tolerance_zero_does_not():
    x, _ = clusters()
    with pytest.warns(errors.ConvergenceWarning, match="max_sweeps=3") as warned:
        early = lb.fit(mixture, x, K=3, method=lb.CAVI(max_sweeps=3, tolerance=1e-14))
    assert warned[0].filename == __file__  # the user's own line
    assert not early.converged
    assert early.stop_reason == "stopped: reached max_sweeps=3"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = lb.fit(mixture, x, K=3, method=lb.CAVI(max_sweeps=3, tolerance=0.0))
    assert len(fixed.history.elbo) == 3


def test_a_changed_global_is_never_missed():
    """The compiled program is found by content, so a changed hyperparameter gives a new fit."""
    scale = {"value": 1.0}

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, scale["value"]))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = np.array([1.0, 2.0, 3.0])
    tight = lb.fit(model, y).sd("mu")
    scale["value"] = 0.1
    assert lb.fit(model, y).sd("mu") < tight


def test_same_seed_same_fit_and_restarts_keep_the_best():
    x, _ = clusters()
    one = lb.fit(mixture, x, K=3, seed=4)
    two = lb.fit(mixture, x, K=3, seed=4)
    assert one.elbo == two.elbo
    many = lb.fit(mixture, x, K=3, method=lb.CAVI(restarts=6), seed=1)
    assert many.elbo == max(restart.elbo for restart in many.restarts)
    assert len(many.restarts) == 6


def test_dead_components_and_collapsing_variances_stay_finite():
    """Ten components for three clusters, one of them a repeated point."""
    x, _ = clusters()
    x[:20] = x[0]
    fit = lb.fit(mixture, x, K=10, method=lb.CAVI(restarts=3))
    for site in ("pi", "mu", "tau"):
        assert np.isfinite(fit.mean(site)).all()
    assert np.isfinite(fit.history.elbo).all()


def test_a_falling_bound_names_the_block(monkeypatch):
    """A wrong update (one block's target doubled) lowers the ELBO: an error in strict mode."""
    from lowerbound.family.factors.gaussian import Normal

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)), obs=y)

    right = Normal.mean

    def wrong(self, natural):
        mean = right(self, natural)
        far = mean["x"] * (1.0 + jnp.abs(natural["x2"]))
        return {"x": far, "x2": mean["x2"] - mean["x"] ** 2 + far**2}

    monkeypatch.setattr(Normal, "mean", wrong)
    y = np.array([1.0, 2.0, 4.0, 3.0, 2.5])
    monkeypatch.setenv("LOWERBOUND_STRICT", "1")
    with pytest.raises(errors.DecreasingBoundError, match="'mu'"):
        lb.fit(model, y, method=lb.CAVI())
    monkeypatch.delenv("LOWERBOUND_STRICT")
    with pytest.warns(errors.DecreasingBoundWarning, match="'mu'"):
        fit = lb.fit(model, y, method=lb.CAVI())
    assert not fit.converged
    assert "fell" in fit.stop_reason


def test_monitor_stops_by_the_held_out_log_predictive():
    x, _ = clusters(n=80)
    method = lb.CAVI(monitor=x[60:], tolerance=1e-4)
    fit = lb.fit(mixture, x[:60], K=3, method=method)
    assert fit.converged
    assert "held-out log predictive" in fit.stop_reason
    assert len(fit.history.held_out) >= 2
    average = fit.log_predictive(x[60:], draws=400).mean()
    assert abs(fit.history.held_out[-1] - average) < 0.2


def test_explain_prints_the_plan_and_runs_nothing(capsys):
    x, _ = clusters()
    plan = lb.explain(mixture, x, K=3)
    printed = capsys.readouterr().out
    assert str(plan) in printed
    assert "Normal-Gamma(mu, tau)" in printed
    assert "1[z = k]" in printed
    assert plan.exact
    assert repr(plan) == "<Plan of mixture: 4 latent sites, all updates exact>"


def test_global_state_is_untouched():
    import jax

    lb.fit(regression, *line())
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32
