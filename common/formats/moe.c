/* The formats `vllm-moe` and `sglang-moe`: tables of the fused mixture-of-experts kernel, one file
 * for each shape and device, in it a config for each number of tokens M. vLLM searches
 * VLLM_TUNED_CONFIG_FOLDER first; SGLang reads below SGLANG_MOE_CONFIG_DIR.
 *
 *   vLLM:   E=128,N=384,device_name=AMD_Instinct_MI300X[,dtype=fp8_w8a8]
 *           [,block_shape=[128,128]].json
 *   SGLang: configs/triton_3_4_0/E=…,N=…,device_name=…[,dtype=…][,block_shape=[128, 128]]
 *           [,per_channel_quant=True][_down].json
 * Bodies are what json.dump(indent=4) writes, and a newline: {"1": {"BLOCK_SIZE_M": 16, …}, …} with
 * M ascending. "triton_version" is read and not written: older readers take every member for an M.
 *
 * The folder of vLLM also has tables of Mamba's state update, in it a config for each
 * batch * heads; they are exported, not imported:
 *   headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float16.json
 *
 * "exports" of a kernel, under the format's name ("vllm-ssm" for Mamba's), state how its key and
 * its configs map to the tables (table_exports.h):
 *   {"E": "E", "N": "N", "M": "M", "dtype": "fp8_w8a8", "block_shape": [128, 128],
 *    "config": {"BLOCK_SIZE_M": "BLOCK_M"}}
 *   {"headdim": 64, "dstate": "n", "cache_dtype": "dtype", "batch": "batch * heads"}
 * dtype and block_shape are none where they are absent; per_channel_quant and down (SGLang) false.
 *
 * Tables that are imported without a kernel are those of the external kernel vllm-moe/fused_moe or
 * sglang-moe/fused_moe, whose key has the members' own names. Provenance: "source", the path,
 * "order", the config's members where they are not in the usual order, and "triton", vLLM's
 * "triton_version".
 *
 * Memory and threads: format.h. */
#include <regex.h>

#include "common/base/numbers.h"
#include "common/cache/autotuner.h"
#include "common/cache/format.h"
#include "common/cache/text.h"
#include "common/formats/table_exports.h"

#define CONFIG_MEMBERS_MAX 64
#define FILE_NAME_SIZE_MAX 1024

/* How the two readers differ. */
struct dialect {
  const char *format; /* its name */
  const struct table_kind *kind;
  const char *variable;       /* that names the folder */
  const char *separator;      /* between the numbers of a block shape */
  bool has_versions;          /* tables are in configs/triton_… */
  bool has_variants;          /* per_channel_quant and down */
  bool takes_device_from_pci; /* the reader knows AMD's devices by their PCI ids, and so without "
                                 OAM" and " VF" */
};

/* What identifies a row, in the order of an external kernel's key; the last is the row's number. A
 * block shape is the text "[128,128]". */
static const struct table_kind vllm_kind = {"vllm-moe",
                                            {{"E", TABLE_NUMBER, true},
                                             {"N", TABLE_NUMBER, true},
                                             {"dtype", TABLE_TEXT, false},
                                             {"block_shape", TABLE_BLOCK_SHAPE, false},
                                             {"M", TABLE_NUMBER, true}},
                                            5};
static const struct table_kind sglang_kind = {"sglang-moe",
                                              {{"E", TABLE_NUMBER, true},
                                               {"N", TABLE_NUMBER, true},
                                               {"dtype", TABLE_TEXT, false},
                                               {"block_shape", TABLE_BLOCK_SHAPE, false},
                                               {"per_channel_quant", TABLE_FLAG, false},
                                               {"down", TABLE_FLAG, false},
                                               {"M", TABLE_NUMBER, true}},
                                              7};
static const struct table_kind ssm_kind = {"vllm-ssm",
                                           {{"headdim", TABLE_NUMBER, true},
                                            {"dstate", TABLE_NUMBER, true},
                                            {"cache_dtype", TABLE_TEXT, true},
                                            {"batch", TABLE_NUMBER, true}},
                                           4};

/* The members of a config in the order that the tuners of vLLM and SGLang write them; a new
 * reference. */
static json_t *config_ordered(const json_t *config) {
  static const char *const usual[] = {
      "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M",         "SPLIT_K",
      "num_warps",    "num_stages",   "waves_per_eu", "matrix_instr_nonkdim", "kpack"};
  json_t *ordered = json_object();

  for (size_t i = 0; i < ARRAY_LENGTH(usual); i++) {
    json_t *value = json_object_get(config, usual[i]);
    if (value)
      json_object_set(ordered, usual[i], value);
  }

  json_object_update_missing(ordered, (json_t *)config);
  return ordered;
}

static bool is_plain(const json_t *value) {
  return json_is_integer(value) || json_is_boolean(value) || json_is_string(value) ||
         json_is_null(value);
}

/* The config as a table has it, in the usual order; a new reference. */
static bool config_to_table(const struct table_mapping *mapping, const json_t *config, json_t **ret,
                            struct error *error) {
  static const char *const needed[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K",
                                       "GROUP_SIZE_M"},
                           *const of_ssm[] = {"BLOCK_SIZE_M", "num_warps"};
  bool is_ssm = mapping->kind == &ssm_kind;
  cleanup_json json_t *table = NULL;
  if (!table_config_map(mapping, config, true, &table, error))
    return false;

  for (size_t i = 0; i < (is_ssm ? ARRAY_LENGTH(of_ssm) : ARRAY_LENGTH(needed)); i++) {
    const char *member = is_ssm ? of_ssm[i] : needed[i];
    if (!table_is_positive(json_object_get(table, member)))
      return error_set(error, "the config has no positive integer %s", member);
  }

  json_members (table, name, value)
    if (!is_plain(value))
      return error_set(error, "the config's %.60s is not an integer, boolean, text or null", name);
  *ret = config_ordered(table);
  return true;
}

/* Rendering */

struct rendering {
  const struct dialect *dialect;
  const struct render_request *request;
  char *folder, *device, *family; /* folder: with a '/' at its end, or ""; family: of devices */
  json_t *tables;                 /* path: {M: config} */
  struct cache_files *files;
};

static void rendering_release(struct rendering *rendering) {
  free(rendering->folder);
  free(rendering->device);
  free(rendering->family);
  json_decref(rendering->tables);
}

static bool folder_find(struct rendering *rendering, struct error *error) {
  const struct identity *identity = rendering->request->identity;
  const char *triton = rendering->request->release->environment.triton;
  if (identity && identity->triton_version)
    triton = identity->triton_version;
  if (!rendering->dialect->has_versions) {
    rendering->folder = xstrdup("");
    return true;
  }

  /* "3.4.0+git1234" is "configs/triton_3_4_0/": the reader reads the parts as numbers. */
  size_t size = triton ? strspn(triton, "0123456789.") : 0;
  cleanup_free char *version = xstrndup(triton ? triton : "", size);
  if (!size || version[0] == '.' || version[size - 1] == '.' || strstr(version, "..") ||
      (triton[size] && triton[size] != '+'))
    return error_set(error,
                     "the tables of SGLang are in a folder named after Triton's version, and the "
                     "environment states %s",
                     triton ? "none of numbers" : "none");

  rendering->folder = xasprintf("configs/triton_%s/", text_replace(version, ".", '_'));
  return true;
}

/* The device as the reader names it. vLLM makes its name of AMD's PCI ids, or of the driver's name,
 * and for the tables of experts has one for the family of the H200; SGLang takes torch's name. */
static bool device_find(struct rendering *rendering, struct error *error) {
  static const char *const forms[] = {"_OAM", "_VF"};
  const struct identity *identity = rendering->request->identity;
  const char *gpu = rendering->request->release->environment.gpu, *known = NULL;
  bool is_vllm = rendering->dialect->takes_device_from_pci;

  if (identity)
    known = !is_vllm && identity->gpu ? identity->gpu : identity->moe_device_name;
  if (!known && !gpu)
    return error_set(
        error, "the environment of the release states no gpu, which is in the names of the tables");
  char *device = rendering->device = text_replace(xstrdup(known ? known : gpu), " /,", '_');
  for (size_t i = 0; i < ARRAY_LENGTH(forms); i++)
    if (!known && is_vllm && string_starts(device, "AMD_Instinct_") &&
        string_ends(device, forms[i]))
      device[strlen(device) - strlen(forms[i])] = '\0';

  cleanup_free char *parts = xasprintf("_%s_", device);
  rendering->family = xstrdup(is_vllm && strstr(parts, "_H200_") ? "NVIDIA_H200" : device);
  return true;
}

static char *moe_path(const struct rendering *rendering, const json_t *row) {
  const char *dtype = json_text(row, "dtype");
  char block[96] = "";
  long long shape[2];

  if (table_block_shape(json_text(row, "block_shape"), shape))
    snprintf(block, sizeof block, ",block_shape=[%lld%s%lld]", shape[0],
             rendering->dialect->separator, shape[1]);
  return xasprintf("%sE=%lld,N=%lld,device_name=%s%s%s%s%s%s.json", rendering->folder,
                   (long long)json_integer_value(json_object_get(row, "E")),
                   (long long)json_integer_value(json_object_get(row, "N")), rendering->family,
                   dtype ? ",dtype=" : "", dtype ? dtype : "", block,
                   json_flag(row, "per_channel_quant") ? ",per_channel_quant=True" : "",
                   json_flag(row, "down") ? "_down" : "");
}

/* The kernel sees the width of the state's elements only, so vLLM has one table for both. */
static char *ssm_path(const struct rendering *rendering, const json_t *row) {
  const char *dtype = json_text(row, "cache_dtype");
  return xasprintf("headdim=%lld,dstate=%lld,device_name=%s,cache_dtype=%s.json",
                   (long long)json_integer_value(json_object_get(row, "headdim")),
                   (long long)json_integer_value(json_object_get(row, "dstate")), rendering->device,
                   string_equal(dtype, "bfloat16") ? "float16" : dtype);
}

/* `order`: of the config's members as an import found them, or NULL. */
static bool row_add(struct rendering *rendering, const struct table_kind *kind, const json_t *row,
                    json_t *config, const char *order, struct error *error) {
  const char *number = kind->members[kind->n_members - 1].name;
  json_int_t m = json_integer_value(json_object_get(row, number));
  char m_text[32];
  cleanup_free char *path = kind == &ssm_kind ? ssm_path(rendering, row) : moe_path(rendering, row);

  json_t *table = json_object_get(rendering->tables, path);
  snprintf(m_text, sizeof m_text, "%lld", (long long)m);
  if (json_object_get(table, m_text))
    return error_set(error, "another winner is the same row, %s = %s, of the same table", number,
                     m_text);
  if (!table) {
    table = json_object();
    json_put(rendering->tables, path, table);
  }

  json_t *ordered = json_object();
  for (const char *at = order; at && *at; at += *at == ',') {
    size_t size = strcspn(at, ",");
    json_t *value = json_object_getn(config, at, size);
    if (value)
      json_object_setn(ordered, at, size, value);
    at += size;
  }

  json_object_update_missing(ordered, config);
  json_put(table, m_text, ordered);
  return true;
}

/* The kernel's winners, as the rows of tables of one kind. */
static bool rows_add(struct rendering *rendering, const struct table_kind *kind,
                     const struct kernel *manifest, const struct release_kernel *kernel,
                     struct error *error) {
  cleanup_table_mapping struct table_mapping mapping = {0};
  if (!table_mapping_read(kind, manifest, &mapping, error))
    return false;

  /* Each config as the table has it, or a text: the reason why the table cannot have it. */
  cleanup_json json_t *configs = json_array();
  for (size_t i = 0; i < kernel->n_configs; i++) {
    json_t *config = NULL;
    struct error why;
    if (!config_to_table(&mapping, kernel->configs[i].values, &config, &why))
      config = json_string(why.message);
    json_push(configs, config);
  }

  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    const char *order = json_text(kernel->provenance[winner->provenance], "order");
    json_t *config = json_array_get(configs, winner->config);
    cleanup_json json_t *row = NULL;
    struct value values[KEY_MEMBERS_MAX];
    struct error why;
    release_key_values(kernel, winner, values);
    if (json_is_string(config))
      cache_files_skip(rendering->files, kernel, winner, json_string_value(config));
    else if (!table_row_of_key(&mapping, values, &row, &why) ||
             !row_add(rendering, kind, row, config, order, &why))
      cache_files_skip(rendering->files, kernel, winner, why.message);
    release_key_values_release(kernel, values);
  }

  return true;
}

/* A kernel without exports is reported for the format's own kind. */
static bool kernel_add(struct rendering *rendering, const struct release_kernel *kernel,
                       struct error *error) {
  const struct kernel *manifest = NULL;
  const struct table_kind *kind = rendering->dialect->kind;
  if (!rendering->request->source->kernel)
    return error_set(
        error, "manifests are not available here, and they state what the kernel's key means");
  if (!request_manifest(rendering->request, kernel, &manifest, error))
    return false;

  bool is_ssm = kind == &vllm_kind && table_is_exported(&ssm_kind, manifest);
  if (is_ssm && !rows_add(rendering, &ssm_kind, manifest, kernel, error))
    return false;
  return (is_ssm && !table_is_exported(kind, manifest)) ||
         rows_add(rendering, kind, manifest, kernel, error);
}

static bool moe_render(const struct dialect *dialect, const struct render_request *request,
                       struct cache_files *ret, struct error *error) {
  cleanup_by(rendering_release) struct rendering rendering = {
      .dialect = dialect, .request = request, .tables = json_object(), .files = ret};
  if (!folder_find(&rendering, error) || !device_find(&rendering, error))
    return false;

  for (size_t i = 0; i < request->release->n_kernels; i++) {
    const struct release_kernel *kernel = &request->release->kernels[i];
    struct error why;
    if (!kernel_add(&rendering, kernel, &why))
      cache_files_skip(ret, kernel, NULL, why.message);
  }

  json_members (rendering.tables, path, table) {
    cleanup_json json_t *sorted = json_object();
    cleanup_free uint64_t *numbers = xcalloc(json_object_size(table), sizeof *numbers);
    size_t n = 0, size;
    json_members (table, m, config)
      numbers[n++] = strtoull(m, NULL, 10);
    qsort(numbers, n, sizeof *numbers, compare_ordinals);
    for (size_t i = 0; i < n; i++) {
      char name[32];
      snprintf(name, sizeof name, "%llu", (unsigned long long)numbers[i]);
      json_object_set(sorted, name, json_object_get(table, name));
    }
    cleanup_free char *body = python_json(sorted, 4, &size);
    cache_files_add(ret, path, xasprintf("%s\n", body), size + 1);
  }

  cache_files_variable(ret, dialect->variable, "", NULL);
  return cache_files_any(ret, dialect->format, error);
}

/* Reading */

/* What a group of a pattern matched; NULL: nothing. */
static char *group_text(const char *text, const regmatch_t *group) {
  size_t size = (size_t)(group->rm_eo - group->rm_so);
  return group->rm_so < 0 ? NULL : xstrndup(text + group->rm_so, size);
}

/* The name of a file without folders: the row without M, and the device, with '_' for ' '. */
static bool name_parse(const struct dialect *dialect, const char *text, json_t **ret_row,
                       char **ret_device, struct error *error) {
  static const char pattern[] = "^E=([1-9][0-9]*),N=([1-9][0-9]*),device_name=([^,]+)"
                                "(,dtype=([^,]+))?(,block_shape=(\\[[0-9, ]+\\]))?"
                                "(,per_channel_quant=True)?$";
  enum { E = 1, N, DEVICE, DTYPE_TEXT = 5, SHAPE_TEXT = 7, QUANT, GROUPS };
  cleanup_free char *name = xstrdup(text);
  bool is_json = string_ends(name, ".json");

  if (is_json)
    name[strlen(name) - strlen(".json")] = '\0';
  bool is_down = dialect->has_variants && string_ends(name, "_down");
  if (is_down)
    name[strlen(name) - strlen("_down")] = '\0';

  regex_t regex;
  regmatch_t groups[GROUPS];
  ALWAYS(regcomp(&regex, pattern, REG_EXTENDED) == 0);

  for (size_t i = 0; i < GROUPS; i++)
    groups[i] = (regmatch_t){-1, -1};

  bool ok = is_json && strlen(text) <= FILE_NAME_SIZE_MAX && json_can_hold(text) &&
            regexec(&regex, name, GROUPS, groups, 0) == 0;
  regfree(&regex);
  bool is_quant = groups[QUANT].rm_so >= 0;
  cleanup_free char *device = group_text(name, &groups[DEVICE]),
                    *dtype = group_text(name, &groups[DTYPE_TEXT]),
                    *shape_text = group_text(name, &groups[SHAPE_TEXT]);
  long long shape[2], e = ok ? strtoll(name + groups[E].rm_so, NULL, 10) : 0,
                      n = ok ? strtoll(name + groups[N].rm_so, NULL, 10) : 0;
  if (!ok || e > TABLE_NUMBER_MAX || n > TABLE_NUMBER_MAX ||
      (shape_text && !table_block_shape(shape_text, shape)) || (is_quant && !dialect->has_variants))
    return error_set(error,
                     "\"%.200s\" is not a name like "
                     "E=128,N=384,device_name=AMD_Instinct_MI300X.json, with dtype=, "
                     "block_shape=%s after the device in this order",
                     text, dialect->has_variants ? " and per_channel_quant=True" : "");

  json_t *row = json_pack(
      "{s:I, s:I, s:s?, s:o}", "E", (json_int_t)e, "N", (json_int_t)n, "dtype", dtype,
      "block_shape", shape_text ? json_sprintf("[%lld,%lld]", shape[0], shape[1]) : json_null());
  ALWAYS(row != NULL);
  if (dialect->has_variants) {
    json_put(row, "per_channel_quant", json_boolean(is_quant));
    json_put(row, "down", json_boolean(is_down));
  }

  *ret_row = row;
  *ret_device = TAKE(device);
  return true;
}

/* The external kernel of tables that are imported without a kernel: its key has the members that
 * their names and rows have. */
static struct imported_kernel *external_kernel(const struct dialect *dialect,
                                               struct imported *imported) {
  cleanup_free char *name = xasprintf("%s/fused_moe", dialect->format);
  json_t *exports = json_object(), *key = json_array();
  for (size_t i = 0; i < dialect->kind->n_members; i++) {
    json_put(exports, dialect->kind->members[i].name, json_string(dialect->kind->members[i].name));
    json_push(key, json_string(dialect->kind->members[i].name));
  }
  return imported_external(imported, external_manifest(name, key, dialect->format, exports));
}

static char *order_of(const json_t *config) {
  cleanup_json json_t *names = config_names(config);
  return json_texts_join(names, ",");
}

static bool row_read(const struct table_mapping *mapping, struct imported_kernel *kernel,
                     const char *path, const char *triton, const json_t *row, const json_t *config,
                     struct error *error) {
  json_t *key = NULL;
  struct imported_entry *entry;

  if (!json_object_size(config) || json_object_size(config) > CONFIG_MEMBERS_MAX)
    return error_set(error, "a config must be an object of 1 to %d members", CONFIG_MEMBERS_MAX);

  json_members (config, name, value) {
    const char *at = POINTER_MEMBER("", name);
    if (!name[0] || strchr(name, ','))
      return error_at(error, at, "the name of a member must not be empty and have no comma");
    if (!is_plain(value))
      return error_at(error, at, "a value must be an integer, a boolean, a text or null");
  }

  if (!mapping->kernel)
    key = json_copy((json_t *)row);
  else if (!table_key_of_row(mapping, row, &key, error))
    return false;
  if (!imported_entry_add(kernel, key, &entry, error))
    return false;
  entry->provenance = json_pack("{s:o, s:s*}", "source", imported_source(path), "triton", triton);

  /* The config of a release is sorted by name; rendering puts the usual members first. */
  cleanup_free char *canonical = json_canonical(config);
  cleanup_json json_t *sorted = json_loads(canonical, 0, NULL);
  cleanup_json json_t *usual = config_ordered(sorted);
  cleanup_free char *order = order_of(config), *usual_order = order_of(usual);
  if (!string_equal(order, usual_order))
    json_put(entry->provenance, "order", json_string(order));
  return table_config_map(mapping, config, false, &entry->config, error);
}

static bool moe_read(const struct dialect *dialect, const struct import_request *request,
                     const struct cache_file *file, struct imported *imported,
                     struct error *error) {
  cleanup_table_mapping struct table_mapping mapping = {0};
  cleanup_json json_t *row = NULL, *json = NULL;
  cleanup_free char *device = NULL;
  const char *triton = NULL;

  if (request->kernel && !table_mapping_read(dialect->kind, request->kernel, &mapping, error))
    return false;
  if (!name_parse(dialect, path_name(file->path), &row, &device, error) ||
      !json_parse(file->bytes, file->size, &json, error))
    return false;
  if (!json_is_object(json))
    return error_set(error, "the document must be an object");

  /* SGLang's folder states the Triton that its tables are for: "triton_3_4_0" is "3.4.0". vLLM
   * reads a table under any Triton, and those that it ships were made with several: what one states
   * is provenance. */
  cleanup_free char *version = NULL, *stated = NULL;
  if (dialect->has_versions) {
    size_t size = strlen("triton_");
    cleanup_free char *folder = path_folder(file->path);
    if (!string_starts(folder, "triton_") || !folder[size] ||
        folder[size + strspn(folder + size, "0123456789_")])
      return error_set(error, "the table is not in a folder like triton_3_4_0, which states the "
                              "Triton that it is for");
    version = text_replace(xstrdup(folder + size), "_", '.');
  } else {
    if (!json_get_string(json, "", "triton_version", JSON_OPTIONAL, &triton, error))
      return false;
    stated = triton ? xstrdup(triton) : NULL;
    json_object_del(json, "triton_version");
  }

  json_t *environment =
      json_pack("{s:s, s:s*}", "gpu", text_replace(device, "_", ' '), "triton", version);
  if (!imported_set_environment(imported, environment, error))
    return false;

  struct imported_kernel *kernel =
      request->kernel ? imported_kernel_for(imported, "") : external_kernel(dialect, imported);
  if (request->kernel)
    kernel->hash = request->kernel->hash;

  json_members (json, m, config) {
    size_t size = strlen(m);
    const char *at = POINTER_MEMBER("", m);
    if (size < 1 || size > 9 || m[0] == '0' || strspn(m, "0123456789") != size)
      return error_at(error, at, "a member must be a number of tokens, 1 to 999999999");
    json_put(row, "M", json_integer(strtoll(m, NULL, 10)));
    if (!row_read(&mapping, kernel, file->path, stated, row, config, error))
      return error_pointer_prefix(error, at);
  }

  return true;
}

static bool is_table(const char *path) { return string_starts(path_name(path), "E="); }

/* The formats */

static const struct dialect vllm_dialect = {.format = "vllm-moe",
                                            .kind = &vllm_kind,
                                            .variable = "VLLM_TUNED_CONFIG_FOLDER",
                                            .separator = ",",
                                            .takes_device_from_pci = true};

static bool vllm_render(const struct render_request *request, struct cache_files *ret,
                        struct error *error) {
  return moe_render(&vllm_dialect, request, ret, error);
}

static bool vllm_read(const struct import_request *request, const struct cache_file *file,
                      struct imported *imported, struct error *error) {
  return moe_read(&vllm_dialect, request, file, imported, error);
}

const struct cache_format format_vllm_moe = {
    .name = "vllm-moe",
    .summary = "fused mixture-of-experts tables of vLLM (VLLM_TUNED_CONFIG_FOLDER)",
    .render = vllm_render,
    .table = "table E=…,N=…,device_name=….json",
    .is_table = is_table,
    .read = vllm_read,
};

static const struct dialect sglang_dialect = {.format = "sglang-moe",
                                              .kind = &sglang_kind,
                                              .variable = "SGLANG_MOE_CONFIG_DIR",
                                              .separator = ", ",
                                              .has_versions = true,
                                              .has_variants = true};

static bool sglang_render(const struct render_request *request, struct cache_files *ret,
                          struct error *error) {
  return moe_render(&sglang_dialect, request, ret, error);
}

static bool sglang_read(const struct import_request *request, const struct cache_file *file,
                        struct imported *imported, struct error *error) {
  return moe_read(&sglang_dialect, request, file, imported, error);
}

const struct cache_format format_sglang_moe = {
    .name = "sglang-moe",
    .summary = "fused mixture-of-experts tables of SGLang (SGLANG_MOE_CONFIG_DIR)",
    .render = sglang_render,
    .table = "table E=…,N=…,device_name=….json",
    .is_table = is_table,
    .read = sglang_read,
};
