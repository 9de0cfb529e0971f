"""`lb.fit` on every program of a tree of NumPyro scripts and notebooks, as they are.

`python -m benchmarks.programs --numpyro PATH` takes a source tree of NumPyro, `--tree PATH` any
folder. A program runs unedited in a process of its own, with files that it would download made
here (`made`), and NumPyro's ways into inference replaced (`intercept`): each model that it would
infer is fitted and, unless `--no-nuts`, sampled by NUTS in the same process (`judge`); then the
program goes on with draws of that fit. One model with its data is one row.
"""
