/* wavetune campaign revalidate: measures whether a channel's winners are still best on another
 * stack.
 *
 * For each winner of the release one small job is queued for the new environment, whose space is a
 * list: the winner, its equivalence set and the default. A winner in the new equivalence set is
 * "still best". One that is not, or does not compile or run any more, "broke", and its whole space
 * is tuned again. Jobs are found again by their run, so that another call continues with them.
 *
 * Memory: a campaign owns everything. Threads: one. */
#include <math.h>

#include "cli/channel.h"
#include "common/program/terminal.h"
#include "common/space/space.h"
#include "common/verdict/verdict.h"

#define CONFIGS_MAX 64 /* of one small job */
#define RUN_DIGITS 12
#define SAMPLES_MAX 256

struct revalidated {
  const char *name; /* the kernel's, in the release */
  json_t *key, *config;
  json_t *tune;     /* the body of the job that tunes the whole space again */
  char *job;        /* the small job; NULL: it was refused */
  char *retune;     /* the job of `tune`; NULL: not needed, or refused */
  char *reason;     /* why it broke, or was left out; NULL: still best */
  bool is_left_out; /* there is no result for the winner */
  double regret;    /* ratio of the old winner to the best, less 1; NAN: not known */
};

struct campaign {
  struct http_client *client;
  struct release *release;
  json_t *to;
  char *run;
  int64_t until_ms; /* as of jobs_until_ms */
  bool is_unfit;    /* the last job was refused because --to does not identify one environment */
  json_t *fitting;  /* the environments that --to fits, as the server lists them in a refusal; NULL:
                       there was no such refusal */
  size_t n;
  struct revalidated *all;
};

static void campaign_release(struct campaign *campaign) {
  for (size_t i = 0; i < campaign->n; i++) {
    struct revalidated *it = &campaign->all[i];
    json_decref(it->key);
    json_decref(it->config);
    json_decref(it->tune);
    free(it->job);
    free(it->retune);
    free(it->reason);
  }

  free(campaign->all);
  free(campaign->run);
  json_decref(campaign->fitting);
  json_decref(campaign->to);
  release_free(campaign->release);
  if (campaign->client)
    http_client_free(campaign->client);
}

/* Adds a config unless the list has it. Takes the reference. */
static void list_add(json_t *configs, json_t *config) {
  bool is_new = json_array_size(configs) < CONFIGS_MAX;
  for (size_t i = 0; is_new && i < json_array_size(configs); i++)
    is_new = !json_equal(json_array_get(configs, i), config);
  if (is_new)
    json_array_append(configs, config);
  json_decref(config);
}

/* A space of the winner, the default and the equivalence set. */
static json_t *small_space(const struct space *space, const json_t *job, json_t *config) {
  json_t *configs = json_array(), *small = json_pack("{s:o}", "configs", configs),
         *roles = json_object_get(space->json, "roles");
  const json_t *verdict = json_object_get(json_object_get(job, "winner"), "verdict");
  list_add(configs, json_incref(config));
  if (space->has_default) {
    json_t *standard = space_config_to_json(space, space->default_ordinal);
    json_object_set(small, "default", standard);
    list_add(configs, standard);
  }

  json_elements (json_object_get(verdict, "equivalence_set"), index, ordinal) {
    json_int_t number = json_integer_value(ordinal);
    if (number >= 0 && (uint64_t)number < space->raw_count)
      list_add(configs, space_config_to_json(space, (uint64_t)number));
  }

  if (roles)
    json_object_set(small, "roles", roles);
  return small;
}

static json_t *job_body(const struct campaign *campaign, const struct digest *kernel, json_t *key,
                        json_t *space, const char *purpose) {
  const struct release *release = campaign->release;
  return json_pack("{s:o, s:O, s:O, s:O, s:s, s:s, s:s*, s:s*}", "kernel", json_digest_text(kernel),
                   "key", key, "space", space, "environment", campaign->to, "tag", release->tag,
                   "run", campaign->run, "regime", regime_member(release->regime), "purpose",
                   purpose);
}

/* Posts a job. When the server refuses it with 422, *ret_refused is the reason. */
static void job_post(struct campaign *campaign, const json_t *body, char **ret_job,
                     char **ret_refused) {
  cleanup_free char *text = json_canonical(body);
  struct http_request request = {
      .method = "POST", .path = "/v1/jobs", .body = text, .body_size = strlen(text)};
  cleanup_http_response struct http_response response = {0};
  cli_send(campaign->client, &request, &response);
  cleanup_json json_t *answer = json_loadb(response.body, response.size, 0, NULL);
  campaign->is_unfit =
      response.status == 422 && string_equal(cli_member(answer, "pointer"), "/environment");
  if (campaign->is_unfit && !campaign->fitting)
    campaign->fitting = json_incref(json_object_get(answer, "environments"));

  if (response.status == 422)
    *ret_refused = xstrdup(cli_member(answer, "detail"));
  else if (response.status / 100 != 2)
    cli_refused(&response, "the job was not queued");
  else
    *ret_job = xstrdup(cli_member(answer, "job"));
}

static void leave_out(struct revalidated *it, const char *reason) {
  it->reason = xstrdup(reason);
  it->is_left_out = true;
}

/* Queues the small job of a winner. */
static void winner_queue(struct campaign *campaign, const struct release_kernel *kernel,
                         const struct release_winner *winner, struct revalidated *it) {
  *it = (struct revalidated){.name = kernel->name,
                             .key = release_key_object(kernel, winner),
                             .config = json_incref(kernel->configs[winner->config].values),
                             .regret = NAN};
  if (!winner->job) {
    leave_out(it,
              "no job chose it (it was imported or pinned), so there is no space to measure it in");
    return;
  }

  cleanup_free char *path = xasprintf("/v1/jobs/%lld", (long long)winner->job);
  cleanup_json json_t *job = cli_get(campaign->client, path);
  cleanup_space struct space *space = NULL;
  struct error error;
  uint64_t ordinal;
  if (!space_parse(json_object_get(job, "space"), &space, &error) ||
      !space_config_from_json(space, it->config, &ordinal, &error)) {
    leave_out(it, error.message);
    return;
  }

  cleanup_json json_t *small = small_space(space, job, it->config),
                      *body = job_body(campaign, &kernel->hash, it->key, small, "revalidate");
  it->tune = job_body(campaign, &kernel->hash, it->key, space->json, NULL);
  job_post(campaign, body, &it->job, &it->reason);
  it->is_left_out = campaign->is_unfit;
}

/* The regret of a config that the verdict lacks because it is not a finalist: its median paired
 * ratio in the screen, relative to the least one. NAN when it was not correct. */
static double screen_regret(struct http_client *client, const char *job, uint64_t ordinal) {
  cleanup_free char *path = xasprintf("/v1/jobs/%s/measurements", job);
  cleanup_json json_t *items = cli_list(client, path);
  double own = NAN, least = INFINITY;
  json_elements (items, index, item) {
    double samples[SAMPLES_MAX], baselines[SAMPLES_MAX];
    const json_t *samples_us = json_object_get(item, "samples_us"),
                 *baseline_us = json_object_get(item, "baseline_us");
    size_t n =
        json_array_size(samples_us) < SAMPLES_MAX ? json_array_size(samples_us) : SAMPLES_MAX;
    if (!string_equal(cli_member(item, "stage"), "screen") ||
        !string_equal(cli_member(item, "outcome"), "correct") || n == 0 ||
        json_array_size(baseline_us) < n)
      continue;
    for (size_t i = 0; i < n; i++) {
      samples[i] = json_number_value(json_array_get(samples_us, i));
      baselines[i] = json_number_value(json_array_get(baseline_us, i));
    }
    double ratio = verdict_paired_ratio(samples, baselines, n);
    least = fmin(least, ratio);
    if (cli_integer(item, "config") == (json_int_t)ordinal)
      own = ratio;
  }

  return own / least - 1;
}

/* Sets whether the old winner is still best, from the finished small job. */
static void winner_judge(struct http_client *client, struct revalidated *it, const json_t *job) {
  const json_t *winner = json_object_get(job, "winner"),
               *verdict = json_object_get(winner, "verdict");
  const char *state = cli_member(job, "state"), *reason = cli_member(job, "reason");
  cleanup_space struct space *space = NULL;
  struct error error;
  uint64_t ordinal;
  if (string_equal(state, "cancelled")) {
    leave_out(it, "its job was cancelled");
    return;
  }
  if (!string_equal(state, "done") || !json_is_object(winner)) {
    it->reason = string_equal(state, "done") /* its configs disagree */
                     ? xstrdup(reason)
                     : xasprintf("none of its configs runs there: %s", *reason ? reason : state);
    return;
  }

  if (!space_parse(json_object_get(job, "space"), &space, &error) ||
      !space_config_from_json(space, it->config, &ordinal, &error)) {
    it->reason = xstrdup(error.message);
    return;
  }

  json_elements (json_object_get(verdict, "finalists"), index, finalist) {
    if (cli_integer(finalist, "config") != (json_int_t)ordinal)
      continue;
    it->regret = fmax(json_number(finalist, "ratio") - 1, 0);
    if (!json_flag(finalist, "equivalent"))
      it->reason = xasprintf("another config takes less time there: the regret is %.1f %%",
                             100 * it->regret);
    return;
  }

  it->regret = screen_regret(client, it->job, ordinal);
  it->reason =
      isnan(it->regret)
          ? xstrdup("it does not run there any more")
          : xasprintf("it is slower in the screen there: the regret is %.1f %%", 100 * it->regret);
}

/* The environments that nodes have had. */
static json_t *nodes_read(const struct campaign *campaign) {
  cleanup_json json_t *all = cli_list(campaign->client, "/v1/environments");
  json_t *known = json_array();
  json_elements (all, index, item)
    if (json_is_string(json_object_get(item, "last_seen")))
      json_array_append(known, item);
  return known;
}

/* Prints why no job can be queued for --to: the argument is wrong, so no winner is reported. */
no_return static void environment_refuse(const struct campaign *campaign) {
  size_t n_fitting = json_array_size(campaign->fitting);
  cleanup_json json_t *known = n_fitting ? NULL : nodes_read(campaign);
  cleanup_free char *to = json_dumps(campaign->to, JSON_COMPACT);
  if (n_fitting)
    fprintf(stderr,
            "wavetune: --to %s fits %zu known environments; state the members in which they differ",
            to, n_fitting);
  else if (json_array_size(known))
    fprintf(stderr, "wavetune: --to %s fits no known environment; state one of these", to);
  else
    fprintf(stderr,
            "wavetune: --to %s fits no known environment, as no agent has enrolled; state the "
            "platform, gpu, arch, compute_units and partition",
            to);

  json_elements (n_fitting ? campaign->fitting : known, index, environment) {
    cleanup_free char *text =
        n_fitting ? json_dumps(environment, JSON_COMPACT) : cli_compact(environment, "environment");
    fprintf(stderr, "%s %s", index ? ";" : ":", text);
  }

  fputc('\n', stderr);
  command_end(EXIT_USAGE);
}

/* Whether the hardware that --to states is a node's. torch and triton are those of builds. */
static bool node_fits(const struct campaign *campaign, const json_t *environment) {
  json_members (campaign->to, name, value)
    if (!string_equal(name, "torch") && !string_equal(name, "triton") &&
        !json_equal(value, json_object_get(environment, name)))
      return false;
  return true;
}

/* Refuses an environment that no node has had, for which jobs would wait for ever, before any is
 * queued; warns of one that no live node has. */
static void nodes_check(const struct campaign *campaign) {
  cleanup_json json_t *known = nodes_read(campaign);
  json_int_t n_agents = 0;
  bool is_known = false;
  json_elements (known, index, item)
    if (node_fits(campaign, json_object_get(item, "environment"))) {
      is_known = true;
      n_agents += cli_integer(item, "agents");
    }
  if (!is_known)
    environment_refuse(campaign);
  if (!n_agents)
    fputs("wavetune: no live agent matches --to; its jobs wait until one enrols\n", stderr);
}

static void campaign_measure(struct campaign *campaign, const struct options *options) {
  bool is_any_queued = false;
  cleanup_json json_t *queued = json_array(), *jobs = json_array();
  nodes_check(campaign);
  struct progress progress = progress_start(stderr, "winners queued", campaign->release->n_winners);
  campaign->all = xcalloc(campaign->release->n_winners, sizeof *campaign->all);
  for (size_t k = 0; k < campaign->release->n_kernels; k++) {
    const struct release_kernel *kernel = &campaign->release->kernels[k];
    for (size_t i = 0; i < kernel->n_winners; i++) {
      struct revalidated *it = &campaign->all[campaign->n++];
      winner_queue(campaign, kernel, &kernel->winners[i], it);
      progress_show(&progress, campaign->n, "");
      is_any_queued |= it->job != NULL;
      if (it->job)
        json_push(queued, json_pack("{s:s}", "job", it->job));
    }
  }
  progress_end(&progress);

  if (campaign->fitting && !is_any_queued)
    environment_refuse(campaign);

  fprintf(stderr, "wavetune: %zu of %zu winners are measured as run %s\n", json_array_size(queued),
          campaign->n, campaign->run);
  jobs_gather(campaign->client, options, queued, "job", campaign->until_ms, jobs);
  for (size_t i = 0, k = 0; i < campaign->n; i++)
    if (campaign->all[i].job)
      winner_judge(campaign->client, &campaign->all[i], json_array_get(jobs, k++));
}

/* Queues the jobs that tune the whole space for winners that broke. */
static void campaign_retune(struct campaign *campaign, const struct options *options) {
  cleanup_json json_t *queued = json_array(), *jobs = json_array();
  for (size_t i = 0; i < campaign->n; i++) {
    struct revalidated *it = &campaign->all[i];
    cleanup_free char *refused = NULL;
    if (!it->reason || !it->tune || it->is_left_out)
      continue;
    job_post(campaign, it->tune, &it->retune, &refused);
    if (refused) {
      free(it->reason);
      it->reason = TAKE(refused);
    } else {
      json_push(queued, json_pack("{s:s}", "job", it->retune));
    }
  }

  if (option_flag(options, "wait"))
    jobs_gather(campaign->client, options, queued, "job", campaign->until_ms, jobs);
}

static int campaign_report(const struct campaign *campaign, bool as_json) {
  size_t n_best = 0, n_broke = 0, n_unknown = 0;
  double worst = 0;
  json_t *items = json_array();

  for (size_t i = 0; i < campaign->n; i++) {
    const struct revalidated *it = &campaign->all[i];
    bool is_broken = it->reason && !it->is_left_out, is_known = !isnan(it->regret);
    n_best += !it->reason;
    n_broke += is_broken;
    n_unknown += is_broken && !is_known;
    worst = fmax(worst, it->regret);
    json_array_append_new(items,
                          json_pack("{s:s, s:O, s:O, s:s, s:s?, s:s?, s:s?, s:o}", "name", it->name,
                                    "key", it->key, "config", it->config, "outcome",
                                    is_broken    ? "broke"
                                    : it->reason ? "left out"
                                                 : "still best",
                                    "job", it->job, "retune", it->retune, "reason", it->reason,
                                    "regret", is_known ? json_real(it->regret) : json_null()));
    if (as_json || !it->reason)
      continue;
    cleanup_free char *key = json_dumps(it->key, JSON_COMPACT);
    printf("%s  %s %s: %s%s%s\n", is_broken ? "broke   " : "left out", it->name, key, it->reason,
           it->retune ? "; tuned again as job " : "", it->retune ? it->retune : "");
  }

  size_t n = n_best + n_broke;
  cleanup_json json_t *report =
      json_pack("{s:o, s:s, s:I, s:I, s:I, s:f, s:I, s:o}", "release",
                json_digest_text(&campaign->release->digest), "run", campaign->run, "keys",
                (json_int_t)n, "still_best", (json_int_t)n_best, "broke", (json_int_t)n_broke,
                "worst_regret", worst, "without_regret", (json_int_t)n_unknown, "items", items);
  if (as_json)
    cli_print_json(report);
  else
    printf("%zu of %zu keys still best (%.1f %%), worst regret %.1f %%%s\n", n_best, n,
           n ? 100.0 * (double)n_best / (double)n : 0.0, 100 * worst,
           n_unknown ? ", not counting winners that do not run there" : "");

  return n_broke ? EXIT_FAILED : EXIT_OK;
}

static int command_campaign_revalidate(struct options *options) {
  cleanup_by(campaign_release) struct campaign campaign = {0};
  if (!option_text(options, "from") || !option_text(options, "to"))
    cli_refuse(EXIT_USAGE,
               "give --from and --to, the environments before and after, as JSON or @FILE");

  cleanup_json json_t *from = cli_environment(options, "from");
  campaign.to = cli_environment(options, "to");
  campaign.client = cli_connect(options);

  cleanup_free char *path =
      channel_path(option_text(options, "channel"), "", from, option_text(options, "tag"),
                   option_text(options, "regime"));
  cleanup_json json_t *entry = cli_get(campaign.client, path);
  const char *digest = cli_member(entry, "release");
  campaign.release = release_get(campaign.client, digest, digest);
  campaign.run = xasprintf("revalidate-%.*s", RUN_DIGITS, digest + strlen("sha256:"));

  campaign.until_ms = jobs_until_ms(options);
  campaign_measure(&campaign, options);
  campaign_retune(&campaign, options);
  return campaign_report(&campaign, option_flag(options, "json"));
}

static const struct option_spec revalidate_options[] = {
    CLI_TEXT("from", "JSON|@FILE", "the environment that is served now"),
    CLI_TEXT("to", "JSON|@FILE", "the environment to measure the winners on"),
    CLI_TEXT("channel", "NAME", "the channel whose release is measured again",
             .default_text = "stable"),
    OPTION_TAG,
    OPTION_REGIME,
    CLI_FLAG("wait", "also wait for the jobs that tune again"),
    CLI_INTEGER("timeout", "SECONDS", "0", 0, 31536000,
                "stop waiting after this time, with exit code 9; the jobs go on; 0: no limit"),
    OPTION_PATIENCE,
    SERVER_OPTIONS,
};

CLI_COMMAND(campaign_revalidate, "campaign revalidate", "", revalidate_options,
            "measure a channel's winners on another stack, and tune again only what broke",
            .description =
                "Measures each winner with its equivalence set and the default for --to first, and "
                "reports how many are still best and the worst regret. Queues a job with the whole "
                "space only where the winner is not in the new equivalence set or does not run. "
                "Another call continues with the same jobs. Exits with 1 when a winner broke, and "
                "with 2 when --to fits no environment that a node has had, or several: then "
                "nothing is queued. "
                "Publish for the new environment afterwards.");
