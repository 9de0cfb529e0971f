"""Pictures of topics: what they show is what the model holds."""

import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Annotation
from scipy.sparse import csr_array

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.plot.axes import FAINT
from lowerbound.plot.of_topics.scaling import scaled
from lowerbound.topics.looks.divergence import divergences, means
from lowerbound.topics.looks.quality import top_words
from lowerbound.topics.snapshots import no_snapshots

V = 60
WORDS = np.array([f"w{number}" for number in range(V)])


def fitted(K=9, seed=0, words=WORDS, snapshots=5):
    rng = np.random.default_rng(seed)
    components = 0.01 + 500 * rng.gamma(0.2, size=(K, V))
    history = no_snapshots(K)
    for number in range(1, snapshots + 1):
        weights = rng.dirichlet(np.full(K, 3.0))
        noisy = components * rng.gamma(5.0, size=components.shape)
        history = history.with_one(500 * number, weights, top_words(noisy, 10), -7.0)
    beta = means(components)

    def transform(documents):
        shares = 0.1 + documents.matrix() @ beta.T
        return shares / shares.sum(axis=1, keepdims=True)

    return SimpleNamespace(
        components_=components,
        topic_weights_=rng.dirichlet(np.full(K, 3.0)),
        words_=words,
        snapshots_=history,
        transform=transform,
    )


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def boxes(ax, texts):
    ax.figure.draw_without_rendering()
    return [text.get_window_extent() for text in texts]


def overlaps(extents):
    return [
        (i, j) for i in range(len(extents)) for j in range(i) if extents[i].overlaps(extents[j])
    ]


# --- Topics ---


def test_topics_has_a_panel_per_topic_by_weight():
    model = fitted()
    axes = lb.plot.topics(model, n_words=5, n_topics=6, columns=4)
    order = np.argsort(-model.topic_weights_)[:6]
    titles = [f"topic {k}  ·  {model.topic_weights_[k]:.1%}" for k in order]
    assert [ax.get_title(loc="left") for ax in axes] == titles
    assert len(axes[0].figure.axes) == 6
    beta = means(model.components_)
    for ax, k in zip(axes, order, strict=True):
        best = np.argsort(-beta[k])[:5]
        assert [label.get_text() for label in ax.get_yticklabels()] == list(WORDS[best])
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], beta[k][best])
        (strip,) = [line for line in ax.lines if line.get_gid() == "weight"]
        share = model.topic_weights_[k] / model.topic_weights_.max()
        np.testing.assert_allclose(strip.get_xdata(), [0, share])
        assert ax.get_xlim() == axes[0].get_xlim()
        assert ax.get_xlim()[1] > max(bar.get_width() for bar in ax.patches)
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the most probable word on top


@pytest.mark.parametrize(("K", "columns"), [(1, 4), (5, 4), (9, 3)])
def test_topics_names_do_not_overlap(K, columns):
    axes = lb.plot.topics(fitted(K, words=None), columns=columns)
    assert len(axes) == K
    texts = [label for ax in axes for label in ax.get_yticklabels()]
    texts += [ax.title for ax in axes] + [ax._left_title for ax in axes]
    texts = [text for text in texts if text.get_text()]
    assert all(re.fullmatch(r"word \d+|topic \d+  ·  [\d.]+%", t.get_text()) for t in texts)
    assert overlaps(boxes(axes[0], texts)) == []


@pytest.mark.parametrize("name", ["n_words", "n_topics", "columns"])
def test_topics_wants_positive_numbers(name):
    with pytest.raises(ArgumentError) as error:
        lb.plot.topics(fitted(), **{name: 0})
    assert str(error.value) == f"plot.topics got {name}=0.\nExpected an integer of at least 1."


# --- The map ---


@pytest.mark.parametrize("seed", range(4))
def test_scaling_recovers_points_of_the_plane(seed):
    """Distances within a plane are kept exactly, whatever the weights; some weights are 0."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(12, 2))
    weights = rng.uniform(size=12)
    weights[:2] = 0
    squared = ((points[:, None] - points) ** 2).sum(axis=-1)
    for share in (np.full(12, 1 / 12), weights):
        found, kept = scaled(squared, share)
        np.testing.assert_allclose(((found[:, None] - found) ** 2).sum(axis=-1), squared, atol=1e-8)
        assert kept == pytest.approx(1)
        np.testing.assert_allclose(share @ found / share.sum(), 0, atol=1e-8)


def test_scaling_with_equal_weights_is_torgersons():
    squared = divergences(means(fitted().components_))
    J = np.eye(9) - 1 / 9
    values, vectors = np.linalg.eigh(-J @ squared @ J / 2)
    found, kept = scaled(squared, np.full(9, 0.3))
    expected = vectors[:, [8, 7]] * np.sqrt(values[[8, 7]])
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-12)
    assert kept == pytest.approx(values[-2:].sum() / values.clip(0).sum())


def test_map_draws_areas_by_weight_and_joins_duplicates():
    model = fitted()
    model.components_[4] = 3 * model.components_[2]
    ax = lb.plot.topic_map(model, n_words=2)
    (circles,) = [c for c in ax.collections if len(c.get_offsets()) == 9]
    order = np.argsort(-model.topic_weights_)
    sizes = circles.get_sizes()
    share = model.topic_weights_[order]
    np.testing.assert_allclose(sizes / sizes[0], share / share[0])
    (joined,) = [line for line in ax.lines if line.get_gid() == "duplicates"]
    places = circles.get_offsets()[[list(order).index(2), list(order).index(4)]]
    np.testing.assert_allclose(sorted(joined.get_xdata()), sorted(places[:, 0]))
    assert re.fullmatch(
        r"the plane holds \d+% of the squared distances; lines join topics that say the same",
        ax.get_title(loc="left"),
    )
    assert (
        lb.plot.topic_map(fitted(), n_topics=5)
        .get_title(loc="left")
        .startswith("the 5 largest of 9 topics; the plane holds")
    )


@pytest.mark.parametrize(("K", "seed"), [(9, 0), (60, 1), (60, 2)])
def test_map_labels_do_not_overlap_and_are_true(K, seed):
    model = fitted(K, seed)
    ax = lb.plot.topic_map(model)
    numbers = [t for t in ax.texts if not isinstance(t, Annotation)]
    labels = [t for t in ax.texts if isinstance(t, Annotation) and t.get_text()]
    assert len(labels) > 5
    best = [", ".join(WORDS[row]) for row in top_words(model.components_, 3)]
    inside = {best[int(number.get_text())] for number in numbers}
    numbered = {f"{k} {text}" for k, text in enumerate(best) if text not in inside}
    assert {label.get_text() for label in labels} <= inside | numbered
    largest = best[int(np.argmax(model.topic_weights_))]
    assert largest in {label.get_text() for label in labels}
    assert overlaps(boxes(ax, labels + numbers)) == []
    frame = ax.get_window_extent().padded(1)
    assert all(frame.count_contains(box.corners()) == 4 for box in boxes(ax, labels))


def test_map_leaves_idle_topics_without_label_and_line():
    model = fitted()
    model.components_[4] = model.components_[2]
    model.topic_weights_[[2, 4]] = 1e-4
    ax = lb.plot.topic_map(model)
    assert [line for line in ax.lines if line.get_gid() == "duplicates"] == []
    best = {", ".join(WORDS[top_words(model.components_, 3)[k]]) for k in (2, 4)}
    assert not [t for t in ax.texts if any(t.get_text().endswith(words) for words in best)]


@pytest.mark.parametrize("K", [1, 2])
def test_map_of_few_topics(K):
    ax = lb.plot.topic_map(fitted(K), ax=plt.figure().subplots())
    assert np.isfinite(ax.collections[0].get_offsets()).all()
    assert "holds 100% of" in ax.get_title(loc="left")
    with pytest.raises(ArgumentError) as error:
        lb.plot.topic_map(fitted(K), n_words=0)
    assert str(error.value) == "plot.topic_map got n_words=0.\nExpected an integer of at least 1."


# --- History ---


@pytest.mark.parametrize("K", [3, 9, 30])
def test_history_names_the_largest(K):
    model = fitted(K)
    ax = lb.plot.topic_history(model)
    weights, seen = model.snapshots_.weights, model.snapshots_.documents
    order = np.argsort(-weights[-1])[:8]
    lines = {line.get_label(): line for line in ax.lines}
    assert len(ax.lines) == K
    for k in order:
        np.testing.assert_array_equal(lines[f"topic {k}"].get_xdata(), seen)
        np.testing.assert_array_equal(lines[f"topic {k}"].get_ydata(), weights[:, k])
    labels = [f"{k} {', '.join(WORDS[model.snapshots_.words[-1, k, :3]])}" for k in order]
    assert [text.get_text() for text in ax.texts] == labels
    colours = [lines[f"topic {k}"].get_color() for k in order]
    assert [text.get_color() for text in ax.texts] == colours
    assert len(set(colours)) == len(order)
    heights = [text.xyann[1] for text in ax.texts]
    assert min(-np.diff(heights)) > 0.04
    assert min(heights) >= 0
    others = f"the 8 largest of {K} topics; the others in grey" if K > 8 else ""
    assert ax.get_title(loc="left") == others


def test_history_is_logarithmic_where_snapshots_thin_out():
    model = fitted()
    assert lb.plot.topic_history(model).get_xscale() == "linear"
    model.snapshots_.documents[-1] = 10**6
    assert lb.plot.topic_history(model).get_xscale() == "log"
    one = fitted(snapshots=1)
    lb.plot.topic_history(one).figure.draw_without_rendering()


def test_history_of_one_topic_follows_its_words():
    model = fitted(snapshots=20)
    other = plt.figure(figsize=(10, 4)).subplots()
    assert lb.plot.topic_history(model, topic=3, n_words=4, ax=other) is other
    columns = [0, 3, 6, 10, 13, 16, 19]
    words = model.snapshots_.words[columns, 3, :4]
    shown = [(t.get_position(), t.get_text()) for t in other.texts]
    expected = [((c, r), f"w{w}") for c, row in enumerate(words) for r, w in enumerate(row)]
    assert shown == expected
    lines = {(tuple(x.get_xdata()), tuple(x.get_ydata())) for x in other.lines}
    steps = {
        ((c, c + 1), (r, s))
        for c in range(6)
        for r in range(4)
        for s in range(4)
        if words[c, r] == words[c + 1, s]
    }
    assert lines == steps
    assert steps
    assert [t.get_text() for t in other.get_xticklabels()][:2] == ["500", "2k"]
    last = {t.get_text(): t.get_color() for t in other.texts[-4:]}
    assert len(set(last.values())) == 4
    for text in other.texts:
        assert text.get_color() == last.get(text.get_text(), FAINT)


def test_history_errors():
    with pytest.raises(ArgumentError) as error:
        lb.plot.topic_history(fitted(snapshots=0))
    assert str(error.value) == (
        "plot.topic_history got a model with no snapshots of its training.\n"
        "Expected at least one. Fit it again for longer, or with snapshots more often."
    )
    with pytest.raises(ArgumentError) as error:
        lb.plot.topic_history(fitted(), topic=9)
    assert str(error.value) == (
        "plot.topic_history got topic=9 of a model with 9 topics.\nExpected a number from 0 to 8."
    )
    with pytest.raises(ArgumentError) as error:
        lb.plot.topic_history(fitted(), topic=0, n_words=11)
    assert str(error.value) == (
        "plot.topic_history got n_words=11; snapshots keep 10 words of a topic.\n"
        "Expected a number from 1 to 10."
    )


# --- One document ---


def counts(seed=3, D=6):
    X = np.random.default_rng(seed).poisson(0.8, size=(D, V))
    X[0] = 0
    return X


@pytest.mark.parametrize("form", [csr_array, np.asarray])
def test_document_colours_words_by_topic(form):
    model, X = fitted(), counts()
    left, right = lb.plot.document(model, form(X), index=4, n_topics=3)
    beta = means(model.components_)
    theta = 0.1 + X[4] @ beta.T
    theta /= theta.sum()
    order = np.argsort(-theta)[:3]
    shares = [bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(shares, [*theta[order], 1 - theta[order].sum()], rtol=1e-6)
    labels = [label.get_text() for label in left.get_yticklabels()]
    tops = top_words(model.components_, 3)
    assert labels == [*(f"topic {k}\n{', '.join(WORDS[tops[k]])}" for k in order), "6 others"]
    assert left.get_title(loc="left") == f"document 4  ·  {X[4].sum()} words"
    colours = [to_hex(bar.get_facecolor()) for bar in left.patches]
    hue = dict(zip(order, colours, strict=False))
    written = [t for t in right.texts if not t.get_text().startswith("and ")]
    ranked = np.argsort(-X[4], kind="stable")[: np.count_nonzero(X[4])]
    assert len(written) == len(ranked)
    for text, word in zip(written, ranked, strict=True):
        times = f" ×{X[4, word]}" if X[4, word] > 1 else ""
        assert text.get_text() == f"w{word}{times}"
        best = np.argmax(theta * beta[:, word])
        assert to_hex(text.get_color()) == hue.get(best, colours[-1]).lower()
    sizes = [text.get_fontsize() for text in written]
    assert sizes == sorted(sizes, reverse=True)
    assert overlaps(boxes(right, written)) == []
    edge = right.get_window_extent().padded(2)
    assert all(box.x1 <= edge.x1 and box.y0 >= edge.y0 for box in boxes(right, written))


def test_document_of_many_words_is_cut(monkeypatch):
    monkeypatch.setattr("lowerbound.plot.of_topics.reading.WORDS", 10)
    _, right = lb.plot.document(fitted(), np.full((1, V), 2))
    assert [t.get_text() for t in right.texts][-1] == f"and {V - 10} more"
    assert len(right.texts) == 11


def test_document_without_words():
    _, right = lb.plot.document(fitted(2), counts(), index=0)
    assert [t.get_text() for t in right.texts] == ["no words: the proportions are the prior's"]


def test_document_reads_a_stream_up_to_it(monkeypatch):
    monkeypatch.setattr("lowerbound.plot.of_topics.reading.BATCH", 2)

    class Chunks:
        def __iter__(self):
            yield csr_array(counts(D=3)[1:])
            yield csr_array(counts(D=3)[1:])

    left, _ = lb.plot.document(fitted(), Chunks(), index=3)
    assert left.get_title(loc="left") == f"document 3  ·  {counts(D=3)[2].sum()} words"
    with pytest.raises(ArgumentError, match=re.escape("got index=4 of 4 documents.")):
        lb.plot.document(fitted(), Chunks(), index=4)


def test_document_errors():
    with pytest.raises(ArgumentError) as error:
        lb.plot.document(fitted(), counts()[1:], index=5)
    assert str(error.value) == (
        "plot.document got index=5 of 5 documents.\nExpected a number from 0 to 4."
    )
    with pytest.raises(ArgumentError) as error:
        lb.plot.document(fitted(), counts(), n_topics=7)
    assert str(error.value) == (
        "plot.document got n_topics=7.\n"
        "Expected a number from 1 to 6, as many as there are distinct colours."
    )


# --- Not fitted ---


@pytest.mark.parametrize("name", ["topics", "topic_map", "topic_history", "document"])
def test_pictures_want_a_fitted_model(name):
    draw = getattr(lb.plot, name)
    with pytest.raises(ArgumentError) as error:
        draw(SimpleNamespace(), *([counts()] if name == "document" else []))
    assert str(error.value) == (
        f"plot.{name} got a SimpleNamespace without `components_`.\n"
        "Expected a fitted topic model: call its fit first."
    )
