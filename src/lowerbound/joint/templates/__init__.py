"""One clean density per distribution, as data."""
