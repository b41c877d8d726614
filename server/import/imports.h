/* The identities of images in the database (imports.c).
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_IMPORT_IMPORTS_H
#define WAVETUNE_SERVER_IMPORT_IMPORTS_H

#include "common/base/digest.h"
#include "server/db/db.h"

/* NULL when there is no such image. */
must_check bool image_load(struct db *db, const struct digest *digest, char **ret_text,
                           struct error *error);

#endif
