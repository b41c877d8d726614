/* A few threads over numbered items. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "agent/measure/element.h"

enum { ITEMS = 1000 };

static void item_count(void *context, size_t item) {
  atomic_uint *counts = context;
  atomic_fetch_add(&counts[item], 1);
}

Test(team, every_item_is_worked_on_once_whatever_the_number_of_threads) {
  static const unsigned threads[] = {0, 1, 4, 100};
  for (size_t t = 0; t < ARRAY_LENGTH(threads); t++) {
    atomic_uint counts[ITEMS] = {0};
    team_run(threads[t], ITEMS, item_count, counts);
    for (size_t i = 0; i < ITEMS; i++)
      cr_assert_eq(counts[i], 1, "item %zu of %u threads", i, threads[t]);
  }
  team_run(4, 0, item_count, NULL);
}

Test(team, is_a_quarter_of_the_machine_at_most) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  cr_expect(team_size() == 1 || (long)team_size() * 4 <= cpus);
  cr_expect_leq(team_size(), 4);
}

Test(team, buffers_of_any_size_are_equal_to_the_last_byte) {
  static const size_t sizes[] = {0, 1, 4097, (size_t)9 << 20 | 13};
  for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
    char *a = xcalloc(sizes[i] + 1, 1), *b = xcalloc(sizes[i] + 1, 1);
    b[sizes[i]] = 1;
    cr_expect(bytes_equal(a, b, sizes[i]));
    cr_expect_not(bytes_equal(a, b, sizes[i] + 1));
    free(a);
    free(b);
  }
}

Test(team, a_large_buffer_has_the_fingerprint_that_its_words_have) {
  static const size_t sizes[] = {0, 5, 4096, (size_t)9 << 20 | 13};
  for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
    unsigned char *bytes = xmalloc(sizes[i] + 1);
    for (size_t k = 0; k < sizes[i]; k++)
      bytes[k] = (unsigned char)(k * 7 + k / 251);
    cr_expect(fingerprint_equal(bytes_fingerprint(bytes, sizes[i]),
                                fingerprint_part(bytes, sizes[i], 0)));
    free(bytes);
  }
}
