/* wavetune campaign revalidate: is what a channel serves still best on another stack?
 *
 * For each winner of the release one small job is queued for the new environment, whose space is a
 * list: the winner, its equivalence set and the default. Where the old winner is in the new
 * equivalence set it is still best; where it is not, or does not compile or run any more, it broke,
 * and only there the whole space is tuned again. Jobs are known by their run, so that calling again
 * goes on where it was. Memory: a campaign owns everything. Threads: one. */
#include <math.h>

#include "cli/channel.h"
#include "common/space/space.h"
#include "common/verdict/verdict.h"

#define CONFIGS_MAX 64 /* of one small job */
#define RUN_DIGITS 12
#define SAMPLES_MAX 256

struct revalidated {
  const char *name; /* the kernel's, in the release */
  json_t *key, *config;
  json_t *tune; /* the job that tunes the whole space again */
  char *job;    /* the small one; NULL: it was refused */
  char *retune; /* the whole one; NULL: not needed, or refused */
  char *reason; /* why it broke, or was left out; NULL: still best */
  bool is_left_out;
  double regret; /* old winner over the best, less 1; NAN: not known */
};

struct campaign {
  struct http_client *client;
  struct release *release;
  json_t *to;
  char *run;
  bool is_unfit;   /* the job posted last was refused because --to does not mean one environment */
  json_t *fitting; /* the environments that --to fits, as the server lists them when it refuses it;
                      NULL: it did not */
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

/* The release that the channel has for --from. */
static int release_read(struct campaign *campaign, const struct options *options,
                        const json_t *from) {
  const char *regime = option_text(options, "regime");
  cleanup_free char *query =
      cli_query(from, "tag", option_text(options, "tag"), cli_regime_member(regime), regime, NULL);
  cleanup_free char *channel = http_escape(option_text(options, "channel"));
  cleanup_free char *path = xasprintf("/v1/channels/%s%s", channel, query);
  cleanup_json json_t *entry = NULL;
  int code = cli_call(campaign->client, "GET", path, NULL, &entry);
  if (code != EXIT_OK)
    return code;
  const char *digest = cli_member(entry, "release");
  code = release_get(campaign->client, digest, digest, &campaign->release);
  if (code != EXIT_OK)
    return code;
  campaign->run = xasprintf("revalidate-%.*s", RUN_DIGITS, digest + strlen("sha256:"));
  return EXIT_OK;
}

static void list_add(json_t *configs, json_t *config) {
  size_t index;
  json_t *there;
  json_array_foreach (configs, index, there)
    if (json_equal(there, config)) {
      json_decref(config);
      return;
    }
  if (json_array_size(configs) < CONFIGS_MAX)
    json_array_append_new(configs, config);
  else
    json_decref(config);
}

/* A list of the winner, the default and the equivalence set. */
static json_t *small_space(const struct space *space, const json_t *job, json_t *config) {
  json_t *configs = json_array(), *roles = json_object_get(space->json, "roles"), *ordinal;
  const json_t *verdict = json_object_get(json_object_get(job, "winner"), "verdict");
  size_t index;
  list_add(configs, json_incref(config));
  if (space->has_default)
    list_add(configs, space_config_to_json(space, space->default_ordinal));
  json_array_foreach (json_object_get(verdict, "equivalence_set"), index, ordinal) {
    json_int_t number = json_integer_value(ordinal);
    if (number >= 0 && (uint64_t)number < space->raw_count)
      list_add(configs, space_config_to_json(space, (uint64_t)number));
  }
  json_t *small = json_pack("{s:o}", "configs", configs);
  if (roles)
    json_object_set(small, "roles", roles);
  if (space->has_default)
    json_object_set_new(small, "default", space_config_to_json(space, space->default_ordinal));
  return small;
}

static json_t *job_body(const struct campaign *campaign, const struct digest *kernel, json_t *key,
                        json_t *space, bool is_revalidation) {
  const struct release *release = campaign->release;
  json_t *body = json_pack("{s:o, s:O, s:O, s:O, s:s, s:s}", "kernel", json_digest_text(kernel),
                           "key", key, "space", space, "environment", campaign->to, "tag",
                           release->tag, "run", campaign->run);
  if (release->regime != REGIME_COLD)
    json_object_set_new(body, "regime", json_string(regime_name(release->regime)));
  if (is_revalidation)
    json_object_set_new(body, "purpose", json_string("revalidate"));
  return body;
}

/* Posts a job; a refusal is a sentence, not the end. */
static int job_post(struct campaign *campaign, const json_t *body, char **ret_job,
                    char **ret_refused) {
  cleanup_free char *text = json_canonical(body);
  struct http_request request = {
      .method = "POST", .path = "/v1/jobs", .body = text, .body_size = strlen(text)};
  cleanup_http_response struct http_response response = {0};
  int code = cli_send(campaign->client, &request, &response);
  if (code != EXIT_OK)
    return code;
  cleanup_json json_t *answer = json_loadb(response.body, response.size, 0, NULL);
  campaign->is_unfit =
      response.status == 422 && string_equal(cli_member(answer, "pointer"), "/environment");
  if (campaign->is_unfit && !campaign->fitting)
    campaign->fitting = json_incref(json_object_get(answer, "environments"));
  if (response.status == 422)
    *ret_refused = xstrdup(cli_member(answer, "detail"));
  else if (response.status / 100 != 2)
    return cli_refused(&response, "the job was not queued");
  else
    *ret_job = xstrdup(cli_member(answer, "job"));
  return EXIT_OK;
}

static void left_out(struct revalidated *it, const char *reason) {
  it->reason = xstrdup(reason);
  it->is_left_out = true;
}

/* Queues the small job of a winner. */
static int winner_queue(struct campaign *campaign, const struct release_kernel *kernel,
                        const struct release_winner *winner, struct revalidated *it) {
  *it = (struct revalidated){.name = kernel->name,
                             .key = release_key_object(kernel, winner),
                             .config = json_incref(kernel->configs[winner->config].values),
                             .regret = NAN};
  if (!winner->job) {
    left_out(it,
             "no job chose it (it was imported or pinned), so there is no space to measure it in");
    return EXIT_OK;
  }
  cleanup_free char *path = xasprintf("/v1/jobs/%lld", (long long)winner->job);
  cleanup_json json_t *job = NULL, *small = NULL, *body = NULL;
  int code = cli_call(campaign->client, "GET", path, NULL, &job);
  if (code != EXIT_OK)
    return code;
  cleanup_space struct space *space = NULL;
  struct error error;
  uint64_t ordinal;
  if (!space_parse(json_object_get(job, "space"), &space, &error) ||
      !space_config_from_json(space, it->config, &ordinal, &error)) {
    left_out(it, error.message);
    return EXIT_OK;
  }
  small = small_space(space, job, it->config);
  body = job_body(campaign, &kernel->hash, it->key, small, true);
  it->tune = job_body(campaign, &kernel->hash, it->key, space->json, false);
  code = job_post(campaign, body, &it->job, &it->reason);
  it->is_left_out = campaign->is_unfit; /* nothing was learned of the winner */
  return code;
}

/* A finalist's regret is in the verdict. One that fell behind in the screen has no place there: its
 * median paired ratio in the screen over the least one. NAN when it was not correct. */
static int screen_regret(struct http_client *client, const char *job, uint64_t ordinal,
                         double *ret_regret) {
  cleanup_free char *path = xasprintf("/v1/jobs/%s/measurements", job);
  cleanup_json json_t *items = NULL;
  double own = NAN, least = INFINITY;
  size_t index;
  json_t *item;
  int code = cli_list(client, path, &items);
  if (code != EXIT_OK)
    return code;
  json_array_foreach (items, index, item) {
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
    if (json_integer_value(json_object_get(item, "config")) == (json_int_t)ordinal)
      own = ratio;
  }
  *ret_regret = own / least - 1;
  return EXIT_OK;
}

/* What the finished small job says of the old winner. */
static int winner_judge(struct http_client *client, struct revalidated *it, const json_t *job) {
  const json_t *winner = json_object_get(job, "winner"),
               *verdict = json_object_get(winner, "verdict"), *finalist;
  struct error error;
  uint64_t ordinal;
  size_t index;
  cleanup_space struct space *space = NULL;
  if (string_equal(cli_member(job, "state"), "cancelled")) {
    left_out(it, "its job was cancelled");
    return EXIT_OK;
  }
  if (!string_equal(cli_member(job, "state"), "done") || !json_is_object(winner)) {
    const char *reason = cli_member(job, "reason");
    it->reason =
        xasprintf("nothing of it runs there: %s", reason[0] ? reason : cli_member(job, "state"));
    return EXIT_OK;
  }
  if (!space_parse(json_object_get(job, "space"), &space, &error) ||
      !space_config_from_json(space, it->config, &ordinal, &error)) {
    it->reason = xstrdup(error.message);
    return EXIT_OK;
  }
  json_array_foreach (json_object_get(verdict, "finalists"), index, finalist) {
    if (json_integer_value(json_object_get(finalist, "config")) != (json_int_t)ordinal)
      continue;
    double ratio = json_number_value(json_object_get(finalist, "ratio"));
    it->regret = ratio > 1 ? ratio - 1 : 0;
    if (!json_is_true(json_object_get(finalist, "equivalent")))
      it->reason =
          xasprintf("another one takes less time there: its regret is %.1f %%", 100 * it->regret);
    return EXIT_OK;
  }
  int code = screen_regret(client, it->job, ordinal, &it->regret);
  it->reason = isnan(it->regret) ? xstrdup("it does not run there any more")
                                 : xasprintf("it fell behind there at once: its regret is %.1f %%",
                                             100 * it->regret);
  return code;
}

/* The server takes no job for --to: that is one wrong argument, and says nothing of any winner. */
static int environment_refuse(const struct campaign *campaign) {
  cleanup_json json_t *known = NULL;
  cleanup_free char *to = json_dumps(campaign->to, JSON_COMPACT);
  size_t index, n_fitting = json_array_size(campaign->fitting);
  json_t *environment;
  int code = n_fitting ? EXIT_OK : cli_list(campaign->client, "/v1/environments", &known);
  if (code != EXIT_OK)
    return code;
  if (n_fitting)
    fprintf(stderr,
            "wavetune: --to %s fits %zu known environments; state the members in which they differ",
            to, n_fitting);
  else if (json_array_size(known))
    fprintf(stderr, "wavetune: --to %s fits no known environment; state one of these", to);
  else
    fprintf(stderr,
            "wavetune: --to %s fits no known environment, as no agent has enrolled; state the "
            "platform, gpu, arch, "
            "compute_units and partition",
            to);
  json_array_foreach (n_fitting ? campaign->fitting : known, index, environment) {
    const json_t *identity = n_fitting ? environment : json_object_get(environment, "environment");
    cleanup_free char *text = json_dumps(identity, JSON_COMPACT);
    fprintf(stderr, "%s %s", index ? ";" : ":", text ? text : "");
  }
  fputc('\n', stderr);
  return EXIT_USAGE;
}

static int campaign_measure(struct campaign *campaign, const struct options *options) {
  bool is_any_queued = false;
  campaign->all = xcalloc(campaign->release->n_winners, sizeof *campaign->all);
  for (size_t k = 0; k < campaign->release->n_kernels; k++) {
    const struct release_kernel *kernel = &campaign->release->kernels[k];
    for (size_t i = 0; i < kernel->n_winners; i++) {
      struct revalidated *it = &campaign->all[campaign->n++];
      int code = winner_queue(campaign, kernel, &kernel->winners[i], it);
      if (code != EXIT_OK)
        return code;
      is_any_queued |= it->job != NULL;
    }
  }
  if (campaign->fitting && !is_any_queued)
    return environment_refuse(campaign);
  for (size_t i = 0; i < campaign->n; i++) {
    struct revalidated *it = &campaign->all[i];
    cleanup_json json_t *job = NULL;
    int code = it->job ? job_follow(campaign->client, options, it->job, &job) : EXIT_OK;
    if (code != EXIT_OK)
      return code;
    if (job && (code = winner_judge(campaign->client, it, job)) != EXIT_OK)
      return code;
  }
  return EXIT_OK;
}

/* The whole space, where the old winner broke. */
static int campaign_retune(struct campaign *campaign, const struct options *options) {
  for (size_t i = 0; i < campaign->n; i++) {
    struct revalidated *it = &campaign->all[i];
    cleanup_free char *refused = NULL;
    int code = it->reason && it->tune && !it->is_left_out
                   ? job_post(campaign, it->tune, &it->retune, &refused)
                   : EXIT_OK;
    if (code != EXIT_OK)
      return code;
    if (refused && !string_equal(refused, it->reason)) {
      free(it->reason);
      it->reason = TAKE(refused);
    }
  }
  for (size_t i = 0; option_flag(options, "wait") && i < campaign->n; i++) {
    cleanup_json json_t *job = NULL;
    int code = campaign->all[i].retune
                   ? job_follow(campaign->client, options, campaign->all[i].retune, &job)
                   : EXIT_OK;
    if (code != EXIT_OK)
      return code;
  }
  return EXIT_OK;
}

static json_t *item_to_json(const struct revalidated *it) {
  json_t *item = json_pack("{s:s, s:O, s:O, s:s, s:s?, s:s?, s:s?}", "name", it->name, "key",
                           it->key, "config", it->config, "outcome",
                           it->is_left_out ? "left out"
                           : it->reason    ? "broke"
                                           : "still best",
                           "job", it->job, "retune", it->retune, "reason", it->reason);
  json_object_set_new(item, "regret", isnan(it->regret) ? json_null() : json_real(it->regret));
  return item;
}

static int campaign_report(const struct campaign *campaign, bool as_json) {
  size_t n_best = 0, n_broke = 0, n_unknown = 0;
  double worst = 0;
  json_t *items = json_array();
  for (size_t i = 0; i < campaign->n; i++) {
    const struct revalidated *it = &campaign->all[i];
    n_best += !it->reason;
    n_broke += it->reason && !it->is_left_out;
    n_unknown += it->reason && !it->is_left_out && isnan(it->regret);
    worst = it->regret > worst ? it->regret : worst;
    json_array_append_new(items, item_to_json(it));
    if (as_json || !it->reason)
      continue;
    cleanup_free char *key = json_dumps(it->key, JSON_COMPACT);
    printf("%s  %s %s: %s%s%s\n", it->is_left_out ? "left out" : "broke   ", it->name,
           key ? key : "", it->reason, it->retune ? "; tuned again as job " : "",
           it->retune ? it->retune : "");
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
           n_unknown ? ", not counting what does not run there" : "");
  return n_broke ? EXIT_FAILED : EXIT_OK;
}

static bool environments_read(const struct options *options, json_t **ret_from, json_t **ret_to,
                              struct error *error) {
  if (!option_text(options, "from") || !option_text(options, "to"))
    return error_set(error,
                     "say --from and --to, the environments before and after, as JSON or @FILE");
  return cli_environment_of(options, "from", ret_from, error) &&
         cli_environment_of(options, "to", ret_to, error);
}

static int command_revalidate(struct options *options) {
  __attribute__((cleanup(campaign_release))) struct campaign campaign = {0};
  cleanup_json json_t *from = NULL;
  struct error error;
  if (!environments_read(options, &from, &campaign.to, &error))
    return cli_fail(EXIT_USAGE, &error);
  campaign.client = cli_connect(options);
  if (!campaign.client)
    return EXIT_USAGE;
  int code = release_read(&campaign, options, from);
  if (code == EXIT_OK)
    code = campaign_measure(&campaign, options);
  if (code == EXIT_OK)
    code = campaign_retune(&campaign, options);
  return code == EXIT_OK ? campaign_report(&campaign, option_flag(options, "json")) : code;
}

static const struct option_spec revalidate_options[] = {
    {.name = "from",
     .type = OPTION_TEXT,
     .argument = "JSON|@FILE",
     .flag_only = true,
     .help = "the environment that is served now"},
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "JSON|@FILE",
     .flag_only = true,
     .help = "the environment to come"},
    {.name = "channel",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .default_text = "stable",
     .flag_only = true,
     .help = "whose release is measured again"},
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_WAIT("follow the jobs that tune again to their end, too"),
    OPTION_PATIENCE,
    SERVER_OPTIONS,
};

const struct command_spec spec_campaign_revalidate = {
    .name = "campaign revalidate",
    .arguments = "",
    .summary = "measure a channel's winners on another stack, and tune again only what broke",
    .description = "Measures each winner with its equivalence set and the default for --to first, "
                   "and says how many are still "
                   "best "
                   "and the worst regret. Queues a whole job only where the winner is not in the "
                   "new equivalence set or does not "
                   "run. Calling again goes on with the same jobs. Exits with 1 when something "
                   "broke, and with 2 when --to fits "
                   "no "
                   "known environment, or several: nothing is queued then. Publish for the new "
                   "environment afterwards.",
    .options = revalidate_options,
    .n_options = ARRAY_LENGTH(revalidate_options),
    .run = command_revalidate,
};
