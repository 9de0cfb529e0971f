"""One file of arrays and JSON: the round trip is exact, and no file can do harm."""

import dataclasses
import hashlib
import io
import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError, LowerboundError, StorageError
from tests.laws.compilations import counted
from tests.models import (
    test_ard_regression,
    test_lda,
    test_missing_data,
    test_poisson_factorisation,
    test_probit_regression,
    test_wishart_mixture,
)

CASES = [
    test_ard_regression.CASE,  # Normal-Gamma with full covariance
    test_lda.PADDED,  # elements left out by a mask
    test_probit_regression.CASE,  # bounds of truncated normals
    test_wishart_mixture.CASE,
    pytest.param(test_missing_data.CASE, marks=pytest.mark.slow),
    pytest.param(test_poisson_factorisation.CASE, marks=pytest.mark.slow),  # multinomial totals
]


def mixture(x, K, spread, label="data"):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, spread))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate(label, len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)


X = np.concatenate([np.linspace(-3, -2, 11), np.linspace(2, 3, 9)])
NEW = np.array([-2.5, 0.0, 2.5])
SPREAD = np.array([3.0, 4.0])


@pytest.fixture(scope="module")
def fit():
    return lb.fit(mixture, X, K=2, spread=SPREAD, method=lb.CAVI(restarts=2), seed=3)


@pytest.fixture
def path(fit, tmp_path):
    fit.save(tmp_path / "run.lb")
    return tmp_path / "run.lb"


@pytest.fixture
def loaded(path):
    return lb.load(path, mixture)


def assert_equal(a, b):
    assert type(a) is type(b)
    leaves = jax.tree.leaves(a), jax.tree.leaves(b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(*leaves, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


# --- The round trip ---


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_round_trip_is_bit_identical(case, tmp_path):
    args, kwargs = case.arguments(0)
    fit = lb.fit(case.model, *args, **kwargs, method=lb.CAVI(max_sweeps=3, tolerance=0.0))
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", case.model)
    assert_equal(fit.q.parameters, again.q.parameters)
    assert again.q.family == fit.q.family
    assert again.elbo_terms == fit.elbo_terms


def test_posterior_and_draws_are_bit_identical(fit, loaded):
    sample = fit.sample(5, seed=1)
    with counted() as compilations:
        again = loaded.sample(5, seed=1)
    assert not compilations  # what equal factors need is compiled once
    assert_equal({name: sample[name] for name in fit.sites}, again)
    for site in fit.sites:
        assert_equal(fit.mean(site), loaded.mean(site))
        assert_equal(fit.sd(site), loaded.sd(site))
        assert_equal(fit.posterior[site], loaded.posterior[site])


def test_the_record_of_the_run_is_kept(fit, loaded):
    same = ("elbo", "restarts", "converged", "stop_reason", "plan", "method", "seed")
    for name in (*same, "versions", "precision", "notes", "elbo_terms"):
        assert getattr(loaded, name) == getattr(fit, name), name
    assert loaded.answer.blocks == fit.answer.blocks
    for field in dataclasses.fields(fit.history):
        assert_equal(getattr(loaded.history, field.name), getattr(fit.history, field.name))
    assert repr(loaded) == repr(fit)
    assert str(loaded.plan) == str(fit.plan)
    assert sum(loaded.elbo_terms.values()) == pytest.approx(loaded.elbo, rel=1e-9)
    assert loaded.call.args is None
    assert list(loaded.summary().index) == ["pi[0]", "pi[1]", "mu[0]", "mu[1]"]


def test_new_data_go_through_the_model(fit, loaded):
    """K and the prior vector `spread` come from the file."""
    np.testing.assert_array_equal(loaded.log_predictive(NEW), fit.log_predictive(NEW))
    np.testing.assert_array_equal(loaded.local(NEW)["c"].probs, fit.local(NEW)["c"].probs)
    assert_equal(loaded.predictive(NEW, draws=7), fit.predictive(NEW, draws=7))
    np.testing.assert_array_equal(loaded.saved.kept["spread"], SPREAD)
    assert loaded.saved.kept["K"] == 2
    assert loaded.saved.rows == ("x",)


def test_a_loaded_fit_can_be_saved_again(fit, loaded, tmp_path):
    loaded.save(tmp_path / "again.lb")
    again = lb.load(tmp_path / "again.lb", mixture)
    assert_equal(fit.q.parameters, again.q.parameters)
    np.testing.assert_array_equal(again.log_predictive(NEW), fit.log_predictive(NEW))


def test_what_needs_the_old_data_says_so(loaded):
    data = re.escape("Pass new data here, or the old data to lb.load(path, model, ...)")
    assert "gap" not in loaded.sample(3)
    with pytest.raises(ArgumentError, match="'gap' is no latent site.*\n" + data):
        loaded.mean("gap")
    for method in (loaded.predictive, loaded.log_predictive, loaded.local):
        with pytest.raises(ArgumentError, match="need the data of the fit \\(x\\).*\n" + data):
            method()


def test_the_old_data_can_be_given_back(fit, path):
    loaded = lb.load(path, mixture, X, K=2, spread=SPREAD)
    assert_equal(loaded.sample(4), fit.sample(4))
    assert_equal(loaded.predictive(draws=4), fit.predictive(draws=4))
    assert_equal(loaded.log_predictive(), fit.log_predictive())
    with pytest.raises(StorageError, match=r"'c' has shape \(19,\) in the model, \(20,\) in the"):
        lb.load(path, mixture, X[1:], K=2, spread=SPREAD)


def test_arguments_of_all_kinds(tmp_path):
    """Arrays keep their kind, and what is no array and no JSON has to be given again."""

    def coin(y, prior, link):
        p = numpyro.sample("p", dist.Beta(prior["a"], link(prior["b"][1])))
        with numpyro.plate("tosses", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    prior = {"a": np.float64(2.0), "b": (None, jnp.asarray(3), [float("inf"), True])}
    fit = lb.fit(coin, np.array([1, 0, 1]), prior=prior, link=abs)
    fit.save(tmp_path / "run.lb")
    loaded = lb.load(tmp_path / "run.lb", coin)
    assert_equal(loaded.saved.kept["prior"], prior)
    assert isinstance(loaded.saved.kept["prior"]["b"][1], jax.Array)
    assert loaded.saved.unsaved == ("link",)
    new = np.array([1, 1])
    with pytest.raises(ArgumentError, match="Argument 'link' of the model is not in the file"):
        loaded.log_predictive(new)
    expected = fit.log_predictive(new)
    np.testing.assert_array_equal(loaded.log_predictive(new, link=abs), expected)


# --- Another model ---


def test_another_function_is_refused(path):
    def regression(x, y):
        pass

    with pytest.raises(
        StorageError,
        match=r"holds a fit of mixture\(x, K, spread, label\); found the model regression\(x, y\)",
    ):
        lb.load(path, regression)


def test_other_sites_are_refused_at_first_use(path):
    source = mixture

    def fewer(x, K, spread, label="data"):
        numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
        with numpyro.plate(label, len(x)):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x)

    fewer.__name__ = source.__name__
    loaded = lb.load(path, fewer)
    for method in (loaded.predictive, loaded.log_predictive, loaded.local):
        with pytest.raises(StorageError, match="no latent site 'mu'; its sites are pi, x"):
            method(NEW)


def test_other_shapes_are_refused_at_first_use(loaded):
    with pytest.raises(StorageError, match=r"'pi' has shape \(3,\) in the model, \(2,\)"):
        loaded.predictive(NEW, K=3, spread=4.0)


# --- Files ---


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, content, version=1, compression=zipfile.ZIP_STORED):
    """A file with these members and with checksums that agree."""
    document = json.loads(content["fit.json"])
    document["arrays"] = {
        name: hashlib.sha256(data).hexdigest() for name, data in content.items() if "npy" in name
    }
    text = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        digest = hashlib.sha256(text).hexdigest()
        archive.comment = f"lowerbound fit; format {version}; sha256 {digest}".encode()
        for name, data in {**content, "fit.json": text}.items():
            archive.writestr(name, data)


def test_the_file_is_arrays_and_json(path):
    content = members(path)
    assert all(name == "fit.json" or name.endswith(".npy") for name in content)
    document = json.loads(content["fit.json"])
    assert document["model"] == {
        "dict": {"name": "mixture", "arguments": ["x", "K", "spread", "label"]}
    }
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "biuf" for name in arrays if name != "fit.json")


def test_a_rewritten_file_loads(path):
    """So that the refusals below are for what they change."""
    rewrite(path, members(path))
    lb.load(path, mixture)


class Exploit:
    def __reduce__(self):
        return (os.system, ("echo ran; exit 1",))


def refused(path, text):
    with pytest.raises(StorageError, match=text) as caught:
        lb.load(path, mixture)
    assert isinstance(caught.value, LowerboundError)


@pytest.mark.parametrize("version", [0, 2, 31])
def test_files_of_other_versions(path, version):
    rewrite(path, members(path), version)
    refused(path, rf"has format {version}; .* reads format 1.\nUpdate lowerbound")


@pytest.mark.parametrize(
    "name", ["../evil.npy", "/etc/evil.npy", "arrays/../../x.npy", "evil.py", "arrays\\..\\x.npy"]
)
def test_members_that_no_fit_has(path, name, tmp_path):
    rewrite(path, {**members(path), name: b"0"})
    refused(path, "that no fit has")
    assert [p.name for p in tmp_path.rglob("*")] == ["run.lb"]


@pytest.mark.parametrize(
    "array", [np.array([Exploit()], dtype=object), np.array([(1,)], dtype=[("f", object)])]
)
def test_pickled_arrays(path, array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    rewrite(path, {**members(path), "arrays/0.npy": buffer.getvalue()})
    refused(path, "values, which no fit has")


def test_a_bare_pickle(path):
    rewrite(path, {**members(path), "arrays/0.npy": pickle.dumps(Exploit())})
    refused(path, "damaged or is no fit")
    path.write_bytes(pickle.dumps(Exploit()))
    refused(path, "damaged or is no fit")


def test_an_array_that_claims_to_be_huge(path):
    content = members(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**14,)}
    )
    rewrite(path, {**content, "arrays/0.npy": header.getvalue() + b"12345678"})
    refused(path, "has 8 bytes for shape")


def test_compressed_members(path):
    rewrite(path, members(path), compression=zipfile.ZIP_DEFLATED)
    refused(path, "compressed or encrypted")


def test_a_deep_json(path):
    depth = 100_000
    text = b"[" * depth + b"]" * depth
    with zipfile.ZipFile(path, "w") as archive:
        digest = hashlib.sha256(text).hexdigest()
        archive.comment = f"lowerbound fit; format 1; sha256 {digest}".encode()
        archive.writestr("fit.json", text)
    refused(path, "damaged or is no fit")


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files(path, kept):
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    refused(path, "damaged or is no fit")


def test_changed_bytes(path):
    """A changed byte is found, wherever it is, or changes nothing that is read."""
    data = path.read_bytes()
    random = np.random.default_rng(0)
    expected = lb.load(path, mixture).q.parameters
    for place in random.integers(len(data), size=60):
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            loaded = lb.load(path, mixture)
        except StorageError:
            continue
        assert_equal(loaded.q.parameters, expected)


def test_edited_text(path):
    content = members(path)
    content["fit.json"] = content["fit.json"].replace(b'"converged": true', b'"converged": false')
    with zipfile.ZipFile(path) as archive:
        comment = archive.comment
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = comment
        for name, data in content.items():
            archive.writestr(name, data)
    refused(path, "fit.json was changed")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind": "categorical"', b'"kind": "surprise"'),
        (b'"precision": "float64"', b'"precision": "float16"'),
        (b'"restarts": [', b'"restarts": [3, '),
        (b'"naturals": [', b'"naturals": [{"dict": {}}, '),
        (b'"dim": 2', b'"dim": 3'),
        (b'"seed": 3', b'"need": 3'),
        (b'"arrays/1.npy", "as"', b'"arrays/99.npy", "as"'),
    ],
)
def test_records_that_do_not_fit_together(path, old, new):
    content = members(path)
    text = json.dumps(json.loads(content["fit.json"])).encode()
    assert old in text
    rewrite(path, {**content, "fit.json": text.replace(old, new)})
    refused(path, "damaged or is no fit")


def test_other_files(path, tmp_path):
    refused(tmp_path / "absent.lb", "There is no file .*absent.lb.\nExpected a file that fit.save")
    refused(tmp_path, "Cannot read")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fit.json", b"{}")
    refused(path, "is no fit of lowerbound: it does not end with the mark of one")


# --- Writing ---


def test_folders_that_cannot_be_written(fit, tmp_path):
    advice = "\nExpected the name of a file in an existing folder that you may write to"
    with pytest.raises(StorageError, match="Cannot write .*No such file.*" + advice):
        fit.save(tmp_path / "absent" / "run.lb")
    with pytest.raises(StorageError, match="Cannot write .*directory.*" + advice):
        fit.save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"Cannot write .*Not a directory"):
        fit.save(tmp_path / "file" / "run.lb")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_without_permission(fit, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(StorageError, match=r"Cannot write .*Permission denied"):
        fit.save(folder / "run.lb")


def test_a_failed_write_leaves_the_old_file(fit, path, monkeypatch):
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(StorageError, match=r"Cannot write .*No space left on device"):
                fit.save(path)
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == ["run.lb"]


def test_saving_over_a_file_replaces_it(fit, path):
    Path(path).write_text("old")
    fit.save(str(path))
    assert lb.load(str(path), mixture).elbo == fit.elbo


def test_a_fit_with_maximised_parameters(tmp_path):
    def shrunk(y):
        spread = numpyro.param("spread", 1.0, constraint=dist.constraints.positive)
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal(0.0, spread))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    before = lb.fit(shrunk, X)
    before.save(tmp_path / "run.lb")
    for after in (lb.load(tmp_path / "run.lb", shrunk), lb.load(tmp_path / "run.lb", shrunk, X)):
        assert after.parameters == before.parameters
        assert after.elbo_terms == before.elbo_terms
        np.testing.assert_array_equal(after.mean("z"), before.mean("z"))
        np.testing.assert_array_equal(after.local(NEW)["z"].loc, before.local(NEW)["z"].loc)
