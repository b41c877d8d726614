/* Reading the files of AMD's kernel driver, of ROCm and of libdrm. */
#include "common/node/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>

#include "common/base/file.h"

#define FILE_SIZE_MAX ((size_t)1 << 20)
#define NODES_MAX 1024
#define CACHES_MAX 4096
#define GPUS_MAX 64 /* eight GPUs of eight partitions each */
/* heap_type of a memory bank: memory of the GPU, visible to the CPU or not */
#define HEAP_FB_PUBLIC 1
#define HEAP_FB_PRIVATE 2

/* A gfx942 has a cache behind the L2s even if its driver lists none: AMD's CDNA 3 white paper gives
 * the MI300X and MI300A an Infinity Cache of 256 MB. */
#define GFX942_LLC_BYTES ((int64_t)256 << 20)
/* A larger L2 is that of several dies: CDNA 3 has 4 MB in each. */
#define DIE_L2_BYTES_MAX ((int64_t)16 << 20)

/* The content of a file, owned by the caller; NULL when there is none. "" for a file that may be
 * opened but not read: in this way the driver hides the GPUs that a container may not use. */
static printf_like(1, 2) char *text_read(const char *format, ...) {
  char path[PATH_MAX], *text = NULL;
  size_t size;
  struct error ignored;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(path, sizeof path, format, arguments);
  va_end(arguments);

  if (file_read(path, FILE_SIZE_MAX, &text, &size, &ignored))
    return text;
  return access(path, R_OK) == 0 ? xstrdup("") : NULL;
}

static int64_t number_read(const char *folder, const char *name) {
  cleanup_free char *text = text_read("%s/%s", folder, name);
  return text ? strtoll(text, NULL, 10) : 0;
}

/* The value in the line "NAME VALUE"; 0 when there is none. */
static int64_t property(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, name, length) == 0 && line[length] == ' ')
      return strtoll(line + length, NULL, 10);
  }
  return 0;
}

static const char *variable_or(const char *name, const char *standard) {
  const char *given = getenv(name);
  return given && *given ? given : standard;
}

const char *kfd_topology_folder(void) {
  return variable_or("WAVETUNE_KFD_TOPOLOGY", KFD_TOPOLOGY_DEFAULT);
}

/* "gfx942" from gfx_target_version 90402. */
static void arch_format(const char *properties, char ret_arch[16]) {
  int64_t version = property(properties, "gfx_target_version");
  snprintf(ret_arch, 16, "gfx%u%x%x", (unsigned)(version / 10000 % 1000),
           (unsigned)(version / 100 % 100), (unsigned)(version % 100));
}

static int64_t compute_units(const char *properties) {
  int64_t simds_per_cu = property(properties, "simd_per_cu");
  return simds_per_cu > 0 ? property(properties, "simd_count") / simds_per_cu : 0;
}

static struct kfd_node node_read(const char *topology, int number, const char *properties) {
  cleanup_free char *folder = xasprintf("%s/%d", topology, number);
  struct kfd_node node = {
      .gpu_id = number_read(folder, "gpu_id"),
      .compute_units = compute_units(properties),
      .simds_per_cu = property(properties, "simd_per_cu"),
      .waves_per_simd = property(properties, "max_waves_per_simd"),
      .wavefront_size = property(properties, "wave_front_size"),
      .lds_bytes = property(properties, "lds_size_in_kb") * 1024,
      .xccs = property(properties, "num_xcc"),
      .clock_max_mhz = property(properties, "max_engine_clk_fcompute"),
  };
  if (node.xccs < 1)
    node.xccs = 1;
  arch_format(properties, node.arch);

  /* Drivers list the L2 of each die, or one L2 only: with the size of one die's or (Linux 6.5 to
   * 6.7) of all dies' together. */
  int64_t n_l2 = 0;
  for (int i = 0; i < CACHES_MAX; i++) {
    cleanup_free char *text = text_read("%s/caches/%d/properties", folder, i);
    if (!text)
      break;

    int64_t level = property(text, "level"), bytes = property(text, "size") * 1024;
    n_l2 += level == 2;
    node.l2_bytes += level == 2 ? bytes : 0;
    node.llc_bytes += level == 3 ? bytes : 0;
  }

  if (n_l2 == 1 && node.l2_bytes <= DIE_L2_BYTES_MAX)
    node.l2_bytes *= node.xccs;
  if (node.llc_bytes == 0 && string_equal(node.arch, "gfx942"))
    node.llc_bytes = GFX942_LLC_BYTES;

  for (int i = 0; i < NODES_MAX; i++) {
    cleanup_free char *text = text_read("%s/mem_banks/%d/properties", folder, i);
    if (!text)
      break;
    int64_t heap = property(text, "heap_type");
    if (heap == HEAP_FB_PUBLIC || heap == HEAP_FB_PRIVATE)
      node.memory_bytes += property(text, "size_in_bytes");
  }
  return node;
}

/* Caches are not read: an MI300X lists hundreds of them. */
size_t kfd_gpus_list(const char *topology, struct kfd_gpu *ret_gpus, size_t max) {
  size_t n = 0;
  for (int i = 0; i < NODES_MAX && n < max; i++) {
    cleanup_free char *text = text_read("%s/%d/properties", topology, i);
    if (!text)
      break;
    if (property(text, "simd_count") == 0)
      continue; /* a CPU, or a GPU that this process may not see: the driver shows it empty */

    struct kfd_gpu *gpu = &ret_gpus[n++];
    unsigned location = (unsigned)property(text, "location_id");
    snprintf(gpu->pci, sizeof gpu->pci, "%04x:%02x:%02x.%x",
             (unsigned)property(text, "domain") & 0xffff, location >> 8 & 0xff, location >> 3 & 31,
             location & 7);
    arch_format(text, gpu->arch);
    gpu->compute_units = compute_units(text);
  }
  return n;
}

static bool pci_parse(const char *pci, unsigned *domain, unsigned *location) {
  unsigned bus, device, function;
  if (sscanf(pci, "%x:%x:%x.%x", domain, &bus, &device, &function) != 4)
    return false;
  *location = bus << 8 | (device & 31) << 3 | (function & 7);
  return true;
}

/* Drivers number the partitions of a GPU as its functions, or in the upper four bits of a location
 * that is the same for all, or not at all. This finds the node of that number or, where there is
 * none, any node of the same GPU: they are alike. */
bool kfd_node_find(const char *topology, const char *pci, struct kfd_node *ret_node,
                   struct error *error) {
  unsigned domain, location;
  cleanup_free char *best = NULL;
  int best_number = 0;
  bool is_same = false;
  if (!pci_parse(pci, &domain, &location))
    return error_set(error, "\"%.40s\" is not a PCI address", pci);

  for (int i = 0; i < NODES_MAX && !is_same; i++) {
    cleanup_free char *text = text_read("%s/%d/properties", topology, i);
    if (!text)
      break;
    unsigned found = (unsigned)property(text, "location_id"),
             number = found >> 28 ? found >> 28 : found & 7;
    if (property(text, "simd_count") == 0 || (unsigned)property(text, "domain") != domain ||
        (found & 0xffff) >> 3 != location >> 3)
      continue;

    is_same = number == (location & 7);
    if (is_same || !best) {
      free(best);
      best = TAKE(text);
      best_number = i;
    }
  }

  if (!best)
    return error_set(error, "no node of %s is at %s", topology, pci);
  *ret_node = node_read(topology, best_number, best);
  return true;
}

/* The folder of the GPU itself, function 0: partitions have none. */
static char *pci_folder(const char *pci_devices, const char *pci) {
  unsigned domain, location;
  if (!pci_parse(pci, &domain, &location))
    return xstrdup("");
  return xasprintf("%s/%04x:%02x:%02x.0", pci_devices, domain, location >> 8, location >> 3 & 31);
}

int64_t kfd_pci_number(const char *pci_devices, const char *pci, const char *name) {
  cleanup_free char *folder = pci_folder(pci_devices, pci);
  cleanup_free char *text = text_read("%s/%s", folder, name);
  char *end = text;
  int64_t number = text ? strtoll(text, &end, 16) : 0;
  return end == text ? -1 : number;
}

/* "SPX" from "SPX\n"; anything but an upper-case word is cut off. */
static char *mode_read(const char *folder, const char *name) {
  char *text = text_read("%s/%s", folder, name);
  if (text)
    text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] = '\0';
  return text;
}

char *kfd_partition(const char *pci_devices, const char *pci) {
  cleanup_free char *folder = pci_folder(pci_devices, pci);
  cleanup_free char *compute = mode_read(folder, "current_compute_partition");
  cleanup_free char *memory = mode_read(folder, "current_memory_partition");
  if (!compute || !*compute)
    return xstrdup("");
  return memory && *memory ? xasprintf("%s/%s", compute, memory) : TAKE(compute);
}

DEFINE_CLEANUP(DIR *, cleanup_closedir, closedir)
#define cleanup_dir cleanup_by(cleanup_closedir)

/* hwmon/hwmonN of a PCI device: there is one. NULL when there is none. */
static char *hwmon_folder(const char *pci_devices, const char *pci) {
  cleanup_free char *folder = pci_folder(pci_devices, pci), *parent = xasprintf("%s/hwmon", folder);
  cleanup_dir DIR *entries = opendir(parent);
  struct dirent *entry;
  while (entries && (entry = readdir(entries)))
    if (string_starts(entry->d_name, "hwmon"))
      return xasprintf("%s/%s", parent, entry->d_name);
  return NULL;
}

/* Names and units are those of the kernel's amdgpu thermal documentation: Hz, microwatts,
 * thousandths of a degree. */
int kfd_clock_open(const char *pci_devices, const char *pci) {
  cleanup_free char *hwmon = hwmon_folder(pci_devices, pci),
                    *path = xasprintf("%s/freq1_input", hwmon ? hwmon : "");
  return hwmon ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

double kfd_clock_mhz(int fd) {
  char text[32];
  ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
  if (size <= 0)
    return 0;
  text[size] = '\0';
  return strtod(text, NULL) / 1e6;
}

json_t *kfd_conditions(const char *pci_devices, const char *pci) {
  /* The second file is read where the first has no number. temp1 is the edge, temp2 the hottest
   * spot; MI300X has only the latter. */
  static const struct {
    const char *name, *file, *other_file;
    double divisor;
  } sensors[] = {{"clock_mhz", "freq1_input", NULL, 1e6},
                 {"memory_clock_mhz", "freq2_input", NULL, 1e6},
                 {"power_w", "power1_average", "power1_input", 1e6},
                 {"temperature_c", "temp2_input", "temp1_input", 1e3}};
  cleanup_free char *hwmon = hwmon_folder(pci_devices, pci);
  json_t *conditions = json_object();

  for (size_t i = 0; hwmon && i < ARRAY_LENGTH(sensors); i++) {
    int64_t value = number_read(hwmon, sensors[i].file);
    if (value == 0 && sensors[i].other_file)
      value = number_read(hwmon, sensors[i].other_file);

    if (value > 0)
      json_put(conditions, sensors[i].name, json_real((double)value / sensors[i].divisor));
  }
  return conditions;
}

bool kfd_processes(const char *processes, int64_t gpu_id, bool (*is_own)(int64_t pid),
                   size_t *ret_n, size_t *ret_own) {
  cleanup_dir DIR *entries = opendir(processes);
  cleanup_free char *vram = xasprintf("vram_%lld", (long long)gpu_id);
  struct dirent *entry;
  size_t n = 0, own = 0;
  if (!entries)
    return false;

  while ((entry = readdir(entries))) {
    cleanup_free char *folder = xasprintf("%s/%s", processes, entry->d_name);
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || number_read(folder, vram) <= 0)
      continue;

    n++;
    own += is_own(atoll(entry->d_name));
  }

  *ret_n = n;
  *ret_own = own;
  return true;
}

const char *kfd_processes_folder(void) {
  return variable_or("WAVETUNE_KFD_PROCESSES", KFD_PROCESSES_DEFAULT);
}

/* Whether a process, by its folder, has a queue on the GPU: queues/ID/gpuid. */
static bool kfd_has_queue(const char *process, int64_t gpu_id) {
  cleanup_free char *folder = xasprintf("%s/queues", process);
  cleanup_dir DIR *entries = opendir(folder);
  struct dirent *entry;
  while (entries && (entry = readdir(entries))) {
    cleanup_free char *queue = xasprintf("%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.' && number_read(queue, "gpuid") == gpu_id)
      return true;
  }
  return false;
}

bool kfd_process_find(const char *processes, int64_t gpu_id, bool (*is_sought)(int64_t pid),
                      int64_t *ret_pid) {
  cleanup_dir DIR *entries = opendir(processes);
  cleanup_free char *vram = xasprintf("vram_%lld", (long long)gpu_id);
  struct dirent *entry;
  *ret_pid = 0;
  if (!entries)
    return false;

  while (*ret_pid == 0 && (entry = readdir(entries))) {
    int64_t pid = atoll(entry->d_name); /* 0 for other names */
    cleanup_free char *folder = xasprintf("%s/%s", processes, entry->d_name);
    if (pid > 0 && is_sought(pid) &&
        (number_read(folder, vram) > 0 || kfd_has_queue(folder, gpu_id)))
      *ret_pid = pid;
  }
  return true;
}

const char *rocm_folder(void) { return variable_or("ROCM_PATH", ROCM_FOLDER_DEFAULT); }

char *rocm_version_read(const char *folder) {
  cleanup_free char *text = text_read("%s/.info/version", folder);
  size_t length = text ? strspn(text, "0123456789.") : 0; /* "6.4.1-83" */
  return length ? xstrndup(text, length) : NULL;
}

struct node_folders node_folders_default(void) {
  /* The file of the installed driver first: it names newer GPUs than the distribution's. */
  static const char driver_ids[] = "/opt/amdgpu/share/libdrm/amdgpu.ids";
  const char *ids = access(driver_ids, R_OK) == 0 ? driver_ids : "/usr/share/libdrm/amdgpu.ids";
  return (struct node_folders){
      .topology = kfd_topology_folder(),
      .pci_devices = variable_or("WAVETUNE_PCI_DEVICES", PCI_DEVICES),
      .rocm = rocm_folder(),
      .ids = variable_or("WAVETUNE_AMDGPU_IDS", ids),
  };
}

/* The name in the line "74A1,\t00,\tAMD Instinct MI300X"; NULL when there is none. The caller's. */
static char *gpu_name_find(const char *ids, int64_t device, int64_t revision) {
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

/* Frees *text and sets it to NULL if the other GPU's text differs. */
static void text_agree(char **text, const char *other) {
  if (string_equal(*text, other))
    return;
  free(*text);
  *text = NULL;
}

struct environment node_environment_read(const struct node_folders *folders) {
  struct kfd_gpu gpus[GPUS_MAX];
  struct environment common = {0};
  size_t n = kfd_gpus_list(folders->topology, gpus, GPUS_MAX);
  cleanup_free char *ids = n > 0 ? text_read("%s", folders->ids) : NULL;

  for (size_t i = 0; i < n; i++) {
    const char *pci = gpus[i].pci;
    int64_t device = kfd_pci_number(folders->pci_devices, pci, "device");
    int64_t revision = kfd_pci_number(folders->pci_devices, pci, "revision");
    cleanup_environment struct environment one = {
        .gpu = device >= 0 && revision >= 0 ? gpu_name_find(ids, device, revision) : NULL,
        .arch = xstrdup(gpus[i].arch),
        .compute_units = gpus[i].compute_units,
        /* A GPU that cannot be partitioned states ""; one whose files are hidden states nothing. */
        .partition = device >= 0 ? kfd_partition(folders->pci_devices, pci) : NULL,
    };
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
