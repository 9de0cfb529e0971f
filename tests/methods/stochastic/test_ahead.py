"""Batches that are read ahead: cut anywhere, and opened anew where a run goes on elsewhere."""

import numpy as np

from lowerbound.methods.stochastic.ahead import Ahead
from lowerbound.source.batches import chunk_spans


class Opened:
    """Chunks of the numbers of the steps; counts how often they are opened and closed."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.closed = 0

    def __call__(self, start):
        self.starts.append(start)
        try:
            for first, count in chunk_spans(start, 4, 40, ends=(6,)):
                yield {"t": np.arange(first, first + count), "t2": np.arange(first, first + count)}
        finally:
            self.closed += 1


def taken(ahead, start, ends):
    """The steps that are taken where the loop asks for steps up to each of `ends`."""
    found = []
    for end in ends:
        while start < end:
            chunk = ahead.take(start, end)
            assert len(chunk["t"]) == len(chunk["t2"]) > 0
            found += chunk["t"].tolist()
            start += len(chunk["t"])
            assert start <= end
    return found


def test_wherever_chunks_are_cut_all_steps_come_in_order_and_are_read_once():
    rng = np.random.default_rng(0)
    for _ in range(20):
        opened = Opened()
        ends = np.unique(rng.integers(1, 41, size=8))
        assert taken(Ahead(opened), 0, ends) == list(range(ends[-1]))
        assert opened.starts[1:] == []


def test_a_run_that_goes_on_elsewhere_opens_anew():
    opened = Opened()
    ahead = Ahead(opened)
    assert taken(ahead, 0, [5]) == [0, 1, 2, 3, 4]
    assert taken(ahead, 3, [5, 7]) == [3, 4, 5, 6]  # what was taken again is the same
    assert taken(ahead, 7, [9]) == [7, 8]
    assert opened.starts == [0, 3]
    assert opened.closed == 1
    ahead.close()
    assert opened.closed == 2
    assert taken(ahead, 9, [10]) == [9]
