/* What server/oidc/jwt.c says of tokens, for system/test_oidc.py, which compares it with PyJWT.
 *
 *   jwt_verdicts KEYS_FILE ISSUER AUDIENCE NOW_S <TOKENS
 *
 * For each line of stdin one line: "valid", or "refused: why". */

#include "common/base/file.h"
#include "server/oidc/jwt.h"

static bool is_valid(const char *text, const struct jwt_keys *keys, char **argv,
                     struct error *error) {
  cleanup_jwt struct jwt jwt = {0};
  int64_t until_s;
  return jwt_parse(text, &jwt, error) && jwt_verify(&jwt, keys, error) == JWT_VALID &&
         jwt_check_claims(jwt.claims, argv[2], argv[3], strtoll(argv[4], NULL, 10), &until_s,
                          error);
}

int main(int argc, char **argv) {
  struct jwt_keys *keys;
  struct error error;
  cleanup_free char *text = NULL, *line = NULL;
  size_t size, capacity = 0;
  ssize_t length;
  if (argc != 5 || !file_read(argv[1], JWT_KEYS_BYTES_MAX, &text, &size, &error) ||
      !jwt_keys_parse(text, size, &keys, &error)) {
    fprintf(stderr, "jwt_verdicts: %s\n", argc == 5 ? error.message : "four arguments are needed");
    return 2;
  }

  while ((length = getline(&line, &capacity, stdin)) > 0) {
    if (line[length - 1] == '\n')
      line[length - 1] = '\0';
    if (is_valid(line, keys, argv, &error))
      puts("valid");
    else
      printf("refused: %s\n", error.message);
  }

  jwt_keys_free(keys);
  return 0;
}
