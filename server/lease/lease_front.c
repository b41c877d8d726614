/* The place from which grants search, for each device class. */
#include "server/lease/lease_front.h"

#include <pthread.h>

#include "server/db/db_record.h"
#include "server/lease/lease_front.sql.h"

/* Classes beyond this have no front: their grants search from the start. A fleet has one class for
 * each kind of GPU. */
#define FRONTS_MAX 64
/* After how many grants a front moves on: a search passes over that many granted leases. After
 * fewer grants when the leases are of another job than the front, or at once when the front was
 * moved back, because many granted leases may be in between. */
#define GRANTS_MAX 32
#define GRANTS_MAX_OF_OTHER 4
/* A search from the start that takes longer rests afterwards, for FRONT_REST times as long. */
#define FRONT_CHEAP_MS 50
#define FRONT_REST 20

/* Priorities are from -1000 to 1000. */
static const struct lease_place start = {.priority = 10000}, end = {.priority = -10000};

static struct fronts {
  pthread_mutex_t lock;
  size_t n;
  struct front {
    struct digest class;
    struct lease_place place;
    uint64_t moved_back; /* times: a search that began before must not move it on */
    uint64_t grants;     /* since it moved on */
    bool is_back;        /* it was moved back since it moved on */
    int64_t rests_until_ns;
  } all[FRONTS_MAX];
} fronts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Places that this thread's transaction opened. A transaction that is rolled back leaves them for
 * the next one, whose commit moves the fronts back for nothing. */
static _Thread_local struct opened {
  size_t n;
  bool is_any; /* there was no room for more classes */
  struct {
    struct digest class;
    struct lease_place place;
  } all[FRONTS_MAX];
} opened;

bool lease_place_is_before(const struct lease_place *a, const struct lease_place *b) {
  if (a->priority != b->priority)
    return a->priority > b->priority;
  if (a->job != b->job)
    return a->job < b->job;
  return a->lease < b->lease;
}

/* The front of a class; NULL: none. Under the lock. */
static struct front *front_find(const struct digest *class) {
  for (size_t i = 0; i < fronts.n; i++)
    if (digest_equal(&fronts.all[i].class, class))
      return &fronts.all[i];
  return NULL;
}

/* The front of a class that a device has requested leases of: it is made when there is room. Under
 * the lock. */
static struct front *front_of(const struct digest *class) {
  struct front *found = front_find(class);
  if (found || fronts.n == FRONTS_MAX)
    return found;
  struct front *front = &fronts.all[fronts.n++];
  *front = (struct front){.class = *class, .place = start};
  return front;
}

/* Under the lock. */
static bool move_back(struct front *front, const struct lease_place *place) {
  front->moved_back++;
  if (!lease_place_is_before(place, &front->place))
    return false;
  front->place = *place;
  front->is_back = true;
  return true;
}

/* Under the lock. */
static void front_move_on(struct front *front, const struct lease_place *place) {
  front->place = *place;
  front->is_back = false;
  front->grants = 0;
}

static struct lease_place place_read(const struct db_rows *rows, int row) {
  return (struct lease_place){.priority = db_get_integer(rows, row, "priority"),
                              .job = db_get_integer(rows, row, "job_id"),
                              .lease = db_get_integer(rows, row, "id")};
}

void bind_lease_fronts(struct db_parameters *parameters, bool all) {
  struct digest classes[FRONTS_MAX];
  int64_t priorities[FRONTS_MAX], jobs[FRONTS_MAX], leases[FRONTS_MAX];
  pthread_mutex_lock(&fronts.lock);
  size_t n = all ? fronts.n : 0;
  for (size_t i = 0; i < n; i++) {
    classes[i] = fronts.all[i].class;
    priorities[i] = fronts.all[i].place.priority;
    jobs[i] = fronts.all[i].place.job;
    leases[i] = fronts.all[i].place.lease;
  }
  pthread_mutex_unlock(&fronts.lock);

  bind_digests(parameters, "front_classes", classes, n);
  bind_integers(parameters, "front_priorities", priorities, n);
  bind_integers(parameters, "front_jobs", jobs, n);
  bind_integers(parameters, "front_leases", leases, n);
}

void bind_lease_front(struct db_parameters *parameters, const struct digest *class) {
  pthread_mutex_lock(&fronts.lock);
  const struct front *front = front_of(class);
  struct lease_place place = front ? front->place : start;
  pthread_mutex_unlock(&fronts.lock);

  bind_integer(parameters, "front_priority", place.priority);
  bind_integer(parameters, "front_job", place.job);
  bind_integer(parameters, "front_lease", place.lease);
}

/* After the commit. */
static void opened_apply(int what, uint64_t n) {
  (void)what, (void)n;
  pthread_mutex_lock(&fronts.lock);
  for (size_t i = 0; i < opened.n; i++) {
    struct front *front = front_find(&opened.all[i].class);
    if (front)
      move_back(front, &opened.all[i].place);
  }
  for (size_t i = 0; opened.is_any && i < fronts.n; i++)
    move_back(&fronts.all[i], &start);
  pthread_mutex_unlock(&fronts.lock);
  opened.n = 0;
  opened.is_any = false;
}

static void opened_add(const struct digest *class, const struct lease_place *place) {
  size_t i = 0;
  while (i < opened.n && !digest_equal(&opened.all[i].class, class))
    i++;
  if (i == FRONTS_MAX) {
    opened.is_any = true;
    return;
  }
  if (i == opened.n) {
    opened.all[opened.n].class = *class;
    opened.all[opened.n++].place = *place;
  } else if (lease_place_is_before(place, &opened.all[i].place)) {
    opened.all[i].place = *place;
  }
}

void lease_fronts_move_back(struct db *db, const struct db_rows *rows) {
  pthread_mutex_lock(&fronts.lock);
  for (int row = 0; row < db_count(rows); row++) {
    struct digest class = db_get_digest(rows, row, "device_class");
    struct lease_place place = place_read(rows, row);
    struct front *front = front_find(&class);
    if (front)
      move_back(front, &place);
    if (db_is_in_transaction(db))
      opened_add(&class, &place);
  }
  pthread_mutex_unlock(&fronts.lock);

  if (db_is_in_transaction(db))
    db_at_commit(db, opened_apply, 0, 0);
}

/* Searches a class from its front, or from the start, and moves its front. */
static bool search(struct db *db, const struct digest *class, bool from_start, bool *ret_moved_back,
                   struct error *error) {
  pthread_mutex_lock(&fronts.lock);
  struct front *front = front_of(class); /* it stays where it is */
  struct lease_place from = from_start || !front ? start : front->place;
  uint64_t moved_back = front ? front->moved_back : 0;
  pthread_mutex_unlock(&fronts.lock);
  *ret_moved_back = false;
  if (!front)
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "class", class);
  bind_integer(&parameters, "priority", from.priority);
  bind_integer(&parameters, "job", from.job);
  bind_integer(&parameters, "lease", from.lease);
  int64_t began_ns = clock_monotonic_ns();
  if (!db_run(db, &sql_lease_front_next, &parameters, &rows, error))
    return false;

  struct lease_place found = db_count(rows) ? place_read(rows, 0) : end;
  int64_t now_ns = clock_monotonic_ns();
  pthread_mutex_lock(&fronts.lock);
  if (lease_place_is_before(&found, &front->place))
    *ret_moved_back = move_back(front, &found);
  else if (front->moved_back == moved_back)
    front_move_on(front, &found);
  if (from_start && now_ns - began_ns > FRONT_CHEAP_MS * 1000000LL)
    front->rests_until_ns = now_ns + FRONT_REST * (now_ns - began_ns);
  pthread_mutex_unlock(&fronts.lock);
  return true;
}

bool lease_front_note_grant(struct db *db, const struct digest *class, int64_t job,
                            struct error *error) {
  bool is_due = false;
  pthread_mutex_lock(&fronts.lock);
  struct front *front = front_of(class);
  if (front) {
    bool is_other = job != front->place.job;
    front->grants++;
    is_due = front->grants >= GRANTS_MAX ||
             (is_other && (front->is_back || front->grants >= GRANTS_MAX_OF_OTHER));
    if (is_due)
      front->grants = 0; /* other threads do not search meanwhile */
  }
  pthread_mutex_unlock(&fronts.lock);

  bool moved_back;
  return !is_due || search(db, class, false, &moved_back, error);
}

bool lease_front_search(struct db *db, const struct digest *class, bool *ret_moved_back,
                        struct error *error) {
  pthread_mutex_lock(&fronts.lock);
  const struct front *front = front_of(class);
  bool rests = !front || clock_monotonic_ns() < front->rests_until_ns;
  pthread_mutex_unlock(&fronts.lock);

  *ret_moved_back = false;
  return rests || search(db, class, true, ret_moved_back, error);
}

bool lease_fronts_survey(struct db *db, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_lease_fronts_survey, NULL, &rows, error))
    return false;

  lease_fronts_move_back(db, rows);
  return true;
}
