/* What the process of a reference, which runs untrusted code, sends to a worker: bytes that are
 * read as elements. The first byte is the number of requested elements. Whatever the bytes are,
 * outputs of every type can be compared with each element. */
#include <math.h>
#include <sys/socket.h>

#include "agent/measure/element.h"
#include "agent/measure/reference.h"
#include "tests/fuzz/fuzz.h"

static const enum dtype dtypes[] = {
#define X(name, enumerator, size, c_type) enumerator,
    DTYPES(X)
#undef X
};

/* Rounds as the check of an output rounds the reference's values. */
static void value_round(double value) {
  uint64_t element;
  for (size_t i = 0; i < ARRAY_LENGTH(dtypes) && !isnan(value); i++) {
    element_set(dtypes[i], &element, 0, value);
    double rounded = element_get(dtypes[i], &element, 0);
    ALWAYS(!isnan(rounded));
    element_set(dtypes[i], &element, 0, rounded);
    ALWAYS(element_get(dtypes[i], &element, 0) == rounded);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  int ends[2];
  if (!size)
    return 0;

  int64_t elements = 1 + bytes[0];
  struct expectation expected;
  ALWAYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  size_t sent = size - 1 < sizeof(double) * 256 ? size - 1 : sizeof(double) * 256;
  ALWAYS(send(ends[1], bytes + 1, sent, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sent);
  ALWAYS(shutdown(ends[1], SHUT_WR) == 0);
  struct reference *reference = reference_connect(ends[0]);
  expectation_compute(reference, 0, elements, 0, 7, &expected);
  ALWAYS(expected.n == (size_t)elements);
  ALWAYS(reference_is_lost(reference) == (sent < expected.n * sizeof(double)));

  for (size_t i = 0; i < expected.n; i++) {
    ALWAYS(!reference_is_lost(reference) || isnan(expected.values[i]));
    value_round(expected.values[i]);
  }

  expectation_release(&expected);
  reference_free(reference);
  close(ends[1]);
  return 0;
}
