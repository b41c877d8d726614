/* Reads a folder like those of kernels/, one algorithm in one or more versions, into a manifest, a
 * space and the bytes of the source files.
 *
 * DIR/kernel.json holds what all versions share and the versions:
 *   {"name": "softmax", "key": […], "arguments": […], "reference": {"source": "reference.c", …},
 *    "flops": …, "bytes": …,
 *    "versions": {"fused": {"language": "c", "entry": "softmax_fused", "sources": ["fused.c"],
 *                           "space": "fused.json", "defines": {…}, "launch": {…}}}}
 * The manifest of a version is flat (common/kernel/kernel.h): the shared members and the version's,
 * its name "softmax/fused", paths replaced by {path, digest}. "space" defaults to "space.json". A
 * folder with one version needs no version name. arguments, defines, launch, reference, flops,
 * bytes, exports and cases may be in a version too, and replace the shared one then; "arguments"
 * may also be an object of changes by name: {"x": {"dtype": "float16"}, "scale": null}. "sources"
 * are the compiled file, then every file that it includes. A file has at most 1 MiB and is inside
 * DIR, also after links are followed.
 *
 * A version of an entry (kernels/tables/README.md) has a function of an installed Python package:
 *   "from": {"module": "package.module"}       in place of "sources"
 *   "captured": {"key": {…}, "when": …}        which captured launches are of it, for builders
 *   "constexprs": {"TYPE": {"dtype": …}}       constexprs that no expression says
 * `pack` writes an ordinary folder of it. Here it is described only: the others' members are read.
 *
 * Memory: owns everything. Threads: one at a time. */
#ifndef WAVETUNE_COMMON_KERNEL_KERNEL_FOLDER_H
#define WAVETUNE_COMMON_KERNEL_KERNEL_FOLDER_H

#include "common/kernel/kernel.h"

struct kernel_file {
  char *path;
  struct digest digest;
  size_t size;
  char *bytes;
};

struct kernel_folder {
  struct kernel *kernel;
  struct space *space;
  size_t n_files; /* the sources and the reference's source, each once */
  struct kernel_file *files;
  char *module; /* of an entry's function; its kernel has no source and no hash. Else NULL */
};

/* `place` is "DIR" or "DIR:VERSION". Where the version does not exist, or none is named and there
 * are several, the error lists the versions. */
must_check bool kernel_folder_load(const char *place, struct kernel_folder **ret_folder,
                                   struct error *error);
/* The same, also of an entry, which kernel_folder_load() refuses with what to do. */
must_check bool kernel_folder_describe(const char *place, struct kernel_folder **ret_folder,
                                       struct error *error);
/* Takes the space of a file in place of the folder's; `path` may be NULL. */
must_check bool kernel_folder_take_space(struct kernel_folder *folder, const char *path,
                                         struct error *error);
void kernel_folder_free(struct kernel_folder *folder);
DEFINE_CLEANUP(struct kernel_folder *, cleanup_kernel_folder_free, kernel_folder_free)
#define cleanup_kernel_folder cleanup_by(cleanup_kernel_folder_free)

#endif
