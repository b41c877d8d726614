/* Documents with choices, each made once and kept in memory: the choices of releases, and, in
 * another table, what containers agree on for environments.
 *
 * Memory: a server owns both tables; a document has a reference count, and its last user frees
 * it. Threads: any; a document is read-only. */
#ifndef WAVETUNE_SERVER_CHOICE_DOCUMENTS_H
#define WAVETUNE_SERVER_CHOICE_DOCUMENTS_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "server/server.h"

/* Beyond either limit the least recently used are dropped. */
#define DOCUMENTS_MAX 64
#define DOCUMENTS_BYTES_MAX ((size_t)64 << 20) /* but one document stays, whatever its size */
#define DOCUMENT_INDEX_COST 8 /* bytes of parsed JSON and index for each byte of text */
/* How long what containers agree on is used; and how often the choices of a release without some of
 * its winners, whose kernels or builds may be pushed later, are looked at (prepare.c). */
#define DOCUMENT_POLLS 10 /* of --poll-ms */

struct document {
  struct digest id;     /* the release, or the hash of the environment, regime and tag */
  bool may_change;      /* it is made again after the documents' life_ms, if that is not 0 */
  struct digest digest; /* of the text */
  char *text;           /* canonical, NUL-terminated */
  size_t size;
  /* Made by the first document_index, then read-only: */
  json_t *json, *index;

  /* Under the lock of the documents: */
  int users;
  size_t cost;      /* 0: it is no longer kept */
  int64_t until_ms; /* by clock_monotonic_ms */
};

struct documents;
must_check struct documents *documents_new(int64_t life_ms);
void documents_free(struct documents *documents); /* none may be in use */

/* A kept document, which the caller gives back with document_put; NULL: the caller must make it.
 * Of several callers that find one too old only the first gets NULL. */
must_check struct document *documents_find(struct documents *documents, const struct digest *id);
/* Keeps a document with this text (taken over) in place of an older one, and returns it with a
 * reference of the caller's. */
must_check struct document *documents_add(struct documents *documents, const struct digest *id,
                                          char *text, bool may_change);
void document_put(struct documents *documents, struct document *document);

/* The ids of documents that may change, which the caller frees. */
must_check struct digest *documents_changing(struct documents *documents, size_t *ret_n);

/* The choices of a release, kept or rendered; give it back. A release without choices has a
 * document without functions. ERROR_MISSING: there is no such release. */
must_check bool document_get(struct worker *worker, const struct digest *release,
                             struct document **ret, struct error *error);
/* The same, rendered in any case; the document takes the place of an older one. */
must_check bool document_make(struct worker *worker, const struct digest *release,
                              struct document **ret, struct error *error);

/* The main function of the thread that makes documents before they are requested (prepare.c): takes
 * a struct worker_thread. */
void *prepare_main(void *worker_thread);

/* The choices of a document by "closure key", the key in canonical JSON; borrowed. Sets
 * document->json too. */
const json_t *document_index(struct documents *documents, struct document *document);

#endif
