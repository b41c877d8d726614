/* Reading submitted jobs. Memory and threads: as the header says. */
#include "server/core/job_request.h"

#include <math.h>

#define BUDGET_SECONDS_MAX 1e7

void job_request_release(struct job_request *request) { environment_release(&request->environment); }

/* Tags and runs are names that people type into URLs and shells. */
static bool text_check(const char *name, const char *text, bool may_be_empty, struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, "", name);
  if (!*text && !may_be_empty)
    return error_at(error, at, "\"%s\" is empty; leave it out for the default", name);
  if (strlen(text) > JOB_TEXT_MAX)
    return error_at(error, at, "\"%s\" has %zu bytes; at most %d are allowed", name, strlen(text), JOB_TEXT_MAX);
  for (const char *c = text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return error_at(error, at, "\"%s\" holds a control character", name);
  return true;
}

static bool budget_parse(const json_t *json, int64_t *ret_ms, struct error *error) {
  static const char *const members[] = {"device_seconds", NULL};
  json_t *budget = NULL;
  double seconds;
  if (!json_get_object(json, "", "budget", JSON_OPTIONAL, &budget, error))
    return false;
  if (!budget)
    return true;
  if (!json_only_members(budget, "/budget", members, error) ||
      !json_get_number(budget, "/budget", "device_seconds", JSON_REQUIRED, &seconds, error))
    return false;
  if (!(seconds >= 0.001 && seconds <= BUDGET_SECONDS_MAX))
    return error_at(error, "/budget/device_seconds", "\"device_seconds\" is %g; it must be 0.001 to %g", seconds,
                    BUDGET_SECONDS_MAX);
  *ret_ms = llround(seconds * 1000);
  return true;
}

bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error) {
  static const char *const members[] = {"kernel", "key",      "space",  "environment", "tag",
                                        "run",    "priority", "budget", "runner",      NULL};
  struct job_request request = {.tag = "default", .run = ""};
  json_t *key, *space, *environment;
  const char *runner = "build";
  if (!json_only_members(json, "", members, error) ||
      !json_get_digest(json, "", "kernel", JSON_REQUIRED, &request.kernel, error) ||
      !json_get_object(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_object(json, "", "space", JSON_REQUIRED, &space, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_string(json, "", "tag", JSON_OPTIONAL, &request.tag, error) ||
      !text_check("tag", request.tag, false, error) ||
      !json_get_string(json, "", "run", JSON_OPTIONAL, &request.run, error) ||
      !text_check("run", request.run, true, error) ||
      !json_get_integer(json, "", "priority", JSON_OPTIONAL, -1000, 1000, &request.priority, error) ||
      !json_get_string(json, "", "runner", JSON_OPTIONAL, &runner, error) ||
      !budget_parse(json, &request.budget_ms, error))
    return false;
  if (strcmp(runner, "build") != 0 && strcmp(runner, "python") != 0)
    return error_at(error, "/runner", "\"runner\" is \"%.40s\"; it must be \"build\" or \"python\"", runner);
  request.runner = strcmp(runner, "python") == 0 ? RUNNER_PYTHON : RUNNER_BUILD;
  if (!environment_parse(environment, &request.environment, error))
    return error_pointer_prefix(error, "/environment");
  request.key = key;
  request.space = space;
  *ret = request;
  return true;
}
