"""Kernels are compiled before a program asks for them, where it takes choices and no compiled code."""

import copy
import json
import os
import sys
import types

import pytest
from conftest import TUNED
from contract_server import Contract, canonical, document
from starting import MIDDLE, choices, tuned

from wavetune._runtime import ahead

SIZES = ("4096", "8192")
SHARING = {"WAVETUNE_IMAGE": "sha256:" + "1" * 64, "WAVETUNE_LOG": "stderr"}
KERNEL = {"attributes": [[[0], [["tt.divisibility", 16]]]], "closure": "sha256:" + "0" * 64, "constants": [[[1], {"dtype": "fp16"}]],
          "module": "ops", "name": "add_kernel", "options": {"num_warps": 8}, "signature": [["x", "*fp16"], ["T", "constexpr"]],
          "target": ["cuda", 90, 32]}


def kernel(**change):
    return json.dumps({**KERNEL, **change}, sort_keys=True, separators=(",", ":"))


@pytest.fixture
def server():
    with Contract() as made:
        yield made


@pytest.fixture
def stored(server, tmp_path):
    """A server with choices and with the list of a first program that took them."""
    server.document = document(choices(*map(int, SIZES)))
    first = run(tmp_path / "first", server)
    assert (first["benchmarked"], first["compiled"], first["log"]) == (0, 2, [])
    server.wait_for(lambda: server.lists)
    return server


def run(cache, server, **variables):
    """What the program reported, and what it logged of what was compiled ahead."""
    log = cache.with_suffix(".log")
    report = tuned(*SIZES, cache=cache, server=server, **{**SHARING, "WAVETUNE_LOG": str(log), **variables})[0]
    report["log"] = [line.split(": ", 1)[1] for line in log.read_text().splitlines() if ": kernels: " in line]
    return report


def kernels(server):
    return [json.loads(text) for body in server.lists.values() for text in json.loads(body)["kernels"]]


def change(server, **members):
    """Changes the kernels of the server's lists."""
    for place, body in server.lists.items():
        found = json.loads(body)
        found["kernels"] = [json.dumps({**json.loads(text), **members}) for text in found["kernels"]]
        server.lists[place] = json.dumps(found).encode()


def test_a_second_container_compiles_its_kernels_ahead(stored, tmp_path):
    assert [(one["name"], one["module"]) for one in kernels(stored)] == [("add_kernel", "ops"), ("fill_kernel", "ops")]
    second = run(tmp_path / "second", stored)
    assert second["used"] == [[MIDDLE["BLOCK"], MIDDLE["num_warps"]]] * 4 and second["benchmarked"] == 0
    assert second["compiled"] == 2 and second["log"] == ["kernels: 1 were compiled ahead, 1 of them used"]
    names = [sorted(os.listdir(tmp_path / name)) for name in ("first", "second")]
    assert names[0] == names[1] and names[0]  # the same folders of Triton's cache, and no other


def test_one_variable_turns_it_off(stored, tmp_path):
    before = len(stored.asked_for_lists)
    second = run(tmp_path / "second", stored, WAVETUNE_AHEAD="0")
    assert (second["compiled"], second["log"], len(stored.asked_for_lists)) == (2, [], before)


@pytest.mark.parametrize("members", [{"closure": "sha256:" + "0" * 64}, {"target": ["cuda", 80, 32]}, {"module": "elsewhere"},
                                     {"constants": [[[3], 7]]}, {"signature": [["x", "*fp16"]]}])
def test_what_this_program_would_not_compile_is_not_compiled(stored, tmp_path, members):
    change(stored, **members)
    second = run(tmp_path / "second", stored)
    assert (second["benchmarked"], second["compiled"], second["log"]) == (0, 2, [])


def test_a_kernel_that_cannot_be_compiled_costs_nothing_but_a_line(stored, tmp_path):
    change(stored, attributes=[[[9], [["tt.divisibility", 16]]]], options={"num_warps": 3})
    second = run(tmp_path / "second", stored)
    assert (second["benchmarked"], second["compiled"], second["log"]) == (0, 2, [])


def test_configs_that_lost_are_not_listed(server, tmp_path):
    assert run(tmp_path / "first", server, COMPILE_ALL="1")["benchmarked"] == 24
    server.wait_for(lambda: server.lists)
    assert [dict((path[0], value) for path, value in one["constants"])[len(one["signature"]) - 1] for one in kernels(server)] == \
        [1024, 1024]


def test_a_server_that_shares_nothing_is_asked_once(server, tmp_path):
    def refuse(handler):
        if handler.path.split("?")[0].endswith("/start.json"):
            server.asked_for_lists.append(handler.command)
            handler.answer(403, canonical({}))
            return True
        return False

    server.document, server.trouble = document(choices(*map(int, SIZES))), refuse
    report = run(tmp_path / "first", server)
    assert (report["benchmarked"], report["compiled"], server.asked_for_lists) == (0, 2, ["GET"])


def test_globals_are_noticed_when_the_program_launches(monkeypatch):
    monkeypatch.syspath_prepend(str(TUNED))
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    import ops
    jit = ops.add_kernel.fn
    before = [(one.hash, dict(one.used_global_vals)) for one in (jit, ops.scaled)]
    made = ahead._copy(jit)
    assert [(one.hash, dict(one.used_global_vals)) for one in (jit, ops.scaled)] == before
    assert made.hash == copy.copy(jit.cache_key) and made is not jit


@pytest.mark.parametrize("text", [
    "", "5", "{}", "[]", None, 5, kernel(more=1), kernel(module="os;x"), kernel(name=""), kernel(target=["cuda"]),
    kernel(signature=[["x", "i32; evil()"]]), kernel(signature=[["x y", "i32"]]), kernel(signature=[[5, "i32"]]),
    kernel(signature=[["x"]]), kernel(constants=[[[0], "a" * 65]]), kernel(constants=[[[0], [1]]]), kernel(constants=[[0, 1]]),
    kernel(constants=[[[0], {"dtype": [5]}]]), kernel(constants=[[["x"], 5]]), kernel(constants=[[[0], 1 << 70]]),
    kernel(attributes=[[[0], 5]]), kernel(attributes=[[[0], [["x"]]]]), kernel(options={"ir_override": "x.ttir"}), kernel(options={"extern_libs": "x"}),
    kernel(options={"x y": 1}), kernel(options={"num_warps": [8]}), kernel(closure="s" * 5000), kernel(closure=5)])
def test_what_is_no_kernel_is_refused(text):
    ahead.check(kernel())
    with pytest.raises((ValueError, TypeError)):
        ahead.check(text)
