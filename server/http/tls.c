/* GnuTLS, which libmicrohttpd uses: certificates and keys from files, and names from clients'
 * certificates. */
#include "server/http/tls.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#define FILE_MAX ((size_t)1 << 20)
#define CHAIN_MAX 16
#define NAME_LENGTH_MAX 250 /* without the prefix */
#define ALTERNATIVE_NAME_MAX 4096
#define KEY_ID_SIZE 32 /* SHA-256 */
#define FILES 3

/* The content of the files. */
struct material {
  gnutls_x509_crt_t *chain;
  unsigned n_chain;
  gnutls_x509_privkey_t key;
  gnutls_x509_trust_list_t clients; /* NULL: no client certificates are requested */
};

/* Differs when a file was changed or replaced. All zero: there is no file. */
struct stamp {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec changed;
};

struct tls {
  char *paths[FILES];    /* certificate, key, client_ca */
  pthread_rwlock_t lock; /* of material */
  struct material material;
  pthread_mutex_t reload_lock;           /* of the stamps, and held while files are read */
  struct stamp read[FILES], seen[FILES]; /* of the last reading; of the last check */
};

static struct tls *_Atomic serving;

static void material_release(struct material *material) {
  for (unsigned i = 0; i < material->n_chain; i++)
    gnutls_x509_crt_deinit(material->chain[i]);
  gnutls_free(material->chain);
  if (material->key)
    gnutls_x509_privkey_deinit(material->key);
  if (material->clients)
    gnutls_x509_trust_list_deinit(material->clients, 1);
  *material = (struct material){0};
}
#define cleanup_material __attribute__((cleanup(material_release)))

static bool chain_read(const char *path, gnutls_x509_crt_t **ret_chain, unsigned *ret_n,
                       struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, FILE_MAX, &text, &size, error))
    return false;

  gnutls_datum_t pem = {(unsigned char *)text, (unsigned)size};
  int reason = gnutls_x509_crt_list_import2(ret_chain, ret_n, &pem, GNUTLS_X509_FMT_PEM, 0);
  if (reason < 0 || *ret_n == 0)
    return error_set(error, "%s holds no certificate in PEM: %s", path,
                     reason < 0 ? gnutls_strerror(reason) : "it is empty");

  return true;
}

static bool key_read(const char *path, gnutls_x509_privkey_t *ret_key, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_is_private(path, true, error) || !file_read(path, FILE_MAX, &text, &size, error))
    return false;

  gnutls_datum_t pem = {(unsigned char *)text, (unsigned)size};
  bool is_encrypted = strstr(text, "ENCRYPTED") != NULL;
  ALWAYS(gnutls_x509_privkey_init(ret_key) == 0);
  int reason = gnutls_x509_privkey_import2(*ret_key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
  explicit_bzero(text, size);
  if (reason < 0 && is_encrypted)
    return error_set(
        error,
        "%s is encrypted with a passphrase, which the server does not have; store the key "
        "without one",
        path);
  if (reason < 0)
    return error_set(error, "%s holds no private key in PEM: %s", path, gnutls_strerror(reason));
  return true;
}

static bool authorities_read(const char *path, gnutls_x509_trust_list_t *ret_clients,
                             struct error *error) {
  gnutls_x509_crt_t *authorities = NULL;
  unsigned n = 0, not_one = 0;
  if (!chain_read(path, &authorities, &n, error))
    return false;

  for (unsigned i = n; i > 0; i--)
    if (gnutls_x509_crt_get_ca_status(authorities[i - 1], NULL) <= 0)
      not_one = i;

  ALWAYS(gnutls_x509_trust_list_init(ret_clients, 0) == 0);
  gnutls_x509_trust_list_add_cas(*ret_clients, authorities, n, 0); /* owns the certificates now */
  gnutls_free(authorities);
  return not_one == 0 ||
         error_set(error,
                   "certificate %u in %s is not an authority's; give the authorities that sign "
                   "clients' certificates, not the clients' certificates",
                   not_one, path);
}

static bool material_read(const struct tls *tls, struct material *ret, struct error *error) {
  cleanup_material struct material material = {0};
  const char *certificate = tls->paths[0], *key = tls->paths[1], *client_ca = tls->paths[2];
  if (client_ca && !authorities_read(client_ca, &material.clients, error))
    return error_prefix(error, "--tls-client-ca: ");
  if (certificate) {
    if (!chain_read(certificate, &material.chain, &material.n_chain, error))
      return error_prefix(error, "--tls-certificate: ");
    if (material.n_chain > CHAIN_MAX)
      return error_set(error,
                       "--tls-certificate: %s holds %u certificates; a server sends its own and "
                       "its issuers', %d at most",
                       certificate, material.n_chain, CHAIN_MAX);
    if (!key_read(key, &material.key, error))
      return error_prefix(error, "--tls-key: ");

    unsigned char ids[2][KEY_ID_SIZE];
    size_t sizes[2] = {KEY_ID_SIZE, KEY_ID_SIZE};
    if (gnutls_x509_crt_get_key_id(material.chain[0], GNUTLS_KEYID_USE_SHA256, ids[0], &sizes[0]) ||
        gnutls_x509_privkey_get_key_id(material.key, GNUTLS_KEYID_USE_SHA256, ids[1], &sizes[1]) ||
        sizes[0] != sizes[1] || memcmp(ids[0], ids[1], sizes[0]) != 0)
      return error_set(error,
                       "--tls-key: %s is not the key of the first certificate in %s; give the two "
                       "that belong together, the server's certificate before its issuers'",
                       key, certificate);
  }

  *ret = material;
  material = (struct material){0};
  return true;
}

static void stamps_take(const struct tls *tls, struct stamp stamps[FILES]) {
  memset(stamps, 0, FILES * sizeof *stamps);
  for (size_t i = 0; i < FILES; i++) {
    struct stat status;
    if (!tls->paths[i] || stat(tls->paths[i], &status) < 0)
      continue;
    stamps[i].device = status.st_dev;
    stamps[i].inode = status.st_ino;
    stamps[i].size = status.st_size;
    stamps[i].changed = status.st_ctim;
  }
}

/* Logs until when the certificate is valid. */
static void validity_log(const struct material *material, const char *path) {
  time_t until, now = time(NULL);
  char day[32];
  struct tm parts;

  if (!material->n_chain)
    return;

  until = gnutls_x509_crt_get_expiration_time(material->chain[0]);
  strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&until, &parts));
  if (until < now)
    log_error("tls: the certificate in %s expired at %s: clients refuse it", path, day);
  else
    log_info("tls: new connections use the certificate in %s, which is valid until %s", path, day);
}

bool tls_new(const struct tls_files *files, struct tls **ret_tls, struct error *error) {
  if (!files->certificate != !files->key)
    return error_set(error,
                     "--tls-certificate and --tls-key belong together; give both or neither");

  *ret_tls = NULL;
  if (!files->certificate && !files->client_ca)
    return true;

  struct tls *tls = xcalloc(1, sizeof *tls);
  const char *const paths[FILES] = {files->certificate, files->key, files->client_ca};
  for (size_t i = 0; i < FILES; i++)
    tls->paths[i] = paths[i] ? xstrdup(paths[i]) : NULL;
  pthread_rwlock_init(&tls->lock, NULL);
  pthread_mutex_init(&tls->reload_lock, NULL);
  stamps_take(tls, tls->read);
  memcpy(tls->seen, tls->read, sizeof tls->seen);
  if (!material_read(tls, &tls->material, error)) {
    tls_free(tls);
    return false;
  }

  validity_log(&tls->material, tls->paths[0]);
  if (tls->paths[0])
    atomic_store(&serving, tls);
  *ret_tls = tls;
  return true;
}

void tls_free(struct tls *tls) {
  if (!tls)
    return;

  struct tls *expected = tls;
  atomic_compare_exchange_strong(&serving, &expected, NULL);
  material_release(&tls->material);
  for (size_t i = 0; i < FILES; i++)
    free(tls->paths[i]);
  pthread_rwlock_destroy(&tls->lock);
  pthread_mutex_destroy(&tls->reload_lock);
  free(tls);
}

bool tls_serves(const struct tls *tls) { return tls->paths[0] != NULL; }
bool tls_asks_clients(const struct tls *tls) { return tls->paths[2] != NULL; }

/* Reads the files, whose stamps are `now`. Under reload_lock, so that a slower reading does not
 * replace a newer one. */
static void reload(struct tls *tls, const struct stamp now[FILES]) {
  struct error error;
  struct material material = {0};
  memcpy(tls->read, now, sizeof tls->read);
  memcpy(tls->seen, now, sizeof tls->seen);
  if (!material_read(tls, &material, &error)) {
    log_error("tls: %s; the content that was read before stays in use", error.message);
    return;
  }

  pthread_rwlock_wrlock(&tls->lock);
  struct material before = tls->material;
  tls->material = material;
  pthread_rwlock_unlock(&tls->lock);
  material_release(&before);
  validity_log(&material, tls->paths[0]);
  if (!tls->paths[0])
    log_info("tls: clients' certificates are checked against the authorities in %s, which were "
             "read again",
             tls->paths[2]);
}

void tls_reload(struct tls *tls) {
  struct stamp now[FILES];
  HOLD(&tls->reload_lock);
  stamps_take(tls, now);
  reload(tls, now);
}

/* The certificate and its key are two files, which are never replaced at the same instant: the
 * files must be the same in two calls. */
void tls_reload_changed(struct tls *tls) {
  struct stamp now[FILES];
  HOLD(&tls->reload_lock);
  stamps_take(tls, now);
  bool has_settled = memcmp(now, tls->seen, sizeof now) == 0;
  if (has_settled && memcmp(now, tls->read, sizeof now) != 0)
    reload(tls, now);
  memcpy(tls->seen, now, sizeof now);
}

/* Gives GnuTLS copies, which it frees with the session: a reload may happen during a handshake. */
int tls_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                 gnutls_pcert_st **certs, unsigned *n_certs, gnutls_ocsp_data_st **ocsp,
                 unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags) {
  struct tls *tls = atomic_load(&serving);
  gnutls_pcert_st *copies;
  (void)info;

  ALWAYS(tls != NULL);
  pthread_rwlock_rdlock(&tls->lock);
  const struct material *material = &tls->material;
  copies = gnutls_calloc(material->n_chain, sizeof *copies);
  ALWAYS(copies && gnutls_privkey_init(key) == 0 &&
         gnutls_privkey_import_x509(*key, material->key, GNUTLS_PRIVKEY_IMPORT_COPY) == 0);
  for (unsigned i = 0; i < material->n_chain; i++)
    ALWAYS(gnutls_pcert_import_x509(&copies[i], material->chain[i], 0) == 0);
  *n_certs = material->n_chain;

  /* Requested, not required: a client without a certificate may have a token. */
  if (material->clients)
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
  pthread_rwlock_unlock(&tls->lock);

  *certs = copies;
  *ocsp = NULL;
  *n_ocsp = 0;
  *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
  return 0;
}

/* Refuses a text that is too long before reading it: it may be longer than its buffer. */
static bool text_is_printable(const char *text, size_t size) {
  if (size == 0 || size > NAME_LENGTH_MAX)
    return false;
  for (size_t i = 0; i < size; i++)
    if (text[i] < 0x20 || text[i] > 0x7e)
      return false;
  return true;
}

bool tls_name_is_good(const char *text) {
  const char *value = strchr(text, ':');
  bool is_known =
      string_starts(text, "URI:") || string_starts(text, "DNS:") || string_starts(text, "CN:");
  return is_known && text_is_printable(value + 1, strlen(value + 1));
}

/* A name with a NUL is refused by text_is_printable, not cut. The size of a name that does not fit
 * is above NAME_LENGTH_MAX. */
static bool name_of(gnutls_x509_crt_t certificate, char ret_name[TLS_NAME_SIZE]) {
  static const struct {
    unsigned type;
    const char *prefix;
  } kinds[] = {{GNUTLS_SAN_URI, "URI"}, {GNUTLS_SAN_DNSNAME, "DNS"}};
  char name[ALTERNATIVE_NAME_MAX];
  const char *prefix = NULL;
  size_t size = 0;
  for (size_t k = 0; k < ARRAY_LENGTH(kinds) && !prefix; k++)
    for (unsigned i = 0; !prefix; i++) {
      unsigned type = 0;
      size = sizeof name;
      int reason = gnutls_x509_crt_get_subject_alt_name2(certificate, i, name, &size, &type, NULL);
      if (reason == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        break;
      if (reason == GNUTLS_E_SHORT_MEMORY_BUFFER || (reason >= 0 && type == kinds[k].type))
        prefix = kinds[k].prefix;
    }

  if (!prefix) {
    prefix = "CN";
    size = sizeof name;
    if (gnutls_x509_crt_get_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &size) <
        0)
      return false;
  }

  if (!text_is_printable(name, size))
    return false;

  snprintf(ret_name, TLS_NAME_SIZE, "%s:%.*s", prefix, (int)size, name);
  return true;
}

struct digest tls_name_digest(const char *name) {
  cleanup_free char *text = xasprintf("wavetune client certificate\n%s", name);
  char *value = strchr(text, '\n') + 1;
  if (string_starts(value, "DNS:"))
    for (char *c = value + 4; *c; c++)
      if (*c >= 'A' && *c <= 'Z')
        *c = (char)(*c | 0x20);
  return digest_of(text, strlen(text));
}

static bool chain_check(struct tls *tls, gnutls_x509_crt_t *chain, unsigned n,
                        struct error *error) {
  unsigned status = 0;
  gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                   .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};

  pthread_rwlock_rdlock(&tls->lock);
  int reason = tls->material.clients
                   ? gnutls_x509_trust_list_verify_crt2(tls->material.clients, chain, n, &purpose,
                                                        1, 0, &status, NULL)
                   : GNUTLS_E_NO_CERTIFICATE_FOUND;
  pthread_rwlock_unlock(&tls->lock);

  if (reason < 0)
    return error_set(error, "the client certificate cannot be checked: %s",
                     gnutls_strerror(reason));
  if (status == 0)
    return true;

  gnutls_datum_t text = {0};
  bool is_printed =
      gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) == 0;
  error_set(error, "the client certificate is refused: %s",
            is_printed ? (const char *)text.data : "it is not valid");
  gnutls_free(text.data);
  return false;
}

bool tls_client_name(struct tls *tls, const gnutls_datum_t *chain, unsigned n,
                     char ret_name[TLS_NAME_SIZE], struct error *error) {
  gnutls_x509_crt_t certificates[CHAIN_MAX];
  unsigned n_read = 0;
  bool is_good = n > 0 && n <= CHAIN_MAX;
  while (is_good && n_read < n) {
    ALWAYS(gnutls_x509_crt_init(&certificates[n_read]) == 0);
    is_good =
        gnutls_x509_crt_import(certificates[n_read], &chain[n_read], GNUTLS_X509_FMT_DER) == 0;
    n_read++;
  }

  if (!is_good)
    error_set(error, "what the client sent is no certificate");
  else if ((is_good = chain_check(tls, certificates, n, error)) &&
           !(is_good = name_of(certificates[0], ret_name)))
    error_set(error, "the client certificate has no name of printable ASCII, of 250 characters at "
                     "most: give it a URI or DNS name among its alternative names, or a common "
                     "name");

  for (unsigned i = 0; i < n_read; i++)
    gnutls_x509_crt_deinit(certificates[i]);
  return is_good;
}
