"""A Gaussian over some sites and exact factors of the others: q(g) q(z).

Laws: where the optimal factor of g is Gaussian, the answer is that of coordinate ascent; over fixed
draws the ELBO never falls; its optimum is that of the same family fitted in other ways.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries.optimizers import exponential_decay
from jax.scipy.special import digamma, gammaln
from numpyro.infer import SVI, Trace_ELBO

import lowerbound as lb
from lowerbound.ascent.gaussian_step import RUNNING, advance, begin
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.compute.engine import derived
from lowerbound.errors import ArgumentError
from lowerbound.joint import energy, inputs_of
from lowerbound.ladder.rungs import chosen
from lowerbound.methods.partial.given_program import given_sites, sites_to_cover
from lowerbound.methods.partial.given_sites import begin_places, block_size
from lowerbound.methods.partial.in_turn import Alternating, data_without, fixed_draws, one_round
from lowerbound.model import trace_model
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.run.problem import Problem
from tests.laws.compilations import counted

RNG = np.random.default_rng(0)
X = RNG.normal(3.0, 2.0, size=50)
CURVES = RNG.normal(size=(210, 1)) * 0.7 ** np.arange(5) + 0.3 * RNG.normal(size=(210, 5))
DOCUMENTS = np.repeat(np.arange(3), 8)
WORDS = 2 * (RNG.random(24) < 0.1 + 0.4 * DOCUMENTS) + RNG.integers(2, size=24)
TOPICS = (WORDS, DOCUMENTS, 3, 4)
BASIS = RNG.normal(size=(30, 12))
SIGNAL = (BASIS @ (np.arange(12) % 3 == 0)) * 0.95 ** np.arange(30) + 0.5 * RNG.normal(size=30)


def normal(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("x", dist.Normal(mu, 1.0 / jnp.sqrt(tau)), obs=x)


def decay(y, known=None):
    """A loop that `rate` enters, times an exact effect of each unit; perhaps a known precision."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0).expand([1]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0)) if known is None else known

    def step(level, _):
        return level * jnp.exp(-rate[0]), level

    _, curve = jax.lax.scan(step, 1.0, None, length=y.shape[1])
    with numpyro.plate("units", y.shape[0], dim=-2):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        with numpyro.plate("times", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(effect * curve, 1.0 / jnp.sqrt(tau)), obs=y)


def topics(words, documents, count, vocabulary):
    """The correlated topic model: the topic proportions of a document are softmax(eta)."""
    phi = numpyro.sample("phi", dist.Dirichlet(jnp.full((2, vocabulary), 0.5)).to_event(1))
    with numpyro.plate("documents", count):
        eta = numpyro.sample("eta", dist.MultivariateNormal(jnp.zeros(2), 2.0 * jnp.eye(2)))
    with numpyro.plate("tokens", len(words)):
        z = numpyro.sample("z", dist.Categorical(logits=eta[documents]))
        numpyro.sample("w", dist.Categorical(phi[z]), obs=words)


def spikes(y):
    """Twelve switches in one signal: 4096 states, too many to sum over, and a loop."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0).expand([1]).to_event(1))
    with numpyro.plate("switches", 12):
        z = numpyro.sample("z", dist.Bernoulli(0.3))

    def step(level, _):
        return level * jnp.exp(-0.1 * rate[0]), level

    _, curve = jax.lax.scan(step, 1.0, None, length=len(y))
    numpyro.sample("y", dist.Normal((BASIS @ z) * curve, 0.5).to_event(1), obs=y)


def bilinear(y):
    """Two vectors that both depend on `rate`, on the two sides of a matrix with an exact factor."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
    matrix = numpyro.sample("matrix", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    left, right = jnp.exp(-rate * jnp.arange(3)), jnp.cos(rate * jnp.arange(2))
    numpyro.sample("y", dist.Normal(left @ matrix @ right, 0.5).expand(y.shape), obs=y)


def problem_of(model, args, sites):
    traced = trace_model(model, args)
    given, program = given_sites(traced, sites, args, {})
    inputs = data_without(inputs_of(program), given.coordinates.shapes)
    return Alternating(given, inputs, None), traced


LINE = topics.__code__.co_firstlineno + 6  # of z
PAIR = np.array([0.5, 0.9])
CASES = [
    (decay, (CURVES,), ("rate",)),
    (decay, (CURVES,), ("rate", "tau")),
    (topics, TOPICS, ("eta",)),
    (bilinear, (PAIR,), ("rate",)),
]


# --------------------------------------------------------------------------------------------------
# The answer


@pytest.mark.parametrize("seed", [0, 1])
def test_a_conjugate_site_under_the_gaussian_gives_coordinate_ascent(seed):
    """Log p is quadratic in mu, so that white draws average it exactly: rounding is left."""
    ours = lb.fit(normal, X, method=lb.Over(("mu",)), seed=seed)
    exact = lb.fit(normal, X, method=lb.CAVI(blocks=[["mu"], ["tau"]], tolerance=1e-12))
    assert ours.converged
    assert abs(ours.elbo - exact.elbo) < 1e-6
    for site in ("mu", "tau"):
        assert ours.mean(site) == pytest.approx(exact.mean(site), rel=1e-5)
        assert ours.sd(site) == pytest.approx(exact.sd(site), rel=1e-4)


@pytest.mark.parametrize("rank", ["full", "diagonal"])
@pytest.mark.parametrize(("model", "args", "sites"), CASES)
def test_the_elbo_of_fixed_draws_never_falls(model, args, sites, rank):
    with jax.enable_x64(True):
        problem, traced = problem_of(model, args, sites)
        method = lb.Gaussian(rank=rank, starts=3)
        block = block_size(method, problem.given.coordinates)
        draws = fixed_draws(64, problem.size, block, 0)
        for place in begin_places(problem, traced, method, 0):
            bounds = []
            for _ in range(10):
                place = one_round(problem, draws, place, 1e-6)
                bounds.append(place.elbo)
            assert np.isfinite(bounds).all()
            assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
            assert bounds[-1] > bounds[0]


@pytest.mark.parametrize(("model", "args", "sites"), CASES)
def test_the_energy_of_averages_is_the_average_of_energies(model, args, sites):
    """Exact blocks see g through averages of arrays, products of which are formed beforehand."""
    with jax.enable_x64(True):
        problem, traced = problem_of(model, args, sites)
        (place,) = begin_places(problem, traced, lb.Gaussian(starts=1), 0)
        vectors = np.random.default_rng(1).normal(size=(16, problem.size)) * 0.5
        state, bound, entropy = problem.sweeps(problem.averages(vectors), place.state)
        summands = problem.given.engine.joint.summands  # as derived, no product formed
        each = [
            float(energy(summands, problem.given.arrays(v, problem.inputs), state.means))
            for v in map(jnp.asarray, vectors)
        ]
        # The energy of the sweep is that of its last state, but for what it settled to.
        assert np.mean(each) == pytest.approx(bound - entropy, rel=1e-9)


def test_the_density_given_point_statistics_is_that_of_the_program():
    """Of u = log rate, its Jacobian included; that of tau is no part of it."""
    with jax.enable_x64(True):
        problem, traced = problem_of(decay, (CURVES,), ("rate",))
        coordinates = Coordinates.of(traced)
        for seed in range(3):
            vector = jnp.asarray(np.random.default_rng(seed).normal(size=coordinates.size))
            values = coordinates.constrain(vector, {})
            own = vector[coordinates.part("rate")]
            arrays = problem.given.arrays(own, problem.inputs)
            means = problem.given.engine.family.statistics(values, arrays)
            found = problem.given.density(own, problem.inputs, means) + jnp.log(values["tau"])
            whole = coordinates.log_density(vector, traced.arguments.data)
            assert float(found) == pytest.approx(float(whole), rel=1e-10)


@pytest.mark.slow
def test_the_optimum_is_that_of_numpyro_with_the_same_family():
    """LogNormal(rate) and Normal(effects), by 1200 steps of NumPyro's SVI.

    Both bounds are averages over draws, ours with a standard error below 0.005 nats and NumPyro's,
    over 10,000 draws, below 0.01; what its steps leave of the optimum is less than 0.02 nats.
    """
    y = CURVES[:4]
    ours = lb.fit(decay, y, 10.0, method=lb.Over(("rate",)))
    assert ours.elbo_error < 0.005

    def guide(y, known):
        positive = dist.constraints.positive
        loc, scale = numpyro.param("m", jnp.zeros(1)), numpyro.param("s", 0.5, constraint=positive)
        numpyro.sample("rate", dist.LogNormal(loc, scale).to_event(1))
        scale = numpyro.param("scales", jnp.full((4, 1), 0.5), constraint=positive)
        with numpyro.plate("units", 4, dim=-2):
            numpyro.sample("effect", dist.Normal(numpyro.param("e", jnp.zeros((4, 1))), scale))

    with jax.enable_x64(True):
        steps = exponential_decay(0.05, 200, 0.5)
        svi = SVI(decay, guide, numpyro.optim.Adam(steps), Trace_ELBO(num_particles=8))
        found = svi.run(jax.random.key(0), 1200, y, 10.0, progress_bar=False).params
        many = Trace_ELBO(num_particles=10_000)
        theirs = -float(many.loss(jax.random.key(1), found, decay, guide, y, 10.0))
    assert -0.04 < ours.elbo - theirs < 0.06
    assert ours.mean("effect") == pytest.approx(np.asarray(found["e"]), abs=0.02)


def by_hand(parameters, noise):
    """The ELBO of `topics` for q(phi) Dirichlet, q(eta) independent normal, q(z) categorical."""
    concentration = jnp.exp(parameters["phi"])
    scale = jnp.exp(parameters["scale"])
    log_phi = digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))
    probability = jax.nn.softmax(parameters["z"])
    log_z = jax.nn.log_softmax(parameters["z"])
    eta = parameters["loc"] + scale * noise
    expected = jax.nn.log_softmax(eta).mean(axis=0)[DOCUMENTS]
    normaliser = gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))
    prior = (0.5 - concentration) * log_phi
    bound = (prior.sum(-1) + normaliser + gammaln(2.0) - 4 * gammaln(0.5)).sum()
    bound += (probability * (expected + log_phi[:, WORDS].T - log_z)).sum()
    second = parameters["loc"] ** 2 + scale**2
    bound += (-0.25 * second - 0.5 * jnp.log(4 * jnp.pi)).sum()
    return bound + (jnp.log(scale) + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_correlated_topic_model_is_at_an_optimum_of_its_bound_by_hand(seed):
    """Value and optimum against the bound written out, over 20,000 draws of its own.

    Its standard error is below 0.005 nats, and that of ours is stated by the fit: four of both make
    a false failure rarer than 1 in 10,000. No quasi-Newton ascent from there gains 0.02 nats.
    """
    from scipy.optimize import minimize

    ours = lb.fit(
        topics, *TOPICS, method=lb.Over(("eta",), lb.Gaussian(rank="diagonal")), seed=seed
    )
    gaussian = ours.q.parameters["gaussian"]
    with jax.enable_x64(True):
        noise = jax.random.normal(jax.random.key(seed), (10_000, 3, 2))
        noise = jnp.concatenate([noise, -noise])
        first = {
            "phi": jnp.log(ours.q.parameters["exact"][0]["log"] + 1.0),
            "loc": jnp.asarray(gaussian["loc"]).reshape(3, 2),
            "scale": jnp.log(jnp.asarray(gaussian["scale"])).reshape(3, 2),
            "z": jnp.log(ours.posterior["z"].probs),
        }
        flat, shape = jax.flatten_util.ravel_pytree(first)
        rise = jax.jit(jax.value_and_grad(lambda v: -by_hand(shape(v), noise)))
        value = -float(rise(flat)[0])
        assert value == pytest.approx(ours.elbo, abs=4 * (0.005 + ours.elbo_error))
        best = -float(minimize(rise, flat, jac=True, method="L-BFGS-B").fun)
    assert best - value < 0.02


def test_blocks_of_rows_lose_nothing(monkeypatch):
    """Given the factors, the rows of eta are independent, so the best full covariance has blocks.

    The bounds differ by less than 5 of the standard errors that both fits state.
    """
    full = lb.fit(topics, *TOPICS, method=lb.Over(("eta",)))
    monkeypatch.setattr(sys.modules[block_size.__module__], "FULL_BELOW", 5)
    blocks = lb.fit(topics, *TOPICS, method=lb.Over(("eta",)))
    assert "eta: Gaussian (blocks of 2, d = 6)" in repr(blocks)
    root = blocks.q.parameters["gaussian"]["scale_tril"].reshape(3, 2, 3, 2)
    for row in range(3):
        for other in range(3):
            assert (row == other) == bool(root[row, :, other].any())
    error = np.hypot(full.elbo_error, blocks.elbo_error)
    assert abs(full.elbo - blocks.elbo) < 5 * error
    np.testing.assert_allclose(blocks.mean("eta"), full.mean("eta"), atol=0.1)
    np.testing.assert_allclose(blocks.sd("eta"), full.sd("eta"), rtol=0.1)


@pytest.mark.parametrize("seed", [0, 1])
def test_independent_blocks_of_a_gaussian_are_found_exactly(seed):
    """Log p is quadratic with a precision of blocks, which white draws average exactly."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(7, 3, 3))
    precision = factor @ np.swapaxes(factor, 1, 2) + 0.3 * np.eye(3)
    centre = 5.0 * rng.normal(size=(7, 3))

    def evaluated(vectors):
        away = vectors.reshape(-1, 7, 3) - centre
        gradients = -np.einsum("rij,srj->sri", precision, away)
        values = 0.5 * np.einsum("sri,sri->s", gradients, away)
        return values, gradients.reshape(len(vectors), -1)

    draws = fixed_draws(64, 21, 3, seed)
    ascent = begin(np.zeros(21), np.stack([0.1 * np.eye(3)] * 7))
    for _ in range(200):
        values, gradients = evaluated(points(draws, ascent.trial_loc, ascent.trial_root))
        ascent = advance(ascent, averaged(draws, values, gradients, ascent.trial_root), 1e-9)
        if ascent.status != RUNNING:
            break
    np.testing.assert_allclose(ascent.loc, centre.ravel(), atol=1e-6)
    covariance = ascent.root @ np.swapaxes(ascent.root, 1, 2)
    np.testing.assert_allclose(covariance @ precision, np.stack([np.eye(3)] * 7), atol=1e-6)
    exact = 0.5 * (21 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1].sum())
    assert float(ascent.found.elbo) == pytest.approx(exact, abs=1e-9)


# --------------------------------------------------------------------------------------------------
# The plan


def test_the_fewest_sites_are_covered():
    with jax.enable_x64(True):
        for model, args, expected in (
            (decay, (CURVES,), ("rate",)),
            (topics, TOPICS, ("eta",)),
            (spikes, (SIGNAL,), ("rate",)),
        ):
            traced = trace_model(model, args)
            residuals = derived(traced).structure.residuals
            assert sites_to_cover(traced, residuals, args, {}) == expected


def test_the_ladder_covers_few_sites_where_all_are_too_many(capsys):
    plan = lb.explain(topics, WORDS, DOCUMENTS, 3, 120)
    assert plan.ladder[-1] == (
        "-> Gaussian over 'eta', the rest exact: 6 numbers on the unconstrained space, and exact "
        "updates of all other sites; all would be 246 numbers"
    )
    assert {row.site: row.update for row in plan.rows} == {
        "phi": "exact",
        "eta": "estimated (quasi-Monte Carlo)",
        "z": "exact",
    }
    assert plan.method == "Gaussian of eta, exact factors of the rest"
    capsys.readouterr()


@pytest.mark.parametrize(("model", "args"), [(topics, TOPICS), (decay, (CURVES,))])
def test_one_gaussian_covers_all_where_it_can(model, args):
    """Few numbers; or many, with a covariance that has the structure of the best one."""
    assert not isinstance(chosen(Problem(model, args), "auto").method, lb.Over)


def test_the_ladder_covers_few_sites_where_discrete_ones_cannot_be_summed_out():
    found = chosen(Problem(spikes, (SIGNAL,)), "auto")
    assert found.method == lb.Over(("rate",))
    assert str(found.rungs[-1]).endswith("; 'z' cannot be summed out")
    fit = lb.fit(spikes, SIGNAL)
    assert fit.converged
    np.testing.assert_array_equal(fit.mean("z") > 0.5, np.arange(12) % 3 == 0)
    assert fit.sample(5)["z"].shape == (5, 12)


# --------------------------------------------------------------------------------------------------
# The result


@pytest.fixture(scope="module")
def fitted():
    return lb.fit(topics, *TOPICS, method=lb.Over(("eta",)))


def test_draws_and_moments_agree(fitted):
    """Means of 4000 draws are within 5 standard errors: 1 failure in 10,000 for 38 numbers."""
    draws = fitted.sample(4000, seed=1)
    assert list(draws) == ["phi", "eta", "z"]
    for site in draws:
        error = fitted.sd(site) / np.sqrt(4000)
        assert (np.abs(draws[site].mean(axis=0) - fitted.mean(site)) <= 5 * error + 1e-9).all()
    assert set(np.unique(draws["z"])) <= {0, 1}
    assert fitted.posterior["eta"].batch_shape + fitted.posterior["eta"].event_shape == (3, 2)
    assert sum(fitted.elbo_terms.values()) == pytest.approx(fitted.elbo)
    assert "eta: Gaussian (full, d = 6)" in repr(fitted)


def test_a_saved_fit_is_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", topics)
    assert again.elbo == fitted.elbo
    for site in ("phi", "eta", "z"):
        np.testing.assert_array_equal(again.mean(site), fitted.mean(site))
        np.testing.assert_array_equal(again.sd(site), fitted.sd(site))
    one, other = (fit.sample(3, seed=2) for fit in (fitted, again))
    np.testing.assert_array_equal(one["z"], other["z"])


def test_other_data_of_the_same_shapes_compile_nothing():
    method = lb.Over(("mu",))
    lb.fit(normal, X, method=method)
    with counted() as compilations:
        lb.fit(normal, X + 1.0, method=method)
    assert not compilations


def test_init_is_where_the_ascent_starts():
    with jax.enable_x64(True):
        problem, traced = problem_of(decay, (CURVES,), ("rate",))
        method = lb.Gaussian(starts=2, init={"rate": [0.4], "tau": 5.0})
        places = begin_places(problem, traced, method, 0)
    assert [float(np.exp(place.loc[0])) for place in places] == pytest.approx([0.4, 0.4])


# --------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize(
    ("model", "args", "sites", "text"),
    [
        (normal, (X,), ("nu",), "Over got sites with 'nu', which is no latent site of the "
         "model.\nExpected names among mu, tau."),
        (topics, TOPICS, ("z",), "Over got sites with 'z', which is discrete: "
         f"CategoricalLogits   (test_hybrid.py:{LINE}).\nExpected continuous sites; discrete ones "
         "keep factors of their own."),
        (normal, (X,), ("mu", "tau"), "Over got sites=('mu', 'tau'), which are all latent "
         "sites of the model.\nExpected some of them. Let one Gaussian cover all: lb.Gaussian()."),
        (decay, (CURVES,), ("tau",), "Over got sites=('tau',); given these, 'rate', 'effect' "
         "still have no exact updates.\nExpected sites without which every other site has one. "
         "Add 'rate', 'effect', or let one Gaussian cover all sites: lb.Gaussian()."),
    ],
)  # fmt: skip
def test_sites_that_cannot_be_covered(model, args, sites, text):
    with pytest.raises(ArgumentError) as error:
        lb.fit(model, *args, method=lb.Over(sites))
    assert str(error.value) == text
    with pytest.raises(ArgumentError) as error:
        lb.explain(model, *args, method=lb.Over(sites))
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("sites", "method", "text"),
    [
        ("mu", lb.Gaussian(), "Over got sites='mu'.\nExpected a tuple of site names, e.g. "
         '("eta",).'),
        (("mu",), lb.Gaussian(rank=3), "Over got method=Gaussian(rank=3).\nExpected "
         'lb.Gaussian(...) with rank "auto", "full" or "diagonal", without noncentred.'),
        (("mu",), lb.Laplace(), "Over got method=Laplace().\nExpected lb.Gaussian(...) with rank "
         '"auto", "full" or "diagonal", without noncentred.'),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(sites, method, text):
    with pytest.raises(ArgumentError) as error:
        lb.Over(sites, method)
    assert str(error.value) == text
