/* The kinds of tables of vLLM, SGLang and AITER, and the paths and rows that they have; tables.h.
 */
#include <regex.h>

#include "common/cache/text.h"
#include "common/formats/table_exports.h"

#define FILE_NAME_SIZE_MAX 1024
#define TOKENS_MAX 16
#define CONFIG_MEMBERS_MAX 64

#define NUMBER(name) {#name, TABLE_NUMBER, TABLE_REQUIRED, NULL}
#define ROW(name) {#name, TABLE_NUMBER, TABLE_ROW, NULL}
#define BOUND_ROW {"M", TABLE_BOUND, TABLE_ROW, NULL}
#define MAYBE_NUMBER(name) {#name, TABLE_NUMBER, TABLE_OPTIONAL, NULL}
#define TEXT(name, pattern) {#name, TABLE_TEXT, TABLE_REQUIRED, pattern}
#define MAYBE_TEXT(name) {#name, TABLE_TEXT, TABLE_OPTIONAL, NULL}
#define BLOCKS(separator, use) {"block_shape", TABLE_BLOCK_SHAPE, use, separator}
#define FLAG(name, text) {#name, TABLE_FLAG, TABLE_OPTIONAL, text}

#define BLOCK_SIZES "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"
#define EXPERTS_PATH "E={E},N={N},device_name={device}[,dtype={dtype}][,block_shape={block_shape}]"
#define W8A8_PATH "N={N},K={K},device_name={device},dtype={dtype},block_shape={block_shape}"
#define AITER_SHAPE "[-B={B}][-N={N}-K={K}]"
#define AITER_NAME "[A-Za-z0-9_-]+"

static const struct table_kind vllm_moe = {
    .name = "vllm-moe",
    .kernel = "vllm-moe/fused_moe",
    .path = EXPERTS_PATH,
    .prefix = "E=",
    .example = "E=128,N=384,device_name=AMD_Instinct_MI300X.json, with dtype=, block_shape= after "
               "the device in this order",
    .device = TABLE_DEVICE_VLLM_MOE,
    .may_state_triton = true,
    .n_members = 5,
    .members = {NUMBER(E), NUMBER(N), MAYBE_TEXT(dtype), BLOCKS(",", TABLE_OPTIONAL), ROW(M)},
    .needed = {BLOCK_SIZES, "GROUP_SIZE_M"},
};
/* Of vLLM's package only. */
static const struct table_kind vllm_flydsl = {
    .name = "vllm-flydsl",
    .kernel = "vllm-moe/flydsl_moe",
    .path = "E={E},N={N},device_name={device},dtype=int4_w4a16,backend=flydsl",
    .prefix = "E=",
    .device = TABLE_DEVICE_VLLM,
    .n_members = 3,
    .members = {NUMBER(E), NUMBER(N), ROW(M)},
    .needed = {"tile_m", "tile_n", "tile_k", "tile_n2", "tile_k2"},
};
/* Mamba's state update, in it a config for each batch * heads. The kernel sees the width of the
 * state's elements only, so vLLM has one table for both dtypes of 16 bits. */
static const struct table_kind vllm_ssm = {
    .name = "vllm-ssm",
    .kernel = "vllm-moe/selective_state_update",
    .path = "headdim={headdim},dstate={dstate},device_name={device},cache_dtype={cache_dtype}",
    .prefix = "headdim=",
    .example = "headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float16.json",
    .device = TABLE_DEVICE_VLLM,
    .may_state_triton = true,
    .twins = {"bfloat16", "float16"},
    .n_members = 4,
    .members = {NUMBER(headdim), NUMBER(dstate), TEXT(cache_dtype, NULL), ROW(batch)},
    .needed = {"BLOCK_SIZE_M", "num_warps"},
};
#define LORA_ROWS ROW(max_loras), ROW(num_slices), ROW(m), ROW(k), ROW(n)
#define LORA_NEEDED "block_m", "block_n", "block_k", "num_warps", "num_stages"
static const struct table_kind vllm_lora_moe = {
    .name = "vllm-lora-moe",
    .kernel = "vllm-moe/fused_moe_lora",
    .path = "{device}_{op}",
    .device = TABLE_DEVICE_LORA,
    .n_members = 7,
    .members = {TEXT(op, "FUSED_MOE_LORA_W[0-9]+_SHRINK|FUSED_MOE_LORA_W[0-9]+_EXPAND"), LORA_ROWS,
                ROW(i)},
    .needed = {LORA_NEEDED},
};
static const struct table_kind vllm_lora = {
    .name = "vllm-lora",
    .kernel = "vllm-moe/lora",
    .path = "{device}_{op}",
    .device = TABLE_DEVICE_LORA,
    .n_members = 6,
    .members = {TEXT(op, "SHRINK|EXPAND_TRUE|EXPAND_FALSE"), LORA_ROWS},
    .needed = {LORA_NEEDED},
};
static const struct table_kind vllm_w8a8 = {
    .name = "vllm-w8a8",
    .kernel = "vllm-w8a8/block_scaled_mm",
    .path = W8A8_PATH,
    .prefix = "N=",
    .example = "N=7168,K=2048,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,"
               "block_shape=[128,128].json",
    .device = TABLE_DEVICE_VLLM,
    .n_members = 5,
    .members = {NUMBER(N), NUMBER(K), TEXT(dtype, NULL), BLOCKS(",", TABLE_REQUIRED), ROW(M)},
    .needed = {BLOCK_SIZES, "GROUP_SIZE_M"},
};
static const struct table_kind sglang_moe = {
    .name = "sglang-moe",
    .kernel = "sglang-moe/fused_moe",
    .below = "configs/",
    .path = "triton_{triton}/" EXPERTS_PATH,
    .prefix = "E=",
    .example = "triton_3_4_0/E=128,N=384,device_name=AMD_Instinct_MI300X.json, with dtype=, "
               "block_shape= and per_channel_quant=True after the device in this order",
    .device = TABLE_DEVICE_TORCH,
    .n_members = 7,
    .members = {NUMBER(E), NUMBER(N), MAYBE_TEXT(dtype), BLOCKS(", ", TABLE_OPTIONAL),
                FLAG(per_channel_quant, ",per_channel_quant=True"), FLAG(down, "_down"), ROW(M)},
    .needed = {BLOCK_SIZES, "GROUP_SIZE_M"},
};
static const struct table_kind sglang_w8a8 = {
    .name = "sglang-w8a8",
    .kernel = "sglang-w8a8/block_scaled_mm",
    .path = W8A8_PATH,
    .prefix = "N=",
    .example = "N=4096,K=512,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,"
               "block_shape=[128, 128].json",
    .device = TABLE_DEVICE_TORCH,
    .n_members = 5,
    .members = {NUMBER(N), NUMBER(K), TEXT(dtype, NULL), BLOCKS(", ", TABLE_REQUIRED), ROW(M)},
    .needed = {BLOCK_SIZES, "GROUP_SIZE_M"},
};
/* SGLang's GEMM with a scale for each token and channel. Where CUTLASS was faster, a row is null:
 * such a table is refused, because without that row a neighbour's would be taken. */
static const struct table_kind sglang_w8a8_channelwise = {
    .name = "sglang-w8a8-channelwise",
    .kernel = "sglang-w8a8/channelwise_scaled_mm",
    .path = "N={N},K={K},device_name={device},dtype=fp8_w8a8_channelwise",
    .prefix = "N=",
    .device = TABLE_DEVICE_TORCH,
    .n_members = 3,
    .members = {NUMBER(N), NUMBER(K), ROW(M)},
    .needed = {BLOCK_SIZES},
};
/* AITER's, which it finds by the arch alone. */
#define AITER_ROWS MAYBE_NUMBER(B), MAYBE_NUMBER(N), MAYBE_NUMBER(K), BOUND_ROW
static const struct table_kind aiter_triton = {
    .name = "aiter-triton",
    .kernel = "aiter-triton/gemm",
    .below = "gemm/",
    .path = "{arch}-{name}" AITER_SHAPE,
    .prefix = "gfx",
    .example = "gfx942-GEMM-A8W8_BLOCKSCALE-N=7168-K=2048.json",
    .device = TABLE_DEVICE_ARCH,
    .n_members = 5,
    .members = {TEXT(name, AITER_NAME), AITER_ROWS},
    .needed = {"BLOCK_SIZE_M", "BLOCK_SIZE_N"},
};
static const struct table_kind aiter_triton_moe = {
    .name = "aiter-triton-moe",
    .kernel = "aiter-triton/moe",
    .below = "moe/",
    .path = "{arch}-{name}",
    .prefix = "gfx",
    .device = TABLE_DEVICE_ARCH,
    .n_members = 2,
    .members = {TEXT(name, "MOE-" AITER_NAME), BOUND_ROW},
    .needed = {"BLOCK_SIZE_M", "BLOCK_SIZE_N"},
};
/* Two GEMMs in one, whose shapes are a part of the name: "-N8=512-N16=256-K=7168". */
static const struct table_kind aiter_triton_fused = {
    .name = "aiter-triton-fused",
    .kernel = "aiter-triton/fused_gemm",
    .below = "gemm/",
    .path = "{arch}-{name}",
    .prefix = "gfx",
    .device = TABLE_DEVICE_ARCH,
    .n_members = 2,
    .members = {TEXT(name, AITER_NAME "-N[0-9]+=[A-Za-z0-9_=-]+"), BOUND_ROW},
    .needed = {"BLOCK_SIZE_M", "BLOCK_SIZE_N"},
};
static const struct table_kind aiter_triton_folder = {
    .name = "aiter-triton-folder",
    .kernel = "aiter-triton/gemm_of_folder",
    .path = "{arch}/{language}/gemm/{folder}/{name}" AITER_SHAPE,
    .device = TABLE_DEVICE_ARCH,
    .n_members = 7,
    .members = {TEXT(language, "triton|gluon"), TEXT(folder, "[a-z0-9_]+"), TEXT(name, AITER_NAME),
                AITER_ROWS},
    .needed = {"BLOCK_SIZE_M", "BLOCK_SIZE_N"},
};

#define VLLM_AITER {"VLLM_ROCM_USE_AITER", NULL, true}
#define SGLANG_AITER {"SGLANG_USE_AITER", NULL, true}
const struct table_family tables_vllm_moe = {
    "vllm-moe",
    "VLLM_TUNED_CONFIG_FOLDER",
    {&vllm_moe, &vllm_flydsl, &vllm_ssm, &vllm_lora, &vllm_lora_moe},
    {{"VLLM_BATCH_INVARIANT", NULL, false}, VLLM_AITER}};
const struct table_family tables_vllm_w8a8 = {"vllm-w8a8", NULL, {&vllm_w8a8}, {VLLM_AITER}};
const struct table_family tables_sglang_moe = {
    "sglang-moe", "SGLANG_MOE_CONFIG_DIR", {&sglang_moe}, {SGLANG_AITER}};
const struct table_family tables_sglang_w8a8 = {
    "sglang-w8a8", NULL, {&sglang_w8a8, &sglang_w8a8_channelwise}, {SGLANG_AITER}};
const struct table_family tables_aiter_triton = {
    "aiter-triton",
    NULL,
    {&aiter_triton, &aiter_triton_moe, &aiter_triton_fused, &aiter_triton_folder},
    {{0}}};

const struct table_family *table_family_find(const char *kind, const struct table_kind **ret_kind) {
  static const struct table_family *const families[] = {&tables_vllm_moe, &tables_vllm_w8a8,
                                                        &tables_sglang_moe, &tables_sglang_w8a8,
                                                        &tables_aiter_triton};
  list_foreach (family, families)
    for (size_t i = 0; i < TABLE_KINDS_MAX && (*family)->kinds[i]; i++)
      if (string_equal((*family)->kinds[i]->name, kind)) {
        *ret_kind = (*family)->kinds[i];
        return *family;
      }
  return NULL;
}

void table_switches_add(const struct table_family *family, bool is_rocm, json_t *switches) {
  array_foreach (one, family->switches, TABLE_SWITCHES_MAX)
    if (one->variable && (is_rocm || !one->is_rocm))
      json_put(switches, one->variable, one->value ? json_string(one->value) : json_null());
}

void table_place_release(struct table_place *place) {
  free(place->device);
  free(place->triton);
  free(place->arch);
}

/* What is between braces in a template: a member or, NULL, a part of the place. */
struct token {
  const struct table_member *member;
  char **part;
  size_t group; /* of the regular expression */
};

static struct token token_find(const struct table_kind *kind, struct table_place *place,
                               const char *name, size_t size) {
  const struct {
    const char *name;
    char **part;
  } parts[] = {{"device", &place->device}, {"triton", &place->triton}, {"arch", &place->arch}};
  for (size_t i = 0; i < kind->n_members; i++)
    if (strlen(kind->members[i].name) == size && memcmp(kind->members[i].name, name, size) == 0)
      return (struct token){.member = &kind->members[i]};
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
    if (strlen(parts[i].name) == size && memcmp(parts[i].name, name, size) == 0)
      return (struct token){.part = parts[i].part};
  die("%s: a path with {%s", kind->name, name);
}

/* Writing paths */

static bool member_write(struct text *text, const struct table_kind *kind,
                         const struct table_member *member, const json_t *row,
                         struct error *error) {
  const json_t *value = json_object_get(row, member->name);
  const char *string = json_string_value(value);
  char number[96];
  long long shape[2];
  if (json_is_null(value))
    return error_set(error, "%s is None for this key, and the table's name has it", member->name);

  snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
  if (table_block_shape(string, shape))
    snprintf(number, sizeof number, "[%lld%s%lld]", shape[0], member->pattern, shape[1]);
  if (kind->twins[0] && string_equal(string, kind->twins[0]))
    string = kind->twins[1];
  text_add_string(text, member->value == TABLE_TEXT ? string : number);
  return true;
}

bool table_path_make(const struct table_kind *kind, const struct table_place *place,
                     const json_t *row, char **ret_path, struct error *error) {
  struct table_place parts = *place;
  cleanup_text struct text text = {0};
  text_add_string(&text, kind->below ? kind->below : "");

  for (const char *c = kind->path; *c; c++) {
    const char *brace = *c == '[' ? strchr(c, '{') : c;
    if (*c == ']')
      continue;
    if (*brace != '{') {
      text_add(&text, c, 1);
      continue;
    }
    size_t size = strcspn(brace + 1, "}");
    struct token token = token_find(kind, &parts, brace + 1, size);
    if (*c == '[') {
      if (token.member && json_is_null(json_object_get(row, token.member->name)))
        c = strchr(c, ']');
      continue;
    }
    if (token.part)
      text_add_string(&text, *token.part);
    else if (!member_write(&text, kind, token.member, row, error))
      return false;
    c = brace + 1 + size;
  }

  for (size_t i = 0; i < kind->n_members; i++)
    if (kind->members[i].value == TABLE_FLAG && json_flag(row, kind->members[i].name))
      text_add_string(&text, kind->members[i].pattern);
  text_add_string(&text, ".json");
  size_t size;
  *ret_path = text_finish(&text, &size);
  return true;
}

/* Reading paths */

/* The template as a regular expression; the tokens have their groups. */
static char *pattern_make(const struct table_kind *kind, struct table_place *place,
                          struct token tokens[TOKENS_MAX], size_t *ret_n) {
  static const char *const patterns[] = {[TABLE_NUMBER] = "[1-9][0-9]*",
                                         [TABLE_TEXT] = "[A-Za-z0-9_.-]+",
                                         [TABLE_BLOCK_SHAPE] = "\\[[0-9, ]+\\]"};
  cleanup_text struct text text = {0};
  size_t n_groups = 0, n = 0, size;
  text_add_string(&text, "^");

  for (const char *c = kind->path; *c; c++) {
    if (*c == '[') {
      text_add_string(&text, "(");
      n_groups++;
    } else if (*c == ']') {
      text_add_string(&text, ")?");
    } else if (*c != '{') {
      text_add(&text, c, 1);
    } else {
      size = strcspn(++c, "}");
      ALWAYS(n < TOKENS_MAX);
      tokens[n] = token_find(kind, place, c, size);
      tokens[n].group = ++n_groups;
      const struct table_member *member = tokens[n].member;
      bool is_text = member && member->value == TABLE_TEXT && member->pattern;
      cleanup_free char *group =
          xasprintf("(%s)", is_text                            ? member->pattern
                            : member                           ? patterns[member->value]
                            : tokens[n].part == &place->device ? "[^,/]+"
                            : tokens[n].part == &place->triton ? "[0-9_]+"
                                                               : "gfx[0-9a-f]+");
      text_add_string(&text, group);
      n++;
      c += size;
    }
  }

  text_add_string(&text, "$");
  *ret_n = n;
  return text_finish(&text, &size);
}

/* The last parts of a path, as many as the template has; NULL: it has fewer. */
static const char *path_tail(const char *path, const char *template) {
  size_t left = 1;
  for (const char *c = template; *c; c++)
    left += *c == '/';
  for (const char *c = path + strlen(path); c > path; c--)
    if (c[-1] == '/' && !--left)
      return c;
  return left == 1 ? path : NULL;
}

/* What a group of a pattern matched; NULL: nothing. */
static char *group_text(const char *text, const regmatch_t *group) {
  size_t size = (size_t)(group->rm_eo - group->rm_so);
  return group->rm_so < 0 ? NULL : xstrndup(text + group->rm_so, size);
}

static bool member_read(const struct table_kind *kind, const struct table_member *member,
                        const char *text, json_t *row) {
  long long shape[2], number = text ? strtoll(text, NULL, 10) : 0;
  json_t *value = !text                           ? json_null()
                  : member->value == TABLE_NUMBER ? json_integer(number)
                                                  : json_string(text);
  bool ok = member->value == TABLE_NUMBER ? number <= TABLE_NUMBER_MAX
                                          : !text || !string_equal(text, kind->twins[0]);
  if (text && member->value == TABLE_BLOCK_SHAPE) {
    json_decref(value);
    ok = table_block_shape(text, shape);
    value = ok ? json_sprintf("[%lld,%lld]", shape[0], shape[1]) : json_null();
  }
  json_put(row, member->name, value);
  return ok;
}

static bool path_match(const struct table_kind *kind, const char *path, json_t *row,
                       struct table_place *place) {
  const char *tail = path_tail(path, kind->path);
  if (!tail || !string_ends(tail, ".json") || strlen(tail) > FILE_NAME_SIZE_MAX ||
      !json_can_hold(tail))
    return false;

  cleanup_free char *text = xstrndup(tail, strlen(tail) - strlen(".json"));
  for (size_t i = kind->n_members; i-- > 0;) {
    const struct table_member *member = &kind->members[i];
    if (member->value != TABLE_FLAG)
      continue;
    bool is_set = string_ends(text, member->pattern);
    json_put(row, member->name, json_boolean(is_set));
    if (is_set)
      text[strlen(text) - strlen(member->pattern)] = '\0';
  }

  struct token tokens[TOKENS_MAX];
  regmatch_t groups[TOKENS_MAX];
  size_t n_tokens;
  regex_t regex;
  cleanup_free char *pattern = pattern_make(kind, place, tokens, &n_tokens);
  ALWAYS(regcomp(&regex, pattern, REG_EXTENDED) == 0);
  bool ok = regexec(&regex, text, TOKENS_MAX, groups, 0) == 0;
  regfree(&regex);

  for (size_t i = 0; ok && i < n_tokens; i++) {
    cleanup_free char *found = group_text(text, &groups[tokens[i].group]);
    if (tokens[i].part) {
      *tokens[i].part = TAKE(found);
      continue;
    }
    ok = member_read(kind, tokens[i].member, found, row);
  }
  return ok;
}

const struct table_kind *table_kind_of_path(const struct table_family *family, const char *path) {
  for (size_t i = TABLE_KINDS_MAX; i-- > 0;) {
    cleanup_json json_t *row = json_object();
    cleanup_table_place struct table_place place = {0};
    if (family->kinds[i] && path_match(family->kinds[i], path, row, &place))
      return family->kinds[i];
  }
  return NULL;
}

/* The kind that the file's name promises; NULL: none. */
static const struct table_kind *kind_of_prefix(const struct table_family *family,
                                               const char *path) {
  for (size_t i = 0; i < TABLE_KINDS_MAX && family->kinds[i]; i++)
    if (family->kinds[i]->prefix && string_starts(path_name(path), family->kinds[i]->prefix))
      return family->kinds[i];
  return NULL;
}

bool table_family_has(const struct table_family *family, const char *path) {
  return kind_of_prefix(family, path) || table_kind_of_path(family, path);
}

bool table_path_parse(const struct table_family *family, const char *path,
                      const struct table_kind **ret_kind, json_t **ret_row,
                      struct table_place *ret_place, struct error *error) {
  const struct table_kind *kind = table_kind_of_path(family, path);
  if (!kind)
    return error_set(error, "\"%.200s\" is not a name like %s", path_name(path),
                     kind_of_prefix(family, path)->example);

  *ret_kind = kind;
  *ret_row = json_object();
  ALWAYS(path_match(kind, path, *ret_row, ret_place));
  if (ret_place->triton)
    text_replace(ret_place->triton, "_", '.');
  return true;
}

/* Rows */

static const char *const bound_words[] = {"small_M", "medium_M", "large_M"};
#define BOUND_GEQ (INT64_C(1) << 32)
#define BOUND_WORD (INT64_C(1) << 33)

/* Of 1 to 9 digits without zeros before them; -1: none. */
static int64_t plain_number(const char *text) {
  size_t size = strlen(text);
  bool is_number = size && size <= 9 && text[0] != '0' && strspn(text, "0123456789") == size;
  return is_number ? strtoll(text, NULL, 10) : -1;
}

int64_t table_row_number(const struct table_member *member, const char *text) {
  if (member->value != TABLE_BOUND)
    return plain_number(text);

  bool is_most = string_starts(text, "M_LEQ_"), is_least = string_starts(text, "M_GEQ_");
  if (is_most || is_least) {
    int64_t number = plain_number(text + strlen("M_LEQ_"));
    return number < 0 || is_most ? number : BOUND_GEQ + number;
  }

  for (size_t i = 0; i < ARRAY_LENGTH(bound_words); i++)
    if (string_equal(text, bound_words[i]))
      return BOUND_WORD + (int64_t)i;
  return string_equal(text, "any") ? TABLE_BOUND_ANY : -1;
}

const char *table_row_text(const struct table_member *member, int64_t number,
                           char text[TABLE_ROW_SIZE]) {
  if (member->value == TABLE_BOUND && number >= BOUND_WORD)
    return number == TABLE_BOUND_ANY ? "any" : bound_words[number - BOUND_WORD];
  bool is_least = number >= BOUND_GEQ;
  snprintf(text, TABLE_ROW_SIZE, "%s%lld",
           member->value != TABLE_BOUND ? ""
           : is_least                   ? "M_GEQ_"
                                        : "M_LEQ_",
           (long long)(is_least ? number - BOUND_GEQ : number));
  return text;
}

bool table_bound_is_read(int64_t m) {
  return m == 1 || (m >= 4 && m <= 8192 && (m & (m - 1)) == 0);
}

/* Configs */

json_t *table_config_ordered(const json_t *config) {
  static const char *const usual[] = {"BLOCK_SIZE_M",   "BLOCK_SIZE_N", "BLOCK_SIZE_K",
                                      "GROUP_SIZE_M",   "SPLIT_K",      "num_warps",
                                      "num_stages",     "waves_per_eu", "matrix_instr_nonkdim",
                                      "cache_modifier", "NUM_KSPLIT",   "kpack"};
  json_t *ordered = json_object();

  for (size_t i = 0; i < ARRAY_LENGTH(usual); i++) {
    json_t *value = json_object_get(config, usual[i]);
    if (value)
      json_object_set(ordered, usual[i], value);
  }

  json_object_update_missing(ordered, (json_t *)config);
  return ordered;
}

bool table_config_check(const struct table_kind *kind, const json_t *config, struct error *error) {
  if (!json_object_size(config) || json_object_size(config) > CONFIG_MEMBERS_MAX)
    return error_set(error, "a config must be an object of 1 to %d members", CONFIG_MEMBERS_MAX);

  json_members (config, name, value) {
    const char *at = POINTER_MEMBER("", name);
    if (!name[0] || strchr(name, ','))
      return error_at(error, at, "the name of a member must not be empty and have no comma");
    if (!json_is_integer(value) && !json_is_boolean(value) && !json_is_string(value) &&
        !json_is_null(value))
      return error_at(error, at, "a value must be an integer, a boolean, a text or null");
  }

  for (size_t i = 0; i < TABLE_NEEDED_MAX && kind->needed[i]; i++)
    if (!table_is_positive(json_object_get(config, kind->needed[i])))
      return error_set(error, "the config has no positive integer %s", kind->needed[i]);
  return true;
}
