"""Tests that are slow as a whole, for `tests.repetitions`."""

# Tests that are long as a whole, and what asks the same of something shorter.
LONG: dict[str, str] = {
    "tests/calibration/test_calibrate.py::"
    "test_a_q_that_does_not_listen_to_the_data_is_found": "a q in the wrong place",
    "tests/calibration/test_calibrate.py::"
    "test_all_fits_run_what_the_first_has_compiled": "the table of methods",
    "tests/calibration/test_calibrate.py::"
    "test_data_sets_that_cannot_be_fitted_are_counted": "an interrupt, in the same file",
    "tests/calibration/test_calibrate.py::"
    "test_discrete_sites_of_the_model_and_of_its_rows_are_ranked": "ranks, in the same file",
    "tests/calibration/test_calibrate.py::"
    "test_sds_that_mean_field_shrinks_are_found": "a q in the wrong place",
    "tests/cli/test_commands.py::test_a_formula_is_explained_fitted_and_checked": (
        "a fit that is written whole, and tests/formulas"
    ),
    "tests/cli/test_commands.py::"
    "test_a_run_of_other_data_or_an_unnamed_model_is_refused": "tests/store",
    "tests/compute/test_devices.py::"
    "test_minibatches_on_four_devices_give_the_numbers_of_one": "all rows",
    "tests/compute/test_devices.py::"
    "test_two_processes_give_the_numbers_of_one": "tests/methods/stochastic",
    "tests/cost/test_costs.py::"
    "test_a_derivation_that_cannot_be_checked_leaves_the_fit_to_a_gaussian": "a grid given up",
    "tests/cost/test_costs.py::"
    "test_rungs_share_the_time_of_one_fit": "a grid that is given up, in the same file",
    "tests/cost/test_work.py::"
    "test_a_dear_density_is_looked_at_at_fewer_points": "fewer starts, in tests/cost/test_costs",
    "tests/estimators/test_base.py::"
    "test_importing_estimators_is_light_and_importing_lowerbound_does_not": "tests/test_import",
    "tests/estimators/test_experts.py::"
    "test_a_tree_of_gates_finds_four_pieces": "planted pieces, in the same file",
    "tests/estimators/test_experts.py::"
    "test_an_expert_without_rows_has_coefficients": "planted pieces",
    "tests/estimators/test_experts.py::"
    "test_gates_predictions_and_files_of_planted_pieces": "planted pieces",
    "tests/estimators/test_experts.py::"
    "test_logistic_experts_find_classes_on_two_sides": "planted pieces, in the same file",
    "tests/estimators/test_experts.py::"
    "test_with_gates_that_know_nothing_the_bound_is_below_the_enumerated_evidence": (
        "the law of bounds"
    ),
    "tests/estimators/test_factorial.py::"
    "test_missing_entries_more_rows_and_files": "those of Gaussian mixtures",
    "tests/estimators/test_factorial.py::"
    "test_the_bound_is_near_the_evidence_of_one_component_and_below_that_of_several": (
        "the law of bounds"
    ),
    "tests/estimators/test_gaussian_mixture.py::"
    "test_densities_are_those_of_the_fit_and_rows_do_not_touch": "planted clusters",
    "tests/estimators/test_gaussian_mixture.py::"
    "test_missing_entries_are_left_out": "tests/models/test_missing_data",
    "tests/estimators/test_gaussian_mixture.py::"
    "test_pickles_predict_the_same": "scikit-learn's checks, in tests/estimators/test_contract",
    "tests/estimators/test_gaussian_mixture.py::"
    "test_the_predictive_density_integrates_to_one": "densities, in the same file",
    "tests/estimators/test_gaussian_mixture.py::"
    "test_what_is_known_of_a_component_counts": "planted clusters, in the same file",
    "tests/estimators/test_networks.py::"
    "test_the_bound_is_the_evidence_of_one_block_and_below_that_of_two": "the law of bounds",
    "tests/estimators/test_other_mixtures.py::"
    "test_draws_are_of_the_kinds_of_the_columns": "columns of all kinds, in the same file",
    "tests/estimators/test_other_mixtures.py::test_the_predictive_of_counts_is_negative_binomial": (
        "predictive densities of the table of methods"
    ),
    "tests/estimators/test_regressions.py::"
    "test_densities_of_relevance_are_gaussian_nearly": "relevance, in the same file",
    "tests/estimators/test_regressions.py::"
    "test_parts_of_a_line_are_the_whole": "tests/methods/stochastic/test_update",
    "tests/estimators/test_regressions.py::"
    "test_probit_probabilities_are_exact": "classes, in the same file",
    "tests/estimators/test_regressions.py::test_without_an_intercept": "the line, in the same file",
    "tests/family/test_free.py::test_beta_with_wide_plateaus": "normal of every width",
    "tests/family/test_free.py::"
    "test_draws_follow_the_distribution_function": "the laws of families",
    "tests/family/test_free.py::test_entropy_agrees_with_draws": "the laws of families",
    "tests/family/test_free.py::test_generalised_inverse_gaussian": "power-law tails",
    "tests/family/test_free.py::test_inverse_gamma": "gamma over ten orders of magnitude",
    "tests/family/test_free.py::"
    "test_natural_with_dependent_statistics_has_the_mean": "natural inverts mean",
    "tests/family/test_free.py::"
    "test_rounding_of_large_terms_is_not_taken_for_mass": "normal far from zero",
    "tests/family/test_free.py::test_statistics_place_the_arrays": "the laws of families",
    "tests/family/test_free.py::test_trailing_axes_against_scipy": "the laws of families",
    "tests/formulas/test_formulated.py::"
    "test_a_saved_fit_reads_tables_too": "new tables, in the same file",
    "tests/formulas/test_formulated.py::"
    "test_held_out_rows_have_densities_and_new_groups_have_smaller_ones": "new tables, same file",
    "tests/formulas/test_formulated.py::"
    "test_the_plan_is_a_hierarchy": "new tables, in the same file",
    "tests/ladder/test_ladder.py::"
    "test_nested_plates_with_covariates_on_both_axes": "tests/methods/hierarchy/test_predictors",
    "tests/ladder/test_ladder.py::"
    "test_new_rows_after_a_grid_go_on_from_a_mean_field": "the table of methods",
    "tests/methods/coordinate/test_alike.py::"
    "test_a_sweep_of_groups_equals_updates_one_by_one_with_the_bound_of_its_end": (
        "the laws of updates and of monotone bounds"
    ),
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_a_mixture_by_hand_equals_the_one_with_its_assignments": "sweeps of Albert and Chib",
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_poisson_factorisation_equals_the_one_with_its_counts": "tests/model/test_augment_behind",
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_predictions_are_those_of_the_original_program": "the table of methods",
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_topics_of_counts_equal_topics_of_words": "the mixture by hand, in the same file",
    "tests/methods/coordinate/test_em.py::"
    "test_a_parameter_inside_an_expectation_by_quadrature": "stationary points",
    "tests/methods/coordinate/test_em.py::"
    "test_a_weight_may_end_on_the_edge_of_the_simplex": "weights of a mixture",
    "tests/methods/coordinate/test_em.py::"
    "test_more_parameters_than_a_hessian_is_for": "stationary points, in the same file",
    "tests/methods/coordinate/test_em.py::"
    "test_parameters_that_multiply_each_other": "stationary points, in the same file",
    "tests/methods/coordinate/test_em.py::"
    "test_the_constraint_is_part_of_what_was_compiled": "a second fit, in the same file",
    "tests/methods/coordinate/test_em.py::"
    "test_the_order_of_sites_does_not_matter": "the law of invariances",
    "tests/methods/coordinate/test_hard_zeros.py::test_a_zero_inflated_regression_by_quadrature": (
        "sites that exclude each other, in the same file"
    ),
    "tests/methods/coordinate/test_hard_zeros.py::test_readers_and_items_are_summed_out_in_turn": (
        "sites that exclude each other, in the same file"
    ),
    "tests/methods/coordinate/test_quadrature.py::"
    "test_a_hierarchy_with_a_half_cauchy_scale": "the zoo's half-Cauchy scale",
    "tests/methods/coordinate/test_restarts.py::"
    "test_a_gaussian_across_two_modes_is_not_preferred_to_one_of_them": (
        "two clusters of five points"
    ),
    "tests/methods/coordinate/test_restarts.py::"
    "test_a_proper_weight_is_not_called_improper": "two clusters of five points",
    "tests/methods/coordinate/test_seeds.py::"
    "test_scales_with_free_form_factors": "the law of finite bounds",
    "tests/methods/gaussian/test_centring.py::"
    "test_a_non_centred_fit_is_saved_and_loaded_with_its_data": "the table of methods",
    "tests/methods/gaussian/test_centring.py::"
    "test_crossed_effects_are_nearer_to_long_chains": "the funnel, in the same file",
    "tests/methods/gaussian/test_summed.py::test_a_change_point_is_that_of_exact_enumeration": (
        "the program summed by hand, in the same file"
    ),
    "tests/methods/gaussian/test_summed.py::"
    "test_a_saved_fit_has_its_discrete_sites_back_with_the_data": "the table of methods",
    "tests/methods/gaussian/test_summed.py::test_assignments_have_their_average_probability": (
        "the program summed by hand, in the same file"
    ),
    "tests/methods/gaussian/test_summed.py::"
    "test_the_ladder_sums_discrete_sites_out": "the table of methods",
    "tests/methods/gaussian/test_summed.py::"
    "test_zero_inflated_counts": "the program summed by hand, in the same file",
    "tests/methods/gaussian/test_warping.py::"
    "test_a_verdict_needs_no_global_site": "verdicts of the table of methods",
    "tests/methods/gaussian/test_warping.py::"
    "test_linear_response_is_on_the_scale_of_the_sites": "tests/trust/test_corrections",
    "tests/methods/gaussian/test_warping.py::"
    "test_steps_of_few_draws_are_not_what_coordinates_are_compared_by": "exact posteriors",
    "tests/methods/gaussian/test_wide.py::"
    "test_a_second_fit_of_equal_shapes_compiles_nothing": "the table of methods",
    "tests/methods/gaussian/test_wide.py::"
    "test_a_structured_fit_is_saved_and_loaded": "the table of methods",
    "tests/methods/gaussian/test_wide.py::"
    "test_a_wide_posterior_without_zeros_is_full": "the sparse posteriors, in the same file",
    "tests/methods/gaussian/test_wide_coordinates.py::"
    "test_the_coordinates_of_many_units_are_those_of_the_larger_elbo": (
        "tests/methods/gaussian/test_centring"
    ),
    "tests/methods/hierarchy/test_bounds.py::"
    "test_where_a_bound_is_reached_the_sites_are_integrated": "wide bounds, in the same file",
    "tests/methods/hierarchy/test_hierarchies.py::"
    "test_a_factor_with_one_level_is_fitted": "a boundary, in the same file",
    "tests/methods/hierarchy/test_hierarchies.py::"
    "test_a_group_without_rows_has_the_law_of_all_groups": "brute force, in the same file",
    "tests/methods/hierarchy/test_hierarchies.py::"
    "test_a_scale_told_by_its_logarithm_is_integrated_too": "tests/ladder/test_ladder_scales",
    "tests/methods/hierarchy/test_hierarchies.py::"
    "test_collinear_columns_are_fitted_where_their_prior_is_proper": "one level, in the same file",
    "tests/methods/hierarchy/test_hierarchies.py::"
    "test_two_ways_to_tell_the_data_are_weighed_by_their_mass": "test_between, beside it",
    "tests/methods/parameters/test_gradients.py::"
    "test_a_file_holds_the_tree": "the table of methods",
    "tests/methods/parameters/test_gradients.py::"
    "test_a_prior_scale_is_that_of_quadrature": "loadings, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_batches_of_rows_come_near_the_same_maximum": "loadings, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_discrete_sites_are_summed_out": "tests/methods/gaussian/test_summed",
    "tests/methods/parameters/test_gradients.py::"
    "test_equal_programs_compile_once_whatever_their_data": "the table of methods",
    "tests/methods/parameters/test_gradients.py::"
    "test_its_parameters_are_the_tree_that_was_registered": "loadings, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_its_q_is_one_gaussian_a_row": "the tree, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_loadings_attain_the_maximum_likelihood": "the row EM of the table of methods",
    "tests/methods/parameters/test_gradients.py::"
    "test_new_rows_have_gaussians_and_densities": "the table of methods",
    "tests/methods/parameters/test_gradients.py::"
    "test_the_decoder_of_an_autoencoder_learns": "loadings, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_topics_of_products_of_experts": "the prior scale, in the same file",
    "tests/methods/partial/test_hybrid.py::test_a_saved_fit_is_the_same": "the table of methods",
    "tests/methods/partial/test_hybrid.py::test_draws_and_moments_agree": "the table of methods",
    "tests/methods/partial/test_hybrid.py::"
    "test_the_density_given_point_statistics_is_that_of_the_program": "the certificate",
    "tests/methods/partial/test_hybrid.py::"
    "test_the_ladder_covers_few_sites_where_all_are_too_many": "the other rung, in the same file",
    "tests/methods/rewriting/test_collapsed.py::"
    "test_a_correction_keeps_the_sites": "tests/trust/test_corrections",
    "tests/methods/rewriting/test_collapsed.py::"
    "test_single_precision_gives_the_same_fit": "the table of methods",
    "tests/methods/score/test_score.py::"
    "test_counts_without_an_end_get_as_many_values_as_they_need": "tests/programs",
    "tests/methods/score/test_score.py::"
    "test_the_ladder_ends_in_score_functions_and_the_fit_is_like_others": "the table of methods",
    "tests/methods/stochastic/test_checkpoint_svi.py::"
    "test_seconds_go_on": "the same of coordinate ascent, in tests/store",
    "tests/methods/stochastic/test_processes.py::"
    "test_processes_must_hold_the_same_rows": "the refusal of one process, in tests/source",
    "tests/methods/stochastic/test_processes.py::"
    "test_two_processes_give_the_numbers_of_one": "files that two share",
    "tests/methods/stochastic/test_processes.py::"
    "test_two_processes_share_files": "tests/compute/test_devices",
    "tests/methods/stochastic/test_svi.py::"
    "test_an_average_of_late_iterates_has_a_smaller_error": "posterior means, in the same file",
    "tests/methods/stochastic/test_svi_result.py::test_saved_and_loaded": "the table of methods",
    "tests/methods/stochastic/test_update.py::"
    "test_an_augmented_fit_goes_on_as_the_program_that_was_given": "a chain of updates",
    "tests/models/test_half_cauchy_scale.py::"
    "test_conditioned_on_the_scale_the_posterior_is_exact": "tests/methods/grid",
    "tests/models/test_poisson_effects.py::"
    "test_conditioning_on_the_scale_raises_the_bound": "tests/methods/grid",
    "tests/plot/test_run_pictures.py::"
    "test_elbo_of_a_stochastic_fit_is_drawn_by_rows": "the result of a noisy run, in the same file",
    "tests/programs/test_bad_chains.py::"
    "test_a_path_that_leaves_an_absorbing_state_is_impossible": "others, in the same file",
    "tests/programs/test_chains.py::test_a_fit_of_fifty_steps": "shorter chains, in the same file",
    "tests/programs/test_chains.py::"
    "test_animals_are_chains_apart": "sequences of several lengths, in the same file",
    "tests/programs/test_chains.py::"
    "test_sequences_of_several_lengths": "probabilities of a chain, in the same file",
    "tests/programs/test_chains.py::test_states_given_a_scalar_have_the_shares_of_all_paths": (
        "probabilities of a chain, in the same file"
    ),
    "tests/programs/test_codes_beyond.py::"
    "test_a_step_that_carries_a_key_of_random_numbers_is_looked_at": "steps, in the same file",
    "tests/programs/test_discrete_alone.py::"
    "test_sites_that_a_loop_stacks_are_summed_where_they_meet": "tests/model/test_dependence",
    "tests/programs/test_forbidden.py::"
    "test_states_that_a_total_ties": "tests/programs/test_tied_counts",
    "tests/programs/test_forbidden.py::test_transitions": "one site whose probabilities are latent",
    "tests/programs/test_levels.py::"
    "test_all_ways_agree_with_quadrature": "their densities of the scales, in the same file",
    "tests/programs/test_levels.py::"
    "test_increments_have_the_moments_of_their_draws_and_a_density": "tests/family/test_integrated",
    "tests/programs/test_levels.py::"
    "test_increments_of_levels_are_those_of_increments": "densities of all ways, in the same file",
    "tests/programs/test_looking.py::"
    "test_a_constant_array_is_indexed_by_a_latent_site": "grids and Gaussians, in the same file",
    "tests/programs/test_looking.py::"
    "test_maximised_parameters_do_not_mind": "grids and Gaussians, in the same file",
    "tests/programs/test_looking.py::"
    "test_sums_over_discrete_sites_do_not_mind": "grids and Gaussians, in the same file",
    "tests/programs/test_not_a_number.py::"
    "test_an_imputation_whose_density_is_no_number_in_half_of_its_prior": "the other imputations",
    "tests/programs/test_structural_series.py::"
    "test_a_season_is_integrated_over_its_scales": "densities of every way, in the same file",
    "tests/programs/test_tied_counts.py::"
    "test_the_ladder_goes_on_from_there": "the posterior, in the same file",
    "tests/reporting/test_report.py::"
    "test_report_of_a_stochastic_fit": "the page stands alone, in the same file",
    "tests/store/test_checkpoint_resume.py::test_monitored_runs": "resumed runs, in the same file",
    "tests/store/test_checkpoint_resume.py::test_seconds_go_on": "resumed runs, in the same file",
    "tests/test_api.py::"
    "test_dead_components_and_collapsing_variances_stay_finite": "the law of finite bounds",
    "tests/test_bench_programs.py::"
    "test_a_fit_past_its_limit_is_a_row_and_the_program_goes_on": "limits, in tests/cost",
    "tests/test_docs.py::test_missing_values_are_filled_in": "tests/models/test_missing_data",
    "tests/test_docs.py::test_mixed_models_by_formula_and_by_program_agree": "tests/formulas",
    "tests/test_docs.py::test_the_code_of_how_to_any_model_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_choose_runs_in_order": "tests/choosing",
    "tests/test_docs.py::test_the_code_of_how_to_estimators_runs_in_order": "tests/estimators",
    "tests/test_docs.py::test_the_code_of_how_to_formulas_runs_in_order": "tests/formulas",
    "tests/test_docs.py::test_the_code_of_how_to_look_runs_in_order": "tests/plot",
    "tests/test_docs.py::test_the_code_of_how_to_scale_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_series_runs_in_order": "tests/programs",
    "tests/test_docs.py::test_the_code_of_how_to_topics_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_trust_runs_in_order": "tests/trust",
    "tests/test_docs.py::"
    "test_the_code_of_the_first_page_runs_in_order": "the quickstart, in the same file",
    "tests/test_docs.py::test_the_commands_of_how_to_command_line_run": "tests/cli",
    "tests/test_docs.py::test_wider_priors_leave_wider_posteriors": "the first page",
    "tests/test_examples.py::test_ard_regression": "tests/models/test_ard_regression",
    "tests/test_examples.py::test_eight_schools": "the gallery",
    "tests/test_examples.py::"
    "test_errors_shrink_with_n_and_mean_field_is_too_narrow_for_a_mixture": "the other studies",
    "tests/test_examples.py::test_images_are_clustered_and_drawn": "the example of the README",
    "tests/test_examples.py::test_missing_data": "tests/models/test_missing_data",
    "tests/test_examples.py::test_paper_mixture": "the example of the README, and `make demo`",
    "tests/test_examples.py::test_stream_parquet": "tests/source",
    "tests/test_examples.py::"
    "test_the_elbo_is_below_the_evidence_by_the_names_of_components": "the law of bounds",
    "tests/test_examples.py::test_the_sampler_spreads_more_than_mean_field": "the other studies",
    "tests/test_examples.py::test_topics": "tests/estimators",
    "tests/test_hang.py::"
    "test_nothing_hangs_on_two_threads_and_no_kernel_divides_its_batch": "tests/compiled",
    "tests/topics/test_xla.py::test_four_devices_do_what_one_does": "tests/compute/test_devices",
    "tests/trust/test_corrections.py::"
    "test_a_corrected_fit_does_what_a_fit_does": "the table of methods",
    "tests/trust/test_corrections.py::"
    "test_gibbs_and_nuts_agree_on_a_mixture_with_discrete_sites": "each by itself",
    "tests/trust/test_corrections.py::"
    "test_linear_response_puts_the_scale_of_a_hierarchy_right": "Gaussians, in the same file",
    "tests/trust/test_corrections.py::test_matrices_respond_too": "Gaussians, in the same file",
    "tests/trust/test_corrections.py::"
    "test_nuts_gives_the_reference_of_eight_schools": "the factor that is integrated out",
    "tests/trust/test_evidence.py::"
    "test_a_fit_on_batches_is_judged_by_all_rows_that_it_is_given": "the table of methods",
    "tests/trust/test_evidence.py::"
    "test_the_rows_that_a_fit_has_kept_tell_sds_and_say_what_they_do_not_know": (
        "tests/trust/test_verdicts"
    ),
    "tests/trust/test_verdicts.py::"
    "test_a_mixture_is_judged_with_its_assignments_summed_out": "the table of methods",
}
