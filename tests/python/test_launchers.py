"""Launchers of Triton up to 3.6 are compiled before a program asks for them, several at once, and by Triton's own code."""

import json
import shutil

import pytest
import triton
from contract_server import Contract, canonical, document
from fleet import KERNELS, Fleet, begun, make_library
from starting import choices, closures
from test_ahead import kernel

from wavetune._runtime import ahead, code, launchers, start, worker

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
needs_launchers = pytest.mark.skipif(VERSION >= (3, 7), reason="this Triton has no launchers to compile")


@pytest.fixture
def server():
    with Contract() as made:
        yield made


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return make_library(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def stored(library, tmp_path_factory):
    """What a first program leaves at a server."""
    with Contract() as server:
        first = Fleet(server, library, tmp_path_factory.mktemp("first")).run("first")
        assert (first["compiled"], first["used"], begun(first)) == (KERNELS, 0, KERNELS)
        # Two lists: by the command line, and by the first folder.
        server.wait_for(lambda: len(server.files) == KERNELS and len(server.lists) == 2)
        return dict(server.files), dict(server.lists)


@pytest.fixture
def fleet(server, library, stored, tmp_path):
    server.files, server.lists = map(dict, stored)
    return Fleet(server, library, tmp_path)


@needs_launchers
def test_a_second_container_compiles_its_launchers_at_once_and_before_it_needs_them(server, fleet):
    report = fleet.run("second", HOW="ready", TOGETHER="3")
    assert (report["compiled"], report["used"], begun(report)) == (0, KERNELS, KERNELS)
    assert "alone" not in report["compilers"]
    assert len(server.asked("GET", "/v1/remote")) == KERNELS  # each group once
    assert server.asked("PUT") == [] and all(not path.endswith(".so") for _, path, _ in server.requests)


@needs_launchers
def test_a_program_waits_for_what_is_being_compiled_and_compiles_what_is_not_begun(server, fleet, tmp_path):
    (tmp_path / "held").touch()
    running, log = fleet.start("second", HOW="begun", BEGUN="3", HELD=str(tmp_path / "held"))
    server.wait_for(lambda: log.exists() and log.read_text().count("begin") >= 3)
    (tmp_path / "held").unlink()
    out, err = running.communicate(timeout=600)
    assert (running.returncode, err) == (0, "")
    # None is compiled twice, whoever compiles it.
    report = json.loads(out)
    assert report["compiled"] == 0 and 3 <= report["used"] <= KERNELS and log.read_text().count("begin") == KERNELS


@needs_launchers
def test_a_folder_that_is_chosen_late_gets_the_launchers(fleet, tmp_path):
    report = fleet.run("second", HOW="ready", LATE=str(tmp_path / "late"))
    assert (report["used"], begun(report)) == (KERNELS, KERNELS)
    assert len(list((tmp_path / "late").rglob("*launcher*.so"))) == KERNELS
    assert not list((tmp_path / "second").rglob("*.so"))
    again = fleet.run("late")
    assert (again["compiled"], begun(again)) == (0, 0)  # nothing is compiled ahead that is there


@needs_launchers
def test_a_child_of_a_fork_has_what_its_parent_compiled(fleet):
    report = fleet.run("second", HOW="fork")
    assert (report["used"], begun(report)) == (KERNELS, KERNELS)


@needs_launchers
def test_compilers_end_with_the_program_and_leave_nothing(fleet, tmp_path):
    (tmp_path / "held").touch()
    (tmp_path / "tmp").mkdir()
    running, log = fleet.start("second", HOW="begun", BEGUN="3", HELD=str(tmp_path / "held"), TMPDIR=str(tmp_path / "tmp"),
                               LAUNCHES="0")
    assert (*running.communicate(timeout=600), running.returncode) == ("", "", 0)
    assert "go" not in log.read_text() and list((tmp_path / "tmp").iterdir()) == []


@needs_launchers
def test_a_compiler_that_fails_ahead_is_tried_again_by_triton(fleet):
    report = fleet.run("second", HOW="ready", BROKEN=str(KERNELS))
    assert (report["used"], begun(report)) == (0, 2 * KERNELS)


SIGNATURES = {"add_kernel": {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32"}, "fill_kernel": {"y_ptr": "*fp16", "n": "i32"}}


def with_launchers(changes=None):
    found = document(choices(4096))
    for name, signature in SIGNATURES.items():
        found["functions"][closures()[name]]["launchers"] = [(changes or {}).get(name, signature)]
    return found


@needs_launchers
@pytest.mark.parametrize("is_file", [False, True])
def test_launchers_of_choices_are_compiled_when_the_choices_arrive(server, library, tmp_path, is_file):
    where = {}
    if is_file:
        (tmp_path / "choices.json").write_bytes(canonical(with_launchers()))
        where = {"WAVETUNE_CACHE": str(tmp_path)}
    else:
        server.document = with_launchers()
    report = Fleet(None if is_file else server, library, tmp_path).run("program", HOW="choices", WAVETUNE_SHARED_CODE="", **where)
    assert begun(report) == 2 and report["used"] >= 1  # the first may not have begun when it is needed
    assert server.asked("GET", "/v1/remote") == []


@needs_launchers
@pytest.mark.parametrize("changes", [{"add_kernel": {"z_ptr": "*fp16"}}, {"add_kernel": {"n": "int main()"}}, {"add_kernel": 5}])
def test_choices_with_launchers_that_do_not_fit_are_choices(server, library, tmp_path, changes):
    server.document = with_launchers({**changes, "fill_kernel": changes["add_kernel"]})
    report = Fleet(server, library, tmp_path).run("program", HOW="choices", WAVETUNE_SHARED_CODE="", EXPECTED="0")
    assert (begun(report), report["used"], report["compiled"]) == (2, 0, 2)


@needs_launchers
def test_a_garbled_list_is_not_used(server, fleet):
    for place in server.lists:
        server.lists[place] = b"garbage"
    report = fleet.run("second")
    assert (report["compiled"], report["used"], begun(report)) == (0, 0, KERNELS)
    assert len(server.asked_for_lists) == 2


@needs_launchers
def test_a_program_that_may_not_wait_fetches_nothing_ahead(server, fleet):
    report = fleet.run("second", WAVETUNE_BUDGET_MS="0")
    assert (report["compiled"], begun(report), server.asked("GET", "/v1/remote")) == (KERNELS, KERNELS, [])


@needs_launchers
def test_a_token_that_may_not_have_the_list_asks_for_no_code(server, fleet):
    def refuse(handler):
        if "/v1/remote" in handler.path:
            handler.answer(403, b"{}")
            return True

    server.trouble = refuse
    report = fleet.run("second")
    assert (report["compiled"], report["used"], begun(report)) == (KERNELS, 0, KERNELS)
    assert len(server.asked("GET", "/v1/remote")) <= 1 and server.asked("PUT") == []


@pytest.fixture
def own(library, monkeypatch, tmp_path):
    """The launchers of this process, with Triton's own drivers and a folder for its cache; all is undone."""
    import triton.backends
    scopes = [backend.driver.__init__.__globals__ for backend in triton.backends.backends.values()]
    before = [dict(scope) for scope in scopes]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    for name, value in (("TRITON_LIBCUDA_PATH", library), ("TRITON_LIBHIP_PATH", library / "libamdhip64.so"),
                        ("CC", library / "compiler")):
        monkeypatch.setenv(name, str(value))
    (library / "libamdhip64.so").touch()
    made = launchers.Launchers()
    made.patch(triton.backends)
    yield made
    made.stop()
    for scope, names in zip(scopes, before):
        scope.update(names)
        for name in ("_get_path_to_hip_runtime_dylib", "libcuda_dirs", "library_dirs"):
            if name in scope:
                scope[name].cache_clear()


@needs_launchers
def test_launchers_of_amd_wait_until_the_driver_has_found_its_library(own):
    own.prepare([launchers.Launcher("amd", 64, ("*fp16", "i32", "constexpr"))])
    assert own._worker.named == {} and len(own._early) == 1
    own._drivers["amd"].scope["_get_path_to_hip_runtime_dylib"]()
    own._go_on()
    (job,) = own._worker.named.values()
    assert job.done.wait(60) and job.result.data[:4] == b"\x7fELF" and job.result.name.startswith("__triton_launcher")


def job_of(own, monkeypatch):
    """A launcher that is prepared and not begun, and its C source."""
    monkeypatch.setattr(launchers, "threads_max", lambda: 0)
    own.prepare([launchers.Launcher("nvidia", 32, ("*fp16", "i32"))])
    (job,) = own._worker.named.values()
    return job, job.work[2].get("src") or job.work[1][0]


@needs_launchers
def test_a_compiler_that_hangs_is_not_waited_for(own, monkeypatch):
    job, source = job_of(own, monkeypatch)
    monkeypatch.setattr(launchers, "WAIT_S", 0.0)
    own._worker.queue.clear()
    own._take(source)
    assert own.used == 0 and own._worker.named == {}


@needs_launchers
def test_none_is_begun_when_the_time_is_over_or_the_program_ends(own, monkeypatch):
    job, source = job_of(own, monkeypatch)
    own._worker.until = 0.0
    monkeypatch.setattr(launchers, "threads_max", lambda: 1)
    own._worker.wake()
    own._worker.end(60)
    assert own._worker.threads == 0
    own._take(source)  # Triton compiles it
    assert own._worker.named == {} and not own._worker.queue
    own.stop()
    own.prepare([launchers.Launcher("nvidia", 32, ("*fp32",))])
    assert own._worker.named == {}


@needs_launchers
def test_there_is_a_limit_to_what_is_prepared(own, monkeypatch):
    monkeypatch.setattr(launchers, "threads_max", lambda: 0)
    own.prepare([launchers.Launcher("nvidia", 32, ("i32",) * n) for n in range(1, 200)])
    assert len(own._worker.named) == launchers.LAUNCHERS_MAX


def test_ranks_of_one_node_share_its_cores(monkeypatch):
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: range(64))
    for ranks, threads in (("8", 7), ("64", 1), ("1", 63), ("none", 63), ("0", 63)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert worker.threads_max() == threads


LAUNCHER = {"backend": "nvidia", "types": ["i32"], "warp_size": 32}


@pytest.mark.parametrize("change", [
    {"version": 2}, {"files": 5}, {"files": None}, {"launchers": {}}, {"launchers": [5]}, {"kernels": {}}, {"kernels": ["{}"]}, {"kernels": [5]},
    {"files": [["../../etc", "x.json", True]]},
    {"launchers": [{**LAUNCHER, "types": ["i32; evil()"]}]}, {"files": [["A" * 52, "x.so", False]]},
    {"files": [["A" * 52, "../x.json", False]]}, {"files": [["A" * 52, "x.json", 1]]}, {"files": [["A" * 52, "x.json"]]}])
def test_lists_that_are_not_what_a_program_writes_are_refused(change):
    found = {"files": [["A" * 52, "x.json", True]], "kernels": [kernel()], "launchers": [LAUNCHER], "version": 1}
    assert json.loads(start.write_list(*start.read_list(json.dumps(found).encode()))) == found
    with pytest.raises((ValueError, code.Bad)):
        start.read_list(json.dumps({**found, **change}).encode())
    many = {**found, "files": found["files"] * 1000, "launchers": [LAUNCHER] * 1000, "kernels": [kernel()] * 1000}
    limits = [start.FILES_MAX, launchers.LAUNCHERS_MAX, ahead.KERNELS_MAX]
    assert [len(part) for part in start.read_list(json.dumps(many).encode())] == limits


@pytest.mark.skipif(VERSION < (3, 7), reason="this Triton has launchers")
def test_without_launchers_nothing_is_wrapped():
    import triton.backends
    own = launchers.Launchers()
    own.patch(triton.backends)
    assert own._drivers == {}
    own.prepare([launchers.Launcher("nvidia", 32, ("i32",))])
    assert own._worker.named == {}


@pytest.mark.parametrize("value", [
    None, 5, [], {}, {"backend": "nvidia", "warp_size": 32}, {"backend": "cpu", "warp_size": 32, "types": []},
    {"backend": "nvidia", "warp_size": 33, "types": []}, {"backend": "amd", "warp_size": True, "types": []},
    {"backend": "nvidia", "warp_size": 32, "types": "i32"}, {"backend": "nvidia", "warp_size": 32, "types": ["i33"]},
    {"backend": "nvidia", "warp_size": 32, "types": ["i32\n"]}, {"backend": "nvidia", "warp_size": 32, "types": [5]},
    {"backend": "nvidia", "warp_size": 32, "types": ["*"]},
    {"backend": "nvidia", "warp_size": 32, "types": ["tensordesc<fp16[8]>"]},
    {"backend": "nvidia", "warp_size": 32, "types": [[[[["i32"]]]]]}, {"backend": [], "warp_size": 32, "types": []},
    {"backend": "nvidia", "warp_size": 32, "types": ["i32"] * 257},
    {"backend": "nvidia", "warp_size": 32, "types": [], "src": ""}])
def test_what_is_no_launcher_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        launchers.parse(value)


def test_types_may_be_nested_and_come_by_name():
    types = ["*fp16", ["i32", ["*kbf16", "constexpr"]], "*fp8e4nv", "nvTmaDesc"]
    stated = {"backend": "amd", "warp_size": 64, "types": types}
    found = launchers.parse(stated)
    assert json.loads(json.dumps(found.json())) == stated and launchers.parse(json.loads(json.dumps(found.json()))) == found
    assert launchers.of_names({"n": "i32"}, ["x", "n"], "nvidia", 32).types == ("constexpr", "i32")
    for wrong in ({"y": "i32"}, {"n": 5}, [], None):
        with pytest.raises((ValueError, TypeError)):
            launchers.of_names(wrong, ["x", "n"], "nvidia", 32)
