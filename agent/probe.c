/* `probe`: what this machine can measure on, as a worker sees it. */
#include "agent/commands.h"
#include "agent/devices.h"
#include "agent/supervise.h"

static void json_print(const json_t *json) {
  cleanup_free char *text = json_canonical(json);
  puts(text);
}

static int probe_work(struct supervisor *supervisor, void *context) {
  struct error error;
  cleanup_devices struct devices devices = {0};
  (void)context;
  if (!devices_ask(supervisor->spawner, &devices, &error))
    return command_failed("probe", EXIT_FAILED, &error);
  cleanup_json json_t *array = json_array();
  for (size_t i = 0; i < devices.n; i++)
    json_array_append(array, devices.seen[i].json);
  cleanup_json json_t *answer = json_pack("{s:O}", "devices", array);
  json_print(answer);
  return EXIT_OK;
}

static int probe_run(struct options *options) {
  struct supervisor supervisor = {.work = probe_work, .context = options};
  return supervise(&supervisor);
}

const struct command_spec probe_command = {
    .name = "probe",
    .arguments = "",
    .summary = "print the devices of this machine and their environments as JSON",
    .description = "A worker process loads the GPU runtimes that there are and asks them.",
    .run = probe_run,
};
