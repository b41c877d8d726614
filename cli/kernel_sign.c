/* wavetune kernel sign: signatures over kernels and builds, for agents that take nothing else.
 *
 * A folder's kernel is signed by the hash that is computed here of its files; by hash alone a
 * kernel is signed only when a trusted key signed it before. The server's word is never enough.
 * Memory: the command's own. */
#include <time.h>

#include "cli/kernel.h"
#include "common/base/time.h"

static char *signatures_path(const struct signed_code *code) {
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE];
  digest_format(&code->kernel, kernel);
  return code->is_build ? xasprintf("/v1/kernels/%s/builds/%s/signatures", kernel,
                                    digest_format(&code->build, build))
                        : xasprintf("/v1/kernels/%s/signatures", kernel);
}

int code_sign_and_post(struct http_client *client, const struct signed_code *code,
                       const struct signers *signers, int64_t expires_s, json_t **ret_signatures) {
  cleanup_json json_t *signatures = json_array();
  cleanup_free char *path = signatures_path(code);
  char what[SIGNED_CODE_TEXT_SIZE], expires[TIME_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  if (signers->n)
    fprintf(stderr, "signing  %s%s%s\n", signed_code_format(code, what), expires_s ? " until " : "",
            expires_s ? time_text_format(expires_s, expires) : "");
  for (size_t i = 0; i < signers->n; i++) {
    struct code_signature signature = code_sign(code, &signers->all[i], expires_s);
    char public_key[PUBLIC_KEY_TEXT_SIZE];
    signing_key_public_text(&signers->all[i], public_key);
    cleanup_json json_t *body = code_signature_to_json(&signature), *answer = NULL;
    json_object_del(body, "key"); /* it is the public key's digest */
    json_object_set_new(body, "public_key", json_string(public_key));
    int exit_code = cli_call(client, "POST", path, body, &answer);
    if (exit_code != EXIT_OK)
      return exit_code;
    json_decref(signatures);
    signatures = json_deep_copy(json_object_get(answer, "signatures"));
    fprintf(stderr, "by       %s (%s)\n", digest_format(&signers->all[i].id, id),
            signers->paths[i]);
  }
  *ret_signatures = TAKE(signatures);
  return EXIT_OK;
}

char *signature_keys_format(const json_t *signatures) {
  char *keys = xstrdup("");
  size_t i;
  const json_t *signature;
  json_array_foreach (signatures, i, signature) {
    char *longer = xasprintf("%s%s%s", keys, i ? ", " : "", cli_member(signature, "key"));
    free(keys);
    keys = longer;
  }
  return keys;
}

/* What the command does, for each kernel and build. */
struct job {
  struct http_client *client;
  const struct signers *signers;
  const struct trusted_keys *trusted;
  int64_t expires_s;
  bool has_expiry; /* else a signature that is there says how long */
  json_t *answers; /* what --json prints */
  bool as_json;
};

static int code_sign_one(const struct job *job, const struct signed_code *code, int64_t expires_s) {
  cleanup_json json_t *signatures = NULL;
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE], what[SIGNED_CODE_TEXT_SIZE];
  int exit_code = code_sign_and_post(job->client, code, job->signers, expires_s, &signatures);
  if (exit_code != EXIT_OK)
    return exit_code;
  json_array_append_new(
      job->answers, json_pack("{s:s, s:s*, s:O}", "kernel", digest_format(&code->kernel, kernel),
                              "build", code->is_build ? digest_format(&code->build, build) : NULL,
                              "signatures", signatures));
  if (!job->as_json)
    printf("%s  %zu signature%s\n", signed_code_format(code, what), json_array_size(signatures),
           json_array_size(signatures) == 1 ? "" : "s");
  return EXIT_OK;
}

/* Of folders: what lies on this machine. */
static int folders_sign(const struct job *job, const struct push *push) {
  for (size_t i = 0; i < push->n_kernels; i++) {
    int code = code_sign_one(job, &(struct signed_code){.kernel = push->kernels[i]->kernel->hash},
                             job->expires_s);
    if (code != EXIT_OK)
      return code;
  }
  for (size_t i = 0; i < push->n_builds; i++) {
    const struct build *build = push->builds[i].build;
    struct signed_code what = {.kernel = build->kernel, .is_build = true, .build = build->digest};
    int code = code_sign_one(job, &what, job->expires_s);
    if (code != EXIT_OK)
      return code;
  }
  return EXIT_OK;
}

/* Signs what a trusted key signed, for as long as that said unless --expires says otherwise. */
static int signed_sign(const struct job *job, const struct signed_code *code,
                       const json_t *signatures) {
  struct code_signature before;
  struct error error;
  if (!code_signature_find(code, signatures, job->trusted, time(NULL), &before, &error))
    return cli_fail(EXIT_REFUSED, &error);
  return code_sign_one(job, code, job->has_expiry ? job->expires_s : before.expires_s);
}

/* A kernel by its hash with those of its builds that a trusted key signed. The others are said, and
 * left. */
static int hash_sign(const struct job *job, const char *text) {
  cleanup_json json_t *kernel = NULL, *builds = NULL;
  struct signed_code code = {0};
  struct error error;
  if (!digest_parse(text, &code.kernel)) {
    error_set(&error, "\"%.80s\" is no kernel's hash; `wavetune kernel list` prints them", text);
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_free char *path = xasprintf("/v1/kernels/%s", text),
                    *list = xasprintf("/v1/kernels/%s/builds", text);
  int exit_code = cli_call(job->client, "GET", path, NULL, &kernel);
  if (exit_code == EXIT_OK)
    exit_code = cli_list(job->client, list, &builds);
  if (exit_code == EXIT_OK)
    exit_code = signed_sign(job, &code, json_object_get(kernel, "signatures"));
  size_t i;
  const json_t *build;
  code.is_build = true;
  json_array_foreach (builds, i, build) {
    struct code_signature before;
    const json_t *signatures = json_object_get(build, "signatures");
    if (exit_code != EXIT_OK)
      return exit_code;
    if (!digest_parse(cli_member(build, "build"), &code.build))
      continue;
    if (code_signature_find(&code, signatures, job->trusted, time(NULL), &before, &error))
      exit_code = signed_sign(job, &code, signatures);
    else
      fprintf(stderr, "wavetune: left unsigned: %s\n", error.message);
  }
  return exit_code;
}

static bool is_hash(const char *argument) { return string_starts(argument, "sha256:"); }

/* What can be refused before anything is asked. */
static bool sign_read(const struct options *options, struct signers *signers,
                      struct trusted_keys *trusted, struct push *push, struct error *error) {
  char *const *arguments;
  const char *const *paths, *const *builds;
  size_t n = options_arguments(options, &arguments), n_hashes = 0;
  if (!signers_of_keys(options, signers, error))
    return false;
  if (!signers->n)
    return error_set(error, "say who signs: --sign-key FILE, or WAVETUNE_SIGN_KEYS");
  for (size_t i = 0; i < n; i++)
    n_hashes += is_hash(arguments[i]);
  size_t n_trusted = option_list(options, "trusted-key", &paths);
  for (size_t i = 0; i < n_trusted; i++)
    if (!trusted_keys_add(trusted, paths[i], error))
      return false;

  if (!n_hashes && n_trusted)
    return error_set(
        error,
        "--trusted-key says which kernels named by hash were signed before, and these are folders");
  if (!n_hashes) {
    if (!push_load(options, push, error))
      return false;
    for (size_t i = 0; i < push->n_builds; i++)
      if (!build_folder_is_whole(&push->builds[i], error))
        return false;
    return true;
  }
  if (n_hashes < n || option_list(options, "build", &builds))
    return error_set(error, "name folders, with their builds, or hashes: one or the other");
  return trusted->n ||
         error_set(error,
                   "what is named by its hash is signed only when a key signed it that you trust: "
                   "give --trusted-key, or sign the kernel's folder");
}

static int command_kernel_sign(struct options *options) {
  cleanup_signers struct signers signers = {0};
  cleanup_trusted_keys struct trusted_keys trusted = {0};
  cleanup_push struct push push = {0};
  cleanup_json json_t *answers = json_array();
  struct job job = {.signers = &signers,
                    .trusted = &trusted,
                    .answers = answers,
                    .has_expiry = option_text(options, "expires") != NULL,
                    .as_json = option_flag(options, "json")};
  char *const *arguments;
  struct error error;
  if (!sign_read(options, &signers, &trusted, &push, &error) ||
      !expires_of_option(options, &job.expires_s, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  job.client = client;
  int code = push.n_kernels ? folders_sign(&job, &push) : EXIT_OK;
  size_t n = push.n_kernels ? 0 : options_arguments(options, &arguments);
  for (size_t i = 0; i < n && code == EXIT_OK; i++)
    code = hash_sign(&job, arguments[i]);
  if (code == EXIT_OK && job.as_json)
    cli_print_json(answers);
  return code;
}

static const struct option_spec sign_options[] = {
    OPTION_BUILD("a build of one of the kernels, which is signed too; several times for several"),
    {.name = "sign-key",
     .type = OPTION_LIST,
     .argument = "FILE",
     .flag_only = true,
     .help = "private key that signs; default: the files in $WAVETUNE_SIGN_KEYS, with ':' between"},
    {.name = "trusted-key",
     .type = OPTION_LIST,
     .argument = "FILE|FOLDER",
     .flag_only = true,
     .help = "with hashes: sign what one of these public keys signed before"},
    OPTION_CODE_EXPIRES("never; with hashes: when the signature that is there does"),
    SERVER_OPTIONS,
};

const struct command_spec spec_kernel_sign = {
    .name = "kernel sign",
    .arguments = "DIR[:VERSION]…|HASH…",
    .summary = "sign kernels and builds, for agents that take only what is signed",
    .description = "Of a folder the hash is computed of the files that lie there: look at them "
                   "first. The kernel, and the "
                   "builds that --build names, must have been pushed. With --trusted-key "
                   "registered kernels are named by "
                   "their hashes, and signed with those of their builds that such a key signed "
                   "before: so a new key takes "
                   "over.",
    .options = sign_options,
    .n_options = ARRAY_LENGTH(sign_options),
    .run = command_kernel_sign,
};
