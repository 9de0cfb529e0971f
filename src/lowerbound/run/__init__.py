"""Carrying out a plan: the problem, what a method is, the loop, and going on after a kill.

Contract: a `Method` plans for a `Problem`; the loop takes the plan's steps until there is a reason
to stop, and makes the `Fit`. Nothing here knows which method runs.
"""
