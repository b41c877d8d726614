/* The choices of releases, rendered once and kept in memory.
 *
 * Memory: a server owns its documents; a document is counted, and freed by its last user. Threads:
 * any; a document is read-only. */
#ifndef WAVETUNE_SERVER_CHOICE_DOCUMENTS_H
#define WAVETUNE_SERVER_CHOICE_DOCUMENTS_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "server/server.h"

/* The least recently used are dropped beyond either. */
#define DOCUMENTS_MAX 64
#define DOCUMENTS_BYTES_MAX ((size_t)64 << 20) /* of their texts; the last one always stays */

struct document {
  struct digest release, digest; /* the latter of the text */
  char *text;                    /* canonical, NUL-terminated */
  size_t size;
  int users; /* under the lock of the documents */
  /* Made at the first document_index, then read-only: */
  json_t *json, *index;
};

struct documents;
must_check struct documents *documents_new(void);
void documents_free(struct documents *documents); /* nobody may use one */

/* The choices of a release, rendered where they are not in memory; give it back. Without a winner
 * that has a choice it has no functions. ERROR_MISSING: there is no such release. */
must_check bool document_get(struct worker *worker, const struct digest *release,
                             struct document **ret, struct error *error);
/* The choices of a document by "closure key", the key in canonical JSON, as choices_index makes it;
 * borrowed. document->json is there afterwards. */
const json_t *document_index(struct documents *documents, struct document *document);
void document_put(struct documents *documents, struct document *document);

/* The same of the member "functions" of a document; a new reference. */
must_check json_t *choices_index(const json_t *functions);

#endif
