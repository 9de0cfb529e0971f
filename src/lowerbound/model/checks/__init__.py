"""What no fit can make sense of, named before any work starts.

In: a program as it was read, with its data. Out: nothing, or an error that names the argument or
the site: data outside a support, parameters that no law has, reads beyond the end of an array.
"""
