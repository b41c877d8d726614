"""How bench/campaigns.py counts pairs of campaigns, separately for one GPU and two. The test makes up the campaigns."""

import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import campaigns  # noqa: E402
import tuning  # noqa: E402

KEY = {"M": 3072, "N": 3072, "K": 3072}


def campaign(winner, others=()):
    verdict = {"equivalence_set": [winner], "regret_bound": 0.01, "processes": 3,
               "finalists": [{"config": config} for config in (winner, *others)]}
    return types.SimpleNamespace(seconds=20.0, lines=[{"winner": {"config": winner}, "verdict": verdict}])


def shown(capsys, tuned, gpus, choices=()):
    campaigns.show(tuning.TRITON[0], [KEY], tuned, gpus, list(choices))
    return capsys.readouterr().out


def test_pairs_of_one_gpu_and_of_two_are_counted_separately(capsys):
    out = shown(capsys, [campaign(58), campaign(58), campaign(53, others=[58]), campaign(53)], [0, 0, 1, 1])
    assert "2 winners, 4 of 12 pairs inside; GPU 0: 58 (2), GPU 1: 53 (2)" in out
    assert "inside the stored equivalence set: 4 of 12 = 33.33 %" in out
    assert "pairs of one GPU: 4 of 4 = 100.00 % (51.01 to 100.00); of two: 0 of 8 = 0.00 % (0.00 to 32.44)" in out
    assert "of the 8 outside 2 were finalists that their interval kept out; 0 of 4 verdicts took more" in out


def test_a_comparison_without_pairs_has_no_share(capsys):
    assert "pairs of one GPU: none; of two: 2 of 2 = 100.00 %" in shown(capsys, [campaign(58), campaign(58)], [0, 1])
    assert "pairs of one GPU" not in shown(capsys, [campaign(58), campaign(58)], [0, 0])
    unfinished = types.SimpleNamespace(seconds=20.0, lines=[{"error": "out of memory"}])
    assert "1 winners, 0 of 0 pairs inside" in shown(capsys, [campaign(58), unfinished], [0, 1])


def test_a_peers_choices_are_compared_with_the_sets(capsys):
    kernel = tuning.TRITON[0]
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 2}
    ordinal = kernel.ordinal(config)
    out = shown(capsys, [campaign(ordinal), campaign(ordinal + 1)], [0, 0], [{"key": KEY, "config": config}])
    assert "the peer chose 1 different in 1 runs, in our sets 1 of 2" in out
    assert "the peer's choices inside those sets: 1 of 2 = 50.00 %" in out
