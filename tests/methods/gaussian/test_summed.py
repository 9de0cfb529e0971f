"""Gaussians of programs with discrete sites: those of the same programs written without them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from scipy import special, stats

import lowerbound as lb
from lowerbound.errors import UnknownSiteError
from tests.laws.compilations import counted


def mixture(y, summed=False):
    w = numpyro.sample("w", dist.Beta(2.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate("rows", len(y)):
        if summed:
            each = dist.StudentT(4.0, mu, sigma).log_prob(y[:, None])
            each = each + jnp.log(jnp.stack([1 - w, w]))
            numpyro.factor("y", logsumexp(each, axis=-1))
        else:
            z = numpyro.sample("z", dist.Bernoulli(w))
            numpyro.deterministic("centre", mu[z])
            numpyro.sample("y", dist.StudentT(4.0, mu[z], sigma), obs=y)


def data(seed=0, rows=40):
    rng = np.random.default_rng(seed)
    return rng.standard_t(4, rows) + np.where(rng.random(rows) < 0.6, 2.0, -2.0)


@pytest.fixture(scope="module")
def pair():
    """The same posterior, with assignments and with them summed out by hand."""
    y, method = data(), lb.Gaussian(starts=2)
    return lb.fit(mixture, y, method=method), lb.fit(mixture, y, summed=True, method=method)


def test_it_is_the_fit_of_the_program_summed_by_hand(pair):
    ours, byhand = pair
    assert abs(ours.elbo - byhand.elbo) < 1e-6
    assert ours.elbo_error == pytest.approx(byhand.elbo_error, abs=1e-6)
    for site in ("w", "mu", "sigma"):
        np.testing.assert_allclose(ours.mean(site), byhand.mean(site), atol=1e-6)
        np.testing.assert_allclose(ours.sd(site), byhand.sd(site), atol=1e-6)


def test_draws_of_some_sites_alone(pair):
    """The same draws, without those of the assignments where these are not asked for."""
    fit, _ = pair
    every, some = fit.sample(50, seed=1), fit.sample(50, seed=1, sites=("mu", "w"))
    assert list(some) == ["mu", "w"]
    for site in some:
        np.testing.assert_array_equal(some[site], every[site])
    for site in ("z", "centre"):
        (drawn,) = fit.sample(50, seed=1, sites=(site,)).values()
        np.testing.assert_array_equal(drawn, every[site])
    with pytest.raises(UnknownSiteError) as caught:
        fit.sample(50, sites=("tau",))
    assert str(caught.value) == (
        "sample got 'tau', which is no site that is drawn.\n"
        "Expected names among w, mu, sigma, z, centre, gap."
    )


def test_assignments_have_their_average_probability(pair):
    """Draws and marginals use 4000 and 4096 draws of theta: off by 6 standard errors never."""
    ours, byhand = pair
    probabilities = ours.posterior["z"].probs
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(ours.mean("z"), probabilities[:, 1], rtol=1e-12)
    p = probabilities[:, 1]
    np.testing.assert_allclose(ours.sd("z"), np.sqrt(p * (1 - p)), atol=1e-7)
    theta = byhand.sample(4000, seed=3)
    y = data()[:, None]
    with jax.enable_x64(True):
        laws = [
            dist.StudentT(4.0, theta["mu"][:, k], theta["sigma"], validate_args=False)
            for k in (0, 1)
        ]
        zero, one = (np.asarray(law.log_prob(y)) for law in laws)
    odds = one - zero + np.log(theta["w"]) - np.log1p(-theta["w"])
    each = 1 / (1 + np.exp(-odds))
    error = 6 * each.std(axis=1) * np.sqrt(1 / 4000 + 1 / 4096) + 1e-9
    assert (abs(each.mean(axis=1) - p) <= error).all()
    z = ours.sample(4000, seed=5)["z"]
    assert set(np.unique(z)) == {0, 1}
    error = 6 * np.sqrt(p * (1 - p) / 4000) + 6 * each.std(axis=1) * np.sqrt(2 / 4000) + 1e-9
    assert (abs(z.mean(axis=0) - p) <= error).all()


def test_draws_keep_assignments_with_the_rest(pair):
    """A row between the groups goes to the one that a draw puts nearer: by 6 standard errors."""
    ours, _ = pair
    draws = ours.sample(4000)
    row = int(np.argmin(abs(ours.mean("z") - 0.5)))
    middle = draws["mu"].mean(axis=1)
    z = draws["z"][:, row]
    spread = middle.std() * np.sqrt(1 / z.sum() + 1 / (len(z) - z.sum()))
    assert middle[z == 0].mean() - middle[z == 1].mean() > 6 * spread
    chosen = np.take_along_axis(draws["mu"], draws["z"], axis=1)
    np.testing.assert_allclose(draws["centre"], chosen)
    np.testing.assert_allclose(draws["gap"], draws["mu"][:, 1] - draws["mu"][:, 0])


def test_terms_sum_to_the_bound(pair):
    ours, _ = pair
    assert set(ours.elbo_terms) == {"w", "mu", "sigma", "z", "y"}
    assert sum(ours.elbo_terms.values()) == pytest.approx(ours.elbo, abs=1e-8)


def test_rows_can_be_predicted(pair):
    ours, _ = pair
    assert ours.predictive(data(1, 5), draws=10)["y"].shape == (10, 5)


def test_a_saved_fit_has_its_discrete_sites_back_with_the_data(pair, tmp_path):
    ours, _ = pair
    ours.save(tmp_path / "run.lb")
    back = lb.load(tmp_path / "run.lb", mixture, data())
    np.testing.assert_array_equal(back.mean("z"), ours.mean("z"))
    np.testing.assert_array_equal(back.sample(20)["z"], ours.sample(20)["z"])
    alone = lb.load(tmp_path / "run.lb", mixture)
    np.testing.assert_array_equal(alone.mean("mu"), ours.mean("mu"))
    new = data(1, 5)
    np.testing.assert_array_equal(alone.log_predictive(new), ours.log_predictive(new))
    with pytest.raises(KeyError) as caught:
        alone.posterior["z"]
    assert str(caught.value.args[0]) == (
        "'z' is summed out of the rows of the data, which the file of the fit does not hold; pass "
        "them to lb.load(path, model, ...)"
    )


def test_held_out_densities_sum_over_assignments(pair):
    """They are averages of sum_z p(y, z | theta) over draws of theta: by 6 standard errors."""
    ours, _ = pair
    new = data(1, 5)
    draws = ours.sample(4000, seed=11)
    with jax.enable_x64(True):
        laws = [
            dist.StudentT(4.0, draws["mu"][:, k, None], draws["sigma"][:, None]) for k in (0, 1)
        ]
        zero, one = (np.exp(np.asarray(law.log_prob(new))) for law in laws)
    each = (1 - draws["w"][:, None]) * zero + draws["w"][:, None] * one
    error = 6 * np.sqrt(2) * each.std(axis=0) / each.mean(axis=0) / np.sqrt(4000)
    found = ours.log_predictive(new, draws=4000, seed=12)
    assert (abs(found - np.log(each.mean(axis=0))) < error).all()


def test_a_second_fit_compiles_nothing(pair):
    method = lb.Gaussian(starts=2)
    first = lb.fit(mixture, data(), method=method)
    key = jax.random.key(0)
    first.posterior["z"], first.q.family.sample(first.q.parameters, key, (10,))
    with counted() as count:
        second = lb.fit(mixture, data(7), method=method)
        second.posterior["z"], second.q.family.sample(second.q.parameters, key, (10,))
    assert count == []
    assert second.elbo != first.elbo


def change(y):
    rates = numpyro.sample("rates", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    when = numpyro.sample("when", dist.DiscreteUniform(1, 9))
    after = jnp.arange(len(y)) >= when
    numpyro.sample("y", dist.Poisson(jnp.where(after, rates[1], rates[0])), obs=y)


def test_a_change_point_is_that_of_exact_enumeration():
    """Given the time of the change the rates are Gamma: evidence and probabilities are sums."""
    from scipy.special import gammaln

    y = np.array([1, 0, 2, 1, 1, 6, 8, 5, 9, 7])
    fit = lb.fit(change, y, method=lb.Gaussian())
    logs = []
    for when in range(1, 10):
        total = -np.log(9.0)
        for part in (y[:when], y[when:]):
            shape, rate = 2 + part.sum(), 1 + len(part)
            total += gammaln(shape) - gammaln(2) - shape * np.log(rate) - gammaln(part + 1).sum()
        logs.append(total)
    evidence = np.logaddexp.reduce(logs)
    assert evidence - 0.05 < fit.elbo <= evidence + 4 * fit.elbo_error
    found = fit.posterior["when"].probs
    np.testing.assert_allclose(found, np.exp(np.array(logs) - evidence), atol=0.02)
    assert fit.mean("when") == pytest.approx(found @ np.arange(1, 10))
    assert set(np.unique(fit.sample(500)["when"])) <= set(range(1, 10))


def zero_inflated(y, x, summed=False):
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    rate = jnp.exp(1.0 + slope * x)
    with numpyro.plate("rows", len(y)):
        if summed:
            numpyro.sample("y", dist.ZeroInflatedPoisson(share, rate), obs=y)
        else:
            empty = numpyro.sample("empty", dist.Bernoulli(share))
            numpyro.sample("y", dist.Poisson(jnp.where(empty == 1, 0.0, rate)), obs=y)


def test_zero_inflated_counts():
    rng = np.random.default_rng(2)
    x = rng.standard_normal(60)
    y = rng.poisson(np.exp(1.0 + 0.5 * x)) * (rng.random(60) < 0.7)
    method = lb.Gaussian(starts=2)
    ours = lb.fit(zero_inflated, y, x, method=method)
    byhand = lb.fit(zero_inflated, y, x, summed=True, method=method)
    assert abs(ours.elbo - byhand.elbo) < 1e-6
    np.testing.assert_allclose(ours.mean("slope"), byhand.mean("slope"), atol=1e-6)
    empty = ours.posterior["empty"].probs[:, 1]
    assert (empty[y > 0] == 0.0).all()
    assert (empty[y == 0] > 0.3).all()


def levels(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("groups", 4):
        b = numpyro.sample("b", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(y)):
        outlier = numpyro.sample("outlier", dist.Bernoulli(0.1))
        side = numpyro.sample("side", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        centre = b[jnp.arange(len(y)) % 4] + 0.5 * jnp.tanh(b.sum()) * side
        numpyro.sample("y", dist.StudentT(2.0, centre, 1.0 + 4.0 * outlier), obs=y)


def test_the_ladder_sums_discrete_sites_out(capsys):
    y = np.random.default_rng(0).standard_normal(24) + np.arange(24) % 4
    plan = lb.explain(levels, y)
    assert plan.ladder[-1] == (
        "-> Gaussian, with 'outlier', 'side' summed out: about 5 numbers on the unconstrained "
        "space, 'tau' on a grid; 'outlier', 'side' exactly, given them"
    )
    assert plan.notes == ("'outlier', 'side' summed out of log p, over 6 states in each row.",)
    rows = {row.site: row for row in plan.rows}
    assert list(rows) == ["tau", "mu", "b", "outlier", "side"]
    assert rows["outlier"].update == "exact (summed out)"
    assert rows["outlier"].block == "outlier+side"
    assert rows["outlier"].scope == "local"
    fit = lb.fit(levels, y)
    assert str(fit.plan) == str(plan)
    assert fit.method == "Given(('tau',), method=Gaussian())"
    np.testing.assert_allclose(fit.posterior["side"].probs.sum(axis=-1), 1.0)
    draws = fit.sample(400)
    assert draws["side"].shape == (400, 24)
    gap = abs(draws["outlier"].mean(axis=0) - fit.mean("outlier"))
    assert (gap < 6 * np.sqrt(0.25 / 400)).all()
    plain = lb.fit(levels, y, method=lb.Gaussian(starts=2))
    assert fit.elbo > plain.elbo - 4 * plain.elbo_error


def test_counts_without_an_upper_end_are_summed_out():
    """The log evidence by sums over both, but for the half of it that is at -m."""

    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        n = numpyro.sample("n", dist.Poisson(3.0))
        numpyro.sample("y", dist.StudentT(3.0, m * jnp.tanh(n * m), 1.0), obs=y)

    y, m = data(), np.linspace(-5.0, 5.0, 4001)
    terms = [
        stats.norm.logpdf(m)
        + stats.poisson.logpmf(n, 3)
        + stats.t.logpdf(np.asarray(y)[:, None] - m * np.tanh(n * m), 3).sum(axis=0)
        for n in range(60)
    ]
    evidence = special.logsumexp(terms) + np.log(m[1] - m[0])
    fit = lb.fit(model, y, method=lb.Gaussian())
    assert fit.elbo == pytest.approx(evidence - np.log(2.0), abs=0.005)
