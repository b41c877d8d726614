/* Ed25519 through OpenSSL's EVP: making and reading key files, signing, verifying.
 *
 * Memory: keys own their OpenSSL objects; what was read of a private key is wiped. Threads: any. */
#include "common/cache/signing_key.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include "common/base/file.h"

#define KEY_FILE_MAX ((size_t)64 << 10)
#define PUBLIC_SIZE 32
#define TRUSTED_MAX 64

DEFINE_CLEANUP(BIO *, cleanup_bio_free, BIO_free_all)
#define cleanup_bio cleanup_by(cleanup_bio_free)
DEFINE_CLEANUP(EVP_MD_CTX *, cleanup_context_free, EVP_MD_CTX_free)
#define cleanup_context cleanup_by(cleanup_context_free)

void signing_key_release(struct signing_key *key) {
  EVP_PKEY_free(key->pkey);
  *key = (struct signing_key){0};
}

/* The raw bytes of the public key. */
static void public_bytes(const EVP_PKEY *pkey, uint8_t raw[PUBLIC_SIZE]) {
  size_t size = PUBLIC_SIZE;
  ALWAYS(EVP_PKEY_get_raw_public_key(pkey, raw, &size) == 1 && size == PUBLIC_SIZE);
}

static struct digest id_of(const EVP_PKEY *pkey) {
  uint8_t raw[PUBLIC_SIZE];
  public_bytes(pkey, raw);
  return digest_of(raw, sizeof raw);
}

/* Decodes base64 of exactly `size` bytes, 64 at most. EVP_DecodeBlock accepts white space and
 * loose padding bits; here only the text that encoding returns is accepted. */
static bool base64_decode(const char *text, uint8_t *ret, size_t size) {
  uint8_t decoded[SIGNATURE_TEXT_SIZE];
  char again[SIGNATURE_TEXT_SIZE];
  int n_groups = (int)(size + 2) / 3;
  if (strlen(text) != 4 * (size_t)n_groups ||
      EVP_DecodeBlock(decoded, (const unsigned char *)text, 4 * n_groups) != 3 * n_groups)
    return false;
  EVP_EncodeBlock((unsigned char *)again, decoded, (int)size);
  memcpy(ret, decoded, size);
  return string_equal(text, again);
}

/* Writes the content of `from` to a new file. */
static bool file_create(const char *path, BIO *from, mode_t mode, struct error *error) {
  char *bytes;
  long size = BIO_get_mem_data(from, &bytes);
  cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

  if (fd < 0 && errno == EEXIST)
    return error_set(error, "%s is there already; a key is never overwritten, name another file",
                     path);
  if (fd < 0)
    return error_set(error, "cannot create %s: %s", path, strerror(errno));
  if (fd_write_all(fd, bytes, (size_t)size) && fsync(fd) == 0 && folder_sync(path))
    return true;

  int reason = errno;
  unlink(path);
  return error_set(error, "cannot write %s: %s", path, strerror(reason));
}

bool signing_key_create(const char *path, struct signing_key *ret, struct error *error) {
  cleanup_free char *public_path = xasprintf("%s.pub", path);
  cleanup_signing_key struct signing_key key = {.is_private = true};
  cleanup_bio BIO *private_pem = BIO_new(BIO_s_secmem()), *public_pem = BIO_new(BIO_s_mem());

  key.pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
  ALWAYS(key.pkey && private_pem && public_pem &&
         PEM_write_bio_PKCS8PrivateKey(private_pem, key.pkey, NULL, NULL, 0, NULL, NULL) == 1 &&
         PEM_write_bio_PUBKEY(public_pem, key.pkey) == 1);
  key.id = id_of(key.pkey);
  if (!file_create(public_path, public_pem, 0644, error))
    return false;
  if (!file_create(path, private_pem, 0600, error)) {
    unlink(public_path);
    return false;
  }

  *ret = key;
  key.pkey = NULL;
  return true;
}

/* The kind of the first PEM block; a second block is refused rather than ignored. */
static bool pem_kind(const char *path, const char *text, size_t size, char kind[64],
                     struct error *error) {
  cleanup_bio BIO *bio = BIO_new_mem_buf(text, (int)size);
  ALWAYS(bio != NULL);

  for (int n = 0;; n++) {
    char *name, *header;
    unsigned char *data;
    long data_size;
    if (PEM_read_bio(bio, &name, &header, &data, &data_size) != 1) {
      bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
      ERR_clear_error();
      if (n == 1 && is_at_end)
        return true;
      return error_set(error, "%s is not a key in PEM%s; `wavetune key new FILE` makes one", path,
                       is_at_end ? "" : ": it is damaged");
    }
    snprintf(kind, 64, "%s", name);
    OPENSSL_cleanse(data, (size_t)data_size);
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(data);
    if (n == 1)
      return error_set(error, "%s holds more than one PEM block; write each key to a separate file",
                       path);
  }
}

static int no_passphrase(char *buffer, int size, int is_writing, void *context) {
  (void)buffer, (void)size, (void)is_writing, (void)context;
  return -1;
}

static bool key_parse(const char *path, const char *text, size_t size, bool only_public,
                      struct signing_key *ret, struct error *error) {
  char kind[64];
  if (!pem_kind(path, text, size, kind, error))
    return false;

  bool is_private = string_equal(kind, "PRIVATE KEY");
  if (string_equal(kind, "ENCRYPTED PRIVATE KEY"))
    return error_set(
        error,
        "%s is encrypted with a passphrase, which cannot be typed here; `openssl pkey -in %s` "
        "writes it without",
        path, path);
  if (!is_private && !string_equal(kind, "PUBLIC KEY"))
    return error_set(
        error, "%s is a PEM file of \"%s\", not an Ed25519 key (\"PRIVATE KEY\" or \"PUBLIC KEY\")",
        path, kind);
  if (is_private && only_public)
    return error_set(
        error,
        "%s is a private key, which belongs to the publisher alone; give the public one, %s.pub",
        path, path);
  if (is_private && !file_is_private(path, false, error))
    return false;

  cleanup_bio BIO *bio = BIO_new_mem_buf(text, (int)size);
  ALWAYS(bio != NULL);

  cleanup_signing_key struct signing_key key = {.is_private = is_private};
  key.pkey = is_private ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL)
                        : PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL);
  ERR_clear_error();
  if (!key.pkey)
    return error_set(error, "%s holds no key that OpenSSL can read", path);
  if (!EVP_PKEY_is_a(key.pkey, "ED25519")) {
    const char *type = EVP_PKEY_get0_type_name(key.pkey);
    return error_set(error,
                     "%s is a key of type %s, and signatures here are Ed25519; `wavetune key new "
                     "FILE` makes one",
                     path, type ? type : "unknown");
  }

  key.id = id_of(key.pkey);
  *ret = key;
  key.pkey = NULL;
  return true;
}

static bool key_read(const char *path, bool only_public, struct signing_key *ret,
                     struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, KEY_FILE_MAX, &text, &size, error))
    return false;
  bool ok = key_parse(path, text, size, only_public, ret, error);
  OPENSSL_cleanse(text, size);
  return ok;
}

bool signing_key_read(const char *path, struct signing_key *ret, struct error *error) {
  return key_read(path, false, ret, error);
}

void trusted_keys_release(struct trusted_keys *keys) {
  for (size_t i = 0; i < keys->n; i++)
    signing_key_release(&keys->all[i]);
  free(keys->all);
  *keys = (struct trusted_keys){0};
}

static bool trusted_key_add(struct trusted_keys *keys, const char *path, struct error *error) {
  cleanup_signing_key struct signing_key key = {0};
  if (!key_read(path, true, &key, error))
    return false;
  if (trusted_keys_find(keys, &key.id))
    return true;
  if (keys->n == TRUSTED_MAX)
    return error_set(error, "%s is one trusted key too many; at most %d are read", path,
                     TRUSTED_MAX);

  *APPEND(keys->all, keys->n) = key;
  key.pkey = NULL;
  return true;
}

static int is_public_name(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 4 && entry->d_name[0] != '.' && string_equal(entry->d_name + length - 4, ".pub");
}

bool trusted_keys_add(struct trusted_keys *keys, const char *path, struct error *error) {
  struct stat status;
  if (stat(path, &status) < 0)
    return error_set(error, "cannot read the trusted key %s: %s", path, strerror(errno));
  if (!S_ISDIR(status.st_mode))
    return trusted_key_add(keys, path, error);
  struct dirent **entries;
  int n = scandir(path, &entries, is_public_name, alphasort);
  if (n < 0)
    return error_set(error, "cannot read the folder of trusted keys %s: %s", path, strerror(errno));

  bool is_good = n > 0 || error_set(error, "the folder of trusted keys %s has no *.pub file", path);
  for (int i = 0; i < n; i++) {
    cleanup_free struct dirent *entry = entries[i];
    cleanup_free char *file = xasprintf("%s/%s", path, entry->d_name);
    is_good = is_good && trusted_key_add(keys, file, error);
  }

  free(entries);
  return is_good;
}

bool trusted_keys_add_all(struct trusted_keys *keys, const char *const *paths, size_t n,
                          struct error *error) {
  const char *more = getenv("WAVETUNE_TRUSTED_KEYS");
  for (size_t i = 0; i < n; i++)
    if (!trusted_keys_add(keys, paths[i], error))
      return false;

  while (more && *more) {
    cleanup_free char *path = xstrndup(more, strcspn(more, ":"));
    more += strlen(path) + (more[strlen(path)] == ':');
    if (*path && !trusted_keys_add(keys, path, error))
      return error_prefix(error, "WAVETUNE_TRUSTED_KEYS: ");
  }

  return true;
}

const struct signing_key *trusted_keys_find(const struct trusted_keys *keys,
                                            const struct digest *id) {
  for (size_t i = 0; i < keys->n; i++)
    if (digest_equal(&keys->all[i].id, id))
      return &keys->all[i];
  return NULL;
}

void signing_key_public_text(const struct signing_key *key, char text[PUBLIC_KEY_TEXT_SIZE]) {
  uint8_t raw[PUBLIC_SIZE];
  public_bytes(key->pkey, raw);
  EVP_EncodeBlock((unsigned char *)text, raw, sizeof raw);
}

bool signing_key_of_public_text(const char *text, struct signing_key *ret, struct error *error) {
  uint8_t raw[PUBLIC_SIZE];
  if (!base64_decode(text, raw, sizeof raw))
    return error_set(error, "this is not a public key: it must be base64 of %d bytes", PUBLIC_SIZE);
  *ret = (struct signing_key){
      .pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, raw, sizeof raw),
      .id = digest_of(raw, sizeof raw)};
  ALWAYS(ret->pkey != NULL);
  return true;
}

void signing_key_sign(const struct signing_key *key, const void *bytes, size_t size,
                      char text[SIGNATURE_TEXT_SIZE]) {
  uint8_t signature[SIGNATURE_SIZE];
  size_t signature_size = sizeof signature;
  cleanup_context EVP_MD_CTX *context = EVP_MD_CTX_new();
  ALWAYS(context && key->is_private &&
         EVP_DigestSignInit(context, NULL, NULL, NULL, key->pkey) == 1 &&
         EVP_DigestSign(context, signature, &signature_size, bytes, size) == 1 &&
         signature_size == sizeof signature);
  EVP_EncodeBlock((unsigned char *)text, signature, sizeof signature);
}

bool signing_key_verify(const struct signing_key *key, const void *bytes, size_t size,
                        const char *signature) {
  uint8_t decoded[SIGNATURE_SIZE];
  if (!base64_decode(signature, decoded, sizeof decoded))
    return false;
  cleanup_context EVP_MD_CTX *context = EVP_MD_CTX_new();
  ALWAYS(context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key->pkey) == 1);
  bool is_good = EVP_DigestVerify(context, decoded, sizeof decoded, bytes, size) == 1;
  ERR_clear_error();
  return is_good;
}

bool signature_is_well_formed(const char *signature) {
  uint8_t decoded[SIGNATURE_SIZE];
  return base64_decode(signature, decoded, sizeof decoded);
}
