"""The site of the documentation: what `make docs` does beyond MkDocs."""
