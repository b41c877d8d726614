/* What containers agree on, by place: an environment, tag and regime. Counting may take seconds, so
 * the thread of prepare.c does it when there is new evidence, and requests use the last result; one
 * counts itself only where there is none.
 *
 * Memory and threads: choices.h; agreed_prepare belongs to that thread. */
#include "common/base/log.h"
#include "server/choice/agreed.sql.h"
#include "server/choice/choices.h"
#include "server/choice/documents.h"
#include "server/choice/function_overrides.h"
#include "server/db/db_record.h"
#include "server/http/request.h"

#define PLACES_MAX 32 /* that are counted before they are requested */
/* Of a place's choices, further ones are left out: programs read at most 16 MiB in all, so that one
 * token could keep them from all choices. */
#define AGREED_BYTES_MAX (4u << 20)
#define CHOICE_BYTES 100 /* of each, and of each banned config, beside key and config */

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
  const struct environment *environment;
  struct digest digest; /* of the environment */
  const char *tag, *regime;
};

static struct digest place_id(const struct place *place) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *name =
      xasprintf("%s %s %s", digest_format(&place->digest, text), place->regime, place->tag);
  return digest_of(name, strlen(name));
}

static void place_bind(struct db_parameters *parameters, const struct place *place) {
  bind_digest(parameters, "environment_digest", &place->digest);
  bind_text(parameters, "tag", place->tag);
  bind_text(parameters, "regime", place->regime);
}

/* A document that is being made, from rows with the configs of each key by their rank. */
struct making {
  const struct db_rows *rows;
  const struct function_rules *rules;
  char closure[DIGEST_TEXT_SIZE]; /* of the rows that are read */
  struct overrides own;           /* of that function */
  json_t *functions;
  size_t bytes;
};

/* What a key comes to. */
struct key_choice {
  const struct override *pin; /* NULL: none decides */
  int agreed;                 /* the row of the best config that is not banned; -1: none */
  json_t *banned;             /* configs before it, each with its ban */
  size_t bytes;
};

static bool is_key_of(const struct db_rows *rows, int row, int other) {
  struct digest function = db_get_digest(rows, row, "function"),
                its = db_get_digest(rows, other, "function");
  return digest_equal(&function, &its) &&
         string_equal(db_get(rows, row, "key"), db_get(rows, other, "key"));
}

static json_t *override_id(const struct override *it) {
  return json_sprintf("%lld", (long long)it->id);
}

/* Decides about the key of a row; returns the first row of the next key. */
static int key_decide(const struct making *making, int row, struct key_choice *ret) {
  const struct db_rows *rows = making->rows;
  const struct overrides *own = &making->own;
  struct digest function = db_get_digest(rows, row, "function");
  const char *key = db_get(rows, row, "key");
  int first = row;
  *ret = (struct key_choice){.agreed = -1, .banned = json_array()};

  for (; row < db_count(rows) && is_key_of(rows, row, first); row++) {
    if (ret->agreed >= 0 || db_is_null(rows, row, "config"))
      continue;
    cleanup_json json_t *config = db_get_json(rows, row, "config");
    const struct override *ban =
        override_next(own, OVERRIDE_BAN, NULL, &function, NULL, key, config);
    if (ban)
      json_push(ret->banned,
                json_pack("{s:O, s:o, s:o}", "config", config, "key", db_get_json(rows, row, "key"),
                          "override", override_id(ban)));
    else
      ret->agreed = row;
    ret->bytes += strlen(key) + strlen(db_get(rows, row, "config")) + CHOICE_BYTES;
  }

  do
    ret->pin = override_next(own, OVERRIDE_PIN, ret->pin, &function, NULL, key, NULL);
  while (ret->pin &&
         override_next(own, OVERRIDE_BAN, NULL, &function, NULL, key, ret->pin->config));
  if (ret->pin && ret->agreed >= 0) {
    cleanup_json json_t *config = db_get_json(rows, ret->agreed, "config");
    if (json_equal(config, ret->pin->config))
      ret->pin = NULL;
  }
  if (ret->pin) {
    cleanup_free char *config = json_canonical(ret->pin->config);
    ret->bytes += strlen(key) + strlen(config) + CHOICE_BYTES;
  }
  return row;
}

/* The choice that is in a row, or the pin that takes its place. */
static json_t *choice_of_row(const struct db_rows *rows, int row, const struct override *pin) {
  bool has_time = !db_is_null(rows, row, "tuning_ms");
  return json_pack("{s:o, s:o, s:I, s:o*, s:o*, s:o*}", "config",
                   pin ? json_incref(pin->config) : db_get_json(rows, row, "config"), "key",
                   db_get_json(rows, row, "key"), "measured",
                   (json_int_t)db_get_integer(rows, row, "measured"), "nodes",
                   pin ? NULL : json_integer(db_get_integer(rows, row, "nodes")), "override",
                   pin ? override_id(pin) : NULL, "tuning_ms",
                   has_time ? json_real(db_get_double(rows, row, "tuning_ms")) : NULL);
}

static void choice_write(struct making *making, int row, const struct key_choice *choice) {
  json_t *function = json_object_get(making->functions, making->closure);
  if (!function) {
    function = json_pack("{s:[], s:s}", "choices", "name", db_get(making->rows, row, "name"));
    json_put(making->functions, making->closure, function);
  }
  if (choice->pin || choice->agreed >= 0)
    json_push(json_object_get(function, "choices"),
              choice_of_row(making->rows, choice->agreed >= 0 ? choice->agreed : row, choice->pin));
  if (json_array_size(choice->banned)) {
    if (!json_object_get(function, "banned"))
      json_put(function, "banned", json_array());
    json_array_extend(json_object_get(function, "banned"), choice->banned);
  }
}

static void functions_write(struct making *making) {
  const struct db_rows *rows = making->rows;
  struct key_choice choice;
  for (int row = 0, next; row < db_count(rows); row = next) {
    char closure[DIGEST_TEXT_SIZE];
    struct digest function = db_get_digest(rows, row, "function");
    if (!string_equal(digest_format(&function, closure), making->closure)) {
      function_overrides_release(&making->own);
      memcpy(making->closure, closure, sizeof closure);
      function_overrides_init(&making->own, making->rules, making->closure,
                              db_get(rows, row, "name"));
    }

    next = key_decide(making, row, &choice);
    making->bytes += choice.bytes;
    bool fits = making->bytes <= AGREED_BYTES_MAX;
    if (fits && choice.bytes)
      choice_write(making, row, &choice);
    json_decref(choice.banned);
    if (!fits) {
      log_warning("choices: containers agree on more than %u MiB; further choices are left out",
                  AGREED_BYTES_MAX >> 20);
      break;
    }
  }
  function_overrides_release(&making->own);
}

/* Counts, and keeps the result in place of an older one. */
static bool agreed_make(struct worker *worker, const struct place *place, struct document **ret,
                        struct error *error) {
  const struct server_options *options = server_options(worker->server);
  const struct digest id = place_id(place);
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_function_rules struct function_rules rules = {0};
  uint64_t since = documents_dropped(server_agreed(worker->server)); /* when overrides change */
  if (!function_rules_load(worker->db, place->environment, place->tag, &rules, error))
    return false;

  place_bind(&parameters, place);
  bind_integer(&parameters, "days", EVIDENCE_DAYS);
  bind_integer(&parameters, "nodes", options->agreed_nodes);
  bind_integer(&parameters, "measured", options->agreed_measured);
  bind_integer(&parameters, "most", rules.overrides.n ? EVIDENCE_NEAR_MAX : 1);
  bind_bool(&parameters, "is_overridden", rules.overrides.n > 0);
  if (!db_run(worker->db, &sql_agreed_choices, &parameters, &rows, error))
    return false;

  cleanup_json json_t *functions = json_object();
  struct making making = {.rows = rows, .rules = &rules, .functions = functions};
  functions_write(&making);
  cleanup_json json_t *json = json_pack("{s:O}", "functions", functions);
  *ret = documents_add(server_agreed(worker->server), &id, json_canonical(json), false, since);
  return true;
}

bool evidence_agreed(struct worker *worker, const struct environment *environment, const char *tag,
                     enum regime regime, struct document **ret, struct error *error) {
  const struct place place = {environment, environment_digest(environment), tag,
                              regime_name(regime)};
  const struct digest id = place_id(&place);
  struct documents *agreed = server_agreed(worker->server);
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
  struct documents *agreed = server_agreed(worker->server);
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
    cleanup_environment struct environment environment = {0};
    cleanup_json json_t *json = db_get_json(rows, row, "environment");
    if (!environment_parse(json, &environment, error))
      return error_become(error, ERROR_DAMAGED);
    const struct place place = {&environment, db_get_digest(rows, row, "environment_digest"),
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
