"""Variational families as plain records, for files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpyro.distributions import biject_to

from lowerbound.errors import ArgumentError
from lowerbound.family.conditioned import Conditioned
from lowerbound.family.meanfield import MeanField
from lowerbound.family.summed import Summed
from lowerbound.family.unconstrained import UnconstrainedGaussian
from lowerbound.family.variational import Variational
from lowerbound.fit.conditional import Nothing
from lowerbound.joint import Block
from lowerbound.joint.blocks import Layout
from lowerbound.model.coordinates import Coordinates
from lowerbound.model.supports import support_from, support_record

Sites = Mapping[str, Mapping[str, Any]]


def family_record(family: Variational) -> dict[str, Any]:
    """A family without its parameters; supports of sites are with the sites of the fit."""
    match family:
        case MeanField():
            return {"kind": "mean field", "blocks": [_block_record(b) for b in family.blocks]}
        case Conditioned():
            inner = family_record(family.inner)
            return {"kind": "conditioned", "sites": list(family.sites), "inner": inner}
        case UnconstrainedGaussian():
            supports = {}
            for name in family.coordinates.shapes:
                support = family.coordinates.supports.get(name)
                supports[name] = None if support is None else support_record(support)
                if supports[name] is None:
                    raise ArgumentError(
                        f"The support of site '{name}' depends on other sites, or is of a kind "
                        "that files do not know, so the fit cannot be saved.\nExpected fixed "
                        "supports such as constraints.positive. Keep draws of it instead: "
                        "fit.sample(1000)."
                    )
            return {
                "kind": "gaussian",
                "shapes": {n: tuple(s) for n, s in family.coordinates.shapes.items()},
                "supports": supports,
            }
        case Nothing():
            return {"kind": "nothing"}
        case Summed():
            names = ", ".join(f"'{name}'" for name in family.summation.names)
            raise ArgumentError(
                f"The fit gives {names} by a sum over the rows of the data, which files do not "
                "hold, so it cannot be saved.\nExpected a fit without discrete sites that are "
                "summed out. Keep draws of it instead: fit.sample(1000)."
            )
    raise ArgumentError(f"A fit of family {type(family).__name__} cannot be saved.")


def family_from(record: Mapping[str, Any], sites: Sites) -> Variational:
    """The family of a record."""
    match record["kind"]:
        case "mean field":
            return MeanField.of(tuple(_block(b) for b in record["blocks"]))
        case "conditioned":
            names = tuple(record["sites"])
            transforms = tuple(biject_to(support_from(sites[n]["support"])) for n in names)
            return Conditioned(names, transforms, family_from(record["inner"], sites))
        case "gaussian":
            shapes = {n: tuple(s) for n, s in record["shapes"].items()}
            supports = {n: support_from(s) for n, s in record["supports"].items()}
            return UnconstrainedGaussian(Coordinates(None, shapes, supports), {})
        case "nothing":
            return Nothing()
    raise ValueError(f"no family is called {record['kind']!r}")


def _block_record(block: Block) -> dict[str, Any]:
    record = {f.name: getattr(block, f.name) for f in dataclasses.fields(Block)}
    layouts = {name: dataclasses.asdict(layout) for name, layout in block.layouts.items()}
    return {**record, "layouts": layouts}


def _block(record: Mapping[str, Any]) -> Block:
    layouts = {name: Layout(**layout) for name, layout in record["layouts"].items()}
    return Block(**{**record, "layouts": layouts})
