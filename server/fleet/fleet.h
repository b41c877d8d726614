/* The summary of the fleet: what each device does, the queue, rates, the time to go, campaigns. The
 * web page, `wavetune top` and /metrics read it.
 *
 * It is made by the first request that finds it older than a second and than 19 times the time that
 * it took to make, so that it takes at most 5 % of one connection. Meanwhile the other requests get
 * the summary of before, or are parked where that is outdated: they take no database worker. All of
 * it comes from the database, so that several servers give the same figures, except rates, which
 * are of the time since a server started if that is less than ten minutes ago, and since when a
 * device is idle.
 *
 * Memory: a summary has a reference count; its last user frees it. Threads: any; a summary is
 * read-only. */
#ifndef WAVETUNE_SERVER_FLEET_FLEET_H
#define WAVETUNE_SERVER_FLEET_FLEET_H

#include "common/record/record.h"
#include "server/fleet/fleet_rules.h"
#include "server/http/request.h"
#include "server/server.h"

struct fleet;
must_check struct fleet *fleet_new(void);
void fleet_free(struct fleet *fleet); /* no summary may be in use */
struct fleet *server_fleet(const struct server *server);
/* Reads the gauges. The housekeeper's. */
void fleet_housekeep(struct worker *worker);

#define SNAPSHOT_ETAG_SIZE 33
/* What is shared: the first member of a summary. */
struct snapshot {
  int users; /* under the lock of the fleet */
  void (*free)(struct snapshot *snapshot);
};
void snapshot_put(struct fleet *fleet, struct snapshot *snapshot);

/* One device and what it measures. Texts that begin as columns of the agent are not in its JSON. */
struct fleet_device {
  char *agent, *host, *version, *node_reason, *node_by;
  int64_t seen_ms;
  bool is_ended, is_lost;
  char *device; /* NULL: the agent has none */
  char *backend, *gpu, *arch, *partition;
  char *hardware, *environment; /* digests in hexadecimal: its jobs have one of them as class */
  char *reason, *by;            /* why it takes no work, and who drained it */
  int64_t suspect_ms, drained_ms, yielded_ms;
  char *yield_reason;

  int64_t job; /* FIELD_NONE: it holds no lease; and so on */
  char *kernel, *tag, *run, *stage;
  json_t *key;
  int64_t config, granted_ms, of, left;

  enum device_state state;
  int64_t since_ms; /* FIELD_NONE: not known */
  char *json;       /* its text */
};

/* The open jobs of a campaign for one kind of hardware, of one owner and priority. */
struct open_jobs {
  char *tag, *run, *class, *owner;
  int64_t queued, running, unknown, oldest_ms, leases_open, leases_held, priority;
  double left_us;
  double weight, ahead_us; /* the owner's; what its queue takes until the last of these is done */
  bool is_over;            /* the owner has used its quota of the day */
  double
      before_us; /* what the hardware will have measured by then, by fair share; NaN: not known */
};

/* The open jobs of a tag. */
struct tag_queue {
  const char *tag;
  int64_t queued, running, leases_open, leases_held;
  double oldest_s; /* age of the oldest queued job; NaN: none is queued */
};
/* Adds the rows behind `rest` to that one, and returns how many there are then. */
size_t tag_queues_fold(struct tag_queue *queues, size_t n, size_t rest);

struct fleet_summary {
  struct snapshot snapshot;
  int64_t as_of_ms;
  size_t n_devices, n_nodes; /* devices by host, agent, device; those of a node are neighbours */
  struct fleet_device *devices;
  size_t n_open;
  struct open_jobs *open;
  size_t n_queues;
  struct tag_queue *queues; /* by tag; one more is allocated */
  int64_t by_state[DEVICE_STATE_COUNT];
  struct fleet_sample now;
  struct fleet_rate rate;
  char *text; /* the answer of GET /v1/fleet */
  /* Entity tags of that answer and of nodes: of all but when the summary was made. */
  char etag[SNAPSHOT_ETAG_SIZE], nodes_etag[SNAPSHOT_ETAG_SIZE];
};
/* The tag of a text. */
void snapshot_etag(const char *text, size_t size, char ret[SNAPSHOT_ETAG_SIZE]);
/* How many devices take leases of jobs of this class. */
int64_t fleet_class_devices(const struct fleet_summary *summary, const char *class);

/* The summary for a request; give it back with snapshot_put. NULL: the request was parked until
 * another request has made a summary, and then runs again. */
must_check bool fleet_summary_get(struct worker *worker, struct request *request,
                                  struct fleet_summary **ret, struct error *error);

struct campaign {
  char *tag, *run;
  struct texts owners, kernels;
  int64_t queued, running, done, failed, cancelled, jobs, configs, measurements;
  double device_seconds, to_go_s;
  int64_t first_ms, last_ms;
  char *json;
};
struct campaigns {
  struct snapshot snapshot;
  int64_t as_of_ms;
  size_t n; /* that of the newest first job first, then by tag and run */
  struct campaign *all;
  char etag[SNAPSHOT_ETAG_SIZE];
};
/* For qsort: the place of a struct campaign in the list, by first_ms, tag and run. */
int campaign_compare(const void *a, const void *b);
/* As fleet_summary_get. */
must_check bool campaigns_get(struct worker *worker, struct request *request,
                              struct campaigns **ret, struct error *error);

/* How they are made (fleet_make.c, campaigns.c). `before`: the last one, or NULL. */
must_check bool fleet_summary_make(struct worker *worker, struct fleet_samples *samples,
                                   const struct fleet_summary *before, struct fleet_summary **ret,
                                   struct error *error);
must_check bool campaigns_make(struct worker *worker, const struct fleet_summary *fleet,
                               struct campaigns **ret, struct error *error);

#endif
