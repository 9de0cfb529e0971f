"""Regressions (paper Appendix A, section 5.3): a response given columns, with its uncertainty."""
