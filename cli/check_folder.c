/* wavetune kernel check DIR[:VERSION]: whether manifest, key and space hold together, and the guides' hints. */
#include <inttypes.h>
#include <sys/stat.h>

#include "cli/check.h"

/* A key whose members have no values: enough to see that every expression reads names that there are. */
static struct key key_without_values(const struct kernel *kernel) {
  struct key key = {.n = kernel->n_key_names,
                    .names = xcalloc(kernel->n_key_names, sizeof *key.names),
                    .values = xcalloc(kernel->n_key_names, sizeof *key.values)};
  for (size_t i = 0; i < key.n; i++) {
    key.names[i] = xstrdup(kernel->key_names[i]);
    key.values[i] = value_none();
  }
  return key;
}

static bool place_exists(const char *place) {
  struct stat status;
  const char *colon = strrchr(place, ':');
  cleanup_free char *folder = colon ? xstrndup(place, (size_t)(colon - place)) : xstrdup(place);
  return stat(place, &status) == 0 || stat(folder, &status) == 0;
}

/* How many configs hold, and whether the default does. */
static void configs_check(const struct check *check, const struct kernel_folder *folder, const struct key *key,
                          json_t *answer, struct review_findings *findings) {
  struct space_facts facts = {
      .key = key, .gpu_name = option_text(check->options, "gpu-name"), .arch = option_text(check->options, "arch")};
  const struct space *space = folder->space;
  uint64_t count;
  struct error error;
  bool holds = true;
  if (!space_count(space, &facts, SPACE_STEP_LIMIT_DEFAULT, UINT64_MAX, &count, &error) ||
      (space->has_default && !space_holds(space, &facts, space->default_ordinal, &holds, &error))) {
    review_find(findings, REVIEW_REFUSED, "the space's conditions", "%s", error.message);
    return;
  }
  cleanup_free char *key_text = key_format(key);
  if (count == 0)
    review_find(findings, REVIEW_REFUSED, "the space's conditions", "no config holds for %s", key_text);
  else if (!holds)
    review_find(findings, REVIEW_WARNING, "the space's conditions",
                "the default config does not hold for %s: another one becomes the baseline", key_text);
  ALWAYS(json_object_set_new(answer, "configs", json_integer((json_int_t)count)) == 0);
  if (!check->as_json)
    printf("  %" PRIu64 " of %" PRIu64 " configs hold for %s on %s\n", count, space->raw_count, key_text, facts.arch);
}

static bool hints_check(const struct check *check, const struct kernel_folder *folder, const struct key *key,
                        json_t *answer, struct review_findings *findings, struct error *error) {
  struct knob_question question = {.folder = folder,
                                   .key = key,
                                   .arch = option_text(check->options, "arch"),
                                   .gpu_name = option_text(check->options, "gpu-name"),
                                   .triton = triton_version_number(option_text(check->options, "triton"))};
  bool is_guess;
  struct error unheld;
  if (option_text(check->options, "triton") && !question.triton)
    return error_set(error, "--triton is a version like 3.6.0, not \"%s\"", option_text(check->options, "triton"));
  if (!check_kind(check, folder->kernel, &question.kind, &is_guess, error))
    return false;
  ALWAYS(json_object_set_new(answer, "kind", json_string(kernel_kind_name(question.kind))) == 0);
  if (!check->as_json)
    printf("  kind: %s%s\n", kernel_kind_name(question.kind), is_guess ? " (guessed from name and flops)" : "");
  /* Conditions that cannot be evaluated were said by configs_check. */
  (void)!knob_hints_find(&question, findings, &unheld);
  return true;
}

static bool folder_report(struct check *check, const struct kernel_folder *folder, const char *place,
                          const struct key *key, struct error *error) {
  char hash[DIGEST_TEXT_SIZE];
  const struct kernel *kernel = folder->kernel;
  digest_format(&kernel->hash, hash);
  struct review_findings findings = {0};
  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "place", place, "what", "kernel", "name", kernel->name, "language",
                language_name(kernel->language), "kernel", hash, "raw", (json_int_t)folder->space->raw_count);
  if (!check->as_json)
    printf("%s: kernel %s in %s, %s\n", place, kernel->name, language_name(kernel->language), hash);
  if (key)
    configs_check(check, folder, key, answer, &findings);
  else if (!check->as_json)
    printf("  %" PRIu64 " configs before conditions; --key tells how many hold\n", folder->space->raw_count);
  bool done = hints_check(check, folder, key, answer, &findings, error);
  check_finish(check, answer, &findings);
  review_findings_release(&findings);
  return done;
}

bool check_folder(struct check *check, const char *place, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_key struct key key = {0};
  const char *key_text = option_text(check->options, "key");
  struct error why;
  if (!place_exists(place))
    return error_set(error, "there is no %s", place);
  if (!kernel_folder_load(place, &folder, &why)) {
    check_refuse(check, place, "kernel", &why);
    return true;
  }
  const struct kernel *kernel = folder->kernel;
  if (!key_text)
    key = key_without_values(kernel);
  else if (!key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names, &key, error))
    return error_prefix(error, "--key %s: ", key_text);
  if (!kernel_accepts(kernel, &key, folder->space, &why)) {
    check_refuse(check, place, "kernel", &why);
    return true;
  }
  return folder_report(check, folder, place, key_text || !key.n ? &key : NULL, error);
}
