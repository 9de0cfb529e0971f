"""The automatic choice (paper section 5): rungs, why each is taken or not, and what it costs.

Contract: `chosen_route` gives a method and the reasons; nothing is fitted to find it.
"""
