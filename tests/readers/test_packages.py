"""What the installed wheel does inside of vLLM, flash-linear-attention and Liger."""

import importlib.metadata
import importlib.util
import json

import pytest
from conftest import HERE, python

CENSUS = {"fla": ("fla-core", "0.6.0", 259), "liger_kernel": ("liger-kernel", "0.8.5", 12)}
PLUGIN = """
import sys, json
from vllm.plugins import load_general_plugins
before = "wavetune._runtime.program" in sys.modules
load_general_plugins()
load_general_plugins()
program = sys.modules.get("wavetune._runtime.program")
import triton
print(json.dumps([before, "wavetune.entry" in sys.modules, program is not None and program.program() is not None,
                  getattr(triton.runtime.autotuner.Autotuner.__init__, "is_of_wavetune", False)]))
"""


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@pytest.mark.parametrize("module", CENSUS)
def test_every_autotuner_of_a_package_gets_a_closure_of_its_own(module, tmp_path):
    package, known, n = CENSUS[module]
    if version(package) is None:
        pytest.skip(f"{package} is not installed")
    out = python(HERE / "census.py", module, variables={"WAVETUNE_CACHE": str(tmp_path)})
    counts = json.loads(out.splitlines()[-1])[module]
    assert counts["adopted"] == counts["autotuners"] == counts["closures"] and counts["without"] == {}
    assert counts["functions_without"] == []
    assert version(package) != known or counts["autotuners"] == n


def plugins(**variables):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    # `import torch`, which vLLM does first, is another way in.
    out = python("-c", PLUGIN, variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables})
    return json.loads(out.splitlines()[-1])


def test_vllm_calls_the_plugin_in_its_processes(tmp_path):
    assert plugins(WAVETUNE_CACHE=str(tmp_path)) == [False, True, True, True]


def test_vllms_plugin_does_nothing_without_the_variables_and_is_not_called_where_others_are_named(tmp_path):
    assert plugins() == [False, True, False, False]
    assert plugins(WAVETUNE_CACHE=str(tmp_path), VLLM_PLUGINS="other") == [False, False, False, False]


def test_importing_torch_is_enough(tmp_path):
    text = "import torch, sys; print('wavetune._runtime.program' in sys.modules)"
    assert python("-c", text, variables={"WAVETUNE_CACHE": str(tmp_path)}).split()[-1] == "True"
    assert python("-c", text).split()[-1] == "False"
