/* What the files that read manifests, builds and folders share. Private to common/kernel/ and
 * common/builds/build.c.
 *
 * Memory: texts returned are the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_KERNEL_KERNEL_PARSE_H
#define WAVETUNE_COMMON_KERNEL_KERNEL_PARSE_H

#include "common/kernel/kernel.h"

#define IDENTIFIER_MAX 128
#define PATH_TEXT_MAX 255

/* [A-Za-z_][A-Za-z0-9_]*, at most IDENTIFIER_MAX bytes. */
bool identifier_is_valid(const char *text);

/* Whether expressions give the name a meaning already: words of their language and facts of the
 * device. */
bool name_is_reserved(const char *name);

/* Facts that every expression of a kernel may read, and those that launch expressions may read
 * too. */
#define KERNEL_FACTS 2
#define KERNEL_LAUNCH_FACTS 5
extern const char *const kernel_fact_names[KERNEL_LAUNCH_FACTS];

/* A relative path of plain components: no "..", no "." and no empty one, no control characters. */
must_check bool source_path_check(const char *path, const char *pointer, struct error *error);

/* Checks of texts, for the tables of fields. */
must_check bool identifier_check(const char *text, struct error *error);
must_check bool expression_check(const char *text, struct error *error);

extern const struct record argument_record;

/* What the parts of arguments say of each other, and what "outputs" of the reference says about
 * them. */
must_check bool kernel_settle_arguments(struct kernel *kernel, struct error *error);
must_check bool kernel_settle_outputs(struct kernel *kernel, struct error *error);

/* The index of the first of `n` structs of `stride` bytes, which begin with a text, that repeats an
 * earlier one's; n where none does. */
size_t text_repeated(const void *texts, size_t n, size_t stride);

/* Refuses the manifest for a member that its language demands, at `pointer`. */
bool member_is_missing(const char *pointer, struct error *error);

#endif
