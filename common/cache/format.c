/* Files that renderers return and importers read, their tar, and tables while they are imported.
 * Memory and threads: format.h. */
#include "common/cache/format.h"

#include <archive.h>
#include <archive_entry.h>

#include "common/base/error.h"
#include "common/cache/text.h"

#define PATH_TEXT_MIN 250 /* bytes of a path that an error keeps, even if the message is cut */

void cache_files_release(struct cache_files *files) {
  for (size_t i = 0; i < files->n; i++) {
    free(files->files[i].path);
    free(files->files[i].bytes);
  }

  for (size_t i = 0; i < files->n_skipped; i++) {
    free(files->skipped[i].name);
    free(files->skipped[i].key);
    free(files->skipped[i].reason);
  }

  for (size_t i = 0; i < files->n_variables; i++) {
    free(files->variables[i].path);
    free(files->variables[i].literal);
  }

  for (size_t i = 0; i < files->n_notes; i++)
    free(files->notes[i]);

  free(files->files);
  free(files->notes);
  free(files->skipped);
  free(files->variables);
  json_decref(files->by_path);
  *files = (struct cache_files){0};
}

/* A path that leaves the folder is a bug of a renderer, not an error of an input. */
static bool path_stays_below(const char *path) {
  for (const char *part = path;; part++) {
    size_t size = strcspn(part, "/");
    if (size == 0 || (size == 1 && part[0] == '.') ||
        (size == 2 && part[0] == '.' && part[1] == '.'))
      return false;
    part += size;
    if (!*part)
      return true;
  }
}

void cache_files_add(struct cache_files *files, const char *path, char *bytes, size_t size) {
  ALWAYS(path_stays_below(path));
  GROW(files->files, files->n, files->capacity);
  files->files[files->n++] = (struct cache_file){xstrdup(path), bytes, size};
}

void cache_files_add_json(struct cache_files *files, const char *path, const json_t *json) {
  char *text = json_canonical(json);
  cache_files_add(files, path, text, strlen(text));
}

bool cache_files_add_once(struct cache_files *files, const char *path, char *bytes, size_t size,
                          struct error *error) {
  if (!files->by_path)
    files->by_path = json_object();
  const json_t *known = json_object_get(files->by_path, path);
  if (!known) {
    json_put(files->by_path, path, json_integer((json_int_t)files->n));
    cache_files_add(files, path, bytes, size);
    return true;
  }

  const struct cache_file *file = &files->files[json_integer_value(known)];
  bool is_same = file->size == size && memcmp(file->bytes, bytes, size) == 0;
  free(bytes);
  return is_same || error_set(error,
                              "another winner of the release makes %.160s, with different content; "
                              "a tool reads only one",
                              path);
}

void cache_files_begin(struct cache_files *files, const char *path) {
  ALWAYS(path_stays_below(path));
  if (files->sink) {
    files->n_streamed++;
    files->sink->begin(files->sink->context, files, path);
  } else {
    cache_files_add(files, path, xcalloc(1, 1), 0);
    files->open_capacity = 1;
  }
}

void cache_files_put(struct cache_files *files, const char *bytes, size_t size) {
  if (files->sink) {
    files->sink->put(files->sink->context, bytes, size);
    return;
  }

  struct cache_file *file = &files->files[files->n - 1];
  struct text text = {file->bytes, file->size, files->open_capacity};
  text_add(&text, bytes, size);
  files->open_capacity = text.capacity;
  text.bytes[text.size] = '\0'; /* text_add leaves room */
  file->bytes = text.bytes;
  file->size = text.size;
}

void cache_files_skip(struct cache_files *files, const struct release_kernel *kernel,
                      const struct release_winner *winner, const char *reason) {
  *APPEND(files->skipped, files->n_skipped) = (struct cache_skipped){
      xstrdup(kernel->name), winner ? xstrndup(winner->key, winner->key_size) : NULL,
      xstrdup(reason)};
}

void cache_files_note(struct cache_files *files, const char *note) {
  *APPEND(files->notes, files->n_notes) = xstrdup(note);
}

bool cache_files_any(const struct cache_files *files, const char *format, struct error *error) {
  if (files->n || files->n_streamed)
    return true;
  ALWAYS(files->n_skipped > 0);
  return error_set(error, "no winner can be written for %s; the first, of \"%.60s\": %.300s",
                   format, files->skipped[0].name, files->skipped[0].reason);
}

void cache_files_variable(struct cache_files *files, const char *name, const char *path,
                          const char *literal) {
  *APPEND(files->variables, files->n_variables) =
      (struct cache_variable){name, path ? xstrdup(path) : NULL, path ? NULL : xstrdup(literal)};
}

bool request_manifest(const struct render_request *request, const struct release_kernel *kernel,
                      const struct kernel **ret, struct error *error) {
  const struct cache_source *source = request->source;
  return !source->kernel || source->kernel(source->context, &kernel->hash, ret, error);
}

const json_t *external_exports(const struct kernel *manifest, const char *format) {
  return manifest && manifest->language == LANGUAGE_EXTERNAL
             ? json_object_get(json_object_get(manifest->json, "exports"), format)
             : NULL;
}

/* Importing */

void imported_release(struct imported *imported) {
  for (size_t i = 0; i < imported->n_kernels; i++) {
    struct imported_kernel *kernel = &imported->kernels[i];
    for (size_t j = 0; j < kernel->n_entries; j++) {
      json_decref(kernel->entries[j].key);
      json_decref(kernel->entries[j].config);
      json_decref(kernel->entries[j].provenance);
    }
    free(kernel->entries);
    json_decref(kernel->entries_by_id);
    json_decref(kernel->manifest);
  }

  free(imported->kernels);
  json_decref(imported->kernels_by_id);
  json_decref(imported->environment);
  *imported = (struct imported){0};
}

/* Whether the id is new: then it becomes that of the element after the first n. */
static bool id_add(json_t **by_id, const char *id, size_t n, size_t *ret_index) {
  if (!*by_id)
    *by_id = json_object();
  const json_t *known = json_object_get(*by_id, id);
  *ret_index = known ? (size_t)json_integer_value(known) : n;
  if (!known)
    json_put(*by_id, id, json_integer((json_int_t)n));
  return !known;
}

struct imported_kernel *imported_kernel_for(struct imported *imported, const char *id) {
  size_t i;
  bool is_new = id_add(&imported->kernels_by_id, id, imported->n_kernels, &i);
  return is_new ? APPEND(imported->kernels, imported->n_kernels) : &imported->kernels[i];
}

struct imported_entry *imported_entry_for(struct imported_kernel *kernel, const char *id,
                                          bool *ret_is_new) {
  size_t i;
  *ret_is_new = id_add(&kernel->entries_by_id, id, kernel->n_entries, &i);
  return *ret_is_new ? APPEND(kernel->entries, kernel->n_entries) : &kernel->entries[i];
}

void imported_kernel_drop(struct imported *imported, const char *id) {
  json_decref(imported->kernels[--imported->n_kernels].manifest);
  json_object_del(imported->kernels_by_id, id);
}

struct imported_kernel *imported_external(struct imported *imported, json_t *manifest) {
  cleanup_free char *id = json_canonical(manifest);
  struct imported_kernel *kernel = imported_kernel_for(imported, id);
  if (kernel->manifest)
    json_decref(manifest);
  else
    kernel->manifest = manifest;
  return kernel;
}

bool imported_entry_add(struct imported_kernel *kernel, json_t *key,
                        struct imported_entry **ret_entry, struct error *error) {
  cleanup_free char *id = json_canonical(key);
  bool is_new;
  struct imported_entry *entry = imported_entry_for(kernel, id, &is_new);

  if (is_new) {
    entry->key = key;
    *ret_entry = entry;
    return true;
  }

  json_decref(key);
  return error_set(error, "the key %.200s occurs twice: also in %.250s", id,
                   json_text(entry->provenance, "source"));
}

json_t *external_manifest(const char *name, json_t *key, const char *format, json_t *exports) {
  json_t *manifest = json_pack("{s:s, s:s, s:o, s:{s:o}}", "name", name, "language", "external",
                               "key", key, "exports", format, exports);
  ALWAYS(manifest != NULL);
  return manifest;
}

bool imported_set_environment(struct imported *imported, json_t *environment, struct error *error) {
  cleanup_json json_t *owned = environment;
  cleanup_environment struct environment parsed = {0};

  if (!environment_parse(owned, &parsed, error))
    return false;
  if (!imported->environment)
    imported->environment = json_incref(owned);
  if (json_equal(owned, imported->environment))
    return true;

  cleanup_free char *before = json_canonical(imported->environment), *now = json_canonical(owned);
  return error_set(
      error, "its environment is %s, and that of an earlier file is %s; import them separately",
      now, before);
}

bool scalar_check(const json_t *value, const char *pointer, struct error *error) {
  struct value scalar;
  struct error why;
  return value_from_json(value, &scalar, &why) || error_at(error, pointer, "%s", why.message);
}

json_t *imported_source(const char *path) {
  json_t *text = json_string(path);
  if (text)
    return text;
  cleanup_free char *plain = xstrdup(path);
  for (char *c = plain; *c; c++)
    *c = (unsigned char)*c < 0x80 ? *c : '?';
  return json_string(plain);
}

/* Moves the JSON Pointer, when there is one, into the message, and puts the file's path before
 * it. */
static bool file_refuse(const struct cache_file *file, struct error *error) {
  struct error why = *error;
  size_t used = strlen(why.message) + strlen(why.pointer) + sizeof "…: : ",
         size = strlen(file->path);
  size_t room = sizeof error->message > used ? sizeof error->message - used : 0;
  if (room < PATH_TEXT_MIN)
    room = PATH_TEXT_MIN;
  return error_set(error, "%s%s: %s%s%s", size > room ? "…" : "",
                   size > room ? file->path + size - room : file->path, why.pointer,
                   why.pointer[0] ? ": " : "", why.message);
}

bool cache_format_read(const struct cache_format *format, const struct import_request *request,
                       struct imported *ret, struct error *error) {
  cleanup_imported struct imported imported = {0};
  size_t n_tables = 0, n_entries = 0;

  if (!format->read)
    return error_set(error, "%s is made of a release and cannot be imported", format->table);
  if (request->kernel && format->no_kernel)
    return error_set(error, "%s; omit --kernel", format->no_kernel);

  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    if (format->is_table && !format->is_table(file->path))
      continue;
    n_tables++;
    if (format->file_size_max && file->size > format->file_size_max) {
      error_set(error, "it has %zu bytes; at most %zu are read", file->size, format->file_size_max);
      return file_refuse(file, error);
    }
    if (!format->read(request, file, &imported, error))
      return file_refuse(file, error);
  }

  for (size_t i = 0; i < imported.n_kernels; i++)
    n_entries += imported.kernels[i].n_entries;
  if (!n_tables)
    return error_set(error, "none of the %zu files is a %s%s%s", request->files->n, format->table,
                     format->folder ? "; name " : "", format->folder ? format->folder : "");
  if (!n_entries && !format->may_be_empty)
    return error_set(error, "no %s has an entry", format->table);
  if (!imported.environment)
    imported.environment = json_object();

  *ret = imported;
  imported = (struct imported){0};
  return true;
}

bool cache_format_find(const char *name, const struct cache_format **ret, struct error *error) {
  const char *known[64];
  size_t n = 0;
  cleanup_text struct text names = {0};

  for (; cache_formats[n]; n++) {
    if (string_equal(cache_formats[n]->name, name)) {
      *ret = cache_formats[n];
      return true;
    }
    ALWAYS(n < ARRAY_LENGTH(known));
    known[n] = cache_formats[n]->name;
    text_add_string(&names, n ? ", " : " ");
    text_add_string(&names, known[n]);
  }

  const char *nearest = name_nearest(name, known, n);
  return error_set(error, "unknown format \"%s\"; %s%s%sthere are:%.*s", NAME_CUT(name),
                   nearest ? "did you mean \"" : "", nearest ? nearest : "", nearest ? "\"? " : "",
                   (int)names.size, names.bytes);
}

/* A tar in memory */

static la_ssize_t write_to_memory(struct archive *archive, void *out, const void *bytes,
                                  size_t size) {
  (void)archive;
  return (la_ssize_t)fwrite_unlocked(bytes, 1, size, out);
}

static int files_compare(const void *a, const void *b) {
  return strcmp((*(const struct cache_file *const *)a)->path,
                (*(const struct cache_file *const *)b)->path);
}

static void header_add(struct archive *archive, struct archive_entry *entry, const char *path,
                       unsigned type, unsigned mode, size_t size) {
  archive_entry_clear(entry);
  archive_entry_set_pathname(entry, path);
  archive_entry_set_filetype(entry, type);
  archive_entry_set_perm(entry, (mode_t)mode);
  archive_entry_set_size(entry, (la_int64_t)size);
  archive_entry_set_mtime(entry, 0, 0);
  /* libarchive warns of a path that is not ASCII, and writes it byte for byte. */
  ALWAYS(archive_write_header(archive, entry) >= ARCHIVE_WARN);
}

/* Writing to memory fails only when memory is exhausted; paths were checked when the files were
 * added. */
char *cache_files_tar(const struct cache_files *files, size_t *ret_size) {
  char *bytes = NULL;
  FILE *out = open_memstream(&bytes, ret_size);
  struct archive *archive = archive_write_new();
  struct archive_entry *entry = archive_entry_new();
  cleanup_free const struct cache_file **sorted =
      xcalloc(files->n + 1, sizeof(struct cache_file *));
  ALWAYS(out && archive && entry);

  for (size_t i = 0; i < files->n; i++)
    sorted[i] = &files->files[i];

  qsort(sorted, files->n, sizeof *sorted, files_compare);
  ALWAYS(archive_write_set_format_pax_restricted(archive) == ARCHIVE_OK);
  ALWAYS(archive_write_open(archive, out, NULL, write_to_memory, NULL) == ARCHIVE_OK);

  const char *before = "";
  for (size_t i = 0; i < files->n; i++) {
    const struct cache_file *file = sorted[i];
    /* Write the folders of this file that the previous file is not in: some tools write beside what
     * they read, so a folder's mode matters. Sorted, the files of a folder are neighbours. */
    for (const char *slash = strchr(file->path, '/'); slash; slash = strchr(slash + 1, '/')) {
      size_t size = (size_t)(slash + 1 - file->path);
      cleanup_free char *folder = xstrndup(file->path, size);
      if (strncmp(before, folder, size) != 0)
        header_add(archive, entry, folder, AE_IFDIR, files->folder_mode ? files->folder_mode : 0755,
                   0);
    }
    header_add(archive, entry, file->path, AE_IFREG, files->file_mode ? files->file_mode : 0644,
               file->size);
    ALWAYS(archive_write_data(archive, file->bytes, file->size) == (la_ssize_t)file->size);
    before = file->path;
  }

  ALWAYS(archive_write_close(archive) == ARCHIVE_OK);
  archive_entry_free(entry);
  archive_write_free(archive);
  ALWAYS(fclose(out) == 0);
  return bytes;
}
