/* The formats `vllm-moe` and `sglang-moe`: tables of the fused mixture-of-experts kernel, in
 * VLLM_TUNED_CONFIG_FOLDER, which vLLM searches first, and below SGLANG_MOE_CONFIG_DIR. Their
 * names, the order in them, and rendering.
 *
 * Memory and threads: moe.h. */
#include "common/formats/moe.h"

#include "common/cache/python_text.h"

/* Names */

void moe_name_release(struct moe_name *name) {
  free(name->device);
  free(name->dtype);
  *name = (struct moe_name){0};
}

/* A positive decimal number without leading zeros; returns what is behind it, NULL when there is
 * none. */
static const char *number_take(const char *at, int64_t *ret) {
  char *end;
  if (*at < '1' || *at > '9')
    return NULL;
  long long number = strtoll(at, &end, 10);
  if (number > MOE_NUMBER_MAX)
    return NULL;
  *ret = number;
  return end;
}

static const char *prefixed_number_take(const char *at, const char *prefix, int64_t *ret) {
  return at && string_starts(at, prefix) ? number_take(at + strlen(prefix), ret) : NULL;
}

/* "[128,128]", with one space or none; returns what is behind it. */
static const char *block_shape_take(const char *at, int64_t ret[2]) {
  at = *at == '[' ? number_take(at + 1, &ret[0]) : NULL;
  if (!at || *at != ',')
    return NULL;
  at = number_take(at + (at[1] == ' ' ? 2 : 1), &ret[1]);
  return at && *at == ']' ? at + 1 : NULL;
}

bool moe_block_shape_parse(const char *text, int64_t ret[2]) {
  const char *end = block_shape_take(text, ret);
  return end && !*end;
}

/* Text up to the next ",name=" or the end of the name. */
static const char *text_take(const char *at, const char *end, char **ret) {
  const char *behind = at;
  while (behind < end && *behind != ',')
    behind++;
  *ret = xstrndup(at, (size_t)(behind - at));
  return behind > at ? behind : NULL;
}

static const char *optional_take(const struct moe_dialect *dialect, const char *at, const char *end,
                                 struct moe_name *name) {
  static const char dtype[] = ",dtype=", block[] = ",block_shape=",
                    channel[] = ",per_channel_quant=True";
  if (at && string_starts(at, dtype))
    at = text_take(at + strlen(dtype), end, &name->dtype);
  if (at && string_starts(at, block)) {
    at = block_shape_take(at + strlen(block), name->block_shape);
    name->has_block_shape = true;
  }
  if (at && dialect->has_variants && string_starts(at, channel)) {
    at += strlen(channel);
    name->per_channel_quant = true;
  }
  return at;
}

bool moe_name_parse(const struct moe_dialect *dialect, const char *text, struct moe_name *ret,
                    struct error *error) {
  static const char device[] = ",device_name=", suffix[] = ".json", down[] = "_down";
  cleanup_moe_name struct moe_name name = {0};
  size_t size = strlen(text);
  const char *end = text + size - (size >= strlen(suffix) ? strlen(suffix) : 0);
  bool is_json = strcmp(end, suffix) == 0;
  if (is_json && dialect->has_variants && (size_t)(end - text) >= strlen(down) &&
      string_starts(end - strlen(down), down)) {
    end -= strlen(down);
    name.down = true;
  }
  const char *at = prefixed_number_take(text, "E=", &name.e);
  at = prefixed_number_take(at, ",N=", &name.n);
  at = at && string_starts(at, device) ? text_take(at + strlen(device), end, &name.device) : NULL;
  at = optional_take(dialect, at, end, &name);
  if (!is_json || at != end || !json_can_hold(text))
    return error_set(
        error,
        "\"%.200s\" is no name like E=128,N=384,device_name=AMD_Instinct_MI300X.json, with dtype=, "
        "block_shape=%s behind the device in this order",
        text, dialect->has_variants ? " and per_channel_quant=True" : "");
  *ret = name;
  name = (struct moe_name){0};
  return true;
}

static char *moe_name_format(const struct moe_dialect *dialect, const struct moe_name *name) {
  char block[96] = "";
  if (name->has_block_shape)
    snprintf(block, sizeof block, ",block_shape=[%lld%s%lld]", (long long)name->block_shape[0],
             dialect->separator, (long long)name->block_shape[1]);
  return xasprintf(
      "E=%lld,N=%lld,device_name=%s%s%s%s%s%s.json", (long long)name->e, (long long)name->n,
      name->device, name->dtype ? ",dtype=" : "", name->dtype ? name->dtype : "", block,
      name->per_channel_quant ? ",per_channel_quant=True" : "", name->down ? "_down" : "");
}

json_t *moe_config_ordered(const json_t *config) {
  static const char *const usual[] = {
      "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M",         "SPLIT_K",
      "num_warps",    "num_stages",   "waves_per_eu", "matrix_instr_nonkdim", "kpack"};
  json_t *ordered = json_object(), *value;
  const char *name;
  for (size_t i = 0; i < ARRAY_LENGTH(usual); i++) {
    value = json_object_get(config, usual[i]);
    if (value)
      json_object_set(ordered, usual[i], value);
  }
  json_object_foreach ((json_t *)config, name, value) {
    if (!json_object_get(ordered, name))
      json_object_set(ordered, name, value);
  }
  return ordered;
}

/* Rendering */

struct row {
  int64_t m;
  json_t *config;
};

struct table {
  char *path;
  size_t n, capacity;
  struct row *rows;
};

struct rendering {
  const struct moe_dialect *dialect;
  const struct render_request *request;
  char *folder, *device; /* folder: with a '/' at its end, or "" */
  size_t n, capacity;
  struct table *tables;
  json_t *by_path; /* index of a table; and "path M": that the row is there */
  struct cache_files *files;
};

static void rendering_release(struct rendering *rendering) {
  for (size_t i = 0; i < rendering->n; i++) {
    struct table *table = &rendering->tables[i];
    for (size_t j = 0; j < table->n; j++)
      json_decref(table->rows[j].config);
    free(table->rows);
    free(table->path);
  }
  free(rendering->tables);
  free(rendering->folder);
  free(rendering->device);
  json_decref(rendering->by_path);
}

/* "3.4.0+git1234" as "configs/triton_3_4_0/": the reader takes the parts for numbers. */
static char *version_folder(const char *triton, struct error *error) {
  size_t size = triton ? strspn(triton, "0123456789.") : 0;
  cleanup_free char *version = xstrndup(triton ? triton : "", size);
  if (!size || version[0] == '.' || version[size - 1] == '.' || strstr(version, "..") ||
      (triton[size] && triton[size] != '+')) {
    error_set(error,
              "the tables of SGLang lie in a folder named after Triton's version, and the "
              "environment states %s",
              triton ? "none of numbers" : "none");
    return NULL;
  }
  for (char *c = version; *c; c++)
    *c = *c == '.' ? '_' : *c;
  return xasprintf("configs/triton_%s/", version);
}

static bool device_find(struct rendering *rendering, struct error *error) {
  const struct identity *identity = rendering->request->identity;
  const struct environment *environment = &rendering->request->release->environment;
  const char *name =
      identity && identity->moe_device_name ? identity->moe_device_name : environment->gpu;
  if (!name)
    return error_set(
        error, "the environment of the release states no gpu, which is in the names of the tables");
  char *device = rendering->device = xstrdup(name);
  for (char *c = device; *c; c++)
    *c = *c == ' ' || *c == '/' || *c == ',' ? '_' : *c;
  static const char *const forms[] = {"_OAM", "_VF"};
  bool from_name =
      !(identity && identity->moe_device_name) && rendering->dialect->takes_device_from_pci;
  for (size_t i = 0; from_name && i < ARRAY_LENGTH(forms); i++) {
    size_t size = strlen(device), suffix = strlen(forms[i]);
    if (string_starts(device, "AMD_Instinct_") && size > suffix &&
        strcmp(device + size - suffix, forms[i]) == 0)
      device[size - suffix] = '\0';
  }
  return true;
}

static struct table *table_find(struct rendering *rendering, const char *path) {
  const json_t *known = json_object_get(rendering->by_path, path);
  if (known)
    return &rendering->tables[json_integer_value(known)];
  GROW(rendering->tables, rendering->n, rendering->capacity);
  json_object_set_new(rendering->by_path, path, json_integer((json_int_t)rendering->n));
  struct table *table = &rendering->tables[rendering->n++];
  *table = (struct table){.path = xstrdup(path)};
  return table;
}

/* The config in the order that an import found it in. */
static json_t *config_in_order(json_t *config, const char *order) {
  json_t *ordered = json_object();
  for (const char *at = order; at && *at;) {
    size_t size = strcspn(at, ",");
    json_t *value = json_object_getn(config, at, size);
    if (value)
      json_object_setn(ordered, at, size, value);
    at += size + (at[size] ? 1 : 0);
  }
  json_object_update_missing(ordered, config);
  return ordered;
}

static bool winner_add(struct rendering *rendering, const struct moe_mapping *mapping,
                       json_t *config, const char *order, const struct value *values,
                       struct error *error) {
  cleanup_moe_name struct moe_name name = {0};
  int64_t m = 0;
  if (!moe_mapping_name(mapping, values, &name, &m, error))
    return false;
  name.device = xstrdup(rendering->device);
  cleanup_free char *file = moe_name_format(rendering->dialect, &name);
  cleanup_free char *path = xasprintf("%s%s", rendering->folder, file);
  cleanup_free char *row = xasprintf("%s %lld", path, (long long)m);
  if (json_object_get(rendering->by_path, row))
    return error_set(error, "another winner is the same row, M = %lld, of the same table",
                     (long long)m);
  json_object_set_new(rendering->by_path, row, json_true());
  struct table *table = table_find(rendering, path);
  GROW(table->rows, table->n, table->capacity);
  table->rows[table->n++] =
      (struct row){m, order ? config_in_order(config, order) : json_incref(config)};
  return true;
}

/* Configs of a kernel as they stand in tables, or why they cannot. */
struct configs {
  size_t n;
  json_t **all;
  char **errors;
};

static void configs_release(struct configs *configs) {
  for (size_t i = 0; i < configs->n; i++) {
    json_decref(configs->all[i]);
    free(configs->errors[i]);
  }
  free(configs->all);
  free(configs->errors);
}

static void configs_map(struct configs *configs, const struct moe_mapping *mapping,
                        const struct release_kernel *kernel) {
  configs->n = kernel->n_configs;
  configs->all = xcalloc(configs->n + 1, sizeof(json_t *));
  configs->errors = xcalloc(configs->n + 1, sizeof(char *));
  for (size_t i = 0; i < configs->n; i++) {
    struct error why;
    if (!moe_mapping_config(mapping, kernel->configs[i].values, &configs->all[i], &why))
      configs->errors[i] = xstrdup(why.message);
  }
}

static bool kernel_add(struct rendering *rendering, const struct release_kernel *kernel,
                       struct error *error) {
  const struct cache_source *source = rendering->request->source;
  const struct kernel *manifest = NULL;
  cleanup_moe_mapping struct moe_mapping mapping = {0};
  __attribute__((cleanup(configs_release))) struct configs configs = {0};
  if (!source->kernel)
    return error_set(error,
                     "manifests are not to be had here, and they say what the kernel's key means");
  if (!source->kernel(source->context, &kernel->hash, &manifest, error) ||
      !moe_mapping_read(rendering->dialect, manifest, &mapping, error))
    return false;
  configs_map(&configs, &mapping, kernel);
  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    const char *order =
        json_string_value(json_object_get(kernel->provenance[winner->provenance], "order"));
    struct value values[KEY_MEMBERS_MAX];
    struct error why;
    bool ok = configs.all[winner->config] || error_set(&why, "%s", configs.errors[winner->config]);
    release_key_values(kernel, winner, values);
    ok = ok && winner_add(rendering, &mapping, configs.all[winner->config], order, values, &why);
    release_key_values_release(kernel, values);
    if (!ok) {
      cleanup_free char *key = xstrndup(winner->key, winner->key_size);
      cache_files_skip(rendering->files, kernel->name, key, "%s", why.message);
    }
  }
  return true;
}

static int rows_compare(const void *a, const void *b) {
  const struct row *x = a, *y = b;
  return x->m < y->m ? -1 : x->m > y->m;
}

static void table_write(struct table *table, struct cache_files *files) {
  cleanup_json json_t *json = json_object();
  qsort(table->rows, table->n, sizeof *table->rows, rows_compare);
  for (size_t i = 0; i < table->n; i++) {
    char m[32];
    snprintf(m, sizeof m, "%lld", (long long)table->rows[i].m);
    json_object_set(json, m, table->rows[i].config);
  }
  char *bytes = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&bytes, &size);
  ALWAYS(out != NULL);
  python_json_write(out, json, 4);
  putc('\n', out);
  ALWAYS(fclose(out) == 0);
  cache_files_add(files, table->path, bytes, size);
}

static bool moe_render(const struct moe_dialect *dialect, const struct render_request *request,
                       struct cache_files *ret, struct error *error) {
  __attribute__((cleanup(rendering_release))) struct rendering rendering = {
      .dialect = dialect, .request = request, .by_path = json_object(), .files = ret};
  const struct identity *identity = request->identity;
  const char *triton = identity && identity->triton_version ? identity->triton_version
                                                            : request->release->environment.triton;
  rendering.folder = dialect->has_versions ? version_folder(triton, error) : xstrdup("");
  if (!rendering.folder || !device_find(&rendering, error))
    return false;
  for (size_t i = 0; i < request->release->n_kernels; i++) {
    const struct release_kernel *kernel = &request->release->kernels[i];
    struct error why;
    if (!kernel_add(&rendering, kernel, &why))
      cache_files_skip(ret, kernel->name, NULL, "%s", why.message);
  }
  for (size_t i = 0; i < rendering.n; i++)
    table_write(&rendering.tables[i], ret);
  if (!ret->n)
    return error_set(error, "no winner can be written for %s; the first: %.300s", dialect->format,
                     ret->n_skipped ? ret->skipped[0].reason : "there is none");
  cache_files_variable(ret, dialect->variable, "", NULL);
  return true;
}

/* The formats */

static const struct moe_dialect vllm_dialect = {.format = "vllm-moe",
                                                .variable = "VLLM_TUNED_CONFIG_FOLDER",
                                                .separator = ",",
                                                .takes_device_from_pci = true};

static bool vllm_render(const struct render_request *request, struct cache_files *ret,
                        struct error *error) {
  return moe_render(&vllm_dialect, request, ret, error);
}

static bool vllm_read(const struct import_request *request, struct imported *ret,
                      struct error *error) {
  return moe_read(&vllm_dialect, request, ret, error);
}

const struct cache_format format_vllm_moe = {
    .name = "vllm-moe",
    .summary = "fused mixture-of-experts tables of vLLM (VLLM_TUNED_CONFIG_FOLDER)",
    .render = vllm_render,
    .read = vllm_read,
};

static const struct moe_dialect sglang_dialect = {.format = "sglang-moe",
                                                  .variable = "SGLANG_MOE_CONFIG_DIR",
                                                  .separator = ", ",
                                                  .has_versions = true,
                                                  .has_variants = true};

static bool sglang_render(const struct render_request *request, struct cache_files *ret,
                          struct error *error) {
  return moe_render(&sglang_dialect, request, ret, error);
}

static bool sglang_read(const struct import_request *request, struct imported *ret,
                        struct error *error) {
  return moe_read(&sglang_dialect, request, ret, error);
}

const struct cache_format format_sglang_moe = {
    .name = "sglang-moe",
    .summary = "fused mixture-of-experts tables of SGLang (SGLANG_MOE_CONFIG_DIR)",
    .render = sglang_render,
    .read = sglang_read,
};
