"""What q says of rows that it was not fitted to (paper section 3.1, the predictive density).

in: new arguments of the program. out: local factors, predictive draws, held-out log densities: in
closed form where the model allows it, else by sums or draws.
"""
