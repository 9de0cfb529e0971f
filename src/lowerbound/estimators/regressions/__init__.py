"""Regressions (paper Appendix A and section 5.3): a response given columns, with its uncertainty."""
