"""Methods are values: few settings, none ignored, names of sites checked before any work."""

import contextlib
import dataclasses

import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError
from tests.methods import zoo
from tests.methods.fitted import Calls, explained
from tests.methods.table import IGNORED, SETTINGS, UNKNOWN, WAYS, cases

MOST = 7
GIVEN = [way for way in WAYS if not way.automatic]


# --- Values ---


@pytest.mark.parametrize("way", GIVEN, ids=lambda way: way.name)
def test_the_text_of_a_method_is_the_method(way):
    again = eval(repr(way.method), vars(lb))
    assert type(again) is type(way.method)
    assert vars(again) == vars(way.method)
    assert repr(again) == repr(way.method)


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_methods_are_frozen(kind):
    method, name = kind(), dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(method, name, None)


@pytest.mark.xfail(strict=True, reason="methods compare by identity, not by their settings")
@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_methods_of_equal_settings_are_equal(kind):
    assert kind() == kind()


def count(kind):
    return len(dataclasses.fields(kind))


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_methods_get_no_more_settings(kind):
    assert count(kind) <= SETTINGS[kind]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind.__name__,
            marks=[pytest.mark.xfail(strict=True, reason=f"{number} settings, more than {MOST}")]
            if number > MOST
            else [],
        )
        for kind, number in SETTINGS.items()
    ],
)
def test_methods_have_at_most_seven_settings(kind):
    assert count(kind) <= MOST


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


# --- Settings that are ignored ---


@pytest.mark.parametrize("case", cases(IGNORED, "fit"))
def test_no_setting_is_ignored_in_silence(case):
    """It is refused, or it shows."""
    plain, call = case.plain, case.example.call
    try:
        fit = lb.fit(case.example.model, **call, method=case.method)
    except ArgumentError:
        return
    assert case.shows(fit, lb.fit(case.example.model, **call, method=plain))


def test_the_table_prints():
    from tests.methods.table import lines

    text = "\n".join(lines())
    assert all(way.name in text for way in WAYS)
    assert zoo.LINE.name not in text
