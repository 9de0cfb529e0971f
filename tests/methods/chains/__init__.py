"""Rounds of chains, whatever makes their trajectories."""
