/* Makes, starts and stops a private PostgreSQL. Main thread. */
#include "server/cluster.h"

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
/* sockaddr_un.sun_path with its NUL holds 108 bytes. */
#define SOCKET_PATH_MAX 107
#define SOCKET_NAME "/.s.PGSQL.5432"

struct cluster {
  char *folder, *data, *run, *log, *bin;
  bool run_is_temporary;
  int lock_fd, log_fd;
  bool changes_user;
  uid_t uid;
  gid_t gid;
  char *user, *home;
  pid_t pid; /* 0: not running */
};

static void cluster_free(struct cluster *cluster) {
  if (cluster->run_is_temporary)
    rmdir(cluster->run);
  if (cluster->lock_fd >= 0)
    close(cluster->lock_fd);
  if (cluster->log_fd >= 0)
    close(cluster->log_fd);
  free(cluster->folder);
  free(cluster->data);
  free(cluster->run);
  free(cluster->log);
  free(cluster->bin);
  free(cluster->user);
  free(cluster->home);
  free(cluster);
}

static bool user_find(struct cluster *cluster, const char *user, struct error *error) {
  cluster->changes_user = geteuid() == 0;
  if (!cluster->changes_user)
    return true;
  const struct passwd *entry = getpwnam(user);
  if (!entry || entry->pw_uid == 0)
    return error_set(error,
                     "PostgreSQL does not run as root, and there is no other user \"%.64s\": give "
                     "--user NAME, or run this "
                     "as a normal user",
                     user);
  cluster->uid = entry->pw_uid;
  cluster->gid = entry->pw_gid;
  cluster->user = xstrdup(entry->pw_name);
  cluster->home = xstrdup(cluster->folder);
  return true;
}

/* In the child: becomes the user for good. The death signal is set last: changing the user clears
 * it. */
static bool child_prepare(const struct cluster *cluster, int death_signal, pid_t parent) {
  if (cluster->changes_user &&
      (setgroups(0, NULL) < 0 || setgid(cluster->gid) < 0 || setuid(cluster->uid) < 0))
    return false;
  if (cluster->changes_user)
    setenv("HOME", cluster->home, 1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  umask(077);
  if (death_signal && (prctl(PR_SET_PDEATHSIG, death_signal) < 0 || getppid() != parent))
    return false;
  return chdir(cluster->folder) == 0;
}

static pid_t child_start(const struct cluster *cluster, char *const *arguments, int death_signal) {
  pid_t parent = getpid(), pid = fork();
  if (pid != 0)
    return pid;
  /* A session of its own: Ctrl-C is for us, and we stop PostgreSQL after the server. */
  setsid();
  dup2(cluster->log_fd, STDOUT_FILENO);
  dup2(cluster->log_fd, STDERR_FILENO);
  if (child_prepare(cluster, death_signal, parent))
    execv(arguments[0], arguments);
  _exit(127);
}

/* The status of a child that ends: its exit code, or 128 and its signal. */
static int child_wait(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    ALWAYS(errno == EINTR);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Asks as the user, whose rights are what matters. */
static bool user_may_enter(const struct cluster *cluster, const char *path) {
  pid_t pid = fork();
  if (pid == 0)
    _exit(setgroups(0, NULL) == 0 && setgid(cluster->gid) == 0 && setuid(cluster->uid) == 0 &&
                  access(path, X_OK) == 0
              ? 0
              : 1);
  return pid > 0 && child_wait(pid) == 0;
}

static bool parents_check(const struct cluster *cluster, struct error *error) {
  cleanup_free char *path = xstrdup(cluster->folder);
  for (char *slash = strchr(path + 1, '/'); cluster->changes_user; slash = strchr(slash + 1, '/')) {
    if (slash)
      *slash = '\0';
    if (!user_may_enter(cluster, path))
      return error_set(error,
                       "the user %s, as whom PostgreSQL runs, may not enter %s: run \"chmod o+x "
                       "%s\", or give --folder a "
                       "place that everybody may enter, such as /var/lib/wavetune-dev",
                       cluster->user, path, path);
    if (!slash)
      break;
    *slash = '/';
  }
  return true;
}

static bool folder_own(const struct cluster *cluster, const char *path, struct error *error) {
  if (!folder_make(path, 0700, error))
    return false;
  if (cluster->changes_user && chown(path, cluster->uid, cluster->gid) < 0)
    return error_set(error, "cannot give %s to the user %s: %s", path, cluster->user,
                     strerror(errno));
  return true;
}

/* One `dev` to a folder. */
static bool folder_lock(struct cluster *cluster, struct error *error) {
  cleanup_free char *path = xasprintf("%s/lock", cluster->folder);
  cluster->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (cluster->lock_fd < 0)
    return error_set(error, "cannot make %s: %s", path, strerror(errno));
  if (flock(cluster->lock_fd, LOCK_EX | LOCK_NB) < 0)
    return error_set(error,
                     "another \"wavetune-server dev\" runs in %s: use that one, stop it, or give "
                     "another --folder",
                     cluster->folder);
  return true;
}

static bool folders_make(struct cluster *cluster, struct error *error) {
  if (!folder_make(cluster->folder, 0755, error) || !parents_check(cluster, error) ||
      !folder_lock(cluster, error))
    return false;
  cluster->log_fd = open(cluster->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (cluster->log_fd < 0)
    return error_set(error, "cannot write %s: %s", cluster->log, strerror(errno));
  /* A comma would divide the list of socket folders. */
  if (strlen(cluster->run) + sizeof SOCKET_NAME - 1 > SOCKET_PATH_MAX ||
      strpbrk(cluster->run, ",\"")) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool is_usable =
        !cluster->changes_user && runtime && strlen(runtime) < 64 && access(runtime, W_OK) == 0;
    free(cluster->run);
    cluster->run = xasprintf("%s/wavetune-XXXXXX", is_usable ? runtime : "/tmp");
    if (!mkdtemp(cluster->run))
      return error_set(error, "cannot make a folder for PostgreSQL's socket: %s", strerror(errno));
    cluster->run_is_temporary = true;
  }
  return folder_own(cluster, cluster->run, error);
}

/* The major version of the cluster that is there, 0 for none. */
static long data_version(const struct cluster *cluster) {
  cleanup_free char *path = xasprintf("%s/PG_VERSION", cluster->data), *text = NULL;
  size_t size;
  struct error error;
  return file_read(path, 64, &text, &size, &error) ? strtol(text, NULL, 10) : 0;
}

static bool folder_has_programs(const char *folder) {
  cleanup_free char *initdb = xasprintf("%s/initdb", folder),
                    *postgres = xasprintf("%s/postgres", folder);
  return access(initdb, X_OK) == 0 && access(postgres, X_OK) == 0;
}

/* What "postgres --version" of a folder says: its major version, 0 for none. */
static long folder_version(const char *folder) {
  char line[128] = "";
  if (!folder_has_programs(folder) || strchr(folder, '\''))
    return 0;
  cleanup_free char *command = xasprintf("'%s/postgres' --version 2>/dev/null", folder);
  FILE *out = popen(command, "re");
  if (!out)
    return 0;
  if (!fgets(line, sizeof line, out))
    line[0] = '\0';
  pclose(out);
  const char *digits = strpbrk(line, "0123456789");
  return digits ? strtol(digits, NULL, 10) : 0;
}

/* Keeps the folder when it has the wanted version or, for any (0), the newest one so far. */
static void folder_consider(const char *folder, long wanted, long *best_version, char **best) {
  long version = folder_version(folder);
  if (version < 14 || (wanted && version != wanted) || version <= *best_version)
    return;
  free(*best);
  *best = xstrdup(folder);
  *best_version = version;
}

static void line_cut(char *line) { line[strcspn(line, "\r\n")] = '\0'; }

static bool programs_find(struct cluster *cluster, const char *bin, struct error *error) {
  long wanted = data_version(cluster), version = 0;
  char line[512];
  if (bin) {
    folder_consider(bin, wanted, &version, &cluster->bin);
  } else {
    FILE *out = popen("pg_config --bindir 2>/dev/null", "re");
    if (out && fgets(line, sizeof line, out)) {
      line_cut(line);
      folder_consider(line, wanted, &version, &cluster->bin);
    }
    if (out)
      pclose(out);
    glob_t found;
    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; i++)
        folder_consider(found.gl_pathv[i], wanted, &version, &cluster->bin);
    globfree(&found);
    cleanup_free char *path = xstrdup(getenv("PATH") ? getenv("PATH") : "");
    char *rest = NULL;
    for (char *folder = strtok_r(path, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest))
      folder_consider(folder, wanted, &version, &cluster->bin);
  }
  if (cluster->bin)
    return true;
  if (wanted)
    return error_set(error,
                     "%s was made by PostgreSQL %ld, whose programs are not on this machine: "
                     "install them, or give "
                     "another --folder",
                     cluster->data, wanted);
  return error_set(error,
                   "PostgreSQL's programs (initdb and postgres, version 14 or newer) were not "
                   "found%s%.200s: install "
                   "the package \"postgresql\", or name their folder with --postgres-bin",
                   bin ? " in " : "", bin ? bin : "");
}

/* The last line of the log that says something, for errors. */
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

/* Into a folder of another name first, so that an interrupted initdb leaves nothing that looks like
 * a cluster. */
static bool data_make(struct cluster *cluster, struct error *error) {
  if (data_version(cluster))
    return true;
  cleanup_free char *fresh = xasprintf("%s.new", cluster->data),
                    *initdb = xasprintf("%s/initdb", cluster->bin);
  if (!folder_remove(fresh, error) || !folder_own(cluster, fresh, error))
    return false;
  char *arguments[] = {initdb,
                       (char *)"-D",
                       fresh,
                       (char *)"-U",
                       (char *)"postgres",
                       (char *)"-A",
                       (char *)"trust",
                       (char *)"-E",
                       (char *)"UTF8",
                       (char *)"--locale=C",
                       (char *)"--no-instructions",
                       NULL};
  pid_t pid = child_start(cluster, arguments, SIGTERM);
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

/* A PostgreSQL whose server was killed is stopping now, by its death signal; one that somebody else
 * started is not. */
static bool leftover_wait(const struct cluster *cluster, struct error *error) {
  cleanup_free char *path = xasprintf("%s/postmaster.pid", cluster->data);
  int64_t until_ms = clock_monotonic_ms() + LEFTOVER_TIMEOUT_MS;
  for (;;) {
    cleanup_free char *text = NULL;
    size_t size;
    struct error unread;
    long pid = file_read(path, 4096, &text, &size, &unread) ? strtol(text, NULL, 10) : 0;
    if (pid <= 1 || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
      return true;
    cleanup_free char *name_path = xasprintf("/proc/%ld/comm", pid), *name = NULL;
    /* A number that another program has by now: the file is stale, PostgreSQL removes it itself. */
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
  cleanup_free char *postgres = xasprintf("%s/postgres", cluster->bin);
  char *arguments[] = {postgres,
                       (char *)"-D",
                       cluster->data,
                       (char *)"-k",
                       cluster->run,
                       (char *)"-c",
                       (char *)"listen_addresses=",
                       (char *)"-c",
                       (char *)"port=5432",
                       (char *)"-c",
                       (char *)"unix_socket_permissions=0700",
                       (char *)"-c",
                       (char *)"logging_collector=off",
                       NULL};
  cluster->pid = child_start(cluster, arguments, SIGINT);
  if (cluster->pid < 0) {
    cluster->pid = 0;
    return error_set(error, "cannot start PostgreSQL: %s", strerror(errno));
  }
  cleanup_free char *conninfo = cluster_conninfo(cluster, "postgres");
  if (!database_wait(conninfo, START_TIMEOUT_MS, has_ended, cluster, error)) {
    cleanup_free char *line = log_last_line(cluster);
    struct error reason = *error;
    return error_set(error, "%.200s; the last line of %s: %s", reason.message, cluster->log, line);
  }
  return true;
}

bool cluster_start(const char *folder, const char *bin, const char *user,
                   struct cluster **ret_cluster, struct error *error) {
  struct cluster *cluster = xcalloc(1, sizeof *cluster);
  cluster->lock_fd = cluster->log_fd = -1;
  cluster->folder = xstrdup(folder);
  cluster->data = xasprintf("%s/data", folder);
  cluster->run = xasprintf("%s/run", folder);
  cluster->log = xasprintf("%s/postgres.log", folder);
  if (!user_find(cluster, user, error) || !folders_make(cluster, error) ||
      !programs_find(cluster, bin, error) || !leftover_wait(cluster, error) ||
      !data_make(cluster, error) || !postgres_start(cluster, error)) {
    cluster_stop(cluster);
    return false;
  }
  *ret_cluster = cluster;
  return true;
}

void cluster_stop(struct cluster *cluster) {
  int64_t until_ms = clock_monotonic_ms() + STOP_TIMEOUT_MS;
  bool is_told = false, is_urged = false;
  while (!cluster_has_ended(cluster)) {
    if (!is_told) /* fast shutdown: ends connections and writes a checkpoint */
      is_told = kill(cluster->pid, SIGINT) == 0;
    if (!is_urged && clock_monotonic_ms() >= until_ms) {
      log_warning("dev: PostgreSQL does not stop; it is ended without a checkpoint and will "
                  "recover at its next start");
      is_urged = kill(cluster->pid, SIGQUIT) == 0;
    }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  cluster_free(cluster);
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
