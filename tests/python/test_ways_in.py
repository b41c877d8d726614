"""Every way in gives a program its choices; forks, other listeners and other processes do not disturb it."""

import json
import re
import subprocess
import sys

import pytest
import triton
from conftest import ROOT, TUNED
from contract_server import TOKEN, Contract, document
from packaging.specifiers import SpecifierSet
from starting import LAST, UNTOUCHED, choices, environment, essence, python, tuned

CHOSEN = [512, 4]
RESTORED = {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 2}
HEAD = """import json, sys, types, program, triton
sys.modules['torch'] = types.ModuleType('torch')
sys.modules['torch'].Tensor = program.Tensor
triton.runtime.driver.set_active(program.DRIVER)
"""
# An autotuner with the interface of triton-dejavu's: keys are strings, and its storage wants a time for each item of its cache.
DEJAVU = """import builtins
from triton.runtime.driver import driver

class Autotuner:
    def __init__(self, fn, configs, key):
        self.fn, self.configs, self.key_names, self.arg_names = fn, configs, key, fn.arg_names
        self.cache, self.timings, self.stored, self.early_config_prune, self.perf_model = {}, {}, [], None, None

    def prune_configs(self, kwargs):
        return self.configs

    def _bench(self, *args, config, **meta):
        return driver.active.get_benchmarker()(None, None)

    def run(self, *args, **kwargs):
        given = dict(zip(self.arg_names, args))
        key = tuple([str(given[n]) for n in self.key_names] + [str(a.dtype) for a in args if hasattr(a, "dtype")])
        if key not in self.cache:
            timings = {c: self._bench(*args, config=c, **kwargs) for c in self.prune_configs(kwargs)}
            self.cache[key] = builtins.min(timings, key=timings.get)
            self.timings[key] = timings[self.cache[key]]
            self.stored = [key for key, _ in self.cache.items() if self.timings[key]]
        self.best_config = self.cache[key]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())

def autotune(configs, key, use_bo=False):
    return lambda fn: Autotuner(fn, configs, key)
"""


@pytest.fixture
def server():
    with Contract() as made:
        yield made


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_a_variable_alone_is_enough_but_for_the_config_that_is_compiled_first(server, cache):
    server.document = document(choices(4096, 1000))
    (report,) = python(TUNED / "program.py", 4096, 1000, cache=cache, server=server,
                       TRITON_CACHE_MANAGER="wavetune.triton:CacheManager")
    # The driver of this test never compiles while it benchmarks, so the first kernel is compiled when it was tuned.
    assert report["used"][1:] == [CHOSEN] * 3 and report["benchmarked"] == 6


def test_an_autotuner_that_runs_when_wavetune_is_imported_stops_benchmarking(server, cache):
    server.document = document(choices(4096))
    text = HEAD + """
bench = program.Driver.get_benchmarker
def get(driver):
    inner = bench(driver)
    def call(*args, **kwargs):
        import wavetune.auto
        return inner(*args, **kwargs)
    return call
program.Driver.get_benchmarker = get
print(json.dumps([program.launch([4096]), program.DRIVER.benchmarked]))"""
    assert python("-c", text, cache=cache, server=server) == [[[CHOSEN, CHOSEN], 1]]
    assert server.tuned() == []


@pytest.mark.parametrize("imports", ["import wavetune.auto, ops", "import ops, wavetune.auto"])
def test_an_import_in_the_program_reaches_autotuners_before_and_after_it(server, cache, imports):
    server.document = document(choices(4096))
    text = HEAD + imports + """, wavetune
print(json.dumps([program.launch([4096]), program.DRIVER.benchmarked, wavetune.counters()["hits"]]))"""
    assert python("-c", text, cache=cache, server=server) == [[[CHOSEN] * 2, 0, 2]]


def test_entry_points_of_torch_vllm_and_sglang_are_those_of_the_package(server, cache):
    tomllib = pytest.importorskip("tomllib")
    points = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]["entry-points"]
    assert sorted(points) == ["sglang.srt.plugins", "torch.backends", "vllm.general_plugins"]
    server.document = document(choices(4096))
    for group in points.values():
        module, _, name = group["wavetune"].partition(":")
        text = f"""from {module} import {name}
{name}()
{name}()
{HEAD}print(json.dumps([program.launch([4096]), program.DRIVER.benchmarked]))"""
        assert python("-c", text, cache=cache, server=server) == [[[CHOSEN] * 2, 0]]


def test_importing_a_way_in_without_the_variables_imports_nothing_else(cache):
    text = """import sys
before = set(sys.modules)
import wavetune, wavetune.entry, wavetune.auto
wavetune.entry.torch_backend(), wavetune.entry.vllm_plugin(), wavetune.entry.sglang_plugin()
print(sorted(set(sys.modules) - before).__repr__().replace("'", '"'))"""
    assert python("-c", text, cache=cache) == [["wavetune", "wavetune.auto", "wavetune.entry"]]


def test_the_manager_without_the_variables_is_tritons_own(cache):
    (report,) = python(TUNED / "program.py", 4096, cache=cache, TRITON_CACHE_MANAGER="wavetune.triton:CacheManager")
    assert essence(report) == UNTOUCHED and report["counters"] is None


@pytest.mark.one_triton
def test_run_starts_a_module_and_keeps_arguments_and_exit_status(server, cache, tmp_path):
    (tmp_path / "started.py").write_text(
        "import sys\nassert __name__ == '__main__' and sys.argv[1:] == ['-m', 'x']\nsys.exit(7)\n")
    own = environment(cache, server)
    own["PYTHONPATH"] += f":{tmp_path}"
    for how in (["-m", "started"], [str(tmp_path / "started.py")]):
        done = subprocess.run([sys.executable, "-m", "wavetune", "run", *how, "-m", "x"], env=own, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
    done = subprocess.run([sys.executable, "-m", "wavetune", "run"], env=own, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")


@pytest.mark.one_triton
def test_run_says_in_a_sentence_that_there_is_no_such_program(cache, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/__init__.py").write_text("import nosuch\n")
    own = environment(cache)
    own["PYTHONPATH"] += f":{tmp_path}"
    for how, word in ((["nosuch.py"], "nosuch.py: No such file"), ([str(tmp_path / "folder")], "__main__.py: No such file"),
                      (["-m", "nosuch"], "no module nosuch"), (["-m", "nosuch.sub"], "no module nosuch.sub"),
                      (["-m", "json"], "no module json that can be run")):
        for command in ("wavetune", "wavetune.demand"):
            argv = [sys.executable, "-m", *(["wavetune", "run"] if command == "wavetune" else [command]), *how]
            done = subprocess.run(argv, env={**own, "WAVETUNE_DEMAND": "0"}, capture_output=True, text=True)
            assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1, done
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", "-m", "broken"], env=own, capture_output=True, text=True)
    assert done.returncode == 1 and "No module named 'nosuch'" in done.stderr


@pytest.mark.one_triton
@pytest.mark.parametrize("text", ["def f():\n    raise ValueError('mine')\nf()\n", "x = = 1\n", "import sys\nsys.exit('a reason')\n",
                                  "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('two') from e\n",
                                  "import sys\nsys.excepthook = lambda *_: print('hooked')\n1 / 0\n", "raise KeyboardInterrupt\n"])
def test_a_program_that_fails_prints_what_python_prints(cache, tmp_path, text):
    (tmp_path / "failing.py").write_text(text)
    own = environment(cache)
    own["PYTHONPATH"] += f":{tmp_path}"
    for how in ([str(tmp_path / "failing.py")], ["-m", "failing"]):
        alone, with_ours = (subprocess.run([sys.executable, *before, *how], env=own, capture_output=True, text=True)
                            for before in ([], ["-m", "wavetune", "run"]))

        def said(done):
            """Without the frames with which Python's own `-m` begins."""
            lines = [line for line in done.stderr.splitlines() if "<frozen " not in line and "/runpy.py" not in line]
            return [line for line in lines if "SyntaxError" not in done.stderr or "Traceback" not in line]
        assert (with_ours.returncode, with_ours.stdout, said(with_ours)) == (alone.returncode, alone.stdout, said(alone)), how


@pytest.mark.parametrize("version", ["3.3.1", triton.__version__, "3.9.0"])
def test_the_extra_pack_takes_each_triton_that_pack_supports(version):
    text = (ROOT / "python/pyproject.toml").read_text()
    wanted = SpecifierSet(re.search('pack = .*"triton([^;]*);', text)[1])
    assert version in wanted and "3.10.0" not in wanted


def test_the_decorator_stands_in_the_place_of_tritons(server, cache, tmp_path):
    text = (TUNED / "ops.py").read_text().replace("@triton.autotune(", "@wavetune.autotune(").replace(
        "import triton\n", "import triton, wavetune\n", 1)
    (tmp_path / "ops.py").write_text(text.replace('list(CONFIGS), key=["n"]', 'list(CONFIGS), key=["n"], on_miss="first"'))
    server.document = document(choices(4096))
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{HEAD}" + """
print(json.dumps([program.launch([4096, 1000]), program.DRIVER.benchmarked]))
import wavetune
for arguments in ({"on_miss": "guess"}, {"unknown": 1}):
    try:
        wavetune.autotune(configs=[], key=[], **arguments)
    except (TypeError, ValueError) as error:
        print(json.dumps(str(error)))"""
    found = python("-c", program, cache=cache, server=server)
    assert found[0] == [[CHOSEN, CHOSEN, LAST, [256, 4]], 6]
    assert "on_miss='guess' is none of tune, first, nearest" in found[1] and "unknown" in found[2]
    plain = python("-c", program, cache=cache)  # without the variables it is Triton's decorator
    assert plain[0] == [[LAST] * 4, 24]


def test_an_autotuner_of_dejavu_stores_only_what_it_measured(server, cache, tmp_path):
    (tmp_path / "triton_dejavu").mkdir()
    (tmp_path / "triton_dejavu/__init__.py").write_text("from .autotuner import autotune\n")
    (tmp_path / "triton_dejavu/autotuner.py").write_text(DEJAVU)
    text = (TUNED / "ops.py").read_text().replace("@triton.autotune(", "@wavetune.autotune(use_bo=False, ").replace(
        "import triton\n", "import triton, wavetune\n", 1)
    (tmp_path / "ops.py").write_text(text)
    server.document = document(choices(4096))
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{HEAD}" + """
used = program.launch([4096, 1000, 4096])
import ops
print(json.dumps([used, program.DRIVER.benchmarked, ops.add_kernel.stored, type(ops.add_kernel).__module__]))"""
    assert python("-c", program, cache=cache, server=server) == [
        [[CHOSEN] * 2 + [LAST] * 2 + [CHOSEN] * 2, 12, [["1000", "torch.float16", "torch.float16"]],
         "triton_dejavu.autotuner"]]
    server.wait_for(server.tuned)
    assert server.tuned()[0]["key"] == ["1000", "'torch.float16'", "'torch.float16'"]


def test_choices_and_demand_work_in_one_program(server, cache, tmp_path):
    function = {"module": "ops", "name": "add_kernel", "qualname": "add_kernel"}
    (tmp_path / "identity.json").write_text(json.dumps({"functions": [
        {"kernel": "sha256:" + "1" * 64, "name": "add", "function": function, "key_names": ["n"], "tuning_key": ["n"]}]}))
    server.document = document(choices(4096))
    (report,) = tuned(4096, 1000, cache=cache, server=server, WAVETUNE_IDENTITY=str(tmp_path / "identity.json"))
    assert report["used"] == [CHOSEN] * 2 + [LAST] * 2

    def reports():
        """What `wavetune.demand` counts; misses of programs that start tuned go the same way."""
        bodies = [json.loads(body) for _, path, body in server.requests if path == "/v1/demand"]
        return [body for body in bodies if "items" in body]

    server.wait_for(reports)
    (body,) = reports()
    assert [(item["key"], item["hits"], item["misses"]) for item in body["items"]] == [({"n": 1000}, 0, 1),
                                                                                      ({"n": 4096}, 1, 0)]
    server.wait_for(server.tuned)


def test_a_triton_that_is_not_known_is_left_alone(server, cache):
    text = """import types
import wavetune.auto
from wavetune._runtime import restore
class Autotuner:
    def __init__(self):
        self.cache = {}
before = Autotuner.__init__
restore.patch(types.SimpleNamespace(__name__="triton.runtime.autotuner", Autotuner=Autotuner))
restore.patch(types.SimpleNamespace(__name__="triton.runtime.autotuner"))
print(int(Autotuner.__init__ is before))"""
    assert python("-c", text, cache=cache, server=server) == [1]


def test_autotuners_are_patched_once_and_copies_of_caches_are_plain(server, cache):
    text = HEAD + """
import copy, pickle, wavetune.auto, ops
from triton.runtime.autotuner import Autotuner
from wavetune._runtime import restore
init = Autotuner.__init__
restore.patch(sys.modules["triton.runtime.autotuner"])
copied = copy.copy(ops.add_kernel.cache)
print(json.dumps([Autotuner.__init__ is init, type(ops.add_kernel.cache).__name__, type(copied).__name__]))"""
    assert python("-c", text, cache=cache, server=server) == [[True, "Restoring", "dict"]]


def test_a_choice_that_a_launch_prunes_is_not_taken(server, cache, tmp_path):
    text = (TUNED / "ops.py").read_text().replace(
        'configs=CONFIGS, key=["n"]', 'configs=CONFIGS, key=["n"], prune_configs_by={"early_config_prune": '
        'lambda configs, given, **_: [c for c in configs if c.kwargs["BLOCK"] < given["n"]]}')
    (tmp_path / "ops.py").write_text(text)
    server.document = document(choices(4096, 512))
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{HEAD}" + """
import wavetune
counted = wavetune.counters()
print(json.dumps([program.launch([4096, 512]), program.DRIVER.benchmarked, counted["hits"]]))
counted = wavetune.counters()
print(json.dumps([counted["hits"], counted["misses"]]))"""
    found = python("-c", "import wavetune.auto\n" + program, cache=cache, server=server)
    assert found == [[[CHOSEN, CHOSEN, [256, 8], CHOSEN], 2, 0], [3, 1]]  # two configs were left for 512
    found = python("-c", "import wavetune.auto\n" + program, cache=cache, server=server, WAVETUNE_ON_MISS="first")
    assert found == [[[CHOSEN, CHOSEN, [256, 4], CHOSEN], 0, 0], [3, 1]]


def test_under_tritons_interpreter_nothing_is_done(server, cache):
    text = "import wavetune.auto, wavetune._runtime.program as p\nprint(int(p.program() is None))"
    assert python("-c", text, cache=cache, server=server, TRITON_INTERPRET="1") == [1]


def test_a_warm_up_compiles_what_it_would_without_wavetune(server, cache):
    text = HEAD + """
import wavetune.auto, ops
compiles = program.standin.Compiles()
ops.add_kernel.warmup(program.Tensor(), program.Tensor(), 4096, grid=(1,))
print(compiles.n)"""
    assert python("-c", text, cache=cache, server=server, WAVETUNE_ON_MISS="first") == [6]


def test_a_forked_child_has_the_choices_and_asks_for_itself(server, cache):
    server.document = document(choices(4096))
    parent, child = tuned("fork", 4096, 1000, cache=cache, server=server)
    assert parent["used"] == [CHOSEN] * 2 and child["used"] == [CHOSEN] * 2 + [LAST] * 2 and child["benchmarked"] == 12
    assert child["counters"]["hits"] == 0 and child["counters"]["misses"] == 2  # what the parent had is in the cache
    assert len(server.asked("GET", "/v1/choices")) == 1


@pytest.mark.one_triton
def test_the_token_comes_from_a_file_and_children_do_not_inherit_the_variable(server, cache, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    server.document = document(choices(4096))
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_TOKEN="", WAVETUNE_TOKEN_FILE=str(tmp_path / "token"))
    assert essence(report) == RESTORED and set(server.authorizations) == {f"Bearer {TOKEN}"}
    text = "import os, wavetune.auto, subprocess\nprint(int('WAVETUNE_TOKEN' in os.environ))"
    assert python("-c", text, cache=cache, server=server) == [0]


@pytest.mark.one_triton
def test_a_token_is_not_sent_unencrypted_to_another_host(cache):
    (report,) = tuned(4096, cache=cache, server="http://192.0.2.1:8080")
    assert essence(report) == UNTOUCHED and report["counters"]["requests"] == 0


def test_the_listener_of_a_program_is_still_called(server, cache):
    if not hasattr(getattr(getattr(triton, "knobs", None), "autotuning", None), "listener"):
        pytest.skip("this Triton has no listener")
    text = HEAD + """
import wavetune.auto
seen = []
triton.knobs.autotuning.listener = lambda **told: seen.append(told["cache_hit"])
program.launch([4096])
print(json.dumps(seen))"""
    assert python("-c", text, cache=cache, server=server) == [[False, False]]
    server.wait_for(server.tuned)


def test_two_programs_share_a_folder(server, cache):
    server.document = document(choices(4096))
    argv = [sys.executable, "-m", "wavetune", "run", str(TUNED / "program.py"), "4096"]
    running = [subprocess.Popen(argv, env=environment(cache, server), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    reports = [json.loads(process.communicate(timeout=600)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert all(report["used"] == [CHOSEN] * 2 and report["benchmarked"] == 0 for report in reports)
