/* Leases: granting, renewing, taking results, handing back, expiring. Each is one statement for a batch of requests.
 *
 * Memory: results are the caller's where a release function says so. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_STORE_H
#define WAVETUNE_SERVER_LEASE_LEASE_STORE_H

#include "common/campaign/warm_start.h"
#include "common/verdict/budget.h"
#include "server/db/db.h"
#include "server/lease/lease_state.h"
#include "server/measurement/results.h"

struct lease_wish {
  const char *agent, *device, *nonce;
  int64_t token; /* that asks for it */
  /* Out: */
  bool agent_known, device_known;
  char *drain_reason;            /* NULL: not draining */
  bool only_device_drains;       /* if so: the agent's others do not */
  bool wants_signatures;         /* it gets only what a key that its agent trusts signed */
  struct digest hardware_digest; /* what it waits for; set when the device is known */
  int64_t lease;                 /* 0: no lease */
  int64_t epoch, job, round, process, expires_in_ms;
  enum stage stage;
  struct config_ranges configs; /* what remains of it */
  bool may_be_split;            /* its holder is to ask often what is still its own */
};
void lease_wish_release(struct lease_wish *wish);

/* Gives each wish the live lease with its nonce, else the best open one that its device can run, or none. */
must_check bool leases_grant(struct db *db, struct lease_wish *const *wishes, size_t n, int64_t lease_ms,
                             struct error *error);

/* Splits the tails off held screen leases for wishes that got none: at most one of a lease, no more than there are wishes for
 * its class, those with the most predicted device time left first. The tails are open leases then. In the caller's
 * transaction, which waits for no lock. */
must_check bool leases_split(struct db *db, struct lease_wish *const *wishes, size_t n, size_t *ret_n,
                             struct error *error);

/* What a lease's answer says of its job, as texts of JSON. Owned. */
struct lease_job {
  int64_t id;
  enum job_state state;
  int64_t baseline, seed;
  char *kernel, *manifest, *key, *space;
  char *build; /* "sha256:…" or NULL */
  char *regime;
  struct digest kernel_hash, key_digest, environment_digest;
  bool is_search;
  size_t n_likely;
  uint64_t likely[WARM_STARTS_MAX];
  double best_ratio; /* least so far; 0: none */
  struct budget budget;
  int64_t final_devices;
  uint64_t configs_left;               /* of all its open and held leases; only where it has a budget */
  char *signatures, *build_signatures; /* arrays; NULL: not asked for, or it has no build */
};
must_check bool leases_jobs(struct db *db, const int64_t *jobs, size_t n, bool with_signatures,
                            struct lease_job **ret_jobs, size_t *ret_n, struct error *error);
void lease_jobs_free(struct lease_job *jobs, size_t n);

/* Moves those of `configs` that other open screen leases of its job have to a lease that was granted just now and not told to
 * anybody. *ret_gained: whether there were any; then *ret_remaining is what it has now, the caller's. */
must_check bool lease_gather(struct db *db, int64_t lease, int64_t epoch, const struct config_ranges *configs,
                             bool *ret_gained, struct config_ranges *ret_remaining, struct error *error);

struct lease_renewal {
  int64_t lease, epoch;
  int64_t config; /* being measured; -1: none */
  /* Out: */
  bool known, renewed;
  bool is_split;                  /* some of what was granted is somebody else's now */
  struct config_ranges remaining; /* where it is; owned */
};
must_check bool leases_renew(struct db *db, struct lease_renewal *const *renewals, size_t n, int64_t lease_ms,
                             struct error *error);

struct lease_post {
  int64_t lease;
  const struct results *results;
  /* Out: */
  enum {
    POST_UNKNOWN,  /* no such lease */
    POST_NEVER,    /* no such epoch of it yet */
    POST_AGAIN,    /* somebody else changed the lease meanwhile: run it again */
    POST_CONFLICT, /* a seq is known with another body; nothing is stored */
    POST_OUTSIDE,  /* a config, round or process is not the lease's; nothing is stored */
    POST_TAKEN,    /* new measurements count */
    POST_LATE,     /* the lease is no longer this agent's: new measurements are kept as evidence */
  } verdict;
  int64_t accepted, known, late; /* measurements: stored now, stored before; of the accepted, those that move nothing */
  int64_t culprit;               /* index of the measurement that refused the post */
  enum lease_state state;        /* afterwards */
  int64_t current_epoch, job;
  bool ended;                  /* this post ended the lease: it is done or open now */
  bool has_budget;             /* its job has one */
  int64_t fruitless, baseline; /* baseline: the job's */
  struct digest hardware_digest;
};
/* No two posts of one lease. */
must_check bool leases_post(struct db *db, struct lease_post *const *posts, size_t n, struct error *error);

struct lease_handback {
  int64_t lease, epoch;
  bool is_spent;      /* it has spent the device time that it was given */
  int64_t opening_us; /* what opening the kernel took in this epoch; 0: not stated */
  bool is_unsigned;   /* no key that its agent trusts signed it: the grant does not count as one in vain */
  /* Out: */
  bool known, done;
  bool has_budget;        /* its job has one */
  enum lease_state state; /* afterwards */
  int64_t job, fruitless;
  struct digest hardware_digest;
};
/* Opens held leases again for what remains of them, and counts what opening the kernel took. One that
 * has spent its share of its job's budget is cancelled, with the event. */
must_check bool leases_release(struct db *db, struct lease_handback *const *handbacks, size_t n, struct error *error);

/* A lease that was lost: its holder is gone. */
struct lease_loss {
  int64_t lease, epoch, job, fruitless;
  int64_t config; /* that was being measured; -1: none known */
  char *agent, *device;
  struct digest hardware_digest;
  int64_t losses, devices, other_agents; /* of that config: poison_facts */
  char *agents;                          /* array literal of those that lost it */
};
struct lease_losses {
  size_t n;
  struct lease_loss *all;
};
void lease_losses_release(struct lease_losses *losses);

/* Opens leases whose time is over, at most `limit`, oldest first, and counts the losses. In the caller's transaction. */
must_check bool leases_expire(struct db *db, int64_t limit, int64_t live_ms, struct lease_losses *ret,
                              struct error *error);
/* The same for all that an agent holds, because it started anew. */
must_check bool leases_reclaim(struct db *db, const char *agent, int64_t live_ms, struct lease_losses *ret,
                               struct error *error);

/* Moves a config of an open lease to a lease of its own that `agents` (an array literal) do not get. */
must_check bool lease_set_apart(struct db *db, int64_t lease, int64_t config, const char *agents, struct error *error);

/* Gives up configs of an open lease: outcome runtime with `detail`, and event `poisoned` when it names one config
 * (-1: all that remain). */
must_check bool lease_give_up(struct db *db, int64_t lease, int64_t config, const char *detail, struct error *error);

/* Open leases that no live agent may take since those who live lost their config before: their ids, at most `limit`. */
must_check bool leases_unwanted(struct db *db, int64_t live_ms, int64_t limit, int64_t **ret_leases, int64_t **ret_jobs,
                                size_t *ret_n, struct error *error);

/* Cancels the open screen leases of those of `jobs` that have spent what their budget leaves the screen, with the event. *ret_jobs: which;
 * the caller's. */
must_check bool leases_cancel_over_budget(struct db *db, const int64_t *jobs, size_t n, int64_t **ret_jobs,
                                          size_t *ret_n, struct error *error);

/* Cancels what is open or held of jobs that have ended: of `jobs`, or with NULL of any (a crash between). */
must_check bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n, struct error *error);

/* A lease to make. */
struct lease_row {
  int64_t process;
  const struct config_ranges *configs;
  bool is_apart; /* for a device without a final of the job, for a while */
};
/* The leases of a job's stage and round. In the caller's transaction. */
must_check bool leases_insert(struct db *db, int64_t job, enum stage stage, int64_t round, const struct lease_row *rows,
                              size_t n, struct error *error);

#endif
