"""Programs that no constant of the verdict was set on, with posteriors known without sampling: by
sums over fine grids, over all values of discrete sites, or in closed form.

Contract: every module has `cases() -> dict[str, Case]`.
"""
