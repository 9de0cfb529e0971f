"""How far q is from the posterior, and what to do about it (section 5, its open problems).

Contract: `judged(fit)` gives the verdict that goes with every fit, from what the fit knows and some
hundreds of importance ratios; `check(fit)` the same with all the evidence that time can buy. A
verdict is a value of `result.verdicts`; nothing here changes a fit.
"""
