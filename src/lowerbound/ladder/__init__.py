"""The automatic choice (paper section 5): rungs, why each is taken or not, and what it costs.

Contract: `chosen` climbs a table of rungs and gives a method with the reasons; nothing is fitted.
"""
