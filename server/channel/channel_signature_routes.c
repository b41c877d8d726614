/* POST of a signature to the entry that a channel has: how one key takes over from another.
 *
 * Memory: rows live as long as the handler. Threads: database workers. */
#include "server/channel/channel_entry.h"
#include "server/http/answers.h"
#include "server/http/routes.h"

static const struct channel_row *row_of_environment(const struct channel_rows *rows,
                                                    const struct environment *environment) {
  struct digest wanted = environment_digest(environment);
  for (size_t i = 0; i < rows->n; i++) {
    struct digest there = environment_digest(&rows->all[i].entry.environment);
    if (digest_equal(&there, &wanted))
      return &rows->all[i];
  }
  return NULL;
}

/* Whether the entry's signature may be added as it stands: a server that knows the publishers verifies it first. */
static bool signing_is_trusted(struct request *request, const struct channel_row *row,
                               const struct channel_signing *signing) {
  struct channel_entry entry = row->entry;
  entry.n_signatures = 1;
  entry.signatures[0] = signing->signature;
  return channel_publisher_is_trusted(request, &entry);
}

/* Reads, decides and adds once. False: somebody else moved it in between. */
static bool signature_post_once(struct worker *worker, struct request *request, const char *name,
                                const struct channel_signing *signing) {
  struct error error;
  bool is_done;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!channel_rows_load(worker->db, name, signing->tag, signing->regime, &rows, &error)) {
    answer_failure(request, &error);
    return true;
  }
  const struct channel_row *row = row_of_environment(&rows, &signing->environment);
  if (!row) {
    request_problem(request, 404, "",
                    "channel \"%s\" has no entry for this environment, tag and regime; state all its members", name);
    return true;
  }
  switch (channel_signing_decide(&row->entry, signing)) {
  case SIGNING_KEEP:
    channel_row_answer(request, row);
    return true;
  case SIGNING_ELSEWHERE:
    channel_elsewhere_answer(request, row);
    return true;
  case SIGNING_FULL:
    request_problem(request, 422, "/signature", "the entry has %d signatures by other keys, and no more fit",
                    CHANNEL_SIGNATURES_MAX);
    return true;
  case SIGNING_ADD:
    break;
  }
  if (!signing_is_trusted(request, row, signing))
    return true;
  if (!channel_signature_add(worker->db, row, &signing->signature, request_author(request), &is_done, &error)) {
    answer_failure(request, &error);
    return true;
  }
  if (is_done)
    response_memory_forget_channels(worker->server);
  return false; /* read it again: it says now that the signature is there */
}

void route_channel_signature_post(struct worker *worker, struct request *request) {
  const char *name = request->segments[0];
  static const char *const no_arguments[] = {NULL};
  struct error error;
  bool is_answered = false;
  cleanup_channel_signing struct channel_signing signing = {0};
  if (!request_query_only(request, no_arguments))
    return;
  if (!channel_name_check(name, &error) || !channel_signing_parse(request->json, &signing, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!channel_is_publishers(worker, request, name))
    return;
  for (int attempt = 0; attempt < CHANNEL_ATTEMPTS && !is_answered; attempt++)
    is_answered = signature_post_once(worker, request, name, &signing);
  if (!is_answered)
    channel_contended_answer(request, name);
}
