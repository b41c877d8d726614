/* Environments in the database, their list, and matching jobs with them. */
#include "server/cache/environments.h"

#include "server/cache/environments.sql.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"

/* The row of an environment; `identity` is canonical JSON. */
struct stored_environment {
  struct digest digest, hardware_digest;
  char *identity;
};
#define RECORD_OF struct stored_environment
static const struct field stored_fields[] = {
    MEMBER(DIGEST, digest),
    MEMBER(DIGEST, hardware_digest),
    MEMBER(TEXT, identity),
};
#undef RECORD_OF
static const struct record stored_record = RECORD(NULL, struct stored_environment, stored_fields);

bool environments_store(struct db *db, const struct environment *const *environments, size_t n,
                        struct error *error) {
  struct stored_environment *stored = xcalloc(n, sizeof *stored);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *json = environment_to_json(environments[i]);
    stored[i] = (struct stored_environment){environment_digest(environments[i]),
                                            environment_hardware_digest(environments[i]),
                                            json_canonical(json)};
  }

  bool ok = db_execute(db, &sql_environments_store, error, BIND_RECORDS(&stored_record, stored, n));
  db_records_free(&stored_record, stored, n);
  return ok;
}

void known_environments_release(struct known_environments *known) {
  for (size_t i = 0; i < known->n; i++) {
    environment_release(&known->all[i].environment);
    free(known->all[i].agent);
    free(known->all[i].agent_name);
  }

  free(known->all);
  *known = (struct known_environments){0};
}

#define RECORD_OF struct known_environment
static const struct field known_fields[] = {
    MEMBER(DIGEST, hardware_digest), MEMBER(INTEGER, agents), MEMBER(INTEGER, devices),
    MEMBER(BOOL, is_selective),      MEMBER(TEXT, agent),     MEMBER(TEXT, agent_name),
};
#undef RECORD_OF
static const struct record known_record = RECORD(NULL, struct known_environment, known_fields);

bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret,
                        struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_environments_known, error, BIND("live_ms", live_ms), parameter_all_runs());
  if (!rows)
    return false;

  struct known_environments known;
  known.all = db_read_all(rows, &known_record, &known.n);
  for (size_t i = 0; i < known.n; i++) {
    struct error bad;
    cleanup_json json_t *identity = db_get_json(rows, (int)i, "identity");
    ALWAYS(environment_parse(identity, &known.all[i].environment,
                             &bad)); /* it was when it was stored */
  }

  *ret = known;
  return true;
}

struct environment_item {
  json_t *environment;
  struct digest digest;
  int64_t agents;
  char *last_seen;
};
#define RECORD_OF struct environment_item
static const struct field item_fields[] = {
    MEMBER(JSON, environment, FIELD_NOT_NULL, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(DIGEST, digest, FIELD_NOT_NULL),
    MEMBER(INTEGER, agents, FIELD_NOT_NULL),
    MEMBER(TIME, last_seen),
};
const struct record environment_item_record = ANSWER("EnvironmentItem", item_fields);
#undef RECORD_OF

bool route_environment_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_environments_list,
                                   .record = &environment_item_record};
  return answer_page_by(worker, request, &list, error,
                        BIND("live_ms", agent_live_ms(server_options(worker->server))));
}

/* Matching jobs */

/* Different environments that fit a partial one. */
struct fitting {
  size_t n, capacity;
  struct fitting_environment {
    struct environment environment;
    struct digest digest;
  } *all;
};

static void fitting_release(struct fitting *fitting) {
  for (size_t i = 0; i < fitting->n; i++)
    environment_release(&fitting->all[i].environment);
  free(fitting->all);
}

/* Adds the environment (taken over) if it fits and was not added before. */
static void fitting_add(struct fitting *fitting, const struct environment *partial,
                        struct environment environment) {
  struct digest digest = environment_digest(&environment);
  bool is_new = environment_fits(partial, &environment);
  for (size_t i = 0; is_new && i < fitting->n; i++)
    is_new = !digest_equal(&fitting->all[i].digest, &digest);
  if (!is_new) {
    environment_release(&environment);
    return;
  }

  GROW(fitting->all, fitting->n, fitting->capacity);
  fitting->all[fitting->n++] = (struct fitting_environment){environment, digest};
}

/* Adds the hardware with the toolchain of each build for its arch. */
static void fitting_add_builds(struct fitting *fitting, const struct environment *partial,
                               const struct environment *hardware,
                               const struct match_builds *builds) {
  for (size_t i = 0; i < builds->n; i++) {
    const struct build *build = builds->builds[i];
    if (!string_equal(build->arch, hardware->arch))
      continue;
    struct environment environment = environment_copy(hardware);
    free(environment.torch);
    free(environment.triton);
    environment.torch = build->torch ? xstrdup(build->torch) : NULL;
    environment.triton = build->triton ? xstrdup(build->triton) : NULL;
    fitting_add(fitting, partial, environment);
  }
}

static bool runs_in(const struct match_builds *builds, const struct environment *environment) {
  return builds->runs_on == RUNS_ANYWHERE ||
         (builds->runs_on == RUNS_ON_CPU) == (environment->cpu != NULL);
}

/* Whether the kernel runs on no device that `partial` means, although there are such devices. */
static bool is_of_other_devices(const struct environment *partial,
                                const struct known_environments *known,
                                const struct match_builds *builds) {
  bool fits = false;
  if (partial->cpu || partial->rocm || partial->cuda)
    return !runs_in(builds, partial);
  for (size_t i = 0; i < known->n; i++) {
    if (!environment_fits(partial, &known->all[i].environment))
      continue;
    if (runs_in(builds, &known->all[i].environment))
      return false;
    fits = true;
  }

  return fits;
}

static bool refuse_unknown(const struct environment *partial,
                           const struct known_environments *known, struct error *error) {
  cleanup_free char *wanted = environment_format(partial);
  if (known->n == 0)
    return error_set(
        error,
        "no agent has enrolled yet, so \"%.200s\" cannot be completed; state the full environment "
        "(platform, gpu, arch, compute_units, partition)",
        wanted);

  size_t fewest = SIZE_MAX, nearest = 0;
  for (size_t i = 0; i < known->n; i++) {
    cleanup_json json_t *differences =
        environment_differences(partial, &known->all[i].environment, false);
    if (json_object_size(differences) < fewest) {
      fewest = json_object_size(differences);
      nearest = i;
    }
  }

  cleanup_free char *name = environment_format(&known->all[nearest].environment);
  return error_set(error,
                   "no known environment fits \"%.200s\"; the nearest is \"%.250s\"; GET "
                   "/v1/environments lists all",
                   wanted, name);
}

bool match_environment(const struct environment *partial, const struct known_environments *known,
                       const struct match_builds *builds, struct environment *ret_environment,
                       json_t **ret_fitting, struct error *error) {
  __attribute__((cleanup(fitting_release))) struct fitting fitting = {0};
  struct error incomplete;
  bool is_full = environment_is_full(partial, &incomplete);
  *ret_fitting = NULL;
  if (is_of_other_devices(partial, known, builds)) {
    bool on_cpu = builds->runs_on == RUNS_ON_CPU;
    return error_set(error, "the kernel's language runs on %s, and this environment is %s%s",
                     on_cpu ? "the CPU" : "GPUs", on_cpu ? "a GPU's" : "a CPU's",
                     on_cpu ? " (an agent with --device cpu0 measures on the CPU)" : "");
  }

  for (size_t i = 0; i < known->n; i++) {
    const struct environment *device = &known->all[i].environment;
    if (!runs_in(builds, device))
      continue;
    if (!builds->required)
      fitting_add(&fitting, partial, environment_copy(device));
    fitting_add_builds(&fitting, partial, device, builds);
  }

  /* Hardware that no node has yet may be stated in full; its toolchain too comes from a build. */
  if (fitting.n == 0 && is_full)
    fitting_add_builds(&fitting, partial, partial, builds);

  struct digest wanted = environment_digest(partial);
  const struct environment *chosen = fitting.n == 1          ? &fitting.all[0].environment
                                     : !fitting.n && is_full ? partial
                                                             : NULL;
  for (size_t i = 0; i < fitting.n; i++)
    if (digest_equal(&fitting.all[i].digest, &wanted))
      chosen = &fitting.all[i].environment;

  if (chosen) {
    *ret_environment = environment_copy(chosen);
    return true;
  }

  *ret_fitting = json_array();
  for (size_t i = 0; i < fitting.n; i++)
    json_push(*ret_fitting, environment_to_json(&fitting.all[i].environment));
  if (fitting.n == 0)
    return refuse_unknown(partial, known, error);
  return error_set(error,
                   "%zu known environments fit; state the members in which they differ "
                   "(\"environments\" lists them)",
                   fitting.n);
}

bool match_has_build(const struct key *key, const struct match_builds *builds,
                     struct error *error) {
  if (!builds->required || builds->n > 0)
    return true;

  cleanup_free char *key_text = key_format_shell(key);
  if (builds->is_captured)
    return error_at(error, "/kernel", "this kernel has no build; " BUILD_CAPTURE, key_text);
  return error_at(error, "/kernel", "this kernel has no build; pack one with " BUILD_COMMANDS,
                  "ARCH", key_text);
}

static const char *stated(const char *text) { return text ? text : "not stated"; }

bool match_build(const struct environment *environment, const struct key *key,
                 const struct match_builds *builds, const struct build **ret_build,
                 struct error *error) {
  struct error newest_refusal;
  bool has_toolchain = false;
  *ret_build = NULL;
  if (!builds->required)
    return true;

  for (size_t i = 0; i < builds->n; i++) {
    const struct build *build = builds->builds[i];
    struct error refusal;
    size_t variant;
    if (!string_equal(build->arch, environment->arch) ||
        !string_equal(build->triton, environment->triton) ||
        !string_equal(build->torch, environment->torch))
      continue;
    if (build_variant(build, key, &variant, &refusal)) {
      *ret_build = build;
      return true;
    }
    if (!has_toolchain)
      newest_refusal = refusal;
    has_toolchain = true;
  }

  if (has_toolchain) {
    *error = newest_refusal;
    return false;
  }

  const struct build *newest = builds->builds[0];
  cleanup_free char *key_text = key_format_shell(key);
  cleanup_free char *what_to_do =
      builds->is_captured ? xasprintf(BUILD_CAPTURE, key_text)
                          : xasprintf("pack one with " BUILD_COMMANDS, environment->arch, key_text);
  return error_at(error, "/environment",
                  "no build of this kernel is for arch %.40s with triton %.40s and torch %.40s "
                  "(the newest is for %.40s with triton %.40s and torch %.40s); %s",
                  environment->arch, stated(environment->triton), stated(environment->torch),
                  newest->arch, newest->triton, stated(newest->torch), what_to_do);
}

int64_t match_devices(const struct environment *environment,
                      const struct known_environments *known) {
  struct digest hardware = environment_hardware_digest(environment);
  int64_t n = 0;
  for (size_t i = 0; i < known->n; i++)
    n += digest_equal(&known->all[i].hardware_digest, &hardware) ? known->all[i].devices : 0;
  return n;
}

bool match_is_selective(const struct environment *environment,
                        const struct known_environments *known) {
  struct digest hardware = environment_hardware_digest(environment);
  for (size_t i = 0; i < known->n; i++)
    if (known->all[i].is_selective && digest_equal(&known->all[i].hardware_digest, &hardware))
      return true;
  return false;
}

json_t *match_agents(const struct environment *environment, const struct known_environments *known,
                     int64_t refusing, const char *reason) {
  struct digest hardware = environment_hardware_digest(environment);
  int64_t matching = 0;
  const struct known_environment *nearest = NULL;
  size_t fewest = SIZE_MAX;
  for (size_t i = 0; i < known->n; i++) {
    const struct known_environment *candidate = &known->all[i];
    if (digest_equal(&candidate->hardware_digest, &hardware)) {
      matching += candidate->agents;
      continue;
    }
    cleanup_json json_t *differences =
        environment_differences(environment, &candidate->environment, true);
    size_t n = json_object_size(differences);
    bool livelier = nearest && candidate->agents > 0 && nearest->agents == 0;
    if (n < fewest || (n == fewest && livelier)) {
      fewest = n;
      nearest = candidate;
    }
  }

  json_t *refusals =
      refusing ? json_pack("{s:I, s:s}", "agents", (json_int_t)refusing, "reason", reason) : NULL;
  json_t *difference =
      matching || !nearest
          ? json_null()
          : json_pack("{s:s, s:s, s:o}", "agent", nearest->agent, "name", nearest->agent_name,
                      "differences",
                      environment_differences(environment, &nearest->environment, true));
  return json_pack("{s:I, s:o*, s:o}", "matching",
                   (json_int_t)(matching > refusing ? matching - refusing : 0), "refusing",
                   refusals, "nearest", difference);
}
