/* `env check|set|reset` over a folder that stands in for /, with a rocm-smi of the test's own in $PATH. */
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

/* Adds an AMD GPU, a card of another vendor, and a rocm-smi that writes down what it was called with, and sets the GPU's
 * level to `smi_level`. */
static void gpu_add_with(const char *smi_exit, const char *smi_level) {
  put("/sys/class/drm/card0/device/vendor", "0x10de\n");
  put("/sys/class/drm/card0/device/power_dpm_force_performance_level", "auto\n");
  put("/sys/class/drm/card1/device/vendor", "0x1002\n");
  put(LEVEL, "auto\n");
  cleanup_free char *script = xasprintf("#!/bin/sh\necho \"$@\" >>%s/smi.log\necho %s >%s" LEVEL "\necho refused\n"
                                        "exit %s\n",
                                        root, smi_level, root, smi_exit);
  put("/bin/rocm-smi", script);
  cleanup_free char *program = xasprintf("%s/bin/rocm-smi", root), *path = xasprintf("%s/bin:/usr/bin:/bin", root);
  cr_assert_eq(chmod(program, 0700), 0);
  setenv("PATH", path, 1);
}

static void gpu_add(const char *smi_exit) { gpu_add_with(smi_exit, "perf_determinism"); }

static const struct setting_finding *find(const struct settings_findings *findings, const char *name) {
  for (size_t i = 0; i < findings->n; i++) {
    if (string_equal(findings->all[i].name, name))
      return &findings->all[i];
  }
  die("no setting %s", name);
}

Test(machine_settings, check_says_what_each_is_and_should_be) {
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
  gpu_add("0");
  cleanup_settings_findings struct settings_findings without = {0}, with = {0};
  machine_settings_check(root, &without);
  cr_expect_str_eq(find(&without, "HIP_FORCE_DEV_KERNARG")->is, "not set");
  setenv("HIP_FORCE_DEV_KERNARG", "1", 1);
  machine_settings_check(root, &with);
  cr_expect_eq(find(&with, "HIP_FORCE_DEV_KERNARG")->state, SETTING_GOOD);
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

Test(machine_settings, reset_puts_back_what_was_there_before_the_first_set) {
  struct error error = {0};
  bool was_set = false;
  cr_assert(machine_settings_set(root, saved, &error), "%s", error.message);
  cleanup_free char *set = get("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
  cr_expect_str_eq(set, "performance");
  cr_assert(machine_settings_set(root, saved, &error), "%s", error.message); /* nothing differs now */
  cr_assert(machine_settings_reset(root, saved, &was_set, &error), "%s", error.message);
  cr_expect(was_set);
  cleanup_free char *back = get("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
  cleanup_free char *untouched = get("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  cleanup_free char *balancing = get(BALANCING);
  cr_expect_str_eq(back, "powersave");
  cr_expect_str_eq(untouched, "performance\n");
  cr_expect_str_eq(balancing, "1");
  cr_expect_neq(access(saved, F_OK), 0);
}

Test(machine_settings, reset_of_what_was_never_set_says_so) {
  struct error error = {0};
  bool was_set = true;
  cr_assert(machine_settings_reset(root, saved, &was_set, &error), "%s", error.message);
  cr_expect_not(was_set);
}

Test(machine_settings, a_gpus_clock_is_set_and_reset_by_rocm_smi) {
  struct error error = {0};
  bool was_set;
  gpu_add("0");
  cr_assert(machine_settings_set(root, saved, &error), "%s", error.message);
  cr_assert(machine_settings_reset(root, saved, &was_set, &error), "%s", error.message);
  cleanup_free char *calls = get("/smi.log"), *level = get(LEVEL);
  cr_expect_str_eq(calls, "--setperfdeterminism 1900\n--resetperfdeterminism\n");
  cr_expect_str_eq(level, "auto");
}

Test(machine_settings, a_rocm_smi_that_fails_is_a_sentence) {
  struct error error = {0};
  gpu_add("1");
  cr_expect_not(machine_settings_set(root, saved, &error));
  cr_expect(strstr(error.message, "perf_determinism: `") && strstr(error.message, "failed: refused"), "%s",
            error.message);
}

Test(machine_settings, a_rocm_smi_that_says_all_is_well_and_changes_nothing_is_a_sentence) {
  struct error error = {0};
  gpu_add_with("0", "auto");
  cr_expect_not(machine_settings_set(root, saved, &error));
  cr_expect(strstr(error.message, "perf_determinism: `rocm-smi --setperfdeterminism` changed nothing: it is auto"),
            "%s", error.message);
}

Test(machine_settings, a_missing_rocm_smi_says_what_to_install) {
  struct error error = {0};
  gpu_add("0");
  setenv("PATH", "/nonexistent", 1);
  if (access("/opt/rocm/bin/rocm-smi", X_OK) == 0)
    cr_skip("rocm-smi is installed here");
  cr_expect_not(machine_settings_set(root, saved, &error));
  cr_expect(strstr(error.message, "install rocm-smi"), "%s", error.message);
}

Test(machine_settings, a_file_that_cannot_be_written_names_it) {
  struct error error = {0};
  cleanup_free char *file = xasprintf("%s%s", root, BALANCING);
  cr_assert_eq(unlink(file), 0);
  cr_assert_eq(symlink("/sys/kernel/notes", file), 0); /* can be read, by nobody be written */
  if (access(file, R_OK) != 0)
    cr_skip("no /sys/kernel/notes here");
  cr_expect_not(machine_settings_set(root, saved, &error));
  cr_expect(strstr(error.message, "numa_balancing: cannot write 0 to "), "%s", error.message);
}

Test(machine_settings, a_damaged_save_is_refused_and_kept) {
  static const char *const damaged[] = {"", "[]", "{\"/etc/passwd\": \"x\"}", "{\"/sys/../x/disable\": \"1\"}",
                                        "{\"/proc/sys/kernel/numa_balancing\": 1}"};
  for (size_t i = 0; i < ARRAY_LENGTH(damaged); i++) {
    struct error error = {0};
    bool was_set;
    put("/saved.json", damaged[i]);
    cr_expect_not(machine_settings_reset(root, saved, &was_set, &error), "%s", damaged[i]);
    cr_expect(strstr(error.message, "does not hold settings"), "%s", error.message);
    cr_expect_eq(access(saved, F_OK), 0);
  }
}
