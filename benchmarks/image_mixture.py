"""The diagonal mixture of Appendix B on the paper's image task, n = 10,000, D = 576, K = 30."""

from __future__ import annotations

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import lowerbound.names as lb
from benchmarks import handwritten as hand
from benchmarks import images
from benchmarks.memory import peak_of_fit
from benchmarks.timing import alternate, ratio, timed, verdict

PRIOR = hand.Prior(a0=1 / images.COMPONENTS)
SWEEPS, SKIPPED = 24, 8
HELD_OUT = 2000


def main() -> None:
    x, test = images.load()
    for precision, faster in (("float64", 1.5), ("float32", 5.0)):
        speed(x, precision, faster)
    memory(x)
    quality(x, test[:HELD_OUT])


def at_values(values: dict[str, np.ndarray], precision: str) -> hand.Expected:
    """The hand-written start at point values of the sites."""
    tau, mu = values["tau"], values["mu"]
    shared = 0.5 * (np.log(tau) - tau * mu**2 - hand.LOG_TWO_PI).sum(axis=1)
    arrays = (-0.5 * tau, tau * mu, np.log(values["pi"]) + shared)
    return hand.Expected(*(jnp.asarray(a, precision) for a in arrays))


def speed(x: np.ndarray, precision: str, faster: float, repetitions: int = 7) -> None:
    """Milliseconds per sweep: derived, by hand, and scikit-learn's iteration."""
    values = images.start(x)
    method = lb.CAVI(init=values, tolerance=0.0, max_sweeps=SWEEPS)

    def derived() -> float:
        with lb.computing(precision=precision):
            seconds = lb.fit(images.model, x, method=method).history.seconds
        return float(seconds[-1] - seconds[SKIPPED - 1]) / (SWEEPS - SKIPPED)

    with jax.enable_x64(True):
        run = hand.runner(PRIOR)
        data, first = jnp.asarray(x, precision), at_values(values, precision)
        arguments = (data, data * data, first, jnp.full(SWEEPS, jnp.nan))
        history = np.asarray(run(*arguments, SWEEPS)[2])

    def by_hand() -> float:
        with jax.enable_x64(True):
            return timed(run, *arguments, SWEEPS - SKIPPED) / (SWEEPS - SKIPPED)

    rows = x.astype(precision)

    def scikit_learn() -> float:
        few, many = (iterations(rows, count) for count in (2, 8))
        return (many - few) / 6

    fit = lb.fit(images.model, x, method=method)
    apart = np.max(np.abs(fit.history.elbo - history) / np.abs(history))
    runs = {"derived": derived, "by hand": by_hand, "scikit-learn": scikit_learn}
    seconds = alternate(runs, repetitions)
    print(f"{precision}: derived and hand-written ELBO differ by {apart:.1e} (relative)")
    if precision == "float64" and not apart < 1e-8:
        raise AssertionError(f"the two sweeps differ: {apart:.1e} relative in the ELBO")
    for name, values_ in seconds.items():
        print(f"  {name:13s} {1e3 * np.median(values_):7.1f} ms per sweep")
    slower = ratio(seconds["derived"], seconds["by hand"])
    gain = ratio(seconds["scikit-learn"], seconds["derived"])
    print(f"  derived / by hand         {slower:5.2f}   {verdict(slower, 1.2)}")
    print(f"  scikit-learn / derived    {gain:5.2f}   {verdict(gain, faster, at_most=False)}")


def scikit_learn_mixture(**settings: object) -> object:
    """The closest model there: its degrees of freedom cannot be below D."""
    from sklearn.mixture import BayesianGaussianMixture

    return BayesianGaussianMixture(
        n_components=images.COMPONENTS,
        covariance_type="diag",
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=PRIOR.a0,
        mean_precision_prior=PRIOR.b0,
        random_state=0,
        **settings,
    )


def iterations(x: np.ndarray, count: int) -> float:
    """Seconds of a scikit-learn fit of exactly `count` iterations, its start included."""
    mixture = scikit_learn_mixture(max_iter=count, tol=0.0, init_params="random")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixture.fit(x)
    return time.perf_counter() - start


def memory(x: np.ndarray) -> None:
    """The peak of a fit beside its data, in units of the data."""
    for precision in ("float64", "float32"):
        load, fit = peak_of_fit(x, precision)
        data = x.size * np.dtype(precision).itemsize
        share = (fit - load) / data
        cube = images.COMPONENTS * data
        print(
            f"memory, {precision}: a fit adds {(fit - load) / 1e6:.0f} MB to its data "
            f"({data / 1e6:.0f} MB): {share:.1f}x   {verdict(share, 3.0)}"
        )
        print(f"  (an array of shape n x K x D alone would need {cube / 1e6:.0f} MB)")


def quality(x: np.ndarray, test: np.ndarray) -> None:
    """Active components and held-out log predictive density, nats per image."""
    values = images.start(x)
    method = {"tolerance": 1e-7, "max_sweeps": 300}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {
            "derived, same start": lb.fit(images.model, x, method=lb.CAVI(init=values, **method)),
            "derived, own start": lb.fit(images.model, x, method=lb.CAVI(**method)),
        }
    sweeps = len(fits["derived, same start"].history.elbo)
    with jax.enable_x64(True):
        data = jnp.asarray(x)
        q, _, history = hand.runner(PRIOR)(
            data, data * data, at_values(values, "float64"), jnp.full(sweeps, jnp.nan), sweeps
        )
        exact = np.asarray(hand.log_predictive(q, jnp.asarray(test)))
    counts = np.asarray(q.concentration) - PRIOR.a0
    print(f"held-out log predictive, nats per image ({len(test)} images):")
    line = "  {:22s} {:9.2f}   {:2d} active components   ELBO {:.1f}"
    print(line.format("by hand, exact", exact.mean(), (counts > 1).sum(), float(history[-1])))
    for name, fit in fits.items():
        counts = np.asarray(fit.posterior["pi"].concentration) - PRIOR.a0
        inside = np.asarray(predictive_of(fit, test))
        drawn = fit.log_predictive(test)
        print(line.format(name, inside.mean(), (counts > 1).sum(), fit.elbo))
        error = (drawn - inside).mean()
        print(f"    fit.log_predictive: {drawn.mean():.2f} ({error:+.2f})")
        if name == "derived, same start":
            print(f"    derived less by hand: {inside.mean() - exact.mean():+.1e}")
    mixture = scikit_learn_mixture(max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixture.fit(x)
    active = (mixture.weights_ * len(x) > 1).sum()
    print(f"  {'scikit-learn':22s} {mixture.score(test):9.2f}   {active:2d} active components")


def predictive_of(fit: lb.Fit, test: np.ndarray) -> np.ndarray:
    """The exact predictive density under a fit: its Normal-Gamma factors in closed form."""
    with jax.enable_x64(True):
        tau, mu = fit.posterior["tau"], fit.posterior["mu"]
        alpha, rate = jnp.asarray(tau.concentration), jnp.asarray(tau.rate)
        # mu is Student with 2 alpha degrees of freedom and scale^2 = rate / (alpha b).
        b = rate / (alpha * jnp.asarray(mu.scale) ** 2)
        q = hand.Posterior(
            jnp.asarray(fit.posterior["pi"].concentration),
            b[:, 0],
            jnp.asarray(mu.loc),
            alpha[:, 0],
            rate,
        )
        return np.asarray(hand.log_predictive(q, jnp.asarray(test)))
