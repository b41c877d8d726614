/* The body of an enrolment: each refusal points to the member. */
#include <criterion/criterion.h>

#include "server/agent/agents.h"

TestSuite(enrolment);

#define ENVIRONMENT                                                                                \
  "{\"cpu\": \"gcc\", \"gpu\": \"X\", \"arch\": \"x86_64\", \"compute_units\": 2, \"partition\": " \
  "\"\"}"
#define DEVICE(name)                                                                               \
  "{\"device\": \"" name "\", \"backend\": \"cpu\", \"environment\": " ENVIRONMENT "}"
#define AGENT(members, devices)                                                                    \
  "{\"boot\": \"b\", \"name\": \"n\", \"version\": \"1\"" members ", \"devices\": [" devices "]}"

static bool parsed(const char *text, json_t **json, struct enrolment *ret, struct error *error) {
  cr_assert(json_parse(text, strlen(text), json, error), "%s", error->message);
  return enrolment_parse(*json, ret, error);
}

static void refuses(const char *text, const char *pointer) {
  cleanup_json json_t *json = NULL;
  cleanup_enrolment struct enrolment enrolment = {0};
  struct error error = {0};
  cr_expect_not(parsed(text, &json, &enrolment, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s at %s", text, error.message, error.pointer);
}

Test(enrolment, devices_with_full_environments_are_accepted) {
  cleanup_json json_t *json = NULL;
  cleanup_enrolment struct enrolment enrolment = {0};
  struct error error;
  cr_assert(parsed(AGENT("", DEVICE("cpu0") "," DEVICE("cpu1")), &json, &enrolment, &error), "%s",
            error.message);
  cr_expect_null(enrolment.agent);
  cr_expect_eq(enrolment.devices.n, 2);
  cr_expect_str_eq(enrolment_device(&enrolment, 1)->device, "cpu1");
  cr_expect_null(enrolment_device(&enrolment, 1)->facts);
  cr_expect_null(enrolment.machine);
}

Test(enrolment, wrong_members_are_refused_with_their_pointer) {
  refuses("{\"name\": \"n\", \"version\": \"1\", \"devices\": []}", "/boot");
  refuses(AGENT("", ""), "/devices");
  refuses(AGENT(", \"agent\": \"xyz\"", DEVICE("cpu0")), "/agent");
  refuses(AGENT(", \"agnet\": \"xyz\"", DEVICE("cpu0")), "/agnet");
  refuses(AGENT(", \"machine\": \"\"", DEVICE("cpu0")), "/machine");
  refuses(AGENT(", \"machine\": 7", DEVICE("cpu0")), "/machine");
  refuses(AGENT("", DEVICE("cpu0") "," DEVICE("cpu0")), "/devices/1");
  refuses(AGENT("", DEVICE("")), "/devices/0/device");
  refuses(AGENT("", "7"), "/devices/0");
  refuses(
      AGENT("", "{\"device\": \"d\", \"backend\": \"cpu\", \"environment\": {\"cpu\": \"gcc\"}}"),
      "/devices/0/environment/gpu");
  refuses(AGENT("", "{\"device\": \"d\\u0001\", \"backend\": \"cpu\", \"environment\": " ENVIRONMENT
                    "}"),
          "/devices/0/device");
}

#define DEVICE_RUNS(runs)                                                                          \
  "{\"device\": \"d\", \"backend\": \"cpu\", \"environment\": " ENVIRONMENT ", \"runs\": " runs "}"

static void runs(const char *device, size_t n, const char *last) {
  cleanup_json json_t *json = NULL;
  cleanup_enrolment struct enrolment enrolment = {0};
  cleanup_free char *text = xasprintf(AGENT("", "%s"), device);
  struct error error;
  cr_assert(parsed(text, &json, &enrolment, &error), "%s", error.message);
  const struct texts *stated = &enrolment_device(&enrolment, 0)->runs;
  cr_assert_eq(stated->n, n);
  cr_expect_str_eq(stated->all[n - 1], last);
}

Test(enrolment, a_device_runs_what_it_states_and_without_a_statement_what_older_agents_did) {
  runs(DEVICE_RUNS("[\"command\"]"), 1, "command");
  runs(DEVICE("cpu0"), 2, "measure:warm");
  refuses(AGENT("", DEVICE_RUNS("[]")), "/devices/0/runs");
  refuses(AGENT("", DEVICE_RUNS("null")), "/devices/0/runs");
  refuses(AGENT("", DEVICE_RUNS("[\"a\", 7]")), "/devices/0/runs/1");
  refuses(AGENT("", DEVICE_RUNS("[\"a\\u0001\"]")), "/devices/0/runs/0");
  cleanup_free char *long_run = xasprintf(AGENT("", DEVICE_RUNS("[\"%0201d\"]")), 1);
  refuses(long_run, "/devices/0/runs/0");
}

#define KEY(digit)                                                                                 \
  "\"sha256:" digit "000000000000000000000000000000000000000000000000000000000000000\""

Test(enrolment, trusted_keys_are_ids) {
  cleanup_json json_t *json = NULL;
  cleanup_enrolment struct enrolment enrolment = {0};
  struct error error;
  cr_assert(parsed(AGENT(", \"trusted_keys\": [" KEY("1") ", " KEY("2") "]", DEVICE("cpu0")), &json,
                   &enrolment, &error),
            "%s", error.message);
  cr_expect_eq(enrolment.trusted_keys.n, (size_t)2);
  cr_expect_str_eq(enrolment.trusted_keys.all[1],
                   "sha256:2000000000000000000000000000000000000000000000000000000000000000");
  refuses(AGENT(", \"trusted_keys\": []", DEVICE("cpu0")), "/trusted_keys");
  refuses(AGENT(", \"trusted_keys\": null", DEVICE("cpu0")), "/trusted_keys");
  refuses(AGENT(", \"trusted_keys\": [" KEY("1") ", 2]", DEVICE("cpu0")), "/trusted_keys/1");
  refuses(AGENT(", \"trusted_keys\": [\"stable.pub\"]", DEVICE("cpu0")), "/trusted_keys/0");
}

Test(enrolment, more_devices_than_a_node_has_are_refused) {
  cleanup_json json_t *json = NULL;
  cleanup_enrolment struct enrolment enrolment = {0};
  struct error error;
  cr_assert(json_parse(AGENT("", DEVICE("d")), strlen(AGENT("", DEVICE("d"))), &json, &error));
  json_t *devices = json_object_get(json, "devices");
  for (int i = 0; i < ENROLMENT_DEVICES_MAX; i++)
    json_array_append(devices, json_array_get(devices, 0));
  cr_expect_not(enrolment_parse(json, &enrolment, &error));
  cr_expect_str_eq(error.pointer, "/devices");
}
