"""Chains of draws (section 2.4's Monte Carlo): rounds of trajectories, until the chains agree.

In: what makes a round of draws, where the chains begin, and in which units they go. Out: draws with
what the chains say of themselves, why they ended, and the answer.
"""
