/* One table of settings; each is a pattern of files under /proc or /sys with the value that they should hold. The clock
 * limit of an AMD GPU is set by rocm-smi and only read from a file; HIP_FORCE_DEV_KERNARG is a variable of the process.
 *
 * Memory and threads: see the header. */
#include "agent/node/machine_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define VALUE_MAX 256
#define SAVED_MAX ((size_t)4 << 20)
#define CLOCK_MHZ "1900" /* AMD's MI300X tuning guide: steady under load, below what the power limit forces */
#define SMI_MS 30000

struct setting {
  const char *name, *should, *why;
  const char *pattern; /* of its files; NULL: the variable of the same name in the environment */
  const char *value;   /* what they should hold */
  bool is_amd_gpu;     /* of cards whose vendor is AMD */
  const char *const *set_by, *const *reset_by; /* arguments of rocm-smi; NULL: the files are written */
};

static const char *const determinism_set[] = {"--setperfdeterminism", CLOCK_MHZ, NULL};
static const char *const determinism_reset[] = {"--resetperfdeterminism", NULL};

static const struct setting settings[] = {
    {
        .name = "HIP_FORCE_DEV_KERNARG",
        .should = "1",
        .why =
            "kernel arguments lie in device memory, which starts a kernel 2 to 3 us sooner; workers set it themselves",
    },
    {
        .name = "perf_determinism",
        .should = "perf_determinism at " CLOCK_MHZ " MHz",
        .why = "the core clock keeps below what the power limit forces, so that runs are comparable",
        .pattern = "/sys/class/drm/card*/device/power_dpm_force_performance_level",
        .value = "perf_determinism",
        .is_amd_gpu = true,
        .set_by = determinism_set,
        .reset_by = determinism_reset,
    },
    {
        .name = "numa_balancing",
        .should = "0",
        .why = "the kernel's page migration faults stop the GPU's host threads for a while at a time",
        .pattern = "/proc/sys/kernel/numa_balancing",
        .value = "0",
    },
    {
        .name = "cpu_governor",
        .should = "performance",
        .why = "a CPU that has to speed up first launches kernels late",
        .pattern = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
        .value = "performance",
    },
    {
        .name = "cpu_idle_state_1",
        .should = "1 (disabled)",
        .why = "waking from an idle state delays launches and the end of waits; what `cpupower idle-set -d 1` does",
        .pattern = "/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state1/disable",
        .value = "1",
    },
};

static bool value_read(const char *path, char value[VALUE_MAX]) {
  cleanup_file FILE *file = fopen(path, "re");
  if (!file || !fgets(value, VALUE_MAX, file))
    return false;
  value[strcspn(value, "\n")] = '\0';
  return true;
}

static bool value_write(const char *path, const char *value, struct error *error) {
  cleanup_fd int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd >= 0 && fd_write_all(fd, value, strlen(value)))
    return true;
  return error_set(error, "cannot write %s to %s: %s%s", value, path, strerror(errno),
                   errno == EACCES || errno == EPERM ? "; run it as root" : "");
}

static bool card_is_amd(const char *path) {
  char vendor[VALUE_MAX];
  size_t folder = (size_t)(strrchr(path, '/') - path);
  cleanup_free char *vendor_path = xasprintf("%.*s/vendor", (int)folder, path);
  return value_read(vendor_path, vendor) && string_equal(vendor, "0x1002");
}

struct files {
  size_t n, capacity;
  char **paths;
};

static void files_release(struct files *files) {
  for (size_t i = 0; i < files->n; i++)
    free(files->paths[i]);
  free(files->paths);
}
#define cleanup_files __attribute__((cleanup(files_release)))

/* The files that a pattern names and that can be read. */
static struct files files_find(const char *root, const char *pattern, bool is_amd_gpu) {
  cleanup_free char *whole = xasprintf("%s%s", root, pattern);
  char value[VALUE_MAX];
  struct files files = {0};
  glob_t found = {0};
  size_t n = glob(whole, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
  for (size_t i = 0; i < n; i++) {
    const char *path = found.gl_pathv[i];
    if (!value_read(path, value) || (is_amd_gpu && !card_is_amd(path)))
      continue;
    GROW(files.paths, files.n, files.capacity);
    files.paths[files.n++] = xstrdup(path);
  }
  globfree(&found);
  return files;
}

static struct files files_of(const char *root, const struct setting *setting) {
  return files_find(root, setting->pattern, setting->is_amd_gpu);
}

static struct setting_finding files_check(const char *root, const struct setting *setting) {
  struct setting_finding finding = {.state = SETTING_GOOD};
  char value[VALUE_MAX], other[VALUE_MAX] = "";
  size_t n_other = 0;
  cleanup_files struct files files = files_of(root, setting);
  for (size_t i = 0; i < files.n; i++) {
    if (!value_read(files.paths[i], value) || string_equal(value, setting->value))
      continue;
    memcpy(other, value, sizeof other);
    n_other++;
  }
  if (!files.n) {
    finding.state = SETTING_ABSENT;
    finding.is = xasprintf("no %s", setting->is_amd_gpu ? "AMD GPU here" : setting->pattern);
  } else if (n_other) {
    finding.state = SETTING_DIFFERS;
    finding.is = files.n > 1 ? xasprintf("%s (%zu of %zu)", other, n_other, files.n) : xstrdup(other);
  } else {
    finding.is = xstrdup(setting->value);
  }
  return finding;
}

static struct setting_finding variable_check(const char *root, const struct setting *setting) {
  const char *value = getenv(setting->name);
  cleanup_files struct files gpus = files_find(root, "/sys/class/drm/card*/device/vendor", true);
  if (!gpus.n)
    return (struct setting_finding){.state = SETTING_ABSENT, .is = xstrdup("no AMD GPU here")};
  bool is_good = value && string_equal(value, setting->should);
  return (struct setting_finding){.state = is_good ? SETTING_GOOD : SETTING_DIFFERS,
                                  .is = xstrdup(value ? value : "not set")};
}

void machine_settings_check(const char *root, struct settings_findings *ret_findings) {
  struct settings_findings findings = {.n = ARRAY_LENGTH(settings),
                                       .all = xcalloc(ARRAY_LENGTH(settings), sizeof *findings.all)};
  for (size_t i = 0; i < findings.n; i++) {
    const struct setting *setting = &settings[i];
    findings.all[i] = setting->pattern ? files_check(root, setting) : variable_check(root, setting);
    findings.all[i].name = setting->name;
    findings.all[i].should = setting->should;
    findings.all[i].why = setting->why;
  }
  *ret_findings = findings;
}

void settings_findings_release(struct settings_findings *findings) {
  for (size_t i = 0; i < findings->n; i++)
    free(findings->all[i].is);
  free(findings->all);
  *findings = (struct settings_findings){0};
}

json_t *settings_findings_differing(const struct settings_findings *findings) {
  json_t *names = json_array();
  for (size_t i = 0; i < findings->n; i++) {
    if (findings->all[i].state == SETTING_DIFFERS)
      ALWAYS(json_array_append_new(names, json_string(findings->all[i].name)) == 0);
  }
  return names;
}

static bool smi_run(const char *const *arguments, struct error *error) {
  cleanup_free char *path = NULL;
  struct error ignored;
  if (!program_find("rocm-smi", &path, &ignored)) {
    path = xstrdup("/opt/rocm/bin/rocm-smi");
    if (access(path, X_OK) < 0)
      return error_set(error, "the GPU's clock limit is set by rocm-smi, which is not in $PATH; install rocm-smi");
  }
  char *argv[8] = {path};
  for (size_t i = 0; arguments[i]; i++)
    argv[i + 1] = (char *)(uintptr_t)arguments[i];
  char *const environment[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                               (char[]){"LC_ALL=C"}, NULL};
  struct command command = {.arguments = argv,
                            .environment = environment,
                            .timeout_ms = SMI_MS,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)4 << 30,
                            .file_bytes_max = (uint64_t)1 << 20,
                            .output_max = 4096,
                            .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;
  cleanup_free char *output = result.output;
  if (result.succeeded)
    return true;
  output[strcspn(output, "\n")] = '\0';
  return error_set(error, "`%s %s` failed: %.200s", path, arguments[0], output);
}

/* {"/sys/…": "powersave", …}: the files that differ, as they are now. */
static json_t *differing_read(const char *root) {
  json_t *files_json = json_object();
  char value[VALUE_MAX];
  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
    if (!settings[i].pattern)
      continue;
    cleanup_files struct files files = files_of(root, &settings[i]);
    for (size_t k = 0; k < files.n; k++) {
      if (value_read(files.paths[k], value) && !string_equal(value, settings[i].value))
        ALWAYS(json_object_set_new(files_json, files.paths[k] + strlen(root), json_string(value)) == 0);
    }
  }
  return files_json;
}

/* rocm-smi ends with 0 also where it was refused, so what came of it is looked at. */
static bool smi_apply(const char *root, const struct setting *setting, struct error *error) {
  if (!smi_run(setting->set_by, error))
    return false;
  struct setting_finding finding = files_check(root, setting);
  cleanup_free char *is = finding.is;
  return finding.state == SETTING_GOOD ||
         error_set(error, "`rocm-smi %s` changed nothing: it is %s; run it as root", setting->set_by[0], is);
}

static bool setting_apply(const char *root, const struct setting *setting, struct error *error) {
  struct setting_finding finding = files_check(root, setting);
  char value[VALUE_MAX];
  bool ok = true;
  free(finding.is);
  if (finding.state != SETTING_DIFFERS)
    return true;
  if (setting->set_by)
    return smi_apply(root, setting, error);
  cleanup_files struct files files = files_of(root, setting);
  for (size_t i = 0; i < files.n && ok; i++)
    ok = (value_read(files.paths[i], value) && string_equal(value, setting->value)) ||
         value_write(files.paths[i], setting->value, error);
  return ok;
}

bool machine_settings_set(const char *root, const char *saved, struct error *error) {
  cleanup_json json_t *differing = differing_read(root);
  if (access(saved, F_OK) != 0) {
    cleanup_free char *text = json_canonical(differing);
    if (!file_write_atomically(saved, text, strlen(text), 0600, error))
      return false;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
    if (settings[i].pattern && !setting_apply(root, &settings[i], error))
      return error_prefix(error, "%s: ", settings[i].name);
  }
  return true;
}

static const struct setting *setting_of(const char *path) {
  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
    const char *pattern = settings[i].pattern;
    if (pattern && string_equal(strrchr(pattern, '/'), strrchr(path, '/')))
      return &settings[i];
  }
  return NULL;
}

static bool saved_read(const char *saved, json_t **ret_files, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  const char *path;
  json_t *value;
  if (!file_read(saved, SAVED_MAX, &text, &size, error))
    return false;
  cleanup_json json_t *files = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  bool is_whole = json_is_object(files);
  json_object_foreach (files, path, value)
    is_whole = is_whole && path[0] == '/' && !strstr(path, "/../") && setting_of(path) && json_is_string(value);
  if (!is_whole)
    return error_set(error, "%s does not hold settings that `env set` saved; look at it and remove it", saved);
  *ret_files = TAKE(files);
  return true;
}

bool machine_settings_reset(const char *root, const char *saved, bool *ret_was_set, struct error *error) {
  cleanup_json json_t *files = NULL;
  const char *path;
  json_t *value;
  bool smi_ran = false;
  if (access(saved, F_OK) != 0) {
    *ret_was_set = false;
    return true;
  }
  if (!saved_read(saved, &files, error))
    return false;
  json_object_foreach (files, path, value) {
    const struct setting *setting = setting_of(path);
    cleanup_free char *file = xasprintf("%s%s", root, path);
    if (setting->reset_by && !smi_ran && !smi_run(setting->reset_by, error))
      return false;
    smi_ran = smi_ran || setting->reset_by;
    if (access(file, F_OK) == 0 && !value_write(file, json_string_value(value), error))
      return false;
  }
  if (unlink(saved) < 0)
    return error_set(error, "cannot remove %s: %s", saved, strerror(errno));
  *ret_was_set = true;
  return true;
}
