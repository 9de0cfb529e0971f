"""Programs of state spaces beside NUTS.

python -m benchmarks.state_spaces [NAMES ...] [--no-nuts] [--draws 500]

A row: the rung, the verdict, processor seconds cold and foretold, the score, and NUTS's seconds.
NUTS has the states integrated out by a Kalman filter where the program is linear and Gaussian: two
chains, in the same process. The score is the larger of the RMS of the errors of means in reference
sds and the RMS of log ratios of sds, over what NUTS has drawn; where R-hat is above 1.05 there is
none. Of sites whose signs the data do not tell, absolute values are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS, init_to_median

import lowerbound.names as lb
from benchmarks.state_spaces.programs import Program, programs

WARMUP, TRUSTED = 500, 1.05


def sampled(program: Program, draws: int) -> tuple[dict[str, np.ndarray], float, float]:
    """Draws of NUTS by chain, its largest R-hat, and processor seconds."""
    model = program.filtered or program.model
    with jax.enable_x64(True):
        kernel = NUTS(model, init_strategy=init_to_median(), target_accept_prob=0.9)
        began = time.process_time()
        sampler = MCMC(
            kernel, num_warmup=WARMUP, num_samples=draws, num_chains=2,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        data = [jnp.asarray(one) if isinstance(one, np.ndarray) else one for one in program.data]
        sampler.run(jax.random.key(1), *data)
        found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
        took = time.process_time() - began
    found = {n: (abs(v) if n in program.mirrored else v) for n, v in found.items()}
    hats = [np.nanmax(split_gelman_rubin(value)) for value in found.values()]
    return found, float(max(hats)), took


def score(fit: lb.Fit, program: Program, draws: dict[str, np.ndarray]) -> tuple[float, float]:
    """The RMS of errors of means in sds, and of log ratios of sds."""
    own = fit.sample(4000, seed=1) if program.mirrored else {}
    errors: list[Any] = []
    ratios: list[Any] = []
    for name, chains in draws.items():
        reference = chains.reshape(-1, *chains.shape[2:])
        mean, sd = reference.mean(axis=0), reference.std(axis=0)
        if name in program.mirrored:
            values = abs(np.asarray(own[name]))
            found, width = values.mean(axis=0), values.std(axis=0)
        else:
            found, width = np.asarray(fit.mean(name)), np.asarray(fit.sd(name))
        free = sd > 1e-9
        errors += list(np.ravel((found - mean)[free] / sd[free]))
        ratios += list(np.ravel(np.log(width[free] / sd[free])))
    return tuple(float(np.sqrt(np.mean(np.square(x)))) for x in (errors, ratios))  # type: ignore[return-value]


def explained(program: Program) -> Any:
    """What a fit is expected to take; the plan is not printed."""
    with contextlib.redirect_stdout(io.StringIO()):
        return lb.explain(program.model, *program.data).cost


def row(name: str, program: Program, run_nuts: bool, draws: int) -> None:
    """Fit a program, and print what came of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        work = explained(program)
        try:
            fit = lb.fit(program.model, *program.data, progress=False)
        except lb.errors.LowerboundError as error:
            print(f"{name}: {time.process_time() - began:.1f} s, {error}")
            return
        took = time.process_time() - began
    print(f"{name}: {took:.1f} s, foretold {work}; {fit.plan.method}", flush=True)
    print(f"  {fit.stop_reason}; {str(fit.verdict).splitlines()[0]}", flush=True)
    if run_nuts:
        found, hat, seconds = sampled(program, draws)
        means, sds = score(fit, program, found)
        trusted = f"{max(means, sds):.3f}" if hat < TRUSTED else "none"
        print(
            f"  score {trusted} (means {means:.3f}, log sds {sds:.3f}); NUTS {seconds:.1f} s, "
            f"R-hat {hat:.3f}",
            flush=True,
        )


def main() -> None:
    """The table."""
    every = programs()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--no-nuts", action="store_true")
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    for name in options.names or every:
        row(name, every[name], not options.no_nuts, options.draws)


if __name__ == "__main__":
    main()
