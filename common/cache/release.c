/* Releases: which environments they serve, their order, how two differ, and making them.
 * release_read.c reads them.
 *
 * A builder keeps entries as the texts of the release, so that they are sorted and compared as
 * texts. Memory: a release owns everything, a builder owns copies. Threads: a release is read-only;
 * a builder is used by one thread. */
#include <math.h>

#include "common/cache/release.h"

const char *const cache_rule_names[] = {"exact", "unstated", "minor", "compatible", NULL};

const char *cache_rule_name(enum cache_rule rule) { return cache_rule_names[rule]; }

bool cache_rule_parse(const char *name, enum cache_rule *ret_rule) {
  for (size_t i = 0; cache_rule_names[i]; i++)
    if (string_equal(name, cache_rule_names[i])) {
      *ret_rule = (enum cache_rule)i;
      return true;
    }
  return false;
}

bool cache_rule_serves(enum cache_rule rule, const struct environment *requested,
                       const struct environment *served) {
  struct environment compared = *requested; /* borrowed: what must be equal */
  switch (rule) {
  case CACHE_RULE_EXACT:
    return environment_fits(requested, served);

  case CACHE_RULE_UNSTATED:
    return environment_can_use(served, requested);

  case CACHE_RULE_MINOR:
    compared.rocm = NULL;
    return requested->rocm && served->rocm && version_minors_equal(requested->rocm, served->rocm) &&
           environment_fits(&compared, served);

  case CACHE_RULE_COMPATIBLE:
    compared = (struct environment){.arch = requested->arch,
                                    .partition = requested->partition,
                                    .compute_units = requested->compute_units};
    return environment_fits(&compared, served);
  }

  die("no such rule");
}

bool cache_rules_serve(enum cache_rule widest, const struct environment *requested,
                       const struct environment *served) {
  for (enum cache_rule rule = CACHE_RULE_EXACT; rule <= widest; rule++)
    if (cache_rule_serves(rule, requested, served))
      return true;
  return false;
}

void release_free(struct release *release) {
  if (!release)
    return;

  for (size_t i = 0; i < release->n_kernels; i++) {
    struct release_kernel *kernel = &release->kernels[i];
    free(kernel->name);
    for (size_t j = 0; j < kernel->n_key_names; j++)
      free(kernel->key_names[j]);
    free(kernel->key_names);
    for (size_t j = 0; j < kernel->n_configs; j++)
      json_decref(kernel->configs[j].values);
    free(kernel->configs);
    for (size_t j = 0; j < kernel->n_provenance; j++)
      json_decref(kernel->provenance[j]);
    free(kernel->provenance);
    free(kernel->winners);
  }

  free(release->kernels);
  environment_release(&release->environment);
  free(release->tag);
  free(release->bytes);
  free(release);
}

int release_kernel_compare(const struct release_kernel *a, const struct release_kernel *b) {
  int order = strcmp(a->name, b->name);
  return order ? order : memcmp(a->hash.bytes, b->hash.bytes, DIGEST_SIZE);
}

int release_winner_compare(const struct release_winner *a, const struct release_winner *b) {
  int order = memcmp(a->key, b->key, a->key_size < b->key_size ? a->key_size : b->key_size);
  return order ? order : (a->key_size > b->key_size) - (a->key_size < b->key_size);
}

/* Differences */

/* A position among all winners in their order. */
struct position {
  const struct release *release;
  size_t kernel, winner;
};

static const struct release_kernel *position_kernel(const struct position *position) {
  return position->kernel < position->release->n_kernels
             ? &position->release->kernels[position->kernel]
             : NULL;
}

static json_t *position_config(const struct position *position) {
  const struct release_kernel *kernel = position_kernel(position);
  return kernel->configs[kernel->winners[position->winner].config].values;
}

static void position_advance(struct position *position) {
  if (++position->winner == position_kernel(position)->n_winners) {
    position->kernel++;
    position->winner = 0;
  }
}

/* The end is after all other positions. */
static int positions_compare(const struct position *a, const struct position *b) {
  const struct release_kernel *left = position_kernel(a), *right = position_kernel(b);
  if (!left || !right)
    return left ? -1 : 1;
  int order = release_kernel_compare(left, right);
  return order ? order
               : release_winner_compare(&left->winners[a->winner], &right->winners[b->winner]);
}

/* The winner with its config under `name`. */
static json_t *winner_to_json(const struct position *position, const char *name) {
  const struct release_kernel *kernel = position_kernel(position);
  json_t *json = json_pack("{s:s, s:o, s:o, s:O}", "name", kernel->name, "kernel",
                           json_digest_text(&kernel->hash), "key",
                           release_key_object(kernel, &kernel->winners[position->winner]), name,
                           position_config(position));
  ALWAYS(json != NULL);
  return json;
}

json_t *release_diff(const struct release *from, const struct release *to) {
  struct position before = {from}, after = {to};
  json_t *added = json_array(), *removed = json_array(), *changed = json_array();
  json_int_t same = 0;

  while (position_kernel(&before) || position_kernel(&after)) {
    int order = positions_compare(&before, &after);
    if (order == 0 && json_equal(position_config(&before), position_config(&after))) {
      same++;
    } else if (order == 0) {
      json_t *change = winner_to_json(&after, "to");
      json_put(change, "from", json_incref(position_config(&before)));
      json_push(changed, change);
    } else {
      json_push(order < 0 ? removed : added,
                winner_to_json(order < 0 ? &before : &after, "config"));
    }
    if (order <= 0)
      position_advance(&before);
    if (order >= 0)
      position_advance(&after);
  }

  return json_pack("{s:o, s:o, s:o, s:I}", "added", added, "removed", removed, "changed", changed,
                   "same", same);
}

/* Making a release */

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

void release_builder_free(struct release_builder *builder) {
  for (size_t i = 0; i < builder->n; i++) {
    struct entry *entry = &builder->entries[i];
    free(entry->name);
    free(entry->key_names);
    free(entry->key);
    free(entry->config);
    free(entry->provenance);
  }

  free(builder->entries);
  environment_release(&builder->environment);
  free(builder->tag);
  free(builder);
}

static bool object_is_flat(const json_t *object, const char *what, const char *kernel,
                           struct error *error) {
  if (!json_is_object(object))
    return error_set(error, "the %s of a winner of %.100s is not an object", what, kernel);
  json_members (object, name, value)
    if (json_is_object(value) || json_is_array(value))
      return error_set(error,
                       "\"%.64s\" in the %s of a winner of %.100s must be "
                       "null, a boolean, a number or a string",
                       name, what, kernel);

  return true;
}

static bool entry_check(const struct release_entry *entry, struct error *error) {
  const char *name = entry->name;
  if (!name[0])
    return error_set(error, "a kernel without a name cannot be in a release");
  if (!object_is_flat(entry->key, "key", name, error))
    return false;

  for (size_t i = 0; i < entry->n_key_names; i++)
    if (!json_object_get(entry->key, entry->key_names[i]))
      return error_set(error, "the key of a winner of %.100s lacks its member \"%.64s\"", name,
                       entry->key_names[i]);
  if (json_object_size(entry->key) != entry->n_key_names)
    return error_set(error, "the key of a winner of %.100s has %zu members; the kernel's has %zu",
                     name, json_object_size(entry->key), entry->n_key_names);
  if (!object_is_flat(entry->config, "config", name, error) ||
      !object_is_flat(entry->provenance, "provenance", name, error))
    return false;

  if (entry->n_ms != 0 && entry->n_ms != 1 && entry->n_ms != RELEASE_MS_MAX)
    return error_set(error, "a winner of %.100s has %zu times; 0, 1 or %d are possible", name,
                     entry->n_ms, RELEASE_MS_MAX);

  for (size_t i = 0; i < entry->n_ms; i++)
    if (!isfinite(entry->ms[i]) || entry->ms[i] <= 0)
      return error_set(error, "a winner of %.100s takes %g ms; a time is finite and above 0", name,
                       entry->ms[i]);

  if (entry->job < 0)
    return error_set(error, "a winner of %.100s is of job %lld; ids are 1 or more", name,
                     (long long)entry->job);
  if (!json_is_string(json_object_get(entry->provenance, "origin")))
    return error_set(error, "the provenance of a winner of %.100s lacks its \"origin\"", name);
  if (entry->has_ordinal && entry->ordinal > INT64_MAX)
    return error_set(error, "a winner of %.100s has an ordinal above 2^63", name);
  return true;
}

bool release_builder_add(struct release_builder *builder, const struct release_entry *entry,
                         struct error *error) {
  if (!entry_check(entry, error))
    return false;

  cleanup_json json_t *names = json_array(), *values = json_array(), *config = json_object();
  for (size_t i = 0; i < entry->n_key_names; i++) {
    const char *name = entry->key_names[i];
    json_push(names, json_string(name));
    json_push(values, json_incref(json_object_get(entry->key, name)));
  }

  json_put(config, "values", json_incref((json_t *)entry->config));
  if (entry->has_ordinal) {
    json_put(config, "ordinal", json_integer((json_int_t)entry->ordinal));
    json_put(config, "space", json_digest_text(&entry->space));
  }

  GROW(builder->entries, builder->n, builder->capacity);
  struct entry *added = &builder->entries[builder->n++];
  *added = (struct entry){.name = xstrdup(entry->name),
                          .kernel = entry->kernel,
                          .key_names = json_canonical(names),
                          .key = json_canonical(values),
                          .config = json_canonical(config),
                          .provenance = json_canonical(entry->provenance),
                          .n_ms = entry->n_ms,
                          .job = entry->job};

  for (size_t i = 0; i < entry->n_ms; i++)
    added->ms[i] = entry->ms[i];
  return true;
}

static int kernels_compare(const struct entry *a, const struct entry *b) {
  int order = strcmp(a->name, b->name);
  return order ? order : memcmp(a->kernel.bytes, b->kernel.bytes, DIGEST_SIZE);
}

static int entries_compare(const void *a, const void *b) {
  const struct entry *left = *(const struct entry *const *)a,
                     *right = *(const struct entry *const *)b;
  int order = kernels_compare(left, right);
  return order ? order : strcmp(left->key, right->key);
}

static int texts_compare(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts texts, removes duplicates, writes the rest and returns their number. */
static size_t texts_write(FILE *out, const char **texts, size_t n) {
  size_t n_left = 0;
  qsort(texts, n, sizeof *texts, texts_compare);

  for (size_t i = 0; i < n; i++) {
    if (n_left && string_equal(texts[n_left - 1], texts[i]))
      continue;
    texts[n_left++] = texts[i];
    if (n_left > 1)
      putc_unlocked(',', out);
    fputs_unlocked(texts[i], out);
  }

  return n_left;
}

static size_t text_index(const char *text, const char **texts, size_t n) {
  const char **found = bsearch(&text, texts, n, sizeof *texts, texts_compare);
  return (size_t)(found - texts);
}

static void kernel_write(FILE *out, const struct entry *const *entries, size_t n) {
  char number[FLOAT_TEXT_SIZE];
  cleanup_free const char **configs = xcalloc(n, sizeof *configs),
                          **provenance = xcalloc(n, sizeof *provenance);
  for (size_t i = 0; i < n; i++) {
    configs[i] = entries[i]->config;
    provenance[i] = entries[i]->provenance;
  }

  fputs_unlocked("{\"configs\":[", out);
  size_t n_configs = texts_write(out, configs, n);
  fprintf(out, "],\"kernel\":\"%s\",\"key\":%s,\"name\":", DIGEST_TEXT(&entries[0]->kernel),
          entries[0]->key_names);
  json_canonical_write_string(out, entries[0]->name);
  fputs_unlocked(",\"provenance\":[", out);
  size_t n_provenance = texts_write(out, provenance, n);

  fputs_unlocked("],\"winners\":[", out);

  for (size_t i = 0; i < n; i++) {
    const struct entry *entry = entries[i];
    fprintf(out, "%s[%s,%zu,%zu,[", i ? "," : "", entry->key,
            text_index(entry->config, configs, n_configs),
            text_index(entry->provenance, provenance, n_provenance));
    for (size_t j = 0; j < entry->n_ms; j++)
      fprintf(out, "%s%s", j ? "," : "", float_format(entry->ms[j], number));
    fprintf(out, "],%lld]", (long long)entry->job);
  }

  fputs_unlocked("]}", out);
}

bool release_builder_finish(const struct release_builder *builder, struct release **ret_release,
                            struct error *error) {
  size_t n = builder->n, size;
  if (!n)
    return error_set(error, "a release has at least one winner");

  cleanup_free const struct entry **sorted = xcalloc(n, sizeof(struct entry *));
  for (size_t i = 0; i < n; i++)
    sorted[i] = &builder->entries[i];
  qsort(sorted, n, sizeof *sorted, entries_compare);

  for (size_t i = 1; i < n; i++) {
    const struct entry *one = sorted[i - 1], *other = sorted[i];
    if (kernels_compare(one, other) != 0)
      continue;
    if (!string_equal(one->key_names, other->key_names))
      return error_set(
          error, "winners of %.100s have keys %.150s and %.150s: a kernel has one list of names",
          one->name, one->key_names, other->key_names);
    if (string_equal(one->key, other->key))
      return error_set(
          error, "two winners for kernel %.100s and key %.300s: a release has one for each key",
          one->name, one->key);
  }

  cleanup_free char *bytes = NULL;
  cleanup_json json_t *environment = environment_to_json(&builder->environment);
  FILE *out = open_memstream(&bytes, &size);
  ALWAYS(out != NULL);
  fputs_unlocked("{\"environment\":", out);
  json_canonical_write(out, environment);
  fputs_unlocked(",\"kernels\":[", out);

  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && kernels_compare(sorted[first], sorted[end]) == 0; end++)
      ;
    if (first)
      putc_unlocked(',', out);
    kernel_write(out, sorted + first, end - first);
  }

  fputs_unlocked("]", out);
  if (regime_member(builder->regime)) {
    fputs_unlocked(",\"regime\":", out);
    json_canonical_write_string(out, regime_member(builder->regime));
  }
  fputs_unlocked(",\"tag\":", out);
  json_canonical_write_string(out, builder->tag);
  fputs_unlocked(",\"version\":2}", out);
  ALWAYS(fclose(out) == 0);

  struct digest digest = digest_of(bytes, size);
  return release_take(&bytes, size, &digest, ret_release, error);
}
