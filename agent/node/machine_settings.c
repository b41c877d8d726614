/* One table of settings; each is a pattern of files under /proc or /sys with the value that they
 * should hold. The clock limit of an AMD GPU is set by amd-smi or rocm-smi and only read from a
 * file; HIP_FORCE_DEV_KERNARG is a variable of the process.
 *
 * That a GPU has no clock limit is known once `set` has asked it: reading tells nothing, and lists
 * of models would be wrong with the next firmware. What was answered is kept in /run until the next
 * start of the machine, as the settings are.
 *
 * Memory and threads: see the header. */
#include "agent/node/machine_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>

#include "agent/node/smi.h"
#include "common/base/file.h"

#define VALUE_MAX 256
#define SAVED_MAX ((size_t)4 << 20)
/* AMD's MI300X tuning guide: steady under load, below what the power limit forces */
#define CLOCK_MHZ 1900
#define CLOCK_TEXT "1900"
/* {"/sys/…": "0x74a2", …}: files, PCI device ids */
#define UNSUPPORTED "/run/wavetune-agent/unsupported-settings.json"

struct setting {
  const char *name, *should, *why;
  const char *pattern; /* of its files; NULL: the variable of the same name in the environment */
  const char *value;   /* what they should hold */
  bool is_clock_limit; /* of cards whose vendor is AMD; set by a tool, not by writing the file */
};

static const struct setting settings[] = {
    {
        .name = "HIP_FORCE_DEV_KERNARG",
        .should = "1",
        .why = "kernel arguments lie in device memory, which starts a kernel 2 to 3 us sooner; "
               "workers set it themselves",
    },
    {
        .name = "perf_determinism",
        .should = "perf_determinism at " CLOCK_TEXT " MHz",
        .why =
            "the core clock keeps below what the power limit forces, so that runs are comparable",
        .pattern = "/sys/class/drm/card*/device/power_dpm_force_performance_level",
        .value = "perf_determinism",
        .is_clock_limit = true,
    },
    {
        .name = "numa_balancing",
        .should = "0",
        .why =
            "the kernel's page migration faults stop the GPU's host threads for a while at a time",
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
        .why = "waking from an idle state delays launches and the end of waits; what `cpupower "
               "idle-set -d 1` does",
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

/* Reads the file `name` beside the one at `path`. */
static bool value_read_beside(const char *path, const char *name, char value[VALUE_MAX]) {
  cleanup_free char *other = xasprintf("%.*s%s", (int)(strrchr(path, '/') + 1 - path), path, name);
  return value_read(other, value);
}

static bool card_is_amd(const char *path) {
  char vendor[VALUE_MAX];
  return value_read_beside(path, "vendor", vendor) && string_equal(vendor, "0x1002");
}

/* The PCI address of the card whose file this is: the name of the folder that
 * /sys/class/drm/card1/device leads to. */
static char *card_address(const char *path) {
  cleanup_free char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
  cleanup_free char *real = realpath(folder, NULL);
  return xstrdup(real ? strrchr(real, '/') + 1 : "unknown");
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
static struct files files_find(const char *root, const char *pattern, bool is_of_amd_gpu) {
  cleanup_free char *whole = xasprintf("%s%s", root, pattern);
  char value[VALUE_MAX];
  struct files files = {0};
  glob_t found = {0};
  size_t n = glob(whole, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
  for (size_t i = 0; i < n; i++) {
    const char *path = found.gl_pathv[i];
    if (!value_read(path, value) || (is_of_amd_gpu && !card_is_amd(path)))
      continue;
    GROW(files.paths, files.n, files.capacity);
    files.paths[files.n++] = xstrdup(path);
  }
  globfree(&found);
  return files;
}

static struct files files_of(const char *root, const struct setting *setting) {
  return files_find(root, setting->pattern, setting->is_clock_limit);
}

/* Of which GPUs `set` learned that they have no clock limit; {} when none did or when it was never
 * run. */
static json_t *unsupported_read(const char *root) {
  cleanup_free char *path = xasprintf("%s" UNSUPPORTED, root), *text = NULL;
  struct error ignored;
  size_t size;
  json_t *known =
      file_read(path, SAVED_MAX, &text, &size, &ignored) ? json_loadb(text, size, 0, NULL) : NULL;
  return known ? known : json_object();
}

/* Another GPU in its place is not meant. */
static bool file_is_unsupported(const char *root, const json_t *unsupported, const char *path) {
  const char *device = json_string_value(json_object_get(unsupported, path + strlen(root)));
  char value[VALUE_MAX];
  return device && value_read_beside(path, "device", value) && string_equal(device, value);
}

static struct setting_finding files_check(const char *root, const struct setting *setting) {
  struct setting_finding finding = {.state = SETTING_GOOD};
  char value[VALUE_MAX], other[VALUE_MAX] = "";
  size_t n_other = 0, n_unsupported = 0;
  cleanup_files struct files files = files_of(root, setting);
  cleanup_json json_t *unsupported = setting->is_clock_limit ? unsupported_read(root) : NULL;
  for (size_t i = 0; i < files.n; i++) {
    if (!value_read(files.paths[i], value) || string_equal(value, setting->value))
      continue;
    if (unsupported && file_is_unsupported(root, unsupported, files.paths[i])) {
      n_unsupported++;
      continue;
    }
    memcpy(other, value, sizeof other);
    n_other++;
  }
  if (!files.n) {
    finding.state = SETTING_ABSENT;
    finding.is = xasprintf("no %s", setting->is_clock_limit ? "AMD GPU here" : setting->pattern);
  } else if (n_other) {
    finding.state = SETTING_DIFFERS;
    finding.is =
        files.n > 1 ? xasprintf("%s (%zu of %zu)", other, n_other, files.n) : xstrdup(other);
  } else if (n_unsupported == files.n) {
    finding.state = SETTING_UNSUPPORTED;
    finding.is = xasprintf("not supported by %s", files.n > 1 ? "these GPUs" : "this GPU");
  } else if (n_unsupported) {
    finding.is =
        xasprintf("%s (%zu of %zu GPUs do not support it)", setting->value, n_unsupported, files.n);
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
  struct settings_findings findings = {
      .n = ARRAY_LENGTH(settings), .all = xcalloc(ARRAY_LENGTH(settings), sizeof *findings.all)};
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
        ALWAYS(json_object_set_new(files_json, files.paths[k] + strlen(root), json_string(value)) ==
               0);
    }
  }
  return files_json;
}

void settings_changes_release(struct settings_changes *changes) {
  for (size_t i = 0; i < changes->n; i++)
    free(changes->all[i].why);
  free(changes->all);
  *changes = (struct settings_changes){0};
}

bool settings_changes_failed(const struct settings_changes *changes) {
  for (size_t i = 0; i < changes->n; i++) {
    if (changes->all[i].result == CHANGE_REFUSED)
      return true;
  }
  return false;
}

/* What is counted of the files of one setting while they are changed. */
struct tally {
  size_t n, n_changed, n_refused, n_unsupported;
  struct error first; /* why the first was refused */
  struct error unsupported;
};

static void tally_refuse(struct tally *tally, const struct error *error) {
  if (!tally->n_refused++)
    tally->first = *error;
}

static struct setting_change tally_result(const struct tally *tally, const char *name) {
  struct setting_change change = {.name = name, .result = CHANGE_ALREADY, .why = xstrdup("")};
  if (tally->n_refused) {
    free(change.why);
    change.result = CHANGE_REFUSED;
    change.why = tally->n_refused > 1
                     ? xasprintf("%s (and %zu more)", tally->first.message, tally->n_refused - 1)
                     : xstrdup(tally->first.message);
  } else if (tally->n_changed) {
    change.result = CHANGE_DONE;
    if (tally->n_unsupported) {
      free(change.why);
      change.why = xasprintf("%zu of %zu GPUs do not support it", tally->n_unsupported, tally->n);
    }
  } else if (tally->n_unsupported) {
    free(change.why);
    change.result = CHANGE_UNSUPPORTED;
    change.why = xstrdup(tally->unsupported.message);
  }
  return change;
}

static void files_set(const struct setting *setting, const struct files *files,
                      struct tally *tally) {
  char value[VALUE_MAX];
  struct error error;
  for (size_t i = 0; i < files->n; i++) {
    if (value_read(files->paths[i], value) && string_equal(value, setting->value))
      continue;
    if (value_write(files->paths[i], setting->value, &error))
      tally->n_changed++;
    else
      tally_refuse(tally, &error);
  }
}

/* Limits the clock of every GPU that has no such limit yet. `unsupported` gets those that cannot
 * have one. */
static void limits_set(const char *root, const struct setting *setting, const struct files *files,
                       json_t *unsupported, struct tally *tally) {
  cleanup_smi struct smi smi = smi_find();
  cleanup_json json_t *differing = json_object();
  enum smi_answer answer = SMI_FAILED;
  struct error error;
  bool was_asked = false;
  char value[VALUE_MAX], device[VALUE_MAX];
  const char *path;
  json_t *before;

  for (size_t i = 0; i < files->n; i++) {
    if (value_read(files->paths[i], value) && !string_equal(value, setting->value))
      ALWAYS(json_object_set_new(differing, files->paths[i], json_string(value)) == 0);
  }

  json_object_foreach (differing, path, before) {
    cleanup_free char *address = card_address(path);
    if (smi.path && (smi.is_for_each || !was_asked))
      answer = smi_limit_set(&smi, address, CLOCK_MHZ, &error);
    else if (!smi.path)
      error_set(&error,
                "the GPU's clock limit is set by amd-smi or rocm-smi, and neither is in $PATH or "
                "/opt/rocm/bin; install amd-smi-lib");
    was_asked = true;

    /* The tools end with 0 also where they were refused, so what came of it is looked at. */
    bool holds = value_read(path, value) && string_equal(value, setting->value);
    if (answer == SMI_UNSUPPORTED) {
      /* A driver that took the mode though the firmware refused the limit would look as if there
       * were one. */
      struct error ignored;
      if (holds)
        (void)!value_write(path, json_string_value(before), &ignored);
      if (value_read_beside(path, "device", device))
        ALWAYS(json_object_set_new(unsupported, path + strlen(root), json_string(device)) == 0);
      tally->unsupported = error;
      tally->n_unsupported++;
    } else if (holds) {
      tally->n_changed++;
    } else {
      if (answer == SMI_DONE)
        error_set(&error, "`%s` changed nothing: %s is %s; run it as root", smi.path, path, value);
      tally_refuse(tally, &error);
    }
  }
}

/* Keeps which GPUs have no clock limit for `check`; nothing else needs it, so that it may fail. */
static bool unsupported_write(const char *root, const json_t *unsupported, struct error *error) {
  cleanup_free char *path = xasprintf("%s" UNSUPPORTED, root);
  cleanup_free char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
  cleanup_free char *text = json_canonical(unsupported);
  if (!json_object_size(unsupported))
    return unlink(path) == 0 || errno == ENOENT ||
           error_set(error, "cannot remove %s: %s", path, strerror(errno));
  return folder_make(folder, 0755, error) &&
         file_write_atomically(path, text, strlen(text), 0644, error);
}

static struct setting_change setting_set(const char *root, const struct setting *setting) {
  cleanup_files struct files files = files_of(root, setting);
  struct tally tally = {.n = files.n};
  if (!files.n)
    return (struct setting_change){setting->name, CHANGE_ABSENT, xstrdup("")};
  if (!setting->is_clock_limit) {
    files_set(setting, &files, &tally);
    return tally_result(&tally, setting->name);
  }
  cleanup_json json_t *unsupported = json_object();
  struct error error;
  limits_set(root, setting, &files, unsupported, &tally);
  struct setting_change change = tally_result(&tally, setting->name);
  if (!unsupported_write(root, unsupported, &error)) {
    char *why = xasprintf("%s; `env check` will not know that: %s", change.why, error.message);
    free(change.why);
    change.why = why;
  }
  return change;
}

static struct setting_change variable_set(const char *root, const struct setting *setting) {
  struct setting_finding finding = variable_check(root, setting);
  enum setting_state state = finding.state;
  free(finding.is);
  if (state == SETTING_DIFFERS)
    return (struct setting_change){setting->name, CHANGE_DONE,
                                   xstrdup("by the shell that evaluates what is printed")};
  return (struct setting_change){
      setting->name, state == SETTING_GOOD ? CHANGE_ALREADY : CHANGE_ABSENT, xstrdup("")};
}

bool machine_settings_set(const char *root, const char *saved, struct settings_changes *ret_changes,
                          struct error *error) {
  cleanup_json json_t *differing = differing_read(root);
  if (access(saved, F_OK) != 0) {
    cleanup_free char *text = json_canonical(differing);
    if (!file_write_atomically(saved, text, strlen(text), 0600, error))
      return false;
  }
  struct settings_changes changes = {.n = ARRAY_LENGTH(settings),
                                     .all = xcalloc(ARRAY_LENGTH(settings), sizeof *changes.all)};
  for (size_t i = 0; i < changes.n; i++)
    changes.all[i] =
        settings[i].pattern ? setting_set(root, &settings[i]) : variable_set(root, &settings[i]);
  *ret_changes = changes;
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
    is_whole = is_whole && path[0] == '/' && !strstr(path, "/../") && setting_of(path) &&
               json_is_string(value);
  if (!is_whole)
    return error_set(
        error, "%s does not hold settings that `env set` saved; look at it and remove it", saved);
  *ret_files = TAKE(files);
  return true;
}

/* Puts `before` back into one file. The tool lifts a limit first; where it cannot, the driver does
 * when the file is written. */
static void file_reset(const struct setting *setting, const struct smi *smi, const char *file,
                       const char *before, struct tally *tally) {
  char value[VALUE_MAX];
  struct error error, ignored;
  if (!value_read(file, value) || string_equal(value, before))
    return;
  if (setting->is_clock_limit && smi->path && string_equal(value, setting->value)) {
    cleanup_free char *address = card_address(file);
    if (smi_limit_lift(smi, address, &ignored) == SMI_DONE && value_read(file, value) &&
        string_equal(value, before)) {
      tally->n_changed++;
      return;
    }
  }
  if (value_write(file, before, &error))
    tally->n_changed++;
  else
    tally_refuse(tally, &error);
}

static struct setting_change setting_reset(const char *root, const struct setting *setting,
                                           json_t *files) {
  cleanup_smi struct smi smi = setting->is_clock_limit ? smi_find() : (struct smi){0};
  struct tally tally = {0};
  const char *path;
  json_t *value;
  json_object_foreach (files, path, value) {
    cleanup_free char *file = xasprintf("%s%s", root, path);
    if (setting_of(path) != setting)
      continue;
    tally.n++;
    file_reset(setting, &smi, file, json_string_value(value), &tally);
  }
  return tally_result(&tally, setting->name);
}

bool machine_settings_reset(const char *root, const char *saved,
                            struct settings_changes *ret_changes, struct error *error) {
  cleanup_json json_t *files = NULL;
  if (access(saved, F_OK) != 0) {
    *ret_changes = (struct settings_changes){0};
    return true;
  }
  if (!saved_read(saved, &files, error))
    return false;
  struct settings_changes changes = {.all = xcalloc(ARRAY_LENGTH(settings), sizeof *changes.all)};
  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
    if (settings[i].pattern)
      changes.all[changes.n++] = setting_reset(root, &settings[i], files);
  }
  if (!settings_changes_failed(&changes) && unlink(saved) < 0) {
    settings_changes_release(&changes);
    return error_set(error, "cannot remove %s: %s", saved, strerror(errno));
  }
  *ret_changes = changes;
  return true;
}
