/* Key files and signatures: OpenSSL's program reads what is made here and the other way round, and
 * every refusal. */
#include "common/cache/signing_key.h"

#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/file.h"

static char folder[] = "/tmp/wavetune-test-XXXXXX";
static struct error error;

static void folder_start(void) {
  cr_assert_not_null(mkdtemp(folder));
  cr_assert(chdir(folder) == 0);
  umask(022);
}
static void folder_end(void) { cr_expect(folder_remove(folder, &error)); }
TestSuite(signing_key, .init = folder_start, .fini = folder_end);
TestSuite(trusted_keys, .init = folder_start, .fini = folder_end);

static void write_file(const char *path, const char *text, unsigned mode) {
  cr_assert(file_write_atomically(path, text, strlen(text), mode, &error), "%s", error.message);
}

static void expect_refused(const char *path, const char *what) {
  struct signing_key key;
  cr_expect_not(signing_key_read(path, &key, &error), "%s was read", path);
  cr_expect(strstr(error.message, path) && strstr(error.message, what), "%s", error.message);
}

/* The command's success; skips the test where there is no openssl program. */
static bool openssl(const char *arguments) {
  if (system("openssl version >out 2>&1") != 0)
    cr_skip_test("no openssl program");
  cleanup_free char *command = xasprintf("openssl %s >out 2>&1", arguments);
  return system(command) == 0;
}

/* Test vectors 1 and 2 of RFC 8032, section 7.1. */
static const struct vector {
  const char *secret, *public_, *message, *signature;
} vectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b"
     "46bd25bf5f0595bbe246"
     "5"
     "5141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11"
     "d8c387b2eaeb4302aeeb"
     "0"
     "0d291612bb0c00"},
};

static size_t unhex(const char *hex, uint8_t *bytes) {
  size_t n = strlen(hex) / 2;
  for (size_t i = 0; i < n; i++)
    sscanf(hex + 2 * i, "%2hhx", &bytes[i]);
  return n;
}

Test(signing_key, signs_the_vectors_of_rfc_8032) {
  for (size_t i = 0; i < ARRAY_LENGTH(vectors); i++) {
    uint8_t secret[32], public_[32], message[32], expected[SIGNATURE_SIZE],
        signature[SIGNATURE_SIZE + 2];
    char text[SIGNATURE_TEXT_SIZE];
    unhex(vectors[i].secret, secret);
    unhex(vectors[i].public_, public_);
    unhex(vectors[i].signature, expected);
    size_t size = unhex(vectors[i].message, message);
    cleanup_signing_key struct signing_key private_key = {.pkey = EVP_PKEY_new_raw_private_key(
                                                              EVP_PKEY_ED25519, NULL, secret,
                                                              sizeof secret),
                                                          .is_private = true},
                                           public_key = {.pkey = EVP_PKEY_new_raw_public_key(
                                                             EVP_PKEY_ED25519, NULL, public_,
                                                             sizeof public_)};
    signing_key_sign(&private_key, message, size, text);
    cr_assert_eq(EVP_DecodeBlock(signature, (const unsigned char *)text, SIGNATURE_TEXT_SIZE - 1),
                 SIGNATURE_SIZE + 2);
    cr_expect(memcmp(signature, expected, SIGNATURE_SIZE) == 0, "vector %zu: %s", i + 1, text);
    cr_expect(signing_key_verify(&public_key, message, size, text));
  }
}

Test(signing_key, what_was_made_reads_back_as_a_private_and_a_public_key_of_one_id) {
  cleanup_signing_key struct signing_key made = {0}, private_key = {0}, public_key = {0};
  cr_assert(signing_key_create("key", &made, &error), "%s", error.message);
  cr_assert(signing_key_read("key", &private_key, &error), "%s", error.message);
  cr_assert(signing_key_read("key.pub", &public_key, &error), "%s", error.message);
  cr_expect(made.is_private && private_key.is_private && !public_key.is_private);
  cr_expect(digest_equal(&made.id, &private_key.id) && digest_equal(&made.id, &public_key.id));
}

Test(signing_key, the_id_is_the_digest_of_the_raw_public_key) {
  uint8_t raw[32];
  unhex(vectors[0].public_, raw);
  struct digest expected = digest_of(raw, sizeof raw);
  /* SubjectPublicKeyInfo is twelve fixed bytes and the raw key. */
  write_file(
      "rfc.pub",
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
      "-----END PUBLIC KEY-----\n",
      0644);
  cleanup_signing_key struct signing_key key = {0};
  cr_assert(signing_key_read("rfc.pub", &key, &error), "%s", error.message);
  cr_expect(digest_equal(&key.id, &expected));
}

Test(signing_key, the_private_file_is_the_owners_alone_whatever_the_umask) {
  struct stat status;
  cleanup_signing_key struct signing_key key = {0};
  umask(0);
  cr_assert(signing_key_create("key", &key, &error));
  cr_assert(stat("key", &status) == 0);
  cr_expect_eq(status.st_mode & 07777, 0600u);
}

Test(signing_key, making_one_never_writes_over_a_file) {
  struct signing_key key;
  struct stat status;
  write_file("a", "mine", 0600);
  cr_expect_not(signing_key_create("a", &key, &error));
  cr_expect_neq(strstr(error.message, "a is there already"), NULL, "%s", error.message);
  cr_expect(stat("a.pub", &status) < 0, "half a pair was left");
  write_file("b.pub", "mine", 0600);
  cr_expect_not(signing_key_create("b", &key, &error));
  cr_expect_neq(strstr(error.message, "b.pub is there already"), NULL, "%s", error.message);
  cr_expect(stat("b", &status) < 0, "half a pair was left");
}

Test(signing_key, making_one_in_a_folder_that_is_not_there_is_refused) {
  struct signing_key key;
  cr_expect_not(signing_key_create("absent/key", &key, &error));
  cr_expect_neq(strstr(error.message, "cannot create absent/key.pub"), NULL, "%s", error.message);
}

Test(signing_key, what_cannot_be_written_whole_is_not_left_behind) {
  struct signing_key key;
  struct stat status;
  struct rlimit limit, none = {.rlim_cur = 0};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
  none.rlim_max = limit.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
  bool is_made = signing_key_create("key", &key, &error);
  setrlimit(RLIMIT_FSIZE, &limit);
  cr_expect_not(is_made);
  cr_expect_neq(strstr(error.message, "cannot write key.pub"), NULL, "%s", error.message);
  cr_expect(stat("key", &status) < 0 && stat("key.pub", &status) < 0);
}

Test(signing_key, a_private_file_that_others_can_read_is_refused) {
  cleanup_signing_key struct signing_key key = {0};
  cr_assert(signing_key_create("key", &key, &error));
  cr_assert(chmod("key", 0640) == 0);
  expect_refused("key", "mode 0640");
}

Test(signing_key, what_is_no_ed25519_key_in_pem_is_refused_with_what_it_is) {
  write_file("text", "hello\n", 0600);
  write_file("empty", "", 0600);
  write_file("damaged", "-----BEGIN PUBLIC KEY-----\nMCow!!\n-----END PUBLIC KEY-----\n", 0600);
  write_file("short", "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n", 0600);
  write_file("certificate", "-----BEGIN CERTIFICATE-----\nMCow\n-----END CERTIFICATE-----\n", 0600);
  write_file("encrypted",
             "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMCow\n-----END ENCRYPTED PRIVATE KEY-----\n",
             0600);
  expect_refused("absent", "No such file");
  expect_refused("text", "not a key in PEM");
  expect_refused("empty", "not a key in PEM");
  expect_refused("damaged", "it is damaged");
  expect_refused("short", "no key that OpenSSL can read");
  expect_refused("certificate", "a PEM file of \"CERTIFICATE\"");
  expect_refused("encrypted", "encrypted with a passphrase");
}

Test(signing_key, a_key_of_another_type_is_refused_by_its_name) {
  EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
  FILE *file = fopen("x25519.pub", "w");
  cr_assert(pkey && file && PEM_write_PUBKEY(file, pkey) == 1);
  fclose(file);
  EVP_PKEY_free(pkey);
  expect_refused("x25519.pub", "a key of type X25519");
}

Test(signing_key, a_file_of_two_keys_is_refused) {
  cleanup_signing_key struct signing_key a = {0}, b = {0};
  cleanup_free char *first = NULL, *second = NULL;
  size_t size;
  cr_assert(signing_key_create("a", &a, &error) && signing_key_create("b", &b, &error));
  cr_assert(file_read("a.pub", 1000, &first, &size, &error) &&
            file_read("b.pub", 1000, &second, &size, &error));
  cleanup_free char *both = xasprintf("%s%s", first, second);
  write_file("both.pub", both, 0644);
  expect_refused("both.pub", "more than one PEM block");
}

Test(signing_key, a_signature_is_over_these_bytes_by_this_key_alone) {
  cleanup_signing_key struct signing_key key = {0}, other = {0};
  char text[SIGNATURE_TEXT_SIZE];
  cr_assert(signing_key_create("key", &key, &error) && signing_key_create("other", &other, &error));
  signing_key_sign(&key, "bytes", 5, text);
  cr_expect(signing_key_verify(&key, "bytes", 5, text));
  cr_expect_not(signing_key_verify(&key, "byteS", 5, text));
  cr_expect_not(signing_key_verify(&key, "bytes", 4, text));
  cr_expect_not(signing_key_verify(&other, "bytes", 5, text));
}

Test(signing_key, a_signature_has_one_text) {
  cleanup_signing_key struct signing_key key = {0};
  char text[SIGNATURE_TEXT_SIZE];
  cr_assert(signing_key_create("key", &key, &error));
  signing_key_sign(&key, "bytes", 5, text);
  cr_expect(signature_is_well_formed(text));
  text[85]++; /* the last digit has four bits that mean nothing: here they are not zero */
  cr_expect_not(signature_is_well_formed(text));
  cr_expect_not(signing_key_verify(&key, "bytes", 5, text));
  text[85]--;
  cleanup_free char *spaced = xasprintf(" %.87s", text), *longer = xasprintf("%s\n", text);
  cr_expect_not(signature_is_well_formed(spaced));
  cr_expect_not(signature_is_well_formed(longer));
  cr_expect_not(signature_is_well_formed(""));
  memset(text, 'A', 88);
  cr_expect_not(signature_is_well_formed(text), "66 bytes are no signature");
}

Test(signing_key, openssl_reads_both_files_and_verifies_our_signature) {
  cleanup_signing_key struct signing_key key = {0};
  char text[SIGNATURE_TEXT_SIZE];
  cr_assert(signing_key_create("key", &key, &error));
  signing_key_sign(&key, "bytes", 5, text);
  write_file("signature", text, 0644);
  write_file("bytes", "bytes", 0644);
  cr_expect(openssl("pkey -in key -noout -check"));
  cr_expect(openssl("pkey -pubin -in key.pub -noout"));
  cr_expect(openssl("base64 -d -A -in signature -out raw"));
  cr_expect(openssl("pkeyutl -verify -rawin -pubin -inkey key.pub -in bytes -sigfile raw"));
  write_file("bytes", "other", 0644);
  cr_expect_not(openssl("pkeyutl -verify -rawin -pubin -inkey key.pub -in bytes -sigfile raw"));
}

Test(signing_key, what_openssl_made_and_signed_is_read_and_verified) {
  cleanup_signing_key struct signing_key key = {0}, public_key = {0};
  cleanup_free char *text = NULL;
  size_t size;
  write_file("bytes", "bytes", 0644);
  cr_assert(openssl("genpkey -algorithm ed25519 -out key") &&
            openssl("pkey -in key -pubout -out key.pub"));
  cr_assert(openssl("pkeyutl -sign -rawin -inkey key -in bytes -out raw") &&
            openssl("base64 -A -in raw -out signature"));
  cr_assert(chmod("key", 0600) == 0);
  cr_assert(signing_key_read("key", &key, &error), "%s", error.message);
  cr_assert(signing_key_read("key.pub", &public_key, &error), "%s", error.message);
  cr_assert(file_read("signature", 100, &text, &size, &error));
  cr_expect(digest_equal(&key.id, &public_key.id));
  cr_expect(signing_key_verify(&public_key, "bytes", 5, text));
}

Test(trusted_keys, are_files_and_the_public_files_of_folders_each_once) {
  cleanup_signing_key struct signing_key a = {0}, b = {0};
  cleanup_trusted_keys struct trusted_keys keys = {0};
  cr_assert(signing_key_create("a", &a, &error) && signing_key_create("b", &b, &error));
  cr_assert(trusted_keys_add(&keys, "b.pub", &error), "%s", error.message);
  cr_assert(trusted_keys_add(&keys, ".", &error), "%s", error.message);
  cr_expect_eq(keys.n, (size_t)2);
  cr_expect(digest_equal(&keys.all[0].id, &b.id) && digest_equal(&keys.all[1].id, &a.id));
}

Test(trusted_keys, are_never_private) {
  cleanup_signing_key struct signing_key key = {0};
  cleanup_trusted_keys struct trusted_keys keys = {0};
  cr_assert(signing_key_create("key", &key, &error));
  cr_expect_not(trusted_keys_add(&keys, "key", &error));
  cr_expect_neq(strstr(error.message, "key is a private key"), NULL, "%s", error.message);
  cr_expect_eq(keys.n, (size_t)0);
}

Test(trusted_keys, an_empty_folder_and_an_absent_one_are_refused) {
  cleanup_trusted_keys struct trusted_keys keys = {0};
  cr_expect_not(trusted_keys_add(&keys, ".", &error));
  cr_expect_neq(strstr(error.message, "has no *.pub file"), NULL, "%s", error.message);
  cr_expect_not(trusted_keys_add(&keys, "absent", &error));
  cr_expect_neq(strstr(error.message, "cannot read the trusted key absent"), NULL, "%s",
                error.message);
}

Test(trusted_keys, one_bad_file_in_a_folder_is_an_error) {
  cleanup_signing_key struct signing_key key = {0};
  cleanup_trusted_keys struct trusted_keys keys = {0};
  cr_assert(signing_key_create("a", &key, &error));
  write_file("b.pub", "no key", 0644);
  cr_expect_not(trusted_keys_add(&keys, ".", &error));
  cr_expect_neq(strstr(error.message, "./b.pub is not a key"), NULL, "%s", error.message);
}

Test(trusted_keys, are_sixty_four_at_most) {
  cleanup_trusted_keys struct trusted_keys keys = {0};
  for (int i = 0; i < 65; i++) {
    cleanup_free char *path = xasprintf("%d", i);
    cleanup_signing_key struct signing_key key = {0};
    cr_assert(signing_key_create(path, &key, &error));
  }
  cr_expect_not(trusted_keys_add(&keys, ".", &error));
  cr_expect_neq(strstr(error.message, "at most 64"), NULL, "%s", error.message);
}
