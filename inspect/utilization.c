/* wavetune utilization: how evenly a grid of workgroups fills a GPU, for one tile or several, with
 * AMD's advice. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

#include "common/base/error.h"
#include "common/code/gpu_target.h"
#include "common/kernel/kernel.h"
#include "common/program/cli.h"
#include "common/program/terminal.h"
#include "inspect/findings.h"

/* The guide's numbers: workgroups for an MI300X, bytes of a row of a tile, and bytes of loads that
 * hide the memory's latency, for each compute unit. */
#define WORKGROUPS_WANTED 1024
#define ROW_BYTES_WANTED 512
#define IN_FLIGHT_MIN (16 << 10)
#define IN_FLIGHT_MAX (32 << 10)

/* Compute units of the whole GPU (partition SPX) by the name of the part, not of the arch. AMD:
 * ROCm documentation, "Accelerator and GPU hardware specifications", and the data sheets of the
 * parts (an MI250X is two devices of 104 each). NVIDIA: the H100 and A100 architecture white
 * papers, the data sheet of the H200. */
static const struct {
  const char *name;
  int64_t compute_units;
  bool is_amd;
} gpus[] = {
    {"MI250X", 104, true},     {"MI300A", 228, true}, {"MI300X", 304, true},
    {"MI308X", 80, true},      {"MI325X", 304, true}, {"MI350X", 256, true},
    {"MI355X", 256, true},     {"A100", 108, false},  {"H100 SXM", 132, false},
    {"H100 PCIe", 114, false}, {"H200", 132, false},
};

#define DIMENSIONS_MAX 3
struct sizes {
  size_t n;
  int64_t values[DIMENSIONS_MAX];
};

/* The GPU that a grid runs on. */
struct machine {
  int64_t compute_units, workgroups_per_cu, slots; /* slots: workgroups that run at once */
  bool is_nvidia;                                  /* AMD's guide does not apply */
};

struct row {
  const char *tile_text; /* NULL: a grid without tiles */
  struct sizes tile;
  int64_t workgroups;
};

/* "4096,4096": `n_min` to `n_max` numbers from 1 to 2^31 - 1. */
static bool sizes_parse(const char *option, const char *text, size_t n_min, size_t n_max,
                        struct sizes *ret, struct error *error) {
  struct sizes sizes = {0};
  char *end = NULL;
  for (const char *at = text; !end || *end; at = end + 1) {
    errno = 0;
    int64_t value = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : 0;
    if (value < 1 || value > INT32_MAX || errno || sizes.n == n_max || (*end && *end != ','))
      return error_set(error,
                       "--%s \"%s\": must be %zu to %zu numbers from 1 to %d, separated by commas",
                       option, text, n_min, n_max, INT32_MAX);
    sizes.values[sizes.n++] = value;
  }

  *ret = sizes;
  return sizes.n >= n_min ||
         error_set(error, "--%s \"%s\": must have at least %zu numbers", option, text, n_min);
}

static bool gpu_find(const char *text, struct machine *machine, struct error *error) {
  static const char *const makers[] = {"AMD Instinct ", "AMD ", "Instinct ", "NVIDIA "};
  const char *names[ARRAY_LENGTH(gpus)], *name = text;
  for (size_t i = 0; i < ARRAY_LENGTH(makers); i++)
    if (strncasecmp(name, makers[i], strlen(makers[i])) == 0)
      name += strlen(makers[i]);

  for (size_t i = 0; i < ARRAY_LENGTH(gpus); i++) {
    names[i] = gpus[i].name;
    if (strcasecmp(gpus[i].name, name) != 0)
      continue;
    machine->compute_units = gpus[i].compute_units;
    machine->is_nvidia = !gpus[i].is_amd;
    return true;
  }

  error_set(error, "the compute units of \"%s\" are not known; give --cus", NAME_CUT(text));
  error_suggest(error, name, names, ARRAY_LENGTH(names));

  return false;
}

static bool machine_load(const struct options *options, struct machine *ret, struct error *error) {
  const char *gpu = option_text(options, "gpu");
  int64_t compute_units = option_integer(options, "cus");
  if ((gpu != NULL) == (compute_units != 0))
    return error_set(error, "give the number of compute units: --gpu NAME or --cus N");
  ret->compute_units = compute_units;
  if (gpu && !gpu_find(gpu, ret, error))
    return false;
  ret->workgroups_per_cu = option_integer(options, "occupancy");
  ret->slots = ret->compute_units * ret->workgroups_per_cu;
  return true;
}

/* *ret_rows: one for each --tile, or one for --grid. */
static bool rows_load(const struct options *options, struct row **ret_rows, size_t *ret_n,
                      struct error *error) {
  const char *output_text = option_text(options, "output"), *const * tiles;
  size_t n = option_list(options, "tile", &tiles);
  int64_t grid = option_integer(options, "grid");
  struct sizes output = {0};
  if ((grid != 0) == (output_text != NULL) || (n != 0) != (output_text != NULL))
    return error_set(error, "give --output with one --tile or several, or --grid");
  if (output_text && !sizes_parse("output", output_text, 1, 2, &output, error))
    return false;

  cleanup_free struct row *rows = xcalloc(n + 1, sizeof *rows);
  rows[0].workgroups = grid;
  for (size_t i = 0; i < n; i++) {
    struct row *row = &rows[i];
    /* A tile of two dimensions may name the depth of its loop, too. */
    if (!sizes_parse("tile", tiles[i], output.n, output.n == 2 ? 3 : 1, &row->tile, error))
      return false;
    row->tile_text = tiles[i];
    row->workgroups = 1;
    for (size_t j = 0; j < output.n; j++)
      row->workgroups *= (output.values[j] + row->tile.values[j] - 1) / row->tile.values[j];
  }

  *ret_rows = TAKE(rows);
  *ret_n = grid ? 1 : n;
  return true;
}

static void advise_row(const struct row *row, const struct machine *machine, int64_t element_bytes,
                       int64_t inputs, struct review_findings *findings) {
  cleanup_free char *tile = row->tile_text ? xasprintf("tile %s: ", row->tile_text) : xstrdup("");
  cleanup_free char *split = row->tile.n == 1
                                 ? xstrdup("")
                                 : xasprintf(", or split-K by %" PRId64 " in a GEMM",
                                             (WORKGROUPS_WANTED - 1) / row->workgroups + 1);

  if (row->workgroups < WORKGROUPS_WANTED)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%s%" PRId64 " workgroups; at least %d keep an MI300X busy: try smaller tiles%s",
                tile, row->workgroups, WORKGROUPS_WANTED, split);

  if (element_bytes && row->tile.n == 3 && row->tile.values[2] * element_bytes != ROW_BYTES_WANTED)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%sBLOCK_K %" PRId64 " is %" PRId64
                " contiguous bytes of a row; %d are read best: try BLOCK_K %" PRId64,
                tile, row->tile.values[2], row->tile.values[2] * element_bytes, ROW_BYTES_WANTED,
                ROW_BYTES_WANTED / element_bytes);

  int64_t in_flight =
      row->tile.n == 1 ? row->tile.values[0] * element_bytes * inputs * machine->workgroups_per_cu
                       : 0;
  if (in_flight && (in_flight < IN_FLIGHT_MIN || in_flight > IN_FLIGHT_MAX))
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%s%g KiB of loads are in flight in a compute unit; an elementwise kernel needs 16 "
                "to 32 KiB",
                tile, (double)in_flight / 1024);
}

static double used_of(const struct row *row, const struct machine *machine) {
  return grid_utilization(row->workgroups, machine->compute_units, machine->workgroups_per_cu);
}

static void print_rows(const struct row *rows, size_t n, const struct machine *machine) {
  static const struct table_column columns[] = {
      {"TILE", false}, {"WORKGROUPS", true}, {"ROUNDS", true}, {"OF", true}, {"USED", true}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  for (size_t i = 0; i < n; i++) {
    table_cell(table, "%s", rows[i].tile_text ? rows[i].tile_text : "-");
    table_cell(table, "%" PRId64, rows[i].workgroups);
    table_cell(table, "%.2f", (double)rows[i].workgroups / (double)machine->slots);
    table_cell(table, "%" PRId64, (rows[i].workgroups + machine->slots - 1) / machine->slots);
    table_cell(table, "%.1f %%", 100 * used_of(&rows[i], machine));
  }
  table_print(table, stdout);
}

static void print_json(const struct row *rows, size_t n, const struct machine *machine,
                       const struct review_findings *findings) {
  cleanup_json json_t *json =
      json_pack("{s:I, s:I, s:[]}", "compute_units", (json_int_t)machine->compute_units,
                "workgroups_per_cu", (json_int_t)machine->workgroups_per_cu, "grids");
  for (size_t i = 0; i < n; i++) {
    json_t *tile = rows[i].tile_text ? json_array() : json_null();
    for (size_t j = 0; j < rows[i].tile.n; j++)
      json_push(tile, json_integer(rows[i].tile.values[j]));
    json_push(json_object_get(json, "grids"),
              json_pack("{s:o, s:I, s:f, s:f}", "tile", tile, "workgroups",
                        (json_int_t)rows[i].workgroups, "rounds",
                        (double)rows[i].workgroups / (double)machine->slots, "used",
                        used_of(&rows[i], machine)));
  }

  json_put(json, "advice", review_findings_to_json(findings));
  cli_print_json(json);
}

static int command_utilization(struct options *options) {
  struct machine machine = {0};
  cleanup_free struct row *rows = NULL;
  size_t n = 0;
  const char *dtype_text = option_text(options, "dtype");
  enum dtype dtype;
  struct error error;
  if (dtype_text && !dtype_parse(dtype_text, &dtype))
    cli_refuse(EXIT_USAGE,
               "--dtype \"%s\" is not known; known ones are float16 and float32, among others",
               dtype_text);

  if (!machine_load(options, &machine, &error) || !rows_load(options, &rows, &n, &error))
    cli_fail(EXIT_USAGE, &error);

  int64_t element_bytes = dtype_text ? (int64_t)dtype_size(dtype) : 0;
  struct review_findings findings = {0};
  for (size_t i = 0; i < n && !machine.is_nvidia; i++)
    advise_row(&rows[i], &machine, element_bytes, option_integer(options, "inputs"), &findings);
  if (option_flag(options, "json")) {
    print_json(rows, n, &machine, &findings);
  } else {
    print_rows(rows, n, &machine);
    review_findings_print(&findings, stdout);
  }

  review_findings_release(&findings);
  return EXIT_OK;
}

static const struct option_spec utilization_options[] = {
    CLI_TEXT("output", "M,N|N", "what the grid computes: rows and columns, or elements"),
    CLI_LIST("tile", "BM,BN[,BK]|B", "what a workgroup computes of it"),
    CLI_INTEGER("grid", "N", "0", 0, INT32_MAX, "workgroups, instead of --output and --tile"),
    CLI_TEXT("gpu", "NAME", "MI300X, MI325X, MI355X, H100 SXM, …"),
    CLI_INTEGER("cus", "N", "0", 0, 65536, "compute units, instead of --gpu"),
    CLI_INTEGER("occupancy", "N", "1", 1, 1024, "workgroups that a compute unit runs at once"),
    CLI_TEXT("dtype", "DTYPE", "type of what is read (float16, …), for advice on widths"),
    CLI_INTEGER("inputs", "N", "1", 1, 64, "arrays that an elementwise kernel reads"),
    OPTION_JSON,
};

CLI_COMMAND(utilization, "utilization", "", utilization_options,
            "print how evenly a grid of workgroups fills a GPU",
            .description =
                "Workgroups run in rounds of compute units times --occupancy. A last round that "
                "is not full leaves units idle: used is w / ceil(w), with w the rounds.");
