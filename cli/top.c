/* wavetune top: the fleet on one screen, drawn again every second. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "cli/cli.h"
#include "cli/fleet.h"
#include "common/base/time.h"
#include "common/program/output.h"
#include "common/program/terminal.h"

#define DRAW_EVERY_MS 1000
#define BAR_WIDTH 24
#define COLUMNS_DEFAULT 80
#define ROWS_DEFAULT 24
#define REQUEST_TIMEOUT_MS 10000

/* What the server answered. */
struct seen {
  json_t *fleet, *nodes, *campaigns;
};

static void seen_release(struct seen *seen) {
  json_decref(seen->fleet);
  json_decref(seen->nodes);
  json_decref(seen->campaigns);
  *seen = (struct seen){0};
}
#define cleanup_seen cleanup_by(seen_release)

/* The first page of nodes and of open campaigns: more would not fit on a screen. */
static bool seen_read(struct http_client *client, struct seen *ret, struct error *error) {
  cleanup_seen struct seen seen = {0};
  if (!http_json(client, "GET", "/v1/fleet", NULL, REQUEST_TIMEOUT_MS, &seen.fleet, error) ||
      !http_json(client, "GET", "/v1/campaigns?open=true&limit=100", NULL, REQUEST_TIMEOUT_MS,
                 &seen.campaigns, error) ||
      !http_json(client, "GET", "/v1/fleet/nodes?limit=1000", NULL, REQUEST_TIMEOUT_MS, &seen.nodes,
                 error))
    return false;
  seen_release(ret);
  *ret = seen;
  seen = (struct seen){0};
  return true;
}

static void devices_write(FILE *out, const json_t *fleet) {
  const json_t *devices = json_object_get(fleet, "devices");
  const char *joint = ": ";
  fprintf(out, "%lld nodes, %lld devices", cli_integer(fleet, "nodes"),
          cli_integer(devices, "total"));
  json_members (devices, state, n)
    if (!string_equal(state, "total") && json_integer_value(n) > 0) {
      fprintf(out, "%s%lld %s", joint, json_integer_value(n), state);
      joint = ", ";
    }
  fputc('\n', out);
}

static void rate_write(FILE *out, const json_t *fleet) {
  const json_t *rate = json_object_get(fleet, "rate"), *to_go = json_object_get(fleet, "to_go"),
               *seconds = json_object_get(to_go, "seconds");
  double over_s = json_number(rate, "over_s"), minutes = over_s / 60;
  if (minutes > 0)
    fprintf(out,
            "last %s: %.0f measurements and %.1f jobs a minute, %.1f s of device time a second, "
            "%.0f %% of the devices' time\n",
            SPAN_TEXT(over_s), json_number(rate, "measurements") / minutes,
            json_number(rate, "jobs") / minutes, json_number(rate, "device_seconds") / over_s,
            100 * json_number(rate, "utilisation"));
  cleanup_free char *basis = xstrdup(cli_member(to_go, "basis"));
  text_make_printable(basis);
  fprintf(out, "to go: %s. %s\n",
          json_is_number(seconds) ? SPAN_TEXT(json_number_value(seconds)) : "-", basis);
}

static char *format_seconds(const json_t *seconds) {
  return json_is_number(seconds) ? xstrdup(SPAN_TEXT(json_number_value(seconds))) : xstrdup("");
}

static char *format_tag(const json_t *tag) {
  return json_is_string(tag) ? xstrdup(json_string_value(tag)) : xstrdup("(others)");
}

/* "[#####.....]  42 %" of a campaign. */
static void bars_add(json_t *campaigns) {
  json_elements (campaigns, index, campaign) {
    json_int_t jobs = cli_integer(campaign, "jobs"),
               open = cli_integer(campaign, "queued") + cli_integer(campaign, "running");
    double share = jobs > 0 ? (double)(jobs - open) / (double)jobs : 0;
    char bar[BAR_WIDTH + 1];
    size_t filled = (size_t)(share * BAR_WIDTH);
    memset(bar, '#', filled);
    memset(bar + filled, '.', BAR_WIDTH - filled);
    bar[BAR_WIDTH] = '\0';
    json_put(campaign, "bar", json_sprintf("[%s] %3.0f %%", bar, 100 * share));
  }
}

static void screen_write(FILE *out, const struct seen *seen) {
  static const struct cli_column queue_columns[] = {
      {"tag", .format = format_tag}, {"queued", "queued", true},
      {"running", "running", true},  {"leases open", "leases_open", true},
      {"held", "leases_held", true}, {"oldest", "oldest_s", true, format_seconds},
  };
  static const struct cli_column campaign_columns[] = {
      {"campaign", "tag"},        {"run"},
      {"ended", "ended", true},   {"", "bar"},
      {"failed", "failed", true}, {"device time", "device_time", true},
      {"to go", "to_go", true},
  };
  static const struct cli_column node_columns[] = {{"host"}, {"devices"}, {"doing"}, {"reason"}};
  int64_t now_ms = cli_integer(seen->fleet, "as_of_ms");
  const json_t *queue = json_object_get(seen->fleet, "queue");
  cleanup_json json_t *nodes = fleet_node_rows(json_object_get(seen->nodes, "items"), now_ms),
                      *campaigns = fleet_campaign_rows(json_object_get(seen->campaigns, "items"));

  devices_write(out, seen->fleet);
  rate_write(out, seen->fleet);
  if (json_array_size(queue)) {
    fputc('\n', out);
    output_rows(OUTPUT_TABLE, queue, queue_columns, out);
  }
  if (json_array_size(campaigns)) {
    fputc('\n', out);
    bars_add(campaigns);
    output_rows(OUTPUT_TABLE, campaigns, campaign_columns, out);
  }
  fputc('\n', out);
  output_rows(OUTPUT_TABLE, nodes, node_columns, out);
}

static int top_once(struct http_client *client, bool as_json) {
  cleanup_seen struct seen seen = {0};
  struct error error;
  if (!seen_read(client, &seen, &error))
    cli_failed(&error);
  if (as_json) {
    cleanup_json json_t *all = json_pack("{s:O, s:O, s:O}", "fleet", seen.fleet, "campaigns",
                                         json_object_get(seen.campaigns, "items"), "nodes",
                                         json_object_get(seen.nodes, "items"));
    cli_print_json(all);
  } else {
    screen_write(stdout, &seen);
  }
  return EXIT_OK;
}

/* The terminal while it is drawn on: its second screen, without echo and lines. */
static struct termios terminal_before;
static volatile sig_atomic_t was_stopped;

static void note_stop(int number) {
  (void)number;
  was_stopped = 1;
}

static void terminal_enter(void) {
  struct sigaction action = {.sa_handler = note_stop};
  struct termios raw;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  signal(SIGTSTP, SIG_IGN); /* a stopped program would leave the terminal as it is */

  if (tcgetattr(STDIN_FILENO, &terminal_before) == 0) {
    raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  fputs("\x1b[?1049h\x1b[?25l", stdout);
}

static void terminal_leave(void) {
  fputs("\x1b[?25h\x1b[?1049l", stdout);
  fflush(stdout);
  if (isatty(STDIN_FILENO))
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

/* Draws as many lines of the text as the terminal has, each cut to its width. */
static void screen_draw(const char *text) {
  struct winsize size;
  bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  int columns = is_known ? size.ws_col : COLUMNS_DEFAULT,
      rows = is_known && size.ws_row ? size.ws_row : ROWS_DEFAULT, row = 0;

  fputs("\x1b[H", stdout);
  while (*text && row < rows) {
    size_t length = strcspn(text, "\n"), shown = 0;
    int width = 0;
    while (shown < length && width < columns) {
      size_t bytes = utf8_character_size(text + shown, length - shown);
      shown += bytes ? bytes : 1;
      width++;
    }
    bool has_more = row == rows - 1 && text[length] && text[length + 1];
    printf("%s%.*s\x1b[K", row ? "\n" : "", has_more ? 0 : (int)shown, text);
    if (has_more)
      fputs("…", stdout);
    text += length + (text[length] != '\0');
    row++;
  }
  fputs("\x1b[J", stdout);
  fflush(stdout);
}

/* Waits until the next drawing is due; true when the person wants to leave. */
static bool wait_key(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  int64_t until_ms = clock_monotonic_ms() + DRAW_EVERY_MS;
  for (int64_t left_ms = DRAW_EVERY_MS; left_ms > 0 && !was_stopped;
       left_ms = until_ms - clock_monotonic_ms()) {
    char key;
    if (poll(&input, 1, (int)left_ms) <= 0)
      continue;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n == 1 && (key == 'q' || key == 'Q'))
      return true;
    if (n <= 0)
      input.fd = -1; /* it ended: only signals end the program */
  }
  return was_stopped;
}

/* Draws until the person leaves, also while the server does not answer for a while. A refusal, such
 * as of the token, ends it. */
static int top_live(struct http_client *client, const char *url) {
  cleanup_seen struct seen seen = {0};
  struct error error;
  int code = EXIT_OK;
  bool is_over = false;
  if (!seen_read(client, &seen, &error))
    cli_failed(&error);

  terminal_enter();
  while (!is_over) {
    cleanup_free char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ALWAYS(out != NULL);
    fprintf(out, "wavetune %s  as of %s  q leaves\n", url,
            TIME_TEXT(cli_integer(seen.fleet, "as_of_ms") / 1000));
    if (code != EXIT_OK) {
      text_make_printable(error.message);
      fprintf(out, "%s; trying again\n", error.message);
    }
    screen_write(out, &seen);
    ALWAYS(fclose(out) == 0);
    screen_draw(text);

    is_over = wait_key();
    if (is_over)
      break;
    code = seen_read(client, &seen, &error) ? EXIT_OK : error_exit_code(error.kind);
    is_over = code != EXIT_OK && code != EXIT_UNREACHABLE;
  }
  terminal_leave();

  if (code != EXIT_OK && code != EXIT_UNREACHABLE)
    cli_failed(&error);
  return EXIT_OK;
}

static int command_top(struct options *options) {
  const char *terminal = getenv("TERM");
  bool as_json = option_flag(options, "json"), is_live = isatty(STDOUT_FILENO) &&
                                                         !string_equal(terminal, "dumb") &&
                                                         !as_json && !option_flag(options, "once");
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!is_live)
    return top_once(client, as_json);
  cleanup_free char *urls = option_list_join(options, "url");
  return top_live(client, urls);
}

static const struct option_spec top_options[] = {
    CLI_FLAG("once", "print it once, as without a terminal"),
    SERVER_OPTIONS,
};

CLI_COMMAND(top, "top", "", top_options,
            "show the fleet, the queue and campaigns, drawn again every second",
            .description = "q or Ctrl-C leaves. When stdout is no terminal, it is printed once.");
