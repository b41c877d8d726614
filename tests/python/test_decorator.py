"""The other arguments of an autotune decorator are followed, refused before anything is compiled, or reported on stderr."""

import json
import os
import subprocess

import pytest
from conftest import TRITON, edit, program, read, refusal, run

from wavetune._errors import PackError
from wavetune._pack.folder import check_fills, check_segments, load_kernel
from wavetune._pack.signature import parse_signature

HEAD = "import triton\nimport triton.language as tl\nimport triton_dejavu\n\n"
BODY = """@triton.jit
def total(x_ptr, out_ptr, n, B: tl.constexpr, none_ptr=None):
    offsets = tl.arange(0, B)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0)))
"""
PRUNE = "prune_configs_by={'early_config_prune': lambda configs, named, **rest: configs[:1]}"
READ, OUT = "x_ptr=*fp32[n]", "out_ptr=*fp32[1]"


def write(tmp_path, arguments, decorator="triton.autotune", config="{'B': 64}"):
    (tmp_path / "f.py").write_text(
        f"{HEAD}@{decorator}(configs=[triton.Config({config}), triton.Config({{'B': 128}})], key=['n'],\n"
        f"{' ' * len(decorator)}  {arguments})\n{BODY}")
    return tmp_path / "f.py"


def pack(tmp_path, *more, signature=f"{READ}, {OUT}:readwrite:zeros"):
    return ("pack", tmp_path / "f.py", "--kernel", tmp_path / "k", "-o", tmp_path / "b", "--signature", signature, "--grid", "1",
            "--key", "n=64", *more)


def arguments_of(tmp_path):
    return {argument["name"]: argument for argument in read(tmp_path / "k", "kernel.json")["arguments"]}


def nothing_was_made(tmp_path):
    return sorted(set(os.listdir(tmp_path)) - {"f.py", "space.json"}) == []


@pytest.fixture
def space(tmp_path):
    (tmp_path / "space.json").write_text(json.dumps({"configs": [{"B": 256}]}))
    return ("--space", tmp_path / "space.json")


def test_a_decorator_with_nothing_but_configs_and_key_is_packed_without_a_warning(tmp_path):
    write(tmp_path, "prune_configs_by={'top_k': 1}, reset_to_zero=[], pre_hook=None" + ", cache_results=True" * (TRITON >= (3, 4)))
    assert run(*pack(tmp_path))[1] == ""


@pytest.mark.parametrize("decorator", ["triton.autotune", "triton_dejavu.autotune"])
@pytest.mark.parametrize("pruning", [PRUNE, "prune_configs_by={'perf_model': lambda **call: 1.0, 'top_k': 1}"])
def test_configs_that_are_pruned_by_the_arguments_of_a_call_are_left_out_for_that_key(tmp_path, decorator, pruning):
    write(tmp_path, pruning, decorator)
    out, output = run(*pack(tmp_path))
    assert output == "" and "1 objects, 1 left out by prune_configs_by when n == 64" in out
    for _ in range(2):  # of the file, and of the folder that it became
        (variant,) = read(tmp_path / "b")["variants"]
        assert [o["config"]["B"] for o in variant["objects"]] == [64] and variant["when"].startswith("n == 64 and ")
        (left_out,) = variant["failed"]
        assert left_out["config"]["B"] == 128 and "prune_configs_by" in left_out["error"]
        run("pack", tmp_path / "k", "-o", tmp_path / "b", "--key", "n=64")


@pytest.mark.parametrize("body, reason", [
    ("named['n'] + named['missing'] and configs", "KeyError: 'missing'"), ("[]", "leaves no config"),
    ("configs[1:]", "the default config"), ("configs[:torch.cuda.memory_allocated()]", "torch.cuda.memory_allocated"),
    ("configs if rest['n'] == named['n'] == 64 and named['x_ptr'].dtype == torch.float32 and named['x_ptr'].numel() == 64 "
     "else None", None)])
def test_pruning_sees_the_call_and_says_what_it_lacks(tmp_path, body, reason):
    path = write(tmp_path, f"prune_configs_by={{'early_config_prune': lambda configs, named, **rest: {body}}}")
    path.write_text("import torch\n" + path.read_text())
    if reason is None:
        run(*pack(tmp_path))
        assert len(read(tmp_path / "b")["variants"][0]["objects"]) == 2
        return
    assert reason in refusal(*pack(tmp_path)) and nothing_was_made(tmp_path)


def test_pruning_that_is_ignored_packs_every_config_with_a_warning(tmp_path):
    write(tmp_path, PRUNE)
    _, output = run(*pack(tmp_path, "--ignore", "prune_configs_by"))
    assert output.count("\n") == 1 and "prune_configs_by of total" in output
    assert "format triton" in output
    assert len(read(tmp_path / "b")["variants"][0]["objects"]) == 2
    assert read(tmp_path / "b")["record"]["autotune"]["prunes"] is True


def test_the_winners_of_dejavus_functions_are_found_although_they_prune(tmp_path):
    write(tmp_path, PRUNE, "triton_dejavu.autotune")
    _, output = run(*pack(tmp_path, "--ignore", "prune_configs_by"))
    assert "every config of the space" in output


def test_configs_that_are_stated_are_packed_whatever_the_decorator_prunes(tmp_path, space):
    write(tmp_path, PRUNE)
    _, output = run(*pack(tmp_path, *space))
    assert "prune_configs_by of total" in output
    assert [o["config"] for o in read(tmp_path / "b")["variants"][0]["objects"]] == [{"B": 256}]
    _, output = run("pack", tmp_path / "k", "-o", tmp_path / "b", "--key", "n=64")
    assert f"{tmp_path}/k/f.py:5: prune_configs_by of total" in output


@pytest.mark.parametrize("hook", ["pre_hook", "post_hook"])
@pytest.mark.parametrize("decorator", ["triton.autotune", "triton_dejavu.autotune"])
def test_hooks_of_the_decorator_are_refused_unless_they_are_ignored(tmp_path, space, decorator, hook):
    write(tmp_path, f"{hook}=lambda args, **more: None", decorator)
    for more in ((), space):
        output = refusal(*pack(tmp_path, *more))
        assert f"{tmp_path}/f.py:5: " in output and f"add --ignore {hook}" in output
        assert nothing_was_made(tmp_path)
    _, output = run(*pack(tmp_path, "--ignore", hook))
    assert f"the {hook} of total's" in output


def test_hooks_of_configs_are_refused_or_reported_when_the_configs_are_stated(tmp_path, space):
    write(tmp_path, "", config="{'B': 64}, pre_hook=print")
    assert f"{tmp_path}/f.py:5: config 0 of total has a pre_hook" in refusal(*pack(tmp_path))
    _, output = run(*pack(tmp_path, *space))
    assert "configs of total have a pre_hook" in output


@pytest.mark.parametrize("decorator", ["triton.autotune", "triton_dejavu.autotune"])
def test_buffers_that_the_decorator_resets_or_restores_are_readwrite(tmp_path, decorator):
    write(tmp_path, "reset_to_zero=['out_ptr'], restore_value=['x_ptr']", decorator)
    _, output = run(*pack(tmp_path, signature=f"{READ}, {OUT}"))
    made = arguments_of(tmp_path)
    assert output == "" and made["out_ptr"]["access"] == made["x_ptr"]["access"] == "readwrite"
    assert made["out_ptr"]["fill"] == "zeros" and "fill" not in made["x_ptr"]


@pytest.mark.parametrize("listed, signature, reason", [
    ("reset_to_zero=['out_ptr']", f"{READ}, {OUT}:write", "access is write"),
    ("restore_value=['out_ptr']", f"{READ}, {OUT}:write", "access is write"),
    ("restore_value=['x_ptr']", f"{READ}:read, {OUT}:write", "access is read:"),
    ("reset_to_zero=['out_ptr']", f"{READ}, {OUT}:readwrite:index", "fill is index"),
    ("reset_to_zero=['n']", f"{READ}, {OUT}:write", "lists n"),
    ("reset_to_zero=['m']", f"{READ}, {OUT}:write", "lists m")])
def test_an_access_that_contradicts_the_decorator_is_refused(tmp_path, listed, signature, reason):
    write(tmp_path, listed)
    output = refusal(*pack(tmp_path, signature=signature))
    if listed == "reset_to_zero=['m']" and TRITON >= (3, 9):
        assert "reset_to_zero contains names that are not kernel arguments: m" in output
        return
    assert f"{tmp_path}/f.py:5: {listed.split('=')[0]} of total lists" in output and reason in output
    assert nothing_was_made(tmp_path)


def test_a_kernel_folder_that_contradicts_its_decorator_is_refused(tmp_path):
    write(tmp_path, "reset_to_zero=['out_ptr', 'none_ptr']")  # a None pointer has no buffer to reset
    run(*pack(tmp_path))
    for access, fill, reason in (("write", {}, "access is write"), ("readwrite", {}, "fill is normal")):
        edit(tmp_path / "k", "kernel.json", lambda k: k["arguments"][1].clear() or k["arguments"][1].update(
            name="out_ptr", dtype="float32", shape=["1"], access=access, **fill))
        assert reason in refusal("pack", tmp_path / "k", "-o", tmp_path / "b", "--key", "n=64")


@pytest.mark.parametrize("arguments, named", [
    ("warmup=10", "warmup of total's"),
    ("rep=10, use_cuda_graph=True", "rep and use_cuda_graph of total's"),
    ("do_bench=lambda call, quantiles: [1.0] * 3", "do_bench of total's")])
def test_measuring_options_of_the_decorator_are_reported_as_not_followed(tmp_path, arguments, named):
    write(tmp_path, arguments)
    _, output = run(*pack(tmp_path))
    assert output.count("\n") == 1 and f"{tmp_path}/f.py:5: {named}" in output


def test_measuring_options_of_dejavu_are_reported_unless_default(tmp_path):
    write(tmp_path, "warmup=25, rep=50, use_random_search=True", "triton_dejavu.autotune")
    assert "rep and use_random_search of total's" in run(*pack(tmp_path))[1]


@pytest.mark.one_triton
def test_only_known_options_can_be_ignored(tmp_path):
    write(tmp_path, "")
    assert "--ignore: invalid choice" in refusal(*pack(tmp_path, "--ignore", "restore_value"))


def test_integers_without_a_fill_are_refused_before_anything_is_compiled(tmp_path):
    write(tmp_path, "").write_text((tmp_path / "f.py").read_text().replace("none_ptr=None", "map_ptr"))
    output = refusal(*pack(tmp_path, signature=f"{READ}, {OUT}:write, map_ptr=*i32[n]"))
    assert "map_ptr is a buffer of int32" in output
    assert nothing_was_made(tmp_path)
    run(*pack(tmp_path, signature=f"{READ}, {OUT}:write, map_ptr=*i32[n]:read:integers(0,9)"))


FILLS = [("*i32[n]:read", False), ("*i32[n]:read:zeros", True), ("*i32[n]:read:index", True), ("*i1[n]:read:integers(0,1)", True),
         ("*i1[n]:read:integers(0,2)", False), ("*i8[n]:read:integers(-128,127)", True), ("*i8[n]:read:integers(0,128)", False),
         ("*u8[n]:readwrite:integers(0,255)", True), ("*u8[n]:readwrite:integers(-1,9)", False), ("*i32[n]:readwrite", False),
         ("*i32[n]:read:uniform", False), ("*i32[n]:read:uniform(0,1)", False), ("*fp32[n]:read:integers(9,0)", False),
         ("*fp32[n]:read:uniform(1,1)", False), ("*fp32[n]:read:uniform(0,1)", True), ("*fp32[n]:write:zeros", False),
         ("*i64[n]:read:integers(0,9007199254740993)", False), ("*u64[n]:read:integers(0,9007199254740992)", True)]


@pytest.mark.one_triton
@pytest.mark.parametrize("buffer, is_taken", FILLS)
def test_fills_are_taken_and_refused_as_by_the_c_programs(add_folder, buffer, is_taken):
    own = parse_signature(f"x_ptr={buffer}").arguments["x_ptr"]
    edit(add_folder, "kernel.json", lambda kernel: kernel["arguments"].__setitem__(0, own))
    done = subprocess.run([program("wavetune"), "kernel", "hash", add_folder], capture_output=True, text=True)
    assert (done.returncode == 0) == is_taken, done.stderr
    if is_taken:
        check_fills([own])
        return
    with pytest.raises(PackError, match="argument x_ptr "):
        check_fills([own])


ROUTED = {"what": "tokens", "tokens": "n", "top_k": 2, "experts": 4, "block": "BLOCK_SIZE"}
IDS = {"name": "x_ptr", "dtype": "int32", "shape": ["n * BLOCK_SIZE"], "access": "read", "segments": "BLOCK_SIZE",
       "fill": {"routed": ROUTED}}


@pytest.mark.one_triton
@pytest.mark.parametrize("change, is_taken", [
    ({}, True), ({"fill": "index"}, True), ({"dtype": "int64"}, True), ({"dtype": "int16"}, False), ({"access": "readwrite"}, False),
    ({"fill": {"routed": {**ROUTED, "skew": 1.5, "by_row": "n < 9"}}}, True), ({"fill": {"routed": {**ROUTED, "skew": 9}}}, False),
    ({"fill": {"routed": {**ROUTED, "what": "ids"}}}, False), ({"fill": {"routed": {**ROUTED, "seed": 1}}}, False),
    ({"fill": {"routed": {"what": "count"}}}, False), ({"fill": {"routed": {**ROUTED, "block": 1.5}}}, False)])
def test_routed_buffers_are_taken_and_refused_as_by_the_c_programs(add_folder, change, is_taken):
    own = {**IDS, **change}
    edit(add_folder, "kernel.json", lambda kernel: kernel["arguments"].__setitem__(0, own))
    done = subprocess.run([program("wavetune"), "kernel", "hash", add_folder], capture_output=True, text=True)
    assert (done.returncode == 0) == is_taken, done.stderr
    try:
        check_fills([own])
        check_segments(load_kernel(str(add_folder)))
    except PackError as error:
        assert not is_taken and "argument x_ptr " in str(error)
    else:
        assert is_taken


@pytest.mark.one_triton
@pytest.mark.parametrize("change, reason", [
    ({"segments": "WIDTH"}, "a segment for each value of WIDTH, which is no parameter"),
    ({"segments": None}, "reads BLOCK_SIZE, a member of the config; state \"segments\": \"BLOCK_SIZE\""),
    ({"shape": None, "value": 1}, "x_ptr is a scalar, which has no segments")])
def test_a_buffer_that_depends_on_more_of_the_config_is_refused(add_folder, change, reason):
    own = {name: value for name, value in {**IDS, **change}.items() if value is not None}
    edit(add_folder, "kernel.json", lambda kernel: kernel["arguments"].__setitem__(0, own))
    with pytest.raises(PackError, match=reason):
        check_segments(load_kernel(str(add_folder)))


@pytest.mark.one_triton
@pytest.mark.parametrize("changes, is_taken", [
    ({"x_ptr": {"dtype": "float16"}}, True), ({}, True), ({"z_ptr": None}, False), ({"x_ptr": "float16"}, False)])
def test_a_version_changes_arguments_as_for_the_c_programs(add_folder, changes, is_taken):
    edit(add_folder, "kernel.json", lambda kernel: next(iter(kernel["versions"].values())).update(arguments=changes))
    done = subprocess.run([program("wavetune"), "kernel", "hash", add_folder], capture_output=True, text=True)
    assert (done.returncode == 0) == is_taken, done.stderr
    if is_taken:
        assert load_kernel(str(add_folder)).hash in done.stdout
        return
    with pytest.raises(PackError, match='"arguments" has ._ptr, which is none'):
        load_kernel(str(add_folder))


@pytest.mark.one_triton
@pytest.mark.parametrize("fill", ["ones", {"integers": [1]}, {"uniform": "wide"}, {"normal": [0, 1]}, {}, 3])
def test_an_invalid_fill_is_refused(fill):
    with pytest.raises(PackError, match="x_ptr has the fill"):
        check_fills([{"name": "x_ptr", "dtype": "float32", "shape": ["n"], "access": "read", "fill": fill}])


@pytest.mark.one_triton
def test_a_fill_of_a_folder_is_refused_too(add_folder, tmp_path):
    edit(add_folder, "kernel.json", lambda k: k["arguments"][0].update(fill="ones"))
    assert "x_ptr has the fill" in refusal("pack", add_folder, "-o", tmp_path / "b", "--key", "n=64")


def test_a_failed_pack_does_not_hinder_the_next_one(tmp_path):
    write(tmp_path, "", config="{'B': 100}")
    (tmp_path / "f.py").write_text((tmp_path / "f.py").read_text().replace("'B': 128", "'B': 96"))
    assert "no config compiles" in refusal(*pack(tmp_path), status=1)
    assert nothing_was_made(tmp_path)
    write(tmp_path, "")
    run(*pack(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["b", "f.py", "k"]
    assert sorted(os.listdir(tmp_path / "k")) == ["f.py", "kernel.json", "space.json"]


@pytest.mark.one_triton
def test_files_that_were_in_the_folder_stay_unchanged(tmp_path):
    write(tmp_path, "")
    (tmp_path / "k").mkdir()
    (tmp_path / "k/notes.txt").write_text("mine")
    assert "does not say what" in refusal(*pack(tmp_path, signature=f"{OUT}:write"))
    assert os.listdir(tmp_path / "k") == ["notes.txt"]
    run(*pack(tmp_path))
    compact = json.dumps(read(tmp_path / "k", "kernel.json"))
    (tmp_path / "k/kernel.json").write_text(compact)
    (tmp_path / "k/f.py").unlink()
    run(*pack(tmp_path))
    assert (tmp_path / "k/kernel.json").read_text() == compact
    assert sorted(os.listdir(tmp_path / "k")) == ["f.py", "kernel.json", "notes.txt", "space.json"]
    assert "kernel.json is there" in refusal(*pack(tmp_path, "--name", "other"))
    assert (tmp_path / "k/kernel.json").read_text() == compact
