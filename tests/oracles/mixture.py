"""Coordinate ascent for mixtures of conjugate components, by hand (alg:gmm-cavi, Appendix B)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from tests.oracles import expectations as ex
from tests.oracles.components import Arrays, Component
from tests.oracles.expectations import Step


@dataclass(frozen=True)
class Mixture:
    """K components and weights that are uniform (None) or Dirichlet(concentration) a priori."""

    component: Component
    K: int
    concentration: float | None = None
    weights: str = "pi"
    assignment: str = "z"

    def trajectory(self, x: np.ndarray, start: Arrays) -> Iterator[Step]:
        """The sweeps from point values: assignments, then components and weights."""
        statistics = self.component.point(start)
        if self.concentration is None:
            log_weights = np.full(self.K, -np.log(self.K))
        else:
            log_weights = np.log(start[self.weights])
        while True:
            r = softmax(log_weights + self.component.log_density(statistics, x), axis=1)
            q = self.component.posterior(r, x)
            statistics = self.component.statistics(q)
            elbo = ex.categorical_entropy(r) - self.component.kl(q)
            sites = {self.assignment: r, **self.component.moments(q)}
            if self.concentration is not None:
                concentration = self.concentration + r.sum(0)
                log_weights = ex.dirichlet_log(concentration)
                elbo -= ex.dirichlet_kl(concentration, np.array(self.concentration))
                sites[self.weights] = ex.dirichlet_moments(concentration)
            elbo += float(np.sum(r * (log_weights + self.component.log_density(statistics, x))))
            yield Step(elbo, sites)
