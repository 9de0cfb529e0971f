"""Other summits of a profile, beyond valleys that a lattice has not crossed."""

from __future__ import annotations

import itertools

import numpy as np
from numpyro.distributions.transforms import IdentityTransform

from lowerbound.errors import LostPosteriorError
from lowerbound.methods.grid.lattice import ACROSS, DROP, GOLDEN, Lattice, Node
from lowerbound.methods.grid.profile import BATCH, Profile

WIDE = 1.5  # widths of the lattice, that points around it are away from its top
FARTHEST = 6  # widths, that another summit on the same lattice may be away
NUDGED, ROUGH = 1e-6, 0.5  # cells, and nats: what changes so much by so little is rounding


def nodes_beyond(profile: Profile, lattice: Lattice) -> tuple[Node, ...]:
    """Nodes that are high enough and not on the lattice: at its mirror images, or around it.

    Along a line there are none: its scan keeps all maxima. Raises LostPosteriorError where one
    lattice cannot hold both summits.
    """
    k, numbers = len(profile.sites), list(lattice.known.values())
    if k == 1 or not lattice.complete:
        return ()
    highest = int(np.argmax(profile.values[numbers]))
    top, height = profile.u[numbers][highest], profile.values[numbers][highest]
    real = np.array([isinstance(one, IdentityTransform) for one in profile.transforms])
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=k))[1:])
    images = top * signs[((signs > 0) | real).all(axis=1)]
    share = (0.5 + np.outer(np.arange(BATCH - len(images)), GOLDEN[k])) % 1.0
    around = top + (WIDE * ACROSS[k] * (2 * share - 1) * lattice.spacing) @ lattice.axes.T
    points = np.concatenate([images, around])
    values = profile.at(points)
    again = profile.at(points + NUDGED * lattice.spacing @ lattice.axes.T)
    with np.errstate(invalid="ignore"):  # where both are -inf
        values = np.where(abs(values - again) < ROUGH, values, -np.inf)
    high = points[values > max(float(values.max()), height) - DROP[k]]
    places = np.rint(np.linalg.solve(lattice.axes, (high - lattice.origin).T).T / lattice.spacing)
    if len(places) and np.abs(places).max() > FARTHEST * ACROSS[k]:
        names = " and ".join(f"'{site}'" for site in profile.sites)
        raise LostPosteriorError(
            f"The posterior of {names} has another summit, too far away for one grid.\nExpected "
            "one summit, or some that are near each other. Fix a sign by a prior such as "
            "dist.HalfNormal, or use lb.Gaussian()."
        )
    nodes = dict.fromkeys(tuple(int(i) for i in place) for place in places)
    return tuple(node for node in nodes if node not in lattice.known)
