/* wavetune show: one job, its winner and how sure that is; --recompute decides again from the stored samples. */
#include "cli/cli.h"
#include "common/verdict/report.h"
#include "common/verdict/verdict.h"

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

/* Reads what a job's summary names: the manifest from the server, space and key from the summary. */
static int job_parts_load(struct http_client *client, const json_t *job, struct job_parts *ret) {
  cleanup_free char *path = xasprintf("/v1/kernels/%s", cli_member(job, "kernel"));
  cleanup_json json_t *answer = NULL;
  struct error error;
  int code = cli_call(client, "GET", path, NULL, &answer);
  if (code != EXIT_OK)
    return code;
  if (!kernel_parse(json_object_get(answer, "manifest"), &ret->kernel, &error) ||
      !space_parse(json_object_get(job, "space"), &ret->space, &error) ||
      !key_parse(json_object_get(job, "key"), (const char *const *)ret->kernel->key_names, ret->kernel->n_key_names,
                 &ret->key, &error)) {
    error_prefix(&error, "the server's job %s is not one this program understands: ", cli_member(job, "job"));
    return cli_fail(EXIT_REFUSED, &error);
  }
  return EXIT_OK;
}

static void state_print(const json_t *job) {
  printf("job %s  %s  %s", cli_member(job, "job"), cli_member(job, "name"), cli_member(job, "state"));
  if (string_equal(cli_member(job, "state"), "running"))
    printf(" (%s, %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " configs measured)", cli_member(job, "stage"),
           json_integer_value(json_object_get(job, "measured")), json_integer_value(json_object_get(job, "configs")));
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

/* Why no release takes the winner any more. */
static void distrust_print(const json_t *job) {
  const json_t *flagged = json_object_get(job, "flagged");
  if (json_is_object(flagged))
    printf("flagged: job %s measured this winner slower than the default, by a factor of %.3f\n",
           cli_member(flagged, "job"), json_number_value(json_object_get(flagged, "ratio")));
  if (cli_member(job, "quarantined")[0])
    printf("quarantined: %s\n", cli_member(job, "quarantined"));
}

int job_print(struct http_client *client, const json_t *job) {
  const json_t *winner = json_object_get(job, "winner");
  state_print(job);
  if (!json_is_object(winner))
    return EXIT_OK;
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
                          .baseline = (uint64_t)json_integer_value(json_object_get(job, "baseline")),
                          .baseline_from = cli_member(job, "baseline_from"),
                          .outcomes = json_object_get(job, "outcomes"),
                          .verdict = json_object_get(winner, "verdict"),
                          .resources = json_object_get(winner, "resources")};
  report_print(&report, stdout);
  return EXIT_OK;
}

struct samples {
  size_t n;
  struct verdict_sample *items;
};

static void samples_release(struct samples *samples) {
  for (size_t i = 0; i < samples->n; i++) {
    free((double *)samples->items[i].samples_us);
    free((double *)samples->items[i].baseline_us);
  }
  free(samples->items);
}

static double *numbers_of(const json_t *array) {
  double *numbers = xcalloc(json_array_size(array), sizeof *numbers);
  size_t index;
  json_t *element;
  json_array_foreach (array, index, element)
    numbers[index] = json_number_value(element);
  return numbers;
}

static bool is_of_final(const json_t *row) {
  return string_equal(cli_member(row, "stage"), "final") && !json_is_true(json_object_get(row, "late"));
}

static bool is_correct(const json_t *row) { return string_equal(cli_member(row, "outcome"), "correct"); }

/* Whether the config failed in some process of the final: then it is no finalist. */
static bool dropped_out(const json_t *measurements, json_int_t config) {
  size_t index;
  const json_t *row;
  json_array_foreach (measurements, index, row)
    if (is_of_final(row) && !is_correct(row) && json_integer_value(json_object_get(row, "config")) == config)
      return true;
  return false;
}

/* The number of the device that a row was measured on: how many others come before it in `known`, which grows. */
static int64_t device_number(json_t *known, const json_t *row) {
  cleanup_free char *name = xasprintf("%s %s", cli_member(row, "agent"), cli_member(row, "device"));
  if (!json_object_get(known, name))
    json_object_set_new(known, name, json_integer((json_int_t)json_object_size(known)));
  return json_integer_value(json_object_get(known, name));
}

/* The stored rows that a verdict is made of: the final stage, not late, of configs that were correct in every process. */
static struct samples samples_of(const json_t *measurements) {
  struct samples samples = {0, xcalloc(json_array_size(measurements), sizeof *samples.items)};
  cleanup_json json_t *devices = json_object();
  size_t index;
  json_t *row;
  json_array_foreach (measurements, index, row) {
    if (!is_of_final(row) || !is_correct(row) ||
        dropped_out(measurements, json_integer_value(json_object_get(row, "config"))))
      continue;
    const json_t *times = json_object_get(row, "samples_us"), *baselines = json_object_get(row, "baseline_us");
    if (json_array_size(times) == 0 || json_array_size(times) != json_array_size(baselines))
      continue;
    samples.items[samples.n++] = (struct verdict_sample){
        .config = (uint64_t)json_integer_value(json_object_get(row, "config")),
        .process = json_integer_value(json_object_get(row, "process")),
        .n = json_array_size(times),
        .samples_us = numbers_of(times),
        .baseline_us = numbers_of(baselines),
        .spills = json_integer_value(json_object_get(row, "spills")),
        .lds_bytes = json_integer_value(json_object_get(row, "lds_bytes")),
        .vgprs = json_integer_value(json_object_get(row, "vgprs")),
        .device = device_number(devices, row),
    };
  }
  return samples;
}

/* Decides again from the stored rows and holds that against the stored verdict. */
static int recompute(struct http_client *client, const json_t *job, bool as_json) {
  cleanup_free char *path = xasprintf("/v1/jobs/%s/measurements", cli_member(job, "job"));
  cleanup_json json_t *measurements = NULL;
  int code = cli_list(client, path, &measurements);
  if (code != EXIT_OK)
    return code;
  __attribute__((cleanup(samples_release))) struct samples samples = samples_of(measurements);
  cleanup_verdict struct verdict verdict = {0};
  struct error error;
  if (!verdict_decide(samples.items, samples.n, (uint64_t)json_integer_value(json_object_get(job, "baseline")),
                      (uint64_t)json_integer_value(json_object_get(job, "seed")), &verdict, &error))
    return cli_fail(EXIT_FAILED, &error);
  cleanup_json json_t *again = verdict_to_json(&verdict);
  cleanup_free char *again_text = json_canonical(again);
  cleanup_free char *stored_text = json_canonical(json_object_get(json_object_get(job, "winner"), "verdict"));
  bool is_same = string_equal(again_text, stored_text);
  if (as_json) {
    cleanup_json json_t *answer = json_pack("{s:b, s:O}", "same", is_same, "verdict", again);
    cli_print_json(answer);
  } else if (is_same) {
    printf("recomputed from %zu stored measurements: the same verdict\n", samples.n);
  } else {
    printf("recomputed from %zu stored measurements: ANOTHER verdict\nstored     %s\nrecomputed %s\n", samples.n,
           stored_text, again_text);
  }
  return is_same ? EXIT_OK : EXIT_FAILED;
}

static int command_show(struct options *options) {
  char *const *arguments;
  struct error error;
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
  if (option_flag(options, "recompute")) {
    if (!json_is_object(json_object_get(job, "winner"))) {
      error_set(&error, "job %s has no winner to recompute; it is %s", arguments[0], cli_member(job, "state"));
      return cli_fail(EXIT_FAILED, &error);
    }
    return recompute(client, job, option_flag(options, "json"));
  }
  if (option_flag(options, "asm") || option_flag(options, "ttgir"))
    return job_print_code(client, job, option_flag(options, "asm"), option_flag(options, "json"));
  if (!option_flag(options, "json"))
    return job_print(client, job);
  cli_print_json(job);
  return EXIT_OK;
}

static const struct option_spec show_options[] = {
    {.name = "recompute",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "decide again from the stored samples and compare; 1 when the verdicts differ"},
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
