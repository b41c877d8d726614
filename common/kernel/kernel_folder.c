/* Reading a folder of kernels/: makes the flat manifest of one version of kernel.json. */
#include "common/kernel/kernel_folder.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/kernel/kernel.h"

#define FILE_SIZE_MAX ((size_t)1 << 20)

/* Members that a version may state in place of the folder's. */
#define SHARED_MEMBERS                                                                             \
  "arguments", "defines", "launch", "reference", "flops", "bytes", "exports", "cases"

/* Reads a file, which must be inside the folder also after links are followed, because the files of
 * a manifest are pushed to a server. */
static bool read_inside(const char *directory, const char *path, char **ret_text, size_t *ret_size,
                        struct error *error) {
  cleanup_free char *joined = xasprintf("%s/%s", directory, path);
  cleanup_free char *root = realpath(directory, NULL);
  cleanup_free char *real = realpath(joined, NULL);
  if (!root || !real)
    return error_set(error, "cannot open %s: %s", joined, strerror(errno));

  size_t length = string_equal(root, "/") ? 0 : strlen(root);
  if (strncmp(real, root, length) != 0 || real[length] != '/')
    return error_set(error, "%s leads out of its folder by a link; put a copy of the file there",
                     joined);
  return file_read(real, FILE_SIZE_MAX, ret_text, ret_size, error);
}

static bool read_json_inside(const char *directory, const char *path, json_t **ret_json,
                             struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!read_inside(directory, path, &text, &size, error))
    return false;
  if (!json_parse(text, size, ret_json, error))
    return error_prefix(error, "%s/%s: ", directory, path);
  return true;
}

/* Puts the file's name and the pointer, where there is one, into the sentence: people edit the
 * file. */
static bool error_in_file(struct error *error, const char *directory, const char *path) {
  if (error->pointer[0])
    return error_prefix(error, "%s/%s, at %s: ", directory, path, error->pointer);
  return error_prefix(error, "%s/%s: ", directory, path);
}

/* Reads kernel.json and checks its members; kernel_parse checks the values in the manifest. */
static bool read_document(const char *directory, json_t **ret_document, struct error *error) {
  static const char *const members[] = {"name", "key", "versions", SHARED_MEMBERS, NULL};
  static const char *const version_members[] = {"language",   "entry",        "sources",
                                                "space",      "from",         "captured",
                                                "constexprs", SHARED_MEMBERS, NULL};
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  cleanup_json json_t *document = NULL;
  json_t *versions = NULL;
  if (!read_json_inside(directory, "kernel.json", &document, error))
    return false;

  if (!json_only_members(document, "", members, error) ||
      !json_get_object(document, "", "versions", JSON_REQUIRED, &versions, error))
    return error_in_file(error, directory, "kernel.json");
  if (!json_object_size(versions)) {
    error_at(error, "/versions", "the folder must have at least one version");
    return error_in_file(error, directory, "kernel.json");
  }

  json_members (versions, name, version) {
    size_t length = strlen(name);
    const char *at = POINTER_MEMBER("/versions", name);

    bool is_good =
        (length >= 1 && length <= 64 && !name[strspn(name, letters)]) ||
        error_at(error, at, "a version's name has 1 to 64 letters, digits and _ . - only");
    if (!is_good || !json_only_members(version, at, version_members, error))
      return error_in_file(error, directory, "kernel.json");
  }

  *ret_document = TAKE(document);
  return true;
}

/* A version of a document, from which both are borrowed. */
struct version {
  const char *name;
  json_t *json;
};

/* Finds the version `wanted`; NULL: the only one. */
static bool find_version(const char *directory, const json_t *document, const char *wanted,
                         struct version *ret, struct error *error) {
  json_t *versions = json_object_get(document, "versions");
  const char *first = json_object_iter_key(json_object_iter(versions));
  struct version found = {.name = wanted ? wanted : first};
  found.json = json_object_get(versions, found.name);
  if (found.json && (wanted || json_object_size(versions) == 1)) {
    *ret = found;
    return true;
  }

  cleanup_json json_t *names = json_array();
  json_members (versions, name, version)
    json_push(names, json_string(name));
  cleanup_free char *list = json_texts_join(names, ", ");
  if (!wanted)
    return error_set(error, "%s has several versions: name one of %s, like %s:%s", directory, list,
                     directory, first);
  return error_set(error, "%s has no version \"%.64s\"; it has %s", directory, wanted, list);
}

/* Makes the {path, digest} of a file, which is read unless an earlier source had that path.
 * `folder->files` has space for it. */
static bool take_file(struct kernel_folder *folder, const char *directory, const json_t *name,
                      const char *pointer, json_t **ret_source, struct error *error) {
  const char *path = json_string_value(name);
  if (!path)
    return error_at(error, pointer, "a source must be the path of a file, a string");
  if (!source_path_check(path, pointer, error))
    return false;

  struct kernel_file *file = folder->files;
  while (file < folder->files + folder->n_files && !string_equal(file->path, path))
    file++;
  if (file == folder->files + folder->n_files) {
    char *bytes = NULL;
    size_t size = 0;
    if (!read_inside(directory, path, &bytes, &size, error)) {
      snprintf(error->pointer, sizeof error->pointer, "%s", pointer);
      return false;
    }

    folder->n_files++;
    *file = (struct kernel_file){
        .path = xstrdup(path), .digest = digest_of(bytes, size), .size = size, .bytes = bytes};
  }

  *ret_source = json_pack("{s:s, s:o}", "path", path, "digest", json_digest_text(&file->digest));
  ALWAYS(*ret_source != NULL);
  return true;
}

/* Where a version's "arguments" are an object, puts the folder's in their place, with what the
 * object changes by name; null takes an argument out. */
static bool arguments_change(const json_t *document, json_t *manifest, struct error *error) {
  const json_t *shared = json_object_get(document, "arguments");
  json_t *changes = json_object_get(manifest, "arguments"), *argument;
  cleanup_json json_t *changed = json_array(), *left = json_copy(changes);
  size_t i;
  if (!json_is_object(changes))
    return true;

  json_array_foreach (shared, i, argument) {
    json_t *change = json_object_get(changes, json_text(argument, "name"));
    json_object_del(left, json_text(argument, "name"));
    if (json_is_null(change))
      continue;
    cleanup_json json_t *copy = json_copy(argument);
    if (change && (!json_is_object(change) || json_object_update(copy, change) < 0))
      return error_at(error, POINTER_MEMBER("/arguments", json_text(argument, "name")),
                      "a change of an argument is an object of its members, or null");
    json_push(changed, json_incref(copy));
  }

  json_put(manifest, "arguments", TAKE(changed));
  json_members (left, name, change)
    return error_at(error, POINTER_MEMBER("/arguments", name),
                    "it changes an argument that the folder's \"arguments\" do not have");
  return true;
}

/* Of an entry: keeps its function's module, and gives the manifest one source without bytes. */
static bool take_module(struct kernel_folder *folder, json_t *manifest, struct error *error) {
  static const char *const members[] = {"module", NULL};
  json_t *from = NULL;
  const char *module = NULL;
  if (!json_get_object(manifest, "", "from", JSON_OPTIONAL, &from, error))
    return false;
  if (!from)
    return true;
  if (!json_only_members(from, "/from", members, error) ||
      !json_get_string(from, "/from", "module", JSON_REQUIRED, &module, error))
    return false;
  if (json_object_get(manifest, "sources"))
    return error_at(error, "/sources", "has both \"from\" and \"sources\": remove one");

  folder->module = xstrdup(module);
  json_object_del(manifest, "from");
  json_object_del(manifest, "captured");
  json_object_del(manifest, "constexprs");
  return true;
}

/* Makes the flat manifest: the members of the folder, or the version's in place of them, with
 * {path, digest} for each path. */
static bool make_manifest(struct kernel_folder *folder, const char *directory,
                          const json_t *document, const struct version *version,
                          json_t **ret_manifest, struct error *error) {
  cleanup_json json_t *manifest = json_copy((json_t *)document), *sources = json_array();
  json_t *names = NULL, *name, *reference = NULL, *source = NULL;
  const char *folder_name = NULL;
  size_t i;

  ALWAYS(manifest && json_object_update(manifest, version->json) == 0);
  if (!arguments_change(document, manifest, error))
    return false;
  json_object_del(manifest, "versions");
  json_object_del(manifest, "space");
  if (!json_get_string(document, "", "name", JSON_REQUIRED, &folder_name, error) ||
      !take_module(folder, manifest, error) ||
      !json_get_array(manifest, "", "sources", folder->module ? JSON_OPTIONAL : JSON_REQUIRED,
                      &names, error))
    return false;

  cleanup_free char *full_name = xasprintf("%s/%s", folder_name, version->name);
  json_put(manifest, "name", json_string(full_name));

  if (json_array_size(names) > KERNEL_SOURCES_MAX)
    return error_at(error, "/sources", "a kernel has at most %d sources", KERNEL_SOURCES_MAX);

  json_array_foreach (names, i, name) {
    char at[JSON_POINTER_SIZE];
    if (!take_file(folder, directory, name, json_pointer_index(at, sizeof at, "/sources", i),
                   &source, error))
      return false;
    json_push(sources, source);
  }
  if (folder->module) {
    const struct digest none = {0};
    json_push(sources,
              json_pack("{s:s, s:o}", "path", "kernel.py", "digest", json_digest_text(&none)));
  }
  json_put(manifest, "sources", TAKE(sources));

  if (!json_get_object(manifest, "", "reference", JSON_OPTIONAL, &reference, error))
    return false;
  if (reference) {
    name = json_object_get(reference, "source");
    if (!name)
      return error_at(error, "/reference/source", "member \"source\" is missing");
    if (!take_file(folder, directory, name, "/reference/source", &source, error))
      return false;
    reference = json_copy(reference); /* the document must not change */
    json_put(reference, "source", source);
    json_put(manifest, "reference", reference);
  }

  *ret_manifest = TAKE(manifest);
  return true;
}

bool kernel_folder_load(const char *place, struct kernel_folder **ret_folder, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  if (!kernel_folder_describe(place, &folder, error))
    return false;
  if (folder->module)
    return error_set(error,
                     "%s has no source, because its function is in %s: make its kernel folder with "
                     "`python3 -m wavetune pack %s --package-root SITE-PACKAGES --kernel FOLDER "
                     "--key … --output BUILD`, and name that folder",
                     place, folder->module, place);
  *ret_folder = TAKE(folder);
  return true;
}

bool kernel_folder_describe(const char *place, struct kernel_folder **ret_folder,
                            struct error *error) {
  cleanup_json json_t *document = NULL, *manifest = NULL;
  const char *colon = strrchr(place, ':');
  struct version version;
  struct stat status;

  /* The colon may be a part of the folder's name. */
  if (colon && (strchr(colon, '/') || (stat(place, &status) == 0 && S_ISDIR(status.st_mode))))
    colon = NULL;
  const char *wanted = colon ? colon + 1 : NULL;
  cleanup_free char *directory = xstrndup(place, colon ? (size_t)(colon - place) : strlen(place));

  if (!read_document(directory, &document, error) ||
      !find_version(directory, document, wanted, &version, error))
    return false;

  cleanup_kernel_folder struct kernel_folder *folder = xcalloc(1, sizeof *folder);
  folder->files = xcalloc(KERNEL_SOURCES_MAX + 1, sizeof *folder->files);
  if (!make_manifest(folder, directory, document, &version, &manifest, error) ||
      !kernel_parse(manifest, &folder->kernel, error)) {
    error_in_file(error, directory, "kernel.json");
    return error_prefix(error, "version \"%s\": ", version.name);
  }

  const char *space_path = "space.json";
  cleanup_json json_t *space = NULL;
  if (!json_get_string(version.json, "", "space", JSON_OPTIONAL, &space_path, error) ||
      !source_path_check(space_path, "/space", error))
    return error_in_file(error, directory, "kernel.json");
  if (!read_json_inside(directory, space_path, &space, error))
    return false;
  if (!space_parse(space, &folder->space, error))
    return error_in_file(error, directory, space_path);

  *ret_folder = TAKE(folder);
  return true;
}

bool kernel_folder_take_space(struct kernel_folder *folder, const char *path, struct error *error) {
  cleanup_json json_t *json = NULL;
  struct space *space;
  if (!path)
    return true;
  if (!json_parse_file(path, FILE_SIZE_MAX, &json, error))
    return false;
  if (!space_parse(json, &space, error))
    return error_prefix(error, "%s: ", path);
  space_free(folder->space);
  folder->space = space;
  return true;
}

void kernel_folder_free(struct kernel_folder *folder) {
  if (folder->kernel)
    kernel_free(folder->kernel);
  if (folder->space)
    space_free(folder->space);
  for (size_t i = 0; i < folder->n_files; i++) {
    free(folder->files[i].path);
    free(folder->files[i].bytes);
  }
  free(folder->files);
  free(folder->module);
  free(folder);
}
