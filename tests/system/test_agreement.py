"""Kernels without a reference: which configs win, what releases require, and what they keep."""

import hashlib

import pytest
from hands import hands, server  # noqa: F401 (fixtures)
from harness import wavetune

ENVIRONMENT = {"rocm": "6.4.1", "gpu": "Test GPU", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
SPACE = {"parameters": {"A": [0, 1, 2, 3]}, "default": {"A": 0}}
RATIOS = {0: 1.0, 1: 0.5, 2: 0.5001, 3: 0.9}


FACTS = {"+": {"agreement": "bitwise"}, "~": {"agreement": "agrees"}, "-": {"agreement": "disagrees"},
         "~i": {"agreement": "agrees", "interpreted": "agrees"}, "+i": {"agreement": "bitwise", "interpreted": "agrees"},
         "+x": {"agreement": "bitwise", "interpreted": "disagrees"}}


def told(**facts):
    """What an agent posts of configs a, b, c and d; those that disagree are not correct."""
    conditions = {"abcd".index(name): FACTS[word] for name, word in facts.items()}
    outcomes = {config: "correctness" for config, found in conditions.items() if "disagrees" in found.values()}
    return {"conditions": conditions, "outcomes": outcomes, "ratios": RATIOS, "detail": "y[3] is 5"}


@pytest.fixture
def kernel(server):
    """A kernel without a reference, of which only its manifest matters here."""
    file = b"void f(float *y, long n) {}"
    digest = "sha256:" + hashlib.sha256(file).hexdigest()
    server.request("PUT", f"/v1/blobs/{digest}", file)
    answer = server.request("POST", "/v1/kernels", {
        "name": "test/agreement", "language": "hip", "entry": "f", "sources": [{"path": "f.hip", "digest": digest}], "key": ["n"],
        "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"}],
        "launch": {"grid": ["n"], "block": [64]}})
    assert answer.status == 201, answer
    return answer.json["kernel"]


@pytest.fixture
def tune(server, hands, kernel):
    """Submits a job and measures it as told; returns it."""
    hand = hands("node1", environment=ENVIRONMENT)

    def tune(run="", space=SPACE, **facts):
        answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": space, "run": run,
                                                     "environment": ENVIRONMENT})
        assert answer.status == 201, answer
        hand.work(**told(**facts))
        return server.get(f"/v1/jobs/{answer.json['job']}")

    return tune


def publish(server, **more):
    return server.request("POST", "/v1/releases", {"environment": ENVIRONMENT} | more)


def config_of(server, answer):
    """The only config of a release, and its provenance."""
    only, = server.get(f"/v1/releases/{answer.json['release']}")["kernels"]
    return only["configs"][0]["values"]["A"], only["provenance"][0]


def test_a_winner_has_its_class(server, tune):
    job = tune(a="+", b="~", c="+", d="~")
    assert (job["winner"]["config"], job["winner"]["agreement"], job["winner"]["interpreted"]) == (1, "agrees", False), job
    listed, = server.items("/v1/jobs")
    assert listed["winner"]["agreement"] == "agrees"
    shown = wavetune(server, "show", job["job"]).stdout
    assert "\nagreement           agrees\n" in shown, shown
    answer = publish(server)
    assert answer.json["included"][0]["agreement"] == "agrees", answer
    value, provenance = config_of(server, answer)
    assert (value, provenance["agreement"]) == (1, "agrees") and "interpreted" not in provenance


@pytest.mark.parametrize("facts, agreement", [({"b": "~i"}, "interpreted"), ({"b": "+i"}, "bitwise")])
def test_the_interpreter_makes_another_class_or_is_stated_beside_bitwise(server, tune, facts, agreement):
    assert tune(**{"a": "+", "c": "~", "d": "+"} | facts)["winner"]["agreement"] == agreement
    value, provenance = config_of(server, publish(server, require_agreement="interpreted"))
    assert (value, provenance["agreement"], provenance["interpreted"]) == (1, agreement, True)


def test_a_default_in_the_minority_ends_its_job_without_a_winner(server, tune):
    job = tune(a="+", b="-", c="-", d="~")
    assert job["state"] == "done" and job["winner"], "two of four are not the majority"
    job = tune("again", a="+", b="-", c="-", d="-")
    assert (job["state"], job["winner"], job["stage"]) == ("done", None, "screen"), job
    assert job["reason"].startswith("configs disagree: 3 of 4 differ from the default; nothing is published"), job
    assert job["reason"].endswith("y[3] is 5")
    shown = wavetune(server, "show", job["job"], check=False).stdout
    assert "done: configs disagree: 3 of 4" in shown and "3 correctness" in shown, shown


def test_a_default_in_the_minority_wins_where_the_interpreter_confirms_it(server, tune):
    job = tune(a="+i", b="-", c="-", d="-")
    assert (job["state"], job["winner"]["config"]) == ("done", 0), job


def test_a_job_without_a_winner_publishes_nothing(server, tune):
    tune(a="+", b="-", c="-", d="-")
    answer = publish(server)
    assert answer.status == 422 and answer.json["skipped"][0]["reason"].startswith("no winner: configs disagree: "), answer


def test_a_default_that_the_interpreter_contradicts_has_no_winner(server, tune):
    job = tune(a="+x", b="+", c="+", d="+")
    assert (job["state"], job["winner"]) == ("done", None) and "Triton's interpreter" in job["reason"], job


def test_a_baseline_that_fails_because_of_the_interpreter_is_no_failure(server, hands, tune, kernel):
    server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 8}, "space": SPACE, "environment": ENVIRONMENT})
    hand = hands("node2", environment=ENVIRONMENT)
    lease = hand.pull().json
    hand.post(lease, configs=[0], baseline_failed=[0], **told(a="+x"))
    job = server.get(f"/v1/jobs/{lease['job']}")
    assert (job["state"], job["winner"]) == ("done", None), job
    assert job["reason"].startswith("configs disagree: the default differs from what Triton's interpreter computes"), job
    assert hand.pull().status == 204


def test_a_required_class_is_that_of_another_config_of_the_equivalence_set(server, tune):
    tune(a="+", b="~", c="+", d="+")
    answer = publish(server, require_agreement="bitwise")
    assert answer.status == 201, answer
    item, = answer.json["included"]
    assert item["agreement"] == "bitwise" and item["reason"] == \
        "config 2 of the equivalence set, as bitwise is required and the winner, config 1, is agrees", item
    value, provenance = config_of(server, answer)
    assert (value, provenance["agreement"]) == (2, "bitwise")
    winner, = server.get(f"/v1/releases/{answer.json['release']}")["kernels"][0]["winners"]
    assert winner[3] == [0.05001], "its own time"
    done = wavetune(server, "publish", "--environment", "{}", "--require-agreement", "bitwise")
    assert "included test/agreement" in done.stderr.replace("  ", " ") or "as bitwise is required" in done.stderr, done


def test_a_winner_of_a_lower_class_is_left_out(server, tune, kernel):
    tune(a="+", b="~", c="~", d="+")
    answer = publish(server, require_agreement="bitwise")
    assert answer.status == 422, answer
    assert answer.json["skipped"][0]["reason"].startswith(
        "its class of agreement is agrees, as is that of its equals, and bitwise is required; pin"), answer
    assert publish(server, require_agreement="interpreted").status == 422
    assert publish(server, require_agreement="agrees").status == 201
    pins = [{"kernel": kernel, "key": {"n": 64}, "config": {"A": 1}}]
    pinned = publish(server, require_agreement="bitwise", pins=pins)
    assert pinned.status == 201 and "agreement" not in pinned.json["included"][0], pinned
    done = wavetune(server, "publish", "--environment", "{}", "--require-agreement", "better", check=False)
    assert done.returncode != 0 and "require_agreement" in done.stderr, done


@pytest.mark.parametrize("values, facts", [([0, 1, 2, 3], {"a": "-", "b": "+", "c": "-", "d": "-"}),
                                           ([0, 5, 1, 2], {"a": "-", "b": "-", "c": "+", "d": "-"})])
def test_a_served_winner_that_is_found_to_disagree_is_not_kept(server, tune, values, facts):
    tune(a="+", b="+", c="~", d="~")
    channel = {"replaces": {"channel": "stable"}}
    assert wavetune(server, "publish", "--environment", "{}", "--channel", "stable").returncode == 0
    kept = publish(server, **channel)
    assert kept.status == 200 and config_of(server, kept)[0] == 1, kept
    later = tune("again", {**SPACE, "parameters": {"A": values}}, **facts)
    assert (later["baseline_from"], later["state"], later["winner"]) == ("incumbent", "done", None), later
    assert "the default differs from the config that won before" in later["reason"], later
    nothing = publish(server, **channel)
    assert nothing.status == 422 and "kept" not in nothing.json, nothing
    assert [item["reason"].split(":")[0] for item in nothing.json["skipped"]] == ["no winner", "disagrees"], nothing
    assert f"job {later['job']} found later that this config computes something else" in nothing.json["skipped"][1]["reason"]
    newest = tune("third", a="+", b="-", c="+", d="~")
    assert (newest["baseline_from"], newest["winner"]["config"]) == ("default", 2), newest
    replaced = publish(server, **channel)
    assert replaced.status == 201 and config_of(server, replaced)[0] == 2, replaced


def test_a_config_that_was_pinned_before_and_disagrees_is_not_kept(server, tune, kernel):
    pins = [{"kernel": kernel, "key": {"n": 64}, "config": {"A": 3}}]
    tune(a="+", b="+", c="~", d="~")
    pinned = publish(server, pins=pins)
    assert server.request("PUT", "/v1/channels/stable", {"release": pinned.json["release"]},
                          headers={"If-None-Match": "*"}).status in (200, 201)
    tune("again", a="+", b="+", c="~", d="-")
    unpinned = publish(server, replaces={"channel": "stable"})
    assert unpinned.status == 201 and config_of(server, unpinned)[0] == 1, unpinned


def test_a_class_that_a_newer_job_states_replaces_the_served_one(server, tune):
    tune(a="+", b="~", c="-", d="~")
    assert wavetune(server, "publish", "--environment", "{}", "--channel", "stable").returncode == 0
    job = tune("again", a="~", b="+", c="~", d="~")
    assert (job["baseline"], job["winner"]["config"], job["winner"]["agreement"]) == (1, 1, "agrees"), "the default only agrees with it"
    assert publish(server, replaces={"channel": "stable"}).status == 200, "nothing changed"
    tune("third", a="+", b="+", c="~", d="~")
    restated = publish(server, replaces={"channel": "stable"})
    assert restated.status == 201 and config_of(server, restated)[1]["agreement"] == "bitwise", restated
