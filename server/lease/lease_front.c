/* The place from which grants search, for each queue. */
#include "server/lease/lease_front.h"

#include <pthread.h>

#include "server/db/db_record.h"
#include "server/lease/fair_share.h"
#include "server/lease/lease_front.sql.h"
#include "server/lease/leasing.h"
#include "server/lease/shares.h"
#include "server/lease/shares.sql.h"

/* Queues beyond this are served when others are empty. */
#define FRONTS_MAX 1024
/* After how many grants a front moves on: a search passes over that many granted leases. After
 * fewer grants when the leases are of another group than the front, or at once when the front was
 * moved back, because many granted leases may be in between. */
#define GRANTS_MAX 32
#define GRANTS_MAX_OF_OTHER 4
/* After the first of so many grants that found nothing in a queue its front moves on: the queue is
 * empty, or has leases that those devices may not have. */
#define MISSES_BETWEEN_SEARCHES 32
/* A search from the start that takes longer rests afterwards, for FRONT_REST times as long. */
#define FRONT_CHEAP_MS 50
#define FRONT_REST 20
#define RESTS 64
/* How often it is stored that a queue got leases. */
#define STORE_PACE_MS 60000
/* Queues that one transaction opens leases of; with more, all fronts are moved back. */
#define OPENED_MAX 64

static const struct lease_place start, end = {INT64_MAX, INT64_MAX};

struct lease_fronts {
  pthread_mutex_t lock;
  uint64_t moves;
  size_t n;
  struct front {
    struct lease_queue queue;
    struct lease_place place;
    uint64_t move;    /* number of its last move back: a search from before must not move it on */
    uint64_t grants;  /* since it moved on */
    uint64_t misses;  /* since it moved on, or had a lease */
    bool is_back;     /* it was moved back since it moved on */
    int64_t since_ms; /* when its wait began, by clock_monotonic_ms; may be negative */
    bool is_served;   /* since that was stored */
    int64_t stored_ms;
  } all[FRONTS_MAX];
  int64_t rest_until_ms[RESTS]; /* of classes, by their first byte */
};

/* Places that a transaction opened. A transaction that is rolled back leaves them for the next one,
 * whose commit moves the fronts back for nothing. */
struct lease_opened {
  size_t n;
  bool is_any; /* there was no room for more queues */
  struct lease_at all[OPENED_MAX];
};

struct lease_fronts *lease_fronts_new(void) {
  struct lease_fronts *fronts = xcalloc(1, sizeof *fronts);
  pthread_mutex_init(&fronts->lock, NULL);
  return fronts;
}

void lease_fronts_free(struct lease_fronts *fronts) {
  if (fronts)
    pthread_mutex_destroy(&fronts->lock);
  free(fronts);
}

struct lease_opened *lease_opened_new(void) { return xcalloc(1, sizeof(struct lease_opened)); }
void lease_opened_free(struct lease_opened *opened) { free(opened); }

bool lease_queue_equal(const struct lease_queue *a, const struct lease_queue *b) {
  return a->owner == b->owner && a->priority == b->priority && digest_equal(&a->class, &b->class);
}

bool lease_place_is_before(const struct lease_place *a, const struct lease_place *b) {
  return a->group != b->group ? a->group < b->group : a->lease < b->lease;
}

static bool is_empty(const struct front *front) {
  return !lease_place_is_before(&front->place, &end);
}

/* The front of a queue; NULL: none. This and the following functions are called under the lock. */
static struct front *front_find(struct lease_fronts *fronts, const struct lease_queue *queue) {
  for (size_t i = 0; i < fronts->n; i++)
    if (lease_queue_equal(&fronts->all[i].queue, queue))
      return &fronts->all[i];
  return NULL;
}

/* The same; it is made when there is room, or another queue is empty. */
static struct front *front_of(struct lease_fronts *fronts, const struct lease_queue *queue) {
  struct front *front = front_find(fronts, queue);
  if (front)
    return front;

  for (size_t i = 0; !front && fronts->n == FRONTS_MAX && i < fronts->n; i++)
    if (is_empty(&fronts->all[i]) && !fronts->all[i].is_served)
      front = &fronts->all[i];
  if (!front && fronts->n < FRONTS_MAX)
    front = &fronts->all[fronts->n++];
  if (front)
    *front = (struct front){.queue = *queue, .place = end, .since_ms = INT64_MIN};
  return front;
}

/* `since_ms`: when the wait of its first lease began. */
static bool move_back(struct lease_fronts *fronts, struct front *front,
                      const struct lease_place *place, int64_t since_ms) {
  front->move = ++fronts->moves;
  front->misses = 0;
  if (since_ms > front->since_ms)
    front->since_ms = since_ms;
  if (!lease_place_is_before(place, &front->place))
    return false;
  front->place = *place;
  front->is_back = true;
  return true;
}

static void front_move_on(struct front *front, const struct lease_place *place) {
  front->place = *place;
  front->is_back = false;
  front->grants = 0;
}

static const struct field at_fields[] = {
    QUEUE_FIELDS("device_class", "owner_id", "priority", struct lease_at, queue),
    RECORD_FIELD_AS("job_id", INTEGER, struct lease_at, place.group),
    RECORD_FIELD_AS("id", INTEGER, struct lease_at, place.lease),
};
const struct record lease_at_record = RECORD(NULL, struct lease_at, at_fields);

void lease_candidates_find(struct leasing *leasing, const struct digest *classes, size_t n_classes,
                           size_t skip, struct lease_candidates *ret) {
  struct lease_fronts *fronts = leasing->fronts;
  struct share_queue queues[FRONTS_MAX];
  const struct front *of[FRONTS_MAX];
  size_t order[FRONTS_MAX], n = 0;
  int64_t now_ms = clock_monotonic_ms();
  *ret = (struct lease_candidates){0};

  pthread_mutex_lock(&fronts->lock);
  shares_lock(leasing->shares);
  for (size_t i = 0; i < fronts->n; i++) {
    const struct front *front = &fronts->all[i];
    bool is_of_class = false;
    for (size_t c = 0; c < n_classes; c++)
      is_of_class = is_of_class || digest_equal(&front->queue.class, &classes[c]);
    if (!is_of_class || is_empty(front))
      continue;
    of[n] = front;
    queues[n++] = (struct share_queue){.owner = shares_of(leasing->shares, front->queue.owner),
                                       .priority = front->queue.priority,
                                       .group = front->place.group,
                                       .waited_ms = now_ms - front->since_ms};
  }

  size_t most = skip + LEASE_CANDIDATES + 1;
  size_t n_ranked = share_rank(queues, n, order, most < n ? most : n);
  for (size_t i = skip; i < n_ranked && ret->n < LEASE_CANDIDATES; i++)
    ret->all[ret->n++] = (struct lease_candidate){{of[order[i]]->queue, of[order[i]]->place},
                                                  share_is_by_waiting(queues, n, order[i])};
  ret->has_more = n_ranked > skip + ret->n;
  shares_unlock(leasing->shares);
  pthread_mutex_unlock(&fronts->lock);
}

struct lease_candidates lease_candidates_of(const struct lease_queue *queue) {
  return (struct lease_candidates){.n = 1, .all[0] = {{*queue, start}, false}};
}

static const struct field candidate_fields[] = {
    QUEUE_FIELDS("queue_classes", "queue_owners", "queue_priorities", struct lease_candidate,
                 at.queue),
    RECORD_FIELD_AS("queue_jobs", INTEGER, struct lease_candidate, at.place.group),
    RECORD_FIELD_AS("queue_leases", INTEGER, struct lease_candidate, at.place.lease),
};
static const struct record candidate_record =
    RECORD(NULL, struct lease_candidate, candidate_fields);

void bind_lease_candidates(struct db_parameters *parameters,
                           const struct lease_candidates *candidates) {
  bind_records(parameters, &candidate_record, candidates->all, candidates->n);
}

/* Moves a front back to a lease that is open, whose wait begins now if it is the only one. */
static void front_open(struct lease_fronts *fronts, const struct lease_at *at, int64_t now_ms) {
  struct front *front = front_of(fronts, &at->queue);
  if (front)
    move_back(fronts, front, &at->place, is_empty(front) ? now_ms : INT64_MIN);
}

/* After the commit. */
static void opened_apply(struct db *db, int what, uint64_t n) {
  (void)what, (void)n;
  const struct lease_connection *connection = db_context(db);
  struct lease_fronts *fronts = connection->leasing->fronts;
  struct lease_opened *opened = connection->opened;
  int64_t now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&fronts->lock);
  for (size_t i = 0; i < opened->n; i++)
    front_open(fronts, &opened->all[i], now_ms);
  for (size_t i = 0; opened->is_any && i < fronts->n; i++)
    move_back(fronts, &fronts->all[i], &start, INT64_MIN);
  pthread_mutex_unlock(&fronts->lock);
  opened->n = 0;
  opened->is_any = false;
}

static void opened_add(struct lease_opened *opened, const struct lease_at *at) {
  size_t i = 0;
  while (i < opened->n && !lease_queue_equal(&opened->all[i].queue, &at->queue))
    i++;
  if (i == OPENED_MAX) {
    opened->is_any = true;
  } else if (i == opened->n || lease_place_is_before(&at->place, &opened->all[i].place)) {
    opened->all[i] = *at;
    opened->n += i == opened->n;
  }
}

void lease_fronts_move_back(struct db *db, const struct db_rows *rows) {
  const struct lease_connection *connection = db_context(db);
  if (!connection)
    return;

  struct lease_fronts *fronts = connection->leasing->fronts;
  int64_t now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&fronts->lock);
  for (int row = 0; row < db_count(rows); row++) {
    struct lease_at at;
    db_read(rows, row, &lease_at_record, &at);
    front_open(fronts, &at, now_ms);
    if (db_is_in_transaction(db))
      opened_add(connection->opened, &at);
  }
  pthread_mutex_unlock(&fronts->lock);

  if (db_is_in_transaction(db))
    db_at_commit(db, opened_apply, 0, 0);
}

/* Searches a queue from its front, and moves the front. */
static bool front_search(struct db *db, const struct lease_queue *queue, struct error *error) {
  struct lease_fronts *fronts = leasing_of(db)->fronts;
  pthread_mutex_lock(&fronts->lock);
  const struct front *known = front_find(fronts, queue);
  struct lease_place from = known ? known->place : end;
  uint64_t move = known ? known->move : 0;
  pthread_mutex_unlock(&fronts->lock);
  if (!known)
    return true;

  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_lease_front_next, error, BIND("class", &queue->class), BIND("owner", queue->owner),
      BIND("priority", queue->priority), BIND("job", from.group), BIND("lease", from.lease));
  if (!rows)
    return false;

  struct lease_place found = end;
  if (db_count(rows))
    found = (struct lease_place){db_get_integer(rows, 0, "job_id"), db_get_integer(rows, 0, "id")};
  pthread_mutex_lock(&fronts->lock);
  struct front *front = front_find(fronts, queue);
  if (front && front->move == move)
    front_move_on(front, &found);
  pthread_mutex_unlock(&fronts->lock);
  return true;
}

/* Notes a grant, under the lock. Returns whether the front is due to move on. */
static bool front_note_grant(struct front *front, int64_t group, bool is_by_waiting) {
  int64_t now_ms = clock_monotonic_ms();
  front->misses = 0;
  front->since_ms = now_ms - share_waited_after(now_ms - front->since_ms, is_by_waiting);
  front->is_served = true;
  if (is_by_waiting)
    front->stored_ms = 0; /* at once, lest other servers serve it for the same wait */

  bool is_other = group != front->place.group;
  front->grants++;
  bool is_due = front->grants >= GRANTS_MAX ||
                (is_other && (front->is_back || front->grants >= GRANTS_MAX_OF_OTHER));
  if (is_due)
    front->grants = 0; /* other threads do not search meanwhile */
  return is_due;
}

bool lease_front_note_grant(struct db *db, const struct lease_candidates *tried,
                            const struct lease_queue *queue, int64_t group, struct error *error) {
  struct lease_queue due[LEASE_CANDIDATES];
  size_t n_due = 0;
  bool is_it = false;
  struct lease_fronts *fronts = leasing_of(db)->fronts;
  shares_note_grant(leasing_of(db)->shares, queue->owner);

  pthread_mutex_lock(&fronts->lock);
  for (size_t i = 0; i < tried->n && !is_it; i++) {
    const struct lease_candidate *candidate = &tried->all[i];
    struct front *front = front_find(fronts, &candidate->at.queue);
    is_it = lease_queue_equal(&candidate->at.queue, queue);
    if (front && (is_it ? front_note_grant(front, group, candidate->is_by_waiting)
                        : front->misses++ % MISSES_BETWEEN_SEARCHES == 0))
      due[n_due++] = candidate->at.queue;
  }
  pthread_mutex_unlock(&fronts->lock);

  for (size_t i = 0; i < n_due; i++)
    if (!front_search(db, &due[i], error))
      return false;
  return true;
}

/* The first open lease of a queue, as a survey found it. */
struct found {
  struct lease_at at;
  int64_t waited_ms;
};
static const struct field found_fields[] = {
    RECORD_FIELD(RECORD, struct found, at, .of = &lease_at_record),
    RECORD_FIELD(INTEGER, struct found, waited_ms),
};
static const struct record found_record = RECORD(NULL, struct found, found_fields);

/* The place that a survey found of a queue. *ret_is_known: not so for the lower priorities of an
 * owner with more queues than are read. */
static struct lease_place found_of(const struct found *found, size_t n,
                                   const struct lease_queue *queue, bool *ret_is_known) {
  struct lease_place place = end;
  size_t n_of_owner = 0;
  for (size_t i = 0; i < n; i++) {
    const struct lease_queue *other = &found[i].at.queue;
    n_of_owner += other->owner == queue->owner && digest_equal(&other->class, &queue->class);
    if (lease_queue_equal(other, queue))
      place = found[i].at.place;
  }
  *ret_is_known = lease_place_is_before(&place, &end) || n_of_owner < QUEUES_OF_OWNER;
  return place;
}

/* Moves fronts on and back to the first open leases, those of a class or (NULL) of all. */
static bool survey(struct db *db, const struct digest *class, bool *ret_moved_back,
                   struct error *error) {
  struct lease_fronts *fronts = leasing_of(db)->fronts;
  uint64_t moves[FRONTS_MAX];
  pthread_mutex_lock(&fronts->lock);
  size_t n = fronts->n;
  for (size_t i = 0; i < n; i++)
    moves[i] = fronts->all[i].move;
  pthread_mutex_unlock(&fronts->lock);

  size_t n_found;
  cleanup_free struct found *found =
      class ? db_list(db, &sql_lease_fronts_survey_class, &found_record, &n_found, error,
                      BIND("priorities", QUEUES_OF_OWNER), BIND("class", class))
            : db_list(db, &sql_lease_fronts_survey, &found_record, &n_found, error,
                      BIND("priorities", QUEUES_OF_OWNER));
  if (!found)
    return false;

  int64_t now_ms = clock_monotonic_ms();
  *ret_moved_back = false;
  pthread_mutex_lock(&fronts->lock);
  for (size_t i = 0; i < n; i++) {
    struct front *front = &fronts->all[i];
    bool is_known;
    if (is_empty(front) || front->move != moves[i] ||
        (class && !digest_equal(&front->queue.class, class)))
      continue;
    struct lease_place place = found_of(found, n_found, &front->queue, &is_known);
    if (is_known && lease_place_is_before(&front->place, &place))
      front_move_on(front, &place);
  }

  for (size_t i = 0; i < n_found; i++) {
    struct front *front = front_of(fronts, &found[i].at.queue);
    int64_t since_ms = now_ms - found[i].waited_ms;
    if (front && lease_place_is_before(&found[i].at.place, &front->place))
      *ret_moved_back = move_back(fronts, front, &found[i].at.place, since_ms) || *ret_moved_back;
    else if (front && since_ms > front->since_ms)
      front->since_ms = since_ms;
  }
  pthread_mutex_unlock(&fronts->lock);
  return true;
}

bool lease_front_search(struct db *db, const struct digest *class, bool *ret_moved_back,
                        struct error *error) {
  struct lease_fronts *fronts = leasing_of(db)->fronts;
  int64_t *rest_until_ms = &fronts->rest_until_ms[class->bytes[0] % RESTS];
  int64_t began_ms = clock_monotonic_ms();
  pthread_mutex_lock(&fronts->lock);
  bool rests = began_ms < *rest_until_ms;
  pthread_mutex_unlock(&fronts->lock);
  *ret_moved_back = false;
  if (rests)
    return true;
  if (!survey(db, class, ret_moved_back, error))
    return false;

  pthread_mutex_lock(&fronts->lock);
  if (clock_monotonic_ms() - began_ms > FRONT_CHEAP_MS)
    *rest_until_ms = due_again_ms(began_ms, 0, 1 + FRONT_REST, INT64_MAX);
  pthread_mutex_unlock(&fronts->lock);
  return true;
}

bool lease_fronts_survey(struct worker *worker, struct error *error) {
  bool moved_back;
  return survey(worker->db, NULL, &moved_back, error);
}

/* A queue that got leases. */
struct served {
  struct lease_queue queue;
  int64_t waited_ms;
};
static const struct field served_fields[] = {
    QUEUE_FIELDS("class", "owner", "priority", struct served, queue),
    RECORD_FIELD(INTEGER, struct served, waited_ms),
};
static const struct record served_record = RECORD(NULL, struct served, served_fields);

bool lease_queues_store(struct db *db, struct error *error) {
  struct lease_fronts *fronts = leasing_of(db)->fronts;
  struct served served[FRONTS_MAX];
  int64_t now_ms = clock_monotonic_ms();
  size_t n = 0;
  pthread_mutex_lock(&fronts->lock);
  for (size_t i = 0; i < fronts->n; i++) {
    struct front *front = &fronts->all[i];
    if (!front->is_served || (front->stored_ms && now_ms - front->stored_ms < STORE_PACE_MS))
      continue;
    front->is_served = false;
    front->stored_ms = now_ms;
    served[n++] = (struct served){front->queue, now_ms - front->since_ms};
  }
  pthread_mutex_unlock(&fronts->lock);
  if (n == 0)
    return true;

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &served_record, served, n);
  return db_run(db, &sql_lease_queues_store, &parameters, NULL, error);
}
