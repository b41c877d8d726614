/* Which torch and triton a Python interpreter has, read from their files without importing them: an
 * import takes seconds and touches the GPU.
 *
 * Memory: versions own their texts. Threads: any. */
#ifndef WAVETUNE_AGENT_NODE_PYTHON_VERSIONS_H
#define WAVETUNE_AGENT_NODE_PYTHON_VERSIONS_H

#include "common/base/error.h"

struct python_versions {
  char *torch, *triton; /* torch.__version__ and triton.__version__; NULL: not installed */
  char *torch_hip;      /* torch.version.hip; NULL: none */
};

/* `interpreter` is a path or a name in $PATH. */
must_check bool python_versions_read(const char *interpreter, struct python_versions *ret_versions,
                                     struct error *error);
void python_versions_release(struct python_versions *versions);
#define cleanup_python_versions __attribute__((cleanup(python_versions_release)))

#endif
