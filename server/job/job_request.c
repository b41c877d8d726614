/* Reading and checking a submitted job. Memory and threads: job_request.h. */
#include "server/job/job_request.h"

#include <math.h>

#include "common/campaign/campaign.h"
#include "common/verdict/budget.h"

#define BUDGET_SECONDS_MAX 1e7

static const struct field search_fields[] = {
    RECORD_FIELD(ENUM, struct job_search, strategy, FIELD_REQUIRED, "search_strategy",
                 .names = search_strategy_names),
    RECORD_FIELD(INTEGER, struct job_search, trials, FIELD_REQUIRED, "search_trials", .least = 1,
                 .most = SEARCH_TRIALS_MAX),
};
const struct record job_search_record = RECORD("Search", struct job_search, search_fields);

static const struct field finals_fields[] = {
    RECORD_FIELD(INTEGER, struct job_finals, devices, FIELD_NOT_NULL, "final_devices", .least = 1,
                 .most = FINAL_DEVICES_MAX, .about = "1 where it is left out"),
};
const struct record job_finals_record = RECORD("Finals", struct job_finals, finals_fields);

static const struct field budget_fields[] = {
    RECORD_FIELD(NUMBER, struct job_budget, device_seconds, FIELD_REQUIRED, "budget_device_seconds",
                 .least_number = BUDGET_LEAST_US * 1e-6, .most_number = BUDGET_SECONDS_MAX,
                 .about = "at least what the shortest possible final takes"),
};
const struct record job_budget_record = RECORD("Budget", struct job_budget, budget_fields);

const char *const job_purpose_names[] = {
    [PURPOSE_TUNE] = "tune", [PURPOSE_REVALIDATE] = "revalidate", NULL};

#define FIELD(type, member, ...) RECORD_FIELD(type, struct job_request, member, __VA_ARGS__)
static const struct field request_fields[] = {
    FIELD(DIGEST, kernel, FIELD_REQUIRED),
    FIELD(JSON, key, FIELD_REQUIRED | FIELD_OBJECT,
          .schema = "{\"$ref\": \"#/components/schemas/Key\"}"),
    FIELD(JSON, space, FIELD_REQUIRED | FIELD_OBJECT,
          .schema = "{\"$ref\": \"#/components/schemas/Space\"}"),
    FIELD(CUSTOM, environment, FIELD_REQUIRED, .custom = &environment_field),
    /* Tags and runs are typed into URLs and shells: no control characters. */
    FIELD(TEXT, tag, FIELD_NOT_NULL | FIELD_LINE, .least = 1, .most = JOB_TEXT_MAX,
          .schema = "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 200, \"default\": "
                    "\"default\"}"),
    FIELD(TEXT, run, FIELD_NOT_NULL | FIELD_LINE, .most = JOB_TEXT_MAX,
          .schema = "{\"type\": \"string\", \"maxLength\": 200, \"default\": \"\"}"),
    FIELD(ENUM, regime, FIELD_NOT_NULL, .names = regime_names,
          .schema = "{\"$ref\": \"#/components/schemas/Regime\"}"),
    FIELD(
        ENUM, purpose, FIELD_NOT_NULL, .names = job_purpose_names,
        .schema =
            "{\"type\": \"string\", \"enum\": [\"tune\", \"revalidate\"], \"default\": \"tune\"}"),
    FIELD(INTEGER, priority, FIELD_NOT_NULL, .least = -1000, .most = 1000,
          .schema =
              "{\"type\": \"integer\", \"minimum\": -1000, \"maximum\": 1000, \"default\": 0}"),
    FIELD(RECORD, budget, .of = &job_budget_record),
    FIELD(TEXT, runner, .schema = "{\"type\": \"string\", \"enum\": [\"build\"]}"),
    FIELD(RECORD, search, .of = &job_search_record),
    FIELD(RECORD, finals, .of = &job_finals_record),
};
#undef FIELD
const struct record job_request_record = RECORD("JobRequest", struct job_request, request_fields);

void job_request_release(struct job_request *request) {
  record_release(&job_request_record, request);
}

bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error) {
  __attribute__((cleanup(job_request_release))) struct job_request request;
  record_init(&job_request_record, &request);
  request.tag = xstrdup("default");
  request.run = xstrdup("");
  request.regime = REGIME_IMPLIED;
  request.purpose = PURPOSE_TUNE;
  request.priority = 0;
  request.finals.devices = 1;
  if (!record_read(&job_request_record, json, "", &request, error))
    return false;

  if (request.runner && strcmp(request.runner, "build") != 0)
    return error_at(error, "/runner",
                    "\"runner\" is \"%.40s\", which no agent has; agents run compiled code: leave "
                    "it out, and pack Triton kernels with `python3 -m wavetune pack`",
                    request.runner);

  request.search.wanted = request.search.trials != FIELD_NONE;
  request.budget_ms =
      isnan(request.budget.device_seconds) ? 0 : llround(request.budget.device_seconds * 1000);
  *ret = request;
  record_init(&job_request_record, &request);
  return true;
}
