"""Densities on a grid: interpolation, mixtures over nodes, and q(theta) q(z | theta)."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from scipy import stats
from scipy.interpolate import CubicSpline

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.data import eight_schools
from lowerbound.family.densities.between_nodes import finer
from lowerbound.family.densities.conditioned import Conditioned
from lowerbound.family.densities.gridded import Interpolated, NodeMixture

QUANTILES = np.array([1e-4, 0.05, 0.3, 0.5, 0.8, 0.999])


def evaluated(law: dist.Distribution, x: np.ndarray) -> list[np.ndarray]:
    """The log density and the cdf at x, and the cdf at the quantiles; in one compilation."""

    def every(law, x):
        quantiles = jax.vmap(law.icdf)(jnp.asarray(QUANTILES))
        return law.log_prob(x), law.cdf(x), jax.vmap(law.cdf)(quantiles)

    with numpyro.validation_enabled(False):
        return [np.asarray(a) for a in quickly(every)(law, x)]


class Shifted:
    """z | theta ~ Normal(loc, scale), with parameters of each node."""

    def sample(self, parameters, key, shape=()):
        noise = jax.random.normal(key, shape, dtype=float)
        return {"z": parameters["loc"] + parameters["scale"] * noise}

    def moments(self, parameters, site):
        return parameters["loc"], parameters["scale"] ** 2

    def marginal(self, parameters, site):
        return dist.Normal(parameters["loc"], parameters["scale"])


def gaussian_grid(covariance: np.ndarray, mean: np.ndarray, across: int = 17) -> dict:
    """Parameters of u ~ Normal(mean, covariance), on a grid along its principal axes."""
    k = len(mean)
    values, vectors = np.linalg.eigh(covariance)
    t = np.linspace(-6.0, 6.0, across)
    squares = sum(np.meshgrid(*[t**2] * k, indexing="ij"))
    log_weights = -squares / 2 - np.log(np.exp(-squares / 2).sum())
    return {
        "origin": mean,
        "axes": vectors * np.sqrt(values),
        "first": np.full(k, -6.0),
        "spacing": np.full(k, t[1] - t[0]),
        "log_weights": log_weights,
    }


def family(k: int) -> Conditioned:
    transforms = [biject_to(constraints.positive), biject_to(constraints.real)]
    transforms.append(biject_to(constraints.less_than(2.0)))
    return Conditioned(tuple("abc"[:k]), tuple(transforms[:k]), Shifted())


def with_inner(parameters: dict, family: Conditioned) -> dict:
    """z given theta has mean b and deviation a (or theta itself)."""
    values = family.values(parameters)
    inner = {"loc": values.get("b", values["a"]), "scale": values["a"]}
    return {**parameters, "inner": {name: np.asarray(a) for name, a in inner.items()}}


def example(k: int) -> tuple[Conditioned, dict, np.ndarray, np.ndarray]:
    covariance = np.array([[0.2, 0.15, 0.0], [0.15, 0.5, -0.1], [0.0, -0.1, 0.1]])[:k, :k]
    mean = np.array([0.3, -1.0, 0.2])[:k]
    made = family(k)
    return made, with_inner(gaussian_grid(covariance, mean), made), mean, covariance


@pytest.mark.parametrize("k", [1, 2, 3])
def test_marginals_of_the_scalars_are_those_of_the_joint_normal(k):
    with jax.enable_x64(True):
        made, parameters, mean, covariance = example(k)
        for number, site in enumerate(made.sites):
            law = made.marginal(parameters, site)
            truth = stats.norm(mean[number], np.sqrt(covariance[number, number]))
            transform = made.transforms[number]
            u = truth.ppf(QUANTILES)
            x = transform(jnp.asarray(u))
            jacobian = transform.log_abs_det_jacobian(jnp.asarray(u), x)
            log_prob, cdf, again = evaluated(law, x)
            np.testing.assert_allclose(log_prob, truth.logpdf(u) - jacobian, atol=2e-3)
            rising = site != "c"
            expected = QUANTILES if rising else 1 - QUANTILES
            np.testing.assert_allclose(cdf, expected, atol=1e-4)
            np.testing.assert_allclose(again, QUANTILES, atol=1e-12)
            assert law.support(x).all()
            if site == "a":
                log_normal = stats.lognorm(np.sqrt(covariance[0, 0]), scale=np.exp(mean[0]))
                np.testing.assert_allclose(law.mean, log_normal.mean(), rtol=1e-6)
                np.testing.assert_allclose(law.variance, log_normal.var(), rtol=1e-6)


def test_an_interpolated_density_is_the_density_of_its_draws():
    """Kolmogorov-Smirnov at level 1e-4 in each of three seeds: fails falsely once in 3,000."""
    with jax.enable_x64(True):
        made, parameters, _, _ = example(1)
        law = made.marginal(parameters, "a")
        assert isinstance(law, Interpolated)
        sample = quickly(lambda law, key: law.sample(key, (5000,)))
        for seed in range(3):
            drawn = np.asarray(sample(law, jax.random.key(seed)))
            cdf = evaluated(law, np.sort(drawn))[1]
            assert stats.kstest(cdf, "uniform").pvalue > 1e-4


def test_beyond_the_knots_there_is_no_mass():
    with jax.enable_x64(True):
        made, parameters, _, _ = example(2)
        law = made.marginal(parameters, "b")
        log_prob, cdf, _ = evaluated(law, np.array([-100.0, 100.0]))
        assert np.isneginf(log_prob).all()
        np.testing.assert_allclose(cdf, [0.0, 1.0], atol=1e-12)


def test_a_mixture_over_nodes_is_numpyros_mixture():
    with jax.enable_x64(True):
        loc = jnp.asarray([[0.0, 1.0], [2.0, -1.0], [5.0, 0.0]])
        scale = jnp.asarray([[1.0, 0.5], [0.2, 2.0], [1.5, 1.0]])
        weights = jnp.asarray([0.2, 0.5, 0.3])
        x = jnp.linspace(-3.0, 6.0, 10)[:, None] * jnp.ones(2)

        def numpyros(loc, scale):
            weighted = dist.CategoricalProbs(weights)
            truth = dist.MixtureSameFamily(weighted, dist.Normal(loc.T, scale.T))
            mixed = NodeMixture(
                jax.vmap(dist.Normal)(loc, scale), jnp.log(weights), (truth.mean, truth.variance)
            )
            return mixed, truth.log_prob(x), truth.cdf(x), mixed.sample(jax.random.key(0), (4, 3))

        with numpyro.validation_enabled(False):
            mixed, log_prob, cdf, drawn = quickly(numpyros)(loc, scale)
        found = evaluated(mixed, x)
        assert (mixed.batch_shape, mixed.event_shape) == ((2,), ())
        np.testing.assert_allclose(found[0], log_prob, rtol=1e-12)
        np.testing.assert_allclose(found[1], cdf, rtol=1e-12)
        np.testing.assert_allclose(found[2], np.stack([QUANTILES] * 2, axis=1), atol=1e-12)
        assert drawn.shape == (4, 3, 2)
        assert mixed.support is constraints.real


@pytest.mark.parametrize("k", [1, 2, 3])
def test_draws_agree_with_moments_and_keep_the_dependence(k):
    """Means within 4 standard errors: 5 statistics, 3 seeds; fails falsely once in 1,000 runs.

    Shuffled draws, which have the marginals but no dependence, must miss the same bound; they are
    more than 7 standard errors away, 3 beyond it.
    """
    count = 20_000
    with jax.enable_x64(True):
        made, parameters, _, _ = example(k)
        weights = np.exp(parameters["log_weights"]).ravel()
        values = {name: np.asarray(v) for name, v in made.values(parameters).items()}
        inner = parameters["inner"]
        product = (weights * values["a"] * inner["loc"]).sum()
        for seed in range(3):
            drawn = made.sample(parameters, jax.random.key(seed), (count,))
            for site in (*made.sites, "z"):
                mean, variance = made.moments(parameters, site)
                error = float(abs(drawn[site].mean() - mean) / np.sqrt(variance / count))
                assert error < 4
                np.testing.assert_allclose(drawn[site].std(), np.sqrt(variance), rtol=0.06)
            both = np.asarray(drawn["a"] * drawn["z"])
            # A draw of z is from a node beside theta, which blurs the product a little.
            bound = 4 * both.std() / np.sqrt(count) + 0.01 * abs(product)
            assert abs(both.mean() - product) < bound
            shuffled = np.asarray(drawn["a"])[::-1] * np.asarray(drawn["z"])
            assert abs(shuffled.mean() - product) > bound


def test_moments_of_the_rest_are_those_of_the_mixture():
    with jax.enable_x64(True):
        made, parameters, mean, covariance = example(2)
        found, variance = made.moments(parameters, "z")
        # E z = E b; var z = E a^2 + var b, with log a and b jointly normal.
        np.testing.assert_allclose(found, mean[1], atol=1e-9)
        expected = np.exp(2 * mean[0] + 2 * covariance[0, 0]) + covariance[1, 1]
        np.testing.assert_allclose(variance, expected, rtol=1e-6)
        law = made.marginal(parameters, "z")
        assert isinstance(law, NodeMixture)
        np.testing.assert_allclose((law.mean, law.variance), (found, variance))


def test_everything_works_inside_another_compiled_function():
    with jax.enable_x64(True):
        made, parameters, _, _ = example(2)
        key = jax.random.key(3)
        outside = made.sample(parameters, key, (5,))
        inside = jax.jit(lambda p: made.sample(p, key, (5,)))(parameters)
        for site in outside:
            np.testing.assert_allclose(inside[site], outside[site], rtol=1e-10)
        law = jax.jit(lambda p: made.marginal(p, "a"))(parameters)
        np.testing.assert_allclose(law.mean, made.moments(parameters, "a")[0], rtol=1e-10)


def test_a_node_beyond_double_precision_is_left_out():
    with jax.enable_x64(True):
        made, parameters, _, _ = example(1)
        before = made.moments(parameters, "z")
        inner = {name: a.copy() for name, a in parameters["inner"].items()}
        inner["scale"][0] = np.nan  # six deviations out
        after = made.moments({**parameters, "inner": inner}, "z")
        np.testing.assert_allclose(after, before, rtol=1e-5)
        inner["scale"][8] = np.nan  # in the middle: nothing can be said
        assert np.isnan(made.moments({**parameters, "inner": inner}, "z")[1])


def chooser(y):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    c = numpyro.sample("c", dist.Categorical(jnp.stack([1 - p, p])))
    numpyro.sample("y", dist.Normal(jnp.array([0.0, 2.0])[c], 1.0), obs=y)


def test_a_discrete_site_has_its_probabilities():
    y = np.array([1.5])
    with jax.enable_x64(True):
        law = lb.fit(chooser, y, method=lb.Given(("p",))).posterior["c"]
        ratio = stats.norm.pdf(1.5, 2.0) / stats.norm.pdf(1.5, 0.0)
        np.testing.assert_allclose(law.probs[1], ratio / (1 + ratio), rtol=1e-6)


def schools(sigma, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def test_draws_of_a_hierarchy_keep_the_dependence_on_its_scale():
    """Means within 4 standard errors: 10 statistics, 2 seeds; fails falsely in 2 of 1,000 runs."""
    data = eight_schools()
    args = (np.asarray(data["sigma"], float), np.asarray(data["y"], float))
    with jax.enable_x64(True):
        fit = lb.fit(schools, *args, method=lb.Given(("tau",)))
        for seed in (0, 1):
            drawn = fit.sample(4000, seed=seed)
            for site in ("mu", "tau", "theta"):
                error = abs(drawn[site].mean(axis=0) - fit.mean(site)) / fit.sd(site)
                error *= np.sqrt(4000)
                assert np.max(error) < 4
            spread = np.asarray(drawn["theta"]).std(axis=1)
            # Given tau, the spread of eight effects is tau times a chi: strongly tied to it.
            assert stats.spearmanr(drawn["tau"], spread).statistic > 0.9


def test_nodes_may_share_the_parameters_of_what_is_left():
    """Kept once or kept for every node, in whatever order: moments and draws are the same."""
    with jax.enable_x64(True):
        _, parameters, _, _ = example(2)
        loc, scale = (parameters["inner"][name] for name in ("loc", "scale"))
        which = np.minimum(np.arange(len(loc)), 200)  # the nodes from there on share one
        order = np.random.default_rng(0).permutation(201)
        shared = {"loc": loc[order], "scale": scale[order]}
        shared = {name: np.append(a, a[:3]) for name, a in shared.items()}  # some that none has
        once = {**parameters, "solved": np.argsort(order)[which], "inner": shared}
        each = {**parameters, "inner": {"loc": loc[which], "scale": scale[which]}}
        one, other = family(2), family(2)
        np.testing.assert_allclose(one.moments(once, "z"), other.moments(each, "z"), rtol=1e-12)
        key = jax.random.key(1)
        for site, drawn in one.sample(once, key, (50,)).items():
            np.testing.assert_array_equal(drawn, other.sample(each, key, (50,))[site])
        at = np.linspace(-3.0, 3.0, 7)
        laws = one.marginal(once, "z"), other.marginal(each, "z")
        for value in at:
            np.testing.assert_allclose(*(law.log_prob(value) for law in laws), rtol=1e-9)


def test_between_nodes_a_parabola_is_one_and_a_cliff_has_no_mass_beside_it():
    places = (np.arange(4 * 12) + 0.5) / 4
    with jax.enable_x64(True):
        parabola = np.asarray(
            finer(jnp.asarray(-0.4 * (np.arange(13.0) - 5) ** 2), 4, centres=True)
        )
        cliff = np.array(
            [-3.0, -2.6, -2.3, -2.2, -2.2, -2.0, -1.6, -1.7, -5.0, -97.0, -97.0, -97.0]
        )
        beside = np.asarray(finer(jnp.asarray(cliff), 8, centres=False))
    np.testing.assert_allclose(parabola, -0.4 * (places - 5) ** 2, atol=1e-9)
    np.testing.assert_allclose(beside[::8], cliff, atol=1e-9)
    higher = np.maximum(cliff[:-1], cliff[1:])
    inside = beside[:-1].reshape(-1, 8)
    assert (inside.max(axis=1) < higher + 0.2).all()
    assert (inside[9:] < -96.0).all()


def test_between_many_nodes_lies_the_spline_without_a_matrix_of_all_pairs():
    """A density on 4,000 nodes took 16 GB: the matrix of the spline, for each of its uses."""
    t = np.arange(4_000.0)
    values = -0.5 * ((t - 1_900) / 300) ** 2 + np.sin(t / 40)
    places = np.arange(16 * (len(t) - 1) + 1) / 16
    spline = CubicSpline(t, values)(places)
    tracemalloc.start()
    try:
        with jax.enable_x64(True):
            found = np.asarray(finer(jnp.asarray(values), 16, centres=False))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    inside = slice(16 * 30, -16 * 30)
    np.testing.assert_allclose(found[inside], spline[inside], rtol=0, atol=1e-10)
    assert most < 100 * found.nbytes
