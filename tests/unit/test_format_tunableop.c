/* TunableOp's CSV: a real file comes back byte for byte, validators decide, and every refusal names
 * file and line. */
#include "format_fixture.h"

extern const struct cache_format format_tunableop;

#define REAL SOURCE_FOLDER "/tests/data/tunableop/tunableop_results0.csv"
#define HEAD                                                                                       \
  "Validator,PT_VERSION,2.9.1\nValidator,ROCBLAS_VERSION,4.3.0.8ebd6c11\nValidator,GCN_ARCH_NAME," \
  "gfx942:sramecc+:"                                                                               \
  "xnack-\n"
#define OP "GemmTunableOp_BFloat16_TN,tn_8192_1_4096_ld_4096_4096_8192"
#define RESULT OP ",Gemm_Rocblas_621284994,0.0196817\n"

static bool read_text(const char *text, struct imported *ret, struct error *error) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, "t/tunableop_results0.csv", text);
  return cache_format_read(&format_tunableop, &(struct import_request){&files, NULL}, ret, error);
}

static struct imported imported_of(const char *text) {
  struct imported imported;
  struct error error;
  cr_assert(read_text(text, &imported, &error), "%s", error.message);
  return imported;
}

static bool render_imported(const char *text, const char *identity_text, struct cache_files *ret,
                            struct error *error) {
  struct shelf shelf = {0};
  cleanup_imported struct imported imported = imported_of(text);
  cleanup_release struct release *release = release_of_imported(&imported, "tunableop", &shelf);
  cleanup_identity struct identity *identity = identity_text ? identity_of(identity_text) : NULL;
  struct cache_source source = shelf_source(&shelf);
  bool ok = format_tunableop.render(
      &(struct render_request){.release = release, .source = &source, .identity = identity}, ret,
      error);
  shelf_release(&shelf);
  return ok;
}

static struct cache_files rendered(const char *text, const char *identity) {
  struct cache_files files = {0};
  struct error error;
  cr_assert(render_imported(text, identity, &files, &error), "%s", error.message);
  return files;
}

Test(format_tunableop, a_file_that_torch_wrote_comes_back_byte_for_byte) {
  cleanup_free char *text = NULL;
  size_t size;
  struct error error;
  cr_assert(file_read(REAL, 1 << 20, &text, &size, &error), "%s", error.message);
  cleanup_cache_files struct cache_files files = rendered(text, NULL);
  cr_assert_eq(files.n, 8u, "one for each device of a node");
  for (size_t i = 0; i < files.n; i++) {
    cr_assert_eq(files.files[i].size, size);
    cr_assert_str_eq(files.files[i].bytes, text);
  }
  cr_assert_str_eq(files.files[7].path, "tunableop_results7.csv");
}

Test(format_tunableop, tells_torch_to_read_the_files_and_not_to_tune) {
  cleanup_cache_files struct cache_files files = rendered(HEAD RESULT, NULL);
  cr_assert_str_eq(variable_of(&files, "PYTORCH_TUNABLEOP_ENABLED"), "1");
  cr_assert_str_eq(variable_of(&files, "PYTORCH_TUNABLEOP_TUNING"), "0");
  cr_assert_str_eq(variable_of(&files, "PYTORCH_TUNABLEOP_FILENAME"), "tunableop_results%d.csv");
}

Test(format_tunableop, what_is_read_is_key_config_time_validators_and_environment) {
  cleanup_imported struct imported imported =
      imported_of(HEAD "\n" RESULT "GemmTunableOp_Half_NN,nn_4_4_4,Default\n");
  cr_assert_eq(imported.n_kernels, 1u);
  const struct imported_kernel *kernel = &imported.kernels[0];
  cr_assert_eq(kernel->n_entries, 2u);
  cleanup_free char *key = json_canonical(kernel->entries[0].key),
                    *config = json_canonical(kernel->entries[0].config),
                    *environment = json_canonical(imported.environment);
  cr_assert_str_eq(
      key,
      "{\"op\":\"GemmTunableOp_BFloat16_TN\",\"params\":\"tn_8192_1_4096_ld_4096_4096_8192\"}");
  cr_assert_str_eq(config, "{\"solution\":\"Gemm_Rocblas_621284994\"}");
  cr_assert_str_eq(environment, "{\"arch\":\"gfx942\",\"torch\":\"2.9.1\"}");
  cr_assert_eq(kernel->entries[0].n_ms, 1u);
  cr_assert_float_eq(kernel->entries[0].ms[0], 0.0196817, 1e-12);
  cr_assert_eq(kernel->entries[1].n_ms, 0u);
  cr_assert_str_eq(json_string_value(json_object_get(kernel->entries[0].provenance, "source")),
                   "t/tunableop_results0.csv");
}

Test(format_tunableop, the_validator_of_rocm_states_its_release_unless_it_is_hips) {
  static const struct {
    const char *validator, *environment;
  } cases[] = {{"6.4.1.0-83-1a2b3c", "{\"rocm\":\"6.4.1\"}"},
               {"6.4.1", "{\"rocm\":\"6.4.1\"}"},
               {"6.2.41133-dd7f95766", "{}"},
               {"7.0", "{}"},
               {"unknown", "{}"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_free char *text = xasprintf("Validator,ROCM_VERSION,%s\n" RESULT, cases[i].validator);
    cleanup_imported struct imported imported = imported_of(text);
    cleanup_free char *environment = json_canonical(imported.environment);
    cr_expect_str_eq(environment, cases[i].environment, "%s", cases[i].validator);
  }
}

Test(format_tunableop, a_result_without_a_time_stays_without_one) {
  cleanup_cache_files struct cache_files files =
      rendered(HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default\n", NULL);
  cr_assert_str_eq(files.files[0].bytes, HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default\n");
}

Test(format_tunableop, parameters_of_all_its_operations_are_known) {
  static const char *const lines[] = {
      "GemmStridedBatchedTunableOp_Half_NT,nt_16_16_16_B_8_ld_16_16_16,Gemm_Hipblaslt_12,0.5",
      "GemmAndBiasTunableOp_BFloat16_TN,tn_16_16_16_ld_16_16_16_bias_None,Default,1e-05",
      "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,tn_16_16_16_ld_16_16_16_rw_"
      "1,Gemm_Hipblaslt_TN_"
      "3,2",
      "GemmTunableOp_Half_NN,nn_16_16_16,Default,0.1,BLAS_PARAMS: { function: matmul, M: 16 }"};
  for (size_t i = 0; i < ARRAY_LENGTH(lines); i++) {
    cleanup_free char *text = xasprintf(HEAD "%s\n", lines[i]);
    cleanup_imported struct imported imported = imported_of(text);
    cr_assert_eq(imported.kernels[0].n_entries, 1u, "%s", lines[i]);
  }
}

Test(format_tunableop, the_fastest_of_several_devices_is_kept) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, "0.csv", HEAD OP ",Gemm_Rocblas_1,0.5\n");
  files_add_text(&files, "1.csv",
                 HEAD OP ",Gemm_Rocblas_2,0.25\nGemmTunableOp_Half_NN,nn_4_4_4,Default,1\n");
  files_add_text(&files, "2.csv", HEAD OP ",Gemm_Rocblas_3,0.75\n");
  cleanup_imported struct imported imported = {0};
  struct error error;
  cr_assert(cache_format_read(&format_tunableop, &(struct import_request){&files, NULL}, &imported,
                              &error),
            "%s", error.message);
  cr_assert_eq(imported.n_kernels, 1u);
  cr_assert_eq(imported.kernels[0].n_entries, 2u);
  const struct imported_entry *entry = &imported.kernels[0].entries[0];
  cr_assert_str_eq(json_string_value(json_object_get(entry->config, "solution")), "Gemm_Rocblas_2");
  cr_assert_str_eq(json_string_value(json_object_get(entry->provenance, "source")), "1.csv");
}

#define IDENTITY(validators)                                                                       \
  "{\"version\": 1, \"devices\": 2, \"tunableop\": {\"validators\": [" validators "]}}"

/* Each set of validators in two files, in two orders; the second file's result is the faster
 * one. */
Test(format_tunableop, files_with_the_same_validators_are_one_kernel_among_many) {
  enum { N = 300 };
  cleanup_cache_files struct cache_files files = {0};
  cleanup_imported struct imported imported = {0};
  struct error error;
  for (int i = 0; i < 2 * N; i++) {
    cleanup_free char *path = xasprintf("%d.csv", i), *text = NULL;
    text =
        i < N
            ? xasprintf("Validator,A,%d\nValidator,B,1\nGemmTunableOp_Half_NN,nn_4_4_4,slow%d,2\n",
                        i, i)
            : xasprintf("Validator,B,1\nValidator,A,%d\nGemmTunableOp_Half_NN,nn_4_4_4,fast%d,1\n",
                        i - N, i - N);
    files_add_text(&files, path, text);
  }
  files_add_text(&files, "swapped.csv",
                 "Validator,A,1\nValidator,B,0\nGemmTunableOp_Half_NN,nn_4_4_4,other,1\n");
  cr_assert(cache_format_read(&format_tunableop, &(struct import_request){&files, NULL}, &imported,
                              &error),
            "%s", error.message);
  cr_assert_eq(imported.n_kernels, N + 1u);
  for (int i = 0; i < N; i++) {
    const struct imported_kernel *kernel = &imported.kernels[i];
    cleanup_free char *solution = xasprintf("fast%d", i),
                      *validators = xasprintf("[[\"A\",\"%d\"],[\"B\",\"1\"]]", i);
    cleanup_free char *found = json_canonical(json_object_get(
        json_object_get(json_object_get(kernel->manifest, "exports"), "tunableop"), "validators"));
    cr_assert_eq(kernel->n_entries, 1u);
    cr_assert_str_eq(json_string_value(json_object_get(kernel->entries[0].config, "solution")),
                     solution);
    cr_assert_str_eq(found, validators);
  }
}

Test(format_tunableop, an_image_with_these_validators_gets_them_in_its_own_order) {
  cleanup_cache_files struct cache_files files = rendered(
      HEAD RESULT,
      IDENTITY("[\"GCN_ARCH_NAME\", \"gfx942:sramecc+:xnack-\"], [\"PT_VERSION\", \"2.9.1\"],"
               "[\"ROCBLAS_VERSION\", \"4.3.0.8ebd6c11\"]"));
  cr_assert_eq(files.n, 2u, "as many as the image has devices");
  cr_assert_str_eq(files.files[0].bytes,
                   "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\nValidator,PT_VERSION,2.9.1\n"
                   "Validator,ROCBLAS_VERSION,4.3.0.8ebd6c11\n" RESULT);
}

Test(format_tunableop, an_image_with_other_validators_gets_nothing) {
  struct cache_files files = {0};
  struct error error;
  cr_assert(!render_imported(HEAD RESULT, IDENTITY("[\"PT_VERSION\", \"2.9.1\"]"), &files, &error));
  cr_assert(strstr(error.message, "other validators"), "%s", error.message);
}

Test(format_tunableop, results_under_two_sets_of_validators_do_not_mix) {
  cleanup_cache_files struct cache_files both = {0};
  files_add_text(&both, "a.csv", HEAD RESULT);
  files_add_text(&both, "b.csv",
                 "Validator,PT_VERSION,2.9.1\nValidator,ROCBLAS_VERSION,5\nValidator,GCN_ARCH_NAME,"
                 "gfx942:xnack-\n" RESULT);
  cleanup_imported struct imported imported = {0};
  struct error error;
  struct shelf shelf = {0};
  cr_assert(cache_format_read(&format_tunableop, &(struct import_request){&both, NULL}, &imported,
                              &error),
            "%s", error.message);
  cr_assert_eq(imported.n_kernels, 2u);
  cleanup_release struct release *release = release_of_imported(&imported, "tunableop", &shelf);
  struct cache_source source = shelf_source(&shelf);
  cleanup_cache_files struct cache_files files = {0};
  cr_assert(format_tunableop.render(&(struct render_request){.release = release, .source = &source},
                                    &files, &error));
  cr_assert(says_skipped(&files, "other validators"));
  shelf_release(&shelf);
}

static bool render_manifest(const char *manifest, const char *key, const char *config,
                            struct cache_files *ret, struct error *error) {
  struct shelf shelf = {.n_kernels = 1, .kernels = {kernel_of(manifest)}};
  struct winner winner = {shelf.kernels[0], key, config, "{\"origin\": \"imported\"}", 0, {0}};
  cleanup_release struct release *release = release_of(&winner, 1);
  struct cache_source source = shelf_source(&shelf);
  bool ok = format_tunableop.render(&(struct render_request){.release = release, .source = &source},
                                    ret, error);
  shelf_release(&shelf);
  return ok;
}

#define MANIFEST(key, exports)                                                                     \
  "{\"name\": \"tunableop\", \"language\": \"external\", \"key\": " key ", \"exports\": {" exports \
  "}}"
#define VALIDATORS(pairs) "\"tunableop\": {\"validators\": [" pairs "]}"

Test(format_tunableop, what_the_file_cannot_say_is_skipped_with_the_reason) {
  static const struct {
    const char *manifest, *key, *config, *message;
  } cases[] = {
      {MANIFEST("[\"op\", \"params\"]", "\"tunableop\": {}"), "{\"op\": \"a\", \"params\": \"b\"}",
       "{\"solution\": \"c\"}", "validators are not known"},
      {MANIFEST("[\"op\", \"params\"]", VALIDATORS("[\"A\"]")),
       "{\"op\": \"a\", \"params\": \"b\"}", "{\"solution\": \"c\"}", "not pairs of texts"},
      {MANIFEST("[\"op\", \"params\"]", VALIDATORS("[\"A\", \"1\\n2\"]")),
       "{\"op\": \"a\", \"params\": \"b\"}", "{\"solution\": \"c\"}", "not pairs of texts"},
      {MANIFEST("[\"op\", \"params\"]", "\"dejavu\": {}"), "{\"op\": \"a\", \"params\": \"b\"}",
       "{\"solution\": \"c\"}", "not an operation of TunableOp"},
      {MANIFEST("[\"op\", \"params\"]", VALIDATORS("[\"A\", \"1\"]")),
       "{\"op\": \"a\", \"params\": \"b,c\"}", "{\"solution\": \"c\"}", "no \"op\" and \"params\""},
      {MANIFEST("[\"op\", \"params\"]", VALIDATORS("[\"A\", \"1\"]")),
       "{\"op\": \"a\", \"params\": \"b\"}", "{\"solution\": \"c\\nValidator,B,2\"}",
       "no \"solution\""},
      {MANIFEST("[\"n\"]", VALIDATORS("[\"A\", \"1\"]")), "{\"n\": 1}", "{\"solution\": \"c\"}",
       "no \"op\""}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct cache_files files = {0};
    struct error error;
    cr_assert(!render_manifest(cases[i].manifest, cases[i].key, cases[i].config, &files, &error),
              "%zu", i);
    cr_assert(strstr(error.message, cases[i].message), "%s", error.message);
  }
}

Test(format_tunableop, a_kernel_that_the_source_does_not_have_is_left_out) {
  cleanup_cache_files struct cache_files both = {0}, files = {0}, nothing = {0};
  cleanup_imported struct imported imported = {0};
  struct shelf shelf = {0}, half;
  struct error error;
  files_add_text(&both, "a.csv", HEAD RESULT);
  files_add_text(&both, "b.csv", HEAD "Validator,B,5\n" RESULT);
  cr_assert(cache_format_read(&format_tunableop, &(struct import_request){&both, NULL}, &imported,
                              &error),
            "%s", error.message);
  cleanup_release struct release *release = release_of_imported(&imported, "tunableop", &shelf);
  half = shelf;
  half.n_kernels = 1;
  struct cache_source source = shelf_source(&half);
  const struct render_request request = {.release = release, .source = &source};
  cr_assert(format_tunableop.render(&request, &files, &error), "%s", error.message);
  cr_assert_str_eq(files.files[0].bytes, HEAD RESULT);
  cr_assert_eq(files.n_skipped, 1u);
  cr_assert_str_eq(files.skipped[0].name, "tunableop");
  cr_assert(says_skipped(&files, "no such kernel"));
  half.n_kernels = 0;
  cr_assert(!format_tunableop.render(&request, &nothing, &error));
  cr_assert(strstr(error.message, "no such kernel"), "%s", error.message);
  source.kernel = NULL;
  cleanup_cache_files struct cache_files unknown = {0};
  cr_assert(!format_tunableop.render(&request, &unknown, &error));
  cr_assert(strstr(error.message, "not an operation of TunableOp"), "%s", error.message);
  shelf_release(&shelf);
}

Test(format_tunableop, files_that_torch_would_read_in_another_way_are_refused_with_the_line) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"Validator,PT_VERSION,2.9.1\r\n" RESULT, "line 1: it ends with CRLF"},
      {HEAD RESULT RESULT, "line 5: the operation with these parameters occurs twice"},
      {"Validator,A,1\nValidator,A,2\n" RESULT, "line 2: the validator occurs twice"},
      {"Validator,A\n" RESULT, "line 1: a validator has"},
      {"Validator,A,1,2\n" RESULT, "line 1: a validator has"},
      {"Validator,A,\n" RESULT, "line 1: a validator has"},
      {"Validator,GCN_ARCH_NAME,"
       "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
       "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901"
       "23456789012"
       "34567890\n",
       "line 1: a validator has"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4\n", "line 4: a result has"},
      {HEAD "GemmTunableOp_Half,nn_4_4_4,Default,1\n", "line 4: the first field"},
      {HEAD "ConvTunableOp_Half_NN,nn_4_4_4,Default,1\n", "line 4: the first field"},
      {HEAD "GemmTunableOp_Ha lf_NN,nn_4_4_4,Default,1\n", "line 4: the first field"},
      {HEAD "GemmTunableOp_Half_NN,xx_4_4_4,Default,1\n", "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4,Default,1\n", "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_x_4,Default,1\n", "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4__4_4,Default,1\n", "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_99999999999999999999999,Default,1\n",
       "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4_ld/4,Default,1\n", "line 4: the second field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,,1\n", "line 4: the third field"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,\n", "line 4: the time"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,-1\n", "line 4: the time"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,1e999\n", "line 4: the time"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,0x1\n", "line 4: the time"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,fast\n", "line 4: the time"},
      {HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,1,2\n", "line 4: more than four fields"},
      {RESULT, "no validators"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    check_read_refused(&format_tunableop, "t/r0.csv", cases[i].text, cases[i].message);
}

static void check_files_refused(struct cache_files *files, const struct kernel *kernel,
                                const char *message) {
  struct imported imported;
  struct error error;
  cr_assert(!cache_format_read(&format_tunableop, &(struct import_request){files, kernel},
                               &imported, &error));
  cr_assert(strstr(error.message, message), "%s", error.message);
}

Test(format_tunableop, files_that_say_nothing_or_contradict_each_other_are_refused) {
  cleanup_cache_files struct cache_files none = {0}, empty = {0}, two = {0}, binary = {0},
                                         named = {0};
  check_files_refused(&none, NULL, "none of the 0 files");
  files_add_text(&empty, "a.csv", HEAD);
  check_files_refused(&empty, NULL, "has an entry");
  files_add_text(&two, "a.csv", HEAD RESULT);
  files_add_text(&two, "b.csv", "Validator,PT_VERSION,2.8.0\n" RESULT);
  check_files_refused(&two, NULL, "b.csv: its environment is");
  cache_files_add(&binary, "a.csv", xmemdup("Validator,A\0,1\n", 16), 15);
  check_files_refused(&binary, NULL, "NUL");
  files_add_text(&named, "a\xff.csv", HEAD RESULT);
  check_files_refused(&named, NULL, "not UTF-8");
  cleanup_kernel struct kernel *kernel = kernel_of(MANIFEST("[\"op\"]", "\"tunableop\": {}"));
  check_files_refused(&two, kernel, "omit --kernel");
}

Test(format_tunableop, too_many_validators_are_refused) {
  cleanup_free char *text = xstrdup("");
  for (int i = 0; i < 65; i++) {
    char *longer = xasprintf("%sValidator,V%d,1\n", text, i);
    free(text);
    text = longer;
  }
  check_read_refused(&format_tunableop, "a.csv", text, "line 65: more than 64 validators");
}

Test(format_tunableop, a_file_that_is_too_large_is_refused) {
  check_size_refused(&format_tunableop, "a.csv");
}

Test(format_tunableop, texts_that_are_too_long_are_refused) {
  static const char *const lines[] = {HEAD "GemmTunableOp_%0600d_NN,nn_4_4_4,Default,1\n",
                                      HEAD "GemmTunableOp_Half_NN,nn_4_4_4_x%0600d,Default,1\n",
                                      HEAD "GemmTunableOp_Half_NN,nn_4_4_4,x%0600d,1\n",
                                      HEAD "GemmTunableOp_Half_NN,nn_4_4_4,Default,%0600d\n"};
  static const char *const messages[] = {"the first field", "the second field", "the third field",
                                         "the time"};
  for (size_t i = 0; i < ARRAY_LENGTH(lines); i++) {
    char text[1000];
    cr_assert(snprintf(text, sizeof text, lines[i], 1) < (int)sizeof text);
    check_read_refused(&format_tunableop, "a.csv", text, messages[i]);
  }
}

Test(format_tunableop, validators_without_results_are_no_kernel) {
  cleanup_cache_files struct cache_files files = {0};
  files_add_text(&files, "a.csv", "Validator,PT_VERSION,2.9.1\nValidator,ROCBLAS_VERSION,5\n");
  files_add_text(&files, "b.csv",
                 "Validator,PT_VERSION,2.9.1\nValidator,ROCBLAS_VERSION,6\n" RESULT);
  cleanup_imported struct imported imported = {0};
  struct error error;
  cr_assert(cache_format_read(&format_tunableop, &(struct import_request){&files, NULL}, &imported,
                              &error),
            "%s", error.message);
  cr_assert_eq(imported.n_kernels, 1u);
}

Test(format_tunableop, of_two_winners_for_one_line_the_first_is_written) {
  struct shelf shelf = {
      .n_kernels = 2,
      .kernels = {kernel_of(MANIFEST("[\"op\", \"params\"]", VALIDATORS("[\"A\", \"1\"]"))),
                  kernel_of(MANIFEST("[\"params\", \"op\"]", VALIDATORS("[\"A\", \"1\"]")))}};
  const char *key = "{\"op\": \"a\", \"params\": \"b\"}", *config = "{\"solution\": \"c\"}";
  const struct winner winners[] = {
      {shelf.kernels[0], key, config, "{\"origin\": \"imported\"}", 0, {0}},
      {shelf.kernels[1], key, config, "{\"origin\": \"imported\"}", 0, {0}}};
  cleanup_release struct release *release = release_of(winners, 2);
  struct cache_source source = shelf_source(&shelf);
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  cr_assert(format_tunableop.render(&(struct render_request){.release = release, .source = &source},
                                    &files, &error),
            "%s", error.message);
  cr_assert_str_eq(files.files[0].bytes, "Validator,A,1\na,b,c\n");
  cr_assert_eq(files.n_skipped, 1u);
  cr_assert(strstr(files.skipped[0].reason, "the same operation and parameters"), "%s",
            files.skipped[0].reason);
  shelf_release(&shelf);
}
