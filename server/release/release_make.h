/* What a release includes: for each (kernel, key) the pin, else the newest done job whose verdict
 * is usable; what is left out is listed with the reason.
 *
 * A job is usable when it is done and its winner is faster than its baseline or the same. An
 * ambiguous job is skipped and an older usable one is taken, so that an undecided job never removes
 * a key from a release. A job whose winner was later measured slower than the default (flagged), or
 * was decided from samples of a device that drifted (quarantined), is not usable. The two newest
 * usable jobs conflict when they measured the same space and no config is among the best of both:
 * then neither is included until a third job or a pin decides. Of several kernels with one name
 * (versions of an edited kernel) only the one that was registered last is included, and those that
 * the request names in "kernels".
 *
 * A release that replaces the one that a channel serves changes the config of a (kernel, key) only
 * for a reason: the new winner's job measured the served config too, and verdict_json_replaces
 * finds that the winner saves enough. Otherwise the served config is kept, also when no job has a
 * usable winner. It is not kept when its own job is flagged or quarantined, or its build was
 * removed. A pin needs no reason. A config that stays the same keeps the served winner's times, job
 * and provenance, so that tuning again without a change makes the same release; but an imported
 * config that a job now confirms gets that job's.
 *
 * A request may refuse self-timed winners: those of kernels in c, whose host code runs in the
 * process that times them. The served winner of such a kernel is then not kept; a pin is included
 * all the same.
 *
 * A config that a later job found to disagree with the default or with Triton's interpreter
 * (common/verdict/agreement.h) is not usable, and is not kept when it is served. A request may
 * require a class of agreement. Where the winner lacks it, the best config of its equivalence set
 * that has it takes the winner's place; where there is none, the job is not usable. A served config
 * that lacks it is not kept; a pin needs neither. Times and ratios of a substitute are its own.
 *
 * Overrides (override_rules.h) pin and ban configs for good. Where a winner is banned, the best
 * config of its equivalence set that is not takes its place; where there is none, the job is not
 * usable. What is served and banned is not kept.
 *
 * An import is a candidate without a job. It is taken if no job is usable and no winner of a job is
 * served. It has no space: for a key that only imports have, a pin may name any config.
 *
 * Memory: a request and its plan own what they hold, but plans borrow candidates, pins and the
 * served winners, which must outlive them. Threads: pure functions, any thread. */
#ifndef WAVETUNE_SERVER_RELEASE_RELEASE_MAKE_H
#define WAVETUNE_SERVER_RELEASE_RELEASE_MAKE_H

#include "common/cache/release.h"
#include "common/record/record.h"
#include "common/regime/regime.h"
#include "common/space/space.h"
#include "common/verdict/verdict.h"
#include "server/release/override_rules.h"

#define RELEASE_PINS_MAX 10000
#define RELEASE_KERNELS_MAX 1000
#define RELEASE_TAG_MAX 128

/* The first member of pins, candidates and served winners, by which they are sorted and found. */
struct release_place {
  struct digest kernel;
  char *key_text; /* canonical JSON */
};

struct release_pin {
  struct release_place place;
  json_t *key, *config;
  size_t index;   /* in the request, for JSON Pointers */
  char *standing; /* the override that it is of, as text; NULL: of the request */
};

/* The body of POST /v1/releases. */
struct release_request {
  struct environment environment; /* partial */
  char *tag;
  enum regime regime;
  struct texts kernel_texts; /* hashes; none: all kernels */
  struct digest *kernels;    /* the same, parsed */
  char *as_of;               /* NULL: now */
  int64_t as_of_us;
  struct records pins; /* of struct release_pin; sorted by place, distinct */
  struct release_replaces {
    char *channel;   /* the channel whose release is replaced; NULL: none */
    double min_gain; /* the share of the served config's time that a winner must save */
  } replaces;
  bool refuse_self_timed; /* leave out winners of kernels in c, unless they are pinned */
  enum agreement_requirement require_agreement;
  struct release_requires {
    bool all;                        /* every key that a job or an import has */
    char *run;                       /* those of the run's jobs; NULL: of none */
    struct texts jobs;               /* those of these jobs, by id */
  } required;                        /* keys without which no release is made */
  const struct overrides *overrides; /* that hold for it; NULL: none. Not in the body */
};
extern const struct record release_request_record;
/* For sorting and finding by place, which is the first member. */
int release_places_compare(const void *a, const void *b);
/* Whether the request names the kernel in "kernels". */
bool release_names_kernel(const struct release_request *request, const struct digest *kernel);
must_check bool release_request_parse(const json_t *json, struct release_request *ret,
                                      struct error *error);
void release_request_release(struct release_request *request);
#define cleanup_release_request __attribute__((cleanup(release_request_release)))

/* One job of the release's environment, tag and regime, with its winner when it has one; or an
 * import, which has no space, verdict or ordinal. */
struct release_candidate {
  struct release_place place;
  int64_t job;          /* 0: an import */
  char *name;           /* the kernel's */
  bool is_external;     /* only the name of the kernel is known */
  bool is_self_timed;   /* a kernel in c: host code in the process that times it */
  int64_t kernel_order; /* kernels that were registered later have higher numbers */
  json_t *key_names;    /* array of strings, in the manifest's order */
  json_t *key;
  struct digest space;
  const struct space *points; /* the space, at least where release_needs_space; borrowed from the
                                 candidates' spaces */
  char *run;                  /* of the job; NULL: an import */
  char *state;                /* of the job, by its name in the API: "done", "failed", … */
  char *reason;               /* why it failed, or NULL */
  int64_t finished_us;        /* 0: not finished; of an import, when it was made */
  bool has_winner;
  uint64_t ordinal, baseline;
  json_t *config;     /* its values */
  json_t *provenance; /* as it will be in the release, with "origin" */
  json_t *verdict;    /* verdict_to_json's; NULL: of an import */
  size_t n_ms;
  double ms[RELEASE_MS_MAX];
  enum verdict_outcome outcome;
  size_t n_equivalents;
  uint64_t *equivalents;  /* the winner's equivalence set */
  int64_t flagged_by;     /* the job that measured the winner slower than the default; 0: none */
  double flagged_ratio;   /* the winner's time over the default's in that job */
  char *quarantined;      /* why its samples are not trusted, or NULL */
  char *build_removed_by; /* the token that removed its build, or NULL */
  bool has_reference;     /* the kernel */
  char *agreement;        /* the winner's class; NULL: not known */
  bool interpreted;       /* the interpreter agrees with the winner */
  json_t
      *others; /* the rest of the equivalence set, the best first, with how each agrees; or NULL */
  struct config_ranges disagreeing; /* configs that the job found to disagree */
  struct agreement_facts facts;     /* of `config`, which may be a substitute */
  double slower;                    /* a substitute's time over the winner's; else 0 */
  char *substituted;                /* why it takes the winner's place, or NULL */
};
/* The columns of the statements that read candidates. */
extern const struct record release_candidate_record;
struct release_candidates {
  size_t n;
  struct release_candidate *all;
  size_t n_spaces; /* of distinct spaces */
  struct space **spaces;
};

/* The release that a channel serves, and its winners, which borrow from it. */
struct release_served_winner {
  struct release_place place;
  const struct release_winner *winner;
  const struct release_config *config;
  const json_t *provenance;
};
struct release_served {
  struct release *release; /* NULL: the channel has no entry for the environment and tag */
  size_t n;
  struct release_served_winner *winners; /* sorted by place */
};
/* Takes over the release. */
void release_served_init(struct release_served *served, struct release *release);
void release_served_release(struct release_served *served);
#define cleanup_release_served __attribute__((cleanup(release_served_release)))
void release_candidates_release(struct release_candidates *candidates);
#define cleanup_release_candidates __attribute__((cleanup(release_candidates_release)))

/* Whether planning looks up a config other than the candidate's own winner in its space, or one of
 * another job among those that disagree. */
must_check bool release_needs_space(const struct release_request *request,
                                    const struct release_served *served,
                                    const struct release_candidate *candidate);

/* Of a candidate that was just read, sets outcome, equivalents and ms from the verdict, {"verdict":
 * "FASTER", "equivalence_set": [17, 19], "winner_us": 203.1, …}, and from its columns how the
 * winner agrees, which its provenance then states. */
must_check bool release_candidate_read_verdict(struct release_candidate *candidate,
                                               struct error *error);

/* Which config a release has for a (kernel, key) without a pin:
 *
 *   served     its config is     the job's is       no job, but        neither
 *              the job's          another            an import
 *
 *   nothing    the job's          the job's          the import         nothing
 *   an import  the job's          by the job's       the newer import   what is served
 *                                 verdict
 *   a winner   the same           by the job's       what is served     what is served
 *                                 verdict */
enum release_choice {
  RELEASE_NOTHING,
  RELEASE_JOB,    /* the job's winner */
  RELEASE_IMPORT, /* what was imported */
  RELEASE_SAME,   /* the job's winner, or the import, is the served config; its times, job and
                     provenance in the served release are kept */
  RELEASE_SERVED, /* the served config stays, and *ret_reason states why */
};
struct release_rivals {
  const struct release_served_winner *served; /* NULL: none, or none that may be kept */
  const struct release_candidate *job;        /* the newest usable one, or NULL */
  const struct release_candidate *import;     /* the usable one, or NULL */
};
/* `min_gain`: the share of the time that a job's winner must save. *ret_reason is set for
 * RELEASE_SERVED. */
must_check enum release_choice release_choose(const struct release_rivals *rivals, double min_gain,
                                              struct error *ret_reason);

struct release_included {
  const struct release_candidate *candidate; /* of a pin: the job whose space and build have it */
  const struct release_pin *pin; /* NULL: the candidate's own winner, or the served one */
  const struct release_served_winner *kept; /* the served winner that is kept, or NULL */
  char *kept_reason;                        /* why another config did not replace it, or NULL */
  uint64_t ordinal;                         /* of the pin's config or the job's winner */
};

struct release_skipped {
  const char *name; /* NULL when neither jobs nor imports have the kernel */
  struct digest kernel;
  const json_t *key; /* NULL: the whole kernel */
  int64_t job;       /* 0: a pin, an import or a kernel was skipped */
  char *reason;
};

struct release_plan {
  size_t n_included, included_capacity;
  struct release_included *included;
  size_t n_skipped, skipped_capacity;
  struct release_skipped *skipped;
  size_t n_standing, standing_capacity;
  struct release_pin **standing; /* pins of overrides; they borrow all but their text */
};

/* Sorts the candidates, which must all be of kernels that the request names, if it names any.
 * `environment` is the full one: the conditions of a pinned config's space may read its gpu and
 * arch. `served` is empty for a request that replaces nothing. */
void release_plan(const struct release_request *request, const struct environment *environment,
                  const struct release_served *served, struct release_candidates *candidates,
                  struct release_plan *ret_plan);
void release_plan_release(struct release_plan *plan);
#define cleanup_release_plan __attribute__((cleanup(release_plan_release)))

/* The keys that the request requires and the plan does not include, each with the reason: of a
 * job's key that of the job. Kernels of which a newer one has the name are not required by "all".
 * The members of *ret_missing are as those of `skipped`; free each reason, and the array. */
void release_missing(const struct release_request *request,
                     const struct release_candidates *candidates, const struct release_plan *plan,
                     struct release_skipped **ret_missing, size_t *ret_n);

/* "tuned", "pinned" or "imported". */
const char *release_origin(const struct release_included *included);

/* The release of a plan that includes at least one winner. */
must_check bool release_from_plan(const struct release_plan *plan,
                                  const struct environment *environment, const char *tag,
                                  enum regime regime, struct release **ret_release,
                                  struct error *error);

#endif
