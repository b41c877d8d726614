/* Making proposals; their routes. Memory and threads: proposals.h. */
#include "server/policy/proposals.h"

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/channel/channels.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/http/router.h"
#include "server/policy/proposals.sql.h"
#include "server/records.h"
#include "server/release/releases.h"
#include "server/token/tokens.h"

#define PROPOSAL_TAG "default"
#define PROPOSAL_REGIME REGIME_IMPLIED
#define ID_SIZE 24

void proposed_places_release(struct proposed_places *places) {
  free(places->all);
  *places = (struct proposed_places){0};
}

/* Making */

/* An environment with what can be proposed for it; borrows from the rows. */
struct place {
  const struct policy *policy;
  struct environment environment;
  struct digest environment_digest, served; /* all zeros: the channel serves nothing */
  const char *images;                       /* a text[] literal */
  json_t *image_list, *kernels;
};
static void place_release(struct place *place) {
  environment_release(&place->environment);
  json_decref(place->image_list);
  json_decref(place->kernels);
}
#define cleanup_place __attribute__((cleanup(place_release)))

/* Whether the place is as it was when it was considered last; notes it as it is now. */
static bool is_seen(struct proposed_places *places, int64_t policy, const struct db_rows *rows,
                    int row) {
  struct digest environment = db_get_digest(rows, row, "environment_digest"),
                seen = db_get_digest(rows, row, "seen");
  for (size_t i = 0; i < places->n; i++)
    if (places->all[i].policy == policy &&
        digest_equal(&places->all[i].environment, &environment)) {
      bool is_same = digest_equal(&places->all[i].seen, &seen);
      places->all[i].seen = seen;
      return is_same;
    }
  GROW(places->all, places->n, places->capacity);
  places->all[places->n++] = (struct proposed_place){policy, environment, seen};
  return false;
}

static bool id_note(struct db *db, const struct author *author, enum audit_action action,
                    int64_t id, json_t *detail, struct error *error) {
  char text[ID_SIZE];
  snprintf(text, sizeof text, "%lld", (long long)id);
  return audit_note(db, author, action, text, detail, error);
}

/* Ends the open proposals of a place, or, with a NULL place, those to channels without a policy. */
static bool open_replace(struct db *db, const struct place *place, const char *reason,
                         const struct author *author, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_proposals_replace, error, BIND("channel", place ? place->policy->channel : NULL),
      BIND("environment_digest", place ? &place->environment_digest : NULL),
      BIND("tag", PROPOSAL_TAG), BIND("regime", regime_name(PROPOSAL_REGIME)),
      BIND("reason", reason), BIND_AUTHOR(author));
  if (!rows)
    return false;
  for (int row = 0; row < db_count(rows); row++)
    if (!id_note(db, author, AUDIT_REPLACE, db_get_integer(rows, row, "id"),
                 json_pack("{s:s, s:s}", "channel", db_get(rows, row, "channel"), "reason", reason),
                 error))
      return false;
  return true;
}

bool proposals_end(struct db *db, const char *reason, const struct author *author,
                   struct error *error) {
  return open_replace(db, NULL, reason, author, error);
}

/* The kernels that the place's release names: those of the images that are done, and those that
 * the channel serves. */
static json_t *kernels_named(const struct place *place, const struct release *served) {
  json_t *names = json_deep_copy(place->kernels);
  for (size_t i = 0; served && i < served->n_kernels; i++) {
    json_t *name = json_digest_text(&served->kernels[i].hash), *other;
    size_t n;
    bool is_there = false;
    json_array_foreach (names, n, other)
      is_there = is_there || json_equal(name, other);
    if (is_there)
      json_decref(name);
    else
      json_push(names, name);
  }
  return names;
}

/* The release of a place; NULL in ret->release: there is nothing to release. */
static bool place_make(struct worker *worker, const struct place *place,
                       const struct release *served, struct release_made *ret,
                       struct error *error) {
  cleanup_release_request struct release_request wanted = {0};
  cleanup_json json_t *body =
      json_pack("{s:o, s:s, s:s, s:o, s:s, s:{s:s}}", "environment",
                environment_to_json(&place->environment), "tag", PROPOSAL_TAG, "regime",
                regime_name(PROPOSAL_REGIME), "kernels", kernels_named(place, served),
                "require_agreement", agreement_requirement_names[place->policy->require],
                "replaces", "channel", place->policy->channel);
  return release_request_parse(body, &wanted, error) &&
         release_make(worker, &wanted, &place->environment, &author_server, ret, error);
}

/* What a release changes: the difference to what the channel serves, and what was kept and
 * skipped. */
static json_t *changes_of(const struct release *served, const struct release_made *made) {
  const struct release nothing = {0};
  json_t *changes = release_diff(served ? served : &nothing, made->release);
  json_object_set(changes, "kept", json_object_get(made->answer, "kept"));
  json_object_set(changes, "skipped", json_object_get(made->answer, "skipped"));
  return changes;
}

/* In the caller's transaction. */
static bool proposal_add(struct db *db, const struct place *place, const struct release_made *made,
                         const char *etag, json_t *changes, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_json json_t *environment = environment_to_json(&place->environment);
  const char *channel = place->policy->channel;
  return open_replace(db, place, "another release replaces it", &author_server, error) &&
         (rows = db_query(db, &sql_proposals_add, error, BIND("channel", channel),
                          BIND("release", &made->release->digest),
                          BIND("environment_digest", &place->environment_digest),
                          BIND("environment", environment), BIND("tag", PROPOSAL_TAG),
                          BIND("regime", regime_name(PROPOSAL_REGIME)),
                          BIND("winners", (int64_t)made->release->n_winners),
                          BIND("images", place->images), BIND("etag", etag),
                          BIND("changes", changes))) &&
         id_note(db, &author_server, AUDIT_PROPOSE, db_get_integer(rows, 0, "id"),
                 json_pack("{s:s, s:o, s:O, s:I}", "channel", channel, "release",
                           json_digest_text(&made->release->digest), "images", place->image_list,
                           "winners", (json_int_t)made->release->n_winners),
                 error);
}

/* Proposes the release unless it is proposed, served, or was rejected. */
static bool place_store(struct worker *worker, const struct place *place,
                        const struct release *served, const struct release_made *made,
                        struct error *error) {
  struct db *db = worker->db;
  const char *etag =
      json_string_value(json_object_get(json_object_get(made->answer, "replaces"), "etag"));
  bool is_served = served && digest_equal(&served->digest, &made->release->digest);
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_proposals_present, error, BIND("channel", place->policy->channel),
               BIND("environment_digest", &place->environment_digest), BIND("tag", PROPOSAL_TAG),
               BIND("regime", regime_name(PROPOSAL_REGIME)),
               BIND("release", &made->release->digest), BIND("etag", etag));
  if (!rows)
    return false;
  if (!db_is_null(rows, 0, "same") || db_get_bool(rows, 0, "is_rejected"))
    return true;

  cleanup_json json_t *changes = changes_of(served, made);
  if (!db_begin(db, error))
    return false;
  bool ok = is_served
                ? open_replace(db, place, "the channel serves these winners", &author_server, error)
                : proposal_add(db, place, made, etag, changes, error);
  return db_end(db, ok, error);
}

static bool place_propose(struct worker *worker, const struct place *place, struct error *error) {
  cleanup_release struct release *served = NULL;
  cleanup_release_made struct release_made made = {0};
  struct error unread;
  if (!digest_is_none(&place->served) && !release_load(worker, &place->served, &served, &unread))
    log_warning("policy: the release that channel %s serves is not compared with: %s",
                place->policy->channel, unread.message);
  return place_make(worker, place, served, &made, error) &&
         (!made.release || place_store(worker, place, served, &made, error));
}

/* Whether the policy's token may move its channel now: another token may have taken its name. One
 * that an operator set, or that is older than policies of tokens, promotes as it always did. */
static bool may_promote(struct db *db, const struct policy *policy, bool *ret,
                        struct error *error) {
  cleanup_free char *patterns = NULL;
  unsigned roles = 0;
  *ret = policy->token == FIELD_NONE ||
         (roles_parse(policy->roles, &roles, error) && roles & (TOKEN_OPERATOR | TOKEN_ADMIN));
  return *ret || token_moves_channel(db, policy->token, policy->channel, ret, &patterns, error);
}

/* Promotes what is open by the rule, where the channel needs no signature. */
static bool open_promote(struct worker *worker, const struct policy *policy, struct error *error) {
  bool may;
  if (!policy->promote || server_publisher_keys(worker->server)->n)
    return true;
  if (!may_promote(worker->db, policy, &may, error))
    return false;
  if (!may)
    return true;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_proposals_open, error, BIND("channel", policy->channel));
  if (!rows)
    return false;
  for (int row = 0; row < db_count(rows); row++) {
    const struct digest release = db_get_digest(rows, row, "release");
    const char *etag = db_is_null(rows, row, "etag") ? NULL : db_get(rows, row, "etag");
    bool is_moved;
    if (!channel_promote(worker, policy->channel, &release, etag, &author_server, &is_moved, error))
      return false;
    if (is_moved)
      log_info("policy: channel %s has proposal %s", policy->channel, db_get(rows, row, "id"));
  }
  return true;
}

/* Whether something changed since it was looked at; notes the state as it is now. */
static bool is_changed(struct db *db, struct proposed_places *places, bool *ret,
                       struct error *error) {
  int64_t now_ms = clock_monotonic_ms();
  cleanup_rows struct db_rows *rows = db_query(db, &sql_proposals_state, error);
  if (!rows)
    return false;
  struct digest state = db_get_digest(rows, 0, "state");
  *ret = !places->looked_ms || now_ms - places->looked_ms > PROPOSAL_LOOK_MS ||
         !digest_equal(&state, &places->state);
  if (*ret) {
    places->state = state;
    places->looked_ms = now_ms;
  }
  return true;
}

static bool old_collect(struct db *db, struct error *error) {
  return db_execute(db, &sql_proposals_collect, error, BIND("days", PROPOSAL_KEEP_DAYS));
}

/* In a transaction, because it notes what it ends. */
static bool others_replace(struct db *db, struct error *error) {
  return db_begin(db, error) &&
         db_end(db, proposals_end(db, "no policy proposes to this channel", &author_server, error),
                error);
}

/* Proposes for each environment that changed. */
static bool places_propose(struct worker *worker, const struct policy *policy,
                           struct proposed_places *places, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_proposals_places, error, BIND("policy", policy->id),
               BIND("regime", regime_name(PROPOSAL_REGIME)));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    cleanup_place struct place place = {.policy = policy};
    cleanup_json json_t *identity = db_get_json(rows, row, "environment");
    if (is_seen(places, policy->id, rows, row))
      continue;
    ALWAYS(environment_parse(identity, &place.environment, error));
    place.environment_digest = db_get_digest(rows, row, "environment_digest");
    place.images = db_get(rows, row, "images");
    place.image_list = db_get_json(rows, row, "image_list");
    place.kernels = db_get_json(rows, row, "kernel_list");
    if (!db_is_null(rows, row, "served"))
      place.served = db_get_digest(rows, row, "served");
    if (place_propose(worker, &place, error))
      continue;
    if (error->kind != ERROR_INVALID && error->kind != ERROR_TOO_LARGE)
      return false;
    log_warning("policy: no release for channel %s: %s", policy->channel, error->message);
  }
  return true;
}

bool proposals_make(struct worker *worker, const struct policy *policies, size_t n,
                    struct proposed_places *places, struct error *error) {
  bool is_new = false;
  if (!is_changed(worker->db, places, &is_new, error))
    return false;
  if (!is_new)
    return true;

  bool ok = old_collect(worker->db, error) && others_replace(worker->db, error);
  for (size_t i = 0; ok && i < n; i++)
    if (policies[i].acts && policies[i].channel)
      ok = places_propose(worker, &policies[i], places, error) &&
           open_promote(worker, &policies[i], error);
  if (!ok)
    proposed_places_release(places); /* all is considered again */
  return ok;
}

/* Reading */

struct proposal {
  int64_t id, winners, added, removed, changed, decided_by_id;
  struct digest release;
  enum regime regime;
  char *channel, *tag, *etag, *state, *reason, *waits_for, *made_at, *decided_at, *decided_by;
  json_t *environment, *changes;
  struct texts images;
  bool promote;
};
#define RECORD_OF struct proposal
static const struct field proposal_fields[] = {
    MEMBER(ID, id),
    MEMBER(TEXT, channel),
    MEMBER(DIGEST, release),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, tag),
    MEMBER(ENUM, regime, .names = regime_names, .schema = SCHEMA("Regime")),
    MEMBER(INTEGER, winners),
    MEMBER(INTEGER, added, .about = "winners that the channel does not serve"),
    MEMBER(INTEGER, removed),
    MEMBER(INTEGER, changed),
    MEMBER(TEXTS, images, .about = "whose captured keys were all done"),
    MEMBER(TEXT, etag,
           .about = "of the channel's entry that it was compared with; null: there was none"),
    MEMBER(TEXT, state,
           .schema = "{\"enum\": [\"open\", \"promoted\", \"rejected\", \"replaced\"]}"),
    MEMBER(TEXT, waits_for, FIELD_NO_COLUMN, .about = "of an open one"),
    MEMBER(TEXT, reason, .about = "of a rejection or replacement"),
    MEMBER(TIME, made_at),
    MEMBER(TIME, decided_at),
    MEMBER(TEXT, decided_by, .schema = SCHEMA_BY),
    MEMBER(ID, decided_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(JSON, changes, FIELD_OMITTED, .schema = "{\"type\": \"object\"}",
           .about = "added, removed, changed, kept and skipped; not in lists"),
    MEMBER(BOOL, promote, FIELD_NO_JSON),
};
const struct record proposal_record = ANSWER("Proposal", proposal_fields);
#undef RECORD_OF

static json_t *proposal_write(const void *object, bool is_signed) {
  struct proposal proposal = *(const struct proposal *)object;
  static const char a_key[] = "a publisher's key (wavetune proposals promote --sign-key)";
  static const char a_publisher[] = "a publisher (wavetune proposals promote)";
  static const char the_rule[] = "the policy, which promotes it";
  if (string_equal(proposal.state, "open"))
    proposal.waits_for = (char *)(is_signed ? a_key : proposal.promote ? the_rule : a_publisher);
  return record_write(&proposal_record, &proposal);
}
static json_t *write_signed(const void *object) { return proposal_write(object, true); }
static json_t *write_unsigned(const void *object) { return proposal_write(object, false); }

bool route_proposal_list(struct worker *worker, struct request *request, struct error *error) {
  const struct list list = {.statement = &sql_proposals_list,
                            .record = &proposal_record,
                            .write = server_publisher_keys(worker->server)->n ? write_signed
                                                                              : write_unsigned,
                            .is_newest_first = true};
  return answer_page_by(worker, request, &list, error);
}

/* Finds the proposal of the path. NULL: *error says why not. */
static struct db_rows *proposal_find(struct worker *worker, struct request *request,
                                     struct error *error) {
  int64_t id;
  if (!id_read(request, "proposal", &id, error))
    return NULL;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_proposals_get, error, BIND("id", id));
  if (rows && db_count(rows))
    return TAKE(rows);
  if (rows)
    error_of(error, ERROR_MISSING, "there is no proposal %lld; GET /v1/proposals lists all",
             (long long)id);
  return NULL;
}

static bool proposal_answer(struct worker *worker, struct request *request,
                            const struct db_rows *rows) {
  return request_answer_json(
      request, 200,
      db_row_to_json(rows, &proposal_record,
                     server_publisher_keys(worker->server)->n ? write_signed : write_unsigned));
}

bool route_proposal_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = proposal_find(worker, request, error);
  return rows && proposal_answer(worker, request, rows);
}

static bool open_check(const struct db_rows *rows, struct error *error) {
  const char *state = db_get(rows, 0, "state"), *reason = db_get(rows, 0, "reason");
  return string_equal(state, "open") ||
         error_of(error, ERROR_CONFLICT, "proposal %s was %s%s%s; GET /v1/proposals lists all",
                  db_get(rows, 0, "id"), state, *reason ? ": " : "", reason);
}

/* Moves the channel, which promotes the proposal (channel_move). Unless the request states another
 * condition, only from the entry that the proposal was compared with. */
bool route_proposal_promote(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = proposal_find(worker, request, error);
  struct channel_move move;
  if (!rows || !open_check(rows, error))
    return false;

  struct digest release = db_get_digest(rows, 0, "release");
  cleanup_json json_t *body = json_copy(request->json);
  if (json_object_get(body, "release"))
    return error_at(error, "/release", "the release is the proposal's; leave \"release\" out");
  if (json_is_object(body))
    json_put(body, "release", json_digest_text(&release));
  if (!channel_move_parse(body, &move, error))
    return false;

  struct channel_condition condition = {request_header(request, "If-Match"),
                                        request_header(request, "If-None-Match")};
  if (!condition.if_match && !condition.if_none_match) {
    if (db_is_null(rows, 0, "etag"))
      condition.if_none_match = "*";
    else
      condition.if_match = db_get(rows, 0, "etag");
  }
  return channel_put(worker, request, db_get(rows, 0, "channel"), &move, &condition, error);
}

struct reject_request {
  char *reason;
};
#define RECORD_OF struct reject_request
static const struct field reject_fields[] = {
    MEMBER(TEXT, reason, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = PROPOSAL_REASON_MAX),
};
#undef RECORD_OF
const struct record proposal_reject_record =
    RECORD("ProposalRejection", struct reject_request, reject_fields);

static bool proposal_reject(struct db *db, int64_t id, const char *reason,
                            const struct author *author, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok =
      db_begin(db, error) && (rows = db_query(db, &sql_proposals_reject, error, BIND("id", id),
                                              BIND("reason", reason), BIND_AUTHOR(author)));
  if (ok && db_count(rows))
    ok = id_note(db, author, AUDIT_REJECT, id, json_pack("{s:s}", "reason", reason), error);
  return db_end(db, ok, error);
}

bool route_proposal_reject(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = proposal_find(worker, request, error);
  struct reject_request wanted = {0};
  bool ok = rows && record_read(&proposal_reject_record, request->json, "", &wanted, error) &&
            open_check(rows, error) &&
            channel_may_be_moved(worker, request, db_get(rows, 0, "channel"), error) &&
            proposal_reject(worker->db, db_get_integer(rows, 0, "id"), wanted.reason,
                            request_author(request), error);
  record_release(&proposal_reject_record, &wanted);
  cleanup_rows struct db_rows *after = ok ? proposal_find(worker, request, error) : NULL;
  return after && proposal_answer(worker, request, after);
}
