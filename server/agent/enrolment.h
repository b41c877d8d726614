/* An agent as it enrols: the body of POST /v1/agents, read and checked.
 *
 * Memory: an enrolment owns its environments and facts; texts are borrowed from the body. Threads: any. */
#ifndef WAVETUNE_SERVER_AGENT_ENROLMENT_H
#define WAVETUNE_SERVER_AGENT_ENROLMENT_H

#include "common/node/environment.h"

#define ENROLMENT_DEVICES_MAX 64
#define ENROLMENT_KEYS_MAX 64

struct enrolment_device {
  const char *device, *backend;
  struct environment environment; /* full */
  char *facts;                    /* JSON text or NULL */
};
struct enrolment {
  const char *agent; /* NULL: the server chooses */
  const char *boot, *name, *version;
  const char *machine;   /* a digest of what tells the machine apart; NULL: not said */
  size_t n_trusted_keys; /* 0: it takes what is not signed, too */
  struct digest trusted_keys[ENROLMENT_KEYS_MAX];
  size_t n_devices;
  struct enrolment_device devices[ENROLMENT_DEVICES_MAX];
};
must_check bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error);
void enrolment_release(struct enrolment *enrolment);
#define cleanup_enrolment __attribute__((cleanup(enrolment_release)))

#endif
