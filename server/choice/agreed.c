/* What containers agree on, by place: an environment, tag and regime. Counting may take seconds, so
 * the thread of prepare.c does it when there is new evidence, and requests use the last result; one
 * counts itself only where there is none.
 *
 * Memory and threads: choices.h; agreed_prepare belongs to that thread. */
#include "common/base/log.h"
#include "server/choice/agreed.sql.h"
#include "server/choice/choices.h"
#include "server/choice/documents.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/server_private.h"

#define PLACES_MAX 32 /* that are counted before they are requested */
/* Of a place's choices, further ones are left out: programs read at most 16 MiB in all, so that one
 * token could keep them from all choices. */
#define AGREED_BYTES_MAX (4u << 20)
#define CHOICE_BYTES 100 /* of each, beside key and config */

bool agreed_parse(const char *text, int64_t *ret_nodes, int64_t *ret_measured) {
  long long nodes = 0, measured = 0;
  int end = 0;
  bool is_off = string_equal(text, "off");
  if (!is_off && (sscanf(text, "%6lld/%6lld%n", &nodes, &measured, &end) != 2 || text[end] ||
                  nodes < 1 || measured < nodes))
    return false;
  *ret_nodes = nodes;
  *ret_measured = measured;
  return true;
}

struct place {
  struct digest environment;
  const char *tag, *regime;
};

static struct digest place_id(const struct place *place) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *name =
      xasprintf("%s %s %s", digest_format(&place->environment, text), place->regime, place->tag);
  return digest_of(name, strlen(name));
}

static void place_bind(struct db_parameters *parameters, const struct place *place) {
  bind_digest(parameters, "environment_digest", &place->environment);
  bind_text(parameters, "tag", place->tag);
  bind_text(parameters, "regime", place->regime);
}

static json_t *choice_of_row(const struct db_rows *rows, int row) {
  bool has_time = !db_is_null(rows, row, "tuning_ms");
  return json_pack("{s:o, s:o, s:I, s:I, s:o*}", "config", db_get_json(rows, row, "config"), "key",
                   db_get_json(rows, row, "key"), "measured",
                   (json_int_t)db_get_integer(rows, row, "measured"), "nodes",
                   (json_int_t)db_get_integer(rows, row, "nodes"), "tuning_ms",
                   has_time ? json_real(db_get_double(rows, row, "tuning_ms")) : NULL);
}

/* Counts, and keeps the result in place of an older one. */
static bool agreed_make(struct worker *worker, const struct place *place, struct document **ret,
                        struct error *error) {
  const struct server_options *options = server_options(worker->server);
  const struct digest id = place_id(place);
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  place_bind(&parameters, place);
  bind_integer(&parameters, "days", EVIDENCE_DAYS);
  bind_integer(&parameters, "nodes", options->agreed_nodes);
  bind_integer(&parameters, "measured", options->agreed_measured);
  if (!db_run(worker->db, &sql_agreed_choices, &parameters, &rows, error))
    return false;

  cleanup_json json_t *functions = json_object();
  size_t bytes = 0;
  for (int row = 0; row < db_count(rows); row++) {
    bytes += strlen(db_get(rows, row, "key")) + strlen(db_get(rows, row, "config")) + CHOICE_BYTES;
    if (bytes > AGREED_BYTES_MAX) {
      log_warning("choices: containers agree on more than %u MiB; %d of %d choices are left out",
                  AGREED_BYTES_MAX >> 20, db_count(rows) - row, db_count(rows));
      break;
    }

    char text[DIGEST_TEXT_SIZE];
    struct digest closure = db_get_digest(rows, row, "function");
    digest_format(&closure, text);
    json_t *function = json_object_get(functions, text);
    if (!function) {
      function = json_pack("{s:[], s:s}", "choices", "name", db_get(rows, row, "name"));
      json_put(functions, text, function);
    }
    json_push(json_object_get(function, "choices"), choice_of_row(rows, row));
  }

  cleanup_json json_t *json = json_pack("{s:O}", "functions", functions);
  *ret = documents_add(worker->server->agreed, &id, json_canonical(json), false);
  return true;
}

bool evidence_agreed(struct worker *worker, const struct environment *environment, const char *tag,
                     enum regime regime, struct document **ret, struct error *error) {
  const struct place place = {environment_digest(environment), tag, regime_name(regime)};
  const struct digest id = place_id(&place);
  struct documents *agreed = worker->server->agreed;
  *ret = NULL;
  if (!server_options(worker->server)->agreed_nodes)
    return true;

  *ret = documents_find(agreed, &id);
  if (*ret)
    return true;

  /* Places without evidence, which clients may invent, are not kept. */
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  place_bind(&parameters, &place);
  if (!db_run(worker->db, &sql_agreed_is_there, &parameters, &rows, error))
    return false;

  bool ok = true;
  while (ok && db_count(rows) && !(*ret = documents_find(agreed, &id)))
    if (documents_begin(agreed, &id)) {
      ok = agreed_make(worker, &place, ret, error);
      documents_end(agreed, &id);
      break;
    }
  return ok;
}

bool agreed_prepare(struct worker *worker, double seconds, struct error *error) {
  struct documents *agreed = worker->server->agreed;
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  bind_number(&parameters, "seconds", seconds > 0 ? seconds : EVIDENCE_DAYS * 86400.0);
  bind_integer(&parameters, "most", PLACES_MAX);
  if (!db_run(worker->db, &sql_agreed_places, &parameters, &rows, error))
    return false;

  struct digest counted[PLACES_MAX];
  for (int row = 0; row < db_count(rows); row++) {
    if (!server_pause(worker->server, 0))
      return true;
    const struct place place = {db_get_digest(rows, row, "environment_digest"),
                                db_get(rows, row, "tag"), db_get(rows, row, "regime")};
    const struct digest id = place_id(&place);
    struct document *older = documents_find(agreed, &id), *made = NULL;
    bool is_mine = documents_begin(agreed, &id);
    bool ok = agreed_make(worker, &place, &made, error);
    if (is_mine)
      documents_end(agreed, &id);
    if (ok && (!older || !digest_equal(&older->digest, &made->digest)))
      response_cache_forget_channels(worker->server);
    if (older)
      document_put(agreed, older);
    if (!ok)
      return false;
    document_put(agreed, made);
    counted[row] = id;
  }

  if (seconds <= 0 && documents_keep(agreed, counted, (size_t)db_count(rows)))
    response_cache_forget_channels(worker->server);
  return true;
}
