"""The one update (paper sections 2.4 and 4.3): a natural-gradient step on the ELBO.

Contract: `step_towards(natural, target, step)` is the only way a natural parameter changes;
`step = 1` is coordinate ascent (eq:exp-fam-cavi), a Robbins-Monro step is stochastic (alg:svi).
`Sweep` applies it to every block in turn and reports the ELBO without evaluating it again.
"""

from lowerbound.ascent.rule import step_towards
from lowerbound.ascent.schedule import Adaptive, RobbinsMonro, Schedule
from lowerbound.ascent.sweep import State, Sweep

__all__ = ["Adaptive", "RobbinsMonro", "Schedule", "State", "Sweep", "step_towards"]
