/* Choices of releases in memory, each rendered outside of the lock: two workers may render one at
 * once, and the first stays. Memory and threads: documents.h. */
#include "server/choice/documents.h"

#include <pthread.h>

#include "server/release/releases.h"
#include "server/server_private.h"

struct documents {
  pthread_mutex_t lock;
  size_t n, bytes;
  struct document *all[DOCUMENTS_MAX]; /* the most recently used last */
};

struct documents *documents_new(void) {
  struct documents *documents = xcalloc(1, sizeof *documents);
  pthread_mutex_init(&documents->lock, NULL);
  return documents;
}

static void document_free(struct document *document) {
  json_decref(document->index);
  json_decref(document->json);
  free(document->text);
  free(document);
}

void documents_free(struct documents *documents) {
  if (!documents)
    return;

  for (size_t i = 0; i < documents->n; i++)
    document_free(documents->all[i]);
  pthread_mutex_destroy(&documents->lock);
  free(documents);
}

void document_put(struct documents *documents, struct document *document) {
  pthread_mutex_lock(&documents->lock);
  bool is_last = --document->users == 0;
  pthread_mutex_unlock(&documents->lock);
  if (is_last)
    document_free(document);
}

/* The document of a release, now the most recently used; NULL: it is not in memory. */
static struct document *find(struct documents *documents, const struct digest *release) {
  for (size_t i = 0; i < documents->n; i++) {
    struct document *found = documents->all[i];
    if (!digest_equal(&found->release, release))
      continue;
    memmove(&documents->all[i], &documents->all[i + 1],
            (documents->n - i - 1) * sizeof(struct document *));
    documents->all[documents->n - 1] = found;
    found->users++;
    return found;
  }
  return NULL;
}

static bool document_render(struct worker *worker, const struct digest *digest,
                            struct document **ret, struct error *error) {
  static const char empty[] = "{\"code\":{},\"functions\":{},\"version\":1}";
  const struct cache_format *format;
  cleanup_release struct release *release = NULL;
  cleanup_cache_files struct cache_files files = {0};
  struct error why;
  ALWAYS(cache_format_find("choices", &format, &why));
  if (!release_load(worker, digest, &release, error))
    return false;
  /* A release without any choice is as good as one that has none for this program. */
  if (!release_render(worker, release, format, NULL, &files, error) &&
      (error->kind != ERROR_INVALID || !files.n_skipped))
    return false;

  struct document *document = xcalloc(1, sizeof *document);
  document->release = *digest;
  document->text = files.n ? TAKE(files.files[0].bytes) : xstrdup(empty);
  document->size = strlen(document->text);
  document->digest = digest_of(document->text, document->size);
  *ret = document;
  return true;
}

/* Takes a document over, and drops the least recently used ones beyond the limits. */
static void document_add(struct documents *documents, struct document *document) {
  while (documents->n && (documents->n == DOCUMENTS_MAX ||
                          documents->bytes + document->size > DOCUMENTS_BYTES_MAX)) {
    struct document *oldest = documents->all[0];
    documents->bytes -= oldest->size;
    memmove(documents->all, documents->all + 1, --documents->n * sizeof(struct document *));
    if (--oldest->users == 0)
      document_free(oldest);
  }
  documents->all[documents->n++] = document;
  documents->bytes += document->size;
}

bool document_get(struct worker *worker, const struct digest *release, struct document **ret,
                  struct error *error) {
  struct documents *documents = worker->server->documents;
  pthread_mutex_lock(&documents->lock);
  *ret = find(documents, release);
  pthread_mutex_unlock(&documents->lock);
  if (*ret)
    return true;

  struct document *made;
  if (!document_render(worker, release, &made, error))
    return false;

  pthread_mutex_lock(&documents->lock);
  *ret = find(documents, release);
  if (*ret) {
    document_free(made);
  } else {
    made->users = 2; /* the documents', and the caller's */
    document_add(documents, made);
    *ret = made;
  }
  pthread_mutex_unlock(&documents->lock);
  return true;
}

json_t *choices_index(const json_t *functions) {
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
  if (!document->index) {
    ALWAYS(json_parse(document->text, document->size, &document->json, &error));
    document->index = choices_index(json_object_get(document->json, "functions"));
  }
  pthread_mutex_unlock(&documents->lock);
  return document->index;
}
