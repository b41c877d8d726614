"""What the tests of the Triton bridge share: running its command line, kernels to pack, the build's own programs."""

import json
import os
import pathlib
import shutil
import sys
from importlib.metadata import version

import forks
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUNED = pathlib.Path(__file__).resolve().parent / "tuned"
KERNELS = pathlib.Path(__file__).resolve().parent / "kernels"
ADD = ["--signature", "x_ptr=*fp32[n_elements], y_ptr=*fp32[n_elements], output_ptr=*fp32[n_elements]:write",
       "--grid", "lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']), )"]
MATMUL = ["--signature", "a_ptr=*fp16[M,K], b_ptr=*fp16[K,N], c_ptr=*fp16[M,N]:write, stride_am=i64(K), "
          "stride_ak=i64(1), stride_bk=i64(N), stride_bn=i64(1), stride_cm=i64(N), stride_cn=i64(1), "
          "ACTIVATION=constexpr('leaky_relu')",
          "--grid", "lambda META: (triton.cdiv(M, META['BLOCK_SIZE_M']) * triton.cdiv(N, META['BLOCK_SIZE_N']), )"]
TRITON_VERSION = version("triton")
TRITON = tuple(map(int, TRITON_VERSION.split(".")[:2]))
OF_3_3 = ", num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0"
# How this Triton prints the members of a config that its decorator does not state.
CONFIG_END = f"{OF_3_3 if TRITON < (3, 4) else ''}, maxnreg: None{', ir_override: None' if TRITON >= (3, 9) else ''}"
if TRITON < (3, 5):  # its wheels lack the linker, which images have from ROCm
    os.environ.setdefault("TRITON_HIP_LLD_PATH", shutil.which("ld.lld-19") or "")
SOFTMAX = ["--signature", "output_ptr=*fp32[n_rows,n_cols]:write, input_ptr=*fp32[n_rows,n_cols], "
           "input_row_stride=i64(n_cols), output_row_stride=i64(n_cols)", "--grid", "min(cus * occupancy, n_rows)"]


def pytest_configure(config):
    config.addinivalue_line("markers", "one_triton: it tests code of ours that asks nothing of Triton which its versions could answer "
                            "differently (documents, limits, what travels and to whom): the Triton of build/python is enough; in doubt "
                            "a test has no such mark")


def pytest_collection_modifyitems(config, items):
    """tests/python/run.sh sets $TEST_TRITON for the other versions."""
    if os.environ.get("TEST_TRITON"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("one_triton")])
        items[:] = [item for item in items if not item.get_closest_marker("one_triton")]


def command(*arguments):
    """The command line, in the environment that it runs in."""
    programs = os.environ.get("WAVETUNE_BUILD", ROOT / "build/dev")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("WAVETUNE_BUILD", None)  # it comes before $PATH, which tests change
    return [sys.executable, "-m", "wavetune", *map(str, arguments)], environment


def run(*arguments, status=0, **environment):
    """Runs python3 -m wavetune (forks.py); returns (stdout, stderr)."""
    argv, env = command(*arguments)
    done = forks.run(argv, env={**env, **environment}, text=True)
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout, done.stderr


def refusal(*arguments, status=2):
    """The one sentence with which a command refuses."""
    out, err = run(*arguments, status=status)
    assert out == "" and err.count("\n") == 1, (out, err)
    return err


def read(folder, name="build.json"):
    return json.loads((pathlib.Path(folder) / name).read_text())


def program(name):
    """A program of the C build; skips the test if it is not built."""
    path = pathlib.Path(os.environ.get("WAVETUNE_BUILD", ROOT / "build/dev")) / name
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


@pytest.fixture
def add_folder(tmp_path):
    """A kernel folder with the vector addition, made without compiling anything: what pack writes for a file."""
    folder = tmp_path / "add"
    folder.mkdir()
    (folder / "vector_add.py").write_text((KERNELS / "vector_add.py").read_text())
    (folder / "space.json").write_text((KERNELS / "vector_add.space.json").read_text())
    buffers = [{"name": name, "dtype": "float32", "shape": ["n"], "access": access}
               for name, access in (("x_ptr", "read"), ("y_ptr", "read"), ("output_ptr", "write"))]
    (folder / "kernel.json").write_text(json.dumps({
        "name": "add", "key": ["n"], "arguments": [*buffers, {"name": "n_elements", "dtype": "int64", "value": "n"}],
        "versions": {"triton": {"language": "triton", "entry": "add_kernel", "sources": ["vector_add.py"],
                                "launch": {"grid": ["ceil_div(n, BLOCK_SIZE)"]}}}}))
    return folder


def edit(folder, name, change):
    """Rewrites a JSON file of a folder with what `change` makes of it."""
    path = folder / name
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
