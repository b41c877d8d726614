/* The kind echo: tasks that exist only in the tests, to show that server/lease/ leases what it does
 * not know (tests/system/test_tasks.py).
 *
 * Memory: the kind is static. Threads: any. */
#ifndef WAVETUNE_TESTS_ECHO_H
#define WAVETUNE_TESTS_ECHO_H

#include "server/lease/lease_kind.h"

struct echo_answer {
  struct lease_hold hold;
  const char *text;
  bool is_taken; /* set: the task was held at this epoch */
};
extern const struct lease_kind echo_kind;

#endif
