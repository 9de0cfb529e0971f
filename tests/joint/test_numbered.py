"""Terms that differ only in what their labels are called have one key."""

from __future__ import annotations

import numpy as np

from lowerbound.joint.terms.expression import array_key
from lowerbound.joint.terms.indices import Gather, Label
from lowerbound.joint.terms.numbered import Numbered


def test_names_follow_the_order_in_which_labels_are_met():
    rows = np.array([0, 1, 1])

    def key(a, b, first=()):
        name = Numbered(array_key, first)
        return [name(b), name(Gather(rows, (a,))), name(b), name(a)]

    one, two, three, four = (Label(3) for _ in range(4))
    assert key(one, two) == key(three, four) == [0, (array_key(rows), (1,)), 0, 1]
    assert key(one, two, [one]) == [1, (array_key(rows), (0,)), 1, 0]
    assert key(one, two, [one]) != key(one, two, [two])
