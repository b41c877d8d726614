/* One libcurl easy handle in a multi handle, which keeps connections alive and which
 * http_client_cancel can wake. */
#include "common/program/http_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/program/error_codes.h"

#define TIMEOUT_MS_DEFAULT 60000
#define RESPONSE_MAX_DEFAULT ((size_t)64 << 20)
#define HEADER_VALUE_MAX 1024
#define HTTP_BUSY 503
#define HTTP_UNAUTHORIZED 401
#define TOKEN_BYTES_MAX 8192
/* A token that is refused sooner is not good, rather than one that has ended. */
#define TOKEN_NEW_MS 1000
#define RENEWALS_MAX 5 /* for one request: a short-lived token may end again meanwhile */
#define POLL_MS 1000   /* curl's own timers and a cancel wake it earlier */

struct http_server {
  char *url; /* without a "/" at its end */
  bool is_loopback;
};

struct http_client {
  CURLM *multi;
  CURL *easy;
  size_t n_servers;
  struct http_server *servers; /* in the order in which they were given */
  size_t current;              /* the first choice of the next request */
  int64_t left_at_ms;          /* clock_monotonic_ms when the first server was left */
  pthread_mutex_t token_lock;
  char *authorization;     /* the whole header, or NULL; under token_lock */
  char *certificate, *key; /* files, or both NULL */
  char *authorities;       /* a file, or NULL */
  char *token_command;     /* NULL: the token is fixed */
  int64_t token_got_ms;    /* clock_monotonic_ms when the command was run last; 0: never */
  int64_t connect_timeout_ms;
  atomic_bool cancelled;
};

#define RECEIVER_MAGIC 0x48545250u
struct receiver {
  uint32_t magic;
  char **bytes; /* of `capacity`, NUL-terminated */
  size_t size, capacity, max;
  bool too_large;
};

DEFINE_CLEANUP(CURLU *, cleanup_curl_url_free, curl_url_cleanup)
DEFINE_CLEANUP(struct curl_slist *, cleanup_curl_list_free, curl_slist_free_all)
static void cleanup_curl_text_free(char **text) { curl_free(*text); }

static void curl_start(void) {
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    die("libcurl cannot be initialised");
}

/* Whether a header line may hold the text: a CR or LF in it would begin another header. */
static bool header_text_is_plain(const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f)
      return false;
  return true;
}

/* Refuses all but a plain base URL. A user or password in it would be logged. */
static bool url_check(const char *url, bool *ret_is_loopback, struct error *error) {
  cleanup_by(cleanup_curl_url_free) CURLU *parts = curl_url();
  cleanup_by(cleanup_curl_text_free) char *host = NULL;
  ALWAYS(parts != NULL);

  if (!string_starts(url, "http://") && !string_starts(url, "https://"))
    return error_set(
        error,
        "the server's URL must begin with http:// or https://, like http://tuning.example:8080");
  if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK ||
      curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK || !header_text_is_plain(url))
    return error_set(error,
                     "the server's URL is not a URL; write it like http://tuning.example:8080");

  const CURLUPart refused[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                               CURLUPART_FRAGMENT};
  for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
    cleanup_by(cleanup_curl_text_free) char *part = NULL;
    if (curl_url_get(parts, refused[i], &part, 0) == CURLUE_OK)
      return error_set(
          error,
          "the server's URL must have no user, password, query or fragment; the token has its own "
          "option");
  }

  bool is_number = host[strspn(host, "0123456789.")] == '\0';
  *ret_is_loopback = strcasecmp(host, "localhost") == 0 || string_equal(host, "[::1]") ||
                     (is_number && string_starts(host, "127."));
  return true;
}

static bool token_is_plain(const char *token) {
  return token[0] && !strchr(token, ' ') && header_text_is_plain(token);
}

/* Adds one server to the client. */
static bool server_add(struct http_client *client, const char *url, bool has_token,
                       bool insecure_http, struct error *error) {
  bool is_loopback;
  if (!url_check(url, &is_loopback, error))
    return false;
  if (has_token && !is_loopback && !insecure_http && !string_starts(url, "https://"))
    return error_set(error,
                     "the token would be sent unencrypted to %s: give an https:// URL, or "
                     "--insecure-http if you trust the network",
                     url);

  size_t length = strlen(url);
  while (length && url[length - 1] == '/')
    length--;
  client->servers[client->n_servers++] =
      (struct http_server){.url = xstrndup(url, length), .is_loopback = is_loopback};
  return true;
}

bool http_client_new(const char *urls, const char *token, bool insecure_http,
                     int64_t connect_timeout_ms, struct http_client **ret_client,
                     struct error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, curl_start);

  if (token && !token_is_plain(token))
    return error_set(
        error,
        "the token is empty or contains spaces or control characters; give it as it was printed");

  cleanup_http_client struct http_client *client = xcalloc(1, sizeof *client);
  *client = (struct http_client){
      .token_lock = PTHREAD_MUTEX_INITIALIZER,
      .multi = curl_multi_init(),
      .easy = curl_easy_init(),
      .servers = xcalloc(strlen(urls) + 1, sizeof *client->servers),
      .authorization = token ? xasprintf("Authorization: Bearer %s", token) : NULL,
      .connect_timeout_ms = connect_timeout_ms,
  };
  ALWAYS(client->multi && client->easy);

  cleanup_free char *list = xstrdup(urls);
  char *rest = list;
  for (char *url; (url = strsep(&rest, ","));)
    if (!server_add(client, url, token != NULL, insecure_http, error))
      return false;

  *ret_client = TAKE(client);
  return true;
}

void http_client_free(struct http_client *client) {
  curl_easy_cleanup(client->easy);
  curl_multi_cleanup(client->multi);
  for (size_t i = 0; i < client->n_servers; i++)
    free(client->servers[i].url);
  free(client->servers);
  free(client->authorization);
  free(client->certificate);
  free(client->authorities);
  free(client->token_command);
  free(client->key);
  pthread_mutex_destroy(&client->token_lock);
  free(client);
}

bool http_client_set_certificate(struct http_client *client, const char *certificate,
                                 const char *key, struct error *error) {
  if (!certificate != !key)
    return error_set(error,
                     "--client-certificate and --client-key belong together; give both or neither");
  if (!certificate)
    return true;
  if (access(certificate, R_OK) < 0)
    return error_set(error, "cannot read the client certificate %s: %s", certificate,
                     strerror(errno));
  if (!file_is_private(key, true, error))
    return error_prefix(error, "--client-key: ");

  client->certificate = xstrdup(certificate);
  client->key = xstrdup(key);
  return true;
}

void http_client_set_authorities(struct http_client *client, const char *file) {
  client->authorities = file ? xstrdup(file) : NULL;
}

void http_client_set_token_command(struct http_client *client, const char *command) {
  client->token_command = xstrdup(command);
}

/* Runs the token's command. Its stderr is this program's. */
static bool token_get(struct http_client *client, struct error *error) {
  char token[TOKEN_BYTES_MAX + 2];
  FILE *pipe = popen(client->token_command, "re");
  if (!pipe)
    return error_of(error, ERROR_UNAVAILABLE, "cannot run the command for the token: %s",
                    strerror(errno));

  size_t size = fread(token, 1, sizeof token - 1, pipe);
  int status = pclose(pipe);
  while (size && strchr(" \t\r\n", token[size - 1]))
    size--;
  token[size] = '\0';
  if (status != 0)
    return error_of(error, ERROR_UNAVAILABLE,
                    "the command for the token (--token-command) failed with exit code %d",
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  if (size > TOKEN_BYTES_MAX || strlen(token) != size || !token_is_plain(token))
    return error_of(error, ERROR_UNAVAILABLE,
                    "the command for the token (--token-command) must print the token and nothing "
                    "else");

  http_client_set_token(client, token);
  client->token_got_ms = clock_monotonic_ms();
  return true;
}

void http_client_set_token(struct http_client *client, const char *token) {
  ALWAYS(!token || token_is_plain(token));
  char *header = token ? xasprintf("Authorization: Bearer %s", token) : NULL;
  pthread_mutex_lock(&client->token_lock);
  char *before = client->authorization;
  client->authorization = header;
  pthread_mutex_unlock(&client->token_lock);
  free(before);
}

void http_client_cancel(struct http_client *client) {
  atomic_store(&client->cancelled, true);
  curl_multi_wakeup(client->multi);
}

void http_client_resume(struct http_client *client) { atomic_store(&client->cancelled, false); }

static size_t receive(char *bytes, size_t one, size_t size, void *context) {
  struct receiver *receiver = context;
  MAGIC_CHECK(receiver, RECEIVER_MAGIC);
  (void)one;
  if (size > receiver->max - receiver->size) {
    receiver->too_large = true;
    return CURL_WRITEFUNC_ERROR;
  }

  size_t needed = receiver->size + size + 1;
  if (needed > receiver->capacity) {
    receiver->capacity = needed > receiver->capacity * 2 ? needed : receiver->capacity * 2;
    *receiver->bytes = xreallocarray(*receiver->bytes, receiver->capacity, 1);
  }

  memcpy(*receiver->bytes + receiver->size, bytes, size);
  receiver->size += size;
  (*receiver->bytes)[receiver->size] = '\0';
  return size;
}

static void header_append(struct curl_slist **headers, const char *line) {
  *headers = curl_slist_append(*headers, line);
  ALWAYS(*headers != NULL);
}

static bool headers_make(struct http_client *client, const struct http_request *request,
                         struct curl_slist **headers, struct error *error) {
  const char *content_type = request->content_type ? request->content_type : "application/json";
  const char *const values[][2] = {{"Content-Type", request->body ? content_type : NULL},
                                   {"If-Match", request->if_match},
                                   {"If-None-Match", request->if_none_match}};

  /* Without the empty header curl waits for "100 Continue" before it sends a body over 1 MiB. */
  header_append(headers, "Expect:");

  pthread_mutex_lock(&client->token_lock);
  if (client->authorization)
    header_append(headers, client->authorization);
  pthread_mutex_unlock(&client->token_lock);

  for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
    const char *name = values[i][0], *value = values[i][1];
    if (!value)
      continue;
    if (!header_text_is_plain(value))
      return error_set(error, "the header %s has control characters in its value", name);

    cleanup_free char *line = xasprintf("%s: %s", name, value);
    header_append(headers, line);
  }
  return true;
}

/* One request to one server. */
struct attempt {
  const struct http_server *server;
  const char *url;
  int64_t timeout_ms, connect_ms; /* in all, and for connecting */
  struct curl_slist *headers;
};

/* The file of certificate authorities; NULL: the one that libcurl was built with. The client for
 * every distribution has a libcurl without one. */
static const char *authorities_file(void) {
  static const char *const files[] = {
      "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu */
      "/etc/pki/tls/certs/ca-bundle.crt",   /* RHEL, Fedora */
      "/etc/ssl/ca-bundle.pem",             /* SUSE */
  };
  const char *given = getenv("SSL_CERT_FILE");
  if (given && given[0])
    return given;
  if (curl_version_info(CURLVERSION_NOW)->cainfo)
    return NULL;

  for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
    if (access(files[i], R_OK) == 0)
      return files[i];
  return NULL;
}

static void easy_prepare(const struct http_client *client, const struct http_request *request,
                         const struct attempt *attempt, struct receiver *receiver, char *reason) {
  CURL *easy = client->easy;
  curl_easy_reset(easy);

  curl_easy_setopt(easy, CURLOPT_URL, attempt->url);
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "wavetune/" WAVETUNE_VERSION);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)attempt->connect_ms);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)attempt->timeout_ms);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, attempt->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, receiver);
  if (attempt->server->is_loopback)
    curl_easy_setopt(easy, CURLOPT_PROXY, "");

  const char *certificates = client->authorities ? client->authorities : authorities_file();
  if (certificates)
    curl_easy_setopt(easy, CURLOPT_CAINFO, certificates);
  if (client->authorities) /* these alone: libcurl would search its folder of others, too */
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
  if (client->certificate) {
    curl_easy_setopt(easy, CURLOPT_SSLCERT, client->certificate);
    curl_easy_setopt(easy, CURLOPT_SSLKEY, client->key);
  }

  if (!string_equal(request->method, "GET")) {
    /* A PUT or POST without a body sends "Content-Length: 0", a DELETE without one nothing. */
    if (request->body || !string_equal(request->method, "DELETE")) {
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                       (curl_off_t)(request->body ? request->body_size : 0));
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body ? request->body : "");
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
  }
}

/* Runs the prepared handle. False: it was cancelled; else *ret_code is its result. */
static bool easy_run(struct http_client *client, CURLcode *ret_code) {
  ALWAYS(curl_multi_add_handle(client->multi, client->easy) == CURLM_OK);
  int running = 1, left;
  bool cancelled = atomic_exchange(&client->cancelled, false);

  while (running && !cancelled) {
    ALWAYS(curl_multi_perform(client->multi, &running) == CURLM_OK);
    if (running) {
      ALWAYS(curl_multi_poll(client->multi, NULL, 0, POLL_MS, NULL) == CURLM_OK);
      cancelled = atomic_exchange(&client->cancelled, false);
    }
  }

  if (!cancelled) {
    const CURLMsg *message = curl_multi_info_read(client->multi, &left);
    ALWAYS(message && message->msg == CURLMSG_DONE);
    *ret_code = message->data.result;
  }

  curl_multi_remove_handle(client->multi, client->easy);
  return !cancelled;
}

bool http_header_is_usable(const char *value) {
  size_t length = 0;
  while (value[length] >= 0x20 && value[length] <= 0x7e)
    length++;
  return !value[length] && length >= 1 && length <= HEADER_VALUE_MAX;
}

/* The value of the answer's header, owned by the caller, or NULL. */
static char *header_copy(CURL *easy, const char *name) {
  struct curl_header *header;
  bool is_there = curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK;
  return is_there && http_header_is_usable(header->value) ? xstrdup(header->value) : NULL;
}

bool http_request_may_be_sent_again(const struct http_request *request) {
  bool changes_nothing = string_equal(request->method, "GET");
  bool sets = string_equal(request->method, "PUT") && !request->if_match;
  return changes_nothing || sets || request->is_idempotent;
}

/* How an attempt ended. */
enum attempt_end {
  ATTEMPT_ANSWERED,
  ATTEMPT_OVER,   /* false is returned: cancelled, or an answer that is too large */
  ATTEMPT_SILENT, /* there was no answer until the deadline */
  ATTEMPT_UNSENT, /* there was no connection */
  ATTEMPT_CUT,    /* the connection ended before the answer was complete */
};

/* Sends the request to one server; *ret is set if it answered, else *error. */
static enum attempt_end attempt_run(struct http_client *client, const struct http_request *request,
                                    const struct attempt *attempt, struct http_response *ret,
                                    struct error *error) {
  cleanup_free char *bytes = xcalloc(1, 1), *reason = xcalloc(1, CURL_ERROR_SIZE);
  struct receiver receiver = {
      .magic = RECEIVER_MAGIC,
      .bytes = &bytes,
      .capacity = 1,
      .max = request->response_max ? request->response_max : RESPONSE_MAX_DEFAULT,
  };
  const char *url = attempt->url;
  CURLcode code;
  long status = 0, sent_bytes = 0;
  curl_off_t retry_after_s = 0;

  easy_prepare(client, request, attempt, &receiver, reason);
  if (!easy_run(client, &code)) {
    error_of(error, ERROR_UNAVAILABLE, "the request to %s was cancelled", url);
    return ATTEMPT_OVER;
  }
  curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(client->easy, CURLINFO_REQUEST_SIZE, &sent_bytes);

  const char *why = reason[0] ? reason : curl_easy_strerror(code);
  if (receiver.too_large) {
    error_of(error, ERROR_UNAVAILABLE, "the answer of %s %s is larger than %zu bytes",
             request->method, url, receiver.max);
    return ATTEMPT_OVER;
  }

  /* The answer was shorter than its Content-Length, or its last chunk is missing. */
  if (code == CURLE_PARTIAL_FILE || (code == CURLE_RECV_ERROR && status != 0)) {
    error_of(error, ERROR_TRUNCATED, "the answer of %s ended after %zu bytes: %s", url,
             receiver.size, why);
    return ATTEMPT_CUT;
  }
  if (code != CURLE_OK) {
    bool is_late = code == CURLE_OPERATION_TIMEDOUT;
    error_of(error, is_late ? ERROR_DEADLINE : ERROR_UNAVAILABLE, "no answer from %s: %s", url,
             why);
    return sent_bytes == 0 ? ATTEMPT_UNSENT : is_late ? ATTEMPT_SILENT : ATTEMPT_CUT;
  }

  curl_easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
  *ret = (struct http_response){
      .status = (int)status,
      .body = TAKE(bytes),
      .size = receiver.size,
      .etag = header_copy(client->easy, "ETag"),
      .request = header_copy(client->easy, REQUEST_ID_HEADER),
      .retry_after_s = retry_after_s > 0 ? retry_after_s : 0,
  };
  return ATTEMPT_ANSWERED;
}

/* Makes a server the first choice of the next request. */
static void server_choose(struct http_client *client, size_t index) {
  if (client->current == 0 && index != 0)
    client->left_at_ms = clock_monotonic_ms();
  client->current = index;
}

/* Sends the request to the servers in turn, with the token that the client has. */
static bool send_to_servers(struct http_client *client, const struct http_request *request,
                            struct http_response *ret, struct error *error) {
  *ret = (struct http_response){0};
  ALWAYS(request->path[0] == '/');
  cleanup_by(cleanup_curl_list_free) struct curl_slist *headers = NULL;
  if (!headers_make(client, request, &headers, error))
    return false;

  int64_t began_ms = clock_monotonic_ms(), n = (int64_t)client->n_servers;
  int64_t end_ms = began_ms + (request->timeout_ms ? request->timeout_ms : TIMEOUT_MS_DEFAULT);
  if (began_ms - client->left_at_ms >= HTTP_RETURN_MS)
    client->current = 0;
  size_t first = client->current;

  for (int64_t i = 0; i < n; i++) {
    size_t index = (first + (size_t)i) % client->n_servers;
    int64_t left_ms = end_ms - clock_monotonic_ms();
    if (i > 0 && left_ms <= 0)
      break;

    /* A server that drops packets leaves time for the others. */
    cleanup_free char *url = xasprintf("%s%s", client->servers[index].url, request->path);
    struct attempt attempt = {.server = &client->servers[index],
                              .url = url,
                              .timeout_ms = left_ms,
                              .connect_ms = left_ms / (n - i) < client->connect_timeout_ms && n > 1
                                                ? left_ms / (n - i)
                                                : client->connect_timeout_ms,
                              .headers = headers};
    cleanup_http_response struct http_response response = {0};
    enum attempt_end end = attempt_run(client, request, &attempt, &response, error);
    if (end == ATTEMPT_OVER)
      break;

    /* Where no server does better, a 503 is returned: it has a reason, and an answer came. */
    if (end == ATTEMPT_ANSWERED) {
      bool is_refused = response.status == HTTP_BUSY;
      if (!is_refused || !ret->status) {
        http_response_release(ret);
        *ret = response;
        response = (struct http_response){0};
        server_choose(client, index);
      }
      if (!is_refused)
        break;
      continue;
    }

    if (!ret->status)
      server_choose(client, (index + 1) % client->n_servers);
    if (end == ATTEMPT_SILENT || (end == ATTEMPT_CUT && !http_request_may_be_sent_again(request)))
      break;
    if (i + 1 == n && n > 1 && !ret->status)
      error_prefix(error, "none of the %lld servers answers: ", (long long)n);
  }

  return ret->status != 0;
}

bool http_send(struct http_client *client, const struct http_request *request,
               struct http_response *ret, struct error *error) {
  *ret = (struct http_response){0};
  if (client->token_command && !client->token_got_ms && !token_get(client, error))
    return false;

  for (int renewals = 0;; renewals++) {
    if (!send_to_servers(client, request, ret, error))
      return false;
    if (ret->status != HTTP_UNAUTHORIZED || !client->token_command || renewals == RENEWALS_MAX ||
        clock_monotonic_ms() - client->token_got_ms < TOKEN_NEW_MS)
      return true;
    http_response_release(ret);
    if (!token_get(client, error))
      return false;
  }
}

void http_response_release(struct http_response *response) {
  free(response->body);
  free(response->etag);
  free(response->request);
  *response = (struct http_response){0};
}

void http_error_name_request(const struct http_response *response, struct error *error) {
  char named[REQUEST_ID_SIZE + sizeof " (request )"];
  if (response->status < 500 || !response->request || !request_id_is_good(response->request))
    return;

  size_t length = (size_t)snprintf(named, sizeof named, " (request %s)", response->request);
  size_t at = utf8_cut(error->message, strlen(error->message), sizeof error->message - 1 - length);
  memcpy(error->message + at, named, length + 1);
}

bool http_problem(const struct http_response *response, const char *what, const char *request,
                  struct error *error) {
  cleanup_json json_t *problem = NULL;
  struct error ignored;
  const char *detail = NULL, *pointer = NULL;
  if (json_parse(response->body, response->size, &problem, &ignored)) {
    detail = json_text(problem, "detail");
    pointer = json_text(problem, "pointer");
    if (!detail)
      detail = json_text(problem, "title");
  }

  if (detail)
    error_at(error, pointer ? pointer : "", "%s%s%s", what ? what : "", what ? ": " : "", detail);
  else
    error_set(error, "%s%sthe server answered %d%s%s without a reason", what ? what : "",
              what ? ": " : "", response->status, request ? " to " : "", request ? request : "");

  http_error_name_request(response, error);
  return error_become(error, error_kind_of_http(response->status));
}

bool http_json(struct http_client *client, const char *method, const char *path, const json_t *body,
               int64_t timeout_ms, json_t **ret_answer, struct error *error) {
  cleanup_free char *text =
      body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
  struct http_request request = {.method = method,
                                 .path = path,
                                 .body = text,
                                 .body_size = text ? strlen(text) : 0,
                                 .timeout_ms = timeout_ms};
  cleanup_http_response struct http_response response = {0};
  if (!http_send(client, &request, &response, error))
    return error_become(error, error->kind == ERROR_DEADLINE ? ERROR_DEADLINE : ERROR_UNAVAILABLE);

  if (response.status / 100 != 2) {
    cleanup_free char *named = xasprintf("%s %s", method, path);
    return http_problem(&response, NULL, named, error);
  }

  cleanup_json json_t *answer = NULL;
  if (response.size && !json_parse(response.body, response.size, &answer, error)) {
    error_prefix(error, "the server's answer to %s %s is ", method, path);
    return error_become(error, ERROR_UNAVAILABLE);
  }

  if (ret_answer)
    *ret_answer = TAKE(answer);
  return true;
}

char *http_escape(const char *text) {
  cleanup_by(cleanup_curl_text_free) char *escaped = curl_easy_escape(NULL, text, 0);
  ALWAYS(escaped != NULL);
  return xstrdup(escaped);
}
