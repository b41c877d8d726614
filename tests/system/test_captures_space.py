"""`wavetune captures space`: an entry made of a folder of recorded launches, and what it cannot be made of."""

import json

import pytest
from harness import wavetune

NAME = "package.module:_add"
TENSOR = {"name": "x", "kind": "tensor", "dtype": "float16", "shape": [1000]}
KEY = {"name": "n", "kind": "int", "value": 1000}
BLOCK = {"name": "BLOCK", "kind": "constexpr", "value": 64}


def record(folder, *arguments, closure="sha256:abc"):
    """A folder of captures with one launch of one function."""
    for name, document in (("functions/f", {"name": NAME, "closure": closure}),
                           (f"launches/{closure.rpartition(':')[2]}-1", {
                               "arguments": arguments, "configs": [{"config": {"num_warps": 4}, "grid": [16]}]})):
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    return folder


def made(captures, to, code=0):
    done = wavetune(None, "captures", "space", NAME, "--captures", captures, "--to", to, check=False)
    assert done.returncode == code, done
    return done.stderr


@pytest.mark.parametrize("closure", ["sha256:abc", "abc"])
def test_an_entry_has_the_key_and_the_config_of_the_launch(tmp_path, closure):
    assert made(record(tmp_path / "captures", TENSOR, KEY, BLOCK, closure=closure), tmp_path / "own") == ""
    kernel, space = (json.loads((tmp_path / "own" / name).read_text()) for name in ("kernel.json", "space.json"))
    assert (kernel["name"], kernel["key"], kernel["arguments"][0]["shape"]) == ("add", ["n"], ["n"])
    assert space == {"parameters": {"BLOCK": [64], "num_warps": [4]}, "roles": {"num_warps": "option"},
                     "default": {"BLOCK": 64, "num_warps": 4}}


def test_no_file_of_a_folder_is_written_where_one_is_there(tmp_path):
    captures = record(tmp_path / "captures", TENSOR, KEY, BLOCK)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/space.json").write_text("{}")
    assert "own/space.json is there; name another folder with --to" in made(captures, tmp_path / "own", 2)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["space.json"]


@pytest.mark.parametrize("argument", [{"name": "f", "kind": "function", "document": "x"}, {"name": "f", "kind": "tuple", "items": []},
                                      {"name": "f", "kind": "int"}, {"name": "f", "kind": "dtype"}])
def test_an_argument_that_an_entry_cannot_state_is_named(tmp_path, argument):
    err = made(record(tmp_path / "captures", TENSOR, KEY, BLOCK, argument), tmp_path / "own")
    assert f"argument f, a {argument['kind']}, is not in the entry" in err
    assert '"f"' not in (tmp_path / "own/kernel.json").read_text()
