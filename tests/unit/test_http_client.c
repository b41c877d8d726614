/* The HTTP client with a server of one thread, whose answers the test states. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "common/program/http_client.h"

/* Answers every request with the complete `answer` and keeps the connection (unless `closes`).
 * Without an answer it sends nothing. */
struct server {
  int listener;
  int stop[2];
  atomic_bool closes;
  atomic_int connections;
  pthread_mutex_t mutex; /* of the next three */
  const char *answer;
  size_t answer_size;
  char request[1 << 16]; /* the last one */
  pthread_t thread;
  char url[64];
};

static bool request_is_whole(const char *text, size_t size) {
  const char *end = memmem(text, size, "\r\n\r\n", 4);
  if (!end)
    return false;
  const char *length = strcasestr(text, "\r\ncontent-length:");
  size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
  return size >= (size_t)(end + 4 - text) + body;
}

/* Serves one connection until the client closes it or the server stops. False: stop. */
static bool serve(struct server *server, int fd) {
  size_t size = 0;
  char request[sizeof server->request];
  for (;;) {
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = server->stop[0], .events = POLLIN}};
    ALWAYS(poll(fds, 2, -1) > 0);
    if (fds[1].revents)
      return false;
    ssize_t got = recv(fd, request + size, sizeof request - 1 - size, 0);
    if (got <= 0)
      return true;
    size += (size_t)got;
    request[size] = '\0';
    if (!request_is_whole(request, size))
      continue;
    pthread_mutex_lock(&server->mutex);
    memcpy(server->request, request, size + 1);
    const char *answer = server->answer;
    size_t answer_size = server->answer_size;
    pthread_mutex_unlock(&server->mutex);
    size = 0;
    if (answer && send(fd, answer, answer_size, MSG_NOSIGNAL) < 0)
      return true;
    if (server->closes)
      return true;
  }
}

static void *serve_all(void *context) {
  struct server *server = context;
  for (;;) {
    struct pollfd fds[] = {{.fd = server->listener, .events = POLLIN},
                           {.fd = server->stop[0], .events = POLLIN}};
    ALWAYS(poll(fds, 2, -1) > 0);
    if (fds[1].revents)
      return NULL;
    cleanup_fd int fd = accept(server->listener, NULL, NULL);
    if (fd < 0)
      continue;
    atomic_fetch_add(&server->connections, 1);
    if (!serve(server, fd))
      return NULL;
  }
}

static int listen_on_any_port(char *url, size_t size) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 8) == 0 &&
            getsockname(listener, (struct sockaddr *)&address, &length) == 0);
  snprintf(url, size, "http://127.0.0.1:%d", ntohs(address.sin_port));
  return listener;
}

static struct server *server_start_sized(const char *answer, size_t size) {
  struct server *server = xcalloc(1, sizeof *server);
  server->answer = answer;
  server->answer_size = size;
  pthread_mutex_init(&server->mutex, NULL);
  cr_assert(pipe(server->stop) == 0);
  server->listener = listen_on_any_port(server->url, sizeof server->url);
  cr_assert(pthread_create(&server->thread, NULL, serve_all, server) == 0);
  return server;
}

static struct server *server_start(const char *answer) {
  return server_start_sized(answer, answer ? strlen(answer) : 0);
}

static void server_stop(struct server *server) {
  cr_assert_eq(write(server->stop[1], "x", 1), 1);
  pthread_join(server->thread, NULL);
  close(server->listener);
  close(server->stop[0]);
  close(server->stop[1]);
  pthread_mutex_destroy(&server->mutex);
  free(server);
}
DEFINE_CLEANUP(struct server *, cleanup_server_stop, server_stop)
#define cleanup_server __attribute__((cleanup(cleanup_server_stop)))

static struct http_client *client_of(const char *url, const char *token) {
  struct http_client *client = NULL;
  struct error error;
  cr_assert(http_client_new(url, token, false, 2000, &client, &error), "%s", error.message);
  return client;
}

static void assert_has(const char *text, const char *part) {
  cr_assert(strstr(text, part), "no \"%s\" in:\n%s", part, text);
}

#define OK "HTTP/1.1 200 OK\r\n"

Test(http_client, an_answer_has_status_body_and_headers) {
  cleanup_server struct server *server =
      server_start(OK "ETag: \"abc\"\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nhello");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "GET", .path = "/v1/cache?tag=default"};
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
  cr_assert_eq(response.status, 200);
  cr_assert_eq(response.size, 5u);
  cr_assert_str_eq(response.body, "hello");
  cr_assert_str_eq(response.etag, "\"abc\"");
  cr_assert_eq(response.retry_after_s, 7);
  assert_has(server->request, "GET /v1/cache?tag=default HTTP/1.1\r\n");
  assert_has(server->request, "User-Agent: wavetune/" WAVETUNE_VERSION "\r\n");
  cr_assert_null(strstr(server->request, "Authorization"));
}

Test(http_client, absent_headers_are_null) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  cr_assert(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
  cr_assert_str_eq(response.body, "");
  cr_assert_null(response.etag);
  cr_assert_eq(response.retry_after_s, 0);
}

Test(http_client, an_unusable_header_counts_as_absent) {
  cleanup_free char *longest = xcalloc(1, 1026), *longer = xcalloc(1, 1026);
  memset(longest, 'e', 1024);
  memset(longer, 'e', 1025);
  cr_expect(http_header_is_usable("W/\"a b~\""));
  cr_expect(http_header_is_usable(longest));
  static const char *const unusable[] = {"", "a\x01", "a\tb", "a\x7f", "\xff", "\xc3\xa9"};
  for (size_t i = 0; i < ARRAY_LENGTH(unusable); i++)
    cr_expect_not(http_header_is_usable(unusable[i]), "%zu", i);
  cr_expect_not(http_header_is_usable(longer));

  cleanup_server struct server *server =
      server_start(OK "ETag: \"\xff\"\r\nContent-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  cr_assert(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
  cr_expect_null(response.etag);
}

Test(http_client, a_request_carries_token_body_and_conditions) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_free char *url = xasprintf("%s/base/", server->url);
  cleanup_http_client struct http_client *client = client_of(url, "wt_token");
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "PUT",
                                 .path = "/v1/blobs/x",
                                 .body = "a\0b",
                                 .body_size = 3,
                                 .content_type = "application/octet-stream",
                                 .if_match = "\"1\"",
                                 .if_none_match = "\"2\""};
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
  assert_has(server->request, "PUT /base/v1/blobs/x HTTP/1.1\r\n");
  assert_has(server->request, "Authorization: Bearer wt_token\r\n");
  assert_has(server->request, "Content-Type: application/octet-stream\r\n");
  assert_has(server->request, "Content-Length: 3\r\n");
  assert_has(server->request, "If-Match: \"1\"\r\n");
  assert_has(server->request, "If-None-Match: \"2\"\r\n");
  cr_assert_eq(memcmp(strstr(server->request, "\r\n\r\n") + 4, "a\0b", 3), 0);
}

Test(http_client, every_method_is_sent_over_one_connection) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  static const char *const methods[] = {"PUT", "POST", "DELETE", "GET", "POST"};
  for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
    cleanup_http_response struct http_response response = {0};
    struct error error;
    struct http_request request = {.method = methods[i], .path = "/"};
    cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
    cleanup_free char *line = xasprintf("%s / HTTP/1.1\r\n", methods[i]);
    cr_assert(string_starts(server->request, line), "%s", server->request);
  }
  cr_assert_eq(atomic_load(&server->connections), 1);
}

Test(http_client, a_redirect_is_an_answer_and_not_followed) {
  cleanup_server struct server *server =
      server_start("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  cr_assert(http_send(client, &(struct http_request){.method = "GET", .path = "/first"}, &response,
                      &error));
  cr_assert_eq(response.status, 302);
  assert_has(server->request, "GET /first ");
}

Test(http_client, a_refused_connection_is_an_error_that_names_the_url) {
  char url[64];
  close(listen_on_any_port(url, sizeof url));
  cleanup_http_client struct http_client *client = client_of(url, "s3cret");
  struct http_response response;
  struct error error;
  cr_assert_not(http_send(client, &(struct http_request){.method = "GET", .path = "/healthz"},
                          &response, &error));
  cr_assert_eq(response.status, 0);
  assert_has(error.message, url);
  assert_has(error.message, "/healthz");
  cr_assert_null(strstr(error.message, "s3cret"));
}

Test(http_client, a_request_ends_after_its_timeout) {
  cleanup_server struct server *server = server_start(NULL);
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  struct http_response response;
  struct error error;
  struct http_request request = {.method = "GET", .path = "/slow", .timeout_ms = 50};
  cr_assert_not(http_send(client, &request, &response, &error));
  assert_has(error.message, "/slow");
  assert_has(error.message, "timed out");
  cr_expect_eq(error.kind, ERROR_DEADLINE);
}

static enum error_kind expect_no_whole_answer(const char *answer, const char *part) {
  cleanup_server struct server *server = server_start(answer);
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  struct http_response response;
  struct error error;
  server->closes = true;
  cr_assert_not(http_send(client, &(struct http_request){.method = "GET", .path = "/cut"},
                          &response, &error));
  assert_has(error.message, part);
  assert_has(error.message, "/cut");
  return error.kind;
}

Test(http_client, an_answer_that_ends_early_differs_from_none) {
  cr_expect_eq(expect_no_whole_answer(OK "Content-Length: 9\r\n\r\nhello", "ended after 5 bytes"),
               ERROR_TRUNCATED);
  cr_expect_eq(
      expect_no_whole_answer(OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "ended after"),
      ERROR_TRUNCATED);
  cr_expect_eq(expect_no_whole_answer(NULL, "no answer from"), ERROR_UNAVAILABLE);
}

/* One request of a client with two servers, the second of which answers 200. */
struct failover {
  bool is_ok;
  int status;
  struct error error;
  char *request; /* that the second got; "": none */
};
static struct failover failover_run(struct http_client *client, const struct http_request *request,
                                    struct server *second) {
  struct failover got = {0};
  cleanup_http_response struct http_response response = {0};
  second->request[0] = '\0';
  got.is_ok = http_send(client, request, &response, &got.error);
  got.status = response.status;
  got.request = second->request;
  return got;
}

static struct http_client *client_of_two(const char *first, const char *second) {
  cleanup_free char *urls = xasprintf("%s,%s", first, second);
  return client_of(urls, "wt_token");
}

Test(http_client, the_next_server_gets_what_the_first_cannot_be_connected_for) {
  char gone[64];
  close(listen_on_any_port(gone, sizeof gone));
  cleanup_server struct server *second = server_start(OK "Content-Length: 0\r\n\r\n");
  static const char *const methods[] = {"GET", "PUT", "POST", "DELETE"};
  for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
    cleanup_http_client struct http_client *client = client_of_two(gone, second->url);
    struct http_request request = {
        .method = methods[i], .path = "/a", .body = "{}", .body_size = 2, .if_match = "\"1\""};
    struct failover got = failover_run(client, &request, second);
    cr_expect(got.is_ok, "%s: %s", methods[i], got.error.message);
    cr_expect_eq(got.status, 200);
    assert_has(got.request, methods[i]);
    assert_has(got.request, "If-Match: \"1\"\r\n");
    assert_has(got.request, "Bearer wt_token");
  }
}

Test(http_client, a_503_sends_the_request_to_the_next_server_and_the_client_stays_there) {
  cleanup_server struct server *first =
      server_start("HTTP/1.1 503 Away\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\naway");
  cleanup_server struct server *second = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of_two(first->url, second->url);
  struct http_request request = {.method = "POST", .path = "/a"};
  cr_expect_eq(failover_run(client, &request, second).status, 200);
  assert_has(first->request, "POST /a ");
  first->request[0] = '\0';
  cr_expect_eq(failover_run(client, &request, second).status, 200);
  cr_expect_str_eq(first->request, "", "it stays with the one that answered");
}

Test(http_client, a_503_is_returned_where_no_server_does_better) {
  char gone[64];
  close(listen_on_any_port(gone, sizeof gone));
  cleanup_server struct server *busy =
      server_start("HTTP/1.1 503 Away\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\naway");
  const char *const orders[][2] = {{busy->url, gone}, {gone, busy->url}};
  for (size_t i = 0; i < ARRAY_LENGTH(orders); i++) {
    cleanup_http_client struct http_client *client = client_of_two(orders[i][0], orders[i][1]);
    cleanup_http_response struct http_response response = {0};
    struct error error;
    struct http_request request = {.method = "GET", .path = "/a"};
    cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
    cr_expect_eq(response.status, 503);
    cr_expect_eq(response.retry_after_s, 3);
    cr_expect_str_eq(response.body, "away");
  }
}

Test(http_client, an_error_says_that_none_of_several_servers_answers) {
  char gone[2][64];
  for (size_t i = 0; i < 2; i++)
    close(listen_on_any_port(gone[i], sizeof gone[i]));
  cleanup_http_client struct http_client *client = client_of_two(gone[0], gone[1]);
  struct http_response response;
  struct error error;
  cr_assert_not(http_send(client, &(struct http_request){.method = "GET", .path = "/healthz"},
                          &response, &error));
  assert_has(error.message, "none of the 2 servers answers: no answer from http://127.0.0.1");
  cr_expect_eq(error.kind, ERROR_UNAVAILABLE);
}

/* The first server may have carried it out before the connection was cut. */
Test(http_client, only_what_may_be_repeated_is_sent_again_after_a_connection_was_cut) {
  static const struct {
    struct http_request request;
    bool may_be;
  } cases[] = {
      {{.method = "GET", .path = "/a"}, true},
      {{.method = "PUT", .path = "/a"}, true},
      {{.method = "PUT", .path = "/a", .if_match = "\"1\""}, false},
      {{.method = "POST", .path = "/a"}, false},
      {{.method = "POST", .path = "/a", .is_idempotent = true}, true},
      {{.method = "DELETE", .path = "/a"}, false},
  };
  static const char *const answers[] = {NULL, OK "Content-Length: 9\r\n\r\nhello"};
  for (size_t i = 0; i < ARRAY_LENGTH(cases) * ARRAY_LENGTH(answers); i++) {
    cleanup_server struct server *cuts = server_start(answers[i % ARRAY_LENGTH(answers)]);
    cleanup_server struct server *second = server_start(OK "Content-Length: 0\r\n\r\n");
    cleanup_http_client struct http_client *client = client_of_two(cuts->url, second->url);
    const struct http_request *request = &cases[i / ARRAY_LENGTH(answers)].request;
    bool may_be = cases[i / ARRAY_LENGTH(answers)].may_be;
    cuts->closes = true;
    struct failover got = failover_run(client, request, second);
    cr_expect_eq(got.is_ok, may_be, "%s: %s", request->method, got.error.message);
    cr_expect_eq(got.request[0] != '\0', may_be, "%s", request->method);
    got = failover_run(client, request, second);
    cr_expect(got.is_ok, "the next request goes to the second: %s", got.error.message);
  }
}

Test(http_client, a_silent_server_uses_up_the_deadline_and_is_left_for_the_next_request) {
  cleanup_server struct server *silent = server_start(NULL);
  cleanup_server struct server *second = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of_two(silent->url, second->url);
  struct http_request request = {.method = "GET", .path = "/a", .timeout_ms = 100};
  struct failover got = failover_run(client, &request, second);
  cr_expect_not(got.is_ok);
  cr_expect_eq(got.error.kind, ERROR_DEADLINE);
  cr_expect_str_eq(got.request, "");
  request.timeout_ms = 0;
  cr_expect(failover_run(client, &request, second).is_ok);
}

Test(http_client, every_url_of_a_list_is_checked) {
  static const char *const lists[] = {"https://a,", ",https://a", "https://a,b:80",
                                      "https://a, https://b", "https://a,http://192.0.2.1"};
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
    struct http_client *client;
    struct error error;
    cr_expect_not(http_client_new(lists[i], "wt_s3", false, 1000, &client, &error), "%s", lists[i]);
  }
}

Test(http_client, a_cancel_that_was_undone_ends_no_request) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  http_client_cancel(client);
  http_client_resume(client);
  cr_expect(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
}

Test(http_client, an_answer_cut_short_is_an_error) {
  cleanup_server struct server *server = server_start("HTTP/9 nonsense\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  struct http_response response;
  struct error error;
  cr_assert_not(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
  assert_has(error.message, "no answer from http://127.0.0.1");
}

Test(http_client, an_answer_over_the_limit_is_refused) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 5\r\n\r\nhello");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "GET", .path = "/big", .response_max = 4};
  cr_assert_not(http_send(client, &request, &response, &error));
  assert_has(error.message, "/big is larger than 4 bytes");
  request.response_max = 5;
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
}

Test(http_client, a_large_answer_is_received_completely) {
  size_t head = strlen(OK "Content-Length: 1000000\r\n\r\n");
  cleanup_free char *answer = xmalloc(head + 1000000);
  memcpy(answer, OK "Content-Length: 1000000\r\n\r\n", head);
  for (size_t i = 0; i < 1000000; i++)
    answer[head + i] = (char)(i % 251);
  cleanup_server struct server *server = server_start_sized(answer, head + 1000000);
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  cr_assert(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
  cr_assert_eq(response.size, 1000000u);
  cr_assert_eq(memcmp(response.body, answer + head, 1000000), 0);
}

static void *cancel_when_connected(void *context) {
  void **pair = context;
  struct server *server = pair[0];
  for (bool asked = false; !asked; usleep(1000)) {
    pthread_mutex_lock(&server->mutex);
    asked = server->request[0];
    pthread_mutex_unlock(&server->mutex);
  }
  http_client_cancel(pair[1]);
  return NULL;
}

Test(http_client, cancel_ends_a_running_request_and_leaves_the_client_usable) {
  cleanup_server struct server *server = server_start(NULL);
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  struct http_response response = {0};
  struct error error;
  pthread_t canceller;
  void *pair[] = {server, client};
  struct http_request request = {.method = "GET", .path = "/poll", .timeout_ms = 3600000};
  cr_assert(pthread_create(&canceller, NULL, cancel_when_connected, pair) == 0);
  cr_assert_not(http_send(client, &request, &response, &error));
  pthread_join(canceller, NULL);
  assert_has(error.message, "/poll was cancelled");
  pthread_mutex_lock(&server->mutex);
  server->answer = OK "Content-Length: 2\r\n\r\n{}";
  server->answer_size = strlen(server->answer);
  pthread_mutex_unlock(&server->mutex);
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
  http_response_release(&response);
}

Test(http_client, cancel_before_a_request_ends_that_one_only) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "GET", .path = "/"};
  http_client_cancel(client);
  cr_assert_not(http_send(client, &request, &response, &error));
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
}

Test(http_client, loopback_uses_no_proxy) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "GET", .path = "/"};
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
}

Test(http_client, another_host_uses_the_proxy) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 0\r\n\r\n");
  setenv("http_proxy", server->url, 1);
  unsetenv("no_proxy");
  unsetenv("NO_PROXY");
  cleanup_http_client struct http_client *client = client_of("http://tuning.invalid", NULL);
  cleanup_http_response struct http_response response = {0};
  struct error error;
  struct http_request request = {.method = "GET", .path = "/"};
  cr_assert(http_send(client, &request, &response, &error), "%s", error.message);
  assert_has(server->request, "GET http://tuning.invalid/ HTTP/1.1\r\n");
}

Test(http_client, certificates_are_those_of_ssl_cert_file) {
  setenv("SSL_CERT_FILE", "/nonexistent/ca.pem", 1);
  cleanup_server struct server *server = server_start(NULL);
  cleanup_free char *url = xasprintf("https%s", server->url + 4);
  cleanup_http_client struct http_client *client = client_of(url, NULL);
  struct http_response response;
  struct error error;
  cr_assert_not(
      http_send(client, &(struct http_request){.method = "GET", .path = "/"}, &response, &error));
  assert_has(error.message, "/nonexistent/ca.pem");
}

Test(http_client, a_header_with_a_line_break_is_refused) {
  cleanup_http_client struct http_client *client = client_of("http://127.0.0.1:1", NULL);
  struct http_response response;
  struct error error;
  struct http_request request = {.method = "GET", .path = "/", .if_none_match = "\"a\"\r\nX: y"};
  cr_assert_not(http_send(client, &request, &response, &error));
  assert_has(error.message, "If-None-Match");
}

Test(http_client, wrong_urls_are_refused_without_showing_their_secrets) {
  static const char *const urls[] = {"ftp://host",    "host:8080",          "http://",
                                     "http://a b/",   "http://h/?q=s3",     "http://u:s3@host/x",
                                     "http://h/#s3f", "http://h:99999999/", "http://u@host",
                                     "http://host/\n"};
  for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
    struct http_client *client;
    struct error error;
    cr_assert_not(http_client_new(urls[i], NULL, false, 1000, &client, &error), "%s was taken",
                  urls[i]);
    cr_assert_null(strstr(error.message, "s3"));
  }
}

Test(http_client, wrong_tokens_are_refused_without_showing_them) {
  static const char *const tokens[] = {"", "s3 x", "s3\r\nX: y"};
  for (size_t i = 0; i < ARRAY_LENGTH(tokens); i++) {
    struct http_client *client;
    struct error error;
    cr_assert_not(http_client_new("http://host", tokens[i], true, 1000, &client, &error));
    assert_has(error.message, "the token");
    cr_assert_null(strstr(error.message, "s3"));
  }
}

Test(http_client, a_token_is_sent_over_http_to_loopback_only_unless_permitted) {
  static const struct {
    const char *url;
    bool is_safe;
  } cases[] = {
      {"https://tuning.example", true},
      {"http://127.0.0.1:7200", true},
      {"http://127.9.8.7", true},
      {"http://localhost:7200", true},
      {"http://LOCALHOST", true},
      {"http://[::1]:7200", true},
      {"http://tuning.example:7200", false},
      {"http://192.0.2.1", false},
      {"http://127.0.0.1.example", false},
      {"http://localhost.example", false},
      {"http://[2001:db8::1]", false},
      {"http://[::ffff:192.0.2.1]", false},
      {"http://0.0.0.0:7200", false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct error error;
    for (int insecure = 0; insecure < 2; insecure++) {
      struct http_client *client = NULL;
      bool is_taken = http_client_new(cases[i].url, "wt_s3", insecure, 1000, &client, &error);
      cr_assert_eq(is_taken, cases[i].is_safe || insecure, "%s", cases[i].url);
      if (is_taken)
        http_client_free(client);
      else
        assert_has(error.message, "--insecure-http");
    }
    struct http_client *client;
    cr_assert(http_client_new(cases[i].url, NULL, false, 1000, &client, &error), "%s",
              cases[i].url); /* no token */
    http_client_free(client);
  }
}

Test(http_json, sends_members_in_their_order_and_reads_the_answer) {
  cleanup_server struct server *server = server_start(OK "Content-Length: 9\r\n\r\n{\"id\": 7}");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  cleanup_json json_t *body = json_pack("{s:i, s:i}", "b", 2, "a", 1), *answer = NULL;
  struct error error;
  cr_assert(http_json(client, "POST", "/v1/jobs", body, 0, &answer, &error), "%s", error.message);
  cr_assert_eq(json_integer_value(json_object_get(answer, "id")), 7);
  assert_has(server->request, "Content-Type: application/json\r\n");
  assert_has(server->request, "\r\n\r\n{\"b\":2,\"a\":1}");
}

Test(http_json, an_empty_answer_is_null) {
  cleanup_server struct server *server = server_start("HTTP/1.1 204 No Content\r\n\r\n");
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  json_t *answer = NULL;
  struct error error;
  cr_assert(http_json(client, "DELETE", "/v1/jobs/1", NULL, 0, &answer, &error), "%s",
            error.message);
  cr_assert_null(answer);
}

/* The error of a request that is answered with this status and body. */
static struct error refused(const char *status_line, const char *body) {
  cleanup_free char *answer =
      xasprintf("HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status_line, strlen(body), body);
  cleanup_server struct server *server = server_start(answer);
  cleanup_http_client struct http_client *client = client_of(server->url, NULL);
  struct error error = {0};
  json_t *json = NULL;
  cr_assert_not(http_json(client, "GET", "/v1/jobs", NULL, 0, &json, &error));
  return error;
}

Test(http_json, a_problem_document_becomes_the_error) {
  struct error error = refused("422 Unprocessable",
                               "{\"title\": \"t\", \"detail\": \"no N\", \"pointer\": \"/key/N\"}");
  cr_assert_eq(error.kind, ERROR_INVALID);
  cr_assert_str_eq(error.message, "no N");
  cr_assert_str_eq(error.pointer, "/key/N");
}

Test(http_json, a_problem_without_detail_gives_its_title) {
  struct error error = refused("404 Not Found", "{\"title\": \"Missing\"}");
  cr_assert_eq(error.kind, ERROR_MISSING);
  cr_assert_str_eq(error.message, "Missing");
  cr_assert_str_eq(error.pointer, "");
}

Test(http_json, a_refusal_without_a_problem_document_names_the_status) {
  static const char *const bodies[] = {"<html>", "", "{}", "[]", "{\"detail\": 1}"};
  for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
    struct error error = refused("502 Bad Gateway", bodies[i]);
    cr_assert_eq(error.kind, ERROR_UNAVAILABLE);
    assert_has(error.message, "502 to GET /v1/jobs");
  }
}

/* The sentence about an answer of this status with this X-Request-Id. */
static struct error named(const char *status_line, const char *request, const char *detail) {
  cleanup_free char *status = xasprintf("%s\r\nX-Request-Id: %s", status_line, request);
  cleanup_free char *body = xasprintf("{\"detail\": \"%s\"}", detail);
  return refused(status, body);
}

Test(http_json, an_answer_of_5xx_is_named_by_its_request) {
  cr_expect_str_eq(named("500 Oops", "d1zz-8r3c", "its log says why").message,
                   "its log says why (request d1zz-8r3c)");
  cr_expect_str_eq(named("404 Oops", "d1zz-8r3c", "no job").message, "no job");
  assert_has(refused("502 Oops\r\nX-Request-Id: a-1", "<html>").message,
             "without a reason (request a-1)");
}

Test(http_json, a_malformed_id_is_not_shown) {
  cr_expect_str_eq(named("500 Oops", "a \x1b[2J", "its log says why").message, "its log says why");
  cr_expect_str_eq(named("500 Oops", "", "its log says why").message, "its log says why");
}

Test(http_json, a_long_sentence_is_cut_for_the_request) {
  char detail[901];
  for (size_t i = 0; i < 900; i += 3)
    memcpy(detail + i, "\xe2\x82\xac", 3);
  detail[900] = '\0';
  for (size_t cut = 0; cut < 3; cut++) {
    cleanup_free char *shifted = xasprintf("%.*s%s", (int)cut, "xx", detail);
    struct error error = named("503 Oops", "d1zz-8r3c", shifted);
    const char *end = strstr(error.message, "\xac (request d1zz-8r3c)");
    cr_assert_not_null(end, "%s", error.message);
    cr_expect_gt(strlen(error.message), sizeof error.message - 5);
  }
}

Test(http_json, an_answer_that_is_not_json_is_refused) {
  struct error error = refused("200 OK", "<html>");
  cr_assert_eq(error.kind, ERROR_UNAVAILABLE);
  assert_has(error.message, "the server's answer to GET /v1/jobs is not a JSON document");
}

Test(http_json, no_answer_is_an_unavailable_server) {
  char url[64];
  close(listen_on_any_port(url, sizeof url));
  cleanup_http_client struct http_client *client = client_of(url, NULL);
  struct error error;
  cr_assert_not(http_json(client, "GET", "/", NULL, 0, NULL, &error));
  cr_assert_eq(error.kind, ERROR_UNAVAILABLE);
}

Test(http_escape, keeps_only_unreserved_characters) {
  cleanup_free char *text = http_escape("AZaz09-._~ /?&=%+\xc3\xa9");
  cr_assert_str_eq(text, "AZaz09-._~%20%2F%3F%26%3D%25%2B%C3%A9");
  cleanup_free char *empty = http_escape("");
  cr_assert_str_eq(empty, "");
}
