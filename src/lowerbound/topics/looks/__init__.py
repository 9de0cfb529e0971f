"""Looks at topics: held-out completion, divergences, coherence, exports, watching a run."""
