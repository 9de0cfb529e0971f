"""Settings that are not given: what is chosen, and why in words."""

import os

import numpy as np
import pytest

from lowerbound.errors import NativeKernelWarning
from lowerbound.topics import choice
from lowerbound.topics.choice import choose_batch, choose_engine, choose_inference
from lowerbound.topics.corpus import Corpus, open_corpus
from lowerbound.topics.documents import Documents
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from lowerbound.topics.xla import XlaEngine

needs_kernel = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")


def corpus(documents: int, length: int) -> Corpus:
    """Documents of one word that is repeated."""
    held = Documents(
        np.arange(documents + 1), np.zeros(documents, np.int32),
        np.full(documents, length, np.float32), 3,
    )  # fmt: skip
    return open_corpus(held)


def stream() -> Corpus:
    class Chunks:
        def __iter__(self):
            yield np.ones((2, 3))

    return open_corpus(Chunks())


# --------------------------------------------------------------------------------------------------
# The inference


@pytest.mark.parametrize(
    ("documents", "length", "expected", "why"),
    [
        (1200, 50, ("collapsed", True),
         "Collapsed inference (sweeps follow batches): 1,200 documents of 50 tokens on average are "
         "short, where mean field is less accurate."),
        (1200, 300, ("cavi", False),
         "Coordinate ascent: 1,200 documents of 300 tokens on average, few and long."),
        (12_000, 300, ("svi", False),
         "SVI: 12,000 documents of 300 tokens on average, many and long."),
    ],
)  # fmt: skip
def test_the_shape_of_the_corpus_decides(documents, length, expected, why):
    assert choose_inference("auto", corpus(documents, length), 5) == (*expected, why)


def test_sweeps_need_memory(monkeypatch):
    monkeypatch.setattr(choice, "STORED", 1200 * 5 * 2 - 1)
    assert choose_inference("auto", corpus(1200, 50), 5) == (
        "collapsed",
        False,
        "Collapsed inference (batches alone, as phi of all entries would take 0 GiB): 1,200 "
        "documents of 50 tokens on average are short, where mean field is less accurate.",
    )
    assert choose_inference("collapsed", corpus(1200, 50), 5)[1] is False
    assert choose_inference("collapsed", corpus(1199, 50), 5)[1] is True


def test_a_stream_is_read_in_batches():
    assert choose_inference("auto", stream(), 5) == (
        "collapsed",
        False,
        "Collapsed inference on batches: the corpus is a stream, so it is read in batches, without "
        "phi of its entries.",
    )
    assert choose_inference("collapsed", stream(), 5)[1] is False


@pytest.mark.parametrize("wanted", ["svi", "cavi", "collapsed"])
def test_what_is_asked_for_is_done(wanted):
    found, _, why = choose_inference(wanted, corpus(10, 50), 5)
    assert found == wanted
    assert why == f'inference="{wanted}" was asked for.'


# --------------------------------------------------------------------------------------------------
# The engine


@needs_kernel
def test_the_kernel_works_on_cpu():
    assert choose_engine("float64", 3, None) == NativeEngine("float64", 3)
    assert choose_engine("float32", None, None).threads == choice.cores()


def test_xla_where_devices_are_named():
    import jax

    engine = choose_engine("float64", None, 1)
    assert isinstance(engine, XlaEngine)
    assert engine.precision == "float64"
    assert isinstance(choose_engine("float32", None, jax.devices()), XlaEngine)


def test_without_the_kernel_xla_takes_its_place_and_says_so(monkeypatch):
    monkeypatch.setattr(choice, "library", lambda: None)
    with pytest.warns(NativeKernelWarning) as caught:
        engine = choose_engine("float32", None, None)
    assert isinstance(engine, XlaEngine)
    assert str(caught[0].message) == (
        "The compiled kernel of topics is not built on this machine, so topics run on XLA, which "
        "is slower on CPU.\nInstall a C++ compiler and reinstall lowerbound, or say that this is "
        "meant: with lb.computing(devices=1)."
    )


def test_asking_for_xla_needs_no_warning(monkeypatch):
    monkeypatch.setattr(choice, "library", lambda: None)
    assert isinstance(choose_engine("float32", None, 1), XlaEngine)


def test_cores_are_those_this_process_may_use():
    assert 1 <= choice.cores() <= (os.cpu_count() or 1)


# --------------------------------------------------------------------------------------------------
# The batch


@pytest.mark.parametrize(
    ("inference", "count", "expected"),
    [
        ("svi", None, 4096),
        ("svi", 100, 100),
        ("svi", 3_000, 256),
        ("svi", 32_000, 2000),
        ("collapsed", 32_000, 500),
        ("collapsed", 10**7, 8192),
    ],
)
def test_batches_of_the_kernel(inference, count, expected):
    assert choose_batch(inference, count, NativeEngine()) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(None, 8192), (100, 256), (64_000, 2000), (10**7, 32768)]
)
def test_batches_of_xla(count, expected):
    assert choose_batch("svi", count, XlaEngine()) == expected
