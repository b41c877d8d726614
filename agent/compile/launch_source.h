/* The input of a compiler beside a kernel's own source: definitions, and C text that connects the
 * kernel to the worker.
 *
 * A kernel's text includes its first source, declares the prototype that follows from the
 * manifest's arguments (a source that disagrees does not compile) and defines
 *   void wavetune_launch(void **arguments);
 * arguments[i] points to the storage of argument i, as for a GPU launch: of a buffer to a pointer
 * variable, of a scalar to the value. A reference's text does the same and defines
 *   double wavetune_reference(int argument, int64_t index, void **arguments);
 * which computes element `index` of the output that is argument number `argument`.
 *
 * Memory: the texts are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_COMPILE_LAUNCH_SOURCE_H
#define WAVETUNE_AGENT_COMPILE_LAUNCH_SOURCE_H

#include "agent/compile/compile.h"

must_check char *launch_source(const struct kernel *kernel);
must_check char *reference_source(const struct kernel *kernel);

/* What follows -D for a value: 64, 1 for True, 0 for False, a string as it is when it is an
 * identifier and else as a C string. NULL for None: such a name is not defined. Owned by the
 * caller. */
must_check char *define_format(const char *name, struct value value);

/* Definitions or environment variables ("NAME=VALUE"), arguments or paths. The list owns them. */
struct settings {
  size_t n;
  char **texts;
};
void settings_add(struct settings *settings, char *text); /* takes the text */
void settings_print(struct settings *settings, const char *format, ...) printf_like(2, 3);
void settings_copy(struct settings *settings, const char *const *texts); /* NULL-terminated */
void settings_release(struct settings *settings);
#define cleanup_settings __attribute__((cleanup(settings_release)))

/* A kernel's text in hip: the prelude (prelude.hip: what such a source may use), the definitions,
 * the first source and the prototype. Definitions on the command line would also replace names of
 * parameters in the prelude and in a runtime compiler's own headers. */
must_check char *device_source(const struct kernel *kernel, const struct settings *defines);
extern const char compile_prelude[]; /* prelude.hip, which the build turns into C */

/* The definitions of a reference: the manifest's `defines` and the members of the config that
 * "segments" name, with the values of the request's config, which is the baseline. */
must_check bool settings_of_reference(const struct compile_request *request,
                                      struct settings *defines, struct error *error);

/* The definitions (parameters of role constexpr under their names, those of role option under their
 * names in capitals, so that waves_per_eu is WAVES_PER_EU; then the manifest's `defines`, evaluated
 * over key, config, gpu_name and arch) and the environment variables (parameters of role env) of
 * the request's config. Variables that would change which compiler runs, or what it reads, are
 * refused. */
must_check bool settings_of_config(const struct compile_request *request, struct settings *defines,
                                   struct settings *environment, struct error *error);

#endif
