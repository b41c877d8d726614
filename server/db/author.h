/* The author of a write: the token of the request, as tables keep it.
 *
 * Memory: authors borrow their texts. Threads: plain values. */
#ifndef WAVETUNE_SERVER_DB_AUTHOR_H
#define WAVETUNE_SERVER_DB_AUTHOR_H

#include "server/db/db.h"

struct author {
  int64_t token;     /* id; 0: none */
  const char *name;  /* of the token; else a name that no token can have */
  const char *roles; /* of the token, with commas between */
  const char *peer;  /* numeric address; NULL: none */
};
extern const struct author author_server;       /* writes of the server itself */
extern const struct author author_command_line; /* writes of wavetune-server's commands */

/* Binds the name as :author and the id, null without a token, as :author_id. */
void bind_author(struct db_parameters *parameters, const struct author *author);

#endif
