"""The command line: `lowerbound explain | fit | check | report | resume | demo`.

In: a model file with the name of a function, or a formula, and a file of data. Out: a folder with
the fit, its summary and its report, whole or not at all. No inference here: each command is a call
of the library.
"""

from lowerbound.cli.commands import main

__all__ = ["main"]
