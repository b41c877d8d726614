/* The fields of enrolments, heartbeats and renewed tokens, and of the answers. */
#include "common/enrolment/enrolment.h"

#define TEXT_MAX 200
#define AGENT_ID_MAX 64
#define HEARTBEAT_MS_MAX 600000
#define YIELD_MS_MAX (INT64_C(1) << 42)
#define ROTATE_MS_MAX (INT64_C(1) << 53)

bool token_is_plain(const char *token) {
  size_t length =
      token ? strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") : 0;
  return length >= 1 && length <= 256 && !token[length];
}

static bool token_check(const char *token, struct error *error) {
  return token_is_plain(token) ||
         error_set(error, "the token is not 1 to 256 of A-Z, a-z, 0-9, \"_\" and \"-\"");
}

static bool agent_id_check(const char *id, struct error *error) {
  size_t length = strspn(id, "0123456789abcdef");
  return (length >= 1 && length <= AGENT_ID_MAX && !id[length]) ||
         error_set(error, "the agent's id is not 1 to %d lower-case hexadecimal digits",
                   AGENT_ID_MAX);
}

static bool run_check(const char *run, struct error *error) {
  return strlen(run) <= TEXT_MAX ||
         error_set(error, "what a device runs has at most %d bytes", TEXT_MAX);
}

char *run_of_regime(enum regime regime) { return xasprintf("measure:%s", regime_name(regime)); }

#define LINE(object, member, flags)                                                                \
  RECORD_FIELD(TEXT, object, member, FIELD_LINE | (flags), .least = 1, .most = TEXT_MAX)

static const struct field device_fields[] = {
    LINE(struct enrolment_device, device, FIELD_REQUIRED),
    LINE(struct enrolment_device, backend, FIELD_REQUIRED),
    RECORD_FIELD(TEXT, struct enrolment_device, name,
                 FIELD_NOT_NULL | FIELD_OMITTED | FIELD_NO_COLUMN),
    RECORD_FIELD_AS("environment", JSON, struct enrolment_device, environment_json,
                    FIELD_REQUIRED | FIELD_NO_COLUMN, .schema = SCHEMA("Environment")),
    RECORD_FIELD(JSON, struct enrolment_device, facts, FIELD_OBJECT),
    RECORD_FIELD(TEXTS, struct enrolment_device, runs, FIELD_NOT_NULL | FIELD_OMITTED | FIELD_LINE,
                 .least = 1, .most = ENROLMENT_RUNS_MAX, .check = run_check,
                 .about = "what it runs: \"measure:\" and a regime; it gets no other leases"),
    RECORD_FIELD(DIGEST, struct enrolment_device, environment_digest, FIELD_NO_JSON),
};
const struct record enrolment_device_record = RECORD(NULL, struct enrolment_device, device_fields);

static const struct field enrolment_fields[] = {
    RECORD_FIELD(TEXT, struct enrolment, agent, FIELD_OMITTED | FIELD_NO_COLUMN,
                 .schema = "{\"type\": \"string\", \"pattern\": \"^[0-9a-f]{32}$\"}"),
    LINE(struct enrolment, boot, FIELD_REQUIRED),
    LINE(struct enrolment, name, FIELD_REQUIRED),
    LINE(struct enrolment, version, FIELD_REQUIRED),
    LINE(struct enrolment, machine, 0),
    RECORD_FIELD(TEXTS, struct enrolment, trusted_keys, FIELD_NOT_NULL | FIELD_OMITTED, .least = 1,
                 .most = ENROLMENT_KEYS_MAX,
                 .schema =
                     "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 64, \"items\": " SCHEMA(
                         "Digest") "}",
                 .about = "the agent accepts only work that one of these keys signed"),
    RECORD_FIELD(RECORDS, struct enrolment, devices, FIELD_REQUIRED | FIELD_NO_COLUMN, .least = 1,
                 .most = ENROLMENT_DEVICES_MAX, .of = &enrolment_device_record),
};
const struct record enrolment_record = RECORD("AgentRequest", struct enrolment, enrolment_fields);

#define HEARTBEAT_EVERY(object)                                                                    \
  RECORD_FIELD(INTEGER, object, heartbeat_every_ms, FIELD_ANSWER | FIELD_NOT_NULL, .least = 1,     \
               .most = HEARTBEAT_MS_MAX)
#define ROTATE_IN(object)                                                                          \
  RECORD_FIELD(INTEGER, object, rotate_in_ms, FIELD_ANSWER, .least = -ROTATE_MS_MAX,               \
               .most = ROTATE_MS_MAX)

static const struct field enrolment_answer_fields[] = {
    RECORD_FIELD(TEXT, struct enrolment_answer, agent, FIELD_ANSWER | FIELD_REQUIRED,
                 .check = agent_id_check),
    HEARTBEAT_EVERY(struct enrolment_answer),
    RECORD_FIELD(INTEGER, struct enrolment_answer, lease_ms, FIELD_ANSWER | FIELD_NOT_NULL),
    RECORD_FIELD(INTEGER, struct enrolment_answer, reclaimed, FIELD_ANSWER | FIELD_NOT_NULL,
                 .most = INT64_MAX),
    RECORD_FIELD(TEXT, struct enrolment_answer, token, FIELD_ANSWER | FIELD_OMITTED,
                 .check = token_check),
    ROTATE_IN(struct enrolment_answer),
};
const struct record agent_answer_record =
    RECORD("AgentAnswer", struct enrolment_answer, enrolment_answer_fields);

static const struct field heartbeat_yield_fields[] = {
    LINE(struct heartbeat_yield, device, FIELD_REQUIRED),
    LINE(struct heartbeat_yield, reason, FIELD_REQUIRED),
    RECORD_FIELD(INTEGER, struct heartbeat_yield, for_ms, FIELD_REQUIRED, .least = 0,
                 .most = YIELD_MS_MAX),
};
const struct record heartbeat_yield_record =
    RECORD(NULL, struct heartbeat_yield, heartbeat_yield_fields);

static const struct field heartbeat_fields[] = {
    RECORD_FIELD(TEXT, struct heartbeat, boot, FIELD_REQUIRED),
    RECORD_FIELD(RECORDS, struct heartbeat, yielded, FIELD_NOT_NULL | FIELD_OMITTED,
                 .most = ENROLMENT_DEVICES_MAX, .of = &heartbeat_yield_record,
                 .about = "all devices that the agent has given back to other processes"),
};
const struct record heartbeat_request_record =
    RECORD("HeartbeatRequest", struct heartbeat, heartbeat_fields);

static const struct field heartbeat_answer_fields[] = {
    HEARTBEAT_EVERY(struct heartbeat_answer),
    RECORD_FIELD_AS("draining", BOOL, struct heartbeat_answer, is_draining, FIELD_ANSWER),
};
const struct record heartbeat_answer_record =
    RECORD("HeartbeatAnswer", struct heartbeat_answer, heartbeat_answer_fields);

static const struct field token_answer_fields[] = {
    RECORD_FIELD(TEXT, struct agent_token_answer, token, FIELD_ANSWER | FIELD_REQUIRED,
                 .check = token_check),
    ROTATE_IN(struct agent_token_answer),
};
const struct record agent_token_answer_record =
    RECORD("AgentTokenAnswer", struct agent_token_answer, token_answer_fields);
