/* Reading submitted jobs. Memory and threads: as the header says. */
#include "server/job/job_request.h"

#include <math.h>

#include "common/campaign/campaign.h"

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
  if (!(seconds >= BUDGET_LEAST_US * 1e-6 && seconds <= BUDGET_SECONDS_MAX))
    return error_at(error, "/budget/device_seconds",
                    "\"device_seconds\" is %g; it must be %g, which any final takes, to %g", seconds,
                    BUDGET_LEAST_US * 1e-6, BUDGET_SECONDS_MAX);
  *ret_ms = llround(seconds * 1000);
  return true;
}

static bool search_parse(const json_t *json, struct job_search *ret, struct error *error) {
  static const char *const members[] = {"strategy", "trials", NULL};
  json_t *search = NULL;
  const char *strategy;
  if (!json_get_object(json, "", "search", JSON_OPTIONAL, &search, error))
    return false;
  if (!search)
    return true;
  if (!json_only_members(search, "/search", members, error) ||
      !json_get_string(search, "/search", "strategy", JSON_REQUIRED, &strategy, error) ||
      !json_get_integer(search, "/search", "trials", JSON_REQUIRED, 1, SEARCH_TRIALS_MAX, &ret->trials, error))
    return false;
  if (!search_strategy_parse(strategy, &ret->strategy))
    return error_at(error, "/search/strategy", "\"strategy\" is \"%.40s\"; it must be random, descent or evolution",
                    strategy);
  ret->wanted = true;
  return true;
}

static bool finals_parse(const json_t *json, int64_t *ret_devices, struct error *error) {
  static const char *const members[] = {"devices", NULL};
  json_t *finals = NULL;
  return json_get_object(json, "", "finals", JSON_OPTIONAL, &finals, error) &&
         (!finals ||
          (json_only_members(finals, "/finals", members, error) &&
           json_get_integer(finals, "/finals", "devices", JSON_NOT_NULL, 1, FINAL_DEVICES_MAX, ret_devices, error)));
}

bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error) {
  static const char *const members[] = {"kernel",  "key",      "space",  "environment", "tag",    "run",    "regime",
                                        "purpose", "priority", "budget", "runner",      "search", "finals", NULL};
  struct job_request request = {.tag = "default", .run = "", .final_devices = 1};
  json_t *key, *space, *environment;
  const char *runner = "build", *purpose = "tune";
  if (!json_only_members(json, "", members, error) ||
      !json_get_digest(json, "", "kernel", JSON_REQUIRED, &request.kernel, error) ||
      !json_get_object(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_object(json, "", "space", JSON_REQUIRED, &space, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_string(json, "", "tag", JSON_NOT_NULL, &request.tag, error) ||
      !text_check("tag", request.tag, false, error) ||
      !json_get_string(json, "", "run", JSON_NOT_NULL, &request.run, error) ||
      !text_check("run", request.run, true, error) || !regime_get(json, "", &request.regime, error) ||
      !json_get_integer(json, "", "priority", JSON_NOT_NULL, -1000, 1000, &request.priority, error) ||
      !json_get_string(json, "", "runner", JSON_OPTIONAL, &runner, error) ||
      !json_get_string(json, "", "purpose", JSON_NOT_NULL, &purpose, error) ||
      !budget_parse(json, &request.budget_ms, error) || !search_parse(json, &request.search, error) ||
      !finals_parse(json, &request.final_devices, error))
    return false;
  if (strcmp(runner, "build") != 0)
    return error_at(error, "/runner",
                    "\"runner\" is \"%.40s\", which no agent has; agents run compiled code: leave it out, and pack "
                    "Triton kernels with `python3 -m wavetune pack`",
                    runner);
  request.is_revalidation = strcmp(purpose, "revalidate") == 0;
  if (!request.is_revalidation && strcmp(purpose, "tune") != 0)
    return error_at(error, "/purpose", "\"purpose\" is \"%.40s\"; it must be tune or revalidate", purpose);
  if (!environment_parse(environment, &request.environment, error))
    return error_pointer_prefix(error, "/environment");
  request.key = key;
  request.space = space;
  *ret = request;
  return true;
}
