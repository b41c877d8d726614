/* Facts of GPUs, tested without a GPU: the files of AMD's driver, and the errors where a runtime or
 * a GPU is missing. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agent/device/gpu.h"
#include "common/base/file.h"
#include "common/node/node.h"

#define DATA SOURCE_FOLDER "/tests/data/kfd/"

static struct kfd_node node_at(const char *topology, const char *pci) {
  struct kfd_node node = {0};
  struct error error = {0};
  cr_assert(kfd_node_find(topology, pci, &node, &error), "%s", error.message);
  return node;
}

Test(kfd, a_whole_mi300x_has_304_cus_and_two_levels_of_cache_to_displace) {
  struct kfd_node node = node_at(DATA "mi300x_spx", "0000:05:00.0");
  cr_expect_str_eq(node.arch, "gfx942");
  cr_expect_eq(node.compute_units, 304);
  cr_expect_eq(node.simds_per_cu, 4);
  cr_expect_eq(node.waves_per_simd, 8);
  cr_expect_eq(node.wavefront_size, 64);
  cr_expect_eq(node.lds_bytes, 65536);
  cr_expect_eq(node.xccs, 8);
  cr_expect_eq(node.l2_bytes, 32 << 20, "an L2 a die: %lld", (long long)node.l2_bytes);
  cr_expect_eq(node.llc_bytes, 256 << 20);
  cr_expect_eq(node.memory_bytes, (int64_t)192 << 30);
  cr_expect_eq(node.clock_max_mhz, 2100);
  cr_expect_eq(node.gpu_id, 51140);
}

Test(kfd, a_partition_of_an_mi300x_is_found_by_its_function) {
  struct kfd_node node = node_at(DATA "mi300x_cpx", "0001:05:00.2");
  cr_expect_eq(node.gpu_id, 2002);
  cr_expect_eq(node.compute_units, 38);
  cr_expect_eq(node.l2_bytes, 4 << 20);
  cr_expect_eq(node.llc_bytes, 256 << 20, "gfx942 has one also where the driver lists none");
}

Test(kfd, a_partition_without_a_node_of_its_function_is_like_the_others) {
  cr_expect_eq(node_at(DATA "mi300x_cpx", "0001:05:00.7").gpu_id, 2000);
}

Test(kfd, a_partition_may_be_numbered_in_the_upper_bits_of_its_location) {
  cr_expect_eq(node_at(DATA "mi300x_cpx_numbered", "0001:05:00.0").gpu_id, 4000);
  cr_expect_eq(node_at(DATA "mi300x_cpx_numbered", "0001:05:00.1").gpu_id, 4001);
  cr_expect_eq(node_at(DATA "mi300x_cpx_numbered", "0001:05:00.5").gpu_id, 4000, "they are alike");
}

Test(kfd, an_l2_that_is_listed_for_all_dies_at_once_is_not_counted_for_each) {
  cr_expect_eq(node_at(DATA "mi300x_spx_6.5", "0000:05:00.0").l2_bytes, 32 << 20);
}

Test(kfd, an_mi250x_is_two_gpus_without_a_last_level) {
  struct kfd_node node = node_at(DATA "mi250x", "0000:c6:00.0");
  cr_expect_str_eq(node.arch, "gfx90a");
  cr_expect_eq(node.gpu_id, 3001);
  cr_expect_eq(node.compute_units, 110);
  cr_expect_eq(node.l2_bytes, 8 << 20);
  cr_expect_eq(node.llc_bytes, 0);
  cr_expect_eq(node.xccs, 1);
}

Test(kfd, a_gpu_that_the_topology_lacks_is_an_error_that_names_both) {
  static const char *const addresses[] = {"0000:06:00.0", "0001:05:00.0", "nonsense"};
  struct kfd_node node;
  for (size_t i = 0; i < ARRAY_LENGTH(addresses); i++) {
    struct error error = {0};
    cr_expect_not(kfd_node_find(DATA "mi300x_spx", addresses[i], &node, &error));
    cr_expect_not_null(strstr(error.message, addresses[i]), "%s", error.message);
  }
  struct error error = {0};
  cr_expect_not(kfd_node_find("/nowhere/nodes", "0000:05:00.0", &node, &error));
  cr_expect_not_null(strstr(error.message, "/nowhere/nodes"), "%s", error.message);
}

static void expect_partition(const char *pci, const char *expected) {
  char *partition = kfd_partition(DATA "pci", pci);
  cr_expect_str_eq(partition, expected);
  free(partition);
}

Test(kfd, the_partition_is_that_of_the_gpu_for_each_of_its_parts) {
  expect_partition("0000:05:00.0", "SPX/NPS1");
  expect_partition("0000:05:00.3", "SPX/NPS1");
  expect_partition("0001:05:00.0", "CPX"); /* the driver does not report the memory partition */
  expect_partition("0000:c1:00.0", "");    /* cannot be partitioned */
  expect_partition("0000:ff:00.0", "");
  expect_partition("nonsense", "");
}

Test(kfd, conditions_are_read_in_their_units) {
  json_t *conditions = kfd_conditions(DATA "pci", "0000:05:00.0");
  int clock = kfd_clock_open(DATA "pci", "0000:05:00.0");
  cr_expect_eq(kfd_clock_mhz(clock), 1987);
  cr_expect_eq(kfd_clock_mhz(clock), 1987, "it can be read again");
  close(clock);
  cr_expect_eq(json_number_value(json_object_get(conditions, "clock_mhz")), 1987);
  cr_expect_eq(json_number_value(json_object_get(conditions, "memory_clock_mhz")), 1300);
  cr_expect_eq(json_number_value(json_object_get(conditions, "power_w")), 412);
  cr_expect_eq(json_number_value(json_object_get(conditions, "temperature_c")), 61);
  json_decref(conditions);
}

Test(kfd, older_names_of_conditions_are_read_and_absent_values_are_left_out) {
  json_t *conditions = kfd_conditions(DATA "pci", "0000:c1:00.0");
  cr_expect_eq(json_number_value(json_object_get(conditions, "power_w")), 93);
  cr_expect_eq(json_number_value(json_object_get(conditions, "temperature_c")), 44);
  cr_expect_eq(json_object_size(conditions), 2);
  json_decref(conditions);
  conditions = kfd_conditions(DATA "pci", "0000:ff:00.0");
  cr_expect_eq(json_object_size(conditions), 0);
  json_decref(conditions);
  cr_expect_eq(kfd_clock_mhz(kfd_clock_open(DATA "pci", "0000:ff:00.0")), 0);
}

static void process_write(const char *folder, int pid, int64_t gpu_id, const char *bytes) {
  struct error error = {0};
  char *process = xasprintf("%s/%d", folder, pid),
       *path = xasprintf("%s/vram_%lld", process, (long long)gpu_id);
  cr_assert(folder_make(process, 0700, &error) &&
                file_write_atomically(path, bytes, strlen(bytes), 0600, &error),
            "%s", error.message);
  free(process);
  free(path);
}

Test(kfd, processes_are_those_that_have_memory_on_this_gpu) {
  char folder[] = "/tmp/wavetune-kfd-XXXXXX";
  struct error error = {0};
  size_t n = 9, own = 9;
  cr_assert_not_null(mkdtemp(folder));
  process_write(folder, getpid(), 7, "4096\n");
  process_write(folder, 1000001, 7, "8192\n");
  process_write(folder, 1000002, 7, "0\n");    /* has the driver open, no more */
  process_write(folder, 1000003, 8, "4096\n"); /* on another GPU */
  cr_expect(kfd_processes(folder, 7, gpu_process_is_own, &n, &own));
  cr_expect_eq(n, 2);
  cr_expect_eq(own, 1);
  cr_expect(kfd_processes(folder, 8, gpu_process_is_own, &n, &own));
  cr_expect_eq(n, 1);
  cr_expect_eq(own, 0);
  cr_expect(folder_remove(folder, &error), "%s", error.message);
  cr_expect_not(kfd_processes(folder, 7, gpu_process_is_own, &n, &own));
}

Test(kfd, other_processes_are_counted_also_in_a_container_that_hides_ids) {
  cr_expect_eq(gpu_processes_others(0, 0, 0), 0);
  cr_expect_eq(gpu_processes_others(1, 1, 0), 0);
  cr_expect_eq(gpu_processes_others(3, 1, 0), 2);
  cr_expect_eq(gpu_processes_others(1, 0, 0), 0);
  cr_expect_eq(gpu_processes_others(3, 0, 0), 2);
  cr_expect_eq(gpu_processes_others(3, 0, 1), 1);
  cr_expect_eq(gpu_processes_others(1, 0, 3), 0);
}

static pid_t idle_child_of(const char *name, bool has_own_session) {
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before, and this process would stay */
      _exit(0);
    if (name)
      prctl(PR_SET_NAME, name);
    if (has_own_session)
      setsid();
    pause();
    _exit(0);
  }
  while (has_own_session && getsid(child) != child)
    usleep(1000);
  return child;
}

static pid_t idle_child(void) { return idle_child_of(NULL, false); }

static void child_end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

Test(kfd, what_the_agent_started_is_its_own_whatever_its_name) {
  pid_t named = idle_child_of("python3 (1) x", false), foreign = idle_child_of(NULL, true);
  cr_expect(gpu_process_is_own(named),
            "a program that a worker runs, or a worker that a runtime renamed");
  cr_expect_not(gpu_process_is_own(foreign), "a worker cannot leave its session");
  child_end(named);
  child_end(foreign);
}

/* The siblings of this process are other tests, which start and end. */
Test(kfd, workers_of_the_same_parent_are_not_counted) {
  cr_expect(gpu_process_is_own(getpid()));
  cr_expect_not(gpu_process_is_own(getppid()));
  cr_expect_not(gpu_process_is_own(INT32_MAX));
  pid_t first = idle_child(), second = idle_child();
  cr_assert(first >= 0 && second >= 0);
  pid_t asking = fork();
  cr_assert_geq(asking, 0);
  if (asking == 0) {
    bool are_own = gpu_process_is_own(first) && gpu_process_is_own(second);
    bool has_child = idle_child() > 0;
    _exit(are_own && has_child && gpu_process_siblings() == 2 ? 0 : 1);
  }
  int status = -1;
  cr_expect(waitpid(asking, &status, 0) == asking && status == 0, "wait status %x", status);
  child_end(first);
  child_end(second);
}

static void expect_rocm(const char *folder, int version, const char *expected) {
  char *rocm = hip_rocm_version(folder, version);
  cr_expect_str_eq(rocm, expected);
  free(rocm);
}

Test(hip_facts, the_rocm_version_is_that_of_the_installation_else_of_the_runtime) {
  expect_rocm(DATA "rocm", 60241134, "6.4.1");
  expect_rocm("/nowhere", 60241134, "6.2");
  expect_rocm("/nowhere", 50221153, "5.2");
  expect_rocm("/nowhere", 70125424, "7.1");
}

static void expect_absent(const struct device_ops *ops, const char *part) {
  struct error error = {0};
  json_t *devices = NULL;
  cr_assert_not(ops->probe(&devices, &error));
  cr_expect_not_null(strstr(error.message, part), "%s", error.message);
}

Test(gpu_absent, a_runtime_that_is_not_installed_is_reported) {
  setenv("WAVETUNE_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
  expect_absent(&hip_ops,
                "the HIP runtime is not installed or cannot be loaded: /nowhere/libamdhip64.so");
}

Test(gpu_absent, a_library_without_the_calls_is_reported_with_the_first_of_them) {
  setenv("WAVETUNE_HIP_LIBRARY", "libm.so.6", 1);
  expect_absent(&hip_ops, "libm.so.6 has no hipInit");
}

/* The shim has every call of the back end; without CUDA's driver it has no GPU. */
Test(gpu_absent, a_runtime_without_a_gpu_is_reported_with_its_error) {
  if (access("/dev/nvidiactl", F_OK) == 0)
    cr_skip("there is an NVIDIA GPU");
  setenv("WAVETUNE_HIP_LIBRARY", HIP_SHIM, 1);
  expect_absent(&hip_ops, "hipErrorNoDevice");
}

Test(gpu_absent, the_real_hip_runtime_without_a_gpu_is_reported_with_its_error) {
  struct error error = {0};
  json_t *devices = NULL;
  unsetenv("WAVETUNE_HIP_LIBRARY");
  if (access("/dev/kfd", F_OK) == 0)
    cr_skip("there is an AMD GPU");
  cr_assert_not(hip_ops.probe(&devices, &error));
  if (strstr(error.message, "not installed"))
    cr_skip("%s", error.message);
  cr_expect_not_null(strstr(error.message, "the HIP runtime finds no GPU to work with"), "%s",
                     error.message);
  cr_expect_not_null(strstr(error.message, "(hipErrorNoDevice, 100)"), "%s", error.message);
}

Test(gpu_absent, a_cuda_driver_that_is_not_installed_is_reported) {
  if (access("/dev/nvidiactl", F_OK) == 0)
    cr_skip("there is an NVIDIA GPU");
  expect_absent(&cuda_ops, "the CUDA driver ");
}

Test(gpu_absent, a_device_that_cannot_be_opened_is_named) {
  struct error error = {0};
  struct device *device;
  setenv("WAVETUNE_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
  cr_expect_not(device_open("hip0", &device, &error));
  cr_expect_not_null(strstr(error.message, "no device hip0"), "%s", error.message);
}

Test(gpu_absent, probing_continues_without_them_and_gives_the_reasons) {
  struct error error = {0};
  json_t *devices = NULL, *absent = NULL, *row;
  size_t i;
  bool found = false;
  setenv("WAVETUNE_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
  cr_assert(devices_probe(&devices, &absent, &error), "%s", error.message);
  json_array_foreach (absent, i, row)
    found = found ||
            (string_equal(json_string_value(json_object_get(row, "backend")), "hip") &&
             strstr(json_string_value(json_object_get(row, "reason")), "/nowhere/libamdhip64.so"));
  cr_expect(found);
  row = json_array_get(devices, json_array_size(devices) - 1);
  cr_expect_str_eq(json_string_value(json_object_get(row, "device")), "cpu0");
  json_decref(devices);
  json_decref(absent);
}
