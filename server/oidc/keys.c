/* A thread for each issuer, which fetches with libcurl while no lock is held. */
#include "server/oidc/keys.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/program/http_client.h"
#include "server/counters.h"

#define CONFIGURATION_BYTES_MAX ((size_t)64 << 10)
#define WELL_KNOWN "/.well-known/openid-configuration"

struct issuer_keys {
  const struct oidc_issuer *issuer;
  struct issuer_keys_calls calls;
  pthread_t thread;
  pthread_mutex_t lock; /* of all below */
  pthread_cond_t changed;
  bool is_stopping;
  bool is_wanted;               /* a request waits for an attempt */
  bool is_fetching, is_failing; /* an attempt runs; the last one failed */
  int64_t tried_ms, fetched_ms; /* clock_monotonic_ms when the last attempt began, and succeeded */
  bool is_too_old;              /* the keys are, to be used */
  struct jwt_keys *keys;        /* of the last success; NULL: none yet */
  struct http_client *client;   /* of the attempt */
  size_t n_waiting;
  struct request *waiting[KEYS_WAITERS_MAX];
  char why[256]; /* the last attempt failed */
};

/* "https://host:port" and "/path?query" of a URL. */
static void url_split(const char *url, char **ret_base, char **ret_path) {
  const char *host = strstr(url, "://") + 3;
  size_t length = strcspn(host, "/?#");
  *ret_base = xstrndup(url, (size_t)(host - url) + length);
  *ret_path = xasprintf("%s%s", host[length] == '/' ? "" : "/", host + length);
}

/* GETs a document of at most `most` bytes, until until_ms. */
static bool document_get(struct issuer_keys *keys, const char *url, size_t most, int64_t until_ms,
                         char **ret_text, size_t *ret_size, struct error *error) {
  cleanup_http_client struct http_client *client = NULL;
  cleanup_http_response struct http_response response = {0};
  cleanup_free char *base = NULL, *path = NULL;
  int64_t left_ms = until_ms - clock_monotonic_ms();
  struct http_request request = {
      .method = "GET", .timeout_ms = left_ms > 1 ? left_ms : 1, .response_max = most};

  url_split(url, &base, &path);
  request.path = path;
  if (!http_client_new(base, NULL, false, KEYS_FETCH_MS, &client, error))
    return error_prefix(error, "%.200s: ", url);
  http_client_set_authorities(client, keys->issuer->ca);

  pthread_mutex_lock(&keys->lock);
  keys->client = client;
  if (keys->is_stopping)
    http_client_cancel(client);
  pthread_mutex_unlock(&keys->lock);
  bool is_answered = http_send(client, &request, &response, error);
  pthread_mutex_lock(&keys->lock);
  keys->client = NULL;
  pthread_mutex_unlock(&keys->lock);

  if (!is_answered)
    return false;
  if (response.status != 200)
    return error_set(error, "%.200s answered %d", url, response.status);
  *ret_size = response.size;
  *ret_text = TAKE(response.body);
  return true;
}

/* The URL of the keys, from the issuer's discovery document; the caller's. */
static bool keys_url(struct issuer_keys *keys, int64_t until_ms, char **ret_url,
                     struct error *error) {
  const char *issuer = keys->issuer->issuer;
  size_t length = strlen(issuer), size;
  while (issuer[length - 1] == '/')
    length--;
  cleanup_free char *url = xasprintf("%.*s%s", (int)length, issuer, WELL_KNOWN), *text = NULL;
  cleanup_json json_t *document = NULL;
  if (!document_get(keys, url, CONFIGURATION_BYTES_MAX, until_ms, &text, &size, error))
    return false;
  if (!json_parse(text, size, &document, error))
    return error_prefix(error, "%.200s: ", url);

  const char *stated = json_string_value(json_object_get(document, "issuer")),
             *jwks_url = json_string_value(json_object_get(document, "jwks_uri"));
  if (!string_equal(stated, issuer))
    return error_set(error, "%.200s is of the issuer \"%.100s\", not of %.100s", url,
                     stated ? stated : "", issuer);
  if (!jwks_url || !oidc_url_is_good(jwks_url))
    return error_set(error, "%.200s has no \"jwks_uri\" that begins with https://", url);
  *ret_url = xstrdup(jwks_url);
  return true;
}

static bool keys_fetch(struct issuer_keys *keys, struct jwt_keys **ret_keys, struct error *error) {
  int64_t until_ms = clock_monotonic_ms() + KEYS_FETCH_MS;
  cleanup_free char *url = keys->issuer->jwks_url ? xstrdup(keys->issuer->jwks_url) : NULL,
                    *text = NULL;
  size_t size;
  if (!url && !keys_url(keys, until_ms, &url, error))
    return false;
  if (!document_get(keys, url, JWT_KEYS_BYTES_MAX, until_ms, &text, &size, error))
    return false;
  return jwt_keys_parse(text, size, ret_keys, error) || error_prefix(error, "%.200s: ", url);
}

/* Keeps what an attempt brought, and lets the requests go on that waited for it. Holds the lock,
 * but not during the calls. */
static void attempt_end(struct issuer_keys *keys, struct jwt_keys *fetched,
                        const struct error *error) {
  struct request *waiting[KEYS_WAITERS_MAX];
  size_t n = keys->n_waiting;
  const char *issuer = keys->issuer->issuer;
  bool was_failing = keys->is_failing, is_withdrawn = false;
  keys->is_fetching = false;
  keys->tried_ms = clock_monotonic_ms(); /* a slow issuer is given its pause, too */
  keys->is_failing = !fetched;
  counter_add(COUNTER_oidc_fetches, 1);

  if (fetched) {
    if (was_failing || !keys->keys)
      log_info("oidc: %s has %zu keys", issuer, jwt_keys_count(fetched));
    is_withdrawn = keys->keys && !jwt_keys_have(fetched, keys->keys);
    if (is_withdrawn)
      log_info("oidc: %s has withdrawn a key: accepted tokens are verified again", issuer);
    jwt_keys_free(keys->keys);
    keys->keys = fetched;
    keys->is_too_old = false;
    keys->fetched_ms = clock_monotonic_ms();
  } else {
    counter_add(COUNTER_oidc_fetches_failed, 1);
    if (!was_failing || strcmp(keys->why, error->message) != 0)
      log_warning("oidc: the keys of %s cannot be fetched: %s", issuer, error->message);
    snprintf(keys->why, sizeof keys->why, "%.255s", error->message);
  }

  memcpy(waiting, keys->waiting, n * sizeof *waiting);
  keys->n_waiting = 0;
  pthread_mutex_unlock(&keys->lock);
  if (is_withdrawn)
    keys->calls.forget(keys->calls.auth);
  for (size_t i = 0; i < n; i++)
    keys->calls.look_up(waiting[i]);
  pthread_mutex_lock(&keys->lock);
}

/* When the next attempt is due without a request. */
static int64_t due_ms(const struct issuer_keys *keys) {
  if (!keys->tried_ms)
    return 0;
  return keys->tried_ms +
         (keys->is_failing ? keys->issuer->pause_s : keys->issuer->refresh_s) * 1000;
}

static void *keys_main(void *context) {
  struct issuer_keys *keys = context;
  pthread_mutex_lock(&keys->lock);
  while (!keys->is_stopping) {
    int64_t until_ms = due_ms(keys);
    if (!keys->is_wanted && clock_monotonic_ms() < until_ms) {
      struct timespec until = {until_ms / 1000, until_ms % 1000 * 1000000};
      pthread_cond_timedwait(&keys->changed, &keys->lock, &until);
      continue;
    }

    struct jwt_keys *fetched = NULL;
    struct error error;
    keys->is_wanted = false;
    keys->is_fetching = true;
    keys->tried_ms = clock_monotonic_ms();
    pthread_mutex_unlock(&keys->lock);
    bool is_fetched = keys_fetch(keys, &fetched, &error);
    pthread_mutex_lock(&keys->lock);
    attempt_end(keys, is_fetched ? fetched : NULL, &error);
  }

  /* Requests that came before is_stopping, after the last attempt; no more come. */
  pthread_mutex_unlock(&keys->lock);
  for (size_t i = 0; i < keys->n_waiting; i++)
    keys->calls.look_up(keys->waiting[i]);
  return NULL;
}

bool issuer_keys_new(const struct oidc_issuer *issuer, const struct issuer_keys_calls *calls,
                     struct issuer_keys **ret_keys, struct error *error) {
  struct issuer_keys *keys = xcalloc(1, sizeof *keys);
  *keys = (struct issuer_keys){.issuer = issuer, .calls = *calls};
  pthread_mutex_init(&keys->lock, NULL);
  condition_init(&keys->changed);

  int reason = pthread_create(&keys->thread, NULL, keys_main, keys);
  if (reason) {
    free(keys);
    return error_set(error, "cannot start a thread: %s", strerror(reason));
  }
  *ret_keys = keys;
  return true;
}

void issuer_keys_free(struct issuer_keys *keys) {
  pthread_mutex_lock(&keys->lock);
  keys->is_stopping = true;
  if (keys->client)
    http_client_cancel(keys->client);
  pthread_cond_signal(&keys->changed);
  pthread_mutex_unlock(&keys->lock);
  pthread_join(keys->thread, NULL);

  jwt_keys_free(keys->keys);
  pthread_cond_destroy(&keys->changed);
  pthread_mutex_destroy(&keys->lock);
  free(keys);
}

/* A token that no known key signed: fetches, or says why not. Under the lock. */
static enum keys_answer fetch_for(struct issuer_keys *keys, const struct jwt *jwt,
                                  struct request *request, struct error *error) {
  int64_t now_ms = clock_monotonic_ms();
  bool may_fetch = keys->is_fetching || keys->is_wanted || !keys->tried_ms ||
                   now_ms - keys->tried_ms >= keys->issuer->pause_s * 1000;
  if (keys->is_stopping) {
    error_of(error, ERROR_UNAVAILABLE, "the server is stopping; try again");
    return KEYS_REFUSED;
  }
  if (may_fetch && keys->n_waiting < KEYS_WAITERS_MAX) {
    /* An attempt that runs may have begun before the issuer had the key, but is seconds old. */
    keys->is_wanted |= !keys->is_fetching;
    keys->waiting[keys->n_waiting++] = request;
    pthread_cond_signal(&keys->changed);
    return KEYS_WAIT;
  }

  if (keys->keys && !keys->is_too_old && !keys->is_failing && !may_fetch) {
    error_of(error, ERROR_UNAUTHENTICATED,
             "the issuer %.200s has no key \"%.64s\"; its keys are fetched again in %lld s at the "
             "earliest",
             keys->issuer->issuer, jwt->kid,
             (long long)(keys->issuer->pause_s - (now_ms - keys->tried_ms) / 1000));
    return KEYS_REFUSED;
  }
  error_of(error, ERROR_UNAVAILABLE, "the keys of %.200s cannot be fetched now%s; try again",
           keys->issuer->issuer, may_fetch ? ", and too many requests wait for them" : "");
  return KEYS_REFUSED;
}

enum keys_answer issuer_keys_verify(struct issuer_keys *keys, const struct jwt *jwt,
                                    struct request *request, struct error *error) {
  HOLD(&keys->lock);
  if (keys->keys && !keys->is_too_old &&
      clock_monotonic_ms() - keys->fetched_ms >= keys->issuer->keep_s * 1000) {
    keys->is_too_old = true;
    log_warning("oidc: the keys of %s are too old to be used", keys->issuer->issuer);
  }

  enum jwt_answer valid =
      keys->keys && !keys->is_too_old ? jwt_verify(jwt, keys->keys, error) : JWT_UNKNOWN_KEY;
  return valid == JWT_VALID     ? KEYS_VALID
         : valid == JWT_REFUSED ? KEYS_REFUSED
                                : fetch_for(keys, jwt, request, error);
}
