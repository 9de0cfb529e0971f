"""Chains over scales, and the coordinates that they go in."""
