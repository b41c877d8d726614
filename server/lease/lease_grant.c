/* Granting a task to one device. */
#include "server/lease/lease_grant.h"

#include <pthread.h>

#include "common/base/log.h"
#include "common/cache/text.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/lease/lease.sql.h"
#include "server/lease/lease_wake.h"
#include "server/lease/leasing.h"

/* How many queues a grant tries at most. */
#define QUEUES_TRIED_MAX (16 * LEASE_CANDIDATES)
#define CLASSES_OF_DEVICE 2 /* its hardware, its environment */
#define KNOWN_DEVICES 16384
#define WAIT_SECONDS_MAX 60
#define NAME_MAX_BYTES 256

static const struct field wish_fields[] = {
    RECORD_FIELD(TEXT, struct lease_wish, agent, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD(TEXT, struct lease_wish, device, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD(TEXT, struct lease_wish, nonce, FIELD_REQUIRED, .least = 1,
                 .most = NAME_MAX_BYTES),
    RECORD_FIELD_AS("wait", NUMBER, struct lease_wish, wait_s, FIELD_NOT_NULL | FIELD_NO_COLUMN,
                    .least_number = 0, .most_number = WAIT_SECONDS_MAX),
    RECORD_FIELD(TEXT, struct lease_wish, drain_reason, FIELD_NO_JSON | FIELD_NO_COLUMN),
};
const struct record lease_wish_record = RECORD("LeaseRequest", struct lease_wish, wish_fields);

static bool device_read(struct db *db, struct lease_wish *wish, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_lease_asker, error, BIND("agent", wish->agent),
               BIND("device", wish->device), parameter_all_runs());
  if (!rows)
    return false;

  wish->agent_known = db_count(rows) > 0;
  wish->device_known = wish->agent_known && !db_is_null(rows, 0, "hardware_digest");
  if (!wish->device_known)
    return true;

  if (!db_is_null(rows, 0, "drain_reason"))
    wish->drain_reason = xstrdup(db_get(rows, 0, "drain_reason"));
  wish->only_device_drains = db_get_bool(rows, 0, "only_device_drains");
  wish->is_selective = db_get_bool(rows, 0, "is_selective");
  wish->hardware_digest = db_get_digest(rows, 0, "hardware_digest");
  wish->environment_digest = db_get_digest(rows, 0, "environment_digest");
  return true;
}

/* The classes of devices that requested leases, by a hash of agent and device. The statement that
 * grants checks them: a device whose classes are forgotten, or are no longer these, only costs
 * another statement. */
struct known_devices {
  pthread_mutex_t lock;
  struct known_device {
    uint64_t hash;
    struct digest classes[CLASSES_OF_DEVICE];
  } all[KNOWN_DEVICES];
};

struct known_devices *known_devices_new(void) {
  struct known_devices *devices = xcalloc(1, sizeof *devices);
  pthread_mutex_init(&devices->lock, NULL);
  return devices;
}

void known_devices_free(struct known_devices *devices) {
  if (devices)
    pthread_mutex_destroy(&devices->lock);
  free(devices);
}

/* 0 is no device's. */
static uint64_t device_hash(const struct lease_wish *wish) {
  uint64_t hash = 31 * text_hash(wish->agent, strlen(wish->agent)) +
                  text_hash(wish->device, strlen(wish->device));
  return hash ? hash : 1;
}

static bool device_recall(struct known_devices *devices, const struct lease_wish *wish,
                          struct digest ret_classes[CLASSES_OF_DEVICE]) {
  uint64_t hash = device_hash(wish);
  pthread_mutex_lock(&devices->lock);
  struct known_device known = devices->all[hash % KNOWN_DEVICES];
  pthread_mutex_unlock(&devices->lock);
  memcpy(ret_classes, known.classes, sizeof known.classes);
  return known.hash == hash;
}

/* *ret_changed: the classes were others. */
static void device_remember(struct known_devices *devices, const struct lease_wish *wish,
                            struct digest classes[CLASSES_OF_DEVICE], bool *ret_changed) {
  const struct known_device now = {device_hash(wish),
                                   {wish->hardware_digest, wish->environment_digest}};
  *ret_changed = memcmp(classes, now.classes, sizeof now.classes) != 0;
  memcpy(classes, now.classes, sizeof now.classes);
  pthread_mutex_lock(&devices->lock);
  devices->all[now.hash % KNOWN_DEVICES] = now;
  pthread_mutex_unlock(&devices->lock);
}

/* A grant in progress. */
struct granting {
  struct worker *worker;
  struct leasing *leasing;
  const struct lease_grants *how;
  struct lease_wish *wish;
  struct lease_granted *granted; /* the beginning of the kind's struct */
  struct digest classes[CLASSES_OF_DEVICE];
  bool is_recalled;              /* the classes were known without reading the device */
  bool gets_none;                /* the device gets none */
  struct lease_candidates tried; /* by the last statement */
  struct lease_at split;         /* the task that was split off another one, if one was */
};

/* Grants the first open task of the candidates unless the nonce holds one, and reads it. Both
 * statements are sent together. */
static bool task_obtain(struct granting *granting, struct error *error) {
  struct db *db = granting->worker->db;
  const struct lease_wish *wish = granting->wish;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("agent", wish->agent), BIND("device", wish->device),
              BIND("nonce", wish->nonce), BIND("token", wish->token),
              BIND("lease_ms", server_options(granting->worker->server)->lease_ms));
  bind_lease_candidates(&parameters, &granting->tried);
  granting->how->release(granting->granted);
  return (granting->tried.n == 0 ||
          db_send(db, granting->how->take, &parameters, DB_ANY_ROWS, error)) &&
         granting->how->held(db, wish, granting->granted, error);
}

/* The same with all queues of the classes, in the order of their shares. */
static bool task_obtain_by_turn(struct granting *granting, struct error *error) {
  bool has_more = true;
  for (size_t skip = 0; has_more && skip < QUEUES_TRIED_MAX; skip += LEASE_CANDIDATES) {
    lease_candidates_find(granting->leasing, granting->classes, CLASSES_OF_DEVICE, skip,
                          &granting->tried);
    if (!task_obtain(granting, error))
      return false;
    has_more =
        granting->tried.has_more && !granting->granted->lease && !granting->granted->is_stale;
  }
  return true;
}

/* With the classes that the device had at its last request. */
static bool recalled_try(struct granting *granting, struct error *error) {
  granting->is_recalled =
      device_recall(granting->leasing->devices, granting->wish, granting->classes);
  return !granting->is_recalled || task_obtain_by_turn(granting, error);
}

/* Reads the device. Another server may have opened a task before the front of this one. */
static bool read_try(struct granting *granting, struct error *error) {
  struct lease_wish *wish = granting->wish;
  bool is_other, moved_back;
  if (!device_read(granting->worker->db, wish, error))
    return false;
  granting->gets_none = granting->granted->is_stale || !wish->device_known ||
                        (wish->drain_reason && granting->is_recalled);
  if (granting->gets_none)
    return true;

  device_remember(granting->leasing->devices, wish, granting->classes, &is_other);
  if (!lease_front_search(granting->worker->db, &wish->hardware_digest, &moved_back, error) ||
      ((moved_back || is_other || !granting->is_recalled) && !task_obtain_by_turn(granting, error)))
    return false;
  granting->gets_none =
      granting->granted->is_stale || (!granting->granted->lease && wish->drain_reason);
  return true;
}

/* Splits a task that another device holds, if the kind's may be split. */
static bool split_try(struct granting *granting, struct error *error) {
  struct db *db = granting->worker->db;
  struct lease_wish *wish = granting->wish;
  struct lease_candidates queues;
  bool moved_back;
  wish->is_hardware_idle = false;
  if (granting->how->split && !granting->how->split(db, wish, &granting->split, error))
    return false;

  /* Which tasks a selective device may have does not follow from their class alone. */
  if (!granting->split.place.lease) {
    lease_candidates_find(granting->leasing, &wish->hardware_digest, 1, 0, &queues);
    return wish->is_selective || queues.has_more ||
           granting->how->is_idle(db, wish, &queues, &wish->is_hardware_idle, error);
  }

  /* A better task may have been opened meanwhile. Or another thread may have moved the front of the
   * new one on, as it is not committed. */
  if (!lease_front_search(db, &wish->hardware_digest, &moved_back, error) ||
      !task_obtain_by_turn(granting, error))
    return false;
  if (granting->granted->lease)
    return true;
  granting->tried = lease_candidates_of(&granting->split.queue);
  return task_obtain(granting, error);
}

/* Three ways to a task, each tried where the one before got none: with the classes that the device
 * had at its last request, with those that are read now, and by splitting. */
static bool grant(struct db *db, void *context, struct error *error) {
  struct granting *granting = context;
  struct lease_granted *granted = granting->granted;
  (void)db;
  free(TAKE(granting->wish->drain_reason));
  granting->how->release(granted);
  granting->split = (struct lease_at){0};
  granting->gets_none = false;
  return recalled_try(granting, error) && (granted->lease || read_try(granting, error)) &&
         (granted->lease || granting->gets_none || split_try(granting, error)) &&
         (!granted->lease ||
          granting->how->begin(granting->worker, granting->wish, granted, error));
}

bool lease_grant(struct worker *worker, const struct lease_kind *kind, struct lease_wish *wish,
                 void *ret_granted, struct error *error) {
  const struct lease_granted *granted = ret_granted;
  struct granting granting = {.worker = worker,
                              .leasing = leasing_of(worker->db),
                              .how = kind->grants,
                              .wish = wish,
                              .granted = ret_granted};
  if (!db_transaction(worker->db, DB_ATTEMPTS, grant, &granting, error)) {
    kind->grants->release(ret_granted);

    /* A concurrent request with this nonce was granted a task. */
    if (error->kind == ERROR_UNIQUE || error->kind == ERROR_CONTENTION)
      error_of(error, ERROR_CONTENTION,
               "several requests use this nonce at the same time; try again");
    return false;
  }

  counter_add(COUNTER_leases_granted, granted->is_new);
  struct error late;
  if (granted->is_new &&
      !lease_front_note_grant(worker->db, &granting.tried, &granted->queue, granted->group, &late))
    log_warning("leases: %s", late.message);
  kind->grants->granted(worker, granted);
  int64_t split = granting.split.place.lease;
  if (split) {
    counter_add(COUNTER_leases_split, 1);
    log_info("lease: split lease=%lld agent=%s device=%s", (long long)split, wish->agent,
             wish->device);

    /* When a better task was opened in between, another device gets the new one. */
    if (granted->lease != split)
      leases_announce(worker, &wish->hardware_digest, 1);
  }

  return true;
}
