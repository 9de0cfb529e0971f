"""What families compute with: quadrature, inverse maps, definite matrices, marginals."""
