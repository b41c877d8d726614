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

void db_author(struct db_parameters *parameters, const struct author *author) {
  db_text(parameters, author->name);
  db_author_id(parameters, author);
}

void db_author_id(struct db_parameters *parameters, const struct author *author) {
  if (author->token)
    db_integer(parameters, author->token);
  else
    db_text(parameters, NULL);
}
