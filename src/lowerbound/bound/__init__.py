"""The evidence lower bound (paper section 2.2, eq:elbo).

Contract: `elbo` is exact, in nats, with all constants, on the full data; `elbo_by_site` splits it
into one number per site, which sum to it. A minimised thing is never called elbo.
"""

from lowerbound.bound.elbo import elbo, elbo_by_site, entropies

__all__ = ["elbo", "elbo_by_site", "entropies"]
