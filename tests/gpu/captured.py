#!/usr/bin/env python3
"""Writes the build of tests/data/kernels/gpu_captured with two handwritten cases, as a builder would.

    captured.py KERNEL_HASH ARCH FOLDER     in the environment of build/python, with python/ on the path
"""

import array
import hashlib
import json
import sys
from pathlib import Path

import triton
from triton.compiler import ASTSource

from wavetune.source import load_function
from wavetune.target import make_target, scratch_pointers, triton_version

KERNEL = Path(__file__).resolve().parent.parent / "data/kernels/gpu_captured"
SIGNATURE = {"out": "*fp32", "x": "*fp8e4nv", "index": "*i32", "table": "*i32", "again": "*i32", "scale": "fp32", "n": "i32"}
TABLE = array.array("i", (3 * i * i % 101 - 50 for i in range(16))).tobytes()


def main(kernel, arch, folder):
    objects, target = Path(folder) / "objects", make_target(arch)
    objects.mkdir(parents=True, exist_ok=True)
    jit = load_function(KERNEL / "gather.py", "gather", target).jit
    configs = json.loads((KERNEL / "space.json").read_text())["configs"]

    def store(data):
        digest = hashlib.sha256(data).hexdigest()
        (objects / digest).write_bytes(data)
        return "sha256:" + digest

    def compiled(config):
        """The signature without alignment suits every case."""
        source = ASTSource(fn=jit, signature={**SIGNATURE, "BLOCK": "constexpr"}, constexprs={"BLOCK": config["BLOCK"]})
        result = triton.compile(source, target=target, options={"num_warps": config["num_warps"]})
        metadata = {"name": result.metadata.name, "shared": result.metadata.shared, "num_warps": config["num_warps"],
                    "warp_size": target.warp_size, "scratch": scratch_pointers(triton_version())}
        return {"config": config, "digest": store(result.asm["hsaco" if target.backend == "hip" else "cubin"]),
                "metadata": metadata}

    def variant(n, code):
        case = {"out": {"elements": n, "access": "readwrite", "fill": "zeros"},
                "x": {"elements": n, "access": "read", "fill": "normal"},
                "index": {"elements": n, "access": "read", "fill": {"permutation": n}},
                "table": {"elements": 16, "access": "read", "fill": {"blob": store(TABLE)}},
                "again": {"elements": 16, "access": "read", "alias": "table"},
                "scale": {"value": 0.088}, "n": {"value": n}}
        return {"key": {"n": n, "x_dtype": "torch.float8_e4m3fn"}, "case": {"arguments": case}, "signature": SIGNATURE,
                "constexprs": {}, "objects": [{**one, "grid": [triton.cdiv(n, one["config"]["BLOCK"]), 1, 1]} for one in code]}

    code = [compiled(config) for config in configs]
    build = {"kernel": kernel, "toolchain": {"triton": triton.__version__}, "arch": arch, "warp_size": target.warp_size,
             "variants": [variant(n, code) for n in (100003, 16777216)]}
    (Path(folder) / "build.json").write_text(json.dumps(build, sort_keys=True, separators=(",", ":")))


main(*sys.argv[1:])
