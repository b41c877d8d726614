/* Answers that the routes of jobs, agents and leases have in common.
 *
 * Memory: JSON given to them is taken over. Threads: the request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_ANSWERS_H
#define WAVETUNE_SERVER_HTTP_ANSWERS_H

#include "server/http/request.h"

/* What a statement, or what was read by one, failed with: 503 when trying again helps, else 500 and a line in the log. */
void answer_failure(struct request *request, const struct error *error);

/* A decimal id from the path; otherwise answers 404 and returns false. `what`: "job". */
must_check bool answer_id(struct request *request, const char *what, int64_t *ret_id);

/* True when all of these files are stored. Otherwise answers 409 with `missing`, those that are not. */
must_check bool answer_missing_files(struct worker *worker, struct request *request, const struct digest *digests,
                                     size_t n);

#endif
