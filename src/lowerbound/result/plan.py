"""The plan: what `fit` will do to each site, and why, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lowerbound.cost import Alternative, Cost, Work
from lowerbound.errors import Residual
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block, Joint
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import POSITIVE, REAL
from lowerbound.model import Model

WIDEST = 80  # characters of a cell that is printed whole


@dataclass(frozen=True)
class Row:
    """One latent site of a plan."""

    site: str
    shape: tuple[int, ...]
    scope: str  # "global", or "local" to the data plate
    family: str
    update: str  # "exact", or "none" when no update exists
    block: str
    statistics: str
    where: str


@dataclass(frozen=True)
class Plan:
    """What `fit` runs for a model: one row per latent site, and the terms left over.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> plan = lb.fit(coin, y).plan
    >>> plan.method, plan.observed, plan.residuals
    ('CAVI', ('y',), ())
    >>> [(row.site, row.family, row.update) for row in plan.rows]
    [('p', 'Beta', 'exact')]
    """

    model: str
    method: str
    rows: tuple[Row, ...]
    observed: tuple[str, ...]
    data_plate: str
    residuals: tuple[Residual, ...]
    notes: tuple[str, ...] = ()
    ladder: tuple[str, ...] = ()  # how the method was chosen: every rung, and why
    work: Work | None = field(default=None, compare=False)  # what a cold fit does, as expected
    cheaper: Alternative | None = field(default=None, compare=False)  # the next method that is

    took: float | None = field(default=None, compare=False)  # seconds of the fit, when it is done

    @property
    def cost(self) -> Cost | None:
        """The seconds and megabytes that a cold fit is expected to take on this machine.

        The first to ask measures how fast the machine is, in about a tenth of a second. None where
        nothing is known beforehand.
        """
        return None if self.work is None else self.work.cost

    @property
    def costs(self) -> str:
        """The cost in words, with what is cheaper, or with what a fit took; empty if not known."""
        if self.work is None:
            return ""
        other = "Nothing cheaper is known." if self.cheaper is None else str(self.cheaper)
        other = other if self.took is None else f"It took {self.took:.2g} s."
        return f"Expected: {self.cost}, compilation included.\n{other}"

    @property
    def exact(self) -> bool:
        """Whether every update is exact, with or without quadrature in one dimension."""
        return not self.residuals

    def __repr__(self) -> str:
        what = "all updates exact" if self.exact else f"{len(self.residuals)} terms left over"
        return f"<Plan of {self.model}: {len(self.rows)} latent sites, {what}>"

    def __str__(self) -> str:
        data = f"observed {', '.join(self.observed)}" if self.observed else "no data"
        head = f"{self.method} for {self.model}: {data}"
        head += f"; rows = plate '{self.data_plate}'" if self.data_plate else ""
        titles = ("site", "shape", "scope", "family of q", "update", "statistics")
        cells = [
            (r.site, _shape(r.shape), r.scope, brief(r.family), r.update, brief(r.statistics))
            for r in self.rows
        ]
        lines = [head, "", *_table(titles, cells)]
        for residual in self.residuals:
            latents = ", ".join(f"'{name}'" for name in residual.latents)
            lines += [
                "",
                f"No exact update for {latents}: enters site '{residual.site}' through "
                f"{residual.operation}   ({residual.where})",
                f"  {residual.reason}",
            ]
        lines += [""] * bool(self.ladder) + list(self.ladder)
        lines += [""] * bool(self.notes) + list(self.notes)
        return "\n".join(lines)


def brief(text: str) -> str:
    """A cell of the table, without the middle where a factor has many sites.

    >>> brief(", ".join(f"a_{n}" for n in range(40)))
    'a_0, a_1, a_2, a_3, a_4, a_5, a_6, a_7, a_8, ... , a_36, a_37, a_38, a_39'
    """
    return text if len(text) <= WIDEST else f"{text[:45].rstrip()} ... {text[-24:].lstrip()}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    line = "  ".join(t.ljust(w) for t, w in zip(titles, widths, strict=True)).rstrip()
    rule = "  ".join("-" * w for w in widths)
    body = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return [line, rule, *body]


def make_plan(
    model: Model,
    joint: Joint,
    method: str = "CAVI",
    total: int | None = None,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of a derived model; `total` is the number of rows where it has seen some of them."""
    residual_sites = {name for r in joint.structure.residuals for name in r.latents}
    families = {
        site: (block, family.name)
        for block, family in zip(joint.blocks, MeanField.of(joint.blocks).families, strict=True)
        for site in block.sites
    }
    rows = []
    for name, site in model.latent.items():
        exact = name in families and name not in residual_sites
        block, family = families.get(name, (None, "none"))
        rows.append(
            Row(
                site=name,
                shape=site.shape,
                scope="local" if name in model.local else "global",
                family=_family_text(block, family) if block and exact else "-",
                update=_update_text(block, joint) if block and exact else "none",
                block="+".join(block.sites) if block else "",
                statistics=block.family.text(block, name) if block and exact else "-",
                where=site.where,
            )
        )
    plan = outline(model, method, rows, total=total)
    every = (*notes, *_scales_apart(model, joint), *plan.notes)
    return replace(plan, residuals=joint.structure.residuals, notes=every)


def _scales_apart(model: Model, joint: Joint) -> list[str]:
    """Say which scales q keeps independent of the sites that they are the scales of."""
    owner = {site: block.number for block in joint.blocks for site in block.sites}
    sites = {number: [s for s, n in owner.items() if n == number] for number in owner.values()}
    found: dict[str, dict[str, None]] = {}
    for summand in joint.structure.summands:
        scaled = summand.site
        if scaled not in owner or domain_of(model.latent[scaled]) is not REAL:
            continue
        for number in summand.blocks - {owner[scaled]}:
            for scale in sites.get(number, ()):
                if domain_of(model.latent[scale]) is POSITIVE:
                    found.setdefault(scale, {})[scaled] = None
    return [
        f"'{scale}' sets the scale of {', '.join(repr(name) for name in scaled)}, and q keeps them "
        "independent: their sds will be too small, that of a scale of few groups by far."
        for scale, scaled in found.items()
    ]


def plan_on_grid(
    model: Model, given: Plan | None, sites: Sequence[str], ladder: Sequence[str] = ()
) -> Plan:
    """The plan of q(theta) q(z | theta); `given` is that of the program with theta observed."""
    names = ", ".join(sites)
    inside = {row.site: row for row in given.rows} if given is not None else {}
    rows = []
    for name, site in model.latent.items():
        if name in inside:
            row = inside[name]
            rows.append(replace(row, update=f"{row.update}, given {names}"))
            continue
        rows.append(
            Row(name, site.shape, "global", "free-form, on a grid", "exact (quadrature)", names,
                f"all functions of {name}", site.where)
        )  # fmt: skip
    plan = outline(model, f"CAVI given {names}", rows, ladder)
    notes = plan.notes if given is None else (*plan.notes, *given.notes)
    return replace(plan, notes=tuple(dict.fromkeys(notes)))


def plan_of_gaussian(
    model: Model, family: str, residuals: Sequence[Residual], ladder: Sequence[str] = ()
) -> Plan:
    """The plan of a Gaussian on the unconstrained space over all latent sites."""
    block = "+".join(model.latent)
    rows = [
        Row(
            name,
            site.shape,
            "local" if name in model.local else "global",
            family,
            "estimated (quasi-Monte Carlo)",
            block,
            "all functions",
            site.where,
        )
        for name, site in model.latent.items()
    ]
    return replace(outline(model, "Gaussian", rows, ladder), residuals=tuple(residuals))


def outline(
    model: Model,
    method: str,
    rows: Sequence[Row],
    ladder: Sequence[str] = (),
    total: int | None = None,
) -> Plan:
    """A plan of rows, with what is worth knowing of the program; `total` as in `make_plan`."""
    plate = model.data_plate
    return Plan(
        model=getattr(model.function, "__name__", type(model.function).__name__),
        method=method,
        rows=tuple(rows),
        observed=tuple(model.observed),
        data_plate=f"{plate.name} ({total or plate.size})" if plate else "",
        residuals=(),
        notes=_remarks(model, total),
        ladder=tuple(ladder),
    )


def _remarks(model: Model, total: int | None) -> tuple[str, ...]:
    """What is worth knowing of the program, whatever the method."""
    remarks = []
    if not model.observed:
        none = ", ".join(f"'{name}'" for name in model.arguments.none)
        hint = f" {none} {'are' if ',' in none else 'is'} None." if none else ""
        remarks.append(f"The model observes nothing: q approximates its prior.{hint}")
    if model.ignored:
        names = ", ".join(f"'{name}'" for name in model.ignored)
        remarks.append(
            f"No site depends on the values of {names}: what the model observes, it has itself."
        )
    if model.concrete:
        remarks.append(
            f"The model inspects the values of {', '.join(model.concrete)}: they are constants of "
            "the compiled program, and other values compile anew."
        )
    if model.single:
        remarks.append(
            "The program fixes types of 32 bits in a loop or a branch: what it computes itself is "
            "in single precision."
        )
    for plate in model.subsampled:
        remarks.append(
            f"Plate '{plate.name}' holds all of its {plate.size} rows, where the program draws "
            f"{plate.taken} of them."
        )
    for name, mask in model.missing.items():
        entries = "missing entries" if total else f"{int(np.sum(mask))} missing entries"
        remarks.append(f"Site '{name}' has {entries}; they are integrated out.")
    return tuple(remarks)


def _update_text(block: Block, joint: Joint) -> str:
    if block.family.free_form:
        return "exact (quadrature)"
    if any(block.number in summand.curved for summand in joint.summands):
        return "natural gradient (quadrature)"
    return "exact, in turn" if block.sequential else "exact"


def _family_text(block: Block, family: str) -> str:
    joint = f"({', '.join(block.sites)})" if len(block.sites) > 1 else ""
    return f"{family}{joint}"
