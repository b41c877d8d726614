"""A program starts with the choices of a server or of a file, benchmarks what has none, and takes no config but its own."""

import json
import math

import pytest
import triton
from conftest import ROOT
from contract_server import ENVIRONMENT, Contract, canonical, document
from starting import LAST, MIDDLE, UNTOUCHED, choices, closures, essence, python, tuned

from wavetune._runtime import keys
from wavetune._runtime.choices import Choices
from wavetune._runtime.settings import Settings

CHOSEN = [512, 4]
RESTORED = {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 2}


@pytest.fixture
def server():
    with Contract() as made:
        yield made


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_without_the_variables_the_program_is_untouched(cache):
    (report,) = tuned(4096, cache=cache)
    assert essence(report) == UNTOUCHED and report["counters"] is None


def test_an_empty_server_is_told_what_the_program_tuned(server, cache):
    (report,) = tuned(4096, cache=cache, server=server)
    assert essence(report) == UNTOUCHED
    server.wait_for(lambda: len(server.tuned()) == 2)
    assert all(report["environment"] == ENVIRONMENT for report in server.missed)
    assert [one["name"] for one in server.tuned()] == ["add_kernel", "fill_kernel"]
    one = server.tuned()[0]
    assert one["function"] == closures()["add_kernel"] and one["key"] == ["4096", "'torch.float16'", "'torch.float16'"]


def test_a_program_with_choices_benchmarks_nothing_and_asks_once(server, cache):
    server.document = document(choices(4096, 1000))
    (report,) = tuned(4096, 1000, cache=cache, server=server)
    assert (report["used"], report["benchmarked"]) == ([CHOSEN] * 4, 0)
    assert (report["counters"]["hits"], report["counters"]["misses"]) == (4, 0)
    (method, path, _), (_, last, _) = server.requests
    assert method == "GET" and path.startswith("/v1/choices?") and "gpu=Test%20GPU" in path and "compute_units=132" in path
    assert last == "/v1/counters" and server.counted == [{"hits": 4}] and server.missed == [], "when the program ends"


SETTLING = """import json, sys, types, triton, program, wavetune.auto
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = program.Tensor
triton.runtime.driver.set_active(program.DRIVER)
import ops
for n in map(int, sys.argv[1:]):
    (block, _), (fill, _) = program.launch([n])
    kind = type(ops.add_kernel.cache).__name__
    print(json.dumps([block, fill, kind, program.DRIVER.benchmarked, sorted(key[0] for key in ops.add_kernel.cache)]))
from wavetune._runtime import counters
print(json.dumps([counters.hits, counters.misses, counters.failures]))"""


@pytest.mark.parametrize("stores", [{}, {"TRITON_CACHE_AUTOTUNING": "1"}])
def test_an_autotuner_that_has_settled_looks_again_on_a_new_key(server, cache, stores):
    server.document = document(choices(4096, 1000))
    *lines, counted = python("-c", SETTLING, 4096, 4096, 4096, 1000, 1000, 1000, 2000, 1000, cache=cache, server=server, SETTLED="2",
                             **stores)
    assert [line[2] for line in lines] == ["Restoring", "Restoring", "Settled", "Restoring", "Restoring", "Settled",
                                           "Restoring", "Restoring"]
    assert [line[:2] for line in lines] == [[512, 512]] * 6 + [[1024, 1024], [512, 512]]
    assert [line[3] for line in lines] == [0] * 6 + [12] * 2 and lines[-1][4] == [1000, 2000, 4096]
    assert counted == [4, 2, 0]
    # What was tuned is reported, and what was chosen is not stored as if it had been measured.
    server.wait_for(lambda: len(server.tuned()) == 2)
    stored = [json.loads(path.read_text()) for path in cache.rglob("*.autotune.json")]
    assert len(stored) == (2 if stores and hasattr(triton, "knobs") else 0)
    assert all(timing[0] > 0 for found in stored for _, timing in found["configs_timings"])


@pytest.mark.one_triton
def test_keys_that_the_document_lacks_are_asked_for_a_few_times_only(server, cache):
    server.document = document(choices(4096))
    server.later = {(closure, tuple(key)): config for closure, _, key, config in choices(1000)}
    (report,) = tuned(4096, 1000, 1, 2, cache=cache, server=server)
    assert report["used"][:4] == [CHOSEN] * 4 and report["used"][4:] == [LAST] * 4 and report["benchmarked"] == 24
    assert len(server.asked("GET")) == 1 and len(server.asked("POST", "/v1/choices")) == 2


def test_a_file_that_fetch_brought_is_enough(cache, tmp_path):
    (tmp_path / "choices").mkdir()
    (tmp_path / "choices.json").write_bytes(canonical(document(choices(4096))))
    (report,) = tuned(4096, cache=cache, WAVETUNE_CACHE=str(tmp_path))
    assert essence(report) == RESTORED


@pytest.mark.one_triton
def test_the_file_comes_first_and_then_nothing_is_asked_for(server, cache, tmp_path):
    (tmp_path / "choices").mkdir()
    (tmp_path / "choices.json").write_bytes(canonical(document(choices(4096))))
    server.document = document(choices(4096, config={"BLOCK": 256, "num_warps": 4}))
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_CACHE=str(tmp_path))
    assert essence(report) == RESTORED and [path for _, path, _ in server.requests] == ["/v1/counters"]


def from_file(folder, text):
    """What a process finds for a key with this choices.json."""
    (folder / "choices").mkdir(exist_ok=True)
    (folder / "choices.json").write_bytes(text)
    return Choices(Settings({"WAVETUNE_CACHE": str(folder)}, None), None).find("sha256:x", ("1",))


@pytest.mark.one_triton
def test_a_garbled_file_has_no_choices(tmp_path):
    good = document([("sha256:x", "f", ["1"], MIDDLE)])
    assert from_file(tmp_path, canonical(good)).config == MIDDLE
    for text in (b"", b"{}", b"[]", b'{"version": 1}', b"\xff\xfe", b"[" * 100000, canonical({**good, "functions": []}),
                 canonical({**good, "version": 2}), canonical({**good, "regime": "warm"}), canonical({**good, "code": 5}),
                 canonical({**good, "functions": {"sha256:x": {"choices": [{"key": 5, "config": {}}]}}}),
                 canonical({**good, "functions": {"sha256:x": {"choices": [{"key": [5], "config": {}}]}}}),
                 canonical({**good, "functions": {"sha256:x": {"choices": [{"key": ["1"], "config": []}]}}})):
        assert from_file(tmp_path, text) is None, text[:80]


@pytest.mark.one_triton
def test_a_garbled_file_changes_nothing(cache, tmp_path):
    from_file(tmp_path, canonical(document(choices(4096)))[:-5])
    (report,) = tuned(4096, cache=cache, WAVETUNE_CACHE=str(tmp_path))
    assert essence(report) == UNTOUCHED


def test_a_config_that_is_not_exactly_one_of_the_programs_is_not_taken(server, cache):
    server.document = document(choices(4096, config={"BLOCK": 2048, "num_warps": 4}))
    (report,) = tuned(4096, cache=cache, server=server)
    assert essence(report) == UNTOUCHED and (report["counters"]["hits"], report["counters"]["unfit"]) == (0, 2)


@pytest.mark.parametrize("stated, fits", [
    ({"BLOCK": 512, "num_warps": 4}, True), ({"BLOCK": 512, "num_warps": 4, "num_ctas": 1, "maxnreg": None}, True),
    ({"BLOCK": 2048, "num_warps": 4}, False),
    ({"BLOCK": 512}, False),  # two of the program's
    ({"BLOCK": 512, "num_warps": 4, "ir_override": "/tmp/evil.ttgir"}, False),
    ({"BLOCK": 512, "num_warps": 4, "waves_per_eu": 2}, False), ({"BLOCK": "512", "num_warps": 4}, False),
    ({"BLOCK": 512, "num_warps": True}, False), ({"BLOCK": [512], "num_warps": 4}, False), ({}, False), (None, False)])
def test_members_are_compared_one_by_one(stated, fits):
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024) for warps in (4, 8)]
    assert keys.fitting(configs, stated) is (configs[0] if fits else None)


def test_configs_that_are_equal_count_as_one_unless_their_hooks_differ():
    twins = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64})]
    assert keys.fitting(twins, {"BLOCK": 64}) is twins[0]
    twins[1].pre_hook = print
    assert keys.fitting(twins, {"BLOCK": 64}) is None


@pytest.mark.parametrize("key, is_text, texts", [
    ((4096, "torch.float16", True, None, 1.5), False, ("4096", "'torch.float16'", "True", "None", "1.5")),
    (("4096", "torch.float16", "True", "None", "1.5"), True, ("4096", "'torch.float16'", "True", "None", "1.5")),
    ((object(),), False, None), ((), False, None), (("x" * 2000,), False, None), (((1, 2),), False, ("'(1, 2)'",))])
def test_a_key_has_the_same_texts_in_every_process(key, is_text, texts):
    assert keys.key_texts(key, is_text) == texts


@pytest.mark.one_triton
@pytest.mark.parametrize("one, other, far", [
    (["4", "'a'"], ["8", "'a'"], 1), (["4", "16"], ["1", "64"], 4), (["4", "'a'"], ["4", "'b'"], math.inf),
    (["0"], ["1"], math.inf), (["-4"], ["4"], math.inf), (["0", "2"], ["0", "4"], 1), (["1"], ["1", "2"], math.inf),
    (["True"], ["False"], math.inf), (["1.5"], ["2.5"], math.inf)])
def test_the_distance_of_keys_is_over_their_integers(one, other, far):
    assert keys.distance(one, other) == keys.distance(other, one) == far


def test_members_that_a_choice_states_as_null_or_default_fit(server, cache):
    server.document = document(choices(4096, config={**MIDDLE, "num_stages": 3, "num_ctas": 1, "maxnreg": None}))
    (report,) = tuned(4096, cache=cache, server=server)
    assert essence(report) == RESTORED


def test_on_miss_first_takes_the_first_config_and_tunes_nothing(server, cache):
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_ON_MISS="first")
    assert (report["used"], report["benchmarked"], server.tuned()) == ([[256, 4]] * 2, 0, [])


@pytest.mark.one_triton
def test_on_miss_nearest_takes_the_choice_of_the_nearest_key(server, cache):
    far = choices(64, config={"BLOCK": 256, "num_warps": 8})
    server.document = document(choices(4096) + far)
    (report,) = tuned(3000, 100, cache=cache, server=server, WAVETUNE_ON_MISS="nearest")
    assert (report["used"], report["benchmarked"]) == ([CHOSEN, CHOSEN, [256, 8], [256, 8]], 0)


@pytest.mark.one_triton
def test_on_miss_nearest_tunes_where_nothing_is_near(server, cache):
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_ON_MISS="nearest")
    assert essence(report) == UNTOUCHED


@pytest.mark.one_triton
def test_an_unknown_policy_is_tune(server, cache):
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_ON_MISS="guess")
    assert essence(report) == UNTOUCHED


@pytest.mark.one_triton
def test_a_pinned_release_is_the_only_one_that_counts(server, cache, tmp_path):
    server.document = document(choices(4096))
    (report,) = tuned(4096, cache=cache, server=server, WAVETUNE_RELEASE="sha256:" + "a" * 64)
    assert essence(report) == RESTORED and server.asked("GET") == ["/v1/choices?release=sha256%3A" + "a" * 64]
    server.requests.clear()
    (report,) = tuned(4096, cache=tmp_path / "2", server=server, WAVETUNE_RELEASE="sha256:" + "b" * 64)
    assert essence(report) == UNTOUCHED and server.asked("POST", "/v1/choices") == []
    (report,) = tuned(4096, cache=tmp_path / "3", server=server, WAVETUNE_RELEASE="newest")
    assert essence(report) == UNTOUCHED and len(server.asked("GET")) == 1


FAILING = """import json, sys, triton, standin, wavetune.auto
driver = standin.Driver()
standin.use(driver)
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (4096, 2048, 512, 256)], key=["n"])
@triton.jit
def kernel(y_ptr, n, BLOCK: tl.constexpr, MOST: tl.constexpr):
    tl.static_assert(BLOCK <= MOST)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, offsets, mask=offsets < n)

for n, most in ((8, 1000), (9, 4096), (9, 256), (10, 1)):
    try:
        kernel.run(standin.Tensor("int32", 16), n, MOST=most, grid=(1,), warmup=True)
        print(json.dumps(kernel.best_config.kwargs["BLOCK"]))
    except triton.CompilationError as error:
        print(json.dumps(type(error).__name__))
"""


@pytest.mark.parametrize("policy, used", [("first", [512, 4096, 256]), ("tune", [512, 4096, "CompileTimeAssertionFailure"])])
def test_on_miss_first_takes_the_first_config_that_compiles(cache, tmp_path, policy, used):
    """Also where another launch of the key needs other code. Where none compiles the program's own exception is raised."""
    (tmp_path / "program.py").write_text(FAILING.replace("standin.Driver()", "standin.Driver(first_wins=True)"))
    found = python(tmp_path / "program.py", cache=cache, WAVETUNE_CACHE=str(tmp_path), WAVETUNE_ON_MISS=policy, COMPILE_ALL="1",
                   PYTHONPATH=f"{ROOT / 'python'}:{ROOT / 'tests/python'}")
    assert found == [*used, "CompileTimeAssertionFailure"]
