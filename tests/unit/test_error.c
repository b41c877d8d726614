/* Errors: one sentence and a pointer, cut to size, always UTF-8. */
#include "common/base/error.h"

#include <criterion/criterion.h>
#include <jansson.h>

Test(error, error_set_fills_the_message_and_clears_the_pointer) {
  struct error error = {.pointer = "/old"};
  cr_expect_not(error_set(&error, "config %d is unknown", 17));
  cr_expect_str_eq(error.message, "config 17 is unknown");
  cr_expect_str_eq(error.pointer, "");
}

Test(error, error_at_fills_both) {
  struct error error;
  cr_expect_not(error_at(&error, "/key/M", "\"%s\" is missing", "M"));
  cr_expect_str_eq(error.pointer, "/key/M");
  cr_expect_str_eq(error.message, "\"M\" is missing");
}

Test(error, a_prefix_goes_before_the_message) {
  struct error error;
  error_at(&error, "/key", "is not an object");
  cr_expect_not(error_prefix(&error, "%s: ", "job.json"));
  cr_expect_str_eq(error.message, "job.json: is not an object");
  cr_expect_str_eq(error.pointer, "/key");
}

Test(error, a_pointer_prefix_goes_before_the_pointer) {
  struct error error;
  error_at(&error, "/gpu", "is empty");
  cr_expect_not(error_pointer_prefix(&error, "/environment"));
  cr_expect_str_eq(error.pointer, "/environment/gpu");
  cr_expect_str_eq(error.message, "is empty");
}

Test(error, a_message_that_does_not_fit_is_cut) {
  struct error error;
  char long_text[2000];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = '\0';
  error_at(&error, long_text, "%s", long_text);
  cr_expect_eq(strlen(error.message), sizeof error.message - 1);
  cr_expect_eq(strlen(error.pointer), sizeof error.pointer - 1);
  error_prefix(&error, "%s", long_text);
  error_pointer_prefix(&error, long_text);
  cr_expect_eq(strlen(error.message), sizeof error.message - 1);
  cr_expect_eq(strlen(error.pointer), sizeof error.pointer - 1);
}

Test(error, a_character_that_is_cut_in_the_middle_is_replaced) {
  struct error error;
  error_set(&error, "%.3s!", "ab\xc3\xa9");
  cr_expect_str_eq(error.message, "ab?!");
}

Test(error, valid_utf8_is_kept) {
  static const char text[] = "é €  \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf \xee\x80\x80 \xed\x9f\xbf";
  struct error error;
  error_set(&error, "%s", text);
  cr_expect_str_eq(error.message, text);
}

Test(error, invalid_bytes_are_replaced_one_by_one) {
  static const char *const wrong[] = {"\x80",
                                      "\xc1\x81",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xe2\x82",
                                      "\xc3"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    struct error error;
    error_at(&error, wrong[i], "%s", wrong[i]);
    cr_expect_eq(strspn(error.message, "?"), strlen(wrong[i]), "input %zu gave %s", i,
                 error.message);
    cr_expect_eq(strspn(error.pointer, "?"), strlen(wrong[i]), "input %zu gave %s", i,
                 error.pointer);
  }
}

Test(error, control_characters_are_replaced_except_line_breaks) {
  struct error error;
  error_at(&error, "/a\x1b[2J", "\x1b]0;x\x07 \xc2\x9b 2J \r\x7f \xc2\xa0\n\ta\x01");
  cr_expect_str_eq(error.message, "?]0;x? ?? 2J ?? \xc2\xa0\n\ta?");
  cr_expect_str_eq(error.pointer, "/a?[2J");
  error_prefix(&error, "\x1b%s", "");
  cr_expect_eq(error.message[0], '?');
}

Test(error, a_cut_message_is_valid_json) {
  struct error error;
  char text[sizeof error.message + 2];
  for (size_t i = 0; i + 2 < sizeof text; i += 2)
    memcpy(text + i, "é", 2);
  text[sizeof text - 2] = '\0';
  error_at(&error, text, "x%s", text);
  error_prefix(&error, "x");
  error_pointer_prefix(&error, "/");
  json_t *message = json_string(error.message), *pointer = json_string(error.pointer);
  cr_expect_not_null(message);
  cr_expect_not_null(pointer);
  json_decref(message);
  json_decref(pointer);
}

Test(error, a_prefix_does_not_change_the_kind) {
  struct error error;
  error_set(&error, "wrong");
  cr_expect_eq(error.kind, ERROR_INVALID);
  cr_expect_not(error_of(&error, ERROR_UNAVAILABLE, "the %s is away", "database"));
  cr_expect_str_eq(error.message, "the database is away");
  cr_expect_str_eq(error.pointer, "");
  error_prefix(&error, "here: ");
  cr_expect_eq(error.kind, ERROR_UNAVAILABLE);
  error_at(&error, "/a", "wrong");
  cr_expect_eq(error.kind, ERROR_INVALID);
}

Test(error, error_become_changes_the_kind_only) {
  struct error error;
  cr_expect_not(error_of_at(&error, ERROR_FORBIDDEN, "/agent", "not %s", "yours"));
  cr_expect_eq(error.kind, ERROR_FORBIDDEN);
  cr_expect_not(error_become(&error, ERROR_CONFLICT));
  cr_expect_eq(error.kind, ERROR_CONFLICT);
  cr_expect_str_eq(error.pointer, "/agent");
  cr_expect_str_eq(error.message, "not yours");
}
