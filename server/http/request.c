/* What handlers read of a request, answers with pages of lists, and parking. */
#include <inttypes.h>
#include <poll.h>

#include "server/db/db_record.h"
#include "server/http/client.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000

const char *request_query(const struct request *request, const char *name) {
  return uri_query(&request_private_of(request)->uri, name);
}

const char *request_header(const struct request *request, const char *name) {
  return MHD_lookup_connection_value(request_private_of(request)->connection->mhd, MHD_HEADER_KIND,
                                     name);
}

bool request_is_of_page(const struct request *request) {
  return request_private_of(request)->connection->headers[HEADER_PAGE] != NULL;
}

const struct author *request_author(struct request *request) {
  struct request_private *private_ = request_private_of(request);
  if (!private_->author_roles) {
    private_->author_roles = roles_text(request->roles, ",");
    client_address(request, private_->author_peer);
    private_->author =
        (struct author){request->token_id, request->token_name, private_->author_roles,
                        private_->author_peer[0] ? private_->author_peer : NULL};
  }

  return &private_->author;
}

bool query_check_only(const struct request *request, const char *const *names,
                      struct error *error) {
  const struct uri *uri = &request_private_of(request)->uri;
  for (size_t i = 0; i < uri->n_query; i++) {
    const char *const *known = names;
    while (known && *known && strcmp(*known, uri->query[i].name) != 0)
      known++;
    if (!known || !*known)
      return error_set(error, "unknown query argument \"%.64s\"", uri->query[i].name);
  }

  return true;
}

bool page_read(const struct request *request, int64_t *ret_limit, const char **ret_after,
               struct error *error) {
  const char *text = request_query(request, "limit");
  uint64_t limit = PAGE_DEFAULT;
  if (text && (!header_size(text, &limit) || limit < 1 || limit > PAGE_MAX))
    return error_set(error, "the query argument \"limit\" must be 1 to %d", PAGE_MAX);

  *ret_limit = (int64_t)limit;
  *ret_after = request_query(request, "after");
  return true;
}

static bool page_of_ids_read(const struct request *request, int64_t start, int64_t *ret_limit,
                             int64_t *ret_after, struct error *error) {
  const char *text;
  uint64_t after = 0;
  if (!page_read(request, ret_limit, &text, error))
    return false;
  if (text && (!header_size(text, &after) || after > INT64_MAX))
    return error_set(error, "the query argument \"after\" must be the \"next\" of the page before");

  *ret_after = text ? (int64_t)after : start;
  return true;
}

json_t *page_to_json(json_t *items, int64_t next) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, next);
  return json_pack("{s:o, s:o}", "items", items, "next", next ? json_string(text) : json_null());
}

const char *const list_arguments[] = {"limit", "after", NULL};

static bool page_answer(struct worker *worker, struct request *request, const struct list *list,
                        struct db_parameters *parameters, struct error *error) {
  int64_t limit, after;
  cleanup_rows struct db_rows *rows = NULL;
  if (!page_of_ids_read(request, list->is_newest_first ? INT64_MAX : 0, &limit, &after, error))
    return false;

  bind_integer(parameters, list->is_newest_first ? "before" : "after", after);
  bind_integer(parameters, "limit", limit);
  if (!db_run(worker->db, list->statement, parameters, &rows, error))
    return false;

  bool has_more = db_count(rows) > limit;
  int n = has_more ? (int)limit : db_count(rows);
  json_t *items = db_first_rows_to_json(rows, n, list->record, list->write);
  int64_t next = has_more ? db_get_integer(rows, n - 1, "id") : list->end;
  return request_answer_json(request, 200, page_to_json(items, next));
}

bool answer_page_given(struct worker *worker, struct request *request, const struct list *list,
                       struct error *error, const struct db_bound *given) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_list(&parameters, given);
  return page_answer(worker, request, list, &parameters, error);
}

bool id_read(const struct request *request, const char *what, int64_t *ret_id,
             struct error *error) {
  const char *text = request->segments[0];
  uint64_t id;
  if (!header_size(text, &id) || id > INT64_MAX)
    return error_of(error, ERROR_MISSING, "there is no %s \"%.40s\"; ids are decimal numbers", what,
                    text);
  *ret_id = (int64_t)id;
  return true;
}

/* For handlers that answer errors (ROUTE_ANSWERING) */

static bool answered(struct request *request, bool ok, const struct error *error) {
  if (!ok)
    answer_failure(request, error);
  return ok;
}

bool request_query_only(struct request *request, const char *const *names) {
  struct error error;
  return answered(request, query_check_only(request, names, &error), &error);
}

bool answer_id(struct request *request, const char *what, int64_t *ret_id) {
  struct error error;
  return answered(request, id_read(request, what, ret_id, &error), &error);
}

bool page_by_id(struct request *request, int64_t start, int64_t *ret_limit, int64_t *ret_after) {
  struct error error;
  return answered(request, page_of_ids_read(request, start, ret_limit, ret_after, &error), &error);
}

void answer_page(struct worker *worker, struct request *request, const struct list *list,
                 struct db_parameters *parameters) {
  struct error error;
  (void)!answered(request, page_answer(worker, request, list, parameters, &error), &error);
}

bool request_client_is_there(const struct request *request) {
  /* A peek would not see the end of the stream: with TLS the client's close_notify precedes it. */
  struct pollfd socket = {.fd = request_private_of(request)->connection->fd, .events = POLLRDHUP};
  return poll(&socket, 1, 0) <= 0;
}

void request_park(struct worker *worker, struct request *request, const char *key, bool is_idle,
                  int64_t deadline_ms) {
  struct request_private *private_ = request_private_of(request);
  ALWAYS(private_->is_suspended && private_->response == NULL);
  requests_settled++;
  if (!queue_park(server_http(worker->server)->queue, private_, key, is_idle, deadline_ms,
                  worker->wake_generation)) {
    requests_settled--;
    answer_refusal(request, ERROR_UNAVAILABLE, "", "the server is stopping; try again");
  }
}

void park_wake(struct server *server, const char *key, size_t most) {
  queue_wake(server_http(server)->queue, key, most);
}
