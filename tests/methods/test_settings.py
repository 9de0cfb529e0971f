"""Methods are values: few settings, none ignored, names of sites checked before any work."""

import contextlib
import dataclasses
import inspect

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.bound.divergences import Divergence
from lowerbound.errors import ArgumentError
from lowerbound.methods.values import AROUND, METHODS, as_method
from lowerbound.run.method import CHECKPOINTS, DEVICES, SINGLE, STREAMS
from tests.methods import zoo
from tests.methods.fitted import Calls, explained
from tests.methods.table import WAYS
from tests.methods.unknown import UNKNOWN, cases

MOST = 7
GIVEN = [way for way in WAYS if not way.automatic]
EVERY = (*METHODS, *AROUND)


def named(kind):
    return kind.__name__


# --- Values ---


@pytest.mark.parametrize("way", GIVEN, ids=lambda way: way.name)
def test_the_text_of_a_method_is_the_method(way):
    again = eval(repr(way.method), vars(lb))
    assert again == way.method
    assert hash(again) == hash(way.method)
    assert repr(again) == repr(way.method)


@pytest.mark.parametrize("kind", METHODS, ids=named)
def test_methods_are_frozen(kind):
    method = kind()
    name = next((field.name for field in dataclasses.fields(kind)), "setting")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(method, name, None)


@pytest.mark.parametrize("kind", METHODS, ids=named)
def test_methods_of_equal_settings_are_equal(kind):
    assert kind() == kind()
    assert kind() != next(other for other in METHODS if other is not kind)()
    init = {"init": {"mu": np.zeros(2)}}
    init = init if "init" in inspect.signature(kind).parameters else {}
    assert kind(**init) == kind(**init)
    assert (kind(**init) == kind()) == (not init)


@pytest.mark.parametrize("kind", EVERY, ids=named)
def test_methods_have_at_most_seven_settings(kind):
    assert len(dataclasses.fields(kind)) <= MOST
    assert len(inspect.signature(kind).parameters) <= MOST


@pytest.mark.parametrize("kind", EVERY, ids=named)
def test_methods_say_what_they_can_and_what_they_make_small(kind):
    assert kind.can <= {CHECKPOINTS, DEVICES, SINGLE, STREAMS}
    assert isinstance(kind.divergence, Divergence)
    assert getattr(lb, kind.__name__) is kind


@pytest.mark.parametrize("kind", METHODS, ids=named)
def test_a_name_is_shorthand_for_the_defaults(kind):
    assert as_method(kind.__name__.lower()) == kind() == as_method(kind)


def test_methods_around_others_can_what_these_can():
    assert lb.Augmented({}, lb.SVI()).abilities == lb.SVI.can
    assert lb.Given(("tau",)).abilities == frozenset()


# --- Sites that are not there ---


def error_of(call):
    """The text of the error that a call raises."""
    with pytest.raises(ArgumentError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("case", cases(UNKNOWN, "fit"))
def test_an_unknown_site_is_an_error_before_work(case):
    asked, planned = Calls(case.example.model), Calls(case.example.model)
    text = error_of(lambda: lb.fit(asked.model, **case.example.call, method=case.method))
    assert "nowhere" in text
    assert "\nExpected " in text
    with contextlib.suppress(ArgumentError):
        explained(case, planned.model)
    assert asked.count <= planned.count


@pytest.mark.parametrize("case", cases(UNKNOWN, "explain"))
def test_explain_refuses_it_too(case):
    text = error_of(lambda: explained(case))
    assert text == error_of(
        lambda: lb.fit(case.example.model, **case.example.call, method=case.method)
    )


# --- What a method cannot do ---


@pytest.mark.parametrize("kind", METHODS, ids=named)
def test_asking_for_what_a_method_cannot_do_is_an_error_before_work(kind, tmp_path):
    example = zoo.DECODER if kind is lb.EM else zoo.LOGISTIC
    can, asked = kind().abilities, Calls(example.model)
    if CHECKPOINTS not in can:
        with pytest.raises(ArgumentError, match="keeps no state between its steps"):
            lb.fit(asked.model, **example.call, method=kind(), checkpoint=tmp_path)
    if DEVICES not in can:
        text = error_of(lambda: computed(asked.model, example, kind(), devices=1))
        assert "which runs on one device" in text
    if SINGLE not in can:
        text = error_of(lambda: computed(asked.model, example, kind(), precision="float32"))
        assert "which computes in double precision" in text
    if STREAMS not in can:
        with pytest.raises(ArgumentError, match="which needs all rows at once"):
            lb.fit(asked.model, **zoo.STREAMED.call, method=kind())
    assert asked.count == 0


def computed(model, example, method, **where):
    with lb.computing(**where):
        return lb.fit(model, **example.call, method=method)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("restarts", 3),
        ("blocks", [("mu",), ("theta",)]),
        ("monitor", dict(zoo.SCHOOLS.data)),
        ("max_sweeps", 1),
        ("tolerance", 0.5),
    ],
)
def test_a_grid_refuses_what_its_nodes_do_not_heed(setting, value):
    with pytest.raises(ArgumentError, match=f"Given got a method with {setting}="):
        lb.Given(("tau",), lb.CAVI(**{setting: value}))


@pytest.mark.parametrize("method", [lb.SVI(), lb.Laplace(), lb.Given(("mu",))])
def test_a_grid_has_methods_that_solve_nodes(method):
    with pytest.raises(ArgumentError, match=r"Expected lb\.CAVI"):
        lb.Given(("tau",), method)


def test_the_table_prints():
    from tests.methods.table import lines

    text = "\n".join(lines())
    assert all(way.name in text for way in WAYS)
    assert zoo.LINE.name not in text
