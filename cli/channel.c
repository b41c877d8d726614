/* Reading, signing and moving channels. Memory and threads: as the header says. */
#include "cli/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "common/base/time.h"

#define EXPIRES_DAYS_MAX 3650

void signers_release(struct signers *signers) {
  for (size_t i = 0; i < signers->n; i++) {
    signing_key_release(&signers->all[i]);
    free(signers->paths[i]);
  }
  signers->n = 0;
}

static bool signer_add(struct signers *signers, const char *path, struct error *error) {
  cleanup_signing_key struct signing_key key = {0};
  if (signers->n == CHANNEL_SIGNATURES_MAX)
    return error_set(error, "%s is one key too many: %d sign an entry at most", path,
                     CHANNEL_SIGNATURES_MAX);
  if (!signing_key_read(path, &key, error))
    return false;
  if (!key.is_private)
    return error_set(error, "%s is a public key, and signing takes the private one", path);
  signers->paths[signers->n] = xstrdup(path);
  signers->all[signers->n++] = key;
  key.pkey = NULL;
  return true;
}

static bool signers_of_variable(struct signers *signers, const char *variable,
                                struct error *error) {
  cleanup_free char *paths = xstrdup(variable);
  char *rest = NULL;
  for (char *path = strtok_r(paths, ":", &rest); path; path = strtok_r(NULL, ":", &rest))
    if (!signer_add(signers, path, error))
      return error_prefix(error, "WAVETUNE_SIGN_KEYS: ");
  return true;
}

static bool follow_of_option(const struct options *options, struct signers *signers,
                             struct error *error) {
  const char *text = option_text(options, "follow");
  signers->followed = -1;
  if (!text)
    return true;
  if (!signers->n)
    return error_set(error, "--follow %.40s: nothing is signed; give --sign-key too", text);
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  signers->followed = strtoll(text, NULL, 10);
  return (digits > 0 && !text[digits] && errno == 0) ||
         error_set(error,
                   "--follow %.40s: give the counter that you signed last, 0 when there was none",
                   text);
}

bool signers_of_keys(const struct options *options, struct signers *ret, struct error *error) {
  cleanup_signers struct signers signers = {.followed = -1};
  const char *const *paths;
  size_t n = option_list(options, "sign-key", &paths);
  const char *variable = getenv("WAVETUNE_SIGN_KEYS");
  for (size_t i = 0; i < n; i++)
    if (!signer_add(&signers, paths[i], error))
      return error_prefix(error, "--sign-key: ");
  if (!n && variable && !signers_of_variable(&signers, variable, error))
    return false;
  *ret = signers;
  signers.n = 0;
  return true;
}

bool signers_of_option(const struct options *options, struct signers *ret, struct error *error) {
  cleanup_signers struct signers signers = {0};
  if (!signers_of_keys(options, &signers, error) || !follow_of_option(options, &signers, error))
    return false;
  *ret = signers;
  signers.n = 0;
  return true;
}

bool expires_of_option(const struct options *options, int64_t *ret_s, struct error *error) {
  const char *text = option_text(options, "expires");
  int64_t s = 0, ms, now_s = time(NULL);
  if (!text) {
    *ret_s = 0;
    return true;
  }
  if (duration_parse(text, &ms))
    s = now_s + ms / 1000;
  else if (!time_text_parse(text, &s))
    return error_set(error, "--expires %.40s: write 7d, 36h or a time in UTC, 2026-12-24T00:00:00Z",
                     text);
  if (s <= now_s || s - now_s > EXPIRES_DAYS_MAX * INT64_C(86400))
    return error_set(error, "--expires %.40s: it must be in the future, and not beyond %d days",
                     text, EXPIRES_DAYS_MAX);
  *ret_s = s;
  return true;
}

bool release_check(const char *bytes, size_t size, const char *digest_text,
                   struct release **ret_release, struct error *error) {
  cleanup_release struct release *release = NULL;
  if (!release_parse(bytes, size, &release, error))
    return error_prefix(error, "the server's release is not a release: ");
  char text[DIGEST_TEXT_SIZE];
  if (!string_equal(digest_format(&release->digest, text), digest_text))
    return error_set(error, "the server's release has the digest %s, not %s", text, digest_text);
  *ret_release = TAKE(release);
  return true;
}

int release_get(struct http_client *client, const char *digest_text, const char *what,
                struct release **ret_release) {
  struct error error;
  cleanup_free char *escaped = http_escape(digest_text),
                    *path = xasprintf("/v1/releases/%s", escaped);
  struct http_request request = {.method = "GET", .path = path, .response_max = RELEASE_SIZE_MAX};
  cleanup_http_response struct http_response response = {0};
  int code = cli_send(client, &request, &response);
  if (code != EXIT_OK)
    return code;
  if (response.status != 200)
    return cli_refused(&response, what);
  if (!release_check(response.body, response.size, digest_text, ret_release, &error))
    return cli_fail(EXIT_REFUSED, &error);
  return EXIT_OK;
}

void channel_present_release(struct channel_present *present) {
  json_decref(present->json);
  free(present->etag);
  channel_entry_release(&present->entry);
  *present = (struct channel_present){0};
}

/* The entry of a 2xx answer, with its entity tag. */
static bool present_read(const struct http_response *response, const char *channel,
                         struct channel_present *ret, struct error *error) {
  cleanup_present struct channel_present present = {.exists = true};
  if (!json_parse(response->body, response->size, &present.json, error) ||
      !channel_entry_parse(present.json, &present.entry, error))
    return error_prefix(error, "the server's channel entry is none: ");
  if (!string_equal(present.entry.channel, channel))
    return error_set(error, "asked for channel %s, the server answered with %s", channel,
                     present.entry.channel);
  present.etag = xstrdup(response->etag ? response->etag : "");
  json_object_set_new(present.json, "etag", json_string(present.etag));
  *ret = present;
  present = (struct channel_present){0};
  return true;
}

static int present_get(struct http_client *client, const char *channel, const char *query,
                       bool may_be_absent, struct channel_present *ret) {
  struct error error;
  cleanup_free char *escaped = http_escape(channel),
                    *path = xasprintf("/v1/channels/%s%s", escaped, query),
                    *what = xasprintf("channel %s", channel);
  struct http_request request = {.method = "GET", .path = path};
  cleanup_http_response struct http_response response = {0};
  int code = cli_send(client, &request, &response);
  if (code != EXIT_OK)
    return code;
  if (response.status == 404 && may_be_absent) {
    *ret = (struct channel_present){0};
    return EXIT_OK;
  }
  if (response.status / 100 != 2)
    return cli_refused(&response, what);
  if (!present_read(&response, channel, ret, &error))
    return cli_fail(EXIT_REFUSED, &error);
  return EXIT_OK;
}

int channel_present_of_options(struct http_client *client, const struct options *options,
                               const char *channel, struct channel_present *ret) {
  struct error error;
  cleanup_json json_t *environment = NULL;
  if (!cli_environment(options, &environment, &error))
    return cli_fail(EXIT_USAGE, &error);
  const char *regime = option_text(options, "regime");
  cleanup_free char *query = cli_query(environment, "tag", option_text(options, "tag"),
                                       cli_regime_member(regime), regime, NULL);
  return present_get(client, channel, query, false, ret);
}

bool entry_follows(const struct channel_entry *entry, const struct signers *signers,
                   struct error *error) {
  return signers->followed < 0 || entry->counter - 1 == signers->followed ||
         error_set(error,
                   "channel %s would get a signature at counter %" PRId64
                   ", which does not follow counter %" PRId64
                   ": somebody else moved the channel, or the server tells a wrong counter; when "
                   "you know that it is "
                   "right, state --follow %" PRId64,
                   entry->channel, entry->counter, signers->followed, entry->counter - 1);
}

bool entry_is_last_or_next(const struct channel_entry *entry, const struct signers *signers,
                           struct error *error) {
  return entry->counter == signers->followed || entry_follows(entry, signers, error);
}

bool entry_sign(struct channel_entry *entry, const struct signers *signers, struct error *error) {
  cleanup_json json_t *json = channel_entry_to_json(entry, false);
  cleanup_free char *text = json_canonical(json);
  fprintf(stderr, "signing  %s\n", text);
  for (size_t i = 0; i < signers->n; i++) {
    char id[DIGEST_TEXT_SIZE];
    if (!channel_entry_sign(entry, &signers->all[i], error))
      return false;
    fprintf(stderr, "by       %s (%s)\n", digest_format(&signers->all[i].id, id),
            signers->paths[i]);
  }
  return true;
}

bool entry_is_signed_by_any(const struct channel_entry *entry, const struct signers *signers) {
  struct error error;
  const struct trusted_keys keys = {signers->n, (struct signing_key *)signers->all};
  return channel_entry_verify(entry, &keys, &error);
}

/* Whether all signers signed the entry as it is. */
static bool all_signed(const struct channel_entry *entry, const struct signers *signers) {
  for (size_t i = 0; i < signers->n; i++) {
    struct error error;
    struct signing_key key = signers->all[i];
    const struct trusted_keys alone = {1, &key};
    if (!channel_entry_verify(entry, &alone, &error))
      return false;
  }
  return true;
}

static bool is_there_already(const struct channel_present *present,
                             const struct channel_change *change) {
  return present->exists && digest_equal(&present->entry.release, &change->release->digest) &&
         present->entry.expires_s == change->expires_s &&
         all_signed(&present->entry, change->signers);
}

/* The body of the PUT: signed, it is one more count than what is there; else the server counts. */
static bool body_compose(const struct channel_present *present, const struct channel_change *change,
                         json_t **ret_body, struct error *error) {
  struct channel_entry entry = {
      .channel = (char *)change->channel,
      .environment = change->release->environment,
      .tag = change->release->tag,
      .regime = change->release->regime,
      .counter = present->entry.counter < INT64_MAX ? present->entry.counter + 1 : 0,
      .release = change->release->digest,
      .expires_s = change->expires_s};
  if (entry.counter <= 0)
    return error_set(error, "channel %s is at the last counter there is; move another channel",
                     change->channel);
  if (change->signers->n && (!entry_follows(&entry, change->signers, error) ||
                             !entry_sign(&entry, change->signers, error)))
    return false;
  json_t *body = channel_entry_to_json(&entry, change->signers->n > 0);
  json_object_del(body, "channel"); /* in the path */
  json_object_del(body, "environment");
  json_object_del(body, "tag");
  json_object_del(body, "regime");
  if (!change->signers->n)
    json_object_del(body, "counter");
  *ret_body = body;
  return true;
}

static int change_refused(const struct http_response *response,
                          const struct channel_change *change) {
  cleanup_free char *what = xasprintf("channel %s was not moved", change->channel);
  cleanup_json json_t *problem = json_loadb(response->body, response->size, 0, NULL);
  json_t *entry = json_object_get(problem, "entry");
  if (response->status == 412 && entry && change->as_json)
    cli_print_json(entry);
  return cli_refused(response, what);
}

static int change_send(struct http_client *client, const struct channel_change *change,
                       const json_t *body_json, json_t **ret_entry) {
  struct error error;
  cleanup_free char *escaped = http_escape(change->channel),
                    *path = xasprintf("/v1/channels/%s", escaped),
                    *body = json_canonical(body_json);
  struct http_request request = {.method = "PUT",
                                 .path = path,
                                 .body = body,
                                 .body_size = strlen(body),
                                 .if_match = change->if_match,
                                 .if_none_match = change->if_none_match};
  cleanup_http_response struct http_response response = {0};
  cleanup_present struct channel_present moved = {0};
  int code = cli_send(client, &request, &response);
  if (code != EXIT_OK)
    return code;
  if (response.status / 100 != 2)
    return change_refused(&response, change);
  if (!present_read(&response, change->channel, &moved, &error))
    return cli_fail(EXIT_REFUSED, &error);
  *ret_entry = TAKE(moved.json);
  return EXIT_OK;
}

int channel_change(struct http_client *client, const struct channel_change *change,
                   json_t **ret_entry) {
  struct error error;
  char digest[DIGEST_TEXT_SIZE];
  cleanup_present struct channel_present present = {0};
  cleanup_json json_t *body = NULL;
  cleanup_free char *query =
      xasprintf("?release=%s", digest_format(&change->release->digest, digest));
  int code = present_get(client, change->channel, query, true, &present);
  if (code != EXIT_OK)
    return code;
  if (change->signers->n && is_there_already(&present, change)) {
    if (!entry_is_last_or_next(&present.entry, change->signers, &error))
      return cli_fail(EXIT_REFUSED, &error);
    *ret_entry = TAKE(present.json);
    return EXIT_OK;
  }
  if (!change->signers->n && present.entry.signatures.n)
    fprintf(stderr,
            "wavetune: channel %s had a signed entry and gets one that is not: deployments that "
            "verify will keep what "
            "they have; give --sign-key\n",
            change->channel);
  if (change->signers->n && change->signers->followed < 0 && present.exists &&
      !entry_is_signed_by_any(&present.entry, change->signers))
    fprintf(stderr,
            "wavetune: that channel %s is at counter %" PRId64
            " is the server's word alone: none of these keys signed "
            "that entry; state the counter that you signed last with --follow\n",
            change->channel, present.entry.counter);
  if (!body_compose(&present, change, &body, &error))
    return cli_fail(EXIT_REFUSED, &error);
  return change_send(client, change, body, ret_entry);
}
