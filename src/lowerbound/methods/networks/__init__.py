"""Parameters that are networks: maximised by gradients on batches, a Gaussian q for every row."""
