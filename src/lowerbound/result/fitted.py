"""The result of a fit: the variational posterior, and the record of how it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import engine_for
from lowerbound.cost import check_fits
from lowerbound.errors import UnknownSiteError
from lowerbound.family.meanfield import MeanField
from lowerbound.family.q import Q
from lowerbound.joint import inputs_of
from lowerbound.model import Model, trace_model
from lowerbound.result.answer import Answer, Stop, in_order
from lowerbound.result.exchange.as_guide import Guide, guide_of
from lowerbound.result.plan import Plan
from lowerbound.result.posterior import History, Posterior, Restart
from lowerbound.result.saved import Saved
from lowerbound.result.summary import described, site_moments, summary_table
from lowerbound.result.unseen.local_rows import local_factors
from lowerbound.result.unseen.new_rows import new_call
from lowerbound.result.unseen.predictive import (
    derived_sites,
    predictive_sites,
    row_densities,
    terms_from_draws,
)
from lowerbound.result.verdicts import UNKNOWN, Verdict
from lowerbound.rewrite.augment import augmented, auxiliary_of
from lowerbound.rewrite.trees import with_values

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Call:
    """What was fitted, and how: the program, its arguments, method, seed, and software.

    value: the method itself, where the fit can be made again with it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] | None  # None when loaded without the data
    kwargs: dict[str, Any]
    method: str
    seed: int
    versions: dict[str, str]
    value: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A fitted variational density q(z), with everything needed to use and judge it.

    elbo: the evidence lower bound (eq:elbo) in nats, full data, all constants; `elbo_error` is its
    standard error, 0 where it is exact. history: ELBO and seconds, one value per sweep. restarts:
    one record per restart. converged, stop_reason: whether and why the run stopped. plan: what
    `explain` printed; notes: what the run has found that no plan could know. parameters: those of
    `numpyro.param`. q: the density itself, with `sample`, `moments`, `marginal` and `log_prob`.
    verdict: how far to trust it, with the reason, and what to do.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> fit = lb.fit(coin, y)
    >>> print(fit)
    Fit of coin by CAVI(): ELBO -2.99573 nats, converged after 2 sweeps
      converged: relative change 0.0e+00 of the ELBO in sweep 2 is within the tolerance 1e-08
      Trust means and intervals: q is the posterior, up to numerical integration.
      p: Beta, shape ()
    >>> float(fit.mean("p").round(3)), float(fit.sd("p").round(3))
    (0.667, 0.178)
    >>> fit.q.log_prob({"p": np.array([0.5])}).round(3)
    array([0.223])
    """

    answer: Answer
    stop: Stop
    plan: Plan
    call: Call
    sites: dict[str, dict[str, Any]]  # latent site -> shape, scope, support values
    saved: Saved | None = None  # what the file of a loaded fit holds of its call
    verdict: Verdict = UNKNOWN  # how far to trust it

    # -- the record -------------------------------------------------------------------------------

    @property
    def q(self) -> Q:
        """The density of all sites together."""
        return self.answer.q

    @property
    def elbo(self) -> float:
        """The evidence lower bound (eq:elbo)."""
        return self.answer.elbo

    @property
    def elbo_error(self) -> float:
        """The standard error of `elbo`; 0 where it is exact."""
        return self.answer.error

    @property
    def history(self) -> History:
        """ELBO and seconds on the way."""
        return self.answer.history

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """What happened in every restart."""
        return self.answer.restarts

    @property
    def converged(self) -> bool:
        """Whether the run has converged."""
        return self.stop.converged

    @property
    def stop_reason(self) -> str:
        """Why the run stopped."""
        return str(self.stop)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the program, maximised: arrays, or trees of them."""
        return self.answer.parameters

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run has found that no plan could know."""
        return self.answer.notes

    @property
    def precision(self) -> str:
        """That of the factors."""
        return self.answer.precision

    @property
    def method(self) -> str:
        """The method, as code."""
        return self.call.method

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.call.seed

    @property
    def versions(self) -> dict[str, str]:
        """Those of the software."""
        return self.call.versions

    @property
    def whole(self) -> bool:
        """Whether q has the local sites of all rows; else it has the global ones alone."""
        return self.answer.rows is None

    # -- the posterior ----------------------------------------------------------------------------

    @property
    def posterior(self) -> Posterior:
        """Q of each latent site: `fit.posterior["mu"]` is a NumPyro distribution."""
        local = [row.site for row in self.plan.rows if row.site not in self.sites]
        names = tuple(self.sites)
        return Posterior(self.q, names, tuple(local), self.whole)

    def mean(self, site: str) -> np.ndarray:
        """The mean of a site under q (exact for latent sites, else from draws)."""
        return site_moments(self, site)[0]

    def sd(self, site: str) -> np.ndarray:
        """The standard deviation of a site under q."""
        return site_moments(self, site)[1]

    def summary(self, sites: list[str] | None = None, draws: int = 1000) -> pd.DataFrame:
        """A table with one row per element: mean, sd and quantiles under q.

        Sites inside the data plate are left out unless they are named in `sites`.
        """
        return summary_table(self, sites, draws)

    def sample(
        self, draws: int = 1000, seed: int = 0, sites: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Independent draws from q: site -> array with a leading draw axis.

        Deterministic sites are computed from them; observed sites with missing entries are
        completed by draws of those entries. With `sites`, the draws of these alone: discrete sites
        that were summed out, long chains of states say, take most of the time.
        """
        with jax.enable_x64(True):
            key = jax.random.key(seed)
            own = None if sites is None or set(sites) - set(self.sites) else tuple(sites)
            found = self.latent_draws(draws, key, own)
            if own is None:
                found = {**found, **derived_sites(self, found, jax.random.fold_in(key, 1))}
            unknown = [name for name in sites or () if name not in found]
            if unknown:
                raise UnknownSiteError(
                    "sample got", unknown[0], tuple(found), "is no site that is drawn"
                )
            return {name: np.asarray(found[name]) for name in sites or found}

    def latent_draws(
        self, draws: int, key: jax.Array, sites: Sequence[str] | None = None
    ) -> dict[str, jax.Array]:
        """Draws of the latent sites alone, or of some of them, on their own scales."""
        wanted = tuple(self.sites) if sites is None else sites
        drawn = self.sites if sites is None else self.q.drawn_with(sites, self.sites)
        numbers = sum(int(np.prod(self.sites[name]["shape"])) for name in drawn)
        check_fits(8 * draws * numbers, f"a set of {draws:,} draws of the latent sites")
        values = self.q.sample(draws, key, sites, numbers)
        return {name: values[name] for name in wanted}

    @property
    def has_data(self) -> bool:
        """Whether the arguments of the fit are known: those of a file are not."""
        return self.call.args is not None

    def model(self) -> Model:
        """The model that was fitted, traced anew."""
        assert self.call.args is not None, "a fit without its data has no model"
        return trace_model(self.program, self.call.args, self.call.kwargs, self.answer.plate)

    def own_model(self) -> Model:
        """The model as it was given, traced anew: without auxiliary sites."""
        assert self.call.args is not None, "a fit without its data has no model"
        return trace_model(self.original, self.call.args, self.call.kwargs, self.answer.plate)

    @property
    def program(self) -> Callable[..., Any]:
        """The model as it was fitted: its parameters fixed, its augmented sites rewritten."""
        function, choices = self.call.function, self.answer.augment
        rewritten = augmented(function, choices) if choices else function
        return with_values(rewritten, self.parameters)

    @property
    def original(self) -> Callable[..., Any]:
        """The model as it was given, its parameters fixed: what data are drawn from."""
        return with_values(self.call.function, self.parameters)

    def own_sites(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the sites of the original program, without auxiliary ones."""
        choices = self.answer.augment or {}
        return {n: v for n, v in values.items() if auxiliary_of(n) not in choices}

    # -- the bound --------------------------------------------------------------------------------

    @property
    def elbo_terms(self) -> dict[str, float]:
        """The ELBO by site, in nats: E_q[log p] of its density plus the entropy of its factor.

        Those of an augmented program: auxiliary sites have terms of their own, "y:omega" say.
        Observed sites of one number each, where a loop makes more than twenty of them, count with
        the first that is like them.
        """
        return dict(self._terms)

    @cached_property
    def _terms(self) -> dict[str, float]:
        if self.saved is not None:
            return self.saved.elbo_terms
        if self.answer.terms is not None:
            return self.answer.terms
        with jax.enable_x64(True):
            model = self.model()
            family = self.q.family
            if not isinstance(family, MeanField):
                return terms_from_draws(self, model)
            engine = engine_for(model, np.dtype(float), self.answer.blocks)
            state = State.of(family, self.q.parameters)
            return in_order(model, engine.by_site(engine.prepare(inputs_of(model)), state))

    # -- new data ---------------------------------------------------------------------------------

    def predictive(
        self, *args: Any, draws: int = 1000, seed: int = 0, **kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Posterior predictive draws of the observed sites, with a leading draw axis.

        With new arguments, the sites of the data plate are drawn afresh for the new rows; without
        any, they keep their posterior and the data are replicated. Data that are not given anew
        and belong to the old rows become None, as when predicting y for new x.
        """
        return predictive_sites(self, args, kwargs, draws, seed)

    def log_predictive(
        self, *args: Any, draws: int = 200, seed: int = 0, **kwargs: Any
    ) -> np.ndarray:
        """Held-out log predictive density log p(x_new | x), one value per row of the data plate.

        In closed form where, given its assignment, a row's log density is affine in each global
        block alone (mixtures, conjugate regression); else log (1/S) sum_s p(x_row | z_s) over S =
        `draws` draws of the global sites, with the row's own latent variables integrated out:
        exactly where they form one factor or can be summed over, else by 20 draws for each z_s
        (importance sampling). Then it is an estimate of the density, unbiased before its logarithm
        is taken; another `seed` shows its error. With many parameters, or many latent variables of
        a row, the logarithm is biased downwards. Only rows with a `numpyro.factor` beside latent
        variables of several factors are given by their ELBO, a lower bound.
        """
        return row_densities(self, args, kwargs, draws, seed)

    def local(self, *args: Any, **kwargs: Any) -> Posterior:
        """The factors of the local variables of new rows, with the global factors as fitted.

        >>> fit.local(x_new)["c"].probs  # doctest: +SKIP
        """
        return local_factors(self, args, kwargs)

    def call_with(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the fit, with the new ones put in.

        A program that reads tables, as those of formulas do, turns them into its own arguments.
        """
        reader = getattr(self.call.function, "new_arguments", None)
        if reader is not None:
            args, kwargs = reader(args, kwargs)
        old, old_kwargs = self.call.args, self.call.kwargs
        if old is None:
            assert self.saved is not None
            return self.saved.call(self.call.function, self.sites, args, kwargs)
        if args or kwargs:
            return new_call(self.model(), old, old_kwargs, args, kwargs)
        return old, old_kwargs

    # -- interchange ------------------------------------------------------------------------------

    def to_arviz(
        self, draws: int = 1000, seed: int = 0, groups: Sequence[str] | None = None
    ) -> Any:
        """Draws for ArviZ: an InferenceData where `import arviz` gives 0.x, else a DataTree.

        Groups: posterior, posterior_predictive, log_likelihood, observed_data, and sample_stats
        with log p(x, z) and log q(z) of every draw, for `loo_approximate_posterior`. Attributes say
        how the draws were made, the verdict, and in `left_out` what the fit does not have. Axes
        have the names of plates. With `groups`, these alone.
        """
        from lowerbound.result.exchange.arviz_data import arviz_data

        return arviz_data(self, draws, seed, groups)

    def guide(
        self, sites: Sequence[str] | None = None, draws: int = 10_000, seed: int = 0
    ) -> Guide:
        """Q as a NumPyro guide: a program that draws the latent sites, all of them together.

        It takes whatever arguments the model takes. So many independent draws are made now, and
        each run of the guide picks one. With `sites`, these alone: `Predictive` then draws the
        others from the model, as it must those of new rows.

        >>> from numpyro.infer import Predictive
        >>> fit = lb.fit(coin, y)
        >>> found = Predictive(fit.guide(), num_samples=2000)(jax.random.key(0), y)
        >>> round(float(found["p"].mean()), 1), round(float(fit.mean("p")), 1)
        (0.7, 0.7)
        """
        return guide_of(self, sites, draws, seed)

    def save(self, path: Any) -> None:
        """Write the fit to one file: arrays and JSON, never code."""
        from lowerbound.result.saving import save

        save(self, path)

    def __repr__(self) -> str:
        return described(self)
