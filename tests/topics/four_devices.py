"""Run by the tests of the engine in a process of its own, where JAX sees four devices.

The rows of each table are spread over them; every step gives what one device gives.
`python -m tests.topics.four_devices PRECISION`.
"""

import sys

import jax
import numpy as np

from lowerbound.compute.devices import placement
from lowerbound.topics.xla import XlaEngine
from tests.oracles import topics as oracle

V, K = 200, 5
ALPHA = np.linspace(0.05, 0.5, K)
SIZES = [0, 1, 7, 8, 1, 5, 3, 2, 8, 6, 4]  # two tables, one with rows to spare


def check(precision: str, within: float) -> None:
    one, many = XlaEngine(precision), XlaEngine(precision, placement(4))
    documents = oracle.corpus(0, SIZES, V)
    topics = np.random.default_rng(1).gamma(0.5, 2.0, size=(V, K)) + 0.05
    start = np.random.default_rng(3).gamma(2.0, size=(len(documents), K)) + 0.1

    def close(name):
        def compare(a, b):
            a, b = one.fetch(a), many.fetch(b)
            atol = within * np.abs(a).max()
            np.testing.assert_allclose(b, a, rtol=within, atol=atol, err_msg=name)

        return compare

    batches = one.pack(documents), many.pack(documents)
    for table in batches[1].tables:
        assert len(table.words.sharding.device_set) == 4
        assert not table.words.is_fully_replicated
    rules = {"mean field": [None, start], "collapsed": [None], "mean": [start]}
    for rule, starts in rules.items():
        for given in starts if precision == "float64" else [start]:
            found = []
            for engine, batch in zip((one, many), batches, strict=True):
                placed = engine.place(topics)
                local = engine.local(
                    engine.weights(placed, rule),
                    batch,
                    ALPHA,
                    None if given is None else engine.place(given),
                    rule=rule,
                    iterations=12,
                    tolerance=0.0,
                )
                new = engine.blend(placed, local.statistics, np.full(1, 0.1), 0.2, 3.0)
                found.append((*local, new))
            jax.tree.map(close(rule), *found)
    if precision == "float32":
        return
    given = oracle.weights(topics, "collapsed")
    assigned = [engine.assign(documents, given, ALPHA) for engine in (one, many)]
    eta = np.full(1, 0.1)
    for _ in range(2):
        assigned = [e.reassign(a, ALPHA, eta) for e, a in zip((one, many), assigned, strict=True)]
    assert not assigned[1].phi[0][0].is_fully_replicated
    compare = close("collapsed")
    compare(*(e.responsibilities(a) for e, a in zip((one, many), assigned, strict=True)))
    compare(*(e.word_counts(a) for e, a in zip((one, many), assigned, strict=True)))
    compare(*(e.document_counts(a) for e, a in zip((one, many), assigned, strict=True)))


if __name__ == "__main__":
    check(sys.argv[1], {"float32": 1e-5, "float64": 1e-10}[sys.argv[1]])
    print(sys.argv[1])
