/* The rules of failpoints: read from a file, and chosen by chance. Nothing of it is in a release.
 */
#include "server/db/failpoints.h"

#ifdef WAVETUNE_FAILPOINTS

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/log.h"
#include "common/base/numbers.h"

#define RULES_MAX 64
#define MILLION 1000000

#define X(id, name) name,
static const char *const place_names[] = {FAILPOINT_PLACES(X)};
static const char *const action_names[] = {FAILPOINT_ACTIONS(X)};
#undef X

static struct rule {
  enum failpoint_place place;
  char statement[64];
  enum failpoint_action action;
  uint64_t per_million;
  int64_t ms;
} rules[RULES_MAX];
static size_t n_rules;
static struct rng rng;
static struct stat rules_from; /* the file that was read last; st_ino 0: none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t name_index(const char *const *names, size_t n, const char *name, const char *path) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(names[i], name) == 0)
      return i;
  die("%s: \"%s\" is no place or action of a failpoint", path, name);
}

/* Reads the file when it is another than the last time. */
static void rules_refresh(const char *path) {
  struct stat now = {0};
  if (stat(path, &now) != 0)
    now.st_ino = 0;
  if (now.st_ino == rules_from.st_ino && now.st_mtim.tv_sec == rules_from.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == rules_from.st_mtim.tv_nsec)
    return;
  rules_from = now;
  n_rules = 0;

  FILE *file = fopen(path, "re");
  if (!file)
    return;
  char line[256];
  unsigned long long seed;
  if (fgets(line, sizeof line, file)) {
    if (sscanf(line, "seed %llu", &seed) != 1)
      die("%s: the first line is not `seed N`", path);
    rng = rng_seeded(seed);
  }
  while (fgets(line, sizeof line, file)) {
    struct rule *rule = &rules[n_rules];
    char place[32], action[32];
    long long ms = 0;
    unsigned long long per_million;
    if (n_rules == RULES_MAX || sscanf(line, "%31s %63s %31s %llu %lld", place, rule->statement,
                                       action, &per_million, &ms) < 4)
      die("%s: not a rule of a failpoint, or too many: %s", path, line);
    rule->place =
        (enum failpoint_place)name_index(place_names, ARRAY_LENGTH(place_names), place, path);
    rule->action =
        (enum failpoint_action)name_index(action_names, ARRAY_LENGTH(action_names), action, path);
    rule->per_million = per_million;
    rule->ms = ms;
    n_rules++;
  }
  fclose(file);
}

struct failpoint failpoint_choose(enum failpoint_place place, const char *statement) {
  struct failpoint chosen = {FAILPOINT_NONE, 0};
  const char *path = getenv("WAVETUNE_FAILPOINTS");
  if (!path)
    return chosen;

  pthread_mutex_lock(&lock);
  rules_refresh(path);
  const struct rule *rule = rules, *end = rules + n_rules;
  while (rule < end && !(rule->place == place && (strcmp(rule->statement, "*") == 0 ||
                                                  strcmp(rule->statement, statement) == 0)))
    rule++;
  if (rule < end && rng_below(&rng, MILLION) < rule->per_million)
    chosen = (struct failpoint){rule->action, rule->ms};
  pthread_mutex_unlock(&lock);

  if (chosen.action != FAILPOINT_NONE)
    log_info("failpoint: reached action=%s place=%s statement=%s", action_names[chosen.action],
             place_names[place], statement);
  return chosen;
}

void failpoint_act(const struct failpoint *failpoint) {
  if (failpoint->action == FAILPOINT_ABORT)
    abort();
  if (failpoint->action == FAILPOINT_SLEEP)
    nanosleep(&(struct timespec){failpoint->ms / 1000, failpoint->ms % 1000 * 1000000}, NULL);
}

#endif
