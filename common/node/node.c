/* Reading what a node tells of its GPUs. Memory: see node.h. Threads: any. */
#include "common/node/node.h"

#include "common/base/file.h"
#include "common/node/kfd.h"

#define VERSION_FILE_MAX 4096
#define IDS_FILE_MAX ((size_t)1 << 20)
#define GPUS_MAX 64 /* eight of eight partitions */

static const char *variable_or(const char *name, const char *standard) {
  const char *given = getenv(name);
  return given && *given ? given : standard;
}

const char *rocm_folder(void) { return variable_or("ROCM_PATH", ROCM_FOLDER_DEFAULT); }

char *rocm_version_read(const char *folder) {
  cleanup_free char *path = xasprintf("%s/.info/version", folder), *text = NULL;
  size_t size, length = 0;
  struct error ignored;
  if (file_read(path, VERSION_FILE_MAX, &text, &size, &ignored))
    length = strspn(text, "0123456789."); /* "6.4.1-83" */
  return length ? xstrndup(text, length) : NULL;
}

/* The installed driver's file first: it knows newer GPUs than the distribution's. */
static const char *ids_default(void) {
  static const char driver[] = "/opt/amdgpu/share/libdrm/amdgpu.ids";
  return access(driver, R_OK) == 0 ? driver : "/usr/share/libdrm/amdgpu.ids";
}

struct node_folders node_folders_default(void) {
  return (struct node_folders){
      .topology = kfd_topology_folder(),
      .pci_devices = variable_or("WAVETUNE_PCI_DEVICES", PCI_DEVICES),
      .rocm = rocm_folder(),
      .ids = variable_or("WAVETUNE_AMDGPU_IDS", ids_default()),
  };
}

/* The name in the line "74A1,\t00,\tAMD Instinct MI300X"; NULL when there is none. The caller's. */
static char *name_find(const char *ids, int64_t device, int64_t revision) {
  for (const char *line = ids; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    unsigned line_device, line_revision;
    int begin = 0;
    if (sscanf(line, "%x, %x, %n", &line_device, &line_revision, &begin) == 2 && begin > 0 &&
        line_device == device && line_revision == revision) {
      size_t length = strcspn(line + begin, "\r\n");
      return length ? xstrndup(line + begin, length) : NULL;
    }
  }
  return NULL;
}

static char *gpu_name(const struct node_folders *folders, const char *ids,
                      const struct kfd_gpu *gpu) {
  int64_t device = kfd_pci_number(folders->pci_devices, gpu->pci, "device");
  int64_t revision = kfd_pci_number(folders->pci_devices, gpu->pci, "revision");
  return ids && device >= 0 && revision >= 0 ? name_find(ids, device, revision) : NULL;
}

static bool pci_is_there(const struct node_folders *folders, const struct kfd_gpu *gpu) {
  return kfd_pci_number(folders->pci_devices, gpu->pci, "device") >= 0;
}

static struct environment gpu_environment(const struct node_folders *folders, const char *ids,
                                          const struct kfd_gpu *gpu) {
  return (struct environment){
      .gpu = gpu_name(folders, ids, gpu),
      .arch = xstrdup(gpu->arch),
      .compute_units = gpu->compute_units,
      /* A GPU that cannot be partitioned states ""; one whose files are hidden states nothing. */
      .partition =
          pci_is_there(folders, gpu) ? kfd_partition(folders->pci_devices, gpu->pci) : NULL,
  };
}

static void text_agree(char **text, const char *other) {
  if (string_equal(*text, other))
    return;
  free(*text);
  *text = NULL;
}

struct environment node_environment_read(const struct node_folders *folders) {
  struct kfd_gpu gpus[GPUS_MAX];
  size_t n = kfd_gpus_list(folders->topology, gpus, GPUS_MAX), size;
  struct environment common = {0};
  struct error ignored;
  cleanup_free char *ids = NULL;
  if (n > 0 && !file_read(folders->ids, IDS_FILE_MAX, &ids, &size, &ignored))
    ids = NULL;
  for (size_t i = 0; i < n; i++) {
    cleanup_environment struct environment one = gpu_environment(folders, ids, &gpus[i]);
    if (i == 0) {
      common = environment_copy(&one);
      continue;
    }
    text_agree(&common.gpu, one.gpu);
    text_agree(&common.arch, one.arch);
    text_agree(&common.partition, one.partition);
    if (common.compute_units != one.compute_units)
      common.compute_units = 0;
  }
  if (n > 0)
    common.rocm = rocm_version_read(folders->rocm);
  return common;
}
