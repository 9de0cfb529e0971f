"""The automatic ladder: the best engine for a model, and why the ones before it do not do.

    exact -> conditioned on a few scalars -> coordinate ascent (quadrature) -> augmented
          -> Gaussian of a few sites, the rest exact -> Gaussian -> score functions

A posterior of one factor is exact; scalars that set the scale or the shape of the others go on a
grid while the rest is one Gaussian (then q is exact to quadrature); coordinate ascent takes what
has a factor for every site; a Gaussian on the unconstrained space takes everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax

from lowerbound.compute.engine import derived
from lowerbound.em import EM
from lowerbound.errors import (
    AugmentationError,
    NotConjugateError,
    ParameterSiteError,
    Residual,
    UnsupportedModelError,
)
from lowerbound.joint import Joint, inputs_of
from lowerbound.joint.latents import domain_of
from lowerbound.joint.multiaffine import Structure
from lowerbound.joint.terms.domain import COUNT
from lowerbound.joint.terms.impossible import is_impossible
from lowerbound.methods.coordinate.variational_em import check_ascent, parametrised_model
from lowerbound.methods.gaussian_value import FULL_BELOW, Gaussian
from lowerbound.methods.grid.conditional import conditioned
from lowerbound.methods.grid.scalars import (
    FEW_GIVEN,
    NODES,
    affordable,
    is_scalar,
    observed_scales,
    scalars_to_condition,
    scale_setters,
    size_of,
    work_of,
)
from lowerbound.methods.partial.given_program import sites_to_cover
from lowerbound.methods.partial.given_sites import wide_enough
from lowerbound.methods.score.finite_fit import check_score
from lowerbound.methods.values import CAVI, SVI, as_method, has_columns, is_auto
from lowerbound.model import Model, trace_model
from lowerbound.rewrite.augment import augmented, possible
from lowerbound.rewrite.parameters import find_parameters
from lowerbound.rewrite.summing.enumerated import can_be_summed, discrete_sites, enumerated

GRID = "conditioned"  # the name of the rung of scalars on a grid
MOST_SCALARS = 3
MOST_WORK = 3e9  # multiplications that a sweep over all nodes may cost
STARTS = 6  # of coordinate ascent, two of every kind, where they cost little
SMALL_MIXTURE = 10_000  # responsibilities, in all discrete factors
STEPS = 10  # sweeps that a Gaussian by quadrature takes at a node, where an exact one takes one


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: what it would do, whether it is taken, and why."""

    name: str
    taken: bool
    reason: str

    def __str__(self) -> str:
        return f"{'->' if self.taken else '  '} {self.name}: {self.reason}"


@dataclass(frozen=True)
class Route:
    """The method chosen for a model, and the rungs of the ladder up to it."""

    method: CAVI | SVI | Gaussian | EM
    rungs: tuple[Rung, ...] = ()
    model: Model | None = None  # as it was traced, where it was

    @property
    def lines(self) -> tuple[str, ...]:
        """The rungs as a plan prints them."""
        return tuple(map(str, self.rungs))

    @property
    def taken(self) -> str:
        """The name of the rung that is taken; empty where no ladder was climbed."""
        return self.rungs[-1].name if self.rungs else ""


def chosen_route(
    function: Callable[..., Any],
    method: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    kept: bool = False,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> Route:
    """The method for a call, and the rungs of the ladder where it was chosen automatically.

    A run that is `kept` in checkpoints is one of coordinate ascent where there is one. Rungs that
    have `failed`, by name and with the reason, are passed over.
    """
    if not is_auto(method):
        return Route(as_method(method))
    if has_columns(args, kwargs):
        return Route(SVI())
    with jax.enable_x64(True):
        try:
            model = trace_model(function, args, kwargs)
        except ParameterSiteError:
            return Route(CAVI()) if kept else parametric(function, args, kwargs)
        if kept and not derived(model).structure.residuals:
            failed = {**failed, GRID: "it keeps no checkpoints"}
        return route(model, args, kwargs, failed=failed)


def parametric(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Route:
    """The method for a program with parameters: exact variational EM, or that by gradients."""
    parameters = find_parameters(function, args, kwargs)
    model = parametrised_model(function, parameters, args, kwargs)
    exact = "coordinate ascent, parameters maximised"
    residuals = derived(model).structure.residuals
    why = f"{_entry(residuals[0])} ({residuals[0].where})" if residuals else None
    if why is None:
        try:
            check_ascent(model, parameters)
        except UnsupportedModelError as error:
            why = str(error).splitlines()[0].rstrip(".")
    if why is None:
        rung = Rung(exact, True, "every site has an optimal factor given the parameters")
        return Route(CAVI(), (rung,))
    size = sum(math.prod(p.shape) for p in parameters)
    rungs = (
        Rung(exact, False, why),
        Rung("gradients, a Gaussian by rows", True, f"{size} numbers of parameters, by stochastic "
             "gradients of the ELBO"),
    )  # fmt: skip
    return Route(EM(), rungs)


def route(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    joint: Joint | None = None,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> Route:
    """Climb the ladder for a traced model; nothing is fitted."""
    joint = joint or derived(model)
    climb = _Climb(model, args, kwargs, joint, failed)
    steps: Sequence[Callable[[], CAVI | Gaussian | None]] = (
        climb.exact,
        climb.conditioned,
        climb.coordinates,
        climb.augmented,
        climb.partly,
        climb.gaussian,
    )
    for step in steps:
        method = step()
        if method is None:
            continue
        taken = climb.rungs[-1]
        if taken.name not in failed:
            return Route(method, tuple(climb.rungs), model)
        climb.rungs[-1] = Rung(taken.name, False, f"given up: {failed[taken.name]}")
    raise NotConjugateError(joint.structure.residuals)


class _Climb:
    """One climb: each step takes its rung or notes why it does not."""

    def __init__(
        self,
        model: Model,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        joint: Joint,
        failed: Mapping[str, str],
    ) -> None:
        self.model, self.args, self.kwargs, self.joint = model, args, kwargs, joint
        self.failed = failed
        self.rungs: list[Rung] = []

    def note(self, name: str, taken: bool, reason: str) -> None:
        """Add a rung."""
        self.rungs.append(Rung(name, taken, reason))

    def exact(self) -> CAVI | None:
        """One factor holds every latent site, with a closed form."""
        structure = self.joint.structure
        if structure.residuals:
            first = structure.residuals[0]
            self.note("exact", False, f"{_entry(first)} ({first.where})")
            return None
        curved, alone = by_quadrature(structure), independent(structure)
        if alone and not curved:
            self.note("exact", True, "no term joins two factors, so q is the posterior")
            return CAVI()
        how = "the best Gaussian is not the posterior" if curved else ""
        joined = f"{len(structure.blocks)} factors meet that are independent in q"
        self.note("exact", False, how if alone else joined)
        return None

    def conditioned(self) -> CAVI | Gaussian | None:
        """A few scalars on a grid, and given them an exact factor, or a Gaussian."""
        if GRID in self.failed:
            self.note(GRID, False, f"given up: {self.failed[GRID]}")
            return None
        every = scalars_to_condition(self.model)
        setters = [n for n in scale_setters(self.model) if n in every]
        tried: list[tuple[str, ...]] = []
        scalars = [n for n, site in self.model.latent.items() if is_scalar(site)]
        whole = scalars if len(scalars) == len(self.model.latent) else []
        for chosen in (tuple(every), tuple(setters), tuple(whole)):
            if 0 < len(chosen) <= MOST_SCALARS and chosen not in tried:
                tried.append(chosen)
                method = self._given(chosen, last=chosen == tuple(setters))
                if method is not None:
                    return method
        if not every and not tried:
            self.note(GRID, False, "no scalar site sets the scale or shape of others")
        elif not tried:
            self.note(GRID, False, f"{len(every)} scalars are too many for a grid")
        return None

    def _given(self, chosen: tuple[str, ...], last: bool) -> CAVI | Gaussian | None:
        """The method with `chosen` on a grid, if it pays."""
        names, nodes = _names(chosen), NODES[len(chosen)]
        rest = [n for n in self.model.latent if n not in chosen]
        work = nodes * work_of(self.model, rest)
        if work > MOST_WORK:
            self.note(GRID, False, f"a grid over {names} would cost about {work:.0e} "
                      "operations a sweep")  # fmt: skip
            return None
        grid = f"{names} on a grid (about {nodes} nodes); given a node,"
        if not rest:
            self.note(GRID, True, f"{grid} nothing is left")
            return CAVI(condition=chosen)
        structure = derived(conditioned(self.model, chosen, self.args, self.kwargs)).structure
        if structure.residuals:
            return self._gaussian_given(chosen, structure.residuals[0], last)
        if by_quadrature(structure) and STEPS * work > MOST_WORK:
            self.note(GRID, False, f"a grid over {names} would cost about "
                      f"{STEPS * work:.0e} operations")  # fmt: skip
            return None
        if independent(structure):
            what = "a Gaussian by quadrature" if by_quadrature(structure) else "exact factors"
            self.note(GRID, True, f"{grid} {what}")
            return CAVI(condition=chosen)
        if self.joint.structure.residuals and not _discrete(self.model):
            count = len(structure.blocks)
            self.note(GRID, True, f"{grid} {count} factors by coordinate ascent")
            return CAVI(condition=chosen)
        self.note(GRID, False, f"given {names}, the rest would still be "
                  f"{len(structure.blocks)} factors that meet")  # fmt: skip
        return None

    def _gaussian_given(
        self, chosen: tuple[str, ...], residual: Residual, last: bool
    ) -> Gaussian | None:
        """A Gaussian given scalars that set the scale of other latent sites."""
        names = _names(chosen)
        if not last or _discrete(self.model) or not affordable(self.model, chosen):
            self.note(GRID, False, f"given {names}, still {_entry(residual)}")
            return None
        size = size_of(self.model, chosen)
        self.note(GRID, True, f"{names} on a grid, because the scale of other sites hangs "
                  f"on it; given a node, a Gaussian of {size} numbers")  # fmt: skip
        return Gaussian(condition=chosen)

    def coordinates(self) -> CAVI | None:
        """Every site has a factor: coordinate ascent."""
        structure = self.joint.structure
        if structure.residuals:
            self.note("coordinate ascent", False, "some terms fit no factor (see exact)")
            return None
        excluding = exclusions(self.joint, self.model)
        if excluding and self._summable():
            self.note("coordinate ascent", False, f"{_names(excluding)} exclude values of each "
                      "other, which independent factors cannot say")  # fmt: skip
            return None
        how = " (some expectations by quadrature)" if by_quadrature(structure) else ""
        starts = STARTS if several_optima(structure) else 1
        often = f"; {starts} starts, as the ELBO may have several optima" if starts > 1 else ""
        self.note("coordinate ascent", True, f"every site has an optimal factor{how}{often}")
        return CAVI(restarts=starts)

    def _summable(self) -> bool:
        """Whether a Gaussian is affordable, with the discrete sites summed out."""
        discrete = discrete_sites(self.model)
        size = sum(math.prod(s.shape) for n, s in self.model.latent.items() if n not in discrete)
        return 0 < size <= FULL_BELOW and can_be_summed(self.model)

    def augmented(self) -> CAVI | None:
        """Auxiliary sites that make every update exact, where a Gaussian is out of reach."""
        residuals = self.joint.structure.residuals
        if not residuals:
            return None
        kinds = {site.name: site.distribution for site in self.model.sites}
        discrete = discrete_sites(self.model)
        choices = {
            r.site: () if r.site in discrete else possible(kinds[r.site])[:1] for r in residuals
        }
        unknown = [site for site, known in choices.items() if not known]
        if unknown:
            self.note("augmented", False, f"none is known for '{unknown[0]}', "
                      f"{kinds[unknown[0]]}")  # fmt: skip
            return None
        named = {site: known[0] for site, known in choices.items()}
        size = sum(math.prod(s.shape) for n, s in self.model.latent.items() if n not in discrete)
        if size <= FULL_BELOW and (not discrete or can_be_summed(self.model)):
            self.note("augmented", False, f"a Gaussian of {size} numbers is affordable, and loses "
                      "less")  # fmt: skip
            return None
        program = augmented(self.model.function, named)
        try:
            structure = derived(trace_model(program, self.args, self.kwargs)).structure
        except AugmentationError as error:
            self.note("augmented", False, str(error).split("   (")[0])
            return None
        if structure.residuals:
            self.note("augmented", False, f"with {named}, terms would still be left over")
            return None
        self.note("augmented", True, f"{named}: every update is exact")
        return CAVI(augment=named)

    def partly(self) -> Gaussian | None:
        """A Gaussian of the sites of terms left over, where one of all sites is out of reach."""
        discrete = discrete_sites(self.model)
        sizes = {n: math.prod(s.shape) for n, s in self.model.latent.items() if n not in discrete}
        size, stuck = sum(sizes.values()), bool(discrete) and not can_be_summed(self.model)
        if size <= FULL_BELOW and not stuck:
            return None
        residuals = self.joint.structure.residuals
        chosen = sites_to_cover(self.model, residuals, self.args, self.kwargs)
        own = sum(sizes[name] for name in chosen or ())
        if chosen is None or (not stuck and own > max(FULL_BELOW, 3 * size // 4)):
            return None
        if not discrete and wide_enough(self.model):
            return None
        why = (
            f"{_names(discrete)} cannot be summed out" if stuck else f"all would be {size} numbers"
        )
        self.note(f"Gaussian over {_names(chosen)}, the rest exact", True, f"{own} numbers on the "
                  f"unconstrained space, and exact updates of all other sites; {why}")  # fmt: skip
        return Gaussian(sites=chosen)

    def gaussian(self) -> Gaussian | None:
        """A Gaussian on the unconstrained space takes every continuous site."""
        if discrete_sites(self.model):
            return self.summed()
        noise = observed_scales(self.model)
        if GRID not in self.failed and affordable(self.model, noise, FEW_GIVEN):
            size, names = size_of(self.model, noise), _names(noise)
            self.note("Gaussian", True, f"about {size} numbers on the unconstrained space, given "
                      f"{names}, the scale of the data, on a grid; expectations by quasi-Monte "
                      "Carlo")  # fmt: skip
            return Gaussian(condition=tuple(noise))
        size = size_of(self.model)
        self.note("Gaussian", True, f"all sites together, about {size} numbers on the "
                  "unconstrained space; expectations by quasi-Monte Carlo")  # fmt: skip
        return Gaussian()

    def summed(self) -> Gaussian:
        """The same where discrete sites can be summed out; by score functions elsewhere."""
        try:
            summation = enumerated(self.model)
        except UnsupportedModelError as error:
            return self.scored(error)
        names, program = _names(summation.names), summation.summed()
        every = scalars_to_condition(program)
        chosen = tuple(n for n in scale_setters(program) if n in every)
        grid = GRID not in self.failed and affordable(program, chosen)
        size = size_of(program, chosen if grid else ())
        given = f", {_names(chosen)} on a grid" if grid else ""
        self.note(f"Gaussian, with {names} summed out", True, f"about {size} numbers on the "
                  f"unconstrained space{given}; {names} exactly, given them")  # fmt: skip
        return Gaussian(condition=chosen if grid else ())

    def scored(self, error: UnsupportedModelError) -> Gaussian:
        """A factor for every entry of discrete sites; raises where that cannot be either."""
        check_score(self.model, error)
        names = _names(discrete_sites(self.model))
        why = str(error).splitlines()[0].split("   (")[0].rstrip(".")
        self.note(f"Gaussian, with {names} summed out", False, why)
        self.note("score functions", True, f"every entry of {names} by itself, a Gaussian of the "
                  "rest; expectations by draws")  # fmt: skip
        return Gaussian(engine="score")


def independent(structure: Structure) -> bool:
    """Whether no term joins two factors, so that their product is the posterior."""
    return all(len(summand.blocks) <= 1 for summand in structure.summands)


def several_optima(structure: Structure) -> bool:
    """Whether a small model has discrete factors that meet others: a mixture, in the main."""
    discrete = [block for block in structure.blocks if block.family.enumerable]
    size = sum(math.prod(b.batch_shape) * int(b.static["dim"]) for b in discrete)
    numbers = {block.number for block in discrete}
    meets = any(s.blocks & numbers and s.blocks - numbers for s in structure.summands)
    return meets and size <= SMALL_MIXTURE


def exclusions(joint: Joint, model: Model) -> tuple[str, ...]:
    """The discrete sites of which some values together are impossible, where there are such."""
    blocks = {block.number: block for block in joint.blocks if block.family.enumerable}
    meeting = [s for s in joint.structure.summands if len(s.blocks & set(blocks)) > 1]
    if not meeting:
        return ()
    arrays = joint.compress(inputs_of(model))
    found: set[str] = set()
    for summand in meeting:
        low = [is_impossible(arrays[slot].min(initial=0.0)) for slot, _ in summand.constants]
        if any(low) or is_impossible(summand.coefficient):
            found |= {site for n in summand.blocks if n in blocks for site in blocks[n].sites}
    return tuple(name for name in model.latent if name in found)


def by_quadrature(structure: Structure) -> bool:
    """Whether some expectation of a Gaussian factor is a quadrature."""
    return any(summand.curved for summand in structure.summands)


def _discrete(model: Model) -> list[str]:
    """The latent sites without a density."""
    return [
        name
        for name, site in model.latent.items()
        if site.support_values is not None or domain_of(site) is COUNT
    ]


def _entry(residual: Residual) -> str:
    """How the latent sites of a residual enter its density."""
    verb = "enters" if len(residual.latents) == 1 else "enter"
    return f"{_names(residual.latents)} {verb} '{residual.site}' through {residual.operation}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
