/* Cache formats: a release written as the files that some tool reads, and such files read back.
 *
 * A format defines `const struct cache_format format_NAME` (with '-' in its name as '_') in
 * common/formats/, where formats.c has the table of all. What several formats share lies beside
 * this file. `fetch` renders what it verified with this code, and the server's export route uses
 * the same.
 *
 * Memory: files are the caller's, freed by cache_files_release. Threads: pure functions over what
 * they are given; a source is called by the thread that renders. */
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

/* A winner that the format cannot say: nothing is dropped in silence. */
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

/* Where a renderer's files go while they are made, so that none has to be held whole: who writes
 * them. What goes wrong is the sink's to keep and to tell; a renderer goes on. */
struct cache_sink {
  void *context;
  void (*begin)(void *context, const struct cache_files *files,
                const char *path); /* ends the file before it */
  void (*put)(void *context, const char *bytes, size_t size);
};

struct cache_files {
  size_t n, capacity;
  struct cache_file *files;
  size_t open_capacity;          /* of the bytes of the file that was begun last */
  const struct cache_sink *sink; /* or NULL: all files are held here */
  size_t n_sunk;                 /* files that went there */
  size_t n_skipped;
  struct cache_skipped *skipped;
  size_t n_variables;
  struct cache_variable *variables;
  unsigned file_mode, folder_mode; /* permission bits; 0: 0644 and 0755 */
};
void cache_files_release(struct cache_files *files);
#define cleanup_cache_files __attribute__((cleanup(cache_files_release)))

/* Helpers of renderers; texts are copied, `bytes` is taken over. */
void cache_files_add(struct cache_files *files, const char *path, char *bytes, size_t size);
/* Large files, in pieces, which are copied: begins one, and goes on with the one that was begun
 * last. Modes are set before. */
void cache_files_begin(struct cache_files *files, const char *path);
void cache_files_put(struct cache_files *files, const char *bytes, size_t size);
__attribute__((format(printf, 4, 5))) void cache_files_skip(struct cache_files *files,
                                                            const char *name, const char *key,
                                                            const char *reason, ...);
void cache_files_variable(struct cache_files *files, const char *name, const char *path,
                          const char *literal);

/* As one tar, which depends on nothing but the files: sorted by path, each folder before what is in
 * it, without owners and times. The bytes are the caller's. */
must_check char *cache_files_tar(const struct cache_files *files, size_t *ret_size);

/* Where a renderer gets what the release names by digest. What comes back was verified against the
 * digest, belongs to the source and lives as long. A member may be NULL: then there is none of the
 * kind, and what needs it is skipped. So is what needs a thing for which false comes back: the
 * source does not have it (removed, or never pushed), and the error names it. A source that failed
 * otherwise (no answer, other bytes) remembers that itself, and whoever rendered refuses the
 * whole. */
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
  const char *root; /* absolute path at which the files will stand; NULL: not known */
};

/* Imported tables. A kernel is a manifest of an "external" kernel (known by name, with no code:
 * language "external"), or the hash of one that is registered. */
struct imported_entry {
  json_t *key, *config; /* flat objects, owned */
  json_t *provenance;   /* flat, without "origin" and "format": "source" (the file) and what export
                           wants back */
  size_t n_ms;
  double ms[RELEASE_MS_MAX];
};
struct imported_kernel {
  json_t *manifest;   /* object, or NULL: */
  struct digest hash; /* of a registered kernel */
  size_t n_entries;
  struct imported_entry *entries;
};
struct imported {
  json_t *environment; /* what the files say of it: a partial environment, an object */
  size_t n_kernels;
  struct imported_kernel *kernels;
};
void imported_release(struct imported *imported);
#define cleanup_imported __attribute__((cleanup(imported_release)))

struct import_request {
  const struct cache_files *files;
  const struct kernel *kernel; /* to map a table to by its "exports", or NULL: an external kernel */
};

/* Helpers of readers: room for one more; the new one is zeroed and counted. */
struct imported_kernel *imported_add_kernel(struct imported *imported);
struct imported_entry *imported_add_entry(struct imported_kernel *kernel);

/* A path as the text of a provenance's "source": bytes that are not UTF-8 become '?'. A new
 * reference. */
must_check json_t *imported_source(const char *path);

/* Moves the JSON Pointer, when there is one, into the message, and puts the file's path before it.
 * Returns false. */
bool cache_file_refuse(const struct cache_file *file, struct error *error);

struct cache_format {
  const char *name;    /* "vllm-moe" */
  const char *summary; /* one line for --help */
  /* Winners that the format cannot say are skipped with the reason; false when it is not possible
   * at all, and when nothing remains: then no file was begun. */
  bool (*render)(const struct render_request *request, struct cache_files *ret,
                 struct error *error);
  /* All or nothing; an error names the file and the position. Never trusts a file: bounded,
   * checked, no path is followed. */
  bool (*read)(const struct import_request *request, struct imported *ret, struct error *error);
};

/* All formats, sorted by name; ends with NULL. */
extern const struct cache_format *const cache_formats[];

/* By name; an unknown one is an error that lists those there are. */
must_check bool cache_format_find(const char *name, const struct cache_format **ret,
                                  struct error *error);

#endif
