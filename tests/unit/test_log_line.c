/* A format and its arguments as one line: component, message and fields. It is always one line of
 * valid UTF-8, and as JSON one object. */
#include "common/base/log.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>

#include "common/base/json.h"

static char line[LOG_LINE_SIZE + 1];

static printf_like(2, 3) const char *line_of(const struct log_head *head, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t size = log_line_write(line, head, format, arguments);
  va_end(arguments);
  cr_assert_leq(size, (size_t)LOG_LINE_SIZE);
  line[size] = '\0';
  cr_assert_eq(strlen(line), size);
  cr_assert_eq(strchr(line, '\n'), line + size - 1);
  return line;
}

static const struct log_head text_head = {LOG_FORMAT_TEXT, "", "NOW", "info", "test", NULL};
static const struct log_head json_head = {LOG_FORMAT_JSON, "", NULL, "info", NULL, NULL};
#define TEXT(...) line_of(&text_head, __VA_ARGS__)
#define JSON(...) line_of(&json_head, __VA_ARGS__)

/* The line as an object; jansson refuses invalid UTF-8, control characters and, with this flag,
 * duplicate members. */
static json_t *object_of(const char *text) {
  json_error_t reason;
  json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
  cr_assert(json_is_object(object), "%s: %s", reason.text, text);
  return object;
}

static const char *message_of(const char *text) {
  static char message[LOG_LINE_SIZE];
  cleanup_json json_t *object = object_of(text);
  snprintf(message, sizeof message, "%s", json_string_value(json_object_get(object, "message")));
  return message;
}

Test(log_line, a_format_is_component_message_and_fields) {
  cr_expect_str_eq(TEXT("lease: granted agent=%s epoch=%lld", "a", 3LL),
                   "NOW info lease: granted agent=a epoch=3\n");
  cr_expect_str_eq(JSON("lease: granted agent=%s epoch=%lld", "a", 3LL),
                   "{\"level\":\"info\",\"component\":\"lease\",\"message\":\"granted\",\"agent\":"
                   "\"a\",\"epoch\":3}\n");
}

Test(log_line, json_begins_with_time_level_program_component_and_request) {
  struct log_head head = {LOG_FORMAT_JSON,   "<6>", "2026-11-21T06:40:04.123Z", "info",
                          "wavetune-server", "06f4"};
  cr_expect_str_eq(
      line_of(&head, "http: request status=%d", 200),
      "<6>{\"time\":\"2026-11-21T06:40:04.123Z\",\"level\":\"info\",\"program\":\"wavetune-"
      "server\","
      "\"component\":\"http\",\"request\":\"06f4\",\"message\":\"request\",\"status\":200}\n");
}

Test(log_line, fields_within_a_sentence_stay_in_it) {
  cr_expect_str_eq(JSON("lease: results of agent=%s go: %s", "a b", "why"),
                   "{\"level\":\"info\",\"component\":\"lease\",\"message\":\"results of "
                   "agent=\\\"a b\\\" go: why\","
                   "\"agent\":\"a b\"}\n");
}

Test(log_line, fields_before_a_sentence_are_members_only) {
  cr_expect_str_eq(message_of(JSON("lease: agent=%s epoch=%d cannot be ended: %s", "a", 3, "no")),
                   "cannot be ended: no");
  cr_expect_str_eq(message_of(JSON("worker: pid=%d %s", 7, " it says")), " it says");
  cr_expect_str_eq(message_of(JSON("http: status=%d", 200)), "");
}

Test(log_line, numbers_are_numbers_and_ids_are_texts) {
  cleanup_json json_t *object = object_of(
      JSON("a: b n=%zu i=%d real=%.2f bare=%g padded=%05d hex=%x letter=%c job=%lld lease=%s",
           (size_t)7, -7, 1.5, 1e300, 42, 255u, 'x', 9007199254740993LL, "17"));
  cr_expect_eq(json_integer_value(json_object_get(object, "n")), 7);
  cr_expect_eq(json_integer_value(json_object_get(object, "i")), -7);
  cr_expect_float_eq(json_real_value(json_object_get(object, "real")), 1.5, 0);
  cr_expect_float_eq(json_real_value(json_object_get(object, "bare")), 1e300, 1e290);
  cr_expect_eq(json_integer_value(json_object_get(object, "padded")), 42);
  cr_expect_str_eq(json_string_value(json_object_get(object, "hex")), "ff");
  cr_expect_str_eq(json_string_value(json_object_get(object, "letter")), "x");
  cr_expect_str_eq(json_string_value(json_object_get(object, "job")), "9007199254740993");
  cr_expect_str_eq(json_string_value(json_object_get(object, "lease")), "17");
}

Test(log_line, the_largest_number_of_64_bits_is_kept) {
  cr_expect_neq(strstr(JSON("a most=%llu", ULLONG_MAX), "\"most\":18446744073709551615}"), NULL);
}

Test(log_line, numbers_that_json_lacks_are_null) {
  cr_expect_neq(
      strstr(JSON("a x=%f y=%f z=%.1f", NAN, -INFINITY, 0.25), "\"x\":null,\"y\":null,\"z\":0.2}"),
      NULL);
}

Test(log_line, a_field_without_a_text_is_left_out) {
  const char *volatile none = NULL;
  cr_expect_str_eq(TEXT("job: done reason=%s job=%d", none, 7), "NOW info job: done job=7\n");
  cr_expect_eq(strstr(JSON("job: done reason=%s job=%d", none, 7), "reason"), NULL);
}

Test(log_line, a_value_makes_no_field_and_no_component) {
  const char *forged = "x epoch=9 job=1\"} lease: y";
  cr_expect_str_eq(TEXT("lease: granted agent=%s epoch=%d", forged, 3),
                   "NOW info lease: granted agent=\"x epoch=9 job=1\\\"} lease: y\" epoch=3\n");
  cleanup_json json_t *object = object_of(JSON("lease: granted agent=%s epoch=%d", forged, 3));
  cr_expect_eq(json_integer_value(json_object_get(object, "epoch")), 3);
  cr_expect_str_eq(json_string_value(json_object_get(object, "agent")), forged);
  cr_expect_null(json_object_get(object, "job"));
  cleanup_json json_t *bare = object_of(JSON("%s", "lease: granted epoch=9"));
  cr_expect_eq(json_object_size(bare), (size_t)2);
  cr_expect_str_eq(TEXT("a agent=%s", ""), "NOW info a agent=\"\"\n");
  cr_expect_str_eq(TEXT("a agent=%s", "b=c"), "NOW info a agent=\"b=c\"\n");
}

Test(log_line, a_member_occurs_once) {
  cleanup_json json_t *object = object_of(JSON("a: b level=%s n=%d n=%d time=%d", "low", 1, 2, 3));
  cr_expect_str_eq(json_string_value(json_object_get(object, "level")), "info");
  cr_expect_eq(json_integer_value(json_object_get(object, "n")), 1);
  cr_expect_null(json_object_get(object, "time"));
}

Test(log_line, control_characters_and_line_separators_are_escaped) {
  const char *junk = "a\n\x1b[2J\x7f\xc2\x9b\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\t\"\\/b";
  cr_expect_str_eq(JSON("%s", junk),
                   "{\"level\":\"info\",\"message\":\"a\\n\\u001b[2J\\u007f\\u009b\\u0085\\u2028"
                   "\\u2029\\t\\\"\\\\/b\"}\n");
  cr_expect_str_eq(message_of(JSON("%s", junk)), junk);
  cr_expect_str_eq(TEXT("%s", junk), "NOW info a  [2J      \"\\/b\n");
}

Test(log_line, other_characters_are_kept) {
  cr_expect_str_eq(TEXT("µs %s name=%s", "größer …", "日本"), "NOW info µs größer … name=日本\n");
  cr_expect_str_eq(message_of(JSON("µs %s", "größer … 🎉")), "µs größer … 🎉");
}

Test(log_line, invalid_bytes_are_replaced) {
  const char *bad = "a\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80z\xe2\x82";
  cr_expect_str_eq(message_of(JSON("%s", bad)),
                   "a\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdz\ufffd\ufffd");
  cr_expect_str_eq(TEXT("%s", bad), "NOW info a??????????z??\n");
  cr_expect_str_eq(TEXT("x=%s", "a\xff"), "NOW info x=\"a\ufffd\"\n");
}

Test(log_line, a_text_is_not_read_beyond_its_precision) {
  char three[3] = {'a', 'b', '\xe2'};
  cleanup_free char *text = xmemdup(three, 3); /* a sanitizer sees the byte behind it */
  cr_expect_str_eq(TEXT("%.*s", 3, text), "NOW info ab?\n");
  cr_expect_str_eq(TEXT("x=%.2s", text), "NOW info x=ab\n");
}

Test(log_line, a_line_that_does_not_fit_is_cut_and_marked) {
  char text[9000];
  memset(text, '\x01', sizeof text - 1); /* six bytes each in JSON */
  text[sizeof text - 1] = '\0';
  const char *fields[] = {"%s", "a=%s", "words a=%s b=%s c=%s more %s n=%d"};
  for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
    cleanup_json json_t *object =
        i == 0   ? object_of(JSON("%s", text))
        : i == 1 ? object_of(JSON("a=%s", text))
                 : object_of(JSON("words a=%s b=%s c=%s more %s n=%d", text, text, text, text, 7));
    cr_expect(json_is_true(json_object_get(object, "truncated")), "%s", fields[i]);
    if (i == 2)
      cr_expect_eq(json_integer_value(json_object_get(object, "n")),
                   7); /* a short field after long ones */
  }
  cr_expect_eq(strlen(TEXT("%s", text)), (size_t)2048);
}

Test(log_line, a_line_that_fits_is_not_marked_as_cut) {
  char text[1500];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  cr_expect_eq(strstr(JSON("%s n=%d", text, 7), "truncated"), NULL);
}

Test(log_line, a_cut_splits_no_character) {
  char text[6001];
  for (size_t i = 0; i < 6000; i += 3)
    memcpy(text + i, "\xe2\x82\xac", 3);
  text[6000] = '\0';
  for (int shift = 0; shift < 3; shift++) {
    cr_expect_eq(strstr(JSON("%.*s%s a=%s", shift, "xx", text, text), "\ufffd"), NULL);
    cr_expect_eq(strchr(TEXT("%.*s%s", shift, "xx", text), '?'), NULL);
  }
}

Test(log_line, the_request_stays_on_a_line_that_is_cut) {
  struct log_head head = {LOG_FORMAT_TEXT, "", "NOW", "info", NULL, "06f4"};
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  cr_expect_neq(strstr(line_of(&head, "%s", text), "x request=06f4\n"), NULL);
  cr_expect_eq(strlen(line), (size_t)2048);
}

Test(log_line, a_percent_sign_is_a_word) {
  cr_expect_str_eq(TEXT("100%% of n=%d%%", 7), "NOW info 100% of n=7%\n");
  cr_expect_str_eq(TEXT("gain=%%"), "NOW info gain=%\n");
}
