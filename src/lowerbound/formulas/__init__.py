"""Models written as formulas: a formula and a table give a NumPyro program, as text.

In: "y ~ x + (1 | g)", a table, and the family of the response. Out: a `Formula`, which holds the
text of a program, its arguments, and how to make these from new tables. The text is what runs.

| module | answers |
|---|---|
| `grammar` | what does the formula say? (parsed by the library formulae) |
| `tables` | which rows and columns of the table? |
| `encodings` | which arrays do the terms become, here and for new tables? |
| `outcomes` | what is the response, and which distribution does it have? |
| `default_priors` | how wide are the priors? |
| `program_text` | what does the program say? |
| `formulated` | the `Formula` itself |
"""

from lowerbound.formulas.formulated import Formula, formula

__all__ = ["Formula", "formula"]
