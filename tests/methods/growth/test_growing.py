"""Mixtures that find their components: whatever they start from, and only upwards."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.methods.growth.moving import Grown, Moving
from lowerbound.methods.growth.partition import HELD
from lowerbound.run.problem import Problem
from tests.methods import zoo

K = 6


def heights(y, K):
    """A Gaussian mixture with weights from sticks, whose components learn how wide they are."""
    with numpyro.plate("sticks", K - 1):
        v = numpyro.sample("v", dist.Beta(1.0, 2.0))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - v)])
    with numpyro.plate("components", K):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0 / jnp.sqrt(tau)))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.concatenate([v, jnp.ones(1)]) * left))
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])), obs=y)


CENTRES = [-20.0, 0.0, 20.0]


def planted(seed):
    """Rows around three centres that no one can mistake, in shares that differ."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, 150, p=[0.2, 0.5, 0.3])
    return np.array(CENTRES)[z] + rng.normal(size=150)


@pytest.fixture(scope="module", params=range(3))
def found(request):
    """The fits from one component and from all; their data are those of a fixed seed."""
    y = planted(request.param)
    return y, {
        start: lb.fit(heights, y, K, method=lb.Growing(start=start), seed=request.param)
        for start in ("one", "all")
    }


def held(fit):
    return np.asarray(fit.posterior["z"].probs).sum(0) >= HELD


def test_both_starts_find_what_was_planted(found):
    _, fits = found
    for fit in fits.values():
        assert held(fit).sum() == 3
        assert np.sort(fit.mean("mu")[held(fit)]) == pytest.approx(CENTRES, abs=0.6)
        assert fit.converged
    assert fits["one"].elbo == pytest.approx(fits["all"].elbo, abs=1e-3)


def test_the_bound_never_falls_and_every_move_gains(found):
    _, fits = found
    for fit in fits.values():
        assert (np.diff(fit.history.elbo) >= -1e-8 * abs(fit.elbo)).all()
        assert all(move.gain > 0 for move in fit.history.moves)
        assert fit.history.elbo[-1] == fit.elbo
    assert any(move.kind == "split" for move in fits["one"].history.moves)


def test_it_is_no_worse_than_coordinate_ascent_from_the_same_start(found):
    y, fits = found
    plain = lb.fit(heights, y, K, method=lb.CAVI(), seed=fits["all"].seed)
    assert fits["all"].elbo >= plain.elbo - 1e-6


def test_moves_are_said_and_kept_in_files(found, tmp_path):
    _, fits = found
    fit = fits["one"]
    assert f"3 of {K} components hold rows" in str(fit.notes)
    fit.save(tmp_path / "fit.lb")
    assert lb.load(tmp_path / "fit.lb", heights).history.moves == fit.history.moves
    first = fit.history.moves[0]
    assert str(first) == f"sweep {first.sweep}: split 0 and 1 ({first.gain:+.2f} nats)"


@pytest.fixture(scope="module")
def partition():
    """The responsibilities of a mixture that has swept a little, and its state."""
    with jax.enable_x64(True):
        plan = Moving(Problem(heights, (planted(0), K), seed=0), lb.Growing(start="all"))
        return plan.partition, Grown(plan.sweeping.init()).state


def shares(partition, state):
    return np.asarray(state.means[partition.number]["indicator"])


def test_rows_that_move_are_all_there(partition):
    partition, state = partition
    with jax.enable_x64(True):
        before = shares(partition, state)
        into = np.array([0, 0, 2, 3, 4, 5])
        merged = np.asarray(partition.joined(state, into, np.ones(K, bool)))
        np.testing.assert_allclose(merged[:, 0], before[:, 0] + before[:, 1])
        assert (merged[:, 1] == 0).all()
        kept = np.arange(K) != 3
        without = np.asarray(partition.joined(state, np.arange(K), kept))
        assert (without[:, 3] == 0).all()
        np.testing.assert_allclose(without.sum(1), before.sum(1))
        assert (without - before * kept >= -1e-12).all()
        alone = np.asarray(partition.joined(state, np.array([1, 2, 3, 4, 5, 0]), np.ones(K, bool)))
        np.testing.assert_allclose(alone, np.roll(before, 1, axis=1))


def test_a_loss_is_the_fall_of_the_expected_log_density(partition):
    partition, state = partition
    with jax.enable_x64(True):
        seen = partition.seen(state)
        r = shares(partition, state)
        s = np.asarray(partition._seeds(partition.arrays).scores(state))
    np.testing.assert_allclose(seen.rows, r.sum(0))
    for k, other in ((0, 1), (4, 2)):
        np.testing.assert_allclose(seen.loss[k, other], (r[:, k] * (s[:, k] - s[:, other])).sum())
    best = np.max(np.delete(s, 2, axis=1), axis=1)
    np.testing.assert_allclose(seen.spread[2], (r[:, 2] * (s[:, 2] - best)).sum())


def test_all_components_in_use_are_said():
    y = np.concatenate([np.random.default_rng(0).normal(m, 0.7, 40) for m in (-9.0, 0.0, 9.0)])
    fit = lb.fit(zoo.clusters, y, K=2, method=lb.Growing())
    assert "as there are no more, some may be missing" in str(fit.notes)


def test_a_program_without_components_is_refused():
    with pytest.raises(lb.errors.UngrowingError) as error:
        lb.explain(zoo.line, **zoo.LINE.call, method=lb.Growing())
    assert str(error.value) == (
        "Growing moves rows between the components of a mixture, and the model has no discrete "
        "site with one value in every row.\n"
        "Expected one such site, e.g. a Categorical in the plate of the rows, whose value chooses "
        "the component. Use lb.CAVI(), or lb.explain(model, ...) to see the sites."
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"start": "two"}, 'Growing got start=\'two\'.\nExpected "one" or "all".'),
        ({"rounds": 0}, "Growing got rounds=0.\nExpected an integer of at least 1."),
        (
            {"method": lb.CAVI(restarts=3)},
            "Growing got method=CAVI(restarts=3).\n"
            "Expected lb.CAVI(...) with one start of its own, and without monitor.",
        ),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(lb.errors.SettingError) as error:
        lb.Growing(**settings)
    assert str(error.value) == text
