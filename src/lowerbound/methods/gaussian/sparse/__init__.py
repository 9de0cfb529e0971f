"""Gaussians of many numbers: Newton's steps with a precision as sparse as log p's Hessian."""
