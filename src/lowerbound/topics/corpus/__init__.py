"""What a corpus may be: counts, token lists, bags of words, files and streams.

In: whatever a user has. Out: a `Corpus` of checked `Documents`, in memory or read anew in every
pass, or an error that names the document and the word.
"""

from lowerbound.topics.corpus.opening import Corpus, open_corpus

__all__ = ["Corpus", "open_corpus"]
