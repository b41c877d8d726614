/* What a node tells of its GPUs without a runtime or a GPU: the part of an environment that a
 * container's start can read in files. Members that a node does not tell, or whose GPUs differ in
 * them, are left out: nothing is guessed.
 *
 * Memory: as the comments say. Threads: any. */
#ifndef WAVETUNE_COMMON_NODE_NODE_H
#define WAVETUNE_COMMON_NODE_NODE_H

#include "common/node/environment.h"

#define ROCM_FOLDER_DEFAULT "/opt/rocm" /* $ROCM_PATH */

const char *rocm_folder(void);

/* "6.4.1" of the ROCm installed there, the caller's; NULL: none is. */
must_check char *rocm_version_read(const char *folder);

/* Where a node's files lie, so that folders can stand for a machine; borrowed. */
struct node_folders {
  const char *topology;    /* of the KFD; $WAVETUNE_KFD_TOPOLOGY */
  const char *pci_devices; /* $WAVETUNE_PCI_DEVICES */
  const char *rocm;        /* $ROCM_PATH */
  const char *ids;         /* libdrm's amdgpu.ids, from which HIP takes its names too;
                              $WAVETUNE_AMDGPU_IDS */
};
struct node_folders node_folders_default(void);

/* rocm, gpu, arch, compute_units and partition, as far as the node tells. Nothing at all where
 * there is no AMD GPU. */
must_check struct environment node_environment_read(const struct node_folders *folders);

#endif
