"""Conditional ELBOs in which rounding may decide are none, however the program is written."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb

GROUPS, EACH = 6, 5


def by_loop(y, centre):
    theta = numpyro.sample("theta", dist.Normal(centre, 1000.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(50.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(50.0))
    for i in range(GROUPS):
        mu = numpyro.sample(f"mu_{i}", dist.Normal(theta, tau))
        numpyro.sample(f"y_{i}", dist.Normal(mu, sigma).expand([EACH]).to_event(1), obs=y[i])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_data_far_from_zero_have_the_posterior_of_data_at_zero(seed):
    """Terms of one matrix cancelled unseen: tau went to 1e-6, the ELBO up by thousands of nats."""
    rng = np.random.default_rng(seed)
    y = 40.0 * rng.normal(size=(GROUPS, 1)) + 50.0 * rng.normal(size=(GROUPS, EACH))
    near, far = (lb.fit(by_loop, y + centre, centre) for centre in (0.0, 1500.0))
    assert far.elbo == pytest.approx(near.elbo, abs=0.01)
    assert far.mean("theta") == pytest.approx(near.mean("theta") + 1500.0, abs=0.1)
    for site in ("tau", "sigma"):
        assert far.mean(site) == pytest.approx(near.mean(site), rel=0.01)
        assert far.sd(site) == pytest.approx(near.sd(site), rel=0.02)
