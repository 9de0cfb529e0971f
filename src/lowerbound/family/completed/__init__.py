"""q(theta) p(z | x, theta): sites that are known exactly, given all others."""
