/* Counters of the process, a cache line each so that threads do not slow one another. Any
 * thread. */
#include <stdatomic.h>

#include "server/counters.h"

static struct {
  _Alignas(64) atomic_uint_fast64_t value;
} counters[COUNTER_COUNT];

static const struct {
  const char *name, *help;
} descriptions[] = {
#define X(id, name_, help_) {name_, help_},
    COUNTERS(X)
#undef X
};

void counter_add(enum counter counter, uint64_t n) {
  atomic_fetch_add_explicit(&counters[counter].value, n, memory_order_relaxed);
}

uint64_t counter_read(enum counter counter) { return atomic_load(&counters[counter].value); }
const char *counter_name(enum counter counter) { return descriptions[counter].name; }
const char *counter_help(enum counter counter) { return descriptions[counter].help; }
