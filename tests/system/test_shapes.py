"""`wavetune shapes`: the matrices of models (data/models, the members that are needed) against the worked numbers of the projects'
own files, and the keys that `submit` takes."""

import json
import pathlib

import pytest
from harness import wavetune

MODELS = pathlib.Path(__file__).parents[1] / "data/models"
TP = (1, 2, 4, 8)


def halved(first, n=4):
    return [first >> i for i in range(n)]


def shapes(model, *options):
    return json.loads(wavetune(None, "shapes", MODELS / f"{model}.json", "--json", *options).stdout)


def refused(*words, code=2):
    done = wavetune(None, "shapes", *words, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
    return done.stderr


# Of each layer N and K at tp 1, 2, 4, 8; for experts also E and top_k.
TABLE = {
    "llama-3-70b": {
        "qkv_proj": (halved(10240), [8192] * 4), "o_proj": ([8192] * 4, halved(8192)),
        "gate_up_proj": (halved(57344), [8192] * 4), "down_proj": ([8192] * 4, halved(28672)),
        "lm_head": (halved(128256), [8192] * 4)},
    "mixtral-8x7b": {
        "qkv_proj": (halved(6144), [4096] * 4), "o_proj": ([4096] * 4, halved(4096)),
        "experts": (halved(14336), [4096] * 4, 8, 2)},
    "deepseek-v3": {
        "fused_qkv_a_proj": ([2112] * 4, [7168] * 4), "q_b_proj": (halved(24576), [1536] * 4),
        "kv_b_proj": (halved(32768), [512] * 4), "o_proj": ([7168] * 4, halved(16384)),
        "gate_up_proj": (halved(36864), [7168] * 4), "down_proj": ([7168] * 4, halved(18432)),
        "shared_experts.gate_up_proj": (halved(4096), [7168] * 4), "shared_experts.down_proj": ([7168] * 4, halved(2048)),
        "mlp.gate": ([256] * 4, [7168] * 4), "experts": (halved(2048), [7168] * 4, 256, 8)},
    "qwen3-235b-a22b": {
        "qkv_proj": ([9216, 4608, 2304, 1280], [4096] * 4), "o_proj": ([4096] * 4, halved(8192)),
        "experts": (halved(1536), [4096] * 4, 128, 8)},
    "qwen3-30b-a3b": {
        "qkv_proj": ([5120, 2560, 1280, 768], [2048] * 4), "o_proj": ([2048] * 4, halved(4096)),
        "experts": (halved(768), [2048] * 4, 128, 8)},
}


@pytest.mark.parametrize("model", TABLE)
def test_the_matrices_of_a_model_are_those_of_vllm_and_sglang(model):
    rows = shapes(model, "--tp", "1..8*2")
    assert {row["tp"] for row in rows} == set(TP)
    for layer, (n, k, *experts) in TABLE[model].items():
        own = [row for row in rows if row["layer"] == layer]
        assert ([row["N"] for row in own], [row["K"] for row in own]) == (n, k), layer
        assert [[row["E"], row["top_k"]] for row in own] == [experts] * 4 if experts else "E" not in own[0]


def test_layers_are_counted_by_what_they_have():
    layers = {row["layer"]: row["layers"] for row in shapes("deepseek-v3")}
    assert (layers["gate_up_proj"], layers["experts"], layers["o_proj"], layers["lm_head"]) == (3, 58, 61, 1)
    assert "gate_up_proj" not in {row["layer"] for row in shapes("qwen3-30b-a3b")}


def test_block_fp8_is_refused_where_vllm_refuses_it():
    why = {(row["tp"], row["layer"]): row.get("why") for row in shapes("qwen3-235b-a22b", "--tp", "4,8")}
    assert why[4, "experts"] is None and why[8, "qkv_proj"] is None
    assert why[8, "experts"] == ("The output_size of gate's and up's weight = 192 is not divisible by weight quantization "
                                 "block_n = 128.")
    small = {(row["tp"], row["layer"]): row["block_fp8"] for row in shapes("qwen3-30b-a3b", "--tp", "1,2,4,8")}
    assert [small[tp, "experts"] for tp in TP] == [True, True, False, False]
    whole = {row["layer"]: row["block_fp8"] for row in shapes("deepseek-v3", "--tp", "8")}
    assert whole["fused_qkv_a_proj"], "the last part of a weight that is not split may end within a block"
    assert not whole["lm_head"] and not whole["mlp.gate"]


def model_file(folder, model, **members):
    document = json.loads((MODELS / f"{model}.json").read_text()) | members
    path = folder / "config.json"
    path.write_text(json.dumps({name: value for name, value in document.items() if value != "absent"}))
    return path


def rows_of(path, *options):
    return json.loads(wavetune(None, "shapes", path, "--json", *options).stdout)


def test_a_linear_layer_is_refused_with_the_words_of_vllm(tmp_path):
    config = model_file(tmp_path, "llama-3-70b", intermediate_size=28672 + 64 * 8)
    why = {row["layer"]: row.get("why") for row in rows_of(config, "--tp", "8")}
    assert why["gate_up_proj"] == "Weight output_partition_size = 3648 is not divisible by weight quantization block_n = 128."
    assert why["down_proj"] == "Weight input_size_per_partition = 3648 is not divisible by weight quantization block_k = 128."
    config = model_file(tmp_path, "llama-3-70b", quantization_config={"weight_block_size": [64, 64]},
                        intermediate_size=28672 + 64 * 8)
    assert rows_of(config, "--tp", "8")[3]["block_fp8"]


def test_experts_are_spread_whole_by_expert_parallelism():
    row, = (row for row in shapes("deepseek-v3", "--tp", "8", "--ep", "8", "--more-experts", "32") if row["layer"] == "experts")
    assert (row["E"], row["N"], row["K"], row["ep"]) == (36, 2048, 7168, 8)
    assert '"n_routed_experts" is 256, which --ep 3 does not divide' in refused(MODELS / "deepseek-v3.json", "--ep", "3")


def test_other_models_of_these_classes(tmp_path):
    lite = model_file(tmp_path, "deepseek-v3", model_type="deepseek_v2", q_lora_rank=None)
    layers = {row["layer"]: (row["N"], row["K"]) for row in rows_of(lite)}
    assert layers["q_proj"] == (24576, 7168) and layers["kv_a_proj_with_mqa"] == (576, 7168)
    shared = model_file(tmp_path, "qwen3-30b-a3b", model_type="qwen2_moe", shared_expert_intermediate_size=5632, head_dim="absent",
                        mlp_only_layers=[0], decoder_sparse_step=2)
    rows = rows_of(shared, "--tp", "2")
    layers = {row["layer"]: (row["N"], row["K"], row["layers"]) for row in rows}
    assert layers["shared_expert.gate_up_proj"] == (5632, 2048, 24) and layers["mlp.shared_expert_gate"] == (1, 2048, 24)
    assert layers["gate_up_proj"] == (6144, 2048, 24), "every second layer is dense"
    assert layers["qkv_proj"] == ((16 + 2 * 2) * 64, 2048, 48), "without head_dim it is hidden_size / heads"
    renamed = model_file(tmp_path, "qwen3-30b-a3b", num_experts="absent", num_local_experts=128)
    assert rows_of(renamed) == shapes("qwen3-30b-a3b"), "as transformers 5 writes it"
    named = model_file(tmp_path, "llama-3-70b", model_type="kimi", architectures=["LlamaForCausalLM"])
    assert rows_of(named)[0]["layer"] == "qkv_proj"


@pytest.mark.parametrize("members, options, message", [
    ({"model_type": "mamba2"}, (), 'the layers of model_type "mamba2" are not known; known are llama, '),
    ({"model_type": "absent"}, (), 'member "model_type" is missing'),
    ({"hidden_size": "absent"}, (), 'member "hidden_size" is missing'),
    ({"vocab_size": 0}, (), 'member "vocab_size" is 0'),
    ({"num_attention_heads": "64"}, (), "num_attention_heads"),
    ({"num_hidden_layers": 10001}, (), '"num_hidden_layers" is above 10000'),
    ({"num_key_value_heads": 6}, ("--tp", "8"), "6 heads of keys and values"),
    ({}, ("--tp", "3"), '"num_attention_heads" is 64, which --tp 3 does not divide'),
    ({}, ("--tp", "0"), "--tp is integers from 1 to 1024"),
    ({}, ("--tp", "a"), "--tp is integers"),
    ({}, ("--tp", "8..1"), "it runs upwards"),
    ({}, ("--for", "block_fp8"), "give --tokens"),
    ({}, ("--for", "conv", "--tokens", "1"), '--for is block_fp8, aiter_gemm or fused_moe, not "conv"'),
])
def test_what_cannot_be_listed_is_refused_in_one_sentence(tmp_path, members, options, message):
    config = model_file(tmp_path, "llama-3-70b", **members)
    said = refused(config, *options)
    assert message in said and (options or str(config) in said)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    assert "is an object" in refused(tmp_path / "list.json")
    assert "absent" in refused(tmp_path / "absent")
    assert "name one config.json" in refused()
    assert "no layer of" in refused(MODELS / "llama-3-70b.json", "--for", "fused_moe", "--tokens", "1", code=1)


def test_keys_are_printed_for_submit_each_once():
    done = wavetune(None, "shapes", MODELS / "llama-3-70b.json", "--tp", "8", "--tokens", "1,16", "--for", "block_fp8")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"M": m, "N": n, "K": k} for n, k in ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)) for m in (1, 16)]
    moe = wavetune(None, "shapes", MODELS / "mixtral-8x7b.json", "--tp", "8,8", "--tokens", "1..2", "--for", "fused_moe", "--json")
    assert json.loads(moe.stdout) == [{"E": 8, "N": 1792, "K": 4096, "top_k": 2, "M": m, "gemm": gemm}
                                      for m in (1, 2) for gemm in ("up", "down")]


def test_a_layer_that_cannot_be_in_blocks_gets_no_key(tmp_path):
    config = model_file(tmp_path, "llama-3-70b", intermediate_size=28672 + 64 * 8)
    done = wavetune(None, "shapes", config, "--tp", "8", "--tokens", "1", "--for", "block_fp8")
    assert len(done.stdout.splitlines()) == 2
    assert "gate_up_proj at --tp 8 is left out: Weight output_partition_size = 3648" in done.stderr and "lm_head" not in done.stderr


def test_the_table_for_people_has_the_tokens_as_they_were_given():
    done = wavetune(None, "shapes", MODELS / "mixtral-8x7b.json", "--tp", "8", "--tokens", "1..64*2")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["tp", "layer", "N", "K", "E", "top_k", "layers", "block", "fp8", "M"]
    assert rows[0].split() == ["8", "qkv_proj", "768", "4096", "32", "yes", "1..64*2"]
    assert shapes("mixtral-8x7b", "--tokens", "1..4*2")[0]["M"] == [1, 2, 4]
