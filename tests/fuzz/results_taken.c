/* The server's side of what an agent posts. A separate file, because the rest of the target does
 * not include the server. */
#include "tests/fuzz/fuzz.h"

#include "server/measurement/measurements.h"

bool results_taken(const json_t *body, struct error *error) {
  struct results results;
  if (!results_parse(body, &results, error))
    return false;
  results_release(&results);
  return true;
}
