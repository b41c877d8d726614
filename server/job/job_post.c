/* POST /v1/jobs: one job or an array of jobs. New ones are stored in one transaction; if one of
 * them is refused, all are.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/counters.h"
#include "server/http/request.h"
#include "server/job/submit.h"
#include "server/measurement/leases.h"

struct job_post {
  bool is_array;
  size_t n;
  struct submission *submissions;
  size_t n_rows;
  struct submission **rows; /* of each set of equal submissions the one that represents it */
};

static void job_post_release(struct job_post *post) {
  for (size_t i = 0; i < post->n; i++)
    submission_release(&post->submissions[i]);
  free(post->submissions);
  free(post->rows);
}

/* Prefixes the pointer of an error with that of its job. Returns false. */
static bool refuse(const struct job_post *post, size_t index, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (post->is_array)
    error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/jobs", index));
  return false;
}

static bool post_parse(const json_t *json, struct job_post *post, struct error *error) {
  static const char *const members[] = {"jobs", NULL};
  const json_t *jobs = json_object_get(json, "jobs");
  post->is_array = jobs != NULL;
  if (jobs && !json_only_members(json, "", members, error))
    return false;
  if (jobs && !json_is_array(jobs))
    return error_at(error, "/jobs", "\"jobs\" must be an array");

  size_t n = jobs ? json_array_size(jobs) : 1;
  if (n == 0 || n > JOBS_PER_REQUEST_MAX)
    return error_at(error, "/jobs", "%zu jobs; a request takes 1 to %d", n, JOBS_PER_REQUEST_MAX);

  post->submissions = xcalloc(n, sizeof *post->submissions);
  post->rows = xcalloc(n, sizeof(struct submission *));
  for (size_t i = 0; i < n; i++) {
    const json_t *job = jobs ? json_array_get(jobs, i) : json;
    if (!job_request_parse(job, &post->submissions[i].request, error))
      return refuse(post, i, error);
    post->n++;
  }

  return true;
}

static int by_identity(const void *a, const void *b) {
  const struct submission *x = *(struct submission *const *)a, *y = *(struct submission *const *)b;
  return memcmp(&x->identity, &y->identity, sizeof x->identity);
}

/* Chooses one of each set of equal jobs to represent it, with the highest priority of them. */
static void post_join(struct job_post *post) {
  cleanup_free struct submission **all = xcalloc(post->n, sizeof *all);
  for (size_t i = 0; i < post->n; i++)
    all[i] = &post->submissions[i];
  qsort(all, post->n, sizeof *all, by_identity);

  for (size_t i = 0; i < post->n; i++) {
    bool is_first = i == 0 || by_identity(&all[i - 1], &all[i]) != 0;
    struct submission *stored = is_first ? all[i] : all[i - 1]->stored;
    all[i]->stored = stored;
    if (is_first)
      post->rows[post->n_rows++] = stored;
    if (stored->request.priority < all[i]->request.priority)
      stored->request.priority = all[i]->request.priority;
  }
}

/* Cuts the jobs that are new into leases. */
static bool post_plan(struct job_post *post, struct error *error) {
  uint64_t points_left = BATCH_POINTS_MAX;
  for (size_t i = 0; i < post->n; i++) {
    struct submission *job = post->submissions[i].stored;
    if (job->known.id || job->plan.n)
      continue;
    uint64_t most = points_left < JOB_POINTS_MAX ? points_left : JOB_POINTS_MAX;
    if (!submission_plan(job, most, error))
      return refuse(post, i, error);
    points_left -= job->request.search.wanted ? 0 : job->plan.configs;
  }

  return true;
}

/* Stores the jobs that are new or have a higher priority now. */
static bool post_store(struct worker *worker, struct job_post *post, const struct author *author,
                       struct error *error) {
  cleanup_free struct submission **changed = xcalloc(post->n_rows, sizeof *changed);
  cleanup_free int64_t *raised = xcalloc(post->n_rows, sizeof *raised);
  size_t n_changed = 0, n_raised = 0;
  for (size_t i = 0; i < post->n_rows; i++) {
    struct submission *row = post->rows[i];
    int64_t priority = row->request.priority;
    if (!row->known.id || priority > row->known.priority)
      changed[n_changed++] = row;
    else if (priority == row->known.priority && !job_state_is_final(row->known.state))
      raised[n_raised++] = row->known.id;
  }

  /* An earlier request may have failed after it raised a job's priority and before it raised that
   * of the job's leases. */
  return submissions_store(worker, changed, n_changed, author, error) &&
         jobs_raise_leases(worker->db, raised, n_raised, error);
}

#define FIELD(name, type, member, ...)                                                             \
  RECORD_FIELD_AS(name, type, struct submission, member, FIELD_ANSWER | FIELD_NOT_NULL, __VA_ARGS__)
static const struct field answer_fields[] = {
    FIELD("job", ID, known.id),
    RECORD_FIELD_AS("created", BOOL, struct submission, known.created, FIELD_ANSWER),
    FIELD("state", ENUM, known.state, .names = job_state_names, .schema = SCHEMA("JobState")),
    FIELD("configs", INTEGER, known.configs),
    FIELD("baseline_from", ENUM, known.baseline_from, .names = baseline_from_names,
          .schema = SCHEMA("BaselineFrom")),
    FIELD("environment", CUSTOM, environment, .custom = &environment_field,
          .schema = SCHEMA("Environment")),
    FIELD("agents", JSON, agents, .schema = SCHEMA("MatchingAgents")),
};
#undef FIELD
const struct record job_answer_record = RECORD("JobAnswer", struct submission, answer_fields);

static void post_answer(struct request *request, struct job_post *post) {
  json_t *answers = json_array();
  bool any_created = false;
  for (size_t i = 0; i < post->n; i++) {
    struct job_known *known = &post->submissions[i].stored->known;
    json_push(answers, record_write(&job_answer_record, post->submissions[i].stored));
    counter_add(known->created ? COUNTER_jobs_submitted : COUNTER_jobs_known, 1);
    any_created = any_created || known->created;
    known->created = false; /* an equal job later in this post is known */
  }

  json_t *answer = post->is_array ? json_pack("{s:O}", "jobs", answers)
                                  : json_incref(json_array_get(answers, 0));
  request_answer_json(request, any_created ? 201 : 200, answer);
  json_decref(answers);
}

void route_job_post(struct worker *worker, struct request *request) {
  cleanup_catalog struct catalog catalog = {0};
  __attribute__((cleanup(job_post_release))) struct job_post post = {0};
  json_t *extra = NULL;
  struct error error;
  bool ok = post_parse(request->json, &post, &error);
  cleanup_free struct digest *kernels = xcalloc(post.n + 1, sizeof *kernels);
  for (size_t i = 0; i < post.n; i++)
    kernels[i] = post.submissions[i].request.kernel;
  ok = ok && catalog_load(worker, kernels, post.n, &catalog, &error);
  for (size_t i = 0; ok && i < post.n; i++)
    ok = submission_check(worker, &catalog, &post.submissions[i], &extra, &error) ||
         refuse(&post, i, &error);
  if (!ok) {
    answer_failure_extra(request, &error, extra);
    return;
  }

  post_join(&post);
  if (jobs_find(worker->db, post.rows, post.n_rows, &error) && post_plan(&post, &error) &&
      post_store(worker, &post, request_author(request), &error))
    post_answer(request, &post);
  else
    answer_failure(request, &error);
}
