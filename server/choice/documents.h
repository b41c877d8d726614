/* Documents with the choices of releases, each made once and kept in memory.
 *
 * Memory: a server owns the table; a document has a reference count, and its last user frees
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
struct document {
  struct digest id; /* the release */
  bool may_change;  /* winners were left out whose kernels or builds may be pushed later (prepare.c)
                     */
  struct digest digest; /* of the text */
  char *text;           /* canonical, NUL-terminated */
  size_t size;
  /* Made by the first document_index, then read-only: */
  json_t *json, *index;

  /* Under the lock of the documents: */
  int users;
  size_t cost; /* 0: it is no longer kept */
};

struct documents;
must_check struct documents *documents_new(void);
void documents_free(struct documents *documents);                /* none may be in use */
struct documents *server_documents(const struct server *server); /* of releases */

/* A kept document, which the caller gives back with document_put; NULL: there is none. */
must_check struct document *documents_find(struct documents *documents, const struct digest *id);
/* Returns a document with this text (taken over), with a reference of the caller's, and keeps it in
 * place of an older one; but not when documents were dropped since `since`, what documents_dropped
 * was before the document was made. */
must_check struct document *documents_add(struct documents *documents, const struct digest *id,
                                          char *text, bool may_change, uint64_t since);
void documents_drop(struct documents *documents); /* all */
uint64_t documents_dropped(struct documents *documents);
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
 * its struct worker. */
void *prepare_main(void *worker);

/* The choices of a document by "closure key", the key in canonical JSON; borrowed. Sets
 * document->json too. */
const json_t *document_index(struct documents *documents, struct document *document);

#endif
