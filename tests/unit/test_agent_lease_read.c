/* Leases as the server grants them. */
#include "agent/lease/lease.h"
#include "common/task/task.h"

#include "agent_fixture.h"

static const char *const space_text =
    "{\"parameters\": {\"UNROLL\": [1, 2], \"BLOCK\": [8, 16, 32]}}";

/* A granted lease of the fixture's kernel. */
static json_t *lease_json(const struct fixture *fixture) {
  json_t *json = fixture_json(
      "{\"lease\": \"91\", \"epoch\": 3, \"job\": \"17\", \"build\": null, \"configs\": [[0, 2], "
      "[4, 1]], "
      "\"baseline\": 5, \"stage\": \"final\", \"round\": 1, \"process\": 2, \"seed\": 7, "
      "\"regime\": \"warm\", \"expires_in_ms\": 30000, \"renew_every_ms\": 10000}");
  json_object_set_new(json, "kernel", json_digest_text(&fixture->kernel->hash));
  json_object_set(json, "manifest", fixture->kernel->json);
  json_object_set_new(json, "key", key_to_json(&fixture->key));
  json_object_set(json, "space", fixture->space->json);
  return json;
}

Test(agent_lease_read, reads_every_member) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  cleanup_json json_t *json = lease_json(&fixture);
  struct lease lease;
  struct task_grant terms = {0};
  struct error error;
  cr_assert(record_read_answer(&task_grant_record, json, "", &terms, &error), "%s", error.message);
  cr_assert(lease_read(json, false, &lease, &error), "%s: %s", error.pointer, error.message);
  cr_expect_str_eq(terms.lease, "91");
  cr_expect_eq(terms.epoch, 3);
  cr_expect_eq(terms.expires_in_ms, 30000);
  cr_expect_eq(terms.renew_every_ms, 10000);
  cr_expect_null(terms.kind, "servers that do not state it lease measurements");
  cr_expect_eq(task_kind_parse(terms.kind), TASK_MEASURE);
  record_release(&task_grant_record, &terms);
  cr_expect_str_eq(lease.id, "91");
  cr_expect_str_eq(lease.job, "17");
  cr_expect_eq(lease.regime, REGIME_WARM);
  cr_expect_eq(lease.stage, STAGE_FINAL);
  cr_expect(lease.epoch == 3 && lease.round == 1 && lease.process == 2 && lease.seed == 7 &&
            lease.baseline == 5);
  cr_expect_eq(config_ranges_count(&lease.configs), 3);
  cr_expect_str_eq(lease.space->parameters[0].name, "UNROLL", "parameters keep their order");
  lease_release(&lease);
  fixture_free(&fixture);
}

Test(agent_lease_read, reads_the_best_ratio_and_the_budget_of_other_leases) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  cleanup_json json_t *json = lease_json(&fixture);
  struct lease lease;
  struct error error;
  cr_assert(lease_read(json, false, &lease, &error), "%s: %s", error.pointer, error.message);
  cr_expect(lease.n_warm_starts == 0 && lease.best_ratio == 0 && lease.device_us == 0 &&
                lease.budget_us == 0,
            "an old server says nothing");
  lease_release(&lease);
  json_object_set_new(json, "likely", fixture_json("[4, 0]"));
  json_object_set_new(json, "best_ratio", json_real(0.71));
  json_object_set_new(json, "device_us", json_integer(5000000));
  json_object_set_new(json, "budget_us", json_integer(7000000));
  cr_assert(lease_read(json, false, &lease, &error), "%s: %s", error.pointer, error.message);
  cr_assert_eq(lease.n_warm_starts, 2);
  cr_expect(lease.warm_starts[0] == 4 && lease.warm_starts[1] == 0);
  cr_expect_eq(lease.best_ratio, 0.71);
  cr_expect_eq(lease.device_us, 5000000);
  cr_expect_eq(lease.budget_us, 7000000);
  lease_release(&lease);
  json_object_set_new(json, "device_us", json_integer(-3)); /* spent: no bound would be 0 */
  cr_assert(lease_read(json, false, &lease, &error), "%s: %s", error.pointer, error.message);
  cr_expect_eq(lease.device_us, 1);
  lease_release(&lease);
  fixture_free(&fixture);
}

Test(agent_lease_read, reads_the_answers_of_newer_and_older_servers) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  cleanup_json json_t *json = lease_json(&fixture);
  struct lease lease;
  struct error error;
  json_object_set_new(json, "of_a_later_version", json_true());
  json_object_del(json, "regime");
  json_object_del(json, "build");
  cr_assert(lease_read(json, false, &lease, &error), "%s: %s", error.pointer, error.message);
  cr_expect_eq(lease.regime, REGIME_COLD);
  lease_release(&lease);
  fixture_free(&fixture);
}

struct refusal {
  const char *member, *value, *pointer, *message;
};

Test(agent_lease_read, refuses_leases_that_it_cannot_execute) {
  static const struct refusal refusals[] = {
      {"kernel", "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
       "/manifest", "differs"},
      {"manifest", "{}", "/manifest", "the lease cannot be executed"},
      {"manifest", "7", "/manifest", "the lease cannot be executed"},
      {"key", "[]", "/key", "the lease cannot be executed"},
      {"space", "null", "/space", "missing"},
      {"job", "\"x\"", "/job", "the lease cannot be executed"},
      {"key", "{\"m\": 1}", "/key", "the lease cannot be executed"},
      {"space", "{\"parameters\": {}}", "/space", "the lease cannot be executed"},
      {"stage", "\"warmup\"", "/stage", "\"warmup\"; it must be one of"},
      {"regime", "\"tepid\"", "/regime", "\"tepid\"; it must be one of"},
      {"configs", "[[0, 7]]", "/configs", "6 points and no config 6"},
      {"configs", "[[9000000000000000000, 1]]", "/configs", "no config"},
      {"configs", "[]", "/configs", "at least one config"},
      {"configs", "[7]", "/configs", "the lease cannot be executed"},
      {"baseline", "6", "/baseline", "no config 6"},
      {"build", "\"sha256:00\"", "/build", "the lease cannot be executed"},
      {"build", "\"sha256:0000000000000000000000000000000000000000000000000000000000000001\"",
       "/build", "a kernel in c has no builds"},
      {"process", "-1", "/process", "the lease cannot be executed"},
      {"likely", "[1, \"2\"]", "/likely/1", "an integer >= 0"},
      {"likely", "7", "/likely", "the lease cannot be executed"},
      {"best_ratio", "-0.5", "/best_ratio", "finite and above 0"},
      {"device_us", "\"much\"", "/device_us", "the lease cannot be executed"},
      {"budget_us", "1.5", "/budget_us", "the lease cannot be executed"},
  };
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_json json_t *json = lease_json(&fixture);
    struct lease lease;
    struct error error;
    json_t *value;
    cr_assert(json_parse(refusals[i].value, strlen(refusals[i].value), &value, &error), "%s",
              refusals[i].value);
    json_object_set_new(json, refusals[i].member, value);
    cr_expect_not(lease_read(json, false, &lease, &error), "%s", refusals[i].value);
    cr_expect(string_starts(error.pointer, refusals[i].pointer), "%s: %s", error.pointer,
              error.message);
    cr_expect_not_null(strstr(error.message, refusals[i].message), "%s", error.message);
  }
  fixture_free(&fixture);
}

#define SOME_BUILD "sha256:0000000000000000000000000000000000000000000000000000000000000001"

/* A lease of the fixture's kernel, as if it were written in another language. */
static json_t *lease_in(const struct fixture *fixture, const char *language, const char *build) {
  json_t *json = lease_json(fixture), *manifest = json_deep_copy(fixture->kernel->json);
  struct kernel *kernel;
  struct error error;
  json_object_set_new(manifest, "language", json_string(language));
  json_object_set_new(manifest, "launch", fixture_json("{\"grid\": [1], \"block\": [64]}"));
  cr_assert(kernel_parse(manifest, &kernel, &error), "%s", error.message);
  json_object_set_new(json, "kernel", json_digest_text(&kernel->hash));
  json_object_set_new(json, "manifest", manifest);
  json_object_set_new(json, "build", build ? json_string(build) : json_null());
  kernel_free(kernel);
  return json;
}

Test(agent_lease_read, takes_gpu_languages_on_a_gpu) {
  static const struct {
    const char *language, *build;
  } cases[] = {{"hip", NULL}, {"triton", SOME_BUILD}};
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = lease_in(&fixture, cases[i].language, cases[i].build);
    struct lease lease;
    struct error error;
    char digest[DIGEST_TEXT_SIZE];
    cr_assert(lease_read(json, true, &lease, &error), "%s", error.message);
    cr_expect_eq(lease.has_build, cases[i].build != NULL);
    if (cases[i].build)
      cr_expect_str_eq(digest_format(&lease.build, digest), cases[i].build);
    lease_release(&lease);
  }
  fixture_free(&fixture);
}

Test(agent_lease_read, refuses_a_language_that_does_not_fit_the_device) {
  static const struct {
    const char *language, *build;
    bool is_gpu;
    const char *message;
  } cases[] = {
      {"hip", NULL, false, "kernels in hip run on GPUs, and this device is the CPU"},
      {"triton", SOME_BUILD, false, "kernels in triton run on GPUs"},
      {"triton", NULL, true, "a kernel in triton needs a build"},
      {"hip", SOME_BUILD, true, "a kernel in hip has no builds"},
  };
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space_text});
  struct lease lease;
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = lease_in(&fixture, cases[i].language, cases[i].build);
    cr_expect_not(lease_read(json, cases[i].is_gpu, &lease, &error));
    cr_expect_not_null(strstr(error.message, cases[i].message), "%s", error.message);
  }
  cleanup_json json_t *json = lease_json(&fixture);
  cr_expect_not(lease_read(json, true, &lease, &error));
  cr_expect_not_null(strstr(error.message, "kernels in c run on the CPU, and this device is a GPU"),
                     "%s", error.message);
  fixture_free(&fixture);
}

Test(agent_lease_read, refuses_more_configs_than_a_lease_can_have) {
  static const char *const space =
      "{\"parameters\": {\"A\": [0,1,2,3,4,5,6,7,8,9], \"B\": [0,1,2,3,4,5,6,7,8,9], "
      "\"C\": [0,1,2,3,4,5,6,7,8,9], \"D\": [0,1,2,3,4,5,6,7,8,9], \"E\": [0,1,2,3,4,5,6,7,8,9]}}";
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = space});
  cleanup_json json_t *json = lease_json(&fixture);
  struct lease lease;
  struct error error;
  json_object_set_new(json, "configs", fixture_json("[[0, 65537]]"));
  cr_expect_not(lease_read(json, false, &lease, &error));
  cr_expect_not_null(strstr(error.message, "at most 65536 configs"), "%s", error.message);
  fixture_free(&fixture);
}

Test(agent_lease_read, accepts_an_id_as_the_server_wrote_it) {
  static const char *const ids[] = {"91", "9223372036854775807.ZxRJKBw0HktcVqxMdFiJdw",
                                    "1.-_-_-_-_-_-_-_-_-_-_-_"};
  for (size_t i = 0; i < ARRAY_LENGTH(ids); i++) {
    struct task_grant terms = {0};
    struct error error;
    cleanup_json json_t *json = json_pack("{s:s, s:i, s:i, s:i}", "lease", ids[i], "epoch", 3,
                                          "expires_in_ms", 30000, "renew_every_ms", 10000);
    cr_assert(record_read_answer(&task_grant_record, json, "", &terms, &error), "%s",
              error.message);
    cr_expect_str_eq(terms.lease, ids[i]);
    record_release(&task_grant_record, &terms);
  }
}

Test(agent_lease_read, refuses_invalid_terms) {
  static const struct refusal refusals[] = {
      {"lease", "\"../1\"", "/lease", "A-Z"},
      {"lease", "\"..\"", "/lease", "A-Z"},
      {"lease", "\"\"", "/lease", "A-Z"},
      {"lease", "\"91?\"", "/lease", "A-Z"},
      {"lease", "\"12345678901234567890123456789012345678901234567890123456789012345\"", "/lease",
       "A-Z"},
      {"epoch", "-1", "/epoch", ""},
      {"expires_in_ms", "0", "/expires_in_ms", ""},
      {"renew_every_ms", "\"soon\"", "/renew_every_ms", ""}};
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_json json_t *json = fixture_json(
        "{\"lease\": \"91\", \"epoch\": 3, \"expires_in_ms\": 30000, \"renew_every_ms\": 10000}");
    cleanup_free char *wrapped = xasprintf("[%s]", refusals[i].value);
    cleanup_json json_t *value = fixture_json(wrapped);
    json_object_set(json, refusals[i].member, json_array_get(value, 0));
    struct task_grant terms = {0};
    struct error error;
    cr_expect_not(record_read_answer(&task_grant_record, json, "", &terms, &error), "%s",
                  refusals[i].value);
    cr_expect_str_eq(error.pointer, refusals[i].pointer);
    cr_expect_not_null(strstr(error.message, refusals[i].message), "%s", error.message);
    record_release(&task_grant_record, &terms);
  }
}
