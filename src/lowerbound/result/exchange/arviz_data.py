"""A fit as ArviZ has it: an xarray DataTree for ArviZ 1.x, an InferenceData for 0.x."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from lowerbound.errors.storage import needed
from lowerbound.result.exchange.groups_of_draws import Groups, groups_of

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

NEEDS = "to_arviz needs arviz-base, which is not installed"
NO_CHAINS = "observed_data"


def arviz_data(fit: Fit, draws: int, seed: int, groups: Sequence[str] | None) -> Any:
    """The groups of a fit, in the form that the `arviz` of this environment reads.

    Where `import arviz` gives 0.x, an InferenceData, for its functions take nothing else; else a
    DataTree, which needs arviz-base alone.
    """
    early = _is_early()
    with needed(NEEDS, "arviz"):
        library = import_module("arviz" if early else "arviz_base")
    found = groups_of(fit, groups, draws, seed)
    arrays = {
        group: {_plain(n): a if group == NO_CHAINS else a[None] for n, a in own.items()}
        for group, own in found.draws.items()
    }
    dims = {_plain(n): [_plain(axis) for axis in axes] for n, axes in found.dims.items()}
    attributes = attributes_of(fit, found)
    if early:
        data = library.from_dict(**arrays, dims=dims, attrs=attributes)
        for group in data.groups():
            data[group].attrs.update(attributes)
        return data
    return library.from_dict(arrays, dims=dims, attrs=dict.fromkeys(("/", *arrays), attributes))


def attributes_of(fit: Fit, found: Groups) -> dict[str, Any]:
    """What the draws are, in text and numbers that every file format keeps."""
    verdict = fit.verdict
    return {
        "inference_library": "lowerbound",
        "inference_library_version": fit.versions["lowerbound"],
        "inference": "variational inference",
        "method": fit.method,
        "model": fit.plan.model,
        "elbo": float(fit.elbo),
        "elbo_error": float(fit.elbo_error),
        "trust": verdict.trust,
        "verdict": str(verdict),
        "converged": str(fit.converged),
        "stop_reason": fit.stop_reason,
        "notes": "\n".join(fit.notes),
        "seed": int(fit.seed),
        "precision": fit.precision,
        "left_out": "; ".join(f"{name}: {why}" for name, why in found.missing.items()),
    }


def _is_early() -> bool:
    """Whether `import arviz` gives a version before 1."""
    try:
        return int(metadata.version("arviz").partition(".")[0]) < 1
    except metadata.PackageNotFoundError:
        return False


def _plain(name: str) -> str:
    """A name without slashes, which part the groups of a file: `scope` writes 'a/x'.

    >>> _plain("school/theta")
    'school.theta'
    """
    return name.replace("/", ".")
