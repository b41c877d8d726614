/* wavetune show JOB --asm|--ttgir: prints the code of a job's winner, as its build has it or as a
 * disassembler reads it.
 *
 * A job with a build: the object of the variant that the key chose, for the winner's config, and
 * the texts beside it. A job whose kernel agents compile themselves: the object that was stored
 * with a measurement of the final. */
#include "common/builds/build.h"
#include "common/code/disassemble.h"
#include "inspect/inspect.h"
#include "inspect/isa_review.h"
#include "inspect/ttgir_review.h"

/* A text, or code to disassemble. */
struct found {
  char digest[DIGEST_TEXT_SIZE];
  bool is_code;
  char *bytes;
  size_t size;
};

static void found_release(struct found *found) { free(found->bytes); }

/* Gets a blob and checks its digest. */
static void blob_get(struct http_client *client, const char *digest, struct found *ret) {
  struct digest wanted;
  cleanup_http_response struct http_response response = {0};
  if (!digest_parse(digest, &wanted))
    cli_refuse(EXIT_REFUSED, "the server names a blob by \"%.80s\", which is not a digest", digest);

  cleanup_free char *path = xasprintf("/v1/blobs/%s", digest);
  struct http_request request = {.method = "GET", .path = path};
  cli_send(client, &request, &response);
  if (response.status != 200)
    cli_refused(&response, digest);

  struct digest actual = digest_of(response.body, response.size);
  if (!digest_equal(&actual, &wanted))
    cli_refuse(EXIT_REFUSED, "the server sent other bytes than those of %s", digest);

  digest_format(&wanted, ret->digest);
  ret->bytes = TAKE(response.body);
  ret->size = response.size;
}

/* The text that the build has; for assembly, else the object itself. */
static void find_in_build(struct http_client *client, const json_t *job, bool wants_asm,
                          struct found *ret) {
  cleanup_free char *kernel_path = xasprintf("/v1/kernels/%s", cli_member(job, "kernel"));
  cleanup_free char *build_path = xasprintf("%s/builds/%s", kernel_path, cli_member(job, "build"));
  cleanup_json json_t *answer = cli_get(client, kernel_path), *json = cli_get(client, build_path);
  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_build struct build *build = NULL;
  struct error error;
  if (!kernel_parse(json_object_get(answer, "manifest"), &kernel, &error) ||
      !build_parse(json, kernel, &build, &error)) {
    cli_fail_in(EXIT_REFUSED, &error, "the server's build is not one this program understands: ");
  }

  /* The winner's config in the variant that the job's key chooses. */
  cleanup_key struct key key = {0};
  size_t variant;
  if (!key_parse(json_object_get(job, "key"), KEY_NAMES(kernel), &key, &error) ||
      !build_variant(build, &key, &variant, &error))
    cli_fail(EXIT_FAILED, &error);

  const json_t *chosen = json_array_get(json_object_get(build->json, "variants"), variant),
               *config = json_object_get(json_object_get(job, "winner"), "config_values"),
               *object = NULL;
  json_elements (json_object_get(chosen, "objects"), i, candidate) {
    if (json_equal(json_object_get(candidate, "config"), config))
      object = candidate;
  }

  if (!object)
    cli_refuse(EXIT_FAILED, "the build has no object for the winner's config");

  const json_t *files = json_object_get(json_object_get(object, "metadata"), "files");
  const char *file = cli_member(files, wants_asm ? "amdgcn" : "ttgir");
  if (!file[0] && !wants_asm)
    cli_refuse(EXIT_FAILED, "build %s keeps no TTGIR beside its objects", cli_member(job, "build"));

  ret->is_code = !file[0];
  blob_get(client, file[0] ? file : cli_member(object, "digest"), ret);
}

/* The object that an agent stored with a measurement of the winner in the final. */
static void find_in_winner(struct http_client *client, const json_t *job, bool wants_asm,
                           struct found *ret) {
  const json_t *winner = json_object_get(job, "winner");
  if (!wants_asm)
    cli_refuse(EXIT_FAILED, "job %s has no build: only kernels in triton have TTGIR",
               cli_member(job, "job"));

  json_elements (json_object_get(winner, "resources"), i, row) {
    if (!json_equal(json_object_get(row, "config"), json_object_get(winner, "config")) ||
        !cli_member(row, "object")[0])
      continue;
    ret->is_code = true;
    blob_get(client, cli_member(row, "object"), ret);
    return;
  }

  cli_refuse(EXIT_FAILED, "no agent stored the winner's code with its measurements of job %s",
             cli_member(job, "job"));
}

/* The text is untrusted: it must not drive a terminal. */
static void text_print(const char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    putchar((text[i] >= 0 && text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] == 0x7f
                ? '?'
                : text[i]);
  if (size && text[size - 1] != '\n')
    putchar('\n');
}

/* The review; null for assembly as a compiler wrote it, which is not reviewed. */
static json_t *review_json(const struct found *found, bool wants_asm) {
  struct error error;
  if (!wants_asm) {
    cleanup_ttgir_review struct ttgir_review *review = NULL;
    return ttgir_review_make(found->bytes, found->size, &review, &error)
               ? ttgir_review_to_json(review)
               : json_null();
  }

  cleanup_isa_review struct isa_review *review = NULL;
  if (!isa_review_make(found->bytes, NULL, &review, &error))
    return json_null();

  json_t *functions = json_object();
  for (size_t i = 0; i < review->n; i++)
    json_put(functions, review->functions[i].name, isa_function_to_json(&review->functions[i]));
  return functions;
}

void inspect_print_code(struct http_client *client, const json_t *job, bool wants_asm,
                        bool as_json) {
  cleanup_by(found_release) struct found found = {0};
  const json_t *winner = json_object_get(job, "winner");
  struct error error;
  if (!json_is_object(winner))
    cli_refuse(EXIT_FAILED, "job %s has no winner whose code could be shown; it is %s",
               cli_member(job, "job"), cli_member(job, "state"));

  (cli_member(job, "build")[0] ? find_in_build : find_in_winner)(client, job, wants_asm, &found);
  if (found.is_code) {
    char *text = NULL;
    if (!disassemble(found.bytes, found.size, &text, &error))
      cli_fail(EXIT_FAILED, &error);
    free(found.bytes);
    found.bytes = text;
    found.size = strlen(text);
  }

  if (!as_json) {
    text_print(found.bytes, found.size);
    return;
  }

  json_t *text = json_stringn(found.bytes, found.size);
  if (!text)
    cli_refuse(EXIT_FAILED,
               "%s is no UTF-8 text; without --json it is printed as far as it is text",
               found.digest);

  cleanup_json json_t *answer =
      json_pack("{s:s, s:O, s:O, s:s, s:b, s:o, s:o}", "job", cli_member(job, "job"), "config",
                json_object_get(winner, "config"), "config_values",
                json_object_get(winner, "config_values"), "digest", found.digest, "disassembled",
                found.is_code, "text", text, "review", review_json(&found, wants_asm));
  ALWAYS(answer != NULL);
  cli_print_json(answer);
}
