/* Identities of images: what is read, every refusal, and which function an image means. */
#include <criterion/criterion.h>

#include "common/cache/identity.h"

#define KERNEL "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const char whole[] =
    "{\"version\": 1, \"triton\": {\"version\": \"3.6.0\", \"key\": \"3.6.0abc\", "
    "\"backend_hash\": \"b\"},"
    " \"torch\": \"2.9.0\", \"gpu\": \"AMD Instinct MI250X/MI250\", \"devices\": 8,"
    " \"variables\": {\"TRITON_F32_DEFAULT\": \"ieee\"},"
    " \"dejavu\": {\"layout\": \"dejavu_0.7\", \"triton\": \"3.3.1\", \"runtime\": \"rocm_6.4.1\", "
    "\"gpu\": \"AMD_X\"},"
    " \"tunableop\": {\"validators\": [[\"PT_VERSION\", \"2.9.1\"], [\"GCN_ARCH_NAME\", "
    "\"gfx942:xnack-\"]]},"
    " \"moe_device_name\": \"AMD_Instinct_MI300X\", \"later\": [],"
    " \"functions\": [{\"name\": \"by/name\", \"function\": {\"name\": \"f\"}},"
    "                 {\"kernel\": \"" KERNEL "\", \"function\": {\"name\": \"g\"}},"
    "                 {\"name\": \"other\", \"function\": {\"name\": \"h\", \"source_sha256\": "
    "\"5a\"}}]}";

static bool parse(const char *text, struct identity **ret, struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s in %s", error->message, text);
  return identity_parse(json, ret, error);
}

static struct identity *identity_of(const char *text) {
  struct identity *identity = NULL;
  struct error error;
  cr_assert(parse(text, &identity, &error), "%s: %s", error.pointer, error.message);
  return identity;
}

Test(identity, is_read_whole) {
  cleanup_identity struct identity *identity = identity_of(whole);
  cr_assert_str_eq(identity->triton_version, "3.6.0");
  cr_assert_str_eq(identity->triton_key, "3.6.0abc");
  cr_assert_str_eq(identity->backend_hash, "b");
  cr_assert_str_eq(identity->torch, "2.9.0");
  cr_assert_str_eq(identity->gpu, "AMD Instinct MI250X/MI250");
  cr_assert_eq(identity->devices, 8);
  cr_assert_str_eq(json_string_value(json_object_get(identity->variables, "TRITON_F32_DEFAULT")),
                   "ieee");
  cr_assert_str_eq(identity->dejavu_runtime, "rocm_6.4.1");
  cr_assert_eq(json_array_size(identity->validators), 2u);
  cr_assert_str_eq(identity->moe_device_name, "AMD_Instinct_MI300X");
  cr_assert_eq(identity->n_functions, 3u);
}

Test(identity, of_an_image_with_none_of_the_tools_is_empty) {
  cleanup_identity struct identity *identity = identity_of(
      "{\"version\": 1, \"triton\": null, \"torch\": null, \"gpu\": null, \"devices\": null, "
      "\"dejavu\": null,"
      " \"tunableop\": null, \"moe_device_name\": null, \"variables\": {}, \"functions\": []}");
  cr_assert_null(identity->triton_version);
  cr_assert_null(identity->dejavu_layout);
  cr_assert_null(identity->validators);
  cr_assert_eq(identity->devices, 0);
}

Test(identity, finds_a_function_by_kernel_then_by_name_then_by_its_text) {
  cleanup_identity struct identity *identity = identity_of(whole);
  struct digest kernel, unknown = {{1}};
  struct function_record packed = {.function = (char *)"h", .source_sha256 = (char *)"5a"};
  struct function_record other_name = {.function = (char *)"i", .source_sha256 = (char *)"5a"};
  struct function_record no_text = {.function = (char *)"f"};
  cr_assert(digest_parse(KERNEL, &kernel));
  cr_assert_str_eq(identity_function(identity, &kernel, "by/name", &packed)->function, "g");
  cr_assert_str_eq(identity_function(identity, &unknown, "by/name", &packed)->function, "f");
  cr_assert_str_eq(identity_function(identity, &unknown, "none", &packed)->function, "h");
  cr_assert_null(identity_function(identity, &unknown, "none", &other_name));
  cr_assert_null(identity_function(identity, &unknown, "none", &no_text),
                 "two that state no text are not the same");
  cr_assert_null(identity_function(identity, &unknown, "none", NULL));
  cr_assert_null(identity_function(NULL, &kernel, "by/name", &packed));
}

static void check_refused(const char *members, const char *pointer, const char *message) {
  cleanup_free char *text = xasprintf("{\"version\": 1, %s}", members);
  struct identity *identity = NULL;
  struct error error;
  cr_assert(!parse(text, &identity, &error), "taken: %s", text);
  cr_assert_str_eq(error.pointer, pointer, "%s has pointer %s", text, error.pointer);
  cr_assert_not_null(strstr(error.message, message), "%s says: %s", text, error.message);
}

Test(identity, of_another_version_is_refused) {
  struct identity *identity = NULL;
  struct error error;
  cr_assert(!parse("{\"version\": 2}", &identity, &error));
  cr_assert_str_eq(error.pointer, "/version");
  cr_assert(!parse("{}", &identity, &error));
  cr_assert(!parse("[]", &identity, &error));
  cr_assert_not_null(strstr(error.message, "must be an object"), "%s", error.message);
}

Test(identity, whose_texts_would_leave_their_folder_is_refused) {
  check_refused("\"triton\": {\"version\": \"3/6\"}", "/triton/version", "no '/'");
  check_refused("\"torch\": \"..\"", "/torch", "not be \".\"");
  check_refused("\"moe_device_name\": \"a/b\"", "/moe_device_name", "no '/'");
  check_refused(
      "\"dejavu\": {\"layout\": \"..\", \"triton\": \"3\", \"runtime\": \"r\", \"gpu\": \"g\"}",
      "/dejavu/layout", "not be \".\"");
  check_refused(
      "\"dejavu\": {\"layout\": \"l\", \"triton\": \"3\", \"runtime\": \"r\", \"gpu\": \"a/b\"}",
      "/dejavu/gpu", "no '/'");
}

Test(identity, whose_members_are_of_another_type_is_refused) {
  check_refused("\"triton\": {}", "/triton/version", "missing");
  check_refused("\"dejavu\": {\"layout\": \"l\"}", "/dejavu/triton", "missing");
  check_refused("\"gpu\": 1", "/gpu", "must be a string");
  check_refused("\"devices\": -1", "/devices", "");
  check_refused("\"variables\": {\"A\": 1}", "/variables/A", "must be a string");
  check_refused("\"variables\": []", "/variables", "must be an object");
  check_refused("\"triton\": 1", "/triton", "must be an object");
  check_refused("\"dejavu\": 1", "/dejavu", "must be an object");
  check_refused("\"tunableop\": 1", "/tunableop", "must be an object");
}

Test(identity, whose_validators_are_no_lines_of_a_csv_is_refused) {
  check_refused("\"tunableop\": {}", "/tunableop/validators", "missing");
  check_refused("\"tunableop\": {\"validators\": []}", "/tunableop/validators", "1 to 64");
  check_refused("\"tunableop\": {\"validators\": [[\"A\"]]}", "/tunableop/validators/0",
                "pair of texts");
  check_refused("\"tunableop\": {\"validators\": [[\"A\", \"1,2\"]]}", "/tunableop/validators/0",
                "pair of texts");
  check_refused("\"tunableop\": {\"validators\": [[\"A\", \"1\\n\"]]}", "/tunableop/validators/0",
                "pair of texts");
  check_refused("\"tunableop\": {\"validators\": [[\"A\", 1]]}", "/tunableop/validators/0",
                "pair of texts");
}

Test(identity, whose_functions_are_refused_says_which) {
  check_refused("\"functions\": {}", "/functions", "must be an array");
  check_refused(
      "\"functions\": [{\"name\": \"a\", \"function\": {\"name\": \"f\"}}, {\"name\": \"b\"}]",
      "/functions/1/function", "missing");
}

Test(identity, with_too_many_functions_is_refused) {
  cleanup_json json_t *json = json_pack("{s:i, s:[]}", "version", 1, "functions");
  for (int i = 0; i < 65537; i++)
    ALWAYS(json_array_append_new(json_object_get(json, "functions"), json_null()) == 0);
  struct identity *identity = NULL;
  struct error error;
  cr_assert(!identity_parse(json, &identity, &error));
  cr_assert(strstr(error.message, "at most 65536 functions"), "%s", error.message);
}
