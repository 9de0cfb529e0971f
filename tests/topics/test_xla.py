"""Each step of the engine of array programs against the same step done document by document."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from lowerbound.errors import ArgumentError
from lowerbound.topics.documents import Documents
from lowerbound.topics.inference_steps import Engine, Local
from lowerbound.topics.xla import XlaEngine, branchless, cvb0, fused, rules
from lowerbound.topics.xla import arrays_engine as xla
from lowerbound.topics.xla import batch as packing
from lowerbound.topics.xla import sums as adding
from tests.oracles import topics as oracle

ROOT = Path(__file__).parents[2]
RULES = ("mean field", "collapsed", "mean")
V, K = 700, 6
# Empty documents, documents of one word, lengths on both sides of a table's, one that is long.
SIZES = [0, 1, 7, 8, 9, 0, 16, 1, 12, 5, 513, 3]
CLOSE = {"float32": 1e-4, "float64": 1e-9}


@pytest.fixture(scope="module")
def documents() -> Documents:
    return oracle.corpus(0, SIZES, V)


@pytest.fixture(scope="module")
def topics() -> np.ndarray:
    return np.random.default_rng(1).gamma(0.5, 2.0, size=(V, K)) + 0.05


ALPHA = np.linspace(0.05, 0.5, K)


def assert_close(found, expected, precision: str) -> None:
    within = CLOSE[precision]
    size = np.abs(expected).max(initial=1e-12)
    np.testing.assert_allclose(found, expected, rtol=within, atol=within * size)


def assert_same(engine: XlaEngine, found: Local, expected: oracle.Local) -> None:
    assert_close(engine.fetch(found.gamma), expected.gamma, engine.precision)
    assert_close(engine.fetch(found.statistics), expected.statistics, engine.precision)
    assert float(found.bound) == pytest.approx(expected.bound, rel=CLOSE[engine.precision])


def test_is_an_engine():
    engine: Engine = XlaEngine()
    assert engine.name == "xla"
    assert XlaEngine("float64") == XlaEngine("float64")


def test_precisions():
    with pytest.raises(ArgumentError) as raised:
        XlaEngine("float16")
    assert str(raised.value) == (
        'precision=\'float16\' is no precision of the engine.\nExpected "float32" or "float64".'
    )


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
def test_weights(topics, rule, precision):
    engine = XlaEngine(precision)
    found = engine.fetch(engine.weights(engine.place(topics), rule))
    np.testing.assert_allclose(found, oracle.weights(topics, rule), rtol=CLOSE[precision])


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("iterations", [0, 1, 2, 15])
def test_local_is_that_of_each_document(documents, topics, rule, precision, iterations):
    engine = XlaEngine(precision)
    weights = engine.weights(engine.place(topics), rule)
    batch = engine.pack(documents)
    limits = {"rule": rule, "iterations": iterations, "tolerance": 0.0}
    found = engine.local(weights, batch, ALPHA, **limits)
    expected = oracle.local(oracle.weights(topics, rule), documents, ALPHA, **limits)
    assert_same(engine, found, expected)
    assert float(found.iterations) == iterations == expected.iterations


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_each_document_stops_on_its_own(documents, topics, rule, tolerance):
    engine = XlaEngine("float64")
    weights = engine.weights(engine.place(topics), rule)
    found = engine.local(weights, engine.pack(documents), ALPHA, rule=rule, tolerance=tolerance)
    expected = oracle.local(
        oracle.weights(topics, rule), documents, ALPHA, rule=rule, tolerance=tolerance
    )
    assert_same(engine, found, expected)
    assert float(found.iterations) == pytest.approx(expected.iterations, rel=1e-12)
    assert 1 < expected.iterations < 100


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("iterations", [0, 3])
def test_local_from_a_start(documents, topics, rule, precision, iterations):
    engine = XlaEngine(precision)
    start = np.random.default_rng(3).gamma(2.0, size=(len(documents), K)) + 0.1
    limits = {"rule": rule, "iterations": iterations, "tolerance": 0.0}
    expected = oracle.local(oracle.weights(topics, rule), documents, ALPHA, start, **limits)
    weights, batch = engine.weights(engine.place(topics), rule), engine.pack(documents)
    assert_same(engine, engine.local(weights, batch, ALPHA, start, **limits), expected)
    if iterations == 0:
        assert_close(expected.gamma, start, precision)


def test_its_own_gamma_is_a_start(documents, topics):
    """Two calls of 3 iterations are one of 6."""
    engine = XlaEngine("float64")
    weights, batch = engine.weights(engine.place(topics), "mean field"), engine.pack(documents)
    half = engine.local(weights, batch, ALPHA, iterations=3, tolerance=0.0)
    again = engine.local(weights, batch, ALPHA, half.gamma, iterations=3, tolerance=0.0)
    once = engine.local(weights, batch, ALPHA, iterations=6, tolerance=0.0)
    np.testing.assert_allclose(again.gamma, once.gamma, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_weights_may_be_a_plain_array(documents, topics, rule):
    engine = XlaEngine("float64")
    plain = oracle.weights(topics, rule)
    found = engine.local(engine.place(plain), engine.pack(documents), ALPHA, rule=rule)
    assert_same(engine, found, oracle.local(plain, documents, ALPHA, rule=rule))


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_documents_does_not_matter(documents, topics, rule):
    engine = XlaEngine("float64")
    weights = engine.weights(engine.place(topics), rule)
    straight = engine.local(weights, engine.pack(documents), ALPHA, rule=rule)
    order = np.random.default_rng(5).permutation(len(documents))
    mixed = engine.local(weights, engine.pack(documents.take(order)), ALPHA, rule=rule)
    np.testing.assert_allclose(mixed.gamma, np.asarray(straight.gamma)[order], rtol=1e-11)
    np.testing.assert_allclose(mixed.statistics, straight.statistics, rtol=1e-9, atol=1e-12)
    assert float(mixed.bound) == pytest.approx(float(straight.bound), rel=1e-11)


@pytest.mark.parametrize("rule", RULES)
def test_padding_does_not_count(topics, rule):
    """Documents alone or among long and empty ones have the same gamma; tokens are all there."""
    engine = XlaEngine("float64")
    documents = oracle.corpus(8, [3, 0, 513, 2], V)
    weights = engine.weights(engine.place(topics), rule)
    together = engine.local(weights, engine.pack(documents), ALPHA, rule=rule)
    alone = [
        engine.local(weights, engine.pack(documents.between(d, d + 1)), ALPHA, rule=rule)
        for d in range(len(documents))
    ]
    np.testing.assert_allclose(
        together.gamma, np.concatenate([one.gamma for one in alone]), rtol=1e-11
    )
    assert float(together.bound) == pytest.approx(sum(float(one.bound) for one in alone))
    assert float(together.iterations) == pytest.approx(np.mean([one.iterations for one in alone]))
    assert np.asarray(together.statistics).sum() == pytest.approx(documents.tokens, rel=1e-12)


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_nothing_to_read(topics, sizes):
    engine = XlaEngine("float64")
    documents = oracle.corpus(0, sizes, V)
    weights = engine.weights(engine.place(topics), "mean field")
    found = engine.local(weights, engine.pack(documents), ALPHA)
    np.testing.assert_allclose(found.gamma, np.broadcast_to(ALPHA, (len(sizes), K)), rtol=1e-14)
    assert np.abs(np.asarray(found.statistics)).max() == 0
    assert float(found.bound) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("precision", CLOSE)
def test_weights_below_the_smallest_float(precision):
    """Words that no topic has seen: exp psi(0.001) is 10^-435, and phi follows the document."""
    engine = XlaEngine(precision)
    topics = np.full((30, 4), 1e-3)
    topics[:4] = 50 * np.eye(4) + 1e-3
    documents = Documents(
        np.array([0, 2]), np.array([0, 20], np.int32), np.array([5, 2], np.float32), 30
    )
    weights = engine.weights(engine.place(topics), "mean field")
    found = engine.local(weights, engine.pack(documents), np.full(4, 1e-3))
    assert np.isfinite(np.asarray(found.gamma)).all()
    assert np.isfinite(float(found.bound))
    np.testing.assert_allclose(np.asarray(found.gamma)[0, 0], 7.001, rtol=1e-5)
    assert float(np.asarray(found.statistics)[0, 0]) == pytest.approx(5, rel=1e-5)
    assert np.asarray(found.statistics).sum() == pytest.approx(7, rel=1e-5)


@pytest.mark.parametrize("eta", [np.array([0.01]), np.linspace(0.01, 0.3, V)])
def test_blend(topics, eta):
    engine = XlaEngine()
    statistics = np.random.default_rng(2).gamma(1.0, size=(V, K))
    found = engine.blend(engine.place(topics), engine.place(statistics), eta, 0.3, 17.0)
    expected = oracle.blend(topics, statistics, eta, 0.3, 17.0)
    np.testing.assert_allclose(engine.fetch(found), expected, rtol=1e-14)


def test_a_blend_in_single_precision_keeps_small_steps(topics):
    engine = XlaEngine("float32")
    placed = engine.place(topics)
    found = engine.blend(placed, placed, np.zeros(1), 1e-9, 2.0)
    np.testing.assert_allclose(engine.fetch(found) / topics - 1, 1e-9, rtol=1e-6)


def programs() -> int:
    jitted = (xla._step, xla._weights, xla._empty, xla._finished, xla._blend, packing._table)
    return sum(function._outer._cache_size() for function in jitted)


@pytest.mark.parametrize("rule", RULES)
def test_a_second_batch_compiles_nothing(topics, rule):
    sizes = np.random.default_rng(9).integers(0, 30, size=100).tolist()

    def fitted(seed: int, step: float) -> None:
        engine = XlaEngine()  # another engine shares the programs
        documents = oracle.corpus(seed, sizes[seed:] + sizes[:seed], V)
        placed = engine.place(topics)
        weights = engine.weights(placed, rule)
        found = engine.local(weights, engine.pack(documents), ALPHA, rule=rule, tolerance=step)
        engine.blend(placed, found.statistics, np.ones(1), step, 1 / step)

    fitted(0, 0.5)
    before = programs()
    fitted(1, 0.25)
    assert programs() == before


@pytest.mark.parametrize("bytes_", [1, 200_000])
@pytest.mark.parametrize("rule", RULES)
def test_blocks_of_rows_do_not_change_the_result(monkeypatch, documents, topics, rule, bytes_):
    monkeypatch.setitem(rules.TILE_BYTES, "cpu", bytes_)
    engine = XlaEngine("float64")
    xla._step.clear_cache()
    weights = engine.weights(engine.place(topics), rule)
    found = engine.local(weights, engine.pack(documents), ALPHA, rule=rule)
    xla._step.clear_cache()
    assert_same(
        engine, found, oracle.local(oracle.weights(topics, rule), documents, ALPHA, rule=rule)
    )


# The forms that run on GPU.


def table_of(seed: int, rows: int, length: int, vocabulary: int):
    documents = oracle.corpus(
        seed, [min(length, vocabulary, 3 * r) for r in range(rows)], vocabulary
    )
    words, counts = np.zeros((rows, length), np.int32), np.zeros((rows, length))
    for d, (own, n) in enumerate(oracle.documents_of(documents)):
        words[d, : len(own)], counts[d, : len(own)] = own, n
    return words, counts


@pytest.mark.parametrize("vocabulary", [1, 40, 500])
@pytest.mark.parametrize("each", [False, True], ids=["by document", "by entry"])
def test_sums_by_word_in_every_form(monkeypatch, vocabulary, each):
    """Sorted pieces and the product of matrices give what adding one by one gives."""
    monkeypatch.setattr(adding, "DENSE_BYTES", 8 * vocabulary * 7)  # blocks that do not divide
    words, counts = table_of(0, 24, 64, vocabulary)
    rng = np.random.default_rng(4)
    ratio = rng.gamma(1.0, size=words.shape) * (counts > 0)
    t = rng.gamma(1.0, size=(*words.shape, K) if each else (24, K))
    expected = np.zeros((vocabulary, K))
    np.add.at(expected, words, ratio[..., None] * (t if each else t[:, None]))

    @jax.jit
    def in_pieces(words, counts, ratio, t):
        return adding.in_pieces(adding.pieces(words, counts, vocabulary), ratio, t)

    with jax.enable_x64(True):
        ratio, t, n = jnp.asarray(ratio), jnp.asarray(t), jnp.asarray(counts)
        w = jnp.asarray(words)
        found = [
            adding.scattered(w, ratio, t, vocabulary),
            in_pieces(w, n, ratio, t),
        ]
        if not each:
            product = jax.jit(adding.product, static_argnums=(3, 4))
            found.append(product(w, ratio, t, vocabulary, "gpu"))
    for sums in found:
        np.testing.assert_allclose(sums, expected, rtol=1e-11, atol=1e-12)


def test_which_sums_run(monkeypatch):
    """A scatter on CPU; on GPU a product for a small vocabulary, and else sorted pieces."""
    ran = []
    for name in ("scattered", "product", "in_pieces"):
        monkeypatch.setattr(adding, name, lambda *_, name=name: ran.append(name))
    monkeypatch.setattr(adding, "pieces", lambda *_: None)
    flat, deep = np.zeros((2, K)), np.zeros((2, 3, K))
    for platform in ("cpu", "gpu"):
        for t, vocabulary in ((flat, 100), (deep, 100), (flat, 10**6)):
            adding.by_word(None, None, None, t, vocabulary=vocabulary, platform=platform)
    assert ran == ["scattered"] * 3 + ["product", "in_pieces", "in_pieces"]


@pytest.mark.parametrize(("precision", "within"), [("float32", 1e-6), ("float64", 2e-13)])
@pytest.mark.parametrize(
    ("ours", "theirs"), [(branchless.digamma, digamma), (branchless.log_gamma, gammaln)]
)
def test_special_functions(ours, theirs, precision, within):
    """Over all parameters that occur, to a few units of the largest term of their formulas."""
    x = np.logspace(-3, 7, 4000).astype(precision)
    expected = theirs(x.astype(float))
    with jax.enable_x64(True):
        found = np.asarray(ours(jnp.asarray(x)), float)
    assert np.max(np.abs(found - expected) / np.maximum(10, np.abs(expected))) < within


@pytest.mark.parametrize("rule", ["mean field", "mean"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("REGISTERS", 1 << 15), ("REGISTERS", 1 << 9), ("NARROW", 8)],
    ids=["held", "read again", "wide"],
)
@pytest.mark.parametrize("iterations", [0, 40])
def test_the_kernel_interpreted(monkeypatch, topics, rule, name, value, iterations):
    """The GPU kernel, run by its interpreter, stops each document as the oracle does."""
    monkeypatch.setattr(fused, name, value)
    monkeypatch.setattr(xla, "kernel_for", lambda *_: "interpreted")
    documents = oracle.corpus(6, [0, 1, 9, 40, 96, 90, 17], V)
    engine = XlaEngine()
    xla._step.clear_cache()
    weights = engine.weights(engine.place(topics), rule)
    found = engine.local(
        weights, engine.pack(documents), ALPHA, rule=rule, iterations=iterations, tolerance=0.01
    )
    xla._step.clear_cache()
    expected = oracle.local(
        oracle.weights(topics, rule),
        documents,
        ALPHA,
        rule=rule,
        iterations=iterations,
        tolerance=0.01,
    )
    assert_same(engine, found, expected)
    assert float(found.iterations) == pytest.approx(expected.iterations)


@pytest.mark.parametrize(
    ("length", "width", "layout"),
    [
        (8, 128, (True, 8, 1)),
        (96, 128, (True, 32, 2)),
        (128, 128, (True, 128, 4)),
        (192, 128, (True, 64, 4)),
        (256, 128, (True, 128, 8)),
        (512, 128, (False, 128, 4)),
        (128, 16, (True, 128, 1)),
        (128, 512, (False, 4, 1)),
        (8, 4096, (False, 1, 1)),
    ],
)
def test_layouts_of_the_kernel(length, width, layout):
    """Those that were measured fastest; a block divides the length."""
    assert fused._layout(length, width) == layout
    assert length % layout[1] == 0


def test_which_kernel_runs(monkeypatch):
    monkeypatch.setattr(fused, "_compiles", lambda: True)
    assert xla.kernel_for("cpu", 100, "mean field", "float32") == "loop"
    assert xla.kernel_for("gpu", 100, "mean field", "float32") == "fused"
    assert xla.kernel_for("gpu", 100, "mean", "float32") == "fused"
    assert xla.kernel_for("gpu", 100, "collapsed", "float32") == "loop"
    assert xla.kernel_for("gpu", 100, "mean field", "float64") == "loop"
    assert xla.kernel_for("gpu", 10_000, "mean field", "float32") == "loop"


def test_where_the_kernel_does_not_compile_the_loop_runs():
    """On CPU it does not."""
    assert not fused._compiles()
    assert xla.kernel_for("gpu", 100, "mean field", "float32") == "loop"


# Collapsed inference with phi of every entry.


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("batch", [7, 100])
@pytest.mark.parametrize("eta", [np.array([0.01]), np.linspace(0.01, 0.3, V)])
def test_sweeps_of_cvb0(documents, topics, precision, batch, eta):
    assigned = assign(documents, topics, precision, batch)
    phi = cvb0.responsibilities(assigned)
    engine = XlaEngine(precision)
    for _ in range(3):
        assigned = engine.reassign(assigned, ALPHA, eta)
        phi = oracle.reassigned(documents, phi, ALPHA, eta, batch)
        assert_close(cvb0.responsibilities(assigned), phi, precision)
    assert_close(engine.word_counts(assigned), oracle.word_counts(documents, phi), precision)
    assert_close(engine.fetch(assigned.by_word), oracle.word_counts(documents, phi), precision)
    assert_close(
        engine.document_counts(assigned), oracle.document_counts(documents, phi), precision
    )


def assign(documents: Documents, topics: np.ndarray, precision: str, batch: int):
    engine = XlaEngine(precision)
    with jax.enable_x64(True):
        weights = engine.weights(engine.place(topics), "collapsed")
        return cvb0.assign(documents, weights, ALPHA, None, batch)


@pytest.mark.parametrize("plain", [False, True], ids=["scaled", "plain"])
def test_assign_is_the_collapsed_rule(documents, topics, plain):
    engine = XlaEngine("float64")
    by_hand = oracle.weights(topics, "collapsed")
    weights = by_hand if plain else engine.weights(engine.place(topics), "collapsed")
    assigned = engine.assign(documents, weights, ALPHA)
    expected = oracle.local(
        by_hand, documents, ALPHA, rule="collapsed", iterations=20, tolerance=1e-2
    )
    np.testing.assert_allclose(engine.word_counts(assigned), expected.statistics, atol=1e-9)
    phi = engine.responsibilities(assigned)
    np.testing.assert_allclose(oracle.word_counts(documents, phi), expected.statistics, atol=1e-9)
    np.testing.assert_allclose(phi.sum(1), 1, rtol=1e-12)
    of_documents = engine.document_counts(assigned)
    np.testing.assert_allclose(of_documents, oracle.document_counts(documents, phi), rtol=1e-10)


def test_batches_do_not_change_what_is_assigned(documents, topics):
    phi = [
        cvb0.responsibilities(assign(documents, topics, "float64", batch))
        for batch in (7, cvb0.BATCH)
    ]
    np.testing.assert_allclose(*phi, rtol=1e-11)


def test_no_documents_are_assigned(topics):
    engine = XlaEngine()
    nothing = engine.assign(oracle.corpus(0, [], V), oracle.weights(topics, "collapsed"), ALPHA)
    assigned = engine.reassign(nothing, ALPHA, np.ones(1))
    assert engine.responsibilities(assigned).shape == (0, K)
    assert engine.document_counts(assigned).shape == (0, K)
    assert engine.word_counts(assigned).sum() == 0


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_four_devices_do_what_one_does(precision):
    """Run in a process of its own, where JAX sees four devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.topics.four_devices", precision],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.split() == [precision]
