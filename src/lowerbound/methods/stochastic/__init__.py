"""Stochastic variational inference (paper section 4.3, alg:svi), memoised batches, and streams.

Contract: rows a batch at a time, scaled as though each batch were repeated; the same model.
"""
