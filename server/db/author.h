/* Who writes: the token that a write is asked for with, as requests know it and as tables keep it.
 *
 * Memory: authors borrow their texts. Threads: plain values. */
#ifndef WAVETUNE_SERVER_DB_AUTHOR_H
#define WAVETUNE_SERVER_DB_AUTHOR_H

#include "server/db/db.h"

struct author {
  int64_t token;     /* id; 0: none */
  const char *name;  /* of the token; without one what no token can be called */
  const char *roles; /* of the token, with commas between */
  const char *peer;  /* numeric address; NULL: none */
};
extern const struct author author_server;       /* what the server does by itself */
extern const struct author author_command_line; /* wavetune-server on the database */

/* Binds the name as :author and the id, null without a token, as :author_id. */
void bind_author(struct db_parameters *parameters, const struct author *author);

#endif
