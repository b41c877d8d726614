/* Cache formats: writing a release as the files that a tool reads, and reading such files.
 *
 * A format defines `const struct cache_format format_NAME` (with '-' in its name as '_') in
 * common/formats/, and formats.c there has the table of formats. Code that several formats share is
 * in this folder. `fetch` and the server's export route render with it.
 *
 * Memory: files are the caller's, freed by cache_files_release. Threads: pure functions; a source
 * is called by the thread that renders. */
#ifndef WAVETUNE_COMMON_CACHE_FORMAT_H
#define WAVETUNE_COMMON_CACHE_FORMAT_H

#include "common/builds/build.h"
#include "common/cache/identity.h"
#include "common/cache/release.h"

struct cache_files;

/* Files of a cache, in memory. Paths are relative, '/' between parts, no empty part, no "." or
 * "..". */
struct cache_file {
  char *path;
  char *bytes; /* NUL-terminated beyond its size */
  size_t size;
};

/* A winner that the format cannot express. Each one is reported with a reason. */
struct cache_skipped {
  char *name; /* the kernel's */
  char *key;  /* canonical JSON, or NULL: the whole kernel */
  char *reason;
};

/* An environment variable that makes the tool use the folder. */
struct cache_variable {
  const char *name; /* static */
  char *path; /* below the folder ("" is the folder itself), or NULL: `literal` is the value */
  char *literal;
};

/* Takes a renderer's large files in pieces, so that none is held whole in memory. A sink keeps its
 * own errors and reports them later; the renderer continues. */
struct cache_sink {
  void *context;
  void (*begin)(void *context, const struct cache_files *files,
                const char *path); /* also ends the previous file */
  void (*put)(void *context, const char *bytes, size_t size);
};

struct cache_files {
  size_t n, capacity;
  struct cache_file *files;
  size_t open_capacity;          /* of the bytes of the file that was begun last */
  const struct cache_sink *sink; /* or NULL: all files are held here */
  size_t n_streamed;             /* files that the sink took */
  size_t n_skipped;
  struct cache_skipped *skipped;
  size_t n_variables;
  struct cache_variable *variables;
  size_t n_notes;
  char **notes;                    /* sentences for the users of the files */
  unsigned file_mode, folder_mode; /* permission bits; 0: 0644 and 0755 */
  json_t *by_path;                 /* the indices of the files that cache_files_add_once added */
};
void cache_files_release(struct cache_files *files);
#define cleanup_cache_files cleanup_by(cache_files_release)

/* Adds a file. Here and below, texts are copied and `bytes` is taken over. */
void cache_files_add(struct cache_files *files, const char *path, char *bytes, size_t size);
/* Adds a path that several winners may make: it is added once, and other bytes for it are
 * refused. */
must_check bool cache_files_add_once(struct cache_files *files, const char *path, char *bytes,
                                     size_t size, struct error *error);
/* For large files: begins one, and appends a piece, which is copied, to the file that was begun
 * last. file_mode and folder_mode are set before. */
void cache_files_begin(struct cache_files *files, const char *path);
void cache_files_put(struct cache_files *files, const char *bytes, size_t size);

/* Reports that a winner (NULL: each winner of the kernel) is not written. */
void cache_files_skip(struct cache_files *files, const struct release_kernel *kernel,
                      const struct release_winner *winner, const char *reason);
void cache_files_note(struct cache_files *files, const char *note);
/* True when a file was written; else the error has the first reason to skip a winner. */
must_check bool cache_files_any(const struct cache_files *files, const char *format,
                                struct error *error);
/* The canonical text of a value. */
void cache_files_add_json(struct cache_files *files, const char *path, const json_t *json);
void cache_files_variable(struct cache_files *files, const char *name, const char *path,
                          const char *literal);

/* One tar, which depends on nothing but the files: sorted by path, each folder before its content,
 * without owners and times. The bytes are the caller's. */
must_check char *cache_files_tar(const struct cache_files *files, size_t *ret_size);

/* Gives a renderer what the release names by digest. What it returns was verified against the
 * digest, belongs to the source and is valid as long as the source. A function is NULL when the
 * source has nothing of the kind, and returns false when the source does not have this one (it was
 * removed, or never pushed), which the error names. Winners that need it are skipped. A source that
 * failed otherwise (no answer, other bytes) records the failure itself, and its owner
 * discards all that was rendered. */
struct cache_source {
  void *context;
  bool (*kernel)(void *context, const struct digest *hash, const struct kernel **ret,
                 struct error *error);
  bool (*build)(void *context, const struct kernel *kernel, const struct digest *digest,
                const struct build **ret, struct error *error);
  bool (*blob)(void *context, const struct digest *digest, const char **ret_bytes, size_t *ret_size,
               struct error *error);
};

struct render_request {
  const struct release *release;
  const struct cache_source *source; /* never NULL; its members may be */
  const struct identity *identity;   /* of the image, or NULL */
  const char *root;                  /* absolute path where the files will be; NULL: not known */
};

/* The kernel's manifest; *ret is unchanged when the source has no manifests at all. */
must_check bool request_manifest(const struct render_request *request,
                                 const struct release_kernel *kernel, const struct kernel **ret,
                                 struct error *error);
/* The "exports" of an external kernel for a format; NULL for other kernels and other formats. */
const json_t *external_exports(const struct kernel *manifest, const char *format);

/* Imported tables. A kernel is a manifest of an "external" kernel (known by name, with no code:
 * language "external"), or the hash of one that is registered. */
struct imported_entry {
  json_t *key, *config; /* flat objects, owned */
  json_t *provenance;   /* flat, without "origin" and "format": "source" (the file) and what export
                           needs to restore the file */
  size_t n_ms;
  double ms[RELEASE_MS_MAX];
};
struct imported_kernel {
  json_t *manifest;   /* object, or NULL: */
  struct digest hash; /* of a registered kernel */
  size_t n_entries;
  struct imported_entry *entries;
  json_t *entries_by_id; /* id: index */
};
struct imported {
  json_t *environment; /* a partial environment, an object: what the files state */
  size_t n_kernels;
  struct imported_kernel *kernels;
  json_t *kernels_by_id; /* id: index */
};
void imported_release(struct imported *imported);
#define cleanup_imported cleanup_by(imported_release)

struct import_request {
  const struct cache_files *files;
  const struct kernel
      *kernel; /* whose "exports" map tables to its key; NULL: tables are external kernels */
};

/* The kernel or entry with this id. Ids are only used here. A new one is zeroed, for the
 * caller to fill. Pointers are valid until the next call. */
struct imported_kernel *imported_kernel_for(struct imported *imported, const char *id);
struct imported_entry *imported_entry_for(struct imported_kernel *kernel, const char *id,
                                          bool *ret_is_new);
/* Drops the kernel with this id, which is the last one that was added and has no entries. */
void imported_kernel_drop(struct imported *imported, const char *id);
/* The external kernel of a manifest, which is its id and is taken over. */
struct imported_kernel *imported_external(struct imported *imported, json_t *manifest);
/* A new entry for a key, which is taken over, and refused when the kernel has an entry for it. */
must_check bool imported_entry_add(struct imported_kernel *kernel, json_t *key,
                                   struct imported_entry **ret_entry, struct error *error);

/* The manifest of a kernel that is known by name alone; the arguments are taken over. */
must_check json_t *external_manifest(const char *name, json_t *key, const char *format,
                                     json_t *exports);

/* Sets the environment that a file states, which is taken over; all files of an import must have
 * the same. */
must_check bool imported_set_environment(struct imported *imported, json_t *environment,
                                         struct error *error);

/* Whether a member of a key or a config is a scalar. */
must_check bool scalar_check(const json_t *value, const char *pointer, struct error *error);

/* A path as the text of a provenance's "source": bytes that are not UTF-8 become '?'. A new
 * reference. */
must_check json_t *imported_source(const char *path);

struct cache_format {
  const char *name;    /* "vllm-moe" */
  const char *summary; /* one line for --help */
  /* Winners that the format cannot express are skipped with the reason; false when none can be
   * written: then no file was begun. The caller releases *ret in both cases. */
  bool (*render)(const struct render_request *request, struct cache_files *ret,
                 struct error *error);

  /* Reading; see cache_format_read. A format that is only written has `table` and no `read`. */
  const char *table;                  /* the name of such a file in errors */
  const char *folder;                 /* the folder that has such files, in errors; NULL: any may */
  bool (*is_table)(const char *path); /* NULL: every file is one */
  const char *no_kernel; /* why a table cannot be mapped to a registered kernel; NULL: it can */
  size_t file_size_max;  /* 0: no limit */
  bool may_be_empty;     /* tables without entries are not an error */
  /* Adds the entries of one file, which is untrusted: sizes are bounded, values are checked, and no
   * path is followed. */
  bool (*read)(const struct import_request *request, const struct cache_file *file,
               struct imported *imported, struct error *error);
};

/* All formats, sorted by name; ends with NULL. */
extern const struct cache_format *const cache_formats[];

/* Reads every file that is a table, or fails: the error names the file and the position. */
must_check bool cache_format_read(const struct cache_format *format,
                                  const struct import_request *request, struct imported *ret,
                                  struct error *error);

/* Finds a format by name; the error for an unknown name lists all. */
must_check bool cache_format_find(const char *name, const struct cache_format **ret,
                                  struct error *error);

/* Helpers of formats. */
static inline const char *path_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
/* The name of the folder that a file is in, "" for none; owned by the caller. */
static inline char *path_folder(const char *path) {
  const char *end = path_name(path), *begin = end > path ? --end : end;
  while (begin > path && begin[-1] != '/')
    begin--;
  return xstrndup(begin, (size_t)(end - begin));
}
#define name_is_in(name, names) name_is_among((name), (names), ARRAY_LENGTH(names))
static inline bool name_is_among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (string_equal(name, names[i]))
      return true;
  return false;
}

#endif
