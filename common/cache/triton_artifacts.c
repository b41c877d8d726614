/* Compiled artifacts as Triton keeps them.
 *
 * Memory: what is added is the file set's. Threads: the one that renders. */
#include "common/cache/triton_artifacts.h"

#include <ctype.h>

#include "common/cache/python_text.h"

bool cache_files_add_once(struct cache_files *files, json_t *paths, const char *path, char *bytes, size_t size,
                          struct error *error) {
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
         error_set(error, "another winner of the release makes %.160s, with different content; a tool reads one", path);
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

/* Triton hashes the variables that are set and writes them among the metadata, where no other member is in capitals. */
static bool variables_agree(const json_t *metadata, const json_t *variables, struct error *error) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)variables, name, value) {
    if (!json_equal(value, json_object_get(metadata, name)))
      return error_set(error, "the image sets %.60s and its code was compiled without that", name);
  }
  json_object_foreach ((json_t *)metadata, name, value) {
    if (is_variable_name(name) && !json_object_get(variables, name))
      return error_set(error, "its code was compiled with %.60s set, and the image does not set it", name);
  }
  return true;
}

/* The libraries of AMD's back end stand in its options with their paths, and those lie in the package of Triton. */
static bool folder_agrees(const json_t *metadata, const char *folder, struct error *error) {
  const json_t *libraries = json_object_get(metadata, "extern_libs"), *library;
  const char *backend = json_string_value(json_object_get(json_object_get(metadata, "target"), "backend"));
  size_t i, length = folder ? strlen(folder) : 0;
  if (!folder || !string_equal(backend, "hip"))
    return true;
  json_array_foreach (libraries, i, library) {
    const char *path = json_string_value(json_array_get(library, 1));
    if (path && strstr(path, "/triton/backends/") && (strncmp(path, folder, length) != 0 || path[length] != '/'))
      return error_set(error, "its code was compiled by a Triton that lies elsewhere than the image's, in %.120s",
                       folder);
  }
  return true;
}

/* A file of the build. False: with *ret_missing, the source does not have it. */
static bool find_file(const struct render_request *request, const json_t *files, const char *name,
                      const char **ret_bytes, size_t *ret_size, char **ret_missing, struct error *error) {
  struct digest digest;
  struct error missing;
  if (!json_get_digest(files, "", name, JSON_REQUIRED, &digest, error))
    return false;
  if (request->source->blob(request->source->context, &digest, ret_bytes, ret_size, &missing))
    return true;
  *ret_missing = xstrdup(missing.message);
  return false;
}

/* Why Triton in the image would look for other files, or NULL; false when the metadata cannot be had. */
static bool compare_image(const struct render_request *request, const json_t *files, const char *triton_key,
                          char **ret_reason, char **ret_missing, struct error *error) {
  const struct identity *identity = request->identity;
  const char *name = metadata_name(files), *bytes;
  size_t size;
  if (!identity || (identity->triton_key && !string_equal(identity->triton_key, triton_key))) {
    *ret_reason = identity ? xstrdup("its code was compiled by another build of Triton than the image's; pack it with "
                                     "the Triton of the image")
                           : NULL;
    return true;
  }
  cleanup_json json_t *metadata = NULL;
  struct error differs;
  if (!find_file(request, files, name, &bytes, &size, ret_missing, error))
    return false;
  if (!json_parse(bytes, size, &metadata, error))
    return error_prefix(error, "%.200s, compiled metadata of a build: ", name);
  const char *folder = json_string_value(json_object_get(json_object_get(identity->json, "triton"), "folder"));
  if (!variables_agree(metadata, identity->variables, &differs) || !folder_agrees(metadata, folder, &differs))
    *ret_reason = xstrdup(differs.message);
  return true;
}

/* A folder with some of the files alone would help nobody. */
static bool find_files(const struct render_request *request, const json_t *names, struct cache_file *files,
                       char **ret_missing, struct error *error) {
  const char *name, *bytes;
  json_t *value;
  size_t i = 0, size;
  json_object_foreach ((json_t *)names, name, value) {
    if (!find_file(request, names, name, &bytes, &size, ret_missing, error))
      return false;
    files[i++] = (struct cache_file){(char *)name, (char *)bytes, size};
  }
  return true;
}

bool triton_artifacts_add(const struct render_request *request, const json_t *cache, const char *triton_key,
                          struct cache_files *files, json_t *paths, char **ret_reason, char **ret_missing,
                          struct error *error) {
  const json_t *names = json_object_get(cache, "files");
  const char *folder = json_string_value(json_object_get(cache, "folder"));
  struct error other;
  *ret_reason = *ret_missing = NULL;
  if (!request->root || !request->source->blob) {
    *ret_reason =
        xstrdup(request->root ? "the compiled code cannot be had here"
                              : "compiled code has absolute paths in it, and where it will stand is not known");
    return true;
  }
  if (!json_can_hold(request->root)) {
    *ret_reason = xstrdup("compiled code has absolute paths in it, as JSON, and that where it will stand is no UTF-8");
    return true;
  }
  if (!compare_image(request, names, triton_key, ret_reason, ret_missing, error))
    return *ret_missing != NULL;
  if (*ret_reason)
    return true;
  size_t n = json_object_size(names);
  cleanup_free struct cache_file *found = xcalloc(n, sizeof *found);
  if (!find_files(request, names, found, ret_missing, error))
    return *ret_missing != NULL;
  cleanup_json json_t *children = json_object();
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, found[i].path),
                      *child = xasprintf("%s/%s", request->root, path);
    char *copy = xmalloc(found[i].size + 1);
    memcpy(copy, found[i].bytes, found[i].size);
    copy[found[i].size] = '\0';
    if (!cache_files_add_once(files, paths, path, copy, found[i].size, &other)) {
      *ret_reason = xstrdup(other.message);
      return true;
    }
    ALWAYS(json_object_set_new(children, found[i].path, json_string(child)) == 0);
  }
  cleanup_json json_t *group = json_pack("{s:O}", "child_paths", children);
  cleanup_free char *path = xasprintf("%s/__grp__%s", folder, metadata_name(names));
  size_t size;
  char *bytes = python_json(group, 0, &size);
  if (!cache_files_add_once(files, paths, path, bytes, size, &other))
    *ret_reason = xstrdup(other.message);
  return true;
}
