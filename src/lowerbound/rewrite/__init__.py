"""Programs made from programs: augmented, summed out, on other coordinates, of their parameters.

Contract: a rewriting takes a traced `Model` to another whose posterior carries back: auxiliary
sites are dropped, summed sites drawn given the rest, coordinates mapped to values.
"""
