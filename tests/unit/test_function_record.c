/* Function records: what is read, and what is refused where it would become a part of a path. */
#include <criterion/criterion.h>

#include "common/builds/function_record.h"

#define KERNEL "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static const char whole[] =
    "{\"kernel\": \"" KERNEL "\", \"name\": \"add/triton\","
    " \"triton\": {\"version\": \"3.6.0\", \"key\": \"3.6.0abc\", \"backend_hash\": "
    "\"GPUTarget(…)\"},"
    " \"function\": {\"module\": \"m\", \"name\": \"add\", \"qualname\": \"add\", \"signature\": "
    "\"JITFunction(m:add)\","
    "                \"cache_key\": \"cc\", \"source_sha256\": \"dd\"},"
    " \"key_names\": [\"n\", \"k\"], \"tuning_key\": [\"N\", \"K\"], \"argument_dtypes\": "
    "[\"torch.float16\"],"
    " \"configs\": [\"BLOCK: 1, num_warps: 4\", \"BLOCK: 2, num_warps: 4\"], \"autotune\": "
    "{\"rep\": 100},"
    " \"dejavu\": {\"layout\": \"dejavu_0.7\", \"code_version\": \"" HEX "\"}, \"later\": 1}";

static bool parse(const char *text, struct function_record *ret, struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s in %s", error->message, text);
  return function_record_parse(json, ret, error);
}

Test(function_record, is_read_whole) {
  struct function_record record;
  struct error error;
  cr_assert(parse(whole, &record, &error), "%s: %s", error.pointer, error.message);
  cr_assert(record.has_kernel);
  cr_assert_str_eq(record.name, "add/triton");
  cr_assert_str_eq(record.triton_version, "3.6.0");
  cr_assert_str_eq(record.triton_key, "3.6.0abc");
  cr_assert_str_eq(record.function, "add");
  cr_assert_str_eq(record.cache_key, "cc");
  cr_assert_eq(record.n_key_names, 2u);
  cr_assert_str_eq(record.key_names[1], "k");
  cr_assert_str_eq(record.tuning_key[1], "K");
  cr_assert_eq(record.n_dtypes, 1u);
  cr_assert_eq(record.n_configs, 2u);
  cr_assert_str_eq(record.configs[1], "BLOCK: 2, num_warps: 4");
  cr_assert_not_null(record.autotune);
  cr_assert_not_null(record.dejavu);
  function_record_release(&record);
}

Test(function_record, needs_only_a_function_and_the_kernel_or_its_name) {
  struct function_record record;
  struct error error;
  cr_assert(parse("{\"name\": \"add\", \"triton\": null, \"function\": {\"name\": \"f\"}}", &record,
                  &error));
  cr_assert(!record.has_kernel);
  cr_assert_null(record.triton_key);
  cr_assert_eq(record.n_configs, 0u);
  function_record_release(&record);
  cr_assert(
      parse("{\"kernel\": \"" KERNEL "\", \"function\": {\"name\": \"f\"}}", &record, &error));
  cr_assert_null(record.name);
  function_record_release(&record);
}

static void check_refused(const char *text, const char *pointer, const char *message) {
  struct function_record record;
  struct error error;
  cr_assert(!parse(text, &record, &error), "taken: %s", text);
  cr_assert_str_eq(error.pointer, pointer, "%s has pointer %s", text, error.pointer);
  cr_assert_not_null(strstr(error.message, message), "%s says: %s", text, error.message);
}

#define WITH(members) "{\"name\": \"a\", \"function\": {\"name\": \"f\"}, " members "}"
#define FUNCTION(members) "{\"name\": \"a\", \"function\": {" members "}}"

Test(function_record, of_no_kernel_is_refused) {
  check_refused("[]", "", "must be an object");
  check_refused("{\"function\": {\"name\": \"f\"}}", "", "\"kernel\", \"name\" or both");
  check_refused("{\"name\": \"a\", \"kernel\": 1, \"function\": {\"name\": \"f\"}}", "/kernel",
                "must be a string");
  check_refused("{\"name\": \"a\"}", "/function", "missing");
}

Test(function_record, whose_names_would_leave_their_folder_is_refused) {
  check_refused(FUNCTION("\"name\": \"../f\""), "/function/name", "must hold no '/'");
  check_refused(FUNCTION("\"name\": \"..\""), "/function/name", "not be \".\"");
  check_refused(FUNCTION("\"name\": \"\""), "/function/name", "1 to 200 bytes");
  check_refused(FUNCTION("\"name\": \"f\", \"qualname\": \"a/f\""), "/function/qualname",
                "must hold no '/'");
  check_refused(WITH("\"triton\": {\"version\": \".\"}"), "/triton/version", "not be \".\"");
  check_refused(WITH("\"dejavu\": {\"layout\": \"a/b\"}"), "/dejavu/layout", "must hold no '/'");
  check_refused(WITH("\"dejavu\": {\"kernel_configs\": \"../../x\"}"), "/dejavu/kernel_configs",
                "hexadecimal");
}

Test(function_record, whose_lists_do_not_fit_is_refused) {
  check_refused(WITH("\"key_names\": [\"n\"]"), "/tuning_key",
                "has 0 elements and \"key_names\" 1");
  check_refused(WITH("\"key_names\": [\"n\"], \"tuning_key\": [1]"), "/tuning_key/0",
                "hold strings");
  check_refused(WITH("\"key_names\": [\"n\", \"\"], \"tuning_key\": [\"n\", \"m\"]"),
                "/key_names/1", "1 to");
  check_refused(WITH("\"configs\": {}"), "/configs", "must be an array");
  check_refused(WITH("\"configs\": [\"a: 1\", null]"), "/configs/1", "hold strings");
  check_refused(WITH("\"triton\": 1"), "/triton", "must be an object");
  check_refused(WITH("\"dejavu\": {\"code_version\": 1}"), "/dejavu/code_version",
                "must be a string");
  check_refused(WITH("\"autotune\": []"), "/autotune", "must be an object");
  check_refused(WITH("\"dejavu\": 1"), "/dejavu", "must be an object");
}

Test(function_record, with_more_dtypes_than_a_function_has_arguments_is_refused) {
  cleanup_json json_t *json =
      json_pack("{s:s, s:{s:s}, s:[]}", "name", "a", "function", "name", "f", "argument_dtypes");
  struct function_record record;
  struct error error;
  for (int i = 0; i < 257; i++)
    ALWAYS(json_array_append_new(json_object_get(json, "argument_dtypes"),
                                 json_string("torch.float16")) == 0);
  cr_assert(!function_record_parse(json, &record, &error));
  cr_assert_not_null(strstr(error.message, "at most 256"), "%s", error.message);
}
