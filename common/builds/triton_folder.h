/* The names of folders in Triton's cache: a SHA-256 in base32 (RFC 4648, upper case, no padding).
 *
 * Memory: none. Threads: any. */
#ifndef WAVETUNE_COMMON_BUILDS_TRITON_FOLDER_H
#define WAVETUNE_COMMON_BUILDS_TRITON_FOLDER_H

#include "common/base/digest.h"

#define TRITON_FOLDER_LENGTH 52

/* Writes the name and a NUL to text; returns text. */
char *triton_folder_format(const struct digest *digest, char text[TRITON_FOLDER_LENGTH + 1]);

bool triton_folder_is_valid(const char *text, size_t length);

#endif
