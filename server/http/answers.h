/* Answers that routes have in common.
 *
 * Memory: JSON given to them is taken over. Threads: the request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_ANSWERS_H
#define WAVETUNE_SERVER_HTTP_ANSWERS_H

#include "server/http/request.h"

/* Answers an error with the problem document of its kind (common/program/error_codes.h). An error
 * with status 500 is logged; the client does not get its sentence, which may be PostgreSQL's. */
void answer_failure(struct request *request, const struct error *error);

/* The same for an error that the handler itself finds. `pointer`: RFC 6901, "" where none
 * applies. */
void answer_refusal(struct request *request, enum error_kind kind, const char *pointer,
                    const char *format, ...) printf_like(4, 5);

/* The same; `extra` (may be NULL, taken over) holds extension members. */
void answer_failure_extra(struct request *request, const struct error *error, json_t *extra);

/* A decimal id from the path; otherwise answers 404 and returns false. `what`: "job". */
must_check bool answer_id(struct request *request, const char *what, int64_t *ret_id);

#endif
