/* Granting tasks to the devices of agents.
 *
 * Memory: the caller releases a wish (record_release) and what was granted. Threads: a worker's
 * own. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_GRANT_H
#define WAVETUNE_SERVER_LEASE_LEASE_GRANT_H

#include "common/record/record.h"
#include "server/http/request.h"
#include "server/lease/lease_front.h"
#include "server/lease/lease_kind.h"

/* The request of a device for a task, and the state of that device. */
struct lease_wish {
  char *agent, *device, *nonce;
  double wait_s;
  int64_t token; /* of the request */
  /* Set by lease_grant when it grants none: */
  bool agent_known, device_known;
  char *drain_reason;      /* NULL: not draining */
  bool only_device_drains; /* only the device is draining, not the whole agent */
  bool is_selective;       /* it does not take every lease of its hardware: its agent wants signed
                              code, or it does not run every regime */
  bool is_hardware_idle;   /* no device of this hardware would get a lease now */
  struct digest hardware_digest, environment_digest; /* set when the device is known */
};
extern const struct record lease_wish_record;

/* What was granted: the first member of the struct in which a kind describes it. */
struct lease_granted {
  int64_t lease;            /* 0: none */
  bool is_new;              /* granted by this request, not by an earlier one with the same nonce */
  bool is_stale;            /* the nonce holds one that has expired, or another device has it */
  int64_t group;            /* of its place */
  struct lease_queue queue; /* that it was in */
};

/* How a kind grants tasks to devices. The hooks run in one transaction, which may be tried again,
 * but for `granted` and `answer`. `granted` is the kind's struct. */
struct lease_grants {
  size_t size;                    /* of that struct */
  void (*release)(void *granted); /* makes it empty */
  /* Open to held: grants the first open lease of the candidates that the device may have, unless
   * the nonce holds one already, and raises the epoch. Waits for no lease, only for a concurrent
   * request with the same nonce: when that was granted one, the next statement fails with
   * ERROR_UNIQUE. */
  const struct statement *take;
  /* Reads what the nonce holds, and what the answer needs; `granted` is empty. */
  bool (*held)(struct db *db, const struct lease_wish *wish, void *granted, struct error *error);
  /* What else the first grant does. */
  bool (*begin)(struct worker *worker, const struct lease_wish *wish, void *granted,
                struct error *error);
  /* Splits a held task for the device: *ret is the new one; its lease is 0 where there is none.
   * Waits for no lock. NULL: tasks are not split. */
  bool (*split)(struct db *db, const struct lease_wish *wish, struct lease_at *ret,
                struct error *error);
  /* Whether no device of this hardware would get a task of these queues or a part of one. */
  bool (*is_idle)(struct db *db, const struct lease_wish *wish,
                  const struct lease_candidates *queues, bool *ret_is_idle, struct error *error);
  /* After the commit. */
  void (*granted)(struct worker *worker, const void *granted);
  void (*answer)(struct worker *worker, struct request *request, void *granted);
  /* The routes of a task, for its holder. */
  void (*renew)(struct worker *worker, struct request *request, int64_t lease);
  void (*hand_back)(struct worker *worker, struct request *request, int64_t lease);
  void (*results)(struct worker *worker, struct request *request, int64_t lease);
};

/* Grants the live task that the request's nonce holds, else the first open one that the device may
 * have, by the shares of the owners (fair_share.h), else a part of one that another device holds,
 * else none. One transaction. */
must_check bool lease_grant(struct worker *worker, const struct lease_kind *kind,
                            struct lease_wish *wish, void *ret_granted, struct error *error);

/* lease_routes.c */

/* The answers 404 and 409 of all routes of a lease. The 409 has the current epoch if the request
 * comes from the holder. `what` is inserted into the sentence of the 409. */
void lease_answer_unknown(struct request *request, int64_t lease);
void lease_answer_stale(struct worker *worker, struct request *request, int64_t lease,
                        const char *what);
/* The one of these that fits, after a statement found no lease that is held at the epoch. */
void lease_answer_gone(struct worker *worker, struct request *request, int64_t lease);

/* lease_grant.c */

/* The classes of the devices that requested tasks lately (leasing.h). */
struct known_devices *known_devices_new(void);
void known_devices_free(struct known_devices *devices);

#endif
