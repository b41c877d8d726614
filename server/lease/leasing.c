/* What leasing keeps in memory. */
#include "server/lease/leasing.h"

#include "server/lease/lease_front.h"
#include "server/lease/lease_grant.h"
#include "server/lease/shares.h"

struct leasing *leasing_new(void) {
  struct leasing *leasing = xcalloc(1, sizeof *leasing);
  leasing->fronts = lease_fronts_new();
  leasing->shares = owner_shares_new();
  leasing->devices = known_devices_new();
  return leasing;
}

void leasing_free(struct leasing *leasing) {
  if (!leasing)
    return;
  lease_fronts_free(leasing->fronts);
  owner_shares_free(leasing->shares);
  known_devices_free(leasing->devices);
  free(leasing);
}

void leasing_attach(struct leasing *leasing, struct db *db) {
  struct lease_connection *connection = xcalloc(1, sizeof *connection);
  *connection = (struct lease_connection){leasing, lease_opened_new()};
  db_set_context(db, connection);
}

void leasing_detach(struct db *db) {
  struct lease_connection *connection = db_context(db);
  if (connection)
    lease_opened_free(connection->opened);
  free(connection);
  db_set_context(db, NULL);
}

struct leasing *leasing_of(const struct db *db) {
  const struct lease_connection *connection = db_context(db);
  return connection ? connection->leasing : NULL;
}
