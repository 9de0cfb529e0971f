"""The table of methods: every public way to fit, as values, and what each can do.

A way is a method and a small program it is for. `tests/methods/test_*.py` run every capability over
every way; a way `refuses` a capability with an error that holds the text given here, and `lacks`
one where it is wrong today, for the reason given (the test must then fail, or the entry goes).
`python -m tests.methods.table` prints the whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import lowerbound as lb
from tests.methods import zoo
from tests.methods.zoo import Example

Listed = Mapping[str, Mapping[str, tuple[str, ...]]]  # capability -> text -> names of ways
# What is asked of the run, of every way.
OF_RUNS = {
    "plan": "what `explain` returns is the plan of the fit",
    "rung": "the method is the one asked for, or the rung that the model is for",
    "repeats": "the same seed gives the same numbers",
    "compiles once": "another call compiles nothing",
    "history": "the history ends where the ELBO is",
    "restarts": "the table of restarts has the kept one, with the ELBO of the fit",
    "reason": "the stop reason begins with converged or stopped, as `converged` says",
    "flag": "`converged` is a bool",
    "checkpoints": "a run that was kept and killed goes on to the same bits",
}
# What is asked of the q that it leaves.
OF_RESULTS = {
    "draws": "means and sds are those of draws; deterministic sites are drawn",
    "marginals": "`posterior[site]` has these means and sds",
    "log q": "E_q[log p - log q] is the ELBO, log q is the density of draws",
    "terms": "the ELBO by site sums to the ELBO, the data's term is E_q of their log density",
    "predicts": "draws of new rows",
    "densities": "the log predictive density of new rows sums to one over their outcomes",
    "local": "factors of the latent sites of new rows",
    "arviz": "`to_arviz` holds the draws",
    "verdict": "q is compared with log p at its draws, or is exact; or the verdict says why not",
    "saves": "the file gives the same fit, with the data",
    "saves alone": "and without them",
}
CAPABILITIES = {**OF_RUNS, **OF_RESULTS}


@dataclass(frozen=True, eq=False)
class Way:
    """A way to fit: a method for an example, and what it does not do.

    rung: the rung of the ladder that is taken, where the method is automatic.
    history: "exact" values of the ELBO, "estimates" of it by draws, "noisy" ones by rows, or
        "other" where the values on the way are those of another surface.
    alike: the way whose q is of the same kind; what is asked of q, and whether a seed repeats, is
        asked there, and of this way among the slow tests.
    """

    name: str
    method: Any
    example: Example
    history: str = "exact"
    rung: str = ""
    alike: str = ""

    @property
    def refuses(self) -> dict[str, str]:
        """The capabilities that are refused, with words of the error."""
        return _listed(REFUSED, self.name)

    @property
    def lacks(self) -> dict[str, str]:
        """The capabilities that are wrong today, with the reason."""
        return _listed(LACKING, self.name)

    @property
    def automatic(self) -> bool:
        """Whether the method is chosen by the ladder."""
        return self.method == "auto"

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The latent sites that the fit holds, with their shapes: minibatches leave the rows'."""
        rows = self.example.local if self.by_rows else ()
        return {name: shape for name, shape in self.example.shapes.items() if name not in rows}

    @property
    def by_rows(self) -> bool:
        """Whether the fit sees some rows at a time."""
        inner = getattr(self.method, "method", self.method)
        return isinstance(inner, lb.SVI | lb.Memoized) or self.example.streamed

    @property
    def on_grid(self) -> bool:
        """Whether scalars are on a grid."""
        return isinstance(self.method, lb.Given) or self.rung == "conditioned"

    def says(self, capability: str) -> str:
        """A cell of the table."""
        if capability in self.lacks:
            return "xfail"
        return "refused" if capability in self.refuses else "yes"


AVERAGED = lb.SVI(
    batch_size=8, steps=60, forgetting=0.7, monitor=None, details=lb.Details(average=True)
)
EXACTLY = lb.Augmented({"y": "polya-gamma"}, lb.CAVI())

WAYS = (
    # Coordinate ascent
    Way("CAVI", lb.CAVI(), zoo.LINE),
    Way("CAVI, restarts", lb.CAVI(restarts=3), zoo.CLUSTERS),
    Way("Growing", lb.Growing(), zoo.CLUSTERS, alike="CAVI, restarts"),
    Way("CAVI, blocks", lb.CAVI(blocks=[("beta",), ("tau",)]), zoo.LINE, alike="CAVI"),
    Way("CAVI, quadrature", lb.CAVI(), zoo.LOGISTIC, alike="CAVI"),
    Way("CAVI, given one scalar", lb.Given(("tau",)), zoo.SCHOOLS),
    Way(
        "CAVI, given two scalars",
        lb.Given(("tau", "sigma")),
        zoo.SPREAD,
        alike="CAVI, given one scalar",
    ),
    Way(
        "CAVI, augmented", lb.Augmented({"y": "polya-gamma"}, lb.CAVI()), zoo.LOGISTIC, alike="CAVI"
    ),
    Way("CAVI, parameters", lb.CAVI(), zoo.SHRUNK, alike="CAVI"),
    Way("CAVI, parameters, one too many", lb.CAVI(), zoo.DOUBLED, alike="CAVI, parameters"),
    # Minibatches
    Way("SVI", lb.SVI(batch_size=8, steps=60, forgetting=0.7, monitor=None), zoo.CLUSTERS, "noisy"),
    Way(
        "SVI, adaptive",
        lb.SVI(batch_size=8, steps=60, monitor=None),
        zoo.CLUSTERS,
        "noisy",
        alike="SVI",
    ),
    Way(
        "SVI, averaged",
        lb.SVI(
            batch_size=8, steps=60, forgetting=0.7, monitor=None, details=lb.Details(average=True)
        ),
        zoo.CLUSTERS,
        "noisy",
        alike="SVI",
    ),
    Way(
        "SVI, memoised",
        lb.Memoized(batch_size=8),
        zoo.CLUSTERS,
        alike="SVI",
    ),
    Way(
        "SVI, augmented",
        lb.Augmented({"y": "polya-gamma"}, lb.SVI(batch_size=8, steps=60, monitor=None)),
        zoo.LOGISTIC,
        "noisy",
        alike="SVI",
    ),
    Way(
        "SVI, augmented by the plan",
        lb.SVI(batch_size=8, steps=60, monitor=None),
        zoo.LOGISTIC,
        "noisy",
        alike="SVI, augmented",
    ),
    # Gaussians on the unconstrained space
    Way("Gaussian, full", lb.Gaussian(rank="full"), zoo.LOGISTIC, "estimates"),
    Way(
        "Gaussian, diagonal",
        lb.Gaussian(rank="diagonal"),
        zoo.LOGISTIC,
        "estimates",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, low rank", lb.Gaussian(rank=1), zoo.LOGISTIC, "estimates", alike="Gaussian, full"
    ),
    Way(
        "Gaussian, structured",
        lb.Gaussian(rank="structured"),
        zoo.CHAIN,
        "estimates",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, fixed draws",
        lb.Gaussian(draws=64),
        zoo.BEND,
        "other",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, match",
        lb.ScoreMatching(),
        zoo.BEND,
        "estimates",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, stochastic",
        lb.StochasticGaussian(),
        zoo.BEND,
        "estimates",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, Laplace",
        lb.Laplace(),
        zoo.BEND,
        "other",
        alike="Gaussian, full",
    ),
    Way("Gaussian, delta", lb.Delta(), zoo.BEND, "other", alike="Gaussian, full"),
    Way("Gaussian, score functions", lb.ScoreFunctions(), zoo.SWITCHES, "other"),
    Way(
        "Gaussian, given a scalar",
        lb.Given(("tau",), lb.Gaussian()),
        zoo.SCHOOLS,
        alike="CAVI, given one scalar",
    ),
    Way("Gaussian, some sites", lb.Over(("rate",)), zoo.SPIKES, "estimates"),
    Way(
        "Gaussian, non-centred",
        lb.Gaussian(noncentred=("theta",)),
        zoo.SCHOOLS,
        "estimates",
        alike="Gaussian, full",
    ),
    Way(
        "Gaussian, centring chosen",
        lb.Gaussian(),
        zoo.SCHOOLS,
        "estimates",
        alike="Gaussian, non-centred",
    ),
    Way("Gaussian, summed out", lb.Gaussian(starts=2), zoo.TAILS, "estimates"),
    Way(
        "Gaussian, integrated out",
        lb.Collapsed(("theta",), lb.Gaussian(starts=2)),
        zoo.SHARES,
        "estimates",
    ),
    # Discrete sites alone
    Way("Enumeration", lb.Enumeration(), zoo.CULPRIT),
    # Hyperparameters integrated
    Way("Integrated", lb.Integrated(), zoo.SPREAD, "other"),
    # Parameters by gradients
    Way("EM", lb.EM(), zoo.DECODER, "other"),
    # The ladder
    Way("auto: exact", "auto", zoo.LINE, rung="exact", alike="CAVI"),
    Way("auto: exact sums", "auto", zoo.CULPRIT, rung="exact", alike="Enumeration"),
    Way(
        "auto: conditioned", "auto", zoo.SCHOOLS, rung="conditioned", alike="CAVI, given one scalar"
    ),
    Way(
        "auto: integrated out",
        "auto",
        zoo.SHARES,
        "estimates",
        rung="Gaussian, with 'theta' integrated out",
        alike="Gaussian, integrated out",
    ),
    Way(
        "auto: integrated",
        "auto",
        zoo.OVERDISPERSED,
        "other",
        rung="integrated",
        alike="Integrated",
    ),
    Way(
        "auto: coordinate ascent",
        "auto",
        zoo.CLUSTERS,
        rung="coordinate ascent",
        alike="CAVI, restarts",
    ),
    Way(
        "auto: quadrature", "auto", zoo.LOGISTIC, rung="coordinate ascent", alike="CAVI, quadrature"
    ),
    Way("auto: augmented", "auto", zoo.FACTORS, rung="augmented", alike="CAVI, augmented"),
    Way(
        "auto: Gaussian of some sites",
        "auto",
        zoo.SPIKES,
        "estimates",
        rung="Gaussian over 'rate', the rest exact",
        alike="Gaussian, some sites",
    ),
    Way("auto: Gaussian", "auto", zoo.BEND, "estimates", rung="Gaussian", alike="Gaussian, full"),
    Way(
        "auto: summed out",
        "auto",
        zoo.TAILS,
        "estimates",
        rung="Gaussian, with 'z' summed out",
        alike="Gaussian, summed out",
    ),
    Way(
        "auto: score functions",
        "auto",
        zoo.SWITCHES,
        "other",
        rung="score functions",
        alike="Gaussian, score functions",
    ),
    Way(
        "auto: parameters",
        "auto",
        zoo.SHRUNK,
        rung="coordinate ascent, parameters maximised",
        alike="CAVI, parameters",
    ),
    Way(
        "auto: parameters by gradients",
        "auto",
        zoo.DECODER,
        "other",
        rung="gradients, a Gaussian by rows",
        alike="EM",
    ),
    Way("auto: a stream", "auto", zoo.STREAMED, "noisy", rung="minibatches", alike="SVI"),
)
EVERY = tuple(way.name for way in WAYS)
GRIDS = ("CAVI, given one scalar", "CAVI, given two scalars")
EXACT_PARAMETERS = ("CAVI, parameters", "CAVI, parameters, one too many", "auto: parameters")
INTEGRATED = ("Integrated", "auto: integrated")
SUMS = ("Enumeration", "auto: exact sums")
GRADIENTS = ("EM", "auto: parameters by gradients")
GAUSSIANS = (
    *(name for name in EVERY if name.startswith("Gaussian")),
    "auto: Gaussian of some sites",
    "auto: Gaussian",
    "auto: integrated out",
    "auto: summed out",
    "auto: score functions",
)
AUGMENTED = ("CAVI, augmented", "SVI, augmented", "SVI, augmented by the plan")
OUT = ("summed", "integrated")
ROWLESS = "The observations have no common rows"

REFUSED: Listed = {
    "checkpoints": {
        "for a model with numpyro.param sites, which keeps no state between": EXACT_PARAMETERS,
        "which keeps no state between its steps": (
            *GRIDS,
            *GAUSSIANS,
            *GRADIENTS,
            *INTEGRATED,
            *SUMS,
            "Growing",
            "auto: conditioned",
        ),
    },
    "verdict": {
        "q has no density of": ("Gaussian, score functions", "auto: score functions"),
        "4096 states": ("Gaussian, some sites", "auto: Gaussian of some sites"),
    },
    "densities": {ROWLESS: ("Gaussian, structured",)},
    "saves alone": {
        "by non-centred coordinates": ("Gaussian, non-centred", "Gaussian, centring chosen"),
        "pass them to lb.load": (
            *(f"{way} {kind} out" for way in ("Gaussian,", "auto:") for kind in OUT),
            *SUMS,
        ),
    },
    "local": {
        ROWLESS: ("Gaussian, structured",),
        "of new rows have no factor of their own: they enter 'y' through": ("auto: integrated",),
        "they are summed over together with 'who', which all rows share": SUMS,
        "The model has no local latent sites": tuple(
            way.name for way in WAYS if not way.example.local and way.name != "Gaussian, structured"
        ),
    },
}
LACKING: Listed = {}


def _listed(table: Listed, name: str) -> dict[str, str]:
    """The capabilities in which a way is listed, with the text it is listed under."""
    found = {c: [text for text, names in by.items() if name in names] for c, by in table.items()}
    return {capability: texts[0] for capability, texts in found.items() if texts}


def over(capability: str) -> Any:
    """A test of a capability, over all ways; those that lack it must fail."""
    cases = []
    for way in WAYS:
        repeated = capability in OF_RESULTS or capability == "repeats"
        marks = [pytest.mark.slow] if way.alike and repeated else []
        if capability in way.lacks:
            marks.append(pytest.mark.xfail(strict=True, reason=way.lacks[capability]))
        cases.append(pytest.param(way, id=way.name, marks=marks))
    return pytest.mark.parametrize("way", cases)


def lines(ways: Iterable[Way] = WAYS) -> list[str]:
    """The table in words."""
    names = list(CAPABILITIES)
    first = max(len(way.name) for way in ways)
    out = [f"{name}: {text}" for name, text in CAPABILITIES.items()]
    out += ["", "  ".join([" " * first, *names])]
    for way in ways:
        cells = [way.says(name).ljust(len(name)) for name in names]
        out.append("  ".join([way.name.ljust(first), *cells]).rstrip())
    for way in ways:
        for name in names:
            if name in way.lacks:
                out.append(f"xfail  {way.name}, {name}: {way.lacks[name]}")
    return out


if __name__ == "__main__":
    print("\n".join(lines()))
