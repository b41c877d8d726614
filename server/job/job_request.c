/* Reading submitted jobs. Memory and threads: as the header says. */
#include "server/job/job_request.h"

#include <math.h>

#include "common/campaign/campaign.h"

#define BUDGET_SECONDS_MAX 1e7

static const struct field search_fields[] = {
    {"strategy", FIELD_ENUM, offsetof(struct job_search, strategy), FIELD_REQUIRED,
     "search_strategy", .names = search_strategy_names},
    {"trials", FIELD_INTEGER, offsetof(struct job_search, trials), FIELD_REQUIRED, "search_trials",
     .least = 1, .most = SEARCH_TRIALS_MAX},
};
const struct record job_search_record = RECORD("Search", struct job_search, search_fields);

static const struct field finals_fields[] = {
    {"devices", FIELD_INTEGER, offsetof(struct job_finals, devices), FIELD_NOT_NULL,
     "final_devices", .least = 1, .most = FINAL_DEVICES_MAX, .about = "1 where it is left out"},
};
const struct record job_finals_record = RECORD("Finals", struct job_finals, finals_fields);

static const struct field budget_fields[] = {
    {"device_seconds", FIELD_NUMBER, offsetof(struct job_budget, device_seconds), FIELD_REQUIRED,
     "budget_device_seconds", .least_number = BUDGET_LEAST_US * 1e-6,
     .most_number = BUDGET_SECONDS_MAX, .about = "any final takes the least of them"},
};
const struct record job_budget_record = RECORD("Budget", struct job_budget, budget_fields);

const char *const job_purpose_names[] = {
    [PURPOSE_TUNE] = "tune", [PURPOSE_REVALIDATE] = "revalidate", NULL};

static const struct field request_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct job_request, kernel), FIELD_REQUIRED},
    {"key", FIELD_JSON, offsetof(struct job_request, key), FIELD_REQUIRED | FIELD_OBJECT,
     .schema = "{\"$ref\": \"#/components/schemas/Key\"}"},
    {"space", FIELD_JSON, offsetof(struct job_request, space), FIELD_REQUIRED | FIELD_OBJECT,
     .schema = "{\"$ref\": \"#/components/schemas/Space\"}"},
    {"environment", FIELD_JSON, offsetof(struct job_request, environment_stated), FIELD_REQUIRED,
     .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"},
    /* Names that people type into URLs and shells. */
    {"tag", FIELD_TEXT, offsetof(struct job_request, tag), FIELD_NOT_NULL | FIELD_LINE, .least = 1,
     .most = JOB_TEXT_MAX,
     .schema =
         "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 200, \"default\": \"default\"}"},
    {"run", FIELD_TEXT, offsetof(struct job_request, run), FIELD_NOT_NULL | FIELD_LINE,
     .most = JOB_TEXT_MAX,
     .schema = "{\"type\": \"string\", \"maxLength\": 200, \"default\": \"\"}"},
    {"regime", FIELD_ENUM, offsetof(struct job_request, regime), FIELD_NOT_NULL,
     .names = regime_names, .schema = "{\"$ref\": \"#/components/schemas/Regime\"}"},
    {"purpose", FIELD_ENUM, offsetof(struct job_request, purpose), FIELD_NOT_NULL,
     .names = job_purpose_names,
     .schema =
         "{\"type\": \"string\", \"enum\": [\"tune\", \"revalidate\"], \"default\": \"tune\"}"},
    {"priority", FIELD_INTEGER, offsetof(struct job_request, priority), FIELD_NOT_NULL,
     .least = -1000, .most = 1000,
     .schema = "{\"type\": \"integer\", \"minimum\": -1000, \"maximum\": 1000, \"default\": 0}"},
    {"budget", FIELD_RECORD, offsetof(struct job_request, budget), .of = &job_budget_record},
    {"runner", FIELD_TEXT, offsetof(struct job_request, runner),
     .schema = "{\"type\": \"string\", \"enum\": [\"build\"]}"},
    {"search", FIELD_RECORD, offsetof(struct job_request, search), .of = &job_search_record},
    {"finals", FIELD_RECORD, offsetof(struct job_request, finals), .of = &job_finals_record},
};
const struct record job_request_record = RECORD("JobRequest", struct job_request, request_fields);

void job_request_release(struct job_request *request) {
  environment_release(&request->environment);
  record_release(&job_request_record, request);
}

static bool request_read(const json_t *json, struct job_request *request, struct error *error) {
  record_init(&job_request_record, request);
  request->tag = xstrdup("default");
  request->run = xstrdup("");
  request->regime = REGIME_COLD;
  request->purpose = PURPOSE_TUNE;
  request->priority = 0;
  request->finals.devices = 1;
  if (!record_read(&job_request_record, json, "", request, error))
    return false;

  if (request->runner && strcmp(request->runner, "build") != 0)
    return error_at(error, "/runner",
                    "\"runner\" is \"%.40s\", which no agent has; agents run compiled code: leave "
                    "it out, and pack "
                    "Triton kernels with `python3 -m wavetune pack`",
                    request->runner);
  if (!environment_parse(request->environment_stated, &request->environment, error))
    return error_pointer_prefix(error, "/environment");

  request->search.wanted = request->search.trials != FIELD_NONE;
  request->budget_ms =
      isnan(request->budget.device_seconds) ? 0 : llround(request->budget.device_seconds * 1000);
  return true;
}

bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error) {
  struct job_request request;
  if (!request_read(json, &request, error)) {
    job_request_release(&request);
    return false;
  }
  *ret = request;
  return true;
}
