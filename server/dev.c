/* `wavetune-server dev`: a server with a PostgreSQL of its own in a folder, for one machine. Main
 * thread. */
#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "server/cluster.h"
#include "server/commands.h"
#include "server/db/migrate.h"
#include "server/http/tokens.h"
#include "server/token/tokens.h"

#define TOKEN_NAME "dev"

static char *folder_default(void) {
  if (geteuid() == 0)
    return xstrdup("/var/lib/wavetune-dev");
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  if (data && *data == '/')
    return xasprintf("%s/wavetune/dev", data);
  return home && *home == '/' ? xasprintf("%s/.local/share/wavetune/dev", home)
                              : xstrdup("./wavetune-dev");
}

/* Absolute and without links, so that what PostgreSQL is told does not depend on where it
 * stands. */
static bool folder_resolve(const char *given, char **ret_folder, struct error *error) {
  cleanup_free char *folder = given ? xstrdup(given) : folder_default();
  char resolved[PATH_MAX];
  if (!folder_make(folder, 0755, error))
    return false;
  if (!realpath(folder, resolved))
    return error_set(error, "cannot resolve %s: %s", folder, strerror(errno));
  *ret_folder = xstrdup(resolved);
  return true;
}

static bool token_look_up(struct db *db, const char *token, bool *ret_is_live,
                          struct error *error) {
  struct digest digest = digest_of(token, strlen(token));
  struct auth_token found;
  size_t n;
  if (!tokens_find(db, &digest, 1, &found, &n, error))
    return false;
  *ret_is_live = n > 0 && !found.is_expired;
  return true;
}

/* The token in DIR/token as long as it is live; else a new one, which takes its place. */
static bool token_ensure_with(struct db *db, const char *path, char token[TOKEN_TEXT_SIZE],
                              struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  struct error unread;
  bool is_live = false;
  if (file_read(path, 1024, &text, &size, &unread) && size >= TOKEN_TEXT_SIZE - 1) {
    snprintf(token, TOKEN_TEXT_SIZE, "%s", text);
    if (!token_look_up(db, token, &is_live, error))
      return false;
  }
  if (is_live)
    return true;

  struct token_request request;
  token_request_init(&request);
  request.name = TOKEN_NAME;
  request.role = "admin";
  if ((!tokens_revoke(db, TOKEN_NAME, true, &author_command_line, error) &&
       error->kind != ERROR_MISSING) ||
      !tokens_make(db, &request, &author_command_line, token, error))
    return false;
  cleanup_free char *line = xasprintf("%s\n", token);
  return file_write_atomically(path, line, strlen(line), 0600, error);
}

static bool token_ensure(const char *database, const char *folder, char token[TOKEN_TEXT_SIZE],
                         struct error *error) {
  cleanup_free char *path = xasprintf("%s/token", folder);
  struct db *db = db_new(database, "wavetune-server dev");
  bool is_good = token_ensure_with(db, path, token, error);
  db_free(db);
  return is_good;
}

static void ready_print(bool as_json, const char *url, const char *token, const char *folder,
                        const char *database) {
  if (as_json) {
    cleanup_json json_t *line = json_pack("{s:s, s:s, s:s, s:s}", "url", url, "token", token,
                                          "folder", folder, "database", database);
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
  } else {
    printf("url %s\ntoken %s\nfolder %s\ndatabase %s\n", url, token, folder, database);
  }
  fflush(stdout);
}

/* Serves until a signal comes or PostgreSQL ends. */
static int serve(const struct options *options, struct cluster *cluster, const char *folder,
                 struct error *error) {
  cleanup_free char *maintenance = cluster_conninfo(cluster, "postgres");
  cleanup_free char *database = cluster_conninfo(cluster, "wavetune");
  struct server_options server_options;
  char token[TOKEN_TEXT_SIZE];
  struct server *server;
  int applied, ended_by = 0;
  if (!serve_options(options, database, &server_options, error) ||
      !database_ensure(maintenance, error) ||
      migrate_database(database, NULL, &applied, error) != EXIT_OK ||
      !token_ensure(database, folder, token, error) ||
      !server_start(&server_options, &server, error))
    return EXIT_USAGE;
  cleanup_free char *url = server_url(server);
  ready_print(option_flag(options, "json"), url, token, folder, database);
  do
    ended_by = signals_wait(SIGCHLD);
  while (ended_by == SIGCHLD && !cluster_has_ended(cluster));
  server_stop(server);
  if (ended_by != SIGCHLD)
    return EXIT_OK;
  error_set(error, "PostgreSQL ended by itself; %s says why. Start again: the data is kept",
            cluster_log_path(cluster));
  return EXIT_INTERNAL;
}

int dev_run(struct options *options) {
  struct error error;
  cleanup_free char *folder = NULL;
  struct cluster *cluster;
  int code = EXIT_USAGE;
  signals_block(SIGCHLD);
  if (folder_resolve(option_text(options, "folder"), &folder, &error) &&
      cluster_start(folder, option_text(options, "postgres-bin"), option_text(options, "user"),
                    &cluster, &error)) {
    code = serve(options, cluster, folder, &error);
    cluster_stop(cluster);
  }
  return code == EXIT_OK ? code : command_failed((enum exit_code)code, &error);
}
