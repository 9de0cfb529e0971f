"""The ELBO of fixed draws maximised: few draws at first, then more until fresh ones agree."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowerbound.ascent.gaussian_step import RUNNING, STALLED, Ascent
from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.compute.engine import in_background
from lowerbound.cost import allowance, numbers_computed
from lowerbound.methods.gaussian.ascents import GaussianAscent, Phase
from lowerbound.methods.gaussian.climbing.climbs import check_proper
from lowerbound.methods.gaussian.climbing.over_draws import (
    AGREED,
    COARSE,
    LIMIT,
    SHARE,
    affordable_sizes,
    ascend,
    draw_sizes,
)
from lowerbound.methods.gaussian.reached import measuring
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.result.answer import Stop
from lowerbound.run.problem import Problem
from lowerbound.run.walking import told

LEAST_LIMIT = 40  # iterations for one set of draws, where they are dear
MOST_COMPUTED = 1e10  # numbers in all of these iterations, before the least of them


class FixedAscent(GaussianAscent):
    """Natural-gradient steps over fixed draws, stage by stage."""

    def __init__(
        self, problem: Problem, method: GaussianMethod, rank: str | int, compares: bool = True
    ) -> None:
        super().__init__(problem, method, rank, compares)
        draw_sizes(method, self.size)

    def ascent(self) -> Phase:
        """From the best start, over few draws, then over more."""
        choice = yield from self.coordinates()
        target, method, seed = choice.target, self.method, self.problem.seed
        sizes = affordable_sizes(target, method)
        # Importing and drawing Sobol points takes as long as a compilation: do both at once.
        ahead = in_background(lambda: normal_draws(sizes[0], target.size, draw_seed(seed, 0)))
        state, starts = yield from self.begun(choice)
        ahead.result()
        sizes = affordable_sizes(target, method)  # the pace is known by now
        computed = numbers_computed(target.closed.jaxpr)
        for stage, size in enumerate(sizes):
            draws = normal_draws(size, target.size, draw_seed(seed, stage))
            # More draws will move the answer of the first ones anyway.
            coarse = COARSE if stage == 0 and len(sizes) > 1 else 0.0
            aim = max(method.tolerance, coarse)
            share = SHARE if stage else 0.0
            most = limit(computed, size)
            phase = ascend(target, draws, state, aim, self.diagonal, share, most)
            telling = partial(self.standing, choice, draws=size, starts=starts)
            state, first, aim = yield from told(phase, telling)
            check_proper(target, state)
            agreed = stage > 0 and first <= AGREED
            to_come = sizes[stage + 1 :]
            coming = target.seconds(to_come[0] if to_come else size) + measuring(target)
            late = coming >= allowance().left
            # More draws do not help an ascent that creeps: it would be as far from their optimum.
            if agreed or (stage and state.status == RUNNING) or late:
                break
        cut = late and (state.status == RUNNING or (bool(to_come) and not agreed))
        return self.rooted(choice, state, size, starts), self._stop(state, aim, most, cut)

    def _stop(self, state: Ascent, tolerance: float, limit: int, cut: bool) -> Stop:
        """Why it ends; `cut` where there was no time for the steps or the draws still to come."""
        if cut or (state.status == RUNNING and allowance().over):
            return self.stopped(allowance().reason)
        if state.status == RUNNING:
            return self.stopped(f"{limit} iterations")
        if state.status == STALLED:
            return self.stopped("no step raises the ELBO")
        if float(state.error) <= tolerance:
            return Stop(True, f"mean and scale within {tolerance:.2g} standard deviations")
        return Stop(True, "the ELBO no longer changes")


def limit(computed: int, draws: int) -> int:
    """The iterations that an ascent over some draws may take, fewer where each is dear.

    `computed` are the numbers of log p at one point.
    """
    return int(np.clip(MOST_COMPUTED / (draws * computed), LEAST_LIMIT, LIMIT))
