/* The compile pool: threads that each run one compiler at a time, a queue, and jobs shared by
 * requests of equal content; and the folder of compiled objects.
 *
 * Memory: the pool owns its jobs; a ticket refers to one. A job that failed is kept as long as the
 * pool, so that the same failure is not compiled again. The object of one that succeeded is on
 * disk: the job is freed with its last ticket. A queued job without tickets is freed by the thread
 * that takes it from the queue. Threads: submit and wait from any; `mutex` guards what follows it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/compile/compile.h"
#include "agent/compile/compiler.h"
#include "common/base/file.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/program/sandbox.h"

#define BUCKETS 1024
#define PROCESSES_MAX 256
#define PRUNES_OF_A_CACHE 8 /* 8: whenever an eighth of its limit was added */

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct job {
  struct compile_job compile;
  char *object;
  enum job_state state;
  struct compile_result result;
  unsigned tickets;
  bool is_shared; /* in the table of jobs */
  struct job *next_queued;
  struct job *next_in_bucket;
};

struct ticket {
  uint64_t id;
  struct job *job;
  struct ticket *next;
};

struct compile_pool {
  struct compilers *compilers;
  char *cache; /* absolute */
  unsigned n_threads;
  pthread_t *threads;
  struct compile_bounds bounds;
  pthread_mutex_t mutex;
  pthread_cond_t queued, done;
  bool stopping;
  uint64_t cache_bytes_max;
  uint64_t unpruned_bytes; /* of objects compiled since the folder was pruned */
  uint64_t next_ticket;
  struct job *queue_first, *queue_last;
  struct job *jobs[BUCKETS];
  struct ticket *tickets[BUCKETS];
};

void compile_result_release(struct compile_result *result) {
  free(result->object);
  *result = (struct compile_result){0};
}

static size_t bucket_of(const struct digest *digest) {
  return (digest->bytes[0] | digest->bytes[1] << 8) % BUCKETS;
}

void object_touch(const char *object) {
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
  (void)utimensat(AT_FDCWD, object, times, 0);
}

struct object {
  char *path;
  uint64_t size;
  int64_t used_s;
};

static int by_use(const void *a, const void *b) {
  const struct object *left = a, *right = b;
  return (left->used_s > right->used_s) - (left->used_s < right->used_s);
}

/* An object's access time is set when it is used, because a file system may not do so; its
 * modification time stays that of the compile. */
void objects_prune(const char *folder, uint64_t bytes_max, int64_t recent_s) {
  struct object *objects = NULL;
  size_t n = 0, n_removed = 0;
  uint64_t bytes = 0;
  int64_t before_s = (int64_t)time(NULL) - recent_s;
  DIR *entries = opendir(folder);

  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    const char *suffix = strrchr(entry->d_name, '.');
    cleanup_free char *path = xasprintf("%s/%s", folder, entry->d_name);
    struct stat status;
    if (!suffix || suffix == entry->d_name || lstat(path, &status) < 0)
      continue;
    int64_t used_s = status.st_atime > status.st_mtime ? status.st_atime : status.st_mtime;
    struct error error;
    if (S_ISDIR(status.st_mode) && string_equal(suffix, ".scratch") && used_s < before_s &&
        !folder_remove(path, &error))
      log_warning("compile: %s", error.message);
    if (!S_ISREG(status.st_mode) || (!string_equal(suffix, ".so") && !string_equal(suffix, ".co")))
      continue;
    bytes += (uint64_t)status.st_size;
    *APPEND(objects, n) = (struct object){TAKE(path), (uint64_t)status.st_size, used_s};
  }

  if (entries)
    closedir(entries);

  if (n)
    qsort(objects, n, sizeof *objects, by_use);
  array_foreach (object, objects, n) {
    cleanup_free char *path = object->path, *digest = xasprintf("%s" OBJECT_DIGEST_SUFFIX, path);
    if (bytes <= bytes_max || object->used_s >= before_s || unlink(path) < 0)
      continue;
    (void)unlink(digest);
    bytes -= object->size;
    n_removed++;
  }

  free(objects);
  if (n_removed)
    log_info("compile: removed the %zu compiled objects that were used least recently", n_removed);
}

static void job_free(struct job *job) {
  compile_job_release(&job->compile);
  compile_result_release(&job->result);
  free(job->object);
  free(job);
}

/* Ends a job, and frees what is not needed to find it: a failure is kept without its sources. */
static void job_finish(struct job *job) {
  struct digest digest = job->compile.digest;
  compile_job_release(&job->compile);
  job->compile.digest = digest;
  job->state = JOB_DONE;
}

static void job_forget(struct compile_pool *pool, struct job *job) {
  if (job->is_shared) {
    struct job **at = &pool->jobs[bucket_of(&job->compile.digest)];
    while (*at != job)
      at = &(*at)->next_in_bucket;
    *at = job->next_in_bucket;
  }
  job_free(job);
}

/* A queued job is forgotten by the thread that takes it from the queue. */
static void job_forget_unwanted(struct compile_pool *pool, struct job *job) {
  const struct compile_result *result = &job->result;
  bool is_kept = job->is_shared && !result->ok && result->error.kind == ERROR_INVALID;
  if (job->tickets == 0 && job->state == JOB_DONE && !is_kept)
    job_forget(pool, job);
}

/* Prunes the folder when enough was added. The mutex is held, so that no request finds an object
 * that is about to be removed; objects of outstanding tickets are in use. */
static void object_added(struct compile_pool *pool, const char *object) {
  struct stat status;
  if (stat(object, &status) == 0)
    pool->unpruned_bytes += (uint64_t)status.st_size;
  if (pool->unpruned_bytes <= pool->cache_bytes_max / PRUNES_OF_A_CACHE)
    return;

  pool->unpruned_bytes = 0;
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct job *job = pool->jobs[i]; job; job = job->next_in_bucket)
      if (job->tickets && job->state == JOB_DONE && job->result.ok)
        object_touch(job->result.object);
  objects_prune(pool->cache, pool->cache_bytes_max, OBJECTS_RECENT_S);
}

static void *compile_thread(void *context) {
  struct compile_pool *pool = context;

  /* The main thread handles signals. */
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);

  HOLD(&pool->mutex);
  while (true) {
    while (!pool->stopping && !pool->queue_first)
      pthread_cond_wait(&pool->queued, &pool->mutex);
    if (pool->stopping)
      return NULL;

    struct job *job = pool->queue_first;
    pool->queue_first = job->next_queued;
    if (!pool->queue_first)
      pool->queue_last = NULL;
    if (job->tickets == 0) {
      job_forget(pool, job);
      continue;
    }

    job->state = JOB_RUNNING;
    struct compile_bounds bounds = pool->bounds;
    pthread_mutex_unlock(&pool->mutex);
    struct compile_result result = compile_job_run(&job->compile, job->object, &bounds);
    pthread_mutex_lock(&pool->mutex);

    job->result = result;
    job_finish(job);
    pthread_cond_broadcast(&pool->done);
    if (result.ok)
      object_added(pool, result.object);
    job_forget_unwanted(pool, job);
  }
}

bool compile_pool_new(const char *cache, unsigned processes, struct compile_pool **ret_pool,
                      struct error *error) {
  struct compilers *compilers;
  if (!folder_make(cache, 0700, error) || !compilers_new(&compilers, error))
    return false;
  if (!sandbox_confines_files())
    log_warning("compile: this kernel has no Landlock; compilers and kernels run with rlimits and "
                "%s, but could read this machine's files (--require-sandbox=landlock refuses that)",
                sandbox_kind());

  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned wanted = processes  ? processes
                    : cpus > 0 ? (unsigned)cpus
                               : 1,
           n_threads = wanted < PROCESSES_MAX ? wanted : PROCESSES_MAX;
  struct compile_pool *pool = xcalloc(1, sizeof *pool);
  pool->compilers = compilers;
  pool->bounds.timeout_ms = COMPILE_TIMEOUT_MS_DEFAULT;
  pool->cache_bytes_max = OBJECTS_BYTES_MAX;
  pool->next_ticket = 1;

  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->queued, NULL);
  condition_init(&pool->done);

  pool->cache = realpath(cache, NULL);
  pool->bounds.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!pool->cache || pool->bounds.stop_fd < 0) {
    error_set(error, "cannot use %s for compiled objects: %s", cache, strerror(errno));
    compile_pool_free(pool);
    return false;
  }

  objects_prune(pool->cache, OBJECTS_BYTES_MAX, OBJECTS_RECENT_S);
  pool->threads = xcalloc(n_threads, sizeof *pool->threads);
  for (; pool->n_threads < n_threads; pool->n_threads++) {
    int reason = pthread_create(&pool->threads[pool->n_threads], NULL, compile_thread, pool);
    if (reason) {
      error_set(error, "cannot start a compile thread: %s", strerror(reason));
      compile_pool_free(pool);
      return false;
    }
  }

  *ret_pool = pool;
  return true;
}

void compile_pool_free(struct compile_pool *pool) {
  if (!pool)
    return;
  pthread_mutex_lock(&pool->mutex);
  pool->stopping = true;
  pthread_cond_broadcast(&pool->queued);
  pthread_mutex_unlock(&pool->mutex);
  if (pool->bounds.stop_fd >= 0)
    ALWAYS(fd_write_all(pool->bounds.stop_fd, &(uint64_t){1}, sizeof(uint64_t)));

  for (unsigned i = 0; i < pool->n_threads; i++)
    pthread_join(pool->threads[i], NULL);
  for (size_t i = 0; i < BUCKETS; i++) {
    for (struct ticket *ticket = pool->tickets[i], *next; ticket; ticket = next) {
      next = ticket->next;
      if (--ticket->job->tickets == 0 && !ticket->job->is_shared)
        job_free(ticket->job);
      free(ticket);
    }
    for (struct job *job = pool->jobs[i], *next; job; job = next) {
      next = job->next_in_bucket;
      job_free(job);
    }
  }

  if (pool->bounds.stop_fd >= 0)
    close(pool->bounds.stop_fd);
  pthread_cond_destroy(&pool->queued);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->mutex);
  compilers_free(pool->compilers);
  free(pool->cache);
  free(pool->threads);
  free(pool);
}

void compile_pool_set_custody(struct compile_pool *pool, const struct custody *custody) {
  pool->bounds.custody = custody;
}

void compile_pool_set_timeout(struct compile_pool *pool, int64_t timeout_ms) {
  HOLD(&pool->mutex);
  pool->bounds.timeout_ms = timeout_ms;
}

void compile_pool_set_cache_bytes(struct compile_pool *pool, uint64_t bytes_max) {
  HOLD(&pool->mutex);
  pool->cache_bytes_max = bytes_max;
}

/* The job of a request's content: an existing one, or a new one, which is queued unless its object
 * is in the cache. Takes `compile`. */
static struct job *job_for(struct compile_pool *pool, struct compile_job *compile) {
  struct job **bucket = &pool->jobs[bucket_of(&compile->digest)];
  for (struct job *job = *bucket; job; job = job->next_in_bucket) {
    if (digest_equal(&job->compile.digest, &compile->digest)) {
      compile_job_release(compile);
      return job;
    }
  }

  struct job *job = xcalloc(1, sizeof *job);
  cleanup_free char *name = compile_job_object_name(compile);
  job->object = xasprintf("%s/%s", pool->cache, name);
  job->compile = *compile;
  job->is_shared = true;
  job->next_in_bucket = *bucket;
  *bucket = job;
  if (compile_job_find(&job->compile, job->object, &job->result)) {
    object_touch(job->object);
    job_finish(job);
    return job;
  }

  if (pool->queue_last)
    pool->queue_last->next_queued = job;
  else
    pool->queue_first = job;
  pool->queue_last = job;
  pthread_cond_signal(&pool->queued);

  return job;
}

uint64_t compile_pool_submit(struct compile_pool *pool, const struct compile_request *request) {
  struct compile_job compile;
  const struct compiler *compiler;
  struct error error;
  bool prepared = (compilers_find(pool->compilers, request, &compiler, &error) ||
                   error_become(&error, ERROR_UNAVAILABLE)) &&
                  compile_job_prepare(compiler, request, &compile, &error);
  struct ticket *ticket = xcalloc(1, sizeof *ticket);

  HOLD(&pool->mutex);
  if (prepared) {
    ticket->job = job_for(pool, &compile);
  } else {
    ticket->job = xcalloc(1, sizeof *ticket->job);
    ticket->job->state = JOB_DONE;
    ticket->job->result =
        (struct compile_result){.error = error, .resources = code_resources_unknown};
  }

  ticket->job->tickets++;
  uint64_t id = ticket->id = pool->next_ticket++;
  ticket->next = pool->tickets[id % BUCKETS];
  pool->tickets[id % BUCKETS] = ticket;
  return id;
}

static struct ticket **ticket_find(struct compile_pool *pool, uint64_t id) {
  for (struct ticket **at = &pool->tickets[id % BUCKETS]; *at; at = &(*at)->next) {
    if ((*at)->id == id)
      return at;
  }
  die("compile pool: ticket %llu was given back before or never returned", (unsigned long long)id);
}

/* A ticket of the job was given back. */
static void job_unwant(struct compile_pool *pool, struct job *job) {
  job->tickets--;
  job_forget_unwanted(pool, job);
}

static struct job *ticket_take(struct compile_pool *pool, uint64_t id) {
  struct ticket **at = ticket_find(pool, id), *ticket = *at;
  struct job *job = ticket->job;
  *at = ticket->next;
  free(ticket);
  return job;
}

bool compile_pool_is_done(struct compile_pool *pool, uint64_t ticket, int64_t timeout_ms) {
  struct timespec until = time_in(timeout_ms);
  HOLD(&pool->mutex);
  const struct job *job = (*ticket_find(pool, ticket))->job;
  while (job->state != JOB_DONE && pthread_cond_timedwait(&pool->done, &pool->mutex, &until) == 0)
    continue;
  return job->state == JOB_DONE;
}

void compile_pool_drop(struct compile_pool *pool, uint64_t ticket) {
  HOLD(&pool->mutex);
  job_unwant(pool, ticket_take(pool, ticket));
}

struct compile_result compile_pool_wait(struct compile_pool *pool, uint64_t ticket) {
  HOLD(&pool->mutex);
  struct job *job = ticket_take(pool, ticket);
  while (job->state != JOB_DONE)
    pthread_cond_wait(&pool->done, &pool->mutex);

  struct compile_result result = job->result;
  result.object = result.object ? xstrdup(result.object) : NULL;

  /* Reported once, to the first ticket that is taken. */
  job->result.compile_ms = 0;
  job_unwant(pool, job);
  return result;
}
