/* Making a release. Entries are kept as the texts that the release will hold, so that sorting and
 * finding what is there twice is comparing texts. Memory: the builder owns copies. Threads: one to
 * a builder. */
#include "common/cache/release_build.h"

#include <math.h>

struct entry {
  char *name;
  struct digest kernel;
  char *key_names, *key, *config, *provenance; /* canonical */
  size_t n_ms;
  double ms[RELEASE_MS_MAX];
  int64_t job;
};

struct release_builder {
  struct environment environment;
  char *tag;
  enum regime regime;
  size_t n, capacity;
  struct entry *entries;
};

struct release_builder *release_builder_new(const struct environment *environment, const char *tag,
                                            enum regime regime) {
  struct release_builder *builder = xcalloc(1, sizeof *builder);
  builder->environment = environment_copy(environment);
  builder->tag = xstrdup(tag);
  builder->regime = regime;
  return builder;
}

static void entry_release(struct entry *entry) {
  free(entry->name);
  free(entry->key_names);
  free(entry->key);
  free(entry->config);
  free(entry->provenance);
}

void release_builder_free(struct release_builder *builder) {
  if (!builder)
    return;
  for (size_t i = 0; i < builder->n; i++)
    entry_release(&builder->entries[i]);
  free(builder->entries);
  environment_release(&builder->environment);
  free(builder->tag);
  free(builder);
}

static bool is_scalar(const json_t *value) {
  return value && !json_is_object(value) && !json_is_array(value);
}

static bool object_is_flat(const json_t *object, const char *what, const char *kernel,
                           struct error *error) {
  const char *name;
  json_t *value;
  if (!json_is_object(object))
    return error_set(error, "the %s of a winner of %.100s is not an object", what, kernel);
  json_object_foreach ((json_t *)object, name, value)
    if (!is_scalar(value))
      return error_set(
          error,
          "\"%.64s\" in the %s of a winner of %.100s must be null, a boolean, a number or a string",
          name, what, kernel);
  return true;
}

static bool key_is_complete(const struct release_entry *entry, struct error *error) {
  if (!object_is_flat(entry->key, "key", entry->name, error))
    return false;
  for (size_t i = 0; i < entry->n_key_names; i++)
    if (!json_object_get(entry->key, entry->key_names[i]))
      return error_set(error, "the key of a winner of %.100s lacks its member \"%.64s\"",
                       entry->name, entry->key_names[i]);
  if (json_object_size(entry->key) != entry->n_key_names)
    return error_set(error, "the key of a winner of %.100s has %zu members; the kernel's has %zu",
                     entry->name, json_object_size(entry->key), entry->n_key_names);
  return true;
}

static bool ms_is_possible(const struct release_entry *entry, struct error *error) {
  if (entry->n_ms != 0 && entry->n_ms != 1 && entry->n_ms != RELEASE_MS_MAX)
    return error_set(error, "a winner of %.100s has %zu times; 0, 1 or %d are possible",
                     entry->name, entry->n_ms, RELEASE_MS_MAX);
  for (size_t i = 0; i < entry->n_ms; i++)
    if (!isfinite(entry->ms[i]) || entry->ms[i] <= 0)
      return error_set(error, "a winner of %.100s takes %g ms; a time is finite and above 0",
                       entry->name, entry->ms[i]);
  if (entry->job < 0)
    return error_set(error, "a winner of %.100s is of job %lld; ids are 1 or more", entry->name,
                     (long long)entry->job);
  return true;
}

static char *key_names_text(const struct release_entry *entry) {
  cleanup_json json_t *names = json_array();
  for (size_t i = 0; i < entry->n_key_names; i++)
    ALWAYS(json_array_append_new(names, json_string(entry->key_names[i])) == 0);
  return json_canonical(names);
}

static char *key_text(const struct release_entry *entry) {
  cleanup_json json_t *values = json_array();
  for (size_t i = 0; i < entry->n_key_names; i++)
    ALWAYS(json_array_append(values, json_object_get(entry->key, entry->key_names[i])) == 0);
  return json_canonical(values);
}

static char *config_text(const struct release_entry *entry) {
  cleanup_json json_t *config = json_object();
  ALWAYS(json_object_set(config, "values", (json_t *)entry->config) == 0);
  if (entry->has_ordinal) {
    ALWAYS(json_object_set_new(config, "ordinal", json_integer((json_int_t)entry->ordinal)) == 0);
    ALWAYS(json_object_set_new(config, "space", json_digest_text(&entry->space)) == 0);
  }
  return json_canonical(config);
}

bool release_builder_add(struct release_builder *builder, const struct release_entry *entry,
                         struct error *error) {
  if (!entry->name[0])
    return error_set(error, "a kernel without a name has no place in a release");
  if (!key_is_complete(entry, error) ||
      !object_is_flat(entry->config, "config", entry->name, error) ||
      !object_is_flat(entry->provenance, "provenance", entry->name, error) ||
      !ms_is_possible(entry, error))
    return false;
  if (!json_is_string(json_object_get(entry->provenance, "origin")))
    return error_set(error, "the provenance of a winner of %.100s lacks its \"origin\"",
                     entry->name);
  if (entry->has_ordinal && entry->ordinal > INT64_MAX)
    return error_set(error, "a winner of %.100s has an ordinal above 2^63", entry->name);
  GROW(builder->entries, builder->n, builder->capacity);
  struct entry *added = &builder->entries[builder->n++];
  *added = (struct entry){.name = xstrdup(entry->name),
                          .kernel = entry->kernel,
                          .key_names = key_names_text(entry),
                          .key = key_text(entry),
                          .config = config_text(entry),
                          .provenance = json_canonical(entry->provenance),
                          .n_ms = entry->n_ms,
                          .job = entry->job};
  for (size_t i = 0; i < entry->n_ms; i++)
    added->ms[i] = entry->ms[i];
  return true;
}

static int entries_compare(const void *a, const void *b) {
  const struct entry *left = *(const struct entry *const *)a,
                     *right = *(const struct entry *const *)b;
  int order = strcmp(left->name, right->name);
  if (!order)
    order = memcmp(left->kernel.bytes, right->kernel.bytes, DIGEST_SIZE);
  return order ? order : strcmp(left->key, right->key);
}

static bool same_kernel(const struct entry *a, const struct entry *b) {
  return memcmp(a->kernel.bytes, b->kernel.bytes, DIGEST_SIZE) == 0 &&
         strcmp(a->name, b->name) == 0;
}

static bool entries_agree(const struct entry *const *sorted, size_t n, struct error *error) {
  for (size_t i = 1; i < n; i++) {
    const struct entry *one = sorted[i - 1], *other = sorted[i];
    if (!same_kernel(one, other))
      continue;
    if (strcmp(one->key_names, other->key_names) != 0)
      return error_set(
          error, "winners of %.100s have keys %.150s and %.150s: a kernel has one list of names",
          one->name, one->key_names, other->key_names);
    if (strcmp(one->key, other->key) == 0)
      return error_set(
          error, "two winners for kernel %.100s and key %.300s: a release has one for each key",
          one->name, one->key);
  }
  return true;
}

/* Texts, sorted, each once. They belong to the entries. */
struct texts {
  size_t n;
  const char **sorted;
};

static void texts_release(struct texts *texts) { free(texts->sorted); }

static int texts_compare(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void texts_settle(struct texts *texts) {
  size_t n = 0;
  qsort(texts->sorted, texts->n, sizeof *texts->sorted, texts_compare);
  for (size_t i = 0; i < texts->n; i++)
    if (n == 0 || strcmp(texts->sorted[n - 1], texts->sorted[i]) != 0)
      texts->sorted[n++] = texts->sorted[i];
  texts->n = n;
}

static size_t texts_find(const struct texts *texts, const char *text) {
  const char **found =
      bsearch(&text, texts->sorted, texts->n, sizeof *texts->sorted, texts_compare);
  return (size_t)(found - texts->sorted);
}

static void texts_write(FILE *out, const struct texts *texts) {
  for (size_t i = 0; i < texts->n; i++) {
    if (i)
      putc_unlocked(',', out);
    fputs_unlocked(texts->sorted[i], out);
  }
}

static void winner_write(FILE *out, const struct entry *entry, size_t config, size_t provenance) {
  char number[FLOAT_TEXT_SIZE];
  fprintf(out, "[%s,%zu,%zu,[", entry->key, config, provenance);
  for (size_t i = 0; i < entry->n_ms; i++)
    fprintf(out, "%s%s", i ? "," : "", float_format(entry->ms[i], number));
  fprintf(out, "],%lld]", (long long)entry->job);
}

static void kernel_write(FILE *out, const struct entry *const *entries, size_t n) {
  char digest[DIGEST_TEXT_SIZE];
  __attribute__((cleanup(texts_release))) struct texts configs = {n, xcalloc(n, sizeof(char *))};
  __attribute__((cleanup(texts_release))) struct texts provenance = {n, xcalloc(n, sizeof(char *))};
  for (size_t i = 0; i < n; i++) {
    configs.sorted[i] = entries[i]->config;
    provenance.sorted[i] = entries[i]->provenance;
  }
  texts_settle(&configs);
  texts_settle(&provenance);
  fputs_unlocked("{\"configs\":[", out);
  texts_write(out, &configs);
  fprintf(out,
          "],\"kernel\":\"%s\",\"key\":%s,\"name\":", digest_format(&entries[0]->kernel, digest),
          entries[0]->key_names);
  json_canonical_write_string(out, entries[0]->name);
  fputs_unlocked(",\"provenance\":[", out);
  texts_write(out, &provenance);
  fputs_unlocked("],\"winners\":[", out);
  for (size_t i = 0; i < n; i++) {
    if (i)
      putc_unlocked(',', out);
    winner_write(out, entries[i], texts_find(&configs, entries[i]->config),
                 texts_find(&provenance, entries[i]->provenance));
  }
  fputs_unlocked("]}", out);
}

static char *bytes_write(const struct release_builder *builder, const struct entry *const *sorted,
                         size_t *ret_size) {
  char *bytes = NULL;
  cleanup_json json_t *environment = environment_to_json(&builder->environment);
  FILE *out = open_memstream(&bytes, ret_size);
  ALWAYS(out != NULL);
  fputs_unlocked("{\"environment\":", out);
  json_canonical_write(out, environment);
  fputs_unlocked(",\"kernels\":[", out);
  for (size_t first = 0, end; first < builder->n; first = end) {
    for (end = first + 1; end < builder->n && same_kernel(sorted[first], sorted[end]); end++)
      ;
    if (first)
      putc_unlocked(',', out);
    kernel_write(out, sorted + first, end - first);
  }
  fputs_unlocked(builder->regime == REGIME_WARM ? "],\"regime\":\"warm\",\"tag\":" : "],\"tag\":",
                 out);
  json_canonical_write_string(out, builder->tag);
  fputs_unlocked(",\"version\":2}", out);
  ALWAYS(fclose(out) == 0);
  return bytes;
}

bool release_builder_finish(const struct release_builder *builder, struct release **ret_release,
                            struct error *error) {
  if (!builder->n)
    return error_set(error, "a release holds at least one winner");
  cleanup_free const struct entry **sorted = xcalloc(builder->n, sizeof(struct entry *));
  for (size_t i = 0; i < builder->n; i++)
    sorted[i] = &builder->entries[i];
  qsort(sorted, builder->n, sizeof *sorted, entries_compare);
  if (!entries_agree(sorted, builder->n, error))
    return false;
  size_t size;
  cleanup_free char *bytes = bytes_write(builder, sorted, &size);
  struct digest digest = digest_of(bytes, size);
  return release_take(&bytes, size, &digest, ret_release, error);
}
