/* The `tunableop` format: the CSV files that torch's TunableOp reads
 * (aten/src/ATen/cuda/tunable/Tunable.cpp), one for each device of a node, all the same.
 *
 *   Validator,PT_VERSION,2.9.1
 *   GemmTunableOp_BFloat16_TN,tn_8192_1_4096_ld_4096_4096_8192,Gemm_Rocblas_621284994,0.0196817
 *
 * TunableOp ignores a file that does not have exactly the validators that it knows, each with its
 * own text. A solution is an index into one build of rocBLAS or hipBLASLt, so winners go only to an
 * image with the validators that they were measured under. A carriage return would become a part of
 * the last text of its line: LF only, and CRLF is refused.
 * Of two lines for one (op, params) in a file TunableOp uses the first; here two are refused.
 * Of several files of one import (a node's devices) the faster result is kept.
 *
 * Lines are the kernel "tunableop" with the key {"op", "params"}, the config {"solution"} and the
 * validators as its exports. A time is of six significant digits, as C++ writes it; a line without
 * one (0 to TunableOp) has none.
 *
 * Memory and threads: format.h. */
#include <math.h>
#include <regex.h>

#include "common/cache/format.h"
#include "common/cache/text.h"

#define TEXT_MAX 200 /* as the members of an environment */
#define VALIDATORS_MAX 64
#define DEVICES_DEFAULT 8

/* A text of a line: printable characters from `least` on, but no ','. False for NULL. */
static bool is_text(const char *text, char least) {
  size_t length = text ? strlen(text) : 0;
  for (size_t i = 0; i < length; i++)
    if (text[i] < least || text[i] > 0x7e || text[i] == ',')
      return false;
  return length >= 1 && length <= TEXT_MAX;
}

static const char *pair_text(const json_t *pair, size_t i) {
  return json_string_value(json_array_get(pair, i));
}

/* Validators as an object, because their order is free; a new reference. */
static json_t *validators_object(const json_t *validators) {
  json_t *object = json_object();
  for (size_t i = 0; i < json_array_size(validators); i++) {
    const json_t *pair = json_array_get(validators, i);
    json_put(object, pair_text(pair, 0), json_incref(json_array_get(pair, 1)));
  }
  return object;
}

/* Rendering */

/* The validators of an external kernel, NULL when its exports state none. */
static bool validators_find(const struct kernel *manifest, const json_t **ret,
                            struct error *error) {
  const json_t *exports = external_exports(manifest, "tunableop"),
               *validators = json_object_get(exports, "validators");
  size_t n = json_array_size(validators);
  bool ok = n >= 1 && n <= VALIDATORS_MAX;
  if (!exports)
    return error_set(error, "it is not an operation of TunableOp");

  for (size_t i = 0; i < n; i++) {
    const json_t *pair = json_array_get(validators, i);
    ok = ok && json_array_size(pair) == 2 && is_text(pair_text(pair, 0), ' ') &&
         is_text(pair_text(pair, 1), ' ');
  }

  *ret = validators;
  return !validators || ok ||
         error_set(error, "its exports have validators that are not pairs of texts");
}

/* Adds the kernel's lines to the text, after *validators, which become the kernel's when there are
 * none. `seen`: "op,params" of the lines. */
static bool kernel_render(const struct render_request *request, const struct release_kernel *kernel,
                          const json_t **validators, struct text *text, json_t *seen,
                          struct cache_files *files, struct error *error) {
  const struct kernel *manifest = NULL;
  const json_t *own = NULL;

  if (!request_manifest(request, kernel, &manifest, error) ||
      !validators_find(manifest, &own, error))
    return false;
  if (!*validators)
    *validators = own;
  if (!*validators)
    return error_set(error, "its validators are not known, neither from the image nor from its "
                            "exports; record the image's with `python3 -m wavetune identity`");

  cleanup_json json_t *mine = validators_object(own), *all = validators_object(*validators);
  if (own && !json_equal(mine, all))
    return error_set(error, "it was measured under other validators (versions of torch, ROCm and "
                            "its BLAS libraries) than those of the file");

  size_t n_validators = text->size ? 0 : json_array_size(*validators);
  for (size_t i = 0; i < n_validators; i++) {
    const json_t *pair = json_array_get(*validators, i);
    cleanup_free char *line =
        xasprintf("Validator,%s,%s\n", pair_text(pair, 0), pair_text(pair, 1));
    text_add_string(text, line);
  }

  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    cleanup_json json_t *key = release_key_object(kernel, winner);
    const char *op = json_text(key, "op"), *params = json_text(key, "params"),
               *solution = json_text(kernel->configs[winner->config].values, "solution");
    if (!is_text(op, '!') || !is_text(params, '!') || !is_text(solution, '!')) {
      cache_files_skip(
          files, kernel, winner,
          "its key has no \"op\" and \"params\", or its config no \"solution\", of TunableOp");
      continue;
    }
    cleanup_free char *id = xasprintf("%s,%s", op, params);
    if (!set_add(seen, id)) {
      cache_files_skip(files, kernel, winner,
                       "another winner of the release is for the same operation and parameters");
      continue;
    }
    cleanup_free char *line = winner->n_ms ? xasprintf("%s,%s,%g\n", id, solution, winner->ms[0])
                                           : xasprintf("%s,%s\n", id, solution);
    text_add_string(text, line);
  }

  return true;
}

static bool tunableop_render(const struct render_request *request, struct cache_files *ret,
                             struct error *error) {
  const struct identity *identity = request->identity;
  const json_t *validators = identity ? identity->validators : NULL;
  cleanup_json json_t *seen = json_object();
  cleanup_text struct text text = {0};
  for (size_t i = 0; i < request->release->n_kernels; i++) {
    const struct release_kernel *kernel = &request->release->kernels[i];
    struct error why;
    if (!kernel_render(request, kernel, &validators, &text, seen, ret, &why))
      cache_files_skip(ret, kernel, NULL, why.message);
  }

  int64_t devices = identity && identity->devices ? identity->devices : DEVICES_DEFAULT;

  for (int64_t i = 0; json_object_size(seen) && i < devices; i++) {
    cleanup_free char *path = xasprintf("tunableop_results%lld.csv", (long long)i);
    cache_files_add(ret, path, xstrndup(text.bytes, text.size), text.size);
  }

  cache_files_variable(ret, "PYTORCH_TUNABLEOP_ENABLED", NULL, "1");
  cache_files_variable(ret, "PYTORCH_TUNABLEOP_TUNING", NULL, "0");
  cache_files_variable(ret, "PYTORCH_TUNABLEOP_FILENAME", "tunableop_results%d.csv", NULL);
  return cache_files_any(ret, "tunableop", error);
}

/* Reading */

/* Splits a line at its commas, in place. What PYTORCH_TUNABLEOP_BLAS_LOG adds is not read. */
static bool line_split(char *text, char *fields[4], size_t *ret_n, struct error *error) {
  size_t n = 0;
  if (strchr(text, '\r'))
    return error_set(
        error, "it ends with CRLF, which TunableOp takes for a part of the text; write LF alone");
  while (text && n < 4)
    fields[n++] = strsep(&text, ",");
  *ret_n = n;
  return !text || string_starts(text, "BLAS_PARAMS: ") ||
         error_set(error, "more than four fields, and the fifth is not BLAS_PARAMS");
}

static bool validator_read(char *const *fields, size_t n, json_t *validators, struct error *error) {
  if (n != 3 || !is_text(fields[1], ' ') || !is_text(fields[2], ' '))
    return error_set(error, "a validator has a name and a text: Validator,NAME,TEXT");
  for (size_t i = 0; i < json_array_size(validators); i++)
    if (string_equal(pair_text(json_array_get(validators, i), 0), fields[1]))
      return error_set(error, "the validator occurs twice");
  if (json_array_size(validators) >= VALIDATORS_MAX)
    return error_set(error, "more than %d validators", VALIDATORS_MAX);
  json_push(validators, json_pack("[s, s]", fields[1], fields[2]));
  return true;
}

/* The results of one file. */
struct results {
  const char *path;
  struct imported_kernel *kernel;
  json_t *seen; /* "op,params" of this file */
  regex_t op, params;
};

static void results_release(struct results *results) {
  json_decref(results->seen);
  regfree(&results->op);
  regfree(&results->params);
}

static bool result_read(char *const *fields, size_t n, struct results *results,
                        struct error *error) {
  if (n < 3)
    return error_set(error, "a result has an operation, its parameters, a solution and a time");
  if (strlen(fields[0]) > TEXT_MAX || regexec(&results->op, fields[0], 0, NULL, 0) != 0)
    return error_set(
        error,
        "the first field is not an operation of TunableOp, such as GemmTunableOp_BFloat16_TN");
  if (strlen(fields[1]) > TEXT_MAX || regexec(&results->params, fields[1], 0, NULL, 0) != 0)
    return error_set(error, "the second field has no parameters such as tn_M_N_K_ld_LDA_LDB_LDC");
  if (!is_text(fields[2], '!'))
    return error_set(error, "the third field is not the name of a solution");

  double ms = 0;
  if (n == 4) { /* atof() would read any text as 0 */
    const char *text = fields[3];
    char *end;
    ms = strtod(text, &end);
    if (!strchr("0123456789.", text[0]) || strlen(text) >= 40 || end == text || *end ||
        !isfinite(ms) || text[strspn(text, "0123456789.e+-")])
      return error_set(error, "the time is not a number of milliseconds");
  }

  cleanup_free char *id = xasprintf("%s,%s", fields[0], fields[1]);
  bool is_new;
  if (!set_add(results->seen, id))
    return error_set(error, "the operation with these parameters occurs twice");

  struct imported_entry *entry = imported_entry_for(results->kernel, id, &is_new);
  if (!is_new && (ms <= 0 || (entry->n_ms && ms >= entry->ms[0])))
    return true; /* another file has a faster one */

  json_decref(entry->key);
  json_decref(entry->config);
  json_decref(entry->provenance);
  *entry =
      (struct imported_entry){.key = json_pack("{s:s, s:s}", "op", fields[0], "params", fields[1]),
                              .config = json_pack("{s:s}", "solution", fields[2]),
                              .provenance = json_pack("{s:s}", "source", results->path),
                              .n_ms = ms > 0,
                              .ms = {ms}};
  return true;
}

/* Reads the validators, or the results. */
static bool lines_read(const struct cache_file *file, json_t *validators, struct results *results,
                       struct error *error) {
  const char *end = file->bytes + file->size;
  size_t number = 0;

  for (const char *at = file->bytes; at < end;) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    cleanup_free char *line = xstrndup(at, (size_t)((newline ? newline : end) - at));
    char *fields[4];
    size_t n;
    number++;
    at += strlen(line) + 1;
    if (!*line)
      continue;
    bool ok = line_split(line, fields, &n, error);
    bool is_validator = ok && string_equal(fields[0], "Validator");
    if (ok && is_validator && !results)
      ok = validator_read(fields, n, validators, error);
    else if (ok && !is_validator && results)
      ok = result_read(fields, n, results, error);
    if (!ok)
      return error_prefix(error, "line %zu: ", number);
  }

  return true;
}

/* The length of the MAJOR.MINOR.PATCH that the text begins with, each of one or two digits; 0: it
 * begins with something else. */
static size_t release_length(const char *text) {
  static const char pattern[] = "^([0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2})([^0-9]|$)";
  regmatch_t matches[2] = {{0}};
  regex_t release;
  ALWAYS(regcomp(&release, pattern, REG_EXTENDED) == 0);
  bool has_one = regexec(&release, text, 2, matches, 0) == 0;
  regfree(&release);
  return has_one ? (size_t)matches[1].rm_eo : 0;
}

static bool tunableop_read(const struct import_request *request, const struct cache_file *file,
                           struct imported *imported, struct error *error) {
  cleanup_json json_t *validators = json_array();
  (void)request;
  if (!json_can_hold(file->path))
    return error_set(error, "the path is not UTF-8");
  if (memchr(file->bytes, '\0', file->size))
    return error_set(error, "it has a NUL byte and is not CSV");
  if (!lines_read(file, validators, NULL, error))
    return false;
  if (!json_array_size(validators))
    return error_set(
        error,
        "it has no validators, so TunableOp would not accept it, and its environment is not known");

  /* PT_VERSION is torch's; GCN_ARCH_NAME is the arch with features after ':'. ROCM_VERSION is the
   * release with a build, 6.4.1.0-83-1a2b3c, or in older versions HIP's, 6.2.41133-1a2b3c, whose
   * third number is no release's. The others are of libraries. */
  cleanup_json json_t *object = validators_object(validators);
  const char *torch = json_text(object, "PT_VERSION"), *arch = json_text(object, "GCN_ARCH_NAME");
  const char *rocm = json_text(object, "ROCM_VERSION");
  json_t *environment = json_object();
  if (torch)
    json_put(environment, "torch", json_string(torch));
  if (rocm && release_length(rocm))
    json_put(environment, "rocm", json_stringn(rocm, release_length(rocm)));
  if (arch && strcspn(arch, ":") > 0)
    json_put(environment, "arch", json_stringn(arch, strcspn(arch, ":")));
  if (!imported_set_environment(imported, environment, error))
    return false;

  cleanup_free char *id = json_canonical(object);
  struct imported_kernel *kernel = imported_kernel_for(imported, id);
  if (!kernel->manifest)
    kernel->manifest = external_manifest("tunableop", json_pack("[s, s]", "op", "params"),
                                         "tunableop", json_pack("{s:O}", "validators", validators));

  /* GemmTunableOp_BFloat16_TN, ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN */
  static const char op[] = "^(Gemm|GemmStridedBatched|GemmAndBias|ScaledGemm)TunableOp_"
                           "[A-Za-z0-9_]+_(NN|NT|TN|TT)$";

  /* tn_512_128_256_ld_256_256_512, batched nn_4_4_4_B_8_ld_4_4_4, older versions
   * write no _ld_, newer ones add more words. */
  static const char params[] = "^[nt][nt](_[0-9]{1,18}){3}(_[A-Za-z0-9.-]+)*$";
  cleanup_by(results_release) struct results results = {
      .path = file->path, .kernel = kernel, .seen = json_object()};
  ALWAYS(regcomp(&results.op, op, REG_EXTENDED | REG_NOSUB) == 0);
  ALWAYS(regcomp(&results.params, params, REG_EXTENDED | REG_NOSUB) == 0);
  if (!lines_read(file, NULL, &results, error))
    return false;
  if (!kernel->n_entries)
    imported_kernel_drop(imported, id);

  return true;
}

const struct cache_format format_tunableop = {
    .name = "tunableop",
    .summary = "the CSV files of torch's TunableOp, one for each device",
    .render = tunableop_render,
    .table = "CSV file of TunableOp",
    .no_kernel = "TunableOp's operations are torch's own and are not registered",
    .file_size_max = (size_t)64 << 20,
    .read = tunableop_read,
};
