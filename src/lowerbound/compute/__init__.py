"""Compiled programs of a derived model, and where they run: threads, devices, processes.

Contract: `engine_for(model, dtype)` derives, certifies and compiles once for all equal programs;
`placement` says which devices hold which rows. Nothing here decides what to compute.
"""
