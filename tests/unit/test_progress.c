/* The progress bar: drawn on a terminal, never elsewhere. */
#include "common/program/terminal.h"

#include <criterion/criterion.h>
#include <pty.h>

Test(progress, writes_nothing_on_a_pipe) {
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  FILE *out = fdopen(ends[1], "w");
  struct progress progress = progress_start(out, "screen", 4);
  progress_show(&progress, 4, "");
  progress_end(&progress);
  fclose(out);
  char byte;
  cr_expect_eq(read(ends[0], &byte, 1), 0);
}

/* What a terminal of `columns` got of a bar at 2 of 4. */
static char *terminal_text(unsigned short columns, uint64_t total, const char *note) {
  int master, slave;
  struct winsize size = {.ws_row = 24, .ws_col = columns};
  setenv("TERM", "xterm", 1);
  cr_assert_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
  FILE *out = fdopen(slave, "w");
  struct progress progress = progress_start(out, "screen", total);
  progress_show(&progress, 2, note);
  char *text = xcalloc(1, 4096);
  cr_assert_gt(read(master, text, 4095), 0);
  fclose(out);
  close(master);
  return text;
}

Test(progress, draws_share_and_count_on_a_terminal) {
  cleanup_free char *text = terminal_text(80, 4, "best 3 us");
  cr_expect_not_null(strstr(text, "screen [############............] 2/4"), "%s", text);
  cr_expect_not_null(strstr(text, "best 3 us"));
}

Test(progress, counts_when_the_total_is_not_known) {
  cleanup_free char *text = terminal_text(80, 0, "");
  cr_expect_not_null(strstr(text, "screen  2"));
  cr_expect_null(strchr(text, '#'));
}

Test(progress, never_wraps_a_narrow_terminal) {
  cleanup_free char *text = terminal_text(20, 4, "a long note that does not fit");
  cr_expect_leq(strcspn(text + 1, "\x1b"), 19);
}

Test(progress, leaves_an_empty_line_behind) {
  int master, slave;
  setenv("TERM", "xterm", 1);
  cr_assert_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
  FILE *out = fdopen(slave, "w");
  struct progress progress = progress_start(out, "screen", 4);
  progress_end(&progress);
  char text[64] = "";
  cr_assert_gt(read(master, text, sizeof text - 1), 0);
  cr_expect_str_eq(text, "\r\x1b[K");
  fclose(out);
}

Test(progress, is_quiet_on_a_dumb_terminal) {
  int master, slave;
  setenv("TERM", "dumb", 1);
  cr_assert_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
  FILE *out = fdopen(slave, "w");
  cr_expect_null(progress_start(out, "screen", 4).out);
  fclose(out);
}
