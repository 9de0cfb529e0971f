"""The log evidence of InstEval's ratings, by importance sampling written out, and by a fit.

    python -m benchmarks.insteval_evidence [--draws 400]

Nothing of the library is used for the first: given the four scales, y is Gaussian with covariance
sigma^2 I + A Q A', and log p(y | scales) follows from a sparse matrix of which the students are
eliminated by hand and the rest is dense. The four integrals are a sum over draws of a wide Student
law around the mode, with its error.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.sparse import csr_array

from benchmarks.mixed import SHARED
from benchmarks.timing import verdict

DEGREES, WIDER = 6.0, 1.15  # of the proposal, and by how much it is wider than the curvature says
PRIOR_SCALES = np.array([1.0, 1.0, 1.0, 2.0])  # of the half normal laws of the scales
NEAR = 0.5  # nats


@dataclass(frozen=True)
class Ratings:
    """Sums over rows: of each student, crossed with all else, and of all else."""

    students: np.ndarray  # (s,): ratings of each
    border: csr_array  # (s, r): crossings with lecturers, departments, intercept and service
    rest: np.ndarray  # (r, r)
    student_sums: np.ndarray  # (s,): of y
    rest_sums: np.ndarray  # (r,)
    square: float  # y'y
    count: int
    sizes: tuple[int, int]  # lecturers, departments

    @classmethod
    def read(cls) -> Ratings:
        """Of the data set."""
        data = {name: np.asarray(array) for name, array in np.load(SHARED / "insteval.npz").items()}
        student, lecturer, dept = (data[n].astype(int) for n in ("student", "lecturer", "dept"))
        y = data["y"].astype(float) - 3.0  # the prior mean of the intercept
        count, each = len(y), np.arange(len(y))
        sizes = int(data["lecturers"]), int(data["depts"])
        width = sum(sizes) + 2
        columns = [lecturer, sizes[0] + dept, np.full(count, width - 2), np.full(count, width - 1)]
        values = np.ones((4, count))
        values[3] = data["service"]
        place = np.tile(each, 4), np.concatenate(columns)
        other = csr_array((values.ravel(), place), (count, width))
        own = csr_array((np.ones(count), (each, student)), (count, int(data["students"])))
        crossed = (own.T @ other).tocsr()
        inner = (other.T @ other).toarray()
        sums = own.T @ y, other.T @ y
        tally = np.asarray(own.sum(axis=0)).ravel()
        return cls(tally, crossed, inner, *sums, float(y @ y), count, sizes)

    def log_density(self, t: np.ndarray) -> float:
        """Log p(y, scales) + log |d scales / d t| at their logarithms t."""
        scales = np.exp(t)
        a, b, c, sigma = scales
        prior = np.concatenate(
            [np.full(self.sizes[0], b**-2), np.full(self.sizes[1], c**-2), np.full(2, 0.25)]
        )
        diagonal = self.students / sigma**2 + a**-2
        weighted = self.border.multiply(1.0 / np.sqrt(diagonal)[:, None]).tocsr() / sigma**2
        left = self.rest / sigma**2 + np.diag(prior) - (weighted.T @ weighted).toarray()
        factor = cho_factor(left, lower=True)
        first, second = self.student_sums / sigma**2, self.rest_sums / sigma**2
        second = second - self.border.T @ (first / diagonal) / sigma**2
        fitted = first @ (first / diagonal) + second @ cho_solve(factor, second)
        log_det = np.log(diagonal).sum() + 2.0 * np.log(np.diag(factor[0])).sum()
        log_det += 2.0 * self.count * math.log(sigma) - np.log(prior).sum()
        log_det += 2.0 * len(diagonal) * math.log(a)
        square = self.square / sigma**2 - fitted
        evidence = -0.5 * (square + log_det + self.count * math.log(2.0 * math.pi))
        half_normal = 0.5 * np.log(2.0 / math.pi) - np.log(PRIOR_SCALES)
        half_normal = half_normal - 0.5 * (scales / PRIOR_SCALES) ** 2
        return float(evidence + half_normal.sum() + t.sum())


def curvature(function: Callable[[np.ndarray], float], mode: np.ndarray) -> np.ndarray:
    """Minus the second derivatives, by differences."""
    k, size = len(mode), np.array([2e-2, 3e-2, 0.2, 3e-3])
    found = np.empty((k, k))
    axes = np.diag(size)
    for i in range(k):
        for j in range(i + 1):
            corners = [
                one * other * function(mode + one * axes[i] + other * axes[j])
                for one in (1, -1) for other in (1, -1)
            ]  # fmt: skip
            found[i, j] = found[j, i] = -sum(corners) / (4.0 * size[i] * size[j])
    return found


def by_draws(ratings: Ratings, draws: int) -> tuple[float, float, np.ndarray, np.ndarray]:
    """The log evidence, its standard error, and means and sds of the scales."""
    start = np.log([0.33, 0.5, 0.1, 1.2])
    mode = minimize(lambda t: -ratings.log_density(t), start, method="BFGS").x
    lower = WIDER * np.linalg.cholesky(np.linalg.inv(curvature(ratings.log_density, mode)))
    rng, k = np.random.default_rng(0), len(mode)
    normal = rng.normal(size=(draws, k))
    stretch = np.sqrt(DEGREES / rng.chisquare(DEGREES, size=(draws, 1)))
    away = normal * stretch
    log_q = math.lgamma(0.5 * (DEGREES + k)) - math.lgamma(0.5 * DEGREES)
    log_q -= 0.5 * k * math.log(DEGREES * math.pi) + np.log(np.diag(lower)).sum()
    log_q -= 0.5 * (DEGREES + k) * np.log1p(np.sum(away**2, axis=1) / DEGREES)
    places = mode + away @ lower.T
    log_weights = np.array([ratings.log_density(t) for t in places]) - log_q
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    error = float(weights.std() / weights.mean() / math.sqrt(draws))
    share = weights / weights.sum()
    means = share @ np.exp(places)
    sds = np.sqrt(share @ (np.exp(places) - means) ** 2)
    return float(top + math.log(weights.mean())), error, means, sds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=400)
    given = parser.parse_args()
    if not (SHARED / "insteval.npz").exists():
        print(f"(no {SHARED.name}/insteval.npz: nothing to compare)")
        return 0
    began = time.process_time()
    direct, error, means, sds = by_draws(Ratings.read(), given.draws)
    print(f"by {given.draws:,} draws: {direct:.3f} +- {error:.3f} nats", end="")
    print(f", {time.process_time() - began:.0f} s of the processor")

    import lowerbound.names as lb
    from benchmarks.mixed import loaded

    model, data, _ = loaded("insteval")
    began = time.process_time()
    fit = lb.fit(model, **data, method=lb.Integrated(), progress=False)
    print(f"by a fit: {fit.elbo:.3f} +- {fit.elbo_error:.3f} nats", end="")
    print(f", {time.process_time() - began:.0f} s of the processor")
    for name, mean, sd in zip(("s_student", "s_lecturer", "s_dept", "sigma"), means, sds,
                              strict=True):  # fmt: skip
        off, ratio = (float(fit.mean(name)) - mean) / sd, float(fit.sd(name)) / sd
        print(
            f"  {name:12s}{mean:.5f} +- {sd:.5f}; the fit {off:+.3f} sds away, sd times {ratio:.3f}"
        )
    print(f"  nats apart {abs(fit.elbo - direct):.3f}: {verdict(abs(fit.elbo - direct), NEAR)}")
    return int(abs(fit.elbo - direct) > NEAR)


if __name__ == "__main__":
    sys.exit(main())
