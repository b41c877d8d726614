/* Records: every type of field from JSON and back, what is refused and where, and the schema. */
#include "tests/every_type.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>

static json_t *json_of(const char *text) {
  json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s: %s", text, error.message);
  return json;
}

static void reads(const char *text, struct every *ret) {
  cleanup_json json_t *json = json_of(text);
  struct error error = {0};
  record_init(&every_record, ret);
  cr_assert(record_read(&every_record, json, "", ret, &error), "%s: %s", text, error.message);
}

static void refuses(const char *text, const char *pointer, const char *word) {
  cleanup_json json_t *json = json_of(text);
  struct every every;
  struct error error = {0};
  record_init(&every_record, &every);
  cr_expect_not(record_read(&every_record, json, "/at", &every, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s: %s", text, error.message);
  cr_expect_not_null(strstr(error.message, word), "%s: %s", text, error.message);
  record_release(&every_record, &every);
}

Test(record, every_type_is_read_and_written_again) {
  cleanup_json json_t *json = json_of(EVERY_JSON);
  struct every every;
  reads(EVERY_JSON, &every);

  cr_expect(every.flag);
  cr_expect_eq(every.count, -5);
  cr_expect_eq(every.id, INT64_C(9007199254740993), "ids are not doubles");
  cr_expect_eq(every.color, COLOR_GREEN);
  cr_expect_eq(every.digest.bytes[31], 0xff);
  cr_expect_eq(every.numbers.n, 3);
  cr_expect_eq(every.numbers.all[2], 203.125);
  cr_expect_str_eq(every.texts.all[2], "a,\"b\\");
  cr_expect_eq(config_ranges_count(&every.ranges), 70);
  cr_expect_eq(every.part.x, 3);
  cr_expect_eq(((struct part *)every.parts.all)[1].x, 9);

  cleanup_json json_t *written = record_write(&every_record, &every);
  cr_expect(json_equal(written, json));
  const char *first = json_object_iter_key(json_object_iter(written));
  cr_expect_str_eq(first, "flag", "members have the order of the fields");
  record_release(&every_record, &every);
}

Test(record, absent_fields_are_null_or_left_out) {
  struct every every;
  reads("{}", &every);
  cr_expect_eq(every.count, FIELD_NONE);
  cr_expect(isnan(every.number));
  cr_expect_eq((int)every.color, -1);
  for (size_t i = 0; i < every_record.n; i++) {
    const struct field *field = &every_fields[i];
    bool has_none = field->type == FIELD_BOOL || field->type == FIELD_RANGES;
    cr_expect_eq(field_is_absent(field, field_at(field, &every)), !has_none, "%s", field->name);
  }

  cleanup_json json_t *written = record_write(&every_record, &every);
  cr_expect_null(json_object_get(written, "json"), "FIELD_OMITTED");
  cr_expect(json_is_null(json_object_get(written, "text")));
  cr_expect(json_is_null(json_object_get(written, "part")),
            "a record is absent when all its fields are");
  cr_expect(json_is_false(json_object_get(written, "flag")));
  cr_expect_eq(json_array_size(json_object_get(written, "ranges")), 0);

  struct every again;
  json_object_del(written, "count"); /* which may be left out, and not be null */
  cleanup_free char *text = json_canonical(written);
  reads(text, &again);
  cr_expect_null(again.text);
  record_release(&every_record, &again);
  record_release(&every_record, &every);
}

Test(record, fields_that_json_lacks_keep_their_defaults) {
  cleanup_json json_t *json = json_of("{\"flag\": true}");
  struct every every;
  struct error error;
  record_init(&every_record, &every);
  every.count = 7;
  cr_assert(record_read(&every_record, json, "", &every, &error));
  cr_expect_eq(every.count, 7);
  cr_expect(every.flag);
}

Test(record, a_second_reading_frees_the_first_values) {
  struct every every;
  cleanup_json json_t *json = json_of(EVERY_JSON);
  struct error error;
  reads(EVERY_JSON, &every);
  cr_assert(record_read(&every_record, json, "", &every,
                        &error)); /* the address sanitizer looks for leaks */
  record_release(&every_record, &every);
  cr_expect_null(every.text);
  record_release(&every_record, &every);
}

Test(record, errors_have_the_pointer_of_the_member) {
  refuses("[]", "/at", "object");
  refuses("{\"other\": 1}", "/at/other", "other");
  refuses("{\"flag\": 1}", "/at/flag", "flag");
  refuses("{\"count\": null}", "/at/count", "null");
  refuses("{\"count\": 1.5}", "/at/count", "count");
  refuses("{\"count\": -6}", "/at/count", "-5");
  refuses("{\"count\": 1001}", "/at/count", "1000");
  refuses("{\"id\": 5}", "/at/id", "id");
  refuses("{\"id\": \"\"}", "/at/id", "decimal");
  refuses("{\"id\": \"12x\"}", "/at/id", "decimal");
  refuses("{\"id\": \"1234567890123456789\"}", "/at/id", "decimal");
  refuses("{\"number\": 0.4}", "/at/number", "0.5");
  refuses("{\"number\": 1000001}", "/at/number", "number");
  refuses("{\"text\": \"\"}", "/at/text", "at least 1");
  refuses("{\"text\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", "/at/text", "40");
  refuses("{\"color\": \"blue\"}", "/at/color", "red, green");
  refuses("{\"digest\": \"sha256:ab\"}", "/at/digest", "digest");
  refuses("{\"numbers\": [1, 2, 3, 4, 5]}", "/at/numbers", "most 4");
  refuses("{\"numbers\": [1, \"2\"]}", "/at/numbers/1", "number");
  refuses("{\"numbers\": [-1.5]}", "/at/numbers/0", "-1");
  refuses("{\"texts\": [\"a\", 7]}", "/at/texts/1", "string");
  refuses("{\"ranges\": [[5, 1], [0, 1]]}", "/at/ranges/1", "");
  refuses("{\"part\": {}}", "/at/part/x", "missing");
  refuses("{\"part\": {\"x\": 0}}", "/at/part/x", "1");
  refuses("{\"parts\": []}", "/at/parts", "at least 1");
  refuses("{\"parts\": [{\"x\": 1}, {\"x\": 2, \"y\": 3}]}", "/at/parts/1/y", "y");
}

Test(record, json_of_too_many_bytes_is_refused) {
  refuses("{\"json\": "
          "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
          "xxxxxxx"
          "xxxxxxxxx\"}",
          "/at/json", "100");
}

struct directed {
  int64_t both, answer, request, hidden;
};
static const struct field directed_fields[] = {
    {"both", FIELD_INTEGER, offsetof(struct directed, both), FIELD_REQUIRED},
    {"answer", FIELD_INTEGER, offsetof(struct directed, answer), FIELD_ANSWER},
    {"request", FIELD_INTEGER, offsetof(struct directed, request), FIELD_REQUEST},
    {"hidden", FIELD_INTEGER, offsetof(struct directed, hidden), FIELD_NO_JSON},
};
static const struct record directed_record = RECORD("Directed", struct directed, directed_fields);

Test(record, answers_are_not_read_and_requests_are_not_written) {
  static const char *const refused[] = {"{\"both\": 1, \"answer\": 2}",
                                        "{\"both\": 1, \"hidden\": 2}"};
  struct directed directed;
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
    cleanup_json json_t *json = json_of(refused[i]);
    record_init(&directed_record, &directed);
    cr_expect_not(record_read(&directed_record, json, "", &directed, &error), "%s", refused[i]);
  }

  directed = (struct directed){1, 2, 3, 4};
  cleanup_json json_t *written = record_write(&directed_record, &directed);
  cleanup_free char *text = json_canonical(written);
  cr_expect_str_eq(text, "{\"answer\":2,\"both\":1}");
}

struct omitting {
  bool flag;
  struct numbers numbers;
};
static const struct field omitting_fields[] = {
    {"flag", FIELD_BOOL, offsetof(struct omitting, flag), FIELD_OMITTED},
    {"numbers", FIELD_NUMBERS, offsetof(struct omitting, numbers), FIELD_OMITTED},
};
static const struct record omitting_record = RECORD(NULL, struct omitting, omitting_fields);

Test(record, an_omitted_bool_is_left_out_when_false) {
  double none[1];
  struct omitting omitting = {.numbers = {0, none}};
  cleanup_json json_t *without = record_write(&omitting_record, &omitting);
  cleanup_free char *text = json_canonical(without);
  cr_expect_str_eq(text, "{\"numbers\":[]}", "an empty list is there");

  omitting.flag = true;
  cleanup_json json_t *with = record_write(&omitting_record, &omitting);
  cr_expect(json_is_true(json_object_get(with, "flag")));
}

static const json_t *property(const json_t *schema, const char *name) {
  return json_object_get(json_object_get(schema, "properties"), name);
}

static void schema_is(const json_t *schema, const char *name, const char *expected) {
  cleanup_json json_t *json = json_of(expected);
  cleanup_free char *text = json_canonical(property(schema, name));
  cr_expect(json_equal(property(schema, name), json), "%s: %s", name, text);
}

Test(record, the_schema_states_types_limits_and_nullable_fields) {
  cleanup_json json_t *schema = record_schema(&every_record);
  cr_expect_eq(json_object_size(json_object_get(schema, "properties")), every_record.n);
  cr_expect_null(json_object_get(schema, "required"));
  cr_expect(json_is_false(json_object_get(schema, "additionalProperties")));
  schema_is(schema, "flag", "{\"type\": \"boolean\"}");
  schema_is(schema, "count", "{\"type\": \"integer\", \"minimum\": -5, \"maximum\": 1000}");
  schema_is(schema, "number",
            "{\"type\": [\"number\", \"null\"], \"minimum\": 0.5, \"maximum\": 1e6}");
  schema_is(schema, "text",
            "{\"type\": [\"string\", \"null\"], \"minLength\": 1, \"maxLength\": 40}");
  schema_is(schema, "color",
            "{\"anyOf\": [{\"type\": \"string\", \"enum\": [\"red\", \"green\"]}, {\"type\": "
            "\"null\"}]}");
  schema_is(schema, "digest",
            "{\"anyOf\": [{\"$ref\": \"#/components/schemas/Digest\"}, {\"type\": \"null\"}]}");
  schema_is(schema, "json", "{}");
  schema_is(
      schema, "texts",
      "{\"type\": [\"array\", \"null\"], \"items\": {\"type\": \"string\"}, \"maxItems\": 3}");
  cr_expect_not_null(property(property(schema, "part"), "x"),
                     "a record without a name is described where it is used");
}

Test(record, the_schema_of_an_answer_requires_the_fields_that_it_always_has) {
  cleanup_json json_t *schema = record_schema(&directed_record);
  cleanup_json json_t *required = json_of("[\"both\", \"answer\"]");
  cr_expect(json_equal(json_object_get(schema, "required"), required));
  cr_expect_null(property(schema, "hidden"));
}

struct note {
  char *reason, *device;
};
static const struct field note_fields[] = {
    {"reason", FIELD_TEXT, offsetof(struct note, reason), FIELD_STATED},
    {"device", FIELD_TEXT, offsetof(struct note, device), FIELD_LINE},
};
static const struct record note_record = RECORD(NULL, struct note, note_fields);

static bool note_reads(const char *text, struct error *error) {
  cleanup_json json_t *json = json_of(text);
  struct note note;
  record_init(&note_record, &note);
  bool ok = record_read(&note_record, json, "", &note, error);
  record_release(&note_record, &note);
  return ok;
}

Test(record, a_stated_field_may_be_null) {
  struct error error;
  cr_expect(note_reads("{\"reason\": null}", &error));
  cr_expect(note_reads("{\"reason\": \"two\\nlines\"}", &error));
  cr_expect_not(note_reads("{}", &error));
  cr_expect_str_eq(error.pointer, "/reason");

  cleanup_json json_t *schema = record_schema(&note_record), *required = json_of("[\"reason\"]");
  cr_expect(json_equal(json_object_get(schema, "required"), required));
}

Test(record, a_line_has_no_control_characters) {
  struct error error;
  cr_expect(note_reads("{\"reason\": null, \"device\": \"GPU 0 \\u00b5\"}", &error));
  cr_expect_not(note_reads("{\"reason\": null, \"device\": \"a\\u001fb\"}", &error));
  cr_expect_str_eq(error.pointer, "/device");
  cr_expect_not(note_reads("{\"reason\": null, \"device\": \"a\\u007f\"}", &error));
}

struct extent {
  char *name, *value;
};
static bool name_check(const char *text, struct error *error) {
  return text[0] != '_' || error_set(error, "\"%s\" begins with an underscore", text);
}
static const struct field extent_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct extent, name), .most = 8, .check = name_check},
    {"value", FIELD_TEXT, offsetof(struct extent, value), FIELD_NOT_NULL | FIELD_OR_INTEGER},
};
static const struct record extent_record = RECORD(NULL, struct extent, extent_fields);

struct shaped {
  RECORD_ARRAY(struct extent, n_extents, extents);
  RECORD_ARRAY(char *, n_names, names);
  json_t *object, *array;
  double tolerance;
};
static const struct field shaped_fields[] = {
    {"extents", FIELD_MAP, offsetof(struct shaped, n_extents), FIELD_OMITTED, .most = 2,
     .of = &extent_record},
    {"names", FIELD_TEXTS, offsetof(struct shaped, n_names), FIELD_OMITTED | FIELD_OR_INTEGER,
     .check = name_check},
    {"object", FIELD_JSON, offsetof(struct shaped, object), FIELD_OMITTED | FIELD_OBJECT},
    {"array", FIELD_JSON, offsetof(struct shaped, array), FIELD_OMITTED | FIELD_ARRAY, .least = 1,
     .most = 2, .schema = "{\"type\": \"boolean\"}"},
    {"tolerance", FIELD_NUMBER, offsetof(struct shaped, tolerance), FIELD_OMITTED,
     .most_number = HUGE_VAL},
};
static const struct record shaped_record = RECORD(NULL, struct shaped, shaped_fields);

static bool shaped_reads(const char *text, struct shaped *ret, struct error *error) {
  cleanup_json json_t *json = json_of(text);
  record_init(&shaped_record, ret);
  return record_read(&shaped_record, json, "", ret, error);
}

Test(record, a_map_keeps_its_order_and_reads_integers_as_texts) {
  struct shaped shaped;
  struct error error;
  cr_assert(shaped_reads(
      "{\"extents\": {\"z\": \"n\", \"a\": -3}, \"names\": [\"x\", 7], \"array\": [true]}", &shaped,
      &error));
  cr_assert_eq(shaped.n_extents, 2);
  cr_expect_str_eq(shaped.extents[0].name, "z");
  cr_expect_str_eq(shaped.extents[1].value, "-3");
  cr_expect_str_eq(shaped.names[1], "7");
  cr_expect_null(shaped.object);

  cleanup_json json_t *written = record_write(&shaped_record, &shaped);
  cleanup_free char *text = json_dumps(written, JSON_COMPACT);
  cr_expect_str_eq(
      text, "{\"extents\":{\"z\":\"n\",\"a\":\"-3\"},\"names\":[\"x\",\"7\"],\"array\":[true]}");
  record_release(&shaped_record, &shaped);
  cr_expect_null(shaped.extents);
}

Test(record, errors_in_maps_and_checked_texts_have_pointers) {
  static const struct {
    const char *text, *pointer, *word;
  } cases[] = {
      {"{\"extents\": []}", "/extents", "object"},
      {"{\"extents\": {\"a\": 1, \"b\": 2, \"c\": 3}}", "/extents", "at most 2"},
      {"{\"extents\": {\"a\": 1, \"b\": 1.5}}", "/extents/b",
       "a string or an integer, not a number"},
      {"{\"extents\": {\"a\": null}}", "/extents/a", "not null"},
      {"{\"extents\": {\"ninebytes\": 1}}", "/extents/ninebytes", "at most 8"},
      {"{\"extents\": {\"_a\": 1}}", "/extents/_a", "underscore"},
      {"{\"names\": [\"a\", \"_b\"]}", "/names/1", "underscore"},
      {"{\"names\": [null]}", "/names/0", "strings or integers, not null"},
      {"{\"object\": []}", "/object", "an object, not an array"},
      {"{\"array\": {}}", "/array", "an array, not an object"},
      {"{\"array\": []}", "/array", "at least 1"},
      {"{\"array\": [1, 2, 3]}", "/array", "at most 2"},
      {"{\"tolerance\": -1}", "/tolerance", "at least 0"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct shaped shaped;
    struct error error;
    cr_expect_not(shaped_reads(cases[i].text, &shaped, &error), "%s", cases[i].text);
    cr_expect_str_eq(error.pointer, cases[i].pointer, "%s: %s", cases[i].text, error.message);
    cr_expect_not_null(strstr(error.message, cases[i].word), "%s: %s", cases[i].text,
                       error.message);
    record_release(&shaped_record, &shaped);
  }
}

Test(record, the_schema_of_a_map_is_that_of_its_values) {
  cleanup_json json_t *schema = record_schema(&shaped_record);
  schema_is(schema, "extents",
            "{\"type\": [\"object\", \"null\"], \"maxProperties\": 2,"
            " \"additionalProperties\": {\"type\": [\"string\", \"integer\"]}}");
  schema_is(schema, "object", "{\"type\": [\"object\", \"null\"]}");
  schema_is(schema, "array",
            "{\"type\": [\"array\", \"null\"], \"items\": {\"type\": \"boolean\"}, \"minItems\": "
            "1, \"maxItems\": 2}");
  schema_is(schema, "tolerance", "{\"type\": [\"number\", \"null\"], \"minimum\": 0.0}");
}

/* What it owns would leak. */
static const struct field unlisted_field = {"x", (enum field_type)(FIELD_MAP + 1), 0, 0};
static const struct record unlisted_record = {NULL, &unlisted_field, 1, sizeof(void *)};

Test(record, a_type_that_record_release_does_not_list_ends_the_program, .signal = SIGABRT) {
  void *object = NULL;
  record_release(&unlisted_record, &object);
}
