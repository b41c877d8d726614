/* wavetune kernel push|list|show: kernels on the server. */
#include "cli/cli.h"
#include "common/kernel_folder.h"

/* Uploads the files that `missing` names. A digest that the folder does not have is the server's mistake, said so. */
static int files_upload(struct http_client *client, const struct kernel_folder *folder, const json_t *missing) {
  size_t index;
  json_t *element;
  json_array_foreach (missing, index, element) {
    const char *wanted = json_string_value(element);
    const struct kernel_file *file = NULL;
    char text[DIGEST_TEXT_SIZE];
    for (size_t i = 0; i < folder->n_files; i++)
      if (string_equal(digest_format(&folder->files[i].digest, text), wanted))
        file = &folder->files[i];
    struct error error;
    if (!file) {
      error_set(&error, "the server misses %s, which is no file of this kernel", wanted ? wanted : "(no digest)");
      return cli_fail(EXIT_REFUSED, &error);
    }
    cleanup_free char *path = xasprintf("/v1/blobs/%s", wanted);
    cleanup_http_response struct http_response response = {0};
    struct http_request request = {.method = "PUT",
                                   .path = path,
                                   .body = file->bytes,
                                   .body_size = file->size,
                                   .content_type = "application/octet-stream"};
    if (!http_send(client, &request, &response, &error))
      return cli_fail(EXIT_UNREACHABLE, &error);
    if (response.status / 100 != 2)
      return cli_refused(&response, file->path);
  }
  return EXIT_OK;
}

int kernel_push(struct http_client *client, const struct kernel_folder *folder) {
  cleanup_free char *manifest = json_canonical(folder->kernel->json);
  struct http_request request = {
      .method = "POST", .path = "/v1/kernels", .body = manifest, .body_size = strlen(manifest)};
  struct error error;
  /* The first answer may list missing files; after they are uploaded the second one must not. */
  for (int attempt = 0;; attempt++) {
    cleanup_http_response struct http_response response = {0};
    if (!http_send(client, &request, &response, &error))
      return cli_fail(EXIT_UNREACHABLE, &error);
    if (response.status / 100 == 2)
      return EXIT_OK;
    cleanup_json json_t *problem = json_loadb(response.body, response.size, 0, NULL);
    json_t *missing = json_object_get(problem, "missing");
    if (response.status != 409 || !missing || attempt)
      return cli_refused(&response, folder->kernel->name);
    int code = files_upload(client, folder, missing);
    if (code != EXIT_OK)
      return code;
  }
}

static int command_kernel_push(struct options *options) {
  char *const *places;
  size_t n = options_arguments(options, &places);
  struct error error;
  if (n == 0) {
    error_set(&error, "name at least one kernel folder, e.g. kernels/softmax:fused");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *answers = json_array();
  for (size_t i = 0; i < n; i++) {
    cleanup_kernel_folder struct kernel_folder *folder = NULL;
    if (!kernel_folder_load(places[i], &folder, &error))
      return cli_fail(EXIT_USAGE, &error);
    int code = kernel_push(client, folder);
    if (code != EXIT_OK)
      return code;
    char hash[DIGEST_TEXT_SIZE];
    digest_format(&folder->kernel->hash, hash);
    json_array_append_new(answers, json_pack("{s:s, s:s}", "kernel", hash, "name", folder->kernel->name));
    if (!option_flag(options, "json"))
      printf("%s  %s\n", hash, folder->kernel->name);
  }
  if (option_flag(options, "json"))
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
  json_array_foreach (items, index, item)
    printf("%s  %-7s %s\n", cli_member(item, "kernel"), cli_member(item, "language"), cli_member(item, "name"));
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
  if (code == EXIT_OK)
    cli_print_json(option_flag(options, "json") ? answer : json_object_get(answer, "manifest"));
  return code;
}

static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_kernel_push = {
    .name = "kernel push",
    .arguments = "DIR[:VERSION]…",
    .summary = "register kernels and upload their sources",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
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
