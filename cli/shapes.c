/* wavetune shapes: which matrices vLLM and SGLang multiply for a model, from its config.json, and
 * the keys to tune them for.
 *
 * The layers, how tensor parallelism splits them, and what block-scaled fp8 refuses are those of
 * vLLM's model_executor/models and of validate_fp8_block_shape in its fp8_utils.py (0.33.0).
 *
 * Memory: rows are JSON of the command. Threads: one. */
#include "cli/cli.h"
#include "common/space/key.h"

#define CONFIG_FILE_MAX ((size_t)4 << 20)
#define MEMBER_MAX 100000000 /* products of three fit */
#define RANKS_MAX 1024
#define TOKENS_MAX 100000000
#define VOCABULARY_ALIGN 64 /* vLLM's DEFAULT_VOCAB_PADDING_SIZE */
#define BLOCK_DEFAULT 128
#define LAYERS_MAX 10000
#define NOT_QUANTIZED "it is not quantized"

/* How a layer's weight is split among the ranks of tensor parallelism. */
enum split { WHOLE, BY_ROWS /* N */, BY_COLUMNS /* K */ };

struct architecture {
  const char *model_type, *name;
  const char *experts, *intermediate, *shared; /* the members of its config.json; NULL: none */
  bool is_latent;                              /* MLA, and DeepSeek's way to name dense layers */
};
static const struct architecture architectures[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"mixtral", "MixtralForCausalLM", "num_local_experts", "intermediate_size"},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "num_experts", "moe_intermediate_size",
     "shared_expert_intermediate_size"},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "num_experts", "moe_intermediate_size",
     "shared_expert_intermediate_size"},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "n_routed_experts", "moe_intermediate_size",
     "n_shared_experts", true},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts", "moe_intermediate_size",
     "n_shared_experts", true},
};

struct model {
  const char *file;
  json_t *config;
  const struct architecture *architecture;
  int64_t block[2], hidden;
  int64_t tp, ep, more_experts;
  json_t *rows;
};

/* Members of config.json */

static int64_t number_or(const struct model *model, const char *name, int64_t otherwise) {
  struct error error;
  if (!json_get_integer(model->config, "", name, otherwise < 0 ? JSON_REQUIRED : JSON_OPTIONAL, 0,
                        MEMBER_MAX, &otherwise, &error))
    cli_fail_in(EXIT_USAGE, &error, "%s: ", model->file);
  return otherwise;
}

static int64_t number_of(const struct model *model, const char *name) {
  int64_t number = number_or(model, name, -1);
  if (!number)
    cli_refuse(EXIT_USAGE, "%s: member \"%s\" is 0", model->file, name);
  return number;
}

/* The part of one of `n` ranks. */
static int64_t part_of(const struct model *model, const char *name, int64_t number, int64_t n,
                       const char *option) {
  if (number % n)
    cli_refuse(EXIT_USAGE, "%s: \"%s\" is %lld, which %s %lld does not divide", model->file, name,
               (long long)number, option, (long long)n);
  return number / n;
}

static int64_t split(const struct model *model, const char *name, int64_t number) {
  return part_of(model, name, number, model->tp, "--tp");
}

static const struct architecture *architecture_find(const struct model *model) {
  const char *type = json_text(model->config, "model_type");
  const json_t *names = json_object_get(model->config, "architectures");
  cleanup_json json_t *known = json_array();
  list_foreach (one, architectures) {
    json_push(known, json_string(one->model_type));
    if (string_equal(type, one->model_type))
      return one;
    json_elements (names, i, name)
      if (string_equal(json_string_value(name), one->name))
        return one;
  }

  cleanup_free char *list = json_texts_join(known, ", ");
  if (!type)
    cli_refuse(EXIT_USAGE, "%s: member \"model_type\" is missing; known are %s", model->file, list);
  cli_refuse(EXIT_USAGE, "%s: the layers of model_type \"%.60s\" are not known; known are %s",
             model->file, type, list);
}

/* Rows */

/* Adds a row; `why` is the reason why there is no table for block-scaled fp8, or NULL. Takes both.
 */
static void row_add(struct model *model, json_t *row, int64_t layers, char *why) {
  json_put(row, "tp", json_integer(model->tp));
  if (layers)
    json_put(row, "layers", json_integer(layers));
  json_put(row, "block_fp8", json_boolean(!why));
  if (why)
    json_put(row, "why", json_string(why));
  free(why);
  json_push(model->rows, row);
}

#define PARTS_MAX 3
struct linear {
  const char *prefix, *name;
  int64_t parts[PARTS_MAX]; /* of N, of one rank; 0: no more */
  int64_t k;
  enum split split;
  bool is_plain; /* not quantized */
};

/* Why the weight cannot be in blocks, as vLLM says it; NULL: it can. */
static char *block_refusal(const struct model *model, const struct linear *linear) {
  bool is_split = model->tp > 1 && linear->split == BY_ROWS, is_merged = linear->parts[1] > 0;
  if (linear->is_plain)
    return xstrdup(NOT_QUANTIZED);
  if (model->tp > 1 && linear->split == BY_COLUMNS && linear->k % model->block[1])
    return xasprintf("Weight input_size_per_partition = %lld is not divisible by weight "
                     "quantization block_k = %lld.",
                     (long long)linear->k, (long long)model->block[1]);

  for (size_t i = 0; i < PARTS_MAX && linear->parts[i]; i++) {
    bool is_last = i + 1 == PARTS_MAX || !linear->parts[i + 1];
    /* Of a merged weight that is not split the last part may end within a block. */
    if ((is_split || (is_merged && !is_last)) && linear->parts[i] % model->block[0])
      return xasprintf("Weight output_partition_size = %lld is not divisible by weight "
                       "quantization block_n = %lld.",
                       (long long)linear->parts[i], (long long)model->block[0]);
  }
  return NULL;
}

static void linear_add(struct model *model, int64_t layers, struct linear linear) {
  int64_t n = 0;
  for (size_t i = 0; i < PARTS_MAX; i++)
    n += linear.parts[i];
  cleanup_free char *name = xasprintf("%s%s", linear.prefix ? linear.prefix : "", linear.name);
  row_add(
      model,
      json_pack("{s:s, s:I, s:I}", "layer", name, "N", (json_int_t)n, "K", (json_int_t)linear.k),
      layers, block_refusal(model, &linear));
}

/* A gated MLP: gate and up are one weight. */
static void mlp_add(struct model *model, const char *prefix, const char *member,
                    int64_t intermediate, int64_t layers) {
  int64_t part = split(model, member, intermediate);
  linear_add(model, layers,
             (struct linear){prefix, "gate_up_proj", {part, part}, model->hidden, BY_ROWS});
  linear_add(model, layers,
             (struct linear){prefix, "down_proj", {model->hidden}, part, BY_COLUMNS});
}

/* Each rank has at least one head of keys and values. */
static void attention_add(struct model *model, int64_t layers) {
  int64_t heads = number_of(model, "num_attention_heads"),
          kv = number_or(model, "num_key_value_heads", heads),
          head = number_or(model, "head_dim", model->hidden / heads),
          of_rank = split(model, "num_attention_heads", heads) * head;
  int64_t kv_of_rank = kv < model->tp ? 1 : split(model, "num_key_value_heads", kv);
  if (kv < 1 || head < 1 || (kv < model->tp && model->tp % kv))
    cli_refuse(EXIT_USAGE,
               "%s: %lld heads of keys and values, of %lld elements each, cannot be shared by "
               "--tp %lld",
               model->file, (long long)kv, (long long)head, (long long)model->tp);
  kv_of_rank *= head;
  linear_add(model, layers,
             (struct linear){.name = "qkv_proj",
                             .parts = {of_rank, kv_of_rank, kv_of_rank},
                             .k = model->hidden,
                             .split = BY_ROWS});
  linear_add(model, layers,
             (struct linear){
                 .name = "o_proj", .parts = {model->hidden}, .k = of_rank, .split = BY_COLUMNS});
}

static void latent_attention_add(struct model *model, int64_t layers) {
  int64_t heads = split(model, "num_attention_heads", number_of(model, "num_attention_heads")),
          nope = number_of(model, "qk_nope_head_dim"), rope = number_of(model, "qk_rope_head_dim"),
          v = number_of(model, "v_head_dim"), kv_rank = number_of(model, "kv_lora_rank"),
          q_rank = number_or(model, "q_lora_rank", 0), hidden = model->hidden;
  if (q_rank) {
    linear_add(model, layers,
               (struct linear){
                   .name = "fused_qkv_a_proj", .parts = {q_rank, kv_rank + rope}, .k = hidden});
    linear_add(
        model, layers,
        (struct linear){
            .name = "q_b_proj", .parts = {heads * (nope + rope)}, .k = q_rank, .split = BY_ROWS});
  } else {
    linear_add(
        model, layers,
        (struct linear){
            .name = "q_proj", .parts = {heads * (nope + rope)}, .k = hidden, .split = BY_ROWS});
    linear_add(
        model, layers,
        (struct linear){.name = "kv_a_proj_with_mqa", .parts = {kv_rank + rope}, .k = hidden});
  }
  linear_add(
      model, layers,
      (struct linear){
          .name = "kv_b_proj", .parts = {heads * (nope + v)}, .k = kv_rank, .split = BY_ROWS});
  linear_add(
      model, layers,
      (struct linear){.name = "o_proj", .parts = {hidden}, .k = heads * v, .split = BY_COLUMNS});
}

/* The member that has the number of experts: transformers 5 renames that of Qwen's. */
static const char *experts_member(const struct model *model) {
  const char *name = model->architecture->experts, *other = "num_local_experts";
  return !json_object_get(model->config, name) && json_object_get(model->config, other) ? other
                                                                                        : name;
}

/* The experts of one rank: all of them with a part of each, or with --ep a part of them, whole. */
static void experts_add(struct model *model, int64_t layers) {
  const struct architecture *architecture = model->architecture;
  const char *member = experts_member(model);
  int64_t experts = number_of(model, member), top_k = number_of(model, "num_experts_per_tok"),
          intermediate = number_of(model, architecture->intermediate),
          n = model->ep > 1 ? intermediate : split(model, architecture->intermediate, intermediate);
  char *why = NULL;
  if (n % model->block[0])
    why = xasprintf("The output_size of gate's and up's weight = %lld is not divisible by weight "
                    "quantization block_n = %lld.",
                    (long long)n, (long long)model->block[0]);
  else if (model->tp > 1 && n % model->block[1])
    why = xasprintf("The input_size of down's weight = %lld is not divisible by weight "
                    "quantization block_k = %lld.",
                    (long long)n, (long long)model->block[1]);

  linear_add(model, layers,
             (struct linear){"mlp.", "gate", {experts}, model->hidden, .is_plain = true});
  json_int_t of_rank = part_of(model, member, experts + model->more_experts, model->ep, "--ep");
  row_add(model,
          json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "layer", "experts", "ep",
                    (json_int_t)model->ep, "E", of_rank, "N", (json_int_t)n, "K",
                    (json_int_t)model->hidden, "top_k", (json_int_t)top_k),
          layers, why);
}

/* How many of `layers` layers have experts. */
static int64_t layers_with_experts(const struct model *model, int64_t layers) {
  int64_t n = 0, first = 0, every = 1;
  const json_t *dense = json_object_get(model->config, "mlp_only_layers");
  if (!model->architecture->experts)
    return 0;
  if (model->architecture->is_latent) {
    first = number_or(model, "first_k_dense_replace", 0);
    every = number_or(model, "moe_layer_freq", 1);
  } else if (model->architecture->shared) {
    every = number_or(model, "decoder_sparse_step", 1);
  }

  for (int64_t i = 0; i < layers && every > 0; i++) {
    bool is_dense = i < first || (model->architecture->is_latent ? i : i + 1) % every != 0;
    json_elements (dense, j, layer)
      is_dense |= json_is_integer(layer) && json_integer_value(layer) == i;
    n += !is_dense;
  }
  return n;
}

/* Adds the layers of the model for one number of ranks. */
static void model_add(struct model *model, int64_t tp) {
  const struct architecture *architecture = model->architecture;
  int64_t layers = number_of(model, "num_hidden_layers");
  if (layers > LAYERS_MAX)
    cli_refuse(EXIT_USAGE, "%s: \"num_hidden_layers\" is above %d", model->file, LAYERS_MAX);
  int64_t sparse = layers_with_experts(model, layers);
  model->tp = tp;
  model->hidden = number_of(model, "hidden_size");
  if (architecture->is_latent)
    latent_attention_add(model, layers);
  else
    attention_add(model, layers);

  if (sparse < layers)
    mlp_add(model, "", "intermediate_size", number_of(model, "intermediate_size"), layers - sparse);
  if (sparse) {
    int64_t shared = architecture->shared ? number_or(model, architecture->shared, 0) : 0;
    experts_add(model, sparse);
    if (shared && architecture->is_latent)
      shared *= number_of(model, architecture->intermediate);
    if (shared)
      mlp_add(model, architecture->is_latent ? "shared_experts." : "shared_expert.",
              architecture->shared, shared, sparse);
    if (shared && !architecture->is_latent)
      linear_add(
          model, sparse,
          (struct linear){"mlp.", "shared_expert_gate", {1}, model->hidden, .is_plain = true});
  }

  int64_t vocabulary = number_of(model, "vocab_size");
  vocabulary += (VOCABULARY_ALIGN - vocabulary % VOCABULARY_ALIGN) % VOCABULARY_ALIGN;
  linear_add(model, 1,
             (struct linear){.name = "lm_head",
                             .parts = {split(model, "vocab_size", vocabulary)},
                             .k = model->hidden,
                             .split = BY_ROWS,
                             .is_plain = true});
}

/* Printing */

/* The integers of an option that is written as a member of a key: 1,2,4 or 1..4096*2; NULL: not
 * given. */
static json_t *numbers_of_option(const struct options *options, const char *option, int64_t max) {
  const char *text = option_text(options, option);
  cleanup_key_list struct key_list list = {0};
  struct error error;
  if (!text)
    return NULL;
  cleanup_free char *member = xasprintf("%s=%s", option, text);
  if (!key_list_add(&list, member, &option, 1, &error))
    cli_fail(EXIT_USAGE, &error);

  json_t *numbers = json_array();
  array_foreach (key, list.keys, list.n) {
    struct value value = key->values[0];
    if (value.type != VALUE_INT || value.integer < 1 || value.integer > max)
      cli_refuse(EXIT_USAGE,
                 "--%s is integers from 1 to %lld, as 1,2,4 or 1..4096*2, not \"%.60s\"", option,
                 (long long)max, text);
    json_push(numbers, json_integer(value.integer));
  }
  return numbers;
}

/* The keys of a family of tables (kernels/tables) for the rows that have one, each once. */
static json_t *family_keys(const json_t *rows, const char *family, const json_t *tokens) {
  bool is_moe = string_equal(family, "fused_moe");
  cleanup_json json_t *seen = json_object();
  json_t *keys = json_array();
  if (!is_moe && !string_equal(family, "block_fp8") && !string_equal(family, "aiter_gemm"))
    cli_refuse(EXIT_USAGE, "--for is block_fp8, aiter_gemm or fused_moe, not \"%.60s\"", family);

  json_elements (rows, i, row) {
    const json_t *experts = json_object_get(row, "E");
    if (is_moe != (experts != NULL))
      continue;
    const char *why = is_moe ? NULL : json_text(row, "why");
    if (why && !string_equal(why, NOT_QUANTIZED))
      fprintf(stderr, "wavetune: %s at --tp %lld is left out: %s\n", cli_member(row, "layer"),
              cli_integer(row, "tp"), why);
    if (why)
      continue;
    json_elements (tokens, j, m)
      for (int down = 0; down <= is_moe; down++) {
        json_t *n = json_object_get(row, "N"), *k = json_object_get(row, "K");
        json_t *key = is_moe ? json_pack("{s:O, s:O, s:O, s:O, s:O, s:s}", "E", experts, "N", n,
                                         "K", k, "top_k", json_object_get(row, "top_k"), "M", m,
                                         "gemm", down ? "down" : "up")
                             : json_pack("{s:O, s:O, s:O}", "M", m, "N", n, "K", k);
        cleanup_free char *text = json_canonical(key);
        if (set_add(seen, text))
          json_push(keys, key);
        else
          json_decref(key);
      }
  }
  return keys;
}

static char *format_refusal(const json_t *why) {
  return xstrdup(why ? json_string_value(why) : "yes");
}

static int command_shapes(struct options *options) {
  static const struct cli_column columns[] = {{"tp", "tp", true},
                                              {"layer"},
                                              {"N", "N", true},
                                              {"K", "K", true},
                                              {"E", "E", true},
                                              {"top_k", "top_k", true},
                                              {"layers", "layers", true},
                                              {"block fp8", "why", false, format_refusal},
                                              {"M", "tokens"}};
  char *const *file = cli_arguments(options, 1, "name one config.json of a model");
  const char *family = option_text(options, "for"), *text = option_text(options, "tokens");
  cleanup_json json_t *config = NULL, *rows = json_array(),
                      *ranks = numbers_of_option(options, "tp", RANKS_MAX),
                      *tokens = numbers_of_option(options, "tokens", TOKENS_MAX);
  struct error error;
  if (!json_parse_file(*file, CONFIG_FILE_MAX, &config, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!json_is_object(config))
    cli_refuse(EXIT_USAGE, "%s: a model's configuration is an object", *file);
  if (family && !tokens)
    cli_refuse(EXIT_USAGE, "--for makes keys, which have M: give --tokens, for example 1..4096*2");

  const json_t *block =
      json_object_get(json_object_get(config, "quantization_config"), "weight_block_size");
  struct model model = {.file = *file,
                        .config = config,
                        .ep = option_integer(options, "ep"),
                        .more_experts = option_integer(options, "more-experts"),
                        .rows = rows};
  for (size_t i = 0; i < 2; i++) {
    json_int_t size = json_integer_value(json_array_get(block, i));
    model.block[i] = size > 0 ? size : BLOCK_DEFAULT;
  }
  model.architecture = architecture_find(&model);
  json_elements (ranks, i, tp)
    model_add(&model, json_integer_value(tp));

  bool as_json = option_flag(options, "json");
  if (family) {
    cleanup_json json_t *keys = family_keys(rows, family, tokens);
    if (!json_array_size(keys))
      cli_refuse(EXIT_FAILED, "no layer of %s has a table of %s", *file, family);
    json_elements (keys, i, key)
      if (!as_json) {
        json_dumpf(key, stdout, JSON_COMPACT);
        putchar('\n');
      }
    if (as_json)
      cli_print_json(keys);
    return EXIT_OK;
  }

  json_elements (rows, i, row) {
    if (tokens && as_json)
      json_object_set(row, "M", tokens);
    else if (tokens)
      json_put(row, "tokens", json_string(text));
  }
  if (as_json)
    cli_print_json(rows);
  else
    cli_print_table_of(rows, columns, ARRAY_LENGTH(columns) - !tokens);
  return EXIT_OK;
}

static const struct option_spec shapes_options[] = {
    CLI_TEXT("tp", "N,…", "ranks of tensor parallelism", .default_text = "1"),
    CLI_INTEGER("ep", "N", "1", 1, RANKS_MAX,
                "ranks of expert parallelism: each has a part of the experts, whole"),
    CLI_INTEGER("more-experts", "N", "0", 0, 100000,
                "experts beside those of the file: redundant ones, and shared ones that are fused"),
    CLI_TEXT("tokens", "M,…|M..M*2", "numbers of tokens of a step, as in a key"),
    CLI_TEXT("for", "FAMILY",
             "print the keys of block_fp8, aiter_gemm or fused_moe (kernels/tables), one on each "
             "line, for "
             "`submit --keys -`"),
    OPTION_JSON,
};

CLI_COMMAND(
    shapes, "shapes", "CONFIG.json", shapes_options,
    "list the matrices that vLLM and SGLang multiply for a model",
    .description =
        "Reads the configuration of Llama, Mistral, Qwen2, Qwen3, Mixtral, Qwen-MoE and DeepSeek "
        "models as transformers writes it. A linear layer multiplies (M, K) by (K, N), where M is "
        "the number of tokens of a step (of lm_head: of sequences); experts multiply (M * top_k, "
        "K) "
        "by (K, 2N), then (M * top_k, N) by (N, K). N and K are those of one rank. \"block fp8\" "
        "is "
        "whether the weight can be in blocks of the file's weight_block_size, else of 128 x 128, "
        "or "
        "what vLLM says. Redundant experts, and shared ones that are fused, are not in the file.");
