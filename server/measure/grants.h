/* Granting leases to devices, splitting them, and what follows when they are handed back or lost.
 *
 * Memory: the caller releases what has a release function. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_MEASURE_GRANTS_H
#define WAVETUNE_SERVER_MEASURE_GRANTS_H

#include "common/campaign/campaign.h"
#include "common/lease/lease_grant.h"
#include "common/verdict/budget.h"
#include "server/http/request.h"
#include "server/job/jobs.h"
#include "server/lease/lease_grant.h"
#include "server/measurement/leases.h"

/* After this many grants in a row without a measurement the remaining configs of a lease are given
 * up. */
#define LEASE_FRUITLESS_MAX 8

/* A lease that was granted, and what the answer needs of its job. */
struct measure_granted {
  struct lease_granted to;
  struct lease_grant grant; /* manifest and space are not set; .lease is the decimal id */
  char *manifest, *space;   /* JSON, as it was registered and submitted */
  bool may_be_split;        /* its holder must renew it often */
  bool has_started;         /* its job became running with this grant */
  enum job_state job_state;
  bool is_search, has_budget;
  struct digest environment_digest;
  size_t n_warm_starts;
  uint64_t warm_starts[WARM_STARTS_MAX];
  struct budget budget;
  int64_t final_devices;
  uint64_t configs_left; /* in all open and held leases of a job with a budget */
};
/* How leases of configs are granted. The first grant of a job starts the job: its warm-start
 * configs are chosen and moved to this lease. */
extern const struct lease_grants measure_grants;
/* Its routes: answers with a granted lease (a struct measure_granted), renews and takes back
 * leases, stores results. */
void measure_grant_answer(struct worker *worker, struct request *request, void *granted);
void measure_renew(struct worker *worker, struct request *request, int64_t lease);
void measure_hand_back(struct worker *worker, struct request *request, int64_t lease);
void measure_results(struct worker *worker, struct request *request, int64_t lease);

/* Call it when a lease became open again with configs left: it gives them up after
 * LEASE_FRUITLESS_MAX grants without a measurement, else wakes a device. Runs in its own
 * transaction; failures are logged. */
void lease_settle_open(struct worker *worker, int64_t lease, int64_t job, int64_t fruitless,
                       const struct digest *hardware_digest);

/* The facts that decide what becomes of a config whose lease was lost while it was being
 * measured. */
struct poison_facts {
  int64_t losses;       /* leases lost while this config of this job was being measured, this one
                           included */
  int64_t devices;      /* on how many different devices */
  int64_t other_agents; /* live, not draining agents that could run the job and have not lost this
                           config */
};

enum poison_step {
  POISON_AGAIN,    /* any agent may try again */
  POISON_SEPARATE, /* it moves to a new lease, which is not granted to the agents that lost it */
  POISON_GIVE_UP,  /* its outcome is runtime */
};

/* After two losses the config is tried by other agents; after losses on two devices, or when there
 * is no other agent, it is given up. */
enum poison_step poison_decide(const struct poison_facts *facts);

/* Hooks of the kind (lease_kind.h). Opens lost leases, counts the losses and applies poison_decide.
 */
must_check bool measure_lost(struct worker *worker, const struct db_rows *gone,
                             struct error *error);
/* Wakes requests and moves jobs on that have nothing left to measure. */
void measure_settle_lost(struct worker *worker, const struct db_rows *gone);
/* `answer` is a struct post. */
must_check bool measure_answer(struct db *db, void *answer, struct error *error);
void measure_settle(struct worker *worker, void *answer);

/* Gives up leases that no agent may have, applies the poison rule and the ledger of poison, and
 * moves jobs on that should have. The housekeeper's. */
must_check bool leases_sweep(struct worker *worker, struct error *error);

/* The kind measure. */
extern const struct lease_kind measure_kind;

#endif
