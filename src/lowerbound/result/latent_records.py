"""What a fit keeps of each latent site, whether or not its program is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowerbound.model import Model
from lowerbound.model.supports import support_record


def site_records(model: Model) -> dict[str, dict[str, Any]]:
    """What a fit keeps of each latent site."""
    return {
        name: {
            "shape": site.shape,
            "scope": "local" if name in model.local else "global",
            "support_values": None
            if site.support_values is None
            else np.asarray(site.support_values),
            "support": None if site.support is None else support_record(site.support),
        }
        for name, site in model.latent.items()
    }


def finite_values(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The values of the discrete sites of such records."""
    known = {name: record["support_values"] for name, record in sites.items()}
    return {name: values for name, values in known.items() if values is not None}
