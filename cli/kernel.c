/* wavetune kernel push|list|show|builds|hash: kernels and their builds on the server. */
#include "cli/kernel.h"
#include "common/base/file.h"
#include "common/program/progress.h"
#include "common/program/table.h"

#define OBJECT_SIZE_MAX ((size_t)64 << 20)

/* A file that a manifest or a build names. */
struct content {
  char *bytes; /* owned */
  size_t size;
};

/* A request that names files: the server answers 409 with those that it misses, and they are
 * uploaded. */
struct registration {
  const char *method, *path, *body;
  const char *what; /* is registered: for errors */
  /* Finds a file. ERROR_MISSING: what is registered names no such file; ERROR_INVALID: it is not as
   * it should be. */
  bool (*find)(const void *owner, const struct digest *digest, struct content *ret,
               struct error *error);
  const void *owner;
};

/* Uploads one file. The bar is wiped before anything is said. */
static int file_upload(struct http_client *client, const struct registration *registration,
                       const char *wanted, struct progress *progress) {
  cleanup_free char *path = xasprintf("/v1/blobs/%s", wanted ? wanted : "(no digest)");
  cleanup_http_response struct http_response response = {0};
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
    return error.kind == ERROR_INVALID ? cli_fail(EXIT_USAGE, &error) : cli_failed(&error);
  }

  struct http_request request = {.method = "PUT",
                                 .path = path,
                                 .body = content.bytes,
                                 .body_size = content.size,
                                 .content_type = "application/octet-stream"};
  bool is_answered = http_send(client, &request, &response, &error);
  free(content.bytes);
  if (is_answered && response.status / 100 == 2)
    return EXIT_OK;
  progress_end(progress);
  return is_answered ? cli_refused(&response, wanted) : cli_fail(EXIT_UNREACHABLE, &error);
}

static int files_upload(struct http_client *client, const struct registration *registration,
                        const json_t *missing) {
  struct progress progress = progress_start(stderr, "files", json_array_size(missing));
  int code = EXIT_OK;
  for (size_t i = 0; code == EXIT_OK && i < json_array_size(missing); i++) {
    progress_show(&progress, i, "");
    code =
        file_upload(client, registration, json_string_value(json_array_get(missing, i)), &progress);
  }
  if (code == EXIT_OK)
    progress_end(&progress);
  return code;
}

static int register_with_files(struct http_client *client,
                               const struct registration *registration) {
  struct http_request request = {.method = registration->method,
                                 .path = registration->path,
                                 .body = registration->body,
                                 .body_size = strlen(registration->body)};
  /* The first answer may list missing files; after they are uploaded the second one must not. */
  for (int attempt = 0;; attempt++) {
    cleanup_http_response struct http_response response = {0};
    int code = cli_send(client, &request, &response);
    if (code != EXIT_OK)
      return code;
    if (response.status / 100 == 2)
      return EXIT_OK;
    cleanup_json json_t *problem = json_loadb(response.body, response.size, 0, NULL);
    json_t *missing = json_object_get(problem, "missing");
    if (response.status != 409 || !missing || attempt)
      return cli_refused(&response, registration->what);
    code = files_upload(client, registration, missing);
    if (code != EXIT_OK)
      return code;
  }
}

/* One sentence for a digest that what is pushed does not name: the server's mistake. */
static bool refuse_stranger(const struct digest *digest, const char *what, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  return error_of(error, ERROR_MISSING, "the server misses %s, which is no file of this %s",
                  digest_format(digest, text), what);
}

static bool source_find(const void *owner, const struct digest *digest, struct content *ret,
                        struct error *error) {
  const struct kernel_folder *folder = owner;
  for (size_t i = 0; i < folder->n_files; i++) {
    const struct kernel_file *file = &folder->files[i];
    if (!digest_equal(&file->digest, digest))
      continue;
    *ret = (struct content){xmemdup(file->bytes, file->size), file->size};
    return true;
  }
  return refuse_stranger(digest, "kernel", error);
}

int kernel_push(struct http_client *client, const struct kernel_folder *folder) {
  cleanup_free char *manifest = json_canonical(folder->kernel->json);
  struct registration registration = {.method = "POST",
                                      .path = "/v1/kernels",
                                      .body = manifest,
                                      .what = folder->kernel->name,
                                      .find = source_find,
                                      .owner = folder};
  return register_with_files(client, &registration);
}

static bool build_names(const struct build *build, const struct digest *digest) {
  for (size_t i = 0; i < build->n_objects; i++)
    if (digest_equal(&build->objects[i], digest))
      return true;
  return false;
}

/* An object's bytes, which are what its name says. */
static bool object_find(const void *owner, const struct digest *digest, struct content *ret,
                        struct error *error) {
  const struct build_folder *folder = owner;
  char text[DIGEST_TEXT_SIZE];
  if (!build_names(folder->build, digest))
    return refuse_stranger(digest, "build", error);
  cleanup_free char *path =
      xasprintf("%s/objects/%s", folder->path, strchr(digest_format(digest, text), ':') + 1);
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!file_read(path, OBJECT_SIZE_MAX, &bytes, &size, error))
    return error_prefix(error, "the build is not whole, pack it again: ");
  struct digest actual = digest_of(bytes, size);
  if (!digest_equal(&actual, digest))
    return error_set(error, "%s is damaged, its digest is %s: pack the build again", path,
                     digest_format(&actual, text));
  *ret = (struct content){TAKE(bytes), size};
  return true;
}

bool build_folder_is_whole(const struct build_folder *folder, struct error *error) {
  for (size_t i = 0; i < folder->build->n_objects; i++) {
    struct content content = {0};
    bool is_found = object_find(folder, &folder->build->objects[i], &content, error);
    free(content.bytes);
    if (!is_found)
      return false;
  }
  return true;
}

static int build_push(struct http_client *client, const struct build_folder *folder) {
  char kernel[DIGEST_TEXT_SIZE], digest[DIGEST_TEXT_SIZE];
  cleanup_free char *path =
      xasprintf("/v1/kernels/%s/builds/%s", digest_format(&folder->build->kernel, kernel),
                digest_format(&folder->build->digest, digest));
  cleanup_free char *body = json_canonical(folder->build->json);
  struct registration registration = {.method = "PUT",
                                      .path = path,
                                      .body = body,
                                      .what = folder->path,
                                      .find = object_find,
                                      .owner = folder};
  return register_with_files(client, &registration);
}

/* What one call pushes is read whole before the server hears of any of it. */
void push_release(struct push *push) {
  for (size_t i = 0; i < push->n_kernels; i++)
    kernel_folder_free(push->kernels[i]);
  for (size_t i = 0; i < push->n_builds; i++)
    build_free(push->builds[i].build);
  free(push->kernels);
  free(push->builds);
}

/* Reads a build of one of the kernels that are pushed. */
static bool build_folder_load(const struct push *push, const char *path, struct build_folder *ret,
                              struct error *error) {
  cleanup_free char *file = xasprintf("%s/build.json", path);
  cleanup_json json_t *json = NULL;
  struct digest hash;
  if (!json_parse_file(file, BUILD_SIZE_MAX, &json, error))
    return false;
  const struct kernel *kernel = push->kernels[0]->kernel;
  if (json_get_digest(json, "", "kernel", JSON_REQUIRED, &hash, error))
    for (size_t i = 0; i < push->n_kernels; i++)
      if (digest_equal(&push->kernels[i]->kernel->hash, &hash))
        kernel = push->kernels[i]->kernel;
  ret->path = path;
  return build_parse(json, kernel, &ret->build, error) || error_prefix(error, "%s: ", file);
}

bool push_load(const struct options *options, struct push *push, struct error *error) {
  char *const *places;
  const char *const *paths;
  size_t n = options_arguments(options, &places), n_paths = option_list(options, "build", &paths);
  if (n == 0)
    return error_set(error, "name at least one kernel folder, e.g. kernels/softmax:fused");
  push->kernels = xcalloc(n, sizeof(struct kernel_folder *));
  push->builds = xcalloc(n_paths + 1, sizeof *push->builds);
  for (; push->n_kernels < n; push->n_kernels++)
    if (!kernel_folder_load(places[push->n_kernels], &push->kernels[push->n_kernels], error))
      return false;
  for (; push->n_builds < n_paths; push->n_builds++)
    if (!build_folder_load(push, paths[push->n_builds], &push->builds[push->n_builds], error))
      return false;
  return true;
}

static void build_print(const struct build *build, const char *name) {
  char digest[DIGEST_TEXT_SIZE];
  printf("%s  build of %s for %s, triton %s%s%s\n", digest_format(&build->digest, digest), name,
         build->arch, build->triton, build->torch ? ", torch " : "",
         build->torch ? build->torch : "");
}

/* Who signs what is pushed, and for how long. */
struct signing {
  struct signers signers;
  int64_t expires_s;
};

/* Only with a key on the command line: what signs channels need not be what signs kernels. */
static bool signing_read(const struct options *options, struct signing *signing,
                         struct error *error) {
  const char *const *keys;
  if (!option_list(options, "sign-key", &keys))
    return !option_text(options, "expires") ||
           error_set(error, "--expires: nothing is signed; give --sign-key too");
  return signers_of_keys(options, &signing->signers, error) &&
         expires_of_option(options, &signing->expires_s, error);
}

static void signing_release(struct signing *signing) { signers_release(&signing->signers); }

static int pushed_sign(struct http_client *client, const struct signing *signing,
                       const struct signed_code *code) {
  cleanup_json json_t *signatures = NULL;
  return code_sign_and_post(client, code, &signing->signers, signing->expires_s, &signatures);
}

/* Pushes and signs the builds of a kernel; adds their digests to `digests`. */
static int builds_push(struct http_client *client, const struct push *push,
                       const struct kernel *kernel, const struct signing *signing, bool as_json,
                       json_t *digests) {
  for (size_t i = 0; i < push->n_builds; i++) {
    const struct build *build = push->builds[i].build;
    if (!digest_equal(&build->kernel, &kernel->hash))
      continue;
    struct signed_code signed_build = {
        .kernel = kernel->hash, .is_build = true, .build = build->digest};
    int code = build_push(client, &push->builds[i]);
    if (code == EXIT_OK)
      code = pushed_sign(client, signing, &signed_build);
    if (code != EXIT_OK)
      return code;
    json_array_append_new(digests, json_digest_text(&build->digest));
    if (!as_json)
      build_print(build, kernel->name);
  }
  return EXIT_OK;
}

/* With a build: the token may be a builder's, who cannot register kernels, and need not where a
 * submitter did. */
static bool kernel_is_known(struct http_client *client, const struct kernel *kernel) {
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/kernels/%s", digest_format(&kernel->hash, hash));
  struct http_request request = {.method = "GET", .path = path};
  cleanup_http_response struct http_response response = {0};
  struct error ignored; /* then registering it says what is wrong */
  return http_send(client, &request, &response, &ignored) && response.status == 200;
}

static int command_kernel_push(struct options *options) {
  cleanup_push struct push push = {0};
  __attribute__((cleanup(signing_release))) struct signing signing = {0};
  struct error error;
  if (!signing_read(options, &signing, &error) || !push_load(options, &push, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *answers = json_array();
  bool as_json = option_flag(options, "json");
  for (size_t i = 0; i < push.n_kernels; i++) {
    const struct kernel *kernel = push.kernels[i]->kernel;
    cleanup_json json_t *builds = json_array();
    char hash[DIGEST_TEXT_SIZE];
    int code = push.n_builds && kernel_is_known(client, kernel)
                   ? EXIT_OK
                   : kernel_push(client, push.kernels[i]);
    if (code == EXIT_OK)
      code = pushed_sign(client, &signing, &(struct signed_code){.kernel = kernel->hash});
    if (code != EXIT_OK)
      return code;
    if (!as_json)
      printf("%s  %s\n", digest_format(&kernel->hash, hash), kernel->name);
    code = builds_push(client, &push, kernel, &signing, as_json, builds);
    if (code != EXIT_OK)
      return code;
    json_array_append_new(answers,
                          json_pack("{s:s, s:s, s:O}", "kernel", digest_format(&kernel->hash, hash),
                                    "name", kernel->name, "builds", builds));
  }
  if (as_json)
    cli_print_json(answers);
  return EXIT_OK;
}

static int command_kernel_list(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/kernels", &items);
  if (!items)
    return code;
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *keys = signature_keys_format(json_object_get(item, "signatures"));
    printf("%s  %-7s %s%s%s\n", cli_member(item, "kernel"), cli_member(item, "language"),
           cli_member(item, "name"), keys[0] ? "  signed by " : "", keys);
  }
  return EXIT_OK;
}

static int command_kernel_show(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one kernel by its hash, as `wavetune kernel list` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/kernels/%s", escaped);
  cleanup_json json_t *answer = NULL;
  int code = cli_call(client, "GET", path, NULL, &answer);
  if (code != EXIT_OK)
    return code;
  cli_print_json(option_flag(options, "json") ? answer : json_object_get(answer, "manifest"));
  size_t index;
  json_t *signature;
  json_array_foreach (json_object_get(answer, "signatures"), index, signature) {
    const char *expires = cli_member(signature, "expires");
    fprintf(stderr, "signed   by %s%s%s\n", cli_member(signature, "key"),
            expires[0] ? " until " : "", expires);
  }
  if (!option_flag(options, "json")) /* what is printed above is the manifest, and nothing else */
    fprintf(stderr, "registered %s%s%s\n", cli_member(answer, "created_at"),
            cli_member(answer, "made_by")[0] ? " by " : "", cli_member(answer, "made_by"));
  return EXIT_OK;
}

static int command_kernel_builds(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one kernel by its hash, as `wavetune kernel list` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/kernels/%s/builds", escaped);
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, path, &items);
  if (!items)
    return code;
  const struct table_column columns[] = {{"build", false}, {"arch", false}, {"triton", false},
                                         {"torch", false}, {"rocm", false}, {"variants", true},
                                         {"made", false},  {"by", false},   {"signed by", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  static const char *const versions[] = {"triton", "torch", "rocm"};
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    const json_t *toolchain = json_object_get(item, "toolchain");
    table_cell(table, "%s", cli_member(item, "build"));
    table_cell(table, "%s", cli_member(item, "arch"));
    for (size_t i = 0; i < ARRAY_LENGTH(versions); i++) {
      const char *version = cli_member(toolchain, versions[i]);
      table_cell(table, "%s", version[0] ? version : "-");
    }
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(item, "variants")));
    cleanup_free char *keys = signature_keys_format(json_object_get(item, "signatures"));
    table_cell(table, "%s", cli_member(item, "created_at"));
    table_cell(table, "%s", cli_member(item, "made_by"));
    table_cell(table, "%s", keys[0] ? keys : "-");
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static int command_kernel_hash(struct options *options) {
  char *const *places;
  struct error error;
  if (options_arguments(options, &places) != 1) {
    error_set(&error, "name one kernel folder, e.g. kernels/softmax:fused");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  if (!kernel_folder_load(places[0], &folder, &error))
    return cli_fail(EXIT_USAGE, &error);
  const struct kernel *kernel = folder->kernel;
  bool with_manifest = option_flag(options, "manifest");
  char hash[DIGEST_TEXT_SIZE];
  digest_format(&kernel->hash, hash);
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:s, s:s}", "kernel", hash, "name", kernel->name);
    if (with_manifest)
      json_object_set(answer, "manifest", kernel->json);
    cli_print_json(answer);
    return EXIT_OK;
  }
  puts(hash);
  cleanup_free char *manifest = json_canonical(kernel->json);
  if (with_manifest)
    puts(manifest);
  return EXIT_OK;
}

static const struct option_spec push_options[] = {
    OPTION_BUILD("a build that `python3 -m wavetune pack` made of a pushed kernel; several times "
                 "for several"),
    {.name = "sign-key",
     .type = OPTION_LIST,
     .argument = "FILE",
     .flag_only = true,
     .help = "private key that signs what is pushed, as `kernel sign` does"},
    OPTION_CODE_EXPIRES("never"),
    SERVER_OPTIONS,
};
static const struct option_spec hash_options[] = {
    {.name = "manifest",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "also print the manifest whose SHA-256 the hash is, byte by byte"},
    OPTION_JSON,
};
static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_kernel_push = {
    .name = "kernel push",
    .arguments = "DIR[:VERSION]…",
    .summary = "register kernels and upload their sources and builds",
    .options = push_options,
    .n_options = ARRAY_LENGTH(push_options),
    .run = command_kernel_push,
};
const struct command_spec spec_kernel_list = {
    .name = "kernel list",
    .arguments = "",
    .summary = "list the kernels that the server knows",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_kernel_list,
};
const struct command_spec spec_kernel_show = {
    .name = "kernel show",
    .arguments = "HASH",
    .summary = "print a kernel's manifest",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_kernel_show,
};
const struct command_spec spec_kernel_builds = {
    .name = "kernel builds",
    .arguments = "HASH",
    .summary = "list a kernel's builds: compiled code by arch and toolchain",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_kernel_builds,
};
const struct command_spec spec_kernel_hash = {
    .name = "kernel hash",
    .arguments = "DIR[:VERSION]",
    .summary = "print a kernel folder's hash, without a server",
    .options = hash_options,
    .n_options = ARRAY_LENGTH(hash_options),
    .run = command_kernel_hash,
};
