"""Around every method: the progress bar, checks of the input, and going on after a kill.

Contract: nothing here knows which method runs.
"""
