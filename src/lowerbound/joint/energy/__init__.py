"""E_q[log p] from statistics: summands, integrals through linear combinations, sums over rows."""
