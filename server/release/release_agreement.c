/* How winners agree, as far as a release cares. Pure functions, any thread. */
#include "server/release/release_agreement.h"

void release_candidate_set_time(struct release_candidate *candidate, double time_us) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", time_us / 1000);
  candidate->n_ms = time_us > 0;
  candidate->ms[0] = strtod(text, NULL);
}

const struct release_candidate *release_contradiction(const struct release_group *group,
                                                      int64_t after_us, const json_t *config) {
  for (size_t i = 0; i < group->n; i++) {
    const struct release_candidate *job = &group->all[i];
    struct error ignored;
    uint64_t ordinal;
    if (job->disagreeing.n && job->finished_us > after_us && job->points &&
        space_config_from_json(job->points, config, &ordinal, &ignored) &&
        config_ranges_contain(&job->disagreeing, ordinal))
      return job;
  }
  return NULL;
}

bool release_facts_satisfy(const struct release_request *request,
                           const struct agreement_facts *facts) {
  return agreement_satisfies(REQUIRE_AGREES, facts) &&
         agreement_satisfies(request->require_agreement, facts);
}

const struct override *release_ban_of(const struct release_request *request,
                                      const struct release_candidate *candidate,
                                      const json_t *config) {
  return override_next(request->overrides, OVERRIDE_BAN, NULL, &candidate->place.kernel,
                       candidate->name, candidate->place.key_text, config);
}

/* A config of the equivalence set that may take the winner's place. */
struct substitute {
  uint64_t ordinal;
  json_t *values; /* a reference */
  struct agreement_facts facts;
};

/* The best one beside the winner. `others` has how each agrees, where the kernel has no reference;
 * else all agree, and the verdict's finalists are in the order of their times. */
static bool substitute_find(const struct release_request *request,
                            const struct release_candidate *candidate, struct substitute *ret) {
  const json_t *other, *list = candidate->has_reference
                                   ? json_object_get(candidate->verdict, "finalists")
                                   : candidate->others;
  size_t i;
  json_array_foreach (list, i, other) {
    uint64_t ordinal = (uint64_t)json_integer_value(json_object_get(other, "config"));
    cleanup_json json_t *values = json_incref(json_object_get(other, "config_values"));
    struct agreement_facts facts = candidate->facts;
    if (ordinal == candidate->ordinal)
      continue;
    if (candidate->has_reference) {
      if (!json_is_true(json_object_get(other, "equivalent")) || !candidate->points ||
          ordinal >= candidate->points->raw_count)
        continue;
      values = space_config_to_json(candidate->points, ordinal);
    } else {
      facts = agreement_read(other);
    }
    if (values && release_facts_satisfy(request, &facts) &&
        !release_ban_of(request, candidate, values)) {
      *ret = (struct substitute){ordinal, TAKE(values), facts};
      return true;
    }
  }
  return false;
}

void release_candidate_substitute(const struct release_request *request,
                                  struct release_candidate *candidate) {
  const json_t *finalist;
  struct substitute found;
  double winner_ratio = 1, ratio = 1, median_us = 0;
  size_t i;
  if (!candidate->has_winner || !candidate->job)
    return;
  bool is_agreeing = release_facts_satisfy(request, &candidate->facts);
  const struct override *ban = release_ban_of(request, candidate, candidate->config);
  if ((is_agreeing && !ban) || !substitute_find(request, candidate, &found))
    return;

  json_array_foreach (json_object_get(candidate->verdict, "finalists"), i, finalist) {
    uint64_t config = (uint64_t)json_integer_value(json_object_get(finalist, "config"));
    if (config == candidate->ordinal)
      winner_ratio = json_number_value(json_object_get(finalist, "ratio"));
    if (config == found.ordinal) {
      ratio = json_number_value(json_object_get(finalist, "ratio"));
      median_us = json_number_value(json_object_get(finalist, "median_us"));
    }
  }

  cleanup_free char *banned = ban ? override_text(ban) : NULL;
  candidate->substituted =
      ban ? xasprintf("config %llu of the equivalence set, as the winner, config %llu, is banned "
                      "by %s",
                      (unsigned long long)found.ordinal, (unsigned long long)candidate->ordinal,
                      banned)
          : xasprintf("config %llu of the equivalence set, as %s is required and the winner, "
                      "config %llu, is %s",
                      (unsigned long long)found.ordinal,
                      agreement_requirement_names[request->require_agreement],
                      (unsigned long long)candidate->ordinal, agreement_class(&candidate->facts));
  candidate->slower = ratio / winner_ratio;
  candidate->ordinal = found.ordinal;
  json_decref(candidate->config);
  candidate->config = found.values;
  candidate->facts = found.facts;
  agreement_write(candidate->provenance, &found.facts);
  release_candidate_set_time(candidate, median_us);
}
