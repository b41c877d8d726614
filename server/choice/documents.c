/* Documents are made and parsed outside of the lock. Of several threads that need the same one, one
 * makes it, and the others wait. Memory and threads: documents.h. */
#include "server/choice/documents.h"

#include <pthread.h>

#include "common/base/lock.h"
#include "server/counters.h"
#include "server/release/releases.h"

#define MAKING_MAX 64 /* more workers would not wait for each other */

struct documents {
  pthread_mutex_t lock;
  pthread_cond_t made;
  size_t n_making;
  struct digest making[MAKING_MAX]; /* documents that are being made */
  uint64_t dropped;                 /* how often documents_drop was called */
  size_t n, bytes;
  struct document *all[DOCUMENTS_MAX]; /* the most recently used last */
};

struct documents *documents_new(void) {
  struct documents *documents = xcalloc(1, sizeof *documents);
  pthread_mutex_init(&documents->lock, NULL);
  pthread_cond_init(&documents->made, NULL);
  return documents;
}

static void unreference(struct document *document) {
  if (--document->users)
    return;
  json_decref(document->index);
  json_decref(document->json);
  free(document->text);
  free(document);
}

void documents_free(struct documents *documents) {
  if (!documents)
    return;

  for (size_t i = 0; i < documents->n; i++)
    unreference(documents->all[i]);
  pthread_mutex_destroy(&documents->lock);
  pthread_cond_destroy(&documents->made);
  free(documents);
}

void document_put(struct documents *documents, struct document *document) {
  HOLD(&documents->lock);
  unreference(document);
}

/* Returns documents->n when it is not kept. */
static size_t index_of(const struct documents *documents, const struct digest *id) {
  size_t i = 0;
  while (i < documents->n && !digest_equal(&documents->all[i]->id, id))
    i++;
  return i;
}

/* Removes a document from the table, whose reference is the caller's then. */
static struct document *take_out(struct documents *documents, size_t i) {
  struct document *document = documents->all[i];
  documents->n--;
  documents->bytes -= document->cost;
  memmove(&documents->all[i], &documents->all[i + 1],
          (documents->n - i) * sizeof(struct document *));
  return document;
}

static void put_last(struct documents *documents, struct document *document, size_t cost) {
  document->cost = cost;
  documents->bytes += cost;
  documents->all[documents->n++] = document;
}

static void drop(struct documents *documents, size_t i) {
  struct document *document = take_out(documents, i);
  document->cost = 0;
  unreference(document);
}

struct document *documents_find(struct documents *documents, const struct digest *id) {
  HOLD(&documents->lock);
  size_t i = index_of(documents, id);
  if (i == documents->n)
    return NULL;
  struct document *found = take_out(documents, i);
  put_last(documents, found, found->cost);
  found->users++;
  return found;
}

struct document *documents_add(struct documents *documents, const struct digest *id, char *text,
                               bool may_change, uint64_t since) {
  struct document *document = xcalloc(1, sizeof *document);
  size_t size = strlen(text);
  *document = (struct document){.id = *id,
                                .may_change = may_change,
                                .digest = digest_of(text, size),
                                .text = text,
                                .size = size,
                                .users = 1};

  pthread_mutex_lock(&documents->lock);
  if (documents->dropped != since) {
    pthread_mutex_unlock(&documents->lock);
    return document;
  }

  size_t older = index_of(documents, id);
  if (older < documents->n)
    drop(documents, older);
  while (documents->n &&
         (documents->n == DOCUMENTS_MAX || documents->bytes + size > DOCUMENTS_BYTES_MAX))
    drop(documents, 0);
  document->users++; /* the table's */
  put_last(documents, document, size);
  pthread_mutex_unlock(&documents->lock);
  return document;
}

uint64_t documents_dropped(struct documents *documents) {
  HOLD(&documents->lock);
  return documents->dropped;
}

void documents_drop(struct documents *documents) {
  HOLD(&documents->lock);
  documents->dropped++;
  while (documents->n)
    drop(documents, documents->n - 1);
}

struct digest *documents_changing(struct documents *documents, size_t *ret_n) {
  struct digest *ids = xcalloc(DOCUMENTS_MAX, sizeof *ids);
  HOLD(&documents->lock);
  *ret_n = 0;
  for (size_t i = 0; i < documents->n; i++)
    if (documents->all[i]->may_change)
      ids[(*ret_n)++] = documents->all[i]->id;
  return ids;
}

bool document_make(struct worker *worker, const struct digest *release, struct document **ret,
                   struct error *error) {
  static const char empty[] = "{\"code\":{},\"functions\":{},\"version\":1}";
  const struct cache_format *format;
  cleanup_release struct release *loaded = NULL;
  cleanup_cache_files struct cache_files files = {0};
  struct error why;
  uint64_t since = documents_dropped(server_documents(worker->server));
  ALWAYS(cache_format_find("choices", &format, &why));
  if (!release_load(worker, release, &loaded, error))
    return false;
  /* For a program, a release without any choice equals one without a choice for it. */
  if (!release_render(worker, loaded, format, NULL, &files, error) &&
      (error->kind != ERROR_INVALID || !files.n_skipped))
    return false;

  *ret = documents_add(server_documents(worker->server), release,
                       files.n ? TAKE(files.files[0].bytes) : xstrdup(empty), files.n_skipped > 0,
                       since);
  counter_add(COUNTER_choices_rendered, 1);
  return true;
}

/* Returns documents->n_making when no thread makes it. */
static size_t making_of(const struct documents *documents, const struct digest *id) {
  size_t i = 0;
  while (i < documents->n_making && !digest_equal(&documents->making[i], id))
    i++;
  return i;
}

/* Whether the caller shall make a document that is not kept, and then call documents_end. False:
 * another thread made it meanwhile, or failed to. */
static bool documents_begin(struct documents *documents, const struct digest *id) {
  bool is_first = true;
  HOLD(&documents->lock);
  while (making_of(documents, id) < documents->n_making) {
    is_first = false;
    pthread_cond_wait(&documents->made, &documents->lock);
  }
  if (is_first && documents->n_making < MAKING_MAX)
    documents->making[documents->n_making++] = *id;
  return is_first;
}

static void documents_end(struct documents *documents, const struct digest *id) {
  HOLD(&documents->lock);
  size_t at = making_of(documents, id);
  if (at < documents->n_making)
    documents->making[at] = documents->making[--documents->n_making];
  pthread_cond_broadcast(&documents->made);
}

bool document_get(struct worker *worker, const struct digest *release, struct document **ret,
                  struct error *error) {
  struct documents *documents = server_documents(worker->server);
  while (!(*ret = documents_find(documents, release)))
    if (documents_begin(documents, release)) {
      bool ok = document_make(worker, release, ret, error);
      documents_end(documents, release);
      return ok;
    }
  return true;
}

static json_t *index_make(const json_t *functions) {
  json_t *index = json_object(), *function, *choice;
  const char *closure;
  size_t i;
  json_object_foreach ((json_t *)functions, closure, function)
    json_array_foreach (json_object_get(function, "choices"), i, choice) {
      cleanup_free char *key = json_canonical(json_object_get(choice, "key")),
                        *name = xasprintf("%s %s", closure, key);
      json_put(index, name, json_incref(choice));
    }
  return index;
}

const json_t *document_index(struct documents *documents, struct document *document) {
  struct error error;
  pthread_mutex_lock(&documents->lock);
  bool is_there = document->index != NULL;
  pthread_mutex_unlock(&documents->lock);
  if (is_there)
    return document->index;

  cleanup_json json_t *json = NULL;
  ALWAYS(json_parse(document->text, document->size, &json, &error));
  cleanup_json json_t *index = index_make(json_object_get(json, "functions"));

  pthread_mutex_lock(&documents->lock);
  if (!document->index) {
    document->json = TAKE(json);
    document->index = TAKE(index);
    if (document->cost) {
      document->cost += DOCUMENT_INDEX_COST * document->size;
      documents->bytes += DOCUMENT_INDEX_COST * document->size;
    }
    while (documents->n > 1 && documents->bytes > DOCUMENTS_BYTES_MAX)
      drop(documents, 0);
  }
  pthread_mutex_unlock(&documents->lock);
  return document->index;
}
