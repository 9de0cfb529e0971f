"""A mixture fitted from Parquet files a minibatch at a time (alg:svi), with checkpoints.

Writes the files to output/stream/, prints the plan, the held-out log predictive along the run and
the components, and shows that the run can be taken up again from its checkpoints.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import lowerbound as lb

MEANS = np.array([[-4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def mixture(x, K):
    """The paper's Appendix B; nothing in it knows of files or minibatches."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("axes", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)


def write_rows(folder, n, files=4):
    """Simulate n rows and write them to several files of columns a and b."""
    random = np.random.default_rng(0)
    x = random.normal(size=(n, 2)) + MEANS[random.choice(3, size=n, p=WEIGHTS)]
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(x, files)):
        rows = pd.DataFrame(part, columns=["a", "b"])
        rows.to_parquet(folder / f"part-{number}.parquet", row_group_size=5000)


def main(n=40_000, batch_size=500, output="output/stream"):
    folder = Path(output)
    write_rows(folder / "rows", n)
    rows = lb.stream(folder / "rows", x=["a", "b"])
    method = lb.SVI(batch_size=batch_size)

    lb.explain(mixture, **rows, K=3, method=method)
    for old in (folder / "run").glob("step-*.lb"):  # checkpoints of an earlier run of this example
        old.unlink()
    keep = lb.Checkpoint(folder / "run", every=20)
    fit = lb.fit(mixture, **rows, K=3, method=method, checkpoint=keep)
    print(f"\n{fit}\n\nAverage log predictive of the rows held out (nats per row)\n")
    for seen, score in zip(fit.history.rows, fit.history.held_out, strict=True):
        print(f"{seen:>9,} rows  {score:.4f}")

    order = np.argsort(fit.mean("mu")[:, 0])
    table = pd.DataFrame(
        np.column_stack([WEIGHTS, MEANS, fit.mean("pi")[order], fit.mean("mu")[order]]),
        columns=["weight", "a", "b", "fitted weight", "fitted a", "fitted b"],
    )
    print(f"\nThe components\n\n{table.round(2).to_string()}")

    # After a kill this line, in a new process, would go on; the run is over, so it ends at once.
    again = lb.resume(folder / "run", mixture, **rows, K=3)
    same = np.array_equal(again.mean("mu"), fit.mean("mu"))
    print(f"\nTaken up from {folder / 'run'}: {'the same fit' if same else 'another fit'}")
    return fit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=40_000, help="rows to simulate")
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--output", default="output/stream", help="folder of files and checkpoints")
    main(**vars(parser.parse_args()))
