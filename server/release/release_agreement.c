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

void release_candidate_substitute(const struct release_request *request,
                                  struct release_candidate *candidate) {
  const json_t *other, *finalist, *found = NULL;
  struct agreement_facts facts;
  double winner_ratio = 1, ratio = 1, median_us = 0;
  size_t i;
  if (!candidate->has_winner || release_facts_satisfy(request, &candidate->facts))
    return;

  json_array_foreach (candidate->others, i, other) {
    facts = agreement_read(other);
    if (!found && release_facts_satisfy(request, &facts))
      found = other;
  }
  if (!found)
    return;

  uint64_t ordinal = (uint64_t)json_integer_value(json_object_get(found, "config"));
  json_array_foreach (json_object_get(candidate->verdict, "finalists"), i, finalist) {
    uint64_t config = (uint64_t)json_integer_value(json_object_get(finalist, "config"));
    if (config == candidate->ordinal)
      winner_ratio = json_number_value(json_object_get(finalist, "ratio"));
    if (config == ordinal) {
      ratio = json_number_value(json_object_get(finalist, "ratio"));
      median_us = json_number_value(json_object_get(finalist, "median_us"));
    }
  }

  facts = agreement_read(found);
  candidate->substituted = xasprintf(
      "config %llu of the equivalence set, as %s is required and the winner, config %llu, "
      "is %s",
      (unsigned long long)ordinal, agreement_requirement_names[request->require_agreement],
      (unsigned long long)candidate->ordinal, agreement_class(&candidate->facts));
  candidate->slower = ratio / winner_ratio;
  candidate->ordinal = ordinal;
  json_decref(candidate->config);
  candidate->config = json_incref(json_object_get(found, "config_values"));
  candidate->facts = facts;
  agreement_write(candidate->provenance, &facts);
  release_candidate_set_time(candidate, median_us);
}
