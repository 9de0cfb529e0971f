"""The arguments of a program: which are data, what is missing or not finite in them.

Contract: arguments go in as a user passes them (arrays, tables, columns of a stream); named arrays
come out, with masks of what is missing. Nothing here runs the program.
"""
