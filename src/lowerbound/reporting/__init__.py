"""A page about a fit, the verdict first (section 5: what is known of how good an answer is).

Contract: `report` reads a fit and writes one HTML file with nothing outside it: no script, no font,
no picture from elsewhere. It fits nothing and judges nothing; what it cannot show it names.
"""

from lowerbound.reporting.writing import course, report

__all__ = ["course", "report"]
