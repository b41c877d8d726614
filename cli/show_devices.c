/* wavetune show JOB --devices: what each device of a job's final says by itself, and which of them would choose otherwise.
 *
 * Memory: the scope's. One thread. */
#include "cli/cli.h"
#include "cli/samples.h"
#include "common/program/table.h"
#include "common/verdict/verdict_by_device.h"

/* "node-7 cuda0" where an agent of that id is enrolled, else with the id. Owned by the caller. */
static char *device_name(const json_t *agents, const json_t *device) {
  size_t index;
  const json_t *agent;
  json_array_foreach (agents, index, agent)
    if (string_equal(cli_member(agent, "agent"), cli_member(device, "agent")))
      return xasprintf("%s %s", cli_member(agent, "name"), cli_member(device, "device"));
  return xasprintf("%s %s", cli_member(device, "agent"), cli_member(device, "device"));
}

/* Of the n rows of a device: `prefers` is the fastest config that is surely faster than the winner there, or null. */
static json_t *device_json(const struct device_ratio *rows, size_t n, const json_t *device, const char *name) {
  const struct device_ratio *preferred = NULL;
  json_t *finalists = json_array();
  for (const struct device_ratio *row = rows; row < rows + n; row++) {
    if (device_disagrees(row) && (!preferred || row->ratio < preferred->ratio))
      preferred = row;
    json_t *finalist = json_pack("{s:I, s:f, s:f, s:f, s:f, s:I}", "config", (json_int_t)row->config, "ratio",
                                 row->ratio, "lower", row->lower, "upper", row->upper, "median_us", row->median_us,
                                 "processes", (json_int_t)row->n_processes);
    ALWAYS(json_array_append_new(finalists, finalist) == 0);
  }
  json_t *object =
      json_pack("{s:O, s:O, s:s, s:o, s:o}", "agent", json_object_get(device, "agent"), "device",
                json_object_get(device, "device"), "name", name, "prefers",
                preferred ? json_integer((json_int_t)preferred->config) : json_null(), "finalists", finalists);
  ALWAYS(object != NULL);
  return object;
}

static json_t *devices_json(const struct device_ratio *rows, size_t n, const json_t *devices, const json_t *agents) {
  json_t *array = json_array();
  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && rows[end].device == rows[first].device;)
      end++;
    const json_t *device = json_array_get(devices, (size_t)rows[first].device);
    cleanup_free char *name = device_name(agents, device);
    ALWAYS(json_array_append_new(array, device_json(&rows[first], end - first, device, name)) == 0);
  }
  return array;
}

static double number(const json_t *object, const char *member) {
  return json_number_value(json_object_get(object, member));
}

static void device_cells(struct table *table, const json_t *device, const json_t *winner) {
  size_t index;
  const json_t *finalist;
  json_array_foreach (json_object_get(device, "finalists"), index, finalist) {
    const json_t *config = json_object_get(finalist, "config");
    bool is_preferred = json_equal(config, json_object_get(device, "prefers"));
    table_cell(table, "%s", json_equal(config, winner) ? "*" : is_preferred ? "!" : "");
    table_cell(table, "%s", index == 0 ? cli_member(device, "name") : "");
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(config));
    table_cell(table, "%.2f", number(finalist, "median_us"));
    table_cell(table, "%.4f", number(finalist, "ratio"));
    table_cell(table, "%.4f to %.4f", number(finalist, "lower"), number(finalist, "upper"));
    table_cell(table, "%.0f", number(finalist, "processes"));
  }
}

/* Returns whether the device would choose otherwise, and says so. */
static bool preference_print(const json_t *device) {
  const json_t *prefers = json_object_get(device, "prefers"), *finalist;
  size_t index;
  json_array_foreach (json_object_get(device, "finalists"), index, finalist)
    if (json_equal(json_object_get(finalist, "config"), prefers)) {
      printf("%s prefers config %" JSON_INTEGER_FORMAT " (!): it takes %.1f %% less time there than the winner\n",
             cli_member(device, "name"), json_integer_value(prefers), 100 * (1 - number(finalist, "ratio")));
      return true;
    }
  return false;
}

static void devices_print(const json_t *devices, const json_t *winner) {
  static const struct table_column columns[] = {{"", false},        {"device", false}, {"config", true},
                                                {"time us", true},  {"ratio", true},   {"95 % of its rounds", false},
                                                {"processes", true}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index, preferences = 0;
  const json_t *device;
  json_array_foreach (devices, index, device)
    device_cells(table, device, winner);
  table_print(table, stdout);
  putchar('\n');
  json_array_foreach (devices, index, device)
    preferences += preference_print(device);
  if (!preferences)
    printf("on no device a finalist is surely more than %.0f %% faster than the winner (*)\n",
           100 * (VERDICT_EQUIVALENCE - 1));
}

int job_print_devices(struct http_client *client, const json_t *job, bool as_json) {
  const json_t *winner = json_object_get(json_object_get(job, "winner"), "config");
  cleanup_samples struct samples samples = {0};
  cleanup_json json_t *agents = NULL;
  cleanup_free struct device_ratio *rows = NULL;
  size_t n;
  struct error error;
  int code = samples_load(client, job, &samples);
  if (code == EXIT_OK)
    code = cli_list(client, "/v1/agents", &agents);
  if (code != EXIT_OK)
    return code;
  if (!verdict_by_device(samples.items, samples.n, (uint64_t)json_integer_value(winner), &rows, &n, &error))
    return cli_fail(EXIT_FAILED, &error);
  if (n == 0) {
    error_set(&error, "the samples of job %s are not stored any more; `wavetune show %s` prints its verdict",
              cli_member(job, "job"), cli_member(job, "job"));
    return cli_fail(EXIT_FAILED, &error);
  }
  cleanup_json json_t *devices = devices_json(rows, n, samples.devices, agents);
  if (as_json) {
    cleanup_json json_t *answer =
        json_pack("{s:s, s:O, s:O}", "job", cli_member(job, "job"), "winner", winner, "devices", devices);
    cli_print_json(answer);
  } else {
    devices_print(devices, winner);
  }
  return EXIT_OK;
}
