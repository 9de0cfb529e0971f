"""Auxiliary variables that restore conjugacy: each is a rewriting of one site of a program."""
