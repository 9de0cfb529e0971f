"""The models that stand for the zoo in `make test` have everything that a model of it has."""

from collections.abc import Iterator
from typing import Any

import jax

from lowerbound.compiled.rewriting import inner
from lowerbound.joint.traced_program import trace_program
from tests.laws.derived import derive
from tests.models.case import Case
from tests.models.zoo import CASES, REPRESENTATIVES


def operations(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for program in inner(equation):
            yield from operations(program)


def features(case: Case) -> set[object]:
    """Factors with their statistics, structures, what is known of the evidence, operations."""
    derived = derive(case)
    found: set[object] = {"exact" if case.exact else "below" if case.evidence else "unknown"}
    for block, family in zip(derived.blocks, derived.family.families, strict=True):
        found.add((type(family).__name__, *family.statistic_names, len(block.sites) > 1))
        found |= {"in turn"} if block.sequential else set()
        found |= {"partly present"} if block.presence is not None else set()
    found |= {"by quadrature"} if derived.curved else set()
    found |= {"missing"} if derived.model.missing else set()
    found |= {"local"} if derived.model.local else set()
    found |= {"rows"} if case.rows and case.adds_up else set()
    with jax.enable_x64(True):
        program = trace_program(derived.model)
    return found | set(operations(program.jaxpr.jaxpr))


def test_the_representatives_cover_the_zoo():
    """A model that brings something new is to be one of them."""
    assert {case.name for case in CASES} >= REPRESENTATIVES
    found = {case.name: features(case) for case in CASES}
    covered = set().union(*(found[name] for name in REPRESENTATIVES))
    assert {name: new for name, own in found.items() if (new := own - covered)} == {}
