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
    with pytest.raises(ValueError, match=r"paper_mixture: n must be at least 5; got n=4"):
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


def test_every_loader_is_documented() -> None:
    for name in data.__all__:
        assert inspect.getdoc(getattr(data, name))
