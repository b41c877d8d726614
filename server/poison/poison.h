/* The ledger of poison: what killed leases on one job is not met again by other keys, jobs, runs
 * and spaces on the same hardware. server/poison/poison_rule.h has the rules.
 *
 * The table `poison` has an entry for each config, object or kernel that was judged, with its
 * evidence, until an operator releases it. A released one is only poisoned again by new losses.
 * Losses are judged by the housekeeper, not when leases are granted.
 *
 * What follows from an entry in force:
 *   - its config, or the configs that run its object, are given up in the leases of all jobs: with
 *     the outcome runtime, a detail that names the entry, and the event `poisoned`; in open jobs by
 *     the housekeeper (job/jobs.h), in new jobs and rounds when their leases are inserted;
 *   - a job whose default config it is is refused, and fails if it is open; another baseline is
 *     chosen for a new job;
 *   - jobs of its kernel are refused, and fail if they are open.
 *
 * Memory: results are the caller's. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_POISON_POISON_H
#define WAVETUNE_SERVER_POISON_POISON_H

#include "common/space/space.h"
#include "common/verdict/verdict.h"
#include "server/db/db.h"
#include "server/poison/poison_rule.h"
#include "server/server.h"

/* Judges the losses of which all of their moment are known, and adds the entries that follow. */
must_check bool poison_judge_losses(struct worker *worker, struct error *error);

/* A job's code, hardware, key and space. */
struct poison_place {
  struct digest kernel, build, device_class; /* build: all zeros: none */
  const struct key *key;
  const struct space *space;
};

/* The entries in force that concern a job. */
struct poison_hit {
  int64_t entry;
  uint64_t config;
  char *reason;
};
struct poison_hits {
  int64_t kernel_entry; /* 0: the kernel is not poisoned */
  char *kernel_reason;
  size_t n, capacity;
  struct poison_hit *all;
};
void poison_hits_release(struct poison_hits *hits);

/* Fills those of n jobs. */
must_check bool poison_find(struct db *db, const struct poison_place *places, size_t n,
                            struct poison_hits *ret_hits, struct error *error);
/* NULL: the config is not poisoned. */
const struct poison_hit *poison_hit_of(const struct poison_hits *hits, uint64_t config);

/* Whether a job may run: its kernel and its default (FIELD_NONE: none) are not poisoned. The error
 * is a sentence for its submitter, with a pointer relative to the job. */
must_check bool poison_allows(const struct poison_hits *hits, uint64_t default_config,
                              struct error *error);

/* Gives up the configs in those leases of the job that are open or held; with a stage, only in
 * those of its round. *ret_n: in how many leases. In the caller's transaction, which holds the
 * job's row only if it inserted the leases of the round. */
struct poison_round {
  enum stage stage;
  int64_t round;
};
must_check bool poison_give_up(struct db *db, int64_t job, const struct poison_round *round,
                               const struct poison_hits *hits, size_t *ret_n, struct error *error);

/* Compiled objects (poison_objects.c), of the variant of the job's build for its key. */
struct poison_variant;
void poison_variant_free(struct poison_variant *variant);
DEFINE_CLEANUP(struct poison_variant *, cleanup_poison_variant_free, poison_variant_free)
#define cleanup_variant __attribute__((cleanup(cleanup_poison_variant_free)))
/* *ret_variant: NULL when the job has no build, or this version cannot read it. */
must_check bool poison_variant_load(struct db *db, const struct poison_place *place,
                                    struct poison_variant **ret_variant, struct error *error);
/* The object of a config; false: the variant has none. */
bool poison_object_of(const struct poison_variant *variant, const json_t *config,
                      struct digest *ret_object);
/* Adds the configs of the space that run the object. */
void poison_object_add(const struct poison_variant *variant, const struct digest *object,
                       const struct space *space, int64_t entry, const char *reason,
                       struct poison_hits *hits);
void poison_hit_add(struct poison_hits *hits, int64_t entry, uint64_t config, const char *reason);

#endif
