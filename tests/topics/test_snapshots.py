"""Snapshots grow by one, and the earlier ones stay as they were."""

import json

import numpy as np

from lowerbound.topics.snapshots import no_snapshots


def test_snapshots_append():
    none = no_snapshots(2, 3)
    first = none.with_one(100, [0.25, 0.75], [[0, 1, 2], [3, 4, 5]], -7.5)
    second = first.with_one(200, [0.5, 0.5], [[1, 0, 2], [3, 4, 5]])
    assert [len(none), len(first), len(second)] == [0, 1, 2]
    assert second.documents.tolist() == [100, 200]
    assert second.weights.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert second.words[1].tolist() == [[1, 0, 2], [3, 4, 5]]
    assert second.score[0] == -7.5
    assert np.isnan(second.score[1])
    for snapshots in (none, first, second):
        kinds = [getattr(snapshots, name).dtype for name in vars(snapshots)]
        assert kinds == [np.int64, np.float64, np.int32, np.float64]
    assert json.loads(json.dumps(first.words.tolist())) == [[[0, 1, 2], [3, 4, 5]]]
