/* A load of agents for benchmarks: N keep-alive connections that lease and complete. A connection
 * takes a lease, posts one made-up measurement for each of its configs with `done`, and takes the
 * next lease: at once or, with RATE, in its turn, where all connections together send RATE lease
 * requests a second.
 *
 *   lease_load HOST PORT TOKEN AGENTS CONNECTIONS SECONDS [RATE]
 *
 * AGENTS is a file with an agent's id on each line; connection i acts as agent i modulo their
 * number. Prints one line of JSON: cycles (lease + complete) and measurements, per second, and the
 * latencies of granted lease requests and of posts of results. A turn that is due while its
 * connection is busy waits, and its latency counts from when it was due. Threads: one, with epoll.
 * Memory: everything ends with the process. */
#include "bench/load.h"

enum doing { IDLE, LEASE, RESULTS };

struct hand {
  struct connection connection;
  enum doing doing;
  uint64_t posted; /* measurements in the request that is not yet answered */
  int64_t turn_ns; /* when the turn that waits was due; 0: none waits */
};

struct figures {
  double rate; /* turns a second; 0: no turns, each connection continues at once */
  int64_t began_ns;
  uint64_t next_turn;
  uint64_t cycles, measurements, empty, failed, busy;
  struct latencies leases, results;
};

/* `turn_ns`: when the request was due; 0: now. */
static void ask(const struct load *load, struct hand *hand, int64_t turn_ns) {
  hand->doing = LEASE;
  lease_ask(load, &hand->connection, 1);
  if (turn_ns)
    hand->connection.asked_ns = turn_ns;
}

static void go_on(const struct load *load, const struct figures *figures, struct hand *hand) {
  int64_t turn_ns = hand->turn_ns;
  hand->doing = IDLE;
  hand->turn_ns = 0;
  if (!figures->rate || turn_ns)
    ask(load, hand, turn_ns);
}

static void lease_answered(const struct load *load, struct figures *figures, struct hand *hand,
                           const struct answer *answer) {
  if (answer->status != 200) {
    figures->empty += answer->status == 204;
    figures->failed += answer->status != 204;
    go_on(load, figures, hand);
    return;
  }
  latency_add(&figures->leases, hand->connection.asked_ns);
  cleanup_json json_t *lease = lease_parse(answer);
  hand->doing = RESULTS;
  hand->posted = results_post(load, &hand->connection, lease);
}

static void results_answered(const struct load *load, struct figures *figures, struct hand *hand,
                             const struct answer *answer) {
  if (answer->status == 200) {
    figures->cycles++;
    figures->measurements += hand->posted;
    latency_add(&figures->results, hand->connection.asked_ns);
  } else {
    figures->failed++;
  }
  go_on(load, figures, hand);
}

/* Handles the turns that are due. Turn k is that of connection k modulo n. */
static void turns_take(const struct load *load, struct figures *figures, struct hand *hands,
                       size_t n) {
  int64_t now_ns = clock_monotonic_ns();
  for (;; figures->next_turn++) {
    uint64_t turn = figures->next_turn;
    int64_t turn_ns = figures->began_ns + (int64_t)((double)turn / figures->rate * 1e9);
    if (turn_ns > now_ns)
      return;

    struct hand *hand = &hands[turn % n];
    if (hand->doing == IDLE) {
      ask(load, hand, 0);
    } else {
      figures->busy++;
      if (!hand->turn_ns)
        hand->turn_ns = turn_ns;
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 7 || argc > 8) {
    fprintf(stderr, "usage: lease_load HOST PORT TOKEN AGENTS CONNECTIONS SECONDS [RATE]\n");
    return 2;
  }

  struct load load = load_new(argv[1], argv[2], argv[3], argv[4]);
  size_t n = strtoul(argv[5], NULL, 10);
  double seconds = strtod(argv[6], NULL);
  struct figures figures = {.rate = argc > 7 ? strtod(argv[7], NULL) : 0};
  struct hand *hands = xcalloc(n, sizeof *hands);
  ALWAYS(n > 0 && seconds > 0 && figures.rate >= 0);
  for (size_t i = 0; i < n; i++)
    connection_open(&load, &hands[i].connection, i);

  figures.began_ns = clock_monotonic_ns();
  int64_t ends_ns = figures.began_ns + (int64_t)(seconds * 1e9);
  for (size_t i = 0; !figures.rate && i < n; i++)
    ask(&load, &hands[i], 0);

  while (clock_monotonic_ns() < ends_ns) {
    struct epoll_event events[64];
    if (figures.rate)
      turns_take(&load, &figures, hands, n);
    int ready = epoll_wait(load.epoll, events, (int)ARRAY_LENGTH(events), figures.rate ? 1 : 100);
    for (int i = 0; i < ready; i++) {
      struct hand *hand = events[i].data.ptr; /* its connection is its first member */
      struct answer answer;
      if (!answer_read(&hand->connection, &answer))
        continue;
      if (hand->doing == LEASE)
        lease_answered(&load, &figures, hand, &answer);
      else
        results_answered(&load, &figures, hand, &answer);
    }
  }

  double elapsed = (double)(clock_monotonic_ns() - figures.began_ns) * 1e-9;
  latencies_sort(&figures.leases);
  latencies_sort(&figures.results);
  printf("{\"seconds\": %.3f, \"cycles\": %" PRIu64 ", \"measurements\": %" PRIu64
         ", \"empty\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"busy\": %" PRIu64
         ", \"cycles_per_s\": %.1f, \"measurements_per_s\": %.1f"
         ", \"leases\": %zu, \"lease_p50_us\": %.0f, \"lease_p99_us\": %.0f, \"lease_max_us\": "
         "%.0f, \"results_p50_us\": %.0f, \"results_p99_us\": %.0f}\n",
         elapsed, figures.cycles, figures.measurements, figures.empty, figures.failed, figures.busy,
         (double)figures.cycles / elapsed, (double)figures.measurements / elapsed, figures.leases.n,
         latencies_percentile(&figures.leases, 50), latencies_percentile(&figures.leases, 99),
         latencies_percentile(&figures.leases, 100), latencies_percentile(&figures.results, 50),
         latencies_percentile(&figures.results, 99));
  return figures.failed ? 1 : 0;
}
