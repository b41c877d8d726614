/* Makes, starts and stops a private PostgreSQL. */
#include "server/main/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "server/db/migrate.h"

#define START_TIMEOUT_MS 60000
#define STOP_TIMEOUT_MS 30000
#define LEFTOVER_TIMEOUT_MS 10000
/* sockaddr_un.sun_path holds 108 bytes with its NUL. */
#define SOCKET_PATH_MAX 107
#define SOCKET_NAME "/.s.PGSQL.5432"

struct cluster {
  char *folder, *data, *run, *log, *bin;
  bool run_is_temporary;
  int lock_fd, log_fd;
  char *user; /* PostgreSQL runs as this user; NULL: as this process's */
  uid_t uid;
  gid_t gid;
  pid_t pid; /* 0: not running */
};

/* Changes the user of a child process, irrevocably. */
static bool user_become(const struct cluster *cluster) {
  return setgroups(0, NULL) == 0 && setgid(cluster->gid) == 0 && setuid(cluster->uid) == 0;
}

static pid_t child_start(const struct cluster *cluster, char *const *arguments, int death_signal) {
  pid_t parent = getpid(), pid = fork();
  if (pid != 0)
    return pid;

  /* In its own session PostgreSQL does not get Ctrl-C: this program stops it after the server. */
  setsid();
  dup2(cluster->log_fd, STDOUT_FILENO);
  dup2(cluster->log_fd, STDERR_FILENO);
  if (cluster->user && (!user_become(cluster) || setenv("HOME", cluster->folder, 1) < 0))
    _exit(127);

  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  umask(077);

  /* Changing the user clears the death signal, so it is set afterwards. */
  if (prctl(PR_SET_PDEATHSIG, death_signal) == 0 && getppid() == parent &&
      chdir(cluster->folder) == 0)
    execv(arguments[0], arguments);
  _exit(127);
}

/* Waits for the end of a child; returns its exit code, or 128 plus its signal. */
static int child_wait(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    ALWAYS(errno == EINTR);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* As root, finds the user for PostgreSQL and checks that this user may enter the folder. */
static bool user_find(struct cluster *cluster, const char *user, struct error *error) {
  if (geteuid() != 0)
    return true;

  const struct passwd *entry = getpwnam(user);
  if (!entry || entry->pw_uid == 0)
    return error_set(error,
                     "PostgreSQL does not run as root, and there is no other user \"%.64s\": give "
                     "--user NAME, or run this as a normal user",
                     user);

  cluster->uid = entry->pw_uid;
  cluster->gid = entry->pw_gid;
  cluster->user = xstrdup(entry->pw_name);

  cleanup_free char *path = xstrdup(cluster->folder);
  for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
    if (slash)
      *slash = '\0';
    pid_t pid = fork();
    if (pid == 0)
      _exit(user_become(cluster) && access(path, X_OK) == 0 ? 0 : 1);
    if (pid < 0 || child_wait(pid) != 0)
      return error_set(error,
                       "PostgreSQL runs as the user %s, which may not enter %s: run \"chmod o+x "
                       "%s\", or give --folder a place that all users may enter, such as "
                       "/var/lib/wavetune-dev",
                       cluster->user, path, path);
    if (!slash)
      return true;
    *slash = '/';
  }
}

static bool folder_own(const struct cluster *cluster, const char *path, struct error *error) {
  if (!folder_make(path, 0700, error))
    return false;
  if (cluster->user && chown(path, cluster->uid, cluster->gid) < 0)
    return error_set(error, "cannot give %s to the user %s: %s", path, cluster->user,
                     strerror(errno));
  return true;
}

/* Locks the folder, for one `dev` at a time, and opens the log and the socket's folder. */
static bool folders_open(struct cluster *cluster, struct error *error) {
  cleanup_free char *lock = xasprintf("%s/lock", cluster->folder);
  cluster->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (cluster->lock_fd < 0)
    return error_set(error, "cannot make %s: %s", lock, strerror(errno));
  if (flock(cluster->lock_fd, LOCK_EX | LOCK_NB) < 0)
    return error_set(error,
                     "another \"wavetune-server dev\" runs in %s: use that one, stop it, or give "
                     "another --folder",
                     cluster->folder);

  cluster->log_fd = open(cluster->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (cluster->log_fd < 0)
    return error_set(error, "cannot write %s: %s", cluster->log, strerror(errno));

  /* A comma would separate two folders of sockets. */
  if (strlen(cluster->run) + sizeof SOCKET_NAME - 1 > SOCKET_PATH_MAX ||
      strpbrk(cluster->run, ",\"")) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool is_usable =
        !cluster->user && runtime && strlen(runtime) < 64 && access(runtime, W_OK) == 0;
    free(cluster->run);
    cluster->run = xasprintf("%s/wavetune-XXXXXX", is_usable ? runtime : "/tmp");
    if (!mkdtemp(cluster->run))
      return error_set(error, "cannot make a folder for PostgreSQL's socket: %s", strerror(errno));
    cluster->run_is_temporary = true;
  }

  return folder_own(cluster, cluster->run, error);
}

/* The major version of the cluster in the folder, 0 for none. */
static long data_version(const struct cluster *cluster) {
  cleanup_free char *path = xasprintf("%s/PG_VERSION", cluster->data), *text = NULL;
  size_t size;
  struct error error;
  return file_read(path, 64, &text, &size, &error) ? strtol(text, NULL, 10) : 0;
}

/* The first line that a shell command writes, "" for none. */
static void command_line_read(const char *command, char line[512]) {
  FILE *out = popen(command, "re");
  if (!out || !fgets(line, 512, out))
    line[0] = '\0';
  if (out)
    pclose(out);
  line[strcspn(line, "\r\n")] = '\0';
}

/* Keeps the folder when its programs have the wanted version or, if that is 0 (any), a newer one
 * than the folder that was kept before. */
static void folder_consider(struct cluster *cluster, const char *folder, long wanted,
                            long *best_version) {
  cleanup_free char *initdb = xasprintf("%s/initdb", folder),
                    *postgres = xasprintf("%s/postgres", folder),
                    *command = xasprintf("'%s' --version 2>/dev/null", postgres);
  char line[512];
  if (access(initdb, X_OK) < 0 || access(postgres, X_OK) < 0 || strchr(folder, '\''))
    return;

  command_line_read(command, line);
  const char *digits = strpbrk(line, "0123456789");
  long version = digits ? strtol(digits, NULL, 10) : 0;
  if (version < 14 || (wanted && version != wanted) || version <= *best_version)
    return;

  free(cluster->bin);
  cluster->bin = xstrdup(folder);
  *best_version = version;
}

static bool programs_find(struct cluster *cluster, const char *bin, struct error *error) {
  long wanted = data_version(cluster), version = 0;
  if (bin) {
    folder_consider(cluster, bin, wanted, &version);
  } else {
    char line[512];
    command_line_read("pg_config --bindir 2>/dev/null", line);
    if (*line)
      folder_consider(cluster, line, wanted, &version);
    glob_t found;
    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; i++)
        folder_consider(cluster, found.gl_pathv[i], wanted, &version);
    globfree(&found);
    cleanup_free char *path = xstrdup(getenv("PATH") ? getenv("PATH") : "");
    char *rest = NULL;
    for (char *folder = strtok_r(path, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest))
      folder_consider(cluster, folder, wanted, &version);
  }

  if (cluster->bin)
    return true;
  if (wanted)
    return error_set(error,
                     "%s was made by PostgreSQL %ld, whose programs are not on this machine: "
                     "install them, or give another --folder",
                     cluster->data, wanted);
  return error_set(error,
                   "PostgreSQL's programs (initdb and postgres, version 14 or newer) were not "
                   "found%s%.200s: install the package \"postgresql\", or name their folder with "
                   "--postgres-bin",
                   bin ? " in " : "", bin ? bin : "");
}

/* The last line of the log that is not empty, for errors. */
static char *log_last_line(const struct cluster *cluster) {
  cleanup_free char *text = NULL;
  size_t size;
  struct error error;
  if (!file_read(cluster->log, 64 << 20, &text, &size, &error))
    return xstrdup("");

  while (size && (text[size - 1] == '\n' || text[size - 1] == ' '))
    text[--size] = '\0';
  const char *start = strrchr(text, '\n');
  return xstrndup(start ? start + 1 : text, 300);
}

/* initdb runs in a folder of another name, so that an interrupted run is not taken for a cluster.
 */
static bool data_make(struct cluster *cluster, struct error *error) {
  if (data_version(cluster))
    return true;

  cleanup_free char *fresh = xasprintf("%s.new", cluster->data),
                    *initdb = xasprintf("%s/initdb", cluster->bin);
  if (!folder_remove(fresh, error) || !folder_own(cluster, fresh, error))
    return false;

  const char *const arguments[] = {initdb,  "-D", fresh,  "-U",         "postgres",          "-A",
                                   "trust", "-E", "UTF8", "--locale=C", "--no-instructions", NULL};
  pid_t pid = child_start(cluster, (char *const *)arguments, SIGTERM);
  if (pid < 0)
    return error_set(error, "cannot start initdb: %s", strerror(errno));
  if (child_wait(pid) != 0) {
    cleanup_free char *line = log_last_line(cluster);
    return error_set(error, "initdb failed: %s (see %s)", line, cluster->log);
  }

  if (rename(fresh, cluster->data) < 0)
    return error_set(error, "cannot rename %s to %s: %s", fresh, cluster->data, strerror(errno));
  return true;
}

/* Waits until the PostgreSQL of a killed server has ended, which its death signal stops. A
 * PostgreSQL that was started otherwise does not end: that is an error. */
static bool leftover_wait(const struct cluster *cluster, struct error *error) {
  cleanup_free char *path = xasprintf("%s/postmaster.pid", cluster->data);
  int64_t until_ms = clock_monotonic_ms() + LEFTOVER_TIMEOUT_MS;
  for (;;) {
    cleanup_free char *text = NULL, *name = NULL;
    size_t size;
    struct error unread;
    long pid = file_read(path, 4096, &text, &size, &unread) ? strtol(text, NULL, 10) : 0;
    if (pid <= 1 || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
      return true;

    /* Another program may have the id by now. Then PostgreSQL removes the stale file itself. */
    cleanup_free char *name_path = xasprintf("/proc/%ld/comm", pid);
    if (file_read(name_path, 64, &name, &size, &unread) && !string_starts(name, "postgres"))
      return true;

    if (clock_monotonic_ms() >= until_ms)
      return error_set(
          error,
          "another PostgreSQL (process %ld) runs on %s: stop it (kill -INT %ld) and try again", pid,
          cluster->data, pid);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

bool cluster_has_ended(struct cluster *cluster) {
  if (cluster->pid && waitpid(cluster->pid, NULL, WNOHANG) == cluster->pid)
    cluster->pid = 0;
  return cluster->pid == 0;
}

static bool has_ended(void *cluster) { return cluster_has_ended(cluster); }

static bool postgres_start(struct cluster *cluster, struct error *error) {
  cleanup_free char *postgres = xasprintf("%s/postgres", cluster->bin),
                    *conninfo = cluster_conninfo(cluster, "postgres");
  const char *const arguments[] = {postgres,
                                   "-D",
                                   cluster->data,
                                   "-k",
                                   cluster->run,
                                   "-c",
                                   "listen_addresses=",
                                   "-c",
                                   "port=5432",
                                   "-c",
                                   "unix_socket_permissions=0700",
                                   "-c",
                                   "logging_collector=off",
                                   NULL};
  pid_t pid = child_start(cluster, (char *const *)arguments, SIGINT);
  if (pid < 0)
    return error_set(error, "cannot start PostgreSQL: %s", strerror(errno));

  cluster->pid = pid;
  if (database_wait(conninfo, START_TIMEOUT_MS, has_ended, cluster, error))
    return true;

  cleanup_free char *line = log_last_line(cluster);
  struct error reason = *error;
  return error_set(error, "%.200s; the last line of %s: %s", reason.message, cluster->log, line);
}

bool cluster_start(const char *folder, const char *bin, const char *user,
                   struct cluster **ret_cluster, struct error *error) {
  struct cluster *cluster = xcalloc(1, sizeof *cluster);
  cluster->lock_fd = cluster->log_fd = -1;
  cluster->folder = xstrdup(folder);
  cluster->data = xasprintf("%s/data", folder);
  cluster->run = xasprintf("%s/run", folder);
  cluster->log = xasprintf("%s/postgres.log", folder);

  if (!folder_make(folder, 0755, error) || !user_find(cluster, user, error) ||
      !folders_open(cluster, error) || !programs_find(cluster, bin, error) ||
      !leftover_wait(cluster, error) || !data_make(cluster, error) ||
      !postgres_start(cluster, error)) {
    cluster_stop(cluster);
    return false;
  }
  *ret_cluster = cluster;
  return true;
}

void cluster_stop(struct cluster *cluster) {
  int64_t until_ms = clock_monotonic_ms() + STOP_TIMEOUT_MS;
  bool is_interrupted = false, is_quit = false;
  while (!cluster_has_ended(cluster)) {
    if (!is_interrupted) /* fast shutdown: ends connections and writes a checkpoint */
      is_interrupted = kill(cluster->pid, SIGINT) == 0;
    if (!is_quit && clock_monotonic_ms() >= until_ms) {
      log_warning("dev: PostgreSQL does not stop; it is killed without a checkpoint and will "
                  "recover at its next start");
      is_quit = kill(cluster->pid, SIGQUIT) == 0;
    }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }

  if (cluster->run_is_temporary)
    rmdir(cluster->run);
  if (cluster->lock_fd >= 0)
    close(cluster->lock_fd);
  if (cluster->log_fd >= 0)
    close(cluster->log_fd);
  char *const texts[] = {cluster->folder, cluster->data, cluster->run,
                         cluster->log,    cluster->bin,  cluster->user};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    free(texts[i]);
  free(cluster);
}

char *cluster_conninfo(const struct cluster *cluster, const char *database) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputs("host='", out);
  for (const char *c = cluster->run; *c; c++) {
    if (*c == '\'' || *c == '\\')
      fputc('\\', out);
    fputc(*c, out);
  }

  fprintf(out, "' port=5432 user=postgres dbname=%s", database);
  ALWAYS(fclose(out) == 0);
  return text;
}

const char *cluster_log_path(const struct cluster *cluster) { return cluster->log; }
