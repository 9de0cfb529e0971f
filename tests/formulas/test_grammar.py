"""A formula is read into coefficients, curves, groups, and what is said of the response."""

from __future__ import annotations

import pytest

from lowerbound.errors import FormulaError
from lowerbound.formulas.grammar import parse


def names(terms) -> list[str]:
    return [term.name for term in terms]


def test_the_parts_of_a_formula() -> None:
    found = parse("y ~ x*f + s(z, df=5) + offset(v) + (1 + x | g) + (1 | h)")
    assert found.response.name == "y"
    assert names(found.common) == ["Intercept", "x", "f", "x:f", "offset(v)"]
    assert names(found.smooths) == ["s(z, df=5)"]
    assert [bar.text for bar in found.bars] == ["(1 + x | g)", "(1 | h)"]
    assert found.columns() == {"y", "x", "f", "z", "v", "g", "h"}


@pytest.mark.parametrize(
    ("text", "bars"),
    [
        ("y ~ (x | g)", ["(1 + x | g)"]),
        ("y ~ (0 + x | g)", ["(0 + x | g)"]),
        ("y ~ (1 | g/h)", ["(1 | g)", "(1 | g:h)"]),
        ("y ~ (1 | g) + (1 | h)", ["(1 | g)", "(1 | h)"]),
        ("y ~ (1 + x || g)", ["(1 || g)", "(0 + x || g)"]),
        ("y ~ (1 | g) + (0 + x | g)", ["(1 | g)", "(0 + x | g)"]),
        ("y ~ (1 | g:h)", ["(1 | g:h)"]),
    ],
)
def test_groups_are_crossed_nested_correlated_or_not(text: str, bars: list[str]) -> None:
    assert [bar.text for bar in parse(text).bars] == bars


@pytest.mark.parametrize("text", ["y ~ 0 + x", "y ~ x - 1", "y ~ -1 + x + (1 | g)"])
def test_the_intercept_can_be_left_out(text: str) -> None:
    assert names(parse(text).common) == ["x"]


def test_trials_and_weights_stand_by_the_response() -> None:
    found = parse("y | trials(n) + weights(w) ~ x")
    assert found.response.name == "y"
    assert {name: term.name for name, term in found.about.items()} == {
        "trials": "n",
        "weights": "w",
    }
    assert parse("p(y, n) ~ x").about["trials"].name == "n"
    assert parse("y | trials(10) ~ x").about == {"trials": 10}
    assert found.columns(response=False, weights=False) == {"x", "n"}


LIKE = 'Expected one like "y ~ x + s(z) + (1 + x | g)".'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y ~ x + (1 | g", 'the "(" at character 9 is never closed'),
        ("y ~ x + 1 | g)", 'the ")" at character 14 closes nothing'),
        ("y ~ x + 1 | g", 'a "|" stands outside of parentheses: write (1 | g)'),
        ("y ~ x + (1 | )", "no term begins with ')'"),
        ("y ~ x +", "it ends where a term is expected"),
        ("y ~ x $ z", "unexpected character: $"),
        ("y ~ x ~ z", "there is more than one '~' in model formula"),
        ("y ~ `x", "a ` is never closed"),
        ("y + x", 'it has no "~"'),
        ("y ~ x z", "it makes no sense from 'z' on"),
        ("", "it is empty"),
        ("y ~ x + 3", "the number 3 is no term"),
        ("y ~ x:(1 | g)", "a term of it has no meaning"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(text)
    if "no meaning" in said:
        assert str(caught.value).startswith(f"The formula {text!r} cannot be read: {said} (")
    else:
        assert str(caught.value) == f"The formula {text!r} cannot be read: {said}.\n{LIKE}"


def test_a_curve_stands_alone() -> None:
    text = "y ~ x:s(z)"
    with pytest.raises(FormulaError) as caught:
        parse(text)
    assert str(caught.value) == (
        f"The term 'x:s(z)' of the formula {text!r} has a curve s(...) inside another term.\n"
        "Expected a curve by itself: + s(z)."
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y | about(n) ~ x", "something else than trials(n), weights(w)"),
        ("p(y) ~ x", "p(...) of 1 arguments"),
        ("y + z ~ x", "several terms"),
        ("y | trials(n + m) ~ x", "trials or weights of several terms"),
    ],
)
def test_what_is_no_response_is_said(text: str, found: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(text)
    assert str(caught.value) == (
        f"The formula {text!r} has {found} where its response belongs.\n"
        'Expected a column, or one with more about it, before "~": y, y | trials(n), '
        "y | weights(w), p(y, n)."
    )
