"""wavetune simulate replays strategies over the measurements of a file or a server, and refuses invalid ones."""

import itertools
import json
import statistics

import pytest
from harness import FakeServer, wavetune

BASELINE_US = 100.0


def row(config, values, time, kernel="bowl", key=None, **more):
    """A line of `wavetune-agent tune --samples`; a config whose time is None failed."""
    line = {"kernel": kernel, "key": key or {"n": 1}, "config": config, "config_values": values, "stage": "final",
            "process": 0, "device": 0, "outcome": "correct" if time else "runtime", "timer": "model", "baseline": 0}
    if time:
        line |= {"samples_us": [time] * 3, "baseline_us": [BASELINE_US] * 3}
    return line | more


def bowl_rows(side=6, parameters=3):
    """A smooth landscape whose best config is two values from one corner; two corners fail."""
    names = [f"p{i}" for i in range(parameters)]
    for i, point in enumerate(itertools.product(range(side), repeat=parameters)):
        time = 50 + 10 * sum((p - 3) ** 2 for p in point)
        yield row(i, dict(zip(names, point)), None if set(point) in ({0}, {side - 1}) else time)


def write(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def simulate(path, *arguments):
    return json.loads(wavetune(None, "simulate", path, "--json", *arguments).stdout)


@pytest.fixture
def bowl(tmp_path):
    return write(tmp_path / "bowl.jsonl", bowl_rows())


def test_the_table_names_the_best_and_shows_every_strategy_beside_random(bowl):
    shown = wavetune(None, "simulate", bowl, "--repeat", "5").stdout.splitlines()
    assert shown[0] == 'bowl {"n":1}: 216 configs, 2 of them failed'
    assert shown[1] == "exhaustive best: p0=3 p1=3 p2=3 at 0.5000 of the baseline's time"
    assert shown[3].split() == ["trials", "random", "expects", "random", "worst", "descent", "worst", "evolution", "worst"]
    assert [line.split()[0] for line in shown[4:]] == ["1", "2", "4", "8", "16", "32", "64", "128", "216"]
    assert shown[-1].split()[1::2] == ["0.00"] * 7


def test_guided_strategies_beat_the_expectation_of_random_and_random_meets_it(bowl):
    (key,) = simulate(bowl, "--trials", "40", "--repeat", "200")["keys"]
    expected = key["random_expected"]
    assert key["trials"] == [1, 2, 4, 8, 16, 32, 40]
    means = {name: strategy["mean"] for name, strategy in key["strategies"].items()}
    assert all(abs(mean / e - 1) < 0.3 for mean, e in zip(means["random"], expected))
    assert means["descent"][-1] < 0.5 * expected[-1] and means["evolution"][-1] < 0.8 * expected[-1]


def test_guided_strategies_begin_with_the_default_as_in_a_job(tmp_path):
    rows = [line | {"baseline": 128} for line in bowl_rows()]
    (key,) = simulate(write(tmp_path / "default.jsonl", rows), "--trials", "1", "--repeat", "5")["keys"]
    assert rows[128]["samples_us"][0] == 60
    assert [key["strategies"][name]["mean"] for name in ("descent", "evolution")] == [[pytest.approx(60 / 50 - 1)]] * 2


def test_the_expectation_of_random_is_that_of_all_ways_to_draw(tmp_path):
    times = [70.0, 50.0, None, 90.0, 60.0]
    path = write(tmp_path / "five.jsonl", [row(i, {"p": i}, t) for i, t in enumerate(times)])
    (key,) = simulate(path, "--strategy", "random", "--trials", "4", "--repeat", "1")["keys"]
    slow = [t or 90.0 for t in times]
    for t, expected in zip(key["trials"], key["random_expected"]):
        least = statistics.mean(min(draw) for draw in itertools.combinations(slow, t))
        assert expected == pytest.approx(least / 50 - 1)
    assert list(key["strategies"]) == ["random"] and key["configs"] == 5 and key["failed"] == 1


def test_a_replay_is_the_same_for_the_same_seed_and_another_for_another(bowl):
    one, again, other = (simulate(bowl, "--repeat", "3", "--seed", seed) for seed in ("5", "5", "6"))
    assert one == again and one["keys"][0]["strategies"] != other["keys"][0]["strategies"]


def test_the_order_of_lines_does_not_matter(bowl, tmp_path):
    turned = tmp_path / "turned.jsonl"
    turned.write_text("".join(reversed(bowl.read_text().splitlines(keepends=True))))
    assert simulate(bowl, "--repeat", "3") == simulate(turned, "--repeat", "3")


def test_the_descent_begins_at_the_baseline(bowl):
    (key,) = simulate(bowl, "--strategy", "descent", "--repeat", "2")["keys"]
    # The baseline is config 0, a corner that failed: it counts as slow as the slowest that did not fail.
    assert key["strategies"]["descent"]["mean"][0] == pytest.approx(max(r["samples_us"][0] for r in bowl_rows()
                                                                         if "samples_us" in r) / 50 - 1)


def test_each_key_is_replayed_and_measurements_of_several_processes_are_one_config(tmp_path):
    rows = [row(c, {"p": c}, 50 + 10 * c + p, key={"n": n}, process=p) for n in (1, 2) for c in range(3)
            for p in range(3)]
    rows.append(row(2, {"p": 2}, None, key={"n": 2}, process=3))
    answer = simulate(write(tmp_path / "keys.jsonl", rows), "--repeat", "1")
    assert [(k["key"], k["configs"], k["failed"], k["best"]["ratio"]) for k in answer["keys"]] == \
        [({"n": 1}, 3, 0, 0.51), ({"n": 2}, 3, 1, 0.51)]


GOOD = json.dumps(row(0, {"p": 0}, 50.0))


@pytest.mark.parametrize("line, word", [
    ("{", ""),
    ("[1]", "JSON object"),
    (json.dumps({"kernel": "k", "key": {}}), ""),
    (json.dumps(row(1, {"p": 1}, 50.0, outcome="fine")), '"fine"'),
    (json.dumps(row(1, {"p": 1}, 50.0, samples_us=[1, 2])), "2 samples_us and 3 baseline_us"),
    (json.dumps(row(1, {"p": 1}, 50.0, samples_us=[1, 0, 2])), 'element 1 of "samples_us"'),
    (json.dumps(row(1, {"p": 1}, 50.0, samples_us=[1, "x", 2])), 'element 1 of "samples_us"'),
    (json.dumps(row(0, {"p": 7}, 50.0)), "config 0 "),
    ('"' + "x" * (17 << 20) + '"', "16 MiB"),
], ids=["cut off", "no object", "no config", "no outcome", "no pairs", "no time", "no number", "another space", "too long"])
def test_a_bad_line_is_named_with_what_a_line_must_be(tmp_path, line, word):
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    done = wavetune(None, "simulate", path, check=False)
    assert done.returncode == 2 and f"{path}:2: " in done.stderr and word in done.stderr, done.stderr
    assert "wavetune-agent tune --samples FILE" in done.stderr and done.stderr.count("\n") == 1


def test_what_cannot_be_replayed_is_refused(tmp_path, bowl):
    def refused(code, word, *arguments):
        done = wavetune(None, "simulate", *arguments, check=False)
        assert (done.returncode, done.stdout) == (code, "") and word in done.stderr, done.stderr

    refused(2, "name one file")
    refused(2, "name one file", bowl, bowl)
    refused(2, "name one file", bowl, "--job", "1")
    refused(2, "random, descent or evolution", bowl, "--strategy", "annealing")
    refused(2, "cannot be read", tmp_path / "absent")
    refused(2, "cannot be read", tmp_path)
    refused(2, "is empty", write(tmp_path / "empty.jsonl", []))
    refused(1, "measured correctly", write(tmp_path / "failed.jsonl", [row(0, {"p": 0}, None)]))
    refused(1, "/configs", write(tmp_path / "twice.jsonl", [row(0, {"p": 0}, 1.0), row(1, {"p": 0}, 2.0)]))


def job_answer(path, **changes):
    """A job of five configs, one measured late and one on a device that drifted, on two pages."""
    job = {"job": "7", "name": "bowl", "key": {"n": 1}, "baseline": 0, "space": {"parameters": {"p": [0, 1, 2, 3, 4]}}}
    rows = [{k: v for k, v in row(i, {}, 50.0 + 10 * i).items() if k != "config_values"} for i in range(4)]
    rows[3]["late"] = True
    rows.append(rows[0] | {"config": 4, "quarantined": True, "samples_us": [1.0] * len(rows[0]["samples_us"])})
    if path == "/v1/jobs/7":
        return 200, job | changes.get("job", {})
    if not path.startswith("/v1/jobs/7/measurements"):
        return 404, {"detail": "there is no such job", "status": 404}
    rows = changes.get("rows", rows)
    return 200, {"items": rows[2:]} if "after=two" in path else {"items": rows[:2], "next": "two"}


def test_a_job_of_a_server_is_replayed_from_all_pages_without_late_or_quarantined_measurements():
    with FakeServer(lambda _, path: job_answer(path)) as fake:
        (key,) = json.loads(wavetune(fake, "simulate", "--job", "7", "--json", "--repeat", "2").stdout)["keys"]
        assert (key["kernel"], key["configs"], key["trials"]) == ("bowl", 3, [1, 2, 3])
        assert key["best"] == {"config": 0, "config_values": {"p": 0}, "ratio": 0.5}
        done = wavetune(fake, "simulate", "--job", "8", check=False)
        assert done.returncode == 4 and "there is no such job" in done.stderr


@pytest.mark.parametrize("changes, code, word", [
    ({"rows": []}, 1, "wavetune show 7"),
    ({"job": {"key": None}}, 4, "understands"),
    ({"job": {"space": {}}}, 4, "understands"),
    ({"rows": [{"config": 5, "outcome": "correct"}]}, 4, "understands"),
    ({"rows": [{"config": 1, "outcome": "fine"}]}, 4, "understands"),
])
def test_a_job_that_cannot_be_replayed_is_refused(changes, code, word):
    with FakeServer(lambda _, path: job_answer(path, **changes)) as fake:
        done = wavetune(fake, "simulate", "--job", "7", check=False)
        assert done.returncode == code and word in done.stderr, done.stderr
