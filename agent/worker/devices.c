/* Probes devices in a worker, and reads the versions of Python packages with a script. */
#include "agent/worker/devices.h"

#include "agent/worker/worker_client.h"
#include "common/program/command.h"

#define PROBE_MS 60000 /* a GPU driver may have to wake every device first */
#define PYTHON_MS 20000
#define VERSION_MAX 200

/* Looks where `import` would look, except in the current folder, whose files are not installed. */
static const char script[] =
    "import importlib.util as u, json, os, re, sys\n"
    "sys.path = [p for p in sys.path if p]\n"
    "def text(package, name):\n"
    "    spec = u.find_spec(package)\n"
    "    if spec is None or not spec.origin: return None\n"
    "    try: return open(os.path.join(os.path.dirname(spec.origin), name), "
    "encoding='utf-8').read()\n"
    "    except OSError: return None\n"
    "def value(source, name):\n"
    "    found = source and re.search(r'^' + name + "
    "r\"(?:\\s*:[^=\\n]*)?\\s*=\\s*['\\\"]([^'\\\"]+)['\\\"]\", source, "
    "re.M)\n"
    "    return found.group(1) if found else None\n"
    "torch, triton = text('torch', 'version.py'), text('triton', '__init__.py')\n"
    "print(json.dumps({'torch': value(torch, '__version__'), 'hip': value(torch, 'hip'),\n"
    "                  'triton': value(triton, '__version__')}))\n";

bool python_versions_read(const char *interpreter, struct python_versions *ret_versions,
                          struct error *error) {
  static const char *const members[] = {"torch", "hip", "triton", NULL};
  cleanup_free char *path = NULL;
  struct error ignored;
  if (strchr(interpreter, '/'))
    path = xstrdup(interpreter);
  else if (!program_find(interpreter, &path, &ignored))
    return error_set(error,
                     "there is no `%.100s` in $PATH; give the path of the Python interpreter",
                     interpreter);

  char *const arguments[] = {path, (char *)"-c", (char *)(uintptr_t)script, NULL};
  struct command command = {.arguments = arguments,
                            .environment = environ,
                            .timeout_ms = PYTHON_MS,
                            .cpu_seconds_max = 20,
                            .memory_bytes_max = (uint64_t)4 << 30,
                            .file_bytes_max = 1 << 20,
                            .output_max = 4096,
                            .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;

  cleanup_free char *output = result.output;
  output[strcspn(output, "\n")] = '\0';
  if (!result.succeeded)
    return error_set(error, "%s cannot report its torch and triton: %.200s", path,
                     result.timed_out ? "it did not end in time" : output);

  cleanup_json json_t *answer = json_loads(output, 0, NULL);
  if (!json_is_object(answer) || !json_only_members(answer, "", members, &ignored))
    return error_set(error, "%s did not report its torch and triton: %.120s", interpreter, output);

  char **texts[] = {&ret_versions->torch, &ret_versions->torch_hip, &ret_versions->triton};
  for (size_t i = 0; members[i]; i++) {
    const char *text = json_text(answer, members[i]);
    *texts[i] = text ? xstrndup(text, VERSION_MAX) : NULL;
  }

  return true;
}

void python_versions_release(struct python_versions *versions) {
  free(versions->torch);
  free(versions->triton);
  free(versions->torch_hip);
  *versions = (struct python_versions){0};
}

/* Takes over what the worker reported. */
static bool devices_read(const json_t *answer, struct devices *devices, struct error *error) {
  json_t *array = NULL, *item;
  size_t i;
  const char *reason = json_text(answer, "error");

  if (reason)
    return error_set(error, "the devices cannot be probed: %s", reason);
  if (!json_get_array(answer, "", "devices", JSON_REQUIRED, &array, error))
    return false;

  devices->absent = json_incref(json_object_get(answer, "absent"));
  devices->seen = xcalloc(json_array_size(array), sizeof *devices->seen);
  json_array_foreach (array, i, item) {
    struct device_seen *seen = &devices->seen[i];
    json_t *environment = NULL;
    if (!json_get_string(item, "", "device", JSON_REQUIRED, &seen->name, error) ||
        !json_get_string(item, "", "backend", JSON_REQUIRED, &seen->backend, error) ||
        !json_get_object(item, "", "environment", JSON_REQUIRED, &environment, error) ||
        !json_get_array(item, "", "runs", JSON_REQUIRED, &seen->runs, error) ||
        !environment_parse(environment, &seen->environment, error))
      return false;
    seen->json = json_incref(item);
    devices->n++;
    if (!environment_is_full(&seen->environment, error))
      return error_prefix(error, "device %s: ", seen->name);
  }
  return true;
}

char *devices_absent(const struct devices *devices) {
  json_t *absent;
  size_t i;
  char *text = xstrdup("");

  json_array_foreach (devices->absent, i, absent) {
    cleanup_free char *shorter = text;
    text = xasprintf("%s%sno %s: %s", shorter, i ? "; " : "", json_text(absent, "backend"),
                     json_text(absent, "reason"));
  }
  return text;
}

static void text_set(char **text, const char *with) {
  if (!with)
    return;
  free(*text);
  *text = xstrdup(with);
}

void devices_set_python(struct devices *devices, const struct python_versions *versions) {
  array_foreach (device, devices->seen, devices->n) {
    if (string_equal(device->backend, "cpu"))
      continue;
    text_set(&device->environment.torch, versions->torch);
    text_set(&device->environment.triton, versions->triton);
    json_put(device->json, "environment", environment_to_json(&device->environment));
  }
}

bool devices_query(struct spawner *spawner, const char *python, struct devices *ret_devices,
                   struct error *error) {
  cleanup_python_versions struct python_versions versions = {0};
  struct worker_client *worker;
  struct worker_limits limits = {.open_ms = PROBE_MS, .config_ms = PROBE_MS};
  cleanup_json json_t *request = json_pack("{s:s}", "do", "probe"), *answer = NULL;
  struct worker_end end;
  if ((python && !python_versions_read(python, &versions, error)) ||
      !worker_start(spawner, limits, &worker, error))
    return false;

  worker_request(worker, request);
  enum worker_event event = worker_next(worker, NULL, NULL, NULL, &answer, &end);
  worker_free(worker);
  if (event != WORKER_ANSWER)
    return error_set(error, "the devices cannot be probed: %s", end.detail);

  cleanup_devices struct devices devices = {0};
  if (!devices_read(answer, &devices, error))
    return false;

  devices_set_python(&devices, &versions);
  *ret_devices = devices;
  devices = (struct devices){0};
  return true;
}

void devices_release(struct devices *devices) {
  array_foreach (device, devices->seen, devices->n) {
    environment_release(&device->environment);
    json_decref(device->json);
  }
  free(devices->seen);
  json_decref(devices->absent);
  *devices = (struct devices){0};
}

bool devices_find(const struct devices *devices, const char *name,
                  const struct device_seen **ret_device, struct error *error) {
  cleanup_json json_t *known = json_array();
  array_foreach (seen, devices->seen, devices->n) {
    if (!name || string_equal(seen->name, name)) {
      *ret_device = seen;
      return true;
    }
    json_push(known, json_string(seen->name));
  }

  cleanup_free char *names = json_texts_join(known, ", ");
  return devices->n
             ? error_set(error, "there is no device \"%.40s\" here; there are %s", name, names)
             : error_set(error, "this machine has no device that can be measured on");
}
