/* wavetune kernel push, list, show, builds, remove-build, hash and sign: kernels and their builds
 * on the server, and signatures for agents that accept only signed code.
 *
 * The kernel of a folder is signed by the hash that is computed here from its files. A kernel that
 * is named by its hash is signed only when a trusted key signed it before: the server's statement
 * alone is never enough. Memory: each command's own. */
#include <time.h>

#include "cli/channel.h"
#include "common/base/file.h"
#include "common/base/time.h"
#include "common/builds/build.h"
#include "common/cache/signatures.h"
#include "common/kernel/kernel_folder.h"
#include "common/program/terminal.h"

#define OBJECT_SIZE_MAX ((size_t)64 << 20)

/* A file that a manifest or a build names. */
struct content {
  char *bytes; /* owned */
  size_t size;
};

/* A request that names files. The server answers 409 with those that it lacks, which are then
 * uploaded. */
struct registration {
  const char *method, *path, *body;
  const char *what; /* is registered: for errors */
  /* Finds a file. ERROR_MISSING: what is registered names no such file; ERROR_INVALID: the file is
   * damaged. */
  bool (*find)(const void *owner, const struct digest *digest, struct content *ret,
               struct error *error);
  const void *owner;
};

/* Uploads one file. The bar is wiped before an error is printed. */
static void file_upload(struct http_client *client, const struct registration *registration,
                        const char *wanted, struct progress *progress) {
  struct digest digest;
  struct content content = {0};
  struct error error;
  bool is_found =
      wanted && digest_parse(wanted, &digest)
          ? registration->find(registration->owner, &digest, &content, &error)
          : error_of(&error, ERROR_MISSING, "%s: the server misses a file without a digest",
                     registration->what);
  if (!is_found) {
    progress_end(progress);
    cli_fail(error.kind == ERROR_INVALID ? EXIT_USAGE : (int)error_exit_code(error.kind), &error);
  }

  cleanup_free char *path = xasprintf("/v1/blobs/%s", wanted);
  struct http_request request = {.method = "PUT",
                                 .path = path,
                                 .body = content.bytes,
                                 .body_size = content.size,
                                 .content_type = "application/octet-stream"};
  cleanup_http_response struct http_response response = {0};
  bool is_answered = http_send(client, &request, &response, &error);
  free(content.bytes);
  if (is_answered && response.status / 100 == 2)
    return;
  progress_end(progress);
  if (is_answered)
    cli_refused(&response, wanted);
  cli_fail(EXIT_UNREACHABLE, &error);
}

static void register_with_files(struct http_client *client,
                                const struct registration *registration) {
  struct http_request request = {.method = registration->method,
                                 .path = registration->path,
                                 .body = registration->body,
                                 .body_size = strlen(registration->body)};

  /* The first answer may list missing files; after they are uploaded the second one must not. */
  for (int attempt = 0;; attempt++) {
    cleanup_http_response struct http_response response = {0};
    cli_send(client, &request, &response);
    if (response.status / 100 == 2)
      return;
    cleanup_json json_t *problem = json_loadb(response.body, response.size, 0, NULL);
    const json_t *missing = json_object_get(problem, "missing");
    if (response.status != 409 || !missing || attempt)
      cli_refused(&response, registration->what);

    struct progress progress = progress_start(stderr, "files", json_array_size(missing));
    for (size_t i = 0; i < json_array_size(missing); i++) {
      progress_show(&progress, i, "");
      file_upload(client, registration, json_string_value(json_array_get(missing, i)), &progress);
    }
    progress_end(&progress);
  }
}

/* Refuses to upload a file that the kernel or build does not name. */
static bool refuse_unnamed_file(const struct digest *digest, const char *what,
                                struct error *error) {
  return error_of(error, ERROR_MISSING, "the server misses %s, which is not a file of this %s",
                  DIGEST_TEXT(digest), what);
}

static bool source_find(const void *owner, const struct digest *digest, struct content *ret,
                        struct error *error) {
  const struct kernel_folder *folder = owner;
  for (size_t i = 0; i < folder->n_files; i++) {
    const struct kernel_file *file = &folder->files[i];
    if (digest_equal(&file->digest, digest)) {
      *ret = (struct content){xmemdup(file->bytes, file->size), file->size};
      return true;
    }
  }
  return refuse_unnamed_file(digest, "kernel", error);
}

void kernel_push(struct http_client *client, const struct kernel_folder *folder) {
  cleanup_free char *manifest = json_canonical(folder->kernel->json);
  struct registration registration = {.method = "POST",
                                      .path = "/v1/kernels",
                                      .body = manifest,
                                      .what = folder->kernel->name,
                                      .find = source_find,
                                      .owner = folder};
  register_with_files(client, &registration);
}

/* A folder as `python3 -m wavetune pack` writes it (docs/builds.md). */
struct build_folder {
  const char *path;
  struct build *build;
};

/* The bytes of an object of the build, which have the digest of its name. */
static bool object_find(const void *owner, const struct digest *digest, struct content *ret,
                        struct error *error) {
  const struct build_folder *folder = owner;
  const struct build *build = folder->build;
  size_t size, i = 0;

  while (i < build->n_objects && !digest_equal(&build->objects[i], digest))
    i++;
  if (i == build->n_objects)
    return refuse_unnamed_file(digest, "build", error);

  const char *text = DIGEST_TEXT(digest);
  cleanup_free char *path = xasprintf("%s/objects/%s", folder->path, strchr(text, ':') + 1),
                    *bytes = NULL;
  if (!file_read(path, OBJECT_SIZE_MAX, &bytes, &size, error))
    return error_prefix(error, "the build is incomplete, pack it again:  ");
  struct digest actual = digest_of(bytes, size);
  if (!digest_equal(&actual, digest))
    return error_set(error, "%s is damaged, its digest is %s: pack the build again", path,
                     DIGEST_TEXT(&actual));
  *ret = (struct content){TAKE(bytes), size};

  return true;
}

static void build_push(struct http_client *client, const struct build_folder *folder) {
  char kernel[DIGEST_TEXT_SIZE], digest[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/kernels/%s/builds/%s",
                                      digest_format(&folder->build->kernel, kernel),
                                      digest_format(&folder->build->digest, digest)),
                    *body = json_canonical(folder->build->json);
  struct registration registration = {.method = "PUT",
                                      .path = path,
                                      .body = body,
                                      .what = folder->path,
                                      .find = object_find,
                                      .owner = folder};
  register_with_files(client, &registration);
}

/* The kernel folders that a command's arguments name and the builds of its --build, all read before
 * the first request. */
struct push {
  size_t n_kernels, n_builds;
  struct kernel_folder **kernels;
  struct build_folder *builds; /* of these kernels */
};

static void push_release(struct push *push) {
  for (size_t i = 0; i < push->n_kernels; i++)
    kernel_folder_free(push->kernels[i]);
  for (size_t i = 0; i < push->n_builds; i++)
    build_free(push->builds[i].build);
  free(push->kernels);
  free(push->builds);
}
#define cleanup_push cleanup_by(push_release)

static void push_load(const struct options *options, struct push *push) {
  char *const *places;
  const char *const *paths;
  size_t n = options_arguments(options, &places), n_paths = option_list(options, "build", &paths);
  struct error error;
  if (n == 0)
    cli_refuse(EXIT_USAGE, "name at least one kernel folder, e.g. kernels/softmax:fused");

  push->kernels = xcalloc(n, sizeof *push->kernels);
  push->builds = xcalloc(n_paths + 1, sizeof *push->builds);
  for (; push->n_kernels < n; push->n_kernels++)
    if (!kernel_folder_load(places[push->n_kernels], &push->kernels[push->n_kernels], &error))
      cli_fail(EXIT_USAGE, &error);

  for (; push->n_builds < n_paths; push->n_builds++) {
    struct build_folder *folder = &push->builds[push->n_builds];
    folder->path = paths[push->n_builds];
    cleanup_free char *file = xasprintf("%s/build.json", folder->path);
    cleanup_json json_t *json = NULL;
    struct digest hash;
    if (!json_parse_file(file, BUILD_SIZE_MAX, &json, &error))
      cli_fail(EXIT_USAGE, &error);

    /* A build of another kernel is compared with the first one, so that build_parse refuses it. */
    const struct kernel *kernel = push->kernels[0]->kernel;
    if (json_get_digest(json, "", "kernel", JSON_REQUIRED, &hash, &error))
      for (size_t i = 0; i < n; i++)
        if (digest_equal(&push->kernels[i]->kernel->hash, &hash))
          kernel = push->kernels[i]->kernel;
    if (!build_parse(json, kernel, &folder->build, &error))
      cli_fail_in(EXIT_USAGE, &error, "%s: ", file);
  }
}

/* The keys and terms of a command's signatures, and its results so far. */
struct signing {
  struct http_client *client;
  struct signers signers; /* may be none for a push */
  int64_t expires_s;      /* 0: never */
  struct trusted_keys trusted;
  json_t *answers; /* what --json prints */
  bool as_json;
};

static void signing_release(struct signing *signing) {
  if (signing->client)
    http_client_free(signing->client);
  signers_release(&signing->signers);
  trusted_keys_release(&signing->trusted);
  json_decref(signing->answers);
}
#define cleanup_signing cleanup_by(signing_release)

/* Signs with each key, prints on stderr what is signed with which key, and posts it. Returns all
 * signatures that the server has then, a new reference. */
static json_t *code_sign_and_post(const struct signing *signing, const struct signed_code *code,
                                  int64_t expires_s) {
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE], id[DIGEST_TEXT_SIZE],
      what[SIGNED_CODE_TEXT_SIZE];
  bool is_build = code->is_build;
  cleanup_free char *path =
      xasprintf("/v1/kernels/%s%s%s/signatures", digest_format(&code->kernel, kernel),
                is_build ? "/builds/" : "", is_build ? digest_format(&code->build, build) : "");
  cleanup_json json_t *answer = NULL;
  if (signing->signers.n)
    fprintf(stderr, "signing  %s%s%s\n", signed_code_format(code, what), expires_s ? " until " : "",
            expires_s ? TIME_TEXT(expires_s) : "");

  for (size_t i = 0; i < signing->signers.n; i++) {
    const struct signing_key *key = &signing->signers.all[i];
    struct code_signature signature = code_sign(code, key, expires_s);
    char public_key[PUBLIC_KEY_TEXT_SIZE];
    signing_key_public_text(key, public_key);
    cleanup_json json_t *body = code_signature_to_json(&signature);
    json_object_del(body, "key"); /* it is the public key's digest */
    json_put(body, "public_key", json_string(public_key));

    json_decref(TAKE(answer));
    answer = cli_call(signing->client, "POST", path, body);
    fprintf(stderr, "by       %s (%s)\n", digest_format(&key->id, id), signing->signers.paths[i]);
  }

  return json_incref(json_object_get(answer, "signatures"));
}

/* Whether the server has the kernel. Then a build is pushed without registering it, which a
 * builder's token cannot do. */
static bool kernel_is_known(struct http_client *client, const struct kernel *kernel) {
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/kernels/%s", digest_format(&kernel->hash, hash));
  struct http_request request = {.method = "GET", .path = path};
  cleanup_http_response struct http_response response = {0};
  struct error ignored; /* registering the kernel reports it */
  return http_send(client, &request, &response, &ignored) && response.status == 200;
}

/* Pushes and signs one kernel and its builds. */
static void kernel_push_signed(const struct signing *signing, const struct push *push,
                               const struct kernel_folder *folder) {
  const struct kernel *kernel = folder->kernel;
  cleanup_json json_t *digests = json_array();
  char digest[DIGEST_TEXT_SIZE];
  const char *hash = DIGEST_TEXT(&kernel->hash);

  if (!push->n_builds || !kernel_is_known(signing->client, kernel))
    kernel_push(signing->client, folder);
  json_decref(code_sign_and_post(signing, &(struct signed_code){.kernel = kernel->hash},
                                 signing->expires_s));
  if (!signing->as_json)
    printf("%s  %s\n", hash, kernel->name);

  for (size_t i = 0; i < push->n_builds; i++) {
    const struct build *build = push->builds[i].build;
    struct signed_code what = {.kernel = kernel->hash, .is_build = true, .build = build->digest};
    if (!digest_equal(&build->kernel, &kernel->hash))
      continue;
    build_push(signing->client, &push->builds[i]);
    json_decref(code_sign_and_post(signing, &what, signing->expires_s));
    json_push(digests, json_digest_text(&build->digest));
    if (!signing->as_json)
      printf("%s  build of %s for %s, triton %s%s%s\n", digest_format(&build->digest, digest),
             kernel->name, build->arch, build->triton, build->torch ? ", torch " : "",
             build->torch ? build->torch : "");
  }

  json_push(signing->answers,
            json_pack("{s:s, s:s, s:O}", "kernel", hash, "name", kernel->name, "builds", digests));
}

static int command_kernel_push(struct options *options) {
  cleanup_push struct push push = {0};
  cleanup_signing struct signing signing = {.answers = json_array(),
                                            .as_json = option_flag(options, "json")};
  const char *const *keys;
  /* $WAVETUNE_SIGN_KEYS alone does not sign here: those keys may be meant for channels only. */
  bool is_signed = option_list(options, "sign-key", &keys);
  if (!is_signed && option_text(options, "expires"))
    cli_refuse(EXIT_USAGE, "--expires: nothing is signed; give --sign-key too");
  if (is_signed)
    signers_of_keys(options, &signing.signers);
  signing.expires_s = expires_of_option(options);
  push_load(options, &push);

  signing.client = cli_connect(options);
  for (size_t i = 0; i < push.n_kernels; i++)
    kernel_push_signed(&signing, &push, push.kernels[i]);
  if (signing.as_json)
    cli_print_json(signing.answers);
  return EXIT_OK;
}

/* "sha256:…, sha256:…": the keys of an answer's signatures, "" for none. */
static char *format_keys(const json_t *signatures) {
  char *keys = xstrdup("");
  json_elements (signatures, i, signature)
    text_append(&keys, "%s%s", i ? ", " : "", cli_member(signature, "key"));
  return keys;
}

static char *format_keys_or_dash(const json_t *signatures) {
  return json_array_size(signatures) ? format_keys(signatures) : xstrdup("-");
}

static int command_kernel_list(struct options *options) {
  cleanup_json json_t *items = cli_list_or_json(options, "/v1/kernels");
  json_elements (items, index, item) {
    cleanup_free char *keys = format_keys(json_object_get(item, "signatures"));
    printf("%s  %-7s %s%s%s\n", cli_member(item, "kernel"), cli_member(item, "language"),
           cli_member(item, "name"), *keys ? "  signed by " : "", keys);
  }
  return EXIT_OK;
}

#define NAME_A_KERNEL "name one kernel by its hash, as `wavetune kernel list` prints it"

static int command_kernel_show(struct options *options) {
  char *const *hash = cli_arguments(options, 1, NAME_A_KERNEL);
  cleanup_free char *path = cli_path("/v1/kernels/", *hash, "");
  cleanup_json json_t *answer = cli_request(options, "GET", path, NULL);

  /* Without --json, stdout has only the manifest. */
  bool as_json = option_flag(options, "json");
  cli_print_json(as_json ? answer : json_object_get(answer, "manifest"));

  json_elements (json_object_get(answer, "signatures"), index, signature) {
    const char *expires = cli_member(signature, "expires");
    fprintf(stderr, "signed   by %s%s%s\n", cli_member(signature, "key"), *expires ? " until " : "",
            expires);
  }

  const char *made_by = cli_member(answer, "made_by");
  if (!as_json)
    fprintf(stderr, "registered %s%s%s\n", cli_member(answer, "created_at"), *made_by ? " by " : "",
            made_by);

  return EXIT_OK;
}

static int command_kernel_builds(struct options *options) {
  static const struct cli_column columns[] = {
      {"build"},
      {"arch"},
      {"triton", "triton", false, cli_format_or_dash},
      {"torch", "torch", false, cli_format_or_dash},
      {"rocm", "rocm", false, cli_format_or_dash},
      {"variants", "variants", true},
      {"made", "created_at"},
      {"by", "made_by"},
      {"signed by", "signatures", false, format_keys_or_dash}};
  char *const *hash = cli_arguments(options, 1, NAME_A_KERNEL);

  cleanup_free char *path = cli_path("/v1/kernels/", *hash, "/builds");
  cleanup_json json_t *items = cli_list_or_json(options, path);
  if (!items)
    return EXIT_OK;

  json_elements (items, index, item)
    json_object_update_missing(item, json_object_get(item, "toolchain"));
  cli_print_table(items, columns);
  return EXIT_OK;
}

static int command_kernel_remove_build(struct options *options) {
  char *const *names = cli_arguments(
      options, 2,
      "name a kernel by its hash and one of its builds, as `wavetune kernel builds HASH` "
      "prints it");

  cleanup_free char *folder = cli_path("/v1/kernels/", names[0], "/builds/"),
                    *path = cli_path(folder, names[1], "");
  json_decref(cli_request(options, "DELETE", path, NULL));
  return cli_print_done(options, "removed", names[1]);
}

static int command_kernel_hash(struct options *options) {
  char *const *place =
      cli_arguments(options, 1, "name one kernel folder, e.g. kernels/softmax:fused");
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  struct error error;
  if (!kernel_folder_load(*place, &folder, &error))
    cli_fail(EXIT_USAGE, &error);

  const struct kernel *kernel = folder->kernel;
  bool with_manifest = option_flag(options, "manifest");
  const char *hash = DIGEST_TEXT(&kernel->hash);
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer =
        json_pack("{s:s, s:s, s:O*}", "kernel", hash, "name", kernel->name, "manifest",
                  with_manifest ? kernel->json : NULL);
    cli_print_json(answer);
    return EXIT_OK;
  }

  cleanup_free char *manifest = json_canonical(kernel->json);
  puts(hash);
  if (with_manifest)
    puts(manifest);

  return EXIT_OK;
}

static void code_sign_one(const struct signing *signing, const struct signed_code *code,
                          int64_t expires_s) {
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE], what[SIGNED_CODE_TEXT_SIZE];
  cleanup_json json_t *signatures = code_sign_and_post(signing, code, expires_s);
  size_t n = json_array_size(signatures);
  json_push(signing->answers,
            json_pack("{s:s, s:s*, s:O*}", "kernel", digest_format(&code->kernel, kernel), "build",
                      code->is_build ? digest_format(&code->build, build) : NULL, "signatures",
                      signatures));
  if (!signing->as_json)
    printf("%s  %zu signature%s\n", signed_code_format(code, what), n, n == 1 ? "" : "s");
}

/* Signs a registered kernel and its builds, each only if a trusted key signed it before, and until
 * that signature expires unless --expires states another time. Builds that no trusted key signed
 * are reported and left unsigned. */
static void hash_sign(const struct signing *signing, const char *text) {
  struct signed_code code = {0};
  struct code_signature before;
  struct error error;
  if (!digest_parse(text, &code.kernel))
    cli_refuse(EXIT_USAGE, "\"%.80s\" is not a kernel's hash; `wavetune kernel list` prints them",
               text);

  cleanup_free char *path = xasprintf("/v1/kernels/%s", text),
                    *list = xasprintf("/v1/kernels/%s/builds", text);
  int64_t expires_s = signing->expires_s;
  cleanup_json json_t *kernel = cli_get(signing->client, path),
                      *builds = cli_list(signing->client, list);
  if (!code_signature_find(&code, json_object_get(kernel, "signatures"), &signing->trusted,
                           time(NULL), &before, &error))
    cli_fail(EXIT_REFUSED, &error);
  code_sign_one(signing, &code, expires_s ? expires_s : before.expires_s);

  code.is_build = true;
  for (size_t i = 0; i < json_array_size(builds); i++) {
    const json_t *build = json_array_get(builds, i);
    if (!digest_parse(cli_member(build, "build"), &code.build))
      continue;
    if (code_signature_find(&code, json_object_get(build, "signatures"), &signing->trusted,
                            time(NULL), &before, &error))
      code_sign_one(signing, &code, expires_s ? expires_s : before.expires_s);
    else
      fprintf(stderr, "wavetune: left unsigned: %s\n", error.message);
  }
}

/* Reads the keys, and folders into `push`, so that errors in them are reported before the first
 * request. */
static void sign_read(const struct options *options, struct signing *signing, struct push *push) {
  char *const *arguments;
  const char *const *builds;
  size_t n = options_arguments(options, &arguments), n_hashes = 0;
  for (size_t i = 0; i < n; i++)
    n_hashes += string_starts(arguments[i], "sha256:");
  signers_of_keys(options, &signing->signers);
  if (!signing->signers.n)
    cli_refuse(EXIT_USAGE, NO_SIGN_KEY);
  trusted_of_option(options, &signing->trusted);

  if (n_hashes) {
    if (n_hashes < n || option_list(options, "build", &builds))
      cli_refuse(EXIT_USAGE, "name folders, with their builds, or hashes: one or the other");
    if (!signing->trusted.n)
      cli_refuse(EXIT_USAGE,
                 "a kernel that is named by its hash is signed only if a key that you trust "
                 "signed it before: give --trusted-key, or sign the kernel's folder");
  } else {
    if (signing->trusted.n)
      cli_refuse(EXIT_USAGE, "--trusted-key is for kernels that are named by their hashes, and "
                             "these are folders");
    push_load(options, push);
    for (size_t i = 0; i < push->n_builds; i++) {
      const struct build_folder *folder = &push->builds[i];
      for (size_t j = 0; j < folder->build->n_objects; j++) {
        struct content content = {0};
        struct error error;
        if (!object_find(folder, &folder->build->objects[j], &content, &error))
          cli_fail(EXIT_USAGE, &error);
        free(content.bytes);
      }
    }
  }

  signing->expires_s = expires_of_option(options);
}

static int command_kernel_sign(struct options *options) {
  cleanup_signing struct signing signing = {.answers = json_array(),
                                            .as_json = option_flag(options, "json")};
  cleanup_push struct push push = {0};
  sign_read(options, &signing, &push);

  char *const *arguments;
  size_t n = options_arguments(options, &arguments);
  signing.client = cli_connect(options);
  for (size_t i = 0; i < push.n_kernels; i++)
    code_sign_one(&signing, &(struct signed_code){.kernel = push.kernels[i]->kernel->hash},
                  signing.expires_s);

  for (size_t i = 0; i < push.n_builds; i++) {
    const struct build *build = push.builds[i].build;
    struct signed_code what = {.kernel = build->kernel, .is_build = true, .build = build->digest};
    code_sign_one(&signing, &what, signing.expires_s);
  }

  for (size_t i = 0; !push.n_kernels && i < n; i++)
    hash_sign(&signing, arguments[i]);
  if (signing.as_json)
    cli_print_json(signing.answers);
  return EXIT_OK;
}

#define CODE_EXPIRES                                                                               \
  "when agents stop accepting the signature: 7d, 36h or 2026-12-24T00:00:00Z; default: never"
static const struct option_spec push_options[] = {
    CLI_LIST("build", "FOLDER",
             "a build that `python3 -m wavetune pack` made of a pushed kernel; may be repeated"),
    CLI_LIST("sign-key", "FILE", "a private key that signs what is pushed, as `kernel sign` does"),
    CLI_TEXT("expires", "TIME", CODE_EXPIRES),
    SERVER_OPTIONS,
};
static const struct option_spec sign_options[] = {
    CLI_LIST("build", "FOLDER",
             "a build of one of the kernels, which is signed too; may be repeated"),
    CLI_LIST("sign-key", "FILE",
             "a private key that signs; default: the files that $WAVETUNE_SIGN_KEYS lists, "
             "separated by ':'"),
    CLI_LIST("trusted-key", "FILE|FOLDER",
             "with hashes: sign what one of these public keys signed before"),
    CLI_TEXT("expires", "TIME",
             CODE_EXPIRES "; with hashes, default: when the trusted key's signature expires"),
    SERVER_OPTIONS,
};
static const struct option_spec hash_options[] = {
    CLI_FLAG("manifest", "also print the manifest whose SHA-256 the hash is, byte by byte"),
    OPTION_JSON,
};

CLI_COMMAND(kernel_push, "kernel push", "DIR[:VERSION]…", push_options,
            "register kernels and upload their sources and builds");
CLI_COMMAND(kernel_list, "kernel list", "", server_options,
            "list the kernels that the server knows");
CLI_COMMAND(kernel_show, "kernel show", "HASH", server_options, "print a kernel's manifest");
CLI_COMMAND(kernel_builds, "kernel builds", "HASH", server_options,
            "list a kernel's builds: compiled code by arch and toolchain");
CLI_COMMAND(kernel_remove_build, "kernel remove-build", "HASH BUILD", server_options,
            "remove a build for good, for operators",
            .description = "Its code is no longer served, and it cannot be pushed again. It is "
                           "refused while a channel serves a release with winners of the build, or "
                           "an open job runs it. Releases that no channel serves lose the choices "
                           "of these winners. `wavetune gc` removes the files.");
CLI_COMMAND(kernel_hash, "kernel hash", "DIR[:VERSION]", hash_options,
            "print a kernel folder's hash, without a server");
CLI_COMMAND(kernel_sign, "kernel sign", "DIR[:VERSION]…|HASH…", sign_options,
            "sign kernels and builds, for agents that accept only signed code",
            .description = "The hash of a folder is computed from its files: review them first. "
                           "The kernels, and the builds that --build names, must have been pushed. "
                           "With --trusted-key, registered kernels are named by their hashes; they "
                           "and their builds are signed where such a key signed them before, so "
                           "that a new key can replace it.");
