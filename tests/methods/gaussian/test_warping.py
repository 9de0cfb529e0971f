"""Sparse Dirichlet, Beta and Gamma sites: a Gaussian that is exact where their laws are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, comb, gammaln

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.family.densities.unconstrained import DRAWS
from lowerbound.methods.gaussian import warping
from lowerbound.methods.gaussian.warping import sites_to_warp
from lowerbound.model import trace_model
from tests.methods.gaussian.runs import fitted
from tests.methods.gaussian.test_interrupted import interrupted

COUNTS = np.array(
    [[0.0, 0.0, 3.0, 0.0, 7.0], [0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 40.0, 1.0, 0.0, 0.0]]
)
EVENTS = np.array([0, 0, 3, 40])


def rows(concentration, counts):
    """Counts enter through a factor; a row without any is the prior."""
    with numpyro.plate("rows", len(counts)):
        p = numpyro.sample("p", dist.Dirichlet(concentration))
    numpyro.factor("counts", jnp.sum(counts * jnp.log(p)))


def share(first, second, total, y):
    p = numpyro.sample("p", dist.Beta(first, second))
    numpyro.sample("y", dist.Binomial(total, p), obs=y)


def rates(shape, y):
    with numpyro.plate("sources", len(y)):
        rate = numpyro.sample("p", dist.Gamma(shape, 2.0))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def of_dirichlet(concentration, counts):
    """Means, sds and evidence of rows."""
    after = concentration + counts
    total = after.sum(axis=-1, keepdims=True)
    mean = after / total
    volume = [(gammaln(a).sum(-1) - gammaln(a.sum(-1))).sum() for a in (after, concentration)]
    sd = np.sqrt(mean * (1 - mean) / (total + 1))
    return mean, sd, volume[0] - len(counts) * volume[1]


def of_share(first, second, total, y):
    a, b = first + y, second + total - y
    mean = a / (a + b)
    sd = np.sqrt(mean * (1 - mean) / (a + b + 1))
    return mean, sd, np.log(comb(total, y)) + betaln(a, b) - betaln(first, second)


def of_rates(shape, y):
    a = shape + y
    before = shape * np.log(2.0) - gammaln(shape) - gammaln(y + 1)
    return a / 3, np.sqrt(a) / 3, (before + gammaln(a) - a * np.log(3.0)).sum()


CASES = {
    "dirichlet": (rows, of_dirichlet, (np.full(5, 0.1), COUNTS)),
    "beta": (share, of_share, (0.1, 0.9, 20, 0)),
    "gamma": (rates, of_rates, (0.2, EVENTS)),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    model, exact, args = CASES[request.param]
    return fitted(model, *args), exact(*args)


def test_conjugate_posteriors_are_exact(case):
    """Cells that no count reaches, rows without data, and cells of many counts."""
    fit, (mean, sd, evidence) = case
    assert abs(fit.elbo - evidence) < 0.003
    assert np.abs((fit.mean("p") - mean) / sd).max() < 3 / np.sqrt(DRAWS)
    assert np.abs(np.log(fit.sd("p") / sd)).max() < 0.05
    assert "Warped coordinates kept for 'p'" in fit.notes[0]
    assert "may be tried for 'p'" in str(fit.plan)


def test_logits_and_logs_are_not(case):
    """The fault that it mends: as far off as sites' own coordinates leave a Gaussian."""
    fit, (_, _, evidence) = case
    own = fit.call.args
    plain = fitted(fit.original, *own, noncentred=())
    assert plain.elbo < evidence - 0.3
    assert not plain.notes


def test_q_is_carried_back(case, tmp_path):
    """Draws, densities, marginals and files are of one q, whose ELBO is that of its draws."""
    fit, (mean, sd, _) = case
    q, marginal, model = fit.q, fit.posterior["p"], fit.model()

    def densities(values):
        whole = model.log_density(values, model.arguments.data)
        return whole, jnp.sum(marginal.log_prob(values["p"]))

    with jax.enable_x64(True):
        draws = q.family.sample(q.parameters, jax.random.key(1), (4000,))
        log_q = np.asarray(q.family.log_prob(q.parameters, draws))
        log_p, again = quickly(jax.vmap(densities))(draws)
    assert np.abs((np.asarray(draws["p"]).mean(0) - mean) / sd).max() < 0.1
    assert abs(np.mean(np.asarray(log_p) - log_q) - fit.elbo) < 0.02
    np.testing.assert_allclose(again, log_q, rtol=1e-6, atol=1e-6)
    fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", fit.original)
    np.testing.assert_array_equal(loaded.mean("p"), fit.mean("p"))
    np.testing.assert_array_equal(loaded.sample(5, seed=2)["p"], fit.sample(5, seed=2)["p"])


def mixed(counts, y):
    """Conjugate counts, and a factor in which two rows and a real number meet."""
    with numpyro.plate("rows", 2):
        p = numpyro.sample("p", dist.Dirichlet(jnp.full(3, 0.2)))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.factor("counts", jnp.sum(counts * jnp.log(p)))
    numpyro.factor("both", jnp.sum(jnp.log(p.mean(axis=0)) * y) - 0.5 * (slope - p[0, 0]) ** 2)


ROWS, MET = np.array([[4.0, 0.0, 0.0], [0.0, 2.0, 1.0]]), np.array([3.0, 2.0, 0.0])


@pytest.fixture(scope="module")
def meeting():
    return fitted(mixed, ROWS, MET)


def test_terms_that_are_not_conjugate_are_fitted_too(meeting):
    """Against draws that are exact but for the factor in which the rows meet, and weighted."""
    rng = np.random.default_rng(0)
    p = np.stack([rng.dirichlet(0.2 + row, 100_000) for row in ROWS], axis=1)
    log_weights = np.log(p.mean(axis=1)) @ MET
    log_weights -= 0.25 * p[:, 0, 0] ** 2  # the slope integrated out: Normal(0, 1) and its factor
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = np.einsum("n,nij->ij", weights, p)
    sd = np.sqrt(np.einsum("n,nij->ij", weights, (p - mean) ** 2))
    assert np.abs((meeting.mean("p") - mean) / sd).max() < 0.1
    assert np.abs(np.log(meeting.sd("p") / sd)).max() < 0.2


def test_a_verdict_needs_no_global_site():
    """All sites are of the rows, so that rows have one density, whatever the draw."""
    verdict = lb.check(fitted(rates, 0.2, EVENTS))
    assert verdict.trust == "all"
    assert verdict.evidence.k_hat < 0.5


def test_linear_response_is_on_the_scale_of_the_sites():
    fit = fitted(rates, 0.2, EVENTS)
    better = lb.correct(fit, "linear-response", seed=1)
    np.testing.assert_allclose(better.mean("p"), fit.mean("p"), rtol=0.1)
    np.testing.assert_allclose(better.sd("p"), fit.sd("p"), rtol=0.1)


@pytest.mark.parametrize("how", ["psis", "nuts"])
def test_corrections_go_by_the_same_coordinates(meeting, how):
    better = lb.correct(meeting, how, seed=1)
    for site in ("p", "slope"):
        off = (better.mean(site) - meeting.mean(site)) / meeting.sd(site)
        assert np.abs(off).max() < 0.25
        assert np.abs(np.log(better.sd(site) / meeting.sd(site))).max() < 0.3


def test_a_law_that_is_wrong_is_not_kept(monkeypatch):
    """Planted: laws of other shapes than the slopes say. Then sites keep their own coordinates."""
    nearest = warping.LogitBeta.nearest
    wrong = lambda self, x, slopes, least: nearest(self, x, slopes, least)[..., ::-1]  # noqa: E731
    monkeypatch.setattr(warping.LogitBeta, "nearest", wrong)
    fit = fitted(share, 0.1, 0.9, 20, 0)
    assert not fit.notes
    monkeypatch.undo()
    plain = fitted(share, 0.1, 0.9, 20, 0, noncentred=())
    assert abs(fit.elbo - plain.elbo) < 0.02
    assert not fit.q.family.coordinates.warped


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_what_is_interrupted_is_answered_in_the_coordinates_of_then(part, monkeypatch):
    """Climbs in the sites' own coordinates, laws that are tried, and stages of draws."""
    whole = fitted(share, 0.1, 0.9, 20, 0)
    interrupted(monkeypatch, int(part * len(whole.history.elbo)))
    with lb.interruptible():
        fit = fitted(share, 0.1, 0.9, 20, 0)
    assert fit.stop_reason.startswith("stopped: interrupted after ")
    assert fit.elbo <= whole.elbo + 0.01
    draws = fit.sample(1000, seed=1)["p"]
    assert np.abs(draws.mean() - fit.mean("p")) < 0.2 * fit.sd("p")


def test_single_precision_has_the_same_laws():
    mean, sd, evidence = of_rates(0.2, EVENTS)
    fit = fitted(rates, 0.2, EVENTS, precision="float32")
    assert abs(fit.elbo - evidence) < 0.003
    np.testing.assert_allclose(fit.mean("p"), mean, rtol=0.01)
    np.testing.assert_allclose(fit.sd("p"), sd, rtol=0.01)


def test_steps_of_few_draws_are_not_what_coordinates_are_compared_by():
    """Noisy steps take fewer draws than a covariance is known from."""
    fit = fitted(share, 0.1, 0.9, 20, 0, kind=lb.StochasticGaussian, draws=2)
    assert "Warped coordinates kept" in fit.notes[0]
    assert abs(fit.elbo - of_share(0.1, 0.9, 20, 0)[2]) < 0.02


def test_sites_without_a_small_shape_are_left_alone():
    def told(first, concentration, y):
        numpyro.sample("p", dist.Dirichlet(concentration))
        numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        b = numpyro.sample("b", dist.Beta(first, 3.0))
        numpyro.sample("y", dist.Bernoulli(b), obs=y)

    def latent(y):
        shape = numpyro.sample("shape", dist.HalfNormal(1.0))
        rate = numpyro.sample("rate", dist.Gamma(shape, 1.0))
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    for model, args, known in (
        (told, (1.0, np.ones(3), 1), ()),
        (told, (1.0, np.array([1.0, 0.9, 2.0]), 1), ("p", "rate", "b")),
        (told, (0.5, np.ones(3), 1), ("p", "rate", "b")),
        (latent, (2,), ()),
    ):
        assert sites_to_warp(trace_model(model, args, {})) == known
