"""Densities of several sites that are no product of factors: Gaussians, grids, mixtures."""
