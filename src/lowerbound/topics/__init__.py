"""Latent Dirichlet allocation on bags of words (paper section 4.3 and Appendix C).

In: documents as sparse counts. Out: q of the topics, and a `Fit` of the NumPyro program that says
the same. The local step is the one hand-written kernel of the library, tested equal to the
derived update; `engine` states what it computes.
"""
