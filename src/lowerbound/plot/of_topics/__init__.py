"""Pictures of topics (section 4.3): their words, their shares, their distances, one document.

Contract: a fitted topic model goes in, Matplotlib axes come out; nothing is fitted here.
"""
