/* Folders of kernels: the flat manifest of a version, and the folders that are refused. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/kernel/kernel_folder.h"

static char folder[] = "/tmp/wavetune-test-folder-XXXXXX";

static void put(const char *path, const char *text) {
  cleanup_free char *full = xasprintf("%s/%s", folder, path);
  struct error error;
  cr_assert(file_write_atomically(full, text, strlen(text), 0644, &error), "%s", error.message);
}

/* What all versions of the folder share, without its closing brace. */
#define SHARED                                                                                     \
  "{\"name\": \"copy\", \"key\": [\"n\"],"                                                         \
  " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": "    \
  "\"write\"}],"                                                                                   \
  " \"reference\": {\"source\": \"reference.c\", \"outputs\": {\"y\": \"copy_at\"}}, \"flops\": "  \
  "\"n\""
#define PLAIN                                                                                      \
  "\"plain\": {\"language\": \"c\", \"entry\": \"copy\", \"sources\": [\"plain.c\", "              \
  "\"lib/tile.h\"]}"
#define WIDE                                                                                       \
  "\"wide\": {\"language\": \"c\", \"entry\": \"copy\", \"sources\": [\"wide.c\"], \"space\": "    \
  "\"wide.space.json\","                                                                           \
  " \"flops\": \"2 * n\", \"defines\": {\"WIDTH\": \"BLOCK\"}}"
#define ONE SHARED ", \"versions\": {" PLAIN "}}"
#define TWO SHARED ", \"versions\": {" PLAIN ", " WIDE "}}"

static void make_folder(void) {
  cr_assert_not_null(mkdtemp(folder));
  cleanup_free char *lib = xasprintf("%s/lib", folder);
  cr_assert(mkdir(lib, 0755) == 0);
  put("plain.c", "void copy(void);\n");
  put("wide.c", "wide\n");
  put("lib/tile.h", "#define TILE 4\n");
  put("reference.c", "double copy_at(void);\n");
  put("space.json", "{\"parameters\": {\"BLOCK\": [4, 8]}}");
  put("wide.space.json", "{\"parameters\": {\"BLOCK\": [4, 8, 16]}}");
}

static void remove_folder(void) {
  struct error error;
  cr_expect(folder_remove(folder, &error));
}

TestSuite(kernel_folder, .init = make_folder, .fini = remove_folder);

static struct kernel_folder *loaded(const char *version) {
  cleanup_free char *place = xasprintf("%s%s", folder, version);
  struct kernel_folder *got = NULL;
  struct error error;
  cr_assert(kernel_folder_load(place, &got, &error), "%s: %s", error.pointer, error.message);
  return got;
}

static void assert_refused_at(const char *version, const char *message) {
  cleanup_free char *place = xasprintf("%s%s", folder, version);
  struct kernel_folder *got = NULL;
  struct error error;
  cr_assert_not(kernel_folder_load(place, &got, &error), "%s was taken", place);
  cr_assert(strstr(error.message, message), "no \"%s\" in: %s", message, error.message);
}

static void assert_refused(const char *document, const char *message) {
  put("kernel.json", document);
  assert_refused_at("", message);
}

Test(kernel_folder, one_version_needs_no_name) {
  put("kernel.json", ONE);
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  cr_assert_str_eq(got->kernel->name, "copy/plain");
  cr_assert_eq(got->space->raw_count, 2u);
  cr_assert_eq(got->n_files, 3u);
}

Test(kernel_folder, the_manifest_has_the_digests_of_the_files) {
  put("kernel.json", ONE);
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  struct digest plain = digest_of("void copy(void);\n", 17),
                reference = digest_of("double copy_at(void);\n", 22);
  cr_assert_str_eq(got->kernel->sources[0].path, "plain.c");
  cr_assert(digest_equal(&got->kernel->sources[0].digest, &plain));
  cr_assert_str_eq(got->kernel->sources[1].path, "lib/tile.h");
  cr_assert_str_eq(got->kernel->reference.source.path, "reference.c");
  cr_assert(digest_equal(&got->kernel->reference.source.digest, &reference));
  for (size_t i = 0; i < got->n_files; i++) {
    struct digest digest = digest_of(got->files[i].bytes, got->files[i].size);
    cr_assert(digest_equal(&got->files[i].digest, &digest));
  }
}

Test(kernel_folder, a_version_is_named_after_a_colon) {
  put("kernel.json", TWO);
  cleanup_kernel_folder struct kernel_folder *got = loaded(":wide");
  cr_assert_str_eq(got->kernel->name, "copy/wide");
  cr_assert_eq(got->space->raw_count, 3u);
}

Test(kernel_folder, members_of_a_version_replace_those_of_the_folder) {
  put("kernel.json", TWO);
  cleanup_kernel_folder struct kernel_folder *wide = loaded(":wide"), *plain = loaded(":plain");
  cr_assert_str_eq(wide->kernel->flops, "2 * n");
  cr_assert_eq(wide->kernel->n_defines, 1u);
  cr_assert_str_eq(plain->kernel->flops, "n");
  cr_assert_eq(plain->kernel->n_defines, 0u);
}

Test(kernel_folder, a_file_that_two_members_name_is_read_once) {
  put("kernel.json",
      SHARED ", \"versions\": {\"both\": {\"language\": \"c\", \"entry\": \"copy\", \"sources\": "
             "[\"plain.c\", \"reference.c\"]}}}");
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  cr_assert_eq(got->n_files, 2u);
}

Test(kernel_folder, a_folder_with_a_colon_in_its_name_is_found) {
  char old[sizeof folder];
  strcpy(old, folder);
  folder[strlen(folder) - 2] = ':';
  cr_assert(rename(old, folder) == 0);
  put("kernel.json", ONE);
  cleanup_kernel_folder struct kernel_folder *plain = loaded(""), *named = loaded(":plain");
  cr_assert(digest_equal(&plain->kernel->hash, &named->kernel->hash));
}

Test(kernel_folder, a_colon_before_the_last_slash_names_no_version) {
  assert_refused_at("/none:x/y", "cannot open");
}

Test(kernel_folder, an_ambiguous_version_is_an_error_that_lists_the_versions) {
  put("kernel.json", TWO);
  assert_refused_at("", "has several versions: name one of plain, wide, like ");
}

Test(kernel_folder, a_missing_version_is_an_error_that_lists_the_versions) {
  put("kernel.json", TWO);
  assert_refused_at(":narrow", "has no version \"narrow\"; it has plain, wide");
}

Test(kernel_folder, wrong_documents_are_refused_with_file_and_place) {
  assert_refused("{", "/kernel.json: not a JSON document");
  assert_refused("[]", "/kernel.json: must be an object");
  assert_refused(SHARED "}", "/kernel.json, at /versions: member \"versions\" is missing");
  assert_refused(SHARED ", \"versions\": {}}", "at least one version");
  assert_refused(SHARED ", \"entry\": \"x\", \"versions\": {" PLAIN "}}",
                 "at /entry: unknown member");
  assert_refused(SHARED ", \"versions\": {\"a b\": {}}}", "at /versions/a b: a version's name");
  assert_refused(SHARED ", \"versions\": {\"a\": 1}}", "at /versions/a: must be an object");
  assert_refused(SHARED ", \"versions\": {\"a\": {\"key\": []}}}",
                 "at /versions/a/key: unknown member");
  assert_refused(SHARED ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\"}}}",
                 "at /sources: member \"sources\" is missing");
  assert_refused(
      SHARED ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\", \"sources\": [1]}}}",
      "at /sources/0: a source must be the path of a file");
  assert_refused(
      SHARED
      ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\", \"sources\": [\"../x\"]}}}",
      "at /sources/0: a path must be relative");
  assert_refused(SHARED
                 ", \"versions\": {\"a\": {\"language\": \"rust\", \"entry\": \"x\", \"sources\": "
                 "[\"plain.c\"]}}}",
                 "version \"a\": ");
  assert_refused("{\"key\": [], \"versions\": {" PLAIN "}}",
                 "at /name: member \"name\" is missing");
}

Test(kernel_folder, a_reference_may_be_missing_where_the_language_allows_it) {
  assert_refused("{\"name\": \"copy\", \"key\": [\"n\"], \"arguments\": [], \"versions\": {" PLAIN
                 "}}",
                 "at /reference: member \"reference\" is missing");
}

Test(kernel_folder, wrong_references_are_refused) {
#define WITH_REFERENCE(reference)                                                                  \
  "{\"name\": \"copy\", \"key\": [\"n\"], \"arguments\": [], \"reference\": " reference            \
  ", \"versions\": {" PLAIN "}}"
  assert_refused(WITH_REFERENCE("1"), "at /reference: ");
  assert_refused(WITH_REFERENCE("{}"), "at /reference/source: member \"source\" is missing");
  assert_refused(WITH_REFERENCE("{\"source\": {}}"),
                 "at /reference/source: a source must be the path");
  assert_refused(WITH_REFERENCE("{\"source\": \"none.c\"}"), "at /reference/source: cannot open");
}

Test(kernel_folder, too_many_sources_are_refused) {
  json_t *sources = json_array();
  for (int i = 0; i <= KERNEL_SOURCES_MAX; i++)
    json_array_append_new(sources, json_string("plain.c"));
  cleanup_free char *list = json_dumps(sources, 0);
  json_decref(sources);
  cleanup_free char *document = xasprintf(
      SHARED ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\", \"sources\": %s}}}",
      list);
  assert_refused(document, "at most 64 sources");
}

Test(kernel_folder, wrong_spaces_are_refused_with_their_file) {
  put("kernel.json", ONE);
  put("space.json", "{\"parameters\": 1}");
  assert_refused_at("", "/space.json, at /parameters: ");
  put("space.json", "{");
  assert_refused_at("", "/space.json: not a JSON document");
  assert_refused(
      SHARED
      ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\", \"sources\": [\"plain.c\"],"
      " \"space\": \"../space.json\"}}}",
      "at /space: a path must be relative");
  assert_refused(
      SHARED
      ", \"versions\": {\"a\": {\"language\": \"c\", \"entry\": \"x\", \"sources\": [\"plain.c\"],"
      " \"space\": 1}}}",
      "at /space: ");
}

#define CHANGED(changes)                                                                           \
  SHARED ", \"versions\": {\"half\": {\"language\": \"c\", \"entry\": \"copy\", \"sources\": "     \
         "[\"plain.c\"], \"arguments\": " changes "}}}"

Test(kernel_folder, a_version_may_change_arguments_by_name) {
  put("kernel.json", CHANGED("{\"y\": {\"dtype\": \"float16\"}}"));
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  cr_assert_eq(got->kernel->n_arguments, 1u);
  cr_expect_eq(got->kernel->arguments[0].dtype, DTYPE_FLOAT16);
  cr_expect_eq(got->kernel->arguments[0].access, ACCESS_WRITE);
}

Test(kernel_folder, changes_that_fit_no_argument_are_refused) {
  assert_refused(CHANGED("{\"z\": {\"dtype\": \"float16\"}}"),
                 "at /arguments/z: it changes an argument");
  assert_refused(CHANGED("{\"y\": \"float16\"}"),
                 "at /arguments/y: a change of an argument is an object");
  assert_refused(CHANGED("{\"y\": null}"), "\"y\" is not a buffer that the kernel writes");
}

Test(kernel_folder, missing_files_are_refused) {
  assert_refused_at("", "kernel.json: No such file");
  put("kernel.json", ONE);
  cleanup_free char *path = xasprintf("%s/plain.c", folder);
  unlink(path);
  assert_refused_at("", "at /sources/0: cannot open ");
  put("plain.c", "");
  path[strlen(folder)] = '\0';
  cleanup_free char *space = xasprintf("%s/space.json", folder);
  unlink(space);
  assert_refused_at("", "/space.json: No such file");
}

Test(kernel_folder, a_link_that_leads_out_of_the_folder_is_refused) {
  put("kernel.json", ONE);
  cleanup_free char *path = xasprintf("%s/plain.c", folder);
  unlink(path);
  cr_assert(symlink("/etc/hostname", path) == 0);
  assert_refused_at("", "leads out of its folder by a link");
}

Test(kernel_folder, a_link_within_the_folder_is_followed) {
  put("kernel.json", ONE);
  cleanup_free char *path = xasprintf("%s/plain.c", folder);
  unlink(path);
  cr_assert(symlink("wide.c", path) == 0);
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  cr_assert_str_eq(got->files[0].bytes, "wide\n");
  cr_assert_str_eq(got->files[0].path, "plain.c");
}

Test(kernel_folder, a_file_over_the_limit_is_refused) {
  put("kernel.json", ONE);
  cleanup_free char *path = xasprintf("%s/plain.c", folder);
  cr_assert(truncate(path, (1 << 20) + 1) == 0);
  assert_refused_at("", "plain.c");
  cr_assert(truncate(path, 1 << 20) == 0);
  cleanup_kernel_folder struct kernel_folder *got = loaded("");
  cr_assert_eq(got->files[0].size, (size_t)1 << 20);
}

#define ENTRY(more)                                                                                \
  SHARED                                                                                           \
  ", \"launch\": {\"grid\": [\"n\"]}, \"versions\": {\"table\": {\"language\": \"triton\", "       \
  "\"entry\": \"copy\", \"from\": {\"module\": \"package.ops\"}, \"captured\": {\"key\": "         \
  "{}}, "                                                                                          \
  "\"constexprs\": {}" more "}}}"

Test(kernel_folder, an_entry_is_described) {
  cleanup_kernel_folder struct kernel_folder *got = NULL;
  struct error error;
  put("kernel.json", ENTRY(""));
  cr_assert(kernel_folder_describe(folder, &got, &error), "%s", error.message);
  cr_assert_str_eq(got->module, "package.ops");
  cr_assert_str_eq(got->kernel->name, "copy/table");
  cr_assert_eq(got->space->raw_count, 2u);
  cr_assert_eq(got->n_files, 1u, "the reference");
}

Test(kernel_folder, an_entry_has_no_source_and_is_refused_with_what_makes_one) {
  assert_refused(ENTRY(""), "its function is in package.ops: make its kernel folder with "
                            "`python3 -m wavetune pack /tmp/");
  assert_refused(ENTRY(", \"sources\": [\"plain.c\"]"), "has both \"from\" and \"sources\"");
}

Test(kernel_folder, only_an_entry_says_which_launches_are_its) {
  assert_refused(SHARED ", \"versions\": {\"plain\": {\"language\": \"c\", \"entry\": \"copy\", "
                        "\"sources\": [\"plain.c\"], \"captured\": {}}}}",
                 "captured");
}
