"""Identities: versions are recorded as their tools report them; missing ones are null with a note."""

import http.server
import json
import os
import re
import socket
import threading

import pytest
from conftest import KERNELS, ROOT, run

from wavetune._canonical import digest
from wavetune._errors import PackError
from wavetune._pack.identity import dejavu_runtime, function_record, make_identity

TORCH = {"torch/__init__.py": """
class cuda:
    class tunable:
        get_validators = staticmethod(lambda: (("PT_VERSION", "2.9.1"), ("GCN_ARCH_NAME", "gfx942:sramecc+:xnack-")))
    device_count = staticmethod(lambda: 8)
    get_device_name = staticmethod(lambda: "AMD Instinct MI300X/OAM")
class Tensor: pass
""", "torch/version.py": "__version__ = '2.9.1'\nhip = '6.4.43484-123eb5128'\ncuda = None\n"}
DEJAVU = {"triton_dejavu/__init__.py": """
import os
open(os.path.join(os.environ["TRITON_DEJAVU_STORAGE"], "litter"), "w").close()
assert "TRITON_DEJAVU_FORCE_FALLBACK" not in os.environ
class Autotuner:
    def __init__(self, fn):
        self.fn, self.orig_keys, self.configs = fn, ["n"], ["BLOCK: 64", "BLOCK: 128"]
        self.quantiles, self.warmup_t, self.rep_t, self.use_cuda_graph, self.ignore_dtypes = (0.5, 0.2, 0.8), 25, 50, True, False
        self.use_bo, self.use_random_search, self.max_search_time_s, self.search_max_n_trials = False, True, 180, 7
        self._param_hash, self.key_hash, self.configs_hash = "a" * 64, "b" * 64, "c" * 64
""", "triton_dejavu/dejavu_utilities.py": """
def get_storage_identifier():
    return "dejavu_0.7/triton_3.6.0/rocm_6.4.1/gpu_AMD_Instinct_MI300X_OAM"
""", "ops.py": """
import triton, triton_dejavu, triton.language as tl
@triton_dejavu.Autotuner
@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, n)
"""}
VLLM = {"vllm/__init__.py": "", "vllm/platforms.py": """
class current_platform:
    get_device_name = staticmethod(lambda: "AMD_Instinct_MI300X")
"""}
NO_TRITON = {"triton.py": "raise ImportError('no triton')\n"}


def install(tmp_path, *packages):
    """A PYTHONPATH with stand-ins of packages."""
    for name, text in [item for files in packages for item in files.items()]:
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"{ROOT / 'python'}:{tmp_path / 'site'}:{KERNELS}"


def test_an_image_is_recorded_with_the_values_of_its_tools(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "rocm/.info").mkdir(parents=True)
    (tmp_path / "rocm/.info/version").write_text("6.4.1-83\n")
    out, err = run("identity", "--arch", "gfx942", "--function", "ops/add=ops:add", "--json", TRITON_F32_DEFAULT="ieee",
                   PYTHONPATH=install(tmp_path, TORCH, DEJAVU, VLLM), TRITON_DEJAVU_STORAGE=str(tmp_path / "storage"),
                   TRITON_DEJAVU_FORCE_FALLBACK="1", ROCM_PATH=str(tmp_path / "rocm"))
    document = json.loads(out)
    identity = document["identity"]
    (record,) = identity.pop("functions")
    assert identity.pop("triton")["backend_hash"] == "GPUTarget(backend='hip', arch='gfx942', warp_size=64)"
    assert identity == {
        "version": 1, "torch": "2.9.1", "hip": "6.4.43484-123eb5128", "rocm": "6.4.1", "gpu": "AMD Instinct MI300X/OAM",
        "devices": 8, "variables": {"TRITON_F32_DEFAULT": "ieee"}, "moe_device_name": "AMD_Instinct_MI300X",
        "dejavu": {"layout": "dejavu_0.7", "triton": "3.6.0", "runtime": "rocm_6.4.1", "gpu": "AMD_Instinct_MI300X_OAM"},
        "tunableop": {"validators": [["PT_VERSION", "2.9.1"], ["GCN_ARCH_NAME", "gfx942:sramecc+:xnack-"]]}}
    assert (record["name"], record["function"]["signature"]) == ("ops/add", "JITFunction(ops:add)")
    assert record["configs"] == ["BLOCK: 64", "BLOCK: 128"] and record["autotune"]["decorator"] == "triton_dejavu"
    assert record["dejavu"].pop("code_version")
    assert record["dejavu"] == {
        "layout": "dejavu_0.7", "autotune_config": "a" * 64, "tune_features": "b" * 64, "kernel_configs": "c" * 64,
        "quantiles": [0.5, 0.2, 0.8], "warmup": 25, "rep": 50, "use_cuda_graph": True, "ignore_dtypes": False}
    assert document["notes"] == [] and err == "" and os.listdir(tmp_path / "storage") == []


def test_the_paths_of_dejavu_follow_from_torch_where_it_is_not_installed(tmp_path):
    out, _ = run("identity", "--arch", "gfx942", PYTHONPATH=install(tmp_path, TORCH))
    assert json.loads(out)["dejavu"] == {"layout": "dejavu_0.7", "triton": "3.6.0", "gpu": "AMD_Instinct_MI300X_OAM",
                                         "runtime": "rocm_torch_6.4.43484-123eb5128"}  # Triton 3.6 has no linker


@pytest.mark.parametrize("versions, stated, runtime", [
    ({"torch_hip": "6.4.4", "torch_cuda": None}, {"_TRITON_DEJAVU_DETERMINED_ROCM_VERSION": "6.4.1"}, "rocm_6.4.1"),
    ({"torch_hip": "6.4.4", "torch_cuda": None}, {}, "rocm_torch_6.4.4"),
    ({"torch_hip": None, "torch_cuda": "13.0"}, {"_TRITON_DEJAVU_DETERMINED_CUDA_VERSION": "12.8"}, "cuda_12.8"),
    ({"torch_hip": None, "torch_cuda": "13.0"}, {}, r"cuda_\d+\.\d+"),
    ({"torch_hip": None, "torch_cuda": None}, {}, None)])
def test_the_runtime_in_dejavus_path_is_found_by_its_rules(monkeypatch, versions, stated, runtime):
    for name in ("ROCM", "CUDA"):
        monkeypatch.delenv(f"_TRITON_DEJAVU_DETERMINED_{name}_VERSION", raising=False)
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    found = dejavu_runtime(versions)
    assert found is runtime or re.fullmatch(runtime, found)


def test_missing_packages_are_no_error(tmp_path):
    out, err = run("identity", "--function", "a=ops:add", PYTHONPATH=install(tmp_path, NO_TRITON))
    assert json.loads(out) == {"version": 1, "functions": [], "variables": {}, **dict.fromkeys((
        "triton", "torch", "hip", "rocm", "gpu", "devices", "dejavu", "tunableop", "moe_device_name"))}
    assert "triton cannot be imported" in err and "--gpu" in err


def test_a_module_that_cannot_be_imported_is_a_note_and_the_others_are_recorded(tmp_path):
    path = install(tmp_path, {"needy.py": "raise RuntimeError('no GPU')\n"})
    hash_ = "sha256:" + "0" * 64
    out, err = run("identity", "--arch", "gfx942", "--function", "a=needy:add", "--function", f"{hash_}=scaled:scale_kernel",
                   "--output", tmp_path / "etc/identity.json", "--json", PYTHONPATH=path)
    document = json.loads(out)
    assert any(re.search("needy.*add.*RuntimeError: no GPU", note) for note in document["notes"])
    text = (tmp_path / "etc/identity.json").read_text()
    (record,) = json.loads(text)["functions"]
    assert record["kernel"] == hash_ and "name" not in record and record["key_names"] == record["tuning_key"] == ["n"]
    assert document["digest"] == digest(json.loads(text)) and os.listdir(tmp_path / "etc") == ["identity.json"]


@pytest.mark.parametrize("place, reason", [
    ("ops", "package.module:function"), ("json:nothing", "json .*nothing"),
    ("json:dumps", "json:dumps .*@triton.jit")])
def test_an_invalid_function_is_refused(place, reason):
    with pytest.raises(PackError, match=reason):
        function_record("a", place, None, [])
    with pytest.raises(PackError, match='"ops:add" .*KERNEL='):
        make_identity("gfx942", None, ["ops:add"])


class Keeper(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_an_identity_is_put_at_the_server_under_its_digest(tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeper)
    server.seen, server.status = [], 201
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    there = {"WAVETUNE_URL": f"http://127.0.0.1:{server.server_port}/", "WAVETUNE_TOKEN": "secret",
             "PYTHONPATH": install(tmp_path, NO_TRITON)}
    out, _ = run("identity", "--put", "--output", tmp_path / "i.json", "--json", **there)
    own = json.loads(out)["digest"]
    assert server.seen == [(f"/v1/images/{own}", "Bearer secret", (tmp_path / "i.json").read_bytes())]
    server.status = 403
    _, err = run("identity", "--put", "--output", tmp_path / "i.json", status=4, **there)
    assert "answered 403" in err
    server.shutdown()
    server.server_close()
    with socket.socket() as closed:  # has a port, which no other process can get, and does not listen
        closed.bind(("127.0.0.1", 0))
        there["WAVETUNE_URL"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
        _, err = run("identity", "--put", "--output", tmp_path / "i.json", status=3, **there)
    assert "does not answer" in err


def test_putting_an_identity_needs_the_server():
    assert "WAVETUNE_URL" in run("identity", "--put", status=2, WAVETUNE_URL="")[1]


def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in run("identity", "-o", tmp_path / "file/identity.json", status=1)[1]
