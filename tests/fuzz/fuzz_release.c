/* Any bytes as a release. release_parse accepts exactly what this slower check accepts: jansson
 * reads it, json_canonical writes the same bytes, and the members are those of the header. What was
 * read does not differ from itself, and a builder that is given its winners in the opposite order
 * makes the same bytes. What release_take accepts, which may be written otherwise, jansson reads as
 * the same winners: what is hashed has one meaning. */
#include "common/cache/release.h"
#include "tests/fuzz/fuzz.h"

static bool is_scalar(const json_t *value) {
  return value && !json_is_object(value) && !json_is_array(value);
}

static bool is_flat(const json_t *object) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)object, name, value)
    if (!is_scalar(value))
      return false;
  return json_is_object(object);
}

static bool is_digest(const json_t *text) {
  struct digest ignored;
  return json_is_string(text) && digest_parse(json_string_value(text), &ignored);
}

static bool is_text(const json_t *text) {
  return json_is_string(text) && json_string_length(text) > 0;
}

static bool is_index(const json_t *number, size_t n) {
  return json_is_integer(number) && json_integer_value(number) >= 0 &&
         (size_t)json_integer_value(number) < n;
}

static bool is_config(const json_t *config) {
  const json_t *ordinal = json_object_get(config, "ordinal");
  size_t n = json_object_size(config);
  return is_flat(json_object_get(config, "values")) &&
         (n == 1 || (n == 3 && json_is_integer(ordinal) && json_integer_value(ordinal) >= 0 &&
                     is_digest(json_object_get(config, "space"))));
}

static bool is_provenance(const json_t *provenance) {
  const char *origin = json_string_value(json_object_get(provenance, "origin"));
  const json_t *build = json_object_get(provenance, "build");
  return is_flat(provenance) && (!build || is_digest(build)) &&
         (string_equal(origin, "tuned") || string_equal(origin, "pinned") ||
          string_equal(origin, "imported"));
}

static bool are_key_names(const json_t *names) {
  size_t n = json_array_size(names);
  for (size_t i = 0; i < n; i++) {
    if (!is_text(json_array_get(names, i)))
      return false;
    for (size_t j = 0; j < i; j++)
      if (json_equal(json_array_get(names, i), json_array_get(names, j)))
        return false;
  }
  return json_is_array(names) && n <= KEY_MEMBERS_MAX;
}

static bool are_ms(const json_t *ms) {
  size_t n = json_array_size(ms);
  for (size_t i = 0; i < n; i++)
    if (!json_is_real(json_array_get(ms, i)) || json_real_value(json_array_get(ms, i)) <= 0)
      return false;
  return json_is_array(ms) && (n == 0 || n == 1 || n == 3);
}

static bool is_winner(const json_t *winner, size_t n_key, size_t n_configs, size_t n_provenance) {
  const json_t *key = json_array_get(winner, 0), *job = json_array_get(winner, 4);
  for (size_t i = 0; i < json_array_size(key); i++)
    if (!is_scalar(json_array_get(key, i)))
      return false;
  return json_array_size(winner) == 5 && json_is_array(key) && json_array_size(key) == n_key &&
         is_index(json_array_get(winner, 1), n_configs) &&
         is_index(json_array_get(winner, 2), n_provenance) && are_ms(json_array_get(winner, 3)) &&
         json_is_integer(job) && json_integer_value(job) >= 0;
}

/* Whether the canonical texts of all elements (or, by_first, of their first elements) ascend. */
static bool is_sorted(const json_t *array, bool by_first) {
  cleanup_free char *former = NULL;
  size_t index;
  json_t *element;
  json_array_foreach (array, index, element) {
    cleanup_free char *text = json_canonical(by_first ? json_array_get(element, 0) : element);
    if (former && strcmp(former, text) >= 0)
      return false;
    free(former);
    former = TAKE(text);
  }

  return json_array_size(array) > 0;
}

static bool is_used(const json_t *winners, size_t column, size_t n) {
  cleanup_free bool *used = xcalloc(n + 1, sizeof *used);
  size_t index, count = 0;
  json_t *winner;
  json_array_foreach (winners, index, winner) {
    size_t element = (size_t)json_integer_value(json_array_get(winner, column));
    count += !used[element];
    used[element] = true;
  }
  return count == n;
}

static bool is_kernel(const json_t *kernel) {
  const json_t *configs = json_object_get(kernel, "configs"),
               *provenance = json_object_get(kernel, "provenance");
  const json_t *winners = json_object_get(kernel, "winners"), *key = json_object_get(kernel, "key");
  size_t n_configs = json_array_size(configs), n_provenance = json_array_size(provenance);
  for (size_t i = 0; i < n_configs; i++)
    if (!is_config(json_array_get(configs, i)))
      return false;
  for (size_t i = 0; i < n_provenance; i++)
    if (!is_provenance(json_array_get(provenance, i)))
      return false;

  for (size_t i = 0; i < json_array_size(winners); i++)
    if (!is_winner(json_array_get(winners, i), json_array_size(key), n_configs, n_provenance))
      return false;

  return json_object_size(kernel) == 6 && is_digest(json_object_get(kernel, "kernel")) &&
         are_key_names(key) && is_text(json_object_get(kernel, "name")) &&
         is_sorted(configs, false) && is_sorted(provenance, false) && is_sorted(winners, true) &&
         is_used(winners, 1, n_configs) && is_used(winners, 2, n_provenance);
}

static bool kernels_are_sorted(const json_t *kernels) {
  for (size_t i = 1; i < json_array_size(kernels); i++) {
    const json_t *one = json_array_get(kernels, i - 1), *other = json_array_get(kernels, i);
    int order = strcmp(json_string_value(json_object_get(one, "name")),
                       json_string_value(json_object_get(other, "name")));
    if (!order)
      order = strcmp(json_string_value(json_object_get(one, "kernel")),
                     json_string_value(json_object_get(other, "kernel")));
    if (order >= 0)
      return false;
  }

  return json_array_size(kernels) > 0;
}

static bool is_environment(const json_t *json) {
  cleanup_environment struct environment environment = {0};
  struct error ignored;
  if (!json_is_object(json) || !environment_parse(json, &environment, &ignored))
    return false;
  cleanup_json json_t *again = environment_to_json(&environment);
  return json_equal(again, json);
}

/* Checks what release.h states, by jansson. */
static bool is_release(const char *bytes, size_t size) {
  cleanup_json json_t *json = NULL;
  struct error ignored;

  if (!json_parse(bytes, size, &json, &ignored) || !json_is_object(json) ||
      json_object_size(json) != 4)
    return false;
  cleanup_free char *canonical = json_canonical(json);
  const json_t *kernels = json_object_get(json, "kernels"),
               *version = json_object_get(json, "version");
  if (strlen(canonical) != size || memcmp(canonical, bytes, size) != 0 || !json_is_array(kernels))
    return false;
  for (size_t i = 0; i < json_array_size(kernels); i++)
    if (!is_kernel(json_array_get(kernels, i)))
      return false;

  return is_environment(json_object_get(json, "environment")) &&
         is_text(json_object_get(json, "tag")) && json_is_integer(version) &&
         json_integer_value(version) == 2 && kernels_are_sorted(kernels);
}

static void winner_add(struct release_builder *builder, const struct release_kernel *kernel,
                       const struct release_winner *winner) {
  const struct release_config *config = &kernel->configs[winner->config];
  cleanup_json json_t *key = release_key_object(kernel, winner);
  struct error error;
  const struct release_entry entry = {.name = kernel->name,
                                      .kernel = kernel->hash,
                                      .key_names = (const char *const *)kernel->key_names,
                                      .n_key_names = kernel->n_key_names,
                                      .key = key,
                                      .config = config->values,
                                      .has_ordinal = config->has_ordinal,
                                      .ordinal = config->ordinal,
                                      .space = config->space,
                                      .provenance = kernel->provenance[winner->provenance],
                                      .ms = winner->ms,
                                      .n_ms = winner->n_ms,
                                      .job = winner->job};
  ALWAYS(release_builder_add(builder, &entry, &error));
}

static void check_built_again(const struct release *release) {
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&release->environment, release->tag, release->regime);
  cleanup_release struct release *again = NULL;
  struct error error;
  for (size_t i = release->n_kernels; i-- > 0;)
    for (size_t j = release->kernels[i].n_winners; j-- > 0;)
      winner_add(builder, &release->kernels[i], &release->kernels[i].winners[j]);

  ALWAYS(release_builder_finish(builder, &again, &error));
  ALWAYS(again->size == release->size && memcmp(again->bytes, release->bytes, release->size) == 0);
  ALWAYS(digest_equal(&again->digest, &release->digest));
}

static json_t *reals_of(const double *numbers, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(array, json_real(numbers[i]));
  return array;
}

/* Whether a winner that was read is what jansson reads in its place. */
static bool is_same_winner(const struct release_kernel *kernel, const struct release_winner *winner,
                           const json_t *kernel_json, const json_t *json) {
  cleanup_json json_t *key = release_key_object(kernel, winner),
                      *ms = reals_of(winner->ms, winner->n_ms);
  const json_t *config = json_array_get(json_object_get(kernel_json, "configs"), winner->config);
  const json_t *provenance =
      json_array_get(json_object_get(kernel_json, "provenance"), winner->provenance);

  for (size_t i = 0; i < kernel->n_key_names; i++)
    if (!json_equal(json_object_get(key, kernel->key_names[i]),
                    json_array_get(json_array_get(json, 0), i)))
      return false;

  return json_equal(json_object_get(config, "values"), kernel->configs[winner->config].values) &&
         json_equal(provenance, kernel->provenance[winner->provenance]) &&
         json_integer_value(json_array_get(json, 1)) == (json_int_t)winner->config &&
         json_integer_value(json_array_get(json, 2)) == (json_int_t)winner->provenance &&
         json_equal(json_array_get(json, 3), ms) &&
         json_integer_value(json_array_get(json, 4)) == winner->job;
}

static void check_means_the_same(const struct release *release) {
  cleanup_json json_t *json = NULL;
  struct error error;

  ALWAYS(json_parse(release->bytes, release->size, &json, &error));
  const json_t *kernels = json_object_get(json, "kernels");
  ALWAYS(string_equal(json_string_value(json_object_get(json, "tag")), release->tag));
  ALWAYS(json_array_size(kernels) == release->n_kernels);

  for (size_t i = 0; i < release->n_kernels; i++) {
    const struct release_kernel *kernel = &release->kernels[i];
    const json_t *kernel_json = json_array_get(kernels, i),
                 *winners = json_object_get(kernel_json, "winners");
    ALWAYS(string_equal(json_string_value(json_object_get(kernel_json, "name")), kernel->name));
    ALWAYS(json_array_size(winners) == kernel->n_winners);
    for (size_t j = 0; j < kernel->n_winners; j++)
      ALWAYS(is_same_winner(kernel, &kernel->winners[j], kernel_json, json_array_get(winners, j)));
  }
}

/* Reads the bytes with their digest given. Returns whether that succeeded. */
static bool check_taken(const uint8_t *bytes, size_t size) {
  struct error error;
  cleanup_release struct release *release = NULL;
  cleanup_free char *copy = xmalloc(size + 1);

  if (size)
    memcpy(copy, bytes, size);
  copy[size] = '\0';
  const struct digest digest = digest_of(copy, size);
  if (!release_take(&copy, size, &digest, &release, &error))
    return false;
  check_means_the_same(release);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct error error;
  cleanup_release struct release *release = NULL;
  bool is_read = release_parse((const char *)bytes, size, &release, &error);

  ALWAYS(is_read == is_release((const char *)bytes, size));
  ALWAYS(check_taken(bytes, size) || !is_read);
  if (!is_read) {
    check_refusal(&error);
    return 0;
  }

  ALWAYS(release->size == size && memcmp(release->bytes, bytes, size) == 0);
  cleanup_json json_t *diff = release_diff(release, release);
  ALWAYS((size_t)json_integer_value(json_object_get(diff, "same")) == release->n_winners);
  check_built_again(release);
  return 0;
}
