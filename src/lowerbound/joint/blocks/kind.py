"""What the derivation asks of a family: which sites it takes, and what it reads from their terms.

A family is one class: this interface, which looks at terms alone, and the numerics of
`family.exponential`. `FAMILIES` is the table of them, which `family.registry` fills; no other code
knows a family by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray

from lowerbound.joint.blocks.block import Block, Entry, Gaussians, Layout, Read
from lowerbound.joint.terms.domain import Domain
from lowerbound.joint.terms.indices import Array, Label
from lowerbound.joint.terms.labelled import Atom, Factor, Term

if TYPE_CHECKING:
    from lowerbound.joint.latents import Latent

Uses = Sequence[tuple[Entry, Sequence[Factor[Atom]]]]  # a site's terms, and its factors in each
Extras = Mapping[str, np.ndarray]  # the constants of a restricted support

FAMILIES: dict[str, type[Kind]] = {}  # by kind; of two that take a site, the first does


@dataclass(frozen=True)
class Misfit:
    """A latent site with a term (of another site's density) that no factor can absorb."""

    latent: str
    site: str
    left_over: str
    reason: str


@dataclass(frozen=True)
class Scale:
    """A site that may scale the precision of Gaussian sites: its own terms, and theirs."""

    latent: Latent
    family: type[Kind]  # the one that takes it alone
    uses: Uses
    entries: Sequence[Entry]  # of the Gaussian sites


@dataclass(frozen=True)
class Observed:
    """A function of one latent site that is observed: its terms, its value and their labels."""

    latent: Latent
    terms: Sequence[Term]  # the constant first
    labels: tuple[Label, ...]
    data: Array
    data_labels: tuple[Label, ...]


@dataclass(frozen=True)
class Restriction:
    """What an observation makes of a site: its block, and the constants of the support."""

    block: Block
    extras: Mapping[str, Array]

    @property
    def latent(self) -> str:
        """The restricted site."""
        return self.block.sites[0]


@dataclass(frozen=True)
class Path:
    """Discrete elements that meet their neighbours alone: along an axis of a site, or of sites.

    `layouts` have the axis of the steps as their vector, or the number of the step as their start.
    """

    layouts: dict[str, Layout]
    batch_shape: tuple[int, ...]
    length: int
    values: int  # how many each element may take


class Kind:
    """A family as the derivation sees it. All of it is of the class: no array is needed.

    Most families only state `kind`, `name`, `domains`, `atoms` and `formula`.
    """

    kind: ClassVar[str]  # in files
    name: ClassVar[str]  # in words
    domains: ClassVar[tuple[Domain, ...]] = ()
    # Statistics by the function of the site that they are: "log", or ("power", 2.0).
    atoms: ClassVar[Mapping[str | tuple[str, float], str]] = MappingProxyType({})
    formula: ClassVar[str] = "{z}"  # the statistics in words, of a site z
    value: ClassVar[str] = "z"  # what its value is called among those that it draws
    is_vector: ClassVar[bool] = False  # its sites are raveled into one vector per copy
    alone: ClassVar[bool] = True  # it takes single sites; others need more sites, or data
    located: ClassVar[bool] = False  # its values may be measured from an origin (`translated`)
    enumerable: ClassVar[bool] = False  # a table over few values, with the statistic "indicator"
    free_form: ClassVar[bool] = False  # its statistics are functions, with constants, of the terms
    traced: ClassVar[bool] = True  # its marginals can be compiled
    along: ClassVar[bool] = False  # its elements follow each other: sums go along them
    counts_absent: ClassVar[bool] = False  # elements left out by a mask are its constant "absent"
    based: ClassVar[bool] = False  # some terms of log p are its base measure (`log_base`)

    # -- sites ------------------------------------------------------------------------------------

    @classmethod
    def settings(cls, latent: Latent, uses: Uses) -> dict[str, Any]:
        """The fields of the family, beyond `batch_shape`, for a site with these terms."""
        return {}

    @classmethod
    def statistic_of(cls, atom: Atom, static: Mapping[str, Any]) -> str | None:
        """The statistic that a function of the site is, if it is one."""
        return cls.atoms.get((atom.function, atom.parameter)) or cls.atoms.get(atom.function)

    @classmethod
    def misfit(cls, latent: Latent, uses: Uses, sequential: bool = False) -> Misfit | None:
        """The first use of a site that the family cannot absorb, if there is one.

        `sequential`: elements of the site meet in one term.
        """
        static = cls.settings(latent, uses)
        for entry, factors in uses:
            for atom in (factor.atom for factor in factors):
                if atom.is_base and cls.based:
                    continue
                if cls.statistic_of(atom, static) is None:
                    return Misfit(latent.name, entry.site, str(atom), cls.reason(atom))
        return None

    @classmethod
    def log_base(cls, values: JaxArray) -> JaxArray:
        """The log of the base measure h(z), elementwise, which energy and entropy leave out."""
        raise TypeError(f"{cls.name} has no base measure among the terms")

    @classmethod
    def reason(cls, atom: Atom) -> str:
        """Why a function of the site fits no factor, in words."""
        return "no factor has this statistic"

    @classmethod
    def block(cls, latent: Latent, uses: Uses = (), sequential: bool = False) -> Block:
        """The block of one site, its last axes those of one member of its domain."""
        rank = len(latent.shape)
        batch = rank - latent.domain.event_dim
        layout = Layout(latent.shape, tuple(range(batch)), tuple(range(batch, rank)))
        static = cls.settings(latent, uses)
        return Block(0, cls, {latent.name: layout}, layout.batch_shape, static, None, sequential)

    @classmethod
    def of_gaussians(cls, group: Gaussians, scale: Scale | None) -> Block | None:
        """The block of Gaussian sites under one quadratic form, with a site that scales it."""
        return None

    @classmethod
    def of_path(cls, path: Path) -> Block | None:
        """The block of discrete elements that follow each other."""
        return None

    @classmethod
    def restriction(cls, seen: Observed) -> Restriction | None:
        """The block of a site of which a function is observed, where it is of this family."""
        return None

    @classmethod
    def raveled(cls, static: Mapping[str, Any]) -> bool:
        """Whether the sites are raveled into one vector per copy."""
        return cls.is_vector

    # -- terms ------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls, block: Block, factors: Sequence[Factor[Atom]], private: set[Label]
    ) -> list[Read] | None:
        """The statistics whose product is the product of these factors; None when there are none.

        `private` holds the summed labels that occur in these factors alone.
        """
        (layout,) = block.layouts.values()
        order = (*layout.batch, *layout.vector)
        reads = []
        for factor in factors:
            name = cls.statistic_of(factor.atom, block.static)
            if name is None:
                return None
            own = order[: len(factor.own)]
            trailing = factor.index[len(own) :]
            index = (*(factor.index[axis] for axis in own), *trailing)
            shape = (*(layout.shape[axis] for axis in own), *factor.atom.sizes)
            reads.append(Read(block.number, name, (), shape, index))
        return reads if len(reads) == 1 or block.sequential else None

    @classmethod
    def symmetric(cls, static: Mapping[str, Any]) -> tuple[str, ...]:
        """The statistics that are symmetric matrices."""
        return ()

    @classmethod
    def constants(cls, block: Block) -> dict[str, Array]:
        """The constant arrays in the statistics of a block, while deriving."""
        return {}

    # -- words and points -------------------------------------------------------------------------

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The sufficient statistics of a block, in the names of its sites."""
        return cls.formula.format(z=site)

    @classmethod
    def likeliest(cls, logits: Mapping[str, JaxArray]) -> JaxArray:
        """The likeliest values of an `enumerable` family."""
        return jnp.argmax(logits["indicator"], axis=-1)

    @classmethod
    def describes(cls, latent: Latent) -> bool:
        """Whether it is what one would expect for a site, before its terms are seen."""
        return cls.alone and not cls.free_form and latent.domain in cls.domains

    @classmethod
    def point(
        cls, latent: Latent, rng: np.random.Generator, moved: float, extras: Extras
    ) -> np.ndarray:
        """A random value of a site inside the support that `extras` restrict."""
        return latent.domain.point(latent, rng, moved)


def takers(domain: Domain) -> list[type[Kind]]:
    """The families that take single sites of a domain: closed forms before free ones."""
    found = [f for f in FAMILIES.values() if f.alone and domain in f.domains]
    return sorted(found, key=lambda family: family.free_form)


def expected_family(latent: Latent) -> tuple[str, str]:
    """The family that one would expect for a site, and its statistics, in words."""
    for family in FAMILIES.values():
        if family.describes(latent):
            return family.name, family.text(family.block(latent), latent.name)
    return "no closed-form factor", "none"
