/* Checks of a server's answer: signature, question, expiry, counter, digest. No file is written
 * here.
 *
 * A server that is not trusted can only withhold a release: an entry that no trusted key signed,
 * one for another GPU, one that is older than the newest entry seen, and a release whose digest is
 * not its entry's are refused.
 *
 * The state's "seen" has the counters that were seen, the newest first:
 *   {"channel", "environment", "tag", "regime", "counter", "release", "keys": [id, …]},
 *   without a regime: cold
 * "keys" are those that were trusted then. A counter that was seen without keys does not bind a
 * fetch with keys (any server could have sent it), and one that was seen with other keys only does
 * not either; while keys are rotated, old and new ones overlap, so that it binds.
 *
 * Memory and threads: fetch.h. */
#include <inttypes.h>
#include <time.h>

#include "cli/fetch.h"
#include "common/base/time.h"

#define SEEN_MAX 64

bool entry_is_signed(const struct fetch *fetch, const struct channel_entry *entry,
                     struct error *error) {
  return fetch->keys.n == 0 || channel_entry_verify(entry, &fetch->keys, error);
}

static bool entry_is_for_request(const struct fetch *fetch, const struct channel_entry *entry,
                                 struct error *error) {
  if (!string_equal(entry->channel, fetch->channel) || !string_equal(entry->tag, fetch->tag) ||
      entry->regime != fetch->regime) {
    return error_of(error, ERROR_UNTRUSTED,
                    "the server sent the entry of channel \"%.64s\" with tag \"%.64s\" and regime "
                    "%s, which was not requested",
                    entry->channel, entry->tag, regime_name(entry->regime));
  }

  /* Whatever an operator declared, the members that identify the GPU must be equal. */
  if (!cache_rules_serve(fetch->match, &fetch->requested, &entry->environment)) {
    cleanup_free char *requested = environment_format(&fetch->requested),
                      *served = environment_format(&entry->environment);
    return error_of(
        error, ERROR_UNTRUSTED,
        "the server sent an entry for another environment (%.200s) than was requested (%.200s)",
        served, requested);
  }

  return true;
}

bool entry_is_current(const struct channel_entry *entry, struct error *error) {
  if (!entry->expires_s || entry->expires_s > time(NULL))
    return true;
  return error_of(error, ERROR_EXPIRED,
                  "the entry %" PRId64
                  " of channel \"%s\" expired at %s; publish or sign a newer one",
                  entry->counter, entry->channel, TIME_TEXT(entry->expires_s));
}

/* Whether a counter that was seen binds this fetch. */
static bool seen_binds(const struct fetch *fetch, const json_t *seen) {
  json_elements (json_object_get(seen, "keys"), i, then) {
    struct digest id;
    const char *text = json_string_value(then);
    for (size_t j = 0; text && digest_parse(text, &id) && j < fetch->keys.n; j++)
      if (digest_equal(&id, &fetch->keys.all[j].id))
        return true;
  }
  return fetch->keys.n == 0;
}

static bool is_of_same_entry(const json_t *seen, const struct channel_entry *entry) {
  cleanup_json json_t *environment = environment_to_json(&entry->environment);
  struct error error;
  enum regime regime;
  return regime_get(seen, "", &regime, &error) && regime == entry->regime &&
         string_equal(cli_member(seen, "channel"), entry->channel) &&
         string_equal(cli_member(seen, "tag"), entry->tag) &&
         json_equal(json_object_get(seen, "environment"), environment);
}

static bool entry_is_not_older(const struct fetch *fetch, const struct channel_entry *entry,
                               struct error *error) {
  const char *release = DIGEST_TEXT(&entry->release);

  json_elements (json_object_get(fetch->state, "seen"), i, seen) {
    int64_t counter = cli_integer(seen, "counter");
    bool is_other =
        entry->counter == counter && !string_equal(cli_member(seen, "release"), release);
    if ((entry->counter < counter || is_other) && is_of_same_entry(seen, entry) &&
        seen_binds(fetch, seen))
      return error_of(error, ERROR_REPLAYED,
                      "the server sent entry %" PRId64 " of channel \"%s\"%s, and entry %" PRId64
                      " was seen already; if the server was set up again, remove %s/.fetch.json",
                      entry->counter, entry->channel, is_other ? " with another release" : "",
                      counter, fetch->to);
  }

  return true;
}

bool entry_verify(struct fetch *fetch, const json_t *json, struct channel_entry *ret,
                  struct error *error) {
  cleanup_channel_entry struct channel_entry entry = {0};
  int64_t begin_ns = clock_monotonic_ns();
  if (!channel_entry_parse(json, &entry, error))
    return error_prefix(error, "the server's channel entry: ");
  if (!entry_is_signed(fetch, &entry, error)) {
    error_prefix(error,
                 "the entry %" PRId64 " of channel \"%.64s\" is not trusted: ", entry.counter,
                 entry.channel);
    return error_become(error, ERROR_UNTRUSTED);
  }

  if (!entry_is_for_request(fetch, &entry, error) || !entry_is_current(&entry, error) ||
      !entry_is_not_older(fetch, &entry, error))
    return false;
  fetch->took_ns[WORK_VERIFY] += clock_monotonic_ns() - begin_ns;
  *ret = entry;
  entry = (struct channel_entry){0};

  return true;
}

void entry_note(struct fetch *fetch, const struct channel_entry *entry) {
  json_t *seen = json_array(), *keys = json_array(), *one;
  size_t i;
  for (i = 0; i < fetch->keys.n; i++)
    json_push(keys, json_digest_text(&fetch->keys.all[i].id));
  json_push(seen,
            json_pack("{s:s, s:o, s:s, s:s, s:I, s:o, s:o}", "channel", entry->channel,
                      "environment", environment_to_json(&entry->environment), "tag", entry->tag,
                      "regime", regime_name(entry->regime), "counter", (json_int_t)entry->counter,
                      "release", json_digest_text(&entry->release), "keys", keys));

  /* An entry that was not verified does not replace one that was. */
  json_array_foreach (json_object_get(fetch->state, "seen"), i, one) {
    bool was_verified = json_array_size(json_object_get(one, "keys")) > 0;
    bool is_replaced = is_of_same_entry(one, entry) && seen_binds(fetch, one) &&
                       (fetch->keys.n > 0 || !was_verified);
    if (!is_replaced && json_array_size(seen) < SEEN_MAX)
      json_push(seen, json_incref(one));
  }

  json_put(fetch->state, "seen", seen);
}

bool bytes_verify(struct fetch *fetch, const struct channel_entry *entry, const char *bytes,
                  size_t size, struct error *error) {
  int64_t begin_ns = clock_monotonic_ns();
  struct digest found = digest_of(bytes, size);
  fetch->took_ns[WORK_VERIFY] += clock_monotonic_ns() - begin_ns;
  if (digest_equal(&found, &entry->release))
    return true;
  return error_of(error, ERROR_TAMPERED, "release %s arrived with other bytes; it was not used",
                  DIGEST_TEXT(&entry->release));
}

bool release_verify(struct fetch *fetch, const struct channel_entry *entry, char **bytes,
                    size_t size, struct release **ret_release, struct error *error) {
  int64_t begin_ns = clock_monotonic_ns();
  const char *text = DIGEST_TEXT(&entry->release);
  if (!release_take(bytes, size, &entry->release, ret_release, error))
    return error_prefix(error, "release %s: ", text);
  fetch->took_ns[WORK_READ] += clock_monotonic_ns() - begin_ns;
  const struct release *release = *ret_release;

  /* An entry without a signature may name a release for another GPU. */
  if (!environment_fits(&release->environment, &entry->environment) ||
      !environment_fits(&entry->environment, &release->environment) ||
      !string_equal(release->tag, entry->tag) || release->regime != entry->regime) {
    cleanup_free char *environment = environment_format(&release->environment);
    return error_of(error, ERROR_TAMPERED,
                    "release %s is for another environment, tag or regime (%.200s, %.64s, %s) than "
                    "its entry states",
                    text, environment, release->tag, regime_name(release->regime));
  }

  return true;
}
