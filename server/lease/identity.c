/* Which requests may act as which agent, and the ids of leases. */
#include "server/lease/identity.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/base/digest.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/lease/identity.sql.h"

#define MAC_BYTES 16
#define MAC_LENGTH 22 /* of base64url without padding */

/* The length of the prefix of an id, "KIND-"; 0: it has none. */
static size_t prefix_length(const char *id) {
  size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz");
  return n && id[n] == '-' ? n + 1 : 0;
}

/* Of the prefix the first `n` bytes count. */
static void mac_of(const uint8_t secret[SERVER_SECRET_SIZE], const char *prefix, size_t n,
                   int64_t lease, int64_t epoch, const char *agent, char ret[MAC_LENGTH + 1]) {
  uint8_t base64[4 * (MAC_BYTES + 2) / 3 + 1];
  cleanup_free char *message =
      xasprintf("%.*s%lld|%lld|%s", (int)n, prefix, (long long)lease, (long long)epoch, agent);
  struct digest mac = digest_keyed(secret, SERVER_SECRET_SIZE, message, strlen(message));
  ALWAYS(EVP_EncodeBlock(base64, mac.bytes, MAC_BYTES) == MAC_LENGTH + 2);

  for (size_t i = 0; i < MAC_LENGTH; i++)
    ret[i] = base64[i] == '+' ? '-' : base64[i] == '/' ? '_' : (char)base64[i];
  ret[MAC_LENGTH] = '\0';
}

char *lease_id_format(const uint8_t secret[SERVER_SECRET_SIZE], const char *prefix, int64_t lease,
                      int64_t epoch, const char *agent, char text[LEASE_ID_SIZE]) {
  char mac[MAC_LENGTH + 1] = "";
  if (*agent)
    mac_of(secret, prefix, strlen(prefix), lease, epoch, agent, mac);
  snprintf(text, LEASE_ID_SIZE, "%s%lld%s%s", prefix, (long long)lease, *agent ? "." : "", mac);
  return text;
}

enum lease_id_answer lease_id_check(const uint8_t secret[SERVER_SECRET_SIZE], const char *text,
                                    int64_t epoch, const char *agent, int64_t *ret_lease) {
  char *end, mac[MAC_LENGTH + 1];
  errno = 0;
  size_t n = prefix_length(text);
  long long lease = strtoll(text + n, &end, 10);
  if (text[n] < '0' || text[n] > '9' || errno || (*end && *end != '.'))
    return LEASE_ID_NONE;

  *ret_lease = lease;
  if (!*end)
    return *agent ? LEASE_ID_FOREIGN : LEASE_ID_PLAIN;
  if (!*agent || strlen(end + 1) != MAC_LENGTH)
    return LEASE_ID_FOREIGN;

  mac_of(secret, text, n, lease, epoch, agent, mac);
  return CRYPTO_memcmp(mac, end + 1, MAC_LENGTH) == 0 ? LEASE_ID_GRANTED : LEASE_ID_FOREIGN;
}

/* The token that an agent or a lease belongs to. */
struct token_holder {
  int64_t token; /* FIELD_NONE: none */
  char *name;
  bool is_agent, is_live; /* the token is an agent's own; it has neither expired nor been revoked */
  int64_t epoch;          /* of the lease */
};
static const struct field holder_fields[] = {
    RECORD_FIELD_AS("token_id", ID, struct token_holder, token),
    RECORD_FIELD(TEXT, struct token_holder, name),
    RECORD_FIELDS(BOOL, struct token_holder, is_agent, is_live),
    RECORD_FIELD(INTEGER, struct token_holder, epoch),
};
static const struct record holder_record = RECORD(NULL, struct token_holder, holder_fields);

static void holder_release(struct token_holder *holder) { record_release(&holder_record, holder); }
#define cleanup_holder __attribute__((cleanup(holder_release)))

static bool is_another(const struct token_holder *holder, const struct request *request) {
  if (holder->token == FIELD_NONE)
    return false;
  bool is_admin = request->roles == TOKEN_ADMIN;
  return holder->is_agent || (holder->token != request->token_id && !is_admin && holder->is_live);
}

/* The secret is read once, before the server is ready. */
static bool server_has_secret(struct worker *worker, struct request *request) {
  if (server_lease_secret(worker->server))
    return true;
  answer_refusal(request, ERROR_UNAVAILABLE, "", "the server is starting; try again");
  return false;
}

bool identity_fits(struct request *request, const char *agent, const char *pointer) {
  if (!*request->token_agent || strcmp(request->token_agent, agent) == 0)
    return true;
  metrics_note_refusal(REFUSED_AGENT);
  answer_refusal(request, ERROR_FORBIDDEN, pointer,
                 "the token \"%s\" may act only as agent %s, not as agent \"%.40s\"",
                 request->token_name, request->token_agent, agent);
  return false;
}

bool identity_may_act_as(struct worker *worker, struct request *request, const char *agent,
                         const char *pointer) {
  struct error error;
  if (*request->token_agent)
    return identity_fits(request, agent, pointer);

  cleanup_holder struct token_holder holder = {.token = FIELD_NONE};
  bool is_known;
  if (!db_find(worker->db, &sql_identities_agents, &holder_record, &holder, &is_known, &error,
               BIND("agent", agent))) {
    answer_failure(request, &error);
    return false;
  }

  bool must_claim = is_known && holder.token == FIELD_NONE && request->roles != TOKEN_ADMIN;
  if (must_claim && !db_execute(worker->db, &sql_identities_claim, &error, BIND("agent", agent),
                                BIND("token", request->token_id))) {
    answer_failure(request, &error);
    return false;
  }

  if (!is_another(&holder, request))
    return true;

  metrics_note_refusal(REFUSED_AGENT);
  if (holder.is_agent)
    answer_refusal(request, ERROR_FORBIDDEN, pointer,
                   "agent %s has its own token; no other token may act as it", agent);
  else
    answer_refusal(request, ERROR_FORBIDDEN, pointer,
                   "agent %s enrolled with the token \"%s\"; another token may act as it only "
                   "after that one is revoked",
                   agent, holder.name);
  return false;
}

bool identity_may_act(struct worker *worker, struct request *request) {
  const char *agent = json_string_value(json_object_get(request->json, "agent"));
  return server_has_secret(worker, request) &&
         (!agent || identity_may_act_as(worker, request, agent, "/agent"));
}

static bool not_granted_answer(struct request *request) {
  struct error error;
  metrics_note_refusal(REFUSED_AGENT);
  error_of(&error, ERROR_FORBIDDEN, "lease \"%.64s\" was not granted to you", request->segments[0]);
  answer_failure_extra(request, &error, json_pack("{s:s}", "lease", request->segments[0]));
  return false;
}

static const struct lease_kind *kind_of_id(const char *id) {
  size_t n = prefix_length(id);
  for (size_t i = 0; lease_kinds[i]; i++)
    if (lease_kinds[i]->grants &&
        (!n || (strlen(lease_kinds[i]->name) == n - 1 && string_starts(id, lease_kinds[i]->name))))
      return lease_kinds[i];
  return NULL;
}

bool identity_may_hold(struct worker *worker, struct request *request) {
  struct error error;
  int64_t lease, epoch = 0;
  if (!server_has_secret(worker, request))
    return false;

  bool has_epoch =
      json_get_integer(request->json, "", "epoch", JSON_REQUIRED, 1, INT64_MAX, &epoch, &error);
  enum lease_id_answer answer =
      lease_id_check(server_lease_secret(worker->server), request->segments[0], epoch,
                     request->token_agent, &lease);
  if (!kind_of_id(request->segments[0]))
    answer = LEASE_ID_NONE;
  switch (answer) {
  case LEASE_ID_NONE:
    answer_refusal(request, ERROR_MISSING, "", "there is no lease \"%.40s\"", request->segments[0]);
    return false;
  case LEASE_ID_GRANTED:
    return true;
  case LEASE_ID_FOREIGN:
    return !has_epoch || not_granted_answer(request);
  case LEASE_ID_PLAIN:
    break;
  }

  if (!has_epoch)
    return true;

  cleanup_holder struct token_holder holder = {.token = FIELD_NONE};
  bool is_known;
  if (!db_find(worker->db, &sql_identities_leases, &holder_record, &holder, &is_known, &error,
               BIND("lease", lease))) {
    answer_failure(request, &error);
    return false;
  }
  if (!is_another(&holder, request))
    return true;
  if (holder.is_agent || epoch >= holder.epoch)
    return not_granted_answer(request);

  /* Several agents may share the token, and the holder of an earlier epoch is not stored. Its
   * results are refused; if this agent was that holder, the answer shows that it lost the lease. */
  error_of(&error, ERROR_CONFLICT, "lease %lld is no longer yours at this epoch", (long long)lease);
  answer_failure_extra(request, &error, json_pack("{s:n}", "epoch"));
  return false;
}

int64_t identity_lease(const struct request *request) {
  const char *id = request->segments[0];
  return strtoll(id + prefix_length(id), NULL, 10);
}

const struct lease_kind *identity_kind(const struct request *request) {
  return kind_of_id(request->segments[0]);
}

bool identities_held_epoch(struct db *db, int64_t lease, const char *agent, int64_t token,
                           int64_t *ret_epoch, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_identities_held_epoch, error, BIND("lease", lease), BIND("agent", agent),
               BIND("token", token));
  if (!rows)
    return false;

  *ret_epoch = db_count(rows) ? db_get_integer(rows, 0, "epoch") : 0;
  return true;
}
