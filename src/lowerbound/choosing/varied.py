"""`sweep`: fits over the values of one argument, compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowerbound.api import RESERVED, check_reserved
from lowerbound.api import fit as fit_one
from lowerbound.choosing.compared import Comparison
from lowerbound.choosing.comparing import compare
from lowerbound.compiled import heard
from lowerbound.errors import (
    ArgumentError,
    ConvergenceWarning,
    LowerboundError,
    SettingError,
    TrustWarning,
)
from lowerbound.errors.wording import first_line, quoted, short
from lowerbound.result.answer import Stop
from lowerbound.result.fitted import Fit
from lowerbound.run.loop import callers, followed
from lowerbound.run.planned import Info, Stepped

CRITERIA = ("elbo", "loo", "k-fold")


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Fits over the values of one argument.

    argument: its name. values: those that were fitted, in their order, and `fits` by name, "K=3"
    say. comparison: as of `lb.compare`. failed: name -> what the fit of a value has raised.
    stop_reason: why it ended.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> found = lb.sweep(coin, y, method=[lb.CAVI(), lb.Laplace()])
    >>> found.values, found.best.method, found[lb.CAVI()].method
    ((CAVI(), Laplace()), 'CAVI()', 'CAVI()')
    """

    argument: str
    values: tuple[Any, ...]
    fits: dict[str, Fit]
    comparison: Comparison
    stop_reason: str
    failed: Mapping[str, LowerboundError] = field(default_factory=dict)

    @property
    def best(self) -> Fit:
        """The best fit."""
        return self.fits[self.comparison.best]

    @property
    def best_value(self) -> Any:
        """The value of the argument that it is of."""
        return self.values[list(self.fits).index(self.comparison.best)]

    def __getitem__(self, value: Any) -> Fit:
        for own, fit in zip(self.values, self.fits.values(), strict=True):
            if own is value or (type(own) is type(value) and own == value):
                return fit
        known = ", ".join(short(own) for own in self.values)
        raise KeyError(f"{short(value)} is not among the values of {self.argument}: {known}")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        lines = [f"Sweep over {self.argument}, {self.stop_reason}", repr(self.comparison)]
        lines += [f"{name} failed: {first_line(error)}." for name, error in self.failed.items()]
        return "\n".join(lines)


def sweep(
    model: Callable[..., Any],
    *args: Any,
    by: str = "elbo",
    method: Any = "auto",
    seed: int = 0,
    progress: bool | None = None,
    until: str | None = None,
    **kwargs: Any,
) -> Sweep:
    """Fits over the values of one argument, `K=range(1, 10)` say, compared as by `lb.compare`.

    One keyword argument holds the values: a range, or else the only list or tuple among them;
    `method` may be it too. All else goes to `lb.fit`, as do `method`, `seed` and `until`; by ELBO
    fits stay as they were fitted unless `until` says otherwise, as a bound by weighted draws is
    above those of q. A value whose fit raises an error is left out, and said. Fits of equal
    programs share what is compiled. Within `lb.interruptible()` Ctrl-C returns what there is.

    `found.best` is the best fit, `found[3]` that of a value, and `lb.plot.sweep(found)` draws
    them. Fits that are not to be trusted are marked, and warn where the best is one of them.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> import numpyro, numpyro.distributions as dist
    >>> def biased(y, a):
    ...     p = numpyro.sample("p", dist.Beta(a, 1.0))
    ...     numpyro.sample("y", dist.Bernoulli(p).expand([4]).to_event(1), obs=y)
    >>> found = lb.sweep(biased, y, a=[1.0, 2.0])
    >>> found.best_value, round(found.best.elbo, 3)  # log of 2 B(5, 2)
    (2.0, -2.708)
    """
    reserved = (*RESERVED, "by")
    check_reserved(model, reserved, "sweep")
    if by not in CRITERIA:
        expected = f"one of {', '.join(map(repr, CRITERIA))}; lb.compare(found.fits, test=...) too"
        raise SettingError("sweep", "by", by, expected)
    if "checkpoint" in kwargs:
        expected = "none: a folder holds the state of one fit. Pass it to lb.fit of a single value"
        raise SettingError("sweep", "checkpoint", kwargs["checkpoint"], expected)
    name, values = _varied(method, kwargs)
    until = "fitted" if until is None and by == "elbo" else until
    settings: dict[str, Any] = {"method": method, "seed": seed, "until": until, "progress": False}
    names = [short(v) if name == "method" else f"{name}={short(v)}" for v in values]
    if len(set(names)) < len(names):
        names = [f"{one} ({i})" for i, one in enumerate(names)]

    def fitted(value: Any) -> Fit:
        with warnings.catch_warnings():
            for kind in (TrustWarning, ConvergenceWarning):  # the comparison marks them
                warnings.simplefilter("ignore", kind)
            return fit_one(model, *args, **{**kwargs, **settings, name: value})

    with heard():
        course = followed(_Fits(name, dict(zip(names, values, strict=True)), fitted), progress)
        found = course.state
        if not found.fits:
            raise next(iter(found.failed.values()))
        comparison = compare(found.fits, by, seed=seed, progress=progress)
        done = tuple(v for one, v in zip(names, values, strict=True) if one in found.fits)
        result = Sweep(name, done, found.fits, comparison, course.stop.text, found.failed)
    if result.best.verdict.trust != "all" and result.best.verdict.evidence is not None:
        text = f"The best fit of the sweep, {comparison.best}. {result.best.verdict}"
        warnings.warn(TrustWarning(text), stacklevel=callers())
    return result


def _varied(method: Any, kwargs: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The argument that holds several values, and these."""
    every = {**kwargs, **({"method": method} if isinstance(method, list | tuple) else {})}
    ranges = [name for name, value in every.items() if isinstance(value, range)]
    several = ranges or [name for name, value in every.items() if isinstance(value, list | tuple)]
    if len(several) != 1:
        found = f"several: {quoted(several)}" if several else "no argument with several values"
        raise ArgumentError(
            f"sweep got {found}.\nExpected one keyword argument with the values to fit, such as "
            "K=range(1, 10); bind other lists by functools.partial(model, ...)."
        )
    values = tuple(every[several[0]])
    if not values:
        raise SettingError("sweep", several[0], every[several[0]], "at least one value")
    return several[0], values


@dataclass(frozen=True)
class _Found:
    fits: dict[str, Fit] = field(default_factory=dict)
    failed: dict[str, LowerboundError] = field(default_factory=dict)


class _Fits(Stepped[_Found]):
    """One fit after the other, as steps of the loop that carries out every plan."""

    unit = "fit"

    def __init__(self, name: str, values: Mapping[str, Any], fitted: Callable[[Any], Fit]) -> None:
        self.name, self.values, self.fitted = name, list(values.items()), fitted
        self.total = len(values)

    @property
    def title(self) -> str:
        """What is varied."""
        return f"sweep over {self.name}"

    def init(self) -> _Found:
        """No fit."""
        return _Found()

    def step(self, state: _Found, until: int) -> tuple[_Found, Info]:
        """The fit of the next value."""
        done = len(state.fits) + len(state.failed)
        name, value = self.values[done]
        fits, failed, text = dict(state.fits), dict(state.failed), f"of {self.total} values"
        stop = None if done + 1 < self.total else Stop(True, f"{self.total} values")
        try:
            fits[name] = self.fitted(value)
        except LowerboundError as error:
            error.add_note(f"In the fit of {name}.")
            failed[name] = error
        else:
            if fits[name].stop.interrupted:
                stop = Stop(False, f"interrupted after {done + 1} {text}")
        value_of = fits[name].elbo if name in fits else np.nan
        shown = f"{name}: {value_of:.6g}"
        return _Found(fits, failed), Info(done + 1, np.array([value_of]), shown, stop)
