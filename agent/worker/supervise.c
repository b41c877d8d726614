/* Main thread and working thread of a command. */
#include "agent/worker/supervise.h"

#include <pthread.h>
#include <signal.h>

#include "common/base/log.h"
#include "common/program/options.h"
#include "common/program/sandbox.h"

bool supervisor_stopped(const struct supervisor *supervisor) {
  return atomic_load(&supervisor->signal) != 0;
}

static void signalled(void *context, int number) {
  struct supervisor *supervisor = context;
  if (supervisor_stopped(supervisor))
    _exit(128 + number);
  atomic_store(&supervisor->signal, number);
  if (supervisor->stop)
    supervisor->stop(supervisor->context);
}

static void *work_run(void *context) {
  struct supervisor *supervisor = context;
  supervisor->code = supervisor->work(supervisor, supervisor->context);
  spawner_end(supervisor->spawner);
  return NULL;
}

int supervise(struct supervisor *supervisor) {
  struct error error;
  pthread_t thread;
  signal(SIGPIPE, SIG_IGN);
  /* Workers run other people's code as the same user. A command that needs the token has read
   * it. */
  free(environment_take("WAVETUNE_TOKEN"));
  process_hide();
  if (!spawner_new(&supervisor->spawner, &error)) {
    log_error("%s", error.message);
    return EXIT_INTERNAL;
  }
  if (pthread_create(&thread, NULL, work_run, supervisor) != 0)
    die("cannot start a thread");
  spawner_serve(supervisor->spawner, signalled, supervisor);
  pthread_join(thread, NULL);
  spawner_free(supervisor->spawner);
  return supervisor->code;
}
