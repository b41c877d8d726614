/* The thread that renders the choices of releases before programs request them, which wait half a
 * second for their first answer: at a server's start, when a release was made, a channel moved or a
 * build was removed, also by another server, and, where kernels or builds lacked, when some were
 * pushed.
 *
 * Memory: documents.h. Threads: its own, with its own connection. */
#include "common/base/log.h"
#include "server/choice/choices.h"
#include "server/choice/documents.h"
#include "server/choice/prepare.sql.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/http/response_cache.h"

#define LOOK_EVERY_MS 50
/* How often the database is looked at for releases, and for what was pushed, in --poll-ms. */
#define PREPARE_POLLS 2
#define SLOW_POLLS 10
#define RETRY_MS 1000 /* after the database failed */
/* Releases are rendered until either limit. */
#define RELEASES_MAX 32
#define BYTES_MAX (DOCUMENTS_BYTES_MAX / 2)

/* Identifies what is in the database. */
struct state {
  int64_t releases, removed, pushed; /* pushed: the kernels and builds */
};

/* What is prepared. */
struct prepared {
  bool is_begun;
  uint64_t generation;               /* of the response cache, which grows when a channel moves */
  int64_t releases, removed, pushed; /* of the state */
  int64_t pushed_ms;                 /* when the latter are looked at next */
  bool is_changing; /* documents were perhaps being rendered when something was pushed */
};

/* Choices that cannot be rendered are for requests to report. False: the database failed. */
static bool may_go_on(const struct digest *release, const struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  log_warning("choices: release %s: %s", digest_format(release, text), error->message);
  return error->kind != ERROR_UNAVAILABLE && error->kind != ERROR_DEADLINE;
}

/* Renders the releases that programs will request, unless they are kept. When a channel moves
 * meanwhile it returns, to begin with that one's. */
static bool releases_prepare(struct worker *worker, uint64_t generation) {
  struct documents *documents = server_documents(worker->server);
  struct error error;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_prepare_releases, &error, BIND("most", RELEASES_MAX));
  if (!rows) {
    log_warning("choices: %s", error.message);
    return false;
  }

  size_t bytes = 0;
  for (int row = 0; row < db_count(rows) && bytes < BYTES_MAX; row++) {
    struct digest release = db_get_digest(rows, row, "release");
    struct document *document;
    if (!server_pause(worker->server, 0) ||
        response_cache_generation(server_response_cache(worker->server)) != generation)
      return true;
    if (!document_get(worker, &release, &document, &error)) {
      if (!may_go_on(&release, &error))
        return false;
      continue;
    }
    bytes += document->size;
    document_put(documents, document);
  }
  return true;
}

/* Renders a document again, and forgets answers with the older one. */
static bool document_replace(struct worker *worker, const struct digest *release,
                             struct error *error) {
  struct documents *documents = server_documents(worker->server);
  struct document *older = documents_find(documents, release), *made;
  bool ok = document_make(worker, release, &made, error);
  if (ok) {
    if (!older || !digest_equal(&older->digest, &made->digest))
      response_cache_forget_channels(worker->server);
    document_put(documents, made);
  }
  if (older)
    document_put(documents, older);
  return ok;
}

/* When kernels or builds were pushed, renders the releases that lacked some again. */
static bool changing_prepare(struct worker *worker, int64_t pushed, struct prepared *prepared) {
  struct error error;
  int64_t now_ms = clock_monotonic_ms();
  if (now_ms < prepared->pushed_ms)
    return true;

  prepared->pushed_ms = now_ms + SLOW_POLLS * server_options(worker->server)->poll_ms;
  size_t n;
  bool is_new = pushed != prepared->pushed;
  cleanup_free struct digest *releases = documents_changing(server_documents(worker->server), &n);
  for (size_t i = 0; i < n && (is_new || prepared->is_changing); i++) {
    if (!server_pause(worker->server, 0))
      return true;
    if (!document_replace(worker, &releases[i], &error) && !may_go_on(&releases[i], &error))
      return false;
  }
  prepared->pushed = pushed;
  prepared->is_changing = is_new;
  return true;
}

/* Reads what is in the database. */
static bool state_read(struct worker *worker, struct state *ret) {
  struct error error;
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_prepare_state, &error);
  if (!rows) {
    log_warning("choices: %s", error.message);
    return false;
  }

  *ret = (struct state){.releases = db_get_integer(rows, 0, "releases"),
                        .removed = db_get_integer(rows, 0, "removed"),
                        .pushed = db_get_integer(rows, 0, "pushed")};
  return true;
}

/* Prepares what is new. False: the database failed. */
static bool prepare(struct worker *worker, uint64_t generation, struct prepared *prepared) {
  struct state state;
  if (!state_read(worker, &state))
    return false;
  if (state.removed != prepared->removed) { /* perhaps by another server */
    documents_drop(server_documents(worker->server));
    response_cache_forget_channels(worker->server);
    generation = response_cache_generation(server_response_cache(worker->server));
  }
  prepared->removed = state.removed;
  if ((!prepared->is_begun || generation != prepared->generation ||
       state.releases != prepared->releases) &&
      !releases_prepare(worker, generation))
    return false;

  prepared->is_begun = true;
  prepared->generation = generation;
  prepared->releases = state.releases;
  return changing_prepare(worker, state.pushed, prepared);
}

void *prepare_main(void *context) {
  struct worker *worker = context;
  struct server *server = worker->server;
  struct prepared prepared = {0};
  int64_t next_ms = 0, retry_ms = 0;
  MAGIC_CHECK(worker, WORKER_MAGIC);
  while (server_pause(server, LOOK_EVERY_MS)) {
    int64_t now_ms = clock_monotonic_ms();
    uint64_t generation = response_cache_generation(server_response_cache(server));
    if (!server_is_ready(server) || now_ms < retry_ms ||
        (now_ms < next_ms && prepared.is_begun && generation == prepared.generation))
      continue;

    bool ok = prepare(worker, generation, &prepared);
    retry_ms = ok ? 0 : clock_monotonic_ms() + RETRY_MS;
    next_ms = clock_monotonic_ms() + PREPARE_POLLS * server_options(server)->poll_ms;
  }

  return NULL;
}
