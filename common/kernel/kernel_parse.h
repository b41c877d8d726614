/* Names and paths in manifests and kernel folders. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_KERNEL_KERNEL_PARSE_H
#define WAVETUNE_COMMON_KERNEL_KERNEL_PARSE_H

#include "common/kernel/kernel.h"

#define IDENTIFIER_MAX 128
#define PATH_TEXT_MAX 255

/* [A-Za-z_][A-Za-z0-9_]*, at most IDENTIFIER_MAX bytes. */
bool identifier_is_valid(const char *text);

/* Whether the name has a meaning in expressions: a word of their language or a fact of the
 * device. */
bool name_is_reserved(const char *name);

/* A relative path of plain components: no "..", no "." and no empty one, no control characters. */
must_check bool source_path_check(const char *path, const char *pointer, struct error *error);

#endif
