"""Cures for fits that are not to be trusted, one after the other."""

from __future__ import annotations

import warnings
from dataclasses import replace

from lowerbound.errors import CorrectionWarning, LowerboundError, TrustWarning
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import LEVELS, UNKNOWN
from lowerbound.run.loop import callers
from lowerbound.trust.corrections.correcting import correct
from lowerbound.trust.judging import judged_within

DRAWS, SECONDS = 1024, 10.0  # of a verdict, where there is none yet
BY_WEIGHTS = ("weights", "proposals")


def trusted(fit: Fit) -> Fit:
    """The fit, or the first correction of it that can be trusted; else the best, with a warning.

    Importance weights come first, where the verdict has found that they tell; then NUTS.
    """
    if fit.verdict is UNKNOWN:
        fit = replace(fit, verdict=judged_within(fit, DRAWS, SECONDS))
    best, first = fit, fit.verdict
    for how in _cures(fit):
        if best.verdict.trust == "all":
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorrectionWarning)  # the verdict says it
            try:
                found = correct(fit, how, seed=fit.seed)
            except LowerboundError:
                continue
        if LEVELS.index(found.verdict.trust) < LEVELS.index(best.verdict.trust):
            best = found
    if best.verdict.trust != "all":
        warnings.warn(TrustWarning(str(best.verdict)), stacklevel=callers())
    if best is fit:
        return fit
    note = f"Before it was corrected: {first}"
    return replace(best, answer=replace(best.answer, notes=(*best.notes, note)))


def _cures(fit: Fit) -> tuple[str, ...]:
    evidence = fit.verdict.evidence
    by_weights = evidence is not None and evidence.by in BY_WEIGHTS and "psis" in fit.verdict.cure
    return ("psis", "nuts") if by_weights else ("nuts",)
