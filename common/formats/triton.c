/* The `triton` format: rendering a release, with compiled artifacts. Memory and threads: triton.h.
 */
#include "common/formats/triton.h"
#include "common/cache/text.h"

/* Artifacts: the files of an object as a build has them, and the group file in which Triton finds
 * them, by absolute paths (runtime/cache.py, FileCacheManager) */

/* The name of the metadata, of which a build has exactly one. */
static const char *metadata_name(const json_t *files) {
  const char *name, *found = NULL;
  json_t *value;
  json_object_foreach ((json_t *)files, name, value)
    if (string_ends(name, ".json"))
      found = name;
  ALWAYS(found != NULL);
  return found;
}

/* A file of the build. ERROR_MISSING: the source does not have it. */
static bool file_find(const struct render_request *request, const json_t *files, const char *name,
                      const char **ret_bytes, size_t *ret_size, struct error *error) {
  struct digest digest;
  return json_get_digest(files, "", name, JSON_REQUIRED, &digest, error) &&
         (request->source->blob(request->source->context, &digest, ret_bytes, ret_size, error) ||
          error_become(error, ERROR_MISSING));
}

/* ERROR_UNUSABLE: Triton in the image would look for other files. */
static bool image_check(const struct render_request *request, const json_t *files,
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
  if (!file_find(request, files, name, &bytes, &size, error))
    return false;
  if (!json_parse(bytes, size, &metadata, error))
    return error_prefix(error, "%.200s, compiled metadata of a build: ", name);

  /* Triton hashes the variables that are set and writes them among the metadata, where no other
   * member is in capitals. */
  json_members (identity->variables, member, value)
    if (!json_equal(value, json_object_get(metadata, member)))
      return error_of(error, ERROR_UNUSABLE,
                      "the image sets %.60s and its code was "
                      "compiled without that",
                      member);

  json_members (metadata, member, value) {
    bool is_variable = strpbrk(member, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") &&
                       !strpbrk(member, "abcdefghijklmnopqrstuvwxyz");
    if (is_variable && !json_object_get(identity->variables, member))
      return error_of(error, ERROR_UNUSABLE,
                      "its code was compiled with %.60s set, and the image does not set it",
                      member);
  }

  /* The options of AMD's back end have the paths of its libraries, which are in the package of
   * Triton. Since 3.9 Triton hashes their contents, which triton_key implies. */
  const char *folder = json_text(json_object_get(identity->json, "triton"), "folder");
  const json_t *target = json_object_get(metadata, "target");
  size_t length = folder ? strlen(folder) : 0;
  if (!folder || triton_version_number(identity->triton_version) >= 309 ||
      !string_equal(json_text(target, "backend"), "hip"))
    return true;

  json_elements (json_object_get(metadata, "extern_libs"), i, library) {
    const char *path = json_string_value(json_array_get(library, 1));
    if (path && strstr(path, "/triton/backends/") &&
        (strncmp(path, folder, length) != 0 || path[length] != '/'))
      return error_of(
          error, ERROR_UNUSABLE,
          "its code was compiled by a Triton in another folder than the image's, %.120s", folder);
  }

  return true;
}

/* Adds FOLDER/… for `cache`, {"folder", "files"} of a build: all files or none. ERROR_UNUSABLE: the
 * image would not find it (compiled by another build of Triton, with other variables set, or by a
 * Triton in another folder), or other files of that name are there. ERROR_MISSING: the source lacks
 * a file. Any other error: the build is damaged. `triton_key` is of the Triton that compiled, or
 * NULL. */
static bool artifacts_add(const struct render_request *request, const json_t *cache,
                          const char *triton_key, struct cache_files *files, struct error *error) {
  json_t *names = json_object_get(cache, "files");
  const char *folder = json_text(cache, "folder");

  if (!request->root)
    return error_of(error, ERROR_UNUSABLE,
                    "compiled code has absolute paths in it, and their folder is not known");
  if (!request->source->blob)
    return error_of(error, ERROR_UNUSABLE, "the compiled code is not available here");
  if (!json_can_hold(request->root))
    return error_of(
        error, ERROR_UNUSABLE,
        "compiled code has absolute paths in it, as JSON, and their folder is not UTF-8");
  if (!image_check(request, names, triton_key, error))
    return false;

  size_t n = 0, size;
  cleanup_free struct cache_file *found = xcalloc(json_object_size(names), sizeof *found);
  json_members (names, name, value) {
    const char *bytes;
    if (!file_find(request, names, name, &bytes, &size, error))
      return false;
    found[n++] = (struct cache_file){(char *)name, (char *)bytes, size};
  }

  cleanup_json json_t *children = json_object();
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, found[i].path),
                      *child = xasprintf("%s/%s", request->root, path);
    char *copy = xmalloc(found[i].size + 1);
    memcpy(copy, found[i].bytes, found[i].size);
    copy[found[i].size] = '\0';
    if (!cache_files_add_once(files, path, copy, found[i].size, error))
      return error_become(error, ERROR_UNUSABLE);
    json_put(children, found[i].path, json_string(child));
  }

  cleanup_json json_t *group = json_pack("{s:O}", "child_paths", children);
  cleanup_free char *path = xasprintf("%s/__grp__%s", folder, metadata_name(names));
  char *bytes = python_json(group, 0, &size);
  return cache_files_add_once(files, path, bytes, size, error) ||
         error_become(error, ERROR_UNUSABLE);
}

/* Rendering */

/* What is common to the winners of a kernel that were measured with the same build. */
struct origin {
  bool is_read;
  const struct build *build;     /* NULL: none */
  char *missing;                 /* why the named build is not available, or NULL */
  struct function_record packed; /* of the build */
  struct triton_function function;
  char *reason; /* why there is no function, or NULL */
};

struct rendering {
  const struct render_request *request;
  struct cache_files *files;
  const struct release_kernel *kernel;
  const struct kernel *manifest; /* or NULL */
  struct error missing;   /* why the manifest is not available; no message: nothing is missing */
  struct origin *origins; /* one for each provenance of the kernel */
  json_t *done; /* reasons that were reported for the kernel; "origin/variant/config" of artifacts:
                   null, or the text why they are missing */
};

static void origins_release(struct rendering *rendering) {
  for (size_t i = 0; i < rendering->kernel->n_provenance; i++) {
    struct origin *origin = &rendering->origins[i];
    triton_function_release(&origin->function);
    function_record_release(&origin->packed);
    free(origin->reason);
    free(origin->missing);
  }
  free(rendering->origins);
}

static bool origin_read(struct rendering *rendering, size_t index, struct origin *origin,
                        struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  const struct cache_source *source = rendering->request->source;
  const struct identity *identity = rendering->request->identity;
  struct error why = rendering->missing;
  struct digest digest;

  origin->is_read = true;
  if (json_object_get(kernel->provenance[index], "build") && source->kernel && source->build) {
    if (!json_get_digest(kernel->provenance[index], "", "build", JSON_REQUIRED, &digest, error))
      return false;
    if (!rendering->manifest ||
        !source->build(source->context, rendering->manifest, &digest, &origin->build, &why))
      origin->missing = xstrdup(why.message);
  }

  const struct function_record *packed = NULL;
  if (origin->build && origin->build->record) {
    struct error never; /* the record was checked with its build */
    ALWAYS(function_record_parse(origin->build->record, &origin->packed, &never));
    packed = &origin->packed;
  }

  const struct function_record *record =
      identity_function(identity, &kernel->hash, kernel->name, packed);
  const char *missing = origin->missing ? origin->missing : rendering->missing.message;
  if (!record && !packed && missing[0])
    origin->reason = xasprintf(
        "the image has no record of it, and the other source of one is missing: %s", missing);
  else if (!record && !packed)
    origin->reason = xstrdup("neither the image nor a build has a record of its function");
  else if (!triton_function_init(&origin->function, record ? record : packed, !record,
                                 rendering->request, kernel, rendering->manifest, &why))
    origin->reason = xstrdup(why.message);
  return true;
}

/* Reports a reason that applies to the whole kernel, once. */
static void skip_kernel(struct rendering *rendering, const char *reason) {
  if (set_add(rendering->done, reason))
    cache_files_skip(rendering->files, rendering->kernel, NULL, reason);
}

static void skip_artifacts(struct rendering *rendering, const struct release_winner *winner,
                           const char *missing) {
  cleanup_free char *reason = xasprintf(
      "its compiled code was left out, and the container compiles it itself: %s", missing);
  cache_files_skip(rendering->files, rendering->kernel, winner, reason);
}

/* Adds the code of one specialisation of a winner's key; `id` tells it from others of the kernel.
 */
static bool specialisation_render(struct rendering *rendering, const struct release_winner *winner,
                                  const struct origin *origin, const json_t *specialisation,
                                  const char *id, struct error *error) {
  const json_t *cache =
      build_cache(specialisation, rendering->kernel->configs[winner->config].values);
  struct error why;
  if (!cache)
    return true;

  /* One object serves many keys; each winner that lacks it is reported. */
  const json_t *known = json_object_get(rendering->done, id);
  if (!known) {
    bool is_added =
        artifacts_add(rendering->request, cache, origin->packed.triton_key, rendering->files, &why);
    if (!is_added && why.kind != ERROR_UNUSABLE && why.kind != ERROR_MISSING) {
      *error = why;
      return false;
    }
    if (!is_added && why.kind == ERROR_UNUSABLE)
      skip_kernel(rendering, why.message);
    json_put(rendering->done, id,
             !is_added && why.kind == ERROR_MISSING ? json_string(why.message) : json_null());
    known = json_object_get(rendering->done, id);
  }

  if (json_is_string(known))
    skip_artifacts(rendering, winner, json_string_value(known));
  return true;
}

static bool artifacts_render(struct rendering *rendering, const struct release_winner *winner,
                             size_t index, const struct value *values, struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  const struct origin *origin = &rendering->origins[index];
  const struct key key = {
      .n = kernel->n_key_names, .names = kernel->key_names, .values = (struct value *)values};
  const json_t *specialisation;
  size_t variant;
  struct error why;

  if (origin->missing && !origin->reason)
    skip_artifacts(rendering, winner, origin->missing);
  if (!origin->build || !build_variant(origin->build, &key, &variant, &why))
    return true;

  bool ok = true;
  for (size_t i = 0;
       ok && (specialisation = build_specialisation(origin->build, variant, i)) != NULL; i++) {
    cleanup_free char *id = xasprintf("%zu/%zu/%zu/%zu", index, variant, i, winner->config);
    ok = specialisation_render(rendering, winner, origin, specialisation, id, error);
  }
  return ok;
}

/* Renders a winner that was tuned; `index` is of the origin. */
static bool tuned_render(struct rendering *rendering, const struct release_winner *winner,
                         size_t index, struct error *error) {
  const struct release_kernel *kernel = rendering->kernel;
  const json_t *config = kernel->configs[winner->config].values;
  struct origin *origin = &rendering->origins[index];
  struct value values[KEY_MEMBERS_MAX];

  if (!origin->is_read && !origin_read(rendering, index, origin, error))
    return false;

  release_key_values(kernel, winner, values);
  if (origin->reason) {
    skip_kernel(rendering, origin->reason);
  } else {
    struct error why;
    /* Where the decorator's key has fewer members than the kernel's, several winners are one to
     * Triton: the first is written. */
    if (!triton_tuned_add(rendering->files, &origin->function, values, config, winner, &why))
      cache_files_skip(rendering->files, kernel, winner, why.message);
  }

  bool ok = artifacts_render(rendering, winner, index, values, error);
  release_key_values_release(kernel, values);
  return ok;
}

static bool kernel_render(struct rendering *rendering, const struct release_kernel *kernel,
                          bool is_external, struct error *error) {
  rendering->kernel = kernel;
  rendering->manifest = NULL;
  rendering->missing.message[0] = '\0';
  json_object_clear(rendering->done);
  if (!request_manifest(rendering->request, kernel, &rendering->manifest, &rendering->missing))
    rendering->manifest = NULL;
  const struct kernel *manifest = rendering->manifest;
  if (is_external != (manifest && manifest->language == LANGUAGE_EXTERNAL))
    return true;

  if (is_external) {
    const json_t *exports = external_exports(manifest, "triton");
    struct error why;
    if (!exports)
      skip_kernel(rendering, "it is known by name only, from a table of another format");
    for (size_t i = 0; exports && i < kernel->n_winners; i++)
      if (!triton_imported_add(rendering->files, exports, kernel, &kernel->winners[i], &why))
        cache_files_skip(rendering->files, kernel, &kernel->winners[i], why.message);
    return true;
  }

  /* Provenances are sorted by their texts, in which the build comes before the job's time: those of
   * one build are neighbours, and share the origin of the first. */
  bool ok = true;
  cleanup_free size_t *origin_of = xcalloc(kernel->n_provenance + 1, sizeof *origin_of);
  rendering->origins = xcalloc(kernel->n_provenance + 1, sizeof *rendering->origins);
  const char *before = NULL;
  for (size_t i = 0; i < kernel->n_provenance; i++) {
    const char *build = json_text(kernel->provenance[i], "build");
    origin_of[i] = i > 0 && string_equal(build, before) ? origin_of[i - 1] : i;
    before = build;
  }

  for (size_t i = 0; ok && i < kernel->n_winners; i++)
    ok = tuned_render(rendering, &kernel->winners[i], origin_of[kernel->winners[i].provenance],
                      error);

  origins_release(rendering);
  return ok;
}

static bool triton_render(const struct render_request *request, struct cache_files *ret,
                          struct error *error) {
  const struct release *release = request->release;
  cleanup_json json_t *done = json_object();
  struct rendering rendering = {.request = request, .files = ret, .done = done};

  /* What was tuned is before what was imported: of two winners for one file the first is written.
   */
  for (size_t i = 0; i < 2 * release->n_kernels; i++) {
    const struct release_kernel *kernel = &release->kernels[i % release->n_kernels];
    if (!kernel_render(&rendering, kernel, i >= release->n_kernels, error))
      return error_prefix(error, "kernel \"%.60s\": ", kernel->name);
  }

  ret->folder_mode = 0777;
  cache_files_variable(ret, "TRITON_CACHE_DIR", "", NULL);
  cache_files_variable(ret, "TRITON_CACHE_AUTOTUNING", NULL, "1");
  return cache_files_any(ret, "triton", error);
}

const struct cache_format format_triton = {
    .name = "triton",
    .summary = "results of @triton.autotune and compiled kernels, as Triton keeps them in "
               "TRITON_CACHE_DIR",
    .render = triton_render,
    .table = "NAME.autotune.json",
    .folder = "Triton's cache folder (TRITON_CACHE_DIR)",
    .is_table = triton_is_table,
    .no_kernel = "the folders of Triton's cache do not identify their kernel",
    .file_size_max = (size_t)16 << 20,
    .read = triton_read,
};
