/* What agents do with leases, which are granted, renewed, handed back, split and lost, and what
 * follows for their jobs.
 *
 * Memory: results are the caller's where a release function says so. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_LEASE_GRANT_GRANTS_H
#define WAVETUNE_SERVER_LEASE_GRANT_GRANTS_H

#include "common/campaign/campaign.h"
#include "common/lease/lease_grant.h"
#include "common/verdict/budget.h"
#include "server/http/request.h"
#include "server/job/jobs.h"
#include "server/lease/lease.h"

/* So many grants in a row without one measurement, and what remains of the lease is given up. */
#define LEASE_FRUITLESS_MAX 8

/* What an agent asks for, and what is known of it. */
struct lease_wish {
  char *agent, *device, *nonce;
  double wait_s;
  int64_t token; /* that asks for it */
  /* Out: */
  bool agent_known, device_known;
  char *drain_reason;            /* NULL: not draining */
  bool only_device_drains;       /* if so: the agent's others do not */
  bool wants_signatures;         /* it gets only what a key that its agent trusts signed */
  bool is_idle;                  /* no device of this hardware would get one now */
  struct digest hardware_digest; /* what it waits for; set when the device is known */
};
extern const struct record lease_wish_record;

/* A lease that was granted, and what its server knows of its job beyond that. */
struct lease_granted {
  struct lease_grant grant; /* without manifest and space; .lease is the decimal id */
  char *manifest, *space;   /* JSON, as it was registered and submitted */
  int64_t lease;            /* 0: none */
  bool is_new;              /* by this request, not by one with the same nonce before */
  bool may_be_split;        /* its holder is to ask often what is still its own */
  bool has_started;         /* by this grant its job became running */
  enum job_state job_state;
  bool is_search;
  struct digest environment_digest;
  size_t n_likely;
  uint64_t likely[WARM_STARTS_MAX];
  struct budget budget;
  int64_t final_devices;
  uint64_t configs_left; /* of all open and held leases of the job; only where it has a budget */
};
void lease_granted_release(struct lease_granted *granted);

/* Gives a wish the live lease with its nonce, else the best open one that its device can run, else
 * the tail of one that another device holds and that has long to go yet, or none. The first grant
 * of a job starts it: the configs that are likely to win are chosen, and where other leases of the
 * job have them, this one gets them. One transaction. */
must_check bool lease_grant(struct worker *worker, struct lease_wish *wish,
                            struct lease_granted *ret, struct error *error);

/* Splits the tail off the held screen lease with the most predicted device time left that the
 * wish's device may take over, into an open lease of its own: *ret_lease, or 0 where there is none. In
 * the caller's transaction; waits for no lock. */
must_check bool lease_split(struct db *db, const struct lease_wish *wish, int64_t *ret_lease,
                            struct error *error);

/* Moves those of `configs`, sorted ordinals, that other open screen leases of its job have to a
 * lease that was granted in this transaction. *ret_gained: whether there were any. */
must_check bool lease_gather(struct db *db, int64_t lease, int64_t job, const uint64_t *configs,
                             size_t n, bool *ret_gained, struct error *error);

/* Gives up configs of an open lease: outcome runtime with `detail`, and event `poisoned` when it
 * names one config
 * (-1: all that remain). In the caller's transaction. */
must_check bool lease_give_up(struct db *db, int64_t lease, int64_t config, const char *detail,
                              struct error *error);

/* A lease became open again with something left: it is given up after too many grants in vain, else
 * a device is woken. A transaction of its own; what fails is logged. */
void lease_settle_open(struct worker *worker, int64_t lease, int64_t job, int64_t fruitless,
                       const struct digest *hardware_digest);

/* What becomes of a config whose lease was lost while it was being measured: bad luck, a bad device
 * or a bad config? */
struct poison_facts {
  int64_t losses;       /* leases lost while this config of this job was being measured, this one
                           included */
  int64_t devices;      /* on how many different devices */
  int64_t other_agents; /* live, not draining agents that could run the job and have not lost this
                           config */
};

enum poison_step {
  POISON_AGAIN,   /* any agent may try again */
  POISON_APART,   /* it moves to a lease of its own that the agents which lost it do not get */
  POISON_GIVE_UP, /* its outcome is runtime */
};

/* Two losses poison a config for that device, losses on two devices for the environment. */
enum poison_step poison_decide(const struct poison_facts *facts);

/* A lease that was lost: its holder is gone. */
struct lease_loss {
  int64_t id, job_id, epoch, fruitless;
  int64_t config; /* that was being measured; FIELD_NONE: none known */
  char *agent, *device;
  struct digest hardware_digest;
};
struct lease_losses {
  size_t n;
  struct lease_loss *all;
};
void lease_losses_release(struct lease_losses *losses);

/* Opens leases whose time is over, at most `limit`, oldest first, counts the losses and applies the
 * poison rule (poison_decide). In the caller's transaction. */
must_check bool leases_expire(struct worker *worker, int64_t limit, struct lease_losses *ret,
                              struct error *error);
/* The same for all that an agent holds, because it started anew. */
must_check bool leases_reclaim(struct worker *worker, const char *agent, struct lease_losses *ret,
                               struct error *error);
/* After the commit: wakes what waits and moves jobs on that have nothing left. */
void leases_settle_losses(struct worker *worker, const struct lease_losses *losses);

/* Answers of all routes of a lease: 404; 409, with the present epoch for its holder. `what` ends
 * the sentence. */
void lease_answer_unknown(struct request *request, int64_t lease);
void lease_answer_stale(struct worker *worker, struct request *request, int64_t lease,
                        const char *what);

#endif
