/* Names of header fields. */
#include "server/http/head.h"

#include <criterion/criterion.h>

Test(head, a_field_name_is_a_token) {
  static const char *const good[] = {"Host", "x", "X-Request-Id", "!#$%&'*+-.^_`|~09azAZ"};
  static const char *const bad[] = {
      "",           "Content-Length ", " Host", "X Note", "X-Note\t", "X:Note", "X(Note)", "X\"",
      "X-\xc3\xa9", "X\x7f",           "X\x01", "a,b",    "a/b",      "a;b",    "{a}",     "a=b"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    cr_expect(field_name_is_valid(good[i]), "%s", good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_expect(!field_name_is_valid(bad[i]), "%s", bad[i]);
}
