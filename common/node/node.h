/* Reads what files state about a node and its GPUs: the files of AMD's kernel driver, of ROCm and
 * of libdrm. The caller states all paths, so that tests can use a folder of files as a machine.
 *
 * Memory: returned texts are the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_NODE_NODE_H
#define WAVETUNE_COMMON_NODE_NODE_H

#include "common/base/json.h"
#include "common/node/environment.h"

#define ROCM_FOLDER_DEFAULT "/opt/rocm" /* $ROCM_PATH */

const char *rocm_folder(void);

/* "6.4.1" of the ROCm installed there, owned by the caller; NULL: none is installed. */
must_check char *rocm_version_read(const char *folder);

/* Where the files are. Borrowed. */
struct node_folders {
  const char *topology;    /* of the KFD; $WAVETUNE_KFD_TOPOLOGY */
  const char *pci_devices; /* $WAVETUNE_PCI_DEVICES */
  const char *rocm;        /* $ROCM_PATH */
  const char *ids;         /* libdrm's amdgpu.ids, from which HIP takes its names too;
                              $WAVETUNE_AMDGPU_IDS */
};
struct node_folders node_folders_default(void);

/* The part of an environment that files state, for starting containers, which have no GPU runtime:
 * rocm, gpu, arch, compute_units and partition. Members that no file states, or in which the GPUs
 * differ, are left out: none is guessed. All are left out if there is no AMD GPU. */
must_check struct environment node_environment_read(const struct node_folders *folders);

/* From here: the files in which AMD's kernel driver describes a GPU (the KFD's topology, the PCI
 * device's folder, the processes). A value that no file states is 0, "" or absent, which is no
 * error. */

#define KFD_TOPOLOGY_DEFAULT "/sys/class/kfd/kfd/topology/nodes" /* $WAVETUNE_KFD_TOPOLOGY */
#define KFD_PROCESSES_DEFAULT "/sys/class/kfd/kfd/proc"          /* $WAVETUNE_KFD_PROCESSES */
#define PCI_DEVICES "/sys/bus/pci/devices"

/* One GPU node of the topology. */
struct kfd_node {
  int64_t gpu_id;
  char arch[16]; /* "gfx942" */
  int64_t compute_units, simds_per_cu, waves_per_simd, wavefront_size, lds_bytes;
  int64_t xccs;         /* dies with compute units; 1 where the driver is too old to state it */
  int64_t l2_bytes;     /* of all dies */
  int64_t llc_bytes;    /* the last level behind the L2 */
  int64_t memory_bytes; /* of its memory banks */
  int64_t clock_max_mhz;
};

/* The topology's folder: $WAVETUNE_KFD_TOPOLOGY where it is set. */
const char *kfd_topology_folder(void);

/* Finds the node of the GPU at a PCI address ("0000:05:00.0"; partitions are its functions). */
must_check bool kfd_node_find(const char *topology, const char *pci, struct kfd_node *ret_node,
                              struct error *error);

/* What distinguishes the GPUs of a topology. */
struct kfd_gpu {
  char pci[16]; /* "0000:05:00.0" */
  char arch[16];
  int64_t compute_units;
};

/* The GPUs of a topology that this process may see, in its order, at most `max`. Returns how
 * many. */
size_t kfd_gpus_list(const char *topology, struct kfd_gpu *ret_gpus, size_t max);

/* The hexadecimal number in a file of the GPU's PCI folder ("device", "revision"); -1: there is
 * none. */
int64_t kfd_pci_number(const char *pci_devices, const char *pci, const char *name);

/* "SPX/NPS1" from the GPU's PCI folder; "" where the GPU cannot be partitioned or states none.
 * Owned by the caller. */
must_check char *kfd_partition(const char *pci_devices, const char *pci);

/* Opens the file of a GPU's core clock, which can be read any number of times; -1: there is none.
 */
int kfd_clock_open(const char *pci_devices, const char *pci);
double kfd_clock_mhz(int fd); /* 0 when it is not known */

/* What the sensors read now, with the names of measurements' conditions: clock_mhz,
 * memory_clock_mhz, power_w, temperature_c (new reference). */
must_check json_t *kfd_conditions(const char *pci_devices, const char *pci);

/* Counts the processes that have memory on the GPU, and in *ret_own those of them for which
 * `is_own` is true. False: the driver does not list them. */
must_check bool kfd_processes(const char *processes, int64_t gpu_id, bool (*is_own)(int64_t pid),
                              size_t *ret_n, size_t *ret_own);

/* The folder of processes: $WAVETUNE_KFD_PROCESSES where it is set. */
const char *kfd_processes_folder(void);

/* Finds a process that has memory or a queue on the GPU and for which `is_sought` is true; *ret_pid
 * is 0 if there is none. False: the driver does not list processes. */
must_check bool kfd_process_find(const char *processes, int64_t gpu_id,
                                 bool (*is_sought)(int64_t pid), int64_t *ret_pid);

#endif
