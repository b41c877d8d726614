/* wavetune show JOB --devices: what each device of a job's final says by itself, and which of them
 * would choose otherwise.
 *
 * Memory: the scope's. One thread. */
#include "cli/cli.h"

#include <math.h>

#include "cli/samples.h"
#include "common/program/table.h"
#include "common/verdict/verdict_by_device.h"

#define ID_SHOWN 8 /* characters of an agent's id, where its name does not tell it from another */

/* "node-7 cuda0", or with the id where no agent of that id is listed. Owned by the caller. */
static char *device_name(const json_t *agents, const json_t *device) {
  size_t index;
  const json_t *agent;
  json_array_foreach (agents, index, agent)
    if (string_equal(cli_member(agent, "agent"), cli_member(device, "agent")))
      return xasprintf("%s %s", cli_member(agent, "name"), cli_member(device, "device"));
  return xasprintf("%s %s", cli_member(device, "agent"), cli_member(device, "device"));
}

/* Names the devices: agents are free to share a name, so those that do get the start of their
 * id. */
static void devices_name(json_t *devices, const json_t *agents) {
  size_t index, other_index;
  json_t *device, *other;
  json_array_foreach (devices, index, device) {
    cleanup_free char *name = device_name(agents, device);
    json_object_set_new(device, "name", json_string(name));
  }
  cleanup_json json_t *named = json_deep_copy(devices);
  json_array_foreach (devices, index, device)
    json_array_foreach (named, other_index, other)
      if (index != other_index &&
          string_equal(cli_member(device, "name"), cli_member(other, "name"))) {
        cleanup_free char *name = xasprintf("%s (%.*s)", cli_member(other, "name"), ID_SHOWN,
                                            cli_member(device, "agent"));
        json_object_set_new(device, "name", json_string(name));
        break;
      }
}

static json_t *finalist_json(const struct device_ratio *row) {
  json_t *finalist =
      json_pack("{s:I, s:f, s:f, s:I}", "config", (json_int_t)row->config, "ratio", row->ratio,
                "median_us", row->median_us, "processes", (json_int_t)row->n_processes);
  ALWAYS(finalist != NULL);
  if (isfinite(row->upper)) {
    json_object_set_new(finalist, "lower", json_real(row->lower));
    json_object_set_new(finalist, "upper", json_real(row->upper));
  }
  return finalist;
}

/* Adds to each device its finalists, and as `prefers` the config that it would rather have than the
 * winner, or null. */
static void ratios_add(json_t *devices, const struct device_ratios *ratios) {
  size_t index, first = 0, end = 0;
  json_t *device;
  json_array_foreach (devices, index, device) { /* rows have them in the same order */
    json_t *finalists = json_array();
    for (first = end; end < ratios->n && ratios->rows[end].device == (int64_t)index; end++)
      json_array_append_new(finalists, finalist_json(&ratios->rows[end]));
    const struct device_ratio *preferred =
        device_preference(ratios, &ratios->rows[first], end - first);
    json_object_set_new(device, "prefers",
                        preferred ? json_integer((json_int_t)preferred->config) : json_null());
    json_object_set_new(device, "finalists", finalists);
  }
}

static double number(const json_t *object, const char *member) {
  return json_number_value(json_object_get(object, member));
}

static void finalist_cells(struct table *table, const json_t *finalist) {
  table_cell(table, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(finalist, "config")));
  table_cell(table, "%.2f", number(finalist, "median_us"));
  table_cell(table, "%.4f", number(finalist, "ratio"));
  if (json_object_get(finalist, "upper"))
    table_cell(table, "%.4f to %.4f", number(finalist, "lower"), number(finalist, "upper"));
  else /* too few rounds */
    table_cell(table, "-");
  table_cell(table, "%.0f", number(finalist, "processes"));
}

static void table_of_devices(const json_t *devices, const json_t *winner) {
  static const struct table_column columns[] = {
      {"", false},     {"device", false},        {"config", true},   {"time us", true},
      {"ratio", true}, {"95 % interval", false}, {"processes", true}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t i, j;
  const json_t *device, *finalist;
  json_array_foreach (devices, i, device)
    json_array_foreach (json_object_get(device, "finalists"), j, finalist) {
      const json_t *config = json_object_get(finalist, "config");
      bool is_preferred = json_equal(config, json_object_get(device, "prefers"));
      table_cell(table, "%s", json_equal(config, winner) ? "*" : is_preferred ? "!" : "");
      table_cell(table, "%s", j == 0 ? cli_member(device, "name") : "");
      finalist_cells(table, finalist);
    }
  table_print(table, stdout);
}

/* What is to be said of one device, if anything. Returns whether it would choose otherwise. */
static bool device_remark(const json_t *device) {
  const char *name = cli_member(device, "name");
  const json_t *prefers = json_object_get(device, "prefers"),
               *finalists = json_object_get(device, "finalists"), *finalist;
  size_t index;
  if (json_is_true(json_object_get(device, "quarantined")))
    printf("%s was drained: samples of it are quarantined\n", name);
  if (json_array_size(finalists) == 0)
    printf("%s measured no process in which the winner was measured too\n", name);
  json_array_foreach (finalists, index, finalist)
    if (json_equal(json_object_get(finalist, "config"), prefers)) {
      printf("%s would choose config %" JSON_INTEGER_FORMAT
             " (!): there it takes %.1f %% less time than the winner (*)\n",
             name, json_integer_value(prefers), 100 * (1 - number(finalist, "ratio")));
      return true;
    }
  return false;
}

static void devices_print(const json_t *devices, const json_t *winner, bool knows_processes) {
  size_t index, others = 0;
  const json_t *device;
  table_of_devices(devices, winner);
  putchar('\n');
  json_array_foreach (devices, index, device)
    others += device_remark(device);
  if (!knows_processes) {
    puts("no device measured the winner (*) and another finalist near it in two processes:");
    puts("what a device does and what a process does cannot be told apart");
  } else if (!others) {
    printf("no device is known to be more than %.0f %% faster with another config than the winner "
           "(*)\n",
           100 * (VERDICT_EQUIVALENCE - 1));
  }
}

int job_print_devices(struct http_client *client, const json_t *job, bool as_json) {
  const json_t *winner = json_object_get(json_object_get(job, "winner"), "config");
  cleanup_samples struct samples samples = {0};
  cleanup_json json_t *agents = NULL;
  cleanup_device_ratios struct device_ratios ratios = {0};
  struct error error;
  int code = samples_load(client, job, &samples);
  if (code == EXIT_OK)
    code = cli_list(client, "/v1/agents", &agents);
  if (code != EXIT_OK)
    return code;
  if (!verdict_by_device(samples.items, samples.n, (uint64_t)json_integer_value(winner), &ratios,
                         &error))
    return cli_fail(EXIT_FAILED, &error);
  if (ratios.n == 0) {
    error_set(
        &error,
        "the samples of job %s are not stored any more; `wavetune show %s` prints its verdict",
        cli_member(job, "job"), cli_member(job, "job"));
    return cli_fail(EXIT_FAILED, &error);
  }
  devices_name(samples.devices, agents);
  ratios_add(samples.devices, &ratios);
  if (as_json) {
    cleanup_json json_t *answer =
        json_pack("{s:s, s:O, s:b, s:O}", "job", cli_member(job, "job"), "winner", winner,
                  "knows_processes", ratios.knows_processes, "devices", samples.devices);
    cli_print_json(answer);
  } else {
    devices_print(samples.devices, winner, ratios.knows_processes);
  }
  return EXIT_OK;
}
