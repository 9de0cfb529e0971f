"""Gaussians with a sparse precision: its pattern, how it is factored, and the sums that make it."""
