/* Reading, signing and moving channels. */
#include "cli/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "cli/source.h"
#include "common/base/file.h"
#include "common/base/time.h"

#define EXPIRES_DAYS_MAX 3650

void signers_release(struct signers *signers) {
  for (size_t i = 0; i < signers->n; i++) {
    signing_key_release(&signers->all[i]);
    free(signers->paths[i]);
  }
  signers->n = 0;
}

/* `from`: what names the file, for errors. */
static void signer_add(struct signers *signers, const char *from, const char *path) {
  cleanup_signing_key struct signing_key key = {0};
  struct error error;
  if (signers->n == CHANNEL_SIGNATURES_MAX)
    cli_refuse(EXIT_USAGE, "%s: %s is one key too many: at most %d sign an entry", from, path,
               CHANNEL_SIGNATURES_MAX);
  if (!signing_key_read(path, &key, &error))
    cli_fail_in(EXIT_USAGE, &error, "%s: ", from);
  if (!key.is_private)
    cli_refuse(EXIT_USAGE, "%s: %s is a public key; signing needs the private one", from, path);
  signers->paths[signers->n] = xstrdup(path);
  signers->all[signers->n++] = key;
  key.pkey = NULL;
}

void signers_of_keys(const struct options *options, struct signers *ret) {
  const char *const *paths, *variable = getenv("WAVETUNE_SIGN_KEYS");
  size_t n = option_list(options, "sign-key", &paths);
  ret->followed = -1;

  for (size_t i = 0; i < n; i++)
    signer_add(ret, "--sign-key", paths[i]);

  cleanup_free char *list = n || !variable ? NULL : xstrdup(variable);
  char *rest = list;
  for (char *path; (path = strsep(&rest, ":"));)
    if (*path)
      signer_add(ret, "WAVETUNE_SIGN_KEYS", path);
}

void signers_of_option(const struct options *options, struct signers *ret) {
  const char *text = option_text(options, "follow");
  signers_of_keys(options, ret);
  if (!text)
    return;
  if (!ret->n)
    cli_refuse(EXIT_USAGE, "--follow %.40s: nothing is signed; give --sign-key too", text);

  size_t digits = strspn(text, "0123456789");
  errno = 0;
  ret->followed = strtoll(text, NULL, 10);
  if (!digits || text[digits] || errno)
    cli_refuse(EXIT_USAGE,
               "--follow %.40s: give the counter that you signed last, 0 when there was none",
               text);
}

int64_t expires_of_option(const struct options *options) {
  const char *text = option_text(options, "expires");
  int64_t s = 0, ms, now_s = time(NULL);
  if (!text)
    return 0;

  if (duration_parse(text, &ms))
    s = now_s + ms / 1000;
  else if (!time_text_parse(text, &s))
    cli_refuse(EXIT_USAGE, "--expires %.40s: write 7d, 36h or a time in UTC, 2026-12-24T00:00:00Z",
               text);
  if (s <= now_s || s - now_s > EXPIRES_DAYS_MAX * INT64_C(86400))
    cli_refuse(EXIT_USAGE,
               "--expires %.40s: it must be in the future, and not beyond %d days from now", text,
               EXPIRES_DAYS_MAX);
  return s;
}

void trusted_of_option(const struct options *options, struct trusted_keys *ret) {
  const char *const *paths;
  size_t n = option_list(options, "trusted-key", &paths);
  struct error error;
  for (size_t i = 0; i < n; i++)
    if (!trusted_keys_add(ret, paths[i], &error))
      cli_fail(EXIT_USAGE, &error);
}

struct release *release_check(const char *bytes, size_t size, const char *digest_text) {
  struct release *release;
  char text[DIGEST_TEXT_SIZE];
  struct error error;
  if (!release_parse(bytes, size, &release, &error))
    cli_fail_in(EXIT_REFUSED, &error, "the server's release is not a release: ");
  if (!string_equal(digest_format(&release->digest, text), digest_text))
    cli_refuse(EXIT_REFUSED, "the server's release has the digest %s, not %s", text, digest_text);
  return release;
}

struct release *release_get(struct http_client *client, const char *digest_text, const char *what) {
  cleanup_free char *path = cli_path("/v1/releases/", digest_text, "");
  struct http_request request = {.method = "GET", .path = path, .response_max = RELEASE_SIZE_MAX};
  cleanup_http_response struct http_response response = {0};
  cli_send(client, &request, &response);
  if (response.status != 200)
    cli_refused(&response, what);
  return release_check(response.body, response.size, digest_text);
}

struct release *release_of_file(const char *path, const char *what) {
  cleanup_free char *bytes = NULL;
  struct release *release;
  size_t size;
  struct error error;
  if (!file_read(path, RELEASE_SIZE_MAX, &bytes, &size, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!release_parse(bytes, size, &release, &error))
    cli_fail_in(EXIT_USAGE, &error, "%s%s: ", path, what);
  return release;
}

char *channel_path(const char *channel, const char *below, const json_t *environment,
                   const char *tag, const char *regime) {
  cleanup_free char *query =
                        cli_query(environment, "tag", tag, cli_regime_member(regime), regime, NULL),
                    *after = xasprintf("%s%s", below, query);
  return cli_path("/v1/channels/", channel, after);
}

char *channel_path_of_options(const struct options *options, const char *channel) {
  cleanup_json json_t *environment = cli_environment(options, "environment");
  return channel_path(channel, "", environment, option_text(options, "tag"),
                      option_text(options, "regime"));
}

void channel_present_release(struct channel_present *present) {
  json_decref(present->json);
  channel_entry_release(&present->entry);
}

/* The entry of a 2xx answer, with its entity tag. */
static void present_read(const struct http_response *response, const char *channel,
                         struct channel_present *ret) {
  struct error error;
  if (!json_parse(response->body, response->size, &ret->json, &error) ||
      !channel_entry_parse(ret->json, &ret->entry, &error)) {
    cli_fail_in(EXIT_REFUSED, &error, "the server's answer is not a channel entry: ");
  }
  if (!string_equal(ret->entry.channel, channel))
    cli_refuse(EXIT_REFUSED, "the server answered with %s instead of channel %s",
               ret->entry.channel, channel);
  json_put(ret->json, "etag", json_string(response->etag ? response->etag : ""));
}

static void present_get(struct http_client *client, const char *channel, const char *path,
                        bool may_be_absent, struct channel_present *ret) {
  cleanup_free char *what = xasprintf("channel %s", channel);
  struct http_request request = {.method = "GET", .path = path};
  cleanup_http_response struct http_response response = {0};
  cli_send(client, &request, &response);
  if (response.status == 404 && may_be_absent)
    return;
  if (response.status / 100 != 2)
    cli_refused(&response, what);
  present_read(&response, channel, ret);
}

void channel_present_of_options(struct http_client *client, const struct options *options,
                                const char *channel, struct channel_present *ret) {
  cleanup_free char *path = channel_path_of_options(options, channel);
  present_get(client, channel, path, false, ret);
}

bool entry_follows(const struct channel_entry *entry, const struct signers *signers, bool or_last,
                   struct error *error) {
  return signers->followed < 0 || entry->counter - 1 == signers->followed ||
         (or_last && entry->counter == signers->followed) ||
         error_set(error,
                   "channel %s would get a signature at counter %" PRId64
                   ", which does not follow counter %" PRId64
                   ": another publisher moved the channel, or the server states a wrong counter; "
                   "if you know that it is right, give --follow %" PRId64,
                   entry->channel, entry->counter, signers->followed, entry->counter - 1);
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

bool entry_is_signed_by(const struct channel_entry *entry, const struct signing_key *keys,
                        size_t n) {
  const struct trusted_keys trusted = {n, (struct signing_key *)keys};
  struct error ignored;
  return channel_entry_verify(entry, &trusted, &ignored);
}

void choices_sign_all(struct http_client *client, const struct release *release,
                      const struct signers *signers) {
  const struct cache_format *format;
  cleanup_cache_files struct cache_files files = {0};
  cleanup_http_source struct http_source *source = http_source_new(client, 0);
  const struct render_request request = {.release = release,
                                         .source = http_source_interface(source)};
  struct error error;
  ALWAYS(cache_format_find("choices", &format, &error));
  bool has_choices = format->render(&request, &files, &error);
  if (!http_source_check(source, &error)) {
    fprintf(stderr, "wavetune: the choices of the release were not signed: %s\n", error.message);
    return;
  }
  if (!has_choices) /* no winner is of a Triton function */
    return;

  struct digest choices = digest_of(files.files[0].bytes, files.files[0].size);
  cleanup_free char *path = xasprintf("/v1/releases/%s/signatures", DIGEST_TEXT(&release->digest));
  for (size_t i = 0; i < signers->n; i++) {
    struct channel_signature signature = choices_sign(&release->digest, &choices, &signers->all[i]);
    cleanup_json json_t *signatures = channel_signatures_to_json(&signature, 1),
                        *body = json_pack("{s:o, s:O}", "choices", json_digest_text(&choices),
                                          "signature", json_array_get(signatures, 0));
    if (http_json(client, "POST", path, body, 0, NULL, &error))
      continue;
    cli_print_error(&error);
    fputs("wavetune: the choices of the release were not signed\n", stderr);
    return;
  }
}

/* Whether the channel has the entry that the change would make, signed with every key. */
static bool is_there_already(const struct channel_present *present,
                             const struct channel_change *change) {
  if (!present->json || !digest_equal(&present->entry.release, &change->release->digest) ||
      present->entry.expires_s != change->expires_s)
    return false;
  for (size_t i = 0; i < change->signers->n; i++)
    if (!entry_is_signed_by(&present->entry, &change->signers->all[i], 1))
      return false;
  return true;
}

/* The body of the PUT. A signed entry has the counter after the present one; for an unsigned one
 * the server counts. */
static json_t *body_compose(const struct channel_present *present,
                            const struct channel_change *change) {
  static const char *const in_path_or_release[] = {"channel", "environment", "tag", "regime"};
  bool is_signed = change->signers->n > 0;
  struct channel_entry entry = {
      .channel = (char *)change->channel,
      .environment = change->release->environment,
      .tag = change->release->tag,
      .regime = change->release->regime,
      .counter = present->entry.counter < INT64_MAX ? present->entry.counter + 1 : 0,
      .release = change->release->digest,
      .expires_s = change->expires_s};
  struct error error;
  if (entry.counter <= 0)
    cli_refuse(EXIT_REFUSED, "channel %s has reached the last counter; use another channel",
               change->channel);
  if (is_signed && (!entry_follows(&entry, change->signers, false, &error) ||
                    !entry_sign(&entry, change->signers, &error)))
    cli_fail(EXIT_REFUSED, &error);

  json_t *body = channel_entry_to_json(&entry, is_signed);
  for (size_t i = 0; i < ARRAY_LENGTH(in_path_or_release); i++)
    json_object_del(body, in_path_or_release[i]);
  if (!is_signed)
    json_object_del(body, "counter");
  return body;
}

json_t *channel_change(struct http_client *client, const struct channel_change *change) {
  const char *channel = change->channel;
  char digest[DIGEST_TEXT_SIZE];
  cleanup_present struct channel_present present = {0}, moved = {0};
  cleanup_free char *path = cli_path("/v1/channels/", channel, ""),
                    *present_path = xasprintf("%s?release=%s", path,
                                              digest_format(&change->release->digest, digest));
  struct error error;
  present_get(client, channel, present_path, true, &present);
  if (change->signers->n && is_there_already(&present, change)) {
    if (!entry_follows(&present.entry, change->signers, true, &error))
      cli_fail(EXIT_REFUSED, &error);
    choices_sign_all(client, change->release, change->signers);
    return TAKE(present.json);
  }

  if (!change->signers->n && present.entry.signatures.n)
    fprintf(stderr,
            "wavetune: channel %s had a signed entry and gets an unsigned one: deployments that "
            "verify signatures will keep what they have; give --sign-key\n",
            channel);
  if (change->signers->n && change->signers->followed < 0 && present.json &&
      !entry_is_signed_by(&present.entry, change->signers->all, change->signers->n))
    fprintf(stderr,
            "wavetune: only the server states that channel %s is at counter %" PRId64
            ": none of these keys signed that entry; give the counter that you signed last with "
            "--follow\n",
            channel, present.entry.counter);

  cleanup_json json_t *json = body_compose(&present, change);
  cleanup_free char *body = json_canonical(json);
  struct http_request request = {.method = "PUT",
                                 .path = path,
                                 .body = body,
                                 .body_size = strlen(body),
                                 .if_match = change->if_match,
                                 .if_none_match = change->if_none_match};
  cleanup_http_response struct http_response response = {0};
  cli_send(client, &request, &response);
  if (response.status / 100 != 2) {
    cleanup_free char *what = xasprintf("channel %s was not moved", channel);
    cleanup_json json_t *problem = json_loadb(response.body, response.size, 0, NULL);
    const json_t *entry = json_object_get(problem, "entry");
    if (response.status == 412 && entry && change->as_json)
      cli_print_json(entry);
    cli_refused(&response, what);
  }

  present_read(&response, channel, &moved);
  if (change->signers->n)
    choices_sign_all(client, change->release, change->signers);
  return TAKE(moved.json);
}

void channel_change_of_options(const struct options *options, struct signers *signers,
                               struct channel_change *change) {
  change->signers = signers;
  change->as_json = option_flag(options, "json");
  change->expires_s = expires_of_option(options);
  signers_of_option(options, signers);
}

int channel_change_and_print(struct http_client *client, const struct channel_change *change) {
  cleanup_json json_t *entry = channel_change(client, change);
  if (change->as_json)
    cli_print_json(entry);
  else /* an entry without a regime is cold */
    printf("channel  %s, tag %s, %s%scounter %lld\nrelease  %s\netag     %s\n",
           cli_member(entry, "channel"), cli_member(entry, "tag"), cli_member(entry, "regime"),
           *cli_member(entry, "regime") ? ", " : "", cli_integer(entry, "counter"),
           cli_member(entry, "release"), cli_member(entry, "etag"));

  return EXIT_OK;
}
