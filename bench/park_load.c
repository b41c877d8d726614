/* Agents that wait for work: N keep-alive connections, each parked in a long poll of 60 s. Reads
 * commands from stdin, one a line, so that a benchmark knows how many are parked when it submits
 * work:
 *
 *   park_load HOST PORT TOKEN AGENTS CONNECTIONS
 *
 *   park       every connection that is idle asks for a lease; answers {"parked": n} when all have
 *              been sent
 *   expect N   reads answers until N leases were granted or 20 s have passed, and for 2 s more what
 *              should not come; answers {"granted", "distinct", "empty", "failed", "first_ns",
 *              "median_ns", "last_ns"}. The times are CLOCK_MONOTONIC and of the first N, so that
 *              the caller can subtract when it submitted. Granted leases are abandoned, and their
 * connections are idle again.
 *
 * Threads: one, with epoll. Memory: everything ends with the process. */
#include "bench/load.h"

#define WAIT_SECONDS 60
#define PATIENCE_NS (20 * INT64_C(1000000000))
#define AFTERWARDS_NS (2 * INT64_C(1000000000))

struct hand {
  struct connection connection;
  bool is_parked;
};

struct crowd {
  struct load load;
  size_t n;
  struct hand *hands;
};

struct grants {
  size_t n, n_empty, n_failed, times_capacity, ids_capacity;
  int64_t *at_ns;
  uint64_t *ids;
};

static void grant_add(const struct answer *answer, struct grants *grants) {
  if (answer->status != 200) {
    grants->n_empty += answer->status == 204;
    grants->n_failed += answer->status != 204;
    return;
  }
  cleanup_json json_t *lease = lease_parse(answer);
  GROW(grants->at_ns, grants->n, grants->times_capacity);
  GROW(grants->ids, grants->n, grants->ids_capacity);
  grants->at_ns[grants->n] = clock_monotonic_ns();
  grants->ids[grants->n++] = strtoull(json_string_value(json_object_get(lease, "lease")), NULL, 10);
}

static void park(struct crowd *crowd) {
  for (size_t i = 0; i < crowd->n; i++) {
    struct hand *hand = &crowd->hands[i];
    if (!hand->is_parked)
      lease_ask(&crowd->load, &hand->connection, WAIT_SECONDS);
    hand->is_parked = true;
  }
  printf("{\"parked\": %zu}\n", crowd->n);
}

static void events_read(const struct crowd *crowd, struct grants *grants) {
  struct epoll_event events[256];
  int ready = epoll_wait(crowd->load.epoll, events, (int)ARRAY_LENGTH(events), 100);
  for (int i = 0; i < ready; i++) {
    struct hand *hand = events[i].data.ptr; /* its connection is its first member */
    struct answer answer;
    if (!answer_read(&hand->connection, &answer))
      continue;
    hand->is_parked = false;
    grant_add(&answer, grants);
  }
}

static void expect(const struct crowd *crowd, size_t expected) {
  struct grants grants = {0};
  int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;
  while (grants.n < expected && clock_monotonic_ns() < deadline_ns)
    events_read(crowd, &grants);

  size_t n = grants.n < expected ? grants.n : expected;
  for (int64_t after_ns = clock_monotonic_ns() + AFTERWARDS_NS; clock_monotonic_ns() < after_ns;)
    events_read(crowd, &grants);

  printf("{\"granted\": %zu, \"distinct\": %zu, \"empty\": %zu, \"failed\": %zu, \"first_ns\": "
         "%" PRId64 ", \"median_ns\": %" PRId64 ", \"last_ns\": %" PRId64 "}\n",
         grants.n, grants.n ? sort_unique(grants.ids, grants.n) : 0, grants.n_empty,
         grants.n_failed, n ? grants.at_ns[0] : 0, n ? grants.at_ns[n / 2] : 0,
         n ? grants.at_ns[n - 1] : 0);
  free(grants.at_ns);
  free(grants.ids);
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: park_load HOST PORT TOKEN AGENTS CONNECTIONS\n");
    return 2;
  }

  struct crowd crowd = {.load = load_new(argv[1], argv[2], argv[3], argv[4]),
                        .n = strtoul(argv[5], NULL, 10)};
  crowd.hands = xcalloc(crowd.n, sizeof *crowd.hands);
  for (size_t i = 0; i < crowd.n; i++)
    connection_open(&crowd.load, &crowd.hands[i].connection, i);
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    if (strcmp(line, "park\n") == 0)
      park(&crowd);
    else if (string_starts(line, "expect "))
      expect(&crowd, strtoul(line + strlen("expect "), NULL, 10));
    else
      die("\"%s\" is no command", line);
    fflush(stdout);
  }
  return 0;
}
