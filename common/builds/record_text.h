/* Texts of function records and identities: bounded, and safe where they become parts of paths.
 *
 * Memory: the caller owns the copies. Threads: any. */
#ifndef WAVETUNE_COMMON_BUILDS_RECORD_TEXT_H
#define WAVETUNE_COMMON_BUILDS_RECORD_TEXT_H

#include "common/base/json.h"

#define RECORD_TEXT_MAX 65536
#define RECORD_TEXT_PART_MAX 200

enum record_text_kind {
  RECORD_TEXT_ANY,
  RECORD_TEXT_PART, /* becomes a part of a path: at most RECORD_TEXT_PART_MAX bytes, no '/', not "."
                       and not ".." */
};

/* A copy of a member of 1 to RECORD_TEXT_MAX bytes; *ret is left as it was when the member is
 * absent (or null) and may be. */
must_check bool record_take_text(const json_t *object, const char *pointer, const char *name,
                                 enum json_presence presence, enum record_text_kind kind,
                                 char **ret, struct error *error);

#endif
