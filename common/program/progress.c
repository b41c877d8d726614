/* The progress bar. Owns nothing; one thread at a time. */
#include "common/program/progress.h"

#include <sys/ioctl.h>

#define BAR_WIDTH 24
#define DRAW_EVERY_MS 100
#define COLUMNS_DEFAULT 80

struct progress progress_start(FILE *out, const char *what, uint64_t total) {
  const char *terminal = getenv("TERM");
  bool is_watched = isatty(fileno(out)) && !string_equal(terminal, "dumb");
  int64_t now_ms = clock_monotonic_ms();
  return (struct progress){
      .out = is_watched ? out : NULL,
      .what = what,
      .total = total,
      .started_ms = now_ms,
      .drawn_ms = now_ms - DRAW_EVERY_MS,
  };
}

/* Columns of the terminal, so that the line never wraps: a wrapped one could not be drawn over. */
static size_t terminal_columns(FILE *out) {
  struct winsize size;
  bool is_known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : COLUMNS_DEFAULT;
}

static char *line_make(const struct progress *progress, uint64_t done, const char *note) {
  int64_t seconds = (clock_monotonic_ms() - progress->started_ms) / 1000;
  const char *gap = note[0] ? "  " : "";
  if (!progress->total)
    return xasprintf("%s  %llu  %lld s%s%s", progress->what, (unsigned long long)done,
                     (long long)seconds, gap, note);
  uint64_t shown = done < progress->total ? done : progress->total;
  double share = (double)shown / (double)progress->total;
  size_t filled = (size_t)(share * BAR_WIDTH);
  char bar[BAR_WIDTH + 1];
  memset(bar, '#', filled);
  memset(bar + filled, '.', BAR_WIDTH - filled);
  bar[BAR_WIDTH] = '\0';
  return xasprintf("%s [%s] %llu/%llu  %lld s%s%s", progress->what, bar, (unsigned long long)shown,
                   (unsigned long long)progress->total, (long long)seconds, gap, note);
}

void progress_show(struct progress *progress, uint64_t done, const char *note) {
  int64_t now_ms = clock_monotonic_ms();
  bool is_last = progress->total && done >= progress->total;
  if (!progress->out || (!is_last && now_ms - progress->drawn_ms < DRAW_EVERY_MS))
    return;
  progress->drawn_ms = now_ms;
  cleanup_free char *line = line_make(progress, done, note);
  fprintf(progress->out, "\r%.*s\x1b[K", (int)terminal_columns(progress->out) - 1, line);
  fflush(progress->out);
}

void progress_end(struct progress *progress) {
  if (!progress->out)
    return;
  fputs("\r\x1b[K", progress->out);
  fflush(progress->out);
}
