"""Climbs over the hyperparameters: to the nearest summit, and to others."""
