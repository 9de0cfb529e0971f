"""Texts of errors that are docstrings of their cases."""

import pickle
import subprocess
import sys

from lowerbound.errors import CorpusError
from lowerbound.errors.roots import ArgumentError, Words, told


class MadeUpError(ArgumentError):
    """An error of this test."""

    @told
    def found(cls, name: str, count: int) -> None:
        """There are {count:,} of {name!r}, which is a sentence that goes on
        for two lines   (here).

        Expected none.
        """


def test_a_docstring_is_the_text_a_line_a_paragraph():
    error = MadeUpError.found("x", count=1234)
    assert str(error) == (
        "There are 1,234 of 'x', which is a sentence that goes on for two lines   (here).\n"
        "Expected none."
    )
    assert (error.name, error.count) == ("x", 1234)
    again = pickle.loads(pickle.dumps(CorpusError.ragged("x")))
    assert again.what == "x"


def test_without_docstrings_fields_are_left():
    code = "from lowerbound.errors import CorpusError; print(CorpusError.ragged('x'))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert done.stdout == "ragged: {'what': 'x'}\n"


def test_words_that_are_no_fields_and_ways_of_writing_them():
    class WordyError(ArgumentError):
        @told
        def found(cls, known: list[str], size: int) -> Words:
            """{known:quoted} of {size:,}; the last is {last}."""
            return {"last": size - 1}

    error = WordyError.found(["a", "b"], 2000)
    assert str(error) == "'a', 'b' of 2,000; the last is 1999."
    assert vars(error) == {"known": ["a", "b"], "size": 2000}
