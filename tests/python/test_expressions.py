"""Expressions, canonical JSON, spaces and keys agree with the C programs, and refuse what those refuse."""

import json
import subprocess

import pytest
from conftest import KERNELS, ROOT, program

from wavetune._canonical import canonical, digest, parse_json
from wavetune._errors import PackError
from wavetune._pack.expressions import expression, grouped, substitute
from wavetune._pack.keys import format_key, order_key, parse_keys, read_keys
from wavetune._pack.spaces import parse_space

NAMES = {"M": 64, "N": -7, "zero": 0, "three": 3, "largest": 2**63 - 1, "least": -(2**63), "yes": True, "no": False,
         "none": None, "text": "abc", "empty": "", "gpu": "AMD Instinct MI300X"}


def test_every_expression_has_the_value_that_the_c_programs_are_tested_with():
    lines = (ROOT / "tests/data/expressions.tsv").read_text().splitlines()
    assert len(lines) > 1000
    for line in lines:
        text, _, wanted = line.rpartition("\t")
        try:
            value = repr(expression(text).evaluate(NAMES))
        except PackError:
            value = "error"
        assert value == wanted, text


@pytest.mark.parametrize("text, names, value", [
    ("lambda kwarg: kwarg['A'] >= kwarg['B']", {"A": 2, "B": 1}, True),
    ("lambda config: config.num_warps == 4 or config.kwargs['A'] > 64", {"num_warps": 8, "A": 65}, True),
])
def test_lambdas_of_dejavu_read_their_members(text, names, value):
    assert expression(text).evaluate(names) == value


@pytest.mark.parametrize("text", ["lambda a, b: a", "lambda a: a", "lambda a=1: a['x']", "a['x']", "a.b", "1 / 2",
                                  "open('x')", "(lambda: 1)()", "[x for x in (1, 2)]", "1 if", "x" * 5000])
def test_expressions_outside_the_language_are_refused(text):
    with pytest.raises(PackError):
        expression(text).evaluate({"x": 1})


def test_an_unknown_name_is_reported_with_its_column_and_the_known_ones():
    with pytest.raises(PackError, match=r'column 5 of "1 \+ X": .*K, M'):
        expression("1 + X").evaluate({"M": 1, "K": 2})


def test_a_float_of_the_key_is_refused_in_a_calculation():
    with pytest.raises(PackError, match="scale is a float"):
        expression("scale > 1").evaluate({"scale": 0.5})


def test_substitution_leaves_the_names_that_have_no_value():
    assert substitute("K % (BLOCK_K * SPLIT) == 0", {"BLOCK_K": 32, "SPLIT": 2}) == "K % (32 * 2) == 0"
    assert substitute("lambda args: args['K'] % args['BLOCK_K']", {"BLOCK_K": 64}) == "K % 64"
    assert substitute("min(min, 3)", {"min": 2}) == "min(2, 3)"


def test_parentheses_are_added_only_where_precedence_needs_them():
    assert [grouped(t) for t in ("M", "16", "M + 1", "min(M, 2)", "(M) + (2)")] == \
        ["M", "16", "(M + 1)", "min(M, 2)", "((M) + (2))"]


def test_canonical_json_is_sorted_by_utf8_bytes_and_escapes_as_the_c_programs_do():
    value = {"b": [1, -2, 1e-05, 2.0, None, True], "a": "tab\t\"quote\" \\ é \x7f", "é": {}, "z": []}
    assert canonical(value) == '{"a":"tab\\u0009\\"quote\\" \\\\ é \x7f","b":[1,-2,1e-05,2.0,null,true],"z":[],"é":{}}'
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("text, reason", [('{"a": 1, "a": 2}', '"a".*twice'), ("[NaN]", "NaN is no JSON"),
                                          ("[1", "Expecting")])
def test_json_is_read_strictly(text, reason):
    with pytest.raises(PackError, match=reason):
        parse_json(text, "file")


def test_keys_are_read_as_the_command_line_of_the_c_programs_reads_them():
    assert parse_keys("M=4096,scale=1e-5,flag=True,none=None,dtype=fp16,text='1',n=-3") == [{
        "M": 4096, "scale": 1e-05, "flag": True, "none": None, "dtype": "fp16", "text": "1", "n": -3}]
    assert parse_keys("n=33, dtype=fp32") == [{"n": 33, "dtype": "fp32"}]
    (key,) = parse_keys("M=1,text='1',t=a,part='1..4'")
    assert format_key(key) == "M=1,text='1',t=a,part='1..4'" and key["part"] == "1..4"


def test_ranges_and_lists_of_a_key_name_all_combinations():
    assert parse_keys("M=1..8*2,N=64,128") == [{"M": m, "N": n} for m in (1, 2, 4, 8) for n in (64, 128)]
    assert [key["M"] for key in parse_keys("M=3,1..5,64..256+64,3")] == [3, 1, 2, 4, 5, 64, 128, 192, 256]
    assert [key["t"] for key in parse_keys("t=a,'b,c','d=e'")] == ["a", "b,c", "d=e"]


@pytest.mark.parametrize("text, reason", [("M", "is not NAME=VALUE"), ("M=1,M=2", "twice"), ("", "empty"),
                                          ("1M=3", "is not NAME=VALUE"), ("M='x", "not NAME=VALUE|closed"), ("M=1..x", "is not a range"),
                                          ("M=4..1", "is empty"), ("M=0..4*2", "does not end"), ("M=1..4*1", "does not end"),
                                          ("M=1..10001", "more than 10000"), ("M=1..200,N=1..200", "more than 10000")])
def test_an_invalid_key_is_refused(text, reason):
    with pytest.raises(PackError, match=reason):
        parse_keys(text)


def test_a_file_has_one_key_a_line_and_duplicates_count_once(tmp_path):
    (tmp_path / "keys").write_text('{"M": 1}\n\n{"M": 2}\n{"M": 1}\n')
    assert read_keys(["M=3"], str(tmp_path / "keys")) == [{"M": 3}, {"M": 1}, {"M": 2}]
    (tmp_path / "keys").write_text("[1]\n")
    with pytest.raises(PackError, match=":1: .*NAME=VALUE"):
        read_keys([], str(tmp_path / "keys"))
    (tmp_path / "keys").write_text("# powers of two\nM=1..4*2\n")
    assert read_keys([], str(tmp_path / "keys")) == [{"M": 1}, {"M": 2}, {"M": 4}]
    with pytest.raises(PackError, match="no key"):
        read_keys([], None)


def test_a_key_must_have_the_kernels_members():
    assert list(order_key({"N": 1, "M": 2}, ["M", "N"])) == ["M", "N"]
    with pytest.raises(PackError, match="key N=1 .*members M, N"):
        order_key({"N": 1}, ["M", "N"])


@pytest.mark.parametrize("json, reason", [
    ([], "object"), ({}, '"parameters" or "configs"'), ({"configs": []}, "1 to 100000"),
    ({"configs": [{"A": 1}, {"B": 1}]}, "config 1 .*names"), ({"parameters": {"A": 1}}, "array of values"),
    ({"parameters": {"A": [1, 1]}}, "twice"), ({"parameters": {"A": [1.5]}}, "integer, a string"),
    ({"parameters": {"A": [1]}, "roles": {"B": "env"}}, "no parameter B"),
    ({"parameters": {"A": [1]}, "roles": {"A": "warp"}}, "constexpr, option or env"),
    ({"parameters": {"A": [1]}, "other": 1}, "no member other"),
    ({"parameters": {c: list(range(100)) for c in "ABCD"}}, "before conditions"),
])
def test_an_invalid_space_is_refused(json, reason):
    with pytest.raises(PackError, match=reason):
        parse_space(json, "space.json")


def test_a_condition_may_guard_another_one_and_otherwise_its_failure_is_reported():
    space = {"parameters": {"A": [0, 1]}, "conditions": ["4 // A > 1"]}
    with pytest.raises(PackError, match='condition .*{"A":0}'):
        list(parse_space(space, "s").points([{}]))
    space["conditions"].append("A > 0")
    assert list(parse_space(space, "s").points([{}])) == [{"A": 1}]


def test_a_config_that_is_valid_for_one_of_the_keys_is_packed():
    space = parse_space({"parameters": {"A": [1, 2, 3]}, "conditions": ["A <= M"]}, "s")
    assert list(space.points([{"M": 1}, {"M": 2}])) == [{"A": 1}, {"A": 2}]


def test_the_configs_are_those_that_wavetune_space_expand_prints(tmp_path):
    path = KERNELS / "matmul.space.json"
    done = subprocess.run([program("wavetune"), "space", "expand", "--json", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    points = list(parse_space(json.loads(path.read_text()), "s").points([{}]))
    assert len(points) > 100
    assert [json.loads(line)["config"] for line in done.stdout.splitlines()] == points
