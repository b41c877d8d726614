/* The messages with which an agent enrols, sends a heartbeat and replaces its token, and the
 * answers.
 *
 * Memory: a message that was read owns what it points to; one that is only written may borrow it.
 * Threads: one for each message. */
#ifndef WAVETUNE_COMMON_ENROLMENT_ENROLMENT_H
#define WAVETUNE_COMMON_ENROLMENT_ENROLMENT_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"

#define ENROLMENT_DEVICES_MAX 64
#define ENROLMENT_KEYS_MAX 64
#define ENROLMENT_RUNS_MAX 64
#define HEARTBEAT_MS_DEFAULT 5000 /* if the server states none */

/* The body of POST /v1/agents. */
struct enrolment_device {
  char *device, *backend;
  char *name; /* not stored */
  json_t *environment_json, *facts;
  struct texts runs; /* run_of_regime; none: as older agents, the first REGIMES_UNSTATED */
  struct environment environment; /* full; set by the server */
  struct digest environment_digest;
};
struct enrolment {
  char *agent; /* NULL: the server chooses */
  char *boot, *name, *version;
  char *machine;             /* a digest that identifies the machine; NULL: not stated */
  struct texts trusted_keys; /* ids of keys; none: unsigned work is accepted, too */
  struct records devices;    /* struct enrolment_device */
};
extern const struct record enrolment_record, enrolment_device_record;

/* What a device states that it runs: "measure:" and the name of a regime. The caller's. */
must_check char *run_of_regime(enum regime regime);

/* The answer to it. */
struct enrolment_answer {
  char *agent; /* its id: 1 to 64 lower-case hexadecimal digits */
  char *token; /* its new token; NULL: it keeps its token */
  int64_t heartbeat_every_ms, lease_ms;
  int64_t reclaimed;    /* leases of an earlier run that were returned */
  int64_t rotate_in_ms; /* time until the token is to be replaced; FIELD_NONE: never */
};
extern const struct record agent_answer_record;

/* The body of POST /v1/agents/ID/heartbeat, and the answer to it. */
struct heartbeat_yield { /* a device that was given back to another process */
  char *device, *reason;
  int64_t for_ms; /* how long ago */
};
struct heartbeat {
  char *boot;
  struct records yielded; /* struct heartbeat_yield; .all NULL: not stated */
};
struct heartbeat_answer {
  int64_t heartbeat_every_ms;
  bool is_draining;
};
extern const struct record heartbeat_request_record, heartbeat_yield_record,
    heartbeat_answer_record;

/* The answer to POST /v1/agents/ID/token. */
struct agent_token_answer {
  char *token;
  int64_t rotate_in_ms; /* as above */
};
extern const struct record agent_token_answer_record;

/* Whether the token fits in a header and in a line of a file: 1 to 256 of A-Z, a-z, 0-9, "_" and
 * "-". False for NULL. */
must_check bool token_is_plain(const char *token);

#endif
