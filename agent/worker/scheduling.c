/* By raw system calls: the C library's functions for other threads take a pthread_t, and only its
 * newest versions have sched_setattr. */
#include "agent/worker/scheduling.h"

#include <dirent.h>
#include <errno.h>
#include <sys/syscall.h>

#include "common/base/lock.h"
#include "common/base/log.h"

#define CPU_WORDS 128             /* 8192 CPUs, the most that Linux can be built for */
#define FLAG_RESET_ON_FORK 1u     /* harmless, and cleared only by a privileged process */
#define FLAGS_UTILIZATION 0x60u   /* SCHED_FLAG_UTIL_CLAMP */
#define THREADS "/proc/self/task" /* a folder for each */

/* struct sched_attr of Linux 5.3; older kernels know a prefix of it. */
struct attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
  uint32_t utilization_min, utilization_max;
};

struct scheduling {
  struct attributes attributes;
  unsigned long cpus[CPU_WORDS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_remembered;
static struct scheduling started;
static unsigned long cpus_left[CPU_WORDS]; /* of started.cpus, by the machine */
static uint64_t n_found;
static bool is_restored = true;

static bool scheduling_read(pid_t thread, struct scheduling *ret) {
  *ret = (struct scheduling){0};
  return syscall(SYS_sched_getaffinity, thread, sizeof ret->cpus, ret->cpus) > 0 &&
         syscall(SYS_sched_getattr, thread, &ret->attributes, sizeof ret->attributes, 0) == 0;
}

static bool utilization_equal(const struct attributes *a, const struct attributes *b) {
  return a->utilization_min == b->utilization_min && a->utilization_max == b->utilization_max;
}

static bool attributes_equal(const struct attributes *a, const struct attributes *b) {
  return a->policy == b->policy && a->nice == b->nice && a->priority == b->priority &&
         utilization_equal(a, b);
}

static bool cpus_equal(const unsigned long *a, const unsigned long *b) {
  return memcmp(a, b, sizeof started.cpus) == 0;
}

/* `found`: what the thread has. 0, or an errno. */
static int attributes_restore(pid_t thread, const struct attributes *found) {
  struct attributes attributes = started.attributes;
  attributes.flags = (found->flags & FLAG_RESET_ON_FORK) |
                     (utilization_equal(&attributes, found) ? 0 : FLAGS_UTILIZATION);
  return syscall(SYS_sched_setattr, thread, &attributes, 0) == 0 ? 0 : errno;
}

void scheduling_remember(void) {
  is_remembered = scheduling_read(0, &started);
  started.attributes.runtime = 0; /* of the fair policies: the slice, which Linux then chooses */
  memcpy(cpus_left, started.cpus, sizeof cpus_left);
}

void scheduling_begin(void) {
  struct scheduling own;
  if (!is_remembered || !scheduling_read(0, &own))
    return;
  if (!attributes_equal(&own.attributes, &started.attributes))
    (void)attributes_restore(0, &own.attributes);
  if (!cpus_equal(own.cpus, cpus_left))
    (void)syscall(SYS_sched_setaffinity, 0, sizeof started.cpus, started.cpus);
}

static int cpus_count(const unsigned long *cpus) {
  int n = 0;
  array_foreach (word, cpus, CPU_WORDS)
    n += __builtin_popcountl(*word);
  return n;
}

static char *scheduling_describe(const struct scheduling *scheduling) {
  static const char *const policies[] = {"SCHED_OTHER",   "SCHED_FIFO", "SCHED_RR",
                                         "SCHED_BATCH",   "SCHED_ISO",  "SCHED_IDLE",
                                         "SCHED_DEADLINE"};
  uint32_t policy = scheduling->attributes.policy;
  int n = cpus_count(scheduling->cpus);
  return xasprintf("%s, nice %d, %d CPU%s",
                   policy < ARRAY_LENGTH(policies) ? policies[policy] : "another policy",
                   scheduling->attributes.nice, n, n == 1 ? "" : "s");
}

/* What a check found. */
struct found {
  size_t n_threads;
  char *first; /* of the first of them; NULL: none */
  int reason;  /* errno of what could not be restored; 0: nothing */
};

static void thread_check(pid_t thread, struct found *found) {
  struct scheduling before, after;
  if (!scheduling_read(thread, &before)) /* it has ended */
    return;
  bool has_cpus = cpus_equal(before.cpus, cpus_left),
       has_attributes = attributes_equal(&before.attributes, &started.attributes);
  if (has_cpus && has_attributes)
    return;

  int reason = has_attributes ? 0 : attributes_restore(thread, &before.attributes);
  if (!has_cpus)
    (void)syscall(SYS_sched_setaffinity, thread, sizeof started.cpus, started.cpus);
  if (!scheduling_read(thread, &after))
    return;
  if (!has_cpus && cpus_equal(before.cpus, after.cpus)) { /* the thread had all that there are */
    memcpy(cpus_left, after.cpus, sizeof cpus_left);
    log_info("scheduling: the machine leaves this process %d of its %d CPUs",
             cpus_count(after.cpus), cpus_count(started.cpus));
    has_cpus = true;
  }
  if (has_cpus && has_attributes)
    return;

  found->n_threads++;
  if (!found->first)
    found->first = scheduling_describe(&before);
  if (!attributes_equal(&after.attributes, &started.attributes))
    found->reason = reason ? reason : EINVAL;
}

uint64_t scheduling_check(bool *ret_is_restored) {
  struct found found = {0};
  HOLD(&mutex);
  DIR *threads = is_remembered ? opendir(THREADS) : NULL;
  for (struct dirent *entry; threads && (entry = readdir(threads));)
    if (*entry->d_name != '.')
      thread_check((pid_t)atoi(entry->d_name), &found);
  if (threads)
    closedir(threads);

  if (found.n_threads) {
    cleanup_free char *wanted = scheduling_describe(&started);
    if (!found.reason)
      log_warning(
          "scheduling: another process changed %zu threads of this one to %s; restored to %s",
          found.n_threads, found.first, wanted);
    else if (is_restored) /* once: it is found at every check */
      log_error(
          "scheduling: another process changed %zu threads of this one to %s, and %s cannot be "
          "restored: %s; measurements say so until the agent is restarted; it needs "
          "RLIMIT_NICE 20 (systemd: LimitNICE=+0, containers: --ulimit nice=20)",
          found.n_threads, found.first, wanted, strerror(found.reason));
    n_found++;
    is_restored = !found.reason;
    free(found.first);
  }
  if (ret_is_restored)
    *ret_is_restored = is_restored;
  return n_found;
}
