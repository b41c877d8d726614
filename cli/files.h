/* A rendered cache written to a folder, or to a tar file.
 *
 * Memory: the caller's. Threads: one (the process's umask is changed for a moment). */
#ifndef WAVETUNE_CLI_FILES_H
#define WAVETUNE_CLI_FILES_H

#include "common/cache/format.h"

/* Makes `folder` (an absolute path whose parent exists) and writes the files below it. Modes that
 * the format states hold whatever the umask is. Nothing is synced. */
must_check bool files_write(const struct cache_files *files, const char *folder,
                            struct error *error);

/* A tar file that depends on nothing but the files: sorted, without owners or times. */
must_check bool files_write_tar(const struct cache_files *files, const char *path,
                                struct error *error);

/* The names of --format, or of the default "json" alone; each once. *ret_formats is the
 * caller's. */
struct options;
must_check bool formats_of_option(const struct options *options,
                                  const struct cache_format ***ret_formats, size_t *ret_n,
                                  struct error *error);

/* --identity FILE, else /etc/wavetune/identity.json where there is one, else NULL. */
must_check bool identity_of_option(const struct options *options, struct identity **ret_identity,
                                   struct error *error);

/* clang-format off */
#define OPTION_IDENTITY \
  {.name = "identity", .type = OPTION_TEXT, .argument = "FILE", \
   .help = "what the image's tools are, from `python3 -m wavetune identity`; default: " \
            "/etc/wavetune/identity.json"}
/* clang-format on */

#endif
