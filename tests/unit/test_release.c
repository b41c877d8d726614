/* Releases: nothing but canonical bytes in, keys as values, and differences by kernel and key. */
#include "common/cache/release.h"

#include <criterion/criterion.h>

static struct error error;

#define HASH_A "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define HASH_B "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"

/* Texts in brackets and braces are written without commas here: each is one argument of a macro. */
#define KERNEL_OF(configs, hash, key, name, provenance, winners)                                   \
  "{\"configs\":[" configs "],\"kernel\":\"" hash "\",\"key\":[" key "],\"name\":\"" name          \
  "\",\"provenance\":[" provenance "],\"winners\":[" winners "]}"
#define CONFIG(block) "{\"ordinal\":17,\"space\":\"" HASH_B "\",\"values\":{\"BLOCK\":" #block "}}"
#define TUNED "{\"origin\":\"tuned\"}"
#define KERNEL(hash, name, winners) KERNEL_OF(CONFIG(64), hash, "\"M\"", name, TUNED, winners)
#define WINNERS(winners) KERNEL(HASH_A, "a", winners)
#define WINNER(key) "[[" key "],0,0,[],0]"
#define RELEASE(kernels)                                                                           \
  "{\"environment\":{\"rocm\":\"6.4\"},\"kernels\":[" kernels "],\"tag\":\"default\",\"version\":" \
  "2}"
#define CONFIGS(configs, winners) RELEASE(KERNEL_OF(configs, HASH_A, "\"M\"", "a", TUNED, winners))
#define PROVENANCE(provenance, winners)                                                            \
  RELEASE(KERNEL_OF(CONFIG(64), HASH_A, "\"M\"", "a", provenance, winners))
#define KEY_NAMES(names, winners) RELEASE(KERNEL_OF(CONFIG(64), HASH_A, names, "a", TUNED, winners))

static struct release *parsed(const char *bytes) {
  struct release *release = NULL;
  cr_assert(release_parse(bytes, strlen(bytes), &release, &error), "%s: %s\n%s", error.pointer,
            error.message, bytes);
  return release;
}

static void expect_refused(const char *bytes, const char *pointer, const char *what) {
  struct release *release = NULL;
  error = (struct error){0};
  cr_expect_not(release_parse(bytes, strlen(bytes), &release, &error), "%s was read", bytes);
  cr_expect_null(release);
  cr_expect_str_eq(error.pointer, pointer, "%s, not %s: %s", error.pointer, pointer, error.message);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

static const char two_kernels[] = RELEASE(KERNEL_OF(
    CONFIG(32) "," CONFIG(64) ",{\"values\":{\"BLOCK\":8,\"name\":\"x\"}}", HASH_A,
    "\"M\",\"dtype\"", "matmul/tiled",
    "{\"build\":\"" HASH_B
    "\",\"origin\":\"tuned\"},{\"format\":\"dejavu\",\"origin\":\"imported\"}",
    "[[128,\"fp16\"],1,0,[0.2031],12],[[64,\"fp16\"],2,1,[0.5,0.25,1.0],0],[[8,null],"
    "0,0,[],7]") "," KERNEL_OF(CONFIG(64), HASH_B, "", "softmax", TUNED, "[[],0,0,[],3]"));

Test(release, what_it_holds_is_read) {
  cleanup_release struct release *release = parsed(two_kernels);
  const struct release_kernel *kernel = &release->kernels[0];
  struct digest a, b, of_bytes = digest_of(two_kernels, strlen(two_kernels));
  cr_assert(digest_parse(HASH_A, &a) && digest_parse(HASH_B, &b));
  cr_expect(digest_equal(&release->digest, &of_bytes));
  cr_expect_str_eq(release->bytes, two_kernels);
  cr_expect_eq(release->size, strlen(two_kernels));
  cr_expect_str_eq(release->environment.rocm, "6.4");
  cr_expect_str_eq(release->tag, "default");
  cr_expect_eq(release->n_kernels, 2);
  cr_expect_eq(release->n_winners, 4);
  cr_expect_str_eq(kernel->name, "matmul/tiled");
  cr_expect(digest_equal(&kernel->hash, &a));
  cr_expect_eq(kernel->n_key_names, 2);
  cr_expect_str_eq(kernel->key_names[1], "dtype");
  cr_expect_eq(kernel->n_configs, 3);
  cr_expect(kernel->configs[0].has_ordinal && digest_equal(&kernel->configs[0].space, &b));
  cr_expect_eq(kernel->configs[0].ordinal, 17);
  cr_expect_not(kernel->configs[2].has_ordinal);
  cr_expect_str_eq(json_string_value(json_object_get(kernel->configs[2].values, "name")), "x");
  cr_expect_eq(kernel->n_provenance, 2);
  cr_expect_str_eq(json_string_value(json_object_get(kernel->provenance[1], "format")), "dejavu");
}

Test(release, configs_of_one_text_share_their_values_and_each_has_its_text) {
  cleanup_release struct release *release = parsed(two_kernels);
  const struct release_kernel *kernels = release->kernels;
  cr_expect_eq(kernels[0].configs[1].values, kernels[1].configs[0].values);
  cr_expect_neq(kernels[0].configs[0].values, kernels[0].configs[1].values);
  for (size_t i = 0; i < kernels[0].n_configs; i++) {
    const struct release_config *config = &kernels[0].configs[i];
    cleanup_free char *text = xstrndup(config->text, config->text_size),
                      *wanted = json_canonical(config->values);
    cr_expect_str_eq(text, wanted);
  }
}

Test(release, bytes_are_taken_over_when_they_are_read_and_else_left) {
  cleanup_free char *bytes = xstrdup(two_kernels), *wrong = xstrdup("{}");
  const char *at = bytes;
  const struct digest digest = digest_of(bytes, strlen(bytes));
  cleanup_release struct release *release = NULL, *none = NULL;
  cr_assert(release_take(&bytes, strlen(bytes), &digest, &release, &error), "%s", error.message);
  cr_expect_null(bytes);
  cr_expect_eq(release->bytes, at);
  cr_expect(digest_equal(&release->digest, &digest));
  cr_expect_not(release_take(&wrong, 2, &digest, &none, &error));
  cr_expect_str_eq(wrong, "{}");
  cr_expect_not(release_take(&wrong, RELEASE_SIZE_MAX + 1, &digest, &none, &error));
}

Test(release, a_winner_names_its_config_its_provenance_its_times_and_its_job) {
  cleanup_release struct release *release = parsed(two_kernels);
  const struct release_winner *winners = release->kernels[0].winners;
  cr_expect_eq(release->kernels[0].n_winners, 3);
  cr_expect_arr_eq(winners[0].key, "[128,\"fp16\"]", winners[0].key_size);
  cr_expect_eq(winners[0].config, 1);
  cr_expect_eq(winners[0].provenance, 0);
  cr_expect_eq(winners[0].n_ms, 1);
  cr_expect_eq(winners[0].ms[0], 0.2031);
  cr_expect_eq(winners[0].job, 12);
  cr_expect_eq(winners[1].n_ms, 3);
  cr_expect_eq(winners[1].ms[2], 1);
  cr_expect_eq(winners[2].n_ms, 0);
}

Test(release, keys_become_values_and_objects) {
  cleanup_release struct release *release =
      parsed(KEY_NAMES("\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"",
                       "[[-7,0.5,true,null,\"fp16\",\"\\\"\\\\\\u000b\xc3\xa9\"],0,0,[],0]"));
  const struct release_kernel *kernel = &release->kernels[0];
  struct value values[6];
  release_key_values(kernel, kernel->winners, values);
  cr_expect(value_equal(values[0], value_int(-7)));
  cr_expect(value_equal(values[1], value_float(0.5)));
  cr_expect(value_equal(values[2], value_bool(true)));
  cr_expect(value_equal(values[3], value_none()));
  cr_expect(value_equal(values[4], value_string("fp16")));
  cr_expect(value_equal(values[5], value_string("\"\\\v\xc3\xa9")));
  release_key_values_release(kernel, values);
  cleanup_json json_t *object = release_key_object(kernel, kernel->winners);
  cleanup_free char *text = json_canonical(object);
  cr_expect_str_eq(text, "{\"a\":-7,\"b\":0.5,\"c\":true,\"d\":null,\"e\":\"fp16\",\"f\":"
                         "\"\\\"\\\\\\u000b\xc3\xa9\"}");
}

/* Of bytes whose digest is known, a scalar is read exactly when jansson reads it, and as what
 * jansson reads. */
static void expect_taken(char *bytes, const char *text, const json_t *json) {
  struct release *release = NULL;
  const struct digest digest = digest_of(bytes, strlen(bytes));
  bool is_taken = release_take(&bytes, strlen(bytes), &digest, &release, &error);
  cr_expect_eq(is_taken, json != NULL, "%s", text);
  if (is_taken) {
    cleanup_json json_t *key = release_key_object(release->kernels, release->kernels[0].winners);
    cr_expect(json_equal(json_object_get(key, "M"), json), "%s", text);
  }
  free(bytes);
  release_free(release);
}

/* A scalar is read exactly when json_canonical writes it so. */
static void expect_scalar(const char *text, bool is_canonical) {
  cleanup_free char *bytes = xasprintf(KEY_NAMES("\"M\"", "[[%s],0,0,[],0]"), text);
  struct release *release = NULL;
  cr_expect_eq(release_parse(bytes, strlen(bytes), &release, &error), is_canonical, "%s", text);
  cleanup_json json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
  cleanup_free char *canonical = json ? json_canonical(json) : xstrdup("");
  bool is_scalar = json && !json_is_object(json) && !json_is_array(json);
  cr_expect_eq(is_scalar && strcmp(canonical, text) == 0, is_canonical,
               "the test is wrong about %s: it is %s", text, canonical);
  release_free(release);
  expect_taken(xstrdup(bytes), text, is_scalar && !strchr(text, ' ') ? json : NULL);
}

Test(release, scalars_are_read_as_they_are_canonical) {
  static const char *const canonical[] = {"0",
                                          "-1",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "0.0",
                                          "-0.0",
                                          "0.5",
                                          "-0.1",
                                          "0.0001",
                                          "4096.0",
                                          "1e-05",
                                          "1e+16",
                                          "1.5e-07",
                                          "999999999999999.0",
                                          "1234567890123456.0",
                                          "0.1234567890123456",
                                          "0.30000000000000004",
                                          "0.20309999999999997",
                                          "1.7976931348623157e+308",
                                          "5e-324",
                                          "100.0",
                                          "0.00012345678901234567",
                                          "true",
                                          "false",
                                          "null",
                                          "\"\"",
                                          "\"a\"",
                                          "\"\\u001f\"",
                                          "\"\x7f\"",
                                          "\"\xf0\x9f\x98\x80\""};
  static const char *const other[] = {"",
                                      "00",
                                      "-0",
                                      "-",
                                      "01",
                                      "+1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "18446744073709551617",
                                      "123456789012345678901234567890",
                                      "0.50",
                                      "1.",
                                      ".5",
                                      "1.00",
                                      "00.5",
                                      "-00.5",
                                      "0.00001",
                                      "1e5",
                                      "1E+16",
                                      "1e16",
                                      "1e+5",
                                      "1.0e+16",
                                      "10000000000000000.0",
                                      "0.10000000000000000",
                                      "0.12345678901234567",
                                      "0.30000000000000002",
                                      "0.300000000000000044",
                                      "9007199254740993.0",
                                      "1e999",
                                      "0.1.2",
                                      "1-2",
                                      "nul",
                                      "True",
                                      "NaN",
                                      "Infinity",
                                      "[1]",
                                      "{}",
                                      "\"",
                                      "\"\\",
                                      "\"\\n\"",
                                      "\"\\/\"",
                                      "\"\\u0041\"",
                                      "\"\\u001F\"",
                                      "\"\\u0000\"",
                                      "\"\t\"",
                                      "\"\xff\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xc0\x80\"",
                                      "\"\\ud83d\\ude00\"",
                                      " 1",
                                      "1 "};
  for (size_t i = 0; i < ARRAY_LENGTH(canonical); i++)
    if (canonical[i][0])
      expect_scalar(canonical[i], true);
  for (size_t i = 0; i < ARRAY_LENGTH(other); i++)
    expect_scalar(other[i], false);
}

static void expect_take_refused(const char *bytes, const char *pointer, const char *what) {
  cleanup_free char *copy = xstrdup(bytes);
  struct release *release = NULL;
  const struct digest digest = digest_of(copy, strlen(copy));
  error = (struct error){0};
  cr_expect_not(release_take(&copy, strlen(bytes), &digest, &release, &error), "%s was read",
                bytes);
  cr_expect_str_eq(error.pointer, pointer, "%s, not %s: %s", error.pointer, pointer, error.message);
  cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);
}

/* Two programs that read the same bytes must not read two things. */
Test(release, what_could_be_read_in_two_ways_is_refused_whatever_its_digest) {
  expect_take_refused(CONFIGS("{\"values\":{\"b\":1,\"b\":2}}", WINNER("1")),
                      "/kernels/0/configs/0/values", "duplicate");
  expect_take_refused("{\"environment\":{\"rocm\":\"1\",\"rocm\":\"2\"},\"kernels\":[" WINNERS(
                          WINNER("1")) "],\"tag\":\"t\",\"version\":2}",
                      "/environment", "duplicate");
  expect_take_refused(RELEASE(WINNERS(WINNER("1"))) "{}", "", "the end was expected");
  expect_take_refused(KEY_NAMES("\"M\",\"\\u004d\"", WINNER("1,1")), "/kernels/0/key/1",
                      "is in the key twice");
  expect_take_refused(RELEASE(WINNERS(WINNER("2") "," WINNER("2"))), "/kernels/0/winners/1",
                      "two winners");
  expect_take_refused(RELEASE(WINNERS("[[1],0,0,[1e999],0]")), "/kernels/0/winners/0",
                      "milliseconds");
  expect_take_refused(RELEASE(WINNERS("[[1],0,0,[],00]")), "/kernels/0/winners/0",
                      "the id of a job");
}

/* Quotients have 15 to 17 digits: each as it is written canonically, and with its last digit
 * moved. */
Test(release, of_long_decimals_only_the_shortest_and_nearest_is_read) {
  for (int i = 1; i < 2000; i++) {
    char text[FLOAT_TEXT_SIZE + 1];
    float_format((i * 7919) / (i % 2 ? 3e4 : 7e6), text);
    size_t last = strlen(text) - 1;
    expect_scalar(text, true);
    if (text[last] > '0' && text[last] < '9' && !strchr(text, 'e')) {
      struct release *release = NULL;
      double number = strtod(text, NULL);
      text[last]++;
      if (strtod(text, NULL) == number) { /* the same number, written otherwise */
        cleanup_free char *bytes = xasprintf(KEY_NAMES("\"M\"", "[[%s],0,0,[],0]"), text);
        cr_expect_not(release_parse(bytes, strlen(bytes), &release, &error), "%s", text);
      }
    }
  }
}

Test(release, the_largest_ordinal_and_job_are_read) {
  cleanup_release struct release *release =
      parsed(CONFIGS("{\"ordinal\":9223372036854775807,\"space\":\"" HASH_B "\",\"values\":{}}",
                     "[[1],0,0,[],9223372036854775807]"));
  cr_expect_eq(release->kernels[0].configs[0].ordinal, (uint64_t)INT64_MAX);
  cr_expect_eq(release->kernels[0].winners[0].job, INT64_MAX);
}

Test(release, what_is_no_release_is_refused) {
  expect_refused("", "", "not canonical at byte 0");
  expect_refused("{", "", "not canonical at byte 0");
  expect_refused("[]", "", "'{\"environment\":' was expected");
  expect_refused(RELEASE(WINNERS(WINNER("1"))) "\n", "", "the end was expected");
  expect_refused("{\"environment\":{\"rocm\":\"6.4\"}, \"kernels\":[]}", "", "at byte 29");
  expect_refused("{\"tag\":\"default\",\"environment\":{}}", "", "at byte 0");
}

Test(release, what_is_cut_short_is_refused_everywhere) {
  for (size_t size = 0; size < strlen(two_kernels); size++) {
    struct release *release = NULL;
    cleanup_free char *cut = xstrndup(two_kernels, size);
    cr_expect_not(release_parse(cut, size, &release, &error), "%zu bytes", size);
  }
}

Test(release, a_byte_that_is_nul_is_refused_everywhere) {
  for (size_t i = 0; i < strlen(two_kernels); i++) {
    struct release *release = NULL;
    cleanup_free char *holed = xstrdup(two_kernels);
    holed[i] = '\0';
    cr_expect_not(release_parse(holed, strlen(two_kernels), &release, &error), "byte %zu", i);
  }
}

Test(release, one_that_is_too_large_is_refused_before_it_is_read) {
  struct release *release = NULL;
  cr_expect_not(release_parse("", RELEASE_SIZE_MAX + 1, &release, &error));
  cr_expect_neq(strstr(error.message, "at most 268435456 are read"), NULL, "%s", error.message);
}

Test(release, other_versions_are_refused) {
  expect_refused("{\"environment\":{},\"tag\":\"t\",\"version\":1,\"winners\":[]}", "/version",
                 "publish the channel again");
  expect_refused(
      "{\"environment\":{},\"kernels\":[" WINNERS(WINNER("1")) "],\"tag\":\"t\",\"version\":3}",
      "/version", "',\"version\":2}' was expected");
}

#define OF_REGIME(regime)                                                                          \
  "{\"environment\":{},\"kernels\":[" WINNERS(WINNER("1")) "],\"regime\":" regime                  \
                                                           ",\"tag\":\"t\",\"version\":2}"

Test(release, only_a_known_regime_that_is_not_cold_is_stated) {
  cleanup_release struct release *warm = parsed(OF_REGIME("\"warm\""));
  cr_expect_eq(warm->regime, REGIME_WARM);
  expect_refused(OF_REGIME("\"tepid\""), "/regime", "must be cold or warm, not \"tepid\"");
  expect_refused(OF_REGIME("\"cold\""), "/regime", "a cold release does not state its regime");
  expect_refused(OF_REGIME("7"), "/regime", "expected");
}

#define IN_ENVIRONMENT(environment)                                                                \
  "{\"environment\":" environment                                                                  \
  ",\"kernels\":[" WINNERS(WINNER("1")) "],\"tag\":\"t\",\"version\":2}"

Test(release, an_environment_that_is_wrong_or_not_canonical_is_refused) {
  expect_refused(IN_ENVIRONMENT("[]"), "/environment", "an object was expected");
  expect_refused(IN_ENVIRONMENT("{\"driver\":\"6\"}"), "/environment/driver", "unknown member");
  expect_refused(IN_ENVIRONMENT("{\"rocm\":null}"), "/environment/rocm", "null");
  expect_refused(IN_ENVIRONMENT("{\"rocm\":\"6\",\"gpu\":\"x\"}"), "/environment", "at byte 17");
  expect_refused(IN_ENVIRONMENT("{\"rocm\":}"), "/environment", "the object at byte 15");
  expect_refused(IN_ENVIRONMENT("{\"rocm\": \"6\"}"), "/environment", "at byte 23");
}

Test(release, texts_that_must_not_be_empty_are_refused_when_they_are) {
  expect_refused(RELEASE(KERNEL(HASH_A, "", WINNER("1"))), "/kernels/0/name", "must not be empty");
  expect_refused(KEY_NAMES("\"\"", WINNER("1")), "/kernels/0/key/0", "must not be empty");
  expect_refused(
      "{\"environment\":{},\"kernels\":[" WINNERS(WINNER("1")) "],\"tag\":\"\",\"version\":2}",
      "/tag", "must not be empty");
  expect_refused(
      "{\"environment\":{},\"kernels\":[" WINNERS(WINNER("1")) "],\"tag\":7,\"version\":2}", "/tag",
      "a string was expected");
}

Test(release, a_release_and_its_kernels_hold_something) {
  expect_refused(RELEASE(""), "/kernels/0", "'{\"configs\":[' was expected");
  expect_refused(RELEASE(WINNERS("")), "/kernels/0/winners/0", "'[' was expected");
  expect_refused(CONFIGS("", WINNER("1")), "/kernels/0/configs/0", "'{\"values\":' was expected");
  expect_refused(PROVENANCE("", WINNER("1")), "/kernels/0/provenance/0", "an object was expected");
}

Test(release, unknown_members_are_refused) {
  expect_refused("{\"environment\":{},\"made\":1,\"tag\":\"t\",\"version\":2}", "", "at byte 17");
  expect_refused(CONFIGS("{\"made\":1,\"values\":{}}", WINNER("1")), "/kernels/0/configs/0",
                 "expected");
  expect_refused(CONFIGS("{\"values\":{},\"zone\":1}", WINNER("1")), "/kernels/0/configs/0",
                 "'}' was expected");
}

Test(release, kernels_are_sorted_and_each_is_there_once) {
#define BOTH(one, one_name, other, other_name)                                                     \
  RELEASE(KERNEL(one, one_name, WINNER("1")) "," KERNEL(other, other_name, WINNER("1")))
  cleanup_release struct release *in_order = parsed(BOTH(HASH_B, "a", HASH_A, "a"));
  cr_expect_eq(in_order->n_kernels, 2);
  expect_refused(BOTH(HASH_A, "a", HASH_B, "a"), "/kernels/1", "must be sorted by name and hash");
  expect_refused(BOTH(HASH_A, "b", HASH_B, "a"), "/kernels/1", "must be sorted");
  expect_refused(BOTH(HASH_A, "a", HASH_A, "a"), "/kernels/1", "occur once");
  expect_refused(RELEASE(KERNEL("sha256:00", "a", WINNER("1"))), "/kernels/0/kernel",
                 "64 lower-case");
  expect_refused(RELEASE(WINNERS(WINNER("1")) "x"), "/kernels", "',' or ']' was expected");
}

Test(release, key_names_are_few_distinct_and_texts) {
  cleanup_free char *names = xstrdup("\"n0\"");
  for (int i = 1; i <= KEY_MEMBERS_MAX; i++) {
    char *more = xasprintf("%s,\"n%d\"", names, i);
    free(names);
    names = more;
  }
  cleanup_free char *many = xasprintf(KEY_NAMES("%s", WINNER("1")), names);
  cleanup_free char *at = xasprintf("/kernels/0/key/%d", KEY_MEMBERS_MAX);
  expect_refused(many, at, "a key has at most");
  expect_refused(KEY_NAMES("\"M\",\"M\"", WINNER("1,1")), "/kernels/0/key/1",
                 "is in the key twice");
  expect_refused(KEY_NAMES("7", WINNER("1")), "/kernels/0/key/0", "a string was expected");
  expect_refused(KEY_NAMES("\"M\";", WINNER("1")), "/kernels/0/key", "',' or ']' was expected");
}

Test(release, a_config_has_any_scalars_under_any_names) {
#define VALUES(text) "{\"values\":{" text "}}"
  cleanup_release struct release *empty = parsed(CONFIGS(VALUES(""), WINNER("1")));
  cr_expect_eq(json_object_size(empty->kernels[0].configs[0].values), 0);
  cleanup_release struct release *release = parsed(CONFIGS(
      VALUES(
          "\"a\":-1,\"ab\":0.5,\"b\":\"x\\\"y\",\"c\":null,\"d\":true,\"e\":\"z\",\"\xc3\xa9\":1"),
      WINNER("1")));
  const json_t *values = release->kernels[0].configs[0].values;
  cr_expect_eq(json_object_size(values), 7);
  cr_expect_eq(json_integer_value(json_object_get(values, "a")), -1);
  cr_expect_eq(json_real_value(json_object_get(values, "ab")), 0.5);
  cr_expect_str_eq(json_string_value(json_object_get(values, "b")), "x\"y");
  cr_expect(json_is_null(json_object_get(values, "c")) &&
            json_is_true(json_object_get(values, "d")));
  cr_expect_str_eq(json_string_value(json_object_get(values, "e")), "z");
  cleanup_release struct release *escaped =
      parsed(CONFIGS(VALUES("\"a\\\"\":1,\"b\":2"), WINNER("1")));
  cr_expect_eq(json_integer_value(json_object_get(escaped->kernels[0].configs[0].values, "a\"")),
               1);
}

Test(release, a_config_that_is_wrong_is_refused_with_its_place) {
  expect_refused(CONFIGS("{\"values\":[]}", WINNER("1")), "/kernels/0/configs/0/values",
                 "an object was expected");
  expect_refused(CONFIGS("{\"values\":{\"a/b\":[]}}", WINNER("1")),
                 "/kernels/0/configs/0/values/a~1b",
                 "must be null, a boolean, a number or a string");
  expect_refused(CONFIGS("{\"values\":{\"b\":1,\"a\":1}}", WINNER("1")),
                 "/kernels/0/configs/0/values", "another text of the same meaning");
  expect_refused(CONFIGS("{\"values\":{\"b\":1.50}}", WINNER("1")), "/kernels/0/configs/0/values",
                 "not canonical");
  expect_refused(CONFIGS("{\"values\":{\"b\":1,\"b\":1}}", WINNER("1")),
                 "/kernels/0/configs/0/values", "duplicate");
  expect_refused(CONFIGS("{\"values\":{\"ab\":1,\"a\":1}}", WINNER("1")),
                 "/kernels/0/configs/0/values", "another text of the same meaning");
  expect_refused(CONFIGS("{\"values\":{\"b\":1,}}", WINNER("1")), "/kernels/0/configs/0/values",
                 "not a JSON document");
  expect_refused(CONFIGS("{\"values\":{\"b\":1 }}", WINNER("1")), "/kernels/0/configs/0/values",
                 "not canonical");
  expect_refused(CONFIGS("{\"ordinal\":-1,\"space\":\"" HASH_B "\",\"values\":{}}", WINNER("1")),
                 "/kernels/0/configs/0/ordinal", "a number from 0");
  expect_refused(CONFIGS("{\"ordinal\":1,\"space\":\"sha256:zz\",\"values\":{}}", WINNER("1")),
                 "/kernels/0/configs/0/space", "64 lower-case");
  expect_refused(CONFIGS("{\"ordinal\":1,\"values\":{}}", WINNER("1")), "/kernels/0/configs/0",
                 "',\"space\":' was expected");
}

Test(release, configs_and_provenance_are_sorted_distinct_and_used) {
  expect_refused(CONFIGS(CONFIG(64) "," CONFIG(32), "[[1],0,0,[],0],[[2],1,0,[],0]"),
                 "/kernels/0/configs/1", "not in the canonical order");
  expect_refused(CONFIGS(CONFIG(64) "," CONFIG(64), "[[1],0,0,[],0],[[2],1,0,[],0]"),
                 "/kernels/0/configs/1", "occurs twice");
  expect_refused(CONFIGS(CONFIG(32) "," CONFIG(64), WINNER("1")), "/kernels/0/configs/1",
                 "no winner has this config");
#define PINNED "{\"origin\":\"pinned\"}"
  expect_refused(PROVENANCE(TUNED "," PINNED, "[[1],0,0,[],0],[[2],0,1,[],0]"),
                 "/kernels/0/provenance/1", "not in the canonical order");
  expect_refused(PROVENANCE(PINNED "," PINNED, "[[1],0,0,[],0],[[2],0,1,[],0]"),
                 "/kernels/0/provenance/1", "occurs twice");
  expect_refused(PROVENANCE(PINNED "," TUNED, WINNER("1")), "/kernels/0/provenance/1",
                 "no winner has this provenance");
}

Test(release, a_provenance_that_is_wrong_is_refused) {
  expect_refused(PROVENANCE("{\"build\":\"" HASH_A "\"}", WINNER("1")), "/kernels/0/provenance/0",
                 "\"origin\" must be");
  expect_refused(PROVENANCE("{\"origin\":\"guessed\"}", WINNER("1")), "/kernels/0/provenance/0",
                 "\"origin\" must be");
  expect_refused(PROVENANCE("{\"build\":7,\"origin\":\"tuned\"}", WINNER("1")),
                 "/kernels/0/provenance/0", "\"build\" must be");
  expect_refused(PROVENANCE("{\"build\":\"x\",\"origin\":\"tuned\"}", WINNER("1")),
                 "/kernels/0/provenance/0", "\"build\" must be");
  expect_refused(PROVENANCE("{\"hashes\":{},\"origin\":\"tuned\"}", WINNER("1")),
                 "/kernels/0/provenance/0/hashes", "must be null, a boolean, a number or a string");
}

Test(release, a_wrong_time_is_refused_at_its_own_byte) {
  static const char bytes[] = RELEASE(WINNERS("[[1],0,0,[1.5,2],0]"));
  cleanup_free char *place = xasprintf("at byte %td:", strstr(bytes, ",2],0]") + 1 - bytes);
  expect_refused(bytes, "/kernels/0/winners/0", place);
}

Test(release, a_winner_that_is_wrong_is_refused_with_its_place) {
#define FIRST(winner) RELEASE(WINNERS(winner)), "/kernels/0/winners/0"
  expect_refused(FIRST("7"), "'[' was expected");
  expect_refused(FIRST("[1,0,0,[],0]"), "one for each name of the key");
  expect_refused(FIRST("[[],0,0,[],0]"), "one for each name of the key");
  expect_refused(FIRST("[[1,2],0,0,[],0]"), "one for each name of the key");
  expect_refused(FIRST("[[[1]],0,0,[],0]"), "one for each name of the key");
  expect_refused(FIRST("[[1],1,0,[],0]"), "the index of a config was expected");
  expect_refused(FIRST("[[1],-1,0,[],0]"), "the index of a config");
  expect_refused(FIRST("[[1],0.0,0,[],0]"), "the index of a config");
  expect_refused(FIRST("[[1],0,1,[],0]"), "the index of a provenance");
  expect_refused(FIRST("[[1],0,0,1.0,0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[1],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[0.0],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[-1.5],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[1.5,],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[1.0,1.0],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[1.0,1.0,1.0,1.0],0]"), "0, 1 or 3 milliseconds");
  expect_refused(FIRST("[[1],0,0,[],-1]"), "the id of a job");
  expect_refused(FIRST("[[1],0,0,[]]"), "the id of a job");
  expect_refused(FIRST("[[1],0,0,[],0,0]"), "']' was expected");
  expect_refused(RELEASE(WINNERS(WINNER("1") "," WINNER("x"))), "/kernels/0/winners/1",
                 "one for each name");
}

Test(release, winners_are_sorted_by_the_text_of_their_keys_and_each_key_has_one) {
  cleanup_release struct release *in_order =
      parsed(RELEASE(WINNERS(WINNER("128") "," WINNER("2.0") "," WINNER("2"))));
  cr_expect_eq(in_order->n_winners, 3);
  expect_refused(RELEASE(WINNERS(WINNER("2") "," WINNER("128"))), "/kernels/0/winners/1",
                 "not in the canonical order");
  expect_refused(RELEASE(WINNERS(WINNER("2") "," WINNER("2"))), "/kernels/0/winners/1",
                 "two winners for the key [2]");
}

static void expect_diff(const char *from, const char *to, const char *wanted) {
  cleanup_release struct release *one = parsed(from), *other = parsed(to);
  cleanup_json json_t *diff = release_diff(one, other);
  cleanup_free char *text = json_canonical(diff);
  cr_expect_str_eq(text, wanted);
}

Test(release, a_release_does_not_differ_from_itself) {
  expect_diff(two_kernels, two_kernels, "{\"added\":[],\"changed\":[],\"removed\":[],\"same\":4}");
}

Test(release, a_config_that_changed_is_shown_from_and_to) {
  expect_diff(
      CONFIGS(CONFIG(32), WINNER("1")), CONFIGS(CONFIG(64), WINNER("1")),
      "{\"added\":[],\"changed\":[{\"from\":{\"BLOCK\":32},\"kernel\":\"" HASH_A
      "\",\"key\":{\"M\":1},\"name\":\"a\",\"to\":{\"BLOCK\":64}}],\"removed\":[],\"same\":0}");
}

Test(release, the_same_config_with_another_ordinal_time_job_or_provenance_is_the_same) {
  expect_diff(CONFIGS(CONFIG(64), WINNER("1")),
              RELEASE(KERNEL_OF("{\"values\":{\"BLOCK\":64}}", HASH_A, "\"M\"", "a",
                                "{\"origin\":\"pinned\"}", "[[1],0,0,[0.5],9]")),
              "{\"added\":[],\"changed\":[],\"removed\":[],\"same\":1}");
}

Test(release, a_kernel_whose_hash_changed_is_removed_and_added) {
#define DIFF_WINNER(hash, key)                                                                     \
  "{\"config\":{\"BLOCK\":64},\"kernel\":\"" hash "\",\"key\":{\"M\":" key "},\"name\":\"a\"}"
  expect_diff(RELEASE(KERNEL(HASH_A, "a", WINNER("1"))), RELEASE(KERNEL(HASH_B, "a", WINNER("1"))),
              "{\"added\":[" DIFF_WINNER(HASH_B, "1") "],\"changed\":[],\"removed\":[" DIFF_WINNER(
                  HASH_A, "1") "],\"same\":0}");
}

Test(release, new_keys_are_added_and_gone_ones_removed) {
  expect_diff(RELEASE(WINNERS(WINNER("1") "," WINNER("2"))),
              RELEASE(WINNERS(WINNER("2") "," WINNER("3"))),
              "{\"added\":[" DIFF_WINNER(HASH_A, "3") "],\"changed\":[],\"removed\":[" DIFF_WINNER(
                  HASH_A, "1") "],\"same\":1}");
}
