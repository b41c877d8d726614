/* Bodies of submitted jobs: defaults, and refusals with the pointer of the member. */
#include <criterion/criterion.h>

#include "server/job/job_request.h"

TestSuite(job_request);

#define KERNEL                                                                                     \
  "\"kernel\": \"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\""
#define JOB(members)                                                                               \
  "{" KERNEL ", \"key\": {\"n\": 1}, \"space\": {}, \"environment\": {\"cpu\": \"gcc\"}" members "}"

static bool parsed(const char *text, json_t **json, struct job_request *ret, struct error *error) {
  cr_assert(json_parse(text, strlen(text), json, error), "%s", error->message);
  return job_request_parse(*json, ret, error);
}

static void refuses(const char *text, const char *pointer) {
  cleanup_json json_t *json = NULL;
  struct job_request request;
  struct error error = {0};
  cr_expect_not(parsed(text, &json, &request, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s at %s", text, error.message, error.pointer);
}

Test(job_request, absent_members_have_defaults) {
  cleanup_json json_t *json = NULL;
  struct job_request request;
  struct error error;
  cr_assert(parsed(JOB(""), &json, &request, &error), "%s", error.message);
  cr_expect_str_eq(request.tag, "default");
  cr_expect_str_eq(request.run, "");
  cr_expect_eq(request.priority, 0);
  cr_expect_eq(request.budget_ms, 0);
  cr_expect_eq(request.regime, REGIME_COLD);
  cr_expect_eq(request.purpose, PURPOSE_TUNE);
  cr_expect_not(request.search.wanted);
  cr_expect_eq(request.finals.devices, 1);
  cr_expect_str_eq(request.environment.cpu, "gcc");
  job_request_release(&request);
}

Test(job_request, every_member_can_be_stated) {
  cleanup_json json_t *json = NULL;
  struct job_request request;
  struct error error;
  cr_assert(parsed(JOB(", \"tag\": \"t\", \"run\": \"r\", \"priority\": -7, \"budget\": "
                       "{\"device_seconds\": 1.5},"
                       " \"runner\": \"build\", \"regime\": \"warm\", \"purpose\": \"revalidate\", "
                       "\"search\": "
                       "{\"strategy\": \"evolution\", \"trials\": 500},"
                       " \"finals\": {\"devices\": 4}"),
                   &json, &request, &error),
            "%s", error.message);
  cr_expect_str_eq(request.tag, "t");
  cr_expect_str_eq(request.run, "r");
  cr_expect_eq(request.priority, -7);
  cr_expect_eq(request.budget_ms, 1500);
  cr_expect_eq(request.regime, REGIME_WARM);
  cr_expect_eq(request.purpose, PURPOSE_REVALIDATE);
  cr_expect(request.search.wanted);
  cr_expect_eq(request.search.strategy, SEARCH_EVOLUTION);
  cr_expect_eq(request.search.trials, 500);
  cr_expect_eq(request.finals.devices, 4);
  job_request_release(&request);
}

Test(job_request, wrong_members_are_refused_with_a_pointer) {
  refuses("[]", "");
  refuses("{" KERNEL ", \"space\": {}, \"environment\": {}}", "/key");
  refuses("{" KERNEL ", \"key\": {}, \"environment\": {}}", "/space");
  refuses("{" KERNEL ", \"key\": {}, \"space\": {}}", "/environment");
  refuses("{\"kernel\": \"sha256:1\", \"key\": {}, \"space\": {}, \"environment\": {}}", "/kernel");
  refuses("{" KERNEL ", \"key\": 7, \"space\": {}, \"environment\": {}}", "/key");
  refuses("{" KERNEL ", \"key\": {}, \"space\": [], \"environment\": {}}", "/space");
  refuses("{" KERNEL ", \"key\": {}, \"space\": {}, \"environment\": \"here\"}", "/environment");
  refuses(JOB(", \"prioritty\": 1"), "/prioritty");
  refuses(JOB(", \"priority\": 1001"), "/priority");
  refuses(JOB(", \"tag\": \"\""), "/tag");
  refuses(JOB(", \"tag\": \"a\\u0007\""), "/tag");
  refuses(JOB(", \"run\": 7"), "/run");
  refuses(JOB(", \"runner\": \"python\""), "/runner");
  refuses(JOB(", \"regime\": \"tepid\""), "/regime");
  refuses(JOB(", \"purpose\": \"fun\""), "/purpose");
  refuses(JOB(", \"budget\": {}"), "/budget/device_seconds");
  refuses(JOB(", \"budget\": {\"device_seconds\": 0}"), "/budget/device_seconds");
  refuses(JOB(", \"budget\": {\"device_seconds\": 0.0017}"), "/budget/device_seconds");
  refuses(JOB(", \"budget\": {\"seconds\": 1}"), "/budget/seconds");
  refuses(JOB(", \"search\": {\"strategy\": \"random\"}"), "/search/trials");
  refuses(JOB(", \"search\": {\"strategy\": \"luck\", \"trials\": 5}"), "/search/strategy");
  refuses(JOB(", \"search\": {\"strategy\": \"random\", \"trials\": 0}"), "/search/trials");
  refuses(JOB(", \"search\": {\"strategy\": \"random\", \"trials\": 5, \"seed\": 1}"),
          "/search/seed");
  refuses(JOB(", \"finals\": {\"devices\": 17}"), "/finals/devices");
  refuses(JOB(", \"finals\": {\"processes\": 3}"), "/finals/processes");
  refuses("{" KERNEL ", \"key\": {}, \"space\": {}, \"environment\": {\"gpus\": \"x\"}}",
          "/environment/gpus");
}

Test(job_request, too_long_a_tag_is_refused) {
  char tag[JOB_TEXT_MAX + 2] = "";
  memset(tag, 'x', JOB_TEXT_MAX + 1);
  cleanup_free char *text = xasprintf(
      "{" KERNEL ", \"key\": {}, \"space\": {}, \"environment\": {}, \"tag\": \"%s\"}", tag);
  refuses(text, "/tag");
}
