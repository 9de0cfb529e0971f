"""GaussianMixture and ARDRegression against scikit-learn's, in the same run: processor seconds.

python -m benchmarks.estimators [--rows 10000] [--largest 1000000] [--only mixture]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import lowerbound.names as lb
from benchmarks import images
from benchmarks.timing import verdict
from lowerbound.estimators import ARDRegression, GaussianMixture

HELD_OUT = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=images.ROWS)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("mixture", "plane", "ard"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with lb.computing(verdicts=False):
        if asked.only in (None, "mixture"):
            image_speed(asked.rows)
            mixtures("image histograms", *images.load(asked.rows), 30, "diag")
        if asked.only in (None, "plane"):
            mixtures("2-D simulation", *plane(), 10, "full")
        if asked.only in (None, "ard"):
            relevance(asked.largest)


def worked(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, and its value.

    BLAS has one thread: threads that wait for each other on a busy machine would count as work.
    """
    with threadpool_limits(1):
        began = time.process_time()
        found = function()
        return time.process_time() - began, found


# --------------------------------------------------------------------------------------------------
# Mixtures


def plane(n: int = 4000, K: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Rows of K correlated clusters in the plane, for learning and held out."""
    random = np.random.default_rng(1)
    centres, roots = 6 * random.normal(size=(K, 2)), random.normal(size=(K, 2, 2))
    z = random.choice(K, size=n, p=random.dirichlet(np.full(K, 3.0)))
    x = centres[z] + np.einsum("nij,nj->ni", roots[z], random.normal(size=(n, 2)))
    return x[: n // 2], x[n // 2 :]


def ours(K: int, kind: str, **settings: Any) -> GaussianMixture:
    return GaussianMixture(
        K,
        covariance_type=kind,
        weight_concentration_prior_type="dirichlet_distribution",
        **settings,
    )


def theirs(K: int, kind: str, **settings: Any) -> Any:
    from sklearn.mixture import BayesianGaussianMixture

    return BayesianGaussianMixture(
        n_components=K,
        covariance_type=kind,
        weight_concentration_prior_type="dirichlet_distribution",
        **{"random_state": 0, **settings},
    )


def image_speed(rows: int, repetitions: int = 3) -> None:
    """Processor seconds of an iteration: those of a long fit less those of a short one."""
    x, _ = images.load(rows)
    for precision, faster in (("float64", 1.5), ("float32", 5.0)):
        data = x.astype(precision)

        def own(count: int, precision: str = precision) -> float:
            with lb.computing(precision=precision, verdicts=False):
                model = ours(30, "diag", max_iter=count, tol=0.0)
                return worked(lambda: model.fit(x))[0]

        def other(count: int, data: np.ndarray = data) -> float:
            model = theirs(30, "diag", max_iter=count, tol=0.0, init_params="random")
            return worked(lambda: model.fit(data))[0]

        own(8), own(24)
        mine = min(own(24) - own(8) for _ in range(repetitions)) / 16
        its = min(other(10) - other(2) for _ in range(repetitions)) / 8
        print(
            f"images, {precision}: {1e3 * mine:.0f} ms an iteration, scikit-learn {1e3 * its:.0f}: "
            f"{its / mine:.1f} times its speed   {verdict(its / mine, faster, at_most=False)}"
        )


def mixtures(name: str, x: np.ndarray, test: np.ndarray, K: int, kind: str) -> None:
    """Time to convergence and held-out log predictive, with 1 and 10 starts."""
    test = test[:HELD_OUT]
    print(f"{name}: {len(x):,} rows of {x.shape[1]}, K = {K}, {kind}; held out, nats a row")
    for starts in (1, 10):
        lines = []
        for label, make, most in (("lowerbound", ours, 2000), ("scikit-learn", theirs, 2000)):
            model = make(K, kind, n_init=starts, max_iter=most)
            if make is ours:
                make(K, kind, n_init=starts, max_iter=8).fit(x)  # compiled before
            seconds, model = worked(lambda model=model: model.fit(x))
            active = int((model.weights_ * len(x) > 1).sum())
            lines.append((label, seconds, model.n_iter_, active, float(model.score(test))))
        for label, seconds, sweeps, active, score in lines:
            print(
                f"  {starts:2d} starts, {label:12s} {seconds:7.1f} s, {sweeps:4d} iterations, "
                f"{active:2d} active, held out {score:9.2f}"
            )
        better = lines[0][-1] - lines[1][-1]
        print(f"    {better:+.2f} nats a row   {verdict(better, 0.0, at_most=False)}")


# --------------------------------------------------------------------------------------------------
# Relevance


def relevance(largest: int) -> None:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(y))
    X, y = X[order], y[order]
    regressions("diabetes", X[:300], y[:300], X[300:], y[300:], None)
    n = 1000
    while n <= largest:
        beta = np.zeros(50)
        beta[:10] = random.normal(size=10)
        X = random.normal(size=(n + 2000, 50))
        y = X @ beta + random.normal(size=len(X))
        regressions(f"sparse, n = {n:,}", X[:n], y[:n], X[n:], y[n:], beta != 0)
        n *= 1000 if n < largest // 1000 else 10


def regressions(
    name: str,
    X: np.ndarray,
    y: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    active: np.ndarray | None,
) -> None:
    """Time, test log predictive density, and columns rightly called relevant or not."""
    from sklearn.linear_model import ARDRegression as Theirs
    from sklearn.linear_model import BayesianRidge

    print(name)
    ARDRegression().fit(X, y)  # compiled before
    for label, model in (
        ("lowerbound ARD", ARDRegression()),
        ("scikit-learn ARD", Theirs()),
        ("BayesianRidge", BayesianRidge()),
    ):
        seconds, model = worked(lambda model=model: model.fit(X, y))
        mean, sd = model.predict(X_test, return_std=True)
        density = np.mean(-0.5 * ((y_test - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi))
        zeros = ""
        if active is not None:
            # Relevant: more than three posterior sds from zero. scikit-learn's has the kept ones.
            whole = len(model.sigma_) == len(active)
            kept = np.full(len(active), True) if whole else model.coef_ != 0
            found = np.zeros(len(active), bool)
            found[kept] = abs(model.coef_[kept]) > 3 * np.sqrt(np.diag(model.sigma_))
            exactly = int(((model.coef_ == 0) & ~active).sum())
            small = abs(model.coef_[~active]).max()
            zeros = (
                f", {int((found == active).sum())} of {len(active)} columns right, "
                f"{exactly} of {int((~active).sum())} zeros exact, largest false {small:.1e}"
            )
        print(f"  {label:17s} {seconds:8.2f} s, test log predictive {density:8.4f}{zeros}")


if __name__ == "__main__":
    main()
