"""Figure 7 (fig:nyt): topics of real text by stochastic variational inference (alg:svi).

The text is that of descriptions of 3,000 Debian packages, which come with the library; the paper's
newspaper is not free. What one sees: each panel is a topic by its leading words, and most can be
named at a glance. A word may lead several topics (files, data), as topics are distributions over
words and not groups of them.
"""

import argparse
from pathlib import Path

import matplotlib

import lowerbound as lb
from lowerbound.data import debian_descriptions
from lowerbound.estimators import Inference, LatentDirichletAllocation

matplotlib.use("agg")
import matplotlib.pyplot as plt


def main(K=15, passes=40, output="output/paper"):
    """Fit, judge on documents held out, draw; returns the estimator."""
    counts, words = debian_descriptions()
    train, test = counts[:2800], counts[2800:]
    inference = Inference("svi", batch_size=256, max_passes=passes)
    lda = LatentDirichletAllocation(K, inference=inference, vocabulary=words).fit(train)
    print(f"{K} topics of {train.shape[0]:,} descriptions: {lda.reason_}")
    print(f"held out: {lda.score(test):.3f} nats per word")
    for number, topic in enumerate(lda.topics(8)):
        print(f"{number:>3}  {' '.join(topic)}")
    path = Path(output) / "topics.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = lb.plot.topics(lda)
    figure = axes.flat[0].figure
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"Wrote {path}")
    return lda


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=40, help="over the corpus, at most")
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))
