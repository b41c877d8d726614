/* An array of the flights. Memory and threads: flights.h. */
#include "server/http/flights.h"

#include "common/base/lock.h"

struct flights {
  pthread_mutex_t lock;
  uint64_t last_number;
  size_t n;
  struct {
    uint64_t key, number;
  } all[FLIGHTS_MAX];
};

struct flights *flights_new(void) {
  struct flights *flights = xcalloc(1, sizeof *flights);
  pthread_mutex_init(&flights->lock, NULL);
  return flights;
}

void flights_free(struct flights *flights) {
  if (!flights)
    return;
  ALWAYS(flights->n == 0);
  pthread_mutex_destroy(&flights->lock);
  free(flights);
}

/* Returns flights->n when there is none. */
static size_t index_of(const struct flights *flights, uint64_t key) {
  size_t i = 0;
  while (i < flights->n && flights->all[i].key != key)
    i++;
  return i;
}

enum flight flights_begin(struct flights *flights, uint64_t key, uint64_t *number) {
  HOLD(&flights->lock);
  size_t i = index_of(flights, key);
  bool is_there = i < flights->n;

  if (is_there && (*number == 0 || *number == flights->all[i].number)) {
    *number = flights->all[i].number;
    return FLIGHT_WAITS;
  }
  if (is_there || *number || flights->n == FLIGHTS_MAX)
    return FLIGHT_ALONE;
  flights->all[flights->n].key = key;
  flights->all[flights->n++].number = ++flights->last_number;
  return FLIGHT_LEADS;
}

void flights_end(struct flights *flights, uint64_t key) {
  HOLD(&flights->lock);
  size_t i = index_of(flights, key);
  ALWAYS(i < flights->n);
  flights->all[i] = flights->all[--flights->n];
}
