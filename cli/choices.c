/* Signing the choices of a release, for publish, promote and rollback. Memory and threads:
 * channel.h. */
#include "cli/channel.h"
#include "cli/source.h"

static int signature_post(struct http_client *client, const struct release *release,
                          const struct digest *choices, const struct signing_key *key) {
  char digest[DIGEST_TEXT_SIZE];
  const struct channel_signature signature = choices_sign(&release->digest, choices, key);
  cleanup_free char *path =
      cli_path("/v1/releases/", digest_format(&release->digest, digest), "/signatures");
  cleanup_json json_t *answer = NULL,
                      *body = json_pack("{s:o, s:{s:o, s:s}}", "choices", json_digest_text(choices),
                                        "signature", "key", json_digest_text(&key->id), "signature",
                                        signature.text);
  return cli_call(client, "POST", path, body, &answer);
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
  if (!has_choices) /* no winner of a Triton function */
    return;

  struct digest choices = digest_of(files.files[0].bytes, files.files[0].size);
  for (size_t i = 0; i < signers->n; i++)
    if (signature_post(client, release, &choices, &signers->all[i]) != EXIT_OK) {
      fprintf(stderr, "wavetune: the choices of the release were not signed\n");
      return;
    }
}
