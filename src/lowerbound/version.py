"""The version of the library, which fits and files record."""

__version__ = "0.1.0"
