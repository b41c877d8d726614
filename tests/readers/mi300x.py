"""Makes the packages that name the GPU name an MI300X where there is none; their own code does the rest.

    mi300x.py -m MODULE ARGUMENT…     runs a module so

amdsmi, AMD's package that vLLM reads PCI ids with, is a stand-in: vLLM's own code then finds that it runs on ROCm and makes its
name of the id. $TEST_PCI_ID and $TEST_GPU_NAME (torch's name) name another GPU.
"""
import importlib.util
import os
import runpy
import sys
import types

PCI_ID = os.environ.get("TEST_PCI_ID", "0x74a1")
NAME = os.environ.get("TEST_GPU_NAME", "AMD Instinct MI300X")


def for_vllm():
    """Before vLLM is imported."""
    module = types.ModuleType("amdsmi")
    module.AmdSmiException = type("AmdSmiException", (Exception,), {})
    module.AmdSmiMemoryType = types.SimpleNamespace(VRAM=0)
    module.amdsmi_init = module.amdsmi_shut_down = lambda: None
    module.amdsmi_get_processor_handles = lambda: [0]
    module.amdsmi_get_gpu_asic_info = lambda handle: {
        "device_id": PCI_ID, "market_name": NAME, "target_graphics_version": "gfx942"}
    for name in ("get_gpu_device_uuid", "get_gpu_memory_total", "topo_get_link_type", "topo_get_numa_node_number"):
        setattr(module, f"amdsmi_{name}", lambda *_: 0)
    sys.modules["amdsmi"] = module


def for_torch():
    import torch
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_name = lambda device=None: NAME


def for_hip():
    """For triton-dejavu, which asks torch whether it is ROCm's, and Triton's driver for its target."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    torch.version.hip = "6.4.43484-123eb5128"
    torch.cuda.get_device_capability = lambda device=None: (9, 4)
    triton.runtime.driver.set_active(types.SimpleNamespace(
        get_current_target=lambda: GPUTarget("hip", "gfx942", 64), get_current_device=lambda: 0,
        get_current_stream=lambda device: 0, get_benchmarker=None))


if __name__ == "__main__":
    if importlib.util.find_spec("vllm"):
        for_vllm()
    for_torch()
    if importlib.util.find_spec("triton_dejavu"):
        for_hip()
    assert sys.argv[1] == "-m"
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
