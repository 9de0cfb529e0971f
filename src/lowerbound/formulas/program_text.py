"""The text of a formula's program: an ordinary NumPyro model, to be read and edited."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lowerbound.errors.wording import listed
from lowerbound.formulas.default_priors import (
    WIDE,
    Given,
    Scales,
    extra_prior,
    intercept_scale,
    number,
    numbers,
    scales_of,
)
from lowerbound.formulas.design import Design, Names
from lowerbound.formulas.encodings import Columns, Group, Smooth
from lowerbound.version import __version__

WIDTH = 100
HEAD = """import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
"""
EFFECTS = '''

def effects(name, groups, new, law):
    """Effects of groups; those that only new data have get draws of their own."""
    with numpyro.plate(f"groups of {name}", groups):
        known = numpyro.sample(name, law)
    if not new:
        return known
    with numpyro.plate(f"new groups of {name}", new):
        return jnp.concatenate([known, numpyro.sample(f"{name}_new", law)])
'''


@dataclass
class Program:
    """A program in the making: its lines, the summands of its predictor, its sites by kind.

    coefficients: site -> the labels of its elements.
    """

    names: Names
    given: Given
    lines: list[str] = field(default_factory=list)
    summands: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    coefficients: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """A comment."""
        self.lines += textwrap.wrap(text, WIDTH - 6, initial_indent="# ", subsequent_indent="#   ")

    def site(self, name: str, kind: str, default: str, width: int | None = None) -> str:
        """A latent site with its prior."""
        self.kinds[name] = kind
        self.assign(
            name, f'numpyro.sample("{name}", {self.given.code(name, kind, default, width)})'
        )
        return name

    def assign(self, name: str, call: str) -> None:
        """A line name = call, broken where it is long."""
        self.lines += _broken(f"{name} = {call}", WIDTH - 4)


def _broken(call: str, width: int) -> list[str]:
    """A call on as few lines as hold it: its arguments on one line, or else on one each."""
    opening, closing = call.find("("), call.rfind(")")
    if len(call) <= width or opening < 0:
        return [call]
    inside = call[opening + 1 : closing]
    head, tail = call[: opening + 1], call[closing:]
    if len(inside) + 4 <= width:
        return [head, f"    {inside}", tail]
    lines = [head]
    for argument in _arguments(inside):
        *first, last = _broken(argument, width - 5)
        lines += [*(f"    {line}" for line in first), f"    {last},"]
    return [*lines, tail]


def _arguments(text: str) -> list[str]:
    """The arguments of a call: those between commas outside of brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def program_text(
    design: Design, priors: Mapping[str, Any]
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The text of the program, and the labels of its coefficients by site."""
    scales, names = scales_of(design), Names()
    names.used |= set(design.row_arrays()) | {design.outcome.argument}
    program = Program(names, Given(dict(priors)))
    _write_coefficients(program, design, scales)
    for smooth in design.smooths:
        _write_smooth(program, smooth, scales)
    for group in design.groups:
        _write_group(program, group, scales)
    _write_response(program, design, scales)
    program.given.check(program.kinds)
    body = textwrap.indent("\n".join(program.lines), "    ", lambda line: bool(line.strip()))
    effects = EFFECTS if design.groups else ""
    text = f"{_docstring(design, scales)}\n{HEAD}{effects}\n\n{_signature(design)}\n{body}\n"
    return text, program.coefficients


def _docstring(design: Design, scales: Scales) -> str:
    """What the program is of."""
    family, rows = design.outcome.family, design.rows
    lines = [f'"""{design.parsed.text}, family {family.name}, link {family.link}.', ""]
    said = f"{design.count:,} rows"
    if rows.dropped:
        missing = ", ".join(f"{name} {count}" for name, count in rows.missing.items())
        said += f"; {rows.dropped:,} of {rows.total:,} with missing values left out ({missing})"
    lines += [f"{said}. Written by lowerbound {__version__}: this text is what runs. Edit it."]
    response = f"the response, sd({design.outcome.name}) = {number(scales.spread)}"
    unit = f" standard deviations of {response}" if family.link == "identity" else ""
    lines += textwrap.wrap(
        "Default priors are weak, and scaled to the data: a standard deviation of a column moves "
        f"the {'' if unit else family.link + ' '}predictor by about {WIDE}{unit}. "
        f"The {'first cutpoint' if family.name == 'ordinal' else 'intercept'} is as wide, and "
        "wider where zero is far from the columns' means.",
        WIDTH - 8,
    )
    lines += ['"""', ""]
    return "\n".join(lines)


def _signature(design: Design) -> str:
    """The first line, one argument a line where it is long."""
    arguments = [*design.row_arrays(), f"{design.outcome.argument}=None"]
    arguments += [f"{name}_new=0" for name in design.factors]
    line = f"def model({', '.join(arguments)}):"
    if len(line) <= WIDTH:
        return line
    return "\n".join(["def model(", *(f"    {argument}," for argument in arguments), "):"])


def _write_coefficients(program: Program, design: Design, scales: Scales) -> None:
    """The intercept, a site for every term, and offsets."""
    ordinal = design.outcome.family.name == "ordinal"
    if design.intercept and not ordinal:
        scale = number(intercept_scale(design, scales))
        program.names.used.discard("intercept")
        site = program.names.new("intercept")
        program.site(site, "intercept", f"dist.Normal({number(scales.centre)}, {scale})")
        program.summands.append(site)
        program.coefficients[site] = ("Intercept",)
    for columns in design.common:
        site = program.names.new(f"b_{columns.argument}")
        if columns.width > 1:
            program.note(f"{site}: {', '.join(columns.labels)}.")
        wide = numbers(scales.of_columns(columns))
        width = None if columns.width == 1 else columns.width
        program.site(site, "b", f"dist.Normal(0.0, {wide})", width)
        product = "*" if columns.width == 1 else "@"
        left, right = (site, columns.argument)[:: 1 if columns.width == 1 else -1]
        program.summands.append(f"{left} {product} {right}")
        program.coefficients[site] = columns.labels
    program.summands += [one.argument for one in design.offsets]


def _write_smooth(program: Program, smooth: Smooth, scales: Scales) -> None:
    """A line, and bends that share a scale: a penalised spline."""
    program.lines.append("")
    program.note(
        f"{smooth.term.name}: a line, and {smooth.width} bends about it, of standard deviation "
        f"sd_{smooth.name} over the rows."
    )
    line = program.site(
        program.names.new(f"b_{smooth.line}"),
        "b",
        f"dist.Normal(0.0, {number(scales.of_column(smooth.values[:, 0]))})",
    )
    scale = program.site(
        program.names.new(f"sd_{smooth.name}"),
        "sd",
        f"dist.HalfNormal({number(WIDE * scales.spread)})",
    )
    program.coefficients[line] = (f"{smooth.term.name}, line",)
    law = f"dist.Normal(0.0, {scale}).expand([{smooth.width}]).to_event(1)"
    program.assign(smooth.name, f'numpyro.sample("{smooth.name}", {law})')
    program.summands += [f"{line} * {smooth.line}", f"{smooth.bends} @ {smooth.name}"]


def _write_group(program: Program, group: Group, scales: Scales) -> None:
    """Scales, correlations and effects of the levels of a factor."""
    factor, width = group.factor, group.width
    base = factor.argument
    if None not in group.slopes:
        base += "_" + "_".join(s.argument for s in group.slopes if s is not None)
    program.lines.append("")
    of = "" if group.labels == ["Intercept"] else f", effects of {', '.join(group.labels)}"
    program.note(f"{group.bar.text}: {len(factor.levels):,} groups ({listed(factor.labels)}){of}.")
    wide = [
        scale
        for s in group.slopes
        for scale in (scales.of_columns(s) if s is not None else [WIDE * scales.spread])
    ]
    sd = program.names.new(f"sd_{base}")
    program.site(sd, "sd", f"dist.HalfNormal({numbers(wide)})", None if width == 1 else width)
    law = f"dist.Normal(0.0, {sd})" + ("" if width == 1 else ".to_event(1)")
    if width > 1 and group.bar.correlated:
        cor = program.names.new(f"cor_{base}")
        program.kinds[cor] = "cor"
        eta = program.given.concentration(cor)
        program.assign(cor, f'numpyro.sample("{cor}", dist.LKJCholesky({width}, {eta}))')
        law = f"dist.MultivariateNormal(jnp.zeros({width}), scale_tril={sd}[:, None] * {cor})"
    effects = program.names.new(f"r_{base}")
    call = f'effects("{effects}", {len(factor.levels)}, {factor.argument}_new, {law})'
    program.assign(effects, call)
    program.summands += _group_summands(group, effects)


def _group_summands(group: Group, effects: str) -> list[str]:
    """What the effects add to the predictor."""
    code, place, found = group.factor.argument, 0, []
    for slope in group.slopes:
        width = 1 if slope is None else slope.width
        if group.width == 1:
            own = f"{effects}[{code}]"
        else:
            index = f"{place}" if width == 1 else f"{place}:{place + width}"
            own = f"{effects}[{code}, {index}]"
        if slope is None:
            found.append(own)
        elif width == 1:
            found.append(f"{own} * {slope.argument}")
        else:
            found.append(f"jnp.sum({own} * {slope.argument}, axis=1)")
        place += width
    return found


def _write_response(program: Program, design: Design, scales: Scales) -> None:
    """The predictor, what else the family has, and the observations."""
    outcome = design.outcome
    arrays = list(design.row_arrays())
    rows = arrays[0] if arrays == ["rows"] else f"len({arrays[0]})"
    program.lines.append("")
    summands = program.summands or [f"jnp.zeros({rows})"]
    line = f"predictor = {' + '.join(summands)}"
    if len(line) <= WIDTH - 4:
        program.lines.append(line)
    else:
        joined = [summands[0], *(f"+ {summand}" for summand in summands[1:])]
        program.lines += ["predictor = (", *(f"    {summand}" for summand in joined), ")"]
    for site in outcome.family.extras:
        program.site(site, site, extra_prior(design, scales, site))
    if outcome.note:
        program.note(f"{outcome.note}.")
    plates = [f'numpyro.plate("rows", {rows})']
    weights = design.about.get("weights")
    if weights is not None:
        scale = weights.argument if isinstance(weights, Columns) else number(weights)
        plates.append(f"numpyro.handlers.scale(scale={scale})")
    trials = design.about.get("trials")
    law = outcome.family.law.format(
        trials=trials.argument if isinstance(trials, Columns) else trials
    )
    y = outcome.argument
    program.lines += [
        f"with {', '.join(plates)}:",
        f'    numpyro.sample("{y}", {law}, obs={y})',
    ]
