"""The way to a good start: points of the prior, climbs from all of them at once, the best kept."""
