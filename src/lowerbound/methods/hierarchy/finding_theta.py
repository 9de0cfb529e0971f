"""Which sites are hyperparameters: those that no linear predictor can hold."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import splu

from lowerbound.compiled import Kept, abreast, quickly, traced
from lowerbound.compiled.host import FITS, lightly
from lowerbound.errors import NoPredictorsError
from lowerbound.methods.grid.scalar_sites import observed_scales, scale_setters
from lowerbound.methods.hierarchy.bounds_kept import bounds, sites_that_end
from lowerbound.methods.hierarchy.joint_terms import MOST as TOGETHER
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.reading.flat_program import FlatProgram, Name, flattened
from lowerbound.methods.hierarchy.reading.plain_terms import in_plain_terms
from lowerbound.methods.hierarchy.reading.recurring.from_levels import FromLevels
from lowerbound.methods.hierarchy.reading.recurring.levels import NoLevelsError, Places, in_levels
from lowerbound.methods.hierarchy.reading.splitting import split
from lowerbound.methods.hierarchy.without_funnels import density_in, relative_for
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.rewrite.coordinates import Coordinates

MOST = 24  # numbers of theta
BY_CHAINS = 100  # the same, where many others are Gaussian given them: chains go over these
NEAR = 1.0  # a bound that a coefficient may well be close to
FEW = 6  # numbers of theta, with those of sites that have such bounds
SMALL = 3  # numbers of a site with bounds that is integrated rather than bent
MANY = 4  # times as many numbers of z as of theta, where z is Gaussian given theta
_programs: Kept[dict[object, Any]] = Kept(16)  # what equal programs share, with whatever data


def predictors_of(model: Model, given: Sequence[str] = (), most: int = MOST) -> Predictors:
    """The predictors of a program, with the sites `given` part of theta, and others as need be.

    z are the sites that are real, and those between bounds that are no scale, as long as their
    predictors are linear: in their own coordinates first, then on the unconstrained space. Theta
    are all others, and those that meet the predictors of others; where these are more than a few
    numbers, predictors may meet in one term. `most`: the numbers that theta may have. Raises
    NoPredictorsError with the reason where there are none.
    """
    reading = _Reading(model)
    roles = _Roles.of(model, given, most)
    try:
        return reading.of(roles)
    except NoPredictorsError:
        if not reading.has_levels:
            raise
    return _Reading(model, in_levels=False).of(roles)


@dataclass(eq=False)
class _Reading:
    """One way to read a program: with levels in the places of increments where it can, or without.

    has_levels: whether there were such.
    """

    model: Model
    in_levels: bool = True
    has_levels: bool = False

    def of(self, roles: _Roles) -> Predictors:
        """The predictors, with sites taken for others as need be."""
        while True:
            try:
                return _split(self, roles)
            except NoPredictorsError as error:
                changed = roles.without(error)
                more = math.inf if changed is None else changed.numbers(changed.theta)
                if more > roles.numbers(roles.theta) + SMALL:
                    joined = self._exactly(changed) or _joined(self, roles)
                    # Without theta, positive numbers would be Gaussian in their logarithms beside
                    # what they multiply.
                    bare = joined is not None and not joined.theta and bool(roles.bent)
                    if joined is not None and (changed is None or not bare):
                        return joined
                if changed is None:
                    raise
                roles = changed

    def _exactly(self, roles: _Roles | None) -> Predictors | None:
        """The predictors of many numbers that are Gaussian given few others; None without such.

        Matrices and scales of a state space, for one: given them, no sum over predictors is needed.
        """
        while roles is not None and roles.numbers(roles.z) > MANY * roles.numbers(roles.theta):
            try:
                found = _split(self, roles)
            except NoPredictorsError as error:
                roles = roles.without(error, BY_CHAINS)
                continue
            return found if found.is_quadratic else None
        return None


def _joined(reading: _Reading, roles: _Roles) -> Predictors | None:
    """Predictors that meet in one term; None where they are too many."""
    while True:
        try:
            return _split(reading, roles, TOGETHER)
        except NoPredictorsError as error:
            changed = roles.without(error)
            if changed is None:
                return None
            if changed.numbers(changed.theta) > roles.numbers(roles.theta) + SMALL:
                return None
            roles = changed


@dataclass(frozen=True, eq=False)
class _Roles:
    """What the sites of a program are taken for.

    straight: sites with bounds that are part of z as they are. bent: those that are so on the
    unconstrained space. theta: what is integrated, of so many numbers at `most`.
    """

    coordinates: Coordinates
    theta: tuple[str, ...]
    straight: frozenset[str]
    bent: frozenset[str]
    most: int

    @classmethod
    def of(cls, model: Model, given: Sequence[str], most: int) -> _Roles:
        """What the supports of sites and their use say at first."""
        coordinates = Coordinates.of(model)
        if len(coordinates.supports) < len(coordinates.shapes):
            raise NoPredictorsError("the support of some site depends on other sites")
        scales = {*scale_setters(model), *observed_scales(model), *given}
        theta: list[str] = []
        straight: list[str] = []
        bent: list[str] = []
        near_bounds: list[str] = []
        for name in coordinates.shapes:
            if _is_real(coordinates, name) and name not in given:
                continue
            if name in scales:
                theta.append(name)
            elif _is_flat(coordinates, name):
                bent.append(name)
            elif (ends := bounds(coordinates, name)) is not None:
                size = int(np.prod(coordinates.shapes[name], dtype=int))
                near = min(float(np.min(np.abs(end))) for end in ends) <= NEAR
                positive = near and not np.isfinite(ends).all()  # many of them reach their bound
                many = bent if positive else straight
                (near_bounds if near and size <= SMALL else many).append(name)
            else:
                theta.append(name)
        roles = cls(coordinates, tuple(theta), frozenset(), frozenset(bent), most)
        few = roles.numbers([*theta, *near_bounds]) <= FEW
        if few:
            theta += near_bounds
        else:
            straight += near_bounds
        return roles._with(straight, bent, theta)

    @property
    def z(self) -> tuple[str, ...]:
        """The sites that are Gaussian given theta."""
        return tuple(name for name in self.coordinates.shapes if name not in self.theta)

    def numbers(self, sites: Collection[str]) -> int:
        """How many numbers some sites have."""
        shapes = self.coordinates.shapes
        return sum(int(np.prod(shapes[name], dtype=int)) for name in sites)

    def without(self, error: NoPredictorsError, most: int = 0) -> _Roles | None:
        """What is left to try: sites with bounds in the way are bent, or else given.

        most: numbers that may be given, if more than else.
        """
        limit = max(most, self.most)
        met = set(error.meeting) or set(self.z)
        wrong = self.straight & met
        if wrong:
            few = self.numbers(self.theta) + self.numbers(wrong) <= limit
            small = {name for name in wrong if few and self.numbers([name]) <= SMALL}
            bent = self.bent | (wrong - small)
            return self._with(self.straight - wrong, bent, (*self.theta, *small))
        wrong = self.bent & met
        if wrong and self.numbers(self.theta) + self.numbers(wrong) <= limit:
            return self._with(self.straight, self.bent - wrong, (*self.theta, *wrong))
        if error.sites:
            return self._with(self.straight, self.bent, (*self.theta, *error.sites))
        return None

    def _with(
        self, straight: Collection[str], bent: Collection[str], theta: Sequence[str] | None = None
    ) -> _Roles:
        chosen = self.theta if theta is None else theta
        model = self.coordinates.program()
        coordinates = Coordinates.of(model, straight=straight)
        ordered = tuple(name for name in coordinates.shapes if name in chosen)
        return _Roles(coordinates, ordered, frozenset(straight), frozenset(bent), self.most)


def _is_flat(coordinates: Coordinates, site: str) -> bool:
    """Whether a site is linear in its coordinates on the unconstrained space."""
    support: Any = coordinates.supports.get(site)
    return type(support).__name__.lstrip("_").lower() == "zerosum"


def _split(reading: _Reading, roles: _Roles, together: int = 1) -> Predictors:
    """The predictors of a program with these roles, of which so many may meet."""
    model = reading.model
    coordinates, theta, z = roles.coordinates, roles.theta, roles.z
    most = max(BY_CHAINS, roles.most) if together == 1 else roles.most
    what = f"{roles.numbers(theta)} numbers of {_listed(theta)} are too many to be integrated"
    if roles.numbers(theta) > most:
        raise NoPredictorsError(what)
    if not z:
        raise NoPredictorsError("no site is left given these")
    names = sorted(model.arguments.data)
    leaves = tuple(np.asarray(model.arguments.data[name]) for name in names)
    over_points = roles.numbers(theta) <= MOST == roles.most  # chains go over theta itself
    relative = relative_for(coordinates, theta) if over_points else None
    if relative is not None:
        leaves += tuple(relative.arrays().values())
    density = density_in(coordinates, theta, z, names, relative)
    shapes = [np.zeros(coordinates.shapes[name]) for name in (*theta, *z)]
    written = abreast(traced(density)(*shapes, *leaves))
    kept = (*theta, "|", *z, *names, str(together), str(relative is None))
    real = [_is_real(coordinates, name) and name not in roles.straight for name in z]
    closed, back = _in_coordinates(written, len(theta), real, leaves, kept, reading.in_levels)
    reading.has_levels |= back is not None
    shared = _programs.of(digest(closed, *kept), dict)
    flat = flattened(closed)
    inputs = flat.inputs
    known = _places(shared, len(theta) + len(z), leaves)
    own = dict(zip(z, inputs[len(theta) :], strict=False))
    parts = split(flat, inputs[: len(theta)], own, known, together)
    entries = tuple((len(parts.maps.of(name)), name.number) for name in parts.cut)
    shapes_of_indices = tuple(map(np.shape, parts.maps.tape.indices))
    compiled = shared.setdefault(("programs", parts.flat.decided, entries, shapes_of_indices), {})
    found = Predictors(model, coordinates, theta, z, parts, leaves, compiled, back, relative)
    _check(found, written)
    ended = sites_that_end(found)
    if ended:
        what = f"the density of {_listed(ended)} ends at bounds"
        raise NoPredictorsError(what, meeting=ended)
    if found.dimension > roles.most and not (
        found.size > MANY * found.dimension and found.is_quadratic
    ):
        raise NoPredictorsError(what)
    return found


def _in_coordinates(
    written: ClosedJaxpr,
    theta: int,
    real: Sequence[bool],
    leaves: Sequence[np.ndarray],
    kept: Sequence[str],
    levels: bool,
) -> tuple[ClosedJaxpr, FromLevels | None]:
    """A density of theta and z in plain terms, with levels in the places of increments if it can.

    real: which sites of z are their own coordinates. levels: whether there may be any.
    """
    start = theta + len(real)
    without: set[int] = set()
    while True:
        plain = in_plain_terms(written, range(theta, start), without)
        if not plain.owners:
            return plain.closed, None
        if not levels:
            without.update(plain.owners)
            continue
        shared = _programs.of(digest(plain.closed, *kept), dict)
        known = _places(shared, start, leaves)
        try:
            found = in_levels(plain, theta, real, known)
        except NoLevelsError as error:
            without.add(error.owner)
            continue
        shared = _programs.of(digest(found.back, *kept), dict)
        known = _places(shared, start, leaves)
        return found.closed, FromLevels(found.back, theta, len(real), leaves, known, shared)


def _places(shared: dict[object, Any], start: int, leaves: Sequence[np.ndarray]) -> Places:
    """Values of a program that depend on its data alone, whose first is the input `start`."""

    def known(flat: FlatProgram, wanted: Sequence[Name]) -> list[np.ndarray]:
        if not wanted:
            return []
        makers, data = flat.makers, flat.inputs[start : start + len(leaves)]

        def compute(leaves: Sequence[Any]) -> list[Any]:
            return flat.values(wanted, dict(zip(data, leaves, strict=True)), makers)

        key = ("places", flat.decided, tuple(name.number for name in wanted))
        if key not in shared:
            shared[key] = lightly(compute, FITS)
        return [np.asarray(value) for value in shared[key](list(leaves))]

    return known


def _check(found: Predictors, written: ClosedJaxpr) -> None:
    """Raise where A z + b is not what the program computes: a rule would be wrong."""
    rng = np.random.default_rng(1)
    t, z = 0.3 * rng.normal(size=found.dimension), rng.normal(size=found.size)
    offset, whole = found.at(t, np.zeros(found.size)), found.at(t, z)
    sums = np.zeros(found.count)
    products = found.entries(t) * z[found.columns]
    np.add.at(sums, found.rows, products)
    scale = np.zeros(found.count)
    np.add.at(scale, found.rows, abs(products))
    scale += abs(offset) + 1.0
    if not (abs(offset + sums - whole) <= 1e-9 * scale).all():
        raise NoPredictorsError("some term is not what its linear predictors say")
    if found.back is not None and not _same_density(found, found.back, written, t, z):
        raise NoPredictorsError("levels do not say what their increments do")


def _same_density(
    found: Predictors, back: FromLevels, written: ClosedJaxpr, t: np.ndarray, levels: np.ndarray
) -> bool:
    """Whether log p of levels is that of the program at their increments, and the volume."""
    key = "as written"
    if key not in back.compiled:
        back.compiled[key] = quickly(jaxpr_as_fun(written))
    values, begin, inputs = np.concatenate([t, back(t, levels)]), 0, []
    for aval in written.in_avals[: len(found.theta) + len(found.z)]:
        size = int(np.prod(aval.shape, dtype=int))
        inputs.append(values[begin : begin + size].reshape(aval.shape))
        begin += size
    with jax.enable_x64(True):
        density = float(back.compiled[key](*inputs, *found.leaves)[0])
    sign, volume = _log_det(back.matrix(t))
    new = found.density(t, levels)
    return bool(sign and abs(density + volume - new) <= 1e-8 * (1.0 + abs(new) + abs(volume)))


def _log_det(matrix: csr_array) -> tuple[bool, float]:
    """Whether a sparse matrix can be inverted, and the logarithm of its determinant."""
    try:
        diagonal = abs(splu(csc_array(matrix)).U.diagonal())
    except RuntimeError:
        return False, 0.0
    return bool((diagonal > 0).all()), float(np.log(diagonal).sum())


def _is_real(coordinates: Coordinates, site: str) -> bool:
    part = coordinates.part(site)
    return part.stop == part.start or coordinates.is_real(part.start)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
