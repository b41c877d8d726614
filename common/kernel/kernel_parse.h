/* What the files that read manifests, builds and folders share. Private to common/kernel/ and common/builds/build.c.
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

/* Facts that every expression of a kernel may read, and those that launch expressions may read too. */
#define KERNEL_FACTS 2
#define KERNEL_LAUNCH_FACTS 5
extern const char *const kernel_fact_names[KERNEL_LAUNCH_FACTS];

/* A relative path of plain components: no "..", no "." and no empty one, no control characters. */
must_check bool source_path_check(const char *path, const char *pointer, struct error *error);

/* The text of an expression that stands in JSON as a string or an integer; it is parsed to see that it can be. */
must_check bool expression_take(const json_t *value, const char *pointer, char **ret_text, struct error *error);

/* The same for a member that may be absent: *ret_text is left as it was. */
must_check bool expression_take_member(const json_t *object, const char *pointer, const char *name, char **ret_text,
                                       struct error *error);

/* Reads the manifest's "arguments" into kernel->arguments, and what "outputs" of the reference says about them. */
must_check bool kernel_parse_arguments(struct kernel *kernel, const json_t *manifest, struct error *error);
must_check bool kernel_parse_outputs(struct kernel *kernel, const json_t *outputs, struct error *error);
void argument_release(struct argument *argument);

#endif
