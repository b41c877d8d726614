/* Answers that routes have in common.
 *
 * Memory: JSON given to them is taken over. Threads: the request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_ANSWERS_H
#define WAVETUNE_SERVER_HTTP_ANSWERS_H

#include "server/http/request.h"

/* Answers an error, of whatever kind, with the problem document that its kind asks for
 * (common/program/error_codes.h). One of 500 has a line in the log; of a bug the client hears no
 * more than that there is one, for PostgreSQL's own sentences are not for clients. */
void answer_failure(struct request *request, const struct error *error);

/* Answers what a handler itself finds wrong: the same with a sentence made here. `pointer`: RFC
 * 6901,
 * "" where none applies. */
void answer_refusal(struct request *request, enum error_kind kind, const char *pointer,
                    const char *format, ...) printf_like(4, 5);

/* The same; `extra` (may be NULL, taken over) holds extension members. */
void answer_failure_extra(struct request *request, const struct error *error, json_t *extra);

/* A decimal id from the path; otherwise answers 404 and returns false. `what`: "job". */
must_check bool answer_id(struct request *request, const char *what, int64_t *ret_id);

#endif
