"""One run of an inference: looks at it, learns priors late, and stops it for a stated reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lowerbound.result.answer import Stop
from lowerbound.run.loop import followed, steadily
from lowerbound.run.planned import Info, Stepped
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.documents import Documents, joined
from lowerbound.topics.inference import (
    Beginning,
    Inference,
    Look,
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
from lowerbound.topics.standing import Progress, Standing, keeper

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


class Passes(Stepped[Progress]):
    """An inference a pass at a time: judged at every look, its priors learned late."""

    unit = "pass"

    def __init__(
        self,
        engine: Engine,
        corpus: Corpus,
        priors: Priors,
        setting: Setting,
        validation: tuple[float, int],
    ) -> None:
        self.engine, self.priors, self.setting = engine, priors, setting
        self.reading, judged = split_corpus(corpus, *validation, setting.seed)
        self.judge = None if judged is None else hold_out(engine, judged, setting.seed)
        self.total = setting.passes
        # A cache: where a run goes on from another look, the inference starts anew from there.
        self.inference: Inference | None = None
        self.latest: Look | None = None

    @property
    def title(self) -> str:
        """What the bar calls it."""
        return f"{self.setting.inference} topics"

    def init(self) -> Progress:
        """Before the first look."""
        return Progress(Trail.of(self.setting.topics, self.reading.corpus.vocabulary))

    def step(self, state: Progress, until: int) -> tuple[Progress, Info]:
        """Looks up to the end of a pass, or to one at which the run is over."""
        values, stop = [], None
        while True:
            priors = self._next_priors(state)
            look = self._next(state, priors)
            if look is None:
                state, stop = self._ended(state, priors)
                break
            state, stop = self._judged(state, look, priors)
            values.append(look.elbo)
            if look.whole or stop is not None:
                break
        assert state.now is not None
        done, text = int(state.now.look.passes), progress_text(state.now.look, state.now.score)
        if stop is not None:
            state, stop = self._better(state, stop)
        return state, Info(done, np.asarray(values, float), text, stop)

    def _next_priors(self, state: Progress) -> Priors:
        """The priors to go on with: learned ones, once that has begun."""
        if state.now is None:
            return self.priors
        if state.before is None:
            return state.now.priors
        setting, look = self.setting, state.now.look
        return state.now.priors.learned(
            rule_of(setting), look.gamma, self.engine.fetch(look.topics),
            document=setting.learn_document, topic=setting.learn_topic,
        )  # fmt: skip

    def _next(self, state: Progress, priors: Priors) -> Look | None:
        """The look after that of a state; None where all passes were made."""
        engine, reading, setting = self.engine, self.reading, self.setting
        if state.now is None:
            first = first_topics(engine, reading, priors, setting)
            self.inference = start(Beginning(engine, reading, priors, setting, first))
            self.latest = next(self.inference)
            return self.latest
        if self.inference is None or self.latest is not state.now.look:
            self.close()
            look, priors_then = state.now.look, state.now.priors
            at = Beginning(engine, reading, priors_then, setting, look.topics, look)
            self.inference = start(at)
            next(self.inference)
        try:
            self.latest = self.inference.send(priors)
        except StopIteration:
            return None
        return self.latest

    def _judged(self, state: Progress, look: Look, priors: Priors) -> tuple[Progress, Stop | None]:
        """A state with one more look, and why the run is over with it."""
        setting, judge = self.setting, self.judge
        score = judge.score(look.topics, priors.document) if judge else float("nan")
        trail = state.trail.with_look(look, score, self.engine.fetch(look.topics))
        judged = judge is not None and setting.inference != "cavi"
        seen = score if judged else look.elbo
        scores = (*state.scores, seen) if np.isfinite(seen) else state.scores
        now = Standing(look, priors, score)
        new = replace(state, trail=trail, now=now, scores=scores)
        why = Watch(setting, list(scores), judged).settled()
        learns = setting.learn_document or setting.learn_topic
        late = look.passes >= 0.6 * setting.passes
        if learns and state.before is None and (why or late):
            return replace(new, before=now, scores=()), None
        if why and (state.before is None or len(scores) > PRIOR_LOOKS):
            return new, Stop(True, why)
        return new, None

    def _ended(self, state: Progress, priors: Priors) -> tuple[Progress, Stop]:
        """After the last pass, with the priors that were learned from it."""
        now = state.now
        assert now is not None
        score = self.judge.score(now.look.topics, priors.document) if self.judge else now.score
        state = replace(state, now=Standing(now.look, priors, score))
        return state, Stop(False, f"all {self.setting.passes} passes were made")

    def _better(self, state: Progress, stop: Stop) -> tuple[Progress, Stop]:
        """The state before priors were learned, where that scored better."""
        now, before = state.now, state.before
        if now is None or before is None or self.judge is None or not now.score < before.score:
            return state, stop
        worse = "learned priors scored worse on the documents held out, and were not kept"
        return replace(state, now=before), replace(stop, text=f"{stop.text}; {worse}")

    def close(self) -> None:
        """Read no further."""
        if self.inference is not None:
            self.inference.close()
        self.inference = None

    def document(self, state: Progress) -> dict[str, Any]:
        """A state as arrays and plain values."""
        return state.document(self.engine)

    def restored(self, document: Mapping[str, Any]) -> Progress:
        """The state that a checkpoint holds."""
        return Progress.restored(document, self.engine)


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
    passes = Passes(engine, corpus, priors, setting, validation)
    keep = None
    if checkpoint is not None:
        keep = keeper(checkpoint, setting, corpus, priors, validation)
    with steadily():  # what an engine on a device returns is in float64
        course = followed(passes, progress, keep, None if keep is None else keep.read())
    passes.close()
    done = finish(engine, passes.reading, setting, course)
    if keep is not None:
        keep.remove()
    return done
