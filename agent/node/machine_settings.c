/* One table of settings; each is a pattern of files under /proc or /sys with the value that they
 * should have. The clock limit of an AMD GPU ("performance determinism") is set by amd-smi or
 * rocm-smi and only read from a file; HIP_FORCE_DEV_KERNARG is a variable of the process.
 *
 * Not every AMD GPU has a clock limit: it depends on the firmware ("AMD SMI documentation:
 * performance determinism"), and only trying to set it shows that. `set` stores which GPUs have
 * none in /run, for `check`, until the next start of the machine, like the settings themselves. */
#include "agent/node/machine_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <strings.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define VALUE_MAX 256
#define SAVED_MAX ((size_t)4 << 20)
/* AMD's MI300X tuning guide: under load the power limit does not force a lower clock */
#define CLOCK_MHZ "1900"
/* {"/sys/…": "0x74a2", …}: files, PCI device ids */
#define UNSUPPORTED "/run/wavetune-agent/unsupported-settings.json"
#define SMI_MS 30000
#define SMI_OUTPUT_MAX ((size_t)64 << 10)
#define SMI_LINE_MAX 300

enum setting_kind {
  SETTING_FILE,
  SETTING_CLOCK_LIMIT, /* of AMD GPUs; set by a tool and not by writing the file */
  SETTING_VARIABLE,    /* of this process, named like the setting, where there are AMD GPUs */
};

struct setting {
  const char *name, *should, *why;
  enum setting_kind kind;
  const char *pattern; /* of the files; of a variable: of those that show whether there are GPUs,
                          as /dev/kfd does in a container that has it and not these */
  const char *value;   /* that the files, or the variable, should have */
};

static const struct setting settings[] = {
    {
        .name = "HIP_FORCE_DEV_KERNARG",
        .kind = SETTING_VARIABLE,
        .should = "1",
        .why = "kernel arguments are in device memory, which starts a kernel 2 to 3 us sooner; "
               "workers set it themselves, a container that runs tuned kernels gets it from "
               "`wavetune fetch --print-env`",
        .pattern = "/sys/class/drm/card*/device/vendor",
        .value = "1",
    },
    {
        .name = "perf_determinism",
        .kind = SETTING_CLOCK_LIMIT,
        .should = "perf_determinism at " CLOCK_MHZ " MHz",
        .why = "the power limit does not lower such a clock further, so that runs are comparable",
        .pattern = "/sys/class/drm/card*/device/power_dpm_force_performance_level",
        .value = "perf_determinism",
    },
    {
        .name = "numa_balancing",
        .should = "0",
        .why = "page faults for NUMA balancing interrupt the host threads that launch GPU kernels",
        .pattern = "/proc/sys/kernel/numa_balancing",
        .value = "0",
    },
    {
        .name = "cpu_governor",
        .should = "performance",
        .why = "launches are late while the CPU raises its clock",
        .pattern = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
        .value = "performance",
    },
    {
        .name = "cpu_idle_state_1",
        .should = "1 (disabled)",
        .why = "waking from an idle state delays launches and the end of waits; `cpupower "
               "idle-set -d 1` disables it",
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

/* Reads the file `name` in the folder of `path`. */
static bool value_read_beside(const char *path, const char *name, char value[VALUE_MAX]) {
  cleanup_free char *other = xasprintf("%.*s%s", (int)(strrchr(path, '/') + 1 - path), path, name);
  return value_read(other, value);
}

struct file {
  char *path;
  char value[VALUE_MAX]; /* when it was found */
};

struct files {
  size_t n;
  struct file *all;
};

static void files_release(struct files *files) {
  array_foreach (file, files->all, files->n)
    free(file->path);
  free(files->all);
}
#define cleanup_files __attribute__((cleanup(files_release)))

/* The files of a setting that can be read. */
static struct files files_find(const char *root, const struct setting *setting) {
  cleanup_free char *pattern = xasprintf("%s%s", root, setting->pattern);
  char vendor[VALUE_MAX];
  struct files files = {0};
  glob_t found = {0};
  size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;

  array_foreach (path, found.gl_pathv, n) {
    struct file file = {.path = *path};
    bool is_meant =
        setting->kind == SETTING_FILE || (value_read_beside(file.path, "vendor", vendor) &&
                                          string_equal(vendor, "0x1002")); /* AMD */
    if (!is_meant || !value_read(file.path, file.value))
      continue;
    file.path = xstrdup(file.path);
    *APPEND(files.all, files.n) = file;
  }

  globfree(&found);
  return files;
}

static struct setting_finding setting_check(const char *root, const struct setting *setting) {
  struct setting_finding finding = {setting->name, setting->should, setting->why, NULL,
                                    SETTING_GOOD};
  cleanup_files struct files files = files_find(root, setting);
  /* The GPUs that `set` found to have no clock limit, by their device ids: another GPU in the same
   * place may have one. */
  cleanup_free char *path = xasprintf("%s" UNSUPPORTED, root), *text = NULL;
  struct error ignored;
  size_t size;
  bool is_stored = file_read(path, SAVED_MAX, &text, &size, &ignored);
  cleanup_json json_t *unsupported = is_stored ? json_loadb(text, size, 0, NULL) : NULL;
  cleanup_free char *kfd = xasprintf("%s/dev/kfd", root);
  bool is_rocm = setting->kind == SETTING_VARIABLE && (files.n || access(kfd, F_OK) == 0);
  const char *variable = getenv(setting->name), *other = NULL;
  size_t n_other = 0, n_unsupported = 0;

  array_foreach (file, files.all, files.n) {
    if (string_equal(file->value, setting->value))
      continue;
    const char *id = json_text(unsupported, file->path + strlen(root));
    char value[VALUE_MAX];
    if (id && value_read_beside(file->path, "device", value) && string_equal(id, value)) {
      n_unsupported++;
      continue;
    }
    other = file->value;
    n_other++;
  }

  if (is_rocm) {
    finding.state = string_equal(variable, setting->value) ? SETTING_GOOD : SETTING_DIFFERS;
    finding.is = xstrdup(variable ? variable : "not set");
  } else if (!files.n) {
    finding.state = SETTING_ABSENT;
    finding.is =
        xasprintf("no %s", setting->kind == SETTING_FILE ? setting->pattern : "AMD GPU here");
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

void machine_settings_check(const char *root, struct settings_findings *ret_findings) {
  *ret_findings = (struct settings_findings){
      ARRAY_LENGTH(settings), xcalloc(ARRAY_LENGTH(settings), sizeof *ret_findings->all)};
  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
    ret_findings->all[i] = setting_check(root, &settings[i]);
}

void settings_findings_release(struct settings_findings *findings) {
  array_foreach (finding, findings->all, findings->n)
    free(finding->is);
  free(findings->all);
  *findings = (struct settings_findings){0};
}

json_t *settings_findings_differing(const struct settings_findings *findings) {
  json_t *names = json_array();
  array_foreach (finding, findings->all, findings->n)
    if (finding->state == SETTING_DIFFERS)
      json_push(names, json_string(finding->name));
  return names;
}

void settings_changes_release(struct settings_changes *changes) {
  array_foreach (change, changes->all, changes->n)
    free(change->why);
  free(changes->all);
  *changes = (struct settings_changes){0};
}

bool settings_changes_failed(const struct settings_changes *changes) {
  array_foreach (change, changes->all, changes->n)
    if (change->result == CHANGE_REFUSED)
      return true;
  return false;
}

/* The results of changing the files of one setting. */
struct tally {
  size_t n, n_changed, n_refused, n_unsupported;
  struct error refused, unsupported; /* reasons: the first of n_refused, the last of the other */
};

static void tally_add(struct tally *tally, bool is_changed, const struct error *error) {
  if (is_changed)
    tally->n_changed++;
  else if (!tally->n_refused++)
    tally->refused = *error;
}

static struct setting_change tally_result(const struct tally *tally, const char *name) {
  struct setting_change change = {name, CHANGE_ALREADY, NULL};
  if (tally->n_refused) {
    change.result = CHANGE_REFUSED;
    change.why = tally->n_refused > 1
                     ? xasprintf("%s (and %zu more)", tally->refused.message, tally->n_refused - 1)
                     : xstrdup(tally->refused.message);
  } else if (tally->n_changed) {
    change.result = CHANGE_DONE;
    if (tally->n_unsupported)
      change.why = xasprintf("%zu of %zu GPUs do not support it", tally->n_unsupported, tally->n);
  } else if (tally->n_unsupported) {
    change.result = CHANGE_UNSUPPORTED;
    change.why = xstrdup(tally->unsupported.message);
  }

  if (!change.why)
    change.why = xstrdup("");
  return change;
}

/* amd-smi, else its predecessor rocm-smi. Both need root. */
struct smi {
  char *path;       /* NULL: neither is installed */
  bool is_for_each; /* amd-smi: one call for each GPU, by its PCI address. rocm-smi numbers GPUs in
                       an order of its own: one call for all */
};

static void smi_release(struct smi *smi) { free(smi->path); }
#define cleanup_smi __attribute__((cleanup(smi_release)))

static struct smi smi_find(void) {
  static const struct {
    const char *program;
    bool is_for_each;
  } known[] = {{"amd-smi", true},
               {"rocm-smi", false},
               {"/opt/rocm/bin/amd-smi", true},
               {"/opt/rocm/bin/rocm-smi", false}};
  struct error ignored;

  list_foreach (tool, known) {
    const char *program = tool->program;
    struct smi smi = {NULL, tool->is_for_each};
    if (program[0] == '/' ? access(program, X_OK) == 0
                          : program_find(program, &smi.path, &ignored)) {
      smi.path = smi.path ? smi.path : xstrdup(program);
      return smi;
    }
  }

  return (struct smi){0};
}

enum smi_answer {
  SMI_DONE,        /* it exited with 0; whether it changed something is for the caller to check */
  SMI_UNSUPPORTED, /* the GPU, its firmware or its driver has no such limit */
  SMI_FAILED,
};

/* Limits the core clock of the card whose file this is, or lifts the limit. `error` is set unless
 * SMI_DONE. The exit status is not reliable: rocm-smi, and amd-smi in some versions, exit with 0
 * after a refusal. */
static enum smi_answer smi_limit(const struct smi *smi, const char *file, bool lifts,
                                 struct error *error) {
  /* The address is the name of the folder that /sys/class/drm/card1/device leads to. */
  cleanup_free char *folder = xstrndup(file, (size_t)(strrchr(file, '/') - file));
  cleanup_free char *real = realpath(folder, NULL);
  const char *address = real ? strrchr(real, '/') + 1 : "unknown";
  const char *clock = lifts ? NULL : CLOCK_MHZ;
  const char *const for_each[] = {
      smi->path, lifts ? "reset" : "set", "--gpu", address, "--perf-determinism", clock, NULL};
  const char *const for_all[] = {
      smi->path, lifts ? "--resetperfdeterminism" : "--setperfdeterminism", clock, NULL};
  const char *const environment[] = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
  struct command command = {.arguments =
                                (char *const *)(uintptr_t)(smi->is_for_each ? for_each : for_all),
                            .environment = (char *const *)(uintptr_t)environment,
                            .timeout_ms = SMI_MS,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)4 << 30,
                            .file_bytes_max = (uint64_t)1 << 20,
                            .output_max = SMI_OUTPUT_MAX,
                            .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return SMI_FAILED;

  /* amd-smi: AMDSMI_STATUS_NOT_SUPPORTED; rocm-smi: "…, Not supported on the given system". */
  cleanup_free char *output = result.output;
  bool is_unsupported =
      strcasestr(output, "NOT_SUPPORTED") || strcasestr(output, "not supported on the");
  if (result.succeeded && !is_unsupported)
    return SMI_DONE;

  /* What it printed as one line, without empty lines and frames of "=". */
  char words[SMI_LINE_MAX + 1] = "";
  size_t length = 0;

  for (char *rest = output, *line; length < SMI_LINE_MAX && (line = strsep(&rest, "\r\n"));) {
    line += strspn(line, " \t");
    if (*line && *line != '=')
      length +=
          (size_t)snprintf(words + length, sizeof words - length, "%s%s", length ? "; " : "", line);
  }

  error_set(error, "`%s %s` %s: %s", smi->path, command.arguments[1],
            result.timed_out ? "did not end within 30 s"
            : is_unsupported ? "reports"
                             : "failed",
            words[0] ? words : "it printed nothing");
  return is_unsupported ? SMI_UNSUPPORTED : SMI_FAILED;
}

/* Limits the clock of each GPU that has no such limit yet. `unsupported` gets those that cannot
 * have one. */
static void limits_set(const char *root, const struct setting *setting, const struct files *files,
                       json_t *unsupported, struct tally *tally) {
  cleanup_smi struct smi smi = smi_find();
  enum smi_answer answer = SMI_FAILED;
  struct error error, ignored;
  bool was_run = false;
  char value[VALUE_MAX] = "", device[VALUE_MAX];

  array_foreach (file, files->all, files->n) {
    if (string_equal(file->value, setting->value))
      continue;
    if (!smi.path)
      error_set(&error,
                "the GPU's clock limit is set by amd-smi or rocm-smi, and neither is in $PATH or "
                "/opt/rocm/bin; install amd-smi-lib");
    else if (smi.is_for_each || !was_run)
      answer = smi_limit(&smi, file->path, false, &error);
    was_run = true;

    bool is_set = value_read(file->path, value) && string_equal(value, setting->value);
    if (answer == SMI_UNSUPPORTED) {
      /* The driver accepted the mode although the firmware refused the limit: undone, because it
       * would look like a limit. */
      if (is_set)
        (void)!value_write(file->path, file->value, &ignored);
      if (value_read_beside(file->path, "device", device))
        json_put(unsupported, file->path + strlen(root), json_string(device));
      tally->unsupported = error;
      tally->n_unsupported++;
    } else {
      if (!is_set && answer == SMI_DONE)
        error_set(&error, "`%s` changed nothing: %s is %s; run it as root", smi.path, file->path,
                  value);
      tally_add(tally, is_set, &error);
    }
  }
}

static struct setting_change setting_set(const char *root, const struct setting *setting) {
  cleanup_files struct files files = files_find(root, setting);
  cleanup_json json_t *unsupported = json_object();
  struct tally tally = {.n = files.n};
  struct error error;

  if (!files.n)
    return (struct setting_change){setting->name, CHANGE_ABSENT, xstrdup("")};

  switch (setting->kind) {
  case SETTING_VARIABLE: {
    bool is_good = string_equal(getenv(setting->name), setting->value);
    return (struct setting_change){
        setting->name, is_good ? CHANGE_ALREADY : CHANGE_DONE,
        xstrdup(is_good ? "" : "in the shell that evaluates the printed `export`")};
  }

  case SETTING_FILE:
    array_foreach (file, files.all, files.n)
      if (!string_equal(file->value, setting->value))
        tally_add(&tally, value_write(file->path, setting->value, &error), &error);
    return tally_result(&tally, setting->name);
  case SETTING_CLOCK_LIMIT:
    break;
  }

  limits_set(root, setting, &files, unsupported, &tally);
  struct setting_change change = tally_result(&tally, setting->name);

  /* `check` reads this file. */
  cleanup_free char *path = xasprintf("%s" UNSUPPORTED, root);
  cleanup_free char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
  cleanup_free char *text = json_canonical(unsupported);
  bool is_stored = json_object_size(unsupported)
                       ? folder_make(folder, 0755, &error) &&
                             file_write_atomically(path, text, strlen(text), 0644, &error)
                       : unlink(path) == 0 || errno == ENOENT ||
                             error_set(&error, "cannot remove %s: %s", path, strerror(errno));
  if (!is_stored) {
    cleanup_free char *why = change.why;
    change.why = xasprintf("%s; `env check` will not report that: %s", why, error.message);
  }
  return change;
}

bool machine_settings_set(const char *root, const char *saved, struct settings_changes *ret_changes,
                          struct error *error) {
  if (access(saved, F_OK) != 0) {
    cleanup_json json_t *before = json_object(); /* {"/sys/…": "powersave", …} */
    list_foreach (setting, settings) {
      cleanup_files struct files files = files_find(root, setting);
      for (size_t k = 0; setting->kind != SETTING_VARIABLE && k < files.n; k++)
        if (!string_equal(files.all[k].value, setting->value))
          json_put(before, files.all[k].path + strlen(root), json_string(files.all[k].value));
    }
    cleanup_free char *text = json_canonical(before);
    if (!file_write_atomically(saved, text, strlen(text), 0600, error))
      return false;
  }

  *ret_changes = (struct settings_changes){
      ARRAY_LENGTH(settings), xcalloc(ARRAY_LENGTH(settings), sizeof *ret_changes->all)};

  for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
    ret_changes->all[i] = setting_set(root, &settings[i]);
  return true;
}

/* The setting whose files have the same name as this file; NULL: none. */
static const struct setting *setting_of(const char *path) {
  list_foreach (setting, settings)
    if (setting->kind != SETTING_VARIABLE &&
        string_equal(strrchr(setting->pattern, '/'), strrchr(path, '/')))
      return setting;
  return NULL;
}

/* Restores one setting from the values of `files`. A clock limit is lifted by the tool; where that
 * fails, writing the file makes the driver lift it. */
static struct setting_change setting_reset(const char *root, const struct setting *setting,
                                           json_t *files) {
  cleanup_smi struct smi smi = setting->kind == SETTING_CLOCK_LIMIT ? smi_find() : (struct smi){0};
  struct tally tally = {0};
  const char *path;
  json_t *item;

  json_object_foreach (files, path, item) {
    cleanup_free char *file = xasprintf("%s%s", root, path);
    const char *before = json_string_value(item);
    char value[VALUE_MAX];
    struct error error;
    if (setting_of(path) != setting)
      continue;
    tally.n++;
    if (!value_read(file, value) || string_equal(value, before))
      continue;
    bool is_lifted = smi.path && string_equal(value, setting->value) &&
                     smi_limit(&smi, file, true, &error) == SMI_DONE && value_read(file, value) &&
                     string_equal(value, before);
    tally_add(&tally, is_lifted || value_write(file, before, &error), &error);
  }

  return tally_result(&tally, setting->name);
}

bool machine_settings_reset(const char *root, const char *saved,
                            struct settings_changes *ret_changes, struct error *error) {
  struct settings_changes changes = {0};
  cleanup_free char *text = NULL;
  size_t size;
  const char *path;
  json_t *value;
  if (access(saved, F_OK) != 0) {
    *ret_changes = changes;
    return true;
  }

  if (!file_read(saved, SAVED_MAX, &text, &size, error))
    return false;

  cleanup_json json_t *files = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  bool is_whole = json_is_object(files);

  json_object_foreach (files, path, value)
    is_whole = is_whole && path[0] == '/' && !strstr(path, "/../") && setting_of(path) &&
               json_is_string(value);
  if (!is_whole)
    return error_set(error, "%s has no settings that `env set` saved; inspect and remove it",
                     saved);

  changes.all = xcalloc(ARRAY_LENGTH(settings), sizeof *changes.all);
  list_foreach (setting, settings)
    if (setting->kind != SETTING_VARIABLE)
      changes.all[changes.n++] = setting_reset(root, setting, files);
  if (!settings_changes_failed(&changes) && unlink(saved) < 0) {
    settings_changes_release(&changes);
    return error_set(error, "cannot remove %s: %s", saved, strerror(errno));
  }

  *ret_changes = changes;
  return true;
}
