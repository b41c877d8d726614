/* Matching jobs with environments, builds and agents. Memory: as the header says. Threads: pure
 * functions. */
#include "server/cache/match.h"

void known_environments_release(struct known_environments *known) {
  for (size_t i = 0; i < known->n; i++) {
    environment_release(&known->all[i].environment);
    free(known->all[i].agent);
    free(known->all[i].agent_name);
  }
  free(known->all);
  *known = (struct known_environments){0};
}

/* Different environments that fit a partial one. */
struct fitting {
  size_t n, capacity;
  struct environment *environments;
  struct digest *digests;
  size_t digests_capacity;
};

static void fitting_release(struct fitting *fitting) {
  for (size_t i = 0; i < fitting->n; i++)
    environment_release(&fitting->environments[i]);
  free(fitting->environments);
  free(fitting->digests);
}

/* Takes over the environment. */
static void fitting_add(struct fitting *fitting, struct environment environment) {
  struct digest digest = environment_digest(&environment);
  for (size_t i = 0; i < fitting->n; i++)
    if (digest_equal(&fitting->digests[i], &digest)) {
      environment_release(&environment);
      return;
    }
  GROW(fitting->environments, fitting->n, fitting->capacity);
  GROW(fitting->digests, fitting->n, fitting->digests_capacity);
  fitting->environments[fitting->n] = environment;
  fitting->digests[fitting->n++] = digest;
}

/* A device's hardware with a build's toolchain. */
static struct environment hardware_with_build(const struct environment *hardware,
                                              const struct build *build) {
  struct environment environment = environment_copy(hardware);
  free(environment.torch);
  free(environment.triton);
  environment.torch = build->torch ? xstrdup(build->torch) : NULL;
  environment.triton = build->triton ? xstrdup(build->triton) : NULL;
  return environment;
}

static void candidate_add(struct fitting *fitting, const struct environment *partial,
                          struct environment candidate) {
  if (environment_fits(partial, &candidate))
    fitting_add(fitting, candidate);
  else
    environment_release(&candidate);
}

/* What a build makes of some hardware. */
static void fitting_collect_builds(const struct environment *partial,
                                   const struct environment *hardware,
                                   const struct match_builds *builds, struct fitting *fitting) {
  for (size_t b = 0; b < builds->n; b++)
    if (string_equal(builds->builds[b]->arch, hardware->arch))
      candidate_add(fitting, partial, hardware_with_build(hardware, builds->builds[b]));
}

static void fitting_collect(const struct environment *partial,
                            const struct known_environments *known,
                            const struct match_builds *builds, struct fitting *fitting) {
  struct error incomplete;
  for (size_t i = 0; i < known->n; i++) {
    const struct environment *device = &known->all[i].environment;
    if (!builds->required)
      candidate_add(fitting, partial, environment_copy(device));
    fitting_collect_builds(partial, device, builds, fitting);
  }
  /* Hardware that no node has yet may be stated in full; the toolchain comes from a build all the
   * same. */
  if (fitting->n == 0 && environment_is_full(partial, &incomplete))
    fitting_collect_builds(partial, partial, builds, fitting);
}

static bool refuse_unknown(const struct environment *partial,
                           const struct known_environments *known, struct error *error) {
  cleanup_free char *wanted = environment_format(partial);
  size_t fewest = SIZE_MAX;
  cleanup_free char *nearest = NULL;
  for (size_t i = 0; i < known->n; i++) {
    cleanup_json json_t *differences =
        environment_differences(partial, &known->all[i].environment, false);
    if (json_object_size(differences) < fewest) {
      fewest = json_object_size(differences);
      free(nearest);
      nearest = environment_format(&known->all[i].environment);
    }
  }
  if (!nearest)
    return error_set(
        error,
        "no agent has enrolled yet, so \"%.200s\" cannot be completed; state the full environment "
        "(platform, gpu, arch, compute_units, partition)",
        wanted);
  return error_set(error,
                   "no known environment fits \"%.200s\"; the nearest is \"%.250s\"; GET "
                   "/v1/environments lists all",
                   wanted, nearest);
}

bool match_environment(const struct environment *partial, const struct known_environments *known,
                       const struct match_builds *builds, struct environment *ret_environment,
                       json_t **ret_fitting, struct error *error) {
  *ret_fitting = NULL;
  __attribute__((cleanup(fitting_release))) struct fitting fitting = {0};
  fitting_collect(partial, known, builds, &fitting);
  struct digest wanted = environment_digest(partial);
  struct error incomplete;
  size_t chosen = fitting.n == 1 ? 0 : SIZE_MAX;
  for (size_t i = 0; i < fitting.n; i++)
    if (digest_equal(&fitting.digests[i], &wanted))
      chosen = i;
  if (chosen != SIZE_MAX) {
    *ret_environment = environment_copy(&fitting.environments[chosen]);
    return true;
  }
  if (fitting.n == 0 && environment_is_full(partial, &incomplete)) {
    *ret_environment = environment_copy(partial);
    return true;
  }
  *ret_fitting = json_array();
  for (size_t i = 0; i < fitting.n; i++)
    ALWAYS(json_array_append_new(*ret_fitting, environment_to_json(&fitting.environments[i])) == 0);
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
  return error_at(error, "/kernel", "this kernel has no build; pack one with " BUILD_COMMANDS,
                  "ARCH", key_text);
}

static const char *stated(const char *text) { return text ? text : "not stated"; }

/* There is one at least. */
static bool refuse_toolchain(const struct environment *environment, const struct key *key,
                             const struct match_builds *builds, struct error *error) {
  const struct build *newest = builds->builds[0];
  cleanup_free char *key_text = key_format_shell(key);
  return error_at(error, "/environment",
                  "no build of this kernel is for arch %.40s with triton %.40s and torch %.40s "
                  "(the newest is for %.40s "
                  "with triton %.40s and torch %.40s); pack one with " BUILD_COMMANDS,
                  environment->arch, stated(environment->triton), stated(environment->torch),
                  newest->arch, newest->triton, stated(newest->torch), environment->arch, key_text);
}

bool match_build(const struct environment *environment, const struct key *key,
                 const struct match_builds *builds, const struct build **ret_build,
                 struct error *error) {
  struct error newest_says, says;
  bool has_toolchain = false;
  if (!builds->required) {
    *ret_build = NULL;
    return true;
  }
  for (size_t i = 0; i < builds->n; i++) {
    const struct build *build = builds->builds[i];
    size_t variant;
    if (!string_equal(build->arch, environment->arch) ||
        !string_equal(build->triton, environment->triton) ||
        !string_equal(build->torch, environment->torch))
      continue;
    if (build_variant(build, key, &variant, &says)) {
      *ret_build = build;
      return true;
    }
    if (!has_toolchain)
      newest_says = says;
    has_toolchain = true;
  }
  if (!has_toolchain)
    return refuse_toolchain(environment, key, builds, error);
  *error = newest_says;
  return false;
}

static void set_new(json_t *object, const char *name, json_t *value) {
  ALWAYS(json_object_set_new(object, name, value) == 0);
}

int64_t match_devices(const struct environment *environment,
                      const struct known_environments *known) {
  struct digest hardware = environment_hardware_digest(environment);
  int64_t n = 0;
  for (size_t i = 0; i < known->n; i++)
    n += digest_equal(&known->all[i].hardware_digest, &hardware) ? known->all[i].devices : 0;
  return n;
}

bool match_wants_signatures(const struct environment *environment,
                            const struct known_environments *known) {
  struct digest hardware = environment_hardware_digest(environment);
  for (size_t i = 0; i < known->n; i++)
    if (known->all[i].wants_signatures && digest_equal(&known->all[i].hardware_digest, &hardware))
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
  json_t *answer = json_object();
  set_new(answer, "matching", json_integer(matching > refusing ? matching - refusing : 0));
  if (refusing > 0)
    set_new(answer, "refusing",
            json_pack("{s:I, s:s}", "agents", (json_int_t)refusing, "reason", reason));
  if (matching > 0 || !nearest) {
    set_new(answer, "nearest", json_null());
    return answer;
  }
  json_t *difference = json_object();
  set_new(difference, "agent", json_string(nearest->agent));
  set_new(difference, "name", json_string(nearest->agent_name));
  set_new(difference, "differences",
          environment_differences(environment, &nearest->environment, true));
  set_new(answer, "nearest", difference);
  return answer;
}
