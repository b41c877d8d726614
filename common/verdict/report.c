/* A verdict as text. */
#include "common/verdict/report.h"

#include <inttypes.h>

#include "common/program/terminal.h"
#include "common/verdict/agreement.h"

static double number(const json_t *object, const char *name) { return json_number(object, name); }
static json_int_t integer(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

/* Adds a cell with a config's rate of work, or "-" where the expression of its work per call has no
 * value. Without an expression there is no cell. */
static void rate_cell(const struct report *report, struct table *table, const char *expression,
                      uint64_t config, double time_us) {
  struct scope scope = {0};
  struct error ignored;
  int64_t work;

  if (!expression)
    return;
  if (key_scope_add(report->key, &scope, &ignored) &&
      space_scope_add(report->space, config, &scope, &ignored) &&
      scope_add(&scope, "gpu_name", value_string(report->gpu_name ? report->gpu_name : ""),
                &ignored) &&
      scope_add(&scope, "arch", value_string(report->arch ? report->arch : ""), &ignored) &&
      expr_int_in_scope(expression, &scope, 0, INT64_MAX, &work, &ignored))
    table_cell(table, "%.2f", (double)work / time_us * 1e-3);
  else
    table_cell(table, "-");
}

static const struct {
  const char *member, *heading;
} resource_columns[] = {{"vgprs", "vgprs"},
                        {"spills", "spills"},
                        {"lds_bytes", "LDS bytes"},
                        {"occupancy", "occupancy"}};
#define RESOURCE_COLUMNS ARRAY_LENGTH(resource_columns)

/* The value of a resource: of one config, from the last of its rows, or where `config` is NULL of
 * any config. NULL where it is not known. */
static const json_t *resource_find(const struct report *report, const char *member,
                                   const uint64_t *config) {
  size_t index;
  const json_t *row, *found = NULL;
  json_array_foreach (report->resources, index, row) {
    const json_t *value = json_object_get(row, member);
    if (config ? (uint64_t)integer(row, "config") == *config : json_is_integer(value))
      found = value;
  }
  return json_is_integer(found) ? found : NULL;
}

void report_counts_print(const struct report_counts *counts, FILE *out) {
  uint64_t measured = 0;
  const char *joint = " (";

  json_members (counts->outcomes, name, count)
    measured += (uint64_t)json_integer_value(count);
  fprintf(out, "%" PRIu64 " %s: %" PRIu64 " measured", counts->configs,
          counts->is_search ? "trials of the search" : "valid configs", measured);

  json_members (counts->outcomes, name, count) {
    if (json_integer_value(count) == 0)
      continue;
    fprintf(out, "%s%" JSON_INTEGER_FORMAT " %s", joint, json_integer_value(count), name);
    joint = ", ";
  }

  if (measured)
    fputc(')', out);
  if (measured < counts->configs)
    fprintf(out, ", %" PRIu64 " never tried", counts->configs - measured);
  if (measured < counts->configs && counts->budget_ended)
    fprintf(out, ": the budget of %.6g device-seconds ended the screen", counts->budget_seconds);
  fputc('\n', out);
  if (counts->opening_seconds > 0)
    fprintf(out, "%.4g device-seconds were spent, %.3g of them on opening the kernel\n",
            counts->spent_seconds, counts->opening_seconds);
  double over_seconds = counts->spent_seconds - counts->budget_seconds;
  if (counts->budget_seconds > 0 && over_seconds > 0)
    fprintf(out,
            "the budget of %.6g device-seconds was exceeded by %.3g: a lease ends with the "
            "opening, config or round "
            "that passes its share, and the least final is measured in any case\n",
            counts->budget_seconds, over_seconds);
}

static const char *baseline_name(const struct report *report) {
  const char *from = report->baseline_from;
  return from && from[0] ? from : "default";
}

static void table_of_finalists(const struct report *report, FILE *out) {
  const struct kernel *kernel = report->kernel;
  struct table_column columns[8 + RESOURCE_COLUMNS] = {
      {"", false}, {"config", true}, {"time us", true}, {"ratio", true}, {"95 % interval", false}};
  size_t n_columns = 5;

  if (kernel->bytes)
    columns[n_columns++] = (struct table_column){"GB/s", true};
  if (kernel->flops)
    columns[n_columns++] = (struct table_column){"GFLOP/s", true};
  bool is_known[RESOURCE_COLUMNS];
  for (size_t i = 0; i < RESOURCE_COLUMNS; i++) {
    is_known[i] = resource_find(report, resource_columns[i].member, NULL);
    if (is_known[i])
      columns[n_columns++] = (struct table_column){resource_columns[i].heading, true};
  }

  columns[n_columns++] = (struct table_column){"values", false};

  cleanup_table struct table *table = table_new(columns, n_columns);
  uint64_t winner = (uint64_t)integer(report->verdict, "winner");
  json_elements (json_object_get(report->verdict, "finalists"), index, finalist) {
    uint64_t config = (uint64_t)integer(finalist, "config");
    double time_us = number(finalist, "median_us");
    bool is_equivalent = json_flag(finalist, "equivalent");
    table_cell(table, "%s", config == winner ? "*" : is_equivalent ? "=" : "");
    table_cell(table, "%" PRIu64, config);
    table_cell(table, "%.2f", time_us);
    table_cell(table, "%.4f", number(finalist, "ratio"));
    if (json_object_get(finalist, "upper"))
      table_cell(table, "%.4f to %.4f", number(finalist, "lower"), number(finalist, "upper"));
    else /* too few processes in common with the best for an interval */
      table_cell(table, "-");
    rate_cell(report, table, kernel->bytes, config, time_us);
    rate_cell(report, table, kernel->flops, config, time_us);
    for (size_t i = 0; i < RESOURCE_COLUMNS; i++) {
      const json_t *value = resource_find(report, resource_columns[i].member, &config);
      if (is_known[i] && value)
        table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
      else if (is_known[i])
        table_cell(table, "-");
    }
    cleanup_free char *values = space_config_format(report->space, config);
    if (config == report->baseline)
      table_cell(table, "%s  (%s)", values, baseline_name(report));
    else
      table_cell(table, "%s", values);
  }
  table_print(table, out);
}

/* The values of one condition over all finalists. */
struct condition {
  double least, most; /* of numbers, and of the lengths of arrays */
  size_t n_numbers;
  const char *text; /* of truths and texts: the first; NULL: none */
  bool differs;
};

static void condition_add(struct condition *condition, const json_t *value) {
  const char *text =
      json_is_boolean(value) ? (json_is_true(value) ? "yes" : "no") : json_string_value(value);
  if (json_is_number(value) || json_is_array(value)) {
    double found = json_is_array(value) ? (double)json_array_size(value) : json_number_value(value);
    condition->least = condition->n_numbers && condition->least < found ? condition->least : found;
    condition->most = condition->n_numbers && condition->most > found ? condition->most : found;
    condition->n_numbers++;
  } else if (text) {
    condition->differs |= condition->text && !string_equal(condition->text, text);
    condition->text = condition->text ? condition->text : text;
  }
}

/* Prints a text that an agent sent; control characters must not reach a terminal. */
static void plain_print(const char *text, FILE *out) {
  for (; *text; text++)
    fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
}

/* A line that sums up the state of the device. The job's JSON has all of it. */
static void conditions_print(const struct report *report, FILE *out) {
  cleanup_json json_t *names = json_object(); /* in the order in which they occur */
  size_t n = 0;

  json_elements (report->resources, index, row)
    json_object_update_missing(names, json_object_get(row, "conditions"));
  json_members (names, name, value) {
    struct condition condition = {0};
    json_elements (report->resources, index, row)
      condition_add(&condition, json_object_get(json_object_get(row, "conditions"), name));
    if (!condition.n_numbers && !condition.text)
      continue;
    fputs(n++ ? ", " : "conditions          ", out);
    plain_print(name, out);
    if (condition.n_numbers)
      fprintf(out, condition.least < condition.most ? " %.6g to %.6g" : " %.6g", condition.least,
              condition.most);
    if (condition.text) {
      fputc(' ', out);
      plain_print(condition.differs ? "differs" : condition.text, out);
    }
  }

  if (n)
    fputc('\n', out);
}

void report_print(const struct report *report, FILE *out) {
  const json_t *verdict = report->verdict;
  uint64_t winner = (uint64_t)integer(verdict, "winner");
  cleanup_free char *key = key_format(report->key);
  cleanup_free char *values = space_config_format(report->space, winner);

  fprintf(out, "%s  %s\n", report->kernel->name, key);
  report_counts_print(&report->counts, out);
  fputc('\n', out);
  table_of_finalists(report, out);

  fprintf(out, "\nwinner (*)          config %" PRIu64 ": %s\n", winner, values);
  fputs("equivalence set (=)", out);
  json_elements (json_object_get(verdict, "equivalence_set"), index, config)
    fprintf(out, "%s%" JSON_INTEGER_FORMAT, index ? ", " : " ", json_integer_value(config));

  fprintf(
      out,
      "\nagainst the %-7s %.3f times as fast, %s (%.3f to %.3f, simultaneous over all finalists)\n",
      baseline_name(report), number(verdict, "speedup"), json_text(verdict, "verdict"),
      1 / number(verdict, "baseline_upper"), 1 / number(verdict, "baseline_lower"));
  fprintf(out,
          "regret bound        %.2f %% among the finalists (over %" JSON_INTEGER_FORMAT
          " paired samples, processes: %" JSON_INTEGER_FORMAT ", devices: %" JSON_INTEGER_FORMAT
          ")\n",
          100 * number(verdict, "regret_bound"), integer(verdict, "samples"),
          integer(verdict, "processes"), integer(verdict, "devices"));
  const char *class = report->agreement ? report->agreement : "";
  if (*class && !string_equal(class, agreement_name(AGREEMENT_NONE)))
    fprintf(out, "agreement           %s\n", class);
  conditions_print(report, out);
}
