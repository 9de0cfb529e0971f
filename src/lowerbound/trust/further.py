"""What takes longer to see of a fit: linear response, short chains, the prior, rows left out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import quickly
from lowerbound.errors import LowerboundError
from lowerbound.result.evidence import Evidence, Finding, Off, k_threshold
from lowerbound.result.fitted import Fit
from lowerbound.result.unseen.new_rows import row_axes, rows_in
from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.correcting import correct
from lowerbound.trust.drift import drifted
from lowerbound.trust.estimates import LEAST_ACCEPTED, moved_off
from lowerbound.trust.rows_left_out import left_out, row_log_densities
from lowerbound.trust.weighing import weighted

PRIOR_DRAWS = 1000
ROW_DENSITIES = 4_000_000  # in all, of rows at draws
FEWEST, MOST = 200, 2000  # draws for them
MOST_NUMBERS = 2000  # in the sites whose response is asked for

Part = Callable[[Fit, Against, Drawn], Iterator[Finding]]


def further(fit: Fit, judge: Against, drawn: Drawn, evidence: Evidence, points: int) -> Evidence:
    """The evidence with all that is left to look at. What cannot be had is left out."""
    findings: list[Finding] = []
    parts: tuple[Part, ...] = (_prior, _predictive)
    for part in parts:
        try:
            findings += part(fit, judge, drawn)
        except (LowerboundError, NotImplementedError):  # a prior that cannot be drawn from, say
            continue
    return replace(
        evidence,
        response=_response(fit, judge),
        drift=_drift(judge, drawn, evidence, points),
        findings=(*evidence.findings, *findings),
    )


def _response(fit: Fit, judge: Against) -> tuple[Off, ...]:
    """The sds of q over those by linear response, where q is at an optimum that has one."""
    if judge.coordinates.size > MOST_NUMBERS or not fit.whole:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            better = correct(fit, "linear-response", draws=1000)
    except LowerboundError:
        return ()
    found = []
    for site in judge.coordinates.shapes:
        with np.errstate(all="ignore"):
            ratio = np.log(np.ravel(fit.sd(site)) / np.ravel(better.sd(site)))
        ratio = ratio[np.isfinite(ratio)]
        if ratio.size:
            found.append(Off(site, 0.0, float(ratio[np.argmax(np.abs(ratio))])))
    return tuple(found)


def _drift(judge: Against, drawn: Drawn, evidence: Evidence, points: int) -> tuple[Off, ...]:
    """Where short chains from q go."""
    if evidence.by == "chains":
        return evidence.off
    moved = drifted(lambda u: judge.target(u, few=True), drawn, points)
    if moved is None or moved.accepted < LEAST_ACCEPTED:
        return ()
    return moved_off(judge, judge.moments(judge.values(drawn.vectors), drawn), moved)


def _prior(fit: Fit, judge: Against, drawn: Drawn) -> Iterator[Finding]:
    """Sites whose mean lies where the prior has no draw."""
    model = judge.coordinates.program()
    improper = {n for n, s in model.latent.items() if s.distribution.startswith("Improper")}

    def draws(keys: Any) -> Any:
        return jax.vmap(model.draw)(keys)

    with jax.enable_x64(True):
        before = quickly(draws)(jax.random.split(jax.random.key(fit.seed), PRIOR_DRAWS))
    after = judge.values(drawn.vectors)
    for site, values in after.items():
        if site in improper:
            continue
        prior = np.asarray(before[site], float).reshape(PRIOR_DRAWS, -1)
        mean = values.reshape(len(values), -1).mean(axis=0)
        beyond = np.minimum((prior <= mean).mean(axis=0), (prior >= mean).mean(axis=0))
        worst = int(np.argmin(beyond))
        if beyond[worst] == 0.0:
            count = int((beyond == 0.0).sum())
            what = f"'{site}'" if mean.size == 1 else f"{count} of {mean.size} numbers of '{site}'"
            text = f"The prior is at odds with the data: none of {PRIOR_DRAWS:,} draws of it goes "
            yield Finding("prior", f"{text}as far as the mean of {what}.", site, float(count))


def _predictive(fit: Fit, judge: Against, drawn: Drawn) -> Iterator[Finding]:
    """How much better rows are predicted that q has seen than those that it has not."""
    if not fit.whole:
        return
    model = fit.own_model()
    row_axes(model)
    count = min(len(drawn.vectors), MOST, ROW_DENSITIES // max(rows_in(model), 1))
    if count < FEWEST:
        return
    values = judge.values(drawn.vectors[:count])
    if any(n not in values for n in model.latent if n not in model.local):
        return
    own = weighted({}, drawn.vectors[:count], drawn.log_ratios[:count])
    ratios = drawn.log_ratios[:count] if own.tells else np.zeros(count)
    with jax.enable_x64(True):
        given = {n: jnp.asarray(a) for n, a in values.items()}
        densities = np.asarray(row_log_densities("fit", model, given)[0])
    densities = np.broadcast_to(densities, (count, densities.shape[1]))  # without globals, of none
    out, k_hats = left_out(densities, ratios)
    weights = np.exp(ratios - ratios.max())
    seen = np.log((weights / weights.sum()) @ np.exp(densities - densities.max(axis=0)))
    seen = seen + densities.max(axis=0)
    difference = float((seen - out).sum())
    error = math.sqrt(len(out)) * float((seen - out).std())
    most = k_threshold(count)
    text = (
        f"A row's log predictive density is {seen.mean():.3f} with the row and {out.mean():.3f} "
        f"without it, {difference:.1f} (+- {error:.1f}) nats in all; {int((k_hats > most).sum())} "
        f"of {len(out):,} rows decide too much to tell."
    )
    yield Finding("predictive", text, value=difference)
