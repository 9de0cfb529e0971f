"""Programs without hyperparameters: one Gaussian of all sites, with a sparse precision.

Chains of known variances, smoothing, effects of known scales. Where every term is a parabola of its
predictor this is the posterior; otherwise it is the Gaussian of the largest ELBO.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lowerbound.errors import PoorIntegralError
from lowerbound.family.q import Q
from lowerbound.family.sparse.mixing import Mixing
from lowerbound.family.sparse.sparse_gaussian import PATTERN, SparseGaussian
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.points.kept_points import mixing_parameters, unmade
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, Row, outline
from lowerbound.result.posterior import History, Restart
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

ROUGH = 0.05  # of an sd: an estimate no worse is as good as exact

NOT_POSITIVE = "its precision is not positive definite, or log p not finite"


class WithoutHyperparameters(Walking[Solved]):
    """One solution for z, and no integral."""

    unit, total = "solution", 1

    def __init__(self, problem: Problem, surface: AnySurface) -> None:
        self.problem, self.surface = problem, surface
        self.plan = self._plan()

    @property
    def _predictors(self) -> Predictors:
        return self.surface.predictors

    def walk(self) -> Iterator[Standing[Solved]]:
        """The solution, at once."""
        found = self.surface(np.zeros(0), (), False)
        if found is None:
            raise PoorIntegralError(self._predictors.z, NOT_POSITIVE)
        text = "one solution is exact" if self._predictors.is_quadratic else "no step gains more"
        yield Standing(found, found.value, Stop(True, text))

    def answer(self, place: Solved, trace: Trace, stop: Stop) -> Answer:
        """The Gaussian."""
        one, pattern = self._predictors, self.surface.pattern
        precision, mixing = self.surface.precision(place), dict[str, np.ndarray]()
        own = place
        if one.back is not None:
            made = Mixing(one.back.matrix(place.t))
            known = unmade(place, made, one.back, pattern, precision)
            if known is None:
                raise PoorIntegralError(one.z, NOT_POSITIVE)
            own, mixing = known, mixing_parameters([made])
        parameters = {
            "loc": own.loc,
            "variance": own.variance,
            "precision": precision,
            **{name: np.asarray(getattr(pattern, name)) for name in PATTERN},
            **mixing,
        }
        q = Q(SparseGaussian(one.coordinates, {"pattern": pattern}), parameters)
        history = History(trace.values, trace.seconds, step="solution")
        restarts = (Restart(place.value, len(trace.values), str(stop)),)
        exact = one.is_quadratic
        notes: tuple[str, ...] = ()
        if not pattern.is_exact:
            off = 0.5 * self.surface.variance_error(place)
            exact = exact and off < ROUGH
            notes = (f"The sds of {', '.join(one.z)} are estimates, to about {100 * off:.2g}%.",)
        error = place.error
        return Answer(q, place.value, history, restarts, error=error, exact=exact, notes=notes)

    def _plan(self) -> Plan:
        one = self._predictors
        known = "exact" if self.surface.pattern.is_exact else "exact mean, estimated sds"
        update = known if one.is_quadratic else "best Gaussian (quadrature)"
        rows = [
            Row(name, s.shape, "global", "Gaussian, sparse precision", update, "", "all", s.where)
            for name, s in self.problem.model.latent.items()
        ]
        plan = outline(self.problem.model, "Sparse Gaussian", rows)
        note = f"Of {one.size:,} numbers: {self.surface.pattern}."
        return replace(plan, notes=(*plan.notes, note))
