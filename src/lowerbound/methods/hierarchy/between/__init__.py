"""Between the points at which hyperparameters are known: how the rest follows them."""
