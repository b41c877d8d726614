/* What each owner used. */
#include "server/lease/shares.h"

#include <pthread.h>

#include "server/db/db_record.h"
#include "server/lease/lease_front.h"
#include "server/lease/leasing.h"
#include "server/lease/shares.sql.h"
#include "server/server.h"

/* How many leases must have ended lately for a mean of an owner's leases; before, it is that of all
 * owners', or what a lease is planned to take. */
#define LEASES_MIN 0.5

struct charge {
  int64_t owner, us, device_us, leases;
};
static const struct field charge_fields[] = {
    RECORD_FIELDS(INTEGER, struct charge, owner, us, device_us, leases)};
static const struct record charge_record = RECORD(NULL, struct charge, charge_fields);

struct owner_shares {
  pthread_mutex_t lock;
  struct share_owner unknown; /* an owner that is not in the table yet */
  size_t n, capacity;
  struct entry {
    int64_t id;
    struct share_owner owner;
    struct charge charge; /* that is not in the table yet */
    int64_t grants;       /* that are not in owner.held as it was read */
  } *all;                 /* in the order of their ids */
};

struct owner_shares *owner_shares_new(void) {
  struct owner_shares *shares = xcalloc(1, sizeof *shares);
  pthread_mutex_init(&shares->lock, NULL);
  shares->unknown = (struct share_owner){.weight = 1, .lease_us = SHARE_LEASE_US};
  return shares;
}

void owner_shares_free(struct owner_shares *shares) {
  if (!shares)
    return;
  pthread_mutex_destroy(&shares->lock);
  free(shares->all);
  free(shares);
}

static size_t place_of(const struct owner_shares *shares, int64_t id) {
  size_t first = 0, end = shares->n;
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    if (shares->all[middle].id < id)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

/* The entry of an owner, which is made if needed. Under the lock, like place_of. */
static struct entry *entry_of(struct owner_shares *shares, int64_t id) {
  size_t at = place_of(shares, id);
  if (at < shares->n && shares->all[at].id == id)
    return &shares->all[at];

  GROW(shares->all, shares->n, shares->capacity);
  memmove(&shares->all[at + 1], &shares->all[at], (shares->n - at) * sizeof *shares->all);
  shares->n++;
  shares->all[at] = (struct entry){id, shares->unknown, .charge = {.owner = id}};
  return &shares->all[at];
}

void shares_charge(struct db *db, int64_t owner, int64_t device_us, int64_t leases) {
  struct owner_shares *shares = leasing_of(db)->shares;
  if (device_us < 0)
    device_us = 0;
  if (device_us == 0 && leases == 0)
    return;

  pthread_mutex_lock(&shares->lock);
  struct charge *charge = &entry_of(shares, owner)->charge;
  charge->device_us += device_us;
  charge->us += device_us + leases * SHARE_LEASE_US;
  charge->leases += leases;
  pthread_mutex_unlock(&shares->lock);
}

void shares_note_grant(struct owner_shares *shares, int64_t owner) {
  pthread_mutex_lock(&shares->lock);
  struct entry *entry = entry_of(shares, owner);
  entry->grants++;
  entry->owner.held++;
  pthread_mutex_unlock(&shares->lock);
}

void shares_lock(struct owner_shares *shares) { pthread_mutex_lock(&shares->lock); }
void shares_unlock(struct owner_shares *shares) { pthread_mutex_unlock(&shares->lock); }

const struct share_owner *shares_of(const struct owner_shares *shares, int64_t owner) {
  size_t at = place_of(shares, owner);
  return at < shares->n && shares->all[at].id == owner ? &shares->all[at].owner : &shares->unknown;
}

/* Adds the charges to the table. When that fails, they are added the next time. */
static bool charges_store(struct db *db, struct error *error) {
  struct owner_shares *shares = leasing_of(db)->shares;
  pthread_mutex_lock(&shares->lock);
  size_t n = 0;
  cleanup_free struct charge *charges = xcalloc(shares->n + 1, sizeof *charges);
  for (size_t i = 0; i < shares->n; i++)
    if (shares->all[i].charge.us)
      charges[n++] = shares->all[i].charge;
  pthread_mutex_unlock(&shares->lock);
  if (n == 0)
    return true;

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &charge_record, charges, n);
  if (!db_run(db, &sql_owners_charge, &parameters, NULL, error))
    return false;

  pthread_mutex_lock(&shares->lock);
  for (size_t i = 0; i < n; i++) {
    struct charge *charge = &entry_of(shares, charges[i].owner)->charge;
    charge->us -= charges[i].us;
    charge->device_us -= charges[i].device_us;
    charge->leases -= charges[i].leases;
  }
  pthread_mutex_unlock(&shares->lock);
  return true;
}

/* An owner as the table has it. */
struct stored_owner {
  int64_t id;
  double weight, used_us, leases, held;
  bool is_quota_used;
};
static const struct field stored_fields[] = {
    RECORD_FIELD(INTEGER, struct stored_owner, id),
    RECORD_FIELDS(NUMBER, struct stored_owner, weight, used_us, leases, held),
    RECORD_FIELD(BOOL, struct stored_owner, is_quota_used),
};
static const struct record stored_record = RECORD(NULL, struct stored_owner, stored_fields);

static bool owners_read(struct db *db, int64_t lease_target_ms, struct error *error) {
  struct owner_shares *shares = leasing_of(db)->shares;
  pthread_mutex_lock(&shares->lock);
  size_t n_before = shares->n, n;
  cleanup_free struct entry *before = xcalloc(n_before + 1, sizeof *before);
  if (n_before)
    memcpy(before, shares->all, n_before * sizeof *before);
  pthread_mutex_unlock(&shares->lock);

  cleanup_free struct stored_owner *stored =
      db_list(db, &sql_owners_read, &stored_record, &n, error);
  if (!stored)
    return false;

  pthread_mutex_lock(&shares->lock);
  for (size_t i = 0; i < n_before; i++)
    entry_of(shares, before[i].id)->grants -= before[i].grants;
  double used_by_all_us = 0, ended_of_all = 0;
  for (size_t i = 0; i < n; i++) {
    used_by_all_us += stored[i].used_us;
    ended_of_all += stored[i].leases;
  }
  shares->unknown.lease_us = ended_of_all >= LEASES_MIN
                                 ? used_by_all_us / ended_of_all
                                 : (double)lease_target_ms * 1000 + SHARE_LEASE_US;

  for (size_t i = 0; i < n; i++) {
    const struct stored_owner *from = &stored[i];
    struct entry *entry = entry_of(shares, from->id);
    entry->owner = (struct share_owner){
        from->weight, from->used_us, from->held + (double)entry->grants,
        from->leases >= LEASES_MIN ? from->used_us / from->leases : shares->unknown.lease_us,
        from->is_quota_used};
  }
  pthread_mutex_unlock(&shares->lock);
  return true;
}

bool shares_refresh(struct worker *worker, struct error *error) {
  return charges_store(worker->db, error) && lease_queues_store(worker->db, error) &&
         owners_read(worker->db, server_options(worker->server)->lease_target_ms, error);
}
