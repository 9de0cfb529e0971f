"""The NumPyro program that a topic model is (paper section 4.3), and the `Fit` of a run of it.

The kernel and the program are two statements of one model; the derived machinery serves whatever
the kernel does not (`fit.local`, `fit.sample`, `fit.predictive`, saving, ...).
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.family.q import Q
from lowerbound.methods.stochastic.minibatch import prepare
from lowerbound.model import trace_model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.fitted import Fit
from lowerbound.result.latent_records import site_records
from lowerbound.result.plan import make_plan
from lowerbound.result.posterior import Restart
from lowerbound.run.loop import as_fit
from lowerbound.run.problem import Problem
from lowerbound.topics.documents import Documents
from lowerbound.topics.outcome import Run

ROWS: Final = ("words", "present")


def latent_dirichlet_allocation(
    words: Any, present: Any, topics: int, vocabulary: int, document_prior: Any, topic_prior: Any
) -> None:
    """Documents as rows of word numbers (D, L); `present` (D, L) marks the places in use."""
    prior = jnp.broadcast_to(jnp.asarray(topic_prior), (topics, vocabulary))
    beta = numpyro.sample("beta", dist.Dirichlet(prior).to_event(1))
    with numpyro.plate("documents", words.shape[0], dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.asarray(document_prior)))
        with (
            numpyro.plate("places", words.shape[1], dim=-1),
            numpyro.handlers.mask(mask=present),
        ):
            z = numpyro.sample("z", dist.Categorical(probs=theta))
            numpyro.sample("word", dist.Categorical(probs=beta[z]), obs=words)


def rows_of(documents: Documents) -> dict[str, np.ndarray]:
    """Documents as the program takes them: tokens in the order of their words, padded."""
    lengths = documents.lengths.astype(int)
    words = np.zeros((len(documents), max(1, lengths.max(initial=0))), np.int32)
    present = np.arange(words.shape[1]) < lengths[:, None]
    words[present] = np.repeat(documents.words, documents.counts.astype(int))
    return {"words": words, "present": present}


def make_fit(run: Run, engine: str, precision: str) -> Fit:
    """A run as a `Fit` of the program: q(beta), and what the program needs to go on from there."""
    V, K = run.topics.shape
    example = Documents(
        np.array([0, 1, 3]), np.arange(3, dtype=np.int32) % V, np.ones(3, np.float32), V
    )
    settings = {
        "topics": K,
        "vocabulary": V,
        "document_prior": run.priors.document,
        "topic_prior": run.priors.topic,
    }
    with jax.enable_x64(True):
        rows: tuple[Any, dict[str, Any]] = (), {**rows_of(example), **settings}
        model = trace_model(latent_dirichlet_allocation, *rows, "documents")
        batch = prepare(model, ROWS, np.dtype(float), None)
        family = batch.shared.family
        natural: Any = ({"log": np.ascontiguousarray(run.topics.T) - 1.0},)
        batch.rows.engine.certified()
        joint = batch.rows.engine.joint
    setting = run.setting
    kernel = f"The local step is that of the {engine} kernel"
    notes = [setting.why, f"{kernel}, equal to the derived one."]
    if setting.inference == "collapsed":
        notes[1] = f"{kernel}, collapsed; the ELBO is that of its topics under mean field."
    stop = Stop(run.converged, run.reason)
    answer = Answer(
        Q(family, natural),
        run.elbo,
        run.history,
        (Restart(run.elbo, run.steps, str(stop)),),
        precision,
        run.elbo_error,
        run.terms,
        rows=rows,
        plate="documents",
    )
    plan = make_plan(model, joint, setting.inference, run.corpus_size, notes)
    sites = {n: s for n, s in site_records(model).items() if s["scope"] == "global"}
    problem = Problem(latent_dirichlet_allocation, *rows, setting.seed)
    return as_fit(problem, plan, sites, f"{setting.inference} ({engine})", answer, stop)
