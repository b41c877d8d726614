/* `env check|set|reset` over a folder in place of /, with an amd-smi and a rocm-smi in $PATH that
 * the test makes: shell scripts that print what the real ones print (amdsmi_cli and rocm_smi.py in
 * their sources). No AMD GPU is used. */
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/node/machine_settings.h"
#include "common/base/file.h"

static char *root, *saved;

static void put(const char *path, const char *text) {
  struct error error;
  cleanup_free char *file = xasprintf("%s%s", root, path);
  cleanup_free char *folder = xstrdup(file);
  *strrchr(folder, '/') = '\0';
  cr_assert(folder_make(folder, 0700, &error), "%s", error.message);
  cr_assert(file_write_atomically(file, text, strlen(text), 0600, &error), "%s", error.message);
}

static char *get(const char *path) {
  struct error error;
  cleanup_free char *file = xasprintf("%s%s", root, path);
  char *text = NULL;
  size_t size;
  cr_assert(file_read(file, 4096, &text, &size, &error), "%s", error.message);
  return text;
}

#define GOVERNOR "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor"
#define LEVEL "/sys/class/drm/card1/device/power_dpm_force_performance_level"
#define BALANCING "/proc/sys/kernel/numa_balancing"

static void machine_make(void) {
  char folder[] = "/tmp/wavetune-test-XXXXXX";
  root = xstrdup(mkdtemp(folder));
  saved = xasprintf("%s/saved.json", root);
  put(BALANCING, "1\n");
  for (int cpu = 0; cpu < 3; cpu++) {
    char path[128];
    snprintf(path, sizeof path, GOVERNOR, cpu);
    put(path, cpu == 0 ? "performance\n" : "powersave\n");
  }
  unsetenv("HIP_FORCE_DEV_KERNARG");
}

static void machine_end(void) {
  struct error error;
  cr_assert(folder_remove(root, &error), "%s", error.message);
  free(root);
  free(saved);
}
TestSuite(machine_settings, .init = machine_make, .fini = machine_end);

#define GPU "/sys/devices/pci0000:c0/0000:c1:00.0"
#define SECOND_GPU "/sys/devices/pci0000:d0/0000:d1:00.0"
#define UNSUPPORTED "/run/wavetune-agent/unsupported-settings.json"

static void gpu_add(const char *card, const char *folder, const char *vendor, const char *device) {
  static const char *const names[] = {"vendor", "device", "power_dpm_force_performance_level"};
  const char *const values[] = {vendor, device, "auto"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    cleanup_free char *file = xasprintf("%s/%s", folder, names[i]),
                      *line = xasprintf("%s\n", values[i]);
    put(file, line);
  }
  struct error error;
  cleanup_free char *path = xasprintf("%s/sys/class/drm/%s", root, card),
                    *link = xasprintf("%s/device", path);
  cleanup_free char *target = xasprintf("%s%s", root, folder);
  cr_assert(folder_make(path, 0700, &error), "%s", error.message);
  cr_assert_eq(symlink(target, link), 0);
}

/* Makes a program in $PATH, which has nothing else (the machine may have a real one). It logs its
 * arguments and then does `what` (a line of shell, in which $root is the folder in place of /). */
static void tool_add(const char *name, const char *what) {
  cleanup_free char *script =
      xasprintf("#!/bin/sh\nroot=%s\necho %s \"$@\" >>$root/smi.log\n%s\n", root, name, what);
  cleanup_free char *file = xasprintf("/bin/%s", name);
  put(file, script);
  cleanup_free char *program = xasprintf("%s%s", root, file), *path = xasprintf("%s/bin", root);
  cr_assert_eq(chmod(program, 0700), 0);
  setenv("PATH", path, 1);
}

/* An AMD GPU, a card of another vendor, and a rocm-smi that does `what`. */
static void gpu_with_rocm_smi(const char *what) {
  gpu_add("card0", "/sys/devices/pci0000:01/0000:01:00.0", "0x10de", "0x2330");
  gpu_add("card1", GPU, "0x1002", "0x74a1");
  tool_add("rocm-smi", what);
}

#define SETS_LEVEL "echo perf_determinism >$root" LEVEL

static const struct setting_change *change_of(const struct settings_changes *changes,
                                              const char *name) {
  for (size_t i = 0; i < changes->n; i++) {
    if (string_equal(changes->all[i].name, name))
      return &changes->all[i];
  }
  die("no change of %s", name);
}

static struct settings_changes set(void) {
  struct error error = {0};
  struct settings_changes changes = {0};
  cr_assert(machine_settings_set(root, saved, &changes, &error), "%s", error.message);
  return changes;
}

static struct settings_changes reset(void) {
  struct error error = {0};
  struct settings_changes changes = {0};
  cr_assert(machine_settings_reset(root, saved, &changes, &error), "%s", error.message);
  return changes;
}

static void expect_change(const struct settings_changes *changes, const char *name,
                          enum change_result result, const char *why) {
  const struct setting_change *change = change_of(changes, name);
  cr_expect_eq(change->result, result, "%s: %d, %s", name, (int)change->result, change->why);
  cr_expect(strstr(change->why, why), "%s: %s", name, change->why);
}

static const struct setting_finding *find(const struct settings_findings *findings,
                                          const char *name) {
  for (size_t i = 0; i < findings->n; i++) {
    if (string_equal(findings->all[i].name, name))
      return &findings->all[i];
  }
  die("no setting %s", name);
}

Test(machine_settings, check_lists_the_present_and_the_right_value_of_each_setting) {
  cleanup_settings_findings struct settings_findings findings = {0};
  machine_settings_check(root, &findings);
  const struct setting_finding *governor = find(&findings, "cpu_governor");
  cr_expect_eq(governor->state, SETTING_DIFFERS);
  cr_expect_str_eq(governor->is, "powersave (2 of 3)");
  cr_expect_str_eq(governor->should, "performance");
  cr_expect_str_eq(find(&findings, "numa_balancing")->is, "1");
  cr_expect_eq(find(&findings, "cpu_idle_state_1")->state, SETTING_ABSENT);
}

Test(machine_settings, a_machine_without_an_amd_gpu_needs_no_gpu_setting) {
  cleanup_settings_findings struct settings_findings findings = {0};
  put("/sys/class/drm/card0/device/vendor", "0x10de\n");
  put("/sys/class/drm/card0/device/power_dpm_force_performance_level", "auto\n");
  machine_settings_check(root, &findings);
  cr_expect_eq(find(&findings, "perf_determinism")->state, SETTING_ABSENT);
  cr_expect_eq(find(&findings, "HIP_FORCE_DEV_KERNARG")->state, SETTING_ABSENT);
}

Test(machine_settings, the_variable_counts_where_there_is_an_amd_gpu) {
  gpu_with_rocm_smi(SETS_LEVEL);
  cleanup_settings_findings struct settings_findings without = {0}, with = {0};
  machine_settings_check(root, &without);
  cr_expect_str_eq(find(&without, "HIP_FORCE_DEV_KERNARG")->is, "not set");
  setenv("HIP_FORCE_DEV_KERNARG", "1", 1);
  machine_settings_check(root, &with);
  cr_expect_eq(find(&with, "HIP_FORCE_DEV_KERNARG")->state, SETTING_GOOD);
}

Test(machine_settings, the_variable_counts_in_a_container_that_only_has_the_device_file) {
  cleanup_settings_findings struct settings_findings findings = {0};
  put("/dev/kfd", "");
  machine_settings_check(root, &findings);
  cr_expect_eq(find(&findings, "HIP_FORCE_DEV_KERNARG")->state, SETTING_DIFFERS);
  cr_expect_eq(find(&findings, "perf_determinism")->state, SETTING_ABSENT);
}

Test(machine_settings, check_changes_nothing) {
  cleanup_settings_findings struct settings_findings findings = {0};
  machine_settings_check(root, &findings);
  cleanup_free char *balancing = get(BALANCING);
  cr_expect_str_eq(balancing, "1\n");
  cr_expect_neq(access(saved, F_OK), 0);
}

Test(machine_settings, differing_names_are_provenance) {
  cleanup_settings_findings struct settings_findings findings = {0};
  machine_settings_check(root, &findings);
  cleanup_json json_t *names = settings_findings_differing(&findings);
  cleanup_free char *text = json_canonical(names);
  cr_expect_str_eq(text, "[\"numa_balancing\",\"cpu_governor\"]");
}

Test(machine_settings, reset_restores_the_values_from_before_the_first_set) {
  cleanup_settings_changes struct settings_changes first = set(), again = {0}, changes = {0};
  expect_change(&first, "cpu_governor", CHANGE_DONE, "");
  expect_change(&first, "cpu_idle_state_1", CHANGE_ABSENT, "");
  cleanup_free char *value = get("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
  cr_expect_str_eq(value, "performance");
  again = set();
  expect_change(&again, "cpu_governor", CHANGE_ALREADY, "");
  changes = reset();
  cr_expect_neq(changes.n, 0);
  cr_expect_not(settings_changes_failed(&changes));
  cleanup_free char *back = get("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
  cleanup_free char *untouched = get("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  cleanup_free char *balancing = get(BALANCING);
  cr_expect_str_eq(back, "powersave");
  cr_expect_str_eq(untouched, "performance\n");
  cr_expect_str_eq(balancing, "1");
  cr_expect_neq(access(saved, F_OK), 0);
}

Test(machine_settings, reset_without_saved_settings_changes_nothing) {
  cleanup_settings_changes struct settings_changes changes = reset();
  cr_expect_eq(changes.n, 0);
}

Test(machine_settings, a_gpus_clock_is_set_and_reset_by_rocm_smi) {
  gpu_with_rocm_smi(SETS_LEVEL);
  cleanup_settings_changes struct settings_changes changes = set(), back = reset();
  expect_change(&changes, "perf_determinism", CHANGE_DONE, "");
  expect_change(&back, "perf_determinism", CHANGE_DONE, "");
  cleanup_free char *calls = get("/smi.log"), *level = get(LEVEL);
  cr_expect_str_eq(calls, "rocm-smi --setperfdeterminism 1900\nrocm-smi --resetperfdeterminism\n");
  cr_expect_str_eq(level, "auto");
}

Test(machine_settings, amd_smi_is_preferred_and_called_for_each_gpu_by_its_pci_address) {
  gpu_with_rocm_smi("exit 1");
  gpu_add("card2", SECOND_GPU, "0x1002", "0x74a1");
  tool_add("amd-smi",
           "case $1 in\n"
           "set) level=perf_determinism;;\n"
           "reset) level=auto;;\n"
           "esac\n"
           "echo $level >$(echo $root/sys/devices/*/$3)/power_dpm_force_performance_level");
  cleanup_settings_changes struct settings_changes changes = set(), back = reset();
  expect_change(&changes, "perf_determinism", CHANGE_DONE, "");
  expect_change(&back, "perf_determinism", CHANGE_DONE, "");
  cleanup_free char *calls = get("/smi.log");
  cr_expect_str_eq(calls, "amd-smi set --gpu 0000:c1:00.0 --perf-determinism 1900\n"
                          "amd-smi set --gpu 0000:d1:00.0 --perf-determinism 1900\n"
                          "amd-smi reset --gpu 0000:c1:00.0 --perf-determinism\n"
                          "amd-smi reset --gpu 0000:d1:00.0 --perf-determinism\n");
}

Test(machine_settings, a_setting_that_is_refused_does_not_end_the_others) {
  gpu_with_rocm_smi("echo; echo '==== ROCm System Management Interface ===='\n"
                    "echo 'GPU[0]\t\t: set_perf_determinism, Permission denied'\nexit 1");
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED,
                "rocm-smi --setperfdeterminism` failed: GPU[0]");
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED, "Permission denied");
  expect_change(&changes, "numa_balancing", CHANGE_DONE, "");
  expect_change(&changes, "cpu_governor", CHANGE_DONE, "");
  cr_expect(settings_changes_failed(&changes));
  cleanup_free char *balancing = get(BALANCING);
  cr_expect_str_eq(balancing, "0");
  cr_expect_eq(access(saved, F_OK), 0);
}

/* rocm-smi exits with 0 also after a refusal. */
Test(machine_settings, a_rocm_smi_that_exits_with_0_and_changes_nothing_is_reported) {
  gpu_with_rocm_smi("exit 0");
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED, "changed nothing: ");
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED,
                "power_dpm_force_performance_level is auto");
}

Test(machine_settings, an_unknown_gpu_is_refused) {
  gpu_add("card1", GPU, "0x1002", "0x74a1");
  tool_add("amd-smi", "echo 'Can not find a device with the corresponding identifier'; exit 254");
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED, "Can not find a device");
  cleanup_free char *record = xasprintf("%s" UNSUPPORTED, root);
  cr_expect_neq(access(record, F_OK), 0);
}

/* In the words of amd-smi of ROCm 6 (exit 1), of ROCm 7 (exit 0), and of rocm-smi. */
Test(machine_settings, a_gpu_without_clock_determinism_is_no_failure_and_is_stored) {
  static const struct {
    const char *tool, *what;
  } cases[] = {
      {"amd-smi", "echo 'amdsmi_exception.AmdSmiLibraryException: Error code:'\n"
                  "echo '\t2 | AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported'\nexit 1"},
      {"amd-smi",
       "echo 'GPU: 0'\necho '    PERFDETERMINISM: [AMDSMI_STATUS_NOT_SUPPORTED] Unable to set'"},
      {"rocm-smi", "echo 'GPU[0]\t\t: set_perf_determinism, Not supported on the given system'"},
  };
  gpu_add("card1", GPU, "0x1002", "0x74a2");
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_settings_findings struct settings_findings before = {0}, after = {0};
    cleanup_free char *record = xasprintf("%s" UNSUPPORTED, root),
                      *tool = xasprintf("%s/bin/amd-smi", root);
    (void)unlink(tool);
    tool_add(cases[i].tool, cases[i].what);
    machine_settings_check(root, &before);
    cr_expect_eq(find(&before, "perf_determinism")->state, SETTING_DIFFERS);
    cleanup_settings_changes struct settings_changes changes = set();
    expect_change(&changes, "perf_determinism", CHANGE_UNSUPPORTED,
                  i < 2 ? "NOT_SUPPORTED" : "Not supported");
    cr_expect_not(settings_changes_failed(&changes));
    machine_settings_check(root, &after);
    cr_expect_eq(find(&after, "perf_determinism")->state, SETTING_UNSUPPORTED);
    cr_expect_str_eq(find(&after, "perf_determinism")->is, "not supported by this GPU");
    cleanup_json json_t *names = settings_findings_differing(&after);
    cleanup_free char *text = json_canonical(names);
    cr_expect_not(strstr(text, "perf_determinism"), "%s", text);
    cr_assert_eq(unlink(record), 0);
  }
}

/* The driver may accept the mode before the firmware refuses the limit. */
Test(machine_settings, a_level_without_a_limit_is_undone) {
  gpu_add("card1", GPU, "0x1002", "0x75a0");
  tool_add("amd-smi", SETS_LEVEL "; echo AMDSMI_STATUS_NOT_SUPPORTED; exit 1");
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_UNSUPPORTED, "");
  cleanup_free char *level = get(LEVEL);
  cr_expect_str_eq(level, "auto");
}

Test(machine_settings, one_gpu_of_two_may_have_no_limit) {
  gpu_add("card1", GPU, "0x1002", "0x74a2");
  gpu_add("card2", SECOND_GPU, "0x1002", "0x74a1");
  tool_add("amd-smi", "case $3 in\n"
                      "*d1*) echo perf_determinism >$(echo "
                      "$root/sys/devices/*/$3)/power_dpm_force_performance_level;;\n"
                      "*) echo AMDSMI_STATUS_NOT_SUPPORTED;;\n"
                      "esac");
  cleanup_settings_findings struct settings_findings findings = {0};
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_DONE, "1 of 2 GPUs do not support it");
  machine_settings_check(root, &findings);
  cr_expect_eq(find(&findings, "perf_determinism")->state, SETTING_GOOD);
}

/* `check` counts another GPU in the same place as one that differs, and the next `set` tries again.
 */
Test(machine_settings, an_unsupported_setting_is_tried_again) {
  gpu_add("card1", GPU, "0x1002", "0x74a2");
  tool_add("amd-smi", "echo AMDSMI_STATUS_NOT_SUPPORTED");
  cleanup_settings_changes struct settings_changes changes = set(), again = {0};
  cleanup_settings_findings struct settings_findings findings = {0}, set_again = {0};
  put(GPU "/device", "0x74a1\n");
  machine_settings_check(root, &findings);
  cr_expect_eq(find(&findings, "perf_determinism")->state, SETTING_DIFFERS);
  tool_add("amd-smi", SETS_LEVEL);
  again = set();
  expect_change(&again, "perf_determinism", CHANGE_DONE, "");
  machine_settings_check(root, &set_again);
  cr_expect_eq(find(&set_again, "perf_determinism")->state, SETTING_GOOD);
  cleanup_free char *record = xasprintf("%s" UNSUPPORTED, root);
  cr_expect_neq(access(record, F_OK), 0);
}

Test(machine_settings, a_missing_tool_is_reported_with_what_to_install_and_other_settings_are_set) {
  gpu_with_rocm_smi("exit 0");
  setenv("PATH", "/nonexistent", 1);
  if (access("/opt/rocm/bin/rocm-smi", X_OK) == 0 || access("/opt/rocm/bin/amd-smi", X_OK) == 0)
    cr_skip("amd-smi or rocm-smi is installed here");
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "perf_determinism", CHANGE_REFUSED, "install amd-smi-lib");
  expect_change(&changes, "numa_balancing", CHANGE_DONE, "");
}

/* A file of the machine that can be read and cannot be written. */
static void make_unwritable(const char *path) {
  cleanup_free char *file = xasprintf("%s%s", root, path);
  cr_assert_eq(unlink(file), 0);
  cr_assert_eq(symlink("/sys/kernel/notes", file), 0);
  if (access(file, R_OK) != 0)
    cr_skip("no /sys/kernel/notes here");
}

Test(machine_settings, a_file_that_cannot_be_written_is_named_and_other_settings_are_set) {
  make_unwritable(BALANCING);
  cleanup_settings_changes struct settings_changes changes = set();
  expect_change(&changes, "numa_balancing", CHANGE_REFUSED, "cannot write 0 to ");
  expect_change(&changes, "cpu_governor", CHANGE_DONE, "");
}

Test(machine_settings, reset_continues_after_a_refusal_and_can_be_run_again) {
  struct settings_changes changes = set();
  settings_changes_release(&changes);
  make_unwritable(BALANCING);
  changes = reset();
  expect_change(&changes, "numa_balancing", CHANGE_REFUSED, "cannot write 1 to ");
  expect_change(&changes, "cpu_governor", CHANGE_DONE, "");
  settings_changes_release(&changes);
  cr_expect_eq(access(saved, F_OK), 0);
  cleanup_free char *file = xasprintf("%s" BALANCING, root);
  cr_assert_eq(unlink(file), 0);
  put(BALANCING, "0\n");
  changes = reset();
  expect_change(&changes, "numa_balancing", CHANGE_DONE, "");
  expect_change(&changes, "cpu_governor", CHANGE_ALREADY, "");
  settings_changes_release(&changes);
  cr_expect_neq(access(saved, F_OK), 0);
}

Test(machine_settings, a_damaged_save_is_refused_and_kept) {
  static const char *const damaged[] = {"", "[]", "{\"/etc/passwd\": \"x\"}",
                                        "{\"/sys/../x/disable\": \"1\"}",
                                        "{\"/proc/sys/kernel/numa_balancing\": 1}"};
  for (size_t i = 0; i < ARRAY_LENGTH(damaged); i++) {
    struct error error = {0};
    struct settings_changes changes;
    put("/saved.json", damaged[i]);
    cr_expect_not(machine_settings_reset(root, saved, &changes, &error), "%s", damaged[i]);
    cr_expect(strstr(error.message, "has no settings that"), "%s", error.message);
    cr_expect_eq(access(saved, F_OK), 0);
  }
}
