"""Priors of a formula's sites: weak by default, scaled to the data, and stated as code."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.errors import PriorError
from lowerbound.formulas.design import Design
from lowerbound.formulas.encodings import Columns

WIDE = 2.5  # standard deviations of the response for one of a column


@dataclass(frozen=True)
class Scales:
    """What default priors are scaled to: where the predictor lies, and how far responses vary."""

    centre: float
    spread: float

    def of_column(self, values: np.ndarray) -> float:
        """A wide scale of the coefficient of a column."""
        deviation = float(np.std(values))
        return WIDE * self.spread / (deviation or float(np.abs(values).max()) or 1.0)

    def of_columns(self, columns: Columns) -> list[float]:
        """One scale for every column of a term."""
        return [self.of_column(v) for v in columns.values.reshape(len(columns.values), -1).T]


def scales_of(design: Design) -> Scales:
    """Read the scales off the response."""
    y, link = design.outcome.values.astype(float), design.outcome.family.link
    offset = float(sum(np.mean(one.values) for one in design.offsets))
    if link == "identity":
        return Scales(float(np.mean(y)) - offset, float(np.std(y)))
    if link == "log":
        return Scales(float(np.log(max(np.mean(y), 0.5 / len(y)))) - offset, 1.0)
    if link != "logit":
        return Scales(0.0, 1.0)
    trials = design.about.get("trials", 1.0)
    of = trials.values if isinstance(trials, Columns) else np.full(len(y), float(trials))
    share = (float(np.sum(y)) + 0.5) / (float(np.sum(of)) + 1.0)
    return Scales(float(np.log(share / (1.0 - share))) - offset, 1.0)


def intercept_scale(design: Design, scales: Scales) -> float:
    """Wide where the columns have their means, and as much wider as zero is away from these."""
    variance = (WIDE * scales.spread) ** 2
    for columns in design.common:
        means = columns.values.reshape(len(columns.values), -1).mean(axis=0)
        variance += float(np.sum((means * scales.of_columns(columns)) ** 2))
    return float(np.sqrt(variance))


def number(value: float) -> str:
    """A number of three digits, as code."""
    return repr(float(f"{value:.3g}"))


def numbers(values: Sequence[float]) -> str:
    """One number, or an array of them where they differ."""
    texts = [number(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else f"jnp.array([{', '.join(texts)}])"


def extra_prior(design: Design, scales: Scales, site: str) -> str:
    """The prior of a site that belongs to the family."""
    y = design.outcome.values.astype(float)
    if site == "sigma":
        return f"dist.HalfNormal({number(WIDE * scales.spread)})"
    if site == "nu":
        return "dist.Gamma(2.0, 0.1)"
    mean, variance = float(np.mean(y)), float(np.var(y))
    if site == "shape":
        # Were all rows alike, the shape would be mean^2 / variance; they differ, so it is more.
        return f"dist.Exponential({number(variance / mean**2 / 10.0)})"
    if site == "concentration":
        alike = mean**2 / (variance - mean) if variance > mean else 10.0
        return f"dist.Exponential({number(0.1 / max(alike, 1.0))})"
    return _cutpoints(design, scales)


def _cutpoints(design: Design, scales: Scales) -> str:
    """Cumulative logits of the shares: the first, and the logarithms of the steps between them."""
    levels = len(design.outcome.levels)
    counts = np.bincount(design.outcome.values, minlength=levels) + 0.5
    shares = np.cumsum(counts / counts.sum())[:-1]
    cuts = np.log(shares / (1.0 - shares))
    first = [number(cuts[0]), *(number(np.log(step)) for step in np.diff(cuts))]
    wide = [intercept_scale(design, scales), *[1.0] * (levels - 2)]
    normal = f"dist.Normal(jnp.array([{', '.join(first)}]), {numbers(wide)}).to_event(1)"
    return f"dist.TransformedDistribution({normal}, dist.transforms.OrderedTransform())"


@dataclass(frozen=True)
class Given:
    """The priors that a user has given, by site or by kind of site, as code."""

    laws: dict[str, Any]

    def code(self, site: str, kind: str, default: str, width: int | None = None) -> str:
        """The prior of a site: the user's, or else the default; of so many elements, together."""
        given = self.laws.get(site, self.laws.get(kind))
        if given is None:
            if width is None:
                return default
            expand = "" if "jnp.array" in default else f".expand([{width}])"
            return f"{default}{expand}.to_event(1)"
        law = written(site if site in self.laws else kind, given)
        return law if width is None else f"{law}.expand([{width}]).to_event(1)"

    def concentration(self, site: str) -> str:
        """That of a correlation matrix."""
        given = self.laws.get(site, self.laws.get("cor", 2.0))
        if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
            raise PriorError.correlation(site if site in self.laws else "cor", given)
        return number(given)

    def check(self, kinds: Mapping[str, str]) -> None:
        """Every prior has to be that of something; `kinds` has the kind of every site."""
        for name in self.laws:
            if name not in kinds and name not in kinds.values():
                raise PriorError.unknown(name, tuple(kinds), sorted(set(kinds.values())))


def written(name: str, law: Any) -> str:
    """A distribution as code: dist.Normal(0.0, 10.0)."""
    import numpyro.distributions as dist

    if isinstance(law, dist.Distribution):
        if law.batch_shape or law.event_shape:
            raise PriorError.law(name, law, f"which has shape {law.batch_shape + law.event_shape}")
        values = {key: getattr(law, key, None) for key in law.arg_constraints}
        kind = type(law).__name__
        if getattr(dist, kind, None) is not type(law) or any(v is None for v in values.values()):
            raise PriorError.law(name, law, "which cannot be written down")
        texts = [f"{key}={float(value)!r}" for key, value in values.items() if value is not None]
        return f"dist.{kind}({', '.join(texts)})"
    if not isinstance(law, str):
        raise PriorError.law(name, law, f"a {type(law).__name__}")
    try:
        call = ast.parse(law.strip(), mode="eval").body
    except SyntaxError:
        raise PriorError.law(name, law, "which is no expression") from None
    if not isinstance(call, ast.Call):
        raise PriorError.law(name, law, "which is no distribution")
    kind = ast.unparse(call.func).removeprefix("dist.")
    if not isinstance(getattr(dist, kind, None), type) or not _plain(call):
        raise PriorError.law(name, law, "which is no distribution with numbers")
    made = f"{kind}({', '.join(ast.unparse(part) for part in (*call.args, *call.keywords))})"
    try:
        found = eval(f"dist.{made}", {"dist": dist})  # a name of NumPyro and numbers, as checked
    except Exception as error:
        raise PriorError.law(name, law, f"which NumPyro refuses ({error})") from error
    if found.batch_shape or found.event_shape:
        raise PriorError.law(name, law, f"which has shape {found.batch_shape + found.event_shape}")
    return f"dist.{made}"


def _plain(call: ast.Call) -> bool:
    """Whether all arguments are numbers."""
    for part in (*call.args, *(keyword.value for keyword in call.keywords)):
        value = part.operand if isinstance(part, ast.UnaryOp) else part
        if not isinstance(value, ast.Constant) or not isinstance(value.value, int | float):
            return False
    return True
