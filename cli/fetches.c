/* wavetune releases fetches: which tokens fetched a release, and how often.
 *
 * Memory: answers are the caller's. Threads: one. */
#include "cli/channel.h"
#include "common/program/output.h"

/* The last fetch first. Times are texts of one form, so that they sort as texts. */
static int fetches_compare(const void *a, const void *b) {
  return strcmp(cli_member(*(json_t *const *)b, "last_at"),
                cli_member(*(json_t *const *)a, "last_at"));
}

json_t *release_fetches(struct http_client *client, const char *digest) {
  cleanup_free char *path = cli_path("/v1/releases/", digest, "/fetches");
  cleanup_json json_t *items = cli_list(client, path);
  size_t n = json_array_size(items);
  cleanup_free json_t **all = xcalloc(n + 1, sizeof *all);
  for (size_t i = 0; i < n; i++)
    all[i] = json_array_get(items, i);
  qsort(all, n, sizeof *all, fetches_compare);

  json_t *sorted = json_array();
  for (size_t i = 0; i < n; i++)
    json_push(sorted, json_incref(all[i]));
  return sorted;
}

static int command_releases_fetches(struct options *options) {
  static const struct cli_column columns[] = {{"by", "fetched_by"},
                                              {"what", "kind"},
                                              {"channel", "channel", false, cli_format_or_dash},
                                              {"rule", "rule", false, cli_format_or_dash},
                                              {"requests", "requests", true},
                                              {"first", "first_at"},
                                              {"last", "last_at"}};
  char *const *release =
      cli_arguments(options, 1, "name one release, as `wavetune releases` prints it");
  enum output output = output_of(options);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *items = release_fetches(client, *release);
  output_rows(output, items, columns, stdout);
  return EXIT_OK;
}

CLI_COMMAND(releases_fetches, "releases fetches", "RELEASE", list_options,
            "list which tokens fetched a release, and how often",
            .description =
                "What: \"entry\", the entry of a channel, which a deployment asks for first and "
                "which says whether it has the release already; \"choices\", which programs ask "
                "for; \"release\" and \"files\", the release itself and an export of it. Requests "
                "of people, of `wavetune why` and of the page, are counted, too. A server stores "
                "what it counted every minute.");
