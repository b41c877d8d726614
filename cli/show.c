/* wavetune show: one job, its winner and how certain that is. --recompute decides again from the
 * stored samples, --devices compares the finalists on each device of the final separately; --asm
 * and --ttgir are in inspect/show_code.c. */
#include <math.h>

#include "cli/cli.h"
#include "common/kernel/kernel.h"
#include "common/program/terminal.h"
#include "common/verdict/report.h"
#include "common/verdict/verdict.h"

/* Characters of an agent's id that are shown where its name is not unique. */
#define ID_SHOWN 8

job_code_printer *job_print_code;

/* The stored measurements that a job's verdict was made from. */
struct samples {
  size_t n;
  struct verdict_sample *items; /* `device` is an index into `devices` */
  /* An array of {"agent": its id, "device", "quarantined": whether any of its samples is}, in the
   * order of their first measurement. */
  json_t *devices;
};

static void samples_release(struct samples *samples) {
  for (size_t i = 0; i < samples->n; i++) {
    free((double *)samples->items[i].samples_us);
    free((double *)samples->items[i].baseline_us);
  }
  free(samples->items);
  json_decref(samples->devices);
}
#define cleanup_samples cleanup_by(samples_release)

static double *numbers_of(const json_t *array) {
  double *numbers = xcalloc(json_array_size(array), sizeof *numbers);
  json_elements (array, index, element)
    numbers[index] = json_number_value(element);
  return numbers;
}

static bool is_of_final(const json_t *row) {
  return string_equal(cli_member(row, "stage"), "final") && !json_flag(row, "late");
}

/* Whether the config failed in a process of the final, so that it is not a finalist any more. */
static bool dropped_out(const json_t *measurements, json_int_t config) {
  json_elements (measurements, index, row)
    if (is_of_final(row) && !string_equal(cli_member(row, "outcome"), "correct") &&
        cli_integer(row, "config") == config)
      return true;
  return false;
}

/* The index in `devices` of the device that a row was measured on, which is added when it is new.
 */
static size_t device_index(json_t *devices, const json_t *row) {
  const char *agent = cli_member(row, "agent"), *device = cli_member(row, "device");
  size_t index;
  const json_t *known;
  json_array_foreach (devices, index, known)
    if (string_equal(cli_member(known, "agent"), agent) &&
        string_equal(cli_member(known, "device"), device))
      return index;
  json_push(devices,
            json_pack("{s:s, s:s, s:b}", "agent", agent, "device", device, "quarantined", false));
  return index;
}

/* Gets the measurements of the final stage that were not late, of configs that were correct in
 * every process; refuses when there are none. */
static void samples_load(struct http_client *client, const json_t *job, struct samples *ret) {
  cleanup_free char *path = xasprintf("/v1/jobs/%s/measurements", cli_member(job, "job"));
  cleanup_json json_t *measurements = cli_list(client, path);
  *ret =
      (struct samples){0, xcalloc(json_array_size(measurements), sizeof *ret->items), json_array()};

  json_elements (measurements, index, row) {
    json_int_t config = cli_integer(row, "config");
    const json_t *times = json_object_get(row, "samples_us"),
                 *baselines = json_object_get(row, "baseline_us");
    size_t n = json_array_size(times);
    if (!is_of_final(row) || dropped_out(measurements, config) || n == 0 ||
        n != json_array_size(baselines))
      continue;
    size_t device = device_index(ret->devices, row);
    ret->items[ret->n++] = (struct verdict_sample){
        .config = (uint64_t)config,
        .process = cli_integer(row, "process"),
        .n = n,
        .samples_us = numbers_of(times),
        .baseline_us = numbers_of(baselines),
        .spills = cli_integer(row, "spills"),
        .lds_bytes = cli_integer(row, "lds_bytes"),
        .vgprs = cli_integer(row, "vgprs"),
        .device = (int64_t)device,
    };
    if (json_flag(row, "quarantined"))
      json_put(json_array_get(ret->devices, device), "quarantined", json_true());
  }

  const char *id = cli_member(job, "job"), *removed_at = cli_member(job, "measurements_removed_at");
  if (ret->n == 0)
    cli_refuse(EXIT_FAILED, "the samples of job %s %s%s; `wavetune show %s` prints its verdict", id,
               *removed_at ? "were removed at " : "are not stored any more", removed_at, id);
}

static struct report_counts counts_of(const json_t *job) {
  double budget_seconds = json_number(json_object_get(job, "budget"), "device_seconds");
  return (struct report_counts){
      .configs = (uint64_t)cli_integer(job, "configs"),
      .is_search = json_is_object(json_object_get(job, "search")),
      .outcomes = json_object_get(job, "outcomes"),
      .budget_ended = budget_seconds > 0 && string_equal(cli_member(job, "state"), "done"),
      .budget_seconds = budget_seconds,
      .spent_seconds = json_number(job, "spent_device_seconds"),
      .opening_seconds = json_number(job, "opening_device_seconds"),
  };
}

static void winner_print(struct http_client *client, const json_t *job) {
  const json_t *winner = json_object_get(job, "winner"),
               *environment = json_object_get(job, "environment"),
               *flagged = json_object_get(job, "flagged");
  const char *from = cli_member(job, "baseline_from"),
             *quarantined = cli_member(job, "quarantined");
  if (*from)
    printf("measured against config %lld, the %s%s\n", cli_integer(job, "baseline"), from,
           string_equal(from, "first") ? " of the space" : "");

  /* The reasons for which releases leave the winner out. */
  if (json_is_object(flagged))
    printf("flagged: job %s measured this winner slower than the default, by a factor of %.3f\n",
           cli_member(flagged, "job"), json_number(flagged, "ratio"));
  if (*quarantined)
    printf("quarantined: %s\n", quarantined);

  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  cleanup_free char *path = xasprintf("/v1/kernels/%s", cli_member(job, "kernel"));
  cleanup_json json_t *answer = cli_get(client, path);
  struct error error;
  if (!kernel_parse(json_object_get(answer, "manifest"), &kernel, &error) ||
      !space_parse(json_object_get(job, "space"), &space, &error) ||
      !key_parse(json_object_get(job, "key"), KEY_NAMES(kernel), &key, &error)) {
    cli_fail_in(EXIT_REFUSED, &error, "the server's job %s is not one this program understands: ",
                cli_member(job, "job"));
  }

  struct report report = {.kernel = kernel,
                          .key = &key,
                          .space = space,
                          .gpu_name = cli_member(environment, "gpu"),
                          .arch = cli_member(environment, "arch"),
                          .baseline = (uint64_t)cli_integer(job, "baseline"),
                          .baseline_from = from,
                          .counts = counts_of(job),
                          .verdict = json_object_get(winner, "verdict"),
                          .resources = json_object_get(winner, "resources"),
                          .agreement = cli_member(winner, "agreement")};
  report_print(&report, stdout);
}

void job_print(struct http_client *client, const json_t *job) {
  const char *state = cli_member(job, "state"), *reason = cli_member(job, "reason"),
             *waiting = cli_member(job, "waiting"), *handed_back = cli_member(job, "handed_back"),
             *submitted_by = cli_member(job, "submitted_by"),
             *cancelled_by = cli_member(job, "cancelled_by"),
             *removed_at = cli_member(job, "measurements_removed_at");
  printf("job %s  %s  %s", cli_member(job, "job"), cli_member(job, "name"), state);
  if (string_equal(state, "running"))
    printf(" (%s, %lld of %lld configs measured)", cli_member(job, "stage"),
           cli_integer(job, "measured"), cli_integer(job, "configs"));
  printf("%s%s\n", *reason ? ": " : "", reason);
  if (*waiting)
    printf("waiting: %s\n", waiting);
  if (*handed_back && !strstr(reason, handed_back))
    printf("handed back by an agent: %s\n", handed_back);
  if (*submitted_by)
    printf("submitted by %s at %s\n", submitted_by, cli_member(job, "created_at"));
  if (*cancelled_by)
    printf("cancelled by %s at %s\n", cancelled_by, cli_member(job, "finished_at"));
  if (*removed_at)
    printf("its measurements were removed at %s, but for the final of a served winner\n",
           removed_at);

  struct report_counts counts = counts_of(job);
  if (json_is_object(json_object_get(job, "winner")))
    winner_print(client, job);
  else if (string_equal(state, "done") || string_equal(state, "failed") ||
           string_equal(state, "cancelled"))
    report_counts_print(&counts, stdout);
}

/* Decides again from the stored rows and compares that with the stored verdict. */
static int recompute(struct http_client *client, const json_t *job, bool as_json) {
  cleanup_samples struct samples samples = {0};
  cleanup_verdict struct verdict verdict = {0};
  struct error error;
  samples_load(client, job, &samples);
  if (!verdict_decide(samples.items, samples.n, (uint64_t)cli_integer(job, "baseline"),
                      (uint64_t)cli_integer(job, "seed"), &verdict, &error))
    cli_fail(EXIT_FAILED, &error);

  cleanup_json json_t *again = verdict_to_json(&verdict);
  cleanup_free char *again_text = json_canonical(again),
                    *stored_text =
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

/* Adds names to the devices: "node-7 cuda0", with the agent's id where no agent of that id is
 * listed, and with the start of the id too where agents share a name. */
static void devices_name(json_t *devices, const json_t *agents) {
  json_elements (devices, index, device) {
    const char *id = cli_member(device, "agent"), *agent = id;
    json_elements (agents, other_index, other)
      if (string_equal(cli_member(other, "agent"), id)) {
        agent = cli_member(other, "name");
        break;
      }

    cleanup_free char *name = xasprintf("%s %s", agent, cli_member(device, "device"));
    json_put(device, "name", json_string(name));
  }

  cleanup_json json_t *named = json_deep_copy(devices);
  json_elements (devices, index, device)
    json_elements (named, other_index, other)
      if (index != other_index &&
          string_equal(cli_member(device, "name"), cli_member(other, "name"))) {
        cleanup_free char *name = xasprintf("%s (%.*s)", cli_member(other, "name"), ID_SHOWN,
                                            cli_member(device, "agent"));
        json_put(device, "name", json_string(name));
        break;
      }
}

/* Adds to each device its finalists, and as `prefers` the config that it would choose in place of
 * the winner, or null. */
static void ratios_add(json_t *devices, const struct device_ratios *ratios) {
  size_t first, end = 0;
  json_elements (devices, index, device) { /* rows are in the order of the devices */
    json_t *finalists = json_array();
    for (first = end; end < ratios->n && ratios->rows[end].device == (int64_t)index; end++) {
      const struct device_ratio *row = &ratios->rows[end];
      json_t *finalist =
          json_pack("{s:I, s:f, s:f, s:I}", "config", (json_int_t)row->config, "ratio", row->ratio,
                    "median_us", row->median_us, "processes", (json_int_t)row->n_processes);

      if (isfinite(row->upper)) {
        json_put(finalist, "lower", json_real(row->lower));
        json_put(finalist, "upper", json_real(row->upper));
      }
      json_push(finalists, finalist);
    }

    const struct device_ratio *preferred =
        device_preference(ratios, &ratios->rows[first], end - first);
    json_put(device, "prefers",
             preferred ? json_integer((json_int_t)preferred->config) : json_null());
    json_put(device, "finalists", finalists);
  }
}

static void devices_print_table(const json_t *devices, const json_t *winner) {
  static const struct table_column columns[] = {
      {"", false},     {"device", false},        {"config", true},   {"time us", true},
      {"ratio", true}, {"95 % interval", false}, {"processes", true}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));

  json_elements (devices, i, device)
    json_elements (json_object_get(device, "finalists"), j, finalist) {
      const json_t *config = json_object_get(finalist, "config");
      bool is_preferred = json_equal(config, json_object_get(device, "prefers"));
      table_cell(table, "%s", json_equal(config, winner) ? "*" : is_preferred ? "!" : "");
      table_cell(table, "%s", j == 0 ? cli_member(device, "name") : "");
      table_cell(table, "%lld", json_integer_value(config));
      table_cell(table, "%.2f", json_number(finalist, "median_us"));
      table_cell(table, "%.4f", json_number(finalist, "ratio"));
      if (json_object_get(finalist, "upper"))
        table_cell(table, "%.4f to %.4f", json_number(finalist, "lower"),
                   json_number(finalist, "upper"));
      else /* too few rounds */
        table_cell(table, "-");
      table_cell(table, "%.0f", json_number(finalist, "processes"));
    }
  table_print(table, stdout);
}

static void devices_print(const json_t *devices, const json_t *winner, bool knows_processes) {
  bool is_one_different = false;
  devices_print_table(devices, winner);
  putchar('\n');

  json_elements (devices, i, device) {
    const char *name = cli_member(device, "name");
    const json_t *prefers = json_object_get(device, "prefers"),
                 *finalists = json_object_get(device, "finalists");
    if (json_flag(device, "quarantined"))
      printf("%s was drained: some of its samples are quarantined\n", name);
    if (json_array_size(finalists) == 0)
      printf("%s measured no process with the winner\n", name);
    json_elements (finalists, j, finalist)
      if (json_equal(json_object_get(finalist, "config"), prefers)) {
        is_one_different = true;
        printf("%s would choose config %lld (!): there it takes %.1f %% less time than the winner "
               "(*)\n",
               name, json_integer_value(prefers), 100 * (1 - json_number(finalist, "ratio")));
      }
  }

  if (!knows_processes) {
    puts("no device measured the winner (*) and another finalist near it in two processes:");
    puts("differences between devices and between processes cannot be told apart");
  } else if (!is_one_different) {
    printf("no device is known to be more than %.0f %% faster with another config than the winner "
           "(*)\n",
           100 * (VERDICT_EQUIVALENCE - 1));
  }
}

/* Prints what each device of the final measured, and which of them would choose another config. */
static void job_print_devices(struct http_client *client, const json_t *job, bool as_json) {
  const json_t *winner = json_object_get(json_object_get(job, "winner"), "config");
  const char *id = cli_member(job, "job");
  cleanup_samples struct samples samples = {0};
  cleanup_device_ratios struct device_ratios ratios = {0};
  struct error error;
  samples_load(client, job, &samples);
  cleanup_json json_t *agents = cli_list(client, "/v1/agents?all=true");
  if (!verdict_by_device(samples.items, samples.n, (uint64_t)json_integer_value(winner), &ratios,
                         &error))
    cli_fail(EXIT_FAILED, &error);

  devices_name(samples.devices, agents);
  ratios_add(samples.devices, &ratios);
  if (as_json) {
    cleanup_json json_t *answer =
        json_pack("{s:s, s:O, s:b, s:O}", "job", id, "winner", winner, "knows_processes",
                  ratios.knows_processes, "devices", samples.devices);
    cli_print_json(answer);
  } else {
    devices_print(samples.devices, winner, ratios.knows_processes);
  }
}

static int command_show(struct options *options) {
  static const char *const views[] = {"recompute", "devices", "asm", "ttgir"};
  const char *view = "";
  size_t n_views = 0;

  for (size_t i = 0; i < ARRAY_LENGTH(views); i++)
    if (option_flag(options, views[i])) {
      view = views[i];
      n_views++;
    }
  if (n_views > 1)
    cli_refuse(EXIT_USAGE, "choose one of --recompute, --devices, --asm and --ttgir");
  char *const *id = cli_arguments(options, 1, "name one job, as `wavetune jobs` prints it");

  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_free char *path = cli_path("/v1/jobs/", *id, "");
  cleanup_json json_t *job = cli_get(client, path);
  bool as_json = option_flag(options, "json"), wants_asm = string_equal(view, "asm"),
       is_recomputed = string_equal(view, "recompute");
  if (wants_asm || string_equal(view, "ttgir")) {
    job_print_code(client, job, wants_asm, as_json);
    return EXIT_OK;
  }
  bool has_winner = json_is_object(json_object_get(job, "winner")),
       has_ended = *cli_member(job, "finished_at");
  if (!n_views) {
    if (as_json)
      cli_print_json(job);
    else
      job_print(client, job);
    return has_ended && !has_winner ? EXIT_FAILED : EXIT_OK;
  }

  if (!has_winner)
    cli_refuse(EXIT_FAILED, "job %s has no winner to %s; it is %s", cli_member(job, "job"),
               is_recomputed ? "recompute" : "compare others with on each device",
               cli_member(job, "state"));

  if (is_recomputed)
    return recompute(client, job, as_json);
  job_print_devices(client, job, as_json);
  return EXIT_OK;
}

static const struct option_spec show_options[] = {
    CLI_FLAG("recompute",
             "decide again from the stored samples; exits with 1 when the verdicts differ"),
    CLI_FLAG("devices",
             "compare the finalists with the winner on each device of the final separately"),
    CLI_FLAG("asm", "print the winner's assembly"),
    CLI_FLAG("ttgir", "print the winner's TTGIR (of a kernel in triton)"),
    SERVER_OPTIONS,
};

CLI_COMMAND(show, "show", "JOB", show_options,
            "show a job: state, finalists, winner, equivalence set",
            .description = "Exits with 1 when the job ended without a winner, as `submit --wait` "
                           "and `report` do.");
