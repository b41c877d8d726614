/* An import as somebody posts it: the body of POST /v1/imports, read and checked as far as that goes without the database.
 *
 * {"format": "dejavu", "environment": {…}, "tag": "default",
 *  "kernels": [{"manifest": {… external …}, "entries": [{"key": {…}, "config": {…}, "ms": [0.2], "provenance": {…}}]},
 *              {"kernel": "sha256:…", "entries": […]}]}
 * The environment is what the tables state, completed by whoever imports them; it may lack members. "ms" and "provenance"
 * are optional. A kernel may stand there several times, a key of it once.
 *
 * Memory: a post owns its rows and kernels; texts without an owner are borrowed from the body. Threads: any. */
#ifndef WAVETUNE_SERVER_IMPORT_IMPORT_POST_H
#define WAVETUNE_SERVER_IMPORT_IMPORT_POST_H

#include "common/kernel/kernel.h"
#include "common/node/environment.h"

#define IMPORT_ENTRIES_MAX 200000
#define IMPORT_TAG_MAX 200
#define IMPORT_MEMBERS_MAX 256 /* of a config or a provenance */
#define IMPORT_TEXT_MAX 65536  /* bytes of a config or a provenance */
#define IMPORT_MS_MAX 3

struct import_row {
  struct digest kernel, key_digest;
  char *key, *config, *provenance; /* JSON texts; owned */
  size_t n_ms;                     /* 0, 1 or 3 */
  double ms[IMPORT_MS_MAX];
  size_t kernel_index, entry_index; /* where it stood */
};

struct import_kernel {
  struct digest hash;
  struct kernel *kernel; /* of a manifest, or what import_post_read is given; owned; NULL: named by hash */
  bool is_new;           /* it came as a manifest */
  const json_t *entries; /* borrowed */
  size_t n_entries;
};

struct import_post {
  const char *format, *tag;
  struct environment environment;
  size_t n_kernels;
  struct import_kernel *kernels;
  size_t n_rows;
  struct import_row *rows; /* by (kernel, key_digest): the order in which rows are locked */
};
void import_post_release(struct import_post *post);
#define cleanup_import_post __attribute__((cleanup(import_post_release)))

/* All but the entries. */
must_check bool import_post_parse(const json_t *json, struct import_post *ret, struct error *error);

/* The entries, when every kernel that was named by hash has its `kernel`. */
must_check bool import_post_read(struct import_post *post, struct error *error);

#endif
