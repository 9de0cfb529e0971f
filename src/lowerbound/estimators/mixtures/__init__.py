"""Mixtures (paper sections 2.1 and 3): rows with a component each, or several that add up."""
