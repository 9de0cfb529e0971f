"""Run all benchmarks, or the named ones: `python -m benchmarks image_mixture ard`."""

from __future__ import annotations

import argparse
import importlib

NAMES = (
    "image_mixture",
    "ard",
    "compile",
    "restarts",
    "starts",
    "large_mixture",
    "stream",
    "stream_memory",
    "throughput",
    "topics",
    "topics_memory",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"among {', '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; expected some of {', '.join(NAMES)}")
    for name in names:
        print(f"\n== {name} ".ljust(100, "="), flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
