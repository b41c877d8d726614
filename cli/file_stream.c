/* Files written by a second thread, to which the caller passes them in a ring of pieces. */
#include "cli/file_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "common/base/file.h"

#define FILE_STREAM_MAGIC 0x46535452u
#define PIECES 16
#define PIECE_SIZE ((size_t)64 << 10)
/* Files begin to go to the disk in parts of this size, so that the final sync writes less. */
#define DISK_BYTES ((size_t)1 << 20)
#define FILE_MODE_DEFAULT 0644
#define FOLDER_MODE_DEFAULT 0755

struct piece {
  char *path; /* of a file that begins here; NULL: continues the previous piece's */
  unsigned file_mode, folder_mode;
  const char *borrowed; /* the content; NULL: it is in `bytes` */
  char *bytes;          /* PIECE_SIZE of them */
  size_t size;
};

/* The state of the thread that writes. */
struct writer {
  int root, file; /* -1: none */
  char *path;     /* of the last file */
  size_t size, on_disk;
  bool has_failed;
  struct error error;
};

struct file_stream {
  uint32_t magic;
  struct cache_sink sink;
  char *folder, *below;
  int64_t deadline_ms;
  mode_t mask; /* the process's */
  pthread_t thread;
  bool is_joined;
  struct piece *filling; /* the caller's, or NULL */
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  struct piece pieces[PIECES];
  size_t n_filled, n_written; /* those between are the thread's */
  bool is_ended, is_given_up;
  struct writer writer; /* the thread's alone, until it is joined */
};

/* The thread */

/* Starts to write to the disk what is not there yet, without waiting for it. */
static void file_start(struct writer *writer) {
  (void)!sync_file_range(writer->file, (off_t)writer->on_disk,
                         (off_t)(writer->size - writer->on_disk), SYNC_FILE_RANGE_WRITE);
  writer->on_disk = writer->size;
}

/* Closes the file, if one is open. Some network file systems report only here that there was no
 * room. */
static bool file_end(struct writer *writer, struct error *error) {
  int file = writer->file;
  if (file >= 0 && writer->size >= DISK_BYTES)
    file_start(writer);
  writer->file = -1;
  return file < 0 || close(file) == 0 ||
         error_set(error, "cannot write %s: %s", writer->path, strerror(errno));
}

/* Closes the previous file, makes the folders that the new one does not share with it, and opens
 * the new one. */
static bool file_begin(struct writer *writer, struct piece *piece, struct error *error) {
  if (!file_end(writer, error))
    return false;
  cleanup_free char *before = TAKE(writer->path);
  const char *path = writer->path = TAKE(piece->path);
  writer->size = writer->on_disk = 0;

  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    size_t length = (size_t)(slash - path);
    if (before && strncmp(path, before, length + 1) == 0)
      continue;
    cleanup_free char *folder = xstrndup(path, length);
    if (mkdirat(writer->root, folder, piece->folder_mode) < 0 && errno != EEXIST)
      return error_set(error, "cannot make the folder %s: %s", folder, strerror(errno));
  }

  writer->file =
      openat(writer->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, piece->file_mode);
  return writer->file >= 0 || error_set(error, "cannot write %s: %s", path, strerror(errno));
}

/* Borrowed bytes may be all of a large file: the deadline is checked after each DISK_BYTES. */
static bool piece_write(const struct file_stream *stream, struct writer *writer,
                        struct piece *piece, struct error *error) {
  const char *bytes = piece->borrowed ? piece->borrowed : piece->bytes;
  if (piece->path && !file_begin(writer, piece, error))
    return false;

  for (size_t left = piece->size, n; left > 0; left -= n, bytes += n) {
    n = left < DISK_BYTES ? left : DISK_BYTES;
    if (stream->deadline_ms && clock_monotonic_ms() >= stream->deadline_ms)
      return error_set(
          error, "the time budget was used up while %s was written; give it more with --budget-ms",
          writer->path);
    if (!fd_write_all(writer->file, bytes, n))
      return error_set(error, "cannot write %s: %s", writer->path, strerror(errno));
    writer->size += n;
    if (writer->size - writer->on_disk >= DISK_BYTES)
      file_start(writer);
  }

  return true;
}

static void *pieces_write(void *context) {
  struct file_stream *stream = context;
  MAGIC_CHECK(stream, FILE_STREAM_MAGIC);
  struct writer *writer = &stream->writer;
  pthread_mutex_lock(&stream->mutex);

  for (;;) {
    while (stream->n_filled == stream->n_written && !stream->is_ended)
      pthread_cond_wait(&stream->changed, &stream->mutex);
    if (stream->n_filled == stream->n_written || stream->is_given_up)
      break;

    struct piece *piece = &stream->pieces[stream->n_written % PIECES];
    pthread_mutex_unlock(&stream->mutex);
    if (!writer->has_failed && !piece_write(stream, writer, piece, &writer->error))
      writer->has_failed = true;
    free(TAKE(piece->path));
    pthread_mutex_lock(&stream->mutex);
    if (stream->n_filled - ++stream->n_written == PIECES / 2)
      pthread_cond_signal(&stream->changed);
  }

  pthread_mutex_unlock(&stream->mutex);

  struct error ignored; /* only the first error is reported */
  if (!file_end(writer, writer->has_failed ? &ignored : &writer->error))
    writer->has_failed = true;
  return NULL;
}

/* The caller */

static void piece_submit(struct file_stream *stream) {
  if (!stream->filling)
    return;
  stream->filling = NULL;
  pthread_mutex_lock(&stream->mutex);
  if (++stream->n_filled - stream->n_written == 1)
    pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
}

/* An empty piece. When all are filled it waits until half of them are written: otherwise each small
 * file would cost a thread switch. */
static struct piece *piece_take(struct file_stream *stream) {
  pthread_mutex_lock(&stream->mutex);
  bool is_full = stream->n_filled - stream->n_written == PIECES;
  while (is_full && stream->n_filled - stream->n_written > PIECES / 2)
    pthread_cond_wait(&stream->changed, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
  struct piece *piece = stream->filling = &stream->pieces[stream->n_filled % PIECES];
  if (!piece->bytes)
    piece->bytes = xmalloc(PIECE_SIZE);
  piece->path = NULL;
  piece->borrowed = NULL;
  piece->size = 0;

  return piece;
}

static void file_open(struct file_stream *stream, const struct cache_files *files,
                      const char *path) {
  piece_submit(stream);
  struct piece *piece = piece_take(stream);
  piece->path = stream->below[0] ? xasprintf("%s/%s", stream->below, path) : xstrdup(path);
  piece->file_mode = files->file_mode ? files->file_mode : FILE_MODE_DEFAULT & ~stream->mask;
  piece->folder_mode =
      files->folder_mode ? files->folder_mode : FOLDER_MODE_DEFAULT & ~stream->mask;
}

static void stream_begin(void *context, const struct cache_files *files, const char *path) {
  struct file_stream *stream = context;
  MAGIC_CHECK(stream, FILE_STREAM_MAGIC);
  file_open(stream, files, path);
}

static void stream_put(void *context, const char *bytes, size_t size) {
  struct file_stream *stream = context;
  MAGIC_CHECK(stream, FILE_STREAM_MAGIC);

  while (size) {
    struct piece *piece = stream->filling ? stream->filling : piece_take(stream);
    size_t room = PIECE_SIZE - piece->size, taken = size < room ? size : room;
    memcpy(piece->bytes + piece->size, bytes, taken);
    piece->size += taken;
    bytes += taken;
    size -= taken;
    if (piece->size == PIECE_SIZE)
      piece_submit(stream);
  }
}

static void below_set(struct file_stream *stream, const char *below) {
  free(stream->below);
  stream->below = xstrdup(below);
}

void file_stream_add_borrowed(struct file_stream *stream, const char *path, const char *bytes,
                              size_t size) {
  below_set(stream, "");
  file_open(stream, &(struct cache_files){0}, path);
  stream->filling->borrowed = bytes;
  stream->filling->size = size;
  piece_submit(stream);
}

const struct cache_sink *file_stream_sink(struct file_stream *stream, const char *below) {
  below_set(stream, below);
  return &stream->sink;
}

void file_stream_add(struct file_stream *stream, const char *below,
                     const struct cache_files *files) {
  below_set(stream, below);
  for (size_t i = 0; i < files->n; i++) {
    file_open(stream, files, files->files[i].path);
    stream_put(stream, files->files[i].bytes, files->files[i].size);
  }
}

bool file_stream_new(const char *folder, int64_t deadline_ms, struct file_stream **ret_stream,
                     struct error *error) {
  cleanup_fd int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0)
    return error_set(error, "cannot open %s: %s", folder, strerror(errno));

  struct file_stream *stream = xcalloc(1, sizeof *stream);
  *stream =
      (struct file_stream){.magic = FILE_STREAM_MAGIC,
                           .sink = {.context = stream, .begin = stream_begin, .put = stream_put},
                           .folder = xstrdup(folder),
                           .below = xstrdup(""),
                           .deadline_ms = deadline_ms,
                           .mutex = PTHREAD_MUTEX_INITIALIZER,
                           .changed = PTHREAD_COND_INITIALIZER,
                           .writer = {.root = root, .file = -1}};
  root = -1;

  stream->mask = umask(0);
  int reason = pthread_create(&stream->thread, NULL, pieces_write, stream);
  stream->is_joined = reason != 0;
  *ret_stream = stream;

  return reason == 0 ||
         error_set(error, "cannot start the thread that writes files: %s", strerror(reason));
}

static void thread_end(struct file_stream *stream, bool gives_up) {
  if (stream->is_joined)
    return;
  piece_submit(stream);
  pthread_mutex_lock(&stream->mutex);
  stream->is_ended = true;
  stream->is_given_up = gives_up;
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  stream->is_joined = true;
}

bool file_stream_finish(struct file_stream *stream, struct error *error) {
  thread_end(stream, false);
  if (!stream->writer.has_failed)
    return true;
  *error = stream->writer.error;
  return error_prefix(error, "%s: ", stream->folder);
}

void file_stream_free(struct file_stream *stream) {
  thread_end(stream, true);
  umask(stream->mask);
  for (size_t i = 0; i < PIECES; i++) {
    free(stream->pieces[i].path);
    free(stream->pieces[i].bytes);
  }

  close(stream->writer.root);
  free(stream->writer.path);
  free(stream->folder);
  free(stream->below);
  stream->magic = 0;
  free(stream);
}
