"""Made files of arrays: images, sequences, angles, features, counts over time."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np


def npz(**found: Any) -> bytes:
    """Arrays as `np.load` reads them."""
    file = io.BytesIO()
    np.savez(file, **found)
    return file.getvalue()


def features(n: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated features and the log odds that they imply."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(width, width)) / np.sqrt(width)
    x = rng.normal(size=(n, width)) @ (mixing + np.eye(width))
    return x, x @ rng.normal(size=width) / np.sqrt(width)


def covtype() -> bytes:
    """Ten numeric features, 44 indicators and one of seven types of forest."""
    rng = np.random.default_rng(1)
    x, odds = features(20_000, 10, 1)
    kinds = np.eye(4)[rng.integers(4, size=len(x))], np.eye(40)[rng.integers(40, size=len(x))]
    target = np.where(rng.random(len(x)) < 1 / (1 + np.exp(-odds)), 2, rng.integers(1, 8, len(x)))
    scales = np.array([280, 110, 7, 210, 58, 1560, 27, 20, 38, 1325])
    return npz(data=np.hstack([2800 + x * scales, *kinds]), target=target)


def higgs() -> bytes:
    """A label and 28 features, as compressed text."""
    rng = np.random.default_rng(2)
    x, odds = features(5_000, 28, 2)
    y = rng.random(len(x)) < 1 / (1 + np.exp(-odds))
    lines = (",".join(f"{v:.6e}" for v in row) for row in np.column_stack([y, x]))
    return gzip.compress("\n".join(lines).encode())


def housing() -> bytes:
    """Thirteen features and a price, in columns."""
    rng = np.random.default_rng(3)
    x, line = features(506, 13, 3)
    price = 22 + 6 * line + 3 * rng.normal(size=len(x))
    file = io.BytesIO()
    np.savetxt(file, np.column_stack([x, price]), fmt="%.5f")
    return file.getvalue()


def images(n: int, seed: int) -> np.ndarray:
    """Blobs and strokes of 28 by 28, one of ten shapes each."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:28, :28]
    kinds = np.random.default_rng(0).uniform(7, 21, size=(10, 3, 2))
    kind = labels_of(n, seed)
    centres = kinds[kind] + rng.normal(scale=1.0, size=(n, 3, 2))
    distance = (rows - centres[..., 0, None, None]) ** 2 + (
        columns - centres[..., 1, None, None]
    ) ** 2
    return (255 * np.exp(-distance / 12).max(1)).astype(np.uint8)


def labels_of(n: int, seed: int) -> np.ndarray:
    """Which of the ten shapes."""
    return np.random.default_rng(seed + 100).integers(10, size=n)


def idx(n: int, seed: int, *, labels: bool) -> bytes:
    """Images or labels in MNIST's format."""
    if labels:
        content = struct.pack(">II", 2049, n) + labels_of(n, seed).astype(np.int8).tobytes()
    else:
        content = struct.pack(">IIII", 2051, n, 28, 28) + images(n, seed).tobytes()
    return gzip.compress(content)


def chorales() -> bytes:
    """Pieces of four voices that walk over the keys 43 to 81."""
    rng = np.random.default_rng(4)

    def piece() -> list[tuple[int, ...]]:
        voices, chords = np.array([48, 55, 62, 69]), []
        for _ in range(rng.integers(25, 129)):
            voices = np.clip(voices + rng.choice([-2, -1, 0, 0, 1, 2], 4), 43, 81)
            chords.append(tuple(sorted({int(v) for v in voices})))
        return chords

    return pickle.dumps({s: [piece() for _ in range(n)] for s, n in
                         (("train", 229), ("valid", 76), ("test", 77))})  # fmt: skip


def dihedrals() -> bytes:
    """Pairs of angles around a few centres, for each amino acid."""
    rng = np.random.default_rng(5)
    found = {}
    for letter in "ACDEFGHIKLMNPQRSTVWY":
        centres = rng.uniform(-2.5, 2.5, size=(5, 2))
        angles = centres[rng.integers(5, size=1000)] + 0.25 * rng.normal(size=(1000, 2))
        found[letter] = (angles + np.pi) % (2 * np.pi) - np.pi
    return pickle.dumps(found)


def captures(n: int, years: int, seed: int) -> np.ndarray:
    """Which of n animals were seen in which year; each is seen at least once."""
    rng = np.random.default_rng(seed)
    seen = np.zeros((n, years), int)
    for row in seen:
        row[first := rng.integers(years - 1)] = 1
        for year in range(first + 1, years):
            if rng.random() > 0.6:
                break
            row[year] = rng.random() < 0.85
    return seen


def dipper_vole() -> bytes:
    """Capture histories and sexes of birds, and histories of voles."""
    dippers, voles = captures(294, 7, 6), captures(171, 6, 7)
    sex = np.random.default_rng(8).integers(2, size=len(dippers))[:, None]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, table in (
            ("dipper_capture_history", dippers),
            ("dipper_sex", sex),
            ("meadow_voles_capture_history", voles),
        ):
            rows = np.column_stack([np.arange(1, len(table) + 1), table])
            archive.writestr(f"{name}.csv", "\n".join(",".join(map(str, row)) for row in rows))
    return file.getvalue()


def bart(part: int) -> bytes:
    """Hourly counts between 20 stations, a quarter of 150 days each."""
    rng = np.random.default_rng(9)
    size = rng.lognormal(1.0, 1.0, size=(20, 20))
    hours = np.arange(part * 900, (part + 1) * 900)[:, None, None]
    day = 1.2 + np.sin(2 * np.pi * hours / 24) + 0.3 * np.sin(2 * np.pi * hours / (24 * 7))
    counts = np.random.default_rng(10 + part).poisson(size * np.maximum(day, 0.02))
    stations = np.array([f"S{i:02d}" for i in range(20)])
    start = np.array("2011-01-01T00:00:00", dtype="datetime64[s]")
    return npz(counts=counts.astype(np.float32), stations=stations, start_date=start)


MAKERS: dict[str, Callable[[], bytes]] = {
    "covtype.npz": covtype,
    "HIGGS.csv.gz": higgs,
    "housing.data": housing,
    "train-images-idx3-ubyte.gz": partial(idx, 1024, 11, labels=False),
    "train-labels-idx1-ubyte.gz": partial(idx, 1024, 11, labels=True),
    "t10k-images-idx3-ubyte.gz": partial(idx, 512, 12, labels=False),
    "t10k-labels-idx1-ubyte.gz": partial(idx, 512, 12, labels=True),
    "jsb_chorales.pickle": chorales,
    "9mers_data.pkl": dihedrals,
    "dipper_vole.zip": dipper_vole,
} | {f"bart_{part}.npz": partial(bart, part) for part in range(4)}
