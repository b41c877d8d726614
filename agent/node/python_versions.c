/* Runs a script with the interpreter, for a limited time. */
#include "agent/node/python_versions.h"

#include "common/base/json.h"
#include "common/program/command.h"

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
    const char *text = json_string_value(json_object_get(answer, members[i]));
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
