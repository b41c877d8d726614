"""The agent's commands as people run them: their output, their exit codes, and an orderly end."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import hands
import harness
from harness import make_token, small_kernel, wait_until, wavetune

AGENT = harness.BUILD / "wavetune-agent"
QUICK = ("--screen-rounds", "3", "--final-rounds", "10")
STARTS = 100  # of agents that are to end at once, while they are loaded or soon after
PATIENT = (*QUICK, "--config-timeout", "3600")  # for kernels that wait at a gate


def agent(*arguments, environment=None, timeout=600):
    full = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")}
    return subprocess.run([str(a) for a in (AGENT, *arguments)], capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env={**full, **(environment or {})})


def small_job(server, kernel, run=""):
    return json.loads(wavetune(server, "submit", kernel, "--key", "n=1003", "--run", run, "--json").stdout)[0]["job"]


def state_of(server, job):
    return server.get(f"/v1/jobs/{job}")["state"]


def job_in_the_middle(server, gated):
    """A job whose first config an agent has begun to measure, and cannot end before the gate is opened."""
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    job = small_job(server, gated.folder)
    gated.wait_reached()
    return job


def assert_nothing_twice(server, job):
    rows = [(m["config"], m["stage"], m["process"]) for m in server.items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    assert len(rows) == len(set(rows))


def test_probe_prints_devices_and_env_the_environment_of_one():
    devices = json.loads(agent("probe").stdout)["devices"]
    cpu = next(d for d in devices if d["device"] == "cpu0")
    environment = json.loads(agent("env", "--device", "cpu0").stdout)
    assert environment == cpu["environment"]
    query = agent("env", "--device", "cpu0", "--query").stdout.strip()
    assert f"compute_units={environment['compute_units']}" in query and " " not in query


def test_an_agent_that_ends_on_a_signal_has_ended_and_is_not_lost(server, start):
    one = start(harness.Agent, server)
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    first = server.items("/v1/agents")[0]["agent"]
    assert one.stop() == 0 and "agent: ended" in one.messages
    listed, = server.items("/v1/agents")
    assert (listed["agent"], listed["state"]) == (first, "ended")
    wait_until(lambda: server.get("/v1/fleet")["devices"]["ended"] == 1, 60, "the device to have ended")
    assert re.search(r"^node +1 ended ", wavetune(server, "agents").stdout, re.M)
    assert "1 ended" in wavetune(server, "top").stdout
    wait_until(lambda: 'wavetune_devices{state="ended"} 1\n' in server.request("GET", "/metrics").body.decode(), 60, "the metric")
    assert server.items("/v1/environments")[0]["agents"] == 0, "it takes no jobs"

    again = start(harness.Agent, server)
    wait_until(lambda: server.items("/v1/agents")[0]["state"] == "live", 60, "the same agent to be back")
    again.stop()
    assert wavetune(server, "agents", "remove", "node").stdout == f"removed {first}\n", "at once: it is not live"


def test_an_agent_that_cannot_say_that_it_ends_says_so_in_its_log(database, start):
    server = start(harness.Server, database)
    one = start(harness.Agent, server)
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    server.kill()
    assert one.stop() == 0
    assert "it ends, and the server did not hear of it" in one.messages


def test_only_an_agent_itself_says_that_it_ends(server):
    hand = hands.Hand(server, "node")
    state = lambda: server.items("/v1/agents")[0]["state"]  # noqa: E731
    end = f"/v1/agents/{hand.id}/end"
    assert server.request("POST", end, {"boot": "of an earlier run"}).status == 404
    assert server.request("POST", end, {}).status == 422
    assert server.request("POST", end, {"boot": hand.boot}, token=make_token(server.database, "other", "agent")).status == 403
    assert state() == "live"
    assert server.request("POST", end, {"boot": hand.boot}).status == 204
    assert state() == "ended"
    wavetune(server, "agents", "drain", "node", "--reason", "x")
    assert state() == "ended", "a drained one, too"


def test_an_unknown_device_is_refused_with_the_available_ones():
    done = agent("env", "--device", "gpu77")
    assert done.returncode == 2 and "gpu77" in done.stderr and "cpu0" in done.stderr


def test_run_needs_a_url_and_a_token_that_the_server_knows(server, tmp_path):
    done = agent("run", "--state", tmp_path)
    assert done.returncode == 2 and "--url" in done.stderr
    done = agent("run", "--state", tmp_path, "--url", server.url, environment={"WAVETUNE_TOKEN": "wt_wrong"})
    assert done.returncode == 4 and "401" in done.stderr
    assert "wt_wrong" not in done.stderr


def test_run_with_an_absent_device_is_refused(server, tmp_path):
    done = agent("run", "--state", tmp_path, "--url", server.url, "--device", "gpu77")
    assert done.returncode == 2 and "gpu77" in done.stderr


def test_two_agents_cannot_share_a_state_folder(server, start):
    first = start(harness.Agent, server, name="a")
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    done = agent("run", "--state", first.state, "--url", server.url, environment={"WAVETUNE_TOKEN": server.token})
    assert done.returncode == 2 and "another agent" in done.stderr


def test_an_agent_keeps_its_id_over_restarts(server, start):
    for _ in range(2):
        one = start(harness.Agent, server, name="a")
        wait_until(lambda: "enrolled" in one.messages, 30, "the enrolment")
        assert one.stop() == 0
    assert len(server.items("/v1/agents")) == 1


def test_an_agent_without_work_ends_after_its_idle_time(server, start):
    one = start(harness.Agent, server, options=("--idle-exit", "1"))
    assert one.wait() == 0


def test_a_stopped_agent_releases_its_lease_at_once(server, start):
    one = start(harness.Agent, server, name="a", options=("--config-timeout", "3600"))
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = json.loads(wavetune(server, "submit", harness.MISBEHAVING, "--key", "n=1000", "--json").stdout)[0]["job"]
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["measured"] >= 1, 60, "a first measurement, then the hang")
    assert one.stop() == 0
    assert re.search(r"device: cpu0 ends after \S+ s and 1 leases; .* asking=\S+ preparing=\S+ .* timing=", one.messages)
    hand = server.items("/v1/agents")[0]["agent"]
    answer = server.request("POST", "/v1/leases", {"agent": hand, "device": "cpu0", "nonce": "next", "wait": 60})
    assert answer.status == 200, "the next agent can get the rest of the lease long before its expiry"
    assert not [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["late"]]


def test_a_lease_that_cannot_be_executed_does_not_report_the_previous_opening_time(server, start, postgres, tmp_path):
    one = start(harness.Agent, server, options=QUICK)
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    first = small_job(server, small_kernel(tmp_path / "kernel"))
    wait_until(lambda: state_of(server, first) == "done", 120, "the job")
    gpu = {"rocm": "6.4.1", "gpu": "Test GPU", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
    other = json.loads(wavetune(server, "submit", harness.QUICK.parent / "gpu_quick", "--key", "n=1003", "--environment",
                                json.dumps(gpu), "--json").stdout)[0]["job"]
    # The server gives no agent a kernel that its devices do not run; a fault of it is met, too.
    postgres.sql(f"""update jobs set (environment_id, device_class) =
                         (select environment_id, device_class from jobs where id = {first}) where id = {other};
                     update leases set device_class = (select device_class from jobs where id = {first}) where job_id = {other}""",
                 conninfo=server.database)
    wait_until(lambda: "run on GPUs" in one.messages, 60, "the lease that fails")
    assert one.stop() == 0
    assert server.get(f"/v1/jobs/{first}")["opening_device_seconds"] > 0
    assert server.get(f"/v1/jobs/{other}")["opening_device_seconds"] == 0


def test_an_agent_started_before_its_server_works_once_the_server_is_up(start, database, tmp_path):
    server = start(harness.Server, database)
    port = server.port
    server.stop()
    one = start(harness.Agent, server, name="a")
    wait_until(lambda: "cannot enrol yet" in one.messages, 30, "a failed try")
    again = start(harness.Server, database, port=port)
    wait_until(lambda: again.items("/v1/agents"), 30, "the enrolment")
    assert one.process.poll() is None


def test_an_agent_stopped_while_it_enrols_again_does_not_wait_for_the_answer(tmp_path):
    requested, answered = threading.Event(), threading.Event()

    def answer(method, path):
        requested.set()
        answered.wait(600)
        return 503, {}

    with harness.FakeServer(answer) as fake:
        state = tmp_path / "agent-a"
        state.mkdir()
        (state / "agent").write_text("0123456789abcdef0123456789abcdef\n")
        one = harness.Agent(fake, tmp_path, name="a")
        assert requested.wait(300)
        assert one.stop() == 0
        assert "was cancelled" in one.messages
        answered.set()


def test_a_task_of_a_kind_that_an_agent_does_not_know_is_handed_back(tmp_path):
    grants = [{"lease": "7", "epoch": 1, "kind": "echo", "expires_in_ms": 30000, "renew_every_ms": 10000}]
    handed_back = []

    def answer(_, path, body):
        if path == "/v1/agents":
            return 200, {"agent": "0123456789abcdef0123456789abcdef", "heartbeat_every_ms": 5000, "lease_ms": 30000}
        if path == "/v1/leases" and grants:
            return 200, grants.pop()
        if path == "/v1/leases/7/release":
            handed_back.append(json.loads(body))
            return 200, {"state": "open"}
        return (204, b"") if path == "/v1/leases" else (200, {})

    with harness.FakeServer(answer, with_body=True) as fake:
        one = harness.Agent(fake, tmp_path, name="a")
        wait_until(lambda: handed_back, 60, "the task")
        one.stop()
    assert (handed_back[0]["epoch"], handed_back[0]["cause"]) == (1, "failed")
    assert 'cannot run tasks of the kind "echo"' in handed_back[0]["reason"]


def test_results_measured_while_the_server_was_away_are_posted_by_the_next_run(start, database, tmp_path):
    server = start(harness.Server, database, options=harness.UNHURRIED)
    gated = harness.GatedKernel(tmp_path / "kernel")
    one = start(harness.Agent, server, name="a", options=PATIENT)
    job = job_in_the_middle(server, gated)
    port = server.port
    server.kill()
    gated.open()
    wait_until(lambda: "in the spool" in one.messages, 120, "results that wait")
    one.kill()
    again = start(harness.Server, database, port=port)
    two = start(harness.Agent, again, name="a", options=QUICK)
    wait_until(lambda: "posted before" in two.messages, 60, "the replay")
    wait_until(lambda: again.get(f"/v1/jobs/{job}")["state"] == "done", 120, "the job")
    assert_nothing_twice(again, job)


def test_env_prints_an_environment_that_submit_accepts(server, tmp_path):
    """Before any agent enrolled: the server knows no environment then, so it must be whole."""
    printed = agent("env", "--device", "cpu0").stdout
    (tmp_path / "environment.json").write_text(printed)
    kernel = small_kernel(tmp_path / "kernel")
    answers = [json.loads(wavetune(server, "submit", kernel, "--key", "n=5", "--environment", given, "--json").stdout)[0]
               for given in (printed, f"@{tmp_path}/environment.json")]
    assert answers[0]["environment"] == json.loads(printed)
    assert [a["created"] for a in answers] == [True, False]


def test_a_state_folder_that_cannot_be_made_or_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "spool").mkdir()  # makes writing the file of that name fail, for root too
    (closed / "agent.lock").mkdir()
    for state in (tmp_path / "file/state", "/proc/state", closed):
        done = agent("run", "--url", "http://127.0.0.1:9", "--state", state)
        assert done.returncode == 2 and str(state) in done.stderr and done.stderr.count("\n") == 1, (state, done)


def test_a_drained_agent_gets_no_lease_until_it_is_resumed(start, database, tmp_path):
    server = start(harness.Server, database, options=("--heartbeat-ms", "200"))
    kernel = small_kernel(tmp_path / "kernel")
    one = start(harness.Agent, server, name="a", options=QUICK)
    enrolled = wait_until(lambda: server.items("/v1/agents"), 30, "the agent")[0]
    path = f"/v1/agents/{enrolled['agent']}/drain"
    assert server.request("POST", path, {"reason": "new disks"}).status == 200
    wait_until(lambda: "drained: " in one.messages, 20, "the agent to receive it")
    job = small_job(server, kernel)
    assert "new disks (by admin" in wavetune(server, "agents", "-o", "wide").stdout  # it may be lost for a moment
    answer = server.request("POST", "/v1/leases", {"agent": enrolled["agent"], "device": "cpu0", "nonce": "n", "wait": 1})
    assert answer.status == 403 and state_of(server, job) == "queued" and "lease: began" not in one.messages
    assert server.request("POST", path, {"reason": None}).status == 200
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")
    wait_until(lambda: "no longer drained" in one.messages, 20, "the agent to receive that too")


def test_an_agent_whose_token_was_revoked_logs_that_and_works_again_with_another(start, database, tmp_path):
    server = start(harness.Server, database, options=("--heartbeat-ms", "200"))
    kernel = small_kernel(tmp_path / "kernel")
    tokens = [harness.make_token(database, name, "agent") for name in ("first", "second")]
    one = start(harness.Agent, server, name="a", options=QUICK, token=tokens[0])
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    assert server.request("DELETE", "/v1/tokens/first").status == 204
    wait_until(lambda: re.search("no heartbeat: .*401", one.messages), 30, "a refused heartbeat")
    assert one.process.poll() is None and tokens[0] not in one.messages
    job = small_job(server, kernel)
    assert one.stop() == 0
    assert state_of(server, job) == "queued", "its long poll, begun with the token, got no lease either"
    start(harness.Agent, server, name="a", options=QUICK, token=tokens[1])
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")
    assert len(server.items("/v1/agents")) == 1


def test_results_of_an_agent_with_a_revoked_token_are_not_lost(server, start, database, tmp_path):
    gated = harness.GatedKernel(tmp_path / "kernel")
    tokens = [harness.make_token(database, name, "agent") for name in ("first", "second")]
    one = start(harness.Agent, server, name="a", options=PATIENT, token=tokens[0])
    job = job_in_the_middle(server, gated)
    server.request("DELETE", "/v1/tokens/first")
    gated.open()
    wait_until(lambda: re.search("in the spool: .*401", one.messages), 60, "a refusal")
    one.kill()  # stopped by SIGTERM, it would try to post for some seconds more
    two = start(harness.Agent, server, name="a", options=QUICK, token=tokens[1])
    wait_until(lambda: state_of(server, job) == "done", 120, "the job")
    assert "posted before" in two.messages
    assert_nothing_twice(server, job)


def test_a_second_agent_gets_the_rest_of_a_lease_when_the_first_is_stopped(server, start, tmp_path):
    """Without waiting for the lease to expire: here that would take ten minutes."""
    gated = harness.GatedKernel(tmp_path / "kernel", {"REPEAT": [1, 2, 4, 8], "TURN": [0, 1, 2]})
    one = start(harness.Agent, server, name="a", options=PATIENT)
    job = job_in_the_middle(server, gated)
    assert one.stop() == 0
    gated.open()
    start(harness.Agent, server, name="b", options=QUICK)
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")


def test_an_agent_ends_in_order_when_sigterm_comes_while_it_starts(start, server):
    began, early = time.monotonic(), 0
    program = start(harness.Agent, server)
    wait_until(lambda: program.blocks(signal.SIGTERM), 10, "the agent to block the signal")
    loading = time.monotonic() - began
    program.stop()
    for i in range(STARTS):
        program = start(harness.Agent, server)
        time.sleep(2 * loading * i / STARTS)  # as many before as after it is loaded
        is_in_main = program.blocks(signal.SIGTERM)
        program.process.send_signal(signal.SIGTERM)
        status = program.wait()
        if status == -signal.SIGTERM and not is_in_main:  # the kernel ended it before main
            early += 1
            continue
        assert status == 0 and "ends on a signal" in program.messages, (i, status, program.messages)
    assert early < STARTS


def test_a_signal_that_comes_before_the_options_are_read_is_kept(start, server):
    program = start(harness.Agent, server)
    wait_until(lambda: program.blocks(signal.SIGTERM), 10, "the agent to block the signal")
    assert program.stop() == 0


def test_a_second_agent_of_the_machine_on_the_same_device_is_refused(server, start):
    def begun(name, *options):
        agent = start(harness.Agent, server, name=name, options=options, environment={"WAVETUNE_SHARE_DEVICE": "0"})
        wait_until(lambda: "agent: enrolled" in agent.messages or agent.process.poll() is not None, 60, "the agent")
        return agent

    def first():  # agents of other tests that run now share their devices, but for this test's in another tree
        agent = begun("first")
        return agent if agent.process.poll() is None else None

    agent = wait_until(first, 60, "the only agent of this device")
    second = begun("second")
    assert second.wait() == 1 and "another agent of this machine works on cpu0: end it" in second.messages, second.messages
    assert [one["name"] for one in server.items("/v1/agents")] == ["first"]
    assert begun("third", "--share-device").process.poll() is None
    agent.process.kill()
    agent.wait()
    assert begun("fourth").process.poll() is None, "a claim ends with its process"
