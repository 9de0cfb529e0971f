"""Variational families as plain records, for files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.distributions import biject_to

from lowerbound.errors import ArgumentError
from lowerbound.family.completed.collapsed_sites import Collapsed
from lowerbound.family.completed.summed import Summed
from lowerbound.family.densities.conditioned import Conditioned
from lowerbound.family.densities.integrated import Integrated
from lowerbound.family.densities.nothing import Nothing
from lowerbound.family.densities.product import Product
from lowerbound.family.densities.score_product import ScoreProduct
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.meanfield import MeanField
from lowerbound.family.numerics.long_tails import easing, with_easing
from lowerbound.family.registry import kind_named
from lowerbound.family.sparse.sparse_gaussian import SparseGaussian
from lowerbound.family.variational import Variational
from lowerbound.joint import Block
from lowerbound.joint.blocks.block import Layout
from lowerbound.model import Model
from lowerbound.model.supports import support_from, support_record
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import centring, centring_name
from lowerbound.rewrite.warped import warp_name, warp_of

Sites = Mapping[str, Mapping[str, Any]]


def family_record(family: Variational) -> dict[str, Any]:
    """A family without its parameters; supports of sites are with the sites of the fit."""
    match family:
        case MeanField():
            return {"kind": "mean field", "blocks": [_block_record(b) for b in family.blocks]}
        case Conditioned():
            inner = family_record(family.inner)
            eased = {
                site: list(found)
                for site, transform in zip(family.sites, family.transforms, strict=True)
                if (found := easing(transform)) is not None
            }
            record = {"kind": "conditioned", "sites": list(family.sites), "inner": inner}
            return {**record, "eased": eased} if eased else record
        case UnconstrainedGaussian():
            noncentred = sorted(family.coordinates.noncentred)
            return {
                "kind": "gaussian",
                **_coordinates_record(family.coordinates),
                "noncentred": {n: float(centring(n, family.data)) for n in noncentred},
                "warped": {
                    n: np.asarray(warp_of(n, family.data))
                    for n in sorted(family.coordinates.warped)
                },
            }
        case Integrated():
            record = _coordinates_record(family.coordinates)
            return {"kind": "integrated", "sites": list(family.sites), **record}
        case SparseGaussian():
            return {"kind": "sparse gaussian", **_coordinates_record(family.coordinates)}
        case Product():
            parts = {
                "gaussian": family_record(family.gaussian),
                "exact": family_record(family.exact),
            }
            return {"kind": "product", "sites": list(family.sites), **parts}
        case ScoreProduct():
            inner = family_record(family.inner)
            return {"kind": "score", "sites": list(family.sites), "inner": inner}
        case Nothing():
            return {"kind": "nothing"}
        case WeightedDraws():
            return {"kind": "draws", "states": dict(family.states)}
        case Summed():
            model, discrete = family.elimination.model, list(family.elimination.names)
            counts = {n: len(np.asarray(model.latent[n].support_values)) for n in discrete}
            inner = family_record(family.inner)
            return {"kind": "summed", "names": discrete, "counts": counts, "inner": inner}
        case Collapsed():
            names, inner = list(family.elimination.names), family_record(family.inner)
            return {"kind": "collapsed", "names": names, "inner": inner}
    raise ArgumentError(f"A fit of family {type(family).__name__} cannot be saved.")


def family_from(record: Mapping[str, Any], sites: Sites) -> Variational:
    """The family of a record."""
    match record["kind"]:
        case "mean field":
            return MeanField.of(tuple(_block(b) for b in record["blocks"]))
        case "conditioned":
            names = tuple(record["sites"])
            transforms = [biject_to(support_from(sites[n]["support"])) for n in names]
            for name, eased in record.get("eased", {}).items():
                number = names.index(name)
                transforms[number] = with_easing(transforms[number], *eased)
            return Conditioned(names, tuple(transforms), family_from(record["inner"], sites))
        case "gaussian":
            centrings, warps = record.get("noncentred", {}), record.get("warped", {})
            coordinates = _coordinates(record, frozenset(centrings), frozenset(warps))
            data = {centring_name(name): np.asarray(c) for name, c in centrings.items()}
            data |= {warp_name(name): np.asarray(table) for name, table in warps.items()}
            return UnconstrainedGaussian(coordinates, data)
        case "integrated":
            return Integrated(_coordinates(record), tuple(record["sites"]))
        case "sparse gaussian":
            return SparseGaussian(_coordinates(record))
        case "product":
            gaussian = family_from(record["gaussian"], sites)
            exact = family_from(record["exact"], sites)
            assert isinstance(gaussian, UnconstrainedGaussian)
            assert isinstance(exact, MeanField)
            return Product(tuple(record["sites"]), gaussian, exact)
        case "score":
            inner = family_from(record["inner"], sites)
            assert isinstance(inner, UnconstrainedGaussian)
            return ScoreProduct(tuple(record["sites"]), inner)
        case "nothing":
            return Nothing()
        case "draws":
            return WeightedDraws(dict(record["states"]))
        case "summed" | "collapsed":  # the sites that are integrated out come back with the data
            return family_from(record["inner"], sites)
    raise ValueError(f"no family is called {record['kind']!r}")


def noncentred_sites(family: Variational) -> frozenset[str]:
    """The sites whose coordinates need the program: its location and scale of each."""
    match family:
        case UnconstrainedGaussian():
            return family.coordinates.noncentred
        case Conditioned() | ScoreProduct() | Summed() | Collapsed():
            return noncentred_sites(family.inner)
        case Product():
            return noncentred_sites(family.gaussian)
    return frozenset()


def with_program(family: Variational, model: Model) -> Variational:
    """A family from a file, whose non-centred coordinates are now those of a traced program."""
    if not noncentred_sites(family):
        return family
    match family:
        case UnconstrainedGaussian():
            own = family.coordinates
            coordinates = Coordinates.of(model, own.noncentred, warped=own.warped)
            return UnconstrainedGaussian(coordinates, {**model.arguments.data, **family.data})
        case Conditioned() | ScoreProduct():
            inner = with_program(family.inner, model)
            return dataclasses.replace(family, inner=inner)  # type: ignore[arg-type]
        case Product():
            gaussian = with_program(family.gaussian, model)
            return dataclasses.replace(family, gaussian=gaussian)  # type: ignore[arg-type]
    return family


def _coordinates_record(coordinates: Coordinates) -> dict[str, Any]:
    supports = {}
    for name in (n for n in coordinates.shapes if n not in coordinates.noncentred):
        support = coordinates.supports.get(name)
        supports[name] = None if support is None else support_record(support)
        if supports[name] is None:
            raise ArgumentError(
                f"The support of site '{name}' depends on other sites, or is of a kind "
                "that files do not know, so the fit cannot be saved.\nExpected fixed "
                "supports such as constraints.positive. Keep draws of it instead: "
                "fit.sample(1000)."
            )
    shapes = {n: tuple(s) for n, s in coordinates.shapes.items()}
    straight = {"straight": sorted(coordinates.straight)} if coordinates.straight else {}
    return {"shapes": shapes, "supports": supports, **straight}


def _coordinates(
    record: Mapping[str, Any],
    noncentred: frozenset[str] = frozenset(),
    warped: frozenset[str] = frozenset(),
) -> Coordinates:
    """The coordinates of a record, without a program."""
    shapes = {n: tuple(s) for n, s in record["shapes"].items()}
    supports = {n: support_from(s) for n, s in record["supports"].items()}
    straight = frozenset(record.get("straight", ()))
    return Coordinates(None, shapes, supports, noncentred, straight, warped)


def _block_record(block: Block) -> dict[str, Any]:
    fields = [f.name for f in dataclasses.fields(Block) if f.name != "family"]
    record = {"kind": block.kind, **{name: getattr(block, name) for name in fields}}
    layouts = {name: dataclasses.asdict(layout) for name, layout in block.layouts.items()}
    return {**record, "layouts": layouts}


def _block(record: Mapping[str, Any]) -> Block:
    layouts = {name: Layout(**layout) for name, layout in record["layouts"].items()}
    rest = {name: value for name, value in record.items() if name != "kind"}
    return Block(**{**rest, "family": kind_named(record["kind"]), "layouts": layouts})
