/* Which connection is closed when a new one finds no place. */
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "server/http/request_private.h"

#define N 64

static struct connections *connections;
static struct connection all[N];
static size_t n_all;
static const uint8_t here[16] = {1}, there[16] = {2};

static void setup(void) { n_all = 0; }

static void teardown(void) {
  for (size_t i = 0; i < n_all; i++)
    connections_remove(connections, &all[i]);
  connections_free(connections);
}

TestSuite(connections, .init = setup, .fini = teardown);

static struct connection *add(const uint8_t address[16], enum connection_class class) {
  struct connection *connection = &all[n_all++];
  int pair[2];
  cr_assert_leq(n_all, N);
  cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  connection->fd = pair[0];
  connections_add(connections, connection, address);
  connections_set_class(connections, connection, class);
  return connection;
}

static bool is_closed(const struct connection *connection) {
  char byte;
  return recv(connection->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static size_t count(enum connection_class class) {
  size_t n[CONNECTION_CLASS_COUNT];
  connections_count(connections, n);
  return n[class];
}

Test(connections, at_the_limit_of_an_address_its_oldest_stranger_is_closed) {
  connections = connections_new(100, 2);
  add(there, CLASS_STRANGER);
  struct connection *first = add(here, CLASS_STRANGER), *second = add(here, CLASS_STRANGER);
  cr_expect(!is_closed(first));
  struct connection *third = add(here, CLASS_STRANGER);
  cr_expect(is_closed(first));
  cr_expect(!is_closed(second));
  cr_expect(!is_closed(third));
  cr_expect(!is_closed(&all[0]), "of another address");
}

Test(connections, who_has_a_token_is_not_counted_by_address_and_not_closed) {
  connections = connections_new(100, 2);
  struct connection *client = add(here, CLASS_CLIENT), *agent = add(here, CLASS_FLEET);
  for (int i = 0; i < 10; i++)
    add(here, CLASS_STRANGER);
  cr_expect(!is_closed(client));
  cr_expect(!is_closed(agent));
  cr_expect_eq(count(CLASS_STRANGER), 2);
}

Test(connections, who_has_an_exempt_address_is_limited_in_all_only) {
  connections = connections_new(100, 1);
  for (int i = 0; i < 50; i++)
    cr_expect(!is_closed(add(NULL, CLASS_STRANGER)));
}

Test(connections, strangers_have_three_quarters_of_the_places) {
  connections = connections_new(8, 100);
  for (int i = 0; i < 6; i++)
    add(here, CLASS_STRANGER);
  cr_expect(!is_closed(&all[0]));
  add(there, CLASS_STRANGER);
  cr_expect(is_closed(&all[0]), "the oldest, whatever its address");
  cr_expect_eq(count(CLASS_STRANGER), 6);
}

Test(connections, a_new_connection_takes_the_place_of_a_stranger_when_none_is_left) {
  connections = connections_new(8, 100);
  struct connection *stranger = add(here, CLASS_STRANGER);
  for (int i = 0; i < 6; i++)
    add(here, CLASS_CLIENT);
  add(here, CLASS_FLEET);
  cr_expect(!is_closed(stranger));
  cr_expect(!is_closed(add(here, CLASS_FLEET)), "an agent");
  cr_expect(is_closed(stranger));
  cr_expect(is_closed(add(here, CLASS_STRANGER)), "no stranger is left but itself");
  cr_expect_eq(count(CLASS_CLIENT) + count(CLASS_FLEET), 8);
}

Test(connections, clients_beyond_their_places_remain_strangers) {
  connections = connections_new(8, 100);
  for (int i = 0; i < 8; i++)
    add(here, CLASS_CLIENT);
  cr_expect_eq(count(CLASS_CLIENT), 6);
  cr_expect_eq(count(CLASS_STRANGER), 2);
  cr_expect(!is_closed(add(here, CLASS_FLEET)));
  cr_expect(is_closed(&all[6]), "the first client without a place");
  cr_expect(!is_closed(&all[0]));
}

Test(connections, a_refused_token_makes_a_connection_a_strangers_again) {
  connections = connections_new(8, 2);
  struct connection *connection = add(here, CLASS_CLIENT);
  connections_set_class(connections, connection, CLASS_STRANGER);
  cr_expect_eq(count(CLASS_STRANGER), 1);
  add(here, CLASS_STRANGER);
  add(here, CLASS_STRANGER);
  cr_expect(is_closed(connection));
}

Test(connections, a_connection_that_was_closed_is_neither_counted_nor_closed_again) {
  connections = connections_new(8, 100);
  struct connection *connection = add(here, CLASS_CLIENT);
  connection_end(connections, connection, END_BODY);
  cr_expect(is_closed(connection));
  cr_expect_eq(count(CLASS_CLIENT), 0);
  connections_set_class(connections, connection, CLASS_FLEET);
  connection_end(connections, connection, END_BODY);
  cr_expect_eq(count(CLASS_FLEET) + count(CLASS_STRANGER), 0);
}
