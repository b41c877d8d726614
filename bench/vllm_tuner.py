"""vLLM's own tuner of the block-scaled fp8 matrix product, over the configs of a space: one JSON line a key. Needs a GPU and torch.

    vllm_tuner.py TUNER.py FOLDER KEYS.jsonl [--warm PROCESSES]

TUNER.py is vLLM's benchmarks/kernels/benchmark_w8a8_block_fp8.py, unchanged; this calls its search and its timing on the function of
FOLDER (a kernel folder that `python3 -m wavetune pack --package-root` wrote) and exactly the space's valid configs for this GPU.
Of vLLM itself only what the file imports is stood in for: the function, the platform's name, the parser. With --warm the configs are
compiled by that many processes first, and each key's are launched once before it is timed, so that only measuring is timed. A line:
{"key", "seconds", "config"}.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import multiprocessing
import pathlib
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from wavetune._pack.folder import load_kernel  # noqa: E402

BLOCK = [128, 128]


def function_of(kernel, scratch):
    """The function, imported from a file that has its text below Triton's imports."""
    path = pathlib.Path(scratch, f"{kernel.entry}.py")
    if not path.exists():
        path.write_text(f"import triton\nimport triton.language as tl\n\n\n{kernel.source.read_text()}")
    spec = importlib.util.spec_from_file_location(kernel.entry, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.entry)


class Stated(types.ModuleType):
    """A module of which every name is one of these values, or the function."""

    def __init__(self, name, function, **values):
        super().__init__(name)
        self.__dict__.update(values, __path__=[], function=function)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.function


def tuner_of(path, function):
    """The tuner's file as a module."""
    import torch

    platform = types.SimpleNamespace(is_cuda=lambda: torch.version.cuda is not None, is_rocm=lambda: torch.version.hip is not None,
                                     is_xpu=lambda: False, device_type="cuda")
    names = ["vllm"]
    for tail in ("platforms", "utils", "utils.argparse_utils", "utils.platform_utils", "triton_utils", "model_executor", "model_executor.layers",
                 "model_executor.layers.quantization", "model_executor.layers.quantization.utils",
                 "model_executor.layers.quantization.utils.fp8_utils"):
        names.append(f"vllm.{tail}")
    import triton
    for name in names:
        sys.modules[name] = Stated(name, function, current_platform=platform, FlexibleArgumentParser=argparse.ArgumentParser,
                                   triton=triton)
    if importlib.util.find_spec("tqdm") is None:
        sys.modules["tqdm"] = Stated("tqdm", None, tqdm=lambda values, **_: values)
    spec = importlib.util.spec_from_file_location("tuner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(key):
    import torch

    m, n, k = key["M"], key["N"], key["K"]
    make = lambda *shape: (torch.rand(shape, device="cuda") - 0.5).to(torch.float8_e4m3fn)  # noqa: E731
    scale = lambda *shape: torch.rand(shape, device="cuda") * 1e-2  # noqa: E731
    return (make(m, k), make(n, k), scale(m, -(-k // BLOCK[1])), scale(-(-n // BLOCK[0]), -(-k // BLOCK[1])))


def compile_some(task):
    """In a process of its own: launches some configs once, so that Triton's disk cache has them."""
    import torch
    import triton

    tuner_path, folder, scratch, key, configs = task
    tuner = tuner_of(tuner_path, function_of(load_kernel(folder), scratch))
    inputs = inputs_of(key)
    for config in configs:
        try:
            tuner.w8a8_block_matmul(*inputs, BLOCK, config, torch.bfloat16)
        except triton.runtime.errors.OutOfResources:
            pass
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuner")
    parser.add_argument("folder")
    parser.add_argument("keys")
    parser.add_argument("--warm", type=int, default=0, metavar="PROCESSES")
    arguments = parser.parse_args()
    import torch

    kernel = load_kernel(arguments.folder)
    scratch = pathlib.Path(arguments.keys).resolve().parent
    keys = [json.loads(line) for line in pathlib.Path(arguments.keys).read_text().splitlines()]
    scope = {"gpu_name": torch.cuda.get_device_name(), "arch": "sm_%d%d" % torch.cuda.get_device_capability()}
    configs = list(kernel.space.points([{**scope, **keys[0]}]))
    tuner = tuner_of(arguments.tuner, function_of(kernel, scratch))
    torch.cuda.init()
    for key in keys:
        if arguments.warm:
            tasks = [(arguments.tuner, arguments.folder, scratch, key, configs[i::arguments.warm]) for i in range(arguments.warm)]
            with concurrent.futures.ProcessPoolExecutor(arguments.warm, multiprocessing.get_context("spawn")) as pool:
                list(pool.map(compile_some, tasks))
            compile_some((arguments.tuner, arguments.folder, scratch, key, configs))
        begin = time.monotonic()
        best = tuner.tune(key["M"], key["N"], key["K"], BLOCK, torch.bfloat16, configs, "fp8")
        print(json.dumps({"key": key, "seconds": time.monotonic() - begin, "config": best}), flush=True)


if __name__ == "__main__":
    main()
