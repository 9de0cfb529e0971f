"""Tests that are slow as a whole, for `tests.repetitions`."""

# Tests that are long as a whole, and what asks the same of something shorter.
LONG: dict[str, str] = {
    "tests/calibration/test_calibrate.py::"
    "test_discrete_sites_of_the_model_and_of_its_rows_are_ranked": "ranks, in the same file",
    "tests/compute/test_devices.py::"
    "test_minibatches_on_four_devices_give_the_numbers_of_one": "all rows",
    "tests/compute/test_devices.py::"
    "test_two_processes_give_the_numbers_of_one": "tests/methods/stochastic",
    "tests/estimators/test_experts.py::"
    "test_a_tree_of_gates_finds_four_pieces": "planted pieces, in the same file",
    "tests/estimators/test_experts.py::"
    "test_logistic_experts_find_classes_on_two_sides": "planted pieces, in the same file",
    "tests/estimators/test_factorial.py::"
    "test_missing_entries_more_rows_and_files": "those of Gaussian mixtures",
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_poisson_factorisation_equals_the_one_with_its_counts": "tests/model/test_augment_behind",
    "tests/methods/coordinate/test_augment_behind.py::"
    "test_topics_of_counts_equal_topics_of_words": "the mixture by hand, in the same file",
    "tests/methods/coordinate/test_seeds.py::"
    "test_scales_with_free_form_factors": "the law of finite bounds",
    "tests/methods/gaussian/test_centring.py::"
    "test_a_non_centred_fit_is_saved_and_loaded_with_its_data": "the table of methods",
    "tests/methods/gaussian/test_centring.py::"
    "test_crossed_effects_are_nearer_to_long_chains": "the funnel, in the same file",
    "tests/methods/gaussian/test_summed.py::"
    "test_a_saved_fit_has_its_discrete_sites_back_with_the_data": "the table of methods",
    "tests/methods/gaussian/test_summed.py::"
    "test_the_ladder_sums_discrete_sites_out": "the table of methods",
    "tests/methods/gaussian/test_wide.py::"
    "test_a_structured_fit_is_saved_and_loaded": "the table of methods",
    "tests/methods/gaussian/test_wide.py::"
    "test_a_wide_posterior_without_zeros_is_full": "the sparse posteriors, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_a_file_holds_the_tree": "the table of methods",
    "tests/methods/parameters/test_gradients.py::"
    "test_the_decoder_of_an_autoencoder_learns": "loadings, in the same file",
    "tests/methods/parameters/test_gradients.py::"
    "test_topics_of_products_of_experts": "the prior scale, in the same file",
    "tests/methods/partial/test_hybrid.py::test_a_saved_fit_is_the_same": "the table of methods",
    "tests/methods/score/test_score.py::"
    "test_counts_without_an_end_get_as_many_values_as_they_need": "tests/programs",
    "tests/methods/score/test_score.py::"
    "test_the_ladder_ends_in_score_functions_and_the_fit_is_like_others": "the table of methods",
    "tests/methods/stochastic/test_checkpoint_svi.py::"
    "test_seconds_go_on": "the same of coordinate ascent, in tests/store",
    "tests/methods/stochastic/test_processes.py::"
    "test_two_processes_give_the_numbers_of_one": "files that two share",
    "tests/methods/stochastic/test_svi_result.py::test_saved_and_loaded": "the table of methods",
    "tests/models/test_half_cauchy_scale.py::"
    "test_conditioned_on_the_scale_the_posterior_is_exact": "tests/methods/grid",
    "tests/models/test_poisson_effects.py::"
    "test_conditioning_on_the_scale_raises_the_bound": "tests/methods/grid",
    "tests/programs/test_chains.py::test_a_fit_of_fifty_steps": "shorter chains, in the same file",
    "tests/programs/test_chains.py::"
    "test_animals_are_chains_apart": "sequences of several lengths, in the same file",
    "tests/programs/test_levels.py::"
    "test_all_ways_agree_with_quadrature": "their densities of the scales, in the same file",
    "tests/programs/test_looking.py::"
    "test_sums_over_discrete_sites_do_not_mind": "grids and Gaussians, in the same file",
    "tests/programs/test_not_a_number.py::"
    "test_an_imputation_whose_density_is_no_number_in_half_of_its_prior": "the other imputations",
    "tests/programs/test_tied_counts.py::"
    "test_the_ladder_goes_on_from_there": "the posterior, in the same file",
    "tests/test_bench_programs.py::"
    "test_a_fit_past_its_limit_is_a_row_and_the_program_goes_on": "limits, in tests/cost",
    "tests/test_docs.py::test_the_code_of_how_to_any_model_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_choose_runs_in_order": "tests/choosing",
    "tests/test_docs.py::test_the_code_of_how_to_estimators_runs_in_order": "tests/estimators",
    "tests/test_docs.py::test_the_code_of_how_to_formulas_runs_in_order": "tests/formulas",
    "tests/test_docs.py::test_the_code_of_how_to_look_runs_in_order": "tests/plot",
    "tests/test_docs.py::test_the_code_of_how_to_scale_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_series_runs_in_order": "tests/programs",
    "tests/test_docs.py::test_the_code_of_how_to_topics_runs_in_order": "the first page",
    "tests/test_docs.py::test_the_code_of_how_to_trust_runs_in_order": "tests/trust",
    "tests/test_docs.py::test_the_commands_of_how_to_command_line_run": "tests/cli",
    "tests/test_examples.py::test_ard_regression": "tests/models/test_ard_regression",
    "tests/test_examples.py::test_eight_schools": "the gallery",
    "tests/test_examples.py::"
    "test_errors_shrink_with_n_and_mean_field_is_too_narrow_for_a_mixture": "the other studies",
    "tests/test_examples.py::test_missing_data": "tests/models/test_missing_data",
    "tests/test_examples.py::test_stream_parquet": "tests/source",
    "tests/test_examples.py::test_the_sampler_spreads_more_than_mean_field": "the other studies",
    "tests/test_examples.py::test_topics": "tests/estimators",
    "tests/test_hang.py::"
    "test_nothing_hangs_on_two_threads_and_no_kernel_divides_its_batch": "tests/compiled",
    "tests/topics/test_xla.py::test_four_devices_do_what_one_does": "tests/compute/test_devices",
    "tests/trust/test_corrections.py::"
    "test_gibbs_and_nuts_agree_on_a_mixture_with_discrete_sites": "each by itself",
    "tests/trust/test_corrections.py::test_matrices_respond_too": "Gaussians, in the same file",
}
