/* The compile pool: threads that each run one compiler at a time, a queue, and jobs shared by equal
 * content.
 *
 * Memory: the pool owns its jobs; a ticket refers to one. A job that failed is kept as long as the
 * pool, so that the same failure is not compiled again; one that succeeded lies on disk and is
 * forgotten with its last ticket, and so is one that is not wanted any more. Threads: submit and
 * wait from any; everything below `mutex` is guarded by it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/compile/compilers.h"
#include "agent/compile/objects.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/program/sandbox.h"

#define BUCKETS 1024
#define PROCESSES_MAX 256
#define PRUNES_OF_A_CACHE 8 /* prunes while as much is compiled as the folder may hold */

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
  int stop_fd;
  const struct custody *custody; /* NULL: as this program */
  pthread_mutex_t mutex;
  pthread_cond_t queued, done;
  bool stopping;
  int64_t timeout_ms;
  uint64_t cache_bytes_max,
      unpruned_bytes; /* the latter: of objects compiled since the folder was pruned */
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

static void job_free(struct job *job) {
  compile_job_release(&job->compile);
  compile_result_release(&job->result);
  free(job->object);
  free(job);
}

/* Keeps what a finished job is found by. Failures stay, and a year of them must not hold all their
 * sources. */
static void job_lighten(struct job *job) {
  struct digest digest = job->compile.digest;
  compile_job_release(&job->compile);
  job->compile.digest = digest;
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

/* A queued one is forgotten when its turn comes. */
static void job_forget_unwanted(struct compile_pool *pool, struct job *job) {
  const struct compile_result *result = &job->result;
  bool is_kept = job->is_shared && !result->ok && result->error.kind == ERROR_INVALID;
  if (job->tickets == 0 && job->state == JOB_DONE && !is_kept)
    job_forget(pool, job);
}

static struct job *queue_take(struct compile_pool *pool) {
  struct job *job = pool->queue_first;
  pool->queue_first = job->next_queued;
  if (!pool->queue_first)
    pool->queue_last = NULL;
  return job;
}

static bool is_prune_due(struct compile_pool *pool, const char *object) {
  struct stat status;
  if (stat(object, &status) == 0)
    pool->unpruned_bytes += (uint64_t)status.st_size;
  return pool->unpruned_bytes > pool->cache_bytes_max / PRUNES_OF_A_CACHE;
}

/* With the mutex, so that nobody finds an object that is about to go. What somebody has a ticket of
 * is in use. */
static void pool_prune(struct compile_pool *pool) {
  pool->unpruned_bytes = 0;
  for (size_t i = 0; i < BUCKETS; i++) {
    for (struct job *job = pool->jobs[i]; job; job = job->next_in_bucket) {
      if (job->tickets && job->state == JOB_DONE && job->result.ok)
        object_touch(job->result.object);
    }
  }
  objects_prune(pool->cache, pool->cache_bytes_max, OBJECTS_RECENT_S);
}

static void *compile_thread(void *context) {
  struct compile_pool *pool = context;
  /* Signals are for the thread that knows what to do with them. */
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  pthread_mutex_lock(&pool->mutex);
  while (true) {
    while (!pool->stopping && !pool->queue_first)
      pthread_cond_wait(&pool->queued, &pool->mutex);
    if (pool->stopping)
      break;
    struct job *job = queue_take(pool);
    if (job->tickets == 0) {
      job_forget(pool, job);
      continue;
    }
    job->state = JOB_RUNNING;
    int64_t timeout_ms = pool->timeout_ms;
    pthread_mutex_unlock(&pool->mutex);
    struct compile_result result =
        compile_job_run(&job->compile, job->object, pool->custody, timeout_ms, pool->stop_fd);
    pthread_mutex_lock(&pool->mutex);
    job->result = result;
    job->state = JOB_DONE;
    job_lighten(job);
    bool is_full = result.ok && is_prune_due(pool, result.object);
    job_forget_unwanted(pool, job);
    pthread_cond_broadcast(&pool->done);
    if (is_full)
      pool_prune(pool);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

bool compile_pool_new(const char *cache, unsigned processes, struct compile_pool **ret_pool,
                      struct error *error) {
  struct compilers *compilers;
  if (!folder_make(cache, 0700, error) || !compilers_new(&compilers, error))
    return false;
  if (!sandbox_confines_files())
    log_warning("compile: Landlock is not there; compilers and kernels run with rlimits and %s, "
                "but could read this "
                "machine's files (--require-sandbox=landlock refuses that)",
                sandbox_kind());
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned n_threads = processes ? processes : cpus > 0 ? (unsigned)cpus : 1;
  struct compile_pool *pool = xcalloc(1, sizeof *pool);
  pool->compilers = compilers;
  pool->timeout_ms = COMPILE_TIMEOUT_MS_DEFAULT;
  pool->cache_bytes_max = OBJECTS_BYTES_MAX;
  pool->next_ticket = 1;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->queued, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&pool->done, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pool->cache = realpath(cache, NULL);
  pool->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!pool->cache || pool->stop_fd < 0) {
    error_set(error, "cannot use %s for compiled objects: %s", cache, strerror(errno));
    compile_pool_free(pool);
    return false;
  }
  objects_prune(pool->cache, OBJECTS_BYTES_MAX, OBJECTS_RECENT_S);
  n_threads = n_threads < PROCESSES_MAX ? n_threads : PROCESSES_MAX;
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
  if (pool->stop_fd >= 0)
    ALWAYS(fd_write_all(pool->stop_fd, &(uint64_t){1}, sizeof(uint64_t)));
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
  if (pool->stop_fd >= 0)
    close(pool->stop_fd);
  pthread_cond_destroy(&pool->queued);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->mutex);
  compilers_free(pool->compilers);
  free(pool->cache);
  free(pool->threads);
  free(pool);
}

void compile_pool_set_custody(struct compile_pool *pool, const struct custody *custody) {
  pool->custody = custody;
}

void compile_pool_set_timeout(struct compile_pool *pool, int64_t timeout_ms) {
  pthread_mutex_lock(&pool->mutex);
  pool->timeout_ms = timeout_ms;
  pthread_mutex_unlock(&pool->mutex);
}

void compile_pool_set_cache_bytes(struct compile_pool *pool, uint64_t bytes_max) {
  pthread_mutex_lock(&pool->mutex);
  pool->cache_bytes_max = bytes_max;
  pthread_mutex_unlock(&pool->mutex);
}

/* The job of a request's content: one that is there already, or a new one, queued unless its object
 * is in the cache. */
static struct job *job_for(struct compile_pool *pool, struct compile_job *compile) {
  size_t bucket = bucket_of(&compile->digest);
  for (struct job *job = pool->jobs[bucket]; job; job = job->next_in_bucket) {
    if (digest_equal(&job->compile.digest, &compile->digest)) {
      compile_job_release(compile);
      return job;
    }
  }
  char text[DIGEST_TEXT_SIZE];
  struct job *job = xcalloc(1, sizeof *job);
  job->object =
      xasprintf("%s/%s%s", pool->cache, digest_format(&compile->digest, text) + strlen("sha256:"),
                compile->compiler->kind->suffix);
  job->compile = *compile;
  job->is_shared = true;
  job->next_in_bucket = pool->jobs[bucket];
  pool->jobs[bucket] = job;
  if (compile_job_find(&job->compile, job->object, &job->result)) {
    object_touch(job->object);
    job->state = JOB_DONE;
    job_lighten(job);
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
  pthread_mutex_lock(&pool->mutex);
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
  pthread_mutex_unlock(&pool->mutex);
  return id;
}

static struct ticket **ticket_find(struct compile_pool *pool, uint64_t id) {
  for (struct ticket **at = &pool->tickets[id % BUCKETS]; *at; at = &(*at)->next) {
    if ((*at)->id == id)
      return at;
  }
  die("compile pool: ticket %llu was taken or never given", (unsigned long long)id);
}

static struct job *ticket_take(struct compile_pool *pool, uint64_t id) {
  struct ticket **at = ticket_find(pool, id), *ticket = *at;
  struct job *job = ticket->job;
  *at = ticket->next;
  free(ticket);
  return job;
}

bool compile_pool_is_done(struct compile_pool *pool, uint64_t ticket, int64_t timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
  until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  pthread_mutex_lock(&pool->mutex);
  const struct job *job = (*ticket_find(pool, ticket))->job;
  int result = 0;
  while (job->state != JOB_DONE && result == 0)
    result = pthread_cond_timedwait(&pool->done, &pool->mutex, &until);
  bool is_done = job->state == JOB_DONE;
  pthread_mutex_unlock(&pool->mutex);
  return is_done;
}

void compile_pool_drop(struct compile_pool *pool, uint64_t ticket) {
  pthread_mutex_lock(&pool->mutex);
  struct job *job = ticket_take(pool, ticket);
  job->tickets--;
  job_forget_unwanted(pool, job);
  pthread_mutex_unlock(&pool->mutex);
}

struct compile_result compile_pool_wait(struct compile_pool *pool, uint64_t ticket) {
  pthread_mutex_lock(&pool->mutex);
  struct job *job = ticket_take(pool, ticket);
  while (job->state != JOB_DONE)
    pthread_cond_wait(&pool->done, &pool->mutex);
  struct compile_result result = job->result;
  result.object = result.object ? xstrdup(result.object) : NULL;
  /* The time was spent once: whoever takes it first reports it. */
  job->result.compile_ms = 0;
  job->tickets--;
  job_forget_unwanted(pool, job);
  pthread_mutex_unlock(&pool->mutex);
  return result;
}
