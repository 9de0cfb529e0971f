"""The verdict that goes with every fit: what it knows of itself, and what some draws say."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lowerbound.compiled.host import COMPILED
from lowerbound.compute.computing import current
from lowerbound.compute.threads import one_thread
from lowerbound.cost import AFFORDABLE
from lowerbound.errors import ConvergenceWarning, LowerboundError, TrustWarning, UnjudgedError
from lowerbound.methods.gaussian.target import counts_of
from lowerbound.model import Model
from lowerbound.result.evidence import Evidence, Finding, Off
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import UNKNOWN, Drawn, Verdict, times
from lowerbound.run.loop import callers
from lowerbound.trust.against import Against, against
from lowerbound.trust.estimates import MEAN, SD, SURE, measured
from lowerbound.trust.exactness import holds
from lowerbound.trust.on_rows import Call as Rows
from lowerbound.trust.on_rows import against_rows, by_rows
from lowerbound.trust.optima.fixed_points import other_fixed_point
from lowerbound.trust.seen import findings

SLIGHT = 0.1  # off by which a fit can be trusted, and yet be bettered
NEAR = 0.95  # of the limit of an sd, from which it counts as beyond
POINT = math.log(1e-3)  # the log of an sd over the posterior's, below which q is one place
LEAN = 0.2  # of it, by which an sd may be less where its estimate is uncertain
MOST, LONG = 20.0, 0.8 * AFFORDABLE  # seconds of a verdict; of a fit that may take no more
DRAWS, FEWEST = 512, 64
MOST_NUMBERS = 5_000_000  # in all draws together
SHARE, LEAST = 0.2, 0.4  # of the seconds of the fit that a verdict may take; seconds in any case
STEP = 4.0  # by which longer fits get more: not by a little, which would be the machine's mood
EXACT = Verdict("all", "q is the posterior, up to numerical integration")
ALL_ROWS, WHOLE = "lb.check(fit, rows=...)", "lb.fit(..., method=lb.CAVI()), on all rows"
SIGN = "a prior that fixes the sign, such as dist.HalfNormal"
NUTS, PSIS = 'lb.correct(fit, "nuts")', 'lb.correct(fit, "psis")'


def with_verdict(
    fit: Fit,
    took: float,
    model: Model | None = None,
    rows: Rows | None = None,
    quiet: bool = False,
) -> Fit:
    """The fit with its verdict; what is wrong with it is said once, as a warning.

    model: its program as it was traced. rows: the arguments of all rows, where it keeps some.
    """
    verdict = judged(fit, took, model, rows) if current().verdicts else UNKNOWN
    found = replace(fit, verdict=verdict, answer=replace(fit.answer, drawn=None, others=()))
    if not quiet:
        warn_of(found)
    return found


def warn_of(fit: Fit) -> None:
    """Say once what is known to be wrong, or not known; first that a fit did not converge."""
    stop, verdict = fit.stop, fit.verdict
    if verdict.trust == "all":
        return
    if not stop.converged and stop.remedy:
        warnings.warn(ConvergenceWarning(stop.text, stop.remedy), stacklevel=callers())
    elif verdict is not UNKNOWN and verdict.cure not in ("", ALL_ROWS):
        warnings.warn(TrustWarning(str(verdict)), stacklevel=callers())


def judged(fit: Fit, took: float, model: Model | None = None, rows: Rows | None = None) -> Verdict:
    """The verdict of a fit that took so many seconds; `model` is its program as it was traced."""
    if fit.answer.exact and (model is None or holds(fit, model)):
        return EXACT
    if fit.answer.verdict is not None:
        return fit.answer.verdict
    if not fit.sites:
        return Verdict("all", "there is nothing to infer")
    if took > LONG and not fit.converged:
        return _unmeasured(fit, "it has taken all the time that there was")
    try:
        with np.errstate(all="ignore"), one_thread():
            verdict = _measured(fit, took, model, rows)
    except UnjudgedError as error:
        return _unmeasured(fit, error.reason, error.cure)
    except LowerboundError as error:
        return _unmeasured(fit, str(error).splitlines()[0].rstrip("."))
    except Exception as error:  # whatever a program or a compiler raises, the fit is not lost
        return _unmeasured(fit, f"log p at draws of q ended in {type(error).__name__}")
    return verdict or _unmeasured(fit, "to measure it would take longer than the fit")


def judged_within(fit: Fit, draws: int, seconds: float) -> Verdict:
    """The verdict by fresh draws of q and work of about so many seconds."""
    if fit.answer.exact:
        return EXACT
    if fit.answer.verdict is not None:
        return fit.answer.verdict
    with np.errstate(all="ignore"), one_thread():
        return concluded(fit, *compared(fit, draws, seconds))


def compared(
    fit: Fit, draws: int, seconds: float, rows: Rows | None = None
) -> tuple[Against, Drawn, Evidence]:
    """A fit beside its posterior: what it is judged against, draws of q, and what they say."""
    judge = against(fit) if fit.whole else against_rows(fit, rows, seconds)
    points = judge.points_in(seconds / 2)
    drawn = judge.drawn(max(min(draws, points), FEWEST), fit.seed + 1)
    points = judge.points_in(seconds / 2)  # the clock has seen some
    return judge, drawn, _evidence(fit, judge, drawn, points, fit.seed + 1)


def _measured(fit: Fit, took: float, model: Model | None, rows: Rows | None) -> Verdict | None:
    """What draws of q say within the time; None where there is not enough of it."""
    seconds = _granted(took)
    most = min(max(took, 1.0), MOST)
    judge = against(fit, model, most) if fit.whole else against_rows(fit, rows, seconds)
    drawn = fit.answer.drawn
    if drawn is None:
        if _expected(judge) > most:
            return None
        count = min(DRAWS, MOST_NUMBERS // max(judge.coordinates.size, 1))
        if count < FEWEST:
            return None
        drawn = judge.drawn(max(min(count, judge.points_in(seconds)), FEWEST))
    evidence = _evidence(fit, judge, drawn, judge.points_in(seconds))
    longer = min(max(took / 2, LEAST), MOST)
    if evidence.by == "curvature" and longer > seconds:  # a verdict that cannot tell is none
        evidence = _evidence(fit, judge, drawn, judge.points_in(longer))
    return concluded(fit, judge, drawn, evidence)


def _evidence(fit: Fit, judge: Against, drawn: Drawn, points: int, seed: int = 0) -> Evidence:
    return measured(judge, drawn, fit.elbo, points, seed, fit.answer.optima)


def _granted(took: float) -> float:
    """The seconds of an ordinary core that the verdict of a fit may take, in large steps."""
    steps = math.floor(math.log(max(SHARE * took / LEAST, 1.0), STEP))
    return min(LEAST * STEP**steps, MOST)


def _expected(judge: Against) -> float:
    """The seconds of an ordinary core to compile log p, where that has to be, and of the least.

    That is one batch, or the fewest draws that say something where a batch has fewer.
    """
    target, program = judge.target, judge.coordinates.model
    points = max(target.batch, FEWEST)
    if program is None or {"batch", "few"} & set(target.compiled):
        return target.seconds(points)
    counts = counts_of(program)
    return counts.operations * COMPILED + points * counts.ordinary


def _unmeasured(fit: Fit, why: str, cure: str = "") -> Verdict:
    """What is known of a fit that was not compared with the posterior."""
    if not fit.converged:
        return Verdict("nothing", f"{fit.stop_reason}; {why}", cure or NUTS, compared=False)
    if not cure and not fit.answer.taught:
        cure = "lb.check(fit)" if fit.whole else WHOLE
    reason = f"q was not compared with the posterior, as {why}"
    return Verdict("means", reason, cure, compared=False)


def concluded(fit: Fit, judge: Against, drawn: Drawn, evidence: Evidence) -> Verdict:
    """What the evidence says; and other starts, where one has come to another optimum."""
    seen = findings(fit, judge, drawn, evidence)
    evidence = by_rows(replace(evidence, findings=(*seen, *evidence.findings)), judge, drawn)
    beyond = [one for one in evidence.findings if one.what == "summit"]
    if beyond:
        return _apart(evidence, beyond)
    other = other_fixed_point(fit, judge, drawn)
    if other is None:
        return _weighed(evidence)
    reason = (
        f"a restart has converged to another optimum, {other.gap:.1f} nats below, which holds "
        f"about {math.exp(-other.gap):.2f} times the mass of this one"
    )
    reason += f", far enough to matter for '{other.site}'" if other.site else ""
    return Verdict("nothing" if other.shift > MEAN else "means", reason, NUTS, evidence)


def _apart(evidence: Evidence, beyond: Sequence[Finding]) -> Verdict:
    """The verdict where log p has summits that q is not at: what draws of all say, if they do."""
    mirrored = [one for one in beyond if one.site]
    if mirrored:
        text = mirrored[0].text[:-1]
        return Verdict("nothing", f"{text[0].lower()}{text[1:]}", SIGN, evidence)
    text = max(beyond, key=lambda one: one.value).text[:-1]
    if evidence.by != "proposals":
        return Verdict("nothing", text, NUTS, evidence)
    verdict = _weighed(evidence)
    if verdict.trust == "all":
        return verdict
    return replace(verdict, reason=f"{text}: {verdict.reason}", cure=PSIS)


def _weighed(evidence: Evidence) -> Verdict:
    """The verdict that the evidence gives."""
    mean, sd = evidence.worst_mean, evidence.worst_sd
    cure = PSIS if evidence.by in ("weights", "proposals") else NUTS
    cure = WHOLE if any(one.what == "rows" for one in evidence.findings) else cure
    if mean is None or sd is None:
        reason = (
            f"the importance weights of {evidence.draws:,} draws tell nothing "
            f"(k-hat {evidence.k_hat:.1f}), nor does the curvature of log p"
        )
        return Verdict("nothing", reason, NUTS, evidence)
    # What is largest may be noise, and what is known to be beyond a limit elsewhere.
    far = max(filter(_is_far, evidence.off), key=lambda one: abs(one.shift), default=None)
    if far is not None:
        text = f"the mean of '{far.site}' is about {abs(far.shift):.2f} posterior sds off"
        return Verdict("nothing", f"{text}{_also(sd)}", cure, evidence)
    wrong = max(filter(_is_wide, evidence.off), key=lambda one: abs(one.spread), default=None)
    if wrong is not None:
        text = f"the {wrong.width} of '{wrong.site}' is about {times(wrong.spread)} that of the "
        text += "posterior"
        if wrong.spread < POINT:
            text += ": what is so much narrower tells nothing of means either"
            return Verdict("nothing", text, NUTS, evidence)
        return Verdict("means", text, cure, evidence)
    if evidence.by == "curvature":
        return Verdict("means", _uneven(evidence), NUTS, evidence)
    unknown = max(one.shift_error for one in evidence.off)
    if SURE * unknown > MEAN and any(one.what == "rows" for one in evidence.findings):
        return Verdict("means", _some_rows(evidence, sd), ALL_ROWS, evidence)
    slight = max(abs(mean.shift) - mean.shift_error, abs(sd.spread) - sd.spread_error)
    return Verdict("all", _good(evidence, mean, sd), cure if slight > SLIGHT else "", evidence)


def _is_far(one: Off) -> bool:
    """Whether the mean of a site is known to be beyond the limit."""
    return abs(one.shift) > MEAN and abs(one.shift) > SURE * one.shift_error


def _is_wide(one: Off) -> bool:
    """The same of its sd, whichever way."""
    limit = NEAR * SD - min(0.5 * one.spread_error, LEAN * SD)
    return abs(one.spread) > limit and abs(one.spread) > SURE * one.spread_error


def _uneven(evidence: Evidence) -> str:
    return (
        f"the importance weights of {evidence.draws:,} draws are too uneven to tell (k-hat "
        f"{evidence.k_hat:.1f}, effective size {evidence.efficiency:.0%})"
    )


def _some_rows(evidence: Evidence, sd: Off) -> str:
    (rows,) = (one.text for one in evidence.findings if one.what == "rows")
    wide = 100 * max(abs(math.expm1(sd.spread)), 0.01)
    return f"sds are within {wide:.0f}%, but means are not known: {rows[0].lower()}{rows[1:-1]}"


def _also(sd: Off) -> str:
    far = abs(sd.spread) > SD
    return f", and the {sd.width} of '{sd.site}' about {times(sd.spread)} it" if far else ""


def _good(evidence: Evidence, mean: Off, sd: Off) -> str:
    heavy = [f"'{one.site}'" for one in evidence.off if one.middle]
    middle = f" (of {', '.join(heavy)}, the widths of their middle)" if heavy else ""
    return (
        f"means are within {max(abs(mean.shift), 0.01):.2f} posterior sds and sds{middle} within "
        f"{100 * max(abs(math.expm1(sd.spread)), 0.01):.0f}%, by {evidence.draws:,} draws"
    )
