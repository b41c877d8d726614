/* Reading the files of AMD's kernel driver. Memory: see kfd.h. Threads: any. */
#include "common/node/kfd.h"

#include <dirent.h>
#include <fcntl.h>

#include "common/base/file.h"

#define FILE_MAX ((size_t)64 << 10)
#define NODES_MAX 1024
#define CACHES_MAX 4096
#define PCI_MAX 32
/* heap_type of a memory bank: memory of the GPU, seen by the CPU or not */
#define HEAP_FB_PUBLIC 1
#define HEAP_FB_PRIVATE 2

/* gfx942 whose driver lists no cache behind the L2s has one all the same: AMD's CDNA 3 white paper
 * gives the MI300X and MI300A an Infinity Cache of 256 MB. */
#define GFX942_LLC_BYTES ((int64_t)256 << 20)
/* more is not one die's: CDNA 3 has 4 MB of it in each */
#define DIE_L2_BYTES_MAX ((int64_t)16 << 20)

/* A whole file under a folder, NUL-terminated; NULL when there is none. Files of sysfs claim a size
 * of a page. */
static char *text_read(const char *folder, const char *name) {
  cleanup_free char *path = xasprintf("%s/%s", folder, name);
  cleanup_file FILE *file = fopen(path, "re");
  if (!file)
    return NULL;
  char *text = xmalloc(FILE_MAX + 1);
  size_t size = fread(text, 1, FILE_MAX, file);
  text[size] = '\0';
  return text;
}

static int64_t number_read(const char *folder, const char *name) {
  cleanup_free char *text = text_read(folder, name);
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

const char *kfd_topology_folder(void) {
  const char *given = getenv("WAVETUNE_KFD_TOPOLOGY");
  return given && *given ? given : KFD_TOPOLOGY_DEFAULT;
}

void kfd_arch_format(int64_t version, char *ret_arch, size_t size) {
  unsigned major = (unsigned)(version / 10000 % 1000), minor = (unsigned)(version / 100 % 100);
  snprintf(ret_arch, size, "gfx%u%x%x", major, minor, (unsigned)(version % 100));
}

/* The L2 is listed once for each die of a node, or once: with the size of one, or (Linux 6.5
 * to 6.7) of all of them. */
static void caches_read(const char *folder, struct kfd_node *node) {
  int64_t l2_count = 0;
  for (int i = 0; i < CACHES_MAX; i++) {
    cleanup_free char *name = xasprintf("caches/%d/properties", i), *text = text_read(folder, name);
    if (!text)
      break;
    int64_t level = property(text, "level"), bytes = property(text, "size") * 1024;
    if (level == 2) {
      node->l2_bytes += bytes;
      l2_count++;
    }
    if (level == 3)
      node->llc_bytes += bytes;
  }
  if (l2_count == 1 && node->l2_bytes <= DIE_L2_BYTES_MAX)
    node->l2_bytes *= node->xccs;
  if (node->llc_bytes == 0 && string_equal(node->arch, "gfx942"))
    node->llc_bytes = GFX942_LLC_BYTES;
}

static void memory_read(const char *folder, struct kfd_node *node) {
  for (int i = 0; i < NODES_MAX; i++) {
    cleanup_free char *name = xasprintf("mem_banks/%d/properties", i),
                      *text = text_read(folder, name);
    if (!text)
      return;
    int64_t heap = property(text, "heap_type");
    if (heap == HEAP_FB_PUBLIC || heap == HEAP_FB_PRIVATE)
      node->memory_bytes += property(text, "size_in_bytes");
  }
}

static int64_t compute_units(const char *properties) {
  int64_t simds_per_cu = property(properties, "simd_per_cu");
  return simds_per_cu > 0 ? property(properties, "simd_count") / simds_per_cu : 0;
}

static void node_read(const char *folder, const char *properties, struct kfd_node *ret) {
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
  kfd_arch_format(property(properties, "gfx_target_version"), node.arch, sizeof node.arch);
  caches_read(folder, &node);
  memory_read(folder, &node);
  *ret = node;
}

/* Caches are not read: an MI300X lists hundreds of them. */
size_t kfd_gpus_list(const char *topology, struct kfd_gpu *ret_gpus, size_t max) {
  size_t n = 0;
  for (int i = 0; i < NODES_MAX && n < max; i++) {
    cleanup_free char *folder = xasprintf("%s/%d", topology, i),
                      *text = text_read(folder, "properties");
    if (!text)
      break;
    if (property(text, "simd_count") == 0)
      continue; /* a CPU, or a GPU that this process may not see: the driver shows it empty */
    struct kfd_gpu *gpu = &ret_gpus[n++];
    unsigned location = (unsigned)property(text, "location_id");
    snprintf(gpu->pci, sizeof gpu->pci, "%04x:%02x:%02x.%x",
             (unsigned)property(text, "domain") & 0xffff, location >> 8 & 0xff, location >> 3 & 31,
             location & 7);
    kfd_arch_format(property(text, "gfx_target_version"), gpu->arch, sizeof gpu->arch);
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
 * that is the same for all, or not at all. So the node of that number is looked for, and without
 * success any of the same GPU: they are alike. */
bool kfd_node_find(const char *topology, const char *pci, struct kfd_node *ret_node,
                   struct error *error) {
  unsigned domain, location;
  cleanup_free char *best_folder = NULL, *best = NULL;
  if (!pci_parse(pci, &domain, &location))
    return error_set(error, "\"%.40s\" is no PCI address", pci);
  for (int i = 0; i < NODES_MAX; i++) {
    cleanup_free char *folder = xasprintf("%s/%d", topology, i),
                      *text = text_read(folder, "properties");
    if (!text)
      break;
    unsigned found = (unsigned)property(text, "location_id"),
             number = found >> 28 ? found >> 28 : found & 7;
    bool is_same = number == (location & 7);
    if (property(text, "simd_count") == 0 || (unsigned)property(text, "domain") != domain ||
        (found & 0xffff) >> 3 != location >> 3)
      continue;
    if (best && !is_same)
      continue;
    free(best);
    free(best_folder);
    best = TAKE(text);
    best_folder = TAKE(folder);
    if (is_same)
      break;
  }
  if (!best)
    return error_set(error, "no node of %s lies at %s", topology, pci);
  node_read(best_folder, best, ret_node);
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
  cleanup_free char *folder = pci_folder(pci_devices, pci), *text = text_read(folder, name);
  char *end = text;
  int64_t number = text ? strtoll(text, &end, 16) : 0;
  return end == text ? -1 : number;
}

/* "SPX" from "SPX\n"; what is not a short upper-case word is not it. */
static char *mode_read(const char *folder, const char *name) {
  char *text = text_read(folder, name);
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

/* hwmon/hwmonN of a PCI device: there is one. NULL when there is none. */
static char *hwmon_folder(const char *pci_devices, const char *pci) {
  cleanup_free char *folder = pci_folder(pci_devices, pci), *parent = xasprintf("%s/hwmon", folder);
  char *found = NULL;
  DIR *entries = opendir(parent);
  struct dirent *entry;
  while (entries && !found && (entry = readdir(entries)))
    if (string_starts(entry->d_name, "hwmon"))
      found = xasprintf("%s/%s", parent, entry->d_name);
  if (entries)
    closedir(entries);
  return found;
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

/* temp1 is the edge, temp2 the hottest spot; MI300X has only the latter. */
json_t *kfd_conditions(const char *pci_devices, const char *pci) {
  cleanup_free char *hwmon = hwmon_folder(pci_devices, pci);
  json_t *conditions = json_object();
  if (!hwmon)
    return conditions;
  int64_t power = number_read(hwmon, "power1_average"), hottest = number_read(hwmon, "temp2_input");
  if (power == 0)
    power = number_read(hwmon, "power1_input");
  if (hottest == 0)
    hottest = number_read(hwmon, "temp1_input");
  const struct {
    const char *name;
    double value;
  } members[] = {
      {"clock_mhz", (double)number_read(hwmon, "freq1_input") / 1e6},
      {"memory_clock_mhz", (double)number_read(hwmon, "freq2_input") / 1e6},
      {"power_w", (double)power / 1e6},
      {"temperature_c", (double)hottest / 1e3},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
    if (members[i].value > 0)
      ALWAYS(json_object_set_new(conditions, members[i].name, json_real(members[i].value)) == 0);
  return conditions;
}

bool kfd_processes(const char *processes, int64_t gpu_id, bool (*is_own)(int64_t pid),
                   size_t *ret_n, size_t *ret_own) {
  DIR *entries = opendir(processes);
  struct dirent *entry;
  size_t n = 0, own = 0;
  if (!entries)
    return false;
  cleanup_free char *vram = xasprintf("vram_%lld", (long long)gpu_id);
  while ((entry = readdir(entries))) {
    cleanup_free char *folder = xasprintf("%s/%s", processes, entry->d_name);
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || number_read(folder, vram) <= 0)
      continue;
    n++;
    own += is_own(atoll(entry->d_name));
  }
  closedir(entries);
  *ret_n = n;
  *ret_own = own;
  return true;
}
