/* `run`: state that the threads of a working agent share.
 *
 * Threads: the main one starts workers (supervise.h); the keeper enrols, keeps heartbeats and
 * renews leases (keeper.c); each device has one that leases and measures (device_thread.c); one
 * posts the spool (poster.c). Memory: the agent owns all of it until every thread has ended.
 * `mutex` guards `id`, the counters and the waits. */
#ifndef WAVETUNE_AGENT_RUN_AGENT_H
#define WAVETUNE_AGENT_RUN_AGENT_H

#include <pthread.h>

#include "agent/lease/lease_execute.h"
#include "agent/run/held.h"
#include "agent/run/server_client.h"
#include "agent/run/spool.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"
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
  json_t *build; /* of the last lease; the thread's own */
  struct digest build_digest;
  /* Its time, beside executor.spent. */
  int64_t n_leases, asking_ms, preparing_ms;
};

struct agent {
  uint32_t magic;
  const struct options *options;
  struct supervisor *supervisor;
  char *state;   /* folder */
  char *faults;  /* folder in it, of debug agents' output */
  char boot[33]; /* nonce of this process */
  char *name;
  struct trusted_keys trusted; /* none: signatures are not required */
  struct devices devices;      /* of this machine */
  size_t n_threads;
  struct device_thread *threads; /* those that work */
  struct cgroups *cgroups;       /* NULL: workers have none of their own */
  struct compile_pool *pool;
  struct spool *spool;
  struct held_table *held;
  struct http_client *keeper_client, *poster_client;
  /* The poster's own: digests of the compiled code that the server has, and how often in a row it
   * could not be brought there. */
  json_t *stored;
  int object_failures;
  /* The token that it got from the server; NULL: none. `before`: the one that it replaces, until it
   * was used. The main thread's. */
  char *own_token, *own_token_before;
  bool is_newcomer;     /* the token of the options does not let an agent work: it enrols first */
  int64_t rotate_at_ms; /* clock_monotonic_ms when own_token is to be replaced; 0: never */
  int code;             /* exit code of an agent that ended by itself */

  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char *id; /* the server's name for us; NULL: not enrolled */
  bool stopping;
  bool is_working; /* it has enrolled, and its threads run */
  bool must_enrol;
  bool must_post;     /* without waiting for more */
  bool must_renew;    /* a lease came or went: the keeper checks again */
  size_t n_measuring; /* device threads that have not ended */
  bool is_measured;   /* all have */
  size_t n_leases;    /* being executed */
  bool is_posted;     /* the poster has ended */
  int64_t worked_ms;  /* clock_monotonic_ms when a device last had a lease */
};

/* Any thread. agent_stop ends the agent in order: workers are stopped, leases handed back, the
 * spool posted. */
void agent_stop(struct agent *agent);
bool agent_is_stopping(struct agent *agent);

/* Reads one of the flags above. */
bool agent_flag(struct agent *agent, const bool *flag);
/* Sets one and wakes the threads that wait. */
void agent_signal(struct agent *agent, bool *flag);
/* Sleeps for timeout_ms: less when *until gets true (it is set back) or, where `until` is NULL,
 * when the agent stops. */
void agent_wait(struct agent *agent, int64_t timeout_ms, bool *until);
/* Sleeps after a failure, for as long as the back-off and the server say. */
void agent_back_off(struct agent *agent, struct backoff *backoff, int64_t retry_after_s);
/* The agent's id now, owned by the caller; NULL when it is not enrolled. */
char *agent_id(struct agent *agent);

/* keeper.c. Before anything is posted: finds out which of the agent's tokens the server knows, and
 * waits until it can. */
void own_token_choose(struct agent *agent);
/* Lets the boot nonce of an enrolment outlive the process until it is answered. */
void boot_keep(struct agent *agent);
/* Enrols; false when the server refuses for good (*ret_code is the exit code). */
must_check bool agent_enrol(struct agent *agent, int *ret_code);
/* Keeps on until all other threads have ended. */
void agent_keep(struct agent *agent);

/* device_thread.c; `context` is a struct device_thread. */
void *device_thread_run(void *context);

/* poster.c: posts the records of an earlier process; then, as a thread (`context` is the agent),
 * new ones. */
void agent_post_left(struct agent *agent);
void *poster_run(void *context);

#endif
