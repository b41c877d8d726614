#!/usr/bin/env python3
"""Writes tables as vLLM and triton-dejavu 0.7 write them, for tests of imports: vllm_moe/ and, in dejavu/, the trees of Triton 3.2
and 3.3. Kernels, keys and times are invented; paths, hashes and bodies follow the formats. Run it anew after a change:

    python3 tests/data/make_tables.py [FOLDER]        default: the folder of this script

dejavu/dejavu_0.7/triton_3.6.0 is no invention: triton-dejavu (its branch for Triton 3.4) wrote it on an H200 for
add_kernel_dkern.py, imported as `dkern`. The script holds its hashes against that path."""

import hashlib
import itertools
import json
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).parent
WARP_SPECIALISATION = ("num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer")


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def config_text(config, triton):
    """A triton.Config as str() shows it: keyword arguments, then the members that this Triton's configs have."""
    members = {**config, "num_ctas": 1}
    members["num_stages"] = members.pop("num_stages")  # after num_ctas
    if triton in ("3.2.0", "3.3.0"):
        members |= dict.fromkeys(WARP_SPECIALISATION, 0)
    return ", ".join(f"{name}: {value}" for name, value in {**members, "maxnreg": None}.items())


def configs_of(triton, **lists):
    """The texts of all combinations, the last list fastest; num_warps and num_stages go last."""
    return [config_text(dict(zip(lists, values)), triton) for values in itertools.product(*lists.values())]


def dejavu_path(storage, name, source, keys, configs, graphs):
    """Of a function without a search: its default decorator's but for CUDA graphs."""
    parameters = f"autotuner params: warmup 25 rep 100 cuda_graphs {graphs} quantiles None use_bo False use_random False " \
                 "max_search_n None max_search_t 180"
    return f"dejavu/dejavu_0.7/{storage}/{name}/autotune_config-{sha(parameters)}/code_version-{sha(sha(source))}" \
           f"/tune_features-{sha('|'.join(keys))}/kernel_configs-{sha('|' + ''.join(c + '|' for c in configs))}/default/cache.json"


def milliseconds(random):
    """As an event's elapsed time: single precision, printed as the double that it is."""
    return struct.unpack("f", struct.pack("f", 0.003 * 1.9 ** random.randrange(12) * (1 + random.random())))[0]


def dejavu_body(module, name, keys, configs, entries, winners, random):
    tuples = [str(tuple(map(str, entry))) for entry in entries]
    return json.dumps({
        "signature": f"JITFunction({module}:{name})", "total_bench_time_s": random.uniform(100, 90000),
        "evaluated_configs": len(configs), "keys": keys,
        "cache": {key: configs[winners[i % len(winners)]] for i, key in enumerate(tuples)},
        "timings": {key: [milliseconds(random)] for key in tuples},
        "timings_data": {"labels": ["ms"], "rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": True}}, indent=4)


ATTENTION = '''def blocked_attention(out, q, k, v, lengths, heads, scale, sq, sk, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
                      BLOCK_N: tl.constexpr, V_FIRST: tl.constexpr, TURNS: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
'''
PAGED = '''def paged_scores(out, q, pages, table, n_q, n_k, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
'''
SCAN = '''def scan_step(state, x, dt, a, b, c, d, z, out, index, BLOCK_SIZE_M: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
'''


def trees():
    """Entries with dtypes, booleans, floats and None and configs with booleans (MI250X); many without dtypes, in the order of their
    tuning, that share few configs (H100); and one (MI300X, whose runtime is named after torch's)."""
    random_ = random.Random(20250901)
    configs = configs_of("3.2.0", BLOCK_M=(16, 64, 128), BLOCK_N=(16, 32, 64), V_FIRST=(True, False), TURNS=(2, ), num_warps=(2, 4, 8),
                         num_stages=(1, 2))
    keys = ["heads", "scale", "CAUSAL", "window", "width", "sq", "sk"]
    dtypes = ["torch.float16"] * 4 + ["torch.int32", "torch.float32"]
    entries = [(heads, "0.125", causal, None, 128, 4096, stride, *dtypes)
               for stride in (16, 2048, 512) for heads in (32, 8) for causal in (True, False)]
    yield (dejavu_path("triton_3.2.0/rocm_6.3.1/gpu_AMD_Instinct_MI250X_MI250", "blocked_attention", ATTENTION, keys, configs, True),
           dejavu_body("models.attention", "blocked_attention", keys, configs, entries, (1, 30, 64, 17, 99), random_))

    configs = configs_of("3.3.0", BLOCK_N=(16, 32, 128), BLOCK_M=(16, 64), num_warps=(2, 4, 8), num_stages=(2, 4, 8))
    keys = ["LONGEST_Q", "LONGEST_K", "heads", "PAGE", "stride_page"]
    lengths = [2 ** n for n in range(4, 14)]
    entries = [(n, n, 32, 16, 1) for n in lengths] + [(1, n, 32, 16, 1) for n in lengths] + [
        (n, 2 * n, heads, 16, 1) for heads in (8, 32) for n in reversed(lengths)]
    yield (dejavu_path("triton_3.3.0/cuda_12.4/gpu_NVIDIA_H100_80GB_HBM3", "paged_scores", PAGED, keys, configs, True),
           dejavu_body("serving.scores", "paged_scores", keys, configs, entries, (10, 10, 41, 5), random_))

    configs = configs_of("3.3.0", BLOCK_SIZE_M=(4, 8, 16, 32), num_warps=(2, 4), num_stages=(2, 4, 6))
    keys = ["width", "SIZE", "heads"]
    entries = [(128, 64, 128, *["torch.bfloat16"] * 5, "torch.float32", "torch.bfloat16", "torch.int32")]
    yield (dejavu_path("triton_3.3.0/rocm_torch_6.2.41134-65d174c3e/gpu_AMD_Instinct_MI300X", "scan_step", SCAN, keys, configs, True),
           dejavu_body("serving.scan", "scan_step", keys, configs, entries, (17, ), random_))


def moe_table():
    """For few tokens a split of K and nothing of AMD's, for many what AMD's compiler takes."""
    def row(m, n, k, group, warps, **more):
        return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group, **more, "num_warps": warps,
                "num_stages": 2}
    amd = {"waves_per_eu": 0, "matrix_instr_nonkdim": 16, "kpack": 2}
    rows = {"1": row(16, 32, 256, 1, 2, SPLIT_K=2), "16": row(16, 64, 128, 1, 4, SPLIT_K=1),
            "256": row(64, 128, 64, 4, 8) | amd, "4096": row(256, 128, 64, 16, 8, SPLIT_K=1) | amd}
    return "vllm_moe/E=24,N=896,device_name=AMD_Instinct_MI300X.json", json.dumps(rows, indent=4) + "\n"


def hold_against_the_real_tree():
    source = (HERE / "dejavu/add_kernel_dkern.py").read_text()
    source = source[source.index("def add_kernel"):]
    configs = configs_of("3.6.0", BLOCK=(256, 1024, 4096), num_warps=(2, 4, 8), num_stages=(1, ))
    path = dejavu_path("triton_3.6.0/cuda_12.8/gpu_NVIDIA_H200", "add_kernel", source, ["n"], configs, False)
    assert (HERE / path).exists(), f"there is no {path}"
    assert next(iter(json.loads((HERE / path).read_text())["cache"].values())) in configs


if __name__ == "__main__":
    hold_against_the_real_tree()
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, text in (*trees(), moe_table()):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)
