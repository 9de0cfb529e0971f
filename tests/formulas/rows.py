"""Rows that the tests of formulas share."""

from __future__ import annotations

import numpy as np
import pandas as pd


def made_rows(count: int = 60, seed: int = 0) -> pd.DataFrame:
    """Numbers, categories, groups, and a response of every family."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "x": rng.normal(size=count),
            "z": rng.uniform(size=count),
            "f": rng.choice(["a", "b", "c"], count),
            "g": rng.permutation(np.arange(count) % 6),
            "h": rng.permutation(np.arange(count) % 4),
            "n": rng.integers(2, 9, size=count),
            "w": rng.integers(1, 4, size=count),
        }
    )
    table["y"] = 1.0 + 0.5 * table.x + rng.normal(size=6)[table.g] + rng.normal(size=count)
    table["positive"] = np.exp(0.3 * table.y)
    table["count"] = rng.poisson(table.positive)
    table["hit"] = (table.y > 1.0).astype(int)
    table["hits"] = rng.binomial(table.n, 0.4)
    table["grade"] = pd.Categorical(
        rng.choice(["low", "middle", "high"], count), ["low", "middle", "high"], ordered=True
    )
    return table
