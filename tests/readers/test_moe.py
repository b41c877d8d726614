"""vLLM and SGLang read the winners of a server, with their own code, from the files that `fetch` writes for an MI300X."""

import hashlib
import importlib.util
import itertools
import json
import pathlib
import re
import shutil

import pytest
from conftest import ENVIRONMENT, fetch, node, read, record_identity
from hands import Hand
from harness import wait_until, wavetune

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("sglang") is None:
    pytest.skip("vllm and sglang are not installed", allow_module_level=True)

BLOCKS = (16, 32, 64, 128, 256)
EXPORTS = {"E": "experts", "N": "n", "M": "tokens", "dtype": "dtype", "block_shape": "blocks",
           "config": {"BLOCK_SIZE_M": "BLOCK_M", "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}}
SPACE = {"parameters": {"BLOCK_M": list(BLOCKS), "num_warps": [4, 8]}}
TABLES = [(8, 384, None, None), (8, 384, "fp8_w8a8", None), (8, 384, "fp8_w8a8", "[128,128]"), (128, 768, "int8_w8a8", None),
          (128, 768, "int8_w8a16", "[64,128]")]
TOKENS = (1, 16, 64, 4096)
SOURCE = b'extern "C" __global__ void fused_moe(float *y, long long n) { y[n - 1] = 1; }'


def put(server, source):
    digest = "sha256:" + hashlib.sha256(source).hexdigest()
    assert server.request("PUT", f"/v1/blobs/{digest}", source).status in (200, 201)
    return digest


def register(server):
    digest = put(server, SOURCE)
    answer = server.request("POST", "/v1/kernels", {
        "name": "moe/fused", "language": "hip", "entry": "fused_moe", "sources": [{"path": "f.hip", "digest": digest}],
        "key": ["experts", "n", "tokens", "dtype", "blocks", "down", "quant"],
        "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"},
                      {"name": "n", "dtype": "int64", "value": "n"}],
        "launch": {"grid": ["1"], "block": ["64"]},
        "exports": {"vllm-moe": EXPORTS, "sglang-moe": {**EXPORTS, "down": "down", "per_channel_quant": "quant"}}})
    assert answer.status == 201, answer
    return answer.json["kernel"]


def keys():
    for experts, n, dtype, blocks in TABLES:
        for tokens in TOKENS:
            yield {"experts": experts, "n": n, "tokens": tokens, "dtype": dtype, "blocks": blocks, "down": False, "quant": False}
    for tokens in TOKENS[1:3]:
        yield {"experts": 8, "n": 384, "tokens": tokens, "dtype": "fp8_w8a8", "blocks": "[128,128]", "down": True, "quant": False}
        yield {"experts": 8, "n": 384, "tokens": tokens, "dtype": "int8_w8a8", "blocks": None, "down": False, "quant": True}


@pytest.fixture(scope="module")
def winners(server):
    """Tunes a key after the other with an agent that the tests play, each with another best config, and publishes; returns
    the winners that the server has: {(experts, n, dtype, blocks, down, quant): {tokens: config in the table}}."""
    kernel, hand, jobs = register(server), Hand(server, "node", environment=ENVIRONMENT), {}
    best = itertools.cycle(range(len(BLOCKS) * 2))
    for key in keys():
        answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": key, "space": SPACE, "environment": ENVIRONMENT})
        assert answer.status == 201, answer
        jobs[answer.json["job"]] = key
        hand.work(ratios={next(best): 0.3})
        wait_until(lambda: server.get(f"/v1/jobs/{answer.json['job']}")["state"] == "done", 30, "the job to be done")
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable")
    tables = {}
    for job, key in jobs.items():
        config = server.get(f"/v1/jobs/{job}")["winner"]["config_values"]
        table = tables.setdefault(tuple(value for name, value in key.items() if name != "tokens"), {})
        table[key["tokens"]] = {"BLOCK_SIZE_M": config["BLOCK_M"], "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1,
                                "num_warps": config["num_warps"]}
    assert len({json.dumps(config) for table in tables.values() for config in table.values()}) == len(BLOCKS) * 2
    return tables


def nearest(table, tokens):
    return table[min(table, key=lambda m: abs(m - tokens))]


def as_read(answer):
    """JSON has made texts of the numbers of tokens."""
    return None if answer is None else {int(m): config for m, config in answer.items()}


BATCHES = (1, 2, 7, 16, 41, 63, 64, 100, 2079, 2081, 5000)


def questions_of(table, *more):
    """`more`: what a reader's function takes between the number of tokens and the block shape."""
    experts, n, dtype, blocks = table
    shape = json.loads(blocks) if blocks else None
    weights = [experts, 2 * n, 1024], [experts, 1024, n]
    return [["get_moe_configs", [experts, n, dtype, *(shape or [])]],
            *(["try_get_optimal_moe_config", [*weights, 2, dtype, m, *more, shape]] for m in BATCHES)]


def test_vllm_takes_the_winner_of_the_nearest_batch(server, winners, identity, tmp_path):
    variables = fetch(server, tmp_path, "vllm-moe", identity=identity)
    assert list(variables) == ["VLLM_TUNED_CONFIG_FOLDER"]
    answers = iter(read("vllm", [one for table in TABLES for one in questions_of(table)], variables))
    for table in TABLES:
        mine = winners[(*table, False, False)]
        assert as_read(next(answers)) == mine, table
        for m in BATCHES:
            assert next(answers) == nearest(mine, m), (table, m)


def test_vllm_takes_the_winner_of_the_nearest_batch_for_mambas_state_update(server, identity, tmp_path):
    """It ships no table of these for an AMD GPU; they are in the same folder, and for each product of batch and heads."""
    key = {"headdim": 64, "dstate": 128, "heads": 24, "dtype": "bfloat16"}
    digest = put(server, b'extern "C" __global__ void ssm(float *y, long long n) { y[n - 1] = 2; }')
    answer = server.request("POST", "/v1/kernels", {
        "name": "mamba/ssm", "language": "hip", "entry": "ssm", "sources": [{"path": "f.hip", "digest": digest}],
        "key": [*key, "batch"], "arguments": [{"name": "y", "dtype": "float32", "shape": ["batch"], "access": "write"},
                                              {"name": "n", "dtype": "int64", "value": "batch"}],
        "launch": {"grid": ["1"], "block": ["64"]},
        "exports": {"vllm-ssm": {"headdim": "headdim", "dstate": "dstate", "cache_dtype": "dtype", "batch": "batch * heads"}}})
    assert answer.status == 201, answer
    hand, table = Hand(server, "mamba", environment=ENVIRONMENT), {}
    for batch, best in ((1, 1), (8, 2), (256, 5)):
        job = {"kernel": answer.json["kernel"], "key": {**key, "batch": batch}, "environment": ENVIRONMENT, "tag": "mamba",
               "space": {"parameters": {"BLOCK_SIZE_M": [4, 8, 16], "num_warps": [1, 2]}}}
        made = server.request("POST", "/v1/jobs", job)
        assert made.status == 201, made
        hand.work(ratios={best: 0.3})
        wait_until(lambda: server.get(f"/v1/jobs/{made.json['job']}")["state"] == "done", 30, "the job to be done")
        table[24 * batch] = server.get(f"/v1/jobs/{made.json['job']}")["winner"]["config_values"]
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "mamba", "--channel", "mamba")
    variables = fetch(server, tmp_path, "vllm-moe", channel="mamba", identity=identity, tag="mamba")
    batches = (1, 2, 8, 40, 200, 4096)
    found, other, *chosen = read("vllm", [
        ["get_ssm_configs", [64, 128, "bfloat16"]], ["get_ssm_configs", [64, 64, "bfloat16"]],
        *(["try_get_optimal_ssm_config", [64, 128, batch, 24, "bfloat16", False]] for batch in batches)], variables)
    assert as_read(found) == table and other is None and len({json.dumps(config) for config in table.values()}) == 3
    for batch, one in zip(batches, chosen):
        config = nearest(table, 24 * batch)
        assert one == [config["BLOCK_SIZE_M"], config["num_warps"]], batch


def test_vllm_prefers_a_winner_to_the_table_that_it_ships(server, winners, identity, tmp_path):
    """E=8,N=14336 is among vLLM's own files for this GPU: without ours it answers from there."""
    question = [["get_moe_configs", [8, 14336, None]]]
    (shipped,) = read("vllm", question, {})
    assert len(shipped) > 1
    (tmp_path / "E=8,N=14336,device_name=AMD_Instinct_MI300X.json").write_text(json.dumps({"1": winners[TABLES[0] + (False, False)][1]}))
    done = wavetune(server, "import", "vllm-moe", tmp_path, "--environment", json.dumps(ENVIRONMENT), "--json")
    assert json.loads(done.stdout)["added"] == 1
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "imported")
    variables = fetch(server, tmp_path / "to", "vllm-moe", channel="imported", identity=identity)
    (ours,) = read("vllm", question, variables)
    assert as_read(ours) == {1: winners[TABLES[0] + (False, False)][1]}


def test_sglang_takes_the_winner_of_the_nearest_batch(server, winners, identity, tmp_path):
    variables = fetch(server, tmp_path, "sglang-moe", identity=identity)
    assert list(variables) == ["SGLANG_MOE_CONFIG_DIR"]
    answers = iter(read("sglang", [one for table in TABLES for one in questions_of(table, False)], variables))
    for table in TABLES:
        mine = winners[(*table, False, False)]
        assert as_read(next(answers)) == mine, table
        for m in BATCHES:
            assert next(answers) == nearest(mine, m), (table, m)


def test_sglang_takes_tables_of_the_second_product_and_of_channels(server, winners, identity, tmp_path):
    variables = fetch(server, tmp_path, "sglang-moe", identity=identity)
    blocks, shapes = (8, 384, "fp8_w8a8", "[128,128]"), ([8, 768, 1024], [8, 1024, 384])
    down, up = winners[(*blocks, True, False)], winners[(*blocks, False, False)]
    found, quant, without, both = read("sglang", [
        ["get_moe_configs", [8, 384, "fp8_w8a8", 128, 128, False, True]],
        ["get_moe_configs", [8, 384, "int8_w8a8", 0, 0, True, False]],
        ["get_moe_configs", [8, 384, "fp8_w8a8", 0, 0, False, True]],  # no table: SGLang takes the first product's
        ["try_get_optimal_moe_config", [*shapes, 2, "fp8_w8a8", 16, False, [128, 128], False, True]]], variables)
    assert as_read(found) == down and as_read(quant) == winners[(8, 384, "int8_w8a8", None, False, True)]
    assert as_read(without) == winners[(8, 384, "fp8_w8a8", None, False, False)]
    first, (second, largest) = both
    # Both products share one sorting: SGLang takes the first's BLOCK_SIZE_M for the second, too.
    assert first == up[16] and second == {**down[16], "BLOCK_SIZE_M": up[16]["BLOCK_SIZE_M"]}
    assert largest == max(config["BLOCK_SIZE_M"] for config in down.values())


@pytest.mark.parametrize("reader, format_", [("vllm", "vllm-moe"), ("sglang", "sglang-moe")])
def test_each_reader_has_a_name_of_its_own_for_a_virtual_function(server, winners, reader, format_, tmp_path):
    """vLLM names the GPU by its PCI id, SGLang by torch's name, which differs for one that a hypervisor gives to a guest."""
    names = {"TEST_PCI_ID": "0x74b5", "TEST_GPU_NAME": "AMD Instinct MI300X VF"}
    path = tmp_path / "identity.json"
    record_identity(path, names)
    variables = fetch(server, tmp_path / "to", format_, identity=path)
    table = TABLES[2]
    (answer,) = read(reader, questions_of(table)[:1], {**variables, **names})
    assert as_read(answer) == winners[(*table, False, False)]


def test_without_an_identity_the_names_are_made_of_the_environment(server, winners, tmp_path):
    variables = fetch(server, tmp_path, "vllm-moe")
    (answer,) = read("vllm", questions_of(TABLES[2])[:1], variables)
    assert as_read(answer) == winners[(*TABLES[2], False, False)]
    shutil.rmtree(tmp_path)
    done = wavetune(server, "fetch", "--to", tmp_path, "--format", "sglang-moe", environment=node(), check=False)
    assert done.returncode == 8 and "Triton's version" in done.stderr


def test_sglang_reads_a_table_for_another_triton_than_its_own(server, winners, identity, tmp_path):
    document = json.loads(identity.read_text())
    document["triton"]["version"] = "3.4.0+rocm6.4.1.git1a2b3c4d"  # as ROCm's images have it
    (tmp_path / "identity.json").write_text(json.dumps(document))
    variables = fetch(server, tmp_path / "to", "sglang-moe", identity=tmp_path / "identity.json")
    assert [path.name for path in (tmp_path / "to/current/sglang-moe/configs").iterdir()] == ["triton_3_4_0"]
    (answer,) = read("sglang", questions_of(TABLES[2])[:1], variables)
    assert as_read(answer) == winners[(*TABLES[2], False, False)]


def test_vllms_own_tables_come_back_from_the_server_as_vllm_reads_them(server, identity, tmp_path):
    """Those that it ships for this GPU, imported, published and fetched."""
    place = pathlib.Path(importlib.util.find_spec("vllm").submodule_search_locations[0]) / "model_executor/layers/fused_moe/configs"
    shipped = sorted(place.glob("*device_name=AMD_Instinct_MI300X[.,]*json"))
    assert len(shipped) > 20
    for path in shipped:
        shutil.copy(path, tmp_path)
    wavetune(server, "import", "vllm-moe", tmp_path, "--environment", json.dumps(ENVIRONMENT), "--tag", "shipped")
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "shipped", "--channel", "shipped")
    variables = fetch(server, tmp_path / "to", "vllm-moe", channel="shipped", identity=identity, tag="shipped")
    questions = []
    for path in shipped:
        e, n, dtype, shape = re.fullmatch(r"E=(\d+),N=(\d+),device_name=[^,.]*(?:,dtype=([^,]*))?(?:,block_shape=(\[.*\]))?\.json",
                                          path.name).groups()
        questions.append(["get_moe_configs", [int(e), int(n), dtype, *(json.loads(shape) if shape else [])]])
    with_ours, without = read("vllm", questions, variables), read("vllm", questions, {})
    assert with_ours == without and None not in without


def sglangs_own(place):
    """SGLang's tables for this GPU, the oldest Triton's first, and the questions that they answer."""
    pattern = re.compile(r"E=(\d+),N=(\d+),device_name=AMD_Instinct_MI300X(?:,dtype=([^,]*?))?(?:,block_shape=(\[.*?\]))?"
                         r"(,per_channel_quant=True)?(_down)?\.json")
    folders, questions = {}, []
    for folder in sorted(place.glob("triton_*"), key=lambda path: [int(n) for n in path.name[len("triton_"):].split("_")]):
        for path in sorted(folder.iterdir()):
            if found := pattern.fullmatch(path.name):
                folders.setdefault(folder, []).append(path)
                e, n, dtype, shape, quant, down = found.groups()
                questions.append(["get_moe_configs", [int(e), int(n), dtype, *(json.loads(shape) if shape else [0, 0]),
                                                      bool(quant), bool(down)]])
    return folders, questions


def test_sglangs_own_tables_come_back_from_the_server_as_sglang_reads_them(server, identity, tmp_path):
    """Of every Triton, imported one after the other for the image's: SGLang prefers the newest, and so does the server."""
    place = pathlib.Path(importlib.util.find_spec("sglang").submodule_search_locations[0])
    folders, questions = sglangs_own(place / "srt/layers/moe/moe_runner/triton_utils/configs")
    assert len(folders) > 1 and len(questions) > 5
    stated = {**ENVIRONMENT, "triton": json.loads(identity.read_text())["triton"]["version"]}
    for folder, paths in folders.items():
        wavetune(server, "import", "sglang-moe", *paths, "--environment", json.dumps(stated), "--tag", "sglang")
    wavetune(server, "publish", "--environment", json.dumps(stated), "--tag", "sglang", "--channel", "sglang")
    variables = fetch(server, tmp_path / "to", "sglang-moe", channel="sglang", identity=identity, tag="sglang")
    with_ours, without = read("sglang", questions, variables), read("sglang", questions, {})
    assert with_ours == without and None not in without
