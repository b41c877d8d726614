/* Authors as parameters of statements. Memory and threads: as the header says. */
#include "server/db/author.h"

const struct author author_server = {.name = "(server)", .roles = ""};
const struct author author_command_line = {.name = "(command line)", .roles = ""};

void bind_author(struct db_parameters *parameters, const struct author *author) {
  bind_text(parameters, "author", author->name);
  if (author->token)
    bind_integer(parameters, "author_id", author->token);
  else
    bind_text(parameters, "author_id", NULL);
}
