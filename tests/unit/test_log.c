/* Log lines: one a call, with a level, and nothing in a value that could forge another. */
#include "common/base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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

#define CAPTURE(statement)                                                                         \
  ({                                                                                               \
    int pipe_ends_[2], saved_ = stderr_capture(pipe_ends_);                                        \
    statement;                                                                                     \
    stderr_restore(pipe_ends_, saved_);                                                            \
  })

/* Sets $JOURNAL_STREAM like systemd; to be called within CAPTURE. */
static void journal_is_stderr(void) {
  struct stat status;
  char name[64];
  cr_assert_eq(fstat(STDERR_FILENO, &status), 0);
  snprintf(name, sizeof name, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
  setenv("JOURNAL_STREAM", name, 1);
}

static void without_journal(void) {
  unsetenv("JOURNAL_STREAM");
  unsetenv("WAVETUNE_LOG");
}
TestSuite(log, .init = without_journal);

Test(log, a_line_has_time_level_and_text) {
  const char *line = CAPTURE(log_info("lease: granted lease=%d", 7));
  int year, month, day, hour, minute, second, thousandth, end = 0;
  cr_expect_eq(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ info lease: granted lease=7\n%n", &year,
                      &month, &day, &hour, &minute, &second, &thousandth, &end),
               7);
  cr_expect_eq((size_t)end, strlen(line));
}

Test(log, under_journald_a_line_has_the_priority_but_no_time) {
  cr_expect_str_eq(CAPTURE((journal_is_stderr(), log_error("disk full"))), "<3>disk full\n");
  cr_expect_str_eq(CAPTURE((journal_is_stderr(), log_warning("late"))), "<4>late\n");
}

Test(log, where_stderr_is_not_the_journal_a_line_has_its_time) {
  setenv("JOURNAL_STREAM", "8:1", 1);
  cr_expect_neq(strstr(CAPTURE(log_error("disk full")), "Z error disk full\n"), NULL);
}

Test(log, under_journald_json_has_the_priority_before_the_object) {
  log_set_format(LOG_FORMAT_JSON, "test");
  const char *line = CAPTURE((journal_is_stderr(), log_error("disk full")));
  cr_assert(string_starts(line, "<3>{\"time\":\"2"), "%s", line);
  cr_expect_neq(
      strstr(line, ",\"level\":\"error\",\"program\":\"test\",\"message\":\"disk full\"}\n"), NULL);
}

Test(log, a_line_names_the_request_of_its_thread) {
  log_set_request("06f4-b3kz");
  cr_expect_neq(
      strstr(CAPTURE(log_info("job: done job=%d", 7)), " info job: done job=7 request=06f4-b3kz\n"),
      NULL);
  log_set_request(NULL);
  cr_expect_eq(strstr(CAPTURE(log_info("job: done job=%d", 7)), "request="), NULL);
}

Test(log, names_of_formats_are_parsed) {
  enum log_format format = LOG_FORMAT_TEXT;
  cr_assert(log_format_parse("json", &format));
  cr_expect_eq(format, LOG_FORMAT_JSON);
  cr_assert(log_format_parse("text", &format));
  cr_expect_eq(format, LOG_FORMAT_TEXT);
  cr_expect_not(log_format_parse("JSON", &format));
}

Test(log, the_message_of_die_is_json) {
  log_set_format(LOG_FORMAT_JSON, "test");
  int ends[2], status;
  cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  pid_t pid = fork();
  if (pid == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    die("not a %s", "thing");
  }
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_expect(WIFSIGNALED(status));
  ssize_t n = read(ends[0], captured, sizeof captured - 1);
  captured[n > 0 ? n : 0] = '\0';
  cr_expect_neq(strstr(captured, "\"component\":\"fatal\",\"message\":\"not a thing\"}\n"), NULL,
                "%s", captured);
}

Test(log, debug_is_silent_by_default) { cr_expect_str_eq(CAPTURE(log_debug("detail")), ""); }

Test(log, lines_above_the_level_are_left_out) {
  setenv("WAVETUNE_LOG", "error", 1);
  cr_expect_str_eq(CAPTURE(log_warning("late")), "");
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

Test(log, a_value_cannot_forge_a_line_or_control_a_terminal) {
  const char *line = CAPTURE(log_info("agent=%s", "a\nb\rc\x1b[2Jd\x7f"));
  cr_expect_neq(strstr(line, "agent=\"a\\nb\\rc\\u001b[2Jd\\u007f\"\n"), NULL, "%s", line);
  cr_expect_eq(strchr(line, '\n'), line + strlen(line) - 1);
  line = CAPTURE(log_info("%s", "a\nb\x1b[2J\x7f"));
  cr_expect_neq(strstr(line, "info a b [2J \n"), NULL, "%s", line);
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
