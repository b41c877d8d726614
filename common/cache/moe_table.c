/* Mixture-of-experts tables, written and read. Memory and threads: what format.h says. */
#include "common/cache/moe_table.h"

#include "common/cache/moe_mapping.h"
#include "common/cache/python_text.h"

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
    error_set(error, "the tables of SGLang lie in a folder named after Triton's version, and the environment states %s",
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
  const char *name = identity && identity->moe_device_name ? identity->moe_device_name : environment->gpu;
  if (!name)
    return error_set(error, "the environment of the release states no gpu, which is in the names of the tables");
  char *device = rendering->device = xstrdup(name);
  for (char *c = device; *c; c++)
    *c = *c == ' ' || *c == '/' || *c == ',' ? '_' : *c;
  static const char *const forms[] = {"_OAM", "_VF"};
  bool from_name = !(identity && identity->moe_device_name) && rendering->dialect->takes_device_from_pci;
  for (size_t i = 0; from_name && i < ARRAY_LENGTH(forms); i++) {
    size_t size = strlen(device), suffix = strlen(forms[i]);
    if (string_starts(device, "AMD_Instinct_") && size > suffix && strcmp(device + size - suffix, forms[i]) == 0)
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

static bool winner_add(struct rendering *rendering, const struct moe_mapping *mapping, json_t *config,
                       const char *order, const struct value *values, struct error *error) {
  cleanup_moe_name struct moe_name name = {0};
  int64_t m = 0;
  if (!moe_mapping_name(mapping, values, &name, &m, error))
    return false;
  name.device = xstrdup(rendering->device);
  cleanup_free char *file = moe_name_format(rendering->dialect, &name);
  cleanup_free char *path = xasprintf("%s%s", rendering->folder, file);
  cleanup_free char *row = xasprintf("%s %lld", path, (long long)m);
  if (json_object_get(rendering->by_path, row))
    return error_set(error, "another winner is the same row, M = %lld, of the same table", (long long)m);
  json_object_set_new(rendering->by_path, row, json_true());
  struct table *table = table_find(rendering, path);
  GROW(table->rows, table->n, table->capacity);
  table->rows[table->n++] = (struct row){m, order ? config_in_order(config, order) : json_incref(config)};
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

static bool kernel_add(struct rendering *rendering, const struct release_kernel *kernel, struct error *error) {
  const struct cache_source *source = rendering->request->source;
  const struct kernel *manifest = NULL;
  cleanup_moe_mapping struct moe_mapping mapping = {0};
  __attribute__((cleanup(configs_release))) struct configs configs = {0};
  if (!source->kernel)
    return error_set(error, "manifests are not to be had here, and they say what the kernel's key means");
  if (!source->kernel(source->context, &kernel->hash, &manifest, error) ||
      !moe_mapping_read(rendering->dialect, manifest, &mapping, error))
    return false;
  configs_map(&configs, &mapping, kernel);
  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    const char *order = json_string_value(json_object_get(kernel->provenance[winner->provenance], "order"));
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

bool moe_render(const struct moe_dialect *dialect, const struct render_request *request, struct cache_files *ret,
                struct error *error) {
  __attribute__((cleanup(rendering_release))) struct rendering rendering = {
      .dialect = dialect, .request = request, .by_path = json_object(), .files = ret};
  const struct identity *identity = request->identity;
  const char *triton =
      identity && identity->triton_version ? identity->triton_version : request->release->environment.triton;
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
