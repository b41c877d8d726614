"""What /metrics counts of known traffic: times of requests in buckets, tokens that were refused, by reason, and leases."""

import collections
import concurrent.futures
import math
import re

import harness
import pytest
from hands import ENVIRONMENT, Hand, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import make_token, wait_until

REASONS = ("missing", "unknown", "expired", "provider", "busy", "role", "identity", "agent", "enrolment", "channel")


def metrics(server):  # noqa: F811
    """Name -> {labels as in the text: value}."""
    found = collections.defaultdict(dict)
    text = server.request("GET", "/metrics").body.decode()
    for name, labels, value in re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", text, re.M):
        found[name][labels] = float(value)
    return found


def histograms(found, name):
    """Route -> [(bound, count up to it)], in the order of the text."""
    by_route = collections.defaultdict(list)
    for labels, value in found[f"{name}_bucket"].items():
        route, bound = re.fullmatch(r'route="(\w+)",le="(\S+)"', labels).groups()
        by_route[route].append((float(bound), value))
    return by_route


def test_the_times_of_known_requests_are_in_buckets_that_add_up(server):  # noqa: F811
    before = metrics(server)
    traffic = {"job_list": ("GET", "/v1/jobs", 7, 200), "environment_list": ("GET", "/v1/environments", 3, 200),
               "healthz_get": ("GET", "/healthz", 5, 200), "job_get": ("GET", "/v1/jobs/999", 2, 404),
               "none": ("GET", "/nowhere", 4, 404)}
    for method, path, n, status in traffic.values():
        assert [server.request(method, path).status for _ in range(n)] == [status] * n
    after = metrics(server)

    name = "wavetune_http_work_seconds"
    for route, buckets in histograms(after, name).items():
        bounds, counts = zip(*buckets)
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf and len(bounds) > 10, route
        assert list(counts) == sorted(counts), route
        assert counts[-1] == after[f"{name}_count"][f'route="{route}"'], route
        answers = sum(n for labels, n in after["wavetune_http_answers_total"].items() if f'route="{route}"' in labels)
        assert counts[-1] == answers, "each answer has its time"
        least = sum((n - n_before) * bound for (bound, n_before), (_, n) in zip(buckets, buckets[1:]))
        assert after[f"{name}_sum"][f'route="{route}"'] >= least, "each time exceeds the bound below its bucket"

    for route, (_, _, n, status) in traffic.items():
        labels = f'route="{route}"'
        assert after[f"{name}_count"][labels] - before[f"{name}_count"].get(labels, 0) == n, route
        labels = f'route="{route}",status="{status}"'
        assert after["wavetune_http_answers_total"][labels] - before["wavetune_http_answers_total"].get(labels, 0) == n, route


@pytest.fixture
def refused(server):  # noqa: F811
    """Checks that a request is refused with this status and counted for this reason alone."""
    def refused(reason, status, method, path, body=None, token="admin", at=server):
        before = metrics(at)["wavetune_tokens_refused_total"]
        answer = at.request(method, path, body, token=token)
        assert answer.status == status, answer
        after = metrics(at)["wavetune_tokens_refused_total"]
        counted = {labels: after[labels] - before[labels] for labels in after if after[labels] != before[labels]}
        assert counted == {f'reason="{reason}"': 1}, (reason, counted)

    return refused


def test_a_refused_token_is_counted_by_its_reason(server, hands, refused, start, database):  # noqa: F811
    assert list(metrics(server)["wavetune_tokens_refused_total"]) == [f'reason="{reason}"' for reason in REASONS]
    refused("missing", 401, "GET", "/v1/jobs", token=None)
    refused("unknown", 401, "GET", "/v1/jobs", token="wt_unknown")
    refused("unknown", 401, "GET", "/v1/jobs", token="wt_unknown")  # which is answered from memory
    reader = make_token(database, "reader", "reader")
    refused("role", 403, "POST", "/v1/jobs", {}, reader)

    short = server.request("POST", "/v1/tokens", {"name": "short", "role": "reader", "expires": "1s"}).json["token"]
    wait_until(lambda: server.request("GET", "/v1/jobs", token=short).status == 401, 30, "its end")
    refused("expired", 401, "GET", "/v1/jobs", token=short)

    image = make_token(database, "image", "enrol", "--uses", "1")
    body = {"boot": "b", "name": "n", "version": "0.1.0",
            "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]}
    enrolled = server.request("POST", "/v1/agents", body, token=image)
    assert enrolled.status == 201, enrolled
    refused("enrolment", 403, "POST", "/v1/agents", body | {"boot": "another"}, image)
    own, other = enrolled.json["token"], hands("other")
    refused("agent", 403, "POST", f"/v1/agents/{other.id}/heartbeat", {"boot": "b1"}, own)
    refused("agent", 403, "POST", "/v1/leases", {"agent": other.id, "device": "cpu0", "nonce": "n", "wait": 0}, own)
    plain = make_token(database, "plain", "agent")
    refused("agent", 403, "POST", "/v1/leases", {"agent": enrolled.json["agent"], "device": "cpu0", "nonce": "n"}, plain)
    refused("agent", 403, "POST", f"/v1/agents/{enrolled.json['agent']}/heartbeat", {"boot": "b"}, plain)
    refused("agent", 403, "POST", "/v1/leases/7/renew", {"epoch": 1, "config": None}, own)
    refused("agent", 403, "POST", "/v1/agents", body | {"agent": enrolled.json["agent"]}, plain)

    publisher = make_token(database, "publisher", "publisher", "--channel", "stable")
    refused("channel", 403, "PUT", "/v1/channels/other", {"release": "sha256:" + "0" * 64}, publisher)

    strict = start(harness.Server, database, options=(*harness.UNHURRIED, "--require-enrolment"))
    refused("identity", 403, "POST", "/v1/leases", {"agent": "x", "device": "cpu0", "nonce": "n"}, plain, at=strict)


def test_unknown_tokens_that_are_not_looked_up_are_counted_apart(server):  # noqa: F811
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = collections.Counter(pool.map(
            lambda n: server.request("GET", "/v1/jobs", token=f"wt_guess{n}").status, range(2000)))
    counts = metrics(server)["wavetune_tokens_refused_total"]
    assert statuses[401] and statuses[503] and set(statuses) == {401, 503}, statuses
    assert (counts['reason="unknown"'], counts['reason="busy"']) == (statuses[401], statuses[503])


def test_reports_beyond_the_rate_of_a_token_are_counted(server):  # noqa: F811
    answers = (server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "tag": "default", "items": []})
               for _ in range(1000))  # a slow machine posts more before the token's bucket is empty
    assert next(answer for answer in answers if answer.status == 429)
    assert metrics(server)["wavetune_reports_refused_total"][""] == 1


def leases_of(server):  # noqa: F811
    """(open, held), (age of the oldest open one, held one), or None while they are not known."""
    found = metrics(server)
    if not found["wavetune_leases"]:
        return None
    return tuple(tuple(found[name][f'state="{state}"'] for state in ("open", "held"))
                 for name in ("wavetune_leases", "wavetune_leases_oldest_seconds"))


def test_leases_are_counted_with_the_age_of_the_oldest(server, hands, submit, postgres, database, start):  # noqa: F811
    wait_until(lambda: leases_of(server) == ((0, 0), (0, 0)), 60, "no lease")
    submit({"parameters": {"A": list(range(8 * 5))}})
    first, second = hands("a"), hands("b")
    leases = [first.pull().json, second.pull().json]
    postgres.sql("update jobs set created_at = now() - interval '2 h'; update leases set granted_at = now() - interval '1 h' "
                 f"where id = {leases[0]['lease']}", conninfo=database)
    n_open = int(postgres.sql("select count(*) from leases where state = 'open'", conninfo=database))
    wait_until(lambda: leases_of(server)[0] == (n_open, 2) and leases_of(server)[1][1] >= 3600, 60, "the leases")
    assert 7200 <= leases_of(server)[1][0] < 3 * 3600 and leases_of(server)[1][1] < 2 * 3600

    def by_tag():
        found = metrics(server)["wavetune_leases_by_tag"]
        return tuple(found.get(f'state="{state}",tag="default"') for state in ("open", "held"))

    wait_until(lambda: by_tag() == (n_open, 2), 60, "the same by tag")
    another = start(harness.Server, database, options=harness.UNHURRIED)
    wait_until(lambda: leases_of(another) and leases_of(another)[0] == (n_open, 2), 60, "the same at another server")

    # In a later stage the open leases are not as old as their job.
    for hand, lease in zip((first, second), leases):
        assert hand.post(lease).status == 200
    while (lease := first.pull().json)["stage"] == "screen":
        assert first.post(lease).status == 200
    assert server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": "test"}).status == 200
    postgres.sql("update job_events set at = now() - interval '10 min' where kind = 'stage'", conninfo=database)
    n_open = int(postgres.sql("select count(*) from leases where state = 'open'", conninfo=database))
    assert n_open
    wait_until(lambda: leases_of(server)[0] == (n_open, 0) and leases_of(server)[1][0] >= 600, 60, "the later stage")
    assert leases_of(server)[1][0] < 3600 and leases_of(server)[1][1] == 0


def test_a_server_without_its_database_states_no_leases(start, tmp_path):
    cluster = harness.Postgres(durable=False)
    try:
        server = start(harness.Server, cluster.database(), options=harness.UNHURRIED)  # noqa: F811
        wait_until(lambda: leases_of(server), 60, "the leases")
        cluster.kill()
        wait_until(lambda: not leases_of(server), 60, "the end of the old figures")
        cluster.start()
        wait_until(lambda: leases_of(server), 60, "the leases")
    finally:
        cluster.stop()
