/* wavetune submit: queues tuning jobs. */
#include "cli/cli.h"
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

/* A job for each key of --key and of the lines of --keys. */
static json_t *jobs_collect(const struct options *options, const struct kernel_folder *folder) {
  const char *const *names = (const char *const *)folder->kernel->key_names, *const * texts;
  const char *file = option_text(options, "keys");
  size_t n_names = folder->kernel->n_key_names, n = option_list(options, "key", &texts);
  cleanup_json json_t *template = job_template(options, folder);
  cleanup_key_list struct key_list keys = {0};
  json_t *jobs = json_array();
  struct error error;
  for (size_t i = 0; i < n; i++)
    if (!key_list_add(&keys, texts[i], names, n_names, &error))
      cli_fail_in(EXIT_USAGE, &error, "--key %s: ", texts[i]);
  if (file && !key_list_read(&keys, file, names, n_names, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!keys.n)
    cli_refuse(EXIT_USAGE, "no key to tune for: give --key NAME=VALUE,… (several times for several "
                           "jobs) or --keys FILE");

  array_foreach (key, keys.keys, keys.n) {
    json_t *job = json_copy(template);
    json_put(job, "key", key_to_json(key));
    json_push(jobs, job);
  }
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
  if (!kernel_folder_load(*place, &folder, &error) ||
      !kernel_folder_take_space(folder, option_text(options, "space"), &error))
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

static const struct option_spec submit_options[] = {
    CLI_LIST("key", "NAME=VALUE,…|JSON",
             "a key to tune for, or several: ranges and lists in 'M=1..4096*2,N=64,128' give all "
             "combinations"),
    CLI_TEXT("keys", "FILE|-", "on each line what --key takes; # begins a comment"),
    OPTION_SPACE,
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

CLI_COMMAND(submit, "submit", "DIR[:VERSION]", submit_options,
            "queue tuning jobs for a kernel, one for each key",
            .description = "Registers the kernel first if the server does not know it. "
                           "Submitting the same job again is free: the server answers with the "
                           "job it has. With --wait, prints how many jobs have ended, how many end "
                           "in a minute, and the time to go, which is estimated from the configs "
                           "that were measured since the command began (on stderr, once a minute "
                           "where that is no terminal); exits with 1 when a job failed or was "
                           "cancelled, which it names at the end, and with 9 after --timeout.");
