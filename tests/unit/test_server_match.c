/* Finding the environment that a job means, the build that it runs, and the agents that match. */
#include <criterion/criterion.h>

#include "server/cache/environments.h"

TestSuite(match);

static json_t *json_of(const char *text) {
  json_t *json;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

static struct environment environment_of(const char *text) {
  cleanup_json json_t *json = json_of(text);
  struct environment environment;
  struct error error;
  cr_assert(environment_parse(json, &environment, &error), "%s", error.message);
  return environment;
}

static void known_add(struct known_environments *known, const char *text, int64_t agents) {
  known->all = xreallocarray(known->all, known->n + 1, sizeof *known->all);
  struct known_environment *added = &known->all[known->n++];
  *added = (struct known_environment){.environment = environment_of(text), .agents = agents};
  added->hardware_digest = environment_hardware_digest(&added->environment);
  added->agent = xasprintf("agent%zu", known->n);
  added->agent_name = xasprintf("node%zu", known->n);
}

#define CPU_A                                                                                      \
  "{\"cpu\":\"gcc 12\",\"gpu\":\"X\",\"arch\":\"x86_64\",\"compute_units\":2,\"partition\":\"\"}"
#define CPU_B                                                                                      \
  "{\"cpu\":\"gcc 13\",\"gpu\":\"X\",\"arch\":\"x86_64\",\"compute_units\":2,\"partition\":\"\"}"
#define MI300X                                                                                     \
  "\"rocm\":\"6.4.1\",\"gpu\":\"MI300X\",\"arch\":\"gfx942\",\"compute_units\":304,\"partition\":" \
  "\"SPX/NPS1\""

static const struct match_builds no_builds;

/* What `partial` means, formatted; or the error's message. */
static char *meaning(const char *partial_text, const struct known_environments *known,
                     const struct match_builds *builds, size_t *ret_fitting) {
  cleanup_environment struct environment partial = environment_of(partial_text);
  cleanup_environment struct environment environment = {0};
  cleanup_json json_t *fitting = NULL;
  struct error error = {0};
  bool found = match_environment(&partial, known, builds, &environment, &fitting, &error);
  *ret_fitting = json_array_size(fitting);
  return found ? environment_format(&environment) : xstrdup(error.message);
}

Test(match, a_partial_environment_is_completed_when_one_fits) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  known_add(&known, CPU_A, 1);
  known_add(&known, CPU_B, 1);
  cleanup_free char *text = meaning("{\"cpu\": \"gcc 13\"}", &known, &no_builds, &fitting);
  cr_expect_str_eq(text, "cpu gcc 13, gpu X, arch x86_64, 2 compute units");
}

Test(match, several_that_fit_are_listed) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  known_add(&known, CPU_A, 1);
  known_add(&known, CPU_B, 1);
  cleanup_free char *text = meaning("{\"arch\": \"x86_64\"}", &known, &no_builds, &fitting);
  cr_expect_neq(strstr(text, "2 known environments fit"), NULL, "%s", text);
  cr_expect_eq(fitting, 2);
}

Test(match, an_environment_that_equals_a_known_one_needs_no_more) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  known_add(&known, "{" MI300X ",\"torch\":\"2.7\"}", 1);
  known_add(&known, "{" MI300X "}", 1);
  cleanup_free char *text = meaning("{" MI300X "}", &known, &no_builds, &fitting);
  cr_expect_eq(strstr(text, "torch"), NULL, "%s", text);
  cr_expect_neq(strstr(text, "MI300X"), NULL, "%s", text);
}

Test(match, a_full_environment_is_taken_before_any_agent_has_it) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  cleanup_free char *text = meaning(CPU_A, &known, &no_builds, &fitting);
  cr_expect_str_eq(text, "cpu gcc 12, gpu X, arch x86_64, 2 compute units");
}

Test(match, a_partial_environment_that_no_node_has_names_the_nearest) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  known_add(&known, CPU_A, 1);
  cleanup_free char *text = meaning("{\"cpu\": \"clang 19\"}", &known, &no_builds, &fitting);
  cr_expect_neq(strstr(text, "nearest is \"cpu gcc 12"), NULL, "%s", text);
  cr_expect_eq(fitting, 0);
}

Test(match, without_agents_a_full_environment_is_required) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  cleanup_free char *text = meaning("{\"cpu\": \"gcc 12\"}", &known, &no_builds, &fitting);
  cr_expect_neq(strstr(text, "no agent has enrolled"), NULL, "%s", text);
}

Test(match, only_devices_that_the_language_runs_on_are_meant) {
  cleanup_known_environments struct known_environments known = {0};
  struct match_builds on_cpu = {.runs_on = RUNS_ON_CPU}, on_gpu = {.runs_on = RUNS_ON_GPU};
  size_t fitting;
  known_add(&known, "{" MI300X "}", 8);
  cleanup_free char *no_cpu = meaning("{}", &known, &on_cpu, &fitting);
  cr_expect_neq(strstr(no_cpu, "runs on the CPU, and this environment is a GPU's"), NULL, "%s",
                no_cpu);

  known_add(&known, CPU_A, 1);
  cleanup_free char *cpu = meaning("{}", &known, &on_cpu, &fitting);
  cr_expect_str_eq(cpu, "cpu gcc 12, gpu X, arch x86_64, 2 compute units");
  cleanup_free char *gpu = meaning("{}", &known, &on_gpu, &fitting);
  cr_expect_neq(strstr(gpu, "MI300X"), NULL, "%s", gpu);

  /* An environment that is stated, in full or not, is not another's. */
  cleanup_free char *full = meaning("{" MI300X "}", &known, &on_cpu, &fitting);
  cr_expect_neq(strstr(full, "runs on the CPU"), NULL, "%s", full);
  cleanup_free char *part = meaning("{\"cpu\": \"gcc 12\"}", &known, &on_gpu, &fitting);
  cr_expect_neq(strstr(part, "runs on GPUs, and this environment is a CPU's"), NULL, "%s", part);
}

static struct digest digest_of_text(const char *text) { return digest_of(text, strlen(text)); }

Test(match, torch_and_triton_come_from_the_build_where_there_is_one) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  char triton[] = "3.6.0", arch[] = "gfx942";
  struct build build = {.digest = digest_of_text("b"), .triton = triton, .arch = arch};
  struct build *all[] = {&build};
  struct match_builds builds = {1, all, true};
  known_add(&known, "{" MI300X ",\"triton\":\"2.1\"}", 1);
  known_add(&known, CPU_A, 1);
  cleanup_free char *text = meaning("{\"gpu\": \"MI300X\"}", &known, &builds, &fitting);
  cr_expect_neq(strstr(text, "triton 3.6.0"), NULL, "%s", text);
}

Test(match, several_builds_that_fit_are_listed_with_their_toolchains) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  char old[] = "3.5.0", new[] = "3.6.0", arch[] = "gfx942";
  struct build builds_[] = {{.triton = new, .arch = arch}, {.triton = old, .arch = arch}};
  struct build *all[] = {&builds_[0], &builds_[1]};
  struct match_builds builds = {2, all, true};
  known_add(&known, "{" MI300X "}", 1);
  cleanup_free char *text = meaning("{\"gpu\": \"MI300X\"}", &known, &builds, &fitting);
  cr_expect_eq(fitting, 2, "%s", text);
  cleanup_free char *stated =
      meaning("{\"gpu\": \"MI300X\", \"triton\": \"3.5.0\"}", &known, &builds, &fitting);
  cr_expect_neq(strstr(stated, "triton 3.5.0"), NULL, "%s", stated);
}

Test(match, hardware_that_no_node_has_yet_gets_its_toolchain_from_the_build) {
  cleanup_known_environments struct known_environments known = {0};
  size_t fitting;
  char triton[] = "3.6.0", arch[] = "gfx942";
  struct build build = {.triton = triton, .arch = arch};
  struct build *all[] = {&build};
  struct match_builds builds = {1, all, true};
  known_add(&known, CPU_A, 1);
  cleanup_free char *text = meaning("{" MI300X "}", &known, &builds, &fitting);
  cr_expect_neq(strstr(text, "triton 3.6.0"), NULL, "%s", text);
}

/* The refusal of a job on MI300X with triton 3.6.0 for the key n=5; NULL when it is none. */
static char *refusal(const struct match_builds *builds, char pointer[JSON_POINTER_SIZE]) {
  cleanup_environment struct environment environment =
      environment_of("{" MI300X ",\"triton\":\"3.6.0\"}");
  cleanup_json json_t *json = json_of("{\"n\": 5}");
  cleanup_key struct key key = {0};
  const struct build *build;
  struct error error;
  cr_assert(key_parse(json, NULL, 0, &key, &error));
  if (match_has_build(&key, builds, &error) &&
      match_build(&environment, &key, builds, &build, &error))
    return NULL;
  snprintf(pointer, JSON_POINTER_SIZE, "%s", error.pointer);
  return xstrdup(error.message);
}

Test(match, a_kernel_without_builds_is_refused_with_the_command_that_packs_one) {
  char pointer[JSON_POINTER_SIZE];
  struct match_builds builds = {0, NULL, true};
  cleanup_free char *text = refusal(&builds, pointer);
  cr_assert_not_null(text);
  cr_expect_str_eq(pointer, "/kernel");
  cr_expect_neq(strstr(text, "`python3 -m wavetune pack DIR --arch ARCH --key \"n=5\" --output"),
                NULL, "%s", text);
}

Test(match,
     builds_of_another_toolchain_are_refused_with_the_newest_and_the_command_that_packs_one) {
  char pointer[JSON_POINTER_SIZE], triton[] = "3.5.0", arch[] = "gfx942";
  struct build build = {.triton = triton, .arch = arch};
  struct build *all[] = {&build};
  struct match_builds builds = {1, all, true};
  cleanup_free char *text = refusal(&builds, pointer);
  cr_assert_not_null(text);
  cr_expect_str_eq(pointer, "/environment");
  cr_expect(strstr(text, "triton 3.6.0") && strstr(text, "triton 3.5.0") &&
                strstr(text, "python3 -m wavetune pack"),
            "%s", text);
}

/* A build with one variant. */
static struct build build_when(const char *when, struct expr **storage, char *triton, char *arch) {
  static const char *const names[] = {"n"};
  struct error error;
  cr_assert(expr_parse(when, storage, &error) && expr_bind(*storage, names, 1, &error), "%s",
            error.message);
  return (struct build){.triton = triton, .arch = arch, .n_variants = 1, .whens = storage};
}

Test(match, the_newest_build_with_a_variant_for_the_key_is_chosen) {
  char triton[] = "3.6.0", arch[] = "gfx942";
  struct expr *whens[3];
  struct build newest = build_when("n == 6", &whens[0], triton, arch),
               middle = build_when("n == 5", &whens[1], triton, arch),
               oldest = build_when("n >= 5", &whens[2], triton, arch);
  struct build *all[] = {&newest, &middle, &oldest};
  struct match_builds builds = {3, all, true};
  cleanup_environment struct environment environment =
      environment_of("{" MI300X ",\"triton\":\"3.6.0\"}");
  struct value values[] = {value_int(5)};
  char name[] = "n", *names[] = {name};
  struct key key = {.n = 1, .names = names, .values = values};
  const struct build *build = NULL;
  struct error error;
  cr_assert(match_build(&environment, &key, &builds, &build, &error), "%s", error.message);
  cr_expect_eq(build, &middle);
  for (size_t i = 0; i < 3; i++)
    expr_free(whens[i]);
}

Test(match, a_kernel_compiled_from_source_needs_no_build) {
  cleanup_environment struct environment environment = environment_of("{" MI300X "}");
  struct key key = {0};
  const struct build *build;
  struct error error;
  cr_assert(match_build(&environment, &key, &no_builds, &build, &error));
  cr_expect_null(build);
}

static json_t *agents_for(const char *environment_text, const struct known_environments *known) {
  cleanup_environment struct environment environment = environment_of(environment_text);
  return match_agents(&environment, known, 0, "");
}

Test(match, agents_match_by_hardware_whatever_their_toolchain) {
  cleanup_known_environments struct known_environments known = {0};
  known_add(&known, "{" MI300X ",\"triton\":\"2.1\"}", 2);
  known_add(&known, "{" MI300X "}", 1);
  cleanup_json json_t *agents = agents_for("{" MI300X ",\"triton\":\"3.6.0\"}", &known);
  cr_expect_eq(json_integer_value(json_object_get(agents, "matching")), 3);
}

Test(match, agents_that_refuse_unsigned_kernels_do_not_match) {
  cleanup_known_environments struct known_environments known = {0};
  known_add(&known, "{" MI300X "}", 3);
  cleanup_environment struct environment environment = environment_of("{" MI300X "}");
  cr_expect_not(match_is_selective(&environment, &known));
  known.all[0].is_selective = true;
  cr_expect(match_is_selective(&environment, &known));
  cleanup_json json_t *agents = match_agents(&environment, &known, 2, "because");
  const json_t *refusing = json_object_get(agents, "refusing");
  cr_expect_eq(json_integer_value(json_object_get(agents, "matching")), 1);
  cr_expect_eq(json_integer_value(json_object_get(refusing, "agents")), 2);
  cr_expect_str_eq(json_string_value(json_object_get(refusing, "reason")), "because");
}

Test(match, where_no_agent_matches_the_nearest_and_its_differences_are_returned) {
  cleanup_known_environments struct known_environments known = {0};
  known_add(&known, "{" MI300X "}", 1);
  known_add(&known, CPU_B, 1);
  cleanup_json json_t *agents = agents_for(CPU_A, &known);
  const json_t *nearest = json_object_get(agents, "nearest");
  cr_expect_eq(json_integer_value(json_object_get(agents, "matching")), 0);
  cr_expect_str_eq(json_string_value(json_object_get(nearest, "name")), "node2");
  const json_t *cpu = json_object_get(json_object_get(nearest, "differences"), "cpu");
  cr_expect_str_eq(json_string_value(json_object_get(cpu, "job")), "gcc 12");
  cr_expect_str_eq(json_string_value(json_object_get(cpu, "agent")), "gcc 13");
}

Test(match, of_two_agents_as_near_the_live_one_is_returned) {
  cleanup_known_environments struct known_environments known = {0};
  known_add(&known, CPU_B, 0);
  known_add(&known,
            "{\"cpu\":\"gcc "
            "14\",\"gpu\":\"X\",\"arch\":\"x86_64\",\"compute_units\":2,\"partition\":\"\"}",
            1);
  cleanup_json json_t *agents = agents_for(CPU_A, &known);
  cr_expect_str_eq(json_string_value(json_object_get(json_object_get(agents, "nearest"), "name")),
                   "node2");
}
