/* The formats of tables (tables.h): writing the winners of a release as such files, and beside them
 * wavetune-tables.json, which states what the file names do not: the environment that they were
 * measured in, and the switches under which the program reads them.
 *   {"environment": {…}, "format": "vllm-w8a8", "notes": ["…"], "release": "sha256:…",
 *    "switches": {"VLLM_ROCM_USE_AITER": null},
 *    "files": {"N=…,K=….json": {"imported": 12, "rows": 18, "takes": {"1": [1, 8], …}}}}
 * "imported" counts the rows that no job measured; "takes" has for each row the numbers, such as M,
 * for which the reader takes it, null for no end.
 *
 * Bodies are what json.dump(indent=4) writes, and a newline; rows ascend. "triton_version" is read
 * and not written: older readers take every member for an M.
 *
 * Of two winners for one row, one that was tuned is written before one that was imported; if
 * "prefer" of the exports does not hold for it, after that.
 *
 * Memory and threads: format.h. */
#include "common/cache/text.h"
#include "common/formats/table_exports.h"

#define NUMBERS_MAX TABLE_MEMBERS_MAX

/* A winner as a row of a table. */
struct row {
  char *path;
  const struct table_kind *kind;
  int64_t numbers[NUMBERS_MAX]; /* in the body, from outside */
  size_t n_numbers, order;
  enum { RANK_PREFERRED, RANK_IMPORTED, RANK_OTHER } rank;
  json_t *config;
  const struct release_kernel *kernel;
  const struct release_winner *winner;
};

struct rendering {
  const struct table_family *family;
  const struct render_request *request;
  struct table_place place; /* without the device */
  char *devices[TABLE_DEVICE_ARCH + 1];
  size_t n_rows, capacity;
  struct row *rows;
  json_t *switches, *about; /* about: path: what wavetune-tables.json has */
  bool has_any;             /* a row "any" was added */
  struct cache_files *files;
};

static void rendering_release(struct rendering *rendering) {
  for (size_t i = 0; i < rendering->n_rows; i++) {
    free(rendering->rows[i].path);
    json_decref(rendering->rows[i].config);
  }
  free(rendering->rows);
  for (size_t i = 0; i < ARRAY_LENGTH(rendering->devices); i++)
    free(rendering->devices[i]);
  table_place_release(&rendering->place);
  json_decref(rendering->switches);
  json_decref(rendering->about);
}

/* The place */

/* The model in the name of a GPU: its first word with a digit, without an X at its end ("MI325 OAM"
 * and "MI325X" are one). Size 0: it has none. */
static struct slice model_of(const char *gpu) {
  static const char between[] = " _-/,";
  for (const char *word = gpu; *word; word += strspn(word, between)) {
    size_t size = strcspn(word, between);
    if (strcspn(word, "0123456789") < size)
      return (struct slice){word, size - (word[size - 1] == 'X')};
    word += size;
  }
  return (struct slice){gpu, 0};
}

static bool models_agree(const char *a, const char *b) {
  struct slice left = model_of(a), right = model_of(b);
  return !left.size || !right.size ||
         (left.size == right.size && memcmp(left.bytes, right.bytes, left.size) == 0);
}

/* The device as the readers name it. vLLM makes its name of AMD's PCI ids, or of the driver's name;
 * SGLang takes torch's. An image that names another GPU than the release's was recorded elsewhere:
 * its name would give the rows of one GPU to another. */
static bool devices_find(struct rendering *rendering, struct error *error) {
  static const char *const forms[] = {"_OAM", "_VF"};
  static const char *const by_pci[] = {"AMD_Instinct_MI300A", "AMD_Instinct_MI300X",
                                       "AMD_Instinct_MI308X", "AMD_Instinct_MI325X"};
  const struct identity *identity = rendering->request->identity;
  const char *gpu = rendering->request->release->environment.gpu,
             *of_image = identity ? identity->moe_device_name : NULL,
             *of_torch = identity && identity->gpu ? identity->gpu : of_image;
  if (gpu && of_torch && !models_agree(of_torch, gpu)) {
    cleanup_free char *note = xasprintf(
        "the image's identity was recorded on %s: the tables have the name of %s", of_torch, gpu);
    cache_files_note(rendering->files, note);
    of_torch = NULL;
  }
  if (gpu && of_image && !models_agree(of_image, gpu))
    of_image = NULL;
  if (!gpu && !of_image && !of_torch)
    return error_set(
        error, "the environment of the release states no gpu, which is in the names of the tables");

  const char *of_vllm = of_image ? of_image : gpu ? gpu : of_torch;
  char *vllm = text_replace(xstrdup(of_vllm), " /,", '_'),
       *torch = text_replace(xstrdup(of_torch ? of_torch : gpu), " /,", '_');
  for (size_t i = 0; !of_image && i < ARRAY_LENGTH(forms); i++)
    for (size_t j = 0; j < ARRAY_LENGTH(by_pci); j++)
      if (string_starts(vllm, by_pci[j]) && string_equal(vllm + strlen(by_pci[j]), forms[i]))
        vllm[strlen(by_pci[j])] = '\0';

  cleanup_free char *parts = xasprintf("_%s_", vllm);
  rendering->devices[TABLE_DEVICE_VLLM_MOE] =
      xstrdup(strstr(parts, "_H200_") ? "NVIDIA_H200" : vllm);
  rendering->devices[TABLE_DEVICE_VLLM] = vllm;
  rendering->devices[TABLE_DEVICE_LORA] = text_replace(xstrdup(torch), "-", '_');
  rendering->devices[TABLE_DEVICE_TORCH] = torch;
  return true;
}

/* "3.4.0+git1234" is the folder "triton_3_4_0": the reader reads the parts as numbers. */
static bool triton_find(struct rendering *rendering, struct error *error) {
  const struct identity *identity = rendering->request->identity;
  const char *triton = rendering->request->release->environment.triton;
  if (identity && identity->triton_version)
    triton = identity->triton_version;

  size_t size = triton ? strspn(triton, "0123456789.") : 0;
  cleanup_free char *version = xstrndup(triton ? triton : "", size);
  if (!size || version[0] == '.' || version[size - 1] == '.' || strstr(version, "..") ||
      (triton[size] && triton[size] != '+'))
    return error_set(error,
                     "the tables of SGLang are in a folder named after Triton's version, and the "
                     "environment states %s",
                     triton ? "none of numbers" : "none");

  rendering->place.triton = text_replace(TAKE(version), ".", '_');
  return true;
}

static bool arch_find(struct rendering *rendering, struct error *error) {
  const struct environment *environment = &rendering->request->release->environment;
  const char *arch = environment->arch;
  size_t size = arch ? strcspn(arch, ":") : 0;
  if (size <= 3 || !string_starts(arch, "gfx") || 3 + strspn(arch + 3, "0123456789abcdef") < size)
    return error_set(error,
                     "AITER's tables are named after the arch of an AMD GPU, and the "
                     "environment of the release states %.60s",
                     arch ? arch : "none");

  rendering->place.arch = xstrndup(arch, size);
  cleanup_free char *note =
      xasprintf("AITER finds these tables by the arch alone: every GPU of %.*s reads them. %s%s.",
                (int)size, arch,
                environment->gpu ? "What was tuned in them was measured on "
                                 : "It is not stated on which GPU they were measured",
                environment->gpu ? environment->gpu : "");
  cache_files_note(rendering->files, note);
  return true;
}

static bool place_find(struct rendering *rendering, struct error *error) {
  const struct table_kind *kind = rendering->family->kinds[0];
  if (kind->device == TABLE_DEVICE_ARCH)
    return arch_find(rendering, error);
  return devices_find(rendering, error) &&
         (!strstr(kind->path, "{triton}") || triton_find(rendering, error));
}

/* The rows */

/* The config as a table has it, in the usual order; a new reference. */
static bool config_to_table(const struct table_mapping *mapping, const json_t *config, json_t **ret,
                            struct error *error) {
  cleanup_json json_t *table = NULL;
  if (!table_config_map(mapping, config, true, &table, error) ||
      !table_config_check(mapping->kind, table, error))
    return false;
  *ret = table_config_ordered(table);
  return true;
}

/* The config with its members in the order that an import found; a new reference. */
static json_t *config_in_order(json_t *config, const char *order) {
  json_t *ordered = json_object();
  for (const char *at = order; at && *at; at += *at == ',') {
    size_t size = strcspn(at, ",");
    json_t *value = json_object_getn(config, at, size);
    if (value)
      json_object_setn(ordered, at, size, value);
    at += size;
  }

  json_object_update_missing(ordered, config);
  return ordered;
}

static bool row_add(struct rendering *rendering, const struct table_mapping *mapping,
                    const struct release_kernel *kernel, const struct release_winner *winner,
                    json_t *config, struct error *error) {
  const struct table_kind *kind = mapping->kind;
  const json_t *provenance = kernel->provenance[winner->provenance];
  struct value values[KEY_MEMBERS_MAX], preferred = value_bool(true);
  struct table_place place = rendering->place;
  struct row row = {.kind = kind, .order = rendering->n_rows, .kernel = kernel, .winner = winner};
  cleanup_json json_t *members = NULL;

  place.device = rendering->devices[kind->device];
  release_key_values(kernel, winner, values);
  bool ok = table_row_of_key(mapping, values, &members, error) &&
            (!mapping->prefer || expr_eval(mapping->prefer, values, &preferred, error)) &&
            table_path_make(kind, &place, members, &row.path, error);
  bool is_preferred = value_is_true(preferred);
  release_key_values_release(kernel, values);
  if (!ok)
    return false;

  for (size_t i = 0; i < kind->n_members; i++) {
    const json_t *value = json_object_get(members, kind->members[i].name);
    if (kind->members[i].use == TABLE_ROW)
      row.numbers[row.n_numbers++] =
          json_is_string(value) ? table_row_number(&kind->members[i], json_string_value(value))
                                : json_integer_value(value);
  }
  row.rank = string_equal(json_text(provenance, "origin"), "imported") ? RANK_IMPORTED
             : is_preferred                                            ? RANK_PREFERRED
                                                                       : RANK_OTHER;
  row.config = config_in_order(config, json_text(provenance, "order"));

  GROW(rendering->rows, rendering->n_rows, rendering->capacity);
  rendering->rows[rendering->n_rows++] = row;
  return true;
}

/* The kernel's winners, as the rows of tables of one kind. */
static bool rows_add(struct rendering *rendering, const struct table_kind *kind,
                     const struct kernel *manifest, const struct release_kernel *kernel,
                     struct error *error) {
  cleanup_table_mapping struct table_mapping mapping = {0};
  if (!table_mapping_read(kind, manifest, &mapping, error))
    return false;
  if (mapping.switches)
    json_object_update(rendering->switches, (json_t *)mapping.switches);

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
    json_t *config = json_array_get(configs, winner->config);
    struct error why;
    if (json_is_string(config))
      cache_files_skip(rendering->files, kernel, winner, json_string_value(config));
    else if (!row_add(rendering, &mapping, kernel, winner, config, &why))
      cache_files_skip(rendering->files, kernel, winner, why.message);
  }

  return true;
}

/* A kernel without exports is reported for the format's own kind. */
static void kernel_add(struct rendering *rendering, const struct release_kernel *kernel) {
  const struct table_family *family = rendering->family;
  const struct kernel *manifest = NULL;
  size_t n_kinds = 0;
  struct error why;
  bool ok = rendering->request->source->kernel ||
            error_set(&why, "manifests are not available here, and they state what the kernel's "
                            "key means");
  if (!ok || !request_manifest(rendering->request, kernel, &manifest, &why)) {
    cache_files_skip(rendering->files, kernel, NULL, why.message);
    return;
  }

  for (size_t i = 0; i < TABLE_KINDS_MAX && family->kinds[i]; i++) {
    if (!table_is_exported(family->kinds[i], manifest))
      continue;
    n_kinds++;
    if (!rows_add(rendering, family->kinds[i], manifest, kernel, &why))
      cache_files_skip(rendering->files, kernel, NULL, why.message);
  }
  if (!n_kinds && !rows_add(rendering, family->kinds[0], manifest, kernel, &why))
    cache_files_skip(rendering->files, kernel, NULL, why.message);
}

/* The files */

/* 0: the same row of the same table, where the first is written. */
static int rows_compare_places(const struct row *a, const struct row *b) {
  int order = strcmp(a->path, b->path);
  for (size_t i = 0; !order && i < NUMBERS_MAX; i++)
    order = (a->numbers[i] > b->numbers[i]) - (a->numbers[i] < b->numbers[i]);
  return order;
}

static int rows_compare(const void *a, const void *b) {
  const struct row *left = a, *right = b;
  int order = rows_compare_places(left, right);
  if (!order)
    order = (left->rank > right->rank) - (left->rank < right->rank);
  return order ? order : (left->order > right->order) - (left->order < right->order);
}

/* Whether the row is written; another winner's row for the same place was before it. */
static bool row_is_first(struct rendering *rendering, const struct row *first,
                         const struct row *row) {
  if (first == row || rows_compare_places(first, row) != 0)
    return true;

  const struct table_member *member = table_first_row(row->kind) + row->n_numbers - 1;
  char text[TABLE_ROW_SIZE];
  struct error why;
  bool was_replaced = row->rank == RANK_IMPORTED && first->rank == RANK_PREFERRED;
  if (was_replaced || json_equal(first->config, row->config))
    return false;
  error_set(&why, "another winner is the same row, %s = %s, of the same table", member->name,
            table_row_text(member, row->numbers[row->n_numbers - 1], text));
  cache_files_skip(rendering->files, row->kernel, row->winner, why.message);
  return false;
}

/* Puts the row's config into the body, below an object for each number but the last. */
static void body_add(json_t *body, const struct row *row, json_t *config) {
  const struct table_member *member = table_first_row(row->kind);
  char text[TABLE_ROW_SIZE];
  for (size_t i = 0; i + 1 < row->n_numbers; i++, member++) {
    const char *name = table_row_text(member, row->numbers[i], text);
    json_t *below = json_object_get(body, name);
    if (!below)
      json_put(body, name, below = json_object());
    body = below;
  }
  json_object_set(body, table_row_text(member, row->numbers[row->n_numbers - 1], text), config);
}

/* For each of a table's rows, which ascend, the numbers for which the reader takes it: the nearest
 * one, and of two the lower; of bounds the first that is not exceeded. NULL: rows are found by
 * other rules. */
static json_t *takes_make(const struct table_kind *kind, const int64_t *numbers, size_t n) {
  const struct table_member *member = table_first_row(kind);
  bool is_bound = member->value == TABLE_BOUND;
  json_t *takes = json_object();
  int64_t from = 1;
  char text[TABLE_ROW_SIZE];

  for (size_t i = 0; i < n; i++) {
    if (is_bound && !table_bound_is_read(numbers[i]) && numbers[i] != TABLE_BOUND_ANY) {
      json_decref(takes);
      return NULL;
    }
    bool has_end = is_bound ? numbers[i] != TABLE_BOUND_ANY : i + 1 < n;
    int64_t to = is_bound || !has_end ? numbers[i] : (numbers[i] + numbers[i + 1]) / 2;
    json_t *end = has_end ? json_integer((json_int_t)to) : json_null();
    json_put(takes, table_row_text(member, numbers[i], text),
             json_pack("[I, o]", (json_int_t)from, end));
    from = to + 1;
  }
  return takes;
}

/* Writes the table of the rows, which are n of one path. */
static void table_write(struct rendering *rendering, struct row *rows, size_t n) {
  const struct table_kind *kind = rows->kind;
  const char *path = rows->path;
  const struct row *first = rows;
  cleanup_json json_t *body = json_object();
  cleanup_free int64_t *numbers = xcalloc(n + 1, sizeof *numbers);
  size_t n_written = 0, n_imported = 0, size;
  if (table_kind_of_path(rendering->family, path) != kind) {
    struct error why;
    error_set(&why, "no program reads a table named %.200s", path);
    for (size_t i = 0; i < n; i++)
      cache_files_skip(rendering->files, rows[i].kernel, rows[i].winner, why.message);
    return;
  }

  for (size_t i = 0; i < n; i++) {
    if (!row_is_first(rendering, first, &rows[i]))
      continue;
    first = &rows[i];
    body_add(body, first, first->config);
    n_imported += first->rank == RANK_IMPORTED;
    numbers[n_written++] = first->numbers[0];
  }

  /* AITER fails for an M above the last bound, unless there is a row "any". */
  if (table_first_row(kind)->value == TABLE_BOUND && first->numbers[0] <= TABLE_NUMBER_MAX &&
      n_imported < n_written) {
    json_object_set(body, "any", first->config);
    numbers[n_written++] = TABLE_BOUND_ANY;
    rendering->has_any = true;
  }

  json_t *takes = first->n_numbers == 1 ? takes_make(kind, numbers, n_written) : NULL;
  json_put(rendering->about, path,
           json_pack("{s:I, s:I, s:o*}", "imported", (json_int_t)n_imported, "rows",
                     (json_int_t)n_written, "takes", takes));
  cleanup_free char *text = python_json(body, 4, &size);
  cache_files_add(rendering->files, path, xasprintf("%s\n", text), size + 1);
}

static void about_write(struct rendering *rendering) {
  const struct release *release = rendering->request->release;
  json_t *notes = json_array();
  if (rendering->has_any)
    cache_files_note(rendering->files, "AITER fails for an M above the bounds of a table: the row "
                                       "of the highest is \"any\", too.");
  for (size_t i = 0; i < rendering->files->n_notes; i++)
    json_push(notes, json_string(rendering->files->notes[i]));
  cleanup_json json_t *about = json_pack(
      "{s:o, s:O, s:s, s:o, s:o, s:O}", "environment", environment_to_json(&release->environment),
      "files", rendering->about, "format", rendering->family->format, "notes", notes, "release",
      json_digest_text(&release->digest), "switches", rendering->switches);
  ALWAYS(about != NULL);
  cache_files_add_json(rendering->files, TABLES_FILE, about);
}

bool tables_render(const struct table_family *family, const struct render_request *request,
                   struct cache_files *ret, struct error *error) {
  cleanup_by(rendering_release) struct rendering rendering = {.family = family,
                                                              .request = request,
                                                              .switches = json_object(),
                                                              .about = json_object(),
                                                              .files = ret};
  if (!place_find(&rendering, error))
    return false;

  table_switches_add(family, request->release->environment.rocm != NULL, rendering.switches);
  for (size_t i = 0; i < request->release->n_kernels; i++)
    kernel_add(&rendering, &request->release->kernels[i]);

  struct row *rows = rendering.rows;
  if (rendering.n_rows)
    qsort(rows, rendering.n_rows, sizeof *rows, rows_compare);
  for (size_t i = 0, n; i < rendering.n_rows; i += n) {
    for (n = 1; i + n < rendering.n_rows && string_equal(rows[i].path, rows[i + n].path);)
      n++;
    table_write(&rendering, &rows[i], n);
  }

  if (!cache_files_any(ret, family->format, error))
    return false;
  about_write(&rendering);
  cache_files_variable(ret, family->variable ? family->variable : "WAVETUNE_TABLES", "", NULL);
  return true;
}

/* The formats */

#define FAMILY(id)                                                                                 \
  static bool id##_render(const struct render_request *request, struct cache_files *ret,           \
                          struct error *error) {                                                   \
    return tables_render(&tables_##id, request, ret, error);                                       \
  }                                                                                                \
  static bool id##_read(const struct import_request *request, const struct cache_file *file,       \
                        struct imported *imported, struct error *error) {                          \
    return tables_read(&tables_##id, request, file, imported, error);                              \
  }                                                                                                \
  static bool id##_has(const char *path) { return table_family_has(&tables_##id, path); }
FAMILY(vllm_moe)
FAMILY(vllm_w8a8)
FAMILY(sglang_moe)
FAMILY(sglang_w8a8)
FAMILY(aiter_triton)

const struct cache_format format_vllm_moe = {
    .name = "vllm-moe",
    .summary = "tables in VLLM_TUNED_CONFIG_FOLDER: experts, Mamba's state update, LoRA",
    .render = vllm_moe_render,
    .table = "table E=…,N=…,device_name=….json, headdim=….json or GPU_SHRINK.json",
    .is_table = vllm_moe_has,
    .read = vllm_moe_read,
};

const struct cache_format format_vllm_w8a8 = {
    .name = "vllm-w8a8",
    .summary = "tables of vLLM's block-scaled GEMM in 8 bits",
    .render = vllm_w8a8_render,
    .table = "table N=…,K=…,device_name=….json",
    .is_table = vllm_w8a8_has,
    .read = vllm_w8a8_read,
};

const struct cache_format format_sglang_moe = {
    .name = "sglang-moe",
    .summary = "fused mixture-of-experts tables of SGLang (SGLANG_MOE_CONFIG_DIR)",
    .render = sglang_moe_render,
    .table = "table E=…,N=…,device_name=….json",
    .is_table = sglang_moe_has,
    .read = sglang_moe_read,
};

const struct cache_format format_sglang_w8a8 = {
    .name = "sglang-w8a8",
    .summary = "tables of SGLang's block-scaled GEMM in 8 bits",
    .render = sglang_w8a8_render,
    .table = "table N=…,K=…,device_name=….json",
    .is_table = sglang_w8a8_has,
    .read = sglang_w8a8_read,
};

const struct cache_format format_aiter_triton = {
    .name = "aiter-triton",
    .summary = "tables of AITER's Triton GEMMs and experts, by arch",
    .render = aiter_triton_render,
    .table = "table gfx942-GEMM-….json",
    .is_table = aiter_triton_has,
    .read = aiter_triton_read,
};
