"""The score of log p matched over fixed draws, in closed form (Cai et al. 2024)."""

from __future__ import annotations

import numpy as np

from lowerbound.ascent.matching import matched
from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.cost import allowance
from lowerbound.methods.gaussian.ascents import GaussianAscent, Phase, finite
from lowerbound.methods.gaussian.climbing.over_draws import LIMIT, draw_sizes
from lowerbound.methods.gaussian.reached import Rooted
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.result.answer import Stop
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing

_LEAST_RATE = 1e-3


class MatchingAscent(GaussianAscent):
    """Steps that match the score, until nothing moves."""

    update = "estimated (score matching)"

    def __init__(self, problem: Problem, method: GaussianMethod) -> None:
        super().__init__(problem, method, "full")
        self.count = draw_sizes(method, self.size)[: 2 if method.draws is None else 1][-1]

    def ascent(self) -> Phase:
        """From the best start; a rate that leads where log p is not finite is lowered."""
        choice = yield from self.coordinates()
        target, tolerance, size = choice.target, self.method.tolerance, self.count
        draws = normal_draws(size, target.size, draw_seed(self.problem.seed, 0))
        state, starts = yield from self.begun(choice)
        loc, root = np.asarray(state.loc), np.asarray(state.root)
        rate, move = float(size), np.inf
        _, gradients = target(points(draws, loc, root))
        for _ in range(LIMIT):
            new_loc, new_root = matched(loc, root, points(draws, loc, root), gradients, rate)
            new_values, new_gradients = target(points(draws, new_loc, new_root))
            found = averaged(draws, new_values, new_gradients, new_root)
            if not np.isfinite(found.elbo) and rate > _LEAST_RATE:
                rate /= 4.0
                continue
            change = np.linalg.solve(root, np.column_stack([new_root, new_loc - loc]))
            change[:, :-1] -= np.eye(len(loc))
            move, loc, root = float(np.abs(change).max()), new_loc, new_root
            gradients = new_gradients
            reached = Rooted(choice, size, starts, loc, root, False)
            yield Standing(reached, finite(float(found.elbo)))
            if move <= tolerance or allowance().over:
                break
        reached = Rooted(choice, size, starts, loc, root, False)
        if move <= tolerance:
            text = f"mean and scale moved by less than {tolerance:g} standard deviations"
            return reached, Stop(True, text)
        late = allowance().over
        return reached, self.stopped(allowance().reason if late else f"{LIMIT} iterations")
