"""The zoo: one file per model, each written the way NumPyro users write it."""
