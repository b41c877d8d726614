/* Decisions about channels. Pure functions, any thread. */
#include "server/core/channels.h"

#include <inttypes.h>

char *channel_etag(const struct channel_state *state, char text[CHANNEL_ETAG_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  digest_format(&state->release, digest);
  snprintf(text, CHANNEL_ETAG_SIZE, "%" PRId64 "-%s", state->counter, digest + strlen("sha256:"));
  return text;
}

/* Reads the next tag of a list; false at its end or where it is malformed, then *list is not at the end. */
static bool tag_next(const char **list, bool *ret_weak, const char **ret_tag, size_t *ret_size) {
  const char *at = *list + strspn(*list, " \t,");
  *list = at;
  if (!*at)
    return false;
  *ret_weak = string_starts(at, "W/");
  const char *opening = *ret_weak ? at + 2 : at;
  const char *closing = *opening == '"' ? strchr(opening + 1, '"') : NULL;
  if (!closing)
    return false;
  const char *next = closing + 1 + strspn(closing + 1, " \t");
  if (*next && *next != ',')
    return false;
  *ret_tag = opening + 1;
  *ret_size = (size_t)(closing - opening - 1);
  *list = next;
  return true;
}

static bool list_is_well_formed(const char *list) {
  bool weak;
  const char *tag;
  size_t size, n = 0;
  while (tag_next(&list, &weak, &tag, &size))
    n++;
  return n > 0 && !*list;
}

/* Strong comparison: a weak tag matches nothing. */
static bool list_has(const char *list, const char *etag) {
  bool weak;
  const char *tag;
  size_t size;
  while (tag_next(&list, &weak, &tag, &size))
    if (!weak && size == strlen(etag) && memcmp(tag, etag, size) == 0)
      return true;
  return false;
}

bool channel_precondition_check(const char *if_match, const char *if_none_match, struct error *error) {
  if (if_match && if_none_match)
    return error_set(error, "If-Match and If-None-Match together cannot hold; send one of them");
  if (if_none_match && strcmp(if_none_match, "*") != 0)
    return error_set(error, "If-None-Match takes only * here: move the channel when it has no entry yet");
  if (if_match && strcmp(if_match, "*") != 0 && !list_is_well_formed(if_match))
    return error_set(error, "If-Match takes * or the quoted ETag of the entry, not %.100s", if_match);
  return true;
}

enum channel_decision channel_decide(const struct channel_state *state, const struct digest *wanted,
                                     const char *if_match, const char *if_none_match) {
  char etag[CHANNEL_ETAG_SIZE];
  bool exists = state->counter > 0;
  if (exists && digest_equal(&state->release, wanted))
    return CHANNEL_KEEP;
  if (if_none_match && exists)
    return CHANNEL_REFUSE;
  if (if_match && !(exists && (strcmp(if_match, "*") == 0 || list_has(if_match, channel_etag(state, etag)))))
    return CHANNEL_REFUSE;
  return CHANNEL_MOVE;
}
