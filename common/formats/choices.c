/* The `choices` format: one file, choices.json, that the Python wheel reads inside a program: which
 * config each autotuned function is to use for a key. GET /v1/choices serves the same bytes.
 *
 * {"code": {"LJRK…": {"add.hsaco": "sha256:…", "add.json": "sha256:…"}},
 *  "environment": {…},
 *  "functions": {"sha256:…": {"choices": [{"code": "LJRK…",
 *                                          "config": {"BLOCK": 64, "num_warps": 4},
 *                                          "key": ["4096", "'torch.float16'"],
 *                                          "tuning_ms": 1250}],
 *                             "launchers": [{"n": "i32", "x_ptr": "*fp16"}],
 *                             "name": "add"}},
 *  "regime": "cold", "release": "sha256:…", "tag": "default", "version": 1}, canonical JSON.
 *
 * A function is named by its closure (common/builds/function_record.h), which does not depend on
 * where the program has it. A key is what the autotuner looks up: the values of the decorator's
 * `key`, then the dtypes of the arguments that have one, each as Python's repr writes it. A config
 * has the members that the winner states; the program uses the only one of its own configs that has
 * them. "code" is present where the build has the files that Triton caches for that config and key:
 * it names the folder, and the outer "code" has the digests of the folder's files, and those of the
 * other specialisations of that config and key; none where two builds of the release differ.
 * "tuning_ms" is the device time of the job that chose the winner, where the release states it:
 * programs add it up as what they saved. "launchers" are the signatures of the builds' variants, at
 * most LAUNCHERS_MAX: of these types Triton up to 3.6 makes the C source of a host launcher, which
 * programs compile ahead.
 *
 * Memory and threads: format.h. */
#include <math.h>

#include "common/cache/autotuner.h"
#include "common/cache/format.h"

#define CHOICES_VERSION 1
#define LAUNCHERS_MAX 16 /* of a function */

/* The code and the function of the winners that have one provenance. */
struct origin {
  bool is_read;
  const struct build *build;     /* NULL: none */
  struct function_record packed; /* of the build */
  struct tuning_key key;
  const struct function_record *record; /* the image's, or `packed` */
  char *reason;                         /* why its winners have no choice, or NULL */
};

struct writer {
  const struct render_request *request;
  struct cache_files *files;
  json_t *functions, *code;
  json_t *keys; /* a set of "closure key", for which there is a choice */
};

/* False: the winners of this provenance have no choice, and *error says why. */
static bool origin_find(struct writer *writer, const struct release_kernel *kernel,
                        const struct kernel *manifest, const json_t *provenance,
                        struct origin *origin, struct error *error) {
  const struct cache_source *stored = writer->request->source;
  const struct function_record *packed = NULL;
  struct digest digest;

  if (manifest && json_object_get(provenance, "build") && stored->build) {
    if (!json_get_digest(provenance, "", "build", JSON_REQUIRED, &digest, error) ||
        !stored->build(stored->context, manifest, &digest, &origin->build, error))
      return false;
    if (origin->build->record) {
      if (!function_record_parse(origin->build->record, &origin->packed, error))
        return false;
      packed = &origin->packed;
    }
  }

  origin->record =
      identity_function(writer->request->identity, &kernel->hash, kernel->name, packed);
  if (!origin->record)
    origin->record = packed;
  if (!origin->record)
    return error_set(error, "neither the image nor a build has a record of its function");
  if (digest_is_none(&origin->record->closure))
    return error_set(error, "its record has no closure of the function: pack it again, or record "
                            "the image again");

  return tuning_key_bind(origin->record, manifest, KEY_NAMES(kernel), &origin->key, error);
}

/* Adds a variant's signature to the function's launchers, once. */
static void launcher_write(json_t *function, const json_t *variant) {
  json_t *signature = json_object_get(variant, "signature"), *launchers, *other;
  size_t i;
  if (!json_object_size(signature))
    return;

  launchers = json_object_get(function, "launchers");
  if (!launchers) {
    launchers = json_array();
    json_put(function, "launchers", launchers);
  }
  json_array_foreach (launchers, i, other)
    if (json_equal(other, signature))
      return;
  if (i < LAUNCHERS_MAX)
    json_push(launchers, json_incref(signature));
}

/* Adds the files that Triton caches for the config in each specialisation of the key, and their
 * launchers; returns the folder of the first one's files, or NULL where the build has none. */
static const char *code_write(struct writer *writer, json_t *function, const struct build *build,
                              const struct key *key, const json_t *config) {
  size_t variant;
  struct error why;
  if (!build || !build_variant(build, key, &variant, &why))
    return NULL;
  const char *first = NULL;
  const json_t *specialisation;
  for (size_t i = 0; (specialisation = build_specialisation(build, variant, i)); i++) {
    const json_t *cache = build_cache(specialisation, config);
    const char *folder = json_text(cache, "folder");
    if (!i || folder)
      launcher_write(function, specialisation);
    if (!i)
      first = folder;
    if (!folder)
      continue;

    /* Two builds that state other files of one folder: a program takes neither's. */
    json_t *files = json_object_get(cache, "files"), *known = json_object_get(writer->code, folder);
    json_put(writer->code, folder,
             known && !json_equal(known, files) ? json_object() : json_incref(files));
  }
  return first;
}

static bool winner_write(struct writer *writer, const struct release_kernel *kernel,
                         const struct release_winner *winner, const struct origin *origin,
                         const struct key *key, struct error *error) {
  const json_t *config = kernel->configs[winner->config].values;
  const json_t *spent_s =
      json_object_get(kernel->provenance[winner->provenance], "spent_device_seconds");
  cleanup_json json_t *own = json_array();

  if (!tuning_key_texts(&origin->key, key->values, own, error))
    return false;

  const char *closure = DIGEST_TEXT(&origin->record->closure);
  cleanup_free char *text = json_canonical(own), *id = xasprintf("%s %s", closure, text);
  if (!set_add(writer->keys, id))
    return error_set(error, "another winner of the release has the same key of the autotuner for "
                            "this function");

  json_t *function = json_object_get(writer->functions, closure);
  if (!function) {
    function = json_pack("{s:[], s:s}", "choices", "name", origin->record->function);
    json_put(writer->functions, closure, function);
  }
  json_push(json_object_get(function, "choices"),
            json_pack("{s:s*, s:O, s:O, s:o*}", "code",
                      code_write(writer, function, origin->build, key, config), "config", config,
                      "key", own, "tuning_ms",
                      spent_s ? json_real(rint(1000 * json_number_value(spent_s))) : NULL));
  return true;
}

static void kernel_write(struct writer *writer, const struct release_kernel *kernel) {
  struct error error = {0};
  const struct kernel *manifest = NULL;
  bool has_manifest = request_manifest(writer->request, kernel, &manifest, &error);
  if (!has_manifest || (manifest && manifest->language != LANGUAGE_TRITON)) {
    cache_files_skip(writer->files, kernel, NULL,
                     has_manifest ? "it is not a Triton kernel" : error.message);
    return;
  }

  cleanup_json json_t *given = json_object(); /* reasons that were reported already */
  cleanup_free struct origin *origins = xcalloc(kernel->n_provenance + 1, sizeof *origins);
  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    struct origin *origin = &origins[winner->provenance];
    if (!origin->is_read && !origin_find(writer, kernel, manifest,
                                         kernel->provenance[winner->provenance], origin, &error))
      origin->reason = xstrdup(error.message);
    origin->is_read = true;

    if (origin->reason && set_add(given, origin->reason))
      cache_files_skip(writer->files, kernel, NULL, origin->reason);
    if (origin->reason)
      continue;

    struct value values[KEY_MEMBERS_MAX];
    const struct key key = {.n = kernel->n_key_names, .names = kernel->key_names, .values = values};
    release_key_values(kernel, winner, values);
    if (!winner_write(writer, kernel, winner, origin, &key, &error))
      cache_files_skip(writer->files, kernel, winner, error.message);
    release_key_values_release(kernel, values);
  }

  for (size_t i = 0; i < kernel->n_provenance; i++) {
    function_record_release(&origins[i].packed);
    tuning_key_release(&origins[i].key);
    free(origins[i].reason);
  }
}

static bool choices_render(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  const struct release *release = request->release;
  cleanup_json json_t *functions = json_object(), *code = json_object(), *keys = json_object();
  struct writer writer = {request, ret, functions, code, keys};
  char digest[DIGEST_TEXT_SIZE];
  for (size_t i = 0; i < release->n_kernels; i++)
    kernel_write(&writer, &release->kernels[i]);

  cleanup_json json_t *document =
      json_pack("{s:O, s:o, s:O, s:s, s:s, s:s, s:i}", "code", code, "environment",
                environment_to_json(&release->environment), "functions", functions, "regime",
                regime_name(release->regime), "release", digest_format(&release->digest, digest),
                "tag", release->tag, "version", CHOICES_VERSION);
  ALWAYS(document != NULL);
  if (json_object_size(keys) > 0)
    cache_files_add_json(ret, "choices.json", document);

  cache_files_variable(ret, "WAVETUNE_CACHE", "", NULL);
  return cache_files_any(ret, "choices", error);
}

const struct cache_format format_choices = {
    .name = "choices",
    .summary = "choices.json, which the Python wheel reads inside a program",
    .render = choices_render,
    .table = "choices.json",
};
