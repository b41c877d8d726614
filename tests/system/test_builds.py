"""Builds are pushed with their kernel, read as they were packed, and chosen for a job by its key. Agents that run them report
the object that was timed, the conditions, and configs that the device cannot run. The builds are written by hand."""

import hashlib
import json
import shutil
import subprocess
import threading

import harness
import pytest
from harness import make_token, wavetune
from test_faults import Hand, configs_of

MI300X = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
TOOLCHAIN = {"triton": "3.6.0", "torch": "2.9.0", "rocm": "6.4.1"}
SPACE = {"parameters": {"BLOCK": [64, 128, 256], "num_warps": [4]}, "roles": {"num_warps": "option"}}
ALWAYS = [("n % 16 == 0", "even"), ("n % 16 == 1", "odd")]


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.fixture
def folder(tmp_path):
    """A triton kernel."""
    place = tmp_path / "add"
    place.mkdir()
    (place / "add.py").write_text("import triton\n")
    (place / "space.json").write_text(json.dumps(SPACE))
    (place / "kernel.json").write_text(json.dumps({
        "name": "add", "key": ["n"],
        "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"},
                      {"name": "n", "dtype": "int32", "value": "n"}],
        "versions": {"triton": {"language": "triton", "entry": "add", "sources": ["add.py"],
                                "launch": {"grid": ["ceil_div(n, BLOCK)"]}}}}))
    return place


def hash_of(folder):
    return wavetune(None, "kernel", "hash", folder).stdout.strip()


def pack(place, kernel, whens=ALWAYS, toolchain=TOOLCHAIN, arch="gfx942"):
    """Writes a build of `kernel` as docs/builds.md says, its objects different for each (when, text) of `whens`; the config
    with the largest block did not compile. Returns its digest."""
    (place / "objects").mkdir(parents=True, exist_ok=True)

    def blob(text):
        (place / "objects" / hashlib.sha256(text.encode()).hexdigest()).write_text(text)
        return sha(text.encode())

    build = {"kernel": kernel, "toolchain": toolchain, "arch": arch, "warp_size": 64, "variants": [
        {"when": when, "signature": {"y": "*fp32", "n": "i32"}, "constexprs": {},
         "objects": [{"config": {"BLOCK": block, "num_warps": 4}, "digest": blob(f"code {text} {block}"),
                      "metadata": {"name": "add", "shared": 0, "files": {"ttgir": blob(f"ttgir {text} {block}")}}}
                     for block in (64, 128)],
         "failed": [{"config": {"BLOCK": 256, "num_warps": 4}, "error": "out of resource: shared memory"}]}
        for when, text in whens]}
    data = canonical(build)
    (place / "build.json").write_bytes(data)
    return sha(data)


@pytest.fixture
def pushed(server, folder, tmp_path):
    """The kernel's hash and the digest of its build, both on the server."""
    digest = pack(tmp_path / "build", hash_of(folder))
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build")
    return hash_of(folder), digest


def job_of(server, kernel, n=64, environment=MI300X, **more):
    return server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": n}, "space": SPACE, "environment": environment,
                                               **more})


# Pushing and reading

def test_a_kernel_is_pushed_with_its_build_and_listed(server, folder, tmp_path):
    kernel, digest = hash_of(folder), pack(tmp_path / "build", hash_of(folder))
    output = wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build").stdout
    assert output.splitlines()[0] == f"{kernel}  add/triton"
    assert output.splitlines()[1] == f"{digest}  build of add/triton for gfx942, triton 3.6.0, torch 2.9.0"
    row = wavetune(server, "kernel", "builds", kernel).stdout.splitlines()[1].split()
    assert row[:6] == [digest, "gfx942", "3.6.0", "2.9.0", "6.4.1", "2"]
    listed, = json.loads(wavetune(server, "kernel", "builds", kernel, "--json").stdout)
    assert (listed["build"], listed["toolchain"], listed["variants"]) == (digest, TOOLCHAIN, 2)


def test_a_builder_pushes_kernels_and_builds_and_submits_nothing(server, folder, tmp_path):
    kernel, digest = hash_of(folder), pack(tmp_path / "build", hash_of(folder))
    builder = make_token(server.database, "farm", "builder")
    wavetune(server, "kernel", "push", folder, token=builder)
    refused = wavetune(server, "submit", folder, "--key", "n=64", token=builder, check=False)
    assert refused.returncode == 4 and "role" in refused.stderr
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build", token=builder)
    build, = json.loads(wavetune(server, "kernel", "builds", kernel, "--json").stdout)
    assert (build["build"], build["made_by"]) == (digest, "farm")
    assert server.get(f"/v1/audit?object={digest}")["items"][0]["action"] == "put-build"


def test_a_push_uploads_only_what_the_server_misses(server, folder, tmp_path, pushed):
    shutil.rmtree(tmp_path / "build/objects")
    again, = json.loads(wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build", "--json").stdout)
    assert again == {"kernel": pushed[0], "name": "add/triton", "builds": [pushed[1]]}


def test_kernels_are_pushed_each_with_its_builds(server, folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "add.py").write_text("import triton  # otherwise\n")
    digests = [pack(tmp_path / "b0", hash_of(other)), pack(tmp_path / "b1", hash_of(folder)),
               pack(tmp_path / "b2", hash_of(folder), arch="gfx90a")]
    builds = [word for i in range(3) for word in ("--build", tmp_path / f"b{i}")]
    first, second = json.loads(wavetune(server, "kernel", "push", folder, other, *builds, "--json").stdout)
    assert (first["builds"], second["builds"]) == ([digests[1], digests[2]], [digests[0]])


def test_wrong_builds_are_one_sentence_and_push_nothing(server, folder, tmp_path):
    place, kernel = tmp_path / "build", hash_of(folder)

    def refused(word, code=2):
        done = wavetune(server, "kernel", "push", folder, "--build", place, check=False)
        assert done.returncode == code and word in done.stderr and done.stderr.count("\n") == 1, done
        return done

    refused("build.json")
    pack(place, "sha256:" + "0" * 64)
    refused("than \"add/triton\"")
    (place / "build.json").write_text("{")
    refused("build.json")
    (place / "build.json").write_text("{}")
    refused("build.json")
    pack(place, kernel, [("m == 1", "x")])
    refused("/variants/0/when")
    assert server.items("/v1/kernels") == []
    pack(place, kernel)
    one = sorted((place / "objects").iterdir())[0]
    one.write_text("something else")
    refused("is damaged")
    one.unlink()
    refused("is incomplete")
    assert server.items(f"/v1/kernels/{kernel}/builds") == []


def test_objects_that_only_the_server_lists_are_its_error(folder, tmp_path):
    pack(tmp_path / "build", hash_of(folder))
    for missing in (["sha256:" + "0" * 64], ["x"], [7]):
        def answer(method, path, missing=missing):
            return (409, {"detail": "no", "missing": missing}) if method == "PUT" else (200, {})

        with harness.FakeServer(answer) as fake:
            done = wavetune(fake, "kernel", "push", folder, "--build", tmp_path / "build", check=False)
        assert done.returncode == 4 and "the server misses" in done.stderr, done


def test_the_hash_is_that_of_the_manifest_that_is_printed(folder):
    printed, manifest = wavetune(None, "kernel", "hash", folder, "--manifest").stdout.splitlines()
    assert printed == sha(manifest.encode()) and json.loads(manifest)["name"] == "add/triton"
    document = json.loads(wavetune(None, "kernel", "hash", f"{folder}:triton", "--manifest", "--json").stdout)
    assert document == {"kernel": printed, "name": "add/triton", "manifest": json.loads(manifest)}
    for arguments in ((), (folder, folder), (folder / "none",)):
        assert wavetune(None, "kernel", "hash", *arguments, check=False).returncode == 2
    assert wavetune(None, "kernel", "builds", check=False).returncode == 2


def test_a_build_is_read_as_the_bytes_that_its_digest_covers(server, tmp_path, pushed, database):
    kernel, digest = pushed
    path = f"/v1/kernels/{kernel}/builds/{digest}"
    agent = make_token(database, "node", "agent")
    for _ in range(2):  # from the database, then from the cache
        answer = server.request("GET", path, token=agent)
        assert answer.status == 200 and answer.body == (tmp_path / "build/build.json").read_bytes() and sha(answer.body) == digest
        assert answer.headers["Cache-Control"] == "private, no-cache" and answer.headers["ETag"] == f'"{digest}"'
        assert server.request("GET", path, headers={"If-None-Match": f'"{digest}"'}).status == 304
    assert server.request("HEAD", path).headers["Content-Length"] == str(len(answer.body))
    for absent in (f"/v1/kernels/{kernel}/builds/{kernel}", f"/v1/kernels/{digest}/builds/{digest}",
                   f"/v1/kernels/{kernel}/builds/x", f"/v1/kernels/x/builds/{digest}"):
        assert server.request("GET", absent).status == 404
    assert server.request("GET", path + "?limit=1").status == 422


def test_a_build_that_an_older_server_stored_as_another_text_is_read_all_the_same(
        server, pushed, postgres, database, tmp_path):
    """Its digest covers the canonical text."""
    kernel, digest = pushed
    build = json.loads((tmp_path / "build/build.json").read_text())
    postgres.sql(f"update builds set build = $${json.dumps(build, indent=1)}$$", conninfo=database)
    answer = server.request("GET", f"/v1/kernels/{kernel}/builds/{digest}")
    assert answer.status == 200 and answer.body == canonical(build)


def test_a_build_whose_objects_or_files_are_missing_is_refused_with_them(server, folder, tmp_path):
    wavetune(server, "kernel", "push", folder)
    kernel, digest = hash_of(folder), pack(tmp_path / "build", hash_of(folder), [("n == 1", "x")])
    body = (tmp_path / "build/build.json").read_bytes()
    answer = server.request("PUT", f"/v1/kernels/{kernel}/builds/{digest}", body)
    names = {"sha256:" + file.name for file in (tmp_path / "build/objects").iterdir()}
    assert answer.status == 409 and set(answer.json["missing"]) == names and len(names) == 4


def test_a_build_whose_objects_state_that_they_have_no_cache_is_accepted(server, folder, tmp_path):
    place = tmp_path / "build/build.json"
    pack(place.parent, hash_of(folder))
    build = json.loads(place.read_text())
    for item in build["variants"][0]["objects"]:
        item["metadata"]["cache"] = None
    place.write_bytes(canonical(build))
    wavetune(server, "kernel", "push", folder, "--build", place.parent)
    answer = server.request("GET", f"/v1/kernels/{hash_of(folder)}/builds")
    assert [item["build"] for item in answer.json["items"]] == [sha(canonical(build))]


def test_a_build_of_some_hundred_configs_and_many_variants_is_accepted(server, folder, tmp_path):
    wavetune(server, "kernel", "push", folder)
    blob = b"code"
    assert server.request("PUT", f"/v1/blobs/{sha(blob)}", blob).status == 201
    metadata = {"name": "k" * 200, "shared": 8192, "num_warps": 4, "scratch": 2, "files": {"ttgir": sha(blob)}}
    build = {"kernel": hash_of(folder), "toolchain": TOOLCHAIN, "arch": "gfx942", "warp_size": 64, "variants": [
        {"when": f"n % 32 == {v}", "objects": [{"config": {"BLOCK": i}, "digest": sha(blob), "metadata": metadata}
                                               for i in range(400)]} for v in range(32)]}
    data = canonical(build)
    assert 5 << 20 < len(data) < 16 << 20
    assert server.request("PUT", f"/v1/kernels/{hash_of(folder)}/builds/{sha(data)}", data).status == 201
    answer = job_of(server, hash_of(folder), n=5)
    assert answer.status == 201 and server.get(f"/v1/jobs/{answer.json['job']}")["build"] == sha(data)


# Jobs

def test_a_job_names_its_build_and_has_its_toolchain_and_agents_match_by_hardware(server, pushed):
    kernel, digest = pushed
    hand = Hand(server, "old", {**MI300X, "triton": "2.1.0"})
    answer = job_of(server, kernel, environment={"gpu": MI300X["gpu"]}).json
    assert answer["environment"] == {**MI300X, "triton": "3.6.0", "torch": "2.9.0"}
    assert answer["agents"] == {"matching": 1, "nearest": None}
    assert server.get(f"/v1/jobs/{answer['job']}")["build"] == digest
    assert server.items("/v1/jobs")[0]["build"] == digest
    assert hand.lease("n1").json["build"] == digest


def test_without_matching_hardware_the_differences_from_the_nearest_agent_are_listed(server, pushed):
    Hand(server, "partition", {**MI300X, "compute_units": 38, "partition": "CPX/NPS4"})
    agents = job_of(server, pushed[0]).json["agents"]
    assert agents["matching"] == 0 and agents["nearest"]["name"] == "partition"
    assert agents["nearest"]["differences"] == {"compute_units": {"job": 304, "agent": 38},
                                                "partition": {"job": "SPX/NPS1", "agent": "CPX/NPS4"}}


def test_absent_hardware_can_be_stated_and_the_toolchain_comes_from_the_build(server, pushed):
    assert job_of(server, pushed[0]).json["environment"] == {**MI300X, "triton": "3.6.0", "torch": "2.9.0"}


def test_a_key_that_no_variant_covers_is_refused_with_the_command_that_packs_it(server, folder, pushed):
    answer = job_of(server, pushed[0], n=7)
    assert answer.status == 422 and answer.json["pointer"] == "/key"
    assert 'python3 -m wavetune pack DIR --arch gfx942 --key "n=7" --output FOLDER' in answer.json["detail"]
    assert "wavetune kernel push DIR --build FOLDER" in answer.json["detail"]
    done = wavetune(server, "submit", folder, "--key", "n=7", "--environment", json.dumps(MI300X), check=False)
    assert done.returncode == 4 and 'pack DIR --arch gfx942 --key "n=7" --output FOLDER' in done.stderr and "/key" in done.stderr
    assert server.items("/v1/jobs") == []


def test_a_job_without_a_matching_build_is_refused_with_the_available_ones(server, folder, tmp_path):
    wavetune(server, "kernel", "push", folder)
    answer = job_of(server, hash_of(folder))
    assert answer.status == 422 and answer.json["pointer"] == "/kernel" and "python3 -m wavetune pack" in answer.json["detail"]
    pack(tmp_path / "build", hash_of(folder))
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build")
    answer = job_of(server, hash_of(folder), environment={**MI300X, "triton": "9.9.0"})
    assert answer.status == 422 and answer.json["pointer"] == "/environment"
    assert "triton 9.9.0" in answer.json["detail"] and "triton 3.6.0" in answer.json["detail"]
    answer = job_of(server, hash_of(folder), environment={**MI300X, "arch": "gfx90a"})
    assert answer.status == 422 and "gfx90a" in answer.json["detail"]


def test_builds_of_two_toolchains_are_distinguished_by_the_environment(server, folder, tmp_path, pushed):
    older = pack(tmp_path / "older", pushed[0], toolchain={"triton": "3.5.0"})
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "older")
    answer = job_of(server, pushed[0])
    assert answer.status == 422 and {e["triton"] for e in answer.json["environments"]} == {"3.5.0", "3.6.0"}
    answer = job_of(server, pushed[0], environment={**MI300X, "triton": "3.5.0"})
    assert server.get(f"/v1/jobs/{answer.json['job']}")["build"] == older


def test_the_newest_build_that_covers_the_key_is_chosen_and_a_job_keeps_its_build(server, folder, tmp_path, pushed):
    kernel, first = pushed
    job = job_of(server, kernel, n=64).json["job"]
    newer = pack(tmp_path / "newer", kernel, [("n % 32 == 0", "newer")])
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "newer")
    again = job_of(server, kernel, n=64)
    assert again.status == 200 and again.json["job"] == job
    assert server.get(f"/v1/jobs/{job}")["build"] == first
    fresh = job_of(server, kernel, n=64, run="again").json["job"]
    assert server.get(f"/v1/jobs/{fresh}")["build"] == newer
    uncovered = job_of(server, kernel, n=17).json["job"]
    assert server.get(f"/v1/jobs/{uncovered}")["build"] == first


def test_a_hip_kernel_accepts_no_build_and_its_jobs_have_none(server, folder, tmp_path):
    manifest = json.loads((folder / "kernel.json").read_text())
    manifest["versions"] = {"hip": {"language": "hip", "entry": "add", "sources": ["add.py"],
                                    "launch": {"grid": ["n"], "block": [64]}}}
    (folder / "kernel.json").write_text(json.dumps(manifest))
    pack(tmp_path / "build", hash_of(folder))
    done = wavetune(server, "kernel", "push", folder, "--build", tmp_path / "build", check=False)
    assert done.returncode == 2 and "takes no builds" in done.stderr
    wavetune(server, "kernel", "push", folder)
    hand = Hand(server, environment=MI300X)
    job = job_of(server, hash_of(folder), environment=MI300X).json["job"]
    assert server.get(f"/v1/jobs/{job}")["build"] is None
    assert hand.lease("n1").json["build"] is None


# What agents report

def finish(hand, **final):
    """Works on leases until there are none; the members `final` are in the measurements of finals."""
    for n in range(20):
        lease = hand.lease(f"f{n}")
        if lease.status == 204:
            return
        lease = lease.json
        members = final if lease["stage"] == "final" else {}
        answer = hand.results(lease, configs_of(lease), seq=1 + 100 * n, **members)
        assert answer.status == 200, answer
    raise AssertionError("the job does not end")


def test_a_final_names_its_object_which_must_be_stored_before(server, database, pushed):
    hand = Hand(server, environment=MI300X)
    job = job_of(server, pushed[0]).json["job"]
    screen = hand.lease("n1").json
    assert hand.results(screen, configs_of(screen)).status == 200
    lease, code = hand.lease("n2").json, b"the compiled code"
    refused = hand.results(lease, configs_of(lease), seq=10, object=sha(code))
    assert refused.status == 409 and refused.json["missing"] == [sha(code)]
    assert not [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["stage"] == "final"], "nothing was stored"
    agent = make_token(database, "node", "agent")
    assert server.request("PUT", f"/v1/blobs/{sha(code)}", code, token=agent).status == 201
    assert server.request("PUT", f"/v1/blobs/{sha(code)}", code, token=make_token(database, "r", "reader")).status == 403
    post = {"seq": 10, "object": sha(code), "conditions": {"power_w": 310.5, "processes": 0}, "done": False}
    assert hand.results(lease, configs_of(lease), **post).json["accepted"] == len(configs_of(lease))
    again = hand.results(lease, configs_of(lease), **post)
    assert again.json["known"] == len(configs_of(lease)) and again.json["accepted"] == 0
    other = hand.results(lease, configs_of(lease), **{**post, "conditions": {"power_w": 311}})
    assert other.status == 409 and other.json["pointer"] == "/measurements/0"
    rows = server.items(f"/v1/jobs/{job}/measurements")
    assert {(m["object"], json.dumps(m["conditions"], sort_keys=True)) for m in rows if m["stage"] == "final"} == {
        (sha(code), '{"power_w": 310.5, "processes": 0}')}
    assert {(m["object"], m["conditions"]) for m in rows if m["stage"] == "screen"} == {(None, None)}


def test_a_post_with_an_unknown_object_is_refused_without_the_others_of_its_batch(server, pushed):
    hand = Hand(server, environment=MI300X)
    for n in (16, 32):
        job_of(server, pushed[0], n=n)
    leases = [hand.lease(f"n{n}").json for n in range(2)]
    answers = {}

    def post(i):
        members = {"object": "sha256:" + "1" * 64} if i == 0 else {}
        answers[i] = hand.results(leases[i], configs_of(leases[i]), **members)

    threads = [threading.Thread(target=post, args=[i]) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[0].status == 409 and answers[0].json["missing"] == ["sha256:" + "1" * 64]
    assert answers[1].status == 200 and answers[1].json["accepted"] == len(configs_of(leases[1]))


def test_show_has_columns_for_the_finalists_resources_and_sums_up_the_conditions(server, pushed):
    hand, code = Hand(server, environment=MI300X), b"the compiled code"
    server.request("PUT", f"/v1/blobs/{sha(code)}", code)
    job = job_of(server, pushed[0]).json["job"]
    finish(hand, vgprs=168, spills=0, lds_bytes=32768, occupancy=2, object=sha(code),
           conditions={"clock_mhz": 2100, "power_w": 310, "checks": {"numa": "off"}})
    shown = wavetune(server, "show", job).stdout
    head = next(line for line in shown.splitlines() if "95 % interval" in line)
    assert head.split()[-5:] == ["spills", "LDS", "bytes", "occupancy", "values"] and "vgprs" in head
    assert "\nconditions          clock_mhz 2100, power_w 310\n" in shown
    summary = json.loads(wavetune(server, "show", job, "--json").stdout)
    assert summary["build"] == pushed[1]
    row = next(r for r in summary["winner"]["resources"] if r["config"] == summary["winner"]["config"])
    assert row == {"config": row["config"], "vgprs": 168, "agprs": None, "spills": 0, "lds_bytes": 32768, "occupancy": 2,
                   "object": sha(code), "conditions": {"clock_mhz": 2100, "power_w": 310, "checks": {"numa": "off"}}}
    assert "the same verdict" in wavetune(server, "show", job, "--recompute").stdout


def test_show_without_known_resources_has_no_columns_for_them(server, pushed):
    job = job_of(server, pushed[0]).json["job"]
    finish(Hand(server, environment=MI300X))
    shown = wavetune(server, "show", job).stdout
    assert "95 % interval" in shown and "vgprs" not in shown and "conditions" not in shown


def test_a_config_that_an_agent_prunes_counts_as_constraints_and_the_job_continues(server, pushed):
    hand = Hand(server, environment=MI300X)
    job = job_of(server, pushed[0]).json["job"]
    lease = hand.lease("n1").json
    pruned = {"outcome": "constraints", "samples_us": [], "baseline_us": [], "detail": "98304 bytes of LDS, the device has 65536"}
    assert hand.results(lease, [2], done=False, **pruned).status == 200
    assert hand.results(lease, [0, 1], seq=5).status == 200
    finish(hand)
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and summary["outcomes"] == {"correct": 2, "constraints": 1}
    assert summary["measured"] == 3 and 2 not in [f["config"] for f in summary["winner"]["verdict"]["finalists"]]
    row, = [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["config"] == 2]
    assert row["outcome"] == "constraints" and "LDS" in row["detail"]
    assert "1 constraints" in wavetune(server, "show", job).stdout


def test_a_baseline_that_the_device_cannot_run_gives_way_to_the_next_config(server, pushed):
    hand = Hand(server, environment=MI300X)
    job = job_of(server, pushed[0]).json["job"]
    lease = hand.lease("n1").json
    answer = hand.results(lease, [0], done=True, outcome="constraints", samples_us=[], baseline_us=[],
                          detail="baseline: 98304 bytes of LDS, the device has 65536")
    assert answer.status == 200
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["baseline"], summary["baseline_from"]) == ("running", 1, "first")
    assert hand.lease("n2").json["baseline"] == 1


def test_a_job_whose_configs_are_all_pruned_fails_with_the_reason(server, pushed):
    hand = Hand(server, environment=MI300X)
    job = job_of(server, pushed[0]).json["job"]
    lease = hand.lease("n1").json
    hand.results(lease, configs_of(lease), outcome="constraints", samples_us=[], baseline_us=[], detail="too many threads")
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and "constraints 3" in summary["reason"] and "too many threads" in summary["reason"]
