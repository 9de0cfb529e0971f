"""Ctrl-C ends a fit, leaves its checkpoints whole, and returns what there is where that is asked.

The fits of these tests never end by themselves: a signal is sent once a checkpoint is written.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import faulthandler, os, signal, sys, threading, time
from pathlib import Path
import numpy as np
import lowerbound as lb
from tests.run.models import mixture

faulthandler.dump_traceback_later(240, exit=True)
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(200, 2)) + 5 * (np.arange(200) % 2)[:, None]
data = {"x": x, "K": 2}


def press_when_written(directory, beyond=0):
    def wait():
        while not any(int(p.name[5:15]) > beyond for p in directory.glob("step-*.lb")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


for name, method in (
    ("sweeps", lb.CAVI(tolerance=0, max_sweeps=10**7)),
    ("steps", lb.SVI(batch_size=20, steps=10**7, monitor=None)),
    ("visits", lb.Memoized(batch_size=20, visits=10**7)),
):
    directory = folder / name
    press_when_written(directory)
    try:
        lb.fit(mixture, **data, method=method, checkpoint=lb.Checkpoint(directory, 10))
    except KeyboardInterrupt:
        print(name, "raised")
    last = max(int(p.name[5:15]) for p in directory.glob("step-*.lb"))
    press_when_written(directory, last)
    with lb.interruptible():
        fit = lb.resume(directory, mixture, **data)
    print(name, "resumed", fit.restarts[0].sweeps > last, np.isfinite(fit.elbo), fit.converged)
    print(fit.stop_reason.rstrip("0123456789"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def test_interrupted_fits_raise_or_return_and_can_be_resumed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    expected = []
    for name, last in (("sweeps", "sweep "), ("steps", "step "), ("visits", "visit ")):
        expected += [f"{name} raised", f"{name} resumed True True False"]
        expected += [f"stopped: interrupted after {last}"]
    assert [line.strip() for line in done.stdout.splitlines()] == [e.strip() for e in expected]


WAITS = """
import faulthandler, os, signal, sys, threading, time
import jax
import jax.numpy as jnp
from lowerbound.compiled import heard, interruptibly, jit, settled

faulthandler.dump_traceback_later(100, exit=True)
late = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
never = threading.Event()
endless = jit(lambda x: jax.lax.while_loop(lambda y: y.min() < 2, lambda y: jnp.sin(y @ y), x))
x = jnp.ones((99, 99))
waits = {"compilation": lambda: interruptibly(never.wait), "result": lambda: endless(x)}
late.start()
try:
    waits[sys.argv[1]]()
except KeyboardInterrupt:
    print("raised", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["compilation", "result"])
def test_a_wait_without_end_is_interrupted(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, kind], capture_output=True, text=True, timeout=200
    )
    assert done.stdout == "raised\n", done.stderr


LOST = """
import signal
import numpy as np
from lowerbound.compiled import heard, settled

def lose():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        pass  # as Python does in callbacks

def next_wait():
    with heard():
        lose()
        settled(np.ones(3))
        print("not here")

def end():
    with heard():
        lose()

def foreign():
    signal.signal(signal.SIGINT, lambda *_: print("mine"))
    with heard():
        signal.raise_signal(signal.SIGINT)

for function in (next_wait, end, foreign):
    try:
        function()
    except KeyboardInterrupt:
        print(function.__name__, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_an_interrupt_that_python_drops_is_heard() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout.splitlines() == ["next_wait True", "end True", "mine"]
