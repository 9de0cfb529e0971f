"""Score functions for discrete sites that cannot be summed out (paper section 5.2)."""
