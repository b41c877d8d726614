/* The stored measurements that a job's verdict was made of, as the server gives them.
 *
 * Memory: the struct owns all. Threads: one. */
#ifndef WAVETUNE_CLI_SAMPLES_H
#define WAVETUNE_CLI_SAMPLES_H

#include "common/program/http_client.h"
#include "common/verdict/verdict.h"

struct samples {
  size_t n;
  struct verdict_sample *items; /* `device` is an index into `devices` */
  /* Of {"agent": its id, "device", "quarantined": whether any of its samples is}, in the order of
   * their first measurement. */
  json_t *devices;
};

/* Gets those of the final stage that were not late, of configs that were correct in every process.
 * Returns an exit code, after it said why where that is not EXIT_OK. */
must_check int samples_load(struct http_client *client, const json_t *job, struct samples *ret);
void samples_release(struct samples *samples);
#define cleanup_samples __attribute__((cleanup(samples_release)))

#endif
