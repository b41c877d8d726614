/* Ids of requests: those that are accepted, and those that a server makes. */
#include "common/program/error_codes.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

Test(request_id, ids_of_proxies_and_programs_are_good) {
  const char *good[] = {"a",
                        "0",
                        "5f1c4e0a9b7d4f6a8c2e1d3b5a7f9e0c",
                        "7b9c2f3e-1d4a-4c6b-9e8f-0a1b2c3d4e5f",
                        "7F000001:A3B2_7F000001:1F90_65A1B2C3_0001:0BF4",
                        "ci.build-17"};
  for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
    cr_expect(request_id_is_good(good[i]), "%s", good[i]);
}

Test(request_id, other_characters_are_refused) {
  const char *bad[] = {"",    " ",        "a b",   "a\nb", "a\"b", "a=b", "a,b", "a;b",
                       "a/b", "\xc3\xa4", "a\x7f", "{}",   "@",    "[",   "`"};
  for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
    cr_expect_not(request_id_is_good(bad[i]), "%s", bad[i]);
}

Test(request_id, a_token_is_refused_as_an_id) {
  cr_expect_not(request_id_is_good("wt_0123456789abcdef0123456789abcdef"));
  cr_expect(request_id_is_good("wt-17"));
}

Test(request_id, it_has_at_most_64_characters) {
  char text[80];
  memset(text, 'a', sizeof text);
  text[64] = '\0';
  cr_expect(request_id_is_good(text));
  text[64] = 'a';
  text[65] = '\0';
  cr_expect_not(request_id_is_good(text));
}

Test(request_id, a_made_id_is_good_and_has_no_confusable_letters) {
  char id[REQUEST_ID_SIZE];
  request_id_make(id);
  cr_assert_eq(strlen(id), (size_t)19, "%s", id);
  cr_expect(request_id_is_good(id));
  cr_expect_eq(strspn(id, "0123456789abcdefghjkmnpqrstvwxyz-"), (size_t)19, "%s", id);
  cr_expect(id[4] == '-' && id[9] == '-' && id[14] == '-');
}

Test(request_id, they_sort_by_time) {
  char before[REQUEST_ID_SIZE], after[REQUEST_ID_SIZE];
  request_id_make(before);
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  request_id_make(after);
  cr_expect_lt(strcmp(before, after), 0, "%s %s", before, after);
}

#define THREADS 4
#define PER_THREAD 2000
static char made[THREADS * PER_THREAD][REQUEST_ID_SIZE];

static void *make_many(void *first) {
  for (size_t i = 0; i < PER_THREAD; i++)
    request_id_make(((char(*)[REQUEST_ID_SIZE])first)[i]);
  return NULL;
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

Test(request_id, threads_make_no_id_twice) {
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++)
    cr_assert_eq(pthread_create(&threads[i], NULL, make_many, made[i * PER_THREAD]), 0);
  for (size_t i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  qsort(made, ARRAY_LENGTH(made), sizeof made[0], compare);
  for (size_t i = 1; i < ARRAY_LENGTH(made); i++)
    cr_assert_str_neq(made[i - 1], made[i]);
}
