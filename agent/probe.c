/* `probe`: what this machine can measure on, as a worker sees it. */
#include "agent/commands.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"

static void json_print(const json_t *json) {
  cleanup_free char *text = json_canonical(json);
  puts(text);
}

static int probe_work(struct supervisor *supervisor, void *context) {
  struct error error;
  cleanup_devices struct devices devices = {0};
  const struct options *options = context;
  if (!devices_ask(supervisor->spawner, option_text(options, "python"), &devices, &error))
    return command_failed("probe", EXIT_FAILED, &error);
  cleanup_json json_t *array = json_array();
  for (size_t i = 0; i < devices.n; i++)
    json_array_append(array, devices.seen[i].json);
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
    .description = "A worker process loads the GPU runtimes that there are and asks them. Back "
                   "ends that have no device are "
                   "listed with the reason.",
    .options = probe_options,
    .n_options = ARRAY_LENGTH(probe_options),
    .run = probe_run,
};
