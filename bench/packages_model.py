#!/usr/bin/env python3
"""Programs as people have them, of packages that know nothing of wavetune; PROGRAMS names them.

    bench/packages_model.py NAME [--go FILE] [--list]      prints one line of JSON

With --go the program waits for FILE once everything is imported. The line has the seconds of each
case's first step, how it ended, a mean of what it computed, and what Triton benchmarked and
compiled, also for packages with a tuner and a store of their own. A case that fails says why, and
the next one runs.
"""

import json
import os
import pathlib
import sys
import time

STARTED = time.perf_counter()
import torch  # noqa: E402
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from unmodified_model import seen, watch  # noqa: E402


def random(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def backward(output):
    output.float().square().mean().backward()
    return output


def gemlite():
    """Quantised layers at three batch sizes: A16W8, A8W8 with int8 and fp8, A16W4."""
    from gemlite import helper
    import gemlite as package
    n, k = 4096, 4096

    def linear():
        torch.manual_seed(0)
        return torch.nn.Linear(k, n, bias=False, device="cuda", dtype=torch.float16)

    def four_bits():
        torch.manual_seed(0)
        groups = n * k // 64
        quantised = torch.randint(0, 16, (n, k), device="cuda", dtype=torch.uint8)
        scales = random(groups, 1, dtype=torch.float16).abs() / 100
        zeros = torch.full((groups, 1), 8.0, device="cuda", dtype=torch.float16)
        return helper.A16W4_HQQ_INT(device="cuda:0", dtype=torch.float16).from_weights(quantised, scales, zeros)

    makers = {"A16W8_INT8": lambda: helper.A16W8_INT8(device="cuda:0", dtype=torch.float16).from_linear(linear()),
              "A8W8_int8": lambda: helper.A8W8_int8_dynamic(device="cuda:0", dtype=torch.float16).from_linear(linear()),
              "A8W8_fp8": lambda: helper.A8W8_fp8_dynamic(device="cuda:0", dtype=torch.float16).from_linear(linear()),
              "A16W4_HQQ": four_bits}
    assert package
    for name, make in makers.items():
        layer = []
        for m in (1, 16, 256):
            def run(m=m, layer=layer, make=make):
                if not layer:
                    layer.append(make())
                torch.manual_seed(1)
                return layer[0](random(m, k, dtype=torch.float16) / 10)
            yield f"{name} M={m}", run


def flaggems():
    """A transformer layer, forward and backward with cross entropy, then single operators that tune."""
    import flag_gems
    flag_gems.enable()

    def transformer():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 1024, dropout=0.0, batch_first=True, device="cuda",
                                                 dtype=torch.float16)
        head = torch.nn.Linear(512, 1000, device="cuda", dtype=torch.float16)
        x = random(4, 128, 512, dtype=torch.float16, grad=True)
        targets = torch.arange(512, device="cuda") % 1000
        loss = torch.nn.functional.cross_entropy(head(layer(x)).view(-1, 1000).float(), targets)
        loss.backward()
        return x.grad

    yield "transformer layer", transformer
    a, b = random(512, 1024, dtype=torch.float16), random(1024, 256, dtype=torch.float16)
    cases = {
        "mm": lambda: torch.mm(a, b), "addmm": lambda: torch.addmm(random(256, dtype=torch.float16), a, b),
        "bmm": lambda: torch.bmm(a.view(4, 128, 1024), random(4, 1024, 64, dtype=torch.float16)),
        "mv": lambda: torch.mv(a, b[:, 0].contiguous()), "sum": lambda: a.sum(), "sum dim": lambda: a.sum(1),
        "mean": lambda: a.mean(), "mean dim": lambda: a.mean(1), "amax": lambda: a.amax(1), "max": lambda: a.max(),
        "max dim": lambda: a.max(1)[0], "min": lambda: a.min(), "min dim": lambda: a.min(1)[0],
        "prod": lambda: a.float().prod(1), "all": lambda: (a > -100).all(), "any": lambda: (a > 2).any(),
        "softmax": lambda: backward(torch.softmax(random(256, 1000, grad=True), -1)),
        "log_softmax": lambda: backward(torch.log_softmax(random(256, 1000, grad=True), -1)),
        "layer_norm": lambda: backward(torch.nn.functional.layer_norm(
            random(256, 1024, grad=True), (1024,), random(1024, grad=True), random(1024, grad=True))),
        "var_mean": lambda: torch.var_mean(a.float(), 1)[0], "std": lambda: a.float().std(1),
        "vector_norm": lambda: torch.linalg.vector_norm(a.float(), dim=1),
        "batch_norm": lambda: torch.nn.functional.batch_norm(
            random(8, 64, 32, 32, dtype=torch.float32, grad=True), None, None, training=True),
        "conv2d": lambda: torch.nn.functional.conv2d(random(2, 32, 28, 28, dtype=torch.float16),
                                                     random(64, 32, 3, 3, dtype=torch.float16)),
        "argmin": lambda: a.argmin(1), "count_nonzero": lambda: torch.count_nonzero(a, 1), "triu": lambda: torch.triu(a),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(
            random(2, 8, 256, 64, dtype=torch.float16), random(2, 8, 256, 64, dtype=torch.float16),
            random(2, 8, 256, 64, dtype=torch.float16), is_causal=True),
    }
    yield from cases.items()


def liger():
    from liger_kernel.ops.dyt import LigerDyTFunction
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction

    def experts():
        hidden, inner, tokens, n = 512, 1024, 1024, 8
        torch.manual_seed(0)
        index = torch.randint(0, n, (tokens, 2), device="cuda", dtype=torch.int32)
        weights = torch.softmax(random(tokens, 2, dtype=torch.float32), -1).to(torch.bfloat16).requires_grad_()
        return backward(LigerFusedMoEFunction.apply(random(tokens, hidden, grad=True), random(n, 2 * inner, hidden, grad=True),
                                                    random(n, hidden, inner, grad=True), index, weights))

    yield "dyt", lambda: backward(LigerDyTFunction.apply(random(2, 512, 2048, grad=True), random(1, grad=True),
                                                         random(2048, grad=True), random(2048, grad=True)))
    yield "fused_moe", experts


def late():
    """Scores of late interaction in each of the package's ways, forward and backward."""
    import late_interaction_kernels as package
    from late_interaction_kernels.fp8 import maxsim_inference_fp8, quantize_fp8_per_tensor

    def tensors(d=128):
        torch.manual_seed(0)
        return (torch.nn.functional.normalize(random(8, 32, d), dim=-1).requires_grad_(),
                torch.nn.functional.normalize(random(16, 200, d), dim=-1).requires_grad_())

    def both(**more):
        q, d = tensors()
        return backward(package.maxsim(q, d, **more))

    def eight_bits():
        q, d = (one.detach() for one in tensors())
        (q, scale_q), (d, scale_d) = quantize_fp8_per_tensor(q), quantize_fp8_per_tensor(d)
        return maxsim_inference_fp8(q, d, scale_Q=scale_q, scale_D=scale_d)

    def lengths():
        q, d = tensors()
        q, d = q[:4].detach().reshape(-1, 128), d[:8].detach().reshape(-1, 128)
        cu_q = torch.arange(5, device="cuda", dtype=torch.int32) * 32
        cu_d = torch.arange(9, device="cuda", dtype=torch.int32) * 200
        return package.maxsim_varlen(q.contiguous(), d.contiguous(), cu_q, cu_d, 32, 200)

    yield "maxsim", lambda: package.maxsim(*(one.detach() for one in tensors()))
    yield "maxsim unified", lambda: both(backward="unified")
    yield "maxsim lowmem", lambda: both(backward="lowmem")
    yield "maxsim_pairs", lambda: package.maxsim_pairs(*(one.detach()[:8] for one in tensors()))
    yield "maxsim_varlen", lengths
    yield "maxsim_fp8", eight_bits


def mlstm():
    from mlstm_kernels.torch.backend_module import mLSTMBackend, mLSTMBackendConfig

    def chunks(kernel, size):
        torch.manual_seed(0)
        backend = mLSTMBackend(mLSTMBackendConfig(chunkwise_kernel=kernel, sequence_kernel="native_sequence__triton",
                                                  step_kernel="triton", chunk_size=size, return_last_states=False))
        q, k, v = random(2, 4, 512, 128, grad=True), random(2, 4, 512, 128, grad=True), random(2, 4, 512, 256, grad=True)
        return backward(backend(q=q, k=k, v=v, i=random(2, 4, 512), f=3 + random(2, 4, 512)))

    yield "xl_chunk", lambda: chunks("chunkwise--triton_xl_chunk", 128)
    yield "limit_chunk", lambda: chunks("chunkwise--triton_limit_chunk", 64)


def fla():
    """Two layers of flash-linear-attention."""
    from fla import layers

    def layer(name):
        torch.manual_seed(0)
        model = getattr(layers, name)(hidden_size=1024, num_heads=8, mode="chunk").cuda().bfloat16()
        x = random(2, 1024, 1024, grad=True)
        backward(model(x)[0])
        return x.grad

    yield "DeltaNet", lambda: layer("DeltaNet")
    yield "GatedLinearAttention", lambda: layer("GatedLinearAttention")


PROGRAMS = {"gemlite": gemlite, "flaggems": flaggems, "liger": liger, "late": late, "mlstm": mlstm, "fla": fla}


def main():
    if "--list" in sys.argv:
        print(" ".join(PROGRAMS))
        return
    name = sys.argv[1]
    watch()  # before wavetune, which answers for some configs itself
    if os.environ.get("WAVETUNE_URL") or os.environ.get("WAVETUNE_CAPTURE_TO") or os.environ.get("WAVETUNE_CACHE"):
        import wavetune.auto  # noqa: F401  as the entry point torch.backends does, where the wheel is installed
    cases = PROGRAMS[name]()
    report = {"model": name, "cases": {}, "skipped": None, "step_ms": []}
    try:
        first = next(cases)
    except Exception as error:
        print(json.dumps(report | {"skipped": f"{type(error).__name__}: {error}"[:500]}))
        return
    torch.cuda.synchronize()
    report["import_s"] = time.perf_counter() - STARTED
    if "--go" in sys.argv:
        go = pathlib.Path(sys.argv[sys.argv.index("--go") + 1])
        while not go.exists():
            time.sleep(0.01)
    case = first
    while case is not None:
        what, run = case
        before, started, why, total = dict(seen), time.perf_counter(), None, None
        try:
            output = run()
            torch.cuda.synchronize()
            total = output.double().abs().mean().item()
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        report["cases"][what] = {"first_s": round(time.perf_counter() - started, 3), "mean": total, "why": why,
                                 **{member: round(seen[member] - before[member], 3) for member in seen}}
        print(json.dumps({"case": what, **report["cases"][what]}), file=sys.stderr, flush=True)
        if why and ("illegal memory access" in why or "CUDA error" in why or "unspecified launch" in why):
            break
        case = next(cases, None)
    counters = sys.modules.get("wavetune.runtime.counters")
    if counters:
        time.sleep(3)  # real programs run for longer, and send meanwhile what they compiled
    report["first_s"] = [case["first_s"] for case in report["cases"].values()]
    print(json.dumps(report | seen | {"counters": counters.snapshot() if counters else None}))


if __name__ == "__main__":
    main()
