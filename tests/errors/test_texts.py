"""The full text of errors, and their fields; those of streams and corpora are tested there."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from lowerbound import errors
from lowerbound.errors.wording import counted, entry_of, first_line, listed, prior_or_fixed, quoted

TEXTS = [
    (
        errors.ShapeError.of_new_data("mu", "model.py:5", (4,), (3,)),
        "Site 'mu' has shape (3,) with the new data, and (4,) in the fit   (model.py:5).\n"
        "Expected sites that all rows share to be those of the fit. Where the model counts groups "
        "in its data, pass their number instead, or rows of all groups.",
    ),
    (
        errors.UncorrectableError("gibbs", "'w' enters 'y' through tanh", "Use 'nuts'."),
        "lb.correct(fit, 'gibbs') cannot be had: 'w' enters 'y' through tanh.\nUse 'nuts'.",
    ),
    (
        errors.NotAtOptimumError(0.52, "tau", 0.31),
        "The fit is not at an optimum, gradient norm 0.52: a Newton step would move 'tau' by 0.31 "
        "of its standard deviation.\nExpected a maximum of the ELBO, whose curvature linear "
        "response reads. Fit with more sweeps or steps, or a smaller tolerance; or use "
        "lb.correct(fit, 'nuts').",
    ),
    (
        errors.FlatDirectionError("'a', 'b'", -0.2),
        "The ELBO rises along 'a', 'b': its curvature there is -0.2, where q alone would have 1.\n"
        "Expected a maximum. Give what is not identified a prior, or fit again from other starts "
        "(restarts=10); or use lb.correct(fit, 'nuts').",
    ),
    (
        errors.FewWeightsError(3, 4000, 100),
        "Of 4,000 draws of q only 3 have a finite density under the model.\nExpected at least 100: "
        "q lies where the posterior does not. Use lb.correct(fit, 'nuts'), or another method of "
        "fitting.",
    ),
    (
        errors.NoDensityError(),
        "The corrected fit is made of draws, which have no density.\nExpected a question that "
        "draws can answer: moments, quantiles, sample(), icdf(). The fit that was corrected has a "
        'density, as lb.fit(..., until="fitted") gives it.',
    ),
    (
        errors.CorrectionWarning("psis", "k-hat is 0.9", "Use 'nuts'."),
        "lb.correct(fit, 'psis') is unreliable: k-hat is 0.9.\nUse 'nuts'.",
    ),
    (
        errors.SettingError("CAVI", "restarts", 0, "an integer of at least 1"),
        "CAVI got restarts=0.\nExpected an integer of at least 1.",
    ),
    (
        errors.SettingError("", "engine", "gpu", "one of 'native', 'xla'"),
        "engine='gpu'.\nExpected one of 'native', 'xla'.",
    ),
    (
        errors.SettingError("plot.document", "index", 7, "a number below 5", " of 5 documents"),
        "plot.document got index=7 of 5 documents.\nExpected a number below 5.",
    ),
    (
        errors.UnknownSiteError("condition got", "tau", ("mu", "sigma")),
        "condition got 'tau', which is no latent site of the model.\n"
        "Expected names among mu, sigma.",
    ),
    (
        errors.NotSpreadError("one factor of 'z' couples them", "Use devices=None."),
        "devices spreads the rows of the data, but one factor of 'z' couples them.\n"
        "Use devices=None.",
    ),
    (
        errors.ImproperFactorError(("mu", "tau")),
        "The optimal factor of 'mu', 'tau' is improper: the data and the prior leave a direction "
        "of it undetermined.\nExpected a proper posterior. Give 'mu', 'tau' a proper prior.",
    ),
    (
        errors.ImproperFactorError(("mu",), rounded=True),
        "In single precision the optimal factor of 'mu' has no finite integral.\nExpected a "
        'density. Compute in double precision, with lb.computing(precision="float64"); if that '
        "says so too, give 'mu' a proper prior.",
    ),
    (
        errors.ImpossibleDataError(("a", "b")),
        "The density of the data is zero, or no number, at every value of 'a', 'b'.\n"
        "Expected values at which the data are possible. Correct the data, or the zeros and "
        "bounds in the densities of the program.",
    ),
    (
        errors.NoFiniteBoundError(8),
        "The ELBO is finite at none of 8 starting points of the Gaussian.\nExpected a point where "
        "it is. Give one with lb.Over(..., lb.Gaussian(init={site: value, ...})).",
    ),
    (
        errors.InfiniteBoundError("-inf", 4, 2),
        "The ELBO is -inf in sweep 2, the best of 4 starts.\nExpected a finite bound. Try more "
        "starts, lb.CAVI(restarts=20), start elsewhere with lb.CAVI(init={site: value, ...}), or "
        "rescale the data to unit variance.",
    ),
    (
        errors.NoFiniteStartError(9, ["Site 'y' is to blame."], "gradient of the log density"),
        "The gradient of the log density is not finite at any of 9 starting points: the median of "
        "the prior, zero, and points around them.\n"
        "  Site 'y' is to blame.\n"
        "Expected a point where it is finite. Give one with lb.Gaussian(init={site: value, ...}), "
        "or correct the data or the prior of that site.",
    ),
    (
        errors.DiscreteSiteError("k", "Poisson", "model.py:3", "a bound.", "is unbounded"),
        "Site 'k' is discrete and is unbounded: Poisson   (model.py:3).\nExpected a bound.",
    ),
    (
        errors.UnsteadyProgramError(),
        "The program has another log density each time that it runs with the same data and the "
        "same values of its sites.\n"
        "Expected one that depends on these alone. Look for numbers that it draws or counts itself "
        "(np.random, a generator, a counter): draw them before, and pass them as data.",
    ),
    (
        errors.NoCoordinatesError("z", "ProjectedNormal", "model.py:3", "vectors of length 1"),
        "Site 'z' is ProjectedNormal, and NumPyro has no map from real numbers to its support, "
        "vectors of length 1   (model.py:3). Its samplers cannot run it either.\n"
        "Expected a support that numpyro.distributions.biject_to knows. For directions: "
        "numpyro.handlers.reparam(model, "
        "config={'z': numpyro.infer.reparam.ProjectedNormalReparam()}); else write the site as a "
        "function of real ones.",
    ),
    (
        errors.LongSumError("y", "model.py:9", 2, "'x', 'z'", 2, 4096, 29_541, 5e8),
        "Row 2 of site 'y' depends on 'x', 'z' in other rows   (model.py:9).\n"
        "If these are the 2 rows before, there are 4096 windows of states, and about 10^8 "
        "densities in the 29541 rows. Expected at most about 10^9 to sum over. Let the sites have "
        "fewer states, or sum over them by the forward algorithm (jax.lax.scan), and state the "
        "result by numpyro.factor.",
    ),
    (
        errors.NoDrawsError("y", "HalfT", "model.py:3"),
        "Site 'y' cannot be drawn: HalfT states a density and no draws   (model.py:3).\n"
        "Expected a distribution with a `sample` method, for what the data or a prior would give "
        "anew. Give it one; the posterior itself is fit.sample().",
    ),
    (
        errors.NoDrawsError("y", "HalfT", "model.py:3", "Please install it"),
        "Site 'y' cannot be drawn: HalfT states a density and no draws: Please install it   "
        "(model.py:3).\n"
        "Expected a distribution with a `sample` method, for what the data or a prior would give "
        "anew. Give it one; the posterior itself is fit.sample().",
    ),
    (
        errors.NoMarginalError("Site 'z' has 900 entries", "at most 100 entries"),
        "Site 'z' has 900 entries.\nExpected at most 100 entries. Use draws: fit.sample(1000).",
    ),
    (
        errors.NoMarginalError("Site 'z' has 900 entries", "at most 100 entries", ", or fit.sd"),
        "Site 'z' has 900 entries.\n"
        "Expected at most 100 entries. Use draws, fit.sample(1000), or fit.sd.",
    ),
    (
        errors.BlockError.together(["a", "b"], "log p is not quadratic in them together"),
        "No factor q for 'a', 'b': log p is not quadratic in them together.\n"
        "Leave them in separate blocks.",
    ),
    (
        errors.MissingPackageError("Plots need Matplotlib, which is not installed", "plot"),
        "Plots need Matplotlib, which is not installed.\n"
        'Install it: pip install "lowerbound[plot]".',
    ),
    (
        errors.LadderWarning("conditioned", "It took too long.", "coordinate ascent"),
        "The rung 'conditioned', which lb.explain names, was given up: It took too long. The fit "
        "is that of the rung 'coordinate ascent' instead; fit.plan says what it did.",
    ),
    (
        errors.ZeroVarianceError("x", 2, 1.5),
        "Column 2 of 'x' has zero variance: every entry is 1.5.\n"
        "Expected values that vary. Drop the column, or give its scale a fixed value.",
    ),
    (
        errors.ZeroVarianceError("y", None, 0.0),
        "Argument 'y' has zero variance: every entry is 0.\n"
        "Expected values that vary. Drop the column, or give its scale a fixed value.",
    ),
    (
        errors.TooManyComponentsError("K", 7, 5),
        "K = 7 components for 5 rows of data.\nExpected at most one component per row. Use K <= 5.",
    ),
    (
        errors.ReservedNameError("seed", "mixture"),
        "The model mixture has an argument 'seed', a name that fit keeps for itself.\n"
        "Fix it beforehand, functools.partial(model, seed=...), or rename the argument.",
    ),
    (
        errors.BlockError(["a", "b"], "three statistics", "model.py:9"),
        "No factor q for 'a', 'b': three statistics   (model.py:9).\n"
        "Rewrite the model so that each site has one conjugate role.",
    ),
    (
        errors.CertificateError(1.5, 2.5),
        "The derived form of log p(x, z) is 1.5 at a draw from the prior; NumPyro's log "
        "density is 2.5.\n"
        "Expected equality up to rounding. This is a fault of the derivation, not of the "
        "model: please report it with the model.",
    ),
    (
        errors.UncertifiedError(40, [], 38),
        "The derived form of log p(x, z) could not be checked: at 38 of 40 points the log density "
        "of the program itself is lost in rounding: it changes with the last digits of what "
        "it computes.\n"
        "Expected points where it can be computed, to compare it with NumPyro's own there. Look "
        "for a difference of nearly equal numbers. lb.fit(..., method=lb.Gaussian()) needs no "
        "derivation.",
    ),
    (
        errors.UncertifiedError(40, ["y"]),
        "The derived form of log p(x, z) could not be checked: the log density is not finite "
        "at any of 40 points, with the likeliest value of every discrete site at each. Where "
        "it was tried last, 'y' has density zero.\n"
        "Expected points of positive density, to compare it with NumPyro's own there. Check "
        "the data against the model: an impossible value, or a scale that underflows. "
        "lb.fit(..., method=lb.Gaussian(init={site: value, ...})) needs no derivation.",
    ),
    (
        errors.ZeroDensityError(0.125, 1024, ["Site 'y' has log density -inf at a draw of q."]),
        "The ELBO is not finite: the density is zero, or no number, at 12.5% of 1024 draws of "
        "q.\n"
        "  Site 'y' has log density -inf at a draw of q.\n"
        "Expected a density that is positive nearly everywhere that q reaches. Give the sites "
        "supports that leave out what is impossible (a truncated prior, bounds of a Uniform), "
        "write the program so that it is finite there, or use "
        "method=lb.Gaussian(init={site: value, ...}) to start well inside.",
    ),
    (
        errors.DecreasingBoundError(-1.0, -2.0, 3),
        "The ELBO fell from -1.0 to -2.0 nats in sweep 3.\n"
        "Expected a coordinate sweep never to lower it. This is a fault or a loss of "
        "precision: the fit is not reported as converged.",
    ),
    (
        errors.ConvergenceWarning("1000 sweeps"),
        "The fit stopped before it converged: 1000 sweeps.\nRaise the limit, or loosen tolerance.",
    ),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=lambda v: type(v).__name__)
def test_the_full_text(error, text):
    assert str(error) == text


def test_a_falling_bound_is_an_error_and_a_warning_with_one_text():
    values = (-1.0, -2.0, 3)
    assert str(errors.DecreasingBoundWarning(*values)) == str(errors.DecreasingBoundError(*values))


def _example(cls: type[Exception]) -> Exception:
    """An error with a value for each argument: its name, or a number of the type it wants."""
    if not inspect.isfunction(cls.__init__):  # plain text
        return cls("some text")
    values = []
    for name, parameter in list(inspect.signature(cls).parameters.items()):
        kind = str(parameter.annotation)
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            continue
        if "Sequence" in kind or "tuple" in kind:
            values.append(() if "Residual" in kind else (1,) if "int" in kind else ("a", "b"))
        elif "Mapping" in kind:
            values.append({name: "model.py:1"})
        else:
            values.append(3 if "int" in kind or "float" in kind else name)
    return cls(*values)


CLASSES = [getattr(errors, name) for name in sorted(set(errors.__all__) - {"Residual"})]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_comes_back_from_another_process(cls):
    error = cls() if cls is errors.NativeKernelWarning else _example(cls)
    for sent in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(sent) is cls
        assert str(sent) == str(error) != ""
        assert vars(sent) == vars(error)


def test_what_an_error_was_made_of_are_its_fields():
    error = errors.SettingError("CAVI", "restarts", 0, expected="an integer of at least 1")
    assert vars(error) == {
        "caller": "CAVI",
        "setting": "restarts",
        "value": 0,
        "expected": "an integer of at least 1",
        "context": "",
    }
    assert errors.ParameterSiteError({"rate": "model.py:2"}).names == ("rate",)
    assert errors.NotConjugateError([]).remedy == errors.NotConjugateError.remedy
    assert vars(errors.ArgumentError("some text")) == {}


def test_a_case_of_an_error_is_of_its_class_and_has_fields_too():
    error = errors.StreamError.used_up("generator")
    assert type(error) is errors.StreamError
    assert vars(error) == {"kind": "generator", "argument": None}
    assert str(error).startswith(
        "The source is a generator, which can be read only once.\nExpected"
    )
    sent = pickle.loads(pickle.dumps(error))
    assert (type(sent), str(sent), vars(sent)) == (type(error), str(error), vars(error))
    for cls, files in (
        (errors.StreamError, "Parquet"),
        (errors.CorpusFileError, ".npz or .parquet"),
    ):
        found = cls.no_file("rows")
        assert type(found) is cls
        assert str(found) == (
            f"There is no file or folder rows.\n"
            f"Expected a {files} file, or a folder of them. Check the path."
        )


def test_an_error_given_by_names_comes_back_too():
    error = errors.CertificateError(derived=1.0, expected=2.0, site="y")
    sent = pickle.loads(pickle.dumps(error))
    assert (sent.derived, sent.expected, sent.site) == (1.0, 2.0, "y")
    assert str(sent) == str(error)


def test_wording():
    assert (quoted(["a", "b"]), quoted([])) == ("'a', 'b'", "none")
    assert (counted(1, "row", "rows"), counted(2, "row", "rows")) == ("1 row", "2 rows")
    assert (entry_of("x", (2, 0)), entry_of("x", ())) == ("x[2, 0]", "x")
    assert listed("abcdef") == "'a', 'b', 'c', 'd', 'e', ..."
    assert first_line(ValueError(" one.\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
    assert prior_or_fixed(["a", "b"]) == (
        "Give each a prior with numpyro.sample, or fix each: "
        "numpyro.handlers.substitute(model, data={'a': value, 'b': value})."
    )
    assert prior_or_fixed(["a"], "'a'").startswith(
        "Give 'a' a prior with numpyro.sample, or fix it"
    )
