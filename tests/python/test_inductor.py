"""What Inductor's autotuner found in one container starts another. The checks run with plain values, and against the real
server; with a real torch where tests/python/torch-env.sh made one."""

import copy
import sys
import types
from fnmatch import fnmatch

import pytest
from contract_server import Contract
from sharing import harness, server, share, wait_until_sent, with_torch  # noqa: F401
from test_trouble import TROUBLES

from wavetune._runtime import inductor
from wavetune._runtime import counters, found, wire
from wavetune._runtime.found import Bad

HASH, KEY = "c" * 64, "d" * 64
VALUE = {"XBLOCK": 256, "num_warps": 4, "num_stages": 1, "configs_hash": HASH, "found_by_coordesc": False, "time_taken_ms": 12,
         "triton_cache_hash": "A" * 52}
META = {"coordinate_descent_tuning": True}
BLOCKS = {"X": 4096, "Y": 1024, "Z": 1024, "R0_": 65536}


class Config:
    """What Inductor's code reads of triton.Config."""

    def __init__(self, num_warps=4, num_stages=1, **kwargs):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


class Cache:
    """What our code reads of an AutotuneCache."""
    configs_hash = HASH

    def __init__(self, key=KEY, descends=False):
        self.wavetune = (key, descends)


CONFIGS = [Config(XBLOCK=256), Config(XBLOCK=512), Config(XBLOCK=256, num_warps=8)]


def choose(value, configs=CONFIGS, meta=None):
    return inductor.choose(inductor.check(value), configs, HASH, meta or {})


@pytest.fixture(autouse=True)
def torch_hints(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.hints", types.SimpleNamespace(TRITON_MAX_BLOCK=BLOCKS))


# The checks

@pytest.mark.parametrize("more", [
    {"num_warps": "4"}, {"num_warps": None}, {"num_stages": 1.0}, {"configs_hash": "x"}, {"configs_hash": None},
    {"XBLOCK": 0.5}, {"XBLOCK": [1]}, {"XBLOCK": {}}, {"XBLOCK": 2**31}, {"XBLOCK": "a b"}, {"x": "y" * 129},
    {"ir_override": "x"}, {"pre_hook": None}, {"extra_options": {}}, {"a b": 1}, {"": 1}, {f"A{i}": 1 for i in range(64)}])
def test_a_value_that_inductor_does_not_write_is_refused(more):
    with pytest.raises(Bad):
        inductor.check({**VALUE, **more})


@pytest.mark.parametrize("value", [None, [], 5, "x", {}])
def test_a_value_that_is_no_config_is_refused(value):
    with pytest.raises(Bad):
        inductor.check(value)


def test_one_of_the_programs_configs_is_taken():
    assert choose(VALUE) is CONFIGS[0]
    assert choose({**VALUE, "num_warps": 8}) is CONFIGS[2]
    assert choose({**VALUE, "num_consumer_groups": 0, "num_buffers_warp_spec": 0}) is CONFIGS[0]


@pytest.mark.parametrize("more", [{"XBLOCK": 1024}, {"XBLOCK": True}, {"num_warps": 16}, {"num_stages": 2}, {"YBLOCK": 1},
                                  {"configs_hash": "e" * 64}, {"num_consumer_groups": 1}, {"waves_per_eu": 2}])
def test_what_is_none_of_the_programs_configs_is_refused(more):
    with pytest.raises(Bad):
        choose({**VALUE, **more})
    with pytest.raises(Bad):  # Inductor would build a config of it
        choose({**VALUE, **more, "found_by_coordesc": True})


def test_what_fits_several_configs_is_refused():
    with pytest.raises(Bad):
        choose(VALUE, [*CONFIGS, Config(XBLOCK=256)])


def test_a_kernel_without_xblock_is_saved_without_it():
    without = {name: one for name, one in VALUE.items() if name != "XBLOCK"}
    one = [Config(XBLOCK=1, R0_BLOCK=64), Config(XBLOCK=1, R0_BLOCK=128)]
    assert choose({**without, "R0_BLOCK": 128}, one) is one[1]
    with pytest.raises(Bad):
        choose({**without, "R0_BLOCK": 128}, [Config(XBLOCK=8, R0_BLOCK=128)])


def test_what_a_descent_reached_is_taken_where_a_descent_is_on():
    value = {**VALUE, "XBLOCK": 2048, "num_warps": 16, "found_by_coordesc": True}
    before = copy.deepcopy([vars(config) for config in CONFIGS])
    made = choose(value, meta=META)
    assert (made.kwargs, made.num_warps, made.num_stages, made.found_by_coordesc) == ({"XBLOCK": 2048}, 16, 1, True)
    same = choose({**VALUE, "found_by_coordesc": True}, meta=META)
    assert same.found_by_coordesc and same.kwargs == {"XBLOCK": 256}
    assert [vars(config) for config in CONFIGS] == before
    assert choose(VALUE, meta=META) is CONFIGS[0], "Inductor descends from it"
    rocm = choose({**value, "waves_per_eu": 2}, meta={**META, "is_hip": True, "warp_size": 64, "max_threads_per_block": 1024})
    assert rocm.kwargs == {"XBLOCK": 2048, "waves_per_eu": 2}


@pytest.mark.parametrize("more, meta", [
    ({"XBLOCK": 8192}, {}), ({"XBLOCK": 384}, {}), ({"XBLOCK": 0}, {}), ({"XBLOCK": -256}, {}), ({"num_warps": 64}, {}),
    ({"num_warps": 32}, {"warp_size": 64}), ({"num_stages": 2}, {}), ({"YBLOCK": 2}, {}), ({"waves_per_eu": 2}, {}),
    ({"XBLOCK": 8}, {"min_xblock": 16}), ({"BLOCK_M": 64}, {}), ({"XBLOCK": 1024}, {"uses_tma": True}),
    ({"XBLOCK": 1024}, {"RSPLIT_SIZE": 4}), ({"XBLOCK": 1024}, {"combo_grid_meta": {"a": 1}})])
def test_what_no_descent_reaches_is_refused(more, meta):
    with pytest.raises(Bad):
        choose({**VALUE, "found_by_coordesc": True, **more}, meta={**META, **meta})


# With a server

@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 60.0)


def path(key=KEY):
    return found._found._path("inductor", key, found._found.hardware())


def look(key=KEY, configs=CONFIGS, meta=None):
    return inductor.look_up(Cache(key), meta or {}, configs)


def test_what_one_container_found_starts_another(server, share):  # noqa: F811
    share(server.url, server.container)
    assert look() is None and counters.misses == 1
    inductor.send(Cache(), CONFIGS[1], 5 * 10**6, triton_cache_hash="A" * 52)
    wait_until_sent(server, path(), server.container)
    assert look() is CONFIGS[1] and counters.hits == 1 and counters.saved_ms == 5
    assert look(configs=CONFIGS[:1]) is None and counters.unfit == 1
    inductor.send(Cache(), CONFIGS[0], 5 * 10**6)
    assert look() is CONFIGS[1], "the first stays"


def test_a_poisoned_value_is_not_taken(server, share):  # noqa: F811
    share(server.url, server.container)
    key = "1" * 64
    value = {**VALUE, "XBLOCK": 4096, "found_by_coordesc": True}
    assert server.request("PUT", path(key), value, token=server.container).status == 204
    assert look(key) is None and counters.refused == 1
    assert server.request("PUT", path("2" * 64), {**VALUE, "ir_override": "x"}, token=server.container).status == 422


def test_what_others_would_not_take_is_not_sent(server, share):  # noqa: F811
    shared = share(server.url, server.container)
    odd = Config(XBLOCK=256)
    odd.extra_options = {"x": 1}
    for cache, config, more in ((Cache(), odd, {}), (Cache(), Config(XBLOCK=0.5), {}), (Cache("x"), CONFIGS[0], {}),
                                (Cache(), CONFIGS[0], {"found_by_coordesc": True}),
                                (Cache(descends=True), CONFIGS[0], {}),
                                (Cache(descends=True), CONFIGS[0], {"found_by_coordesc": True, "triton_cache_hash": "A" * 52})):
        inductor.send(cache, config, 1, **more)
    assert not shared.program.sender._files and counters.sent == counters.dropped == 0


def test_in_a_closed_namespace_one_request_is_made(server, share):  # noqa: F811
    share(server.url, server.closed)
    assert look() is None and look() is None and found.found() is None and counters.requests == 1


@pytest.mark.parametrize("variables", [{"WAVETUNE_TRUSTED_KEYS": "/x"}, {"WAVETUNE_RELEASE": "sha256:" + "a" * 64},
                                       {"WAVETUNE_URL": "http://wavetune.example"}])
def test_what_nobody_signed_is_not_taken_where_that_is_asked_for(share, variables):  # noqa: F811
    share("http://127.0.0.1:9", **variables)
    assert found.found() is None and look() is None and counters.requests == 0


def test_without_a_known_gpu_nothing_is_shared(share, monkeypatch):  # noqa: F811
    share("http://127.0.0.1:9")
    monkeypatch.setenv("WAVETUNE_ENVIRONMENT", "{}")
    monkeypatch.setattr(found, "_gpu", lambda: None)
    assert look() is None and counters.requests == 0


@pytest.mark.parametrize("what", TROUBLES)
def test_in_trouble_the_program_tunes_as_ever(share, what, monkeypatch):  # noqa: F811
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 0.5)
    with Contract() as contract:
        contract.trouble = TROUBLES[what]
        share(contract.url)
        assert look() is None
        inductor.send(Cache(), CONFIGS[0], 1)


def test_a_server_that_is_away_is_asked_once(share):  # noqa: F811
    share("http://127.0.0.1:9")
    assert look() is None and look() is None and counters.requests == 1


# In torch's module: a stand-in of the class, whose local file is `kept`

def a_module(kept=None):
    class AutotuneCache:
        def __init__(self, configs_hash):
            self.configs_hash, self.saved = configs_hash, []

        @staticmethod
        def create(inductor_meta, filename, configs_hash):
            return AutotuneCache(configs_hash) if filename else None

        @staticmethod
        def _prepare_key(filename):
            return "e" * 64

        def read_best(self, inductor_meta, configs):
            return kept

        def save(self, config, time_taken_ns, found_by_coordesc=False, triton_cache_hash=None):
            self.saved.append(config)
    return types.SimpleNamespace(__name__="torch._inductor.runtime.autotune_cache", AutotuneCache=AutotuneCache)


@pytest.fixture
def torch_key(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", types.SimpleNamespace(torch_key=lambda: b"t" * 32))


BACKEND = {"backend_hash": "B" * 64}


def test_the_wrapped_methods_do_what_inductors_do(share, torch_key):  # noqa: F811
    with Contract() as contract:
        share(contract.url)
        module = a_module()
        found.patch(module)
        owner = module.AutotuneCache
        assert owner.create(BACKEND, None, HASH) is None
        cache = owner.create(BACKEND, "/x/c.py", HASH)
        key, descends = cache.wavetune
        assert found.is_hash(key) and not descends and owner.create({**BACKEND, **META}, "/x/c.py", HASH).wavetune == (key, True)
        assert cache.read_best(BACKEND, CONFIGS) is None and contract.asked("GET", f"/v1/remote/inductor/{key}")
        cache.save(CONFIGS[0], 10**7, triton_cache_hash="A" * 52)
        assert cache.saved == [CONFIGS[0]]
        contract.wait_for(lambda: contract.asked("PUT", f"/v1/remote/inductor/{key}"))
        module = a_module(kept=CONFIGS[1])
        found.patch(module)
        assert module.AutotuneCache.create(BACKEND, "/x/c.py", HASH).read_best(BACKEND, CONFIGS) is CONFIGS[1], "local first"
        assert len(contract.asked("GET", "/v1/remote/")) == 1


@pytest.mark.parametrize("meta", [{}, {"backend_hash": None}, {**BACKEND, "autotune_remote_cache": False},
                                  {**BACKEND, "deterministic": True}])
def test_kernels_that_share_nothing_are_not_asked_for(share, torch_key, meta):  # noqa: F811
    share("http://127.0.0.1:9")
    module = a_module()
    found.patch(module)
    cache = module.AutotuneCache.create(meta, "/x/c.py", HASH)
    assert cache.read_best(meta, CONFIGS) is None and counters.requests == 0 and not hasattr(cache, "wavetune")


def test_an_inductor_of_another_kind_is_left_alone(share):  # noqa: F811
    share("http://127.0.0.1:9")
    found.patch(types.SimpleNamespace(__name__=found.MODULES[0]))
    assert counters.failures == 1
    module = a_module()
    del module.AutotuneCache._prepare_key
    found.patch(module)
    cache = module.AutotuneCache.create(BACKEND, "/x/c.py", HASH)
    cache.wavetune = (KEY, False)
    cache.configs_hash = None
    assert cache.read_best(None, None) is None
    cache.save(None, None)
    assert cache.saved == [None] and counters.failures >= 2


# The hardware

def test_the_hardware_is_what_the_machine_or_the_environment_states(monkeypatch):
    files = {"/proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: \t\t NVIDIA H200\nIRQ:   1\n",
             "/sys/class/kfd/kfd/topology/nodes/0/properties": "simd_count 0\nvendor_id 4098\n",
             "/sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 1216\nvendor_id 4098\ndevice_id 29857\n"}
    there = []
    monkeypatch.setattr(found.environment, "read", lambda path: files[path])
    monkeypatch.setattr(found.environment.glob, "glob", lambda pattern: [path for path in there if fnmatch(path, pattern)])
    monkeypatch.setenv("WAVETUNE_ENVIRONMENT", "no JSON")
    cuda = types.SimpleNamespace(is_initialized=lambda: False, get_device_name=lambda: "NVIDIA H100")
    version = types.SimpleNamespace(cuda="13.2", hip=None)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, version=version))
    assert found.hardware() is None
    cuda.is_initialized = lambda: True
    assert found.hardware() == "NVIDIA H100; cuda 13.2"
    cuda.get_device_name = lambda: 1 / 0
    assert found.hardware() is None
    monkeypatch.setitem(sys.modules, "torch", None)
    there[:] = list(files)[:1]
    assert found.hardware() == "NVIDIA H200"
    there[:] = list(files)[1:]
    assert found.hardware() == "PCI 1002:74a1"
    there[:] = list(files)
    assert found.hardware() is None, "GPUs of several models"
    monkeypatch.setenv("WAVETUNE_ENVIRONMENT", '{"gpu": "MI300X", "partition": "SPX", "rocm": "7.2.0"}')
    assert found.hardware() == "MI300X; SPX; rocm 7.2.0"
    monkeypatch.setenv("WAVETUNE_ENVIRONMENT", '["MI300X"]')
    assert found.hardware() is None


# With a real torch

VERSIONS = pytest.mark.parametrize("version", ["2.9.1", "2.15.0"])


@VERSIONS
def test_inductors_own_objects_share_what_they_found(server, version):  # noqa: F811
    list_of_two, one = [256, 512], [64]
    steps = (["look", False, list_of_two], ["save", False, list_of_two, 512], ["look", False, list_of_two],
             ["look", False, [256, 1024]], ["save", True, one, 128], ["look", True, one])
    reports = with_torch(version, "compiling", *steps, url=server.url, token=server.container)
    miss = [[256, False], [512, False]]
    assert [report["configs"] for report in reports[:4]] == [miss, miss, [[512, False]], [[256, False], [1024, False]]]
    assert [report["configs"] for report in reports[4:]] == [[[64, False]], [[128, True]]]
    last = reports[-1]["counters"]
    assert (last["failures"], last["refused"], last["sent"]) == (0, 0, 2)


@VERSIONS
def test_torch_compile_goes_on_in_trouble_and_asks_for_no_pickles(version):
    with Contract() as contract:
        contract.trouble = lambda handler: "/remote/" in handler.path and TROUBLES["garbage"](handler)
        steps = (["compile"], ["look", False, [256, 512]])
        reports = with_torch(version, "compiling", *steps, url=contract.url)
        plain = with_torch(version, "compiling", *steps)
        assert [report["sum"] for report in (reports[0], plain[0])] == [8.0] * 2
        assert reports[1]["configs"] == plain[1]["configs"] == [[256, False], [512, False]]
        asked = {one.split("?")[0].rsplit("/", 1)[0] for _, one, _ in contract.requests}
        assert asked == {"/v1/remote/inductor"}
