/* Kernel manifests: their members, each error with its pointer, and the keys and spaces that fit a
 * kernel. */
#include "tests/unit/kernel_fixture.h"

static const char c_manifest[] =
    "{\"name\": \"softmax/fused\", \"language\": \"c\", \"entry\": \"softmax_fused\","
    " \"sources\": [{\"path\": \"fused.c\", \"digest\": \"" DIGEST_A "\"},"
    "               {\"path\": \"lib/tile.h\", \"digest\": \"" DIGEST_B "\"}],"
    " \"key\": [\"rows\", \"columns\"],"
    " \"arguments\": ["
    "   {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"rows\", \"columns\"], \"access\": "
    "\"write\"},"
    "   {\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"rows\", \"columns\"], \"access\": "
    "\"read\","
    "    \"fill\": {\"uniform\": [-2, 2.5]}},"
    "   {\"name\": \"mask\", \"dtype\": \"int8\", \"shape\": [\"BLOCK\", 4], \"access\": "
    "\"readwrite\","
    "    \"fill\": {\"integers\": [-128, 127]}},"
    "   {\"name\": \"rows\", \"dtype\": \"int64\", \"value\": \"rows\"},"
    "   {\"name\": \"three\", \"dtype\": \"int32\", \"value\": 3}],"
    " \"defines\": {\"COLUMNS\": \"columns\", \"TILES\": \"ceil_div(columns, BLOCK)\"},"
    " \"reference\": {\"source\": {\"path\": \"reference.c\", \"digest\": \"" DIGEST_B "\"},"
    "   \"outputs\": {\"y\": \"softmax_at\", \"mask\": \"mask_at\"}, \"rtol\": 0.001, \"atol\": 0, "
    "\"samples\": 0},"
    " \"flops\": \"5 * rows * columns\", \"bytes\": \"8 * rows * columns\","
    " \"exports\": {\"vllm-moe\": {\"E\": \"rows\"}}}";

static const char hip_manifest[] =
    "{\"name\": \"copy\", \"language\": \"hip\", \"entry\": \"copy\","
    " \"sources\": [{\"path\": \"copy.hip\", \"digest\": \"" DIGEST_A "\"}], \"key\": [\"n\"],"
    " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float16\", \"shape\": [\"n\"], \"access\": "
    "\"write\"}],"
    " \"launch\": {\"grid\": [\"min(cus * occupancy, ceil_div(n, BLOCK))\", 1], \"block\": "
    "[\"warp_size\"],"
    "              \"shared_bytes\": \"BLOCK * 2\"}}";

static const char external_manifest[] =
    "{\"name\": \"dejavu/add_kernel\", \"language\": \"external\", \"key\": [\"n\", \"dtype\"],"
    " \"exports\": {\"dejavu\": {\"function\": \"add_kernel\"}}}";

/* The parent of `pointer` in `json`; *ret_last is its last component. */
static json_t *json_parent(json_t *json, const char *pointer, const char **ret_last) {
  while (strchr(pointer + 1, '/')) {
    cleanup_free char *name =
        xstrndup(pointer + 1, (size_t)(strchr(pointer + 1, '/') - pointer - 1));
    json = json_is_array(json) ? json_array_get(json, strtoul(name, NULL, 10))
                               : json_object_get(json, name);
    cr_assert_not_null(json, "no %s", pointer);
    pointer = strchr(pointer + 1, '/');
  }
  *ret_last = pointer + 1;
  return json;
}

/* The manifest with the member at `pointer` replaced by `value` (JSON text; NULL: removed). */
static json_t *manifest_with(const char *manifest, const char *pointer, const char *value) {
  json_t *json = json_of(manifest);
  const char *last;
  json_t *parent = json_parent(json, pointer, &last);
  json_error_t reason;
  json_t *new = value ? json_loads(value, JSON_DECODE_ANY, &reason) : NULL;
  cr_assert(!value || new, "%s", value);
  if (json_is_array(parent))
    cr_assert(json_array_set_new(parent, strtoul(last, NULL, 10), new) == 0);
  else if (new)
    cr_assert(json_object_set_new(parent, last, new) == 0);
  else
    cr_assert(json_object_del(parent, last) == 0);
  return json;
}

static void assert_has(const char *text, const char *part) {
  cr_assert(strstr(text, part), "no \"%s\" in:\n%s", part, text);
}

struct refusal {
  const char *pointer, *value; /* the value that is put there */
  const char *error_pointer, *message;
};

static void assert_refused(const char *manifest, const struct refusal *refusals, size_t n) {
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *json = manifest_with(manifest, refusals[i].pointer, refusals[i].value);
    struct kernel *kernel = NULL;
    struct error error = {0};
    cr_assert_not(kernel_parse(json, &kernel, &error), "%s = %s was taken", refusals[i].pointer,
                  refusals[i].value);
    cr_assert_str_eq(error.pointer, refusals[i].error_pointer, "%s = %s: pointer %s: %s",
                     refusals[i].pointer, refusals[i].value, error.pointer, error.message);
    assert_has(error.message, refusals[i].message);
  }
}

Test(kernel, a_manifest_in_c_is_read_whole) {
  cleanup_kernel struct kernel *kernel = kernel_of(c_manifest);
  cr_assert_str_eq(kernel->name, "softmax/fused");
  cr_assert_str_eq(language_name(kernel->language), "c");
  cr_assert_str_eq(kernel->entry, "softmax_fused");
  cr_assert_eq(kernel->n_sources, 2u);
  cr_assert_str_eq(kernel->sources[1].path, "lib/tile.h");
  cr_assert_eq(kernel->n_key_names, 2u);
  cr_assert_str_eq(kernel->key_names[1], "columns");
  cr_assert_eq(kernel->n_arguments, 5u);
  cr_assert_eq(kernel->n_defines, 2u);
  cr_assert_str_eq(kernel->defines[1].name, "TILES");
  cr_assert_eq(kernel->launch.n_grid + kernel->launch.n_block, 0u);
  cr_assert_str_eq(kernel->reference.source.path, "reference.c");
  cr_assert_eq(kernel->reference.rtol, 0.001);
  cr_assert_eq(kernel->reference.atol, 0.0);
  cr_assert_eq(kernel->reference.samples, 0);
  cr_assert_str_eq(kernel->flops, "5 * rows * columns");
}

Test(kernel, arguments_are_buffers_and_scalars) {
  cleanup_kernel struct kernel *kernel = kernel_of(c_manifest);
  const struct argument *y = &kernel->arguments[0], *x = &kernel->arguments[1],
                        *mask = &kernel->arguments[2], *three = &kernel->arguments[4];
  cr_assert(y->is_buffer && y->access == ACCESS_WRITE && y->n_dimensions == 2);
  cr_assert_str_eq(y->reference_entry, "softmax_at");
  cr_assert(x->access == ACCESS_READ && x->fill.kind == FILL_UNIFORM && x->fill.low == -2 &&
            x->fill.high == 2.5);
  cr_assert_null(x->reference_entry);
  cr_assert(mask->access == ACCESS_READWRITE && mask->fill.kind == FILL_INTEGERS &&
            mask->fill.low == -128);
  cr_assert_str_eq(mask->shape[1], "4");
  cr_assert_not(three->is_buffer);
  cr_assert_str_eq(three->value, "3");
}

Test(kernel, a_launch_is_read_for_hip) {
  cleanup_kernel struct kernel *kernel = kernel_of(hip_manifest);
  cr_assert_eq(kernel->launch.n_grid, 2u);
  cr_assert_str_eq(kernel->launch.grid[1], "1");
  cr_assert_eq(kernel->launch.n_block, 1u);
  cr_assert_str_eq(kernel->launch.shared_bytes, "BLOCK * 2");
}

Test(kernel, unstated_members_have_their_defaults) {
  cleanup_kernel struct kernel *kernel = kernel_of(hip_manifest);
  cr_assert_null(kernel->reference.source.path);
  cr_assert_eq(kernel->reference.rtol, 1e-5);
  cr_assert_eq(kernel->reference.atol, 1e-8);
  cr_assert_eq(kernel->reference.samples, 4096);
  cr_assert_null(kernel->flops);
  cleanup_json json_t *json = manifest_with(c_manifest, "/arguments/1/fill", NULL);
  cleanup_kernel struct kernel *filled = kernel_of_json(json);
  cr_assert_eq(filled->arguments[1].fill.kind, FILL_NORMAL);
}

Test(kernel, a_triton_kernel_needs_no_block) {
  cleanup_json json_t *json = manifest_with(hip_manifest, "/launch/block", NULL);
  json_object_set_new(json, "language", json_string("triton"));
  cleanup_kernel struct kernel *kernel = kernel_of_json(json);
  cr_assert_eq(kernel->launch.n_block, 0u);
}

Test(kernel, the_hash_is_that_of_the_canonical_manifest) {
  cleanup_json json_t *json = json_of(hip_manifest);
  cleanup_kernel struct kernel *kernel = kernel_of(hip_manifest);
  struct digest expected = json_digest(json);
  cr_assert(digest_equal(&kernel->hash, &expected));
  cr_assert(json_equal(kernel->json, json));
  cleanup_json json_t *other = manifest_with(hip_manifest, "/entry", "\"copy2\"");
  cleanup_kernel struct kernel *different = kernel_of_json(other);
  cr_assert_not(digest_equal(&kernel->hash, &different->hash));
}

Test(kernel, a_manifest_that_changes_later_does_not_change_the_kernel) {
  cleanup_json json_t *json = json_of(hip_manifest);
  cleanup_kernel struct kernel *kernel = kernel_of_json(json);
  json_array_clear(json_object_get(json, "sources"));
  cr_assert_eq(json_array_size(json_object_get(kernel->json, "sources")), 1u);
}

Test(kernel, wrong_names_languages_and_sources_are_refused) {
  static const struct refusal refusals[] = {
      {"/name", NULL, "/name", "missing"},
      {"/name", "\"\"", "/name", "at least 1"},
      {"/name", "\"a b\"", "/name", "letters, digits"},
      {"/name", "\"soft\\u00e9\"", "/name", "letters, digits"},
      {"/other", "1", "/other", "unknown member"},
      {"/language", "\"rust\"", "/language", "one of: hip, triton, c, external"},
      {"/language", NULL, "/language", "missing"},
      {"/entry", "\"a-b\"", "/entry", "C identifier"},
      {"/entry", "\"1a\"", "/entry", "C identifier"},
      {"/entry", "\"\"", "/entry", "C identifier"},
      {"/sources", "[]", "/sources", "at least 1"},
      {"/sources", "{}", "/sources", "an array"},
      {"/sources/0", "\"fused.c\"", "/sources/0", "object"},
      {"/sources/0/path", "\"/etc/x\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"a/../b\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"..\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"./a\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"a//b\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"a/\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"\"", "/sources/0/path", "relative"},
      {"/sources/0/path", "\"a\\nb\"", "/sources/0/path", "control"},
      {"/sources/0/digest", "\"sha256:00\"", "/sources/0/digest", "64 lower-case"},
      {"/sources/1/path", "\"fused.c\"", "/sources/1", "twice"},
  };
  assert_refused(c_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, paths_with_dots_inside_names_are_accepted) {
  static const char *const paths[] = {"\"a..b\"", "\"..a\"", "\".hidden/a.c\"", "\"a/b.c/...\""};
  for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
    cleanup_json json_t *json = manifest_with(c_manifest, "/sources/0/path", paths[i]);
    cleanup_kernel struct kernel *kernel = NULL;
    struct error error;
    cr_assert(kernel_parse(json, &kernel, &error), "%s: %s", paths[i], error.message);
  }
}

Test(kernel, wrong_keys_and_defines_are_refused) {
  static const struct refusal refusals[] = {
      {"/key/0", "\"a b\"", "/key/0", "identifier"},
      {"/key/0", "1", "/key/0", "string"},
      {"/key/1", "\"rows\"", "/key/1", "twice"},
      {"/key/0", "\"lambda\"", "/key/0", "meaning"},
      {"/key/0", "\"arch\"", "/key/0", "meaning"},
      {"/key", "\"rows\"", "/key", "array"},
      {"/defines", "[]", "/defines", "object"},
      {"/defines/a-b", "1", "/defines/a-b", "C identifier"},
      {"/defines/A", "1.5", "/defines/A", "a string or an integer"},
      {"/defines/A", "\"1 +\"", "/defines/A", "column"},
  };
  assert_refused(c_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, wrong_arguments_are_refused) {
  static const struct refusal refusals[] = {
      {"/arguments", NULL, "/arguments", "missing"},
      {"/arguments/0", "[]", "/arguments/0", "object"},
      {"/arguments/0/dtype", NULL, "/arguments/0/dtype", "missing"},
      {"/arguments/0/name", "\"x y\"", "/arguments/0/name", "C identifier"},
      {"/arguments/1/name", "\"y\"", "/arguments/1/name", "twice"},
      {"/arguments/0/dtype", "\"float\"", "/arguments/0/dtype", "must be one of: bool"},
      {"/arguments/0/value", "1", "/arguments/0/value", "a buffer has no"},
      {"/arguments/0/shape", NULL, "/arguments/0", "\"shape\" (a buffer) or a \"value\""},
      {"/arguments/0/shape", "[]", "/arguments/0/shape", "at least 1"},
      {"/arguments/0/shape", "[1,1,1,1,1,1,1,1,1]", "/arguments/0/shape", "at most 8"},
      {"/arguments/0/shape/1", "\"rows +\"", "/arguments/0/shape/1", "column"},
      {"/arguments/0/shape/1", "null", "/arguments/0/shape/1", "strings or integers"},
      {"/arguments/0/access", NULL, "/arguments/0/access", "missing"},
      {"/arguments/0/access", "\"rw\"", "/arguments/0/access", "readwrite"},
      {"/arguments/0/fill", "\"zeros\"", "/arguments/0/fill", "only written"},
      {"/arguments/3/value", "\"rows rows\"", "/arguments/3/value", "column"},
      {"/arguments/3/access", "\"read\"", "/arguments/3/access", "a scalar has no"},
      {"/arguments/3/fill", "\"zeros\"", "/arguments/3/fill", "a scalar has no"},
      {"/arguments/1/fill", "\"random\"", "/arguments/1/fill", "not known"},
      {"/arguments/1/fill", "1", "/arguments/1/fill", "a string or an object"},
      {"/arguments/1/fill", "{}", "/arguments/1/fill", "must be {\"uniform\""},
      {"/arguments/1/fill", "{\"normal\": [0, 1]}", "/arguments/1/fill", "must be {\"uniform\""},
      {"/arguments/1/fill", "{\"uniform\": [0, 1], \"integers\": [0, 1]}", "/arguments/1/fill",
       "must be"},
      {"/arguments/1/fill", "{\"uniform\": [0]}", "/arguments/1/fill/uniform", "two numbers"},
      {"/arguments/1/fill", "{\"uniform\": [0, \"1\"]}", "/arguments/1/fill/uniform",
       "two numbers"},
      {"/arguments/1/fill", "{\"uniform\": 1}", "/arguments/1/fill/uniform", "two numbers"},
      {"/arguments/1/fill", "{\"uniform\": [1, 1]}", "/arguments/1/fill/uniform", "less than"},
      {"/arguments/1/fill", "{\"integers\": [0, 9007199254740993]}", "/arguments/1/fill/integers",
       "2^53"},
      {"/arguments/2/fill", "\"normal\"", "/arguments/2/fill", "int8"},
      {"/arguments/2/fill", NULL, "/arguments/2/fill", "int8"},
      {"/arguments/2/fill", "{\"uniform\": [0, 1]}", "/arguments/2/fill", "int8"},
      {"/arguments/2/fill", "{\"integers\": [0, 128]}", "/arguments/2/fill/integers",
       "-128 to 127"},
      {"/arguments/2/fill", "{\"integers\": [-129, 0]}", "/arguments/2/fill/integers",
       "-128 to 127"},
      {"/arguments/2/fill", "{\"integers\": [1, 0]}", "/arguments/2/fill/integers", "first"},
      {"/arguments/2/fill", "{\"integers\": [0.5, 1]}", "/arguments/2/fill/integers",
       "two integers"},
      {"/arguments/2/fill", "{\"sorted\": [1, 0]}", "/arguments/2/fill/sorted", "low end first"},
      {"/arguments/2/fill", "{\"sorted\": [0, 128]}", "/arguments/2/fill/sorted", "-128 to 127"},
      {"/arguments/2/fill", "{\"ramp\": 1}", "/arguments/2/fill/ramp", "the first and the step"},
      {"/arguments/2/fill", "{\"ramp\": [0, 0.5]}", "/arguments/2/fill/ramp", "integers from"},
      {"/arguments/2/fill", "{\"ramp\": [128, 1]}", "/arguments/2/fill/ramp", "-128 to 127"},
      {"/arguments/2/fill", "{\"permutation\": 0}", "/arguments/2/fill/permutation", "at least 1"},
      {"/arguments/2/fill", "{\"permutation\": 2.0}", "/arguments/2/fill/permutation",
       "at least 1"},
      {"/arguments/2/fill", "{\"permutation\": 129}", "/arguments/2/fill/permutation", "to 127"},
      {"/arguments/2/fill", "{\"constant\": \"1\"}", "/arguments/2/fill/constant", "a number"},
      {"/arguments/2/fill", "{\"constant\": 0.5}", "/arguments/2/fill/constant", "integers from"},
      {"/arguments/2/fill", "{\"constant\": 128}", "/arguments/2/fill/constant", "-128 to 127"},
      {"/arguments/2/fill", "{\"blob\": \"sha256:1\"}", "/arguments/2/fill/blob", "hexadecimal"},
      {"/arguments/2/fill", "{\"blob\": \"" DIGEST_A "\"}", "/arguments/2/fill/blob",
       "only a case"},
  };
  assert_refused(c_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, wrong_references_are_refused) {
  static const struct refusal refusals[] = {
      {"/reference", NULL, "/reference", "missing"},
      {"/reference/source", NULL, "/reference/source", "missing"},
      {"/reference/source/path", "\"../r.c\"", "/reference/source/path", "relative"},
      {"/reference/source/path", "\"fused.c\"", "/reference/source/digest", "another digest"},
      {"/reference/more", "1", "/reference/more", "unknown member"},
      {"/reference/outputs", "{\"y\": \"f\"}", "/reference/outputs", "writes \"mask\""},
      {"/reference/outputs/x", "\"f\"", "/reference/outputs/x", "not a buffer"},
      {"/reference/outputs/rows", "\"f\"", "/reference/outputs/rows", "not a buffer"},
      {"/reference/outputs/none", "\"f\"", "/reference/outputs/none", "not a buffer"},
      {"/reference/outputs/y", "\"f()\"", "/reference/outputs/y", "C identifier"},
      {"/reference/outputs/y", "1", "/reference/outputs/y", "a string"},
      {"/reference/rtol", "-1", "/reference/rtol", "at least 0"},
      {"/reference/atol", "\"0\"", "/reference/atol", "a number"},
      {"/reference/samples", "-1", "/reference/samples", "0 to"},
      {"/flops", "\"rows *\"", "/flops", "column"},
      {"/bytes", "[]", "/bytes", "a string or an integer"},
      {"/exports", "[]", "/exports", "object"},
      {"/exports/vllm-moe", "1", "/exports/vllm-moe", "object"},
      {"/launch", "{\"grid\": [1]}", "/launch", "no launch"},
      {"/arguments", "[]", "/reference/outputs/y", "not a buffer"},
  };
  assert_refused(c_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, a_kernel_in_c_that_writes_nothing_is_refused) {
  cleanup_json json_t *json = manifest_with(c_manifest, "/arguments", "[]");
  json_object_clear(json_object_get(json_object_get(json, "reference"), "outputs"));
  struct kernel *kernel;
  struct error error;
  cr_assert_not(kernel_parse(json, &kernel, &error));
  cr_assert_str_eq(error.pointer, "/arguments");
}

Test(kernel, wrong_launches_are_refused) {
  static const struct refusal refusals[] = {
      {"/launch", NULL, "/launch", "missing"},
      {"/launch/cluster", "[1]", "/launch/cluster", "unknown member"},
      {"/launch/grid", "[]", "/launch/grid", "at least 1"},
      {"/launch/grid", "[1, 1, 1, 1]", "/launch/grid", "at most 3"},
      {"/launch/grid/0", "\"n n\"", "/launch/grid/0", "column"},
      {"/launch/block", NULL, "/launch/block", "missing"},
      {"/launch/shared_bytes", "\"(\"", "/launch/shared_bytes", "column"},
  };
  assert_refused(hip_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, limits_are_enforced) {
  cleanup_json json_t *json = json_of(c_manifest);
  struct error error;
  struct kernel *kernel;
  char name[130];
  memset(name, 'a', sizeof name);
  name[129] = '\0';
  json_object_set_new(json, "name", json_string(name));
  cr_assert_not(kernel_parse(json, &kernel, &error));
  cr_assert_str_eq(error.pointer, "/name");
  json_object_set_new(json, "name", json_string("a"));
  json_t *names = json_array(), *arguments = json_array(), *defines = json_object();
  for (int i = 0; i <= 64; i++) {
    snprintf(name, sizeof name, "k%d", i);
    json_array_append_new(names, json_string(name));
    json_object_set_new(defines, name, json_integer(i));
    json_array_append_new(arguments,
                          json_pack("{s:s, s:s, s:i}", "name", name, "dtype", "int32", "value", i));
  }
  json_object_set_new(json, "defines", defines);
  cr_assert_not(kernel_parse(json, &kernel, &error));
  cr_assert_str_eq(error.pointer, "/defines");
  json_object_set_new(json, "arguments", arguments);
  cr_assert_not(kernel_parse(json, &kernel, &error));
  cr_assert_str_eq(error.pointer, "/arguments");
  json_object_set_new(json, "key", names);
  cr_assert_not(kernel_parse(json, &kernel, &error));
  cr_assert_str_eq(error.pointer, "/key");
}

Test(kernel, an_external_one_is_known_by_name_only) {
  cleanup_kernel struct kernel *kernel = kernel_of(external_manifest);
  cr_assert_str_eq(language_name(kernel->language), "external");
  cr_assert_eq(kernel->n_key_names, 2u);
  cr_assert_null(kernel->entry);
  cr_assert_null(kernel->reference.source.path);
  cr_assert_eq(kernel->n_sources + kernel->n_arguments + kernel->launch.n_grid, 0u);
}

Test(kernel, an_external_one_with_code_or_without_exports_is_refused) {
  static const struct refusal refusals[] = {
      {"/entry", "\"f\"", "/entry", "by name only: unknown member \"entry\""},
      {"/sources", "[]", "/sources", "unknown member"},
      {"/launch", "{}", "/launch", "unknown member"},
      {"/reference", "{}", "/reference", "unknown member"},
      {"/exports", NULL, "/exports", "missing"},
      {"/exports", "{}", "/exports", "at least 1"},
      {"/exports/dejavu", "1", "/exports/dejavu", "must be an object"},
      {"/key", NULL, "/key", "missing"},
      {"/key/0", "\"M N\"", "/key/0", "identifier"},
      {"/colour", "1", "/colour", "colour"},
  };
  assert_refused(external_manifest, refusals, ARRAY_LENGTH(refusals));
}

Test(kernel, every_dtype_has_name_size_and_c_type) {
#define X(name, enumerator, size, c_type)                                                          \
  {                                                                                                \
    enum dtype dtype;                                                                              \
    cr_assert(dtype_parse(name, &dtype));                                                          \
    cr_assert_eq(dtype, enumerator);                                                               \
    cr_assert_str_eq(dtype_name(dtype), name);                                                     \
    cr_assert_str_eq(dtype_c_type(dtype), c_type);                                                 \
    cr_assert_eq(dtype_size(dtype), (size_t)size);                                                 \
  }
  DTYPES(X)
#undef X
  enum dtype dtype;
  cr_assert_not(dtype_parse("float8", &dtype));
}

/* The fill of an input of this dtype. */
static bool takes_fill(const char *dtype, const char *fill) {
  cleanup_json json_t *json = manifest_with(c_manifest, "/arguments/2/fill", fill);
  json_object_set_new(json_array_get(json_object_get(json, "arguments"), 2), "dtype",
                      json_string(dtype));
  cleanup_kernel struct kernel *kernel = NULL;
  struct error error;
  return kernel_parse(json, &kernel, &error);
}

Test(kernel, integer_fills_stay_within_their_dtype) {
  cr_assert(takes_fill("bool", "{\"integers\": [0, 1]}") &&
            !takes_fill("bool", "{\"integers\": [0, 2]}"));
  cr_assert(takes_fill("uint8", "{\"integers\": [0, 255]}") &&
            !takes_fill("uint8", "{\"integers\": [-1, 255]}"));
  cr_assert(takes_fill("uint16", "{\"integers\": [0, 65535]}") &&
            !takes_fill("uint16", "{\"integers\": [0, 65536]}"));
  cr_assert(takes_fill("int32", "{\"integers\": [-2147483648, 2147483647]}"));
  cr_assert_not(takes_fill("int32", "{\"integers\": [0, 2147483648]}"));
  cr_assert(takes_fill("uint32", "{\"integers\": [0, 4294967295]}"));
  cr_assert_not(takes_fill("uint64", "{\"integers\": [-1, 1]}"));
  cr_assert(takes_fill("int64", "{\"integers\": [-9007199254740992, 9007199254740992]}"));
  cr_assert(takes_fill("float16", "\"uniform\"") && takes_fill("int64", "\"index\"") &&
            takes_fill("bool", "\"zeros\""));
}

Test(kernel, fills_of_captured_arguments_are_read) {
  cr_assert(takes_fill("int32", "{\"sorted\": [0, 4096]}"));
  cr_assert(takes_fill("int64", "{\"ramp\": [-5, 3]}"));
  cr_assert(takes_fill("float32", "{\"ramp\": [0.5, -0.25]}"));
  cr_assert(takes_fill("int8", "{\"permutation\": 128}"));
  cr_assert(takes_fill("bool", "{\"constant\": true}"));
  cr_assert(takes_fill("float8_e4m3fn", "{\"constant\": 0.1}"));
  cr_assert_not(takes_fill("bool", "{\"constant\": 2}"));
  cr_assert_not(takes_fill("uint8", "{\"ramp\": [-1, 1]}"));
}

/* A job's parts beside its kernel. */
static bool accepts(const char *manifest, const char *key_text, const char *space_text,
                    struct error *error) {
  cleanup_kernel struct kernel *kernel = kernel_of(manifest);
  cleanup_json json_t *key_json = json_of(key_text), *space_json = json_of(space_text);
  cleanup_key struct key key = {0};
  cleanup_space struct space *space = NULL;
  cr_assert(key_parse(key_json, NULL, 0, &key, error), "%s", error->message);
  cr_assert(space_parse(space_json, &space, error), "%s", error->message);
  return kernel_accepts(kernel, &key, space, error);
}

static void assert_not_accepted(const char *manifest, const char *key, const char *space,
                                const char *pointer, const char *message) {
  struct error error = {0};
  cr_assert_not(accepts(manifest, key, space, &error), "%s and %s were taken", key, space);
  cr_assert_str_eq(error.pointer, pointer, "pointer %s: %s", error.pointer, error.message);
  assert_has(error.message, message);
}

#define C_KEY "{\"rows\": 8, \"columns\": 16}"
#define C_SPACE "{\"parameters\": {\"BLOCK\": [4, 8]}}"

Test(kernel_accepts, a_key_and_a_space_that_fit) {
  struct error error;
  cr_assert(accepts(c_manifest, C_KEY, C_SPACE, &error), "%s", error.message);
  cr_assert(
      accepts(
          hip_manifest, "{\"n\": 8}",
          "{\"parameters\": {\"BLOCK\": [64], \"waves_per_eu\": [0, 2]}, \"roles\": "
          "{\"waves_per_eu\": "
          "\"option\"}, \"conditions\": [\"BLOCK <= n or arch == 'gfx942' or gpu_name == ''\"]}",
          &error),
      "%s", error.message);
}

Test(kernel_accepts, another_key_is_refused_with_the_names_it_must_have) {
  assert_not_accepted(c_manifest, "{\"rows\": 8}", C_SPACE, "/key",
                      "exactly the members rows, columns");
  assert_not_accepted(c_manifest, "{\"rows\": 8, \"n\": 1}", C_SPACE, "/key", "rows, columns");
}

Test(kernel_accepts, a_role_that_the_language_lacks_is_refused) {
  assert_not_accepted(c_manifest, C_KEY,
                      "{\"parameters\": {\"BLOCK\": [4], \"num_warps\": [4]}, \"roles\": "
                      "{\"num_warps\": \"option\"}}",
                      "/space/roles/num_warps", "cannot have");
}

Test(kernel_accepts, a_parameter_named_like_something_else_is_refused) {
  static const struct {
    const char *name, *message;
  } cases[] = {{"rows", "member of the key"}, {"cus", "meaning in expressions"},
               {"warp_size", "meaning in"},   {"COLUMNS", "also a define"},
               {"three", "replace"},          {"softmax_fused", "replace"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_free char *space =
        xasprintf("{\"parameters\": {\"BLOCK\": [4], \"%s\": [1]}}", cases[i].name);
    cleanup_free char *pointer = xasprintf("/space/parameters/%s", cases[i].name);
    assert_not_accepted(c_manifest, C_KEY, space, pointer, cases[i].message);
  }
}

Test(kernel_accepts, an_expression_with_an_unknown_name_is_refused) {
  assert_not_accepted(c_manifest, C_KEY, "{\"parameters\": {\"BLOK\": [4]}}", "/kernel",
                      "define \"TILES\" of kernel \"softmax/fused\": ");
  static const struct {
    const char *pointer, *message;
  } cases[] = {{"/arguments/0/shape/1", "argument \"y\" of"},
               {"/arguments/3/value", "argument \"rows\" of"},
               {"/flops", "\"flops\" of"},
               {"/bytes", "\"bytes\" of"},
               {"/defines/COLUMNS", "define \"COLUMNS\" of"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = manifest_with(c_manifest, cases[i].pointer, "\"cus * 2\"");
    cleanup_free char *text = json_canonical(json);
    assert_not_accepted(text, C_KEY, C_SPACE, "/kernel", cases[i].message);
  }
}

Test(kernel_accepts, launch_expressions_are_bound_too) {
  static const struct {
    const char *pointer, *message;
  } cases[] = {{"/launch/grid/1", "the grid of"},
               {"/launch/block/0", "the block of"},
               {"/launch/shared_bytes", "\"shared_bytes\" of"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = manifest_with(hip_manifest, cases[i].pointer, "\"BLOK\"");
    cleanup_free char *text = json_canonical(json);
    assert_not_accepted(text, "{\"n\": 8}", C_SPACE, "/kernel", cases[i].message);
  }
}

Test(kernel_accepts, a_condition_with_an_unknown_name_is_refused) {
  assert_not_accepted(
      c_manifest, C_KEY,
      "{\"parameters\": {\"BLOCK\": [4]}, \"conditions\": [\"BLOCK > 1\", \"cus > 1\"]}",
      "/space/conditions/1", "cus");
}

Test(kernel_accepts, an_external_kernel_accepts_no_space) {
  assert_not_accepted(external_manifest, "{\"n\": 8, \"dtype\": \"fp16\"}",
                      "{\"parameters\": {\"BLOCK\": [4]}}", "/kernel", "known by name only");
}

static bool elements_of(const char *first, const char *second, int64_t *ret, struct error *error) {
  char *shape[2];
  struct argument argument = {
      .name = (char[]){"x"}, .is_buffer = true, .n_dimensions = 2, .shape = shape};
  cleanup_free char *one = xstrdup(first), *two = xstrdup(second);
  struct scope scope = {0};
  cr_assert(scope_add(&scope, "n", value_int(1 << 20), error));
  argument.shape[0] = one;
  argument.shape[1] = two;
  return argument_elements(&argument, &scope, ret, error);
}

Test(argument_elements, are_the_product_of_the_extents) {
  int64_t elements = 0;
  struct error error;
  cr_assert(elements_of("n // 2", "3", &elements, &error), "%s", error.message);
  cr_assert_eq(elements, 3 << 19);
  cr_assert(elements_of("n", "n", &elements, &error));
  cr_assert_eq(elements, (int64_t)1 << 40);
}

Test(argument_elements, over_the_limit_are_refused) {
  int64_t elements;
  struct error error;
  cr_assert_not(elements_of("n", "n + 1", &elements, &error));
  assert_has(error.message, "2^40");
}

Test(argument_elements, an_extent_below_one_is_refused) {
  int64_t elements;
  struct error error;
  cr_assert_not(elements_of("n", "n - n", &elements, &error));
  assert_has(error.message, "extent 1 of argument \"x\", n - n: ");
}

static bool is_plain(const char *manifest, const char *space_text, struct error *error) {
  cleanup_kernel struct kernel *kernel = kernel_of(manifest);
  cleanup_json json_t *json = json_of(space_text);
  cleanup_space struct space *space = NULL;
  cr_assert(space_parse(json, &space, error), "%s", error->message);
  return kernel_space_is_plain(kernel, space, error);
}

Test(kernel_space_is_plain, names_in_capitals_rename_nothing) {
  static const char *const wrong[] = {"exp", "return", "Block", "_BLOCK", "__GNUC__"};
  struct error error = {0};
  cr_expect(is_plain(c_manifest, "{\"parameters\": {\"BLOCK_M2\": [4]}}", &error), "%s",
            error.message);
  cr_expect(
      is_plain(
          hip_manifest,
          "{\"parameters\": {\"waves_per_eu\": [1]}, \"roles\": {\"waves_per_eu\": \"option\"}}",
          &error),
      "an option becomes a definition in capitals: %s", error.message);
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    cleanup_free char *space = xasprintf("{\"parameters\": {\"%s\": [\"system\"]}}", wrong[i]);
    cleanup_free char *pointer = xasprintf("/space/parameters/%s", wrong[i]);
    cr_expect_not(is_plain(c_manifest, space, &error), "%s", space);
    cr_expect_str_eq(error.pointer, pointer);
    assert_has(error.message, "in capitals");
  }
}

Test(kernel_space_is_plain, parameters_of_role_env_are_refused) {
  struct error error = {0};
  cr_expect_not(is_plain(
      hip_manifest, "{\"parameters\": {\"FLAGS\": [1]}, \"roles\": {\"FLAGS\": \"env\"}}", &error));
  assert_has(error.message, "role env");
}

Test(kernel_space_is_plain, a_builds_configs_are_no_definitions) {
  struct error error = {0};
  cleanup_json json_t *manifest = json_of(hip_manifest);
  json_object_set_new(manifest, "language", json_string("triton"));
  cleanup_free char *text = json_dumps(manifest, 0);
  cr_expect(is_plain(text, "{\"parameters\": {\"block\": [1]}}", &error), "%s", error.message);
}
