"""publish that requires keys, why, and what was measured: measurements and events."""

import csv
import io
import json
import os
import subprocess

import pytest
from hands import LARGE, SMALL, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import BUILD, wavetune
from test_releases import ROCM_63, ROCM_64, Bench, one_server, sha256  # noqa: F401 (fixture)


@pytest.fixture
def bench(one_server, postgres):  # noqa: F811
    postgres.sql("TRUNCATE environments, kernels, spaces, releases, channels, channel_entries, images, overrides CASCADE",
                 conninfo=one_server.database)
    return Bench(one_server, postgres)


def publish(bench, *options):
    return wavetune(bench.server, "publish", "--environment", json.dumps(ROCM_64), *options, check=False)


# publish


def test_nothing_is_published_while_a_required_key_has_no_winner(bench):
    bench.job(ROCM_64, m=1, run="a")
    failed, waiting = bench.job(ROCM_64, m=2, run="a", state="failed"), bench.job(ROCM_64, m=3, run="b", state="queued")
    for options, missing in ((("--require-all",), (2, 3)), (("--run", "a"), (2,)), (("--run", "b"), (3,))):
        done = publish(bench, *options)
        assert done.returncode == 1 and not done.stdout, done
        assert f"nothing was published: {len(missing)} required keys have no winner" in done.stderr
        for m in missing:
            assert f'lacking  softmax {{"M":{m}}}: no winner' in done.stderr, done.stderr
    assert "every config crashed" in publish(bench, "--run", "a").stderr and failed and waiting
    assert bench.server.items("/v1/releases") == []
    assert publish(bench).returncode == 0


def test_a_required_key_is_there_whatever_its_winner_comes_from(bench):
    bench.job(ROCM_64, m=1, run="old")
    bench.job(ROCM_64, m=1, run="new", state="failed")
    bench.imported(ROCM_64, {"B": 2}, m=2, language="c")
    assert publish(bench, "--require-all").returncode == 0
    assert publish(bench, "--run", "new").returncode == 0  # its key has an older winner


def test_an_older_version_of_a_kernel_is_not_required_by_all(bench):
    bench.job(ROCM_64, kernel="softmax@1", m=7, state="failed")
    bench.job(ROCM_64, kernel="softmax@2", m=1)
    assert publish(bench, "--require-all").returncode == 0


def test_jobs_of_a_file_are_required_in_each_form_that_submit_prints(bench, tmp_path):
    good, bad = bench.job(ROCM_64, m=1), bench.job(ROCM_64, m=2, state="failed")
    elsewhere = bench.job(ROCM_63, m=1)
    file = tmp_path / "jobs"
    for text, code, sentence in (
            (f"job {good}  new  4 configs  queued\n", 0, ""), (f"{good}\n", 0, ""), (json.dumps([{"job": good}]), 0, ""),
            (json.dumps([int(good)]), 0, ""), (f"{good}\n\n{bad}\n", 1, 'lacking  softmax {"M":2}: no winner'),
            (f"{elsewhere}\n", 1, f"there is no job {elsewhere} of this environment, tag and regime"),
            ("", 2, "names no job"), ("one\n", 2, "jobs:1: there is no id of a job"), ("[{}]", 2, "element 0 is neither"),
            ("[", 2, str(file))):
        file.write_text(text)
        done = publish(bench, "--jobs", file)
        assert done.returncode == code and sentence in done.stderr, (text, done)


def test_a_run_without_jobs_is_missing(bench):
    bench.job(ROCM_64, run="a")
    done = publish(bench, "--run", "aa")
    assert done.returncode == 1 and 'no job of this environment, tag and regime has the run "aa"' in done.stderr
    answer = bench.release(ROCM_64, requires={"run": "aa"})
    assert (answer.status, answer.json["lacking"][0]["job"]) == (409, None)
    assert bench.release(ROCM_64, requires={"everything": True}).json["pointer"] == "/requires/everything"


# why


def test_why_names_the_rule_the_entry_and_the_job(bench):
    job = bench.job(ROCM_64, m=1, winner=1, run="nightly")
    bench.job(ROCM_64, m=2, winner=2)
    assert publish(bench, "--channel", "stable").returncode == 0
    server = bench.server  # noqa: F811
    server.request("POST", "/v1/overrides", {"kind": "ban", "kernel": "softmax", "config": {"B": 8}, "reason": "slow"})
    asked = json.dumps(ROCM_64)
    shown = wavetune(server, "why", "softmax", "--environment", asked, "--key", "M=1").stdout
    assert "rule     exact\n" in shown and "entry    channel stable, counter 1, rocm 6.4.1" in shown and " by admin-" in shown
    assert f'config   softmax {{"M":1}}: {{"B":2}}\n         tuned by job {job}, run nightly, done ' in shown
    assert '"M":2' not in shown and 'ban of {"B":8} by admin-' in shown and ": slow" in shown
    both = json.loads(wavetune(server, "why", "sha256:" + sha256("softmax"), "--environment", asked, "--json").stdout)
    assert [(one["key"], one["config"]) for one in both["served"]] == [({"M": 1}, {"B": 2}), ({"M": 2}, {"B": 4})]
    assert both["entry"]["match"]["rule"] == "exact" and len(both["overrides"]) == 1
    near = wavetune(server, "why", "softmax", "--environment", json.dumps(ROCM_64 | {"rocm": "6.4.9"}), "--match", "minor").stdout
    assert "rule     minor; rocm: 6.4.9 asked, 6.4.1 served\n" in near


def test_why_names_the_switches_under_which_a_table_is_read(bench):
    bench.job(ROCM_64, m=1)
    exports = {"vllm-w8a8": {"M": "M", "switches": {"OTHER": "1"}}, "json": {}}
    manifest = {"name": "softmax", "language": "external", "key": ["M"], "exports": exports}
    bench.sql(f"UPDATE kernels SET manifest = '{json.dumps(manifest)}'")
    assert publish(bench, "--channel", "stable").returncode == 0
    asked = ("why", "softmax", "--environment", json.dumps(ROCM_64))
    shown = wavetune(bench.server, *asked, environment={"VLLM_ROCM_USE_AITER": "0", "OTHER": "1"}).stdout
    assert "switch   vllm-w8a8 is read with VLLM_ROCM_USE_AITER not set\n" in shown
    assert "switch   vllm-w8a8 is read with OTHER=1\n" in shown
    shown = wavetune(bench.server, *asked, environment={"VLLM_ROCM_USE_AITER": "1"}).stdout
    assert "VLLM_ROCM_USE_AITER not set; here it is 1\n" in shown and "OTHER=1; here it is not set\n" in shown
    shown = wavetune(bench.server, *asked, environment={"OTHER": "\udcff"}).stdout  # a byte that is no UTF-8
    assert "OTHER=1; here it is ?\n" in shown
    document = json.loads(wavetune(bench.server, *asked, "--json", environment={"OTHER": "1"}).stdout)
    assert document["switches"] == [
        {"name": "softmax", "table": "vllm-w8a8", "variable": "VLLM_ROCM_USE_AITER", "value": None, "here": None, "differs": False},
        {"name": "softmax", "table": "vllm-w8a8", "variable": "OTHER", "value": "1", "here": "1", "differs": False}]


def test_why_says_what_is_not_served(bench):
    environment = ROCM_64 | {"rocm": "6.5.0"}  # of this test: for a moment the server answers with the entry of the one before
    bench.job(environment, m=1)
    asked, server = json.dumps(environment), bench.server  # noqa: F811
    nothing = wavetune(server, "why", "softmax", "--environment", asked, check=False)
    assert nothing.returncode == 1 and "has no entry" in nothing.stderr
    wavetune(server, "publish", "--environment", asked, "--channel", "stable")
    for arguments in (("gelu",), ("softmax", "--key", "M=9")):
        done = wavetune(server, "why", *arguments, "--environment", asked, check=False)
        assert done.returncode == 1 and "the release has no config for" in done.stderr, done
    bench.job(environment, kernel="addk/triton")
    bench.job(environment, kernel="addk/c")
    wavetune(server, "publish", "--environment", asked, "--channel", "stable")
    for name, meant in (("addk", "addk/c, addk/triton"), ("triton", "addk/triton"), ("addk/tritn", "addk/triton")):
        done = wavetune(server, "why", name, "--environment", asked, check=False)
        assert done.returncode == 1 and f"the release has no kernel named {name}; give the full name" in done.stderr, done
        assert done.stderr.endswith(f": {meant}\n"), done
    assert wavetune(server, "why", check=False).returncode == 2
    assert wavetune(server, "why", "softmax", "--key", "{", check=False).returncode == 2


# measurements and events


def test_measurements_are_a_table_csv_or_json_with_the_values_of_the_config(server, hands, submit):  # noqa: F811
    job, hand = submit(SMALL), hands("a")
    hand.work(ratios={1: 0.5})
    out = wavetune(server, "measurements", job, "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert out == wavetune(server, "measurements", job, "-o", "csv").stdout
    assert len(rows) == len(server.items(f"/v1/jobs/{job}/measurements"))
    assert {(row["config"], row["config.A"]) for row in rows} == {("0", "1"), ("1", "2"), ("2", "3")}
    first = next(row for row in rows if row["config"] == "1")
    assert (first["stage"], first["outcome"], float(first["median_us"]), float(first["baseline_median_us"])) == (
        "screen", "correct", 50.0, 100.0)
    assert json.loads(first["samples_us"]) == [50.0] * 5
    assert json.loads(wavetune(server, "measurements", job, "--json").stdout)[0]["config.A"] in (1, 2, 3)
    table = wavetune(server, "measurements", job).stdout.splitlines()
    assert table[0].split()[:3] == ["config", "A", "stage"] and len(table) == len(rows) + 1
    assert wavetune(server, "measurements", "77", check=False).returncode == 4
    assert wavetune(server, "measurements", check=False).returncode == 2


def test_events_are_printed_and_followed_to_the_end_of_the_job(server, hands, submit):  # noqa: F811
    job = submit(SMALL)
    assert [line.split()[2] for line in wavetune(server, "events", job).stdout.splitlines()] == ["queued"]
    follow = subprocess.Popen([BUILD / "wavetune", "events", job, "--follow", "--json"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    assert json.loads(follow.stdout.readline())["kind"] == "queued"
    hands("a").work()
    out, _ = follow.communicate(timeout=600)
    assert follow.returncode == 0
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["running", "stage", "done"]
    assert wavetune(server, "events", "77", check=False).returncode == 4
