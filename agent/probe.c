/* `probe` and `env`: what this machine can measure on, as a worker sees it. */
#include "agent/commands.h"
#include "agent/devices.h"
#include "agent/supervise.h"
#include "common/http_client.h"

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

static void query_print(const json_t *environment) {
  void *at;
  const char *name, *separator = "";
  json_t *value;
  json_t *members = (json_t *)environment;
  json_object_foreach_safe(members, at, name, value) {
    cleanup_free char *number = json_is_integer(value) ? xasprintf("%lld", (long long)json_integer_value(value)) : NULL;
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
  if (!devices_ask(supervisor->spawner, &devices, &error))
    return command_failed("env", EXIT_FAILED, &error);
  if (!devices_find(&devices, option_text(options, "device"), &device, &error))
    return command_failed("env", EXIT_USAGE, &error);
  cleanup_json json_t *environment = environment_to_json(&device->environment);
  if (option_flag(options, "query"))
    query_print(environment);
  else
    json_print(environment);
  return EXIT_OK;
}

static int env_run(struct options *options) {
  struct supervisor supervisor = {.work = env_work, .context = options};
  return supervise(&supervisor);
}

const struct command_spec probe_command = {
    .name = "probe",
    .arguments = "",
    .summary = "print the devices of this machine and their environments as JSON",
    .description = "A worker process loads the GPU runtimes that there are and asks them.",
    .run = probe_run,
};

static const struct option_spec env_options[] = {
    {"device", OPTION_TEXT, "NAME", NULL, 0, 0, "the device, as probe names it; default: the first", false},
    {"query", OPTION_FLAG, NULL, NULL, 0, 0, "print it as a URL query: rocm=…&gpu=…, what GET /v1/cache takes", true},
};

const struct command_spec env_command = {
    .name = "env",
    .arguments = "",
    .summary = "print the environment of a device as the JSON that jobs take",
    .options = env_options,
    .n_options = ARRAY_LENGTH(env_options),
    .run = env_run,
};
