/* Ownership by scope, checked sizes, and aborting when an invariant is broken. */
#include "common/base/base.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>

static int closed;

static void handle_close(const int *handle) { closed = *handle; }
DEFINE_CLEANUP(int *, cleanup_handle, handle_close)

Test(base, take_returns_the_pointer_and_leaves_null) {
  char *text = xstrdup("text");
  cleanup_free char *taken = TAKE(text);
  cr_expect_null(text);
  cr_expect_str_eq(taken, "text");
}

Test(base, defined_cleanup_runs_at_the_end_of_the_scope) {
  int handle = 7;
  {
    __attribute__((cleanup(cleanup_handle))) int *held = &handle;
    cr_assert_eq(*held, 7);
  }
  cr_expect_eq(closed, 7);
}

Test(base, defined_cleanup_ignores_null) {
  {
    __attribute__((cleanup(cleanup_handle), unused)) int *held = NULL;
  }
  cr_expect_eq(closed, 0);
}

Test(base, cleanup_fd_closes_the_descriptor) {
  int copy;
  {
    cleanup_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    copy = fd;
  }
  cr_expect_eq(fcntl(copy, F_GETFD), -1);
}

Test(base, an_array_grows_and_keeps_its_elements) {
  cleanup_free int *numbers = NULL;
  size_t capacity = 0;
  for (size_t n = 0; n < 1000; n++) {
    GROW(numbers, n, capacity);
    numbers[n] = (int)n;
  }
  cr_expect_geq(capacity, (size_t)1000);
  for (int i = 0; i < 1000; i++)
    cr_assert_eq(numbers[i], i);
}

Test(base, allocations_of_zero_bytes_are_not_null) {
  cleanup_free void *a = xmalloc(0), *b = xcalloc(0, 8), *c = xmemdup(NULL, 0);
  cr_expect(a && b && c);
}

Test(base, xcalloc_zeroes) {
  cleanup_free char *bytes = xcalloc(64, 1);
  for (size_t i = 0; i < 64; i++)
    cr_assert_eq(bytes[i], 0);
}

Test(base, xstrndup_cuts) {
  cleanup_free char *text = xstrndup("kernel", 4);
  cr_expect_str_eq(text, "kern");
}

Test(base, xasprintf_formats) {
  cleanup_free char *text = xasprintf("%s-%d", "config", 17);
  cr_expect_str_eq(text, "config-17");
}

/* Through a volatile, so that the compiler does not see the overflow that is tested. */
static volatile size_t huge = SIZE_MAX / 2;

Test(base, a_product_that_overflows_aborts, .signal = SIGABRT) {
  cleanup_free char *bytes = xreallocarray(NULL, huge, 4);
  cr_expect_not_null(bytes);
}

Test(base, a_product_of_zeroed_memory_that_overflows_aborts, .signal = SIGABRT) {
  cleanup_free char *bytes = xcalloc(huge, 4);
  cr_expect_not_null(bytes);
}

Test(base, a_false_ALWAYS_aborts, .signal = SIGABRT) { ALWAYS(huge == 0); }

struct tagged {
  uint32_t magic;
};
#define TAGGED_MAGIC 0x12345678u

Test(base, the_expected_magic_passes) {
  struct tagged tagged = {TAGGED_MAGIC};
  MAGIC_CHECK(&tagged, TAGGED_MAGIC);
  cr_expect_eq(tagged.magic, TAGGED_MAGIC);
}

Test(base, a_wrong_magic_aborts, .signal = SIGABRT) {
  struct tagged tagged = {1};
  MAGIC_CHECK(&tagged, TAGGED_MAGIC);
}

Test(base, a_null_with_magic_aborts, .signal = SIGABRT) {
  struct tagged *volatile tagged = NULL;
  MAGIC_CHECK(tagged, TAGGED_MAGIC);
}

Test(base, strings_compare_with_null) {
  cr_expect(string_equal("a", "a"));
  cr_expect_not(string_equal("a", "b"));
  cr_expect_not(string_equal("a", NULL));
  cr_expect_not(string_equal(NULL, "a"));
  cr_expect(string_equal(NULL, NULL));
}

Test(base, string_starts_needs_the_whole_prefix) {
  cr_expect(string_starts("sha256:ab", "sha256:"));
  cr_expect_not(string_starts("sha", "sha256:"));
}

Test(base, the_monotonic_clock_does_not_go_back) {
  int64_t before = clock_monotonic_ns();
  cr_expect_geq(clock_monotonic_ns(), before);
}
