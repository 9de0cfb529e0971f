"""Scalar sites that go on a grid: those that set a scale or a shape, and what a grid costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from lowerbound.cost import numbers_computed
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.traced_program import trace_program
from lowerbound.methods.grid.gaussian_inner import DRAWS
from lowerbound.model import Model, Site
from lowerbound.model.dependence import dependence

NODES = {1: 65, 2: 225, 3: 900}  # about as many as a grid of that dimension ends up with
MOST_GIVEN = 150  # numbers of a Gaussian that is fitted at every node
FEW_GIVEN = 20  # where the scalars set the scale of the data alone, so that less is won
MOST_SCALARS_GIVEN = 2  # on the grid of such Gaussians
MOST_COMPUTED = 5e9  # operations that such a grid may take
ASCENT = 10  # steps of a Gaussian at a node that begins at the one beside it
LOCATIONS = ("loc", "low", "high", "v", "log_factor")  # parameters that set no scale
SCALES = ("scale", "scale_tril", "covariance_matrix", "precision_matrix", "df")


def scalars_to_condition(model: Model) -> list[str]:
    """Scalar sites that do not enter like a Gaussian: scales (or their logs), shapes, bounds."""
    scalars = [n for n, s in model.latent.items() if is_scalar(s) and n not in model.local]
    if all(domain_of(model.latent[n]) is not REAL for n in scalars):
        return scalars
    curved = {*sole_scales(model), *bound_setters(model)}
    return [n for n in scalars if domain_of(model.latent[n]) is not REAL or n in curved]


def scale_setters(model: Model) -> list[str]:
    """The latent sites that the scale or shape of another latent site depends on."""

    def counts(site: str, parameter: str, _: set[str]) -> bool:
        return site in model.latent and parameter not in (*LOCATIONS, "log_prob")

    return _setters(model, counts)


def bound_setters(model: Model) -> list[str]:
    """The latent sites that bounds of other sites depend on: beyond these the density is zero."""
    return _setters(model, lambda site, *_: site in model.bounded)


def sole_scales(model: Model) -> list[str]:
    """The scalar sites that are all that the scale of some site depends on."""
    return _setters(model, lambda _, name, sources: name in SCALES and _scalars(model, sources))


def observed_scales(model: Model) -> list[str]:
    """The scalar sites that are all that the scale of some observed site depends on."""

    def counts(site: str, parameter: str, sources: set[str]) -> bool:
        scale = site not in model.latent and parameter in SCALES
        return scale and _scalars(model, sources)

    return _setters(model, counts)


def noise_setters(model: Model) -> list[str]:
    """The latent sites, scalars or not, that the scale of some observed site depends on."""
    return _setters(model, lambda site, name, _: site not in model.latent and name in SCALES)


def _scalars(model: Model, names: Iterable[str]) -> bool:
    return all(is_scalar(model.latent[name]) for name in names)


def affordable(model: Model, chosen: Sequence[str], most: int = MOST_GIVEN) -> bool:
    """Whether a Gaussian of the rest may be fitted at every node of a grid over `chosen`."""
    rest = size_of(model, chosen)
    if not 0 < len(chosen) <= MOST_SCALARS_GIVEN or not 0 < rest <= most:
        return False
    jaxpr = trace_program(model).jaxpr.jaxpr
    if " while[" in str(jaxpr):  # a solver, whose steps nobody knows beforehand
        return False
    draws = max(DRAWS, 4 * rest)
    step = draws * (3 * numbers_computed(jaxpr) + 4 * rest**2) + 25 * rest**3
    return NODES[len(chosen)] * ASCENT * step <= MOST_COMPUTED


def _setters(model: Model, counts: Callable[[str, str, set[str]], bool]) -> list[str]:
    """The latent sites that some parameter of some site depends on, where these count.

    Of a site that is known by its density alone, that is "log_prob".
    """
    program = trace_program(model)
    depends = dependence(program.jaxpr.jaxpr)
    names = sorted(model.latent)
    found: set[str] = set()
    outputs = jax.tree.unflatten(program.outputs, depends)
    for site, record in outputs.items():
        whole = {"log_prob": record["log_prob"]} if "log_prob" in record else {}
        for parameter, inputs in {**record.get("parameters", {}), **whole}.items():
            sources = {names[i] for i in inputs if i < len(names)}
            if counts(site, parameter, sources):
                found |= sources
    return [n for n in model.latent if n in found]


def is_scalar(site: Site) -> bool:
    """Whether a site is one number with a continuous support that the data do not change."""
    return (
        site.shape == ()
        and site.support is not None
        and not site.support.is_discrete
        and domain_of(site).scalar
    )


def size_of(model: Model, without: Sequence[str] = ()) -> int:
    """How many numbers the latent sites have, some of them left out."""
    return sum(math.prod(s.shape) for n, s in model.latent.items() if n not in without)


def work_of(model: Model, rest: Sequence[str]) -> float:
    """Multiplications in one solution of the sites `rest`, the continuous ones a Gaussian."""
    latent = [model.latent[n] for n in rest]
    size = sum(math.prod(site.shape) for site in latent if site.support_values is None)
    data = sum(float(np.size(a)) for a in model.arguments.data.values())
    return float(size) ** 3 + data * max(size, 1) + states_of(model, rest)


def states_of(model: Model, rest: Sequence[str]) -> float:
    """The probabilities of all values of the discrete sites among `rest`."""
    found = (model.latent[n] for n in rest)
    values = ((site.shape, site.support_values) for site in found)
    return float(sum(math.prod(shape) * len(v) for shape, v in values if v is not None))
