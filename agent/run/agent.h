/* `run`: the state that the threads of an agent share.
 *
 * Threads: the main one starts workers (supervise.h); the keeper enrols, sends heartbeats and
 * renews leases (keeper.h); one for each device takes leases and measures (device_thread.h); one
 * posts the spool (poster.h); one may look for others on the devices (yield.h). Memory: the agent
 * owns all of it until every thread has ended. `mutex` guards `id`, the counters and the waits. */
#ifndef WAVETUNE_AGENT_RUN_AGENT_H
#define WAVETUNE_AGENT_RUN_AGENT_H

#include "agent/lease/lease_execute.h"
#include "agent/run/device_use.h"
#include "agent/run/held.h"
#include "agent/run/server_client.h"
#include "agent/run/spool.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"
#include "common/base/lock.h"
#include "common/cache/signing_key.h"
#include "common/program/options.h"

#define AGENT_MAGIC 0x41474e54u
#define REQUEST_MS 10000
#define OBJECT_SIZE_MAX ((size_t)64 << 20) /* of compiled code */

struct agent;

struct device_thread {
  struct agent *agent;
  const struct device_seen *device;
  struct executor executor;
  struct http_client *client;
  pthread_t thread;
  int claim_fd;            /* -1: none (claim.h) */
  struct device_use use;   /* all 0 where nothing is looked for */
  int64_t n_yields_served; /* of use.n_yields: after these the device was given back */
  json_t *build;           /* of the last lease that had one; owned by the thread */
  struct digest build_digest;
  /* The thread's time, in addition to executor.spent. */
  int64_t n_leases, asking_ms, preparing_ms;
};

struct agent {
  uint32_t magic;
  const struct options *options;
  struct supervisor *supervisor;
  char *state;   /* folder */
  char *faults;  /* folder in `state`, for debug agents' output */
  char boot[33]; /* nonce of this process */
  char *name;
  struct trusted_keys trusted; /* none: signatures are not required */
  struct devices devices;      /* of this machine */
  size_t n_threads;
  struct device_thread *threads; /* one for each device that is used */
  struct cgroups *cgroups;       /* NULL: workers have no cgroups */
  struct compile_pool *pool;
  struct spool *spool;
  struct held_table *held;
  struct yield_watch *yield; /* NULL: devices are not given back to others */
  struct http_client *keeper_client, *poster_client;
  /* Used by the poster alone: digests of the compiled code that the server has, and how many
   * uploads of code have failed in a row. */
  json_t *stored;
  int object_failures;
  /* The token that the server issued to this agent; NULL: none. own_token_before: the token that it
   * replaces, until the new one was used. Used by one thread, the keeper's. */
  char *own_token, *own_token_before;
  bool is_newcomer;     /* the token of the options only lets an agent enrol */
  int64_t rotate_at_ms; /* clock_monotonic_ms when own_token is to be replaced; 0: never */
  int code;             /* exit code of an agent that ends without a signal */

  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char *id; /* that the server gave this agent; NULL: not enrolled */
  bool stopping;
  bool is_working; /* it has enrolled, and its threads run */
  bool must_enrol;
  bool must_beat;     /* a heartbeat is due now */
  bool must_look;     /* a device thread waits for the next look (yield.h) */
  bool must_post;     /* at once, without waiting for more records */
  bool must_renew;    /* a lease came or went: the keeper checks again */
  size_t n_measuring; /* device threads that have not ended */
  bool is_measured;   /* all device threads have ended */
  size_t n_leases;    /* that are being executed */
  bool is_posted;     /* the poster has ended */
  int64_t worked_ms;  /* clock_monotonic_ms when a device last had a lease */
};

/* Any thread. Ends the agent in order: it stops its workers, releases its leases and posts the
 * spool. */
void agent_stop(struct agent *agent);
bool agent_is_stopping(struct agent *agent);

/* Reads one of the flags above. */
bool agent_flag(struct agent *agent, const bool *flag);
/* Sets one and wakes the threads that wait. */
void agent_signal(struct agent *agent, bool *flag);
/* Sleeps for timeout_ms, or until *until is true (it is reset then); where `until` is NULL, until
 * the agent stops. */
void agent_wait(struct agent *agent, int64_t timeout_ms, bool *until);
/* Sleeps after a failure, as long as the back-off and Retry-After require. */
void agent_back_off(struct agent *agent, struct backoff *backoff, int64_t retry_after_s);
/* The agent's id now, owned by the caller; NULL when it is not enrolled. */
char *agent_id(struct agent *agent);

#endif
