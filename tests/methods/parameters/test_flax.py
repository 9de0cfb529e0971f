"""Networks of flax: as NumPyro's own primitives register them. Runs where flax is installed."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib import module

import lowerbound as lb
from lowerbound import errors

pytest.importorskip("flax")


def test_a_module_with_state_and_dropout():
    from flax import linen as nn

    class Decoder(nn.Module):
        size: int

        @nn.compact
        def __call__(self, z, training):
            h = nn.Dropout(0.2, deterministic=not training)(z)
            h = nn.Dense(self.size, use_bias=False)(h)
            return nn.BatchNorm(use_running_average=not training)(h)

    def model(x, training=False):
        decode = module.flax_module(
            "decoder",
            Decoder(x.shape[1]),
            input_shape=(1, 2),
            apply_rng=["dropout"],
            mutable=["batch_stats"],
            training=True,
        )
        with numpyro.plate("rows", len(x)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
            mean = decode(z, training, rngs={"dropout": numpyro.prng_key()})
            numpyro.sample("x", dist.Normal(jnp.sinh(mean), 1.0).to_event(1), obs=x)

    x = np.random.default_rng(0).normal(size=(12, 3))
    for training in (False, True):
        with pytest.warns(errors.ConvergenceWarning):
            fit = lb.fit(model, x, training, method=lb.EM(steps=100))
        shapes = jax.tree.map(np.shape, fit.parameters["decoder$params"])
        assert shapes["Dense_0"] == {"kernel": (2, 3)}
        assert set(fit.parameters) == {"decoder$params", "decoder$state"}
        assert fit.sample(3)["z"].shape == (3, 12, 2)


def test_modules_of_nnx_beside_each_other():
    """One network maximised, another with a prior of each of its leaves."""
    from flax import nnx

    mean_net = nnx.Linear(1, 2, rngs=nnx.Rngs(0))
    scale_net = nnx.Linear(1, 1, rngs=nnx.Rngs(1))

    def model(x, y):
        prior = {"kernel": dist.HalfNormal(1.0), "bias": dist.Normal(0.0, 1.0)}
        mean = module.nnx_module("mean", mean_net)(x).sum(axis=-1)
        scale = module.random_nnx_module("scale", scale_net, prior=prior)(x)[:, 0]
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(jnp.sinh(mean), jax.nn.softplus(scale)), obs=y)

    x = np.linspace(1.0, 2.0, 20)[:, None]
    y = x[:, 0] + np.random.default_rng(0).normal(size=20) * x[:, 0]
    with pytest.warns(errors.ConvergenceWarning):
        fit = lb.fit(model, x, y, method=lb.EM(steps=100))
    assert set(fit.sites) == {"scale/bias", "scale/kernel"}
    shapes = jax.tree.map(np.shape, fit.parameters["mean$params"])
    assert shapes == {"bias": (2,), "kernel": (1, 2)}
    assert jax.tree.leaves(fit.parameters["scale$params"]) == []  # its leaves have priors
