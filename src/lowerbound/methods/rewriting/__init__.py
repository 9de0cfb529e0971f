"""Rewritings around a method: a program becomes another one, and q of that is carried back.

Contract: in, a problem and any method; out, a plan of the rewritten problem whose answer is one of
the problem as it was given. Nothing here knows which method runs.
"""
