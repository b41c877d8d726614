/* Decisions about channels, and reading the requests for them. Pure functions, any thread. */
#include "server/channel/channels.h"

#include <inttypes.h>

/* Whether a list of entity tags is well formed; *ret_has: whether `etag` is one of them. The
 * comparison is strong: a weak tag matches nothing. */
static bool tags_scan(const char *list, const char *etag, bool *ret_has) {
  size_t n = 0;
  *ret_has = false;
  for (const char *at = list + strspn(list, " \t,"); *at; n++) {
    bool is_weak = string_starts(at, "W/");
    const char *tag = at + (is_weak ? 3 : 1);
    const char *end = tag[-1] == '"' ? strchr(tag, '"') : NULL;
    if (!end)
      return false;
    size_t size = (size_t)(end - tag);
    *ret_has |= !is_weak && size == strlen(etag) && memcmp(tag, etag, size) == 0;

    at = end + 1 + strspn(end + 1, " \t");
    if (*at && *at != ',')
      return false;
    at += strspn(at, " \t,");
  }

  return n > 0;
}

bool channel_precondition_check(const char *if_match, const char *if_none_match,
                                struct error *error) {
  bool has;
  if (if_match && if_none_match)
    return error_set(error, "If-Match and If-None-Match cannot both hold; send one of them");
  if (if_none_match && strcmp(if_none_match, "*") != 0)
    return error_set(error,
                     "If-None-Match must be * here: it moves only a channel that has no entry yet");
  if (if_match && strcmp(if_match, "*") != 0 && !tags_scan(if_match, "", &has))
    return error_set(error, "If-Match must be * or the quoted ETag of the entry, not %.100s",
                     if_match);
  return true;
}

#define RECORD_OF struct channel_move
static const struct field move_fields[] = {
    MEMBER(DIGEST, release, FIELD_REQUIRED),
    MEMBER(INTEGER, counter, .least = 1, .most = INT64_MAX),
    MEMBER_AS("expires", CUSTOM, expires_s, .custom = &expires_field),
    MEMBER(CUSTOM, signatures, .custom = &channel_signatures_field),
};
#undef RECORD_OF
const struct record channel_move_record =
    RECORD("ChannelRequest", struct channel_move, move_fields);

bool channel_move_parse(const json_t *json, struct channel_move *ret, struct error *error) {
  struct channel_move move = {0};
  if (!record_read(&channel_move_record, json, "", &move, error))
    return false;
  if (move.signatures.n && !move.counter)
    return error_at(error, "/counter", "state the counter too: the signatures cover it");

  *ret = move;
  return true;
}

#define RECORD_OF struct channel_signing
static const struct field signing_fields[] = {
    MEMBER(CUSTOM, environment, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(TEXT, tag, FIELD_NOT_NULL, .about = "default: \"default\""),
    MEMBER(ENUM, regime, FIELD_NOT_NULL, .names = regime_names),
    MEMBER(INTEGER, counter, FIELD_REQUIRED, .least = 1, .most = INT64_MAX),
    MEMBER(RECORD, signature, FIELD_REQUIRED, .of = &channel_signature_record),
};
#undef RECORD_OF
const struct record channel_signing_record =
    RECORD("SignatureRequest", struct channel_signing, signing_fields);

bool channel_signing_parse(const json_t *json, struct channel_signing *ret, struct error *error) {
  cleanup_channel_signing struct channel_signing signing = {.tag = xstrdup("default"),
                                                            .regime = REGIME_IMPLIED};
  if (!record_read(&channel_signing_record, json, "", &signing, error))
    return false;

  *ret = signing;
  signing = (struct channel_signing){0};
  return true;
}

void channel_signing_release(struct channel_signing *signing) {
  record_release(&channel_signing_record, signing);
  *signing = (struct channel_signing){0};
}

static const struct channel_signature *signature_by(const struct channel_entry *entry,
                                                    const struct digest *key) {
  for (size_t i = 0; i < entry->signatures.n; i++)
    if (digest_equal(&entry->signatures.all[i].key, key))
      return &entry->signatures.all[i];
  return NULL;
}

static bool signature_is_there(const struct channel_entry *entry,
                               const struct channel_signature *signature) {
  const struct channel_signature *there = signature_by(entry, &signature->key);
  return there && string_equal(there->text, signature->text);
}

static bool move_is_done(const struct channel_entry *entry, const struct channel_move *wanted) {
  if (!digest_equal(&entry->release, &wanted->release) || entry->expires_s != wanted->expires_s ||
      (wanted->counter && entry->counter != wanted->counter))
    return false;

  for (size_t i = 0; i < wanted->signatures.n; i++)
    if (!signature_is_there(entry, &wanted->signatures.all[i]))
      return false;
  return true;
}

enum channel_decision channel_decide(const struct channel_state *state,
                                     const struct channel_entry *entry,
                                     const struct channel_move *wanted, const char *if_match,
                                     const char *if_none_match) {
  char etag[CHANNEL_ETAG_SIZE];
  bool exists = state->counter > 0, has;
  if (exists && move_is_done(entry, wanted))
    return CHANNEL_KEEP;
  if (if_none_match && exists)
    return CHANNEL_REFUSE;
  if (if_match && !(exists && (strcmp(if_match, "*") == 0 ||
                               (tags_scan(if_match, channel_etag(state, etag), &has) && has))))
    return CHANNEL_REFUSE;
  if (wanted->counter && wanted->counter - 1 != state->counter)
    return CHANNEL_REFUSE;
  return CHANNEL_MOVE;
}

enum signing_decision channel_signing_decide(const struct channel_entry *entry,
                                             const struct channel_signing *signing) {
  if (entry->counter != signing->counter)
    return SIGNING_STALE;
  if (signature_is_there(entry, &signing->signature))
    return SIGNING_KEEP;
  if (entry->signatures.n == CHANNEL_SIGNATURES_MAX &&
      !signature_by(entry, &signing->signature.key))
    return SIGNING_FULL;
  return SIGNING_ADD;
}
