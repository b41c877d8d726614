#!/usr/bin/env python3
"""Writes the captured kernel of tests/data/kernels/gpu_captured and a build with two handwritten cases, as a builder would;
and the same without a reference, with a config more, number 4, that is wrong in one element, and with what Triton's interpreter
computes; in "misread" that is of another scale, so that the default is wrong.

    captured.py WAVETUNE ARCH FOLDER     in the environment of build/python, with python/ on the path; writes
                                         FOLDER/{captured,planted,misread}/{kernel,build}
"""

import array
import hashlib
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import triton
from triton.compiler import ASTSource
from wavetune._captured.documents import Config
from wavetune._captured.interpret import expected_of
from wavetune._runtime.closure import closure
from wavetune._runtime.texts import function_document
from wavetune._pack.source import load_function
from wavetune._pack.target import make_target, scratch_pointers, triton_version

KERNEL = Path(__file__).resolve().parent.parent / "data/kernels/gpu_captured"
SIGNATURE = {"out": "*fp32", "x": "*fp8e4nv", "index": "*i32", "table": "*i32", "again": "*i32", "scale": "fp32",
             "n": "i32"}
TABLE = array.array("i", (3 * i * i % 101 - 50 for i in range(16))).tobytes()


PLANTED = {"BLOCK": 512, "PLANTED": 1, "num_warps": 4}


def expected(jit, case, config, grid, objects, scale):
    """The interpreter's values for a case, as a builder gets them."""
    manifest, case = json.loads((KERNEL / "kernel.json").read_text()), {**case, "scale": {"value": scale}}
    arguments = [{"name": one["name"], "kind": "tensor", "dtype": one["dtype"]} if one["kind"] == "buffer" else
                 {"name": one["name"], "kind": type(case[one["name"]]["value"]).__name__, "value": case[one["name"]]["value"]}
                 for one in manifest["arguments"]]
    launch = types.SimpleNamespace(arguments=arguments, configs=[Config(config, grid, {})])
    found = expected_of(function_document(jit, closure(jit), None, [], None), launch, manifest, {"arguments": case},
                        lambda digest: str(objects / digest.removeprefix("sha256:")))
    assert not isinstance(found, str) and found.scale == 1, found
    return found.blob


def kernel_write(folder, is_planted):
    shutil.copytree(KERNEL, folder)
    if is_planted:
        manifest, space = (json.loads((folder / name).read_text()) for name in ("kernel.json", "space.json"))
        del manifest["reference"]
        space["configs"].append(PLANTED)
        (folder / "kernel.json").write_text(json.dumps(manifest))
        (folder / "space.json").write_text(json.dumps(space))
    return json.loads((folder / "space.json").read_text())["configs"]


def build_write(folder, kernel, configs, arch, scale):
    objects, target = folder / "objects", make_target(arch)
    objects.mkdir(parents=True)
    jit = load_function(KERNEL / "gather.py", "gather", target).jit

    def store(data):
        digest = hashlib.sha256(data).hexdigest()
        (objects / digest).write_bytes(data)
        return "sha256:" + digest

    def compiled(config):
        """The signature without alignment suits every case."""
        constexprs = {name: config[name] for name in ("BLOCK", "PLANTED")}
        source = ASTSource(fn=jit, signature={**SIGNATURE, **dict.fromkeys(constexprs, "constexpr")}, constexprs=constexprs)
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
        grid = [triton.cdiv(n, configs[0]["BLOCK"]), 1, 1]
        own = {} if scale is None else {"expected": store(expected(jit, case, configs[0], grid, objects, scale))}
        return {**own, "key": {"n": n, "x_dtype": "torch.float8_e4m3fn"}, "case": {"arguments": case}, "signature": SIGNATURE,
                "constexprs": {},
                "objects": [{**one, "grid": [triton.cdiv(n, one["config"]["BLOCK"]), 1, 1]} for one in code]}

    code = [compiled(config) for config in configs]
    build = {"kernel": kernel, "toolchain": {"triton": triton.__version__}, "arch": arch, "warp_size": target.warp_size,
             "variants": [variant(n, code) for n in (100003, 16777216)]}
    (folder / "build.json").write_text(json.dumps(build, sort_keys=True, separators=(",", ":")))


def main(wavetune, arch, folder):
    for name, scale in (("captured", None), ("planted", 0.088), ("misread", 1.0)):
        place = Path(folder) / name
        shutil.rmtree(place, ignore_errors=True)
        configs = kernel_write(place / "kernel", name != "captured")
        kernel = subprocess.run([wavetune, "kernel", "hash", place / "kernel"], capture_output=True, text=True, check=True)
        build_write(place / "build", kernel.stdout.split()[-1], configs, arch, scale)


main(*sys.argv[1:])
