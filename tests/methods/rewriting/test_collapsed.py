"""Sites integrated out: the density is that of the program, whatever they are given the rest."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax.scipy.special import gammaln
from numpyro.distributions import biject_to

import lowerbound as lb
from lowerbound.compiled.host import lightly
from lowerbound.compute.collapsing import certified, collapse, collapsible
from lowerbound.errors import CertificateError, ChosenSitesError, UnknownSiteError
from lowerbound.family.completed.collapsed_sites import Collapse
from lowerbound.model import trace_model

RNG = np.random.default_rng(5)
WHERE = np.array([0, 1, 2, 0, 1, 2, 2, 0])
TRIALS = np.array([4, 9, 2, 7, 5, 1, 6, 3])
COUNTS = np.array([1, 6, 0, 5, 2, 1, 3, 3])
WAITS = RNG.exponential(2.0, 8)
TABLE = RNG.multinomial(7, [0.2, 0.5, 0.3], 6)
GAPS = np.ma.MaskedArray(COUNTS, [False, True, *[False] * 6])


def parks(n, g, y):
    """Two levels: shares of rows around those of groups, which vary around a common one."""
    centre = numpyro.sample("centre", dist.Beta(2.0, 2.0))
    with numpyro.plate("groups", 3):
        omega = numpyro.sample("omega", dist.Beta(1 + 4 * centre, 1 + 4 * (1 - centre)))
        kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.2))
    with numpyro.plate("rows", len(n)):
        a, b = omega[g] * kappa[g] + 1, (1 - omega[g]) * kappa[g] + 1
        theta = numpyro.sample("theta", dist.Beta(a, b))
        numpyro.deterministic("odds", theta / (1 - theta))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def rates(t, y):
    """Poisson counts with exposures, and rates of a common shape and scale."""
    shape = numpyro.sample("shape", dist.Exponential(1.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(t)):
        rate = numpyro.sample("rate", dist.Gamma(shape, scale * jnp.exp(level)))
        numpyro.sample("y", dist.Poisson(rate * t), obs=y)


def waits(t, g):
    """Waiting times whose rates are of groups, and another site that depends on these."""
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0).expand([3]))
    with numpyro.plate("groups", 3):
        rate = numpyro.sample("rate", dist.Gamma(shape, 2.0))
        moved = numpyro.sample("moved", dist.Normal(0.0, 1 / jnp.sqrt(rate)))
    with numpyro.plate("rows", len(t)):
        numpyro.sample("t", dist.Gamma(3.0, rate[g]), obs=t)
        numpyro.sample("other", dist.Normal(moved[g], 1.0), obs=0.1 * t)


def tables(total, y):
    """Counts of categories, whose concentration is unknown; totals are data."""
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 0.5).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        p = numpyro.sample("p", dist.Dirichlet(alpha))
        numpyro.sample("y", dist.Multinomial(total, p), obs=y)


def one_by_one(n, y):
    """A loop in Python: a site for every share."""
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0).expand([2]))
    for k in range(5):
        theta = numpyro.sample(f"theta_{k}", dist.Beta(shape[0], shape[1]))
        numpyro.sample(f"y_{k}", dist.Binomial(n[k], theta), obs=y[k])


def seen(table, y):
    """A program that looks at a column in Python: the number of groups is in the data."""
    count = int(table["g"].max()) + 1
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0).expand([2]))
    with numpyro.plate("groups", count):
        rate = numpyro.sample("rate", dist.Gamma(shape[0], shape[1]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(rate[table["g"].to_numpy()]), obs=y)


PROGRAMS = {
    "a table that is looked at": (seen, (pd.DataFrame({"g": WHERE}), COUNTS), ("rate",)),
    "a loop": (one_by_one, (TRIALS, COUNTS), tuple(f"theta_{k}" for k in range(5))),
    "two levels": (parks, (TRIALS, WHERE, COUNTS), ("theta",)),
    "missing entries": (parks, (TRIALS, WHERE, GAPS), ("theta",)),
    "rates": (rates, (TRIALS * 0.5, COUNTS), ("rate",)),
    "what depends on them": (waits, (WAITS, WHERE), ("rate",)),
    "simplices": (tables, (TABLE.sum(axis=1), TABLE), ("p",)),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def found(request):
    model, args, sites = PROGRAMS[request.param]
    with jax.enable_x64(True):
        return collapse(trace_model(model, args), sites)


def point(model, seed):
    rng, values = np.random.default_rng(seed), {}
    for name, site in model.latent.items():
        transform = biject_to(site.support)
        u = 0.7 * rng.standard_normal(transform.inverse_shape(site.shape))
        values[name] = np.asarray(transform(jnp.asarray(u)))
    return values


def test_the_density_is_that_of_the_program_whatever_the_sites_are(found):
    """Log p(x, z, theta) - log p(z | x, theta) is log p(x, theta) at every z: eq:ef-conditional."""
    model, data = found.model, found.model.arguments.data
    with jax.enable_x64(True):
        without = trace_model(found.function, *found.call)
        assert [*without.latent] == [name for name in model.latent if name not in found.names]

        def parts(values, data):
            theta = {name: values[name] for name in found.rest}
            given = found.log_prob(found.conditional(theta, data), theta, values, data)
            return model.log_density(values, data) - given, without.log_density(theta, data)

        run, theta = lightly(parts), point(model, 3)
        for seed in (11, 12, 13):
            other = {name: point(model, seed)[name] for name in found.names}
            left, right = run({**theta, **other}, data)
            np.testing.assert_allclose(left, right, rtol=1e-7)


def test_draws_given_the_rest_have_the_statistics_of_their_family(found):
    """The mean of t(z) over draws is that of the family: 5 standard errors of 100 numbers."""
    data = found.model.arguments.data
    with jax.enable_x64(True):
        theta = {name: point(found.model, 4)[name] for name in found.rest}
        naturals = found.conditional(theta, data)
        draws = found.family.sample(naturals, jax.random.key(0), (2000,))
        statistics = jax.vmap(found.family.statistics)(draws)
        for own, means in zip(statistics, found.family.means(naturals), strict=True):
            for name, mean in means.items():
                error = own[name].std(axis=0) / np.sqrt(2000)
                assert (abs(own[name].mean(axis=0) - mean) <= 5 * error).all()


def test_a_wrong_integral_is_found(found, monkeypatch):
    right = Collapse.log_marginal
    monkeypatch.setattr(Collapse, "log_marginal", lambda *args: right(*args) + 1e-3)
    with jax.enable_x64(True), pytest.raises(CertificateError):
        certified(dataclasses.replace(found))


def test_counts_with_an_unknown_concentration_have_their_closed_form():
    total, y = TABLE.sum(axis=1), TABLE
    with jax.enable_x64(True):
        found = collapse(trace_model(tables, (total, y)), ("p",))
        alpha = np.array([0.7, 2.0, 1.1])
        value = found.log_marginal({"alpha": alpha}, found.model.arguments.data)
        one = gammaln(alpha.sum()) - gammaln(alpha.sum() + total) + gammaln(total + 1.0)
        each = gammaln(alpha + y) - gammaln(alpha) - gammaln(y + 1.0)
        np.testing.assert_allclose(value, one.sum() + each.sum(), rtol=1e-10)


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_found(name):
    model, args, sites = PROGRAMS[name]
    with jax.enable_x64(True):
        assert collapsible(trace_model(model, args)) == sites


def known(n, y):
    """The prior of the shares is known: q is exact as it is."""
    with numpyro.plate("rows", len(n)):
        theta = numpyro.sample("theta", dist.Beta(2.0, 3.0))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def curved(n, y):
    """Shares that enter by another function have no factor."""
    a = numpyro.sample("a", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(n)):
        theta = numpyro.sample("theta", dist.Beta(a, 2.0))
        numpyro.sample("y", dist.Binomial(n, theta**2 / (1 + theta)), obs=y)


def effects(g, y):
    """Gaussian effects are left to those who take Gaussians."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 3):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
    with numpyro.plate("rows", len(g)):
        numpyro.sample("y", dist.Normal(a[g], 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "args"),
    [(known, (TRIALS, COUNTS)), (curved, (TRIALS, COUNTS)), (effects, (WHERE, WAITS))],
)
def test_others_are_left_alone(model, args):
    with jax.enable_x64(True):
        assert collapsible(trace_model(model, args)) == ()


# --- Fits ---


def test_a_fit_is_that_of_the_grid_with_exact_factors():
    """Two ways to one posterior: shapes on a grid, and rates given them or integrated out."""

    def pumps(t, y):
        alpha = numpyro.sample("alpha", dist.Exponential(1.0))
        beta = numpyro.sample("beta", dist.Gamma(0.5, 1.0))
        with numpyro.plate("rows", len(t)):
            rate = numpyro.sample("rate", dist.Gamma(alpha, beta))
            numpyro.sample("y", dist.Poisson(rate * t), obs=y)

    args = (TRIALS, COUNTS)
    grid = lb.Given(("alpha", "beta"))
    before, fit = (
        lb.fit(pumps, *args, method=method) for method in (grid, lb.Collapsed(("rate",), grid))
    )
    assert fit.elbo == pytest.approx(before.elbo, abs=1e-3)
    assert fit.answer.exact
    for site in ("alpha", "beta", "rate"):
        sd = before.sd(site)
        np.testing.assert_allclose(fit.mean(site), before.mean(site), atol=0.05 * np.max(sd))
        np.testing.assert_allclose(fit.sd(site), sd, rtol=0.05)


@pytest.fixture(scope="module")
def fitted():
    return lb.fit(parks, TRIALS, WHERE, COUNTS)


def test_the_ladder_says_what_is_integrated_out_and_why(fitted):
    taken = next(line for line in fitted.plan.ladder if line.startswith("->"))
    assert taken.startswith("-> Gaussian, with 'theta' integrated out: ")
    assert taken.endswith("; 'theta' exactly, as it is conjugate given the rest (Beta)")
    note = "'theta' integrated out of log p in closed form, and exact given the rest."
    assert note in fitted.plan.notes
    rows = {row.site: (row.family, row.update) for row in fitted.plan.rows}
    assert rows["theta"] == ("Beta, given the rest", "exact (integrated out)")
    assert fitted.plan.work is not None
    assert fitted.method == "Collapsed(('theta',), Gaussian())"


def test_a_correction_keeps_the_sites(fitted):
    better = lb.correct(fitted, "psis", draws=500)
    assert set(better.sites) == set(fitted.sites)
    rows = {row.site: (row.family, row.update) for row in better.plan.rows}
    assert rows["theta"] == ("Beta, given the rest", "exact (integrated out)")
    assert rows["kappa"] == ("draws", "corrected (psis)")
    sd = fitted.sd("theta")
    np.testing.assert_allclose(better.mean("theta"), fitted.mean("theta"), atol=0.2 * np.max(sd))
    draws = better.sample(50, seed=1)
    np.testing.assert_allclose(draws["odds"], draws["theta"] / (1 - draws["theta"]), rtol=1e-5)


def test_single_precision_gives_the_same_fit(fitted):
    with lb.computing(precision="float32"):
        single = lb.fit(parks, TRIALS, WHERE, COUNTS)
    assert single.precision == "float32"
    for site in fitted.posterior:
        sd = fitted.sd(site)
        np.testing.assert_allclose(single.mean(site), fitted.mean(site), atol=0.01 * np.max(sd))
        np.testing.assert_allclose(single.sd(site), sd, rtol=0.01)


def test_a_grid_that_is_exact_stays():
    def two(n, y):
        a = numpyro.sample("a", dist.Gamma(2.0, 1.0))
        b = numpyro.sample("b", dist.Gamma(2.0, 1.0))
        with numpyro.plate("rows", len(n)):
            theta = numpyro.sample("theta", dist.Beta(a, b))
            numpyro.sample("y", dist.Binomial(n, theta), obs=y)

    plan = lb.explain(two, TRIALS, COUNTS)
    lines = [line.strip() for line in plan.ladder]
    assert "'theta' integrated out: a grid over 'a', 'b' does as well, with exact factors" in lines


def overdispersed(g, y):
    """Counts with rates of their own, around those of groups: negative binomial without them."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    phi = numpyro.sample("phi", dist.Gamma(2.0, 0.5))
    with numpyro.plate("groups", 3):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
    with numpyro.plate("rows", len(g)):
        rate = numpyro.sample("rate", dist.Gamma(phi, phi / jnp.exp(mu + a[g])))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def noisy_groups(g, y):
    """Precisions of groups: integrated out, they tie the rows of a group to its mean."""
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    with numpyro.plate("groups", 3):
        mu = numpyro.sample("mu", dist.Normal(0.0, spread))
        tau = numpyro.sample("tau", dist.Gamma(shape, rate))
    with numpyro.plate("rows", len(g)):
        numpyro.sample("y", dist.Normal(mu[g], 1 / jnp.sqrt(tau[g])), obs=y)


@pytest.mark.parametrize(
    ("model", "args", "taken"),
    [
        (overdispersed, (WHERE, COUNTS), "integrated, with 'rate' integrated out"),
        (noisy_groups, (WHERE, WAITS), "integrated"),
    ],
)
def test_effects_are_a_gaussian_given_scales_with_or_without_them(model, args, taken):
    """As a Gaussian given scales is nearer than one of all, whatever it takes leads to it."""
    lines = [line[3:].split(":")[0] for line in lb.explain(model, *args).ladder if line[0] == "-"]
    assert lines == [taken]


# --- Errors ---


@pytest.mark.parametrize(
    ("sites", "text"),
    [
        (("omega",), "given the rest, 'omega' enters 'theta' through log Beta(omega)"),
        (("theta", "omega"), "through log Beta(omega"),
        (("centre", "omega", "kappa", "theta"), "no latent site would be left"),
    ],
)
def test_sites_that_cannot_be_are_named_with_the_reason(sites, text):
    with pytest.raises(ChosenSitesError, match="cannot be integrated out exactly") as caught:
        lb.fit(parks, TRIALS, WHERE, COUNTS, method=lb.Collapsed(sites, lb.Gaussian()))
    assert text in str(caught.value)
    assert "lb.Gaussian()" in str(caught.value)


def test_unknown_sites_and_settings():
    with pytest.raises(UnknownSiteError, match="Collapsed got"):
        lb.fit(parks, TRIALS, WHERE, COUNTS, method=lb.Collapsed(("nowhere",), lb.Gaussian()))
    with pytest.raises(lb.errors.SettingError, match="names of sites"):
        lb.Collapsed("theta", lb.Gaussian())
    with pytest.raises(lb.errors.SettingError, match="a method such as"):
        lb.Collapsed(("theta",), "gaussian")
