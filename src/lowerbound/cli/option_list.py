"""The options of the commands, and their help."""

from __future__ import annotations

import argparse
from typing import NoReturn

from lowerbound.version import __version__

EPILOG = """examples:
  lowerbound explain model.py:model data.csv --arg K=5
  lowerbound fit model.py:model data.parquet --arg K=5 --column x=a,b --out run
  lowerbound fit --formula "y ~ x + (1 | g)" data.csv --family bernoulli
  lowerbound fit model.py:model data.csv --method "CAVI(restarts=10)" --checkpoint
  lowerbound resume run model.py:model      after a kill
  lowerbound check run model.py:model       how far to trust it, with more time
  lowerbound report run model.py:model
  lowerbound demo

exit codes: 0 done, 1 failed, 2 bad input, 3 a check that trusts nothing, 130 interrupted"""


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End with the code of bad input."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    found = _Parser(
        prog="lowerbound",
        description="Variational inference for NumPyro models and formulas.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action="version", version=f"lowerbound {__version__}")
    commands = found.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, text: str, example: str) -> argparse.ArgumentParser:
        one = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  lowerbound {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.add_argument("--quiet", action="store_true", help="no bar, and nothing but errors")
        one.add_argument("--debug", action="store_true", help="errors with their traceback")
        return one

    for name, text in (
        ("explain", "print the plan that fit would run"),
        ("fit", "fit a model or a formula, and write fit, summary and report to a folder"),
    ):
        one = command(name, text, f"{name} model.py:model data.csv --arg K=5")
        one.add_argument(
            "subject", nargs="+", metavar="[model.py:model] data",
            help="the model (not with --formula), and the file of its data",
        )  # fmt: skip
        one.add_argument("--formula", help='"y ~ x + (1 | g)", instead of a model')
        one.add_argument("--family", default="gaussian", help="of a formula's response")
        for option, shape, said in (
            ("--arg", "NAME=VALUE", "an argument of the model that is no column"),
            ("--column", "NAME=COLUMN[,COLUMN]", "an argument of other columns; several: a matrix"),
            ("--codes", "COLUMN", "a column of text whose values are to be numbered"),
        ):
            one.add_argument(option, action="append", default=[], metavar=shape, help=said)
        one.add_argument("--method", default="auto", help='auto, cavi, "CAVI(restarts=10)", ...')
        one.add_argument("--seed", type=int, default=0)
        if name == "fit":
            one.add_argument("--out", default="run", help="the folder to write (run)")
            one.add_argument("--force", action="store_true", help="replace the folder")
            one.add_argument(
                "--checkpoint", nargs="?", type=int, const=100, metavar="EVERY",
                help="keep the state every so many steps (100)",
            )  # fmt: skip
    for name, text in (
        ("check", "say how far to trust the fit of a run"),
        ("report", "write the page about a run again"),
        ("resume", "go on with a run that was interrupted"),
    ):
        one = command(name, text, f"{name} run model.py:model")
        one.add_argument("run", help="the folder that fit was given with --out")
        one.add_argument("model", nargs="?", help="model.py:model, unless it is of a formula")
        one.add_argument("--data", help="the file of data, where it has moved")
        if name == "check":
            one.add_argument("--seconds", type=float, default=60.0, help="what it may take (60)")
        if name == "report":
            one.add_argument("--out", help="the page to write (report.html of the run)")
    one = command("demo", "fit the paper's two-dimensional mixture", "demo --out demo")
    one.add_argument("--out", default="demo", help="the folder to write (demo)")
    one.add_argument("--rows", type=int, default=1000, help="points of the mixture (1000)")
    return found
