"""Captured kernels: written by hand, run on a simulated GPU (tests/fake_hip) and with a server."""

import array
import hashlib
import json
import subprocess

import harness
import pytest
from harness import wavetune
from test_gpu_agent import QUICK, agent_on_gpu, code, gpu, pytestmark, tune  # noqa: F401 (marks of this module)

N = 1000
REFERENCE = """#include <stdint.h>
double y_at(int64_t i, float *y, const float *x, int64_t n) { return %s; }
"""
SPACE = {"configs": [{"MODE": 0}, {"MODE": 7}, {"MODE": 1}], "default": {"MODE": 0}}
PLAIN = {"y": {"elements": N, "access": "readwrite", "fill": "zeros"},
         "x": {"elements": N, "access": "read", "fill": {"ramp": [1, 2]}}, "n": {"value": N}}


def captured_kernel(folder, expected="2.0 * (double)i + 2"):
    folder.mkdir()
    (folder / "add.py").write_text("import triton\n")
    (folder / "reference.c").write_text(REFERENCE % expected)
    (folder / "space.json").write_text(json.dumps(SPACE))
    (folder / "kernel.json").write_text(json.dumps({
        "name": "captured/fake_add", "key": ["n", "dtype"], "cases": "build",
        "arguments": [{"name": "y", "dtype": "float32", "kind": "buffer"},
                      {"name": "x", "dtype": "float32", "kind": "buffer"},
                      {"name": "n", "dtype": "int64", "kind": "scalar"}],
        "reference": {"source": "reference.c", "outputs": {"y": "y_at"}, "rtol": 1e-6, "atol": 1e-6},
        "versions": {"triton": {"language": "triton", "entry": "fake_add", "sources": ["add.py"]}}}))
    return folder


def without_reference(kernel, default=0):
    """`default`: its MODE; 1 computes something else than the other two."""
    document = json.loads((kernel / "kernel.json").read_text())
    del document["reference"]
    (kernel / "kernel.json").write_text(json.dumps(document))
    (kernel / "space.json").write_text(json.dumps({**SPACE, "default": {"MODE": default}}))
    return kernel


def captured_build(folder, kernel, tmp_path, cases, blobs=(), compiled=(0, 7)):
    """What a builder would write: for each (key, arguments) configs 0 and 7 compiled; 1, a wrong one, failed or not."""
    bytes_ = code(tmp_path)
    (folder / "objects").mkdir(parents=True)
    for data in (bytes_, *blobs):
        (folder / "objects" / hashlib.sha256(data).hexdigest()).write_bytes(data)
    kernel_hash = json.loads(wavetune(None, "kernel", "hash", kernel, "--json").stdout)["kernel"]

    def entry(mode):
        return {"config": {"MODE": mode}, "digest": "sha256:" + hashlib.sha256(bytes_).hexdigest(), "grid": [16, 1, 1],
                "metadata": {"name": "fake_add", "shared": 1024, "num_warps": mode + 1, "warp_size": 64, "scratch": 2}}

    variants = [{"key": key, "case": {"arguments": arguments}, "signature": {"y": "*fp32", "x": "*fp32", "n": "i64"},
                 "constexprs": {}, "objects": [entry(mode) for mode in compiled],
                 "failed": [{"config": {"MODE": mode}, "error": "out of resource: shared memory"}
                            for mode in (1,) if mode not in compiled]}
                for key, arguments in cases]
    build = {"kernel": kernel_hash, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64,
             "variants": variants}
    (folder / "build.json").write_text(json.dumps(build, sort_keys=True, separators=(",", ":")))
    return folder


KEY = {"n": N, "dtype": "torch.float32"}


def expected_blob(values, start=0):
    """What a builder would keep for y, from element `start` on (common/builds/expected.h)."""
    head = {"version": 1, "seed": 1, "grid": [16, 1, 1], "programs": [[0, 0, 0]],
            "buffers": [{"argument": "y", "dtype": "float32", "runs": 1, "values": len(values)}]}
    return (json.dumps(head, sort_keys=True).encode() + b"\n" + array.array("q", [start, len(values)]).tobytes() +
            array.array("f", values).tobytes())


def with_expected(build, blob):
    """Adds the blob to the build's only variant."""
    document = json.loads((build / "build.json").read_text())
    document["variants"][0]["expected"] = "sha256:" + hashlib.sha256(blob).hexdigest()
    (build / "objects" / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    (build / "build.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    return build


def test_configs_are_compared_with_what_the_interpreter_computed(tmp_path):
    """y = 2 i + 2; of the default, the first."""
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)])
    done = tuned(tmp_path, kernel, with_expected(build, expected_blob([2.0 * i + 2 for i in range(8, 24)], 8)))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"correct": 2, "compile": 1}


def test_a_default_that_the_interpreter_contradicts_ends_the_tuning(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)])
    done = tuned(tmp_path, kernel, with_expected(build, expected_blob([2.0 * i + (3 if i == 7 else 2) for i in range(16)])))
    assert done.returncode != 0
    assert "y[7] is 16, Triton's interpreter has 17" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("scale, has_values, returncode", [(1 / 16, True, 0), (None, True, 1), (1 / 16, False, 0)])
def test_inputs_have_the_scale_that_the_case_states(tmp_path, scale, has_values, returncode):
    """What was computed for inputs of 1/16 is what configs compute only if the case states it. Of kernels with atomics only the
    scale is known."""
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    arguments = {**PLAIN, "x": {"elements": N, "access": "read", "fill": "normal"}}
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, arguments)])
    document = json.loads((build / "build.json").read_text())
    case = {"arguments": arguments, "scale": 1 / 16}
    filled = inputs_of(tmp_path, kernel, **case)
    y, x = (array.array("f", part) for part in (filled[:4 * N], filled[4 * N:]))
    assert set(y) == {0} and 0.04 < max(x) < 0.4

    if scale:
        document["variants"][0]["case"] = case
    if not has_values:
        document["variants"][0]["not_interpreted"] = "it uses atomic operations"
    (build / "build.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    done = tuned(tmp_path, kernel, with_expected(build, expected_blob([value + 1 for value in x])) if has_values else build)
    assert (done.returncode != 0) == returncode, done.stderr
    assert ("Triton's interpreter has" in done.stdout + done.stderr) == bool(returncode), done.stdout + done.stderr


def test_garbled_expected_values_are_refused(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)])
    done = tuned(tmp_path, kernel, with_expected(build, expected_blob([1.0])[:-1]))
    assert done.returncode != 0 and "it ends before its last value" in done.stdout + done.stderr, done.stderr


def tune_all(kernel, tmp_path, *more):
    """Without --key."""
    words = [harness.BUILD / "wavetune-agent", "tune", kernel, "--state", tmp_path / "state", *QUICK, *more]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, env={**harness.os.environ, **gpu(tmp_path)})


def tuned(tmp_path, kernel, build, key="n=1000,dtype=torch.float32"):
    return tune(kernel, tmp_path, "--build", build, "--json", "--key", key)


def test_tune_runs_a_captured_kernel(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel")
    build = captured_build(tmp_path / "build", kernel, tmp_path, [({**KEY, "n": 1000.0}, {}), (KEY, PLAIN)])
    done = tuned(tmp_path, kernel, build)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 2, "compile": 1}, answer
    assert answer["winner"]["lds_bytes"] == 1024


def test_one_process_tunes_what_lines_of_its_input_name(tmp_path):
    """--stdin: what cannot be tuned has a line of its own, and the next is tuned."""
    kernel = captured_kernel(tmp_path / "kernel")
    build = captured_build(tmp_path / "build", kernel, tmp_path, [({**KEY, "n": 1000.0}, {}), (KEY, PLAIN)])
    good = {"folder": str(kernel), "build": str(build), "keys": [KEY]}
    lines = [json.dumps(good), "{", json.dumps({**good, "folder": str(tmp_path)}), json.dumps({**good, "keys": []}), json.dumps(good)]
    words = [harness.BUILD / "wavetune-agent", "tune", "--stdin", "--device", "hip0", "--json", "--state", tmp_path / "state", *QUICK]
    done = subprocess.run([str(word) for word in words], input="\n".join(lines), capture_output=True, text=True,
                          timeout=600, env={**harness.os.environ, **gpu(tmp_path)})
    said = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = ["winner" if "winner" in one else next(iter(one)) for one in said]
    assert kinds == ["winner", "campaign", "error", "error", "error", "winner", "campaign"], done.stdout + done.stderr
    assert "kernel.json" in said[3]["error"] and "keys" in said[4]["error"] and done.returncode == 0


@pytest.mark.parametrize("words", [["kernels/softmax"], ["--key", "n=1"], ["--keys", "file"], ["--build", "folder"], ["--samples", "file"]])
def test_what_lines_of_its_input_name_is_named_nowhere_else(tmp_path, words):
    words = [harness.BUILD / "wavetune-agent", "tune", "--stdin", "--device", "hip0", "--state", tmp_path / "state", *words]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL,
                          env={**harness.os.environ, **gpu(tmp_path)})
    assert done.returncode == 2 and "leave out" in done.stderr, done.stderr


def test_a_buffer_holds_the_bytes_of_the_capture(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel", "i * i % 7 + 1.0")
    blob = array.array("f", (i * i % 7 for i in range(N))).tobytes()
    x = {"elements": N, "access": "read", "fill": {"blob": "sha256:" + hashlib.sha256(blob).hexdigest()}}
    done = tuned(tmp_path, kernel, captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, {**PLAIN, "x": x})], [blob]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"correct": 2, "compile": 1}


def test_two_arguments_may_be_one_buffer(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel", "x[i] + 1.0")
    y = {"elements": N, "access": "readwrite", "fill": {"ramp": [0, 3]}}
    case = {**PLAIN, "y": y, "x": {"elements": N, "access": "read", "alias": "y"}}
    done = tuned(tmp_path, kernel, captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, case)]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"correct": 2, "compile": 1}


def inputs_of(tmp_path, kernel, arguments, **more):
    """What the agent fills the buffers with, one after another."""
    manifest = {**json.loads((kernel / "kernel.json").read_text()), "language": "triton", "entry": "fake_add",
                "sources": [{"path": "add.py", "digest": "sha256:" + "0" * 64}]}
    del manifest["versions"]
    for name, value in (("manifest.json", manifest), ("case.json", {"arguments": arguments, **more}), ("blob", None)):
        (tmp_path / name).write_text(json.dumps(value))
    return subprocess.run([harness.BUILD / "tests/inputs", tmp_path / "manifest.json", tmp_path / "case.json", "1",
                           tmp_path / "blob"], capture_output=True, check=True).stdout


@pytest.mark.parametrize("regime", ["warm", "cold"])
def test_views_of_one_storage_are_passed_as_the_program_had_them(tmp_path, regime):
    """x follows y in the storage."""
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    case = {"y": {"elements": N, "before": 8, "after": N + 16, "access": "readwrite", "fill": "normal"},
            "x": {"elements": N, "before": N + 16, "access": "read", "alias": "y"}, "n": {"value": N}}
    storage = array.array("f", inputs_of(tmp_path, kernel, case))
    assert len(storage) == 2 * N + 24
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, case)])
    blob = expected_blob([value + 1 for value in storage[N + 16:2 * N + 16]], 8)
    done = tune(kernel, tmp_path, "--build", with_expected(build, blob), "--json", "--key", "n=1000,dtype=torch.float32",
                "--regime", regime)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["outcomes"], answer["winner"]["agreement"]) == ({"correct": 2, "compile": 1}, "bitwise"), answer


def test_bytes_around_a_view_belong_to_the_output(tmp_path):
    """With MODE 4 a config writes one more element, which the default leaves as it was."""
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    (kernel / "space.json").write_text(json.dumps({"configs": [{"MODE": 0}, {"MODE": 7}, {"MODE": 4}], "default": {"MODE": 0}}))
    case = {**PLAIN, "y": {**PLAIN["y"], "after": 100}}
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, case)], compiled=(0, 7, 4))
    done = tuned(tmp_path, kernel, build)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 2, "correctness": 1}, answer
    assert "y[1000] is 1, the default config has 0" in answer["examples"]["correctness"], answer


# x is 0.5 everywhere
FILLED = {"fills": [["x", 4 * N, 0x3f000000]], "arguments": ["y", "x", {"i64": N}]}


def with_objects(build, *members):
    """Adds members to the objects of the build's only variant, in turn."""
    document = json.loads((build / "build.json").read_text())
    for entry, more in zip(document["variants"][0]["objects"], members):
        entry.update(more)
    (build / "build.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    return build


def filling_build(tmp_path, kernel, *members):
    case = {"y": PLAIN["y"], "x": {**PLAIN["x"], "access": "readwrite"}, "n": {"value": N}}
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, case)])
    return with_objects(build, *members)


@pytest.mark.parametrize("regime", ["warm", "cold"])
def test_what_an_object_states_is_filled_and_passed_in_every_launch(tmp_path, regime):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = with_expected(filling_build(tmp_path, kernel, FILLED, FILLED), expected_blob([1.5] * N))
    done = tune(kernel, tmp_path, "--build", build, "--json", "--regime", regime,
                "--key", "n=1000,dtype=torch.float32")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 2, "compile": 1}, answer
    assert answer["winner"]["agreement"] == "bitwise", answer


def test_a_config_without_the_fill_of_its_default_disagrees(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    done = tuned(tmp_path, kernel, filling_build(tmp_path, kernel, FILLED))
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 1, "correctness": 1, "compile": 1}, answer
    assert "y[0] is 2, the default config has 1.5" in answer["examples"]["correctness"], answer


TENSORMAP = {"base": "x", "type": 7, "shape": [N], "strides": [], "box": [8], "swizzle": 0,
             "fill": 0}


@pytest.mark.parametrize("members, pointer, words", [
    ({"fills": [["x", 4 * N + 4, 0]]}, "fills/0",
     '4004 bytes of argument "x" are filled, which has 4000 from where it points'),
    ({"fills": [["x", 3, 0]]}, "fills/0", 'a fill is ["ARGUMENT", BYTES, WORD]'),
    ({"arguments": ["y", "z"]}, "arguments/1", 'the object takes an argument "z"'),
    ({"arguments": ["y", {"tensormap": TENSORMAP}]}, "arguments/1", "gfx942 has no tensor maps"),
])
def test_what_an_object_cannot_fill_or_pass_is_refused_when_it_is_pushed(
        server, tmp_path, members, pointer, words):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = filling_build(tmp_path, kernel, {}, members)
    wavetune(server, "kernel", "push", kernel)
    document = json.loads((build / "build.json").read_text())
    path = f"/v1/kernels/{document['kernel']}/builds/sha256:{'0' * 64}"
    answer = server.request("PUT", path, document)
    assert answer.status == 422, answer
    assert answer.json["pointer"] == f"/variants/0/objects/1/{pointer}", answer
    assert words in answer.json["detail"], answer


def test_code_that_takes_other_arguments_than_its_object_states_is_not_used(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    build = filling_build(tmp_path, kernel, {}, {"arguments": ["y", "x", {"i32": N}]})
    done = tuned(tmp_path, kernel, build)
    assert json.loads(done.stdout)["outcomes"] == {"correct": 1, "compile": 2}, done
    checked = wavetune(None, "kernel", "check", build, "--kernel", kernel, check=False)
    words = 'argument "/arguments/2" takes 8 bytes in its code and 4 by the signature'
    assert words in checked.stdout, checked


def test_all_captured_keys_are_tuned_where_none_is_named(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel")
    assert "give the folder that `python3 -m wavetune build` wrote" in tune_all(kernel, tmp_path).stderr
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN), ({**KEY, "n": 1000.0}, PLAIN)])
    done = tune_all(kernel, tmp_path, "--build", build, "--json")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["key"]["n"] for a in answers if "key" in a] == [1000, 1000.0], answers
    document = json.loads((build / "build.json").read_text())
    for variants, word in (([], "the build has no variants"), ([{"key": {"n": 1}}], "variant 0 of the build: "),
                           ([{}], "variant 0")):
        (build / "build.json").write_text(json.dumps({**document, "variants": variants}))
        done = tune_all(kernel, tmp_path, "--build", build)
        assert done.returncode == 2 and word in done.stderr, done


def test_a_kernel_without_a_reference_must_agree_with_its_default(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"))
    case = {**PLAIN, "x": {"elements": N, "access": "read", "fill": "normal"}}
    done = tuned(tmp_path, kernel, captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, case)], compiled=(0, 7, 1)))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 2, "correctness": 1} and answer["failed"] == {"correctness": [2]}, answer
    assert answer["agreement"] == {"bitwise": 2, "disagrees": 1} and answer["winner"]["agreement"] == "bitwise"
    assert "the default config has" in answer["examples"]["correctness"]


def test_a_default_in_the_minority_has_no_winner(tmp_path):
    kernel = without_reference(captured_kernel(tmp_path / "kernel"), default=1)
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)], compiled=(0, 7, 1))
    done = tuned(tmp_path, kernel, build)
    assert done.returncode == 1, done
    answer = json.loads(done.stdout)
    assert answer["error"].startswith("configs disagree: 2 of 3 differ from the default; nothing is published"), answer
    assert "winner" not in answer and answer["agreement"] == {"bitwise": 1, "disagrees": 2}, answer


def submitted(server, start, tmp_path, default, expected=None):
    """A kernel without a reference, of whose configs MODE 1 is wrong, measured by an agent: how `submit` ended, and the job.
    `expected`: the interpreter's values."""
    agent = agent_on_gpu(start, server, tmp_path)
    kernel = without_reference(captured_kernel(tmp_path / "kernel"), default)
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)], compiled=(0, 7, 1))
    if expected:
        with_expected(build, expected_blob(expected))
    wavetune(server, "kernel", "push", kernel, "--build", build)
    done = wavetune(server, "submit", kernel, "--key", "n=1000,dtype=torch.float32", "--wait", "--json", check=False)
    assert done.returncode in (0, 1), (done, agent.messages)
    job, = json.loads(done.stdout)
    return done.returncode, job


def test_a_wrong_config_is_found_and_neither_wins_nor_is_released(server, start, tmp_path):
    status, job = submitted(server, start, tmp_path, default=0)
    assert (status, job["state"], job["outcomes"]) == (0, "done", {"correct": 2, "correctness": 1}), job
    assert job["winner"]["agreement"] == "bitwise" and job["winner"]["config_values"]["MODE"] != 1, job
    assert 2 not in job["winner"]["verdict"]["equivalence_set"]
    measured = server.items(f"/v1/jobs/{job['job']}/measurements")
    assert {(m["config"], m["outcome"], m["conditions"]["agreement"]) for m in measured} == {
        (0, "correct", "bitwise"), (1, "correct", "bitwise"), (2, "correctness", "disagrees")}
    assert all(m["conditions"]["agreement_sets"] == 3 for m in measured if m["outcome"] == "correct")
    made = json.loads(wavetune(server, "publish", "--environment", "{}", "--require-agreement", "bitwise", "--json").stdout)
    assert made["included"][0]["agreement"] == "bitwise", made


def test_a_wrong_default_leaves_a_job_without_a_winner(server, start, tmp_path):
    status, job = submitted(server, start, tmp_path, default=1)
    assert (status, job["state"], job["winner"]) == (1, "done", None), job
    assert job["reason"].startswith("configs disagree: 2 of 3 differ from the default; nothing is published; look at"), job
    refused = wavetune(server, "publish", "--environment", "{}", check=False)
    assert refused.returncode != 0 and "nothing can be released" in refused.stderr, refused


def test_a_reference_that_is_added_later_is_the_same_kernels(server, start, tmp_path):
    agent = agent_on_gpu(start, server, tmp_path)
    kernel = captured_kernel(tmp_path / "kernel")
    checked = (kernel / "kernel.json").read_text()
    without_reference(kernel)
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)], compiled=(0, 7, 1))
    wavetune(server, "kernel", "push", kernel, "--build", build)
    registered, = server.items("/v1/kernels")
    path = f"/v1/kernels/{registered['kernel']}"

    def submit(run):
        done = wavetune(server, "submit", kernel, "--key", "n=1000,dtype=torch.float32", "--run", run, "--wait", "--json", check=False)
        assert done.returncode == 0, (done, agent.messages)
        return json.loads(done.stdout)[0]

    def wrong(job):
        return {m["detail"].split(" (")[0] for m in server.items(f"/v1/jobs/{job['job']}/measurements") if m["config"] == 2}

    before, bare = submit("before"), server.get(path)["manifest"]
    assert before["winner"]["agreement"] == "bitwise" and wrong(before) == {"y[0] is 3, the default config has 2"}
    (kernel / "kernel.json").write_text(checked)
    assert json.loads(wavetune(None, "kernel", "hash", kernel, "--json").stdout)["kernel"] == registered["kernel"]
    after = submit("after")
    assert (after["kernel"], after["build"]) == (before["kernel"], before["build"]), "the build is still the kernel's"
    assert after["winner"]["agreement"] == "none" and wrong(after) == {"y[0] is 3, the reference has 2"}, wrong(after)

    manifest = server.get(path)["manifest"]
    builder = harness.make_token(server.database, "builder", "builder")
    assert server.request("POST", "/v1/kernels", bare, token=builder).status == 200
    assert server.get(path)["manifest"] == manifest, "what has no reference takes none away"
    other = {**manifest, "reference": {**manifest["reference"], "rtol": 100.0}}
    refused = server.request("POST", "/v1/kernels", other, token=builder)
    assert refused.status == 403 and "submitter or admin sets the reference" in refused.json["detail"], refused
    assert server.get(path)["manifest"] == manifest
    noted = [entry for entry in server.items("/v1/audit") if entry["detail"] and "reference" in entry["detail"]]
    assert [entry["detail"]["reference"] for entry in noted] == [manifest["reference"]["source"]["digest"]], noted


def test_bytes_of_another_size_are_refused(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel")
    blob = b"short"
    x = {"elements": N, "access": "read", "fill": {"blob": "sha256:" + hashlib.sha256(blob).hexdigest()}}
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, {**PLAIN, "x": x})], [blob])
    done = tuned(tmp_path, kernel, build)
    assert done.returncode == 1 and 'argument "x" has 4000 bytes and its blob 5' in done.stderr, done.stderr
    checked = wavetune(None, "kernel", "check", build, "--kernel", kernel, check=False)
    assert checked.returncode == 1, checked
    assert 'contents of "x" in variant 0: argument "x" has 4000 bytes' in checked.stdout, checked


def test_a_key_that_was_not_captured_is_refused(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel")
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)])
    done = tuned(tmp_path, kernel, build, "n=1000.0,dtype=torch.float32")
    assert done.returncode == 1 and "no case of the build for gfx942 is of this key" in done.stderr
    assert "have the program run with the key" in done.stderr, done.stderr


def test_a_captured_kernel_and_its_build_are_checked(tmp_path):
    kernel = captured_kernel(tmp_path / "kernel")
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, PLAIN)])
    for place in ((kernel,), (build, "--kernel", kernel)):
        done = wavetune(None, "kernel", "check", *place, check=False)
        assert done.returncode == 0, done
    document = json.loads((build / "build.json").read_text())
    document["variants"][0]["case"]["arguments"]["z"] = {"value": 1}
    (build / "build.json").write_text(json.dumps(document))
    done = wavetune(None, "kernel", "check", build, "--kernel", kernel, check=False)
    assert done.returncode == 1 and "/variants/0/case/arguments/z" in done.stdout, done


def test_an_agent_tunes_a_captured_kernel(server, start, tmp_path):
    agent = agent_on_gpu(start, server, tmp_path)
    kernel = captured_kernel(tmp_path / "kernel", "i * i % 7 + 1.0")
    blob = array.array("f", (i * i % 7 for i in range(N))).tobytes()
    x = {"elements": N, "access": "read", "fill": {"blob": "sha256:" + hashlib.sha256(blob).hexdigest()}}
    build = captured_build(tmp_path / "build", kernel, tmp_path, [(KEY, {**PLAIN, "x": x})], [blob])

    def submit(key):
        return wavetune(server, "submit", kernel, "--key", key, "--wait", "--json", check=False)

    wavetune(server, "kernel", "push", kernel)
    refused = submit("n=1000,dtype=torch.float32")
    assert refused.returncode == 4 and "it was captured: have the program run with the key" in refused.stderr, refused
    wavetune(server, "kernel", "push", kernel, "--build", build)
    refused = submit("n=1001,dtype=torch.float32")
    assert refused.returncode == 4 and "is of this key; it was captured" in refused.stderr, refused
    done = submit("n=1000,dtype=torch.float32")
    assert done.returncode == 0, done
    job, = json.loads(done.stdout)
    assert job["state"] == "done" and job["outcomes"] == {"correct": 2, "compile": 1}, (job, agent.messages)


def test_a_default_that_the_interpreter_contradicts_leaves_a_job_without_a_winner(server, start, tmp_path):
    status, job = submitted(server, start, tmp_path, default=0, expected=[2.0 * i + 3 for i in range(16)])
    assert (status, job["state"], job["winner"]) == (1, "done", None), job
    assert job["reason"].startswith("configs disagree: the default differs from what Triton's interpreter computes"), job
    assert "y[0] is 2, Triton's interpreter has 3" in job["reason"], job


def test_a_winner_with_which_the_interpreter_agrees_may_be_required(server, start, tmp_path):
    status, job = submitted(server, start, tmp_path, default=0, expected=[2.0 * i + 2 for i in range(16)])
    assert (status, job["winner"]["agreement"], job["winner"]["interpreted"]) == (0, "bitwise", True), job
    made = wavetune(server, "publish", "--environment", "{}", "--require-agreement", "interpreted", "--json", check=False)
    assert made.returncode == 0 and json.loads(made.stdout)["skipped"] == [], made
