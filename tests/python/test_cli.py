"""The command line: what it prints, what it refuses and how, and that an interrupt leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import ADD, KERNELS, MATMUL, ROOT, command, edit, read, refusal, run

from wavetune._pack.keys import format_key, parse_keys

HEAD = "import triton\nimport triton.language as tl\n"


def test_env_prints_versions_without_importing_anything(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "torch/version.py").write_text(
        "from typing import Optional\n__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\n"
        "hip: Optional[str] = '6.4.43484-123eb5128'\n")
    argv, environment = command("env", "--json")
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"python": json.loads(done.stdout)["python"], "triton": "3.6.0",
                                       "torch": "2.9.0+rocm6.4", "torch_hip": "6.4.43484-123eb5128", "torch_cuda": None}


def test_env_prints_null_for_packages_that_are_not_installed():
    out, _ = run("env")
    assert json.loads(out)["torch"] is None


def test_help_describes_every_command():
    out, _ = run("--help")
    assert all(name in out for name in ("pack", "keys", "env"))
    out, _ = run("pack", "--help")
    assert "--signature" in out and "wavetune kernel push" in out


def test_pack_prints_one_document_with_json(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE == 256 and num_warps == 4"]))
    out, err = run("pack", add_folder, "--output", tmp_path / "b", "--key", "n=64", "--json")
    answer = json.loads(out)
    assert err == "" and answer["kernel"] == read(tmp_path / "b")["kernel"] and answer["build"].startswith("sha256:")
    assert [(v["objects"], v["failed"], v["keys"]) for v in answer["variants"]] == [(4, 0, [{"n": 64}])]


def test_a_build_replaces_the_one_before_it_and_nothing_else(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE == 256 and num_warps == 4"]))
    for key in ("n=64", "n=7"):
        run("pack", add_folder, "--output", tmp_path / "b", "--key", key)
    assert "n % 16 != 0" in read(tmp_path / "b")["variants"][0]["when"]
    assert sorted(os.listdir(tmp_path)) == ["add", "b"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("")
    assert "holds no build" in refusal("pack", add_folder, "--output", tmp_path / "mine", "--key", "n=64")


def test_a_cache_that_is_named_is_kept(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE == 256 and num_warps == 4"]))
    for name in ("a", "b"):
        run("pack", add_folder, "--output", tmp_path / name, "--key", "n=64", "--cache", tmp_path / "cache")
    assert os.listdir(tmp_path / "cache")
    assert (tmp_path / "a/build.json").read_bytes() == (tmp_path / "b/build.json").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_file_and_no_process(tmp_path, number):
    argv, environment = command("pack", KERNELS / "matmul.py", "--space", KERNELS / "matmul.space.json", "--kernel",
                                tmp_path / "kernel", "--output", tmp_path / "out/build", "--key", "M=64,N=64,K=64",
                                *MATMUL)
    environment["WAVETUNE_TEST_MARK"] = str(tmp_path)
    process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("out/.build.*/build/objects/*")):
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number, err
    assert os.listdir(tmp_path / "out") == []
    for status in os.listdir("/proc"):
        if status.isdigit():
            try:
                with open(f"/proc/{status}/environ", "rb") as file:
                    assert str(tmp_path).encode() not in file.read()
            except OSError:
                continue


def test_keys_show_the_specialisation_of_each_key(add_folder):
    out, _ = run("keys", add_folder, "--key", "n=1", "--key", "n=33", "--key", "n=4096", "--json")
    entries = {entry["key"]["n"]: entry for entry in json.loads(out)}
    assert entries[1]["constexprs"] == {"n_elements": 1} and "n_elements" not in entries[1]["signature"]
    assert entries[4096]["attributes"] == {"x_ptr": "DS", "y_ptr": "DS", "output_ptr": "DS", "n_elements": "D"}
    assert "n_elements" not in entries[33]["attributes"] and entries[33]["configs"] == 9
    out, _ = run("keys", add_folder, "--key", "n=33")
    assert out.startswith("n=33: 9 configs\n") and "n_elements: i32" in out


@pytest.mark.parametrize("text, value", [
    ("true", True), ("True", True), ("false", False), ("False", False), ("null", None), ("None", None), ("'true'", "true"),
    ('"False"', "False"), ("TRUE", "TRUE"), ("trueish", "trueish"), ("+7", 7), ("-7", -7), ("+1e3", 1000.0), ("fp16", "fp16")])
def test_a_value_of_a_key_means_what_it_means_to_submit(text, value):
    ((read,),) = (key.values() for key in parse_keys(f"a={text}"))
    assert read == value and type(read) is type(value)
    assert parse_keys(format_key({"a": value})) == [{"a": value}]


def test_what_pip_builds_in_the_source_folder_is_no_change_of_it():
    made = ["python/build/lib/wavetune/_cli.py", "python/wavetune.egg-info/PKG-INFO"]
    done = subprocess.run(["git", "-c", "safe.directory=*", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a checkout of git")
    assert done.stdout.split() == made


def pack_add(folder, *more):
    return ("pack", folder, "--output", folder.parent / "b", "--key", "n=64", *more)


@pytest.mark.parametrize("change, reason", [
    (lambda k: k.update(versions={}), '"versions"'),
    (lambda k: k["versions"].update(c={"language": "c"}), None),
    (lambda k: k["versions"]["triton"].update(language="hip"), "hip.*only.*triton"),
    (lambda k: k["versions"].update(other=dict(k["versions"]["triton"])), "versions.*triton, other"),
    (lambda k: k["versions"]["triton"].update(sources=["../x.py"]), "leads out"),
    (lambda k: k["versions"]["triton"].update(sources=["x.py"]), "cannot read .*x.py"),
    (lambda k: k["versions"]["triton"].update(sources=[3]), "path of a file"),
    (lambda k: k["versions"]["triton"].pop("entry"), '"entry" is missing'),
    (lambda k: k["versions"]["triton"].update(entry="other"), "function other"),
    (lambda k: k["versions"]["triton"].update(space="s.json"), "cannot read .*s.json"),
    (lambda k: k["arguments"].reverse(), "order"),
    (lambda k: k["arguments"].append({"name": "z", "dtype": "int64", "value": 1}), "parameter z"),
    (lambda k: k["arguments"].pop(), "n_elements of add_kernel.*value.*arguments"),
    (lambda k: k["arguments"].append({"name": "BLOCK_SIZE", "dtype": "int64", "value": 1}),
     "BLOCK_SIZE.*arguments.*space"),
    (lambda k: k["versions"]["triton"].update(defines={"Z": "n"}), "parameter Z.*defines"),
    (lambda k: (k["arguments"].pop(), k["versions"]["triton"].update(defines={"n_elements": "n"})),
     "n_elements.*constexpr"),
    (lambda k: k.update(key=["m"]), "key n=64.*members m"),
])
def test_a_kernel_folder_that_does_not_fit_its_function_is_refused(add_folder, change, reason):
    edit(add_folder, "kernel.json", change)
    if reason is None:
        run("keys", add_folder, "--key", "n=64")
        return
    assert re.search(reason, refusal(*pack_add(add_folder)))


@pytest.mark.parametrize("change, reason", [
    (lambda s: s["roles"].pop("num_warps"), 'num_warps.*constexpr.*"option"'),
    (lambda s: s["parameters"].update(OTHER=[1]), "OTHER.*constexpr"),
    (lambda s: (s["parameters"].update(fast=[1]), s["roles"].update(fast="option")), "fast.*role option"),
    (lambda s: s["roles"].update(num_warps="env"), "num_warps.*role env"),
    (lambda s: s["parameters"].pop("BLOCK_SIZE") and s.pop("conditions"), "BLOCK_SIZE of add_kernel.*value"),
    (lambda s: s.update(conditions=["BLOCK > 1"]), "name BLOCK "),
])
def test_a_space_that_does_not_fit_its_function_is_refused(add_folder, change, reason):
    edit(add_folder, "space.json", change)
    assert re.search(reason, refusal(*pack_add(add_folder)))


@pytest.mark.parametrize("more, reason", [
    (["--key", "m=1"], "members n"), (["--arch", "mi300"], "gfx942 or sm_90"),
    (["--grid", "1"], "--grid is"), (["--processes", "0"], "at least 1"), (["--colour"], "see --help"),
    (["--keys", "missing"], "cannot read missing"),
])
def test_a_command_line_that_makes_no_sense_is_refused(add_folder, more, reason):
    assert reason in refusal(*pack_add(add_folder, *more))


def test_an_absent_folder_is_refused(tmp_path):
    assert "cannot read" in refusal("pack", tmp_path / "none:triton", "-o", tmp_path / "b", "--key", "n=1")


FILE = HEAD + """
@triton.autotune(configs=[triton.Config({"B": 64}, num_warps=4)], key=["n"])
@triton.jit
def kernel(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), n)
"""
WRITE = "x_ptr=*fp32[n]:write"


def pack_file(tmp_path, text=FILE, signature=WRITE, grid="1", key="n=64", *more):
    (tmp_path / "f.py").write_text(text)
    return ("pack", tmp_path / "f.py", "--kernel", tmp_path / "k", "-o", tmp_path / "b", "--signature", signature,
            "--grid", grid, "--key", key, *more)


@pytest.mark.parametrize("signature, grid, reason", [
    ("x_ptr", "1", '"x_ptr" is not NAME=TYPE'), ("x_ptr=*fp32", "1", "is not NAME=*DTYPE[EXTENT"),
    ("x_ptr=*half[n]", "1", "type half"), ("x_ptr=*fp32[n]:see", "1", "access see"),
    ("x_ptr=*fp32[n]:read:ones", "1", "fill ones"), ("x_ptr=*i8[n]:read:integers(0.5,1)", "1", "no numbers"),
    (WRITE + ", x_ptr=i32", "1", "twice"), (WRITE + ", y=i32", "1", "parameter y"),
    ("x_ptr=*fp32[n]", "1", "written"), (WRITE + ", n=constexpr", "1", "NAME=TYPE"),
    ("n=i64", "1", "x_ptr=*fp16"), (WRITE, "x.shape[0]", "--grid reads x.shape[0]"),
    (WRITE, "rows", "--grid reads rows"), (WRITE, "n / 2", "/ makes floats"),
    (WRITE, "(1, 1, 1, 1)", "1 to 3 dimensions"), (WRITE, "lambda", "is no expression"),
])
def test_an_invalid_signature_or_grid_is_refused(tmp_path, signature, grid, reason):
    assert reason in refusal(*pack_file(tmp_path, FILE, signature, grid))
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("text, reason", [
    (FILE.replace('@triton.autotune(configs=[triton.Config({"B": 64}, num_warps=4)], key=["n"])\n', ""),
     "no autotune decorator"),
    (FILE.replace("num_warps=4", "pre_hook=print"), "pre_hook"),
    (FILE.replace("num_warps=4", "ir_override='x'"), "ir_override"),
    (FILE.replace('{"B": 64}', '{"B": 64.5}'), "config 0 has B = 64.5"),
    (FILE.replace('{"B": 64}', '{"B": 64, "C": 1}'), "configs set C"),
    (FILE.replace("[triton.Config", "[triton.Config({}), triton.Config"), "not set B"),
    (FILE.replace('key=["n"]', 'key=["n", "m"]'), "m=4096"),
    (FILE.replace("@triton.jit", "@triton.heuristics({'B': lambda call: call['m'] + 1})\n@triton.jit").replace('{"B": 64}', "{}"),
     "the heuristic of B of kernel cannot be evaluated for these arguments: KeyError: 'm'"),
    (FILE.replace("@triton.autotune", "@triton.autotune(configs=[], key=[])\n@triton.autotune"),
     "two autotune decorators"),
])
def test_a_decorator_that_cannot_be_packed_is_refused(tmp_path, text, reason):
    assert reason in refusal(*pack_file(tmp_path, text))


@pytest.mark.parametrize("flag", ["--kernel", "--signature", "--grid"])
def test_a_file_needs_its_signature_and_grid(tmp_path, flag):
    arguments = list(pack_file(tmp_path))
    index = arguments.index(flag)
    assert f"{flag} is missing" in refusal(*arguments[:index], *arguments[index + 2:])


def test_a_kernel_folder_is_not_overwritten_with_another_kernel(tmp_path):
    run(*pack_file(tmp_path))
    run(*pack_file(tmp_path))
    assert "kernel.json is there" in refusal(*pack_file(tmp_path, FILE, WRITE, "2"))
    assert "f.py is there" in refusal(*pack_file(tmp_path, FILE + "\n"))


def test_the_launch_of_a_file_becomes_expressions_over_key_and_config(tmp_path):
    text = FILE.replace("def kernel(x_ptr, n, ", "def kernel(x_ptr, n, rows, ").replace(
        "@triton.autotune", "WIDTH = 8\n\n@triton.autotune")
    text = text.replace("@triton.jit", '@triton.heuristics(values={"E": lambda a: a["n"] % a["B"] == 0})\n@triton.jit')
    text = text.replace("B: tl.constexpr", "B: tl.constexpr, E: tl.constexpr").replace(", n)", ", rows + n)")
    run(*pack_file(tmp_path, text, WRITE + ", rows=i32(n + 1)",
                   "lambda META: (triton.cdiv(rows, META['B']), triton.next_power_of_2(n) * 2, min(n, 3))"))
    version = read(tmp_path / "k", "kernel.json")["versions"]["triton"]
    assert version["launch"]["grid"] == ["ceil_div(n + 1, B)", "next_pow2(n) * 2", "min(n, 3)"]
    assert version["defines"] == {"E": "n % B == 0"}
    assert "(n % 64 == 0) == True" in read(tmp_path / "b")["variants"][0]["when"]


def test_buffers_have_fills_and_a_module_can_be_named(tmp_path):
    text = FILE.replace("x_ptr, n", "x_ptr, y_ptr, z_ptr, n")
    run(*pack_file(tmp_path, text, WRITE + ", y_ptr=*i8[n,2]:read:integers(-3,3), z_ptr=*bf16[n]:readwrite:uniform(0,0.5)",
                   "1", "n=64", "--module", "package.kernels", "--name", "mine"))
    kernel = read(tmp_path / "k", "kernel.json")
    assert kernel["name"] == "mine" and kernel["arguments"][1:3] == [
        {"name": "y_ptr", "dtype": "int8", "shape": ["n", "2"], "access": "read", "fill": {"integers": [-3, 3]}},
        {"name": "z_ptr", "dtype": "bfloat16", "shape": ["n"], "access": "readwrite", "fill": {"uniform": [0.0, 0.5]}}]
    assert read(tmp_path / "b")["record"]["function"]["module"] == "package.kernels"


@pytest.mark.parametrize("triton_type, dtype", [("fp8e4nv", "float8_e4m3fn"), ("fp8e5", "float8_e5m2"),
                                                ("fp8e4b8", "float8_e4m3fnuz"), ("fp8e5b16", "float8_e5m2fnuz")])
def test_8_bit_floats_are_packed(tmp_path, triton_type, dtype):
    text = FILE.replace("x_ptr, n", "x_ptr, y_ptr, n").replace(", n)\n", ", tl.load(y_ptr + tl.arange(0, B)))\n")
    run(*pack_file(tmp_path, text, WRITE + f", y_ptr=*{triton_type}[n]:read:normal"))
    assert read(tmp_path / "k", "kernel.json")["arguments"][1]["dtype"] == dtype
    (variant,) = read(tmp_path / "b")["variants"]
    assert variant["signature"]["y_ptr"] == f"*{triton_type}" and len(variant["objects"]) == 1


def test_a_python_without_triton_is_refused_with_one_that_has_it(add_folder, tmp_path):
    argv, environment = command(*pack_add(add_folder))
    (tmp_path / "triton.py").write_text("raise ImportError('no module of this name')\n")
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "cannot import triton" in done.stderr and "tests/python-env.sh" in done.stderr


def test_a_triton_that_pack_does_not_know_is_refused(add_folder, tmp_path):
    argv, environment = command(*pack_add(add_folder))
    (tmp_path / "triton.py").write_text("__version__ = '4.0.0'\n")
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "Triton 4.0.0" in done.stderr


def test_an_addition_of_the_tutorial_needs_a_space(tmp_path):
    assert "--space FILE" in refusal("pack", KERNELS / "vector_add.py", "--kernel", tmp_path / "k", "-o", tmp_path / "b",
                                     "--key", "n_elements=64", *ADD)
