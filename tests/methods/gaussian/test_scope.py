"""Programs inside `handlers.scope`, whose sites have names that the handlers inside change."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import scope

import lowerbound as lb

Y = np.random.default_rng(3).normal(1.0, 2.0, (6, 5))


def groups(spread: float) -> jnp.ndarray:
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    with numpyro.plate("groups", 6):
        return numpyro.sample("effect", dist.Normal(level, spread))


def inside(y: np.ndarray) -> None:
    with scope(prefix="outer"):
        effect = scope(groups, "inner", divider=".")(0.5)
    numpyro.sample("y", dist.StudentT(4.0, effect[:, None], 1.0).to_event(2), obs=y)


def beside(y: np.ndarray) -> None:
    effect = groups(0.5)
    numpyro.sample("y", dist.StudentT(4.0, effect[:, None], 1.0).to_event(2), obs=y)


@pytest.mark.parametrize("noncentred", [(), ("effect",)])
def test_names_of_a_scope_change_no_answer(noncentred: tuple[str, ...]) -> None:
    prefix = "outer/inner."
    method = lb.Gaussian(noncentred=tuple(prefix + name for name in noncentred))
    scoped = lb.fit(inside, Y, method=method, progress=False)
    plain = lb.fit(beside, Y, method=lb.Gaussian(noncentred=noncentred), progress=False)
    assert scoped.elbo == pytest.approx(plain.elbo, abs=1e-6)
    for name in ("level", "effect"):
        np.testing.assert_allclose(scoped.mean(prefix + name), plain.mean(name), atol=1e-5)
        np.testing.assert_allclose(scoped.sd(prefix + name), plain.sd(name), rtol=1e-5)


def test_sites_of_an_augmentation_may_stand_in_a_scope() -> None:
    def program(y: np.ndarray) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.StudentT(4.0, mu, 1.0), obs=y)

    method = lb.Augmented({"part/y": "scale-mixture"}, lb.CAVI())
    scoped = lb.fit(scope(program, "part"), Y.ravel(), method=method, progress=False)
    plain = lb.fit(program, Y.ravel(), method=lb.Augmented({"y": "scale-mixture"}, lb.CAVI()))
    assert scoped.elbo == pytest.approx(plain.elbo, abs=1e-8)
    np.testing.assert_allclose(scoped.mean("part/mu"), plain.mean("mu"), atol=1e-8)
