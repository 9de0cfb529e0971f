"""What is published, installed as users install it: `make package`.

The source distribution is built, the wheel from it alone, and both go to `dist/`. Then the wheel is
installed in a new environment of every supported Python that is on this machine, without extras,
and a small script is run from a folder of its own: import, fit, draws, a file, the command.
Standard library only, as for `tests.matrix`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.matrix import COMBINATIONS, ROOT, interpreter

PYTHONS = sorted({row.python for row in COMBINATIONS})

# The log evidence of four tosses, three of them heads, under a flat prior: log B(4, 2).
SMOKE = """
import math, os, subprocess, sys

def seconds(text):
    began = os.times()
    subprocess.run([sys.executable, "-c", text], check=True)
    return sum(os.times()[2:4]) - sum(began[2:4])

texts = "import numpyro", "import lowerbound", "import lowerbound; lowerbound.fit"
[seconds(text) for text in texts]  # compiles, and warms the files
base, package, names = (min(seconds(text) for _ in range(5)) for text in texts)

import numpyro, numpyro.distributions as dist
import lowerbound as lb

def coin(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)

import numpy as np
y = np.array([1, 0, 1, 1])
fit = lb.fit(coin, y, progress=False)
exact = math.lgamma(4) + math.lgamma(2) - math.lgamma(6)
assert abs(fit.elbo - exact) < 1e-9, fit.elbo
assert fit.sample(10, seed=0)["p"].shape == (10,)
fit.save("run.lb")
assert lb.load("run.lb", coin).elbo == fit.elbo
try:
    lb.plot.posterior(fit)
except ImportError as error:
    assert "lowerbound[plot]" in str(error), error
else:
    raise AssertionError("matplotlib is no requirement, and is here")
print(f"to import NumPyro's seconds times {package / base:.2f}, with all names {names / base:.2f}")
"""


def built() -> Path:
    """The wheel, built from the source distribution."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        builder = Path(folder) / "builder"
        subprocess.run([sys.executable, "-m", "venv", str(builder)], check=True)
        python = str(builder / "bin" / "python")
        subprocess.run([python, *pip[1:], "install", "build"], check=True)
        done = [python, "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT)]
        subprocess.run(done, check=True, stdout=subprocess.DEVNULL)
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    return wheels[-1]


def tried(wheel: Path, command: str) -> str:
    """What the script prints with the wheel in a new environment of this Python."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        subprocess.run([command, "-m", "venv", str(home)], check=True)
        python = str(home / "bin" / "python")
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", str(wheel)], check=True)
        subprocess.run([home / "bin" / "lowerbound", "--version"], check=True, cwd=folder)
        done = [python, "-c", SMOKE]
        return subprocess.run(done, check=True, cwd=folder, text=True, stdout=-1).stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    """Build, and try on every Python, or on those that are named; 0 where none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging", description=__doc__)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this one")
    asked = parser.parse_args(arguments)
    wheel, failed, done = built(), 0, 0
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    for version in asked.python or PYTHONS:
        command = interpreter(version)
        if command is None:
            print(f"Python {version}: not on this machine", flush=True)
            continue
        try:
            print(f"Python {version}: {tried(wheel, command)}", flush=True)
            done += 1
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"Python {version}: FAILED, {error}", flush=True)
    return int(failed > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())
