"""A comparison of fits: what was found of each, best first, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    import pandas as pd

CLEAR = 2.0  # standard errors of a difference that is no noise
ALIKE = 4.0  # nats: smaller differences over rows are not told by their errors (Sivula et al. 2020)
TITLES = {
    "elbo": "ELBO, in nats with all constants",
    "held-out": "log predictive density of new rows, in nats",
    "loo": "PSIS leave-one-out log predictive density, in nats",
    "k-fold": "log predictive density of rows left out by fold, in nats",
}


@dataclass(frozen=True)
class Candidate:
    """What a comparison has found of one fit.

    value, error: the criterion, higher is better, and its standard error. difference,
    difference_error: less that of the best, and the standard error of that. weight: by ELBO the
    posterior probability of the model among these, a priori equal ones; else that of the mixture of
    predictive densities with the highest score (stacking, Yao et al. 2018). trust, verdict: those
    of the fit; where `trust` is not "all" the value may be wrong. gap: nats by which the posterior
    has shown the ELBO to be loose, where that is known. bad: rows whose k-hat is too large.
    """

    name: str
    value: float
    error: float
    difference: float
    difference_error: float
    weight: float
    trust: str
    verdict: str
    method: str
    gap: float | None = None
    bad: int | None = None

    @property
    def marked(self) -> bool:
        """Whether the value may be wrong."""
        return self.trust != "all" or bool(self.bad)


@dataclass(frozen=True)
class Score:
    """The criterion of one fit; `rows` are its parts where it is a sum over rows.

    k_hats: of each row, by leave-one-out. notes: how the densities were found.
    """

    value: float
    error: float
    rows: np.ndarray | None = None
    k_hats: np.ndarray | None = None
    most: float = math.inf  # the k-hat that is still good
    notes: tuple[str, ...] = ()

    @property
    def bad(self) -> int | None:
        """Rows whose density is not to be trusted."""
        return None if self.k_hats is None else int((~(self.k_hats <= self.most)).sum())

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> Score:
        """A sum over rows, and its standard error."""
        return cls(float(rows.sum()), _spread(rows), rows)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Fits of the same data, best first.

    by: the criterion. rows: one `Candidate` a fit. pointwise: fit -> the density of every row, and
    k_hats: fit -> the k-hat of every row, where the criterion is a sum over rows. notes: what is
    worth knowing of how the numbers were found.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> found = lb.compare({"flat": lb.fit(coin, y)})
    >>> found.best, found.rows[0].trust, round(found.rows[0].value, 3)
    ('flat', 'all', -2.996)
    """

    by: str
    rows: tuple[Candidate, ...]
    pointwise: Mapping[str, np.ndarray] = field(default_factory=dict)
    k_hats: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the best fit."""
        return self.rows[0].name

    @property
    def conclusion(self) -> str:
        """One sentence: which is best, and by how much."""
        if len(self.rows) == 1:
            return f"There is one fit, '{self.best}'."
        second = self.rows[1]
        ahead, error = abs(second.difference), second.difference_error
        lead = f"{ahead:,.{_digits(ahead)}f} nats ahead of '{second.name}'"
        if error > 0:
            lead += f" ({ahead / error:.1f} standard errors)"
        alike = self.by != "elbo" and ahead < ALIKE
        if alike or ahead <= CLEAR * error or ahead <= 1e-9 * abs(second.value):
            return f"'{self.best}' is best, but not clearly: {lead}."
        loose = max(second.gap or 0.0, 0.0)
        if self.by == "elbo" and loose > ahead:
            return (
                f"'{self.best}' has the highest ELBO, {lead}, whose ELBO is loose by {loose:.1f} "
                'nats: correct both by lb.correct(fit, "psis") and compare these.'
            )
        return f"'{self.best}' is best, {lead}."

    def table(self) -> pd.DataFrame:
        """The rows as a table, one fit a row, best first."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows]).set_index("name")

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        count = f"{len(self.rows)} fit{'s' if len(self.rows) > 1 else ''}"
        lines = [f"Comparison of {count} by {TITLES[self.by]}"]
        digits = _digits(min((-r.difference for r in self.rows[1:]), default=1.0))
        heads = ["", "value", "+-", "difference", "+-", "weight", "trust"]
        cells = [
            [
                row.name,
                f"{row.value:,.{digits}f}",
                f"{row.error:.2g}" if row.error else "",
                f"{row.difference:,.{digits}f}" if row.difference else "",
                f"{row.difference_error:.2g}" if row.difference_error else "",
                f"{row.weight:.2f}",
                f"{row.trust}{' *' if row.marked else ''}",
            ]
            for row in self.rows
        ]
        if any(row.bad is not None for row in self.rows):
            heads.append("bad rows")
            for cell, row in zip(cells, self.rows, strict=True):
                cell.append(f"{row.bad}")
        lines += _aligned([heads, *cells])
        lines += [self.conclusion]
        for row in self.rows:
            if row.trust != "all":
                lines.append(f"* {row.name}: its number may be wrong. {row.verdict}")
            if row.bad:
                lines.append(
                    f"* {row.name}: {row.bad} row{'s' if row.bad > 1 else ''} cannot be left out "
                    'by weights (k-hat too large); by="k-fold" leaves them out indeed.'
                )
        return [*lines, *self.notes]


def ranked(by: str, fits: Mapping[str, Fit], scores: Mapping[str, Score]) -> Comparison:
    """The comparison of fits whose scores are known."""
    order = sorted(fits, key=lambda name: -_rank(scores[name].value))
    best, weights = scores[order[0]], _weights(scores)
    rows = tuple(
        Candidate(
            name,
            scores[name].value,
            scores[name].error,
            *_difference(scores[name], best),
            weights[name],
            fits[name].verdict.trust,
            str(fits[name].verdict),
            fits[name].method,
            _gap(fits[name]) if by == "elbo" else None,
            scores[name].bad,
        )
        for name in order
    )
    notes = {note: None for name in order for note in scores[name].notes}
    return Comparison(
        by,
        rows,
        {n: s.rows for n in order if (s := scores[n]).rows is not None},
        {n: s.k_hats for n in order if (s := scores[n]).k_hats is not None},
        tuple(notes),
    )


def _rank(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _gap(fit: Fit) -> float | None:
    evidence = fit.verdict.evidence
    if fit.answer.exact:
        return 0.0
    return None if evidence is None else evidence.gap


def _difference(score: Score, best: Score) -> tuple[float, float]:
    """The difference to the best and its standard error; rows in common make it smaller."""
    if score is best:
        return 0.0, 0.0
    if score.rows is None or best.rows is None:
        return score.value - best.value, math.hypot(score.error, best.error)
    rows = score.rows - best.rows
    return float(rows.sum()), _spread(rows)


def _spread(rows: np.ndarray) -> float:
    """The standard error of a sum of independent rows."""
    return float(math.sqrt(len(rows)) * rows.std(ddof=1)) if len(rows) > 1 else math.nan


def _weights(scores: Mapping[str, Score]) -> dict[str, float]:
    names = list(scores)
    rows = [one for name in names if (one := scores[name].rows) is not None]
    if len(rows) == len(names):
        return dict(zip(names, stacked(np.stack(rows, axis=1)), strict=True))
    values = np.array([_rank(scores[name].value) for name in names])
    weights = np.exp(values - values.max())
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))


def stacked(log_densities: np.ndarray, rounds: int = 2000) -> list[float]:
    """Weights w of the mixture with the highest sum_i log sum_k w_k p_ik, of (rows, K).

    The sum is concave in w; each round of expectation-maximisation raises it.

    >>> [round(w, 2) for w in stacked(np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]))]
    [0.71, 0.29]
    """
    fine = np.isfinite(log_densities).all(axis=1)
    if not fine.any():
        return [math.nan] * log_densities.shape[1]
    kept = log_densities[fine]
    densities = np.exp(kept - kept.max(axis=1, keepdims=True))
    weights = np.full(densities.shape[1], 1.0 / densities.shape[1])
    for _ in range(rounds):
        shares = densities * weights
        new = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(new - weights).max() < 1e-9:
            break
        weights = new
    return [float(weight) for weight in weights]


def _digits(size: float) -> int:
    """Decimals that show a number of this size with two digits."""
    if not (math.isfinite(size) and size > 0):
        return 1
    return int(np.clip(1 - math.floor(math.log10(size)), 1, 6))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of a table, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = row
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first:<{widths[0]}}", *cells]).rstrip())
    return lines
