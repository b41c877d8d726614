#!/usr/bin/env python3
"""Programs as people have them, of packages that know nothing of wavetune; PROGRAMS names them.

    bench/packages_model.py NAME [--go FILE] [--shapes N] [--list]      prints one line of JSON

With --go the program waits for FILE once everything is imported; --shapes: only the first N cases. The line has the seconds of each
case's first step, how it ended, a mean of what it computed, and what Triton benchmarked and
compiled, also for packages with a tuner and a store of their own. A case that fails says why, and
the next one runs.
"""

import itertools
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


def mamba():
    """The state-space layers of mamba-ssm 2, its norms and its step; the CUDA extensions of the package are not needed."""
    import importlib.util
    import types
    package = types.ModuleType("mamba_ssm")
    package.__path__ = list(importlib.util.find_spec("mamba_ssm").submodule_search_locations)
    sys.modules["mamba_ssm"] = package  # its own __init__ imports them
    from mamba_ssm.ops.triton.k_activations import swiglu
    from mamba_ssm.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn
    from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
    batch, length, heads, width, groups, state = 2, 1024, 16, 64, 1, 128

    def scan(**more):
        torch.manual_seed(0)
        rates = -torch.rand(heads, device="cuda")
        inputs = [random(batch, length, heads, width, grad=True), random(batch, length, heads, grad=True),
                  rates.requires_grad_(), random(batch, length, groups, state, grad=True),
                  random(batch, length, groups, state, grad=True)]
        made = {name: make() for name, make in more.items()}
        return backward(mamba_chunk_scan_combined(*inputs, 128, dt_softplus=True, **made))

    def lengths():
        ends = torch.tensor([0, 300, 1024], device="cuda", dtype=torch.int32)
        marks = torch.repeat_interleave(torch.arange(2, device="cuda", dtype=torch.int32), ends.diff()).view(1, -1)
        return mamba_chunk_scan_combined(random(1, length, heads, width), random(1, length, heads), -torch.rand(heads, device="cuda"),
                                         random(1, length, groups, state), random(1, length, groups, state), 128, seq_idx=marks,
                                         cu_seqlens=ends, return_varlen_states=True, dt_softplus=True)[0]

    def step():
        rates = -torch.rand(heads, device="cuda").view(-1, 1, 1).expand(heads, width, state)
        steps, bias, more = random(batch, heads, 1).expand(-1, -1, width), random(heads, 1).expand(-1, width), random(heads, width)
        return selective_state_update(random(batch, heads, width, state), random(batch, heads, width), steps, rates,
                                      random(batch, groups, state), random(batch, groups, state), more,
                                      random(batch, heads, width), bias, dt_softplus=True)

    def norm(layer, *more, **named):
        x, weight = random(2048, 1024, grad=True), random(1024, grad=True)
        return backward(layer(x, weight, *more, **named))

    yield "scan", scan
    yield "scan, all inputs", lambda: scan(D=lambda: random(heads, width, grad=True), z=lambda: random(batch, length, heads, width, grad=True),
                                           dt_bias=lambda: random(heads, grad=True))
    yield "scan, D of heads", lambda: scan(D=lambda: random(heads, grad=True), initial_states=lambda: random(batch, heads, width, state))
    yield "scan, lengths", lengths
    yield "step", step
    yield "layer norm", lambda: norm(layer_norm_fn, random(1024, grad=True))
    yield "rms norm", lambda: norm(rms_norm_fn, None, residual=random(2048, 1024, grad=True))
    yield "gated norm", lambda: norm(rmsnorm_fn, None, z=random(2048, 1024, grad=True))
    yield "swiglu", lambda: backward(swiglu(random(2048, 4096, grad=True)))


def torchao():
    """Quantised products and what quantises for them: int8, int4 (HQQ), fp8 by blocks, by rows and by groups of experts."""
    from torchao.kernel import blockwise_quantization as blockwise
    from torchao.prototype.attention.quantization.triton_qkv_quantization import triton_fp8_sdpa_quantize
    from torchao.prototype.attention.quantization.triton_rope_qkv_quantization import triton_fp8_rope_sdpa_quantize
    from torchao.prototype.blockwise_fp8_training import kernels as training
    from torchao.prototype.hqq.mixed_mm import pack_2xint4, triton_mixed_mm
    from torchao.prototype.moe_training.kernels import float8_rowwise, jagged_float8_scales
    from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm_cuda
    m, n, k = 256, 1024, 2048

    def int8():
        a, b = (torch.randint(-128, 127, shape, device="cuda", dtype=torch.int8) for shape in ((m, k), (k, n)))
        return scaled_int8_mm_cuda(a, b, random(m).abs() / 100, random(n).abs() / 100)

    def int4():
        weights = pack_2xint4(torch.randint(0, 16, (k, n), device="cuda", dtype=torch.uint8))
        scales, zeros = random(k // 64, n, dtype=torch.float16), random(k // 64, n, dtype=torch.float16)
        return triton_mixed_mm(random(m, k, dtype=torch.float16) / 100, weights, scales, zeros, 64, kernel_type="max_autotune")

    def by_blocks():
        (a, of_a), (b, of_b) = blockwise.fp8_blockwise_act_quant(random(m, k)), blockwise.fp8_blockwise_weight_quant(random(n, k))
        return blockwise.blockwise_fp8_gemm(a, of_a, b, of_b)

    def layer():
        x, weight, gradient = random(m, k), random(n, k), random(m, n)
        a, of_a = training.triton_fp8_blockwise_act_quant_lhs(x)
        b, of_b = training.triton_fp8_blockwise_weight_quant_transposed_rhs(weight)
        output = training.triton_fp8_gemm_1x128_128x128(a, b, of_a, of_b)
        a, of_a = training.triton_fp8_blockwise_act_quant_lhs(gradient)
        b, of_b = training.triton_fp8_blockwise_weight_quant_rhs(weight)
        training.triton_fp8_gemm_1x128_128x128(a, b, of_a, of_b)
        a, of_a = training.triton_fp8_blockwise_act_quant_transposed_lhs(gradient)
        b, of_b = training.triton_fp8_blockwise_act_quant_rhs(x)
        return output + training.triton_fp8_gemm_1x128_128x1(a, b, of_a, of_b).mean()

    def experts():
        return torch.stack([float8_rowwise.triton_fp8_rowwise_3d_transpose_rhs(random(8, k, n))[1].mean(),
                            float8_rowwise.triton_fp8_rowwise_3d_transpose_rhs_fused_reduction(random(8, k, n))[1].mean()])

    def groups():
        ends = torch.arange(1, 5, device="cuda", dtype=torch.int32) * 64
        return torch.stack([jagged_float8_scales.triton_fp8_per_group_rowwise_scales(random(n, m), ends)[1].mean(),
                            jagged_float8_scales.triton_fp8_per_group_colwise_scales(random(m, n), ends)[1].mean()])

    def attention():
        return triton_fp8_sdpa_quantize(*(random(2, 8, 512, 64) for _ in range(3)))[3]

    def rope():
        angles = random(512, 64, dtype=torch.float32)
        return triton_fp8_rope_sdpa_quantize(*(random(2, 512, 8, 64) for _ in range(3)), angles.cos(), angles.sin())[3]

    yield "int8", int8
    yield "int4", int4
    yield "fp8 by blocks", by_blocks
    yield "fp8 layer", layer
    yield "fp8 experts", experts
    yield "fp8 groups", groups
    yield "fp8 attention", attention
    yield "fp8 attention, rope", rope


PROGRAMS = {"mamba": mamba, "torchao": torchao, "gemlite": gemlite, "flaggems": flaggems, "liger": liger, "late": late, "mlstm": mlstm, "fla": fla}


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
    if "--shapes" in sys.argv:
        cases = itertools.islice(cases, int(sys.argv[sys.argv.index("--shapes") + 1]) - 1)
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
    counters = sys.modules.get("wavetune._runtime.counters")
    if counters:
        time.sleep(3)  # real programs run for longer, and send meanwhile what they compiled
    report["first_s"] = [case["first_s"] for case in report["cases"].values()]
    print(json.dumps(report | seen | {"counters": counters.snapshot() if counters else None}))


if __name__ == "__main__":
    main()
