/* Options and commands: order of origins, --help, and all errors as a person sees them. */
#include <criterion/criterion.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/program/options.h"

static int run_show(struct options *options) {
  const char *text = option_text(options, "url");
  const char *const *list;
  size_t n = option_list(options, "device", &list);
  printf("url=%s token=%s lease=%lld json=%d devices=", text ? text : "none",
         option_text(options, "token") ? "given" : "none",
         (long long)option_integer(options, "lease-seconds"), option_flag(options, "json"));
  for (size_t i = 0; i < n; i++)
    printf("[%s]", list[i]);
  char *const *arguments;
  n = options_arguments(options, &arguments);
  if (option_text(options, "output"))
    printf(" output=%s", option_text(options, "output"));
  printf(" arguments=");
  for (size_t i = 0; i < n; i++)
    printf("[%s]", arguments[i]);
  printf("\n");
  return EXIT_FAILED;
}

static int run_nothing(struct options *options) {
  printf("any=%lld\n", (long long)option_integer(options, "any"));
  return EXIT_OK;
}

static int run_missing(struct options *options) { return (int)option_integer(options, "any"); }

static const struct option_spec show_options[] = {
    {.name = "url",
     .type = OPTION_TEXT,
     .argument = "URL",
     .help = "the server",
     .default_text = "http://localhost:1"},
    {.name = "token", .type = OPTION_TEXT, .argument = "TOKEN", .help = "who asks"},
    {.name = "lease-seconds",
     .type = OPTION_INTEGER,
     .argument = "SECONDS",
     .default_text = "30",
     .min = 1,
     .max = 600,
     .help = "how long a lease lasts; the text is long, so that it does not fit on a line and the "
             "words that are left "
             "go on under the first"},
    {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
    {.name = "device", .type = OPTION_LIST, .argument = "N", .help = "a device"},
    {.name = "wait", .type = OPTION_FLAG, .help = "wait for the end", .flag_only = true},
    {.name = "output",
     .letter = 'o',
     .type = OPTION_TEXT,
     .argument = "FORMAT",
     .help = "a format"},
};
static const struct option_spec any_options[] = {{.name = "any",
                                                  .type = OPTION_INTEGER,
                                                  .argument = "N",
                                                  .default_text = "-5",
                                                  .help = "any integer"}};
static const struct option_spec missing_options[] = {
    {.name = "any",
     .type = OPTION_INTEGER,
     .argument = "EXACTLY-THIS-MANY-OR-PERHAPS-MORE",
     .help = "any integer"}};

static const struct command_spec commands[] = {
    {"kernel show", "[NAME]…", "Shows a kernel.", "A paragraph.\nIts second line.", show_options,
     ARRAY_LENGTH(show_options), run_show},
    {"kernel any", "", "Takes an integer.", NULL, any_options, ARRAY_LENGTH(any_options),
     run_nothing},
    {"submit", "", "Submits.",
     "A paragraph of one long line, which the help breaks where the words end and the terminal "
     "does, so that nobody "
     "has to count columns.\n\nAnother.",
     missing_options, ARRAY_LENGTH(missing_options), run_missing},
};

/* What a run of the program printed and how it ended. */
struct outcome {
  int code;
  char out[8192], err[8192];
};

static void read_all(int fd, char *text, size_t size) {
  size_t used = 0;
  for (ssize_t got; used + 1 < size && (got = read(fd, text + used, size - 1 - used)) > 0;)
    used += (size_t)got;
  text[used] = '\0';
  close(fd);
}

/* Runs `prog WORDS…` in a child, since options_parse exits. */
static struct outcome run_words(size_t n_words, const char *const *words) {
  char *argv[16] = {xstrdup("prog")};
  cr_assert_lt(n_words, ARRAY_LENGTH(argv));
  for (size_t i = 0; i < n_words; i++)
    argv[i + 1] = xstrdup(words[i]);
  int out[2], err[2];
  cr_assert(pipe(out) == 0 && pipe(err) == 0);
  fflush(NULL);
  pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    close(out[0]);
    close(err[0]);
    int code = commands_run("prog", "A program.", commands, ARRAY_LENGTH(commands),
                            (int)n_words + 1, argv);
    fflush(NULL);
    _exit(code);
  }
  close(out[1]);
  close(err[1]);
  struct outcome outcome;
  read_all(out[0], outcome.out, sizeof outcome.out);
  read_all(err[0], outcome.err, sizeof outcome.err);
  for (size_t i = 0; i <= n_words; i++)
    free(argv[i]);
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

#define RUN(...)                                                                                   \
  ({                                                                                               \
    const char *const words_[] = {__VA_ARGS__};                                                    \
    run_words(ARRAY_LENGTH(words_), words_);                                                       \
  })

static void assert_has(const char *text, const char *part) {
  cr_assert(strstr(text, part), "no \"%s\" in:\n%s", part, text);
}

static char config_path[] = "/tmp/wavetune-test-options-XXXXXX";

/* No configuration file of this machine may be read. */
static void set_up(void) {
  setenv("HOME", "/nonexistent", 1);
  setenv("WAVETUNE_CONFIG", "", 1);
  unsetenv("WAVETUNE_URL");
  unsetenv("WAVETUNE_TOKEN");
}

static void write_config(const char *text) {
  int fd = mkstemp(config_path);
  cr_assert_geq(fd, 0);
  cr_assert(fd_write_all(fd, text, strlen(text)));
  close(fd);
}

static void remove_config(void) { unlink(config_path); }

TestSuite(options, .init = set_up, .fini = remove_config);

Test(options, without_values_options_have_their_defaults) {
  struct outcome got = RUN("kernel", "show");
  cr_assert_eq(got.code, EXIT_FAILED);
  cr_assert_str_eq(got.out,
                   "url=http://localhost:1 token=none lease=30 json=0 devices= arguments=\n");
}

Test(options, flags_take_values_with_a_space_or_an_equals_sign) {
  struct outcome got = RUN("kernel", "show", "--url", "http://a", "--lease-seconds=7", "--json");
  cr_assert_str_eq(got.out, "url=http://a token=none lease=7 json=1 devices= arguments=\n");
}

Test(options, flags_may_follow_arguments) {
  struct outcome got =
      RUN("kernel", "show", "one", "--lease-seconds", "9", "-", "-3", "--json=false");
  cr_assert_str_eq(
      got.out,
      "url=http://localhost:1 token=none lease=9 json=0 devices= arguments=[one][-][-3]\n");
}

Test(options, two_dashes_end_the_flags) {
  struct outcome got = RUN("kernel", "show", "one", "--", "--json", "--", "--help");
  cr_assert_str_eq(got.out, "url=http://localhost:1 token=none lease=30 json=0 devices= "
                            "arguments=[one][--json][--][--help]\n");
}

Test(options, a_list_collects_its_flags) {
  struct outcome got = RUN("kernel", "show", "--device", "0", "--device=2");
  assert_has(got.out, "devices=[0][2]");
}

Test(options, the_last_of_two_equal_flags_is_used) {
  struct outcome got = RUN("kernel", "show", "--lease-seconds=1", "--lease-seconds=2");
  assert_has(got.out, "lease=2");
}

Test(options, variables_come_before_defaults_and_after_flags) {
  setenv("WAVETUNE_LEASE_SECONDS", "11", 1);
  setenv("WAVETUNE_URL", "http://variable", 1);
  setenv("WAVETUNE_JSON", "1", 1);
  setenv("WAVETUNE_DEVICE", "5", 1);
  struct outcome got = RUN("kernel", "show", "--url", "http://flag", "--device", "1");
  cr_assert_str_eq(got.out, "url=http://flag token=none lease=11 json=1 devices=[1] arguments=\n");
}

Test(options, an_empty_variable_is_not_set) {
  setenv("WAVETUNE_LEASE_SECONDS", "", 1);
  assert_has(RUN("kernel", "show").out, "lease=30");
}

Test(options, a_flag_only_option_has_no_variable) {
  setenv("WAVETUNE_WAIT", "nonsense", 1);
  cr_assert_eq(RUN("kernel", "show").code, EXIT_FAILED);
}

Test(options, the_file_comes_before_defaults_and_after_variables) {
  write_config("{\"url\": \"http://file\", \"token\": \"t\", \"lease_seconds\": 5, \"json\": true, "
               "\"lease_target_ms\": [1],"
               " \"device\": [\"3\", \"4\"]}");
  setenv("WAVETUNE_URL", "http://variable", 1);
  struct outcome got = RUN("kernel", "show", "--config", config_path);
  cr_assert_str_eq(got.out,
                   "url=http://variable token=given lease=5 json=1 devices=[3][4] arguments=\n");
}

Test(options, a_variable_names_the_file) {
  write_config("{\"lease_seconds\": 6}");
  setenv("WAVETUNE_CONFIG", config_path, 1);
  assert_has(RUN("kernel", "show").out, "lease=6");
}

Test(options, the_file_of_the_home_folder_is_read) {
  char home[] = "/tmp/wavetune-test-home-XXXXXX";
  cr_assert_not_null(mkdtemp(home));
  cleanup_free char *folder = xasprintf("%s/.config/wavetune", home);
  cleanup_free char *path = xasprintf("%s/config.json", folder);
  struct error error;
  cr_assert(folder_make(folder, 0700, &error) &&
            file_write_atomically(path, "{\"json\": true}", 14, 0600, &error));
  setenv("HOME", home, 1);
  assert_has(RUN("kernel", "show").out, "json=1");
  cr_assert(folder_remove(home, &error));
}

Test(options, a_named_file_that_is_missing_is_refused) {
  struct outcome got = RUN("kernel", "show", "--config=/nonexistent/config.json");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "/nonexistent/config.json");
}

Test(options, a_member_of_the_wrong_type_is_refused_with_file_and_pointer) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"{\"lease_seconds\": \"5\"}", ": /lease_seconds must be an integer"},
      {"{\"lease_seconds\": 601}",
       ": /lease_seconds must be an integer from 1 to 600, not \"601\""},
      {"{\"json\": 1}", ": /json must be true or false"},
      {"{\"url\": 1}", ": /url must be a string"},
      {"{\"device\": 1}", ": /device must be a string or an array of strings"},
      {"{\"device\": [\"1\", 2]}", ": /device/1 must be a string"},
      {"{\"lease-seconds\": 5}", "\"lease-seconds\" is not the name of an option"},
      {"{\"lease_second\": 5}", "there is no option \"lease_second\""},
      {"[]", " must contain a JSON object"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    strcpy(config_path + strlen(config_path) - 6, "XXXXXX");
    write_config(cases[i].text);
    struct outcome got = RUN("kernel", "show", "--config", config_path);
    cr_assert_eq(got.code, EXIT_USAGE);
    assert_has(got.err, config_path);
    assert_has(got.err, cases[i].expected);
    unlink(config_path);
  }
}

Test(options, a_broken_file_is_refused_without_showing_its_token) {
  write_config("{\"token\": \"s3cret\" \"s3cret\"}");
  struct outcome got = RUN("kernel", "show", "--config", config_path);
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "not a JSON document");
  cr_assert_null(strstr(got.err, "s3cret"));
}

Test(options, an_integer_outside_its_range_names_the_flag) {
  struct outcome got = RUN("kernel", "show", "--lease-seconds=601");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "--lease-seconds");
  assert_has(got.err, "1 to 600");
  assert_has(got.err, "601");
  assert_has(got.err, "\"prog kernel show --help\"");
}

Test(options, an_integer_outside_its_range_names_the_variable) {
  setenv("WAVETUNE_LEASE_SECONDS", "0", 1);
  struct outcome got = RUN("kernel", "show");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "WAVETUNE_LEASE_SECONDS");
  assert_has(got.err, "1 to 600");
}

Test(options, a_text_that_is_no_integer_is_refused) {
  static const char *const texts[] = {"",   "x",   "5s",  " 5",
                                      "+5", "0x5", "5.0", "99999999999999999999"};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    struct outcome got = RUN("kernel", "any", "--any", texts[i]);
    cr_assert_eq(got.code, EXIT_USAGE, "\"%s\" was taken", texts[i]);
    assert_has(got.err, "--any must be an integer, not ");
  }
}

Test(options, an_integer_without_a_range_has_no_limits) {
  cr_assert_str_eq(RUN("kernel", "any").out, "any=-5\n");
  cr_assert_str_eq(RUN("kernel", "any", "--any", "-9223372036854775808").out,
                   "any=-9223372036854775808\n");
}

Test(options, reading_an_integer_without_a_value_aborts) {
  cr_assert_eq(RUN("submit").code, 128 + SIGABRT);
}

Test(options, a_flag_with_another_value_than_true_or_false_is_refused) {
  struct outcome got = RUN("kernel", "show", "--json=maybe");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "--json must be true, false, 1 or 0");
}

Test(options, a_flag_without_its_value_is_refused) {
  struct outcome got = RUN("kernel", "show", "--url");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "--url needs a value: --url URL");
}

Test(options, an_unknown_flag_is_refused_with_the_nearest_name_and_without_its_value) {
  struct outcome got = RUN("kernel", "show", "--tokn=s3cret");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "--tokn ");
  assert_has(got.err, "--token?");
  cr_assert_null(strstr(got.err, "s3cret"));
}

Test(options, an_unknown_flag_like_none_is_refused_without_a_guess) {
  struct outcome got = RUN("kernel", "show", "--entirely-else");
  cr_assert_eq(got.code, EXIT_USAGE);
  cr_assert_null(strstr(got.err, "did you mean"));
}

Test(options, a_flag_with_one_dash_is_refused_without_what_follows) {
  struct outcome got = RUN("kernel", "show", "-ts3cret");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "unknown flag -t: flags have two dashes");
  cr_assert_null(strstr(got.err, "s3cret"));
}

Test(options, a_letter_stands_for_its_option) {
  struct outcome apart = RUN("kernel", "show", "-o", "a=b"), equal = RUN("kernel", "show", "-o=x"),
                 joined = RUN("kernel", "show", "-owide", "name");
  assert_has(apart.out, " output=a=b arguments=\n");
  assert_has(equal.out, " output=x arguments=\n");
  assert_has(joined.out, " output=wide arguments=[name]\n");
}

Test(options, a_letter_without_its_value_is_refused_by_the_name_of_its_option) {
  struct outcome got = RUN("kernel", "show", "-o");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "--output needs a value: --output FORMAT");
}

Test(options, a_command_without_arguments_refuses_one) {
  struct outcome got = RUN("kernel", "any", "thing");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "unexpected argument \"thing\"");
}

Test(options, help_shows_usage_defaults_ranges_and_variables) {
  setenv("WAVETUNE_TOKEN", "s3cret", 1);
  struct outcome got = RUN("kernel", "show", "--help");
  cr_assert_eq(got.code, EXIT_OK);
  cr_assert_str_eq(
      got.out, "usage: prog kernel show [OPTIONS] [NAME]…\n"
               "\n"
               "Shows a kernel.\n"
               "\n"
               "A paragraph.\n"
               "Its second line.\n"
               "\n"
               "options:\n"
               "  --url URL                the server (default http://localhost:1; WAVETUNE_URL)\n"
               "  --token TOKEN            who asks (WAVETUNE_TOKEN)\n"
               "  --lease-seconds SECONDS  how long a lease lasts; the text is long, so that it "
               "does not fit on a "
               "line and the\n"
               "                           words that are left go on under the first (1 to 600; "
               "default 30;\n"
               "                           WAVETUNE_LEASE_SECONDS)\n"
               "  --json                   print JSON (WAVETUNE_JSON)\n"
               "  --device N               a device (may be repeated; WAVETUNE_DEVICE)\n"
               "  --wait                   wait for the end\n"
               "  --output FORMAT          a format (WAVETUNE_OUTPUT)\n"
               "  --config FILE            read options from this JSON file (default: "
               "~/.config/wavetune/config.json, else\n"
               "                           /etc/wavetune/config.json) (WAVETUNE_CONFIG)\n"
               "  --help                   show this help and exit\n"
               "  --version                show the version and exit\n");
}

Test(options, help_wraps_paragraphs_and_keeps_empty_lines_between_them) {
  struct outcome got = RUN("submit", "--help");
  assert_has(
      got.out,
      "Submits.\n\nA paragraph of one long line, which the help breaks where the words end and the "
      "terminal does, so that nobody\nhas to count columns.\n\nAnother.\n\noptions:\n");
}

Test(options, help_moves_a_text_below_an_option_that_is_too_wide_for_the_column) {
  struct outcome got = RUN("submit", "--help");
  assert_has(
      got.out,
      "  --any EXACTLY-THIS-MANY-OR-PERHAPS-MORE\n                 any integer (WAVETUNE_ANY)\n");
}

Test(options, help_is_shown_after_wrong_values) {
  cr_assert_eq(RUN("kernel", "show", "--lease-seconds=x", "-h").code, EXIT_OK);
}

Test(commands, without_words_the_commands_are_listed_as_an_error) {
  struct outcome got = run_words(0, NULL);
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err,
             "commands:\n  kernel show  Shows a kernel.\n  kernel any   Takes an integer.\n");
  cr_assert_str_empty(got.out);
}

Test(commands, help_lists_the_commands) {
  struct outcome got = RUN("--help");
  cr_assert_eq(got.code, EXIT_OK);
  assert_has(got.out, "usage: prog COMMAND [OPTIONS] …\n\nA program.\n\ncommands:\n");
  assert_has(got.out, "  submit       Submits.\n");
}

Test(commands, version_is_printed_by_the_program_and_by_commands) {
  const char *expected = "prog " WAVETUNE_VERSION "\nbugs: " WAVETUNE_REPORT_TO "\n";
  cr_assert_str_eq(RUN("--version").out, expected);
  cr_assert_str_eq(RUN("kernel", "any", "--version").out, expected);
}

Test(commands, the_first_word_alone_lists_its_group) {
  struct outcome got = RUN("kernel");
  cr_assert_eq(got.code, EXIT_USAGE);
  assert_has(got.err, "  kernel any   Takes an integer.\n");
  cr_assert_null(strstr(got.err, "submit"));
  got = RUN("kernel", "--help");
  cr_assert_eq(got.code, EXIT_OK);
  assert_has(got.out, "  kernel show  Shows a kernel.\n");
}

Test(commands, an_unknown_command_is_refused_with_the_nearest) {
  struct outcome got = RUN("kernel", "shwo", "--json");
  cr_assert_eq(got.code, EXIT_USAGE);
  cr_assert_str_eq(got.err, "prog: unknown command \"kernel shwo\" (did you mean \"kernel "
                            "show\"?); see \"prog --help\"\n");
  assert_has(RUN("sumbit", "thing").err, "unknown command \"sumbit\" (did you mean \"submit\"?)");
  cr_assert_null(strstr(RUN("entirely-else").err, "did you mean"));
}
