/* What agents and servers say to each other when an agent enrols, beats and replaces its token.
 *
 * Memory: an object that was read owns what it points to; one that is only written may borrow it.
 * Threads: one to an object. */
#ifndef WAVETUNE_COMMON_ENROLMENT_ENROLMENT_H
#define WAVETUNE_COMMON_ENROLMENT_ENROLMENT_H

#include "common/node/environment.h"
#include "common/record/record.h"

#define ENROLMENT_DEVICES_MAX 64
#define ENROLMENT_KEYS_MAX 64
#define HEARTBEAT_MS_DEFAULT 5000 /* where a server says none */

/* The body of POST /v1/agents. */
struct enrolment_device {
  char *device, *backend;
  char *name; /* not kept */
  json_t *environment_json, *facts;
  struct environment environment; /* full; of the server */
  struct digest environment_digest;
};
struct enrolment {
  char *agent; /* NULL: the server chooses */
  char *boot, *name, *version;
  char *machine;             /* a digest of what tells the machine apart; NULL: not said */
  struct texts trusted_keys; /* ids of keys; none: it takes what is not signed, too */
  struct records devices;    /* struct enrolment_device */
};
extern const struct record enrolment_record, enrolment_device_record;

/* The answer to it. */
struct enrolled {
  char *agent; /* its id: 1 to 64 lower-case hexadecimal digits */
  char *token; /* its own from now on; NULL: it goes on with the one that it has */
  int64_t heartbeat_every_ms, lease_ms;
  int64_t reclaimed;    /* leases of an earlier run that were taken back */
  int64_t rotate_in_ms; /* when the token is to be replaced; FIELD_NONE: never */
};
extern const struct record agent_answer_record;

/* To and from POST /v1/agents/ID/heartbeat. */
struct beat {
  char *boot;
};
struct beaten {
  int64_t heartbeat_every_ms;
  bool is_draining;
};
extern const struct record heartbeat_request_record, heartbeat_answer_record;

/* The answer to POST /v1/agents/ID/token. */
struct rotated {
  char *token;
  int64_t rotate_in_ms; /* as above */
};
extern const struct record agent_token_answer_record;

/* Whether a token can be sent and kept in a line: 1 to 256 of A-Z, a-z, 0-9, "_" and "-". NULL is
 * none. */
must_check bool token_is_plain(const char *token);

#endif
