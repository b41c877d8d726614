"""The commands of docs/from-program-to-container.md, unchanged and in their order, each with a token of the role that is above it,
on a real server with a builder and an agent on a simulated GPU."""

import json
import os
import re
import subprocess
import sys

import triton
from conftest import ROOT, command
from starting import environment
from test_loop import LOOPED, server  # noqa: F401
from test_real_server import harness  # noqa: F401

PAGE = (ROOT / "docs/from-program-to-container.md").read_text()
STEPS = re.findall(r"^## \d\. (\w+)\n\nRole `([a-z,]+)`.*?```sh\n(.*?)```", PAGE, re.S | re.M)


def test_the_page_is_short_and_has_five_blocks_with_a_role_above_each():
    assert [name for name, _, _ in STEPS] == ["Record", "Build", "Tune", "Release", "Start"]
    assert PAGE.count("```sh\n") == len(STEPS) and len(PAGE.split()) <= 600


def test_every_command_of_the_page_works_with_the_role_above_it(harness, server, tmp_path):  # noqa: F811
    made = dict(re.findall(r"^wavetune token make (\w+) --role ([a-z,]+)", PAGE, re.M))
    assert {role for _, role, _ in STEPS} == set(made.values()), "an admin makes a token of each role"
    stated = {**server.hardware, "triton": triton.__version__}
    (tmp_path / "train.py").write_text(f"import runpy, sys\nsys.argv[1:] = ['1000', '4096']\n"
                                       f"sys.path.insert(0, {str(LOOPED.parent)!r})\n"
                                       f"runpy.run_path({str(LOOPED)!r}, run_name='__main__')\n")
    (tmp_path / "publisher.key").symlink_to(server.key)  # the server wants the signatures of this key
    (tmp_path / "publisher.key.pub").symlink_to(f"{server.key}.pub")
    linker = {name: value for name, value in os.environ.items() if name == "TRITON_HIP_LLD_PATH"}
    _, building = command("build")
    printed = {}
    for name, role, block in STEPS:
        channels = ("--channel", "stable") if "publisher" in role else ()
        token = harness.make_token(server.database, f"page-{name}", role, *channels)
        own = {**building, **environment(tmp_path / f"cache-{name}", server, WAVETUNE_TOKEN=token,
                                         WAVETUNE_ENVIRONMENT=json.dumps(stated), **linker,
                                         WAVETUNE_CAPTURE_FUNCTIONS="ops:*")}
        own["PATH"] = f"{os.path.dirname(sys.executable)}:{harness.BUILD}:{own['PATH']}"
        if name == "Release":
            own.pop("WAVETUNE_ENVIRONMENT")
            assert block.startswith("wavetune key new publisher.key\n")
            block = block.split("\n", 1)[1]
        done = subprocess.run(["bash", "-euc", block], env=own, capture_output=True, text=True, timeout=600, cwd=tmp_path)
        assert done.returncode == 0, (name, done.stdout[-2000:], done.stderr[-2000:])
        printed[name] = done
    first, last = (json.loads(printed[name].stdout.splitlines()[-1]) for name in ("Record", "Start"))
    assert (first["benchmarked"], first["counters"]["captures"]) == (6, 8)
    assert "move of" in printed["Tune"].stdout and "captures tune" in printed["Tune"].stdout
    assert (last["benchmarked"], last["compiled"], last["counters"]["hits"]) == (0, 0, 2), printed["Start"].stderr
    assert "miss:" not in printed["Start"].stderr
