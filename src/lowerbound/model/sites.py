"""The records of a model p(z, x): plates, sites, and the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions.constraints import Constraint
from numpyro.infer.util import log_density

from lowerbound.model.density import Density, density_of
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.looking import Sight
from lowerbound.model.program import (
    Given,
    Inspector,
    KeepInside,
    MaskMissing,
    Message,
    PlainSites,
    Subsampled,
    WholePlates,
    execute,
)


@dataclass(frozen=True)
class Plate:
    """A set of conditionally independent copies; `dim` counts batch dimensions from the right."""

    name: str
    size: int
    dim: int


@dataclass(frozen=True, eq=False)
class Site:
    """One random variable of the program (or one deterministic function of them).

    `distribution` is the class name without wrappers; `numpyro.factor` is an observed "Unit".
    `batch_shape` is the shape of the site's log density, after plates and broadcast with the
    observed value. `plates` are outermost first. `where` is the line of the model, "model.py:14".
    `support` is the support of the innermost distribution, None when it depends on latent values.
    `support_values` are the values of a finite discrete latent, `categories` their number.
    `moving` says that the support depends on latent values.
    `missing` is True where an observed entry is missing: one element per event of the innermost
    distribution, so entries of a `to_event` vector can be missing one by one.
    """

    name: str
    kind: Literal["latent", "observed", "deterministic"]
    distribution: str
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    support: Constraint | None
    plates: tuple[Plate, ...]
    where: str
    categories: int | None = None
    support_values: np.ndarray | None = None
    missing: np.ndarray | None = None
    moving: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the site's value: batch, then event."""
        return self.batch_shape + self.event_shape

    @property
    def is_factor(self) -> bool:
        """Whether the site is a `numpyro.factor`, which observes nothing."""
        return self.kind == "observed" and self.distribution == "Unit"


def shared_plates(observed: Sequence[tuple[Plate, ...]]) -> list[Plate]:
    """The plates that hold all observed sites, outermost first; `observed` are theirs."""
    if not observed:
        return []
    return [
        plate
        for plate in observed[0]
        if all(plate.name in {p.name for p in plates} for plates in observed)
    ]


@dataclass(frozen=True, eq=False)
class Model:
    """The joint density p(z, x) that a NumPyro program states for given data.

    `sight` names the data arguments whose values the program inspects in Python: every run
    uses the arrays of the trace for these, whatever `data` holds. `plate` names the plate of the
    rows where the user has chosen it. `subsampled` are the plates of which the program takes some
    rows only; they hold all of them here. `single` says that the program computes in 32 bits.
    `ignored` are the data arguments where no density depends on any.
    """

    function: Callable[..., Any]
    arguments: Arguments
    sites: tuple[Site, ...]
    sight: Sight = field(default=Sight(), repr=False)
    prior: Callable[[Array], dict[str, Array]] | None = field(default=None, repr=False)
    plate: str | None = None
    subsampled: tuple[Subsampled, ...] = ()
    single: bool = False
    ignored: tuple[str, ...] = ()
    findings: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False
    )  # kept, once made

    @property
    def concrete(self) -> tuple[str, ...]:
        """The data arguments that are constants because the program inspects their values."""
        return self.sight.names

    @property
    def latent(self) -> dict[str, Site]:
        """The sites to infer, z."""
        return self._of_kind("latent")

    @property
    def observed(self) -> dict[str, Site]:
        """The sites conditioned on, x, and the factors."""
        return self._of_kind("observed")

    @property
    def deterministic(self) -> dict[str, Site]:
        """The named functions of z and x."""
        return self._of_kind("deterministic")

    @property
    def data_plate(self) -> Plate | None:
        """The plate of the observations, whose members are exchangeable rows of the data.

        It holds all observed sites. Of several such plates, one whose size is the leading
        dimension of a data argument is preferred, then the outermost. Where all data enter through
        factors, it is the plate of these, if it is as long as a data argument.
        """
        leading = {array.shape[0] for array in self.arguments.data.values()}
        observed = [site.plates for site in self.observed.values() if not site.is_factor]
        if not observed:
            inside = [site.plates for site in self.observed.values() if site.plates]
            observed = [tuple(p for p in plates if p.size in leading) for plates in inside]
        if self.plate is not None:
            chosen = (p for plates in observed for p in plates if p.name == self.plate)
            return next(chosen, None)
        # `sorted` is stable, so the outermost comes first among equals.
        shared = sorted(shared_plates(observed), key=lambda plate: plate.size not in leading)
        return next(iter(shared), None)

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the latent sites inside the data plate; the others are global."""
        plate = self.data_plate
        if plate is None:
            return ()
        return tuple(
            name
            for name, site in self.latent.items()
            if plate.name in {p.name for p in site.plates}
        )

    @property
    def missing(self) -> dict[str, np.ndarray]:
        """Masks of the observed sites that have missing entries."""
        return {s.name: s.missing for s in self.sites if s.missing is not None}

    @property
    def bounded(self) -> tuple[str, ...]:
        """Names of the sites whose support depends on latent values."""
        return tuple(site.name for site in self.sites if site.moving)

    def run(
        self,
        latents: Mapping[str, Array],
        data: Mapping[str, Array],
        missing: Mapping[str, Array] | None = None,
    ) -> dict[str, Density]:
        """The densities of all latent and observed sites at the given values; traceable.

        `missing` replaces the masks of the sites with missing entries, as rows of them do when
        `data` holds rows of the data.
        """
        inspector = Inspector()
        messages = self._messages(latents, data, missing, inspector)
        with numpyro.validation_enabled(False), self._mode():
            return {
                name: density_of(message, inspector.where[name])
                for name, message in messages.items()
                if message["type"] == "sample"
            }

    def deterministic_values(
        self, latents: Mapping[str, Array], data: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Values of the deterministic sites at the given latent values; traceable."""
        messages = self._messages(latents, data, {}, Inspector())
        return {
            name: jnp.asarray(message["value"])
            for name, message in messages.items()
            if message["type"] == "deterministic"
        }

    def log_density(
        self,
        latents: Mapping[str, Array],
        data: Mapping[str, Array],
        missing: Mapping[str, Array] | None = None,
    ) -> Array:
        """NumPyro's own log p(z, x) of the same program: the oracle of every derivation."""
        args, kwargs = self.arguments.call(self._inputs(data))
        with numpyro.validation_enabled(False), self._mode():
            arrays = {name: jnp.asarray(value) for name, value in latents.items()}
            value, _ = log_density(self.plain(missing), args, kwargs, arrays)
        return jnp.asarray(value)

    def plain(self, missing: Mapping[str, Array] | None = None) -> Callable[..., Any]:
        """The program for NumPyro's own densities: what is missing or impossible has none."""
        masks = self.missing if missing is None else missing

        def program(*args: Any, **kwargs: Any) -> Any:
            with MaskMissing(masks), KeepInside(self.bounded), WholePlates(), PlainSites():
                return self.function(*args, **kwargs)

        return program

    def draw(self, key: Array) -> dict[str, Array]:
        """One draw of all latent sites from the prior (flat priors: a normal, unconstrained)."""
        assert self.prior is not None, "a model made by trace_model has its prior"
        with jax.enable_x64(True):
            return self.prior(key)

    def without_data(self) -> Model:
        """The same with the shapes of its data but not their values, for keeping."""
        stubs = {
            name: array
            if name in self.concrete
            else np.broadcast_to(np.zeros((), array.dtype), array.shape)
            for name, array in self.arguments.data.items()
        }
        return replace(self, arguments=self.arguments.replace(stubs), prior=None)

    def _of_kind(self, kind: str) -> dict[str, Site]:
        return {site.name: site for site in self.sites if site.kind == kind}

    def _inputs(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {**data, **self.arguments.seen(self.concrete)}

    def _mode(self) -> Any:
        return self.sight.mode()

    def _messages(
        self,
        latents: Mapping[str, Array],
        data: Mapping[str, Array],
        missing: Mapping[str, Array] | None,
        inspector: Inspector,
    ) -> dict[str, Message]:
        args, kwargs = self.arguments.call(self._inputs(data))
        masks = MaskMissing(self.missing if missing is None else missing)
        bounds = KeepInside(self.bounded)
        with self._mode():
            return execute(self.function, args, kwargs, inspector, masks, bounds, Given(latents))
