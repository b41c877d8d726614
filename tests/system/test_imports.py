"""Imports of tables: they are the first incumbents, an import is complete or refused, and repeating it changes nothing. Also the
identities of images."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import harness
import pytest
from hands import ENVIRONMENT, Hand, hands, kernel, submit  # noqa: F401
from harness import make_token, wavetune

ROCM = {"rocm": "6.3.1", "gpu": "AMD Instinct MI300X"}


@pytest.fixture(scope="module")
def one_server(postgres, tmp_path_factory):
    server = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"), options=harness.UNHURRIED)
    yield server
    server.kill()


@pytest.fixture
def server(one_server, postgres):
    """The server of all these tests, with nothing in it."""
    postgres.sql("TRUNCATE imports, images, kernels, releases CASCADE", conninfo=one_server.database)
    return one_server


def manifest(name="dejavu/f", function="f"):
    return {"name": name, "language": "external", "key": ["n", "dtype"], "exports": {"dejavu": {"function": function}}}


def entry(n=1, block=64, **more):
    return {"key": {"n": n, "dtype": "fp16"}, "config": {"BLOCK": block, "num_warps": 4}, **more}


def post(server, kernels, environment=ROCM, format="triton", token="admin", **more):
    return server.request("POST", "/v1/imports", {"format": format, "environment": environment, "kernels": kernels, **more},
                          token=token)


def external(*entries, **more):
    return {"manifest": manifest(**more), "entries": list(entries)}


def counts(answer):
    return tuple(answer.json[name] for name in ("added", "changed", "known"))


def assert_nothing_is_stored(server):
    assert server.items("/v1/imports") == [] and server.items("/v1/kernels") == []


def test_an_import_registers_kernels_and_reports_what_it_accepted(server):
    answer = post(server, [external(entry(1, ms=[0.25], provenance={"source": "f/cache.json"}), entry(2)),
                           external(entry(1), name="dejavu/g", function="g")])
    assert answer.status == 201 and counts(answer) == (3, 0, 0)
    assert answer.json["environment"] == ROCM and answer.json["missing"] == ["arch", "compute_units", "partition"]
    f, g = answer.json["kernels"]
    assert (f["name"], f["entries"], g["name"], g["entries"]) == ("dejavu/f", 2, "dejavu/g", 1)
    assert server.get(f"/v1/kernels/{f['kernel']}")["manifest"] == manifest()
    assert [k["language"] for k in server.items("/v1/kernels")] == ["external"] * 2
    item = next(i for i in server.items("/v1/imports") if i["ms"])
    assert item["imported_by"].startswith("admin-") and item["imported_at"] and item["import"]
    assert {name: item[name] for name in ("kernel", "name", "key", "environment", "tag", "config", "ms", "provenance",
                                          "format")} == {
        "kernel": f["kernel"], "name": "dejavu/f", "key": {"n": 1, "dtype": "fp16"}, "environment": ROCM, "tag": "default",
        "config": {"BLOCK": 64, "num_warps": 4}, "ms": [0.25], "provenance": {"source": "f/cache.json"}, "format": "triton"}


def test_a_repeated_import_is_known_and_the_newest_config_of_a_key_replaces_the_one_before(server):
    assert counts(post(server, [external(entry(1), entry(2))])) == (2, 0, 0)
    before = server.items("/v1/imports")
    again = post(server, [external(entry(2), entry(1))])
    assert again.status == 200 and counts(again) == (0, 0, 2) and server.items("/v1/imports") == before
    assert counts(post(server, [external(entry(1, block=128), entry(2), entry(3))])) == (1, 1, 1)
    assert [i["config"]["BLOCK"] for i in server.items("/v1/imports")] == [128, 64, 64]


def test_environments_and_tags_are_separate(server):
    post(server, [external(entry())])
    assert counts(post(server, [external(entry(block=8))], tag="long")) == (1, 0, 0)
    assert counts(post(server, [external(entry(block=8))], environment={**ROCM, "arch": "gfx942"})) == (1, 0, 0)
    assert len(server.items("/v1/imports")) == 3


def test_imports_are_listed_by_kernel_format_and_tag_in_pages(server):
    f, g = (k["kernel"] for k in post(server, [external(entry(1), entry(2)),
                                               external(entry(1), name="dejavu/g")]).json["kernels"])
    post(server, [external(entry(7), name="json/h")], format="json", tag="long")
    assert [i["key"]["n"] for i in server.items("/v1/imports?format=json")] == [7]
    assert [i["key"]["n"] for i in server.items("/v1/imports?tag=long")] == [7]
    assert {i["kernel"] for i in server.items(f"/v1/imports?kernel={g}")} == {g}
    page = server.get(f"/v1/imports?kernel={f}&limit=1")
    rest = server.get(f"/v1/imports?kernel={f}&limit=1&after={page['next']}")
    assert len(page["items"] + rest["items"]) == 2 and rest["next"] is None
    assert server.request("GET", "/v1/imports?kernel=f").status == 422


def test_a_refused_import_leaves_nothing(server):
    unknown = {"kernel": "sha256:" + "a" * 64, "entries": [entry()]}
    answer = post(server, [external(entry(1)), unknown])
    assert answer.status == 422 and "is not registered" in answer.json["detail"] and answer.json["pointer"] == "/kernels/1/kernel"
    answer = post(server, [external(entry(1), entry(2), {"key": {"n": 3}, "config": {"B": 1}})])
    assert answer.status == 422 and answer.json["pointer"] == "/kernels/0/entries/2/key/dtype"
    assert_nothing_is_stored(server)


def test_an_import_that_the_database_refuses_half_way_leaves_nothing(server, postgres):
    postgres.sql("ALTER TABLE imports ADD CONSTRAINT odd CHECK (config::text NOT LIKE '%31%')", conninfo=server.database)
    answer = post(server, [external(*(entry(n) for n in range(5)), entry(9, block=31))])
    postgres.sql("ALTER TABLE imports DROP CONSTRAINT odd", conninfo=server.database)
    assert answer.status == 500
    assert_nothing_is_stored(server)


def test_an_index_that_no_statement_expects_is_a_bug_and_no_conflict(server, postgres):
    postgres.sql("CREATE UNIQUE INDEX odd ON imports ((true))", conninfo=server.database)
    answer = post(server, [external(entry(1), entry(2))])
    postgres.sql("DROP INDEX odd", conninfo=server.database)
    assert answer.status == 500 and answer.json["kind"] == "internal" and "odd" not in answer.body.decode()
    assert_nothing_is_stored(server)


def test_a_stored_kernel_that_became_unreadable_accepts_no_imports(server, postgres):
    postgres.sql(f"INSERT INTO kernels (hash, name, language, manifest) VALUES ('\\x{'aa' * 32}', 'f', 'c', '{{}}')",
                 conninfo=server.database)
    assert post(server, [{"kernel": "sha256:" + "aa" * 32, "entries": [entry()]}]).status == 422
    assert "stored manifest" in server.messages


def test_readers_may_not_import(server):
    reader = make_token(server.database, "someone", "reader")
    assert post(server, [external(entry())], token=reader).status == 403
    assert server.request("GET", "/v1/imports", token=reader).status == 200


def test_a_kernel_known_by_name_only_accepts_no_jobs_and_no_builds(server):
    hash_ = post(server, [external(entry())]).json["kernels"][0]["kernel"]
    Hand(server, "node")
    job = server.request("POST", "/v1/jobs", {"kernel": hash_, "key": {"n": 1, "dtype": "fp16"}, "environment": ENVIRONMENT,
                                              "space": {"parameters": {"BLOCK": [64]}}})
    assert job.status == 422 and "by name only" in job.json["detail"] and job.json["pointer"] == "/kernel"
    build = {"kernel": hash_, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "variants": []}
    digest = hashlib.sha256(json.dumps(build, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    answer = server.request("PUT", f"/v1/kernels/{hash_}/builds/sha256:{digest}", build)
    assert answer.status == 422 and "no builds" in answer.json["detail"] and "by name only" in answer.json["detail"]


def test_an_external_kernel_may_be_registered_by_itself(server):
    answer = server.request("POST", "/v1/kernels", manifest())
    assert answer.status == 201
    assert counts(post(server, [{"kernel": answer.json["kernel"], "entries": [entry()]}])) == (1, 0, 0)
    assert "external" in wavetune(server, "kernel", "list").stdout
    assert json.loads(wavetune(server, "kernel", "show", answer.json["kernel"]).stdout) == manifest()


@pytest.fixture
def imported(server, kernel):
    """Imports a config A for the registered kernel and n = 64."""
    def imported(a, environment=ENVIRONMENT, n=64, **more):
        answer = post(server, [{"kernel": kernel, "entries": [{"key": {"n": n}, "config": {"A": a}}]}], environment, "json",
                      **more)
        assert answer.status in (200, 201), answer
    return imported


@pytest.fixture
def baseline(server, kernel, hands):
    """Submits a job for n = 64 and returns its baseline and the reason for it."""
    hands("node")
    runs = iter(range(100))

    def baseline(values=(1, 2, 3)):
        job = server.request("POST", "/v1/jobs", {
            "kernel": kernel, "key": {"n": 64}, "environment": ENVIRONMENT, "run": f"r{next(runs)}",
            "space": {"parameters": {"A": list(values)}, "default": {"A": values[0]}}}).json
        assert job["created"]
        return values[server.get(f"/v1/jobs/{job['job']}")["baseline"]], job["baseline_from"]

    return baseline


def test_an_imported_config_is_the_baseline_of_a_job(imported, baseline):
    imported(3)
    assert baseline() == (3, "imported")


def test_an_import_that_states_less_than_the_job_fits_and_an_equal_one_goes_first(imported, baseline):
    imported(2, {"cpu": ENVIRONMENT["cpu"]})
    assert baseline() == (2, "imported")
    imported(3)
    imported(1, {"gpu": ENVIRONMENT["gpu"]})
    assert baseline() == (3, "imported")


def test_another_environment_tag_or_key_is_no_baseline(imported, baseline):
    imported(3, {**ENVIRONMENT, "cpu": "clang 19"})
    imported(3, tag="long")
    imported(3, n=128)
    assert baseline() == (1, "default")


def test_an_imported_config_outside_the_space_is_no_baseline(imported, baseline):
    imported(9)
    assert baseline() == (1, "default")


def test_the_later_of_a_winner_and_an_import_is_the_baseline(server, hands, submit, imported, baseline):
    imported(3)
    job = submit({"parameters": {"A": [1, 2, 3]}})
    hands("tuner").work(ratios={0: 1.5, 1: 0.4, 2: 1.0})
    harness.wait_until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "done", 30, "the job to be done")
    assert baseline() == (2, "incumbent")
    imported(1)
    assert baseline() == (1, "imported")
    assert baseline((2, 3)) == (2, "incumbent")  # the imported config is not in that space


def test_the_bench_time_of_an_exported_table_is_the_device_time_of_its_jobs(server, kernel, hands, submit, tmp_path):
    """Two keys, tuned and published one after the other: the first winner stays, with the time that it took."""
    hand = hands("tuner")
    identity, spent, totals = tmp_path / "identity.json", [], []
    record = {"kernel": kernel, "name": "q", "triton": {"version": "3.6.0"}, "key_names": ["n"], "tuning_key": ["n"],
              "function": {"module": "m", "name": "q", "qualname": "q", "signature": "JITFunction(m:q)"},
              "argument_dtypes": ["torch.float16"], "configs": [f"A: {a}, num_warps: 4" for a in (1, 2, 3)],
              "dejavu": {"layout": "dejavu_0.7", "autotune_config": "a" * 64, "code_version": "b" * 64}}
    identity.write_text(json.dumps(image(functions=[record], dejavu={
        "layout": "dejavu_0.7", "triton": "3.6.0", "runtime": "rocm_6.4.1", "gpu": "AMD_Instinct_MI300X"})))
    for n, device_us in ((64, 123456), (128, 2222)):
        job = submit({"parameters": {"A": [1, 2, 3]}}, key={"n": n})
        hand.work(device_us=device_us)
        harness.wait_until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "done", 30, "the job to be done")
        spent.append(server.get(f"/v1/jobs/{job}")["spent_device_seconds"])
        release = run_json(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "timed")["release"]
        wavetune(server, "export", release, "--format", "dejavu", "--identity", identity, "--to", tmp_path / f"out{n}")
        table, = (tmp_path / f"out{n}").rglob("cache.json")
        totals.append(json.loads(table.read_text())["total_bench_time_s"])
    assert min(spent) > 0 and spent[0] != spent[1]
    assert totals == [pytest.approx(spent[0], rel=0.005), pytest.approx(sum(spent), rel=0.005)]


def image(**members):
    return {"version": 1, "triton": {"version": "3.6.0", "key": "k", "backend_hash": "b"}, "torch": "2.9.0", "gpu": None,
            "devices": None, "variables": {}, "dejavu": None, "tunableop": None, "moe_device_name": None, "functions": [],
            **members}


def digest_of(document):
    return "sha256:" + hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def test_the_identity_of_an_image_is_kept(server):
    document, digest = image(), digest_of(image())
    body = json.dumps(document, indent=2).encode()
    put = server.request("PUT", f"/v1/images/{digest}", body)
    assert put.status == 201 and put.json == {"image": digest}
    assert server.request("PUT", f"/v1/images/{digest}", document).status == 200
    got = server.request("GET", f"/v1/images/{digest}")
    assert got.json == document and got.headers["ETag"] == f'"{digest}"' and digest_of(got.json) == digest
    assert server.request("GET", f"/v1/images/{digest}", headers={"If-None-Match": f'"{digest}"'}).status == 304


def test_an_identity_with_another_digest_or_that_cannot_be_read_is_refused(server):
    digest = digest_of(image(torch="2.7.1"))
    answer = server.request("PUT", f"/v1/images/{digest}", image(torch="2.8.0"))
    assert answer.status == 422 and "not the path's" in answer.json["detail"]
    wrong = image(triton={"version": 3})
    answer = server.request("PUT", f"/v1/images/{digest_of(wrong)}", wrong)
    assert answer.status == 422 and answer.json["pointer"].startswith("/triton")
    assert server.request("GET", f"/v1/images/{digest}").status == 404
    assert server.request("GET", "/v1/images/latest").status == 404
    assert server.request("PUT", "/v1/images/latest", image()).status == 404


DEJAVU = sorted(harness.DATA.glob("dejavu/dejavu_0.7/*/*/*"))
NODE = {"arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
TABLES = [*((("dejavu", place), {}) for place in DEJAVU),
          (("vllm-moe", harness.DATA / "vllm_moe"), {"rocm": "6.4.1"}),
          (("vllm-moe", harness.DATA / "tables/vllm-moe", "*flydsl*"), {"rocm": "6.4.1"}),
          (("vllm-w8a8", harness.DATA / "tables/vllm-w8a8"), {"rocm": "6.4.1"}),
          (("sglang-w8a8", harness.DATA / "tables/sglang-w8a8"), {"rocm": "6.4.1"}),
          (("aiter-triton", harness.DATA / "tables/aiter-triton"), {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X"}),
          (("triton", harness.DATA / "triton_autotune"), {"cuda": "12.8", "gpu": "NVIDIA H200"}),
          (("tunableop", harness.DATA / "tunableop"), {"cuda": "12.8", "gpu": "NVIDIA H200"})]


def run_json(server, *arguments):
    return json.loads(wavetune(server, *arguments, "--json").stdout)


def published(server, environment):
    return run_json(server, "publish", "--environment", json.dumps(environment))["release"]


@pytest.mark.parametrize("table, stated", TABLES, ids=lambda value: value[1].name if isinstance(value, tuple) else "")
def test_a_table_is_imported_published_and_exported_with_the_same_meaning(server, tmp_path, table, stated):
    table = (table[0], *table[1].glob(table[2])) if table[2:] else table
    took = run_json(server, "import", *table, "--environment", json.dumps({**NODE, **stated}))
    n = sum(kernel["entries"] for kernel in took["kernels"])
    assert n > 0 and (took["added"], took["changed"], took["known"], took["missing"]) == (n, 0, 0, [])
    release = published(server, took["environment"])
    document = server.get(f"/v1/releases/{release}")
    origins = {(p["origin"], p["format"]) for k in document["kernels"] for p in k["provenance"]}
    assert origins == {("imported", table[0])} and sum(len(k["winners"]) for k in document["kernels"]) == n
    wavetune(server, "export", release, "--format", table[0], "--to", tmp_path / "out")
    again = run_json(server, "import", table[0], tmp_path / "out", "--environment", json.dumps({**NODE, **stated}))
    assert (again["added"], again["changed"], again["known"]) == (0, 0, n)
    assert again["kernels"] == took["kernels"]


CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}
MOE = "E={},N=384,device_name=AMD_Instinct_MI300X.json"


@pytest.fixture
def tables(tmp_path):
    """A folder with the tables of vLLM for 8, 16 and 32 experts, below each other."""
    place = tmp_path / "tables"
    for i, experts in enumerate((8, 16, 32)):
        folder = place.joinpath(*"ab"[:i])
        folder.mkdir(exist_ok=True, parents=True)
        (folder / MOE.format(experts)).write_text(json.dumps({"1": CONFIG, "64": {**CONFIG, "BLOCK_SIZE_M": 64}}))
    return place


def refused(*arguments, code=2, server=None):
    done = wavetune(server, "import", *arguments, check=False)
    assert done.returncode == code and done.stdout == "", done
    return done.stderr


def looked_at(*arguments):
    return json.loads(wavetune(None, "import", *arguments, "--dry-run", "--json").stdout)


def entries(answer):
    return sum(kernel["entries"] for kernel in answer["kernels"])


def test_a_folder_is_imported_whole_and_listed(server, tables):
    done = wavetune(server, "import", "vllm-moe", tables, "--environment", '{"rocm": "6.4.1"}', "--tag", "chat").stdout
    assert "6 added, 0 changed, 0 known" in done and "tag chat" in done and "lacks arch" in done
    listed = wavetune(server, "imports", "--tag", "chat", "--format", "vllm-moe").stdout
    assert len(listed.splitlines()) == 1 + 6 and "BLOCK_SIZE_M" in listed
    assert {i["provenance"]["source"] for i in server.items("/v1/imports")} == {
        MOE.format(8), "a/" + MOE.format(16), "a/b/" + MOE.format(32)}
    assert wavetune(server, "imports", "--tag", "other", "--json").stdout.split() == ["[]"]


KFD = harness.SOURCE / "tests/data/kfd"


def node(topology="mi300x_spx"):
    """Where `fetch` finds a node of MI300X: gfx942, 304 compute units and SPX/NPS1 (or 38 and CPX/NPS4), ROCm 6.4.1."""
    return {"WAVETUNE_KFD_TOPOLOGY": str(KFD / topology), "WAVETUNE_PCI_DEVICES": str(KFD / "pci"),
            "ROCM_PATH": str(KFD / "rocm"), "WAVETUNE_AMDGPU_IDS": str(KFD / "amdgpu.ids")}


def run_on_node(server, script, folder):
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, cwd=folder, timeout=600, env={
        **os.environ, **node(), "PATH": f"{harness.BUILD}:{os.environ['PATH']}", "HOME": str(folder),
        "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    assert done.returncode == 0, done


def test_the_command_line_page_imports_a_table_that_an_mi300x_node_then_fetches(server, tmp_path):
    page = (harness.SOURCE / "docs/cli.md").read_text()
    run_on_node(server, re.search(r"## Imports\n.*?```sh\n(.*?)```", page, re.S)[1], tmp_path)
    name = "E=8,N=1024,device_name=AMD_Instinct_MI300X.json"
    fetched = tmp_path / ".cache/wavetune-chat/current/vllm-moe" / name
    assert json.loads(fetched.read_text()) == json.loads((tmp_path / name).read_text())


def test_the_page_of_imports_brings_tables_to_an_mi300x_node(server, tables, tmp_path):
    page = (harness.SOURCE / "docs/formats.md").read_text()
    lines = re.findall(r"^wavetune (?:publish .*|.* vllm-moe.*)$", page, re.M)
    assert [line.split()[1] for line in lines] == ["import", "imports", "publish", "fetch"]
    (tmp_path / "configs").symlink_to(tables)
    run_on_node(server, "\n".join(lines).replace("/var/cache/wavetune", "$HOME/cache"), tmp_path)
    assert len(list((tmp_path / "cache/current/vllm-moe").glob("E=*,N=384,device_name=AMD_Instinct_MI300X.json"))) == 3


@pytest.fixture
def published_table(server, tables):
    """The tables, published in a channel of the test's own for ROCm 6.4.1 and `more`; fetches from there as a node does."""
    channel = f"moe-{os.urandom(4).hex()}"

    def publish(**more):
        stated = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", **more}
        wavetune(server, "import", "vllm-moe", tables, "--environment", json.dumps(stated))
        return wavetune(server, "publish", "--environment", json.dumps(stated), "--channel", channel, "--json")

    def fetch(to, *arguments, topology="mi300x_spx", code=0):
        done = wavetune(server, "fetch", "--channel", channel, "--format", "vllm-moe", "--to", to, "--json", *arguments,
                        check=False, environment=node(topology))
        assert done.returncode == code, done
        return json.loads(done.stdout)

    fetch.channel, fetch.publish = channel, publish
    return fetch


def test_a_table_of_a_gpu_is_found_by_every_image_on_whole_gpus_of_that_name(server, published_table, tmp_path):
    published_table.publish()
    identity = tmp_path / "identity.json"
    identity.write_text(json.dumps(image()))
    for i, more in enumerate(((), ("--identity", identity), ("--match", "minor"), ("--match", "compatible"))):
        answer = published_table(tmp_path / f"to{i}", *more)
        assert answer["asked"].keys() >= {"rocm", "gpu", "arch", "compute_units", "partition"}, answer
        assert ("triton" in answer["asked"]) == ("--identity" in more)
        match = answer["entry"]["match"]
        assert match["rule"] == "unstated" and match["differs"]["arch"] == {"asked": "gfx942", "served": None}
        assert {p.name for p in (tmp_path / f"to{i}/current/vllm-moe").glob("E=*.json")} == {
            MOE.format(8), MOE.format(16), MOE.format(32)}
    assert "no entry" in published_table(tmp_path / "to9", "--match", "exact", code=15)["reason"]


def test_a_table_without_a_partition_is_not_served_to_a_part_of_a_gpu(published_table, tmp_path):
    part = ("--environment", '{"gpu": "AMD Instinct MI300X"}')  # the same name: their function has no PCI folder there
    published_table.publish()
    assert "no entry" in published_table(tmp_path / "to", *part, topology="mi300x_cpx", code=15)["reason"]
    published_table.publish(compute_units=38)
    served = published_table(tmp_path / "to", *part, topology="mi300x_cpx")["entry"]
    assert served["environment"]["compute_units"] == 38
    assert published_table(tmp_path / "to1")["entry"]["environment"].get("compute_units") is None


def test_each_partition_of_a_gpu_has_its_own_rows_although_their_files_have_one_name(server, tables, tmp_path):
    """What was measured where is beside the tables, and stays with them when they are imported again."""
    parts = {"mi300x_spx": NODE, "mi300x_cpx": {**NODE, "compute_units": 38, "partition": "CPX"}}
    table, seen = tables / MOE.format(8), {}
    for warps, (topology, part) in enumerate(parts.items(), 1):
        stated = json.dumps({"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", **part})
        table.write_text(json.dumps({"1": {**CONFIG, "num_warps": warps}}))
        wavetune(server, "import", "vllm-moe", table, "--environment", stated)
        wavetune(server, "publish", "--environment", stated, "--channel", "parts")
    for topology, part in parts.items():
        wavetune(server, "fetch", "--channel", "parts", "--format", "vllm-moe", "--to", tmp_path / topology, "--environment",
                 '{"gpu": "AMD Instinct MI300X"}', environment=node(topology))
        folder = tmp_path / topology / "current/vllm-moe"
        seen[topology] = json.loads((folder / table.name).read_text())["1"]["num_warps"]
        about = json.loads((folder / "wavetune-tables.json").read_text())
        assert about["environment"].items() >= part.items() and about["files"][table.name]["rows"] == 1
        assert about["switches"] == {"VLLM_BATCH_INVARIANT": None, "VLLM_ROCM_USE_AITER": None}
        for again in (looked_at("vllm-moe", folder), looked_at("vllm-moe", folder / table.name)):
            assert again["environment"] == about["environment"] and entries(again) == 1
    assert seen == {"mi300x_spx": 1, "mi300x_cpx": 2}


def test_a_table_of_aiter_is_written_with_a_word_on_who_reads_it(server, tmp_path):
    """Its name has the arch alone: MI300X and MI325X read the same file."""
    stated = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", **NODE}
    wavetune(server, "import", "aiter-triton", harness.DATA / "tables/aiter-triton", "--environment", json.dumps(stated), "--tag", "aiter")
    done = wavetune(server, "publish", "--environment", json.dumps(stated), "--tag", "aiter", "--channel", "aiter", "--json")
    note = "every GPU of gfx942 reads them. What was tuned in them was measured on AMD Instinct MI300X."
    done = wavetune(server, "export", json.loads(done.stdout)["release"], "--format", "aiter-triton", "--to", tmp_path / "out")
    assert note in done.stderr
    done = wavetune(server, "fetch", "--channel", "aiter", "--tag", "aiter", "--format", "aiter-triton", "--to", tmp_path / "to",
                    environment=node())
    assert note in done.stderr
    about = json.loads((tmp_path / "to/current/aiter-triton/wavetune-tables.json").read_text())
    assert [note in one for one in about["notes"]] == [True]


def test_two_formats_without_a_folder_variable_share_one(server, tables, tmp_path):
    stated = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", **NODE}
    for format_, blank in (("vllm-w8a8", ""), ("sglang-w8a8", " ")):
        table = tmp_path / f"N=512,K=256,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,{blank}128].json"
        table.write_text(json.dumps({"1": CONFIG}))
        wavetune(server, "import", format_, table, "--environment", json.dumps(stated), "--tag", "w8a8")
    wavetune(server, "publish", "--environment", json.dumps(stated), "--tag", "w8a8", "--channel", "w8a8")
    answer = wavetune(server, "fetch", "--channel", "w8a8", "--tag", "w8a8", "--to", tmp_path / "to", "--print-env", "--json",
                      "--format", "vllm-w8a8", "--format", "sglang-w8a8", environment=node()).stdout
    folders = json.loads(answer)["WAVETUNE_TABLES"].split(":")
    assert [os.path.basename(folder) for folder in folders] == ["vllm-w8a8", "sglang-w8a8"]
    for folder in folders:
        assert len([name for name in os.listdir(folder) if name.startswith("N=512")]) == 1


def test_the_answer_lists_what_the_entry_does_not_state_and_is_cached(server, published_table):
    published_table.publish()
    path = (f"/v1/cache?channel={published_table.channel}&rocm=6.4.1&gpu=AMD%20Instinct%20MI300X&arch=gfx942"
            "&compute_units=304&partition=SPX%2FNPS1")
    for _ in range(2):  # from the database, then from the cache
        answer = server.request("GET", path)
        assert answer.status == 200 and answer.headers["Wavetune-Match"] == "unstated; arch, partition, compute_units"
    known = server.request("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
    assert known.status == 304 and known.headers["Wavetune-Match"].startswith("unstated")
    assert server.request("GET", path + "&match=exact").status == 404
    published_table.publish(**NODE)
    answer = server.request("GET", path)
    assert answer.headers["Wavetune-Match"] == "exact", "an entry that states more comes first"


def test_a_signed_table_is_accepted_by_the_rule_and_refused_without_it(server, published_table, tmp_path):
    published_table.publish()
    wavetune(server, "key", "new", tmp_path / "publisher.key")
    wavetune(server, "sign", published_table.channel, "--sign-key", tmp_path / "publisher.key", "--environment",
             json.dumps({"rocm": "6.4.1", "gpu": "AMD Instinct MI300X"}))
    trust = ("--trusted-key", tmp_path / "publisher.key.pub")
    assert published_table(tmp_path / "to", *trust)["outcome"] == "fresh"


def test_publish_warns_when_no_node_will_find_the_entry(server, tmp_path):
    post(server, [external(entry())], {"rocm": "6.4.1"}, tag="nameless")
    done = wavetune(server, "publish", "--tag", "nameless", "--channel", "nameless")
    assert "model of GPU" in done.stderr and '--environment \'{"gpu": …}\'' in done.stderr


def test_a_dry_run_reads_everything_and_needs_no_server(tables):
    answer = looked_at("vllm-moe", tables, "--environment", '{"rocm": "6.4.1"}')
    assert entries(answer) == 6 and answer["environment"]["rocm"] == "6.4.1" and "arch" in answer["missing"]
    assert "nothing was sent" in wavetune(None, "import", "vllm-moe", tables, "--dry-run").stdout


@pytest.mark.parametrize("text, why", [('{"1": {"BLOCK_SIZE_M": 16,', "not a JSON document: line 1"), ("", "not a JSON document"),
                                       ('{"1": {"BLOCK_SIZE_M": [16]}}', "/1/BLOCK_SIZE_M")])
def test_one_bad_table_among_many_is_named_and_nothing_is_sent(server, tables, text, why):
    (tables / "a" / MOE.format(16)).write_text(text)
    output = refused("vllm-moe", tables, server=server)
    assert f"a/{MOE.format(16)}: " in output and why in output
    assert_nothing_is_stored(server)


def test_links_are_not_followed_and_one_that_leads_out_is_refused(tables, tmp_path):
    inside = tables / ("copy-" + MOE.format(8))
    inside.symlink_to(MOE.format(8))
    (tables / "again").symlink_to("a")
    assert entries(looked_at("vllm-moe", tables)) == 6
    inside.unlink()
    inside.symlink_to("/etc/hostname")
    assert "link that leads out" in refused("vllm-moe", tables, "--dry-run")
    inside.unlink()
    inside.symlink_to("nowhere")
    assert "leads nowhere" in refused("vllm-moe", tables, "--dry-run")


def test_files_that_are_no_tables_are_left_out_of_a_folder(tables):
    (tables / "notes.txt").write_text("not a table")
    (tables / ".hidden.json").write_text("{")
    (tables / ".cache").mkdir()
    (tables / ".cache" / "x.json").write_text("{")
    assert entries(looked_at("vllm-moe", tables)) == 6
    assert entries(looked_at("vllm-moe", tables / MOE.format(8), tables / "a" / "b")) == 4


def test_what_cannot_be_read_is_refused(tables, tmp_path):
    assert "cannot read" in refused("vllm-moe", tmp_path / "missing" / "x.json", "--dry-run")
    assert "cannot read" in refused("vllm-moe", tmp_path / "missing.json", "--dry-run")
    assert "holds no tables" in refused("vllm-moe", harness.SOURCE / "migrations", "--dry-run")
    for name, variable in (("triton", "TRITON_CACHE_DIR"), ("inductor", "TORCHINDUCTOR_CACHE_DIR")):
        for folder in (tables, harness.SOURCE / "migrations"):
            assert f"cache folder ({variable})" in refused(name, folder, "--dry-run")
    assert "is named twice" in refused("vllm-moe", tables, tables / MOE.format(8), "--dry-run")
    assert "did you mean \"vllm-moe\"" in refused("vlm-moe", tables, "--dry-run")
    assert "at least one file" in refused("vllm-moe", "--dry-run")
    (tables / "a\nb.json").write_text("{}")
    assert "control characters" in refused("vllm-moe", tables, "--dry-run")


def test_folders_and_files_that_are_too_large_are_refused(tmp_path):
    def sparse(name, mib):
        with open(tmp_path / name, "wb") as file:
            file.truncate(mib << 20)

    sparse("large.json", 65)
    assert "more than 64 MiB" in refused("vllm-moe", tmp_path, "--dry-run")
    (tmp_path / "large.json").unlink()
    for i in range(5):
        sparse(f"{i}.json", 60)
    assert "256 MiB" in refused("vllm-moe", tmp_path, "--dry-run")
    many = tmp_path / "many"
    many.mkdir()
    for i in range(100):
        (many / f"{i}.json").touch()
    assert "more than 10000 files" in refused("vllm-moe", *[many] * 101, "--dry-run")


def test_tables_that_the_server_would_refuse_are_not_sent(tmp_path):
    """A short table in so deep a folder that its entries, which name the file, make more than 64 MiB."""
    place = tmp_path.joinpath(*("d" * 250 for _ in range(14)))
    place.mkdir(parents=True)
    rows = "".join(f"GemmTunableOp_float_TN,tn_{n}_1_64_ld_64_64_{n},Gemm_Rocblas_1,0.5\n" for n in range(1, 20001))
    (place / "tunableop_results0.csv").write_text("Validator,PT_VERSION,2.9.1\n" + rows)
    assert "in parts" in refused("tunableop", tmp_path, "--dry-run")


def test_the_platform_is_read_from_the_validators_or_named_as_what_is_missing(tmp_path):
    table, row = tmp_path / "tunableop_results0.csv", "GemmTunableOp_float_TN,tn_8_1_64_ld_64_64_8,Gemm_Rocblas_1,0.5\n"
    table.write_text("Validator,PT_VERSION,2.9.1\n" + row)
    told = wavetune(None, "import", "tunableop", tmp_path, "--dry-run").stdout
    assert "the environment lacks rocm or cuda, gpu, arch, compute_units, partition; state" in told
    table.write_text("Validator,ROCM_VERSION,6.4.1.0-83-1a2b3c\n" + row)
    told = wavetune(None, "import", "tunableop", tmp_path, "--dry-run").stdout
    assert "for rocm 6.4.1" in told and "lacks gpu, arch" in told, told


def test_environment_completes_and_corrects_what_the_tables_state(tables):
    done = wavetune(None, "import", "vllm-moe", tables, "--dry-run", "--json", "--environment",
                    '{"gpu": "AMD Instinct MI300X OAM", "arch": "gfx942"}')
    assert json.loads(done.stdout)["environment"] == {"gpu": "AMD Instinct MI300X OAM", "arch": "gfx942"}
    assert '"gpu": "AMD Instinct MI300X"' in done.stderr and '"AMD Instinct MI300X OAM"' in done.stderr
    assert "one platform" in refused("vllm-moe", tables, "--dry-run", "--environment", '{"rocm": "6", "cuda": "12"}')


def test_a_kernel_to_map_to_is_a_folder_or_one_that_the_server_knows(server, tables, tmp_path):
    quick = harness.QUICK
    unknown = "sha256:" + "a" * 64
    assert "no kernel" in refused("vllm-moe", tables, "--kernel", unknown, code=4, server=server)
    assert "sends no request" in refused("vllm-moe", tables, "--kernel", unknown, "--dry-run")
    assert "cannot open" in refused("vllm-moe", tables, "--kernel", tmp_path / "nothing", "--dry-run")
    with harness.FakeServer(lambda method, path: (200, {"manifest": {}})) as fake:
        assert f"kernel {unknown}: " in refused("vllm-moe", tables, "--kernel", unknown, code=3, server=fake)
    output = refused("vllm-moe", tables, "--kernel", quick, "--dry-run")
    assert "exports" in output


def test_a_table_of_a_registered_kernel_is_the_baseline_of_its_jobs(server, tables, tmp_path):
    folder = harness.small_kernel(tmp_path / "moe", {name: [value, 8 * value] for name, value in CONFIG.items()},
                                  exports={"vllm-moe": {"E": 8, "N": 384, "M": "n"}})
    hash_ = run_json(server, "kernel", "push", folder)[0]["kernel"]
    table = tables / MOE.format(8)
    Hand(server, "node")
    took = run_json(server, "import", "vllm-moe", table, "--kernel", folder, "--environment", json.dumps(ENVIRONMENT))
    assert [k["kernel"] for k in took["kernels"]] == [hash_] and took["added"] == 2
    again = run_json(server, "import", "vllm-moe", table, "--kernel", hash_, "--environment", json.dumps(ENVIRONMENT))
    assert again["known"] == 2
    assert {(i["kernel"], i["key"]["n"], i["config"]["BLOCK_SIZE_M"]) for i in server.items("/v1/imports")} == {
        (hash_, 1, 16), (hash_, 64, 64)}
    job = run_json(server, "submit", folder, "--key", "n=1", "--environment", json.dumps(ENVIRONMENT))
    assert [j["baseline_from"] for j in job] == ["imported"]


def test_imported_rows_and_winners_of_jobs_are_one_table(server, tmp_path):
    """The rows of the image, of a kernel that is known by name, and what a job found for one M."""
    config = {**CONFIG, "BLOCK_SIZE_M": 128}
    name = "N=512,K=256,device_name=Test_CPU,dtype=fp8_w8a8,block_shape=[128,128].json"
    (tmp_path / name).write_text(json.dumps({m: config for m in ("64", "16", "1")}))
    folder = harness.small_kernel(tmp_path / "zz", {**{name: [value] for name, value in CONFIG.items()}, "BLOCK_SIZE_M": [16, 32]},
                                  exports={"vllm-w8a8": {"N": 512, "K": 256, "M": "n", "dtype": "fp8_w8a8",
                                                         "block_shape": [128, 128]}})
    wavetune(server, "kernel", "push", folder)
    hand = Hand(server, "node")
    wavetune(server, "import", "vllm-w8a8", tmp_path / name, "--environment", json.dumps(ENVIRONMENT))
    job, = run_json(server, "submit", folder, "--key", "n=16", "--environment", json.dumps(ENVIRONMENT))
    hand.work(ratios={1: 0.3})
    harness.wait_until(lambda: server.get(f"/v1/jobs/{job['job']}")["state"] == "done", 30, "the job to be done")
    release = published(server, ENVIRONMENT)
    wavetune(server, "export", release, "--format", "vllm-w8a8", "--to", tmp_path / "out")
    table = json.loads((tmp_path / "out" / name).read_text())
    assert list(table) == ["1", "16", "64"] and table["1"] == table["64"] == config
    assert table["16"] == {**CONFIG, "BLOCK_SIZE_M": 32}
    about = json.loads((tmp_path / "out/wavetune-tables.json").read_text())
    assert about["release"] == release and about["environment"] == ENVIRONMENT
    assert about["files"][name] == {"imported": 2, "rows": 3, "takes": {"1": [1, 8], "16": [9, 40], "64": [41, None]}}
