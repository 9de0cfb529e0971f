"""Whether a method is right on average over data that the model itself makes (section 5.2).

Contract: `calibrate` draws parameters from the prior and data from the model, fits each data set as
`lb.fit` does, and ranks the parameters among draws of q. Where q is the posterior these ranks are
uniform: what is tested, with a stated rate of false alarms. Nothing here has inference of its own.
"""
