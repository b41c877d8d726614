"""The ledger of poison: what killed leases in some jobs is not met again by others on the same hardware, until an operator
releases it."""

import json
import shutil

import harness
import pytest
from hands import ENVIRONMENT, Hand, configs_of, events, expire, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import make_token, wait_until, wavetune
from test_builds import MI300X, canonical, folder, hash_of, job_of, pack  # noqa: F401 (a fixture)
from test_leases import lose, measurement_of  # noqa: F401 (fixtures)

ONE = {"parameters": {"A": [1, 2, 3]}}
ANOTHER = {"parameters": {"A": [5, 2, 7]}}  # A=2 is config 1 of both
ELSEWHERE = {**ENVIRONMENT, "gpu": "Another CPU"}


def ledger(server, in_force="true"):
    return server.items(f"/v1/poison?in_force={in_force}")


def wait_entry(server, n=1):
    wait_until(lambda: len(ledger(server)) >= n, 60, "the entry")
    return ledger(server)


def poison_config(server, submit, lose, hand, run=""):
    """Two jobs of different keys and spaces, each of which loses A=2 twice. Returns the jobs."""
    jobs = []
    for n, space in enumerate((ONE, ANOTHER)):
        jobs.append(submit(space, key={"n": 64 + n}, run=run))
        lose(hand, jobs[-1], 1, 2)
        assert server.request("DELETE", f"/v1/jobs/{jobs[-1]}").status == 200
    return jobs


def event_details(server, job, kind):
    return [e["detail"] for e in server.get(f"/v1/jobs/{job}/events")["items"] if e["kind"] == kind]


def assert_skipped(server, job, config, entry):
    skipped, = measurement_of(server, job, config)
    assert skipped["outcome"] == "runtime" and f"entry {entry['id']} of the ledger" in skipped["detail"], skipped
    detail, = (d for d in event_details(server, job, "poisoned") if d["poison"])
    assert (detail["poison"], detail["config"], detail["configs"]) == (entry["id"], config, 1)


def test_a_config_that_two_jobs_lost_twice_is_skipped_by_other_keys_spaces_and_runs(server, hands, submit, lose, kernel):
    hand = hands("only")
    jobs = poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    assert (entry["scope"], entry["kernel"], entry["config"]) == ("config", kernel, {"A": 2})
    assert entry["released_at"] is None and "4 leases were lost by 1 agents" in entry["reason"]
    assert [(e["job"], e["config"], e["agent"], e["device"]) for e in entry["evidence"]] == [
        (job, 1, hand.id, "cpu0") for job in jobs for _ in range(2)]

    later = submit({"parameters": {"A": [9, 8, 2]}}, key={"n": 70}, run="later")
    assert_skipped(server, later, 2, entry)
    assert configs_of(hand.pull(wait=60).json) == [0, 1]
    assert server.get(f"/v1/poison/{entry['id']}") == entry
    assert server.get("/v1/audit?action=poison")["items"][0]["object"] == entry["id"]


@pytest.fixture
def set_aside(postgres, database):
    """Leaves the open leases of a job to other agents than this one."""
    return lambda job, hand: postgres.sql(f"update leases set avoid_agents = '{{{hand.id}}}' where job_id = {job}", conninfo=database)


def test_open_jobs_skip_what_was_poisoned_after_they_were_planned(server, hands, submit, lose, set_aside):
    holder, hand = hands("holder"), hands("hand")
    held_job = submit({"parameters": {"A": [9, 2, 4]}}, key={"n": 80})
    held = holder.pull().json
    assert configs_of(held) == [0, 1, 2]
    open_job = submit({"parameters": {"A": [9, 2, 4]}}, key={"n": 81})
    set_aside(open_job, hand)
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    for job in (open_job, held_job):
        wait_until(lambda: any(d["poison"] for d in event_details(server, job, "poisoned")), 60, f"job {job} to skip it")
        assert_skipped(server, job, 1, entry)
    assert configs_of({"configs": holder.renew(held).json["configs"]}) == [0, 2], "its holder is told"
    assert holder.post(held, [0, 2]).json["state"] == "done"


def test_a_config_that_was_measured_correctly_before_it_was_poisoned_is_not_in_the_final(server, hands, submit, lose):
    holder, hand = hands("holder"), hands("hand")
    job = submit({"parameters": {"A": [9, 2, 4]}}, key={"n": 80})
    held = holder.pull().json
    assert holder.post(held, [1], done=False, ratios={1: 0.1}).status == 200
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    assert holder.post(held, [0, 2]).json["state"] == "done"
    assert server.get(f"/v1/jobs/{job}")["stage"] == "final"
    finals = holder.take_all()
    assert finals and all(1 not in configs_of(lease) for lease in finals)
    assert server.get(f"/v1/jobs/{job}")["winner"]["config"] != 1
    assert {d["poison"] for d in event_details(server, job, "poisoned")} == {entry["id"]}


def test_a_search_skips_it_in_whichever_batch_it_is(server, hands, submit, lose):
    hand = hands("only")
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    places = [*range(10, 160), 2]
    job = submit({"parameters": {"A": places}}, key={"n": 90}, search={"strategy": "random", "trials": 1000})
    screens = [lease for lease in hand.take_all() if lease["stage"] == "screen"]
    assert len({lease["round"] for lease in screens}) > 1
    assert {config for lease in screens for config in configs_of(lease)} == set(range(len(places) - 1))
    assert_skipped(server, job, len(places) - 1, entry)


def test_a_released_entry_holds_and_only_new_losses_poison_it_again(server, hands, submit, lose, postgres, database):
    hand = hands("only")
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    operator, reader = make_token(database, "op", "operator"), make_token(database, "eye", "reader")
    release = f"/v1/poison/{entry['id']}/release"
    assert server.request("POST", release, {"reason": "a new driver"}, token=reader).status == 403
    assert server.request("POST", release, {}, token=operator).status == 422
    assert server.request("POST", "/v1/poison/9999/release", {"reason": "x"}, token=operator).status == 404
    released = server.request("POST", release, {"reason": "a new driver"}, token=operator)
    assert released.status == 200, released
    assert (released.json["released_by"], released.json["release_reason"]) == ("op", "a new driver")
    again = server.request("POST", release, {"reason": "a new driver"}, token=operator)
    assert again.status == 409 and "released already" in again.json["detail"]
    assert ledger(server) == [] and len(ledger(server, "false")) == 1
    noted, = server.get("/v1/audit?action=release-poison")["items"]
    assert (noted["token"], noted["object"], noted["detail"]) == ("op", entry["id"], {"reason": "a new driver"})

    job = submit(ONE, key={"n": 64}, run="after")
    lose(hand, job, 1, 2)
    judged = "select count(*) from losses where judged_at is null"
    wait_until(lambda: postgres.sql(judged, conninfo=database) == "0", 60, "the new losses to be judged")
    assert ledger(server) == [], "one job lost it since"
    hand.work()
    lose(hand, submit(ANOTHER, key={"n": 65}, run="after"), 1, 2)
    second, = wait_entry(server)
    assert second["id"] != entry["id"] and len(second["evidence"]) == 4
    assert job in {e["job"] for e in second["evidence"]}


def test_a_kernel_of_which_three_configs_were_lost_is_refused_on_that_hardware_only(server, hands, submit, lose, kernel, set_aside):
    hand, _ = hands("only"), hands("another")
    waiting = submit(ONE, key={"n": 99})
    set_aside(waiting, hand)
    job = submit({"parameters": {"A": [1, 2, 3, 4]}})
    for config in (1, 2, 3):
        lose(hand, job, config, 2)
    entry, = wait_entry(server)
    assert (entry["scope"], entry["config"]) == ("kernel", None) and len(entry["evidence"]) == 6
    for one in (waiting, job):
        wait_until(lambda: server.get(f"/v1/jobs/{one}")["state"] == "failed", 60, "the open jobs to fail")
    assert f"by entry {entry['id']} of the ledger" in server.get(f"/v1/jobs/{waiting}")["reason"]
    assert hand.pull().status == 204

    body = {"kernel": kernel, "key": {"n": 100}, "space": ONE, "environment": ENVIRONMENT}
    refused = server.request("POST", "/v1/jobs", body)
    assert refused.status == 409 and refused.json["pointer"] == "/kernel", refused
    assert f"wavetune poison release {entry['id']} --reason" in refused.json["detail"]
    hands("elsewhere", environment=ELSEWHERE)
    assert server.request("POST", "/v1/jobs", {**body, "environment": ELSEWHERE}).status == 201
    wavetune(server, "poison", "release", entry["id"], "--reason", "it was the cooling")
    assert server.request("POST", "/v1/jobs", body).status == 201


def test_a_poisoned_default_is_refused_and_a_poisoned_first_config_is_not_the_baseline(server, hands, submit, lose, kernel):
    hand = hands("only")
    poison_config(server, submit, lose, hand)
    wait_entry(server)
    body = {"kernel": kernel, "key": {"n": 100}, "environment": ENVIRONMENT, "space": {**ONE, "default": {"A": 2}}}
    refused = server.request("POST", "/v1/jobs", body)
    assert refused.status == 409 and refused.json["pointer"] == "/space/default", refused
    first = submit({"parameters": {"A": [2, 4, 6]}}, key={"n": 101})
    assert server.get(f"/v1/jobs/{first}")["baseline"] == 1
    nothing = server.request("POST", "/v1/jobs", {**body, "space": {"parameters": {"A": [2]}}})
    assert nothing.status == 409 and "each valid config" in nothing.json["detail"]


def test_an_open_job_whose_baseline_was_poisoned_fails(server, hands, submit, lose, set_aside):
    hand, _ = hands("only"), hands("another")
    job = submit({"parameters": {"A": [2, 9]}}, key={"n": 80})
    set_aside(job, hand)
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "failed", 60, "the job to fail")
    assert f"the baseline is poisoned on this hardware, by entry {entry['id']}" in server.get(f"/v1/jobs/{job}")["reason"]


def test_configs_that_were_measured_after_their_loss_poison_nothing(server, hands, submit, lose, postgres, database):
    """Three agents that were restarted, say."""
    for n, hand in enumerate([hands("a"), hands("b"), hands("c"), hands("d")]):
        lose(hand, submit(ONE, key={"n": 64 + n}), 1, 1)
        hand.work()
    judged = "select count(*) filter (where judged_at is not null) from losses"
    wait_until(lambda: postgres.sql(judged, conninfo=database) == "4", 60, "the losses to be judged")
    assert ledger(server) == []


# As if 40 agents had lost leases with A=2 in as many moments, and others as many with other configs.
LOSSES = """
with moment as (select g, now() - g * interval '1 hour' as at from generate_series(1, 40) g),
     lost as (select g, at, c from moment, unnest('{{{configs}}}'::int[]) c)
insert into losses (job_id, config, lease_id, epoch, agent, device, at)
select {job}, c, {lease}, 1000 * g + c, 'agent ' || g || c, 'cpu0', at from lost"""


@pytest.mark.parametrize("others", ([0], []))
def test_agents_that_an_outage_took_poison_nothing(server, hands, submit, expire, postgres, database, others):
    hand, job = hands("hand"), submit(ONE)
    lease = hand.pull().json["lease"].split(".")[0]
    postgres.sql(LOSSES.format(job=job, lease=lease, configs=",".join(map(str, [1, *others]))), conninfo=database)
    expire({"lease": lease, "epoch": 1})  # a server whose leases are short judges them
    wait_until(lambda: postgres.sql("select count(*) from losses where judged_at is null", conninfo=database) == "0", 60,
               "the losses to be judged")
    found = [(e["config"], e["reason"][:32], len(e["evidence"])) for e in ledger(server)]
    assert found == ([] if others else [({"A": 2}, "40 leases were lost by 40 agents", 32)])


ENTRY = """
insert into poison (scope, subject, device_class, environment_id, kernel, config_values, reason, evidence, at)
select 'config', sha256('x'), device_class, environment_id, kernel, '{{"A": 2}}', 'lost', '[]', now() - interval '1 day'
from jobs where id = {job} returning id"""


def test_an_entry_whose_server_died_before_it_was_applied_is_applied(server, submit, postgres, database):
    job = submit(ONE)
    entry = postgres.sql(ENTRY.format(job=job), conninfo=database).splitlines()[0]
    wait_until(lambda: ("poisoned", 1) in events(server, job), 60, "the job to skip it")
    assert_skipped(server, job, 1, {"id": entry})
    wait_until(lambda: postgres.sql("select settled_at is not null from poison", conninfo=database) == "t", 60, "the entry to be settled")


def test_a_space_that_this_version_cannot_read_stops_neither_judgements_nor_other_jobs(
        server, hands, submit, lose, set_aside, postgres, database):
    def sql(text):
        return postgres.sql(text, conninfo=database)

    hand, _ = hands("only"), hands("another")
    unread, other = submit({"parameters": {"A": [77, 2]}}, key={"n": 97}), submit({"parameters": {"A": [78, 2]}}, key={"n": 98})
    for job in (unread, other):
        set_aside(job, hand)
    sql(f"update spaces set space = '{{}}' where digest = (select space_digest from jobs where id = {unread})")
    sql("insert into losses (job_id, config, lease_id, epoch, agent, device, at) "
        f"select {unread}, 1, id, 1, 'a', 'cpu0', now() - interval '1 hour' from leases where job_id = {unread}")
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    wait_until(lambda: ("poisoned", 1) in events(server, other), 60, "the other job to skip it")
    assert_skipped(server, other, 1, entry)
    assert sql(f"select judged_at is not null, subjects from losses where job_id = {unread}") == "t|{}"
    assert server.get(f"/v1/jobs/{unread}")["state"] == "queued"


def test_a_build_that_this_version_cannot_read_has_no_known_objects(server, folder, tmp_path, postgres, database):
    kernel = hash_of(folder)
    pack(tmp_path / "build", kernel)
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build")
    Hand(server, "amd", environment=MI300X)
    first = job_of(server, kernel).json["job"]
    postgres.sql("insert into poison (scope, subject, device_class, environment_id, kernel, build, object, config_values, reason, evidence) "
                 "select 'object', sha256('x'), device_class, environment_id, kernel, j.build, f.digest, '{}', 'lost', '[]' from jobs j "
                 f"join build_files f on f.build = j.build where j.id = {first} limit 1", conninfo=database)
    postgres.sql("update builds set build = '{}'", conninfo=database)
    assert job_of(server, kernel, run="again").status == 201
    assert "poison: the objects of a build are not known" in server.messages


@pytest.mark.parametrize("why", [{"cause": "device"}, {"reason": "the device failed: cpu0 is not trusted"}], ids=["cause", "old agent"])
def test_a_device_that_fails_blames_the_last_config_that_its_worker_did_not_survive(server, hands, submit, postgres, database, why):
    hand, job = hands("hand"), submit(ONE)
    lease = hand.pull().json
    hand.post(lease, [0], done=False)
    hand.post(lease, [1], done=False, outcomes={1: "runtime"}, detail="killed by signal 6")
    back = {"epoch": lease["epoch"], **why}
    assert server.request("POST", f"/v1/leases/{lease['lease']}/release", back).json["state"] == "open"
    lost = postgres.sql("select job_id, config, agent, device from losses", conninfo=database)
    assert lost == f"{job}|1|{hand.id}|cpu0"

    again = hand.pull().json
    back["epoch"] = again["epoch"]
    assert server.request("POST", f"/v1/leases/{again['lease']}/release", back).status == 200
    assert postgres.sql("select count(*) from losses", conninfo=database) == "1", "in this lease no config ran"


def test_an_object_that_two_configs_of_two_jobs_run_is_not_met_again_by_another_kernel(server, folder, tmp_path, lose):
    place, kernel = tmp_path / "build", hash_of(folder)
    pack(place, kernel)
    build = json.loads((place / "build.json").read_text())
    for variant in build["variants"]:
        variant["objects"][1]["digest"] = variant["objects"][0]["digest"]  # as with an option that changes no code
    (place / "build.json").write_bytes(canonical(build))
    wavetune(server, "kernel", "push", folder, "--build", place)

    hand = Hand(server, "amd", environment=MI300X)
    for config, n in enumerate((64, 128)):
        job = job_of(server, kernel, n).json["job"]
        lose(hand, job, config, 2)
        server.request("DELETE", f"/v1/jobs/{job}")
    entry, = wait_entry(server)
    code = build["variants"][0]["objects"][0]["digest"]
    assert (entry["scope"], entry["object"], entry["config"]) == ("object", code, {"BLOCK": 128, "num_warps": 4})

    other = folder.parent / "other"
    shutil.copytree(folder, other)
    (other / "add.py").write_text("import triton  # another kernel\n")
    pack(tmp_path / "other-build", hash_of(other))
    wavetune(server, "kernel", "push", other, "--build", tmp_path / "other-build")
    answer = job_of(server, hash_of(other), 192)
    assert answer.status == 201 and server.get(f"/v1/jobs/{answer.json['job']}")["baseline"] == 1
    assert_skipped(server, answer.json["job"], 0, entry)
    assert configs_of(hand.pull(wait=60).json) == [1, 2]


def test_real_agents_that_die_while_they_measure_a_config_end_its_use(start, database, postgres, tmp_path):
    """The agent is killed whenever it measures the config that waits at a gate, as a config that takes its node down."""
    server = start(harness.Server, database, options=("--lease-ms", "3000"))
    deadly = harness.GatedKernel(tmp_path / "deadly", {"REPEAT": [1, 64, 2], "TURN": [0]}, "REPEAT == 64")
    options = ("--screen-rounds", "3", "--final-rounds", "10", "--config-timeout", "3600")

    def submit(key, *more):
        return json.loads(wavetune(server, "submit", deadly.folder, "--key", key, "--json", *more).stdout)[0]["job"]

    def ended(job):
        summary = server.get(f"/v1/jobs/{job}")
        return summary if summary["state"] in ("done", "failed") else None

    def kill_in(job, agent):
        """Kills the agent whenever it measures config 1, and starts it again, until the job has given that up."""
        measuring = f"select count(*) from leases where job_id = {job} and state = 'held' and current_config = 1"
        while ("poisoned", 1) not in events(server, job):
            wait_until(lambda: postgres.sql(measuring, conninfo=database) == "1", 120, "the config to be measured")
            agent.kill()
            agent = start(harness.Agent, server, name="a", options=options)
            wait_until(lambda: postgres.sql(measuring, conninfo=database) == "0", 60, "the loss")
        wait_until(lambda: ended(job), 180, "the rest of the job")
        return agent

    agent = start(harness.Agent, server, name="a", options=options)
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    jobs = [submit("n=100003")]
    agent = kill_in(jobs[0], agent)
    jobs.append(submit("n=100019"))
    kill_in(jobs[1], agent)
    entry, = wait_entry(server)
    assert entry["config"] == {"REPEAT": 64, "TURN": 0} and {e["job"] for e in entry["evidence"]} == set(jobs)

    third = submit("n=100043", "--run", "another")
    assert wait_until(lambda: ended(third), 180, "the third job")["state"] == "done"
    assert_skipped(server, third, 1, entry)
    assert "lease_lost" not in [kind for kind, _ in events(server, third)]


def test_the_commands_list_and_release(server, hands, submit, lose):
    hand = hands("only")
    poison_config(server, submit, lose, hand)
    entry, = wait_entry(server)
    assert '{"A":2}' in wavetune(server, "poison", "list").stdout
    assert json.loads(wavetune(server, "poison", "list", "--json").stdout) == [entry]
    assert wavetune(server, "poison", "release", entry["id"], check=False).returncode == 2
    assert wavetune(server, "poison", "release", check=False).returncode == 2
    assert wavetune(server, "poison", "release", entry["id"], "--reason", "mended").stdout == f"released {entry['id']}\n"
    assert '{"A":2}' not in wavetune(server, "poison", "list").stdout
    assert "mended" in wavetune(server, "poison", "list", "--all").stdout
    assert wavetune(server, "poison", "release", "999", "--reason", "x", check=False).returncode == 4
    assert server.request("GET", "/v1/poison?in_force=perhaps").status == 422
