"""Pictures of time series: paths of states, parts of a series, and what comes next.

Contract: the steps are the first axis of a site, as `scan` and slices have them.
"""
