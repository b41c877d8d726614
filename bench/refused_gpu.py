#!/usr/bin/env python3
"""Looks for inputs for which a kernel is wrong that its package refuses: chunk_bwd_kernel_dqkwg of flash-linear-attention, gated,
which on Hopper under Triton 3.4 to 3.7.0 "produces incorrect results". The refusal is bypassed: the kernel is launched directly.

    bench/refused_gpu.py [--wheels DIR] [--seconds S] [--processes N] [--json FILE]
    bench/refused_gpu.py --interpret      checks the reference itself on the CPU, with Triton's interpreter, at two small sizes

Every specialisation (dtypes, K, V, chunk, tiles, with and without dw, both layouts of the state, grouped heads) is compiled for
all of the package's configs and num_warps 8, on all cores; then each is launched for several lengths and gates, twice, and
compared with the same formula in PyTorch, in 32-bit floats, and with itself. Those that time was too short for are counted.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIGS = list(itertools.product((2, 4, 8), (2, 3, 4)))  # num_warps, num_stages
LENGTHS, GATES = (64, 200, 256, 1000, 4096), ("none", "mild", "strong", "mixed")
B, H = 2, 2
LIMIT = {"bfloat16": 0.03, "float16": 0.005, "float32": 0.01}  # the largest error over the largest value
BASE = {"dtype": "bfloat16", "state": "bfloat16", "K": 128, "V": 128, "BT": 64, "tile": 128, "dw": True, "v_first": False,
        "groups": 1}


def cases():
    """The usual one; each that differs from it in one thing; and some that differ in two."""
    sizes = [(64, 64), (256, 256), (256, 512), (64, 128), (128, 64), (32, 32), (100, 96), (192, 128), (16, 16), (128, 256)]
    one = [{"dtype": "float16", "state": "float16"}, {"state": "float32"}, {"dw": False}, {"v_first": True}, {"groups": 2},
           {"tile": 64}, {"BT": 32}, {"BT": 16}, {"BT": 128}, {"dtype": "float32", "state": "float32", "tile": 64}, {"tile": 32}]
    both = [{"K": k, "V": v, "dw": False} for k, v in ((64, 64), (256, 512), (256, 256))] + [
        {"dw": False, "v_first": True}, {"dw": False, "BT": 32}, {"dw": False, "tile": 64}, {"dw": False, "state": "float32"},
        {"K": 256, "V": 256, "v_first": True}, {"K": 256, "V": 256, "tile": 64}]
    for change in [{}, *one[:6], *({"K": k, "V": v} for k, v in sizes), *both, *one[6:]]:
        yield {**BASE, **change}


def constexprs(case):
    tile = {name: min(max(1 << (case[of] - 1).bit_length(), 16), case["tile"]) for name, of in (("BK", "K"), ("BV", "V"))}
    return {"B": B, "H": H, "HV": H * case["groups"], "K": case["K"], "V": case["V"], "BT": case["BT"], **tile, "USE_G": True,
            "USE_G_GAMMA": False, "USE_DW": case["dw"], "STATE_V_FIRST": case["v_first"], "IS_VARLEN": False}


NAMES = ("q", "k", "v", "g", "g_gamma", "h", "do", "dh", "dq", "dk", "dw", "dv", "dg", "cu_seqlens", "chunk_indices")


def function():
    from fla.ops.common import chunk_o
    found = chunk_o.chunk_bwd_kernel_dqkwg
    while hasattr(found.fn, "run"):  # heuristics, autotuner
        found = found.fn
    return found


def dtypes(case):
    """Of each buffer; None for those that are not there."""
    own, state = case["dtype"], case["state"]
    kinds = dict.fromkeys(("q", "k", "v", "do", "dq", "dk"), own) | {"h": state, "dh": state, "g": "float32", "dg": "float32"}
    return kinds | (dict.fromkeys(("dw", "dv"), own) if case["dw"] else {})


def compile_one(task):
    """In a process of its own, without the GPU: into Triton's cache."""
    case, (warps, stages) = task
    import torch
    import triton
    from triton.runtime.jit import MockTensor
    sys.path.append(str(ROOT / "tests/python"))
    import standin
    triton.runtime.driver.set_active(standin.Driver("sm_90"))
    kinds = dtypes(case)
    buffers = {name: MockTensor(getattr(torch, kinds[name])) if name in kinds else None for name in NAMES}
    try:
        function().warmup(**buffers, scale=0.1, T=1000, **constexprs(case), num_warps=warps, num_stages=stages, grid=(1,))
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"


def inputs(case, length, gate, device):
    """Those of one launch; `g` is summed within chunks, in units of log2, as the package does."""
    import torch
    torch.manual_seed(length)
    heads, chunk = H * case["groups"], case["BT"]
    chunks = -(-length // chunk)
    state = (case["V"], case["K"]) if case["v_first"] else (case["K"], case["V"])

    def normal(kind, *shape, scale=1.0):
        return (torch.randn(*shape, device=device) * scale).to(getattr(torch, case[kind]))
    made = {name: normal("dtype", B, length, heads, case["V"]) for name in ("v", "do", "dv")}
    made |= {name: normal("dtype", B, length, H, case["K"]) for name in ("q", "k")}
    for name in ("q", "k"):
        made[name] = torch.nn.functional.normalize(made[name].float(), dim=-1).to(made[name].dtype)
    made |= {"h": normal("state", B, chunks, heads, *state), "dh": normal("state", B, chunks, heads, *state)}
    step = torch.nn.functional.logsigmoid(torch.randn(B, length, heads, device=device))
    step *= {"none": 0.0, "mild": 0.06, "strong": 8.0, "mixed": 1.0}[gate]
    if gate == "mixed":
        step *= (torch.arange(length, device=device) % 7 == 3)[None, :, None] * 20.0
    padded = torch.nn.functional.pad(step, (0, 0, 0, chunks * chunk - length)).view(B, chunks, chunk, heads)
    made["g"] = (padded.cumsum(2) * 1.4426950408889634).reshape(B, -1, heads)[:, :length].contiguous()
    return made


def reference(case, given, length, scale):
    """The formula of the kernel, chunk by chunk, in 32-bit floats; sums in the order of PyTorch."""
    import torch
    chunk, groups = case["BT"], case["groups"]
    chunks = -(-length // chunk)

    def blocks(x):
        x = torch.nn.functional.pad(x.float(), (0, 0, 0, 0, 0, chunks * chunk - length))
        return x.view(B, chunks, chunk, *x.shape[2:]).transpose(2, 3)  # B, chunks, heads, chunk, width
    q, k = (blocks(given[name].repeat_interleave(groups, 2)) for name in ("q", "k"))
    v, do, dv = (blocks(given[name]) for name in ("v", "do", "dv"))
    h, dh = (given[name].float() for name in ("h", "dh"))  # K, V
    if case["v_first"]:
        h, dh = h.transpose(-1, -2), dh.transpose(-1, -2)
    g = blocks(given["g"][..., None])[..., 0]
    is_there = blocks(torch.ones(B, length, H * groups, 1, device=g.device))[..., 0] > 0
    last = (is_there.sum(-1, keepdim=True) - 1).clamp(min=0)
    g_last = g.gather(-1, last)
    dq = do @ h.transpose(-1, -2) * torch.exp2(g)[..., None] * scale
    dk = v @ dh.transpose(-1, -2) * torch.where(is_there, torch.exp2(g_last - g), 0.0)[..., None]
    dg_last = (h * dh).sum((-1, -2)) * torch.exp2(g_last[..., 0]) + (dk * k).sum((-1, -2))
    seen = torch.ones(chunk, chunk, dtype=torch.bool, device=g.device).tril() & is_there[..., None, :] & is_there[..., None]
    ds = torch.where(seen, do @ v.transpose(-1, -2) * torch.exp2(g[..., None] - g[..., None, :]), 0.0) * scale
    dq, dk = dq + ds @ k, dk + ds.transpose(-1, -2) @ q
    dg = (dq * q).sum(-1) - (dk * k).sum(-1)
    dg = dg.scatter_add(-1, last, dg_last[..., None])

    def whole(x):
        return x.transpose(2, 3).reshape(B, chunks * chunk, *x.shape[2:3], *x.shape[4:])[:, :length]
    found = {"dq": whole(dq), "dk": whole(dk), "dg": whole(dg[..., None])[..., 0]}
    return {**found, "dw": whole(-(dv @ h.transpose(-1, -2)))} if case["dw"] else found


def launch(case, given, length, scale, warps, stages):
    import torch
    own, heads = constexprs(case), H * case["groups"]
    n_k = -(-case["K"] // own["BK"])
    out = {name: torch.full((B, length, heads, case["K"]), float("nan"), device=given["q"].device, dtype=given["q"].dtype)
           for name in ("dq", "dk", "dw")}
    out["dg"] = torch.full((n_k, B, length, heads), float("nan"), device=given["q"].device)
    buffers = {"g_gamma": None, "cu_seqlens": None, "chunk_indices": None, **given, **out}
    if not case["dw"]:
        buffers["dw"] = buffers["dv"] = None
    grid = (n_k * -(-length // case["BT"]), B * heads)
    function()[grid](**buffers, scale=scale, T=length, **own, num_warps=warps, num_stages=stages)
    return {name: out[name].float().sum(0) if name == "dg" else out[name].float() for name in out if name != "dw" or case["dw"]}


def error_of(found, wanted):
    """The largest difference over the largest value; infinite where something was not written."""
    import torch
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    return ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-20)).item()


def check(case, configs, device, lengths=LENGTHS, gates=GATES):
    """(rows of what is wrong or unstable, the largest error by output and config)."""
    import torch
    import triton
    bad, largest = [], {}
    for length, gate in itertools.product(lengths, gates):
        given, scale = inputs(case, length, gate, device), case["K"] ** -0.5
        wanted = reference(case, given, length, scale)
        for warps, stages in list(configs):
            try:
                runs = [launch(case, given, length, scale, warps, stages) for _ in range(2)]
            except triton.OutOfResources:  # as the package's autotuner leaves it out
                configs.remove((warps, stages))
                continue
            for name, value in wanted.items():
                error = error_of(runs[0][name], value)
                place = f"{name} w{warps} s{stages}"
                largest[place] = max(error, largest.get(place, 0.0))
                is_stable = torch.equal(runs[0][name], runs[1][name])
                if error > LIMIT[case["dtype"]] or not is_stable:
                    bad.append({**case, "T": length, "gate": gate, "output": name, "num_warps": warps, "num_stages": stages,
                                "error": error, "is_stable": is_stable})
    return bad, largest


def sweep(arguments):
    import multiprocessing
    import triton
    started, wanted = time.monotonic(), list(cases())
    function()  # imported before the fork
    tasks = [(case, config) for case in wanted for config in CONFIGS]
    failed, ready = {}, {}
    pool = multiprocessing.get_context("fork").Pool(arguments.processes or os.cpu_count())
    results = pool.imap(compile_one, tasks)
    report, n = {"cases": [], "bad": []}, 0
    for i, case in enumerate(wanted):
        try:
            for config in CONFIGS:
                why = results.next(max(1.0, arguments.seconds - (time.monotonic() - started)))
                (failed if why else ready).setdefault(i, []).append((config, why))
            if time.monotonic() - started > arguments.seconds:
                raise multiprocessing.TimeoutError
        except multiprocessing.TimeoutError:
            break
        configs = [config for config, _ in ready.get(i, [])]  # those that need more than the GPU has are taken out
        bad, largest = check(case, configs, "cuda")
        n += 1
        report["cases"].append({**case, "largest": largest, "failed": [(config, why) for config, why in failed.get(i, [])]})
        report["bad"] += bad
        by_output = {name: max([error for place, error in largest.items() if place.split()[0] == name], default=None)
                     for name in ("dq", "dk", "dw", "dg")}
        changed = {name: value for name, value in case.items() if value != BASE[name]}
        print(f"{changed or 'usual'}: {len(configs)} configs, {len(bad)} wrong; largest errors "
              f"{', '.join(f'{name} {error:.1e}' for name, error in by_output.items() if error is not None)}"
              f"{'; not compiled: ' + failed[i][0][1] if i in failed else ''}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(report))
    pool.terminate()
    pool.join()
    for row in report["bad"][:20]:
        print(f"  WRONG: {row}")
    checked = sum(len(case["largest"]) for case in report["cases"]) * len(LENGTHS) * len(GATES)
    print(f"Triton {triton.__version__}: {n} of {len(wanted)} specialisations, {len(LENGTHS)} lengths, {len(GATES)} gates: "
          f"{len(report['bad'])} of {checked} outputs wrong or unstable, {time.monotonic() - started:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=110)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wt-refused-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        for wheel in sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []:
            place = pathlib.Path(folder) / wheel.name.split("-")[0]
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, place], check=True)
            sys.path.insert(0, str(place))
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/cache"
        if arguments.interpret:
            for change in ({"dtype": "float32", "state": "float32", "K": 32, "V": 16, "BT": 16},
                           {"dtype": "float32", "state": "float32", "K": 48, "V": 32, "BT": 16, "tile": 32, "v_first": True,
                            "groups": 2}):
                bad, largest = check({**BASE, **change}, [(4, 2)], "cpu", (40,), GATES)
                print(change, {place.split()[0]: f"{error:.1e}" for place, error in largest.items()}, len(bad), "wrong")
                assert not bad, bad
        else:
            sweep(arguments)


main()
