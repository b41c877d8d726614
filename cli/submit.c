/* wavetune submit: queues tuning jobs for a kernel folder, one for each key. */
#include "cli/cli.h"
#include "common/base/file.h"
#include "common/kernel/kernel_folder.h"
#include "common/search/search.h"

#define JOBS_PER_REQUEST 1000

static bool search_add(const struct options *options, json_t *job, struct error *error) {
  const char *strategy = option_text(options, "search");
  int64_t trials = option_integer(options, "trials");
  if (!strategy && trials == 0)
    return true;
  if (!strategy || trials == 0)
    return error_set(
        error,
        "--search STRATEGY and --trials N go together: a search ends when its trials are used");
  json_object_set_new(job, "search",
                      json_pack("{s:s, s:I}", "strategy", strategy, "trials", (json_int_t)trials));
  return true;
}

/* What all jobs of one call share; `key` is added to each. */
static bool job_template(const struct options *options, const struct kernel_folder *folder,
                         json_t **ret_job, struct error *error) {
  cleanup_json json_t *environment = NULL;
  cleanup_json json_t *job = json_object();
  if (!cli_environment(options, &environment, error))
    return false;
  json_object_set_new(job, "kernel", json_digest_text(&folder->kernel->hash));
  json_object_set(job, "space", folder->space->json);
  json_object_set(job, "environment", environment);
  json_object_set_new(job, "tag", json_string(option_text(options, "tag")));
  const char *regime = option_text(options, "regime");
  if (cli_regime_member(regime))
    json_object_set_new(job, "regime", json_string(regime));
  json_object_set_new(job, "run", json_string(option_text(options, "run")));
  json_object_set_new(job, "priority", json_integer(option_integer(options, "priority")));
  int64_t budget = option_integer(options, "budget");
  if (budget > 0)
    json_object_set_new(job, "budget", json_pack("{s:I}", "device_seconds", (json_int_t)budget));
  if (!search_add(options, job, error))
    return false;
  int64_t devices = option_integer(options, "final-devices");
  if (devices > 1)
    json_object_set_new(job, "finals", json_pack("{s:I}", "devices", (json_int_t)devices));
  *ret_job = TAKE(job);
  return true;
}

static bool job_append(json_t *jobs, const json_t *template, const struct kernel *kernel,
                       const char *key_text, const json_t *key_json, struct error *error) {
  cleanup_key struct key key = {0};
  const char *const *names = (const char *const *)kernel->key_names;
  bool is_parsed = key_text ? key_parse_text(key_text, names, kernel->n_key_names, &key, error)
                            : key_parse(key_json, names, kernel->n_key_names, &key, error);
  if (!is_parsed)
    return false;
  json_t *job = json_copy((json_t *)template);
  json_object_set_new(job, "key", key_to_json(&key));
  json_array_append_new(jobs, job);
  return true;
}

/* Keys from --key and from the lines of --keys FILE, each a JSON object. */
static bool jobs_collect(const struct options *options, const struct kernel_folder *folder,
                         json_t **ret_jobs, struct error *error) {
  cleanup_json json_t *template = NULL;
  cleanup_json json_t *jobs = json_array();
  if (!job_template(options, folder, &template, error))
    return false;
  const char *const *texts;
  size_t n = option_list(options, "key", &texts);
  for (size_t i = 0; i < n; i++)
    if (!job_append(jobs, template, folder->kernel, texts[i], NULL, error))
      return error_prefix(error, "--key %s: ", texts[i]);
  const char *file = option_text(options, "keys");
  if (file) {
    cleanup_free char *text = NULL;
    size_t size;
    if (!file_read(file, 64 << 20, &text, &size, error))
      return false;
    size_t line_number = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
      line_number++;
      if (line[strspn(line, " \t\r")] == '\0')
        continue;
      cleanup_json json_t *key = NULL;
      if (!json_parse(line, strlen(line), &key, error) ||
          !job_append(jobs, template, folder->kernel, NULL, key, error))
        return error_prefix(error, "%s:%zu: ", file, line_number);
    }
  }
  if (json_array_size(jobs) == 0)
    return error_set(error, "no key to tune for: give --key NAME=VALUE,… (several times for "
                            "several jobs) or --keys FILE");
  *ret_jobs = TAKE(jobs);
  return true;
}

static int jobs_post(struct http_client *client, const json_t *jobs, json_t **ret_answers) {
  cleanup_json json_t *answers = json_array();
  for (size_t start = 0; start < json_array_size(jobs); start += JOBS_PER_REQUEST) {
    cleanup_json json_t *batch = json_array();
    for (size_t i = start; i < json_array_size(jobs) && i < start + JOBS_PER_REQUEST; i++)
      json_array_append(batch, json_array_get(jobs, i));
    cleanup_json json_t *body = json_pack("{s:O}", "jobs", batch), *answer = NULL;
    int code = cli_call(client, "POST", "/v1/jobs", body, &answer);
    if (code != EXIT_OK)
      return code;
    json_array_extend(answers, json_object_get(answer, "jobs"));
  }
  *ret_answers = TAKE(answers);
  return EXIT_OK;
}

static void answer_print(const json_t *answer) {
  printf("job %s  %s  %" JSON_INTEGER_FORMAT " configs  %s\n", cli_member(answer, "job"),
         json_is_true(json_object_get(answer, "created")) ? "new" : "known",
         json_integer_value(json_object_get(answer, "configs")), cli_member(answer, "state"));
}

/* A job that nobody can run yet waits in silence otherwise, and --wait with it. */
static void unmatched_warn(const json_t *answer) {
  const json_t *agents = json_object_get(answer, "agents"),
               *nearest = json_object_get(agents, "nearest");
  bool is_waiting = string_equal(cli_member(answer, "state"), "queued");
  if (!is_waiting || json_integer_value(json_object_get(agents, "matching")) > 0)
    return;
  const json_t *refusing = json_object_get(agents, "refusing");
  fprintf(stderr, "wavetune: no live agent matches job %s", cli_member(answer, "job"));
  if (refusing) {
    fprintf(stderr, "; %" JSON_INTEGER_FORMAT " would, but take only signed kernels: %s\n",
            json_integer_value(json_object_get(refusing, "agents")),
            cli_member(refusing, "reason"));
    return;
  }
  if (json_is_object(nearest)) {
    cleanup_free char *differences = json_dumps(json_object_get(nearest, "differences"), 0);
    fprintf(stderr, "; the nearest, %s, differs in %s", cli_member(nearest, "name"),
            differences ? differences : "");
  }
  fprintf(stderr, "; it waits until one enrols\n");
}

static int jobs_await(struct http_client *client, const struct options *options,
                      const json_t *answers) {
  bool as_json = option_flag(options, "json");
  cleanup_json json_t *finished = json_array();
  int worst = EXIT_OK;
  size_t index;
  json_t *answer;
  json_array_foreach (answers, index, answer) {
    cleanup_json json_t *job = NULL;
    int code = job_follow(client, options, cli_member(answer, "job"), &job);
    if (code != EXIT_OK)
      return code;
    if (!string_equal(cli_member(job, "state"), "done"))
      worst = EXIT_FAILED;
    if (as_json)
      json_array_append(finished, job);
    else if ((code = job_print(client, job)) != EXIT_OK)
      return code;
  }
  if (as_json)
    cli_print_json(finished);
  return worst;
}

static int command_submit(struct options *options) {
  char *const *places;
  struct error error;
  if (options_arguments(options, &places) != 1) {
    error_set(&error, "name one kernel folder, e.g. kernels/softmax:fused");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_json json_t *jobs = NULL;
  if (!kernel_folder_load(places[0], &folder, &error) ||
      !jobs_collect(options, folder, &jobs, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  int code = kernel_push(client, folder);
  if (code != EXIT_OK)
    return code;
  cleanup_json json_t *answers = NULL;
  code = jobs_post(client, jobs, &answers);
  if (code != EXIT_OK)
    return code;
  bool as_json = option_flag(options, "json"), is_waiting = option_flag(options, "wait");
  if (as_json && !is_waiting)
    cli_print_json(answers);
  size_t index;
  json_t *answer;
  json_array_foreach (answers, index, answer) {
    if (!as_json)
      answer_print(answer);
    unmatched_warn(answer);
  }
  fflush(stdout); /* what --wait follows is known from now on */
  return is_waiting ? jobs_await(client, options, answers) : EXIT_OK;
}

static const struct option_spec submit_options[] = {
    {.name = "key",
     .type = OPTION_LIST,
     .argument = "NAME=VALUE,…",
     .flag_only = true,
     .help = "a key to tune for; several times for several jobs"},
    {.name = "keys",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .flag_only = true,
     .help = "keys as JSON objects, one a line"},
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    {.name = "run",
     .type = OPTION_TEXT,
     .argument = "RUN",
     .default_text = "",
     .flag_only = true,
     .help = "another run forces a fresh campaign"},
    {.name = "priority",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .min = -1000,
     .max = 1000,
     .flag_only = true,
     .help = "higher is leased first"},
    {.name = "budget",
     .type = OPTION_INTEGER,
     .argument = "SECONDS",
     .default_text = "0",
     .min = 0,
     .max = 1000000000,
     .flag_only = true,
     .help = "device-seconds for each job, its final included: opening the kernel, loading, "
             "checking and timing "
             "configs, not "
             "compiling; once a config was measured, the smallest final is too, even beyond it; 0 "
             "is no limit"},
    {.name = "search",
     .type = OPTION_TEXT,
     .argument = "STRATEGY",
     .flag_only = true,
     .help = "search the space, random, descent or evolution, and do not measure it whole"},
    {.name = "trials",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .min = 0,
     .max = SEARCH_TRIALS_MAX,
     .flag_only = true,
     .help = "configs that a search measures"},
    {.name = "final-devices",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "1",
     .min = 1,
     .max = 16,
     .flag_only = true,
     .help = "different devices that each job's final is spread over"},
    OPTION_WAIT("follow the jobs to their end and print the winners"),
    OPTION_PATIENCE,
    SERVER_OPTIONS,
};

const struct command_spec spec_submit = {
    .name = "submit",
    .arguments = "DIR[:VERSION]",
    .summary = "queue tuning jobs for a kernel, one for each key",
    .description = "Registers the kernel first where the server does not know it. Submitting the "
                   "same job again is free: the "
                   "server answers with the job it has. With --wait, exits with 1 when a job "
                   "failed or was cancelled.",
    .options = submit_options,
    .n_options = ARRAY_LENGTH(submit_options),
    .run = command_submit,
};
