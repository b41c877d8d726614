/* The spool's files. `mutex` guards the positions. */
#include "agent/run/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#define RECORD_MAGIC 0x57545350u
#define CHECK_SIZE 8
#define ACKNOWLEDGED_MAX 64

/* In the byte order of the machine: a spool never leaves it. */
struct record_header {
  uint32_t magic;
  uint32_t length;
  uint64_t number;
  uint8_t check[CHECK_SIZE]; /* of the three above and the text */
};

struct spool {
  int lock_fd, fd;
  char *path, *acknowledged_path;
  uint64_t shorten_at;
  pthread_mutex_t mutex;
  pthread_cond_t appended;
  uint64_t first; /* where the first record that is not acknowledged begins */
  uint64_t end;
  uint64_t synced_end;
  uint64_t next_number;
  uint64_t acknowledged;
  bool woken;
};

static void check_of(const struct record_header *header, const char *text,
                     uint8_t check[CHECK_SIZE]) {
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, header, offsetof(struct record_header, check));
  digest_stream_add(stream, text, header->length);
  struct digest digest = digest_stream_finish(stream);
  memcpy(check, digest.bytes, CHECK_SIZE);
}

static bool read_at(int fd, void *bytes, size_t size, uint64_t offset) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pread(fd, (char *)bytes + done, size - done, (off_t)(offset + done));
    if (n == 0 || (n < 0 && errno != EINTR))
      return false;
    done += n > 0 ? (size_t)n : 0;
  }
  return true;
}

static bool write_at(int fd, const void *bytes, size_t size, uint64_t offset) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno != EINTR)
      return false;
    done += n > 0 ? (size_t)n : 0;
  }
  return true;
}

/* Reads the record at *at of a file that ends at `end`, and moves *at to its end. False when the
 * record is incomplete or damaged. */
static bool record_next(int fd, uint64_t *at, uint64_t end, struct record_header *ret_header,
                        char **ret_text) {
  struct record_header header;
  uint8_t check[CHECK_SIZE];
  uint64_t text_at = *at + sizeof header;
  if (end - *at < sizeof header || !read_at(fd, &header, sizeof header, *at) ||
      header.magic != RECORD_MAGIC || header.length > SPOOL_RECORD_MAX ||
      header.length > end - text_at)
    return false;

  cleanup_free char *text = xmalloc((size_t)header.length + 1);
  if (!read_at(fd, text, header.length, text_at))
    return false;

  check_of(&header, text, check);
  if (memcmp(check, header.check, CHECK_SIZE) != 0)
    return false;

  text[header.length] = '\0';
  *at = text_at + header.length;
  *ret_header = header;
  *ret_text = TAKE(text);
  return true;
}

/* Finds where the unacknowledged records begin, and drops an incomplete record at the end. */
static bool spool_scan(struct spool *spool, const char *path, struct error *error) {
  struct stat status;
  if (fstat(spool->fd, &status) < 0)
    return error_set(error, "cannot read %s: %s", path, strerror(errno));

  uint64_t size = (uint64_t)status.st_size, at = 0;
  spool->next_number = spool->acknowledged + 1;
  while (at < size) {
    struct record_header header;
    cleanup_free char *text = NULL;
    if (!record_next(spool->fd, &at, size, &header, &text))
      break;
    if (header.number <= spool->acknowledged)
      spool->first = at;
    if (header.number >= spool->next_number)
      spool->next_number = header.number + 1;
  }

  if (at < size) {
    log_warning("spool: %s ends in %llu bytes of an incomplete record; they are dropped", path,
                (unsigned long long)(size - at));
    if (ftruncate(spool->fd, (off_t)at) < 0)
      return error_set(error, "cannot drop the incomplete record at the end of %s: %s", path,
                       strerror(errno));
  }

  spool->end = at;
  return true;
}

static bool acknowledged_read(const char *path, uint64_t *ret_number, struct error *error) {
  if (access(path, F_OK) < 0 && errno == ENOENT) {
    *ret_number = 0;
    return true;
  }

  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, ACKNOWLEDGED_MAX, &text, &size, error))
    return false;

  char *rest;
  errno = 0;
  unsigned long long number = strtoull(text, &rest, 10);
  if (errno || rest == text || !string_equal(rest, "\n"))
    return error_set(
        error,
        "%s does not hold a record number; remove it: records that the server has are then posted "
        "again, which has no effect",
        path);
  *ret_number = number;
  return true;
}

/* Two agents in one folder would number two measurements alike. */
static bool folder_lock(const char *folder, int *ret_fd, struct error *error) {
  cleanup_free char *path = xasprintf("%s/lock", folder);
  cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return error_set(error, "cannot open %s: %s; give another folder with --state", path,
                     strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) < 0)
    return error_set(error, "another agent works in %s; give this one another folder with --state",
                     folder);

  *ret_fd = fd;
  fd = -1;
  return true;
}

bool spool_open(const char *folder, uint64_t shorten_at, struct spool **ret_spool,
                struct error *error) {
  int lock_fd = -1;
  if (!folder_lock(folder, &lock_fd, error))
    return false;

  struct spool *spool = xcalloc(1, sizeof *spool);
  char *path = xasprintf("%s/spool", folder);
  *spool = (struct spool){
      .lock_fd = lock_fd,
      .fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600),
      .path = path,
      .acknowledged_path = xasprintf("%s/spool.acknowledged", folder),
      .shorten_at = shorten_at,
  };
  pthread_mutex_init(&spool->mutex, NULL);
  condition_init(&spool->appended);

  /* Syncing a new file does not sync its name in the folder. */
  bool opened = spool->fd >= 0 && fsync(spool->fd) == 0 && folder_sync(path);
  if (!opened)
    error_set(error, "cannot open %s: %s", path, strerror(errno));
  if (!opened || !acknowledged_read(spool->acknowledged_path, &spool->acknowledged, error) ||
      !spool_scan(spool, path, error)) {
    spool_close(spool);
    return false;
  }
  *ret_spool = spool;
  return true;
}

void spool_close(struct spool *spool) {
  if (spool->fd >= 0)
    close(spool->fd);
  close(spool->lock_fd);
  pthread_mutex_destroy(&spool->mutex);
  pthread_cond_destroy(&spool->appended);
  free(spool->path);
  free(spool->acknowledged_path);
  free(spool);
}

bool spool_append(struct spool *spool, const json_t *record, uint64_t *ret_number,
                  struct error *error) {
  cleanup_free char *text = json_canonical(record);
  size_t length = strlen(text);
  if (length > SPOOL_RECORD_MAX)
    return error_set(error, "a record of %zu bytes is larger than the spool's limit of %u", length,
                     SPOOL_RECORD_MAX);

  HOLD(&spool->mutex);
  struct record_header header = {
      .magic = RECORD_MAGIC, .length = (uint32_t)length, .number = spool->next_number};
  check_of(&header, text, header.check);
  bool written = write_at(spool->fd, &header, sizeof header, spool->end) &&
                 write_at(spool->fd, text, length, spool->end + sizeof header);
  if (written) {
    spool->end += sizeof header + length;
    *ret_number = spool->next_number++;
    pthread_cond_signal(&spool->appended);
  } else {
    error_set(error, "cannot write to the spool: %s", strerror(errno));
    if (ftruncate(spool->fd, (off_t)spool->end) < 0)
      log_error("spool: cannot remove an incomplete record: %s", strerror(errno));
  }
  return written;
}

static bool unreadable(uint64_t at, struct error *error) {
  return error_set(error, "the spool's record at byte %llu cannot be read back",
                   (unsigned long long)at);
}

bool spool_peek(struct spool *spool, struct spool_record *records, size_t most, size_t *ret_n,
                struct error *error) {
  pthread_mutex_lock(&spool->mutex);
  uint64_t at = spool->first, end = spool->end;
  bool is_synced = spool->synced_end >= end;
  pthread_mutex_unlock(&spool->mutex);
  if (!is_synced && fdatasync(spool->fd) < 0)
    return error_set(error, "cannot sync the spool: %s", strerror(errno));

  size_t n = 0;
  for (; n < most && at < end; n++) {
    struct record_header header;
    cleanup_free char *text = NULL;
    bool ok = record_next(spool->fd, &at, end, &header, &text) || unreadable(at, error);
    if (ok && !json_parse(text, header.length, &records[n].json, error))
      ok = error_prefix(error, "record %llu of the spool: ", (unsigned long long)header.number);
    if (!ok) {
      while (n > 0)
        json_decref(records[--n].json);
      return false;
    }
    records[n].number = header.number;
  }

  HOLD(&spool->mutex);
  spool->synced_end = end;
  *ret_n = n;
  return true;
}

/* Finds where the record behind the one with `number` begins. Needs no mutex: appended records do
 * not change. */
static bool first_after(const struct spool *spool, uint64_t number, uint64_t end,
                        uint64_t *ret_first, struct error *error) {
  uint64_t first = spool->first;
  for (uint64_t at = first; at < end;) {
    struct record_header header;
    cleanup_free char *text = NULL;
    if (!record_next(spool->fd, &at, end, &header, &text))
      return unreadable(at, error);
    if (header.number > number)
      break;
    first = at;
  }

  *ret_first = first;
  return true;
}

static bool bytes_copy(int from, uint64_t at, size_t size, int to, uint64_t to_at) {
  cleanup_free char *bytes = xmalloc(size + 1);
  return read_at(from, bytes, size, at) && write_at(to, bytes, size, to_at);
}

/* Replaces the file by one with only the records that are not acknowledged. (The file of a busy
 * agent always has some, and so cannot just be emptied.) Devices append meanwhile without waiting
 * for the disk: records that are appended during the sync are copied after it. The calling thread
 * also peeks, which syncs those before they are used.
 */
static bool spool_shorten(struct spool *spool, uint64_t end, struct error *error) {
  cleanup_free char *path = xasprintf("%s.new", spool->path);
  cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  uint64_t size = end - spool->first;
  bool ok = fd >= 0 && bytes_copy(spool->fd, spool->first, (size_t)size, fd, 0) && fsync(fd) == 0;
  pthread_mutex_lock(&spool->mutex);
  ok = ok && bytes_copy(spool->fd, end, (size_t)(spool->end - end), fd, size) &&
       rename(path, spool->path) == 0;
  if (ok) {
    int before = spool->fd;
    spool->fd = fd;
    fd = before;
    spool->synced_end = size;
    spool->end -= spool->first;
    spool->first = 0;
  }

  pthread_mutex_unlock(&spool->mutex);
  if (!ok)
    return error_set(error, "cannot write %s: %s", path, strerror(errno));
  if (!folder_sync(path))
    log_warning("spool: cannot sync the folder of %s: %s", spool->path, strerror(errno));
  return true;
}

bool spool_acknowledge(struct spool *spool, uint64_t number, struct error *error) {
  char text[ACKNOWLEDGED_MAX];
  int length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
  if (!file_write_atomically(spool->acknowledged_path, text, (size_t)length, 0600, error))
    return false;

  pthread_mutex_lock(&spool->mutex);
  uint64_t end = spool->end, first = spool->first;
  pthread_mutex_unlock(&spool->mutex);
  bool ok = first_after(spool, number, end, &first, error);
  pthread_mutex_lock(&spool->mutex);
  spool->acknowledged = number;
  spool->first = first;
  pthread_mutex_unlock(&spool->mutex);

  /* The numbers continue from the acknowledged one, which is on the disk by now. At most
   * as many bytes are copied as are dropped. */
  struct error reason;
  if (ok && first > spool->shorten_at && end - first <= first &&
      !spool_shorten(spool, end, &reason))
    log_warning("spool: cannot remove the acknowledged records: %s", reason.message);
  return ok;
}

bool spool_is_empty(struct spool *spool) {
  HOLD(&spool->mutex);
  return spool->first == spool->end;
}

void spool_wait(struct spool *spool, int64_t timeout_ms) {
  struct timespec until = time_in(timeout_ms);
  HOLD(&spool->mutex);
  while (spool->first == spool->end && !spool->woken &&
         pthread_cond_timedwait(&spool->appended, &spool->mutex, &until) == 0)
    continue;
  spool->woken = false;
}

void spool_wake(struct spool *spool) {
  HOLD(&spool->mutex);
  spool->woken = true;
  pthread_cond_signal(&spool->appended);
}
