/* Imports, and the identities of images.
 *
 * An import is the body of POST /v1/imports, which is checked as far as possible without the
 * database:
 * {"format": "dejavu", "environment": {…}, "tag": "default",
 *  "kernels": [{"manifest": {… external …},
 *               "entries": [{"key": {…}, "config": {…}, "ms": [0.2], "provenance": {…}}]},
 *              {"kernel": "sha256:…", "entries": […]}]}
 * The environment is that of the tables, which the client has completed; it may lack members.
 * "ms" and "provenance" are optional. A kernel may occur several times, but each of its keys only
 * once.
 *
 * Memory: a post owns its members; results are the caller's. Threads: pure functions, except
 * image_load, which belongs to the thread of the db. */
#ifndef WAVETUNE_SERVER_IMPORT_IMPORTS_H
#define WAVETUNE_SERVER_IMPORT_IMPORTS_H

#include "common/kernel/kernel.h"
#include "common/node/environment.h"
#include "common/record/record.h"
#include "server/db/db.h"

#define IMPORT_ENTRIES_MAX 200000
#define IMPORT_TAG_MAX 200
#define IMPORT_MEMBERS_MAX 256 /* of a config or a provenance */
#define IMPORT_TEXT_MAX 65536  /* bytes of a config or a provenance */
#define IMPORT_MS_MAX 3

struct import_entry {
  json_t *key, *config, *provenance; /* provenance may be NULL */
  struct numbers ms; /* none, the median, or the median and two quantiles; milliseconds */
};

struct import_kernel {
  json_t *manifest; /* NULL: the kernel is named by its hash */
  struct digest hash;
  struct records entries; /* of struct import_entry */
  struct kernel *kernel;  /* of the manifest, or set by the caller before import_post_read */
};

/* A row of the table of imports. */
struct import_row {
  struct digest kernel, key_digest;
  char *key, *config, *provenance;  /* JSON texts */
  char *ms;                         /* the literal of an array */
  size_t kernel_index, entry_index; /* of its entry in the post */
};
extern const struct record import_row_record;

struct import_post {
  char *format, *tag;
  json_t *environment_json;
  struct records kernels; /* of struct import_kernel */
  struct environment environment;
  size_t n_rows;
  struct import_row *rows; /* by (kernel, key_digest), the order in which rows are locked */
};
extern const struct record import_post_record;
void import_post_release(struct import_post *post);
#define cleanup_import_post __attribute__((cleanup(import_post_release)))

static inline struct import_kernel *import_kernel_at(const struct import_post *post, size_t i) {
  return (struct import_kernel *)post->kernels.all + i;
}

/* Reads the post and checks all but the contents of its entries. */
must_check bool import_post_parse(const json_t *json, struct import_post *ret, struct error *error);

/* Checks the entries and makes rows of them. Every kernel must have its `kernel`. */
must_check bool import_post_read(struct import_post *post, struct error *error);

/* The identity of an image as JSON; *ret_text is NULL when there is no such image. */
must_check bool image_load(struct db *db, const struct digest *digest, char **ret_text,
                           struct error *error);

#endif
