"""The agent with a simulated GPU: the HIP runtime is tests/fake_hip, the compiler is real."""

import hashlib
import http.client
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.parse

import harness
import pytest
from harness import wait_until, wavetune

FAKE_HIP = harness.BUILD / "tests/fake_hip/libfake_hip.so"
CLANG = shutil.which("clang-19")
pytestmark = [
    pytest.mark.skipif(not CLANG, reason="clang-19 is not here, and no other compiler makes code for gfx942"),
    pytest.mark.skipif(not FAKE_HIP.exists(), reason="the fake HIP runtime was not built"),
]

GOOD, WRONG, FAULT, HANG, BEYOND_END, ABORT, BREAK, GOOD_TOO, RESET, TOO_MANY_THREADS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 16
QUICK = ("--screen-rounds", "3", "--final-rounds", "5", "--config-timeout", "5")

SOURCE = """extern "C" __global__ void fake_add(float *y, const float *x, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1 + (MODE > n);
}
"""
REFERENCE = """#include <stdint.h>
double y_at(int64_t i, float *y, const float *x, int64_t n) { return x[i] + 1.0; }
"""
ARGUMENTS = [
    {"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"},
    {"name": "x", "dtype": "float32", "shape": ["n"], "access": "read"},
    {"name": "n", "dtype": "int64", "value": "n"},
]


def gpu(tmp_path):
    """The environment in which there is one GPU, hip0, on which every config takes 100 us. Unlike a real one, the runtime keeps
    files in a folder of its own."""
    fake = tmp_path / "fake"
    fake.mkdir(exist_ok=True)
    return {"WAVETUNE_HIP_LIBRARY": str(FAKE_HIP), "WAVETUNE_ARCH": "gfx942", "WAVETUNE_KFD_TOPOLOGY": str(tmp_path / "none"),
            "FAKE_HIP_BROKEN": str(fake / "broken"), "WAVETUNE_WORKER_WRITES": str(fake), "FAKE_HIP_LAUNCH_US": "100"}


def kernel_folder(folder, modes, version):
    folder.mkdir()
    (folder / "add.hip").write_text(SOURCE)
    (folder / "reference.c").write_text(REFERENCE)
    space = {"parameters": {"MODE": modes}, "default": {"MODE": modes[0]}}
    (folder / "space.json").write_text(json.dumps(space))
    manifest = {"name": "fake", "key": ["n"], "arguments": ARGUMENTS, "versions": {"only": version},
                "reference": {"source": "reference.c", "outputs": {"y": "y_at"}, "rtol": 1e-6, "atol": 1e-6}}
    (folder / "kernel.json").write_text(json.dumps(manifest))
    return folder


def hip_kernel(folder, modes):
    return kernel_folder(folder, modes, {"language": "hip", "entry": "fake_add", "sources": ["add.hip"],
                                         "launch": {"grid": ["ceil_div(n, 64)"], "block": ["64 * (MODE + 1)"]}})


def triton_kernel(folder, modes):
    return kernel_folder(folder, modes, {"language": "triton", "entry": "fake_add", "sources": ["add.hip"],
                                         "launch": {"grid": ["ceil_div(n, 64)"]}})


def code(tmp_path):
    """A code object as Triton makes them since 3.5: two scratch pointers follow the arguments."""
    (tmp_path / "add.cl").write_text("__attribute__((amdgpu_flat_work_group_size(1, 1024))) kernel void fake_add(global float *y, global const float *x, long n, global void *g,"
                                     " global void *p) { y[__builtin_amdgcn_workitem_id_x()] = x[n]; }")
    subprocess.run([CLANG, "-x", "cl", "-cl-std=CL2.0", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O2", "-o",
                    tmp_path / "add.co", tmp_path / "add.cl"], check=True)
    return (tmp_path / "add.co").read_bytes()


def build_folder(folder, kernel, tmp_path):
    """What pack would write of the kernel: config 0 compiled, 1 failed, 2 not packed, 7 compiled."""
    bytes_ = code(tmp_path)
    digest = hashlib.sha256(bytes_).hexdigest()
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / digest).write_bytes(bytes_)
    kernel_hash = json.loads(wavetune(None, "kernel", "hash", kernel, "--json").stdout)["kernel"]

    def entry(mode):
        return {"config": {"MODE": mode}, "digest": f"sha256:{digest}",
                "metadata": {"name": "fake_add", "shared": 1024, "num_warps": mode + 1, "warp_size": 64, "scratch": 2}}

    variant = {"signature": {"y": "*fp32", "x": "*fp32", "n": "i64"}, "constexprs": {}, "objects": [entry(0), entry(7)],
               "failed": [{"config": {"MODE": 1}, "error": "out of resource: shared memory"}]}
    build = {"kernel": kernel_hash, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "variants": [variant]}
    (folder / "build.json").write_text(json.dumps(build, sort_keys=True, separators=(",", ":")))
    return folder


def tune(place, tmp_path, *more, timeout=600, **environment):
    return subprocess.run([str(a) for a in (harness.BUILD / "wavetune-agent", "tune", place, "--key", "n=1000", "--state",
                                            tmp_path / "state", *QUICK, *more)],
                          capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                          env={**harness.os.environ, **gpu(tmp_path), **environment})


def submit(server, kernel, *more):
    done = wavetune(server, "submit", kernel, "--key", "n=1000", "--wait", "--json", *more)
    return json.loads(done.stdout)[0]


def agent_on_gpu(start, server, tmp_path):
    agent = start(harness.Agent, server, options=("--device", "hip0", *QUICK), environment=gpu(tmp_path))
    wait_until(lambda: "agent: enrolled" in agent.messages, 30, "the agent's enrolment")
    return agent


class Proxy(harness.Loopback):
    """A proxy between an agent and a server that answers `instead(method, path)`: (status, bytes), or None to pass the request
    on."""

    def __init__(self, server, instead):
        self.token, target = server.token, urllib.parse.urlparse(server.url)

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = instead(self.command, self.path) or self.forward(body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def forward(self, body):
                connection = http.client.HTTPConnection(target.hostname, target.port, timeout=300)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return answer.status, answer.read()

            do_GET = do_PUT = do_POST = handle_any

        self.listen(Handler)


def test_tune_chooses_the_gpu_and_gives_each_way_of_failing_one_config(tmp_path):
    modes = [GOOD, WRONG, FAULT, HANG, BEYOND_END, ABORT, TOO_MANY_THREADS, GOOD_TOO]
    done = tune(hip_kernel(tmp_path / "kernel", modes), tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["device"] == "hip0"
    assert answer["outcomes"] == {"correct": 2, "correctness": 2, "runtime": 2, "timeout": 1, "constraints": 1}
    assert any(words in answer["examples"]["runtime"] for words in ("illegal memory access", "signal 6")), "one of the two"
    assert "1088 threads" in answer["examples"]["constraints"]
    winner = answer["winner"]
    assert winner["vgprs"] > 0 and winner["spills"] == 0 and winner["occupancy"] > 0


def test_a_gpu_that_is_reset_between_two_configs_fails_neither(tmp_path):
    done = tune(hip_kernel(tmp_path / "kernel", [GOOD, RESET, GOOD_TOO]), tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"correct": 3}


def test_a_faulting_default_is_reported_even_when_the_runtime_cannot_be_closed(tmp_path):
    done = tune(hip_kernel(tmp_path / "kernel", [FAULT]), tmp_path, FAKE_HIP_STUCK="1")
    assert done.returncode == 1
    assert "illegal memory access" in done.stderr, done.stderr


def test_tune_uses_the_named_gpu_in_processes_that_see_no_other(tmp_path):
    kernel, taken = hip_kernel(tmp_path / "kernel", [GOOD, FAULT, GOOD_TOO]), tmp_path / "fake/taken"
    several = {"FAKE_HIP_COUNT": "3", "FAKE_HIP_USABLE": "3", "FAKE_HIP_TAKEN": str(taken)}
    done = tune(kernel, tmp_path, "--device", "hip2", "--json", **several)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["device"] == "hip2" and answer["outcomes"] == {"correct": 2, "runtime": 1}
    assert set(taken.read_text().splitlines()) == {"2 of 1"}
    done = tune(kernel, tmp_path, "--device", "hip1", HIP_VISIBLE_DEVICES="2", **several)
    assert done.returncode != 0 and 'no device "hip1"' in done.stderr and "hip0" in done.stderr


def test_tune_prints_what_the_winners_code_needs(tmp_path):
    done = tune(hip_kernel(tmp_path / "kernel", [GOOD, GOOD_TOO]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "its code " in done.stdout and "workgroups to a compute unit" in done.stdout, done.stdout


def test_tune_gives_up_on_a_gpu_that_does_not_pass_its_sentinel(tmp_path):
    (tmp_path / "fake").mkdir(exist_ok=True)
    (tmp_path / "fake/broken").touch()
    done = tune(hip_kernel(tmp_path / "kernel", [GOOD]), tmp_path)
    assert done.returncode == 1
    assert "hip0 is not trusted" in done.stderr and "sentinel" in done.stderr, done.stderr


def test_tune_runs_a_build_from_its_folder(tmp_path):
    kernel = triton_kernel(tmp_path / "kernel", [0, 1, 2, 7])
    build = build_folder(tmp_path / "build", kernel, tmp_path)
    done = tune(kernel, tmp_path, "--build", build, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"correct": 2, "compile": 2}
    assert answer["winner"]["lds_bytes"] == 1024


def test_tune_measures_one_config_of_a_build_beside_the_default(tmp_path):
    kernel = triton_kernel(tmp_path / "kernel", [0, 7])
    build = build_folder(tmp_path / "build", kernel, tmp_path)
    done = tune(kernel, tmp_path, "--build", build, "--only", "1", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["winner"]["config"], answer["baseline"]) == (1, 0)


def test_tune_refuses_a_build_for_another_arch(tmp_path):
    kernel = triton_kernel(tmp_path / "kernel", [0])
    build = build_folder(tmp_path / "build", kernel, tmp_path)
    text = (build / "build.json").read_text().replace("gfx942", "gfx90a")
    (build / "build.json").write_text(text)
    done = tune(kernel, tmp_path, "--build", build)
    assert done.returncode == 1 and "build is for gfx90a" in done.stderr and "gfx942" in done.stderr, done.stderr


def test_an_agent_measures_hip_on_a_gpu_and_stores_the_finalists_code(server, start, tmp_path):
    agent_on_gpu(start, server, tmp_path)
    job = submit(server, hip_kernel(tmp_path / "kernel", [GOOD, FAULT, TOO_MANY_THREADS, GOOD_TOO]))
    assert job["state"] == "done", job
    assert job["outcomes"] == {"correct": 2, "runtime": 1, "constraints": 1}
    measured = server.items(f"/v1/jobs/{job['job']}/measurements")
    finals = [m for m in measured if m["stage"] == "final"]
    assert finals and all(m["vgprs"] > 0 and m["spills"] == 0 and m["occupancy"] > 0 for m in finals)
    assert {(m["conditions"]["hip_force_dev_kernarg"], m["conditions"].get("self_timed")) for m in finals} == {("1", None)}
    for m in finals:
        code_object = server.request("GET", f"/v1/blobs/{m['object']}").body
        assert code_object.startswith(b"\x7fELF")
    assert not any(m["object"] for m in measured if m["stage"] == "screen")


def test_an_agent_runs_builds_of_triton_kernels(server, start, tmp_path):
    agent = agent_on_gpu(start, server, tmp_path)
    kernel = triton_kernel(tmp_path / "kernel", [0, 1, 2, 7])
    wavetune(server, "kernel", "push", kernel, "--build", build_folder(tmp_path / "build", kernel, tmp_path))
    job = submit(server, kernel)
    assert job["state"] == "done", (job, agent.messages)
    assert job["outcomes"] == {"correct": 2, "compile": 2}
    details = {m["config"]: m["detail"] for m in server.items(f"/v1/jobs/{job['job']}/measurements") if m["outcome"] == "compile"}
    assert details[1] == "out of resource: shared memory"
    assert "no object of" in details[2]


def test_a_gpu_that_breaks_is_in_quarantine_until_it_passes_its_sentinel(server, start, tmp_path, postgres, database):
    agent = agent_on_gpu(start, server, tmp_path)
    kernel = hip_kernel(tmp_path / "kernel", [GOOD, BREAK, GOOD_TOO])
    job = json.loads(wavetune(server, "submit", kernel, "--key", "n=1000", "--json").stdout)[0]
    wait_until(lambda: "in quarantine" in agent.messages, 60, "quarantine")
    path = f"/v1/jobs/{job['job']}"
    wait_until(lambda: postgres.sql("select config, device from losses", conninfo=database) == "1|hip0", 30,
               "the loss, which the ledger of poison judges")
    time.sleep(1)
    later = [m for m in server.items(f"{path}/measurements") if m["config"] == 2]
    assert not later, "nothing is measured on it meanwhile"
    (tmp_path / "fake/broken").unlink()
    wait_until(lambda: "passed its sentinel" in agent.messages, 90, "the end of the quarantine")
    wait_until(lambda: server.get(path)["state"] == "done", 120, "the job's end")
    assert server.get(path)["outcomes"] == {"correct": 2, "runtime": 1}


def test_a_stopped_agent_ends_at_once_even_if_its_gpu_is_in_quarantine(server, start, tmp_path):
    agent = agent_on_gpu(start, server, tmp_path)
    wavetune(server, "submit", hip_kernel(tmp_path / "kernel", [GOOD, BREAK]), "--key", "n=1000")
    wait_until(lambda: "in quarantine" in agent.messages, 60, "quarantine")
    agent.process.terminate()
    assert agent.wait() == 0


def test_an_agent_whose_gpu_stays_in_quarantine_ends_after_its_idle_time(server, start, tmp_path):
    (tmp_path / "fake").mkdir(exist_ok=True)
    (tmp_path / "fake/broken").touch()
    agent = start(harness.Agent, server, options=("--device", "hip0", "--idle-exit", "2", *QUICK), environment=gpu(tmp_path))
    wait_until(lambda: "agent: enrolled" in agent.messages, 30, "the agent's enrolment")
    wavetune(server, "submit", hip_kernel(tmp_path / "kernel", [GOOD]), "--key", "n=1000")
    assert agent.wait(60) == 0
    assert "in quarantine" in agent.messages and "no work for 2 s" in agent.messages


def test_results_are_posted_without_code_that_left_the_cache(server, start, tmp_path):
    agents, pruned = [], []

    def prune(method, path):
        if method == "PUT" and path.startswith("/v1/blobs/") and not pruned:
            wait_until(lambda: agents[0].messages.count("lease: done") == 4, 120, "the screen and the finals")
            for file in (pathlib.Path(agents[0].state) / "objects").glob("*.co"):
                file.unlink(missing_ok=True)  # the agent may do so as well
            pruned.append(path)

    with Proxy(server, prune) as proxy:
        agents.append(agent_on_gpu(start, proxy, tmp_path))
        job = submit(server, hip_kernel(tmp_path / "kernel", [GOOD, GOOD_TOO]))
        assert agents[0].stop() == 0
    assert job["state"] == "done", job
    finals = [m for m in server.items(f"/v1/jobs/{job['job']}/measurements") if m["stage"] == "final" and m["process"] < 3]
    assert sorted(bool(m["object"]) for m in finals) == [False] * 3 + [True] * 3
    assert "compiled code: cannot " in agents[0].messages, agents[0].messages


def test_results_are_posted_without_code_that_the_server_refuses(server, start, tmp_path):
    puts = []

    def no_blobs(method, path):
        if method == "PUT" and path.startswith("/v1/blobs/"):
            puts.append(path)
            return 503, b"{}"
        return None

    with Proxy(server, no_blobs) as proxy:
        agent = agent_on_gpu(start, proxy, tmp_path)
        job = submit(server, hip_kernel(tmp_path / "kernel", [GOOD, GOOD_TOO]))
        assert agent.stop() == 0
    assert job["state"] == "done", job
    finals = [m for m in server.items(f"/v1/jobs/{job['job']}/measurements") if m["stage"] == "final"]
    assert finals and not any(m["object"] for m in finals)
    assert re.search("compiled code: .*503", agent.messages)
    assert len(puts) < len(finals) + 2, "three requests, then one for the results posted together"


def test_a_server_that_is_away_gets_the_finalists_code_when_it_is_back(server, start, tmp_path):
    refused = []

    def away(method, path):
        is_code = method == "PUT" and path.startswith("/v1/blobs/")
        if len(refused) < 4 and (is_code or refused and path.endswith("/results")):
            refused.append(method)
            return 503, b"{}"
        return None

    with Proxy(server, away) as proxy:
        agent = agent_on_gpu(start, proxy, tmp_path)
        job = submit(server, hip_kernel(tmp_path / "kernel", [GOOD, GOOD_TOO]))
        assert agent.stop() == 0
    assert job["state"] == "done" and refused == ["PUT", "PUT", "PUT", "POST"], (job, refused)
    finals = [m for m in server.items(f"/v1/jobs/{job['job']}/measurements") if m["stage"] == "final"]
    assert finals and all(m["object"] for m in finals)


@pytest.mark.parametrize("instead, word", [((404, b"{}"), "the server answered 404 to GET /v1/kernels/"),
                                           ((200, b"{}"), "another build"),
                                           ((200, b"{"), "lease: failed")])
def test_a_lease_whose_build_cannot_be_fetched_fails(server, start, tmp_path, instead, word):
    kernel = triton_kernel(tmp_path / "kernel", [0, 7])
    build = build_folder(tmp_path / "build", kernel, tmp_path)
    with Proxy(server, lambda method, path: instead if method == "GET" and "/builds/" in path else None) as proxy:
        agent = agent_on_gpu(start, proxy, tmp_path)
        wavetune(server, "kernel", "push", kernel, "--build", build)
        wavetune(server, "submit", kernel, "--key", "n=1000")
        wait_until(lambda: word in agent.messages, 30, word)
        assert agent.stop() == 0


def test_a_lease_that_cannot_be_read_starts_no_workers(server, start, tmp_path):
    lease = {"lease": "1", "epoch": 1, "expires_in_ms": 600000, "renew_every_ms": 60000}

    def unreadable(method, path):
        return (200, json.dumps(lease).encode()) if (method, path) == ("POST", "/v1/leases") else None

    with Proxy(server, unreadable) as proxy:
        agent = agent_on_gpu(start, proxy, tmp_path)
        wait_until(lambda: "lease: failed lease=1" in agent.messages, 30, "the lease's end")
        assert not pathlib.Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text()
        agent.kill()


def test_a_gpu_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    done = subprocess.run([harness.BUILD / "wavetune-agent", "probe"], capture_output=True, text=True, timeout=600,
                          env={**harness.os.environ, **gpu(tmp_path), "FAKE_HIP_COUNT": "3"})
    assert done.returncode == 0, done.stderr
    assert [d["device"] for d in json.loads(done.stdout)["devices"] if d["backend"] == "hip"] == ["hip0"]
    assert "hip1 is left out: " in done.stderr and "hip2 is left out: " in done.stderr
