"""Gaussian and Poisson matrix factorisation: coordinate ascent by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import gammaln, softmax

from tests.oracles import expectations as ex
from tests.oracles.expectations import LOG_2PI, Moments, Step


def gaussian(user, item, rating, sd: float, start) -> Iterator[Step]:
    """rating ~ N(U[user] . V[item], sd^2), standard normal factors: the sweeps V, U."""
    means = {name: start[name] for name in ("U", "V")}
    covariances = {name: np.zeros((*start[name].shape, start[name].shape[1])) for name in means}
    K = start["U"].shape[1]

    def update(name, own, other_name, other):
        mean, covariance = means[other_name], covariances[other_name]
        second = covariance + mean[:, :, None] * mean[:, None, :]
        precision, linear = np.tile(np.eye(K), (len(means[name]), 1, 1)), np.zeros_like(means[name])
        np.add.at(precision, own, second[other] / sd**2)
        np.add.at(linear, own, rating[:, None] * mean[other] / sd**2)
        covariances[name] = np.linalg.inv(precision)
        means[name] = np.einsum("rij,rj->ri", covariances[name], linear)

    while True:
        update("V", item, "U", user)
        update("U", user, "V", item)
        second = {
            name: covariances[name] + means[name][:, :, None] * means[name][:, None, :]
            for name in means
        }
        fitted = np.sum(means["U"][user] * means["V"][item], axis=-1)
        square = np.einsum("rij,rij->r", second["U"][user], second["V"][item])
        error = rating**2 - 2 * rating * fitted + square
        elbo = -0.5 * np.sum(LOG_2PI + 2 * np.log(sd) + error / sd**2)
        for name, mean in means.items():
            elbo -= sum(
                ex.gaussian_kl(m, V, np.zeros(K), np.eye(K))
                for m, V in zip(mean, covariances[name], strict=True)
            )
        sites = {
            name: Moments(means[name], np.sqrt(np.einsum("rii->ri", covariances[name])))
            for name in means
        }
        yield Step(float(elbo), sites)


def poisson(x, a: float, b: float, start) -> Iterator[Step]:
    """x = sum_k z_k, z_ijk ~ Poisson(theta_ik beta_jk), Gamma(a, b): the sweeps z, beta, theta."""
    logs = {name: np.log(start[name]) for name in ("theta", "beta")}
    means = {name: start[name] for name in logs}
    q = {}
    while True:
        logits = logs["theta"][:, None, :] + logs["beta"][None, :, :]
        phi = softmax(logits, axis=-1)
        z = x[..., None] * phi
        for name, other, axis in (("beta", "theta", 0), ("theta", "beta", 1)):
            shape, rate = a + z.sum(axis), b + means[other].sum(0)
            q[name] = (shape, np.broadcast_to(rate, shape.shape))
            logs[name], means[name] = ex.gamma_log(*q[name]), shape / rate
        # q(z_ij) is multinomial: the 1/z! of the Poissons leave log x! behind with its entropy.
        elbo = (
            np.sum(z * (logs["theta"][:, None, :] + logs["beta"][None, :, :]))
            - np.sum(means["theta"] @ means["beta"].T)
            - np.sum(np.where(z > 0, z * np.log(np.maximum(phi, 1e-300)), 0.0))
            - gammaln(x + 1).sum() - sum(ex.gamma_kl(*q[name], a, b) for name in q)
        )  # fmt: skip
        z_sd = np.sqrt(z * (1 - phi))
        sites = {name: ex.gamma_moments(*q[name]) for name in q} | {"z": Moments(z, z_sd)}
        yield Step(float(elbo), sites)
