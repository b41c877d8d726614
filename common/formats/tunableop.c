/* The `tunableop` format: the CSV files that torch's TunableOp reads
 * (aten/src/ATen/cuda/tunable/Tunable.cpp), one for each device of a node, all the same.
 *
 *   Validator,PT_VERSION,2.9.1
 *   GemmTunableOp_BFloat16_TN,tn_8192_1_4096_ld_4096_4096_8192,Gemm_Rocblas_621284994,0.0196817
 *
 * TunableOp drops a whole file unless every validator that it knows is there with its own text, and
 * no other. A solution is an index into one build of rocBLAS or hipBLASLt, so winners go only to an
 * image with the validators that they were measured under. A carriage return would become a part of
 * the last text of its line: LF only, and CRLF is refused.
 * In a file the first of two lines for one (op, params) counts for TunableOp; here two are refused.
 * Of several files of one import (a node's devices) the faster result is kept.
 *
 * Lines are the kernel "tunableop" with the key {"op", "params"}, the config {"solution"} and the
 * validators as its exports. A time is of six significant digits, as C++ writes it; a line without
 * one (0 to TunableOp) has none.
 *
 * Memory: what format.h says. Threads: any; pure functions. */
#include <ctype.h>
#include <errno.h>
#include <math.h>

#include "common/cache/format.h"

#define FILE_SIZE_MAX ((size_t)64 << 20)
#define TEXT_MAX 200 /* as the members of an environment */
#define VALIDATORS_MAX 64
#define DEVICES_DEFAULT 8

/* Whether both state the same names with the same texts; their order is free. */
static bool validators_equal(const json_t *a, const json_t *b) {
  size_t i, j, n = json_array_size(a);
  const json_t *pair, *other;
  if (json_array_size(b) != n)
    return false;
  json_array_foreach (a, i, pair) {
    bool found = false;
    json_array_foreach (b, j, other)
      found = found || json_equal(pair, other);
    if (!found)
      return false;
  }
  return n > 0;
}

/* A field of a line, of printable characters but ','. */
static bool is_field(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] < 0x21 || (unsigned char)text[i] > 0x7e || text[i] == ',')
      return false;
  }
  return length >= 1 && length <= TEXT_MAX;
}

static bool is_field_value(const json_t *json) {
  return json_is_string(json) && is_field(json_string_value(json), json_string_length(json));
}

/* A validator's text may hold spaces. */
static bool is_validator_text(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e || text[i] == ',')
      return false;
  }
  return length >= 1 && length <= TEXT_MAX;
}

static bool are_validators(const json_t *json) {
  const json_t *pair;
  size_t i;
  json_array_foreach (json, i, pair) {
    for (size_t j = 0; j < 2; j++) {
      const json_t *text = json_array_get(pair, j);
      if (json_array_size(pair) != 2 || !json_is_string(text) ||
          !is_validator_text(json_string_value(text), json_string_length(text)))
        return false;
    }
  }
  return json_array_size(json) >= 1 && json_array_size(json) <= VALIDATORS_MAX;
}

static void write_validators(FILE *out, const json_t *validators) {
  const json_t *pair;
  size_t i;
  json_array_foreach (validators, i, pair)
    fprintf(out, "Validator,%s,%s\n", json_string_value(json_array_get(pair, 0)),
            json_string_value(json_array_get(pair, 1)));
}

struct rendering {
  const struct render_request *request;
  struct cache_files files;
  const json_t *validators; /* of the file; NULL: not yet known */
  json_t *lines;            /* "op,params" of those written */
  bool has_validators;      /* written */
  FILE *out;
  size_t n;
};

static void skip_winner(struct rendering *rendering, const struct release_kernel *kernel,
                        const struct release_winner *winner, const char *reason) {
  cleanup_free char *key = xstrndup(winner->key, winner->key_size);
  cache_files_skip(&rendering->files, kernel->name, key, "%s", reason);
}

static void render_winner(struct rendering *rendering, const struct release_kernel *kernel,
                          const struct release_winner *winner) {
  cleanup_json json_t *key = release_key_object(kernel, winner);
  const json_t *op = json_object_get(key, "op"), *params = json_object_get(key, "params");
  const json_t *solution = json_object_get(kernel->configs[winner->config].values, "solution");
  if (!is_field_value(op) || !is_field_value(params) || !is_field_value(solution)) {
    skip_winner(
        rendering, kernel, winner,
        "its key has no \"op\" and \"params\", or its config no \"solution\", of TunableOp");
    return;
  }
  cleanup_free char *mark = xasprintf("%s,%s", json_string_value(op), json_string_value(params));
  if (json_object_get(rendering->lines, mark)) {
    skip_winner(rendering, kernel, winner,
                "another winner of the release is for the same operation and parameters");
    return;
  }
  ALWAYS(json_object_set_new(rendering->lines, mark, json_true()) == 0);
  fprintf(rendering->out, "%s,%s", mark, json_string_value(solution));
  if (winner->n_ms)
    fprintf(rendering->out, ",%g", winner->ms[0]);
  putc('\n', rendering->out);
  rendering->n++;
}

/* Why the kernel's winners cannot stand in the file, or NULL. Its validators become those of the
 * file when that has none. */
static const char *take_validators(struct rendering *rendering, const struct kernel *manifest) {
  const json_t *exports =
      manifest ? json_object_get(json_object_get(manifest->json, "exports"), "tunableop") : NULL;
  const json_t *validators = json_object_get(exports, "validators");
  if (!exports || manifest->language != LANGUAGE_EXTERNAL)
    return "it is no operation of TunableOp";
  if (validators && !are_validators(validators))
    return "its exports have validators that are no pairs of texts";
  if (!rendering->validators)
    rendering->validators = validators;
  if (!rendering->validators)
    return "its validators are not known, neither from the image nor from its exports; record the "
           "image's with "
           "`python3 -m wavetune identity`";
  if (validators && !validators_equal(validators, rendering->validators))
    return "it was measured under other validators (versions of torch, ROCm and its BLAS "
           "libraries) than those of the "
           "file";
  return NULL;
}

static void render_kernel(struct rendering *rendering, const struct release_kernel *kernel) {
  const struct cache_source *source = rendering->request->source;
  const struct kernel *manifest = NULL;
  struct error missing;
  bool is_there =
      !source->kernel || source->kernel(source->context, &kernel->hash, &manifest, &missing);
  const char *reason = is_there ? take_validators(rendering, manifest) : missing.message;
  if (reason) {
    cache_files_skip(&rendering->files, kernel->name, NULL, "%s", reason);
    return;
  }
  if (!rendering->has_validators)
    write_validators(rendering->out, rendering->validators);
  rendering->has_validators = true;
  for (size_t i = 0; i < kernel->n_winners; i++)
    render_winner(rendering, kernel, &kernel->winners[i]);
}

static bool render_lines(struct rendering *rendering, struct error *error) {
  const struct release *release = rendering->request->release;
  for (size_t i = 0; i < release->n_kernels; i++)
    render_kernel(rendering, &release->kernels[i]);
  ALWAYS(rendering->n || rendering->files.n_skipped);
  return rendering->n ||
         error_set(error,
                   "no winner of the release can stand in TunableOp's files; \"%.60s\": %.300s",
                   rendering->files.skipped[0].name, rendering->files.skipped[0].reason);
}

static bool render_release(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  cleanup_json json_t *lines = json_object();
  struct rendering rendering = {.request = request,
                                .validators =
                                    request->identity ? request->identity->validators : NULL,
                                .lines = lines,
                                .out = open_memstream(&text, &size)};
  ALWAYS(rendering.out != NULL);
  bool ok = render_lines(&rendering, error);
  ALWAYS(fclose(rendering.out) == 0);
  if (!ok) {
    cache_files_release(&rendering.files);
    return false;
  }
  int64_t devices = request->identity && request->identity->devices ? request->identity->devices
                                                                    : DEVICES_DEFAULT;
  for (int64_t i = 0; i < devices; i++) {
    cleanup_free char *path =
        xasprintf("tunableop_results%" JSON_INTEGER_FORMAT ".csv", (json_int_t)i);
    cache_files_add(&rendering.files, path, xmemdup(text, size + 1), size);
  }
  cache_files_variable(&rendering.files, "PYTORCH_TUNABLEOP_ENABLED", NULL, "1");
  cache_files_variable(&rendering.files, "PYTORCH_TUNABLEOP_TUNING", NULL, "0");
  cache_files_variable(&rendering.files, "PYTORCH_TUNABLEOP_FILENAME", "tunableop_results%d.csv",
                       NULL);
  *ret = rendering.files;
  return true;
}

/* Reading. */

struct column {
  const char *text;
  size_t length;
};

struct line {
  const char *path;
  size_t number;
  size_t n;
  struct column fields[4];
};

static bool line_error(const struct line *line, struct error *error, const char *what) {
  return error_set(error, "%.200s: line %zu: %s", line->path, line->number, what);
}

/* GemmTunableOp_BFloat16_TN, ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN. */
static bool is_op(struct column op) {
  static const char *const kinds[] = {"GemmTunableOp_", "GemmStridedBatchedTunableOp_",
                                      "GemmAndBiasTunableOp_", "ScaledGemmTunableOp_"};
  static const char *const layouts[] = {"_NN", "_NT", "_TN", "_TT"};
  bool has_kind = false, has_layout = false;
  for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
    has_kind |=
        op.length > strlen(kinds[i]) + 3 && memcmp(op.text, kinds[i], strlen(kinds[i])) == 0;
  for (size_t i = 0; has_kind && i < ARRAY_LENGTH(layouts); i++)
    has_layout |= memcmp(op.text + op.length - 3, layouts[i], 3) == 0;
  for (size_t i = 0; i < op.length; i++) {
    if (!isalnum((unsigned char)op.text[i]) && op.text[i] != '_')
      return false;
  }
  return has_layout && op.length <= TEXT_MAX;
}

/* tn_512_128_256_ld_256_256_512, batched nn_4_4_4_B_8_ld_4_4_4, before them without _ld_; newer
 * ones add more words. */
static bool is_params(struct column params) {
  size_t n_numbers = 0, digits = 0;
  if (params.length < 4 || params.text[2] != '_' || !memchr("nt", params.text[0], 2) ||
      !memchr("nt", params.text[1], 2))
    return false;
  for (size_t i = 3; i <= params.length; i++) {
    if (i < params.length && params.text[i] != '_') {
      if (!isalnum((unsigned char)params.text[i]) && !strchr("-.", params.text[i]))
        return false;
      digits = isdigit((unsigned char)params.text[i]) && digits < 18 ? digits + 1 : 99;
      continue;
    }
    if (digits == 0 || (digits == 99 && n_numbers < 3))
      return false;
    n_numbers += digits != 99;
    digits = 0;
  }
  return n_numbers >= 3 && params.length <= TEXT_MAX;
}

/* atof() would take any text for 0; here it is a number. */
static bool read_time(const struct line *line, struct imported_entry *entry, struct error *error) {
  char text[40], *end;
  if (line->n < 4)
    return true;
  struct column time = line->fields[3];
  if (time.length < 1 || time.length >= sizeof text || !memchr("0123456789.", time.text[0], 11))
    return line_error(line, error, "the time is not a number of milliseconds");
  memcpy(text, time.text, time.length);
  text[time.length] = '\0';
  double ms = strtod(text, &end);
  if (*end || !isfinite(ms) || text[strspn(text, "0123456789.e+-")])
    return line_error(line, error, "the time is not a number of milliseconds");
  if (ms > 0) {
    entry->n_ms = 1;
    entry->ms[0] = ms;
  }
  return true;
}

struct table {
  json_t *validators; /* pairs, in the file's order */
  struct imported_kernel kernel;
  size_t capacity;
  json_t *lines; /* "op,params" with the entry's index, of all files of these validators */
};

struct reading {
  struct imported imported; /* kernels from tables, at the end */
  size_t n, capacity;
  struct table *tables;
  json_t *by_validators; /* canonical {name: text}: index */
};

static void reading_release(struct reading *reading) {
  for (size_t i = 0; i < reading->n; i++) {
    struct table *table = &reading->tables[i];
    struct imported one = {.n_kernels = 1,
                           .kernels = xmemdup(&table->kernel, sizeof table->kernel)};
    imported_release(&one);
    json_decref(table->validators);
    json_decref(table->lines);
  }
  free(reading->tables);
  json_decref(reading->by_validators);
  imported_release(&reading->imported);
}

static bool split_line(const char *text, size_t length, struct line *line, struct error *error) {
  const char *end = text + length;
  if (memchr(text, '\r', length))
    return line_error(
        line, error,
        "it ends with CRLF, which TunableOp takes for a part of the text; write LF alone");
  line->n = 0;
  while (line->n < ARRAY_LENGTH(line->fields)) {
    const char *comma = memchr(text, ',', (size_t)(end - text));
    line->fields[line->n++] = (struct column){text, (size_t)((comma ? comma : end) - text)};
    if (!comma)
      return true;
    text = comma + 1;
  }
  /* What PYTORCH_TUNABLEOP_BLAS_LOG adds is for people. */
  return string_starts(text, "BLAS_PARAMS: ") ||
         line_error(line, error, "more than four fields, and the fifth is not BLAS_PARAMS");
}

static json_t *field_text(struct column field) { return json_stringn(field.text, field.length); }

static bool add_validator(const struct line *line, json_t *validators, struct error *error) {
  const json_t *pair;
  size_t i;
  if (line->n != 3 || !is_validator_text(line->fields[1].text, line->fields[1].length) ||
      !is_validator_text(line->fields[2].text, line->fields[2].length))
    return line_error(line, error, "a validator has a name and a text: Validator,NAME,TEXT");
  cleanup_json json_t *name = field_text(line->fields[1]);
  json_array_foreach (validators, i, pair) {
    if (json_equal(json_array_get(pair, 0), name))
      return line_error(line, error, "the validator stands there twice");
  }
  if (json_array_size(validators) >= VALIDATORS_MAX)
    return line_error(line, error, "too many validators");
  ALWAYS(json_array_append_new(validators,
                               json_pack("[O, o]", name, field_text(line->fields[2]))) == 0);
  return true;
}

static bool check_result(const struct line *line, struct error *error) {
  if (line->n < 3)
    return line_error(line, error,
                      "a result has an operation, its parameters, a solution and a time");
  if (!is_op(line->fields[0]))
    return line_error(line, error,
                      "the first field is no operation of TunableOp, as GemmTunableOp_BFloat16_TN");
  if (!is_params(line->fields[1]))
    return line_error(line, error, "the second field has no parameters as tn_M_N_K_ld_LDA_LDB_LDC");
  return is_field(line->fields[2].text, line->fields[2].length) ||
         line_error(line, error, "the third field is no name of a solution");
}

static bool is_faster(const struct imported_entry *entry, const struct imported_entry *than) {
  return entry->n_ms && (!than->n_ms || entry->ms[0] < than->ms[0]);
}

/* `seen`: "op,params" of this file. */
static bool add_result(const struct line *line, struct table *table, json_t *seen,
                       struct error *error) {
  struct imported_entry entry = {0};
  if (!check_result(line, error) || !read_time(line, &entry, error))
    return false;
  cleanup_free char *mark =
      xasprintf("%.*s,%.*s", (int)line->fields[0].length, line->fields[0].text,
                (int)line->fields[1].length, line->fields[1].text);
  if (json_object_get(seen, mark))
    return line_error(line, error, "the operation with these parameters stands there twice");
  ALWAYS(json_object_set_new(seen, mark, json_true()) == 0);
  struct imported_kernel *kernel = &table->kernel;
  const json_t *known = json_object_get(table->lines, mark);
  size_t index = known ? (size_t)json_integer_value(known) : kernel->n_entries;
  if (known && !is_faster(&entry, &kernel->entries[index]))
    return true;
  if (!known) {
    GROW(kernel->entries, kernel->n_entries, table->capacity);
    kernel->entries[kernel->n_entries++] = (struct imported_entry){0};
    ALWAYS(json_object_set_new(table->lines, mark, json_integer((json_int_t)index)) == 0);
  }
  struct imported_entry *slot = &kernel->entries[index];
  json_decref(slot->key);
  json_decref(slot->config);
  json_decref(slot->provenance);
  entry.key = json_pack("{s:o, s:o}", "op", field_text(line->fields[0]), "params",
                        field_text(line->fields[1]));
  entry.config = json_pack("{s:o}", "solution", field_text(line->fields[2]));
  entry.provenance = json_pack("{s:s}", "source", line->path);
  ALWAYS(entry.key && entry.config && entry.provenance);
  *slot = entry;
  return true;
}

/* Walks over the lines: the validators (is_first), or the results. */
static bool read_lines(const struct cache_file *file, json_t *validators, struct table *table,
                       struct error *error) {
  struct line line = {.path = file->path};
  cleanup_json json_t *seen = json_object();
  const char *text = file->bytes, *end = file->bytes + file->size;
  while (text < end) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    size_t length = (size_t)((newline ? newline : end) - text);
    line.number++;
    if (length && !split_line(text, length, &line, error))
      return false;
    bool is_validator = length && line.fields[0].length == strlen("Validator") &&
                        memcmp(text, "Validator", strlen("Validator")) == 0;
    if (length && is_validator && !table && !add_validator(&line, validators, error))
      return false;
    if (length && !is_validator && table && !add_result(&line, table, seen, error))
      return false;
    text += length + 1;
  }
  return true;
}

/* No name is twice among validators, so that an object says all that counts of them. */
static char *validators_text(const json_t *validators) {
  cleanup_json json_t *object = json_object();
  const json_t *pair;
  size_t i;
  json_array_foreach (validators, i, pair)
    ALWAYS(json_object_set(object, json_string_value(json_array_get(pair, 0)),
                           json_array_get(pair, 1)) == 0);
  return json_canonical(object);
}

static struct table *find_table(struct reading *reading, json_t *validators) {
  cleanup_free char *text = validators_text(validators);
  const json_t *known = json_object_get(reading->by_validators, text);
  if (known)
    return &reading->tables[json_integer_value(known)];
  ALWAYS(json_object_set_new(reading->by_validators, text, json_integer((json_int_t)reading->n)) ==
         0);
  GROW(reading->tables, reading->n, reading->capacity);
  struct table *table = &reading->tables[reading->n++];
  *table = (struct table){.validators = json_incref(validators), .lines = json_object()};
  table->kernel.manifest =
      json_pack("{s:s, s:s, s:[s, s], s:{s:{s:O}}}", "name", "tunableop", "language", "external",
                "key", "op", "params", "exports", "tunableop", "validators", validators);
  ALWAYS(table->kernel.manifest != NULL);
  return table;
}

static const char *validator(const json_t *validators, const char *name) {
  const json_t *pair;
  size_t i;
  json_array_foreach (validators, i, pair) {
    if (string_equal(json_string_value(json_array_get(pair, 0)), name))
      return json_string_value(json_array_get(pair, 1));
  }
  return NULL;
}

/* PT_VERSION is torch's; GCN_ARCH_NAME is the arch with features after ':'. The others are of
 * libraries. */
static json_t *make_environment(const json_t *validators) {
  json_t *environment = json_object();
  const char *torch = validator(validators, "PT_VERSION"),
             *arch = validator(validators, "GCN_ARCH_NAME");
  if (torch)
    ALWAYS(json_object_set_new(environment, "torch", json_string(torch)) == 0);
  if (arch && strcspn(arch, ":") > 0)
    ALWAYS(json_object_set_new(environment, "arch", json_stringn(arch, strcspn(arch, ":"))) == 0);
  return environment;
}

static bool read_file(struct reading *reading, const struct cache_file *file, struct error *error) {
  cleanup_json json_t *validators = json_array();
  if (!json_can_hold(file->path))
    return error_set(error, "%.200s: the path is not UTF-8", file->path);
  if (file->size > FILE_SIZE_MAX)
    return error_set(error, "%.200s: it has %zu bytes; at most %zu are read", file->path,
                     file->size, FILE_SIZE_MAX);
  if (memchr(file->bytes, '\0', file->size))
    return error_set(error, "%.200s: it has a NUL in it and is no CSV", file->path);
  if (!read_lines(file, validators, NULL, error))
    return false;
  if (!json_array_size(validators))
    return error_set(error,
                     "%.200s: it has no validators, so TunableOp would not take it, and what it is "
                     "for is not known",
                     file->path);
  cleanup_json json_t *environment = make_environment(validators);
  if (reading->imported.environment && !json_equal(environment, reading->imported.environment))
    return error_set(
        error,
        "%.200s: its validators are of another torch or arch than those of the file before it; "
        "import them apart",
        file->path);
  if (!reading->imported.environment)
    reading->imported.environment = json_incref(environment);
  return read_lines(file, NULL, find_table(reading, validators), error);
}

static bool read_files(const struct import_request *request, struct imported *ret,
                       struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {.by_validators =
                                                                          json_object()};
  if (request->kernel)
    return error_set(
        error,
        "TunableOp's operations are torch's own and are not registered; leave --kernel away");
  for (size_t i = 0; i < request->files->n; i++) {
    if (!read_file(&reading, &request->files->files[i], error))
      return false;
  }
  size_t n_entries = 0;
  for (size_t i = 0; i < reading.n; i++)
    n_entries += reading.tables[i].kernel.n_entries;
  if (!n_entries)
    return error_set(error, "there are no results in the %zu files", request->files->n);
  reading.imported.kernels = xcalloc(reading.n, sizeof *reading.imported.kernels);
  for (size_t i = 0; i < reading.n; i++) {
    if (!reading.tables[i].kernel.n_entries)
      continue;
    reading.imported.kernels[reading.imported.n_kernels++] = reading.tables[i].kernel;
    reading.tables[i].kernel = (struct imported_kernel){0};
  }
  *ret = reading.imported;
  reading.imported = (struct imported){0};
  return true;
}

const struct cache_format format_tunableop = {
    .name = "tunableop",
    .summary = "the CSV files of torch's TunableOp, one for each device",
    .render = render_release,
    .read = read_files,
};
