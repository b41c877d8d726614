/* Moving configs between the screen leases of a job. */
#include "server/db/db_record.h"
#include "server/lease/lease_front.h"
#include "server/measure/grants.h"
#include "server/measure/lease_moves.sql.h"
#include "server/measurement/lease_plan.h"

bool lease_split(struct db *db, const struct lease_wish *wish, int64_t *ret_lease,
                 struct lease_queue *ret_queue, struct error *error) {
  cleanup_rows struct db_rows *chosen = NULL, *made = NULL;
  cleanup_parameters struct db_parameters choice = {0}, parameters = {0};
  bind_record(&choice, &lease_wish_record, wish);
  bind_integer(&choice, "configs_min", LEASE_CONFIGS_MIN);
  bind_integer(&choice, "split_configs_min", SPLIT_CONFIGS_MIN);
  bind_integer(&choice, "age_ms", SPLIT_AGE_MS);
  bind_integer(&choice, "left_us", SPLIT_LEFT_US);
  if (!db_run(db, &sql_leases_split_choose, &choice, &chosen, error))
    return false;

  *ret_lease = 0;
  if (db_count(chosen) == 0)
    return true;

  cleanup_config_ranges struct config_ranges remaining =
      multirange_parse(db_get(chosen, 0, "remaining"));
  cleanup_config_ranges struct config_ranges tail = lease_tail(&remaining);
  if (tail.n == 0)
    return true;

  struct measure_change change = {.lease = db_get_integer(chosen, 0, "id"),
                                  .from = LEASE_HELD,
                                  .to = LEASE_HELD,
                                  .less = tail,
                                  .is_split = true};
  if (!measure_change_state(db, &change, 1, error))
    return false;

  bind_integer(&parameters, "lease", change.lease);
  bind_ranges(&parameters, "tail", &tail);
  bind_bool(&parameters, "is_large", lease_is_large(&tail));
  if (!db_run(db, &sql_leases_split, &parameters, &made, error))
    return false;

  lease_fronts_move_back(db, made);
  *ret_lease = db_get_integer(made, 0, "id");
  *ret_queue = lease_queue_read(made, 0);
  return true;
}

bool lease_gather(struct db *db, const struct measure_granted *granted, const uint64_t *configs,
                  size_t n, bool *ret_gained, struct error *error) {
  cleanup_config_ranges struct config_ranges wanted = {0}, gained = {0};
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&wanted, configs[i]);

  *ret_gained = false;
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_lease_gather, error, BIND("job", granted->grant.job), BIND("wanted", &wanted));
  if (!rows)
    return false;
  if (db_count(rows) == 0)
    return true;

  size_t n_others = (size_t)db_count(rows);
  cleanup_free struct measure_change *changes = xcalloc(n_others + 1, sizeof *changes);
  for (size_t i = 0; i < n_others; i++)
    changes[i] =
        (struct measure_change){.lease = db_get_integer(rows, (int)i, "id"),
                                .from = LEASE_OPEN,
                                .to = db_get_bool(rows, (int)i, "is_all") ? LEASE_DONE : LEASE_OPEN,
                                .less = multirange_parse(db_get(rows, (int)i, "taken"))};

  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < n_others; k++)
      if (config_ranges_contain(&changes[k].less, configs[i]))
        config_ranges_add(&gained, configs[i]);

  changes[n_others] = (struct measure_change){
      .lease = granted->to.lease, .from = LEASE_HELD, .to = LEASE_HELD, .more = gained};

  bool ok = measure_change_state(db, changes, n_others + 1, error);
  for (size_t i = 0; i < n_others; i++)
    config_ranges_release(&changes[i].less);
  *ret_gained = ok;
  return ok;
}
