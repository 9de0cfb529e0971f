"""Hyperparameters by Hamiltonian chains over L(theta), the others integrated out exactly.

Contract: where z given theta is Gaussian, L(theta) is log p(x, theta); chains over it have the
posterior of theta for their law, and z is drawn given each draw.
"""
