"""The identity of an agent: a node's token cannot act as another node's agent."""

import concurrent.futures
import itertools
import json
import subprocess

import harness
import pytest
from hands import ENVIRONMENT, LARGE, configs_of, expire, kernel, server, submit  # noqa: F401 (fixtures)
from harness import make_token

nonces = (f"i{n}" for n in itertools.count())


class Node:
    """An agent that is played by the test, with a token of its own: `token`, or the one that enrolling with it gave."""

    def __init__(self, server, token, name="node", boot="boot-of-" + "0" * 24, environment=ENVIRONMENT, **more):
        self.server, self.token, self.boot, self.seqs = server, token, boot, itertools.count(1)
        self.body = {"boot": boot, "name": name, "version": "0.1.0",
                     "devices": [{"device": "cpu0", "backend": "cpu", "environment": environment}]} | more
        self.enrolled = self.ask("POST", "/v1/agents", self.body)
        if self.enrolled.status in (200, 201):
            self.id = self.enrolled.json["agent"]
            self.token = self.enrolled.json.get("token", token)

    def ask(self, method, path, body=None):
        return self.server.request(method, path, body, token=self.token)

    def beat(self, node=None):
        node = node or self
        return self.ask("POST", f"/v1/agents/{node.id}/heartbeat", {"boot": node.boot})

    def pull(self, node=None, nonce=None, wait=0):
        return self.ask("POST", "/v1/leases",
                        {"agent": (node or self).id, "device": "cpu0", "nonce": nonce or next(nonces), "wait": wait})

    def lease(self):
        answer = self.pull(wait=60)  # another server may have opened it
        assert answer.status == 200, answer
        return answer.json

    def renew(self, lease, epoch=None):
        return self.ask("POST", f"/v1/leases/{lease['lease']}/renew", {"epoch": epoch or lease["epoch"]})

    def release(self, lease, epoch=None):
        return self.ask("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": epoch or lease["epoch"]})

    def post(self, lease, epoch=None, configs=None):
        measurements = [{"seq": next(self.seqs), "config": config, "outcome": "correct", "device_us": 1000,
                         "samples_us": [100.0 + config] * 5, "baseline_us": [100.0] * 5}
                        for config in (configs_of(lease) if configs is None else configs)]
        return self.ask("POST", f"/v1/leases/{lease['lease']}/results",
                        {"epoch": epoch or lease["epoch"], "measurements": measurements, "done": True})


def plain(lease):
    """As the database knows it."""
    return lease | {"lease": lease["lease"].split(".")[0]}


def rows(postgres, database, sql):
    return postgres.sql(sql, conninfo=database)


@pytest.fixture
def enrol_token(server):
    """Makes enrolment tokens."""
    def make(name="image", **terms):
        answer = server.request("POST", "/v1/tokens", {"name": name, "role": "enrol"} | terms)
        assert answer.status == 201, answer
        return answer.json["token"]

    return make


@pytest.fixture(params=["agent tokens", "own tokens"])
def two(server, database, request, enrol_token):
    """Nodes A and B: with agent tokens of the operator's, as there were before enrolment tokens, and with tokens of their own."""
    if request.param == "own tokens":
        image = enrol_token(uses=2)
        return [Node(server, image, name, f"boot-{name}") for name in "ab"]
    return [Node(server, make_token(database, f"node-{name}", "agent"), name, f"boot-{name}") for name in "ab"]


@pytest.fixture
def nodes(server, enrol_token):
    """Nodes with tokens of their own, from one enrolment token."""
    image = enrol_token(uses=10)
    return lambda name, **more: Node(server, image, name, **{"boot": f"boot-{name}"} | more)


def assert_refused(answer, *words):
    assert answer.status == 403, answer
    for word in words:
        assert word in answer.json["detail"], answer
    return True


def test_another_tokens_renewal_results_and_release_of_a_lease_are_refused(two, submit, postgres, database):
    a, b = two
    submit(LARGE)
    lease = a.lease()
    for attack in (b.renew, b.post, b.release):
        assert_refused(attack(lease), "not granted")
    assert rows(postgres, database, "select count(*) from measurements") == "0", "nothing is recorded under A's name"
    assert a.renew(lease).status == 200 and a.post(lease).status == 200


def test_another_token_cannot_send_heartbeats_or_lease_as_an_agent(two, submit):
    a, b = two
    submit(LARGE)
    assert_refused(b.beat(a))
    assert_refused(b.pull(a))
    assert a.beat().status == 200 and a.pull().status == 200


def test_a_nonce_reveals_no_lease_to_another_token(two, submit):
    a, b = two
    submit(LARGE)
    answer = a.pull(nonce="n-1")
    assert_refused(b.pull(a, nonce="n-1"))
    other = b.pull(nonce="n-1")
    assert other.status in (200, 204) and (other.status == 204 or other.json["lease"] != answer.json["lease"])
    assert a.pull(nonce="n-1").json["lease"] == answer.json["lease"], "A's own nonce still names its lease"


def test_an_id_is_not_taken_by_enrolling_anew(two, server):
    a, b = two
    taken = b.ask("POST", "/v1/agents", b.body | {"agent": a.id})
    assert_refused(taken)
    assert a.beat().status == 200
    assert {agent["agent"]: agent["name"] for agent in server.items("/v1/agents")}[a.id] == "a"


def test_leases_are_not_found_by_counting(two, submit):
    a, b = two
    submit(LARGE)
    a.lease()
    answers = [b.renew({"lease": id, "epoch": 1}) for n in range(1, 9) for id in (str(n), f"{n}.{'A' * 22}")]
    assert {answer.status for answer in answers} <= {403, 404, 409} and 403 in {answer.status for answer in answers}
    assert not any("epoch" in answer.json and answer.json["epoch"] for answer in answers)


def test_a_wrong_epoch_is_not_answered_with_the_right_one(two, submit, expire):
    a, b = two
    submit({"parameters": {"A": [1, 2, 3]}})
    lease = a.lease()
    expire(plain(lease))
    again = a.lease()
    assert again["epoch"] == lease["epoch"] + 1
    for epoch in (lease["epoch"], again["epoch"] + 1):
        late = b.renew(again, epoch=epoch)
        assert late.status in (403, 409) and not late.json.get("epoch") and "epoch is" not in late.json["detail"], late
    renewed = a.renew(lease)
    assert renewed.status == 409 and renewed.json["epoch"] == again["epoch"], "it has the lease"


def test_only_the_holder_is_sent_the_epoch_of_a_lease_that_another_took_over(two, submit, expire):
    a, b = two
    submit({"parameters": {"A": [1, 2, 3]}})
    lease = a.lease()
    expire(plain(lease))
    taken = b.lease()
    late = a.post(lease)
    assert late.status == 409 and late.json["epoch"] is None, late
    assert b.renew(taken).status == 200


def test_an_agents_own_lease_id_is_opaque_and_good_for_its_epoch_only(nodes, submit, expire):
    a = nodes("a")
    submit({"parameters": {"A": [1, 2, 3]}})
    lease = a.lease()
    number, mac = lease["lease"].split(".")
    assert number.isdigit() and len(mac) == 22
    assert_refused(a.renew(lease, epoch=lease["epoch"] + 1), "not granted")
    assert_refused(a.renew(lease | {"lease": number}), "not granted")
    assert_refused(a.renew(lease | {"lease": f"{int(number) + 1}.{mac}"}), "not granted")
    expire(plain(lease))
    again = a.lease()
    assert again["lease"] != lease["lease"] and again["lease"].split(".")[0] == number
    assert a.post(lease).status == 409 and a.post(again).status == 200


def test_several_servers_accept_each_others_lease_ids(nodes, submit, server, start, database):
    other = start(harness.Server, database, options=harness.UNHURRIED)
    a = nodes("a")
    submit(LARGE)
    lease = a.lease()
    a.server = other
    assert a.renew(lease).status == 200 and a.post(lease).status == 200


def test_a_revoked_token_gives_its_agents_to_the_next_one(server, database, submit):
    a, b = (Node(server, make_token(database, f"node-{name}", "agent"), name, f"boot-{name}") for name in "ab")
    submit(LARGE)
    lease = a.lease()
    harness.wavetune(server, "token", "revoke", "node-a")
    assert b.ask("POST", "/v1/agents", b.body | {"agent": a.id, "boot": a.boot}).json["agent"] == a.id
    assert b.renew(lease).status == 200 and b.beat(a).status == 200


def test_agents_that_share_a_token_go_on_as_before(server, database, submit):
    shared = make_token(database, "nodes", "agent")
    a, b = (Node(server, shared, name, f"boot-{name}") for name in "ab")
    submit(LARGE)
    lease = a.lease()
    assert lease["lease"].isdigit(), "older agents accept decimal ids only"
    assert a.renew(lease).status == 200 and a.post(lease).status == 200 and b.beat().status == 200 and b.pull().status in (200, 204)


def test_an_agent_from_before_the_upgrade_is_bound_to_its_token_by_the_next_lease(server, database, postgres, submit):
    a, b = (Node(server, make_token(database, f"node-{name}", "agent"), name, f"boot-{name}") for name in "ab")
    submit(LARGE)
    lease = a.lease()
    rows(postgres, database, "update agents set token_id = null; update leases set token_id = null")
    assert a.renew(lease).status == 200 and a.post(lease).status == 200, "earlier leases stay valid"
    assert a.pull().status in (200, 204)
    assert_refused(b.pull(a), "node-a")


def test_enrolment_tokens_can_be_required(start, database, enrol_token):
    strict = start(harness.Server, database, options=(*harness.UNHURRIED, "--require-enrolment"))
    for token in (make_token(database, "old", "agent"), strict.token):
        assert_refused(Node(strict, token).enrolled, "--role enrol")
    assert_refused(strict.request("GET", "/v1/kernels", token=make_token(database, "old-2", "agent")), "--role enrol")
    own = Node(strict, enrol_token())
    assert own.beat().status == 200 and own.pull().status == 204


def test_an_enrolment_token_enrols_a_limited_number_of_agents_and_does_nothing_else(server, enrol_token):
    image = enrol_token(uses=2)
    first, second, third = (Node(server, image, f"n{n}", f"boot-{n}") for n in range(3))
    assert first.id != second.id and first.token != second.token and len({first.token, second.token, image}) == 3
    assert_refused(third.enrolled, "image", "as many agents")
    for method, path in (("GET", "/v1/kernels"), ("GET", "/v1/jobs"), ("GET", "/metrics"), ("POST", "/v1/leases")):
        assert_refused(server.request(method, path, {} if method == "POST" else None, token=image), "enrol")
    assert_refused(server.request("POST", f"/v1/agents/{first.id}/heartbeat", {"boot": first.boot}, token=image))
    listed = {token["name"]: token for token in server.items("/v1/tokens")}
    assert listed["image"]["uses_left"] == 0 and listed["image"]["role"] == "enrol"
    assert {token["agent"] for token in listed.values()} >= {first.id, second.id}


def test_uses_are_counted_when_nodes_start_at_once(server, enrol_token):
    image = enrol_token(uses=3)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: Node(server, image, f"n{n}", f"boot-{n}").enrolled.status, range(8)))
    assert sorted(answers) == [201] * 3 + [403] * 5 and len(server.items("/v1/agents")) == 3


def test_a_lost_answer_costs_no_use_and_ends_the_lost_token(server, enrol_token):
    image = enrol_token(uses=1)
    lost, again = (Node(server, image, "n", "the same boot") for _ in range(2))
    assert lost.id == again.id and lost.token != again.token and again.beat().status == 200
    harness.wait_until(lambda: lost.beat().status == 401, 30, "the lost token to end")
    assert again.beat().status == 200


def test_an_enrolment_token_is_bound_to_names_and_an_environment(server, enrol_token):
    image = enrol_token(uses=9, agent_name="mi300-*", environment={"gpu": ENVIRONMENT["gpu"], "compute_units": 4})
    assert Node(server, image, "mi300-7", "b1").enrolled.status == 201
    refused = Node(server, image, "h200-7", "b2").enrolled
    assert assert_refused(refused, "mi300-*", "h200-7") and refused.json["pointer"] == "/name"
    refused = Node(server, image, "mi300-8", "b3", ENVIRONMENT | {"compute_units": 8}).enrolled
    assert assert_refused(refused, "cpu0") and refused.json["pointer"] == "/devices/0"
    assert {t["name"]: t["uses_left"] for t in server.items("/v1/tokens")}["image"] == 8, "a refused enrolment does not count as a use"
    mine = Node(server, image, "mi300-9", "b4")
    assert_refused(mine.ask("POST", "/v1/agents", mine.body | {"name": "h200-9"}), "mi300-*")


def test_expired_tokens_are_refused_with_a_sentence(server, enrol_token):
    short = server.request("POST", "/v1/tokens", {"name": "guest", "role": "reader", "expires": "2s"}).json["token"]
    assert server.request("GET", "/v1/jobs", token=short).status == 200
    ended = harness.wait_until(lambda: (a := server.request("GET", "/v1/jobs", token=short)).status == 401 and a, 30, "its end")
    assert "has expired" in ended.json["detail"]
    unknown = server.request("GET", "/v1/jobs", token="wt_unknown")
    assert unknown.status == 401 and "expired" not in unknown.json["detail"] and "revoked" in unknown.json["detail"]
    again = server.request("POST", "/v1/tokens", {"name": "guest", "role": "reader", "expires": "2099-01-01T00:00:00Z"})
    assert again.status == 201, "its name is free"
    for wrong in ("7", "-1d", "yesterday", "2020-01-01T00:00:00Z", "0d", "99999999999d"):
        refused = server.request("POST", "/v1/tokens", {"name": "x", "role": "reader", "expires": wrong})
        assert refused.status == 422 and refused.json["pointer"] == "/expires", wrong
    assert server.request("POST", "/v1/tokens", {"name": "x", "role": "reader", "uses": 3}).status == 422


@pytest.mark.parametrize("program", ["wavetune", "wavetune-server"])
def test_enrolment_tokens_are_made_and_listed_on_the_command_line(server, database, program):
    def call(*arguments, check=True):
        if program == "wavetune":
            return harness.wavetune(server, *arguments, check=check)
        done = subprocess.run([harness.BUILD / program, *arguments, "--database", database], capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done

    image = call("token", "make", "image", "--role", "enrol", "--uses", "40", "--expires", "7d", "--agent-name", "mi300-*",
                 "--environment", json.dumps({"gpu": ENVIRONMENT["gpu"]})).stdout.strip()
    node = Node(server, image, "mi300-1")
    assert node.enrolled.status == 201
    lines = {line.split()[0]: line for line in call("token", "list").stdout.splitlines()}
    assert "39 uses left" in lines["image"] and "expires 20" in lines["image"]
    own = next(line for name, line in lines.items() if name.startswith("agent-"))
    assert f"agent {node.id}" in own and "expires 20" in own
    for wrong in (["--expires", "soon"], ["--uses", "2", "--role", "reader"], ["--environment", "{"],
                  ["--role", "enrol", "--environment", '{"colour": "red"}']):
        refused = call("token", "make", "wrong", *wrong, check=False)
        assert refused.returncode in (2, 4) and refused.stderr.count("\n") == 1, refused


def test_an_id_that_is_taken_is_not_given_for_an_enrolment_token(server, enrol_token, nodes):
    a, image = nodes("a"), enrol_token("other", uses=5)
    other = Node(server, image, "b", "boot-b", agent=a.id)
    assert other.enrolled.status == 201 and other.id != a.id and a.beat().status == 200


def test_a_copy_of_a_live_agent_is_refused_and_shown(server, nodes):
    a = nodes("a", machine="sha256:one")
    copy = a.ask("POST", "/v1/agents", a.body | {"agent": a.id, "boot": "another", "machine": "sha256:two", "name": "clone"})
    assert copy.status == 409 and "another machine" in copy.json["detail"] and '"a"' in copy.json["detail"], copy
    assert a.beat().status == 200
    shown = {agent["agent"]: agent["refused"] for agent in server.items("/v1/agents")}[a.id]
    assert (shown["name"], shown["machine"]) == ("clone", "sha256:two")
    assert "clone" in harness.wavetune(server, "agents").stdout
    restart = a.ask("POST", "/v1/agents", a.body | {"agent": a.id, "boot": "restarted"})
    assert restart.status == 200, "on the same machine it is a restart"
    server.request("POST", f"/v1/agents/{a.id}/drain", {"reason": "seen to"})
    assert {agent["agent"]: agent["refused"] for agent in server.items("/v1/agents")}[a.id] is None


def test_a_dead_agent_moves_to_another_machine(nodes, postgres, database):
    a = nodes("a", machine="sha256:one")
    rows(postgres, database, "update agents set last_seen = now() - interval '1 day'")
    moved = a.ask("POST", "/v1/agents", a.body | {"boot": "there", "machine": "sha256:two"})
    assert moved.status == 200 and moved.json["agent"] == a.id


def test_an_agents_token_is_replaced_without_a_gap(server, nodes, database, postgres):
    a = nodes("a")
    old, path = a.token, f"/v1/agents/{a.id}/token"
    lost = a.ask("POST", path, {}).json["token"]
    new = a.ask("POST", path, {}).json["token"]
    assert len({old, lost, new}) == 3
    assert a.beat().status == 200, "the old one is valid until the new one was used"
    a.token = new
    assert a.beat().status == 200
    ends = "select count(*) from tokens where agent is not null and revoked_at is null and expires_at < now() + interval '1 min'"
    harness.wait_until(lambda: rows(postgres, database, ends) == "1", 30, "the old one to end within a minute")
    assert server.request("POST", f"/v1/agents/{a.id}/heartbeat", {"boot": a.boot}, token=lost).status == 401
    rows(postgres, database, "update tokens set expires_at = now() where agent is not null and expires_at < now() + interval '1 min'")
    harness.wait_until(lambda: server.request("POST", path, {}, token=old).status == 401, 30, "its end")
    assert a.beat().status == 200


def test_a_token_is_replaced_by_its_own_agent_only(server, nodes, database):
    a, b = nodes("a"), nodes("b")
    for token in (b.token, server.token, make_token(database, "old", "agent")):
        assert_refused(server.request("POST", f"/v1/agents/{a.id}/token", {}, token=token))


QUICK_RACES = ("--screen-rounds", "3", "--final-rounds", "10")


def own_token(program):
    return (program.state / "token").read_text().split()


def submitted(server, folder, run=""):
    done = harness.wavetune(server, "submit", folder, "--key", "n=1003", "--run", run, "--json")
    return json.loads(done.stdout)[0]["job"]


def is_done(server, job):
    return server.get(f"/v1/jobs/{job}")["state"] == "done"


@pytest.fixture
def strict(start, database):
    return start(harness.Server, database, options=("--require-enrolment",))


@pytest.fixture
def brief(start, database):
    """A server whose agents' own tokens live for six seconds."""
    return start(harness.Server, database, options=("--agent-token-ms", "6000", "--heartbeat-ms", "500", "--lease-target-ms", "30"))


def image_of(server, **terms):
    return server.request("POST", "/v1/tokens", {"name": "image", "role": "enrol"} | terms).json["token"]


def test_a_real_agent_enrols_works_and_comes_back_with_its_own_token(strict, start, tmp_path):
    image = image_of(strict, uses=1, agent_name="no*")
    program = start(harness.Agent, strict, token=image, options=QUICK_RACES)
    agent = harness.wait_until(lambda: strict.items("/v1/agents"), 60, "the agent")[0]["agent"]
    job = submitted(strict, harness.small_kernel(tmp_path / "kernel"))
    harness.wait_until(lambda: is_done(strict, job), 120, "the job")
    token, = own_token(program)
    assert token != image and (program.state / "token").stat().st_mode & 0o777 == 0o600
    assert not (program.state / "boot").exists()
    assert program.stop() == 0
    again = start(harness.Agent, strict, token=image, options=QUICK_RACES)
    job = submitted(strict, tmp_path / "kernel", "again")
    harness.wait_until(lambda: is_done(strict, job), 120, "the second job")
    assert [a["agent"] for a in strict.items("/v1/agents")] == [agent]
    assert own_token(again) == [token] and not (again.state / "refused.jsonl").exists()


def test_an_agent_replaces_its_token_while_it_works(brief, start, tmp_path, database, postgres):
    program = start(harness.Agent, brief, token=image_of(brief), options=QUICK_RACES)
    made = "select count(*) from tokens where agent is not null"
    harness.wait_until((tmp_path / "agent-node/token").exists, 60, "its token")
    kernel, n = harness.small_kernel(tmp_path / "kernel"), itertools.count()
    while int(rows(postgres, database, made)) < 4:
        job = submitted(brief, kernel, f"r{next(n)}")
        harness.wait_until(lambda: is_done(brief, job), 120, "a job")
    assert "lost lease" not in program.messages and not (program.state / "refused.jsonl").exists()
    assert rows(postgres, database, "select count(*) from losses") == "0"
    assert len(brief.items("/v1/agents")) == 1 and program.stop() == 0


def test_an_agent_killed_while_it_replaces_its_token_is_the_same_agent_again(brief, start, tmp_path, database, postgres):
    image = image_of(brief)
    state = tmp_path / "agent-node/token"
    for kills in range(8):
        program = start(harness.Agent, brief, token=image, options=QUICK_RACES)
        harness.wait_until(state.exists, 60, "its token")
        before = state.read_text()
        # The agent is killed at a random time after the file changed: it has two tokens then, and the new one was hardly used.
        if kills % 2:
            harness.wait_until(lambda: state.read_text() != before, 60, "a new token")
        program.kill()
    program = start(harness.Agent, brief, token=image, options=QUICK_RACES)
    job = submitted(brief, harness.small_kernel(tmp_path / "kernel"))
    harness.wait_until(lambda: is_done(brief, job), 120, "the job")
    assert len(brief.items("/v1/agents")) == 1, "no use was left for another one"


@pytest.mark.parametrize("died", ["before the new token was kept", "before it was used", "and the server forgot the new one"])
def test_a_replacement_that_was_interrupted_goes_on(strict, start, died):
    image = image_of(strict)
    program = start(harness.Agent, strict, token=image)
    agent = harness.wait_until(lambda: strict.items("/v1/agents"), 60, "the agent")[0]["agent"]
    harness.wait_until((program.state / "token").exists, 60, "its token")
    program.kill()
    old, = own_token(program)
    new = strict.request("POST", f"/v1/agents/{agent}/token", {}, token=old).json["token"]
    if died != "before the new token was kept":
        (program.state / "token").write_text((new if died == "before it was used" else "wt_forgotten") + f"\n{old}\n")
    again = start(harness.Agent, strict, token=image)
    harness.wait_until(lambda: "agent: enrolled" in again.messages, 60, "the agent to enrol again")
    assert own_token(again) == [new if died == "before it was used" else old]
    assert [a["agent"] for a in strict.items("/v1/agents")] == [agent]


def test_an_agent_whose_enrolment_was_not_answered_is_the_same_after_it_died(strict, start):
    image, boots = image_of(strict, uses=1), []

    def answer(method, path, body):
        """Has the server enrol the agent, and loses the answer."""
        enrolled = strict.request(method, path, body, token=image)
        boots.append(json.loads(body)["boot"])
        assert enrolled.status in (200, 201), enrolled
        return 503, {"detail": "lost"}

    with harness.FakeServer(answer, with_body=True) as deaf:
        program = start(harness.Agent, deaf, token=image)
        harness.wait_until(lambda: len(boots) >= 2, 60, "two tries")
        program.kill()
    again = start(harness.Agent, strict, token=image)
    harness.wait_until(lambda: "agent: enrolled" in again.messages, 60, "the agent to enrol")
    assert len(set(boots)) == 1 and len(strict.items("/v1/agents")) == 1


def test_a_copied_state_folder_does_not_work_beside_its_original(start, database, postgres):
    server = start(harness.Server, database, options=(*harness.UNHURRIED, "--require-enrolment"))
    image = image_of(server)
    program = start(harness.Agent, server, token=image)
    harness.wait_until(lambda: "agent: enrolled" in program.messages, 60, "the agent to enrol")
    agent, = [agent["agent"] for agent in server.items("/v1/agents")]
    program.kill()
    # From now on the original is on another machine: the one on this machine was not seen for a while.
    rows(postgres, database, "update agents set last_seen = now() - interval '1 day'")
    original = Node(server, own_token(program)[0], boot="elsewhere", machine="sha256:elsewhere")
    assert original.enrolled.status == 200 and original.id == agent
    copy = start(harness.Agent, server, token=image)
    assert copy.wait() == 4 and "another machine" in copy.messages
    refused = {a["agent"]: a["refused"] for a in server.items("/v1/agents")}[agent]
    assert refused["name"] == "node" and refused["machine"].startswith("sha256:")
    assert original.beat().status == 200


def test_an_agent_whose_token_was_revoked_ends_and_enrols_anew(start, database, tmp_path):
    server = start(harness.Server, database, options=("--require-enrolment", "--heartbeat-ms", "200"))
    image = image_of(server, uses=2)
    program = start(harness.Agent, server, token=image)
    harness.wait_until((tmp_path / "agent-node/token").exists, 60, "its token")
    name, = [t["name"] for t in server.items("/v1/tokens") if t["agent"]]
    harness.wavetune(server, "token", "revoke", name)
    assert program.wait(60) == 4
    again = start(harness.Agent, server, token=image)
    harness.wait_until(lambda: "agent: enrolled" in again.messages, 60, "the agent to enrol anew")
    assert len(server.items("/v1/agents")) == 2
