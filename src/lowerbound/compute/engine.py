"""The engine: one derived model with its compiled functions, reused by every equal program.

A model is traced at every fit (milliseconds), so that a changed global or hyperparameter is never
missed; the compiled functions are found by the content of the traced program, not by the identity
of the model function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State, Sweep
from lowerbound.bound import elbo_by_site
from lowerbound.compiled import Kept, equations, jit, quick_options, settled, traced
from lowerbound.compiled.host import FITS, OnHost, lightly, on_host
from lowerbound.compute.spread import Spread
from lowerbound.cost import check_fits, run_bytes
from lowerbound.errors import CertificateError, NotConjugateError, UnsteadyProgramError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Joint, certificate, inputs_of, multi_affine
from lowerbound.joint.derive import vocabulary
from lowerbound.joint.multiaffine import origin_name, row_count
from lowerbound.joint.traced_program import Program, trace_program
from lowerbound.model import Model, trace_model
from lowerbound.model.dependence import digest

Arrays = tuple[jax.Array, ...]
R = TypeVar("R")
QUICK_BELOW = 50_000  # numbers in the compressed data and in the state
QUICK_PER_EQUATION = 100  # or for every operation of the function that is compiled
CERTIFY_BELOW = 1_000_000  # numbers in the data; larger data are certified on some of their rows
CERTIFIED_ROWS = 500
_engines: Kept[Engine] = Kept(32)
_joints: Kept[Joint] = Kept(32)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A function that is compiled in the background, and the shapes of what it returns."""

    executable: Future[Any]
    shapes: Any
    spread: Spread | None
    within: type

    def __call__(self, *args: Any) -> Any:
        """The function's value; waits for the compilation."""
        placed = args if self.spread is None else self.spread.put(args, self.within)
        return settled(self.executable.result()(*placed))


@dataclass(frozen=True, eq=False)
class Engine:
    """A derived model: its blocks and families, and the sweep over them, compiled on first use."""

    joint: Joint
    family: MeanField
    sweep: Sweep
    dtype: np.dtype[Any]
    check: Future[None]
    spread: Spread | None = None  # the devices that hold the rows; None for one device
    compiled: dict[object, Any] = field(default_factory=dict)

    def certified(self) -> None:
        """Wait for the certificate; raises CertificateError where the derivation is wrong."""
        try:
            self.check.result()
        except BaseException as error:
            for key in [key for key, engine in _engines.items() if engine is self]:
                del _engines[key]
            if isinstance(error, CertificateError) and _changes(self.joint):
                raise UnsteadyProgramError from None
            raise

    def prepare(self, data: Mapping[str, Any]) -> Arrays:
        """Contract the data once; floating arrays in the precision of the fit."""
        if self.spread is None and self.dtype == np.float64:
            # Called by itself, it hands arrays through uncopied.
            return tuple(jnp.asarray(a) for a in self.joint.compress(dict(data)))

        def contract(arrays: Mapping[str, Any]) -> Arrays:
            doubles = {n: a.astype(float) if _floats(a) else a for n, a in arrays.items()}
            return tuple(self.cast(a) for a in self.joint.compress(doubles))

        key = "prepare"
        placed = {n: np.asarray(a, self.dtype) if _floats(a) else a for n, a in data.items()}
        if self.spread is not None:
            placed = self.spread.put(placed)
        if key not in self.compiled:
            spread = self.spread is not None
            self.compiled[key] = self.compile(contract, placed) if spread else jit(contract)
        prepared: Arrays = self.compiled[key](placed)
        return prepared

    def compile(self, function: Any, *shapes: Any, within: type = object) -> Compiled:
        """Compile `function` of such arguments in the background, for use as soon as it is ready.

        The effort is in proportion to the work: functions of small data compile quickly, and so
        do long functions of larger data. On many devices, the arrays in nodes of the type `within`
        are spread.
        """
        numbers = sum(np.size(a) for a in jax.tree.leaves(shapes))
        spread = self.spread
        if spread is None:
            jitted = jit(function)
        else:
            jitted, shapes = spread.jit(function, shapes, within)
        with jax.default_matmul_precision("highest"):  # accelerators round products by default
            traced = jitted.trace(*shapes)
            lowered = traced.lower()
        quick = numbers <= max(QUICK_BELOW, QUICK_PER_EQUATION * equations(traced.jaxpr.jaxpr))
        options = quick_options() if quick else None
        future = in_background(partial(_compiled, lowered, options))
        return Compiled(future, lowered.out_info, spread, within)

    def once(self, function: Any, *args: Any) -> Compiled | OnHost:
        """`function` of such arguments, which is called once a fit.

        NumPy runs it where that is sooner than to compile it for some fits; else it is compiled.
        """
        if self.spread is not None:
            return self.compile(function, *args)
        with jax.default_matmul_precision("highest"):
            found = on_host(function, FITS, *args)
        return found if isinstance(found, OnHost) else self.compile(found, *args)

    def cast(self, array: jax.Array) -> jax.Array:
        """A floating array in the precision of the fit; others as they are."""
        return array.astype(self.dtype) if _floats(array) else array

    def cast_tree(self, tree: Any) -> Any:
        """`cast` of every array of a tree."""
        return jax.tree.map(lambda a: self.cast(jnp.asarray(a)), tree)

    def extras(self, arrays: Arrays) -> tuple[dict[str, jax.Array], ...]:
        """The constants of the supports, by block."""
        return tuple({k: arrays[s] for k, s in b.extras.items()} for b in self.joint.blocks)

    @cached_property
    def by_site(self) -> Any:
        """The ELBO by site, compiled."""

        def terms(arrays: Arrays, state: State) -> dict[str, jax.Array]:
            return elbo_by_site(
                self.family, self.joint.summands, arrays, state.naturals, state.means
            )

        return lightly(terms, FITS)


def _compiled(lowered: Any, options: dict[str, Any] | None) -> Any:
    """The compiled program; raises TooLargeError where a run of it would not fit in memory."""
    compiled = lowered.compile(compiler_options=options)
    check_fits(run_bytes(compiled), "one run of the compiled updates")
    return compiled


def engine_for(
    model: Model,
    dtype: np.dtype[Any],
    partition: Sequence[Sequence[str]] | None = None,
    weighted: Mapping[str, int] | None = None,
    apart: bool = False,
    origins: Mapping[str, np.ndarray] | None = None,
    spread: Spread | None = None,
    varied: Callable[[int], Mapping[str, Any]] | None = None,
) -> Engine:
    """The engine of a model, from the cache when an equal program was derived before.

    `origins` are the points from which Gaussian sites are measured (joint.derive); `spread` the
    devices that hold the rows; `varied` changes data from point to point where the derivation is
    certified. Raises NotConjugateError when some term fits no factor.
    """
    shapes = {name: np.shape(origin) for name, origin in (origins or {}).items()}
    digested, joint = _derivation(model, partition, weighted, apart, shapes)
    key = digested + str(dtype) + ("" if spread is None else repr(spread.key))

    def made() -> Engine:
        if joint.structure.residuals:
            raise NotConjugateError(joint.structure.residuals)
        family = MeanField.of(joint.blocks)
        small = fewer_rows(model) if not origins else None
        check = None
        if small is not None:
            other = multi_affine(small, partition, weighted, apart=small.local if apart else ())
            if _outline(other) == _outline(joint):
                check = _certificate(small, other, weighted, {}, varied)
        check = check or _certificate(model, joint, weighted, origins or {}, varied)
        sweep = Sweep(family, joint.summands, sweep_order(joint))
        return Engine(joint, family, sweep, dtype, in_background(check), spread)

    return _engines.of(key, made)


def derived(
    model: Model, partition: Sequence[Sequence[str]] | None = None, apart: bool = False
) -> Joint:
    """The multi-affine form of a model, from the cache when an equal program was derived before.

    With `apart`, local sites share no factor with global ones.
    """
    return _derivation(model, partition, None, apart, {})[1]


def _derivation(
    model: Model,
    partition: Sequence[Sequence[str]] | None,
    weighted: Mapping[str, int] | None,
    apart: bool,
    origins: Mapping[str, tuple[int, ...]],
) -> tuple[str, Joint]:
    """The derivation of a model, and the digest of everything that it depends on."""
    program = trace_program(model)
    key = _fingerprint(program, partition, weighted, apart, model, origins)

    def made() -> Joint:
        local = model.local if apart else ()
        return multi_affine(model.without_data(), partition, weighted, program, local, origins)

    return key, _joints.of(key, made)


def forget() -> None:
    """Drop every derivation and compiled program that this process keeps."""
    _engines.clear()
    _joints.clear()


def _floats(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def _certificate(
    model: Model,
    joint: Joint,
    weighted: Mapping[str, int] | None,
    origins: Mapping[str, np.ndarray],
    varied: Callable[[int], Mapping[str, Any]] | None,
) -> Callable[[], None]:
    data = inputs_of(model)
    if weighted:
        data["weights"] = np.ones(row_count(model, weighted))
    data |= {origin_name(name): origin for name, origin in origins.items()}
    return certificate(joint, data, MeanField.of(joint.blocks).statistics, varied=varied)


def _changes(joint: Joint) -> bool:
    """Whether a program is another one each time that it runs: its arrays or its operations."""
    shapes = {latent.name: jnp.zeros(latent.shape) for latent in joint.program.latents}

    def run() -> str:
        closed = traced(joint.model.log_density)(shapes, joint.model.arguments.data)
        return digest(closed)

    return run() != run()


def fewer_rows(model: Model) -> Model | None:
    """The same program on a few of its rows, to certify the derivation for large data.

    None when the data are small, or when rows cannot simply be taken out.
    """
    plate, arguments = model.data_plate, model.arguments
    size = sum(array.size for array in arguments.data.values())
    if plate is None or size <= CERTIFY_BELOW or model.missing or model.concrete:
        return None
    rows = np.unique(np.linspace(0, plate.size - 1, CERTIFIED_ROWS).astype(int))
    aligned = {n: a[rows] for n, a in arguments.data.items() if a.shape[0] == plate.size}
    args, kwargs = arguments.call({**arguments.data, **aligned})
    try:
        small = trace_model(model.function, args, kwargs, model.plate)
    except Exception:  # the program may count its rows in another way: certify it whole
        return None
    return small if small.data_plate == replace(plate, size=len(rows)) else None


def _outline(joint: Joint) -> tuple[object, ...]:
    """What two derivations of one program for different numbers of rows have in common."""
    blocks = tuple((b.kind, b.sites, b.scale, b.sequential) for b in joint.blocks)
    reads = tuple(
        (s.site, len(s.constants), tuple((r.block, r.statistic) for r in s.reads))
        for s in joint.summands
    )
    return blocks, reads


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="lowerbound-compile")


def in_background(function: Callable[[], R]) -> Future[R]:
    """Run a function in another thread, in double precision; XLA compiles without the GIL."""

    def doubly() -> R:
        with jax.enable_x64(True):
            return function()

    return _pool().submit(doubly)


def sweep_order(joint: Joint) -> tuple[int, ...]:
    """Blocks from the data upwards: assignments first, then what they depend on (alg:gmm-cavi)."""
    return tuple(block.number for block in reversed(joint.blocks))


def _fingerprint(
    program: Program,
    partition: Sequence[Sequence[str]] | None,
    weighted: Mapping[str, int] | None,
    apart: bool,
    model: Model,
    origins: Mapping[str, tuple[int, ...]],
) -> str:
    """A digest of everything the derivation depends on."""
    total = hashlib.sha256()

    def feed(*parts: Any) -> None:
        for part in parts:
            total.update(repr(part).encode() + b"\0")

    feed(vocabulary())  # a family, a rule or a density that is added may take what was refused
    feed(program.key, partition, sorted((weighted or {}).items()), apart)
    feed(model.local if apart else (), sorted(origins.items()))
    return total.hexdigest()
