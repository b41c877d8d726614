"""Text that a token with the role `demand` posts runs while it compiles: what it forges there
reaches no signature and no other program."""

import json
import os
import re
import subprocess
import sys

import pytest
import triton
from conftest import ROOT
from test_build_leases import build, launch, server  # noqa: F401
from test_build_sandbox import recorded
from test_real_server import harness  # noqa: F401

from wavetune._pack.artifacts import installed_key
from wavetune._captured.check import check_build
from wavetune._captured.module import make_again
from wavetune._errors import PackError

# What the text forges, and what the builder says of it.
WAYS = {"folder": "another folder of Triton's cache", "kernel": "another kernel|another record"}
pytestmark = pytest.mark.skipif(not hasattr(triton, "constexpr_function"),
                                reason="Triton 3.3 has no constexpr_function")


def signed_builds(server):  # noqa: F811
    for kernel in server.items("/v1/kernels"):
        path = f"/v1/kernels/{kernel['kernel']}/builds"
        for one in server.items(path):
            if one["signatures"]:
                yield kernel, server.request("GET", f"{path}/{one['build']}").json


def facts(kernel, build):
    """What a signed build claims."""
    return [kernel["name"], build["record"]["function"]["closure"],
            _object(build)["metadata"]["cache"]["folder"]]


@pytest.mark.parametrize("way", WAYS)
def test_what_captured_text_forges_is_not_signed(harness, server, tmp_path, way):  # noqa: F811
    launch(server, tmp_path / "cache", "forged", HARMLESS="1", WAY=way)
    harness.wavetune(server, "key", "new", tmp_path / "builder.key")
    before = list(signed_builds(server))
    report = build(server, "--arch", "sm_90", "--sign-key", str(tmp_path / "builder.key"))
    new = [facts(*one) for one in signed_builds(server) if one not in before]
    assert new == []
    assert (report["built"], report["refused"]) == (0, 1)
    listed = json.loads(harness.wavetune(server, "captures", "--json").stdout)
    (item,) = [one for one in listed if "forged" in one["name"]]
    assert re.search(WAYS[way], item["why"]) and "not given" in item["why"]
    harness.wavetune(server, "captures", "remove", item["id"])


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """What the confined processes leave that plan and build the kernel: their folders."""
    place = tmp_path_factory.mktemp("parts")
    captures = recorded(place, "forged", WAY="mark")
    (function,), launches = (sorted((captures / kind).iterdir())
                             for kind in ("functions", "launches"))
    request = {"function": json.loads(function.read_text()),
               "launches": [[one.name, json.loads(one.read_text())] for one in launches],
               "arch": "sm_90", "processes": 1, "timeout_s": 600, "stated": {},
               "triton": installed_key()}
    own = {name: value for name, value in os.environ.items() if name != "HARMLESS"}
    own["PYTHONPATH"] = str(ROOT / "python")
    for part in ("plan", "build"):
        (place / part).mkdir()
        (place / part / "request.json").write_text(json.dumps(request))
        done = subprocess.run([sys.executable, "-m", "wavetune._captured.confined", part], env=own,
                              cwd=place / part, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def made(parts):
    """(the plan of a kernel, its build)."""
    ((name, plan),) = json.loads((parts / "plan/answer.json").read_text()).items()
    return plan, json.loads((parts / "build/kernels" / name / "build/build.json").read_text())


def test_a_plan_executes_no_captured_text(parts, made):
    assert (parts / "build/marked").exists() and not (parts / "plan/marked").exists()
    plan, build = made
    objects = build["variants"][0]["objects"]
    folders = [one["metadata"]["cache"]["folder"] for one in objects]
    assert [one["folder"] for one in plan["objects"]] == folders
    check_build(build, plan)


def _object(build):
    return build["variants"][0]["objects"][0]


def _also(build):
    variant = build["variants"][0]
    variant["also"] = [{"signature": variant["signature"], "objects": [
        {name: value for name, value in _object(build).items() if name != "grid"}]}]


@pytest.mark.parametrize("forge, part", [
    (lambda build: build.update(kernel="sha256:" + "a" * 64), "another kernel"),
    (lambda build: build.update(arch="gfx942"), "another arch"),
    (lambda build: build.update(warp_size=64), "another warp_size"),
    (lambda build: build["toolchain"].update(triton="3.5.0"), "another toolchain"),
    (lambda build: build["record"]["function"].update(closure="sha256:"), "another record"),
    (lambda build: build.update(more=1), "another member"),
    (lambda build: build["variants"].append(build["variants"][0]), "another variant"),
    (lambda build: build["variants"][0].update(key={"n": 65}), "another variant"),
    (lambda build: build["variants"][0].update(signature={"x_ptr": "*fp16"}), "another signature"),
    (lambda build: build["variants"][0].update(constexprs={"WAY": "none"}), "other constants"),
    (_also, "another signature"),
    (lambda build: _object(build)["config"].update(BLOCK=32), "another config"),
    (lambda build: build["variants"][0]["objects"].append(_object(build)), "another config"),
    (lambda build: _object(build).update(grid=[2, 1, 1]), "another grid"),
    (lambda build: _object(build).update(fills=[["x_ptr", 4, 0]]), "other fills"),
    (lambda build: _object(build)["metadata"]["cache"].update(folder="A" * 52), "another folder"),
    (lambda build: _object(build)["metadata"]["cache"].update(files={"evil.json": "sha256:"}),
     "another folder"),
    (lambda build: _object(build).update(digest="sha256:" + "a" * 64), "a folder without")])
def test_a_build_that_is_not_the_planned_one_is_refused(made, forge, part):
    plan, build = made
    forge(build)
    with pytest.raises(ValueError, match=f"not given: {part}"):
        check_build(build, plan)


HONEST = "@triton.jit\ndef kernel(x):\n    for i in range(4):\n        helper(x)\n"


def document(*helpers, text=HONEST, free=(), names=()):
    """A capture of a kernel and of helpers, in one module."""
    parts = [{"module": "m", "qualname": "kernel", "line": 100, "text": text, "free": list(free)}]
    parts += [{"module": "m", "qualname": name, "line": 10 * (i + 1),
               "text": f"def {name}(x):\n    return x\n"}
              for i, name in enumerate(helpers)]
    return {"version": 1, "name": "m:kernel", "parts": parts,
            "globals": [{"module": "m", "name": name, "is": meaning} for name, meaning in names]}


@pytest.mark.parametrize("found, part", [
    (document("evil", names=[("range", "m:evil")]), "the name range another meaning"),
    (document("helper", "evil", names=[("helper", "m:helper")],
              free=[{"name": "helper", "is": "m:evil"}]), "helper as a variable"),
    (document(text="@triton.jit\ndef kernel(x):\n    pass\n# \x0cpass\n    evil(x)\n"), "line ends"),
    (document(text='@hide(list(), lambda: """\ndef kernel(x):\n    pass\n# """)\n'
                   'def kernel(x):\n    evil(x)\n'), "another text")])
def test_text_that_triton_hashes_as_another_is_refused(tmp_path, found, part):
    with pytest.raises(PackError, match=part):
        make_again(found, tmp_path)


def test_a_capture_changes_no_module_of_triton(tmp_path):
    names = [("helper", "m:helper"), ("tl", "triton.language"), ("tl.not_there", "m:helper"),
             ("tl.extra.not.there", "m:helper")]
    make_again(document("helper", names=names), tmp_path)
    assert not hasattr(triton.language, "not_there")
