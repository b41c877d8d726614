/* Log lines: one a call, with a level, and nothing in a value that could forge another. */
#include "common/base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>

static char captured[8192];

static int stderr_capture(int pipe_ends[2]) {
  cr_assert_eq(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
  int saved = dup(STDERR_FILENO);
  dup2(pipe_ends[1], STDERR_FILENO);
  return saved;
}

static const char *stderr_restore(const int pipe_ends[2], int saved) {
  dup2(saved, STDERR_FILENO);
  close(saved);
  ssize_t n = read(pipe_ends[0], captured, sizeof captured - 1);
  captured[n > 0 ? n : 0] = '\0';
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return captured;
}

#define CAPTURE(statement)                                                                                             \
  ({                                                                                                                   \
    int pipe_ends_[2], saved_ = stderr_capture(pipe_ends_);                                                            \
    statement;                                                                                                         \
    stderr_restore(pipe_ends_, saved_);                                                                                \
  })

static void without_journal(void) {
  unsetenv("JOURNAL_STREAM");
  unsetenv("WAVETUNE_LOG");
}
TestSuite(log, .init = without_journal);

Test(log, a_line_has_time_level_and_text) {
  const char *line = CAPTURE(log_info("lease: granted lease=%d", 7));
  int year, month, day, hour, minute, second, thousandth, end = 0;
  cr_expect_eq(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ info lease: granted lease=7\n%n", &year, &month, &day, &hour,
                      &minute, &second, &thousandth, &end),
               7);
  cr_expect_eq((size_t)end, strlen(line));
}

Test(log, under_journald_a_line_has_the_priority_instead) {
  setenv("JOURNAL_STREAM", "8:1", 1);
  cr_expect_str_eq(CAPTURE(log_error("disk full")), "<3>disk full\n");
  cr_expect_str_eq(CAPTURE(log_warning("late")), "<4>late\n");
}

Test(log, debug_is_silent_by_default) { cr_expect_str_eq(CAPTURE(log_debug("detail")), ""); }

Test(log, the_level_can_be_set) {
  log_set_level(LOG_LEVEL_ERROR);
  cr_expect_str_eq(CAPTURE(log_warning("late")), "");
  log_set_level(LOG_LEVEL_DEBUG);
  cr_expect_neq(strstr(CAPTURE(log_debug("detail")), " debug detail\n"), NULL);
}

Test(log, the_level_comes_from_the_environment) {
  setenv("WAVETUNE_LOG", "debug", 1);
  cr_expect_neq(strstr(CAPTURE(log_debug("detail")), " debug detail\n"), NULL);
}

Test(log, an_unknown_level_in_the_environment_is_the_default) {
  setenv("WAVETUNE_LOG", "loud", 1);
  cr_expect_str_eq(CAPTURE(log_debug("detail")), "");
  cr_expect_neq(strstr(CAPTURE(log_info("event")), " info event\n"), NULL);
}

Test(log, level_names_read) {
  enum log_level level = LOG_LEVEL_ERROR;
  cr_assert(log_level_parse("warning", &level));
  cr_expect_eq(level, LOG_LEVEL_WARNING);
  cr_expect_not(log_level_parse("warn", &level));
  cr_expect_eq(level, LOG_LEVEL_WARNING);
}

Test(log, a_value_cannot_forge_a_line_nor_drive_a_terminal) {
  const char *line = CAPTURE(log_info("agent=%s", "a\nb\rc\x1b[2Jd\x7f"));
  cr_expect_neq(strstr(line, "agent=a b c [2Jd \n"), NULL, "%s", line);
  cr_expect_eq(strchr(line, '\n'), line + strlen(line) - 1);
}

Test(log, a_long_line_is_cut_and_still_ends) {
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  const char *line = CAPTURE(log_info("%s", text));
  cr_expect_leq(strlen(line), (size_t)2048);
  cr_expect_geq(strlen(line), (size_t)2040);
  cr_expect_eq(line[strlen(line) - 1], '\n');
}

Test(log, errno_survives_a_write_that_fails) {
  int full = open("/dev/full", O_WRONLY | O_CLOEXEC), saved = dup(STDERR_FILENO);
  dup2(full, STDERR_FILENO);
  errno = EINTR;
  log_info("a write that fails");
  int after = errno;
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(full);
  cr_expect_eq(after, EINTR);
}
