"""Settings that are not given: which inference, which engine, in what batches, and why."""

from __future__ import annotations

import os
import warnings
from typing import Any, Final

import jax
import numpy as np

from lowerbound.errors import NativeKernelWarning
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from lowerbound.topics.settings import Kind

LONG: Final = 200  # tokens a document, from which mean field and collapsed inference hardly differ
FEW: Final = 10_000  # documents that coordinate ascent sweeps over quickly
STORED: Final = 4 * 2**30  # bytes of phi that collapsed sweeps may keep
KINDS: Final = ("auto", "svi", "cavi", "collapsed")


def choose_inference(wanted: str, corpus: Corpus, topics: int) -> tuple[Kind, bool, str]:
    """The inference, whether phi of all entries may be kept, and the reason in words."""
    held = corpus.held
    fits, stored = False, 0
    if held is not None:
        stored = len(held.words) * topics * 2
        fits = stored <= STORED
    if wanted != "auto":
        return wanted, fits, f'inference="{wanted}" was asked for.'  # type: ignore[return-value]
    if held is None:
        why = "the corpus is a stream, so it is read in batches, without phi of its entries"
        return "collapsed", False, f"Collapsed inference on batches: {why}."
    length = held.tokens / max(len(held), 1)
    shape = f"{len(held):,} documents of {length:.0f} tokens on average"
    if length < LONG:
        more = "sweeps follow batches"
        if not fits:
            more = f"batches alone, as phi of all entries would take {stored / 2**30:.0f} GiB"
        why = f"Collapsed inference ({more}): {shape} are short, where mean field is less accurate."
        return "collapsed", fits, why
    if len(held) <= FEW:
        return "cavi", False, f"Coordinate ascent: {shape}, few and long."
    return "svi", False, f"SVI: {shape}, many and long."


def choose_engine(precision: str, threads: int | None, devices: Any) -> Engine:
    """The compiled kernel on CPU; XLA on accelerators, or where devices are named."""
    if devices is None and jax.default_backend() == "cpu":
        if library() is not None:
            return NativeEngine(precision, threads or cores())
        warnings.warn(NativeKernelWarning(), stacklevel=4)
    from lowerbound.compute.devices import placement
    from lowerbound.topics.xla import XlaEngine

    return XlaEngine(precision, placement(devices))


def cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def choose_batch(inference: Kind, count: int | None, engine: Engine) -> int:
    """Documents a step: so that a pass is tens of steps, and steps are worth their overhead."""
    if engine.name == "xla":
        return 8192 if count is None else int(np.clip(count // 32, 256, 32768))
    if count is None:
        return 4096
    steps = 64 if inference == "collapsed" else 16
    return int(np.clip(count // steps, min(256, count), 8192))
