"""Fixtures: one server with jobs, releases and hostile names for a file of tests, and a browser."""

import json
import types

import browser as browsers  # first: it finds the helpers of tests/system
import harness
import pytest
from hands import ENVIRONMENT, Hand, register
from test_captures import OTHER, function, launch, lease, post, results

# Names that would run as code where a page took text for HTML.
HOSTILE = "<img src=x onerror=\"window.owned='yes'\">"
SECRET = "a-secret-of-the-proxy-0123456789"
REFUSED = "the argument \"layout\" of the function is a callable, which cannot be made again: make one kernel for each of them"
SPACE = {"parameters": {"BLOCK": [16, 32, 64, 128], "WARPS": [1, 2, 4], "STAGES": [1, 2]}}

RATIOS = {config: 1 if config == 0 else 0.7 + 0.02 * ((config * 7 + 3) % 24) for config in range(24)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server whose data every page can show, made through its API by simulated agents."""
    postgres = harness.Postgres(durable=False)
    server = None
    try:
        database = postgres.database()
        folder = tmp_path_factory.mktemp("server")
        (folder / "secret").write_text(SECRET)
        # A browser that sends what a proxy adds is behind that proxy, for the server.
        signed_in = ("--trusted-proxy", "127.0.0.1", "--sign-in-secret", folder / "secret", "--sign-in", "group:tuners=sam-submits",
                     "--sign-in", "user:*@example.com=eve-reads")
        server = harness.Server(database, folder, options=(*harness.UNHURRIED, "--poll-ms", "200", *harness.LEASES_OF_8, *signed_in))
        yield populate(postgres, database, server)
    finally:
        if server:
            server.kill()
        postgres.stop()


def populate(postgres, database, server):
    kernel = register(server)
    first, second, third = (Hand(server, name, devices=("cpu0", "cpu1")) for name in ("node-1", "node-2", HOSTILE))

    def submit(key, expected=201, token=None, **more):
        body = {"kernel": kernel, "key": {"n": key}, "space": SPACE, "environment": ENVIRONMENT} | more
        answer = server.request("POST", "/v1/jobs", body, **({"token": token} if token else {}))
        assert answer.status == expected, answer
        return answer.json["job"]

    # Times by the baseline's, config 0's: one best, others beside it, two that fail.
    jobs = [submit(64 * 2**i) for i in range(4)]
    first.work(ratios=RATIOS, outcomes={5: "runtime", 9: "compile"}, detail=f"fault at {HOSTILE}")
    made = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
    assert made.status in (200, 201), made
    old = made.json["release"]
    assert server.request("PUT", "/v1/channels/stable", {"release": old}, headers={"If-None-Match": "*"}).status == 200

    # Another run finds other winners: a second release, to which the channel may be moved.
    again = [submit(64 * 2**i, run="again") for i in range(3)]
    second.work(ratios={config: 1 if config == 0 else 0.7 + 0.02 * ((config * 11 + 5) % 24) for config in range(24)})
    made = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
    assert made.status in (200, 201) and made.json["release"] != old, made
    new = made.json["release"]

    hostile = submit(7, tag=HOSTILE, run=HOSTILE)
    running = submit(8)
    held = first.pull()  # the hostile job's, being the older one
    assert held.status == 200
    assert server.request("POST", f"/v1/agents/{third.id}/drain", {"reason": HOSTILE, "device": "cpu1"}).status == 200
    cancelled = submit(9, run="wrong")
    assert server.request("DELETE", f"/v1/jobs/{cancelled}").status == 200
    demand = harness.make_token(database, "container", "demand")
    assert post(server, demand, [function(OTHER) | {"name": "package.layers.attention:attention_forward_kernel"}], [launch(64, OTHER)]).status == 202
    builder = harness.make_token(database, "builder", "builder")
    one, = lease(server, builder).json["launches"]
    assert results(server, builder, {"id": one["id"], "epoch": one["epoch"], "refused": REFUSED}).status == 200
    assert post(server, demand, [function()], [launch(64), launch(128)]).json["launches"] == 2
    missed = {"function": OTHER, "name": "late_kernel", "key": ["64", "'torch.float16'"], "why": "the release has nothing of this function"}
    answer = server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "missed": [missed]}, token=demand)
    assert answer.status == 202, answer
    answer = server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "items": [{"kernel": kernel, "key": {"n": 5000}, "misses": 1234, "kernel_ms": 2.0}]}, token=demand)
    assert answer.status == 202 and answer.json["accepted"] == 1, answer
    # The API lets no such name in; a page must not rely on that.
    postgres.sql(f"update kernels set name = 'hostile/{HOSTILE.replace(chr(39), chr(39) * 2)}'", conninfo=database)

    tokens = {"reader": harness.make_token(database, "eve-reads", "reader"), "admin": server.token,
              "submitter": harness.make_token(database, "sam-submits", "submitter"),
              "publisher": harness.make_token(database, "pam-publishes", "publisher,submitter", "--channel", "stable", "--channel", "ci-*")}
    return types.SimpleNamespace(server=server, database=database, postgres=postgres, kernel=kernel, jobs=jobs, again=again, old=old, new=new, hostile=hostile,
                                 running=running, lease=held.json, agent=first, drained=third, tokens=tokens, submit=submit)


@pytest.fixture(scope="module")
def chromium():
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture
def tab(chromium, world):
    """Opens tabs, signed in with a role's token: tab("reader", width=360)."""
    tabs = []

    def opened(role="reader", **options):
        made = browsers.Tab(chromium, world.server, **options)
        tabs.append(made)
        return made.sign_in(world.tokens[role]) if role else made

    yield opened
    for each in tabs:
        each.close()


@pytest.fixture(scope="session")
def axe_source():
    import axe_playwright_python
    import pathlib
    return next(pathlib.Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()


def pytest_make_parametrize_id(config, val):
    return json.dumps(val) if isinstance(val, str) else None
