/* What each owner used. */
#include "server/lease/shares.h"

#include <pthread.h>

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/lease/lease_front.h"
#include "server/lease/leasing.h"
#include "server/lease/shares.sql.h"
#include "server/server.h"

#define REFRESH_PACE_MS 1000
/* A refresh reads the held leases: with a forgotten transaction that takes long, and it rests this
 * many times as long as it took. */
#define REFRESH_REST 50
#define REFRESH_MOST_MS 60000
/* How many leases must have ended lately for a mean of an owner's leases; before, it is that of all
 * owners', or what a lease is planned to take. */
#define LEASES_MIN 0.5

struct charge {
  int64_t us, device_us, leases;
};

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
  shares->all[at] = (struct entry){.id = id, .owner = shares->unknown};
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
  size_t n = 0, n_owners = shares->n;
  cleanup_free int64_t *owners = xcalloc(n_owners + 1, sizeof *owners);
  cleanup_free int64_t *us = xcalloc(n_owners + 1, sizeof *us);
  cleanup_free int64_t *device_us = xcalloc(n_owners + 1, sizeof *device_us);
  cleanup_free int64_t *leases = xcalloc(n_owners + 1, sizeof *leases);
  for (size_t i = 0; i < n_owners; i++) {
    const struct charge *charge = &shares->all[i].charge;
    if (!charge->us)
      continue;
    owners[n] = shares->all[i].id;
    us[n] = charge->us;
    device_us[n] = charge->device_us;
    leases[n++] = charge->leases;
  }
  pthread_mutex_unlock(&shares->lock);
  if (n == 0)
    return true;

  if (!db_execute(db, &sql_owners_charge, error, BIND_ALL("owner", owners, n),
                  BIND_ALL("us", us, n), BIND_ALL("device_us", device_us, n),
                  BIND_ALL("leases", leases, n)))
    return false;

  pthread_mutex_lock(&shares->lock);
  for (size_t i = 0; i < n; i++) {
    struct charge *charge = &entry_of(shares, owners[i])->charge;
    charge->us -= us[i];
    charge->device_us -= device_us[i];
    charge->leases -= leases[i];
  }
  pthread_mutex_unlock(&shares->lock);
  return true;
}

static bool owners_read(struct db *db, int64_t lease_target_ms, struct error *error) {
  struct owner_shares *shares = leasing_of(db)->shares;
  pthread_mutex_lock(&shares->lock);
  size_t n = shares->n;
  cleanup_free int64_t *ids = xcalloc(n + 1, sizeof *ids);
  cleanup_free int64_t *grants = xcalloc(n + 1, sizeof *grants);
  for (size_t i = 0; i < n; i++) {
    ids[i] = shares->all[i].id;
    grants[i] = shares->all[i].grants;
  }
  pthread_mutex_unlock(&shares->lock);

  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_owners_read, NULL, &rows, error))
    return false;

  pthread_mutex_lock(&shares->lock);
  for (size_t i = 0; i < n; i++)
    entry_of(shares, ids[i])->grants -= grants[i];
  double used_by_all_us = 0, ended_of_all = 0;
  for (int row = 0; row < db_count(rows); row++) {
    used_by_all_us += db_get_double(rows, row, "used_us");
    ended_of_all += db_get_double(rows, row, "leases");
  }
  shares->unknown.lease_us = ended_of_all >= LEASES_MIN
                                 ? used_by_all_us / ended_of_all
                                 : (double)lease_target_ms * 1000 + SHARE_LEASE_US;

  for (int row = 0; row < db_count(rows); row++) {
    struct entry *entry = entry_of(shares, db_get_integer(rows, row, "id"));
    double used_us = db_get_double(rows, row, "used_us"),
           ended = db_get_double(rows, row, "leases");
    double held = db_get_double(rows, row, "held");
    entry->owner = (struct share_owner){.weight = db_get_double(rows, row, "weight"),
                                        .used_us = used_us,
                                        .held = held + (double)entry->grants,
                                        .lease_us = ended >= LEASES_MIN ? used_us / ended
                                                                        : shares->unknown.lease_us,
                                        .is_over = db_get_bool(rows, row, "is_over")};
  }
  pthread_mutex_unlock(&shares->lock);
  return true;
}

void shares_housekeep(struct worker *worker) {
  struct lease_clock *clock = &worker->lease_clock;
  int64_t began_ms = clock_monotonic_ms();
  struct error error;
  if (began_ms < clock->shares_ms)
    return;

  if (!charges_store(worker->db, &error) || !lease_queues_store(worker->db, &error) ||
      !owners_read(worker->db, server_options(worker->server)->lease_target_ms, &error))
    log_warning("shares: %s", error.message);

  int64_t rest_ms = REFRESH_REST * (clock_monotonic_ms() - began_ms);
  if (rest_ms > REFRESH_MOST_MS)
    rest_ms = REFRESH_MOST_MS;
  clock->shares_ms = began_ms + (rest_ms > REFRESH_PACE_MS ? rest_ms : REFRESH_PACE_MS);
}
