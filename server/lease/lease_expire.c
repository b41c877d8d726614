/* Leases that expire, of all kinds. */
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/lease/lease.sql.h"
#include "server/lease/lease_kind.h"
#include "server/lease/leasing.h"

/* How much longer a grant may take until it is committed than a lease lasts, and a lease that is
 * due may be locked. What takes longer is found by a search of all held leases. */
#define DUE_MARGIN_MS 10000
#define EXPIRE_ALL_PACE_MS 5000
#define SWEEP_REST 20 /* times as long as it took */
#define SWEEP_MOST_MS 60000
#define PAGE 500

/* Whether agents have had one lease time to renew their leases since this server connected to the
 * database, and since the last pause of this server or of the database that was long enough for
 * renewals to fail. */
static bool renewals_had_time(struct worker *worker, int64_t lease_ms) {
  struct lease_clock *clock = &leasing_of(worker->db)->clock;
  int64_t now_ms = clock_monotonic_ms();
  if (clock->looked_ms && now_ms - clock->looked_ms > LEASES_EXPIRE_MS + lease_ms / 2) {
    clock->resumed_ms = now_ms;
    clock->due_since_ms = 0;
    log_warning("leases: the server or the database stood still for %lld ms; no lease expires for "
                "one lease time",
                (long long)(now_ms - clock->looked_ms));
  }

  clock->looked_ms = now_ms;
  return (!clock->resumed_ms || now_ms - clock->resumed_ms >= lease_ms) &&
         now_ms - db_connected_since_ms(worker->db) >= lease_ms;
}

/* Leases expire by the database's clock, which may be stepped: forward all would expire at once,
 * and back those of agents that died would last longer by the step. So after a step none expires
 * for one lease time, and after one back none lasts longer than that. */
static bool clock_check(struct worker *worker, int64_t lease_ms, struct error *error) {
  struct lease_clock *clock = &leasing_of(worker->db)->clock;
  cleanup_rows struct db_rows *rows = NULL;
  int64_t before_ms = clock_monotonic_ms();
  if (!db_run(worker->db, &sql_leases_clock, NULL, &rows, error))
    return false;

  int64_t now_ms = clock_monotonic_ms(), database_ms = db_get_integer(rows, 0, "now_ms");
  int64_t least_ms = database_ms - now_ms, most_ms = database_ms - before_ms;
  int64_t forward_ms = least_ms - clock->ahead_most_ms, back_ms = clock->ahead_least_ms - most_ms;
  bool is_stepped = clock->has_ahead && (forward_ms > lease_ms / 2 || back_ms > lease_ms / 2);
  clock->has_ahead = true;
  clock->ahead_least_ms = least_ms;
  clock->ahead_most_ms = most_ms;
  if (!is_stepped)
    return true;

  clock->resumed_ms = now_ms;
  clock->due_since_ms = 0;
  clock->must_shorten = back_ms > 0;
  log_warning("leases: the database's clock was stepped %s by %lld ms; no lease expires for one "
              "lease time",
              back_ms > 0 ? "back" : "forward", (long long)(back_ms > 0 ? back_ms : forward_ms));
  return true;
}

/* Leases of all kinds that last longer than a lease time, after a step back. */
static bool leases_shorten(struct db *db, int64_t lease_ms, struct error *error) {
  for (const struct lease_kind *const *kind = lease_kinds; *kind; kind++) {
    if ((*kind)->shorten && !db_execute(db, (*kind)->shorten, error, BIND("lease_ms", lease_ms)))
      return false;
  }
  return true;
}

/* Lets the kind open those that were locked. */
static bool leases_lose(struct worker *worker, const struct lease_kind *kind,
                        const struct db_rows *gone, struct error *error) {
  int n = db_count(gone);
  if (n > 0 && kind->table) {
    cleanup_free int64_t *tasks = xcalloc((size_t)n, sizeof *tasks);
    for (int row = 0; row < n; row++)
      tasks[row] = db_get_integer(gone, row, "id");
    if (!lease_end(worker->db, kind, tasks, (size_t)n, error))
      return false;
  }
  return n == 0 || kind->lost(worker, gone, error);
}

static void losses_settle(struct worker *worker, const struct lease_kind *kind,
                          const struct db_rows *gone) {
  if (gone && db_count(gone) > 0 && kind->settle_lost)
    kind->settle_lost(worker, gone);
}

void lease_losses_release(struct lease_losses *losses) {
  for (size_t i = 0; i < LEASE_KINDS_MAX; i++)
    db_rows_free(losses->of[i]);
  *losses = (struct lease_losses){0};
}

bool leases_reclaim(struct worker *worker, const char *agent, struct lease_losses *ret,
                    int64_t *ret_n, struct error *error) {
  *ret_n = 0;
  for (size_t i = 0; lease_kinds[i]; i++) {
    ALWAYS(i < LEASE_KINDS_MAX);
    if (!lease_kinds[i]->restarted)
      continue;
    ret->of[i] = db_query(worker->db, lease_kinds[i]->restarted, error, BIND("agent", agent));
    if (!ret->of[i] || !leases_lose(worker, lease_kinds[i], ret->of[i], error))
      return false;
    *ret_n += db_count(ret->of[i]);
  }
  return true;
}

void leases_settle_losses(struct worker *worker, const struct lease_losses *losses) {
  for (size_t i = 0; lease_kinds[i]; i++)
    losses_settle(worker, lease_kinds[i], losses->of[i]);
}

/* Defers those of a page of leases that were due since then and were renewed. */
static bool due_defer(struct worker *worker, const struct lease_kind *kind, int64_t since_ms,
                      bool *ret_more, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, kind->defer, error, BIND("since_ms", since_ms), BIND("limit", PAGE));
  if (!rows)
    return false;
  *ret_more = db_count(rows) == PAGE;
  return true;
}

/* Whether leases may expire now: agents must not lose theirs because a server or a database was
 * unavailable. After a step back of the clock they are shortened instead. In a transaction that
 * began now. */
static bool expiry_allow(struct worker *worker, bool *ret_allowed, struct error *error) {
  const struct lease_clock *clock = &leasing_of(worker->db)->clock;
  int64_t lease_ms = server_options(worker->server)->lease_ms;
  if (!clock_check(worker, lease_ms, error))
    return false;

  *ret_allowed = renewals_had_time(worker, lease_ms) && !clock->must_shorten;
  return !clock->must_shorten || leases_shorten(worker->db, lease_ms, error);
}

/* Expires one page of those that were due since then (0: of all held leases). */
static bool expire_page(struct worker *worker, const struct lease_kind *kind, int64_t since_ms,
                        bool *ret_searched, bool *ret_more, struct error *error) {
  *ret_searched = *ret_more = false;

  /* The transaction takes now() before this server reads its clock and the database's, so that a
   * pause of the database, and a step of its clock, are noticed. */
  bool is_allowed = false;
  if (!db_begin_now(worker->db, error))
    return false;
  bool is_good = expiry_allow(worker, &is_allowed, error);
  if (!is_allowed) {
    is_good = db_end(worker->db, is_good, error);
    if (is_good)
      leasing_of(worker->db)->clock.must_shorten = false;
    return is_good;
  }

  const struct lease_table *table = lease_table_of(kind);
  cleanup_rows struct db_rows *gone =
      since_ms && kind->due
          ? db_query(worker->db, kind->due, error, BIND("limit", PAGE), BIND("since_ms", since_ms))
          : db_query(worker->db, table ? &table->expired : kind->expired, error,
                     BIND("limit", PAGE));
  if (!db_end(worker->db, gone && leases_lose(worker, kind, gone, error), error))
    return false;

  *ret_searched = true;
  counter_add(COUNTER_leases_lost, (uint64_t)db_count(gone));
  losses_settle(worker, kind, gone);
  *ret_more = db_count(gone) == PAGE;
  return true;
}

/* Of one kind. *ret_searched: false while no lease may expire. */
static bool kind_expire(struct worker *worker, const struct lease_kind *kind, int64_t since_ms,
                        bool *ret_searched, struct error *error) {
  bool ok = true, more = true, may_defer = kind->defer != NULL;
  while (ok && more)
    ok = expire_page(worker, kind, since_ms, ret_searched, &more, error);
  while (ok && *ret_searched && may_defer)
    ok = due_defer(worker, kind, since_ms, &may_defer, error);
  return ok;
}

/* Expires leases. Those that are due are looked for at each call, from where the last search ended.
 * All held ones are looked for in proportion to what that takes, which is long where many rows are
 * dead: a lease may be due earlier than it was granted, after a step of the clock. */
bool leases_expire_all(struct worker *worker, struct error *error) {
  struct lease_clock *clock = &leasing_of(worker->db)->clock;
  int64_t began_ms = clock_monotonic_ms();
  int64_t since_ms = began_ms >= clock->expire_all_ms ? 0 : clock->due_since_ms;
  if (began_ms < clock->rests_until_ms)
    return true;

  bool ok = true, is_searched = true;
  for (size_t i = 0; ok && is_searched && lease_kinds[i]; i++)
    ok =
        !lease_kinds[i]->lost || kind_expire(worker, lease_kinds[i], since_ms, &is_searched, error);
  if (ok && !is_searched)
    return true;

  /* Also after a failure: where a search of all takes too long, those that are due are found. */
  if (!since_ms)
    clock->expire_all_ms = due_again_ms(began_ms, EXPIRE_ALL_PACE_MS, SWEEP_REST, SWEEP_MOST_MS);
  int64_t mark_ms = began_ms + clock->ahead_least_ms - DUE_MARGIN_MS;
  if (ok) {
    clock->due_since_ms = mark_ms;
    return true;
  }

  /* No search of all has succeeded yet: the next ones look for what is due from a lease time ago.
   */
  if (!clock->due_since_ms && clock->has_ahead)
    clock->due_since_ms = mark_ms - server_options(worker->server)->lease_ms;
  clock->rests_until_ms = due_again_ms(began_ms, LEASES_EXPIRE_MS, SWEEP_REST, EXPIRE_ALL_PACE_MS);
  return false;
}
