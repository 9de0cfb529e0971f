"""Structured VI by conditioning: exact to quadrature where the rest is exact given the scalars."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IdentityTransform
from scipy import integrate, special, stats

import lowerbound as lb
from lowerbound.data import eight_schools
from lowerbound.errors import ArgumentError, ConvergenceWarning
from lowerbound.family.densities.nothing import Nothing
from lowerbound.methods.grid.conditional import Solver, transforms_of
from lowerbound.methods.grid.conditioning import continued
from lowerbound.methods.grid.lattice import filled, lattice_for
from lowerbound.methods.grid.profile import BATCH, Profile
from lowerbound.model import trace_model
from lowerbound.run.loop import carry_out
from lowerbound.run.problem import Problem
from lowerbound.trust.judging import with_verdict
from tests.laws.compilations import counted


def run(model, *args, condition, start=None, budget=None, seed=0, **kwargs) -> lb.Fit:
    method = lb.Given(condition, lb.CAVI(init=start or "auto"))
    planned = method.plan(Problem(model, args, kwargs, seed))
    planned.budget = budget or planned.budget
    return with_verdict(carry_out(planned, method), took=0.0)


def moments(fit: lb.Fit, site: str) -> tuple[np.ndarray, np.ndarray]:
    return fit.mean(site), fit.sd(site)


# --------------------------------------------------------------------------------------------------
# Closed forms


def conjugate_regression(X, y):
    variance = numpyro.sample("variance", dist.InverseGamma(3.0, 2.0))
    scale = jnp.sqrt(variance) * 2.0
    beta = numpyro.sample("beta", dist.Normal(0.0, scale).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, jnp.sqrt(variance)), obs=y)


def regression_data(seed: int = 0, rows: int = 30, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])
    return X, scale * (X @ [1.0, -2.0, 0.5] + rng.normal(size=rows))


def test_regression_with_unknown_variance_is_its_closed_form():
    X, y = regression_data()
    n, d = X.shape
    precision = X.T @ X + np.eye(d) / 4.0
    mean = np.linalg.solve(precision, X.T @ y)
    a, b = 3.0 + n / 2, 2.0 + (y @ y - mean @ precision @ mean) / 2
    evidence = (
        -0.5 * n * np.log(2 * np.pi)
        - 0.5 * np.linalg.slogdet(precision)[1]
        - 0.5 * d * np.log(4.0)
        + 3.0 * np.log(2.0)
        - a * np.log(b)
        + special.gammaln(a)
        - special.gammaln(3.0)
    )
    fit = run(conjugate_regression, X, y, condition=("variance",))
    assert fit.converged
    assert fit.elbo == pytest.approx(evidence, abs=1e-6)
    found, sd = moments(fit, "beta")
    np.testing.assert_allclose(found, mean, atol=1e-8)
    covariance = b / (a - 1) * np.linalg.inv(precision)  # of the Student t
    np.testing.assert_allclose(sd, np.sqrt(np.diag(covariance)), rtol=1e-6)
    found, sd = moments(fit, "variance")
    np.testing.assert_allclose(found, b / (a - 1), rtol=1e-6)
    np.testing.assert_allclose(sd, b / (a - 1) / np.sqrt(a - 2), rtol=1e-5)


def centred(sigma, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def non_centred(sigma, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + tau * shift, sigma), obs=y)


def schools() -> tuple[np.ndarray, np.ndarray]:
    data = eight_schools()
    return np.asarray(data["sigma"], float), np.asarray(data["y"], float)


def schools_given(tau: float) -> tuple[float, float]:
    """Log p(y, tau) and E[mu | y, tau], in closed form."""
    sigma, y = schools()
    variance = sigma**2 + tau**2
    precision = (1 / variance).sum() + 1 / 25
    mean = (y / variance).sum() / precision
    log_density = stats.norm.logpdf(y, 0, np.sqrt(variance)).sum() + mean**2 * precision / 2
    log_density += stats.halfcauchy.logpdf(tau, scale=5.0) - np.log(precision * 25) / 2
    return log_density, mean


def test_eight_schools_centred_or_not_are_the_exact_posterior():
    sigma, y = schools()

    def integral(function) -> float:
        inside = integrate.quad(
            lambda tau: np.exp(schools_given(tau)[0] + 30) * function(tau),
            *(0, np.inf),
            epsabs=0,
            epsrel=1e-9,
            limit=200,
        )
        return inside[0]

    total = integral(lambda tau: 1.0)
    tau, tau2 = (integral(lambda tau, p=p: tau**p) / total for p in (1, 2))
    mu = integral(lambda tau: schools_given(tau)[1]) / total
    for model in (centred, non_centred):
        fit = run(model, sigma, y, condition=("tau",))
        assert fit.elbo == pytest.approx(np.log(total) - 30, abs=1e-6)
        np.testing.assert_allclose(moments(fit, "tau"), (tau, np.sqrt(tau2 - tau**2)), rtol=1e-5)
        assert moments(fit, "mu")[0] == pytest.approx(mu, abs=1e-5)


def random_effects(group, y):
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.Exponential(0.5))
    with numpyro.plate("groups", 6):
        effect = numpyro.sample("effect", dist.Normal(0.0, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], sigma), obs=y)


def random_effects_data(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6), 4)
    return group, rng.normal(size=6)[group] * 1.5 + 0.8 * rng.normal(size=24)


def test_two_scalars_are_brute_force_quadrature():
    group, y = random_effects_data()
    fit = run(random_effects, group, y, condition=("tau", "sigma"))
    u = np.linspace(-6.0, 2.5, 161)
    tau, sigma = np.exp(np.meshgrid(u, u, indexing="ij"))
    same = group[:, None] == group[None, :]
    covariance = tau[..., None, None] ** 2 * same + sigma[..., None, None] ** 2 * np.eye(24)
    log_density = -0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    log_density -= 0.5 * (np.linalg.solve(covariance, y[:, None])[..., 0] @ y)
    log_density += stats.halfnorm.logpdf(tau, scale=2) + stats.expon.logpdf(sigma, scale=2)
    log_density += np.log(tau * sigma) + 2 * np.log(u[1] - u[0])
    assert fit.converged
    assert fit.elbo == pytest.approx(special.logsumexp(log_density), abs=1e-5)
    weights = special.softmax(log_density)
    for site, value in (("tau", tau), ("sigma", sigma)):
        mean = (weights * value).sum()
        sd = np.sqrt((weights * (value - mean) ** 2).sum())
        np.testing.assert_allclose(moments(fit, site), (mean, sd), rtol=1e-4)


def student(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3.0))
    df = numpyro.sample("df", dist.Gamma(3.0, 0.3))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.StudentT(df, mu, sigma), obs=y)


def test_three_scalars_and_nothing_else_are_brute_force_quadrature():
    y = stats.t.rvs(4, loc=3.0, scale=2.0, size=25, random_state=3)
    fit = run(student, y, condition=("mu", "sigma", "df"))
    mu, log_sigma, log_df = axes = (
        np.linspace(-2.0, 8.0, 71),
        np.linspace(-2.0, 3.0, 71),
        np.linspace(-3.5, 5.0, 71),
    )
    mu, sigma, df = (
        mu[:, None, None],
        np.exp(log_sigma)[None, :, None],
        np.exp(log_df)[None, None, :],
    )
    log_density = sum(stats.t.logpdf(value, df, mu, sigma) for value in y)
    log_density = log_density + stats.norm.logpdf(mu, 0, 5) + stats.halfnorm.logpdf(sigma, scale=3)
    log_density = log_density + stats.gamma.logpdf(df, 3, scale=1 / 0.3) + np.log(sigma * df)
    log_density += sum(np.log(axis[1] - axis[0]) for axis in axes)
    assert fit.converged
    assert fit.elbo == pytest.approx(special.logsumexp(log_density), abs=1e-4)
    weights = special.softmax(log_density)
    for site, value in (("mu", mu), ("sigma", sigma), ("df", df)):
        mean = (weights * value).sum()
        sd = np.sqrt((weights * (value - mean) ** 2).sum())
        np.testing.assert_allclose(moments(fit, site), (mean, sd), rtol=2e-3)


def between(y):
    p = numpyro.sample("p", dist.Uniform(-1.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(p, 1.0), obs=y)


def below(y):
    p = numpyro.sample("p", dist.TruncatedNormal(0.0, 1.0, high=0.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(p, 1.0), obs=y)


def two_modes(y):
    p = numpyro.sample("p", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(p**2, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "prior", "inside", "predictor"),
    [
        (between, stats.uniform(-1, 3), (-1, 2), lambda p: p),
        (below, stats.truncnorm(-np.inf, 0.5), (-9, 0.5), lambda p: p),
        (two_modes, stats.norm(0, 3), (-9, 9), lambda p: p**2),
    ],
)
def test_supports_and_several_modes_are_quadrature(model, prior, inside, predictor):
    y = np.array([3.9, 4.6, 4.4, 3.7]) * (1.0 if model is two_modes else 0.3)
    fit = run(model, y, condition=("p",))
    p = np.linspace(*inside, 200_001)
    density = np.exp(
        prior.logpdf(p) + stats.norm.logpdf(y[:, None], predictor(p)[None, :]).sum(axis=0)
    )
    total = np.trapezoid(density, p)
    mean = np.trapezoid(density * p, p) / total
    sd = np.sqrt(np.trapezoid(density * (p - mean) ** 2, p) / total)
    assert fit.elbo == pytest.approx(np.log(total), abs=1e-5)
    found = moments(fit, "p")
    assert found[0] == pytest.approx(mean, abs=1e-5)
    assert found[1] == pytest.approx(sd, rel=1e-5)


def flat_regression(X, y):
    flat = dist.ImproperUniform(constraints.real_vector, (), (X.shape[1],))
    beta = numpyro.sample("beta", flat)
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_every_scale_of_the_data_is_found(scale):
    X, y = regression_data(2)
    fit = run(flat_regression, X, scale * y, condition=("sigma",))
    n, d = X.shape
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    # With flat priors sigma^-2 is Gamma((n - d - 1) / 2, rate RSS / 2).
    a, b = (n - d - 1) / 2, scale**2 * residual @ residual / 2
    log_mean = 0.5 * np.log(b) + special.gammaln(a - 0.5) - special.gammaln(a)
    mean, sd = moments(fit, "sigma")
    assert mean == pytest.approx(np.exp(log_mean), rel=1e-6)
    assert sd == pytest.approx(np.sqrt(b / (a - 1) - np.exp(2 * log_mean)), rel=1e-5)


class Normals:
    """Independent unit normals about `mean`, as a profile that counts nothing as lost."""

    def __init__(self, mean: np.ndarray) -> None:
        self.mean, self.axes = mean, np.eye(len(mean))
        self.sites = tuple("abc"[: len(mean)])
        self.transforms = tuple(biject_to(constraints.real) for _ in mean)
        self.u, self.values = np.zeros((0, len(mean))), np.zeros(0)

    def at(self, points: np.ndarray, sweeps: int = 1) -> np.ndarray:
        values = -((points - self.mean) ** 2).sum(axis=1) / 2
        self.u = np.concatenate([self.u, points])
        self.values = np.concatenate([self.values, values])
        return values

    def lost(self, point: np.ndarray) -> bool:
        return False


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_start_replaces_the_wide_scan(k):
    mean = np.array([3.0, -40.0, 7.0])[:k]
    scanned, started = Normals(mean), Normals(mean)
    for profile, start in ((scanned, None), (started, mean + 0.5)):
        lattice = filled(profile, lattice_for(profile, start), 4000)
        assert lattice.log_total(profile) == pytest.approx(k / 2 * np.log(2 * np.pi), abs=1e-4)
    assert abs(scanned.u - mean).max() > 1000
    assert abs(started.u - mean).max() < 30


# --------------------------------------------------------------------------------------------------
# Laws


def semi_conjugate(X, y):
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, 1 / jnp.sqrt(tau)), obs=y)


def precisions(group, y):
    between = numpyro.sample("between", dist.Gamma(1.0, 1.0))
    within = numpyro.sample("within", dist.Gamma(1.0, 1.0))
    with numpyro.plate("groups", 6):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1 / jnp.sqrt(between)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1 / jnp.sqrt(within)), obs=y)


def mixture(x):
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("components", 2):
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(x)):
        c = numpyro.sample("c", dist.Categorical(weights))
        numpyro.sample("x", dist.Normal(mean[c], 1 / jnp.sqrt(tau)), obs=x)


def mixture_data() -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.concatenate([rng.normal(-2.0, 0.7, 20), rng.normal(2.5, 0.7, 30)])


@pytest.mark.parametrize(
    ("model", "data", "condition"),
    [
        (semi_conjugate, regression_data(), ("tau",)),
        (precisions, random_effects_data(), ("between",)),
        (precisions, random_effects_data(), ("between", "within")),
        (mixture, (mixture_data(),), ("tau",)),
    ],
)
def test_the_elbo_is_never_below_mean_field(model, data, condition):
    fit = run(model, *data, condition=condition)
    mean_field = lb.fit(model, *data, method=lb.CAVI(tolerance=1e-12, max_sweeps=2000))
    assert fit.converged
    assert fit.elbo >= mean_field.elbo - 1e-6


def test_other_data_of_the_same_shapes_compile_nothing():
    for model, first, second in (
        (semi_conjugate, regression_data(0), regression_data(5)),
        (between, (np.array([0.5, 0.1]),), (np.array([0.2, 0.4]),)),
    ):
        site = "tau" if model is semi_conjugate else "p"

        def everything(data, model=model, site=site):
            fit = run(model, *data, condition=(site,))
            fit.sample(10)
            moments(fit, site)
            return fit

        one = everything(first)
        with counted() as compilations:
            other = everything(second)
        assert other.elbo != one.elbo
        assert compilations == []


def test_no_more_points_are_solved_than_are_asked_for():
    """Batches have one size, for one compilation; what fills them up costs nothing."""
    solved = []

    class Inner:
        family = Nothing()

        def first(self, theta):
            return ()

        def solve(self, theta, parameters, sweeps):
            def value(a):
                solved.append(float(a))
                return np.square(a)

            return (), jax.pure_callback(value, jax.ShapeDtypeStruct((), float), theta["a"])

    solver = Solver(lambda inputs: Inner(), Nothing(), {}, {}, size=1)
    profile = Profile(solver, ("a",), (IdentityTransform(),))
    with jax.enable_x64(True):
        for points in ([3.0], [1.0, 2.0, 4.0], np.arange(BATCH + 2.0)):
            solved.clear()
            values = profile.at(np.reshape(points, (-1, 1)))
            assert values == pytest.approx(np.square(points))
            assert solved == pytest.approx(points)


def test_a_budget_ends_the_grid_and_says_so():
    sigma, y = schools()
    with pytest.warns(ConvergenceWarning) as warned:
        fit = run(centred, sigma, y, condition=("tau", "mu"), budget=40)
    assert not fit.converged
    assert fit.stop_reason == "stopped: reached the budget of 40 nodes"
    assert str(warned[0].message) == (
        "The fit stopped before it converged: reached the budget of 40 nodes.\n"
        "Means and sds of all sites rest on a grid that is too coarse for the posterior of tau, "
        "mu. Condition on fewer of them, or give them tighter priors."
    )

    with pytest.warns(ConvergenceWarning, match="half their spacing exceeds the budget"):
        fit = run(centred, sigma, y, condition=("tau", "mu"), budget=600)
    assert not fit.converged
    assert re.fullmatch(
        r"stopped: even and odd nodes of \d+ differ by \S+ nats, and half their spacing exceeds "
        "the budget of 600 nodes",
        fit.stop_reason,
    )


@pytest.mark.parametrize("slope", [(1.0, 1.0), (1.0, 0.3)])
def test_a_posterior_that_ends_at_an_edge_converges_by_its_moments(slope):
    """Means and sds by even and odd nodes agree, though masses gain little with more nodes."""

    def edge():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        beyond = slope[0] * a + slope[1] * b > 0.3
        numpyro.factor("edge", jnp.where(beyond, -jnp.inf, 0.0))

    fit = run(edge, condition=("a", "b"))
    length = np.hypot(*slope)
    mean, variance = stats.truncnorm.stats(-np.inf, 0.3 / length, moments="mv")
    assert fit.converged
    for site, share in zip("ab", np.asarray(slope) / length, strict=True):
        exact, sd = share * mean, np.sqrt(1.0 - share**2 * (1.0 - variance))
        found = moments(fit, site)
        assert abs(found[0] - exact) < 0.03 * sd
        assert abs(np.log(found[1] / sd)) < 0.03


def test_gaps_are_continued_in_straight_lines():
    values = np.array([[0.0, -1.0, np.nan], [-1.0, -2.0, np.nan], [np.nan, np.nan, np.nan]])
    found = continued(values, 0.0)
    np.testing.assert_allclose(found[:2, :2], values[:2, :2])
    np.testing.assert_allclose(found[0, 2], -2.0)
    np.testing.assert_allclose(found[1, 2], -3.0)
    assert np.isfinite(found).all()
    assert (found[2] <= -2.0).all()


# --------------------------------------------------------------------------------------------------
# Errors, with their full text


def awkward(y):
    a = numpyro.sample("a", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.Uniform(0.0, a))
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    with numpyro.plate("three", 3):
        z = numpyro.sample("z", dist.Normal(0.0, a))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z.sum() + b + k, a), obs=y)


@pytest.mark.parametrize(
    ("sites", "text"),
    [
        (
            (),
            "condition got 0 sites: none.\nExpected one to 3 different scalar sites: the grid over "
            "them grows as a power of their number.",
        ),
        (
            ("a", "a"),
            "condition got 2 sites: a, a.\nExpected one to 3 different scalar sites: the grid over "
            "them grows as a power of their number.",
        ),
        (
            ("w",),
            "condition got 'w', which is no latent site of the model.\n"
            "Expected names among a, b, k, z.",
        ),
        (
            ("z",),
            "condition got 'z', a site of shape (3,)   (test_conditioning.py:{z}).\n"
            "Expected scalar sites. Condition on the scalars that this site depends on.",
        ),
        (
            ("k",),
            "condition got 'k', whose support is one of integers   (test_conditioning.py:{k}).\n"
            "Expected a fixed interval of real numbers. Condition on another site.",
        ),
        (
            ("b",),
            "condition got 'b', whose support is one that depends on other sites   "
            "(test_conditioning.py:{b}).\n"
            "Expected a fixed interval of real numbers. Condition on another site.",
        ),
    ],
)
def test_sites_that_cannot_be_conditioned_on(sites, text):
    model = trace_model(awkward, (np.array([1.0, 2.0, 0.5]),))
    lines = {name: site.where.split(":")[1] for name, site in model.latent.items()}
    with pytest.raises(ArgumentError) as error:
        transforms_of(model, sites)
    assert str(error.value) == text.format(**lines)


def improper(y):
    tau = numpyro.sample("tau", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.factor("flat in log tau", -jnp.log(tau))
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Normal(0.0, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def idle(y):
    tau = numpyro.sample("tau", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(0.0, 1.0 + 0.0 * tau), obs=y)


@pytest.mark.parametrize(("model", "side"), [(improper, "small"), (idle, "large")])
def test_an_improper_posterior_is_named(model, side):
    with pytest.raises(ArgumentError) as error:
        run(model, np.array([0.3, -0.2, 0.8]), condition=("tau",))
    assert str(error.value) == (
        "The posterior of 'tau' is improper, as far as it can be followed: it does not fall "
        f"towards {side} values.\nExpected a proper posterior. Give 'tau' a proper prior."
    )


def impossible(y):
    p = numpyro.sample("p", dist.Normal(0.0, 1.0))
    numpyro.factor("never", -jnp.inf)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(p, 1.0), obs=y)


def test_a_posterior_that_is_nowhere_finite():
    with pytest.raises(ArgumentError) as error:
        run(impossible, np.array([0.3, -0.2]), condition=("p",))
    assert str(error.value) == (
        "The ELBO is finite at no value of 'p' that was tried, from very small to very large "
        "ones.\n"
        "Expected a posterior that can be evaluated. Check the data against the model, or rescale "
        "them to unit variance."
    )


def test_a_start_outside_the_support():
    X, y = regression_data()
    with pytest.raises(ArgumentError) as error:
        run(conjugate_regression, X, y, condition=("variance",), start={"variance": -1.0})
    assert str(error.value) == (
        "The start of 'variance' is -1.0.\nExpected a value inside its support."
    )
