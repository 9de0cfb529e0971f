"""Cures for fits that are not to be trusted, one after the other."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace

from lowerbound.cost import AFFORDABLE, at_most
from lowerbound.errors import CorrectionWarning, LowerboundError, TrustWarning
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.chains.rounds_of_chains import CHAINS
from lowerbound.methods.chains.trajectories import WARM
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import LEVELS, UNKNOWN
from lowerbound.run.loop import callers
from lowerbound.trust.against import against
from lowerbound.trust.corrections.correcting import correct
from lowerbound.trust.judging import judged_within, warn_of

DRAWS, SECONDS = 1024, 10.0  # of a verdict, where there is none yet
KEPT, GRADIENTS = 4000, 12  # trajectories that are kept, and gradients of one, about
WEIGHTED = 20_000  # points at which weights are taken, at most
LEAST = 5.0  # seconds that weights may take in any case, else as long as the fit
BY_WEIGHTS = ("weights", "proposals")


def weighed(fit: Fit, took: float) -> Fit:
    """An automatic fit that took so many seconds, by weighted draws where its verdict asks for it.

    They are kept where they can be trusted; else the fit stays as it is, and warns. Exact factors
    are kept as long as they can be trusted themselves; a Gaussian, which stands in for what has no
    exact factor, and what did not converge give way where they can be bettered at all.
    """
    makeshift = isinstance(fit.answer.q.family, UnconstrainedGaussian) or not fit.converged
    if fit.verdict.trust == "all" and not (makeshift and fit.verdict.cure):
        return fit
    found = None
    if "psis" in _cures(fit) and _seconds(fit, WEIGHTED) <= max(took, LEAST):
        found = _tried(fit, "psis", [])
    if found is None or not _is_nearer(found, fit):
        warn_of(fit)
        return fit
    warn_of(found)
    found = replace(found, call=replace(found.call, value="auto"))  # which makes it again
    return _noted(found, f"Before its draws were weighted: {fit.verdict}")


def _is_nearer(found: Fit, fit: Fit) -> bool:
    """Whether weighted draws can be trusted more, or as little though nothing is wrong with them.

    A fit of means alone has sds that are known to be off; weights of means alone may miss a tail.
    """
    level, before = (LEVELS.index(one.verdict.trust) for one in (found, fit))
    return level <= before and found.verdict.trust != "nothing"


def trusted(fit: Fit, budget: float = AFFORDABLE, progress: bool | None = None) -> Fit:
    """The fit, or the first correction of it that can be trusted; else the best, with a warning.

    Importance weights come first, where the verdict has found that they tell; then NUTS, where it
    can be foreseen to end within `budget` seconds.
    """
    if fit.verdict is UNKNOWN:
        fit = replace(fit, verdict=judged_within(fit, DRAWS, SECONDS))
    fit = replace(fit, plan=replace(fit.plan, notes=(*fit.plan.notes, _promise(budget))))
    best, first, said = fit, fit.verdict, []
    began = time.perf_counter()
    for how in _cures(fit):
        if best.verdict.trust == "all":
            break
        left = budget - (time.perf_counter() - began)
        expected = _expected(fit) if how == "nuts" else 0.0
        if expected > left:
            said.append(
                f"NUTS was left out: about {expected:,.0f} s, where {left:,.0f} s are left."
            )
            continue
        with at_most(left):
            found = _tried(fit, how, said, progress)
        if found and LEVELS.index(found.verdict.trust) < LEVELS.index(best.verdict.trust):
            best = found
    if best.verdict.trust != "all":
        warnings.warn(TrustWarning(str(best.verdict)), stacklevel=callers())
    notes = [f"Before it was corrected: {first}"] if best is not fit else []
    notes += [f"Corrections took {time.perf_counter() - began:.1f} s."] if best is not fit else []
    return _noted(best, *notes, *said)


def _tried(fit: Fit, how: str, said: list[str], progress: bool | None = False) -> Fit | None:
    """A correction; None where there is none, and why is added to what is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorrectionWarning)  # the verdict says it
        try:
            return correct(fit, how, seed=fit.seed, progress=progress)
        except LowerboundError as error:
            said.append(f"{how} could not correct it: {str(error).splitlines()[0]}")
            return None


def _noted(fit: Fit, *notes: str) -> Fit:
    return replace(fit, answer=replace(fit.answer, notes=(*fit.notes, *notes)))


def _promise(budget: float) -> str:
    return f"Until it is trusted: corrections of at most {budget:,.0f} s."


def _expected(fit: Fit) -> float:
    """The seconds that NUTS takes on an ordinary core, about."""
    return _seconds(fit, GRADIENTS * (CHAINS * WARM + KEPT))


def _seconds(fit: Fit, points: int) -> float:
    """The seconds of log p and its gradient at so many points, on an ordinary core or by the clock.

    Operations are counted as though none were done together, so that the clock often says less.
    """
    try:
        target = against(fit).target
    except LowerboundError:
        return 0.0  # the correction says why it cannot
    return points * min(target.ordinary, target.seconds(1) or math.inf)


def _cures(fit: Fit) -> tuple[str, ...]:
    evidence = fit.verdict.evidence
    by_weights = evidence is not None and evidence.by in BY_WEIGHTS and "psis" in fit.verdict.cure
    return ("psis", "nuts") if by_weights else ("nuts",)
