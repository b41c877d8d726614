/* POST /v1/jobs: requests that came together are stored in one transaction; one bad job refuses its request only.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/counters.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/job/submit.h"

struct job_post {
  struct request *request;
  bool is_batch;
  bool is_open; /* not answered yet */
  size_t n;
  struct submission *submissions;
};

static void post_refuse(struct job_post *post, size_t index, struct error *error, json_t *extra) {
  char at[JSON_POINTER_SIZE];
  if (post->is_batch)
    error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/jobs", index));
  answer_failure_extra(post->request, error, extra);
  post->is_open = false;
}

static void post_parse(struct request *request, struct job_post *post) {
  static const char *const members[] = {"jobs", NULL};
  struct error error;
  const json_t *jobs = json_object_get(request->json, "jobs");
  *post = (struct job_post){.request = request, .is_batch = jobs != NULL, .is_open = true};
  if (jobs && (!json_only_members(request->json, "", members, &error) ||
               (!json_is_array(jobs) && !error_at(&error, "/jobs", "\"jobs\" must be an array")))) {
    answer_failure(request, &error);
    post->is_open = false;
    return;
  }
  size_t n = jobs ? json_array_size(jobs) : 1;
  if (n == 0 || n > JOBS_PER_REQUEST_MAX) {
    request_problem(request, 422, "/jobs", "%zu jobs; a request takes 1 to %d", n, JOBS_PER_REQUEST_MAX);
    post->is_open = false;
    return;
  }
  post->submissions = xcalloc(n, sizeof *post->submissions);
  for (size_t i = 0; i < n && post->is_open; i++) {
    const json_t *job = jobs ? json_array_get(jobs, i) : request->json;
    post->submissions[i].author = request_author(request);
    if (job_request_parse(job, &post->submissions[i].request, &error))
      post->n++;
    else
      post_refuse(post, i, &error, NULL);
  }
}

static void post_release(struct job_post *post) {
  for (size_t i = 0; i < post->n; i++)
    submission_release(&post->submissions[i]);
  free(post->submissions);
}

/* False: the database failed. */
static bool post_check(struct worker *worker, struct catalog *catalog, struct job_post *post, struct error *error) {
  for (size_t i = 0; i < post->n && post->is_open; i++) {
    json_t *extra;
    if (submission_check(worker, catalog, &post->submissions[i], &extra, error))
      continue;
    if (error->kind != ERROR_INVALID)
      return false;
    post_refuse(post, i, error, extra);
  }
  return true;
}

static int by_identity(const void *a, const void *b) {
  const struct submission *x = *(struct submission *const *)a, *y = *(struct submission *const *)b;
  return memcmp(&x->identity, &y->identity, sizeof x->identity);
}

/* Finds the jobs of open posts that are equal: the first one's row stands for all, with the highest priority. Fills
 * `ret_rows` with the rows that stand and returns how many. */
static size_t rows_join(struct job_post *posts, size_t n_posts, struct submission **all, struct job_row **ret_rows) {
  size_t n = 0, n_rows = 0;
  for (size_t p = 0; p < n_posts; p++)
    for (size_t i = 0; posts[p].is_open && i < posts[p].n; i++)
      all[n++] = &posts[p].submissions[i];
  qsort(all, n, sizeof *all, by_identity);
  for (size_t i = 0; i < n; i++) {
    struct job_row *row = &all[i]->row;
    if (i > 0 && by_identity(&all[i - 1], &all[i]) == 0) {
      all[i]->stored = all[i - 1]->stored;
      if (all[i]->stored->priority < row->priority)
        all[i]->stored->priority = row->priority;
    } else {
      all[i]->stored = row;
      ret_rows[n_rows++] = row;
    }
  }
  return n_rows;
}

/* Cuts the jobs of a post that are new. */
static void post_plan(struct job_post *post) {
  uint64_t points_left = BATCH_POINTS_MAX;
  struct error error;
  for (size_t i = 0; i < post->n && post->is_open; i++) {
    struct submission *submission = &post->submissions[i];
    struct job_row *row = submission->stored;
    if (row->known || row->plan.n)
      continue;
    uint64_t most = points_left < JOB_POINTS_MAX ? points_left : JOB_POINTS_MAX;
    if (!submission_pays(submission, &error) || !submission_plan(submission, most, &error)) {
      post_refuse(post, i, &error, NULL);
      return;
    }
    points_left -= row->search.wanted ? 0 : row->plan.configs;
  }
}

/* Of the requests for one job the first that was not refused is its author. */
static void submission_want(const struct submission *submission, const char *request_id) {
  struct job_row *row = submission->stored;
  if (!row->wanted)
    row->author = row->raiser = submission->author;
  else if (submission->request.priority == row->priority)
    row->raiser = submission->author;
  if (!row->request)
    row->request = request_id;
  row->wanted = true;
}

/* Keeps the rows that an open post asks for and that change something; returns how many. `ret_known`: the unfinished jobs
 * that have this priority already. */
static size_t rows_to_store(struct job_post *posts, size_t n_posts, struct job_row **rows, size_t n, int64_t *ret_known,
                            size_t *ret_n_known) {
  size_t kept = 0;
  for (size_t p = 0; p < n_posts; p++)
    for (size_t i = 0; posts[p].is_open && i < posts[p].n; i++)
      submission_want(&posts[p].submissions[i], posts[p].request->id);
  *ret_n_known = 0;
  for (size_t i = 0; i < n; i++) {
    struct job_row *row = rows[i];
    if (!row->wanted)
      continue;
    if (!row->known || row->priority > row->known_priority)
      rows[kept++] = row;
    else if (row->priority == row->known_priority && !job_state_is_final(row->state))
      ret_known[(*ret_n_known)++] = row->id;
  }
  return kept;
}

static json_t *job_answer(const struct submission *submission, bool created) {
  const struct job_row *row = submission->stored;
  char id[24];
  snprintf(id, sizeof id, "%lld", (long long)row->id);
  json_t *answer = json_pack("{s:s, s:b, s:s, s:I, s:s, s:o, s:O}", "job", id, "created", created, "state",
                             job_state_name(row->state), "configs", (json_int_t)row->configs, "baseline_from",
                             baseline_from_name(row->baseline_from), "environment",
                             environment_to_json(&submission->environment), "agents", submission->agents);
  ALWAYS(answer != NULL);
  return answer;
}

static void post_answer(struct job_post *post) {
  json_t *answers = json_array();
  bool any_created = false;
  for (size_t i = 0; i < post->n; i++) {
    const struct submission *submission = &post->submissions[i];
    bool created = submission->stored->created;
    submission->stored->created = false; /* asked for again in this batch, it is known */
    any_created = any_created || created;
    counter_add(created ? COUNTER_jobs_submitted : COUNTER_jobs_known, 1);
    ALWAYS(json_array_append_new(answers, job_answer(submission, created)) == 0);
  }
  if (post->is_batch) {
    request_answer_json(post->request, any_created ? 201 : 200, json_pack("{s:o}", "jobs", answers));
    return;
  }
  request_answer_json(post->request, any_created ? 201 : 200, json_incref(json_array_get(answers, 0)));
  json_decref(answers);
}

/* False: the database failed; posts that are still open are to be told. */
static bool posts_serve(struct worker *worker, struct job_post *posts, size_t n, struct error *error) {
  size_t n_jobs = 0, n_hashes = 0, n_known;
  for (size_t p = 0; p < n; p++)
    n_jobs += posts[p].is_open ? posts[p].n : 0;
  if (n_jobs == 0)
    return true;
  cleanup_free struct digest *hashes = xcalloc(n_jobs, sizeof *hashes);
  for (size_t p = 0; p < n; p++)
    for (size_t i = 0; posts[p].is_open && i < posts[p].n; i++)
      hashes[n_hashes++] = posts[p].submissions[i].request.kernel;
  cleanup_catalog struct catalog catalog = {0};
  if (!catalog_load(worker, hashes, n_hashes, &catalog, error))
    return false;
  for (size_t p = 0; p < n; p++)
    if (!post_check(worker, &catalog, &posts[p], error))
      return false;
  cleanup_free struct submission **all = xcalloc(n_jobs, sizeof *all);
  cleanup_free struct job_row **rows = xcalloc(n_jobs, sizeof *rows);
  size_t n_rows = rows_join(posts, n, all, rows);
  if (n_rows && (!jobs_find(worker->db, rows, n_rows, error) || !jobs_incumbents(worker->db, rows, n_rows, error) ||
                 !jobs_quickest(worker->db, rows, n_rows, error)))
    return false;
  for (size_t p = 0; p < n; p++)
    post_plan(&posts[p]);
  cleanup_free int64_t *known = xcalloc(n_jobs, sizeof *known);
  n_rows = rows_to_store(posts, n, rows, n_rows, known, &n_known);
  /* Whoever raised a job's priority before may have ended before its leases followed. */
  if (!submissions_store(worker, rows, n_rows, error) ||
      (n_known && !jobs_raise_leases(worker->db, known, n_known, error)))
    return false;
  for (size_t p = 0; p < n; p++)
    if (posts[p].is_open)
      post_answer(&posts[p]);
  return true;
}

void route_job_post(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct job_post *posts = xcalloc(n, sizeof *posts);
  struct error error;
  for (size_t p = 0; p < n; p++)
    post_parse(requests[p], &posts[p]);
  bool ok = posts_serve(worker, posts, n, &error);
  for (size_t p = 0; p < n; p++)
    if (!ok && posts[p].is_open)
      answer_failure(posts[p].request, &error);
  for (size_t p = 0; p < n; p++)
    post_release(&posts[p]);
}
