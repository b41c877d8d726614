#!/usr/bin/env python3
"""A program as people have it: one layer of flash-linear-attention, forward and backward, which knows nothing of wavetune.

    bench/unmodified_model.py MODEL [--steps N] [--shapes N] [--forward] [--go FILE] [--turns]      prints one line of JSON

With --go it imports everything and then waits for FILE before it touches the GPU. MODEL is DeltaNet, GatedLinearAttention,
RWKV7Attention or GatedDeltaNet. The line has the seconds of the imports and of the first step of each shape, what Triton did for
them, the times of N later steps, and sums of outputs and gradients.

With --turns the N steps are taken twice in this process, in blocks of BLOCK in the order A B B A: A with plain dicts as the
autotuners' caches, which Triton fills from the .autotune.json of $TRITON_CACHE_DIR, as without wavetune; B with wavetune's caches
and what it served. The line has the times of both, and for how many keys the two sides have different configs.
"""

import json
import os
import pathlib
import sys
import time

STARTED = time.perf_counter()
import torch  # noqa: E402
import triton  # noqa: E402

SHAPES = ((4, 2048), (1, 8192), (8, 512))
BLOCK = 25  # steps
seen = {"benchmarked": 0, "benchmark_s": 0.0, "compiled": 0, "compile_s": 0.0, "from_cache": 0}


def watch():
    """Counts what Triton really benchmarks and compiles."""
    from triton.runtime.autotuner import Autotuner
    bench = Autotuner._bench

    def _bench(*args, **kwargs):
        seen["benchmarked"] += 1
        started = time.perf_counter()
        try:
            return bench(*args, **kwargs)
        finally:
            seen["benchmark_s"] += time.perf_counter() - started

    def listener(*, times, cache_hit, **_):
        seen["from_cache" if cache_hit else "compiled"] += 1
        if not cache_hit:
            seen["compile_s"] += times.total / 1e6

    Autotuner._bench = _bench
    triton.knobs.compilation.listener = listener


def build(name):
    from fla import layers
    if name == "DeltaNet":
        return layers.DeltaNet(hidden_size=2048, num_heads=16, mode="chunk")
    if name == "RWKV7Attention":
        made = layers.RWKV7Attention(hidden_size=2048, head_dim=64, mode="chunk", layer_idx=0, num_hidden_layers=24)
        torch.nn.init.normal_(made.o_proj.weight, std=0.02)  # it begins with zeros, and so would all outputs and gradients
        return made
    if name == "GatedDeltaNet":
        return layers.GatedDeltaNet(hidden_size=2048, num_heads=6, head_dim=256, mode="chunk")
    return getattr(layers, name)(hidden_size=2048, num_heads=16, mode="chunk")


def step(model, x, forward_only):
    output = model(x)[0]
    if not forward_only:
        output.float().square().mean().backward()
    torch.cuda.synchronize()
    return output


def in_turns(steps, one_step):
    """Times of steps with Triton's own caches and with wavetune's, and how their configs differ."""
    from wavetune._runtime import keys, restore
    tuners = list(restore.adopted)
    served = {tuner: tuner.cache for tuner in tuners}
    own = {tuner: {} for tuner in tuners}

    def swap(caches):
        for tuner in tuners:
            tuner.cache = caches[tuner]

    times = {"own": [], "served": []}
    swap(own)
    one_step()  # reads what the folder has
    pairs = {(tuner, key): (config, own[tuner].get(key)) for tuner in tuners for key, config in served[tuner].items()}
    found = {"keys": len(pairs), "only served": sum(mine is None for _, mine in pairs.values()), "differ": sorted(
        restore.jit_function(tuner).fn.__name__ for (tuner, _), (config, mine) in pairs.items()
        if mine is not None and keys.members(config) != keys.members(mine))}
    for i in range(0, steps // BLOCK):
        for side in ("own", "served") if i % 2 == 0 else ("served", "own"):
            swap(own if side == "own" else served)
            block = []
            for _ in range(BLOCK):
                started = time.perf_counter()
                one_step()
                block.append((time.perf_counter() - started) * 1e3)
            times[side].append(block)
    return {"turns": times, "configs": found}


def main():
    name, forward_only = sys.argv[1], "--forward" in sys.argv
    steps = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 0
    shapes = SHAPES[:int(sys.argv[sys.argv.index("--shapes") + 1])] if "--shapes" in sys.argv else SHAPES
    watch()  # before wavetune, which answers for some configs itself
    if os.environ.get("WAVETUNE_URL") or os.environ.get("WAVETUNE_CACHE"):
        import wavetune.auto  # noqa: F401  as the entry point torch.backends does, where the wheel is installed
    import fla.layers  # noqa: F401
    if "--go" in sys.argv:
        go = pathlib.Path(sys.argv[sys.argv.index("--go") + 1])
        while not go.exists():
            time.sleep(0.01)
    torch.manual_seed(0)
    model = build(name).cuda().bfloat16()
    report = {"model": name, "import_s": time.perf_counter() - STARTED, "first_s": [], "outputs": [], "gradients": []}
    for batch, length in shapes:
        x = torch.randn(batch, length, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        torch.cuda.synchronize()
        started = time.perf_counter()
        output = step(model, x, forward_only)
        report["first_s"].append(time.perf_counter() - started)
        report["outputs"].append(output.double().abs().mean().item())
        report["gradients"].append(None if forward_only else x.grad.double().abs().mean().item())
    x = torch.randn(*SHAPES[0], 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    times, turns = [], {}
    if "--turns" in sys.argv:
        turns = in_turns(steps, lambda: step(model, x, forward_only))
        steps = 0
    for _ in range(steps):
        started = time.perf_counter()
        step(model, x, forward_only)
        times.append((time.perf_counter() - started) * 1e3)
    counters = sys.modules.get("wavetune._runtime.counters")
    if counters and os.environ.get("WAVETUNE_URL"):
        time.sleep(3)  # real programs run for longer, and send meanwhile what they compiled
    folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
    report |= seen | turns | {"step_ms": times, "counters": counters.snapshot() if counters else None,
                      "launchers": len(list(folder.glob("*/__triton_launcher*.so"))),
                      "autotuned": len(list(folder.glob("*/*.autotune.json")))}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
