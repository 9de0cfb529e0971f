"""Which sites share a factor, and the statistics that each factor needs."""
