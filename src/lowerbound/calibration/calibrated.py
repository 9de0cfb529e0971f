"""What a calibration has found, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lowerbound.calibration.ranks import INTERVALS, Quantity, quantity, rejected
from lowerbound.errors.wording import counted
from lowerbound.result.verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.01  # how often a method that is right is called wrong
POWER = 0.8  # with which what is said to have been visible is seen
SHOWN, NAMED = 20, 3  # quantities in a table, and in a sentence
MANY_FAILED = 0.05  # of all simulations, from which those that are left may be a selection
TESTS = ("bias", "dispersion", "shape")
DENSITY = "log p(x, z)"
CURE = 'lb.fit(..., until="trusted"), or a richer q'


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Whether q is right on average over data sets that the model itself makes.

    quantities: one `Quantity` a number, with its bias, its dispersion, the coverage of intervals
    and the p-values of three exact tests. ranks: by quantity, (simulations,), uniform on (0, 1)
    where q is the posterior. verdict: in words. failed: what the fits of some data sets raised.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> found = lb.calibrate(coin, y, simulations=40)
    >>> found.verdict.trust, sorted(found.ranks), len(found.ranks["p"])
    ('all', ['log p(x, z)', 'p'], 40)
    """

    model: str
    method: str
    quantities: tuple[Quantity, ...]
    ranks: Mapping[str, np.ndarray]
    draws: int
    stop_reason: str
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    level: float = LEVEL

    @property
    def simulations(self) -> int:
        """The number of data sets that were fitted."""
        return len(next(iter(self.ranks.values())))

    @property
    def calibrated(self) -> bool:
        """Whether no test is rejected."""
        return not any(one.wrong for one in self.quantities)

    @property
    def verdict(self) -> Verdict:
        """How far to trust the method on this model: "all" where no test is rejected."""
        wrong = sorted((q for q in self.quantities if q.wrong), key=lambda q: q.smallest)
        rate = (
            f"{3 * len(self.quantities)} tests, of which a method that is right fails one in "
            f"{self.level:.0%} of such studies"
        )
        if wrong:
            more = len(wrong) - NAMED
            said = "; ".join(_said(one) for one in wrong[:NAMED])
            others = f"; and {counted(more, 'quantity', 'quantities')} more" if more > 0 else ""
            biased = any("bias" in one.wrong and one.name != DENSITY for one in wrong)
            reason = f"{said}{others} ({self.simulations} simulations, {rate})"
            return Verdict("nothing" if biased else "means", reason, CURE)
        reason = (
            f"over {self.simulations} simulated data sets nothing is biased, and intervals hold "
            f"what they should ({rate}; {self._visible()})"
        )
        share = len(self.failed) / (len(self.failed) + self.simulations)
        if share > MANY_FAILED:
            failed = f"{share:.0%} of the simulated data sets could not be fitted"
            return Verdict("means", f"{failed}; of the others: {reason}", "narrower priors")
        return Verdict("all", reason)

    def _visible(self) -> str:
        """What such a study sees: four times in five, at this number of tests."""
        from scipy import stats

        critical = stats.norm.isf(self.level / (6 * len(self.quantities))) + stats.norm.ppf(POWER)
        shift, spread = (critical / math.sqrt(k * self.simulations) for k in (1, 2))
        return f"means off by {shift:.2f} sds, or sds by {math.expm1(spread):.0%}, would show"

    def table(self) -> pd.DataFrame:
        """One quantity a row."""
        import pandas as pd

        rows = []
        for one in self.quantities:
            row = asdict(one)
            shares = {f"in {level:.0%}": share for level, share in row.pop("coverage").items()}
            rows.append({**row, **shares, "wrong": ", ".join(one.wrong)})
        return pd.DataFrame(rows).set_index("name")

    def __repr__(self) -> str:
        heads = ["", "mean off by", "+-", "sd ratio", "+-"]
        heads += [f"in {level:.0%}" for level in INTERVALS]
        worst = sorted(self.quantities, key=lambda q: q.smallest)[:SHOWN]
        cells = [
            [
                f"{one.name}{' *' if one.wrong else ''}",
                f"{one.shift:+.2f} sd",
                f"{one.shift_error:.2f}",
                f"{one.ratio:.2f}",
                f"{one.ratio_error:.2f}",
                *(f"{share:.0%}" for share in one.coverage.values()),
            ]
            for one in self.quantities
            if one in worst
        ]
        lines = [f"Calibration of {self.method} on {self.model}: {self.stop_reason}"]
        lines += _aligned([heads, *cells])
        hidden = len(self.quantities) - len(cells)
        lines += [f"  and {counted(hidden, 'quantity', 'quantities')} more"] if hidden else []
        lines += [str(self.verdict), *self.notes]
        if self.failed:
            count = counted(len(self.failed), "data set", "data sets")
            lines.append(f"{count} could not be fitted; the first: {self.failed[0]}.")
        return "\n".join(lines)


def concluded(ranks: Mapping[str, np.ndarray], level: float = LEVEL) -> tuple[Quantity, ...]:
    """What the ranks say, with the tests that are rejected at the level of all of them together."""
    found = [quantity(name, u) for name, u in ranks.items()]
    p_values = np.array([[getattr(one, test) for test in TESTS] for one in found])
    wrong = rejected(p_values.ravel(), level).reshape(p_values.shape)
    return tuple(
        replace(one, wrong=tuple(test for test, bad in zip(TESTS, row, strict=True) if bad))
        for one, row in zip(found, wrong, strict=True)
    )


def _said(one: Quantity) -> str:
    """What is wrong with a quantity, in words."""
    if one.name == DENSITY:
        where = "high: q is too narrow in some direction" if one.shift > 0 else "low: q is too wide"
        return f"the density of draws of q is too {where}, or it is in the wrong place"
    parts = []
    if "bias" in one.wrong:
        side = "high" if one.shift > 0 else "low"
        parts.append(f"the mean of '{one.name}' is about {abs(one.shift):.2f} sds too {side}")
    if "dispersion" in one.wrong:
        parts.append(
            f"the sd of '{one.name}' is about {one.ratio:.2f} times what it should be (its 95% "
            f"intervals hold {one.coverage[0.95]:.0%})"
        )
    if not parts:
        parts.append(f"the marginal of '{one.name}' has the wrong shape")
    return ", and ".join(parts)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of a table, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first:<{widths[0]}}", *cells]).rstrip())
    return lines
