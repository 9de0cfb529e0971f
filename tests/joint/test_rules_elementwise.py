"""Arithmetic and elementwise rules keep the value of the expression they rewrite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowerbound.joint.rules.elementwise import RULES
from lowerbound.joint.terms.expression import OPERATIONS
from lowerbound.joint.terms.value import Poison
from tests.joint.evaluate import (
    Input,
    Row,
    Table,
    count,
    data,
    discrete,
    flags,
    integers,
    positive,
    real,
    row,
    simplex,
    unit,
)

INF = np.array([np.inf, 1.0, np.nan])
KEEP = np.array([False, True, False])

EXACT: dict[str, Row] = {
    # -- addition and multiplication
    "add": row(lambda x, y: x + y, x=real(3), y=real(3)),
    "add broadcast": row(lambda x, y: x + y, x=real(2, 1), y=real(3)),
    "add a transpose": row(lambda x: x + x.T, x=real(3, 3)),
    "add scalars": row(lambda x, y: x + y, x=real(), y=real()),
    "add data": row(lambda x, d: x + d, x=real(3), d=data(4, 3)),
    "subtract": row(lambda x, d: d - x, x=real(3), d=data(3)),
    "multiply": row(lambda x, y: x * y, x=real(2, 3), y=real(3)),
    "multiply itself": row(lambda x: x * x, x=real(3)),
    "multiply a transpose": row(lambda x: x * x.T, x=real(3, 3)),
    "multiply size one": row(lambda x, d: x * d, x=real(1, 3), d=data(2, 1)),
    "multiply size-one latent": row(lambda x, d: x * d, x=real(1), d=data(4)),
    "negate": row(lambda x: -x, x=real(2)),
    "zero times": row(lambda x: 0.0 * x, x=real(3)),
    "times zeros": row(lambda x: x * jnp.zeros(3) + 1.0, x=real(3)),
    "cancel": row(lambda x: x - x, x=real(3)),
    "cancel after data": row(lambda x, d: d * x - x * d, x=real(3), d=data(3)),
    "cancel a square": row(lambda x: (x + 1.0) ** 2 - x**2, x=real(3)),
    "sum of sums": row(lambda x, y: (x.sum() + y) * (x.sum() - y), x=real(3), y=real(2)),
    "product of sums": row(lambda x: x.sum() * x.sum(), x=real(3)),
    "square of a sum": row(lambda x, d: (d @ x) ** 2, x=real(3), d=data(4, 3)),
    "affine squared": row(lambda x, d: (d - x[:, None]) ** 2, x=real(3), d=data(4)),
    # -- division
    "divide by data": row(lambda x, d: x / (1.0 + d**2), x=real(3), d=data(3)),
    "divide by a latent": row(lambda x, t: x / t, x=real(3), t=positive(3)),
    "divide by a scalar latent": row(lambda x, t: x / t, x=real(3), t=positive()),
    "divide data": row(lambda t, d: d / (2.0 * t), t=positive(3), d=data(3)),
    "divide by monomial": row(lambda x, t: x / (3.0 * jnp.sqrt(t) * t), x=real(2), t=positive(2)),
    "x over x": row(lambda t: t / t, t=positive(3)),
    "integer divide": row(lambda z: z // 2, z=discrete(4, K=5)),
    # -- powers
    "square": row(lambda x: jnp.square(x), x=real(3)),
    "cube": row(lambda x: x**3, x=real(3)),
    "fourth": row(lambda x: x**4, x=real(3)),
    "fifth": row(lambda x: x**5, x=real(3)),
    "cube of affine": row(lambda x, d: (x + d) ** 3, x=real(3), d=data(3)),
    "sqrt": row(lambda t: jnp.sqrt(t), t=positive(3)),
    "rsqrt": row(lambda t: lax.rsqrt(4.0 * t), t=positive(3)),
    "rsqrt static": row(lambda t: 1.0 / jnp.sqrt(1.0 / t), t=positive(3)),
    "sqrt squared": row(lambda t: jnp.sqrt(t) ** 2, t=positive(2)),
    "negative power": row(lambda t: t**-2, t=positive(3)),
    "real power": row(lambda t: t**1.5, t=positive(3)),
    "array power": row(lambda t: t ** jnp.full(3, 0.7), t=positive(3)),
    "power of a product": row(lambda t, s: (2.0 * t * s) ** -0.5, t=positive(3), s=positive()),
    "power of even": row(lambda x: (x**2) ** 2, x=real(3)),
    "power of data": row(lambda x, d: x * (d**2 + 1.0) ** 0.3, x=real(3), d=data(3)),
    "unit power": row(lambda p: p**0.5, p=unit(3)),
    "one minus": row(lambda p: 1.0 - p, p=unit(3)),
    "one minus squared": row(lambda p: (1.0 - p) ** 2, p=unit(3)),
    "one minus inverse": row(lambda p: 1.0 / (1.0 - p), p=unit(2, 3)),
    "odds": row(lambda p: p / (1.0 - p), p=unit(3)),
    # -- logarithms and exponentials
    "log": row(lambda t: jnp.log(t), t=positive(3)),
    "log of monomial": row(lambda t, s: jnp.log(2.0 * t / s**2), t=positive(3), s=positive()),
    "log times data": row(lambda t, d: jnp.log(t * jnp.exp(d)), t=positive(3), d=data(4, 3)),
    "log of simplex": row(lambda p: jnp.log(p).sum(-1), p=simplex(2, 3)),
    "log1p of minus": row(lambda p: jnp.log1p(-p), p=unit(3)),
    "log one minus": row(lambda p: jnp.log(1.0 - p), p=unit(2)),
    "logit": row(lambda p: jnp.log(p) - jnp.log1p(-p), p=unit(3)),
    "logit of a ratio": row(lambda p: jnp.log(p / (1.0 - p)), p=unit(3)),
    "exp of an equality": row(lambda z: jnp.exp((z == 1).astype(float)), z=discrete(4)),
    "exp of log": row(lambda t: jnp.exp(jnp.log(t)), t=positive(3)),
    "exp of scaled log": row(lambda t: jnp.exp(-0.5 * jnp.log(t) + 1.0), t=positive(3)),
    "exp of data plus log": row(lambda t, d: jnp.exp(d + jnp.log(t)), t=positive(3), d=data(2, 3)),
    "exp of two logs": row(
        lambda t, p: jnp.exp(jnp.log(t) + 2.0 * jnp.log1p(-p)), t=positive(3), p=unit(3)
    ),
    "exp of the same log twice": row(lambda t: jnp.exp(jnp.log(t) + jnp.log(t)), t=positive(3)),
    "expm1": row(lambda t: jnp.expm1(jnp.log(t)), t=positive(3)),
    "sum of simplex": row(lambda p: p.sum(-1), p=simplex(2, 3)),
    "simplex part": row(lambda p: p[..., 1:].sum(-1), p=simplex(2, 3)),
    # -- types
    "float of integer": row(lambda z: z.astype(float) * 0.5, z=discrete(4)),
    "narrow integer data": row(lambda x, w: x * w, x=real(3), w=integers(3, dtype=np.int8)),
    "unsigned data": row(lambda x, w: x - w, x=real(3), w=integers(3, dtype=np.uint8)),
    "float32 data": row(
        lambda x, d: x * d, x=real(3), d=Input((3,), "data", (), np.dtype(np.float32))
    ),
    "boolean data": row(lambda x, m: x * m, x=real(3), m=flags(3)),
    "boolean sums": row(lambda x, m: x * m.sum(), x=real(3), m=flags(5)),
    "copy": row(lambda x: jnp.copy(x) + lax.stop_gradient(x), x=real(3)),
    # -- selection
    "where data": row(lambda x, y, m: jnp.where(m, x, y), x=real(3), y=real(3), m=flags(3)),
    "where scalar": row(lambda x, m: jnp.where(m, x, 0.0), x=real(3), m=flags(2, 3)),
    "where guarded": row(
        lambda x: jnp.where(KEEP, x, 0.0) + jnp.where(KEEP, jnp.where(KEEP, INF, 0.0), 2.0),
        x=real(3),
    ),
    "where infinite": row(lambda x: jnp.where(KEEP, INF, x), x=real(3)),
    "where infinite traced": row(
        lambda x, d: jnp.where(d > 0, jnp.log(jnp.abs(d)) / (d > 0), x), x=real(5), d=data(5)
    ),
    "where infinite beside a latent, by both": row(
        lambda z, x, d: jnp.where((d > 0) & (z == 1), jnp.exp(jnp.where(z == 1, -jnp.inf, 0.0)), x),
        z=discrete(4),
        x=real(4),
        d=data(4),
    ),
    "where one case is surely taken": row(
        lambda x: jnp.where(jnp.isfinite(x), x, jnp.floor(jnp.sin(x) * x)), x=real(3)
    ),
    "where a bound is not there": row(
        lambda x: jnp.where(x < jnp.inf, x, jnp.floor(x)) * (-jnp.inf < x) + (x == -jnp.inf),
        x=real(3),
    ),
    "guards of a logarithm of data": row(
        lambda x, d: (
            jnp.where(jnp.isneginf(jnp.log(jnp.maximum(d, 0.0))), 1.0, 2.0) * x
            + jnp.where(jnp.isfinite(jnp.log(jnp.maximum(d, 0.0))), 3.0, 4.0)
            + (jnp.log(jnp.maximum(d, 0.0)) > -jnp.inf)
        ),
        x=real(5),
        d=data(5),
    ),
    "where of indicator": row(
        lambda z, a, b: jnp.where(z == 1, a, b), z=discrete(4), a=real(4), b=real()
    ),
    "where of indicator, constants": row(
        lambda z, d: jnp.where(z > 0, d, -1.0), z=discrete(4), d=data(4)
    ),
    "nested where": row(
        lambda z, x: jnp.where(z == 0, x, jnp.where(z == 1, 2.0 * x, 3.0)),
        z=discrete(4),
        x=real(4),
    ),
    "select": row(
        lambda z, x: jnp.select([z == 0, z == 1], [x, x**2], 0.0), z=discrete(4), x=real(4)
    ),
    "select_n of three": row(
        lambda z, d: lax.select_n(z, d, 2.0 * d, d**2), z=discrete(4), d=data(4)
    ),
    "select by data": row(
        lambda x, w: lax.select_n(w, x, 2.0 * x, x * x),
        x=real(4),
        w=integers(4, dtype=np.int32),
    ),
    # -- comparisons
    "equals": row(lambda z: (z == 2) * 1.0, z=discrete(4)),
    "not equal": row(lambda z, w: (z != w) * 1.0, z=discrete(4), w=integers(4)),
    "same assignment": row(lambda z, u: (z == u) * 1.0, z=discrete(4), u=discrete(4)),
    "pairs equal": row(lambda z: (z[:, None] == z[None]) * 1.0, z=discrete(4)),
    "both": row(lambda z, u: ((z == 1) & (u > 0)) * 1.0, z=discrete(4), u=discrete(4)),
    "either": row(lambda z, u: ((z == 1) | ~(u > 0)) * 1.0, z=discrete(4), u=discrete(4)),
    **{
        f"step {name}": row(lambda x, f=f: f(x) * 1.0, x=real(5))
        for name, f in {
            "x > 0": lambda x: x > 0,
            "x >= 0": lambda x: x >= 0,
            "x < 0": lambda x: x < 0,
            "x <= 0": lambda x: x <= 0,
            "0 < x": lambda x: x > 0,
            "0.5 >= x": lambda x: x <= 0.5,
            "-x > 0.5": lambda x: -x > 0.5,
            "-x < -0.5": lambda x: -x < -0.5,
            "not x > 0": lambda x: ~(x > 0),
            "x > -0.3": lambda x: x > -0.3,
        }.items()
    },
    # -- functions inside indicators
    "arithmetic on an index": row(lambda z: (2 * z + 1) ** 2, z=discrete(4)),
    "function of an index": row(lambda z: jnp.tanh(z * 0.3) + jnp.exp(z), z=discrete(4)),
    "function of two": row(lambda z, u: jnp.sin(1.0 * z * u), z=discrete(4), u=discrete(4)),
    "other support": row(lambda z: jnp.sqrt(1.0 * z), z=discrete(4, support=(1, 4, 6))),
    "absolute": row(lambda z: jnp.abs(z - 1), z=discrete(4)),
    "clip": row(lambda z: jnp.clip(z, 1, 2), z=discrete(4)),
    "clamp": row(lambda z: lax.clamp(1, z, 2), z=discrete(4)),
    "maximum": row(lambda z, w: jnp.maximum(z, w), z=discrete(4), w=integers(4)),
    "remainder": row(lambda z: z % 2, z=discrete(4, K=5)),
    "sign": row(lambda z: jnp.sign(z - 1), z=discrete(4)),
    "floor": row(lambda z: jnp.floor(z / 2.0) + jnp.ceil(z / 2.0), z=discrete(4)),
    "lgamma": row(lambda z: lax.lgamma(z + 1.5), z=discrete(4)),
    "softplus of an index": row(lambda z: jax.nn.softplus(1.0 * z), z=discrete(4)),
    "log of a table": row(lambda z, d: jnp.log(jnp.exp(d)[z]), z=discrete(4), d=data(3)),
    "power of a table": row(lambda z, t: t[z] ** -0.5, z=discrete(4), t=positive(3)),
    "log of a latent table": row(lambda z, t: jnp.log(t[z]), z=discrete(4), t=positive(3)),
    "product of tables": row(
        lambda z, t, x: t[z] * (x[z] - 1.0) ** 2, z=discrete(4), t=positive(3), x=real(3)
    ),
    "array power of an index": row(lambda z, d: jnp.exp(d) ** z, z=discrete(4), d=data(4)),
    "is finite": row(lambda z: jnp.isfinite(1.0 / z) * 1.0, z=discrete(4)),
    "other functions": row(
        lambda z: (
            jax.nn.sigmoid(1.0 * z) + jnp.cos(z) + lax.erf(0.1 * z) + lax.erfc(0.1 * z)
            + lax.erf_inv(0.1 * z) + lax.digamma(z + 1.0) + jnp.arctan2(1.0 * z, 2.0)
            + lax.exp2(1.0 * z) + lax.cbrt(1.0 * z) + jnp.minimum(z, 1)
        ),
        z=discrete(4),
    ),
    # -- calls
    "jit": row(lambda x, d: jax.jit(lambda a: a * d + a**2)(x), x=real(3), d=data(3)),
    "custom jvp on constants": row(lambda x, d: x * jax.nn.relu(d), x=real(3), d=data(3)),
    "remat": row(lambda x: jax.checkpoint(lambda a: a**2)(x), x=real(3)),
    # -- functions of one number
    "softplus": row(lambda x, y: jax.nn.softplus(x) + y, x=real(3), y=real()),
    "relu": row(lambda x: jax.nn.relu(x), x=real(3)),
    "sigmoid": row(lambda x: jax.nn.sigmoid(x), x=real(3)),
    "log sigmoid": row(lambda x: jax.nn.log_sigmoid(x), x=real(3)),
    "logaddexp": row(lambda x, d: jnp.logaddexp(x, d), x=real(3), d=data(3)),
    "tanh": row(lambda x: jnp.tanh(x), x=real(3)),
    "exp": row(lambda x: jnp.exp(x), x=real(3)),
    "log of exp": row(lambda x, t: jnp.log(2.0 * t * jnp.exp(x)), x=real(3), t=positive(3)),
    "root of exp": row(lambda x, t: jnp.sqrt(t * jnp.exp(x)), x=real(3), t=positive(3)),
    "one over exp": row(lambda x, t: 1.0 / (t * jnp.exp(x)), x=real(3), t=positive(3)),
    "exp of a sum with a log": row(lambda x, t: jnp.exp(x + jnp.log(t)), x=real(3), t=positive(3)),
    "normal cdf": row(lambda x: jax.scipy.stats.norm.cdf(x), x=real(3)),
    "log normal cdf": row(lambda x, w: jax.scipy.stats.norm.logcdf(w @ x), x=real(3),
                          w=data(2, 3)),
    "log of a normal cdf": row(
        lambda x: jnp.log(jax.scipy.stats.norm.cdf(x)) - jnp.log1p(-jax.scipy.stats.norm.cdf(x)),
        x=real(3)),
    "sqrt of a square": row(lambda x: jnp.sqrt(x**2), x=real(3)),
    "absolute value": row(lambda x: jnp.abs(x), x=real(3)),
    "log1p": row(lambda t: jnp.log1p(t), t=positive(3)),
    "data exponent": row(lambda t, w: t ** (1.0 * w), t=positive(3), w=integers(3)),
    "latent exponent": row(lambda x, d: jnp.exp(d) ** x, x=real(3), d=data(3)),
    "power by an indicator": row(lambda z, t: t**z, z=discrete(4), t=positive(4)),
    "gathered": row(lambda x, d: jnp.tanh(x[jnp.array([0, 2, 2, 1])] + d), x=real(3), d=data(4)),
    "gathered function": row(lambda x, d: jnp.tanh(x + d)[jnp.array([0, 2, 2, 1])], x=real(3),
                             d=data(3)),
    "function of a function": row(lambda t, d: jnp.log1p((jnp.sqrt(t) + d[:, None]) ** 2),
                                  t=positive(3), d=data(4)),
    "product of functions": row(lambda t: t * jnp.log(t) * jnp.sin(t), t=positive(3)),
    "linear predictor": row(lambda x, w, b: jax.nn.softplus(w @ x + b[jnp.array([0, 1, 1, 0])]),
                            x=real(3), w=data(4, 3), b=real(2)),
    "functions of one predictor": row(
        lambda x, w: jnp.log(jnp.exp(w @ x) + jnp.exp(-(w @ x))) * jnp.tanh(2.0 * (w @ x) + 1.0),
        x=real(3), w=data(4, 3)),
    "predictor by component": row(lambda x, z, w: jnp.tanh((w @ x.T)[jnp.arange(4), z]),
                                  x=real(3, 2), z=discrete(4), w=data(4, 2)),
    "clipped": row(lambda x: jnp.clip(x, -0.5, 0.5), x=real(3)),
    "chosen by a latent": row(lambda t: jnp.where(t > 1.0, jnp.log(t), t - 1.0), t=positive(3)),
    "counts": row(lambda n, d: n * d + n * n, n=count(3), d=data(3)),
}  # fmt: skip

POISON: dict[str, tuple[Row, str, set[str]]] = {
    "softplus of two sites": (
        row(lambda x, t: jax.nn.softplus(x * t), x=real(3), t=positive()), "softplus", {"x", "t"}),
    "tanh of a product": (row(lambda x, y: jnp.tanh(x * y), x=real(3), y=real()), "tanh",
                          {"x", "y"}),
    "exp of a square": (row(lambda x, y: jnp.exp(x * y), x=real(3), y=real(3)), "exp", {"x", "y"}),
    "log of a sum": (row(lambda t, s: jnp.log(t + s), t=positive(3), s=positive()), "log",
                     {"t", "s"}),
    "log of a real": (row(lambda x: jnp.log(x), x=real(3)), "log", {"x"}),
    "one over real": (row(lambda x: 1.0 / x, x=real(3)), "power -1", {"x"}),
    "softmax of logs": (row(lambda p: jax.nn.softmax(jnp.log(p), -1), p=simplex(2, 3)), "max",
                        {"p"}),
    "floor": (row(lambda x: jnp.floor(x), x=real(3)), "floor", {"x"}),
    "rounding": (row(lambda x: x.astype(int), x=real(3)), "convert_element_type", {"x"}),
    "compare two latents": (row(lambda x, y: (x > y) * 1.0, x=real(3), y=real(3)), "gt",
                            {"x", "y"}),
    "function of a sum of assignments": (row(lambda z: jnp.exp(z.sum()), z=discrete(4)), "exp",
                                         {"z"}),
}  # fmt: skip


LATER = {  # operations that JAX has had since 0.11 or 0.12
    "polynomial": row(lambda x, d: lax.polynomial(d, [x[0], x[1], x[2]]), x=real(3), d=data(4)),
    "one_minus_square": row(lambda x: lax.one_minus_square(x), x=real(3)),
    "log2": row(lambda t: lax.log2(t), t=positive(3)),
}  # fmt: skip
EXACT |= {name: case for name, case in LATER.items() if hasattr(lax, name)}
TABLE = Table(EXACT)
POISONED = Table({name: entry[0] for name, entry in POISON.items()})


@pytest.mark.parametrize("name", EXACT)
def test_rewriting_keeps_the_value(name: str) -> None:
    (output,) = TABLE.cases[name].check()
    assert not isinstance(output, Poison), output


@pytest.mark.parametrize("name", POISON)
def test_what_has_no_closed_form_is_poisoned(name: str) -> None:
    _, operation, sites = POISON[name]
    (output,) = POISONED.cases[name].check()
    assert isinstance(output, Poison)
    assert output.operation == operation
    assert output.sites == sites
    assert output.where.startswith("test_rules_elementwise.py:")


def test_every_rule_is_in_the_table() -> None:
    known = set(RULES) | {name for name in OPERATIONS if hasattr(lax, name)}
    known -= {name for name in LATER if not hasattr(lax, name)}
    unused = known - TABLE.primitives() - POISONED.primitives()
    assert unused <= {"add_any", "copy_p", "stop_gradient"}
