"""Prints the function record of add_kernel.py in this folder as the Triton that runs this would have it on an H200.

record.json is what this prints under Python 3.12 with the triton 3.6.0 of PyPI, which is what wrote the .autotune.json here
(TRITON_CACHE_AUTOTUNING=1, n = 1048576, three tensors of float16):

    python3.12 tests/data/triton_autotune/make_record.py > tests/data/triton_autotune/record.json

Another Python's package has another libtriton.so, and so another triton_key() and another folder."""
import json

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.cache import triton_key

from add_kernel import add_kernel

print(json.dumps({
    "name": "add/triton",
    "triton": {"version": triton.__version__, "key": triton_key(),
               "backend_hash": make_backend(GPUTarget("cuda", 90, 32)).hash()},
    "function": {"module": "add_kernel", "name": add_kernel.fn.__name__, "cache_key": add_kernel.fn.cache_key},
    "key_names": add_kernel.keys, "tuning_key": ["n"], "argument_dtypes": ["torch.float16"] * 3,
    "configs": [str(config) for config in add_kernel.configs], "autotune": {"decorator": "triton"}}, indent=1))
