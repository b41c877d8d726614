"""What Helion's search found in one container starts another. The checks run with plain values, and against the real server;
with a real Helion where tests/python/torch-env.sh made one."""

import contextlib
import json
import types

import pytest
from contract_server import Contract
from sharing import harness, server, share, wait_until_sent, with_torch  # noqa: F401
from test_trouble import TROUBLES

from wavetune import helion
from wavetune._runtime import counters, found, wire
from wavetune._runtime.found import Bad

KEY = "d" * 64
CONFIG = {"block_sizes": [32, 64], "loop_orders": [[0, 1]], "range_flattens": [None], "pid_type": "flat", "num_warps": 4}
VALUE = {"config": json.dumps(CONFIG), "key": {"type": "LooseAutotuneCacheKey", "fields": {"hardware": "Test GPU"}},
         "flat_config": "[32, 64, [0, 1], null, 4]"}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 60.0)


def of(config):
    return {**VALUE, "config": json.dumps(config)}


@contextlib.contextmanager
def asking(refusal=None, policy=None):
    """Helion's cache, while it asks; its kernel's specification refuses configs with that error."""
    def normalize(config):
        config["num_stages"] = 1  # it changes what it is given
        if refusal is not None:
            raise refusal

    def validate(record):
        if policy is not None:
            raise policy
    helion._asking.cache = types.SimpleNamespace(
        kernel=types.SimpleNamespace(config_spec=types.SimpleNamespace(normalize=normalize)), _validate_config_policy=validate)
    try:
        yield
    finally:
        helion._asking.cache = None


# The checks

def test_what_helion_writes_is_accepted():
    assert helion.check(VALUE) == CONFIG
    assert helion.check({**VALUE, "flat_config": [1, [True]], "backend_cache_key": "x"}) == CONFIG
    assert helion.check({name: VALUE[name] for name in ("config", "key")}) == CONFIG


@pytest.mark.parametrize("value", [
    None, [], "x", {}, {**VALUE, "more": 1}, {**VALUE, "cute_structural_policy": {}}, {**VALUE, "config": CONFIG},
    {**VALUE, "config": "{"}, {**VALUE, "config": "[]"}, {**VALUE, "config": "[" * 100000}, {**VALUE, "key": []},
    {**VALUE, "key": {"type": "x"}}, {**VALUE, "key": {"type": "x", "fields": {"a": 1}}}, {**VALUE, "backend_cache_key": 1},
    {**VALUE, "flat_config": "{}"}, {**VALUE, "flat_config": "x"}, {**VALUE, "flat_config": [{}]},
    of({"advanced_controls_file": "/x"}), of({"a": "/etc/x"}), of({"a": 0.5}), of({"a": {}}), of({"a": [[[[1]]]]}),
    of({"a b": 1}), of({"a": 2**31}),
    of({f"a{i}": 1 for i in range(65)})])
def test_what_helion_does_not_write_is_refused(value):
    with pytest.raises(Bad):
        helion.check(value)


# With a server

def path(key=KEY):
    return found._found._path("helion", key, found._found.hardware())


def test_what_one_container_found_starts_another(server, share):  # noqa: F811
    share(server.url, server.container)
    with asking():
        assert helion.get(KEY) is None and counters.misses == 1
        helion.put(KEY, json.dumps(VALUE, indent=2))
        wait_until_sent(server, path(), server.container)
        assert json.loads(helion.get(KEY)) == VALUE and counters.hits == 1
    assert [json.loads(one) for one in helion.newest(5)] == [VALUE]


def test_what_the_kernel_refuses_is_not_taken(server, share):  # noqa: F811
    share(server.url, server.container)
    key = "1" * 64
    assert server.request("PUT", path(key), VALUE, token=server.container).status == 204
    for trouble in ({"refusal": ValueError("another number of blocks")}, {"policy": ValueError("a policy")}):
        with asking(**trouble):
            assert helion.get(key) is None
    assert counters.refused == 2
    assert helion.get(key) is None, "no kernel asks"
    assert server.request("PUT", path("2" * 64), of({"advanced_controls_file": "x"}), token=server.container).status == 422


def test_what_others_would_not_take_is_not_sent(server, share):  # noqa: F811
    shared = share(server.url, server.container)
    large = {**VALUE, "flat_config": [1] * 40000}
    for key, data in ((KEY, "x"), (KEY, json.dumps(of({"advanced_controls_file": "x"}))), ("x", json.dumps(VALUE)),
                      (KEY, json.dumps(large)), (KEY, " " * 10**6 + json.dumps(VALUE))):
        helion.put(key, data)
    assert not shared.program.sender._files and counters.sent == counters.dropped == 0


def test_a_poisoned_list_is_left_out(share):  # noqa: F811
    with Contract() as contract:
        contract.trouble = lambda handler: handler.answer(200, json.dumps([of({"a": "/x"}), VALUE, 5]).encode()) or True
        share(contract.url)
        assert [json.loads(one) for one in helion.newest(5)] == [VALUE] and helion.newest(1) == []
        assert counters.refused == 3


def test_in_a_closed_namespace_one_request_is_made(server, share):  # noqa: F811
    share(server.url, server.closed)
    with asking():
        assert helion.newest(5) == [] and helion.get(KEY) is None and counters.requests == 1


@pytest.mark.parametrize("what", TROUBLES)
def test_in_trouble_helion_searches_as_ever(share, what, monkeypatch):  # noqa: F811
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 0.5)
    with Contract() as contract, asking():
        contract.trouble = TROUBLES[what]
        share(contract.url)
        assert helion.get(KEY) is None and helion.newest(3) == []
        helion.put(KEY, json.dumps(VALUE))


def test_a_surprise_is_none_of_helions():
    with helion.quietly("x"):
        raise ZeroDivisionError
    with pytest.raises(AttributeError):
        helion.Other


# In Helion's modules: stand-ins of what is patched

def modules():
    class Settings:
        def __init__(self, **settings):
            self.settings = settings

    class Cache:
        def get(self):
            return helion._asking.cache
    return (types.SimpleNamespace(__name__=found.MODULES[1], Settings=Settings),
            types.SimpleNamespace(__name__=found.MODULES[2], RemoteAutotuneCache=Cache,
                                  StrictRemoteAutotuneCache=type("S", (Cache,), {}), _load_remote_backend=lambda: "own",
                                  _load_remote_backend_if_configured=lambda: None))


def test_kernels_use_the_remote_cache_where_no_variable_names_another(share, monkeypatch):  # noqa: F811
    share("http://127.0.0.1:9")
    monkeypatch.setitem(vars(helion), "Backend", lambda: "ours")
    for name in (helion.VARIABLE, helion.BACKEND):
        monkeypatch.delenv(name, raising=False)
    settings, cache = modules()
    found.patch(settings)
    found.patch(cache)
    assert settings.Settings().settings == {"autotune_cache": "RemoteAutotuneCache"}
    assert settings.Settings(autotune_cache="AOTAutotuneCache").settings == {"autotune_cache": "AOTAutotuneCache"}
    assert cache._load_remote_backend() == cache._load_remote_backend_if_configured() == "ours"
    one = cache.RemoteAutotuneCache()
    assert one.get() is one and helion._asking.cache is None

    monkeypatch.setenv(helion.BACKEND, "theirs.Backend")
    assert settings.Settings().settings == {} and cache._load_remote_backend() == "own"
    assert cache._load_remote_backend_if_configured() is None
    monkeypatch.delenv(helion.BACKEND)
    found._found.is_closed = True
    assert settings.Settings().settings == {} and cache._load_remote_backend() == "own"


def test_a_helion_of_another_kind_is_left_alone(share):  # noqa: F811
    share("http://127.0.0.1:9")
    for name in found.MODULES[1:]:
        found.patch(types.SimpleNamespace(__name__=name))
    assert counters.failures == 2


# With a real Helion

FULL = {"block_sizes": [32, 64], "num_warps": 8}
BY_HAND = {"HELION_AUTOTUNE_CACHE": "RemoteAutotuneCache", "HELION_REMOTE_CACHE_BACKEND": "wavetune.helion.Backend"}


@pytest.mark.parametrize("way", [{}, {"way": (), **BY_HAND}], ids=["no variable", "by hand"])
def test_helions_own_cache_shares_what_it_found(server, way):  # noqa: F811
    steps = (["get"], ["put", FULL], ["get"], ["list"])
    reports = with_torch("2.15.0", "searching", *steps, url=server.url, token=server.container, **way)
    assert {report["cache"] for report in reports} == {"RemoteAutotuneCache"}
    assert reports[2]["config"] == FULL and FULL in reports[3]["listed"]
    assert reports[-1]["counters"]["failures"] == reports[-1]["counters"]["refused"] == 0


def test_helion_goes_on_in_trouble_and_where_its_kernel_refuses_the_config():
    with Contract() as contract:
        poison = {**of({"block_sizes": [32]})}  # of two
        contract.trouble = lambda handler: handler.answer(200, json.dumps(poison).encode()) or True
        (report,) = with_torch("2.15.0", "searching", ["get"], url=contract.url)
        assert report["config"] is None and report["counters"]["refused"] == 1
        contract.trouble = TROUBLES["garbage"]
        reports = with_torch("2.15.0", "searching", ["get"], ["list"], url=contract.url)
        assert reports[0]["config"] is None and reports[1]["listed"] == []


def test_without_a_server_helion_is_left_alone():
    (report,) = with_torch("2.15.0", "searching", ["get"])
    assert (report["cache"], report["config"], report["counters"]["requests"]) == ("LocalAutotuneCache", None, 0)
