from model.seeds import derive_seed


def test_seeds_differ_for_any_change_of_run_step_or_micro_batch():
    seeds = [derive_seed(run, step, index) for run in range(9) for step in range(99) for index in range(9)]  # fmt: skip
    assert len({seed % 2**32 for seed in seeds}) == len(seeds)
    assert derive_seed(1, 2, 3) == derive_seed(1, 2, 3) != derive_seed(1, 3, 2)
    assert all(0 <= seed < 2**63 for seed in seeds)
