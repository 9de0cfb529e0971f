import inspect

import numpy as np
import pytest

from lowerbound import data


def test_paper_mixture_has_the_shapes_of_the_simulation() -> None:
    mixture = data.paper_mixture()
    assert mixture["x"].shape == (1000, 2)
    assert mixture["labels"].shape == (1000,)
    assert mixture["weights"].shape == (5,)
    assert mixture["means"].shape == (5, 2)
    assert mixture["covariances"].shape == (5, 2, 2)
    assert mixture["x"].dtype == np.float64
    assert set(mixture["labels"]) == set(range(5))


def test_paper_mixture_is_a_function_of_its_seed() -> None:
    first, again, other = (data.paper_mixture(seed=s)["x"] for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("seed", range(10))
def test_paper_mixture_is_separated(seed: int) -> None:
    mixture = data.paper_mixture(seed=seed)
    log_density = np.stack(
        [
            np.log(weight)
            - 0.5 * np.linalg.slogdet(covariance)[1]
            - 0.5 * np.einsum("ni,ij,nj->n", r, np.linalg.inv(covariance), r)
            for weight, mean, covariance in zip(
                mixture["weights"], mixture["means"], mixture["covariances"], strict=True
            )
            for r in [mixture["x"] - mean]
        ],
        axis=1,
    )
    accuracy = np.mean(log_density.argmax(1) == mixture["labels"])
    assert accuracy > 0.95  # the seeds are fixed, so this cannot fail by chance


@pytest.mark.parametrize("seed", range(5))
def test_paper_mixture_draws_from_the_components_it_reports(seed: int) -> None:
    mixture = data.paper_mixture(seed=seed, n=100_000)
    for k in range(5):
        rows = mixture["x"][mixture["labels"] == k]
        covariance = mixture["covariances"][k]
        # Whitened, the sample mean has sd 1/sqrt(rows) per axis: six of them never happen.
        whitened = np.linalg.solve(np.linalg.cholesky(covariance), (rows - mixture["means"][k]).T)
        assert np.all(np.abs(whitened.mean(1)) < 6 / np.sqrt(len(rows)))
        np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=0.05)


def test_paper_mixture_needs_a_point_per_component() -> None:
    with pytest.raises(ValueError, match=r"paper_mixture got n=4.\nExpected at least 5."):
        data.paper_mixture(n=4)


def test_eight_schools() -> None:
    schools = data.eight_schools()
    np.testing.assert_array_equal(schools["y"], [28, 8, -3, 7, -1, 1, 18, 12])
    np.testing.assert_array_equal(schools["sigma"], [15, 10, 16, 11, 9, 11, 10, 18])


def test_kidiq() -> None:
    kids = data.kidiq()
    assert {name: column.shape for name, column in kids.items()} == {
        "kid_score": (434,),
        "mom_hs": (434,),
        "mom_iq": (434,),
    }
    assert set(kids["mom_hs"]) == {0.0, 1.0}
    assert (kids["kid_score"].min(), kids["kid_score"].max()) == (20.0, 144.0)
    assert np.isfinite(kids["mom_iq"]).all()


def test_debian_descriptions_are_counts_of_words() -> None:
    counts, words = data.debian_descriptions()
    assert counts.format == "csr"
    assert counts.dtype == np.int32
    assert counts.shape == (3000, len(words)) == (3000, 2834)
    assert counts.has_canonical_format
    assert counts.data.min() >= 1
    assert np.diff(counts.indptr).min() >= 4  # no document is empty
    assert ((counts > 0).sum(axis=0) >= 5).all()


def test_the_words_of_debian_descriptions_are_distinct_and_sorted() -> None:
    words = data.debian_descriptions().words
    assert words.dtype == object
    assert words.tolist() == sorted(set(words))
    assert all(word.isascii() and word.islower() and len(word) >= 3 for word in words)


def test_debian_descriptions_have_the_words_at_their_columns() -> None:
    counts, words = data.debian_descriptions()
    held = [set(words[row.indices]) for row in counts]
    # The columns belong to the words: packages of these languages name little else in common.
    assert sum({"rust", "cargo"} <= row for row in held) > 50
    assert sum({"rust", "haskell"} <= row for row in held) < 5


def test_the_file_of_debian_descriptions_is_one_that_scipy_reads() -> None:
    from importlib.resources import as_file, files

    from scipy.sparse import load_npz

    with as_file(files("lowerbound.data") / "debian_descriptions.npz") as path:
        stored = load_npz(path)
    assert (stored != data.debian_descriptions().counts).nnz == 0


def test_every_loader_is_documented() -> None:
    for name in data.__all__:
        assert inspect.getdoc(getattr(data, name))
