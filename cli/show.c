/* wavetune show: one job, its winner and how sure that is; --recompute decides again from the
 * stored samples. Other views are in show_devices.c and inspect/show_code.c. */
#include "cli/cli.h"
#include "cli/samples.h"
#include "common/verdict/report.h"
#include "common/verdict/verdict.h"

job_code_printer *job_print_code;

struct job_parts {
  struct kernel *kernel;
  struct space *space;
  struct key key;
};

static void job_parts_release(struct job_parts *parts) {
  if (parts->kernel)
    kernel_free(parts->kernel);
  if (parts->space)
    space_free(parts->space);
  key_release(&parts->key);
}

/* Reads what a job's summary names: the manifest from the server, space and key from the
 * summary. */
static int job_parts_load(struct http_client *client, const json_t *job, struct job_parts *ret) {
  cleanup_free char *path = xasprintf("/v1/kernels/%s", cli_member(job, "kernel"));
  cleanup_json json_t *answer = NULL;
  struct error error;
  int code = cli_call(client, "GET", path, NULL, &answer);
  if (code != EXIT_OK)
    return code;
  if (!kernel_parse(json_object_get(answer, "manifest"), &ret->kernel, &error) ||
      !space_parse(json_object_get(job, "space"), &ret->space, &error) ||
      !key_parse(json_object_get(job, "key"), (const char *const *)ret->kernel->key_names,
                 ret->kernel->n_key_names, &ret->key, &error)) {
    error_prefix(&error, "the server's job %s is not one this program understands: ",
                 cli_member(job, "job"));
    return cli_fail(EXIT_REFUSED, &error);
  }
  return EXIT_OK;
}

static void state_print(const json_t *job) {
  printf("job %s  %s  %s", cli_member(job, "job"), cli_member(job, "name"),
         cli_member(job, "state"));
  if (string_equal(cli_member(job, "state"), "running"))
    printf(" (%s, %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " configs measured)",
           cli_member(job, "stage"), json_integer_value(json_object_get(job, "measured")),
           json_integer_value(json_object_get(job, "configs")));
  if (cli_member(job, "reason")[0])
    printf(": %s", cli_member(job, "reason"));
  putchar('\n');
  if (cli_member(job, "waiting")[0])
    printf("waiting: %s\n", cli_member(job, "waiting"));
}

static void baseline_print(const json_t *job) {
  if (cli_member(job, "baseline_from")[0])
    printf("measured against config %" JSON_INTEGER_FORMAT ", the %s%s\n",
           json_integer_value(json_object_get(job, "baseline")), cli_member(job, "baseline_from"),
           string_equal(cli_member(job, "baseline_from"), "first") ? " of the space" : "");
}

static struct report_counts counts_of(const json_t *job) {
  double budget_seconds =
      json_number_value(json_object_get(json_object_get(job, "budget"), "device_seconds"));
  return (struct report_counts){
      .configs = (uint64_t)json_integer_value(json_object_get(job, "configs")),
      .is_search = json_is_object(json_object_get(job, "search")),
      .outcomes = json_object_get(job, "outcomes"),
      .budget_ended = budget_seconds > 0 && string_equal(cli_member(job, "state"), "done"),
      .budget_seconds = budget_seconds,
      .spent_seconds = json_number_value(json_object_get(job, "spent_device_seconds")),
      .opening_seconds = json_number_value(json_object_get(job, "opening_device_seconds")),
  };
}

/* Why no release takes the winner any more. */
static void distrust_print(const json_t *job) {
  const json_t *flagged = json_object_get(job, "flagged");
  if (json_is_object(flagged))
    printf("flagged: job %s measured this winner slower than the default, by a factor of %.3f\n",
           cli_member(flagged, "job"), json_number_value(json_object_get(flagged, "ratio")));
  if (cli_member(job, "quarantined")[0])
    printf("quarantined: %s\n", cli_member(job, "quarantined"));
}

static void authors_print(const json_t *job) {
  const char *submitted_by = cli_member(job, "submitted_by"),
             *cancelled_by = cli_member(job, "cancelled_by");
  if (submitted_by[0])
    printf("submitted by %s at %s\n", submitted_by, cli_member(job, "created_at"));
  if (cancelled_by[0])
    printf("cancelled by %s at %s\n", cancelled_by, cli_member(job, "finished_at"));
}

int job_print(struct http_client *client, const json_t *job) {
  const json_t *winner = json_object_get(job, "winner");
  state_print(job);
  authors_print(job);
  if (!json_is_object(winner)) {
    struct report_counts counts = counts_of(job);
    if (string_equal(cli_member(job, "state"), "failed") ||
        string_equal(cli_member(job, "state"), "cancelled"))
      report_counts_print(&counts, stdout);
    return EXIT_OK;
  }
  baseline_print(job);
  distrust_print(job);
  __attribute__((cleanup(job_parts_release))) struct job_parts parts = {0};
  int code = job_parts_load(client, job, &parts);
  if (code != EXIT_OK)
    return code;
  const json_t *environment = json_object_get(job, "environment");
  struct report report = {.kernel = parts.kernel,
                          .key = &parts.key,
                          .space = parts.space,
                          .gpu_name = cli_member(environment, "gpu"),
                          .arch = cli_member(environment, "arch"),
                          .baseline =
                              (uint64_t)json_integer_value(json_object_get(job, "baseline")),
                          .baseline_from = cli_member(job, "baseline_from"),
                          .counts = counts_of(job),
                          .verdict = json_object_get(winner, "verdict"),
                          .resources = json_object_get(winner, "resources")};
  report_print(&report, stdout);
  return EXIT_OK;
}

/* Decides again from the stored rows and holds that against the stored verdict. */
static int recompute(struct http_client *client, const json_t *job, bool as_json) {
  cleanup_samples struct samples samples = {0};
  int code = samples_load(client, job, &samples);
  if (code != EXIT_OK)
    return code;
  cleanup_verdict struct verdict verdict = {0};
  struct error error;
  if (!verdict_decide(samples.items, samples.n,
                      (uint64_t)json_integer_value(json_object_get(job, "baseline")),
                      (uint64_t)json_integer_value(json_object_get(job, "seed")), &verdict, &error))
    return cli_fail(EXIT_FAILED, &error);
  cleanup_json json_t *again = verdict_to_json(&verdict);
  cleanup_free char *again_text = json_canonical(again);
  cleanup_free char *stored_text =
      json_canonical(json_object_get(json_object_get(job, "winner"), "verdict"));
  bool is_same = string_equal(again_text, stored_text);
  if (as_json) {
    cleanup_json json_t *answer = json_pack("{s:b, s:O}", "same", is_same, "verdict", again);
    cli_print_json(answer);
  } else if (is_same) {
    printf("recomputed from %zu stored measurements: the same verdict\n", samples.n);
  } else {
    printf(
        "recomputed from %zu stored measurements: ANOTHER verdict\nstored     %s\nrecomputed %s\n",
        samples.n, stored_text, again_text);
  }
  return is_same ? EXIT_OK : EXIT_FAILED;
}

enum view { VIEW_REPORT, VIEW_RECOMPUTE, VIEW_DEVICES, VIEW_ASM, VIEW_TTGIR, N_VIEWS };
static const char *const view_options[N_VIEWS] = {NULL, "recompute", "devices", "asm", "ttgir"};

/* False where several were asked for. */
static bool view_of(const struct options *options, enum view *ret) {
  enum view found = VIEW_REPORT;
  for (enum view view = VIEW_REPORT + 1; view < N_VIEWS; view++)
    if (option_flag(options, view_options[view])) {
      if (found != VIEW_REPORT)
        return false;
      found = view;
    }
  *ret = found;
  return true;
}

static int refuse_without_winner(const json_t *job, const char *what) {
  struct error error;
  error_set(&error, "job %s has no winner to %s; it is %s", cli_member(job, "job"), what,
            cli_member(job, "state"));
  return cli_fail(EXIT_FAILED, &error);
}

static int show_as(struct http_client *client, const json_t *job, enum view view, bool as_json) {
  bool has_winner = json_is_object(json_object_get(job, "winner"));
  switch (view) {
  case VIEW_RECOMPUTE:
    return has_winner ? recompute(client, job, as_json) : refuse_without_winner(job, "recompute");
  case VIEW_DEVICES:
    return has_winner ? job_print_devices(client, job, as_json)
                      : refuse_without_winner(job, "hold others against on each device");
  case VIEW_ASM:
  case VIEW_TTGIR:
    return job_print_code(client, job, view == VIEW_ASM, as_json);
  case VIEW_REPORT:
  case N_VIEWS:
    break;
  }
  if (!as_json)
    return job_print(client, job);
  cli_print_json(job);
  return EXIT_OK;
}

static int command_show(struct options *options) {
  char *const *arguments;
  enum view view;
  struct error error;
  if (!view_of(options, &view)) {
    error_set(&error, "choose one of --recompute, --devices, --asm and --ttgir");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one job, as `wavetune jobs` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/jobs/%s", escaped);
  cleanup_json json_t *job = NULL;
  int code = cli_call(client, "GET", path, NULL, &job);
  if (code != EXIT_OK)
    return code;
  return show_as(client, job, view, option_flag(options, "json"));
}

static const struct option_spec show_options[] = {
    {.name = "recompute",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "decide again from the stored samples and compare; 1 when the verdicts differ"},
    {.name = "devices",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "hold the finalists against the winner on each device of the final by itself"},
    {.name = "asm", .type = OPTION_FLAG, .flag_only = true, .help = "print the winner's assembly"},
    {.name = "ttgir",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "print the winner's TTGIR, of a kernel in triton"},
    SERVER_OPTIONS,
};

const struct command_spec spec_show = {
    .name = "show",
    .arguments = "JOB",
    .summary = "show a job: state, finalists, winner, equivalence set",
    .options = show_options,
    .n_options = ARRAY_LENGTH(show_options),
    .run = command_show,
};
