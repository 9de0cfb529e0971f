"""Laws that are asked more than once: what of them `make test` asks, the rest being slow.

Every law stays in the fast part, with the programs that differ most in what they go through; what
repeats it at length is for `make test-slow`. The laws of the zoo have a table of their own
(tests/models/zoo.py), and so have the methods (tests/methods/table.py).
"""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.long_tests import LONG

# Other ways to write these are asked for their terms alone.
HIERARCHIES = (
    "noncentred", "by_loop", "slopes_noncentred", "logistic", "overdispersed",
    "negative_binomial", "ordinal", "gamma", "censored", "autoregressive", "chain_by_factor",
    "two_lags", "area_by_matrix", "field_by_matrix", "members_by_gather", "spread_by_rows",
    "frailty", "contrasts", "softmax", "location_and_scale", "items", "zeros",
)  # fmt: skip

# File -> test -> the cases that stay.
KEPT: dict[str, dict[str, tuple[str, ...]]] = {
    "tests/result/test_row_integrals.py": {
        "test_the_density_of_a_row_is_no_bound": ("multiplied",),
    },
    "tests/programs/test_structural_series.py": {
        "test_every_way_has_the_density_of_the_scales": (
            "loop",
            "innovations",
            "matrix",
        ),
    },
    "tests/programs/test_levels.py": {
        "test_all_ways_have_one_density_of_the_scales": (
            "by_loop",
            "by_plain_scan",
            "by_sums_backwards",
            "by_slices",
            "by_first_and_increments",
            "by_increments",
        ),
        "test_levels_take_the_places_of_increments": (
            "by_scan_of_increments",
            "by_first_and_increments",
            "by_standard_increments",
        ),
    },
    "tests/programs/test_spare_entries.py": {
        "test_masked_entries_that_nothing_reads_change_nothing": ("padded",),
    },
    "tests/programs/test_tied_counts.py": {
        "test_the_posterior_is_that_of_a_sum_of_two": ("by_remainder",),
        "test_a_file_holds_how_far_they_were_summed": ("by_remainder",),
    },
    "tests/methods/hierarchy/test_predictors.py": {
        "test_slopes_by_theta_are_those_of_the_bound": HIERARCHIES,
        "test_what_is_integrated": HIERARCHIES,
    },
    "tests/methods/hierarchy/test_between.py": {
        "test_weights_of_draws_are_even": ("nested-True",),
    },
    "tests/model/test_chain.py": {
        "test_every_term_has_its_own_reach": ("rarely",),
        "test_the_sum_is_that_over_all_paths": ("rarely", "two_before"),
        "test_a_longer_reach_gives_the_same_weights": ("rarely", "two_before", "begin_apart"),
    },
    "tests/methods/hierarchy/test_funnels.py": {
        "test_evidence_and_moments_are_those_of_brute_force": ("log_normal",),
    },
    "tests/result/test_exchange.py": {
        "test_ratios_of_the_densities_are_those_of_importance_sampling": ("mixture",),
    },
    "tests/family/test_gaussian.py": {
        "test_truncated_normal_is_exact_in_the_tails": ("float64-1e-10",),
    },
    "tests/cost/test_memory.py": {
        "test_parts_give_what_one_map_gives": ("7",),
        "test_steps_over_draws_in_parts_are_those_over_all": ("2",),
    },
    "tests/family/test_conditioned.py": {
        "test_draws_agree_with_moments_and_keep_the_dependence": (
            "1",
            "2",
        ),
        "test_marginals_of_the_scalars_are_those_of_the_joint_normal": (
            "1",
            "2",
        ),
    },
    "tests/family/test_free.py": {
        "test_default_is_proper": (
            "3 statistics on 0 to inf",
            "3 statistics on -inf to inf",
            "1 statistics on 1 to 5",
        ),
        "test_supports_and_draws_inside_them": (
            "bounds0-GreaterThan",
            "bounds2-OpenInterval",
        ),
        "test_gradient_of_log_normalizer_is_the_mean": ("float64-1e-09",),
    },
    "tests/family/test_precision.py": {
        "test_gamma_is_finite_over_twenty_orders_of_magnitude": (
            "float64--8--2.0",
            "float32--6--1.0",
        ),
    },
    "tests/family/test_special.py": {
        "test_gamma_shape_inverts_the_gap": (
            "1",
            "7",
        ),
    },
    "tests/joint/test_coupling.py": {
        "test_the_energy_is_the_expectation_over_assignments": (
            "pairs by data",
            "chain",
        ),
    },
    "tests/joint/test_end_to_end.py": {
        "test_a_loop_over_rows_is_the_plate_of_them": ("5",),
        "test_the_elbo_rises": (
            "swapped normal-gamma",
            "markov chain",
            "stacked",
        ),
    },
    "tests/ladder/test_ladder.py": {
        "test_grids_and_gaussians_are_saved": ("Gaussian()",),
    },
    "tests/laws/test_families.py": {
        "test_exact_laws": (
            "float64-Normal",
            "float64-MultivariateNormal",
            "float64-TruncatedNormal",
            "float64-Gamma-power=1.0",
            "float64-Gamma-power=-1.0",
            "float64-Beta",
            "float64-Dirichlet",
            "float64-Categorical",
            "float64-Wishart",
            "float64-Wishart-inverse=True",
            "float64-NormalGamma-power=1.0",
            "float64-NormalGamma-event_shape=(3,)-power=-1.0-full=True",
            "float64-NormalWishart",
            "float64-Multinomial",
            "float64-Poisson",
            "float64-Geometric",
            "float64-Free",
            "float32-MultivariateNormal",
            "float32-Gamma-power=-1.0",
            "float32-Dirichlet",
            "float32-Categorical",
            "float32-Wishart-inverse=True",
            "float32-NormalGamma-event_shape=(2,2)-power=-2.0",
            "float32-NormalWishart",
            "float32-Multinomial",
            "float32-Poisson",
            "float32-Geometric",
        ),
    },
    "tests/laws/test_finite_bounds.py": {
        "test_every_fit_has_a_finite_bound": (
            "clipped_power-auto",
            "half_plane-auto",
            "ordered-Gaussian()",
            "ball-Gaussian(rank='diagonal')",
            "bounds-auto",
            "logarithm-auto",
            "logarithm-Gaussian(rank='diagonal')",
        ),
    },
    "tests/laws/test_invariances.py": {
        "test_labels_of_components": (
            "univariate_mixture",
            "poisson_mixture",
        ),
        "test_translation_and_scaling": ("0.02--4.0",),
        "test_order_of_rows": (
            "normal_normal",
            "smoother",
            "probit_regression",
            "wishart_mixture",
            "missing_data",
            "lda_padded",
            "poisson_factorisation",
            "blockmodel",
        ),
    },
    "tests/laws/test_planted_faults.py": {
        "test_planted_fault_turns_a_law_red": (
            "wrong_plate_scale-tempered",
            "dropped_jacobian-deviation",
            "dropped_constant-unknown_mean_precision",
            "wrong_sign-gamma_poisson",
            "swapped_axes-poisson_mixture",
            "square_of_the_mean-unknown_mean_precision",
            "stale_local_step-factorial_mixture",
            "forgotten_entropy-unknown_mean_precision",
        ),
    },
    "tests/laws/test_planted_minibatch_faults.py": {
        "test_a_planted_fault_turns_its_law_red": (
            "stale_local_step-test_a_full_batch_with_step_one_is_a_sweep",
            "dropped_coefficient-test_expected_statistics_are_all_that_global_factors_see",
            "ignored_weights-test_rows_of_weight_zero_do_not_count",
        ),
    },
    "tests/methods/coordinate/test_augment.py": {
        "test_counts_with_logits": ("negative binomial",),
    },
    "tests/compiled/test_tracing.py": {
        "test_arrays_that_a_program_closes_over_are_left_as_they_were": ("sweeps",),
    },
    "tests/estimators/test_experts.py": {
        "test_planted_pieces_are_found": ("2",),
    },
    "tests/estimators/test_networks.py": {
        "test_the_bound_is_the_evidence_of_one_block_and_below_that_of_two": ("True",),
        "test_planted_blocks_are_found": (
            "0.5-0.1-False-0",
            "0.1-0.5-False-1",
            "0.5-0.15-True-2",
        ),
        "test_planted_memberships_are_found": ("3",),
    },
    "tests/methods/coordinate/test_augment_behind.py": {
        "test_predictions_are_those_of_the_original_program": ("probit",),
    },
    "tests/methods/coordinate/test_em.py": {
        "test_the_elbo_never_falls": ("mixture",),
        "test_with_the_parameters_fixed_coordinate_ascent_finds_the_same_q": (
            "many means",
            "mixture",
        ),
        "test_at_the_end_the_elbo_is_stationary_in_the_parameters": ("regression",),
    },
    "tests/methods/coordinate/test_hard_zeros.py": {
        "test_an_excluded_value_has_no_weight": (
            "by_probs",
            "by_logits",
            "by_branch",
            "by_data",
            "by_factor",
        ),
        "test_zero_inflated_counts": (
            "inflated_where",
            "inflated_binomial",
        ),
    },
    "tests/methods/coordinate/test_message_passing.py": {
        "test_the_natural_parameter_is_the_sum_of_the_messages": ("Poisson",),
    },
    "tests/methods/coordinate/test_quadrature.py": {
        "test_the_optimum_is_the_best_gaussian": (
            "negative binomial",
            "log scale",
        ),
        "test_with_one_latent_the_bound_is_the_evidence": ("HalfCauchy",),
        "test_single_precision_finds_the_same_gaussian": ("logistic",),
    },
    "tests/methods/coordinate/test_restarts.py": {
        "test_two_clusters_of_five_points_are_found": ("as_a_vector",),
    },
    "tests/methods/gaussian/test_blackbox_supports.py": {
        "test_marginals_agree_with_moments": (
            "tau",
            "p",
            "w",
            "c",
        ),
    },
    "tests/methods/gaussian/test_wide.py": {
        "test_a_sparse_gaussian_posterior_is_found_exactly": ("chain",),
        "test_the_second_derivatives_are_read_off_few_directions": (
            "chain-args1-1-1",
            "logistic-args2-2-0",
        ),
    },
    "tests/methods/gaussian/test_wide_coordinates.py": {
        "test_noisy_steps_end_at_the_mean_of_an_ill_conditioned_posterior": ("diagonal",),
        "test_the_coordinates_of_many_units_are_those_of_the_larger_elbo": ("60-False",),
    },
    "tests/methods/grid/test_conditioning.py": {
        "test_the_elbo_is_never_below_mean_field": (
            "semi_conjugate-data0-condition0",
            "precisions-data2-condition2",
        ),
    },
    "tests/methods/partial/test_hybrid.py": {
        "test_the_elbo_of_fixed_draws_never_falls": (
            "decay-args1-sites1-full",
            "topics-args2-sites2-diagonal",
        ),
    },
    "tests/methods/score/test_score.py": {
        "test_the_fit_is_the_best_product_of_factors": ("False",),
    },
    "tests/methods/stochastic/test_checkpoint_svi.py": {
        "test_resumed_runs_equal_uninterrupted_ones": (
            "mixture-memoized-5-20",
            "regression-plain-3-11",
        ),
        "test_runs_that_stop_by_themselves": ("memoized",),
    },
    "tests/methods/stochastic/test_memoized.py": {
        "test_the_bound_never_falls_at_any_visit": (
            "mixture",
            "topics",
        ),
    },
    "tests/methods/stochastic/test_svi.py": {
        "test_posterior_means_are_those_of_coordinate_ascent": ("mixture-adaptive-2.0",),
    },
    "tests/methods/stochastic/test_update.py": {
        "test_a_chain_of_updates_of_a_conjugate_model_is_exact": ("from SVI",),
    },
    "tests/methods/test_planted_faults.py": {
        "test_a_fault_of_a_result": (
            "sds too wide",
            "means elsewhere",
        ),
    },
    "tests/model/test_enumerated.py": {
        "test_the_density_is_the_sum_over_all_values": (
            "mixture3",
            "one_for_all6",
            "present8",
            "event9",
            "nested11",
            "effects12",
            "factors13",
            "chain14",
        ),
    },
    "tests/model/test_noncentred.py": {
        "test_coordinates_are_a_change_of_variables": (
            "plated-None",
            "heavy-1.0",
            "nested-0.3",
            "upper-1.0",
            "correlated-1.0",
            "walk-None",
            "walk-0.3",
            "positive-0.3",
        ),
    },
    "tests/model/test_whole_plates.py": {
        "test_a_fit_is_that_of_the_whole_plate_and_its_plan_says_so": ("by subsample",),
    },
    "tests/programs/test_chains.py": {
        "test_the_sum_over_a_chain_is_that_of_the_forward_algorithm": (
            "annotated-density",
            "backward-<lambda>",
            "second_order-second_order_density",
        ),
    },
    "tests/programs/test_looking.py": {
        "test_a_grid_and_a_gaussian_do_not_mind": ("auto",),
    },
    "tests/programs/test_moving_supports.py": {
        "test_a_bound_lies_beyond_the_data": ("events",),
    },
    "tests/programs/test_not_a_number.py": {
        "test_covariates_that_the_program_imputes": ("in_rows",),
        "test_observations_that_the_program_leaves_out": (
            "by_handler-Gaussian",
            "by_distribution-auto",
            "by_factor-auto",
            "by_python-Gaussian",
        ),
    },
    "tests/programs/test_widths.py": {
        "test_a_fit_of_narrow_integers": (
            "ponds",
            "rates",
        ),
        "test_constants_that_the_program_makes": (
            "int8",
            "float32",
        ),
    },
    "tests/result/test_storage.py": {
        "test_round_trip_is_bit_identical": (
            "ard_regression",
            "lda_padded",
        ),
    },
    "tests/store/test_checkpoint_resume.py": {
        "test_resumed_runs_equal_uninterrupted_ones": ("lda-3",),
    },
    "tests/store/test_kill.py": {
        "test_killed_runs_end_as_if_never_killed": ("cavi-3",),
    },
    "tests/plot/test_run_pictures.py": {
        "test_elbo_of_a_stochastic_fit_is_drawn_by_rows": (
            "short",
            "memoised",
        ),
    },
    "tests/topics/test_xla.py": {
        "test_blocks_of_rows_do_not_change_the_result": (
            "mean field-200000",
            "collapsed-1",
            "mean-1",
        ),
        "test_sums_by_word_in_every_form": (
            "by document-40",
            "by entry-1",
            "by entry-500",
        ),
        "test_sweeps_of_cvb0": (
            "eta0-7-float64",
            "eta0-100-float32",
            "eta1-7-float64",
            "eta1-100-float32",
        ),
        "test_the_kernel_interpreted": (
            "0-read again-mean field",
            "0-wide-mean",
            "40-held-mean",
            "40-read again-mean",
            "40-wide-mean field",
        ),
    },
    "tests/methods/hierarchy/test_hierarchies.py": {
        "test_evidence_means_and_sds_are_those_of_brute_force": ("centred",),
        "test_as_many_points_as_asked_for_and_too_few_are_not_called_converged": ("logistic-20",),
    },
    "tests/laws/test_monotone.py": {
        "test_no_update_lowers_the_elbo_in_single_precision": (
            "normal_normal",
            "smoother",
            "wishart_mixture",
            "hidden_markov",
            "lda_padded",
            "poisson_factorisation",
            "blockmodel",
        ),
    },
    "tests/methods/gaussian/test_warping.py": {
        "test_corrections_go_by_the_same_coordinates": ("psis",),
        "test_q_is_carried_back": ("dirichlet",),
    },
    "tests/calibration/test_calibrate.py": {
        "test_all_tests_together_fail_a_right_method_as_seldom_as_they_say": ("1",),
    },
    "tests/cost/test_costs.py": {
        "test_a_plan_says_what_it_costs_and_what_is_cheaper": (
            "recursion-args1-lb.Laplace()",
            "mean-args2-None",
        ),
    },
    "tests/family/test_implicit.py": {
        "test_an_accelerator_computes_what_the_host_does": (
            "crossed",
            "uneven",
        ),
    },
    "tests/methods/gaussian/test_interrupted.py": {
        "test_what_stands_is_answered": (
            "climbs and stages-1",
            "climbs and stages-3",
            "climbs and stages-9",
            "coordinates-3",
            "Newton's steps-3",
            "noisy gradients-3",
            "scores-3",
            "mode-1",
            "mode-3",
            "expansion-3",
            "summed out-3",
            "some sites-3",
            "discrete entries-3",
        ),
    },
    "tests/test_gallery.py": {
        "test_an_analysis_runs_and_prints_what_it_says": (
            "eight-schools",
            "wells",
        ),
    },
    "tests/methods/rewriting/test_collapsed.py": {
        "test_draws_given_the_rest_have_the_statistics_of_their_family": (
            "a loop",
            "missing entries",
            "rates",
            "simplices",
        ),
    },
    "tests/model/test_augment_behind.py": {
        "test_indicators_of_a_factor_sum_out": (
            "other axis",
            "more beside",
            "logaddexp",
            "product",
            "masked",
        ),
    },
    "tests/laws/test_bound.py": {
        "test_elbo_of_the_fit_is_that_of_its_parameters": (
            "normal_normal",
            "smoother",
            "wishart_mixture",
            "hidden_markov",
            "lda_padded",
            "poisson_factorisation",
            "blockmodel",
        ),
        "test_elbo_is_the_evidence_or_below_it": (
            "normal_normal",
            "smoother",
            "poisson_effects",
            "probit_regression",
            "wishart_mixture",
            "hidden_markov",
            "lda_padded",
            "poisson_factorisation",
            "blockmodel",
        ),
    },
    "tests/estimators/test_factorial.py": {
        "test_planted_factors_are_found": (
            "0",
            "1",
            "2",
        ),
    },
    "tests/methods/sampling/test_whitened.py": {
        "test_effects_are_integrated_out_exactly": (
            "0-centred",
            "1-noncentred",
        ),
        "test_other_densities_are_changes_of_variables": (
            "0-binary",
            "1-robust",
        ),
    },
}


def mark_repetitions(items: Iterable[pytest.Item]) -> list[str]:
    """Make slow what repeats a law; returns the entries of the table that fit nothing."""
    found: dict[tuple[str, str], set[str]] = {}
    whole: set[str] = set()
    for item in items:
        file, _, test = item.nodeid.partition("::")
        name, _, case = test.partition("[")
        if f"{file}::{name}" in LONG:
            whole.add(f"{file}::{name}")
            item.add_marker(pytest.mark.slow)
        kept = KEPT.get(file, {}).get(name)
        if kept is None:
            continue
        found.setdefault((file, name), set()).add(case[:-1])
        if case[:-1] not in kept:
            item.add_marker(pytest.mark.slow)
    return sorted(LONG.keys() - whole) + [
        f"{file}::{name}[{case}]"
        for file, tests in KEPT.items()
        for name, kept in tests.items()
        for case in kept
        if case not in found.get((file, name), ())
    ]


def check_table(config: Any, unknown: list[str]) -> None:
    """The whole suite must have every case that the table names."""
    if unknown and config.args == config.getini("testpaths"):
        raise pytest.UsageError(
            "tests/repetitions.py names cases that there are not: " + ", ".join(unknown)
        )
