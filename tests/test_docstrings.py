"""Every public name says what it is, with an example that is run with the doctests."""

import doctest
import inspect

import pytest

import lowerbound as lb

NAMES = [name for name in lb.__all__ if name != "__version__"]  # a plain string


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(lb, name)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    assert getattr(lb, name).__doc__
    assert getattr(lb, name).__doc__ != getattr(type(getattr(lb, name)), "__doc__", None)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_runs_and_shows_something(name: str) -> None:
    examples = examples_of(name)
    assert any(example.want for example in examples)
    assert [e.source for e in examples if e.options.get(doctest.SKIP)] == []


@pytest.mark.parametrize("module", [lb.errors, lb.plot])
def test_what_a_public_module_offers_is_documented(module) -> None:
    offered = [getattr(module, name) for name in module.__all__ if not name.isupper()]
    assert [thing.__name__ for thing in offered if not thing.__doc__] == []
