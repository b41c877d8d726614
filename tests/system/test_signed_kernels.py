"""Signed kernels: agents with trusted keys run only code that these keys signed, whatever the server answers. Real agents compile
and measure; false answers are made by SQL or by a proxy that changes them."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import threading

import harness
import pytest
import test_captured as captured
import test_gpu_agent as gpu_agent
from hands import ENVIRONMENT, Hand
from harness import FakeServer, small_kernel, wait_until, wavetune

QUICK = ("--screen-rounds", "3", "--final-rounds", "5")
KEY = "n=100"


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl program")


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True).stdout


class World:
    """A server, keys a and b, and agents that trust some."""

    def __init__(self, start, database, postgres, folder):
        self.start, self.database, self.postgres, self.folder = start, database, postgres, folder
        self.server = start(harness.Server, database, options=("--poll-ms", "100"))

    def key(self, name):
        """(private file, public file, id)."""
        path = self.folder / name
        made = json.loads(wavetune(None, "key", "new", path, "--json").stdout)
        return path, f"{path}.pub", made["key"]

    def sql(self, text):
        return self.postgres.sql(text, conninfo=self.database)

    def kernel(self, folder="kernel", **more):
        return small_kernel(self.folder / folder, **more)

    def run(self, *words, **how):
        return wavetune(self.server, *words, **how)

    def document(self, *words):
        return json.loads(self.run(*words, "--json").stdout)

    def push(self, folder, *words):
        return self.document("kernel", "push", folder, *words)[0]["kernel"]

    def submit(self, folder, *words):
        done = self.run("submit", folder, "--key", KEY, "--json", *words)
        return json.loads(done.stdout)[0], done.stderr

    def agent(self, *trusted, name="node", server=None, environment=None):
        options = [word for key in trusted for word in ("--trusted-key", key)]
        agent = self.start(harness.Agent, server or self.server, name=name, options=(*QUICK, *options), environment=environment)
        wait_until(lambda: "agent: enrolled" in agent.messages, 30, "the agent's enrolment")
        return agent

    def wait(self, job, state="done"):
        wait_until(lambda: self.server.get(f"/v1/jobs/{job}")["state"] == state, 90, f"job {job} to be {state}")
        return self.server.items(f"/v1/jobs/{job}/measurements")

    def sign(self, code, path, kind="kernel", **more):
        """The route's request, made by openssl alone, as in docs/signing.md."""
        text = self.folder / "signed"
        text.write_text(f"wavetune {kind} 1\n" + json.dumps(code, sort_keys=True, separators=(",", ":")))
        public = openssl("pkey", "-in", path, "-pubout", "-outform", "DER")[-32:]
        signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", path, "-in", text)
        return {"public_key": base64.b64encode(public).decode(), "signature": base64.b64encode(signature).decode()} | more


@pytest.fixture
def world(start, database, postgres, tmp_path):
    return World(start, database, postgres, tmp_path)


def untouched(agent):
    """Nothing of a kernel came to this agent's disk, nothing was compiled."""
    files = [path for top in ("kernels", "objects") for path in (agent.state / top).rglob("*") if path.is_file()]
    return files == []


def refusals(agent):
    return re.findall(r"lease: failed lease=\S+ epoch=\d+: (.*)", agent.messages)


def refused(agent):
    wait_until(lambda: refusals(agent), 60, "the agent's refusal")
    assert untouched(agent), "something was fetched or compiled before the refusal"
    return refusals(agent)[0]


# Signed kernels are tuned

def test_a_signed_kernel_is_tuned_and_its_provenance_names_the_key(world):
    path, public, identity = world.key("a")
    folder = world.kernel()
    pushed = world.run("kernel", "push", folder, "--sign-key", path)
    kernel = pushed.stdout.split()[0]
    assert f"signing  kernel {kernel}" in pushed.stderr and f"by       {identity} ({path})" in pushed.stderr
    assert f"signed by {identity}" in world.run("kernel", "list").stdout
    shown = world.run("kernel", "show", kernel)
    assert shown.stderr.startswith(f"signed   by {identity}\n") and json.loads(shown.stdout)["name"].startswith("quick")
    agent = world.agent(public)
    assert f"trusts key={identity}" in agent.messages
    listed, = world.document("agents")
    assert listed["trusted_keys"] == [identity] and identity in world.run("agents").stdout

    answer, _ = world.submit(folder)
    assert "refusing" not in answer["agents"] and answer["agents"]["matching"] == 1
    measurements = world.wait(answer["job"])
    assert measurements and all(m["conditions"]["kernel_key"] == identity for m in measurements)
    assert all("build_key" not in m["conditions"] for m in measurements)
    release = world.document("publish")["release"]
    entry, = world.server.get(f"/v1/releases/{release}")["kernels"]
    assert entry["provenance"][0] == entry["provenance"][0] | {"origin": "tuned", "kernel_key": identity}


def test_without_the_option_kernels_run_unverified(world):
    folder = world.kernel()
    kernel = world.push(folder, "--sign-key", world.key("a")[0])
    agent = world.agent()
    assert world.document("agents")[0]["trusted_keys"] is None
    measurements = world.wait(world.submit(folder)[0]["job"])
    assert not any("kernel_key" in m["conditions"] for m in measurements), "no agent verified it"
    entry, = world.server.get(f"/v1/releases/{world.document('publish')['release']}")["kernels"]
    assert "kernel_key" not in entry["provenance"][0] and entry["kernel"] == kernel
    assert refusals(agent) == []


def test_an_unsigned_kernel_waits_until_it_is_signed(world):
    path, public, identity = world.key("a")
    folder = world.kernel()
    world.push(folder)
    agent = world.agent(public)
    answer, output = world.submit(folder)
    refusing = answer["agents"].pop("refusing")
    assert answer["agents"] == {"matching": 0, "nearest": None} and refusing["agents"] == 1
    assert "`wavetune kernel sign`" in refusing["reason"] and "1 would, but are not given it: " in output
    polls = len(re.findall("lease", agent.messages))
    assert world.server.get(f"/v1/jobs/{answer['job']}")["state"] == "queued" and untouched(agent)
    done = world.run("kernel", "sign", folder, "--sign-key", path)
    assert re.fullmatch(r"kernel sha256:[0-9a-f]{64}  1 signature\n", done.stdout)
    assert all(m["conditions"]["kernel_key"] == identity for m in world.wait(answer["job"]))
    assert refusals(agent) == [] and len(re.findall("lease", agent.messages)) > polls


def test_other_agents_take_jobs_that_are_unsigned_or_signed_by_another_key(world):
    path, public, _ = world.key("a")
    other = world.key("b")[0]
    trusting = world.agent(public, name="trusting")
    world.agent(name="open")
    unsigned, stranger, signed = (world.kernel(name, name=f"quick/{name}") for name in ("unsigned", "stranger", "signed"))
    world.push(unsigned)
    world.push(stranger, "--sign-key", other)
    world.push(signed, "--sign-key", path)
    ids = {agent["name"]: agent["agent"] for agent in world.document("agents")}
    for folder in (unsigned, stranger):
        answer, _ = world.submit(folder)
        assert (answer["agents"]["matching"], answer["agents"]["refusing"]["agents"]) == (1, 1)
        assert {m["agent"] for m in world.wait(answer["job"])} == {ids["open"]}
    assert refusals(trusting) == [] and untouched(trusting)
    world.wait(world.submit(signed)[0]["job"])


# The server chooses leases by signatures; the test plays the agents

class Wanting(Hand):
    """A hand that wants signatures by these keys."""

    def __init__(self, server, name, *keys, **more):
        super().__init__(server, name, **more)
        self.body = {"boot": self.boot, "name": name, "version": "1", "agent": self.id, "trusted_keys": list(keys),
                     "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT}]}
        assert server.request("POST", "/v1/agents", self.body).status == 200


def by_hand(world, folder, **space):
    answer = world.server.request("POST", "/v1/jobs", {
        "kernel": wavetune(None, "kernel", "hash", folder).stdout.strip(), "key": {"n": 100}, "environment": ENVIRONMENT,
        "space": {"parameters": {"REPEAT": [1, 2], "TURN": [0]} | space}})
    assert answer.status == 201, answer
    return answer.json


def test_an_agent_is_granted_leases_that_its_keys_signed_past_earlier_ones(world):
    (a, _, a_id), (b, _, b_id) = world.key("a"), world.key("b")
    hand_a, hand_b, hand_both = (Wanting(world.server, *words) for words in (("a", a_id), ("b", b_id), ("ab", b_id, a_id)))
    folders = [world.kernel(f"k{n}", name=f"quick/{n}") for n in range(12)]
    signers = [None] * 9 + [a, b, None]
    for folder, signer in zip(folders, signers):
        world.push(folder, *(("--sign-key", signer) if signer else ()))
        by_hand(world, folder)
    kernels = [wavetune(None, "kernel", "hash", folder).stdout.strip() for folder in folders]
    lease = hand_a.pull().json
    assert lease["kernel"] == kernels[9] and [s["key"] for s in lease["signatures"]] == [a_id] and lease["build_signatures"] == []
    assert hand_a.pull().status == 204
    assert hand_both.pull().json["kernel"] == kernels[10]
    assert (hand_b.pull().status, hand_both.pull().status) == (204, 204)
    plain = Hand(world.server, "plain").pull().json
    assert plain["kernel"] == kernels[0] and "signatures" not in plain


def test_two_groups_of_agents_share_the_open_leases(world):
    a, _, a_id = world.key("a")
    world.run("kernel", "push", world.kernel(), "--sign-key", a)
    by_hand(world, world.folder / "kernel", REPEAT=list(range(1, 6)))
    hands = [Wanting(world.server, "w1", a_id), Wanting(world.server, "w2", a_id), Hand(world.server, "p1"), Hand(world.server, "p2")]
    taken, is_over = [], threading.Event()

    def work(hand):
        while not is_over.is_set():
            lease = hand.pull(wait=1)
            if lease.status == 200:
                taken.append(lease.json["lease"])
                assert hand.post(lease.json).status == 200

    threads = [threading.Thread(target=work, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    wait_until(lambda: world.document("jobs")[0]["state"] in ("done", "failed"), 60, "the job's end")
    is_over.set()
    for thread in threads:
        thread.join()
    assert taken and len(taken) == len(set(taken)), "one lease was granted twice"


def test_an_expired_signature_is_offered_no_more(world):
    a, _, a_id = world.key("a")
    kernel = world.push(world.kernel(), "--sign-key", a, "--expires", "1h")
    by_hand(world, world.folder / "kernel")
    hand = Wanting(world.server, "a", a_id)
    world.sql("update code_signatures set expires_at = now() - interval '1 s'")
    assert hand.pull().status == 204
    expires = world.server.get(f"/v1/kernels/{kernel}")["signatures"][0]["expires"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", expires)
    world.run("kernel", "sign", world.folder / "kernel", "--sign-key", a, "--expires", "2h")
    assert hand.pull().json["signatures"][0]["expires"] > expires


def test_a_space_that_renames_signed_code_is_not_offered_to_agents_that_require_signatures(world):
    a, public, a_id = world.key("a")
    world.push(world.kernel(), "--sign-key", a)
    hand = Wanting(world.server, "a", a_id)
    answer = by_hand(world, world.folder / "kernel", fabsf=["system"])
    assert answer["agents"]["matching"] == 0 and '"fabsf" could rename' in answer["agents"]["refusing"]["reason"]
    assert hand.pull().status == 204 and Hand(world.server, "plain").pull().status == 200


def test_releasing_a_lease_that_is_not_signed_does_not_count_against_the_job(world):
    a, _, a_id = world.key("a")
    world.push(world.kernel(), "--sign-key", a)
    job = by_hand(world, world.folder / "kernel")["job"]
    hand = Wanting(world.server, "a", a_id)
    innocent = ({"cause": "unsigned"}, {"cause": "yielded"}, {"reason": "the device was given back: because"},
                {"reason": "not signed for this agent: because"})
    for why, rounds in (*((why, 12) for why in innocent), (innocent[-1] | {"cause": "failed"}, 8)):
        for _ in range(rounds):
            lease = hand.pull().json
            answer = world.server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"]} | why)
            assert answer.json == {"state": "open"}, answer
        state = world.server.get(f"/v1/jobs/{job}")["state"]
        assert state == ("running" if rounds == 12 else "failed"), (why, state)


def test_keys_of_an_agent_are_those_of_its_last_enrolment(world):
    a, _, a_id = world.key("a")
    world.push(world.kernel())
    by_hand(world, world.folder / "kernel")
    hand = Wanting(world.server, "a", a_id)
    assert hand.pull().status == 204
    body = {name: value for name, value in hand.body.items() if name != "trusted_keys"}
    assert world.server.request("POST", "/v1/agents", body).status == 200
    assert hand.pull().status == 200


# A server with false answers

class FalseProxy(FakeServer):
    """A proxy between an agent and a server: `change(method, path, bytes)` returns the answer that is sent instead."""

    def __init__(self, server, change):
        def answer(method, path, body):
            answered = server.request(method, path, body or None, headers={"Content-Type": "application/json"})
            return answered.status, change(method, path, answered.body)

        super().__init__(answer, with_body=True)
        self.token = server.token


def signed_world(world, **more):
    path, public, identity = world.key("a")
    folder = world.kernel(**more)
    return folder, world.push(folder, "--sign-key", path), public, identity


def leases_change(change):
    """Applies `change` to each lease that is granted."""
    def apply(method, path, body):
        if (method, path) != ("POST", "/v1/leases") or not body:
            return body
        lease = json.loads(body)
        return json.dumps(change(lease) or lease).encode()
    return apply


def test_signatures_that_a_server_changes_are_refused(world):
    folder, kernel, public, identity = signed_world(world)
    world.sql("update code_signatures set signature = '" + "A" * 86 + "=='")
    agent = world.agent(public)
    answer, _ = world.submit(folder)
    assert f"signature of kernel {kernel} is not what key {identity} signed" in refused(agent)
    wait_until(lambda: "cause=unsigned" in world.server.messages, 30, "the server to log it")
    assert world.server.get(f"/v1/jobs/{answer['job']}")["state"] == "running"


@pytest.mark.parametrize("change, word", [
    (lambda lease: lease.pop("signatures") and None, "is not signed"),
    (lambda lease: lease.update(signatures={"key": 1}), "is not signed"),
    (lambda lease: lease["signatures"][0].update(expires="2031-01-01T00:00:00Z"), "changed on its way"),
    (lambda lease: lease["signatures"][0].update(key="sha256:" + "0" * 64), "not trusted here (1 "),
    (lambda lease: lease["manifest"].update(flops="1"), "its digest differs"),
    (lambda lease: lease["manifest"]["sources"][0].update(digest="sha256:" + "0" * 64), "its digest differs"),
], ids=["none", "no list", "expiry", "key", "manifest", "source"])
def test_leases_that_a_server_changes_are_refused(world, change, word):
    folder, _, public, _ = signed_world(world)
    with FalseProxy(world.server, leases_change(change)) as false_proxy:
        agent = world.agent(public, server=false_proxy)
        world.submit(folder)
        assert word in refused(agent)


def test_another_manifest_under_its_own_hash_is_not_signed(world):
    folder, _, public, identity = signed_world(world)

    def change(lease):
        lease["manifest"]["flops"] = "1"
        text = json.dumps(lease["manifest"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        lease["kernel"] = sha(text.encode())

    with FalseProxy(world.server, leases_change(change)) as false_proxy:
        agent = world.agent(public, server=false_proxy)
        world.submit(folder)
        assert f"not what key {identity} signed" in refused(agent)


@pytest.mark.parametrize("what", ["quick.c", "reference.c"])
def test_files_that_a_server_changes_are_refused(world, what):
    folder, _, public, _ = signed_world(world)
    digest = sha((folder / what).read_bytes())

    def change(method, path, body):
        return b"int main;" if path == f"/v1/blobs/{digest}" else body

    with FalseProxy(world.server, change) as false_proxy:
        agent = world.agent(public, server=false_proxy)
        world.submit(folder)
        wait_until(lambda: refusals(agent), 60, "the agent's refusal")
        assert f"the file {what} of the kernel" in refusals(agent)[0]
        assert list((agent.state / "objects").glob("*")) == [], "something was compiled"


def test_a_kernel_that_a_false_server_offers_repeatedly_is_refused_with_growing_delays(world):
    folder, _, public, _ = signed_world(world)
    leases = []

    def change(lease):
        leases.append(lease["lease"])
        lease.pop("signatures")

    with FalseProxy(world.server, leases_change(change)) as false_proxy:
        agent = world.agent(public, server=false_proxy)
        world.submit(folder)
        wait_until(lambda: len(refusals(agent)) >= 3, 60, "three refusals")
        assert len(leases) <= len(refusals(agent)) + 1 and untouched(agent)


def test_a_false_server_that_hides_a_renaming_space_is_detected(world):
    folder, _, public, _ = signed_world(world, parameters={"REPEAT": [1, 64], "TURN": [0], "fabsf": ["system"]})
    agent = world.agent(public)
    world.submit(folder)
    assert refusals(agent) == []
    world.sql("update jobs set is_plain = true")
    assert '"fabsf" could rename' in refused(agent)


# Keys that are added and removed

def test_a_key_that_is_removed_from_the_folder_is_trusted_no_more(world):
    (a, a_pub, a_id), (b, b_pub, b_id) = world.key("a"), world.key("b")
    trust = world.folder / "trust"
    trust.mkdir()
    for public in (a_pub, b_pub):
        shutil.copy(public, trust)
    by_a, by_b = world.kernel("ka", name="quick/a"), world.kernel("kb", name="quick/b")
    kernel_a = world.push(by_a, "--sign-key", a)
    world.push(by_b, "--sign-key", b)
    agent = world.agent(trust)
    assert all(m["conditions"]["kernel_key"] == a_id for m in world.wait(world.submit(by_a)[0]["job"]))
    agent.stop()
    (trust / "a.pub").unlink()
    agent = world.agent(trust)
    assert world.document("agents")[0]["trusted_keys"] == [b_id]
    waiting = world.submit(by_a, "--run", "again")[0]
    assert waiting["agents"]["refusing"]["agents"] == 1
    assert all(m["conditions"]["kernel_key"] == b_id for m in world.wait(world.submit(by_b)[0]["job"]))
    assert world.server.get(f"/v1/jobs/{waiting['job']}")["state"] == "queued" and refusals(agent) == []

    for words, word in ((("--trusted-key", world.key("c")[1]), "not trusted here"), ((), "give --trusted-key")):
        done = world.run("kernel", "sign", kernel_a, "--sign-key", b, *words, check=False)
        assert done.returncode in (2, 4) and word in done.stderr, done
    world.run("kernel", "sign", kernel_a, "--sign-key", b, "--trusted-key", a_pub)
    assert all(m["conditions"]["kernel_key"] == b_id for m in world.wait(waiting["job"]))


def test_an_agent_that_cannot_read_its_keys_does_not_start(world):
    for what, word in ((world.folder / "none.pub", "cannot read"), (world.key("a")[0], "private key")):
        agent = world.start(harness.Agent, world.server, options=("--trusted-key", what))
        assert agent.wait() == 2 and word in agent.messages, agent.messages


@pytest.mark.parametrize("variable, nothing", [("KEYS", ""), ("KEYS", ":"), ("KEY", "")])
def test_a_variable_that_names_no_key_does_not_mean_that_all_is_trusted(world, variable, nothing):
    agent = world.start(harness.Agent, world.server, environment={f"WAVETUNE_TRUSTED_{variable}": nothing})
    wait_until(lambda: agent.process.poll() is not None, 20, "the agent's end")
    assert agent.process.returncode == 2 and "names no key" in agent.messages, agent.messages


def test_keys_of_the_environment_count_too(world):
    folder, _, public, identity = signed_world(world)
    world.agent(environment={"WAVETUNE_TRUSTED_KEYS": public})
    assert world.document("agents")[0]["trusted_keys"] == [identity]


def test_an_older_server_that_keeps_no_signatures_is_detected(world):
    def answer(method, path):
        return 422, {"type": "about:blank", "title": "Unprocessable Content", "status": 422, "pointer": "/trusted_keys",
                     "detail": "unknown member \"trusted_keys\""}

    with FakeServer(answer) as old:
        agent = world.start(harness.Agent, old, options=("--trusted-key", world.key("a")[1]))
        assert agent.wait() == 4
        assert "does not store signatures of kernels" in agent.messages, agent.messages


# The route

@needs_openssl
def test_the_server_keeps_only_valid_signatures(world):
    path, _, identity = world.key("a")
    kernel = world.push(world.kernel())
    where = f"/v1/kernels/{kernel}/signatures"

    def post(body, where=where):
        return world.server.request("POST", where, body)

    good = world.sign({"kernel": kernel}, path)
    wrong = world.sign({"kernel": sha(b"")}, path)
    build = world.sign({"kernel": kernel, "build": kernel}, path, kind="build")
    channel = world.sign({"kernel": kernel}, path, kind="channel entry")
    for body, pointer, word in ((wrong, "/signature", "not the signature of kernel"), (build, "/signature", "not the signature"),
                                (channel, "/signature", "not the signature"),
                                (good | {"expires": "2031-01-01T00:00:00Z"}, "/signature", "with this expiry"),
                                (good | {"expires": "soon"}, "/expires", "expiry"),
                                (good | {"public_key": "AAAA"}, "/public_key", "base64 of 32 bytes"),
                                (good | {"signature": "AAAA"}, "/signature", "not the signature"),
                                (good | {"key": identity}, "/key", "key"), ({}, "/public_key", "public_key")):
        answer = post(body)
        assert (answer.status, answer.json["pointer"]) == (422, pointer) and word in answer.json["detail"], answer
    assert post(good, f"/v1/kernels/{sha(b'')}/signatures").status == 404
    assert post(good, "/v1/kernels/none/signatures").status == 404
    assert post(good, f"/v1/kernels/{kernel}/builds/{kernel}/signatures").status == 404
    assert world.server.get(f"/v1/kernels/{kernel}")["signatures"] == []
    for token, status in (("reader", 403), ("agent", 403), ("submitter", 200)):
        made = harness.make_token(world.database, token, token)
        assert world.server.request("POST", where, good, token=made).status == status
    assert world.server.get("/v1/kernels")["items"][0]["signatures"] == [{"key": identity, "signature": good["signature"]}]


@needs_openssl
def test_of_two_signatures_by_one_key_the_longer_stays(world):
    path, _, _ = world.key("a")
    kernel = world.push(world.kernel())

    def post(expires):
        code = {"kernel": kernel} | ({"expires": expires} if expires else {})
        body = world.sign(code, path, **({"expires": expires} if expires else {}))
        answer = world.server.request("POST", f"/v1/kernels/{kernel}/signatures", body)
        assert answer.status == 200, answer
        return [signature.get("expires") for signature in answer.json["signatures"]]

    early, late = "2031-01-01T00:00:00Z", "2032-01-01T00:00:00Z"
    assert [post(expires) for expires in (early, late, early, None, late)] == [[early], [late], [late], [None], [None]]


@needs_openssl
def test_more_signatures_than_fit_are_refused(world):
    path = world.key("a")[0]
    kernel = world.push(world.kernel())
    world.sql(f"insert into code_signatures (digest, key, signature) select '\\x{kernel[7:]}', sha256(g::text::bytea), 'x'"
              " from generate_series(1, 64) g")
    answer = world.server.request("POST", f"/v1/kernels/{kernel}/signatures", world.sign({"kernel": kernel}, path))
    assert answer.status == 422 and "64 signatures" in answer.json["detail"]
    world.sql("delete from code_signatures where key = (select key from code_signatures limit 1)")
    assert world.run("kernel", "sign", world.folder / "kernel", "--sign-key", path).stdout.endswith("64 signatures\n")


# The command line

def test_a_refusal_to_sign_is_one_sentence(world):
    path, public, _ = world.key("a")
    folder = world.kernel()
    for words, code, word in (((folder,), 2, "no key to sign with"), ((folder, "--sign-key", public), 2, "public key"),
                              (("--sign-key", path), 2, "at least one kernel folder"),
                              ((folder, "--sign-key", path), 4, "push it first"),
                              ((folder, "--sign-key", path, "--trusted-key", public), 2, "these are folders"),
                              ((folder, sha(b""), "--sign-key", path), 2, "one or the other"),
                              ((sha(b""), "--sign-key", path), 2, "give --trusted-key"),
                              (("sha256:0", "--sign-key", path, "--trusted-key", public), 2, "kernel's hash"),
                              ((sha(b""), "--sign-key", path, "--trusted-key", public), 4, "no kernel"),
                              ((folder, "--sign-key", path, "--expires", "yesterday"), 2, "--expires")):
        done = world.run("kernel", "sign", *words, check=False)
        assert done.returncode == code and word in done.stderr.splitlines()[-1], (words, done)
    done = world.run("kernel", "push", folder, "--expires", "7d", check=False)
    assert done.returncode == 2 and "nothing is signed" in done.stderr and world.server.items("/v1/kernels") == []
    signed = world.run("kernel", "push", folder, environment={"WAVETUNE_SIGN_KEYS": str(path)})
    assert signed.stderr == "" and world.server.items("/v1/kernels")[0]["signatures"] == []
    signed = json.loads(world.run("kernel", "sign", folder, "--json", environment={"WAVETUNE_SIGN_KEYS": str(path)}).stdout)
    assert signed == [{"kernel": signed[0]["kernel"], "signatures": world.server.items("/v1/kernels")[0]["signatures"]}]


# Builds, on a simulated GPU (test_gpu_agent.py)

needs_gpu = pytest.mark.skipif(not gpu_agent.CLANG or not gpu_agent.FAKE_HIP.exists(), reason="clang-19 or the fake HIP runtime is not here")


class Packed:
    """A triton kernel and a build of it, pushed; the kernel is signed, and the build too if `sign_build` is set."""

    def __init__(self, world, sign_build):
        self.world = world
        self.path, self.public, self.identity = world.key("a")
        self.folder = gpu_agent.triton_kernel(world.folder / "kernel", [0, 7])
        self.build = gpu_agent.build_folder(world.folder / "build", self.folder, world.folder)
        self.kernel = world.push(self.folder, "--build", self.build)
        words = ("--build", self.build) if sign_build else ()
        self.signed = world.document("kernel", "sign", self.folder, *words, "--sign-key", self.path)

    def agent(self, *keys, server=None):
        options = [word for key in keys or (self.public,) for word in ("--trusted-key", key)]
        agent = self.world.start(harness.Agent, server or self.world.server, environment=gpu_agent.gpu(self.world.folder),
                                 options=("--device", "hip0", *gpu_agent.QUICK, *options))
        wait_until(lambda: "agent: enrolled" in agent.messages, 30, "the agent's enrolment")
        return agent

    def submit(self):
        done = self.world.run("submit", self.folder, "--key", "n=1000", "--json")
        return json.loads(done.stdout)[0]


def loaded(agent):
    return sorted((agent.state / "objects").glob("blob-*"))


@needs_gpu
def test_a_build_is_signed_beside_its_kernel_and_both_keys_are_in_the_provenance(world):
    packed = Packed(world, sign_build=False)
    agent = packed.agent()
    answer = packed.submit()
    assert "the kernel or the build that it runs is not signed" in answer["agents"]["refusing"]["reason"]
    other, public, other_id = world.key("b")
    signed = world.document("kernel", "sign", packed.folder, "--build", packed.build, "--sign-key", packed.path)
    assert [("build" in s, len(s["signatures"])) for s in signed] == [(False, 1), (True, 1)]
    assert packed.identity in world.run("kernel", "builds", packed.kernel).stdout
    measured = [m["conditions"] for m in world.wait(answer["job"])]
    assert {(c["kernel_key"], c["build_key"]) for c in measured} == {(packed.identity, packed.identity)}
    entry, = world.server.get(f"/v1/releases/{world.document('publish')['release']}")["kernels"]
    assert (entry["provenance"][0]["kernel_key"], entry["provenance"][0]["build_key"]) == (packed.identity, packed.identity)
    assert refusals(agent) == []

    done = world.document("kernel", "sign", packed.kernel, "--sign-key", other, "--trusted-key", packed.public)
    assert [{s["key"] for s in item["signatures"]} for item in done] == [{packed.identity, other_id}] * 2


@needs_gpu
def test_signing_with_another_key_adds_no_signature_to_unsigned_builds(world):
    packed, (other, _, _) = Packed(world, sign_build=False), world.key("b")
    done = world.run("kernel", "sign", packed.kernel, "--sign-key", other, "--trusted-key", packed.public)
    assert "left unsigned: build" in done.stderr and done.stdout.count("signatures") == 1
    next((packed.build / "objects").iterdir()).write_bytes(b"another")
    done = world.run("kernel", "sign", packed.folder, "--build", packed.build, "--sign-key", other, check=False)
    assert done.returncode == 2 and "is damaged" in done.stderr


def no_build_signature(lease):
    lease["build_signatures"] = []


def kernels_signature(lease):
    lease["build_signatures"] = lease["signatures"]


def document(change):
    return lambda method, path, body: change(body) if "/builds/" in path else body


@needs_gpu
@pytest.mark.parametrize("change, word", [
    (leases_change(no_build_signature), "is not signed"),
    (leases_change(kernels_signature), "changed on its way"),
    (document(lambda body: body.replace(b'"shared":1024', b'"shared":1023')), "another build"),
    (lambda method, path, body: b"\x7fELF" + body[4:-1] + b"!" if path.startswith("/v1/blobs/") else body, "is not the"),
], ids=["no signature", "the kernel's signature", "the document", "objects and files"])
def test_builds_that_a_server_changes_are_refused(world, change, word):
    packed = Packed(world, sign_build=True)
    with FalseProxy(world.server, change) as false_proxy:
        agent = packed.agent(server=false_proxy)
        packed.submit()
        wait_until(lambda: refusals(agent), 60, "the agent's refusal")
        assert word in refusals(agent)[0] and loaded(agent) == []
        assert agent.stop() == 0


@needs_gpu
def test_an_object_that_a_server_changes_is_not_loaded(world):
    packed = Packed(world, sign_build=True)
    objects = {f"/v1/blobs/sha256:{path.name}" for path in (packed.build / "objects").iterdir()}
    with FalseProxy(world.server, lambda method, path, body: body[:-1] + b"!" if path in objects else body) as false_proxy:
        agent = packed.agent(server=false_proxy)
        packed.submit()
        wait_until(lambda: refusals(agent), 60, "the agent's refusal")
        assert "is not the blob" in refusals(agent)[0] and loaded(agent) == []
        assert agent.stop() == 0


@needs_gpu
def test_the_reference_of_a_captured_kernel_which_no_key_signs_is_not_used(world):
    path, public, _ = world.key("a")
    kernel = captured.captured_kernel(world.folder / "kernel", expected="0.0")
    checked = (kernel / "kernel.json").read_text()
    captured.without_reference(kernel)
    build = captured.captured_build(world.folder / "build", kernel, world.folder, [(captured.KEY, captured.PLAIN)])
    world.push(kernel, "--build", build)
    world.document("kernel", "sign", kernel, "--build", build, "--sign-key", path)
    (kernel / "kernel.json").write_text(checked)
    agent = world.start(harness.Agent, world.server, environment=gpu_agent.gpu(world.folder),
                        options=("--device", "hip0", *gpu_agent.QUICK, "--trusted-key", public))
    wait_until(lambda: "agent: enrolled" in agent.messages, 30, "the agent's enrolment")
    done = world.run("submit", kernel, "--key", "n=1000,dtype=torch.float32", "--json")
    measured = world.wait(json.loads(done.stdout)[0]["job"])
    assert {(m["outcome"], (m["conditions"] or {}).get("agreement")) for m in measured} == {
        ("correct", "bitwise"), ("compile", None)}, (measured, agent.messages)
