/* The part of an environment that files state, for the start of containers, which have no GPU
 * runtime. Members that no file states, or in which the GPUs differ, are left out: nothing is
 * guessed. Threads: any. */
#ifndef WAVETUNE_COMMON_NODE_NODE_H
#define WAVETUNE_COMMON_NODE_NODE_H

#include "common/node/environment.h"

#define ROCM_FOLDER_DEFAULT "/opt/rocm" /* $ROCM_PATH */

const char *rocm_folder(void);

/* "6.4.1" of the ROCm installed there, owned by the caller; NULL: none is installed. */
must_check char *rocm_version_read(const char *folder);

/* Where the files are; tests use folders as a machine. Borrowed. */
struct node_folders {
  const char *topology;    /* of the KFD; $WAVETUNE_KFD_TOPOLOGY */
  const char *pci_devices; /* $WAVETUNE_PCI_DEVICES */
  const char *rocm;        /* $ROCM_PATH */
  const char *ids;         /* libdrm's amdgpu.ids, from which HIP takes its names too;
                              $WAVETUNE_AMDGPU_IDS */
};
struct node_folders node_folders_default(void);

/* rocm, gpu, arch, compute_units and partition, as far as they are known. Nothing at all where
 * there is no AMD GPU. */
must_check struct environment node_environment_read(const struct node_folders *folders);

#endif
