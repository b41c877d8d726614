/* wavetune submit and demand: queue tuning jobs. */
#include "cli/cli.h"
#include "common/base/file.h"
#include "common/kernel/kernel_folder.h"
#include "common/search/search.h"

#define JOBS_PER_REQUEST 1000

/* Jobs without their keys: the members that all jobs of one call share. */
static json_t *job_template(const struct options *options, const struct kernel_folder *folder) {
  json_t *job = cli_options_json(options, "tag", "run", NULL);
  const char *regime = option_text(options, "regime"), *strategy = option_text(options, "search");
  json_int_t budget = option_integer(options, "budget"), trials = option_integer(options, "trials"),
             devices = option_integer(options, "final-devices");
  cleanup_json json_t *environment = cli_environment(options, "environment");
  if (!strategy != !trials)
    cli_refuse(
        EXIT_USAGE,
        "--search STRATEGY and --trials N go together: a search ends when its trials are used");

  json_put(job, "kernel", json_digest_text(&folder->kernel->hash));
  json_object_set(job, "space", folder->space->json);
  json_object_set(job, "environment", environment);
  json_put(job, "priority", json_integer(option_integer(options, "priority")));
  if (cli_regime_member(regime))
    json_put(job, "regime", option_text_json(options, "regime"));
  if (budget > 0)
    json_put(job, "budget", json_pack("{s:I}", "device_seconds", budget));
  if (strategy)
    json_put(
        job, "search",
        json_pack("{s:o, s:I}", "strategy", option_text_json(options, "search"), "trials", trials));
  if (devices > 1)
    json_put(job, "finals", json_pack("{s:I}", "devices", devices));
  return job;
}

static void job_append(json_t *jobs, const json_t *template, const struct key *key) {
  json_t *job = json_copy((json_t *)template);
  json_put(job, "key", key_to_json(key));
  json_push(jobs, job);
}

/* Keys from --key and from the lines of --keys FILE, each a JSON object. */
static json_t *jobs_collect(const struct options *options, const struct kernel_folder *folder) {
  const char *const *names = (const char *const *)folder->kernel->key_names, *const * texts;
  const char *file = option_text(options, "keys");
  size_t n_names = folder->kernel->n_key_names, n = option_list(options, "key", &texts);
  cleanup_json json_t *template = job_template(options, folder);
  json_t *jobs = json_array();
  struct error error;
  for (size_t i = 0; i < n; i++) {
    cleanup_key struct key key = {0};
    if (!key_parse_text(texts[i], names, n_names, &key, &error))
      cli_fail_in(EXIT_USAGE, &error, "--key %s: ", texts[i]);
    job_append(jobs, template, &key);
  }

  cleanup_free char *text = NULL;
  size_t size, line_number = 0;
  if (file && !file_read(file, 64 << 20, &text, &size, &error))
    cli_fail(EXIT_USAGE, &error);
  char *rest = text;

  for (char *line; (line = strsep(&rest, "\n"));) {
    cleanup_json json_t *json = NULL;
    cleanup_key struct key key = {0};
    line_number++;
    if (line[strspn(line, " \t\r")] == '\0')
      continue;
    if (!json_parse(line, strlen(line), &json, &error) ||
        !key_parse(json, names, n_names, &key, &error)) {
      cli_fail_in(EXIT_USAGE, &error, "%s:%zu: ", file, line_number);
    }
    job_append(jobs, template, &key);
  }

  if (json_array_size(jobs) == 0)
    cli_refuse(EXIT_USAGE, "no key to tune for: give --key NAME=VALUE,… (several times for several "
                           "jobs) or --keys FILE");
  return jobs;
}

static json_t *jobs_post(struct http_client *client, const json_t *jobs) {
  json_t *answers = json_array();
  for (size_t start = 0; start < json_array_size(jobs); start += JOBS_PER_REQUEST) {
    json_t *batch = json_array();
    for (size_t i = start; i < json_array_size(jobs) && i < start + JOBS_PER_REQUEST; i++)
      json_array_append(batch, json_array_get(jobs, i));
    cleanup_json json_t *body = json_pack("{s:o}", "jobs", batch),
                        *answer = cli_call(client, "POST", "/v1/jobs", body);
    json_array_extend(answers, json_object_get(answer, "jobs"));
  }
  return answers;
}

/* Warns of a job that no live agent can run: otherwise it, and --wait, would wait silently. */
static void unmatched_warn(const json_t *answer) {
  const json_t *agents = json_object_get(answer, "agents"),
               *nearest = json_object_get(agents, "nearest"),
               *refusing = json_object_get(agents, "refusing");
  if (!string_equal(cli_member(answer, "state"), "queued") || cli_integer(agents, "matching") > 0)
    return;

  fprintf(stderr, "wavetune: no live agent matches job %s", cli_member(answer, "job"));
  if (refusing) {
    fprintf(stderr, "; %lld would, but are not given it: %s\n", cli_integer(refusing, "agents"),
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

static int command_submit(struct options *options) {
  char *const *place =
      cli_arguments(options, 1, "name one kernel folder, e.g. kernels/softmax:fused");
  struct error error;
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  if (!kernel_folder_load(*place, &folder, &error))
    cli_fail(EXIT_USAGE, &error);

  cleanup_json json_t *jobs = jobs_collect(options, folder);
  cleanup_http_client struct http_client *client = cli_connect(options);
  kernel_push(client, folder);
  cleanup_json json_t *answers = jobs_post(client, jobs);
  bool as_json = option_flag(options, "json"), is_waiting = option_flag(options, "wait");
  if (as_json && !is_waiting)
    cli_print_json(answers);

  json_elements (answers, index, answer) {
    if (!as_json)
      printf("job %s  %s  %lld configs  %s\n", cli_member(answer, "job"),
             json_flag(answer, "created") ? "new" : "known", cli_integer(answer, "configs"),
             cli_member(answer, "state"));
    unmatched_warn(answer);
  }

  fflush(stdout); /* a program that reads the pipe gets the jobs before --wait ends */
  return is_waiting ? jobs_await(client, options, answers, "job") : EXIT_OK;
}

static char *format_seconds(const json_t *ms) {
  return xasprintf("%.1f", json_number_value(ms) / 1000);
}

static int command_demand(struct options *options) {
  static const struct cli_column columns[] = {{"kernel", "name"},
                                              {"key"},
                                              {"tag"},
                                              {"misses", "misses", true},
                                              {"hits", "hits", true},
                                              {"saved s", "saved_ms", true, format_seconds},
                                              {"environment"},
                                              {"refused", "refused", false, cli_format_or_dash}};
  static const struct cli_column missed[] = {{"function", "name"},
                                             {"key"},
                                             {"tag"},
                                             {"misses", "misses", true},
                                             {"saved s", "saved_ms", true, format_seconds},
                                             {"captured", "capture", true, cli_format_or_dash},
                                             {"environment"},
                                             {"why"}};
  json_int_t top = option_integer(options, "queue");
  cleanup_json json_t *body = top ? json_pack("{s:I}", "top", top) : NULL,
                      *answer = top ? cli_request(options, "POST", "/v1/demand/queue", body)
                                    : cli_request(options, "GET", "/v1/demand?limit=1000", NULL);

  const json_t *items = json_object_get(answer, "items");
  if (option_flag(options, "json"))
    cli_print_json(items);
  else if (!top) {
    const json_t *misses = json_object_get(answer, "missed");
    cli_print_table(items, columns);
    if (json_array_size(misses)) {
      printf("\nprograms that start tuned had no config for:\n");
      cli_print_table(misses, missed);
    }
  } else
    json_elements (items, index, item) {
      const char *job = cli_member(item, "job"), *refused = cli_member(item, "refused");
      cleanup_free char *key = cli_compact(item, "key");
      printf("%s%s  %s %s%s%s\n", *job ? "job " : "refused", job, cli_member(item, "name"), key,
             *refused ? ": " : "", refused);
    }

  if (!top && string_equal(cli_member(answer, "policy"), "off"))
    fprintf(stderr, "wavetune: the server discards the demand that deployments report; start it "
                    "with --demand suggest to keep it\n");
  return EXIT_OK;
}

static const struct option_spec submit_options[] = {
    CLI_LIST("key", "NAME=VALUE,…", "a key to tune for; may be repeated"),
    CLI_TEXT("keys", "FILE", "keys as JSON objects, one per line"),
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    CLI_TEXT("run", "RUN", "name of a run; a new name forces a new campaign", .default_text = ""),
    CLI_INTEGER("priority", "N", "0", -1000, 1000, "jobs with a higher priority are leased first"),
    CLI_INTEGER("budget", "SECONDS", "0", 0, 1000000000,
                "device-seconds for each job, its final included: opening the kernel, loading, "
                "checking and timing configs, not compiling; once a config was measured, the "
                "smallest final is measured even beyond the budget; 0: no limit"),
    CLI_TEXT("search", "STRATEGY",
             "search the space by random, descent or evolution instead of measuring all of it"),
    CLI_INTEGER("trials", "N", "0", 0, SEARCH_TRIALS_MAX, "configs that a search measures"),
    CLI_INTEGER("final-devices", "N", "1", 1, 16,
                "number of different devices that measure each job's final"),
    CLI_FLAG("wait", "follow the jobs to their end and print the winners"),
    OPTION_TIMEOUT,
    OPTION_PATIENCE,
    SERVER_OPTIONS,
};
static const struct option_spec demand_options[] = {
    CLI_INTEGER("queue", "N", "0", 0, 1000, "queue jobs for the first N keys"),
    SERVER_OPTIONS,
};

CLI_COMMAND(submit, "submit", "DIR[:VERSION]", submit_options,
            "queue tuning jobs for a kernel, one for each key",
            .description = "Registers the kernel first if the server does not know it. "
                           "Submitting the same job again is free: the server answers with the "
                           "job it has. With --wait, prints how many jobs have ended, how many end "
                           "in a minute, and the time to go, which is estimated from the configs "
                           "that were measured since the command began (on stderr, once a minute "
                           "where that is no terminal); exits with 1 when a job failed or was "
                           "cancelled, which it names at the end, and with 9 after --timeout.");
CLI_COMMAND(
    demand, "demand", "", demand_options,
    "list untuned keys that deployments requested, or queue jobs for them",
    .description =
        "Then the keys for which programs that start tuned had no config, the most missed first, "
        "with why, and the id of the captured function (see captures tune). The former are sorted "
        "by the GPU time that tuning would have saved: the time that deployments spent on "
        "tuning the key, plus their calls times the kernel's time times the share that its winners "
        "save on average. A job has the space of the kernel's newest done job.");
