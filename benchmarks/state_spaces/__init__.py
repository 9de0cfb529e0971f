"""State spaces of unknown matrices and scales, as several users would write them, beside NUTS."""
