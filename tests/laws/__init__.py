"""The laws: what must hold of every model and every family (one file per law)."""
