"""With WAVETUNE_LOG=stderr a program says once for each function and key why it has no config, and how to look further."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from contract_server import ENVIRONMENT, Contract, canonical, document
from starting import TUNED, choices, closures, environment

CLOSURES = ("add_kernel", "fill_kernel")


@pytest.fixture
def server():
    with Contract() as made:
        yield made


def misses(tmp_path, *arguments, server=None, **variables):
    """The lines that start with `miss:`: function, key, why, and the command, which only a server answers."""
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", TUNED / "program.py", *map(str, arguments or (4096,))],
                          env=environment(tmp_path / "cache", server, WAVETUNE_LOG="stderr", **variables),
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"miss: (\w+) \[(\d+), [^]]*\]: (.*?)(?:; (wavetune why .*))?\n", done.stderr)
    assert all(bool(one[3]) == (server is not None) for one in found)
    assert re.search(r"the program ends: hits \d+, misses [1-9]", done.stderr) or found == [] or "WAVETUNE_CAPTURE_TO" in variables
    return found


def why(tmp_path, **more):
    found = misses(tmp_path, **more)
    assert [one[0] for one in found] == list(CLOSURES)
    (one,) = {one[2] for one in found}
    return one


def test_the_release_has_other_keys_and_each_key_is_said_once(tmp_path, server):
    server.document = document(choices(4096))
    found = misses(tmp_path, 4096, 1000, 1000, server=server)
    assert [one[:2] for one in found] == [(name, "1000") for name in CLOSURES]
    assert {one[2] for one in found} == {f"the release {server.document['release']} has 1 other keys of this function"}
    for name, _, _, command in found:
        words = shlex.split(command)
        assert words[:3] == ["wavetune", "why", closures()[name]]
        assert json.loads(words[words.index("--environment") + 1]) == ENVIRONMENT


def test_misses_are_reported_once_and_a_server_that_does_not_know_them_gets_no_more(tmp_path, server):
    server.document = document(choices(4096))
    misses(tmp_path, 4096, 1000, 1000, server=server)
    sent = [one for report in server.missed for one in report["missed"]]
    assert sorted((one["name"], one["key"][0], one["function"]) for one in sent) == [(name, "1000", closures()[name])
                                                                                    for name in CLOSURES]
    assert all(report["environment"] == ENVIRONMENT for report in server.missed) and "other keys" in sent[0]["why"]
    server.trouble = lambda handler: handler.path == "/v1/demand" and (handler.answer(422, b"{}"), True)[1]
    server.requests.clear(), server.counted.clear()
    misses(tmp_path, 1000, 2000, server=server)
    assert len(server.asked("POST", "/v1/demand")) == 1 and server.counted, "what an older server takes is sent all the same"


def test_after_so_many_misses_the_others_are_not_printed_and_the_counts_are(tmp_path, server):
    own = environment(tmp_path / "cache", server, WAVETUNE_LOG="stderr", WAVETUNE_ON_MISS="first")
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", TUNED / "program.py", *map(str, range(1, 131))], env=own,
                          capture_output=True, text=True, timeout=300)
    assert done.stderr.count(" miss: ") == 200 and done.stderr.count("further misses are not printed") == 1
    assert "misses 260" in done.stderr.splitlines()[-1]


def test_the_release_has_nothing_of_a_function(tmp_path, server):
    server.document = document(choices(4096, names=("add_kernel",)))
    (one,) = misses(tmp_path, server=server)
    assert one[0] == "fill_kernel" and one[2].endswith("has nothing of this function")


def test_the_channel_has_no_entry_as_the_server_says(tmp_path, server):
    server.entry, server.document = {"why": "channel \"nosuch\" has no entry\nwith tag"}, {"functions": {}}
    assert why(tmp_path, server=server, WAVETUNE_CHANNEL="nosuch") == 'channel "nosuch" has no entry with tag'
    assert "--channel nosuch --environment" in misses(tmp_path, server=server, WAVETUNE_CHANNEL="nosuch")[0][3]


def test_a_signature_is_refused(tmp_path, server):
    server.document = document(choices(4096))
    (tmp_path / "key.pub").write_bytes(b"none")
    assert why(tmp_path, server=server, WAVETUNE_TRUSTED_KEYS=str(tmp_path / "key.pub")) == \
        "the server's choices are not used: no trusted key signed them"


def test_a_choice_is_not_one_of_the_programs(tmp_path, server):
    server.document = document(choices(4096, config={"BLOCK": 3, "num_warps": 4}))
    assert why(tmp_path, server=server) == "its choice is not one config of the program"


def test_the_server_refuses_or_does_not_answer(tmp_path, server):
    assert why(tmp_path, server=server, WAVETUNE_TOKEN="wrong") == "the server refused the request for choices, status 401"
    assert why(tmp_path, server="http://127.0.0.1:9") == "the server did not answer"


def test_the_release_is_pinned_to_nothing(tmp_path, server):
    assert why(tmp_path, server=server, WAVETUNE_RELEASE="stable") == "WAVETUNE_RELEASE is no digest"


def test_a_program_that_is_only_recorded_has_no_choices(tmp_path):
    assert why(tmp_path, WAVETUNE_CAPTURE_TO=str(tmp_path / "captures"), WAVETUNE_CAPTURE="source").startswith("there is no server")


def test_the_file_that_fetch_brings_is_not_there(tmp_path):
    assert why(tmp_path, WAVETUNE_CACHE=str(tmp_path)) == f"{tmp_path} has no choices of this environment"
    assert why(tmp_path, WAVETUNE_CACHE=f"{tmp_path}/nothing") == f"there is no folder {tmp_path}/nothing"
    for other in ({"gpu": "Other", "triton": "3.6.0"}, {"gpu": "Other"}):
        place = tmp_path / "environments" / str(len(other))
        place.mkdir(parents=True)
        (place / "choices.json").write_text(json.dumps({"environment": {**ENVIRONMENT, **other}}))
    (place.parent / "garbled").mkdir()
    (place.parent / "garbled/choices.json").write_text("[]")
    assert why(tmp_path, WAVETUNE_CACHE=str(tmp_path), WAVETUNE_ENVIRONMENT=json.dumps(ENVIRONMENT)).endswith(
        f"; the nearest is of gpu Other (here {ENVIRONMENT['gpu']})")
    (tmp_path / "choices.json").write_bytes(canonical(document(choices(1000))))
    assert why(tmp_path, WAVETUNE_CACHE=str(tmp_path)).endswith("has 1 other keys of this function")
