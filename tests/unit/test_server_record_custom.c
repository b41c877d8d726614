/* Fields of a custom type, answers of newer servers, and digests of zeros. */
#include <criterion/criterion.h>

#include "common/record/record.h"
#include "server/db/db_record.h"

/* An even number, as {"half": N}; 0 is absent. */
static bool even_is_absent(const void *at) { return *(const int64_t *)at == 0; }
static bool even_read(const json_t *value, void *to, struct error *error) {
  int64_t half;
  if (!json_get_integer(value, "", "half", JSON_REQUIRED, 1, 100, &half, error))
    return false;
  *(int64_t *)to = 2 * half;
  return true;
}
static json_t *even_write(const void *at) {
  return json_pack("{s:I}", "half", (json_int_t)(*(const int64_t *)at / 2));
}
static const struct field_custom even = {.schema = "{\"type\": \"object\"}",
                                         .is_absent = even_is_absent,
                                         .read = even_read,
                                         .write = even_write};

struct inner {
  char *name;
};
static const struct field inner_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct inner, name), FIELD_REQUIRED},
};
static const struct record inner_record = RECORD(NULL, struct inner, inner_fields);

struct outer {
  int64_t even, twice;
  char *by;
  struct inner inner;
};
static const struct field outer_fields[] = {
    {"even", FIELD_CUSTOM, offsetof(struct outer, even), FIELD_REQUIRED, .custom = &even},
    {"twice", FIELD_CUSTOM, offsetof(struct outer, twice), FIELD_OMITTED, .custom = &even},
    {"by", FIELD_TEXT, offsetof(struct outer, by), FIELD_ANSWER | FIELD_OMITTED},
    {"inner", FIELD_RECORD, offsetof(struct outer, inner), FIELD_OMITTED | FIELD_NO_COLUMN,
     .of = &inner_record},
};
static const struct record outer_record = RECORD(NULL, struct outer, outer_fields);

static struct error error;

static bool outer_read(const char *text, bool is_answer, struct outer *ret) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  record_init(&outer_record, ret);
  return is_answer ? record_read_answer(&outer_record, json, "/at", ret, &error)
                   : record_read(&outer_record, json, "/at", ret, &error);
}

static void expect_refused(const char *text, bool is_answer, const char *pointer) {
  struct outer outer;
  cr_expect_not(outer_read(text, is_answer, &outer), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s", text, error.pointer);
  record_release(&outer_record, &outer);
}

Test(custom_field, is_read_and_written_by_its_type) {
  struct outer outer;
  cr_assert(outer_read("{\"even\": {\"half\": 21}}", false, &outer), "%s", error.message);
  cr_expect_eq(outer.even, 42);
  cleanup_json json_t *json = record_write(&outer_record, &outer);
  cleanup_free char *text = json_canonical(json);
  cr_expect_str_eq(text, "{\"even\":{\"half\":21}}");
}

Test(custom_field, is_refused_when_missing_null_or_wrong) {
  expect_refused("{}", false, "/at/even");
  expect_refused("{\"even\": null}", false, "/at/even");
  expect_refused("{\"even\": {\"half\": 0}}", false, "/at/even/half");
}

Test(custom_field, is_bound_as_json_and_as_null_when_absent) {
  struct outer outer = {.even = 4};
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &outer_record, &outer);
  cr_assert_eq(parameters.n, 3);
  cr_expect_str_eq(parameters.all[0].value, "{\"half\":2}");
  cr_expect_null(parameters.all[1].value);
}

Test(custom_field, has_the_schema_of_its_type) {
  cleanup_json json_t *schema = record_schema(&outer_record);
  const json_t *member = json_object_get(json_object_get(schema, "properties"), "even");
  cr_expect_str_eq(json_string_value(json_object_get(member, "type")), "object");
}

Test(answer, has_members_that_requests_may_not_have) {
  struct outer outer;
  const char *text = "{\"even\": {\"half\": 1}, \"by\": \"ci\", \"later\": 1, \"inner\": "
                     "{\"name\": \"a\", \"more\": 2}}";
  cr_assert(outer_read(text, true, &outer), "%s", error.message);
  cr_expect_str_eq(outer.by, "ci");
  cr_expect_str_eq(outer.inner.name, "a");
  record_release(&outer_record, &outer);
  expect_refused("{\"even\": {\"half\": 1}, \"by\": \"ci\"}", false, "/at/by");
  expect_refused("{\"even\": {\"half\": 1}, \"inner\": {\"name\": \"a\", \"more\": 2}}", false,
                 "/at/inner/more");
}

Test(answer, is_refused_when_not_an_object_or_without_a_required_member) {
  expect_refused("[]", true, "/at");
  expect_refused("{\"by\": \"ci\"}", true, "/at/even");
  expect_refused("{\"even\": {\"half\": 1}, \"inner\": {}}", true, "/at/inner/name");
}

struct named {
  struct digest required, optional;
};
static const struct field named_fields[] = {
    {"required", FIELD_DIGEST, offsetof(struct named, required), FIELD_REQUIRED},
    {"optional", FIELD_DIGEST, offsetof(struct named, optional)},
};
static const struct record named_record = RECORD(NULL, struct named, named_fields);

Test(digest_field, of_zeros_is_a_value_when_required) {
  const struct named zeros = {0};
  char text[DIGEST_TEXT_SIZE];
  cleanup_json json_t *json = record_write(&named_record, &zeros);
  cr_expect_str_eq(json_string_value(json_object_get(json, "required")),
                   digest_format(&zeros.required, text));
  cr_expect(json_is_null(json_object_get(json, "optional")));
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &named_record, &zeros);
  cr_expect(string_starts(parameters.all[0].value, "\\x00"));
  cr_expect_null(parameters.all[1].value);
}
