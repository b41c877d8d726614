/* A kernel's source files on this machine: ROOT/<hash of the manifest>/<path>, each with the digest
 * that the manifest states, all of them or none.
 *
 * Memory: the path is the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_COMPILE_SOURCES_H
#define WAVETUNE_AGENT_COMPILE_SOURCES_H

#include "common/kernel/kernel.h"

struct source_reader {
  /* Gets a file's bytes, owned by the caller; they are checked against the digest. */
  bool (*read)(void *context, const struct source *source, char **ret_bytes, size_t *ret_size,
               struct error *error);
  void *context;
};

/* Returns the folder of the files. Unless all of them are undamaged, it is made again from the
 * bytes of the reader. */
must_check bool sources_prepare(const char *root, const struct kernel *kernel,
                                const struct source_reader *reader, char **ret_folder,
                                struct error *error);

#endif
