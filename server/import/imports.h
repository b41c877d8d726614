/* Imported tables, and the identities of images, in the database.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_IMPORT_IMPORTS_H
#define WAVETUNE_SERVER_IMPORT_IMPORTS_H

#include "server/audit/audit.h"
#include "server/import/import_post.h"

struct import_counts {
  int64_t added, changed, known;
};

/* Registers the post's new kernels and stores its rows, in one transaction. A row replaces the one
 * of the same kernel, key, environment and tag, unless it is equal. */
must_check bool imports_store(struct db *db, const struct import_post *post,
                              const struct author *author, struct import_counts *ret_counts,
                              struct error *error);

struct imports_filter {
  const struct digest *kernel; /* NULL: any */
  const char *format, *tag;
  int64_t after, limit;
};
/* Items of GET /v1/imports, oldest first; *ret_next is 0 at the end. */
must_check bool imports_list(struct db *db, const struct imports_filter *filter, json_t **ret_items,
                             int64_t *ret_next, struct error *error);

/* `text` is the canonical JSON whose digest this is. */
must_check bool image_store(struct db *db, const struct digest *digest, const char *text,
                            const struct author *author, bool *ret_is_new, struct error *error);
/* NULL when there is no such image. */
must_check bool image_load(struct db *db, const struct digest *digest, char **ret_text,
                           struct error *error);

#endif
