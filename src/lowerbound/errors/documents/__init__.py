"""What went wrong with documents of words: the counts, their vocabulary, the files they are in."""
