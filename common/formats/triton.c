/* The `triton` format: what Triton itself keeps in TRITON_CACHE_DIR, so that @triton.autotune
 * (Triton 3.4 and newer, with TRITON_CACHE_AUTOTUNING=1) neither measures nor compiles.
 *
 * FOLDER/NAME.autotune.json for each winner (triton.h), and the compiled artifacts of those whose
 * build has them, where the files' place is known: Triton finds artifacts by absolute paths.
 * Folders are writable for all: Triton makes a lock and temporary folders there.
 *
 * Where a manifest, a build or a file of it is not to be had, results are written as far as they
 * can be known without, and the note names what is missing: the container compiles such a winner
 * itself.
 *
 * A winner without timings has an empty list in its file: Triton takes the least of what is there,
 * and there is one. A zero or Infinity would say what nobody measured.
 *
 * Memory: what format.h says. Threads: the one that renders. */
#include <ctype.h>

#include "common/cache/python_text.h"
#include "common/formats/triton.h"

/* Artifacts: the files of an object as a build has them, and the group file that tells Triton where
 * they are, by absolute paths (runtime/cache.py, FileCacheManager) */

/* Adds a file by path; the same path with other bytes is refused, with the same it is there once.
 * `bytes` is taken over. `paths`: an object of those there are, made by json_object(). */
static bool cache_files_add_once(struct cache_files *files, json_t *paths, const char *path,
                                 char *bytes, size_t size, struct error *error) {
  const json_t *known = json_object_get(paths, path);
  if (!known) {
    ALWAYS(json_object_set_new(paths, path, json_integer((json_int_t)files->n)) == 0);
    cache_files_add(files, path, bytes, size);
    return true;
  }
  const struct cache_file *file = &files->files[json_integer_value(known)];
  bool is_same = file->size == size && memcmp(file->bytes, bytes, size) == 0;
  free(bytes);
  return is_same ||
         error_set(
             error,
             "another winner of the release makes %.160s, with different content; a tool reads one",
             path);
}

static bool name_is_metadata(const char *name) {
  size_t length = strlen(name);
  return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

/* A build has exactly one. */
static const char *metadata_name(const json_t *files) {
  const char *name, *found = NULL;
  json_t *value;
  json_object_foreach ((json_t *)files, name, value) {
    if (name_is_metadata(name))
      found = name;
  }
  ALWAYS(found != NULL);
  return found;
}

static bool is_variable_name(const char *name) {
  bool has_letter = false;
  for (const char *c = name; *c; c++) {
    if (islower((unsigned char)*c))
      return false;
    has_letter |= isupper((unsigned char)*c) != 0;
  }
  return has_letter;
}

/* Triton hashes the variables that are set and writes them among the metadata, where no other
 * member is in capitals. */
static bool variables_agree(const json_t *metadata, const json_t *variables, struct error *error) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)variables, name, value) {
    if (!json_equal(value, json_object_get(metadata, name)))
      return error_of(error, ERROR_UNUSABLE,
                      "the image sets %.60s and its code was compiled without that", name);
  }
  json_object_foreach ((json_t *)metadata, name, value) {
    if (is_variable_name(name) && !json_object_get(variables, name))
      return error_of(error, ERROR_UNUSABLE,
                      "its code was compiled with %.60s set, and the image does not set it", name);
  }
  return true;
}

/* The libraries of AMD's back end stand in its options with their paths, and those lie in the
 * package of Triton. */
static bool folder_agrees(const json_t *metadata, const char *folder, struct error *error) {
  const json_t *libraries = json_object_get(metadata, "extern_libs"), *library;
  const char *backend =
      json_string_value(json_object_get(json_object_get(metadata, "target"), "backend"));
  size_t i, length = folder ? strlen(folder) : 0;
  if (!folder || !string_equal(backend, "hip"))
    return true;
  json_array_foreach (libraries, i, library) {
    const char *path = json_string_value(json_array_get(library, 1));
    if (path && strstr(path, "/triton/backends/") &&
        (strncmp(path, folder, length) != 0 || path[length] != '/'))
      return error_of(
          error, ERROR_UNUSABLE,
          "its code was compiled by a Triton that lies elsewhere than the image's, in %.120s",
          folder);
  }
  return true;
}

/* A file of the build. ERROR_MISSING: the source does not have it. */
static bool find_file(const struct render_request *request, const json_t *files, const char *name,
                      const char **ret_bytes, size_t *ret_size, struct error *error) {
  struct digest digest;
  return json_get_digest(files, "", name, JSON_REQUIRED, &digest, error) &&
         (request->source->blob(request->source->context, &digest, ret_bytes, ret_size, error) ||
          error_become(error, ERROR_MISSING));
}

/* ERROR_UNUSABLE: Triton in the image would look for other files. */
static bool image_agrees(const struct render_request *request, const json_t *files,
                         const char *triton_key, struct error *error) {
  const struct identity *identity = request->identity;
  const char *name = metadata_name(files), *bytes;
  size_t size;
  if (!identity)
    return true;
  if (identity->triton_key && !string_equal(identity->triton_key, triton_key))
    return error_of(error, ERROR_UNUSABLE,
                    "its code was compiled by another build of Triton than the image's; pack it "
                    "with the Triton of the "
                    "image");

  cleanup_json json_t *metadata = NULL;
  if (!find_file(request, files, name, &bytes, &size, error))
    return false;
  if (!json_parse(bytes, size, &metadata, error))
    return error_prefix(error, "%.200s, compiled metadata of a build: ", name);
  const char *folder =
      json_string_value(json_object_get(json_object_get(identity->json, "triton"), "folder"));
  return variables_agree(metadata, identity->variables, error) &&
         folder_agrees(metadata, folder, error);
}

/* A folder with some of the files alone would help nobody. */
static bool find_files(const struct render_request *request, const json_t *names,
                       struct cache_file *files, struct error *error) {
  const char *name, *bytes;
  json_t *value;
  size_t i = 0, size;
  json_object_foreach ((json_t *)names, name, value) {
    if (!find_file(request, names, name, &bytes, &size, error))
      return false;
    files[i++] = (struct cache_file){(char *)name, (char *)bytes, size};
  }
  return true;
}

/* Adds FOLDER/… for `cache`, {"folder", "files"} of a build: all files or none. ERROR_UNUSABLE: the
 * image would not find it (compiled by another build of Triton, with other variables set, or by a
 * Triton that lies elsewhere), or other files of that name are there. ERROR_MISSING: the source
 * lacks a file. Else the build is not as it should be. `triton_key` is of the Triton that compiled,
 * or NULL. */
static bool triton_artifacts_add(const struct render_request *request, const json_t *cache,
                                 const char *triton_key, struct cache_files *files, json_t *paths,
                                 struct error *error) {
  const json_t *names = json_object_get(cache, "files");
  const char *folder = json_string_value(json_object_get(cache, "folder"));
  if (!request->root)
    return error_of(error, ERROR_UNUSABLE,
                    "compiled code has absolute paths in it, and where it will stand is not known");
  if (!request->source->blob)
    return error_of(error, ERROR_UNUSABLE, "the compiled code cannot be had here");
  if (!json_can_hold(request->root))
    return error_of(error, ERROR_UNUSABLE,
                    "compiled code has absolute paths in it, as JSON, and that where it will stand "
                    "is no UTF-8");

  size_t n = json_object_size(names);
  cleanup_free struct cache_file *found = xcalloc(n, sizeof *found);
  if (!image_agrees(request, names, triton_key, error) || !find_files(request, names, found, error))
    return false;

  cleanup_json json_t *children = json_object();
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, found[i].path),
                      *child = xasprintf("%s/%s", request->root, path);
    char *copy = xmalloc(found[i].size + 1);
    memcpy(copy, found[i].bytes, found[i].size);
    copy[found[i].size] = '\0';
    if (!cache_files_add_once(files, paths, path, copy, found[i].size, error))
      return error_become(error, ERROR_UNUSABLE);
    ALWAYS(json_object_set_new(children, found[i].path, json_string(child)) == 0);
  }
  cleanup_json json_t *group = json_pack("{s:O}", "child_paths", children);
  cleanup_free char *path = xasprintf("%s/__grp__%s", folder, metadata_name(names));
  size_t size;
  char *bytes = python_json(group, 0, &size);
  return cache_files_add_once(files, paths, path, bytes, size, error) ||
         error_become(error, ERROR_UNUSABLE);
}

/* Rendering */

/* What a provenance of a kernel leads to. */
struct origin {
  bool is_read;
  const struct build *build; /* NULL: none */
  char *missing;             /* why the build that is named is not to be had, or NULL */
  bool is_packed;
  struct function_record packed; /* of the build */
  bool has_function;
  struct triton_function function;
  char *reason; /* without a function */
};

struct rendering {
  const struct render_request *request;
  struct cache_files files;
  json_t *paths, *done; /* those there are; sentences of a kernel that need no second time, and its
                           artifacts: null, or the text why they are missing */
  const struct release_kernel *kernel;
  const struct kernel *manifest; /* or NULL */
  struct error missing;   /* why the manifest is not to be had; no message: nothing is missing */
  struct origin *origins; /* one for each provenance of the kernel */
  size_t *
      origin_of; /* of each provenance: the first that names the same build, whose origin is read */
};

static void origins_release(struct rendering *rendering) {
  for (size_t i = 0; rendering->origins && i < rendering->kernel->n_provenance; i++) {
    struct origin *origin = &rendering->origins[i];
    triton_function_release(&origin->function);
    function_record_release(&origin->packed);
    free(origin->reason);
    free(origin->missing);
  }
  free(rendering->origins);
  rendering->origins = NULL;
  free(rendering->origin_of);
  rendering->origin_of = NULL;
}

/* Provenances are sorted by their texts, in which the build comes before the job's time: those of
 * one build are neighbours. */
static void origins_begin(struct rendering *rendering) {
  const struct release_kernel *kernel = rendering->kernel;
  rendering->origins = xcalloc(kernel->n_provenance + 1, sizeof *rendering->origins);
  rendering->origin_of = xcalloc(kernel->n_provenance + 1, sizeof *rendering->origin_of);
  const char *former = NULL;
  for (size_t i = 0; i < kernel->n_provenance; i++) {
    const char *build = json_string_value(json_object_get(kernel->provenance[i], "build"));
    bool is_same = i > 0 && string_equal(build, former);
    rendering->origin_of[i] = is_same ? rendering->origin_of[i - 1] : i;
    former = build;
  }
}

static void rendering_release(struct rendering *rendering) {
  origins_release(rendering);
  cache_files_release(&rendering->files);
  json_decref(rendering->paths);
  json_decref(rendering->done);
}

static bool read_build(struct rendering *rendering, const json_t *provenance, struct origin *origin,
                       struct error *error) {
  const struct cache_source *source = rendering->request->source;
  struct digest digest;
  struct error missing = rendering->missing;
  if (!json_object_get(provenance, "build") || !source->kernel || !source->build)
    return true;
  if (!json_get_digest(provenance, "", "build", JSON_REQUIRED, &digest, error))
    return false;
  if (!rendering->manifest ||
      !source->build(source->context, rendering->manifest, &digest, &origin->build, &missing)) {
    origin->missing = xstrdup(missing.message);
    return true;
  }
  struct error never; /* a build's record was read when the build was */
  ALWAYS(!origin->build->record ||
         function_record_parse(origin->build->record, &origin->packed, &never));
  origin->is_packed = origin->build->record != NULL;
  return true;
}

static bool read_origin(struct rendering *rendering, size_t index, struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  const struct identity *identity = rendering->request->identity;
  struct origin *origin = &rendering->origins[index];
  if (origin->is_read)
    return true;
  origin->is_read = true;
  if (!read_build(rendering, kernel->provenance[index], origin, error))
    return false;
  const struct function_record *packed = origin->is_packed ? &origin->packed : NULL;
  const struct function_record *record =
      identity_function(identity, &kernel->hash, kernel->name, packed);
  struct error reason;
  const char *missing = origin->missing ? origin->missing : rendering->missing.message;
  if (!record && !packed && missing[0])
    origin->reason = xasprintf(
        "the image has no record of it, and what else would tell is missing: %s", missing);
  else if (!record && !packed)
    origin->reason = xstrdup("neither the image nor a build has a record of its function");
  else if (triton_function_init(record ? record : packed, !record, identity, rendering->manifest,
                                (const char *const *)kernel->key_names, kernel->n_key_names,
                                &origin->function, &reason))
    origin->has_function = true;
  else
    origin->reason = xstrdup(reason.message);
  return true;
}

static bool is_done(struct rendering *rendering, const char *mark) {
  bool known = json_object_get(rendering->done, mark) != NULL;
  ALWAYS(known || json_object_set_new(rendering->done, mark, json_true()) == 0);
  return known;
}

/* A reason that holds for the whole kernel is said once. */
static void skip_kernel(struct rendering *rendering, const char *reason) {
  if (!is_done(rendering, reason))
    cache_files_skip(&rendering->files, rendering->kernel->name, NULL, "%s", reason);
}

static void skip_winner(struct rendering *rendering, const struct release_winner *winner,
                        const char *reason) {
  cleanup_free char *key = xstrndup(winner->key, winner->key_size);
  cache_files_skip(&rendering->files, rendering->kernel->name, key, "%s", reason);
}

static void skip_artifacts(struct rendering *rendering, const struct release_winner *winner,
                           const char *missing) {
  cleanup_free char *reason = xasprintf(
      "its compiled code was left out, and the container compiles it itself: %s", missing);
  skip_winner(rendering, winner, reason);
}

/* One object serves many keys; each winner that lacks it is named. */
static bool render_object(struct rendering *rendering, const struct release_winner *winner,
                          size_t variant, const json_t *cache, struct error *error) {
  const struct origin *origin = &rendering->origins[rendering->origin_of[winner->provenance]];
  cleanup_free char *mark =
      xasprintf("%zu/%zu/%zu", rendering->origin_of[winner->provenance], variant, winner->config);
  const json_t *known = json_object_get(rendering->done, mark);
  if (!known) {
    struct error why;
    bool is_added = triton_artifacts_add(rendering->request, cache, origin->packed.triton_key,
                                         &rendering->files, rendering->paths, &why);
    if (!is_added && why.kind != ERROR_UNUSABLE && why.kind != ERROR_MISSING) {
      *error = why;
      return false;
    }
    if (!is_added && why.kind == ERROR_UNUSABLE)
      skip_kernel(rendering, why.message);
    bool is_missing = !is_added && why.kind == ERROR_MISSING;
    ALWAYS(json_object_set_new(rendering->done, mark,
                               is_missing ? json_string(why.message) : json_null()) == 0);
    known = json_object_get(rendering->done, mark);
  }
  if (json_is_string(known))
    skip_artifacts(rendering, winner, json_string_value(known));
  return true;
}

static bool render_artifacts(struct rendering *rendering, const struct release_winner *winner,
                             struct value *values, struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  const struct origin *origin = &rendering->origins[rendering->origin_of[winner->provenance]];
  const struct key key = {.n = kernel->n_key_names, .names = kernel->key_names, .values = values};
  size_t variant;
  struct error none;
  if (origin->missing && origin->has_function)
    skip_artifacts(rendering, winner, origin->missing);
  if (!origin->build || !build_variant(origin->build, &key, &variant, &none))
    return true;
  const json_t *cache = build_cache(origin->build, variant, kernel->configs[winner->config].values);
  return !cache || render_object(rendering, winner, variant, cache, error);
}

/* Where the decorator's key has fewer members than the kernel's, several winners are one to
 * Triton. */
static void add_file(struct rendering *rendering, const struct release_winner *winner,
                     const char *path, char *bytes, size_t size) {
  struct error reason;
  if (!cache_files_add_once(&rendering->files, rendering->paths, path, bytes, size, &reason))
    skip_winner(rendering, winner, reason.message);
}

static bool render_tuned(struct rendering *rendering, const struct release_winner *winner,
                         struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  if (!read_origin(rendering, rendering->origin_of[winner->provenance], error))
    return false;
  const struct origin *origin = &rendering->origins[rendering->origin_of[winner->provenance]];
  struct value values[KEY_MEMBERS_MAX];
  struct error reason;
  char *path = NULL, *bytes = NULL;
  size_t size;
  release_key_values(kernel, winner, values);
  if (!origin->has_function) {
    skip_kernel(rendering, origin->reason);
  } else if (!triton_function_render(&origin->function, values,
                                     kernel->configs[winner->config].values, winner->ms,
                                     winner->n_ms, &path, &bytes, &size, &reason)) {
    skip_winner(rendering, winner, reason.message);
  } else {
    add_file(rendering, winner, path, bytes, size);
    free(path);
  }
  bool ok = render_artifacts(rendering, winner, values, error);
  release_key_values_release(kernel, values);
  return ok;
}

static void render_imported(struct rendering *rendering, const json_t *exports,
                            const struct release_winner *winner) {
  const struct release_kernel *kernel = rendering->kernel;
  cleanup_json json_t *key = release_key_object(kernel, winner);
  cleanup_free char *path = NULL;
  char *bytes;
  size_t size;
  struct error reason;
  if (triton_table_render(exports, key, kernel->configs[winner->config].values, winner->ms,
                          winner->n_ms, &path, &bytes, &size, &reason))
    add_file(rendering, winner, path, bytes, size);
  else
    skip_winner(rendering, winner, reason.message);
}

static bool render_kernel(struct rendering *rendering, const struct release_kernel *kernel,
                          bool is_external, struct error *error) {
  const struct cache_source *source = rendering->request->source;
  rendering->kernel = kernel;
  rendering->manifest = NULL;
  rendering->missing.message[0] = '\0';
  json_object_clear(rendering->done);
  if (source->kernel &&
      !source->kernel(source->context, &kernel->hash, &rendering->manifest, &rendering->missing))
    rendering->manifest = NULL;
  if (is_external != (rendering->manifest && rendering->manifest->language == LANGUAGE_EXTERNAL))
    return true;
  const json_t *exports =
      is_external ? json_object_get(json_object_get(rendering->manifest->json, "exports"), "triton")
                  : NULL;
  if (is_external && !exports)
    skip_kernel(rendering, "it is known by name only, from a table of another format");
  for (size_t i = 0; exports && i < kernel->n_winners; i++)
    render_imported(rendering, exports, &kernel->winners[i]);
  origins_begin(rendering);
  bool ok = true;
  for (size_t i = 0; !is_external && ok && i < kernel->n_winners; i++)
    ok = render_tuned(rendering, &kernel->winners[i], error);
  origins_release(rendering);
  return ok;
}

/* What was tuned stands before what was imported: of two winners for one file the first is
 * written. */
static bool render_kernels(struct rendering *rendering, struct error *error) {
  const struct release *release = rendering->request->release;
  for (size_t i = 0; i < 2 * release->n_kernels; i++) {
    const struct release_kernel *kernel = &release->kernels[i % release->n_kernels];
    if (!render_kernel(rendering, kernel, i >= release->n_kernels, error))
      return error_prefix(error, "kernel \"%.60s\": ", kernel->name);
  }
  return true;
}

static bool render_release(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  __attribute__((cleanup(rendering_release))) struct rendering rendering = {
      .request = request, .paths = json_object(), .done = json_object()};
  ALWAYS(rendering.paths && rendering.done);
  if (!render_kernels(&rendering, error))
    return false;
  struct cache_files *files = &rendering.files;
  ALWAYS(files->n || files->n_skipped);
  if (!files->n)
    return error_set(error,
                     "no winner of the release can stand in Triton's cache; \"%.60s\": %.300s",
                     files->skipped[0].name, files->skipped[0].reason);
  files->folder_mode = 0777;
  cache_files_variable(files, "TRITON_CACHE_DIR", "", NULL);
  cache_files_variable(files, "TRITON_CACHE_AUTOTUNING", NULL, "1");
  *ret = *files;
  *files = (struct cache_files){0};
  return true;
}

const struct cache_format format_triton = {
    .name = "triton",
    .summary = "results of @triton.autotune and compiled kernels, as Triton keeps them in "
               "TRITON_CACHE_DIR",
    .render = render_release,
    .read = triton_table_read,
};
