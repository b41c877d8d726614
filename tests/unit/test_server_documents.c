/* The documents with choices that a server keeps. */
#include <criterion/criterion.h>

#include "server/choice/documents.h"

static struct digest id_of(size_t n) { return digest_of(&n, sizeof n); }

static void add(struct documents *documents, size_t n, const char *text, bool may_change) {
  struct digest id = id_of(n);
  document_put(documents, documents_add(documents, &id, xstrdup(text), may_change,
                                        documents_dropped(documents)));
}

static bool is_kept(struct documents *documents, size_t n) {
  struct digest id = id_of(n);
  struct document *found = documents_find(documents, &id);
  if (found)
    document_put(documents, found);
  return found != NULL;
}

Test(documents, the_least_recently_used_are_dropped) {
  struct documents *documents = documents_new();
  for (size_t i = 0; i < DOCUMENTS_MAX; i++)
    add(documents, i, "{}", false);
  cr_expect(is_kept(documents, 0));
  add(documents, DOCUMENTS_MAX, "{}", false);
  cr_expect(is_kept(documents, 0) && !is_kept(documents, 1) && is_kept(documents, DOCUMENTS_MAX));
  documents_free(documents);
}

Test(documents, a_document_lives_as_long_as_it_is_used) {
  struct documents *documents = documents_new();
  struct digest id = id_of(0);
  struct document *used = documents_add(documents, &id, xstrdup("{\"first\":1}"), false, 0);
  add(documents, 0, "{}", false);
  cr_expect_str_eq(used->text, "{\"first\":1}");
  (void)document_index(documents, used);
  document_put(documents, used);
  cr_expect(is_kept(documents, 0));
  documents_free(documents);
}

Test(documents, those_that_may_change_are_listed) {
  struct documents *documents = documents_new();
  size_t n;
  for (size_t i = 0; i < 3; i++)
    add(documents, i, "{}", i == 1);
  cleanup_free struct digest *ids = documents_changing(documents, &n);
  struct digest expected = id_of(1);
  cr_expect(n == 1 && digest_equal(&ids[0], &expected));
  documents_free(documents);
}

Test(documents, one_that_was_being_made_when_others_were_dropped_is_not_kept) {
  struct documents *documents = documents_new();
  struct digest id = id_of(0);
  uint64_t since = documents_dropped(documents);
  add(documents, 1, "{}", false);
  documents_drop(documents);
  struct document *late = documents_add(documents, &id, xstrdup("{}"), false, since);
  cr_expect(!is_kept(documents, 0) && !is_kept(documents, 1));
  cr_expect(document_index(documents, late) != NULL, "its maker may use it");
  document_put(documents, late);
  add(documents, 0, "{}", false);
  cr_expect(is_kept(documents, 0));
  documents_free(documents);
}

Test(documents, parsed_choices_count_too) {
  static const char head[] = "{\"code\":{},\"functions\":{\"f\":{\"choices\":[{\"config\":1,"
                             "\"key\":[\"1\"]}],\"name\":\"";
  struct documents *documents = documents_new();
  size_t size = DOCUMENTS_BYTES_MAX / 10;
  char *text = xmalloc(size + sizeof head + 8), *at = stpcpy(text, head);
  memset(at, 'x', size);
  strcpy(at + size, "\"}}}");
  add(documents, 0, "{}", false);
  struct digest id = id_of(1);
  struct document *large = documents_add(documents, &id, text, false, documents_dropped(documents));
  add(documents, 2, "{}", false);
  cr_expect(is_kept(documents, 1) && is_kept(documents, 0));
  const json_t *index = document_index(documents, large);
  cr_expect(json_object_get(index, "f [\"1\"]") != NULL && json_object_size(index) == 1);
  cr_expect(document_index(documents, large) == index && large->json != NULL);
  cr_expect(is_kept(documents, 0) && is_kept(documents, 1));
  document_put(documents, large);

  large = documents_add(documents, &(struct digest){{1}}, xstrdup(large->text), false,
                        documents_dropped(documents));
  cr_expect(!is_kept(documents, 2), "the two texts and the index exceed the limit");
  document_put(documents, large);
  documents_free(documents);
}
