/* The commands `probe` (the devices of this machine), `env` (the environment of a device) and `env
 * check|set|reset` (the settings of this machine that affect measurements). */
#include "agent/commands.h"
#include "agent/node/machine_settings.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"
#include "common/base/file.h"
#include "common/program/http_client.h"
#include "common/program/terminal.h"

static void json_print(const json_t *json) {
  cleanup_free char *text = json_canonical(json);
  puts(text);
}

static int probe_work(struct supervisor *supervisor, void *context) {
  struct error error;
  cleanup_devices struct devices devices = {0};
  const struct options *options = context;
  if (!devices_query(supervisor->spawner, option_text(options, "python"), &devices, &error))
    return command_failed("probe", EXIT_FAILED, &error);

  cleanup_json json_t *array = json_array();
  array_foreach (device, devices.seen, devices.n)
    json_array_append(array, device->json);
  cleanup_json json_t *answer =
      json_pack("{s:O, s:O?}", "devices", array, "absent", devices.absent);
  json_print(answer);
  return EXIT_OK;
}

static int probe_run(struct options *options) {
  struct supervisor supervisor = {.work = probe_work, .context = options};
  return supervise(&supervisor);
}

static const struct option_spec probe_options[] = {OPTION_PYTHON};

const struct command_spec probe_command = {
    .name = "probe",
    .arguments = "",
    .summary = "print the devices of this machine and their environments as JSON",
    .description = "A worker process loads the GPU runtimes of this machine. Back ends without a "
                   "device are listed with the reason.",
    .options = probe_options,
    .n_options = ARRAY_LENGTH(probe_options),
    .run = probe_run,
    .awaits_signals = true,
};

static void query_print(const json_t *environment) {
  const char *name, *separator = "";
  json_t *value;
  json_object_foreach ((json_t *)environment, name, value) {
    cleanup_free char *number =
        json_is_integer(value) ? xasprintf("%lld", (long long)json_integer_value(value)) : NULL;
    cleanup_free char *escaped = http_escape(number ? number : json_string_value(value));
    printf("%s%s=%s", separator, name, escaped);
    separator = "&";
  }
  putchar('\n');
}

static int env_work(struct supervisor *supervisor, void *context) {
  const struct options *options = context;
  struct error error;
  cleanup_devices struct devices devices = {0};
  const struct device_seen *device;
  if (!devices_query(supervisor->spawner, option_text(options, "python"), &devices, &error))
    return command_failed("env", EXIT_FAILED, &error);
  if (!devices_find(&devices, option_text(options, "device"), &device, &error))
    return command_failed("env", EXIT_USAGE, &error);

  cleanup_json json_t *environment = environment_to_json(&device->environment);
  if (option_flag(options, "query")) {
    query_print(environment);
  } else {
    json_print(environment);
  }

  return EXIT_OK;
}

static int env_run(struct options *options) {
  struct supervisor supervisor = {.work = env_work, .context = options};
  return supervise(&supervisor);
}

static const char *const state_names[] = {
    [SETTING_GOOD] = "good",
    [SETTING_DIFFERS] = "differs",
    [SETTING_ABSENT] = "absent",
    [SETTING_UNSUPPORTED] = "unsupported",
};

/* Prints a table, or one JSON object. */
static void findings_print(const struct settings_findings *findings, bool is_json) {
  static const char *const names[] = {"setting", "state", "is", "should", "why"};
  static const struct table_column columns[] = {
      {"SETTING"}, {"STATE"}, {"IS"}, {"SHOULD BE"}, {"WHY"}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  cleanup_json json_t *array = json_array();

  array_foreach (finding, findings->all, findings->n) {
    const char *const values[] = {finding->name, state_names[finding->state], finding->is,
                                  finding->should, finding->why};
    json_t *object = json_object();
    for (size_t k = 0; k < ARRAY_LENGTH(values); k++) {
      table_cell(table, "%s", values[k]);
      json_object_set_new(object, names[k], json_string(values[k]));
    }
    json_array_append_new(array, object);
  }

  if (is_json) {
    cleanup_json json_t *answer = json_pack("{s:O}", "settings", array);
    json_print(answer);
  } else {
    table_print(table, stdout);
  }
}

static const char *root_of(const struct options *options) {
  const char *root = option_text(options, "root");
  return root ? root : "";
}

static int check_run(struct options *options) {
  cleanup_settings_findings struct settings_findings findings = {0};
  bool differs = false;
  machine_settings_check(root_of(options), &findings);
  findings_print(&findings, option_flag(options, "json"));
  array_foreach (finding, findings.all, findings.n)
    differs = differs || finding->state == SETTING_DIFFERS;
  return differs ? EXIT_FAILED : EXIT_OK;
}

/* The file of the former settings, in a folder that is made if need be. */
static bool saved_path(const struct options *options, char **ret_path, struct error *error) {
  const char *given = option_text(options, "state");
  cleanup_free char *state = given ? xstrdup(given) : state_folder_default();
  if (!folder_make_private(state, error))
    return false;
  *ret_path = xasprintf("%s/machine-settings.json", state);
  return true;
}

/* Prints on stderr: stdout is for the shell. */
static void changes_print(const struct settings_changes *changes, const char *done) {
  const char *const results[] = {
      [CHANGE_DONE] = done,         [CHANGE_ALREADY] = "already right",
      [CHANGE_REFUSED] = "refused", [CHANGE_UNSUPPORTED] = "not supported",
      [CHANGE_ABSENT] = "absent",
  };
  static const struct table_column columns[] = {{"SETTING"}, {"RESULT"}, {"WHY"}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));

  array_foreach (change, changes->all, changes->n) {
    table_cell(table, "%s", change->name);
    table_cell(table, "%s", results[change->result]);
    table_cell(table, "%s", change->why);
  }

  table_print(table, stderr);
}

static int set_run(struct options *options) {
  struct error error;
  cleanup_free char *saved = NULL;
  cleanup_settings_changes struct settings_changes changes = {0};
  if (!saved_path(options, &saved, &error) ||
      !machine_settings_set(root_of(options), saved, &changes, &error))
    return command_failed("env set", EXIT_FAILED, &error);

  changes_print(&changes, "set");
  fprintf(stderr, "the former settings are saved in %s; `wavetune-agent env reset` restores them\n",
          saved);
  puts("export HIP_FORCE_DEV_KERNARG=1");
  return settings_changes_failed(&changes) ? EXIT_FAILED : EXIT_OK;
}

static int reset_run(struct options *options) {
  struct error error;
  cleanup_free char *saved = NULL;
  cleanup_settings_changes struct settings_changes changes = {0};
  if (!saved_path(options, &saved, &error) ||
      !machine_settings_reset(root_of(options), saved, &changes, &error))
    return command_failed("env reset", EXIT_FAILED, &error);
  if (changes.n)
    changes_print(&changes, "restored");
  else
    fprintf(stderr, "nothing was set: there is no %s\n", saved);
  if (settings_changes_failed(&changes))
    fprintf(stderr, "the former settings are still in %s; run `wavetune-agent env reset` again\n",
            saved);
  puts("unset HIP_FORCE_DEV_KERNARG");

  return settings_changes_failed(&changes) ? EXIT_FAILED : EXIT_OK;
}

static const struct option_spec env_options[] = {
    OPTION_PYTHON,
    {"device", OPTION_TEXT, "NAME",
     .help = "the device's name, as `probe` prints it; default: the first"},
    {"query", OPTION_FLAG, .help = "print a URL query for GET /v1/cache: rocm=…&gpu=…",
     .flag_only = true},
};

const struct command_spec env_command = {
    .name = "env",
    .arguments = "",
    .summary = "print the environment of a device as the JSON that jobs take",
    .options = env_options,
    .n_options = ARRAY_LENGTH(env_options),
    .run = env_run,
    .awaits_signals = true,
};

#define OPTION_ROOT                                                                                \
  {"root", OPTION_TEXT, "FOLDER", .help = "use /proc and /sys below this folder instead",          \
   .flag_only = true}

static const struct option_spec check_options[] = {
    {"json", OPTION_FLAG, .help = "print one JSON object instead of a table"},
    OPTION_ROOT,
};
static const struct option_spec change_options[] = {
    {"state", OPTION_TEXT, "FOLDER",
     .help = "folder with the saved settings; default: the agent's state folder"},
    OPTION_ROOT,
};

const struct command_spec env_check_command = {
    .name = "env check",
    .arguments = "",
    .summary = "list the settings of this machine that disturb measurements; changes nothing",
    .description =
        "Exit code 0: no setting differs; 1: some do. Settings that the machine or its GPU does "
        "not have are ignored.",
    .options = check_options,
    .n_options = ARRAY_LENGTH(check_options),
    .run = check_run,
};

const struct command_spec env_set_command = {
    .name = "env set",
    .arguments = "",
    .summary = "change these settings for measuring, and save the former values (root)",
    .description = "Prints what the shell has to export: eval \"$(wavetune-agent env set)\". "
                   "Setting twice keeps the values from before the first time. The result for each "
                   "setting is printed on stderr. Exit code 1: a setting could not be changed; the "
                   "others are set.",
    .options = change_options,
    .n_options = ARRAY_LENGTH(change_options),
    .run = set_run,
};

const struct command_spec env_reset_command = {
    .name = "env reset",
    .arguments = "",
    .summary = "restore the settings that `env set` saved (root)",
    .description = "Exit code 1: a setting could not be changed; the others are restored. Run it "
                   "again for the rest.",
    .options = change_options,
    .n_options = ARRAY_LENGTH(change_options),
    .run = reset_run,
};
