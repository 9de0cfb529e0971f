"""Methods are values: what to run, with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lowerbound.em import EM
from lowerbound.errors import ArgumentError, SettingError
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.model.leaves import Column, is_leaf

STARTS = ("auto", "k-means++", "rows", "random", "prior")


@dataclass(frozen=True, eq=False)
class CAVI:
    """Coordinate ascent variational inference (alg:cavi): exact updates, all data, step 1.

    restarts: independent starts, run together in one compiled batch; the best ELBO is kept.
    tolerance: stop when the relative change of the ELBO (or of `monitor`) in a sweep is below it;
        0 runs to `max_sweeps`.
    max_sweeps: stop after this many sweeps.
    blocks: groups of latent sites that share one factor, e.g. [("beta", "tau"), ("alpha",)]; sites
        not named are grouped by structure.
    init: "auto", "k-means++", "rows", "random", "prior", or a dict of site values to start from.
    monitor: held-out arguments of the model; stop by their average log predictive instead.
    precision: "float64" or "float32"; by default float64 on CPU and float32 on an accelerator.
    devices: spread the rows of the data over a number of devices, "all" (of all processes), a
        sequence of JAX devices or a mesh of one axis; None uses one.
    condition: one to three scalar sites theta, e.g. ("tau",): structured inference q(theta)
        q(z | theta), with theta on a grid and coordinate ascent given each of its points.
    augment: how to augment the density of a site, e.g. {"y": "polya-gamma"}; "none" leaves it.
    """

    restarts: int = 1
    tolerance: float = 1e-8
    max_sweeps: int = 2000
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"
    monitor: Any = None
    precision: str | None = None
    devices: Any = None
    condition: Sequence[str] = ()
    augment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        names = self.condition
        _check(
            self,
            (
                "condition",
                not isinstance(names, str) and all(isinstance(name, str) for name in names),
                'a tuple of site names, e.g. ("tau",)',
            ),
            (
                "condition",
                isinstance(names, str) or (len(names) <= 3 and len(set(names)) == len(names)),
                "at most three sites, each once: the grid has a dimension for each",
            ),
            ("restarts", _count(self.restarts), _COUNT),
            ("max_sweeps", _count(self.max_sweeps), _COUNT),
            *_common(self),
        )

    def __repr__(self) -> str:
        return _text(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class SVI:
    """Stochastic variational inference (alg:svi): natural gradients from minibatches of rows.

    batch_size: rows per step; by default 8192, or all where there are fewer.
    steps: stop after this many; by default when `monitor` has settled.
    delay, forgetting: step t = 0, 1, ... is (t + delay)^-forgetting, with forgetting in (0.5, 1];
        forgetting="adaptive" takes the step from the noise of the gradients.
    sampling: "epochs" draws rows without replacement, pass after pass; "uniform" as in the paper.
    average: return an average of the late iterates instead of the last.
    memoized: keep the expected statistics of every batch; full steps, a bound that never falls.
    plate: the plate of the rows, where several could be it.
    monitor: rows set aside to stop by their average log predictive: "auto" (up to 1000), their
        number, None, or other held-out arguments of the model.
    tolerance: stop when the relative gain of `monitor` (or of the noisy ELBO) over four
        evaluations is below it; with `memoized`, that of the ELBO in one pass. By default 1e-4
        (1e-8 with `memoized`), or 0 where `steps` are given, which runs them all.
    blocks, init, precision, devices, augment: as for CAVI; `init` is found on the first batch.
    """

    batch_size: int | None = None
    steps: int | None = None
    delay: float = 1.0
    forgetting: float | str = "adaptive"
    sampling: str = "epochs"
    average: bool = False
    memoized: bool = False
    plate: str | None = None
    monitor: Any = "auto"
    tolerance: float | None = None
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"
    precision: str | None = None
    devices: Any = None
    augment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        adaptive = self.forgetting == "adaptive"
        _check(
            self,
            ("batch_size", self.batch_size is None or _count(self.batch_size), _COUNT),
            ("steps", self.steps is None or _count(self.steps), _COUNT),
            ("delay", _size(self.delay) and self.delay > 0, "a number above 0"),
            (
                "forgetting",
                adaptive or (_size(self.forgetting) and 0.5 < float(self.forgetting) <= 1.0),
                'a number above 0.5 and up to 1, or "adaptive": only then do the steps (t + delay)'
                "^-forgetting sum to infinity and their squares do not (Robbins and Monro)",
            ),
            ("sampling", self.sampling in ("epochs", "uniform"), '"epochs" or "uniform"'),
            ("average", isinstance(self.average, bool), "True or False"),
            ("memoized", isinstance(self.memoized, bool), "True or False"),
            (
                "memoized",
                not (self.memoized and (self.sampling != "epochs" or self.average)),
                'memoized=True without average and with sampling="epochs": every batch is visited '
                "in turn, and the last iterate is the best",
            ),
            (
                "monitor",
                not isinstance(self.monitor, str) or self.monitor == "auto",
                '"auto", a number of rows, None, or held-out arguments of the model',
            ),
            (
                "monitor",
                not isinstance(self.monitor, int) or _count(self.monitor),
                "at least 1 row, or None for no held-out rows",
            ),
            *_common(self),
        )

    @property
    def least_gain(self) -> float:
        """The tolerance, or its default."""
        if self.tolerance is not None:
            return self.tolerance
        if self.steps is not None:
            return 0.0
        return 1e-8 if self.memoized else 1e-4

    def __repr__(self) -> str:
        return _text(self)


_COUNT = "an integer of at least 1"


def _common(method: Any) -> tuple[tuple[str, bool, str], ...]:
    """The rules of the settings that all methods share."""
    names = ", ".join(f'"{name}"' for name in STARTS)
    blocks = method.blocks or ()
    sites = [site for block in blocks for site in block]
    return (
        (
            "tolerance",
            _size(method.tolerance) or (method.tolerance is None and isinstance(method, SVI)),
            "a number of at least 0",
        ),
        (
            "init",
            isinstance(method.init, Mapping) or method.init in STARTS,
            f"one of {names}, or a dict of site values",
        ),
        (
            "precision",
            method.precision in (None, "float32", "float64"),
            '"float32", "float64" or None',
        ),
        (
            "blocks",
            not any(isinstance(block, str) for block in (method.blocks, *blocks)),
            'a list of tuples of site names, e.g. [("beta", "tau"), ("alpha",)]',
        ),
        ("blocks", len(set(sites)) == len(sites), "every site in one block at most"),
        (
            "augment",
            method.augment is None or isinstance(method.augment, Mapping),
            'a dict from sites to augmentations, e.g. {"y": "polya-gamma"}',
        ),
    )


def _check(method: Any, *rules: tuple[str, bool, str]) -> None:
    for name, valid, expected in rules:
        if not valid:
            found = getattr(method, name)
            kind = type(method).__name__
            raise SettingError(kind, name, found, expected)


def _text(method: Any) -> str:
    """A method with the settings that are not the default ones."""
    changed = {
        name: getattr(method, name)
        for name, f in method.__dataclass_fields__.items()
        if name not in ("monitor", "init") and getattr(method, name) != f.default
    }
    if isinstance(method.init, Mapping):
        changed["init"] = f"<values of {', '.join(method.init)}>"
    elif method.init != "auto":
        changed["init"] = method.init
    default = method.__dataclass_fields__["monitor"].default
    if isinstance(method.monitor, int | None):
        if method.monitor != default:
            changed["monitor"] = method.monitor
    elif not isinstance(method.monitor, str):
        changed["monitor"] = "<held-out data>"
    return f"{type(method).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def _size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


Method = CAVI | SVI
METHODS: dict[str, type[CAVI] | type[SVI] | type[Gaussian] | type[EM]] = {
    "cavi": CAVI,
    "svi": SVI,
    "gaussian": Gaussian,
    "em": EM,
}


def is_auto(method: Any) -> bool:
    """Whether the library is to choose."""
    return isinstance(method, str) and method.lower() == "auto"


def has_columns(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether some argument is a column of a stream."""
    leaves = jax.tree.leaves((args, dict(kwargs)), is_leaf=is_leaf)
    return any(isinstance(leaf, Column) for leaf in leaves)


def as_method(method: Any) -> CAVI | SVI | Gaussian | EM:
    """A method value from a value or its shorthand."""
    if isinstance(method, CAVI | SVI | Gaussian | EM):
        return method
    if isinstance(method, str) and method.lower() in METHODS:
        return METHODS[method.lower()]()
    if isinstance(method, type) and issubclass(method, CAVI | SVI | Gaussian | EM):
        return method()
    raise ArgumentError(
        f'fit got method={method!r}.\nExpected "auto", "cavi", "svi", "gaussian" or a method value '
        "such as lb.CAVI(restarts=10)."
    )
