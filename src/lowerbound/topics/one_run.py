"""One run of an inference: looks at it, learns priors late, and stops it for a stated reason."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import jax
import numpy as np

from lowerbound.run.bar import Bar
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.documents import Documents, joined
from lowerbound.topics.inference import (
    Beginning,
    Inference,
    Reading,
    collapsed,
    coordinate_ascent,
    first_topics,
    stochastic,
)
from lowerbound.topics.inference_steps import Engine, Rule
from lowerbound.topics.looks.completion import hold_out
from lowerbound.topics.looks.watch import Trail, Watch, progress_text
from lowerbound.topics.outcome import Run, finish
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting
from lowerbound.topics.standing import Standing, keeper

PRIOR_LOOKS: Final = 2  # at least, with learned priors


def rule_of(setting: Setting) -> Rule:
    """The rule by which documents are solved."""
    return "collapsed" if setting.inference == "collapsed" else "mean field"


def split_corpus(
    corpus: Corpus, share: float, most: int, seed: int
) -> tuple[Reading, Documents | None]:
    """The documents to learn from, and those to judge by."""
    if corpus.held is not None:
        total = len(corpus.held)
        wanted = min(most, int(share * total))
        order = np.random.default_rng((seed, 1)).permutation(total)
        kept = np.sort(order[wanted:])
        judged = corpus.held.take(np.sort(order[:wanted])) if wanted else None
        return Reading(corpus, kept, 0, total - wanted), judged
    count = corpus.count
    wanted = most if count is None else min(most, int(share * count))
    if not share or not wanted:
        return Reading(corpus, None, 0, count), None
    parts, found, read = [], 0, 0
    for batch in corpus.batches(wanted):
        if found < wanted:
            parts.append(batch.between(0, min(len(batch), wanted - found)))
            found += len(parts[-1])
        read += len(batch)
        # A stream of unknown length is read on until it is long enough for so many.
        if found == wanted and (count is not None or share * read >= wanted):
            break
    else:
        count = read
    wanted = min(found, int(share * read)) if corpus.count is None else found
    judged = joined(parts).between(0, wanted) if wanted else None
    return Reading(corpus, None, wanted, None if count is None else count - wanted), judged


def start(at: Beginning) -> Inference:
    """The inference that a setting names, from the beginning or after a look."""
    if at.setting.inference == "cavi":
        return coordinate_ascent(at)
    if at.setting.inference == "svi":
        return stochastic(at, "mean field", at.setting.passes)
    return collapsed(at)


def run(
    engine: Engine,
    corpus: Corpus,
    priors: Priors,
    setting: Setting,
    *,
    validation: tuple[float, int] = (0.05, 2000),
    progress: bool | None = None,
    checkpoint: Any = None,
) -> Run:
    """Fit topics to a corpus; with a `checkpoint`, the name of a file, go on from what it holds."""
    began = time.perf_counter()
    reading, judged = split_corpus(corpus, *validation, setting.seed)
    judge = hold_out(engine, judged, setting.seed) if judged is not None else None
    learns = setting.learn_document or setting.learn_topic
    watch = Watch(setting, judged=judge is not None and setting.inference != "cavi")
    rule, trail = rule_of(setting), Trail(setting.topics, corpus.vocabulary)
    before: Standing | None = None
    keep = None
    if checkpoint is not None:
        keep = keeper(checkpoint, setting, corpus, priors, validation)
    held = None if keep is None else keep.read(engine)
    if held is None:
        first = first_topics(engine, reading, priors, setting)
        inference = start(Beginning(engine, reading, priors, setting, first))
    else:
        before, priors, watch.scores = held.before, held.now.priors, held.scores
        trail, began = Trail.restored(trail, held), began - held.seconds
        look = held.now.look
        inference = start(Beginning(engine, reading, priors, setting, look.topics, look))
    reason, converged = f"all {setting.passes} passes were made", False
    doubles = jax.enable_x64(True)  # what an engine on a device returns is in float64
    with doubles, Bar(progress, setting.passes, f"{setting.inference} topics", "pass") as bar:
        look, score = next(inference), float("nan")
        while True:
            if held is None:
                score = judge.score(look.topics, priors.document) if judge else float("nan")
                trail.add(look, score, time.perf_counter() - began, engine)
                seen = score if watch.judged else look.elbo
                watch.scores += [seen] if np.isfinite(seen) else []
                if keep is not None and look.whole:
                    seconds = time.perf_counter() - began
                    now = Standing(look, priors, score)
                    keep.write(trail.progress(now, before, watch.scores, seconds), engine)
            else:  # this look was judged before the run was interrupted
                score, held = held.now.score, None
            bar.update(int(look.passes), progress_text(look, score))
            why = watch.settled()
            late = look.passes >= 0.6 * setting.passes
            if learns and before is None and (why or late):
                before, watch = Standing(look, priors, score), replace(watch, scores=[])
            elif why and (before is None or len(watch.scores) > PRIOR_LOOKS):
                reason, converged = why, True
                break
            if before is not None:
                priors = priors.learned(
                    rule, look.gamma, engine.fetch(look.topics),
                    document=setting.learn_document, topic=setting.learn_topic,
                )  # fmt: skip
            try:
                look = inference.send(priors)
            except StopIteration:
                score = judge.score(look.topics, priors.document) if judge else score
                break
    inference.close()
    if before is not None and judge is not None and score < before.score:
        look, priors, score = before.look, before.priors, before.score
        reason += "; learned priors scored worse on the documents held out, and were not kept"
    done = finish(engine, reading, priors, setting, look, trail, score, reason, converged)
    if keep is not None:
        keep.remove()
    return done
