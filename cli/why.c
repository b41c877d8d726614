/* wavetune why: which config a channel serves for a kernel and key in an environment, and by which
 * rule; its release, who moved the channel, and the job or pin that chose the config; and which
 * tokens fetched the release.
 *
 * Memory: answers are the caller's. Threads: one. */
#include <strings.h>
#include <time.h>

#include "cli/channel.h"
#include "common/base/time.h"
#include "common/formats/tables.h"
#include "common/space/key.h"

#define ENTRY_MAX ((size_t)1 << 20)
#define CHOICES_MAX ((size_t)64 << 20)
#define FETCHES_SHOWN 10

struct question {
  const char *kernel; /* hash or name, or a function's closure */
  json_t *key;        /* NULL: all keys */
  json_t *lines;      /* what the release has, an object for each key */
  json_t *switches;   /* of programs that read the kernel's tables */
  json_t *overrides;  /* those of the server */
  bool as_json;
};

static bool is_kernel(const char *text, const char *name, const char *hash) {
  return string_equal(text, name) || string_equal(text, hash);
}

/* The members of a cache answer's match that differ, as "rocm 6.4.1 asked, 6.4.0 served". */
static void match_print(const json_t *match) {
  printf("rule     %s", cli_member(match, "rule"));
  json_members (json_object_get(match, "differs"), name, one) {
    cleanup_free char *asked = cli_compact(one, "asked"), *served = cli_compact(one, "served");
    printf("; %s: %s asked, %s served", name, *asked ? asked : "nothing",
           *served ? served : "not stated");
  }
  putchar('\n');
}

/* Where a winner comes from: its job and that job's submitter, or its origin. */
static void origin_print(struct http_client *client, const struct release_winner *winner,
                         const json_t *provenance) {
  const char *origin = cli_member(provenance, "origin");
  if (!winner->job) {
    printf("         %s\n", origin);
    return;
  }

  cleanup_free char *path = xasprintf("/v1/jobs/%lld", (long long)winner->job);
  cleanup_json json_t *job = cli_get(client, path);
  const char *by = cli_member(job, "submitted_by"), *run = cli_member(job, "run");
  printf("         %s by job %lld%s%s%s%s, done %s\n", origin, (long long)winner->job,
         *by ? ", submitted by " : "", by, *run ? ", run " : "", run,
         cli_member(job, "finished_at"));
}

/* Whether a switch of a program is off: absent, empty, 0 or false. */
static bool is_off(const char *value) {
  return !value || !*value || string_equal(value, "0") || strcasecmp(value, "false") == 0;
}

/* Prints under which variables a program reads a kernel's tables (value null: not set), and what
 * they are in this process. */
static void switches_print(const struct question *question, const char *kernel, const char *table,
                           const json_t *switches) {
  json_members (switches, variable, value) {
    const char *wanted = json_string_value(value), *here = getenv(variable);
    cleanup_free char *shown = here ? name_plain(here, strlen(here)) : NULL; /* may be any bytes */
    bool differs = is_off(wanted) ? !is_off(here) : !string_equal(wanted, here);
    json_push(question->switches,
              json_pack("{s:s, s:s, s:s, s:O, s:s?, s:b}", "name", kernel, "table", table,
                        "variable", variable, "value", value, "here", shown, "differs", differs));
    if (question->as_json)
      continue;
    printf("switch   %s is read with %s%s%s", table, variable, wanted ? "=" : " not set",
           wanted ? wanted : "");
    if (differs)
      printf("; here it is %s", shown ? shown : "not set");
    putchar('\n');
  }
}

/* The switches of a kernel's tables: those of the programs, and those that its exports add. */
static void tables_print(struct http_client *client, const struct question *question,
                         const char *name, const char *hash, bool is_rocm) {
  cleanup_free char *path = cli_path("/v1/kernels/", hash, "");
  cleanup_json json_t *answer = cli_get(client, path);
  json_members (json_object_get(json_object_get(answer, "manifest"), "exports"), table, exports) {
    cleanup_json json_t *switches = json_object();
    const struct table_kind *kind;
    const struct table_family *family = table_family_find(table, &kind);
    if (family)
      table_switches_add(family, is_rocm, switches);
    if (json_is_object(json_object_get(exports, "switches")))
      json_object_update(switches, json_object_get(exports, "switches"));
    switches_print(question, name, table, switches);
  }
}

/* Prints each winner of the kernel, or the one of the key. */
static void winners_print(struct http_client *client, struct question *question,
                          const struct release *release) {
  for (size_t i = 0; i < release->n_kernels; i++) {
    const struct release_kernel *kernel = &release->kernels[i];
    char hash[DIGEST_TEXT_SIZE];
    if (!is_kernel(question->kernel, kernel->name, digest_format(&kernel->hash, hash)))
      continue;
    size_t n_before = json_array_size(question->lines);
    for (size_t j = 0; j < kernel->n_winners; j++) {
      const struct release_winner *winner = &kernel->winners[j];
      cleanup_json json_t *key = release_key_object(kernel, winner);
      if (question->key && !json_equal(key, question->key))
        continue;

      const json_t *config = kernel->configs[winner->config].values,
                   *provenance = kernel->provenance[winner->provenance];
      json_push(
          question->lines,
          json_pack("{s:s, s:s, s:O, s:O, s:O, s:o}", "name", kernel->name, "kernel", hash, "key",
                    key, "config", config, "provenance", provenance, "job",
                    winner->job ? json_sprintf("%lld", (long long)winner->job) : json_null()));
      if (question->as_json)
        continue;
      cleanup_free char *key_text = json_dumps(key, JSON_COMPACT),
                        *config_text = json_dumps(config, JSON_COMPACT);
      printf("config   %s %s: %s\n", kernel->name, key_text, config_text);
      origin_print(client, winner, provenance);
    }
    if (json_array_size(question->lines) > n_before)
      tables_print(client, question, kernel->name, hash, release->environment.rocm != NULL);
  }
}

/* Keeps and prints what the release has for the function whose closure the question states. */
static void released_print(const struct question *question, const json_t *functions) {
  const json_t *function = json_object_get(functions, question->kernel);
  json_elements (json_object_get(function, "choices"), index, one) {
    cleanup_free char *key = cli_compact(one, "key"), *config = cli_compact(one, "config");
    const char *name = cli_member(function, "name");
    json_push(question->lines,
              json_pack("{s:s, s:s, s:O, s:O}", "name", name, "function", question->kernel, "key",
                        json_object_get(one, "key"), "config", json_object_get(one, "config")));
    if (!question->as_json)
      printf("config   %s %s: %s\n", name, key, config);
  }
}

/* Prints, for the question's function, what the release has, the second line of GET /v1/choices.
 * The autotuner's keys have no names: those of all keys are printed. */
static void choices_print(struct http_client *client, struct question *question,
                          const char *query) {
  cleanup_free char *path = xasprintf("/v1/choices%s", query);
  struct http_request request = {.method = "GET", .path = path, .response_max = CHOICES_MAX};
  cleanup_http_response struct http_response response = {0};
  cleanup_json json_t *released = NULL;
  struct error error;
  cli_send(client, &request, &response);
  if (response.status != 200)
    cli_refused(&response, "the choices cannot be read");

  const char *end = response.body + response.size,
             *line = memchr(response.body, '\n', response.size);
  if (!line || !json_parse(line + 1, (size_t)(end - line - 1), &released, &error))
    cli_refuse(EXIT_REFUSED, "GET /v1/choices has no second line of JSON");
  released_print(question, json_object_get(released, "functions"));
}

/* Keeps and prints the pins and bans of the kernel, which the next release obeys. `release` may be
 * NULL. */
static void overrides_print(const struct question *question, const struct release *release,
                            json_t *kept) {
  json_elements (question->overrides, index, item) {
    const char *id = cli_member(item, "id"), *kernel = cli_member(item, "kernel");
    bool is_its = string_equal(kernel, question->kernel);
    for (size_t i = 0; !is_its && release && i < release->n_kernels; i++) {
      const char *hash = DIGEST_TEXT(&release->kernels[i].hash);
      is_its = is_kernel(question->kernel, release->kernels[i].name, hash) &&
               is_kernel(kernel, release->kernels[i].name, hash);
    }
    if (!is_its || json_flag(item, "ended"))
      continue;
    json_array_append(kept, item);
    if (question->as_json)
      continue;
    cleanup_free char *config = cli_compact(item, "config");
    printf("override %s: %s of %s by %s: %s\n", id, cli_member(item, "kind"), config,
           cli_member(item, "made_by"), cli_member(item, "reason"));
  }
}

/* Prints what the channel serves for the question's kernel. Returns the release, the caller's;
 * NULL: the channel has no entry, and `missing` is the server's answer. */
static struct release *served_print(struct http_client *client, struct question *question,
                                    const char *query, json_t **ret_entry,
                                    struct http_response *missing) {
  cleanup_free char *path = xasprintf("/v1/cache%s", query);
  struct http_request request = {.method = "GET", .path = path, .response_max = ENTRY_MAX};
  struct error error;
  cli_send(client, &request, missing);
  if (missing->status == 404)
    return NULL;
  if (missing->status != 200)
    cli_refused(missing, path);
  if (!json_parse(missing->body, missing->size, ret_entry, &error))
    cli_fail(EXIT_UNREACHABLE, &error);

  const json_t *entry = *ret_entry;
  const char *digest = cli_member(entry, "release"), *by = cli_member(entry, "moved_by");
  struct release *release = release_get(client, digest, "the channel's release cannot be read");
  if (!question->as_json) {
    cleanup_free char *served = environment_format(&release->environment);
    match_print(json_object_get(entry, "match"));
    printf("entry    channel %s, counter %lld, %s; moved %s%s%s\nrelease  %s, tag %s\n",
           cli_member(entry, "channel"), (long long)cli_integer(entry, "counter"), served,
           cli_member(entry, "updated_at"), *by ? " by " : "", by, digest, release->tag);
  }
  winners_print(client, question, release);
  return release;
}

/* Who fetched the release, the last fetch first. */
static void fetches_print(const char *digest, const json_t *items) {
  size_t n = json_array_size(items);
  if (!n)
    printf("fetched  not yet, or not stored yet\n");

  json_elements (items, index, item) {
    if (index == FETCHES_SHOWN) {
      printf("         and %zu more: wavetune releases fetches %s\n", n - index, digest);
      return;
    }
    const char *channel = cli_member(item, "channel");
    int64_t last_us = 0;
    if (!time_parse(cli_member(item, "last_at"), &last_us))
      last_us = 0;
    double age_s = difftime(time(NULL), (time_t)(last_us / 1000000));
    json_int_t requests = cli_integer(item, "requests");
    printf("fetched  by %s: %s%s%s, %s, %lld time%s, last %s ago\n", cli_member(item, "fetched_by"),
           cli_member(item, "kind"), *channel ? " of " : "", channel,
           *channel ? cli_member(item, "rule") : "by its digest", requests,
           requests == 1 ? "" : "s", SPAN_TEXT(age_s > 0 ? age_s : 0));
  }
}

json_t *values_of_text(const char *option, const char *text) {
  cleanup_key struct key key = {0};
  json_t *values;
  struct error error;
  if (!text)
    return NULL;
  if (text[0] == '{') {
    if (json_parse(text, strlen(text), &values, &error))
      return values;
    error_prefix(&error, "--%s: ", option);
  } else {
    if (key_parse_text(text, NULL, 0, &key, &error))
      return key_to_json(&key);
    error_prefix(&error, "--%s %s: ", option, text);
  }
  cli_fail(EXIT_USAGE, &error);
}

/* Whether a kernel's name, like "softmax/online", has the word before or after a "/". */
static bool has_part(const char *name, const char *word) {
  cleanup_free char *parts = xstrdup(name);
  char *rest = parts;
  for (char *part; (part = strsep(&rest, "/"));)
    if (string_equal(part, word))
      return true;
  return false;
}

/* Says that the release has nothing for the question, and whether it has a kernel that may be
 * meant. */
no_return static void nothing_served(const struct question *question,
                                     const struct release *release) {
  cleanup_free const char **names = xcalloc(release->n_kernels + 1, sizeof *names);
  cleanup_free char *meant = xstrdup("");
  bool is_there = false;
  for (size_t i = 0; i < release->n_kernels; i++) {
    char hash[DIGEST_TEXT_SIZE];
    names[i] = release->kernels[i].name;
    is_there |=
        is_kernel(question->kernel, names[i], digest_format(&release->kernels[i].hash, hash));
    if (!has_part(names[i], question->kernel))
      continue;
    text_append(&meant, "%s%s", *meant ? ", " : "", names[i]);
  }

  struct digest closure;
  if (!is_there && digest_parse(question->kernel, &closure))
    cli_refuse(EXIT_FAILED,
               "the release has no config for a kernel or function %s; `wavetune captures` "
               "lists what programs recorded, and what it waits for",
               question->kernel);
  if (!is_there) {
    const char *nearest = name_nearest(question->kernel, names, release->n_kernels);
    if (!*meant && nearest)
      text_append(&meant, "%s", nearest);
    if (*meant)
      cli_refuse(EXIT_FAILED,
                 "the release has no kernel named %.100s; give the full name, as "
                 "`wavetune kernel list` prints it: %.400s",
                 question->kernel, meant);
  }

  cli_refuse(EXIT_FAILED,
             "the release has no config for %.100s%s; `wavetune publish` prints why a key "
             "is left out, `wavetune jobs --kernel` what was tuned",
             question->kernel, question->key ? " and this key" : "");
}

static int command_why(struct options *options) {
  char *const *kernel = cli_arguments(
      options, 1, "name one kernel by its name or hash, or one function by its closure");
  cleanup_json json_t *environment = cli_environment(options, "environment"),
                      *key = values_of_text("key", option_text(options, "key")), *entry = NULL,
                      *lines = json_array(), *overrides = json_array(), *switches = json_array();
  const char *regime = option_text(options, "regime"), *match = option_text(options, "match");
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_free char *query = cli_query(environment, "tag", option_text(options, "tag"), "channel",
                                       option_text(options, "channel"), "match", match,
                                       cli_regime_member(regime), regime, NULL);
  cleanup_json json_t *all = cli_list(client, "/v1/overrides");

  struct question question = {kernel[0], key, lines, switches, all, option_flag(options, "json")};
  cleanup_http_response struct http_response missing = {0};
  cleanup_release struct release *release =
      served_print(client, &question, query, &entry, &missing);
  choices_print(client, &question, query);
  overrides_print(&question, release, overrides);
  const char *digest = cli_member(entry, "release");
  cleanup_json json_t *fetches = release ? release_fetches(client, digest) : NULL;
  if (question.as_json) {
    cleanup_json json_t *answer =
        json_pack("{s:O*, s:O, s:O, s:O, s:O*}", "entry", entry, "served", lines, "switches",
                  switches, "overrides", overrides, "fetches", fetches);
    cli_print_json(answer);
  } else if (release) {
    fetches_print(digest, fetches);
  }
  if (json_array_size(lines))
    return EXIT_OK;
  if (release)
    nothing_served(&question, release);
  struct error error;
  http_problem(&missing, "why", NULL, &error); /* which entry there is not, and the nearest */
  cli_fail(EXIT_FAILED, &error);
}

static const struct option_spec why_options[] = {
    CLI_TEXT("key", "NAME=VALUE,…|JSON", "only this key; default: all keys of the kernel"),
    CLI_TEXT("environment", "JSON|@FILE",
             "the environment of the deployment that asks, as `wavetune fetch --json` states it"),
    OPTION_TAG,
    OPTION_REGIME,
    CLI_TEXT("channel", "NAME", "the channel that it follows", .default_text = "stable"),
    CLI_TEXT("match", "exact|unstated|minor|compatible",
             "the widest rule that the deployment permits", .default_text = "unstated"),
    SERVER_OPTIONS,
};

CLI_COMMAND(
    why, "why", "KERNEL|CLOSURE", why_options,
    "show which config is served, where it comes from, and to whom it is served",
    .description =
        "Prints the rule by which the channel's entry was chosen, and the members of the "
        "environment that differ; the release, and who moved the channel; for each key the "
        "config, and the job that chose it, and for tables the variables under which the program "
        "reads them, with what differs in this environment; for the closure of a function, which "
        "programs log with each key that they miss, all keys that the release has; the pins "
        "and bans of the kernel; and which tokens fetched the release (see `wavetune releases "
        "fetches`). Exits with 1 when "
        "nothing is served.");
