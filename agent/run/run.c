/* `run`: an agent that works for a server until a signal ends it. Starts and ends the threads of
 * their headers. */
#include "agent/commands.h"
#include "agent/run/claim.h"
#include "agent/run/device_thread.h"
#include "agent/run/keeper.h"
#include "agent/run/poster.h"
#include "agent/run/yield.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define CONNECT_MS 5000
#define ID_FILE_MAX 128

/* Every thread has ended. */
static void agent_release(struct agent *agent) {
  array_foreach (thread, agent->threads, agent->n_threads) {
    http_client_free(thread->client);
    if (thread->claim_fd >= 0)
      close(thread->claim_fd);
  }
  free(agent->threads);
  DISCARD(agent->keeper_client, http_client_free);
  DISCARD(agent->poster_client, http_client_free);

  yield_release(agent);
  DISCARD(agent->pool, compile_pool_free);
  DISCARD(agent->cgroups, cgroups_free);
  DISCARD(agent->spool, spool_close);

  held_table_free(agent->held);
  json_decref(agent->stored);
  devices_release(&agent->devices);
  trusted_keys_release(&agent->trusted);

  free(agent->state);
  free(agent->faults);
  free(agent->name);
  free(agent->id);
  free(agent->own_token);
  free(agent->own_token_before);
  pthread_mutex_destroy(&agent->mutex);
  pthread_cond_destroy(&agent->changed);
}

/* Makes an HTTP client; agent_stop may read *ret_client at any time. */
static bool client_new(struct agent *agent, struct http_client **ret_client, struct error *error) {
  struct http_client *client;
  cleanup_free char *urls = option_list_join(agent->options, "url");
  if (!http_client_new(urls, option_text(agent->options, "token"),
                       option_flag(agent->options, "insecure-http"), CONNECT_MS, &client, error))
    return false;
  if (!http_client_set_certificate(client, option_text(agent->options, "client-certificate"),
                                   option_text(agent->options, "client-key"), error)) {
    http_client_free(client);
    return false;
  }

  HOLD(&agent->mutex);
  *ret_client = client;
  return true;
}

static bool trusted_prepare(struct agent *agent, struct error *error) {
  static const char *const variables[] = {"WAVETUNE_TRUSTED_KEY", "WAVETUNE_TRUSTED_KEYS"};
  const char *const *paths;
  size_t n = option_list(agent->options, "trusted-key", &paths);
  if (!trusted_keys_add_all(&agent->trusted, paths, n, error))
    return false;

  /* An agent whose variable is empty by mistake must not run unsigned kernels. */
  for (size_t i = 0; !agent->trusted.n && i < ARRAY_LENGTH(variables); i++)
    if (getenv(variables[i]))
      return error_set(error, "%s is set and names no key; name a file or a folder, or unset it",
                       variables[i]);

  array_foreach (key, agent->trusted.all, agent->trusted.n) {
    char id[DIGEST_TEXT_SIZE];
    log_info("agent: takes only signed kernels and builds: trusts key=%s",
             digest_format(&key->id, id));
  }
  return true;
}

/* Prepares what needs neither server nor workers. */
static bool agent_prepare(struct agent *agent, struct error *error) {
  const char *state = option_text(agent->options, "state"),
             *name = option_text(agent->options, "name");
  char host[256] = "";
  const char *const *urls;
  if (option_list(agent->options, "url", &urls) == 0)
    return error_set(error, "give the server's URL with --url or WAVETUNE_URL");
  if (!trusted_prepare(agent, error) || !client_new(agent, &agent->poster_client, error) ||
      !client_new(agent, &agent->keeper_client, error))
    return false;

  if (!name && (gethostname(host, sizeof host - 1) != 0 || !host[0]))
    name = "agent";
  agent->name = xstrdup(name ? name : host);
  agent->state = state ? xstrdup(state) : state_folder_default();
  agent->faults = xasprintf("%s/faults", agent->state);
  if (!folder_make_private(agent->state, error) ||
      !spool_open(agent->state, SPOOL_SHORTEN_AT_DEFAULT, &agent->spool, error))
    return false;

  /* The id of an earlier run; a file that is damaged counts as none. */
  struct error ignored;
  size_t size;
  cleanup_free char *path = xasprintf("%s/agent", agent->state), *text = NULL;
  bool is_read = file_read(path, ID_FILE_MAX, &text, &size, &ignored);
  size_t digits = is_read ? strspn(text, "0123456789abcdef") : 0;
  if (digits > 0 && string_equal(text + digits, "\n"))
    agent->id = xstrndup(text, digits);
  return true;
}

/* Prepares one thread for each device. Where there are GPUs, the CPU is measured only if it is
 * named: the GPUs need it. */
static bool threads_prepare(struct agent *agent, struct error *error) {
  const char *const *names;
  const struct device_seen *found;
  size_t n_names = option_list(agent->options, "device", &names), n = 0;
  bool has_gpu = false, ok = true;

  array_foreach (name, names, n_names)
    if (!devices_find(&agent->devices, *name, &found, error))
      return false;
  if (!devices_find(&agent->devices, NULL, &found, error))
    return false;

  array_foreach (device, agent->devices.seen, agent->devices.n)
    has_gpu = has_gpu || device_is_gpu(device);

  struct device_thread *threads = xcalloc(agent->devices.n, sizeof *threads);
  for (size_t i = 0; i < agent->devices.n && ok; i++) {
    const struct device_seen *device = &agent->devices.seen[i];
    bool is_used = n_names == 0 && (!has_gpu || device_is_gpu(device));
    for (size_t k = 0; k < n_names && !is_used; k++)
      is_used = string_equal(names[k], device->name);
    if (!is_used)
      continue;
    threads[n] = (struct device_thread){.agent = agent, .device = device, .claim_fd = -1};
    threads[n].executor = executor_make(agent->options, agent->supervisor->spawner, agent->pool,
                                        device, agent->faults);
    ok = client_new(agent, &threads[n].client, error);
    n += ok;
  }

  HOLD(&agent->mutex); /* agent_stop reads both when a signal comes */
  agent->threads = threads;
  agent->n_threads = n;
  return ok;
}

static void thread_start(pthread_t *thread, void *(*run)(void *context), void *context) {
  int reason = pthread_create(thread, NULL, run, context);
  if (reason)
    die("cannot start a thread: %s", strerror(reason));
}

/* Works until the agent is stopped and all measurements are posted or in the spool. */
static void agent_work(struct agent *agent) {
  pthread_t poster, yielder;
  pthread_mutex_lock(&agent->mutex);
  agent->is_working = true;
  agent->n_measuring = agent->n_threads;
  pthread_mutex_unlock(&agent->mutex);
  thread_start(&poster, poster_run, agent);
  if (agent->yield)
    thread_start(&yielder, yield_run, agent);

  array_foreach (thread, agent->threads, agent->n_threads)
    thread_start(&thread->thread, device_thread_run, thread);
  agent_keep(agent);
  array_foreach (thread, agent->threads, agent->n_threads)
    pthread_join(thread->thread, NULL);
  if (agent->yield)
    pthread_join(yielder, NULL);
  pthread_join(poster, NULL);
  if (agent->code == EXIT_OK)
    agent_say_end(agent);
}

static int run_work(struct supervisor *supervisor, void *context) {
  struct agent *agent = context;
  struct error error;
  int code = EXIT_OK;
  MAGIC_CHECK(agent, AGENT_MAGIC);
  agent->supervisor = supervisor;
  if (!agent_prepare(agent, &error) ||
      !custody_make(agent->options, supervisor->spawner, LOG_LEVEL_INFO, &agent->cgroups, &error))
    return command_failed("run", EXIT_USAGE, &error);

  cleanup_free char *objects = xasprintf("%s/objects", agent->state);
  if (!devices_query(supervisor->spawner, option_text(agent->options, "python"), &agent->devices,
                     &error) ||
      !pool_make(agent->options, objects, spawner_custody(supervisor->spawner), &agent->pool,
                 &error))
    return command_failed("run", EXIT_FAILED, &error);

  cleanup_free char *absent = devices_absent(&agent->devices);
  if (absent[0])
    log_info("devices: %s", absent);
  if (!threads_prepare(agent, &error) || !yield_prepare(agent, &error))
    return command_failed("run", EXIT_USAGE, &error);
  array_foreach (thread, agent->threads, agent->n_threads)
    if (!option_flag(agent->options, "share-device") &&
        !device_claim(thread->device, &thread->claim_fd, &error))
      return command_failed("run", EXIT_FAILED, &error); /* the other agent may end: try again */

  own_token_choose(agent);

  /* Before enrolling: that releases the leases of an earlier run, and results posted after it would
   * be late. */
  if (!agent->is_newcomer)
    agent_post_left(agent);
  boot_keep(agent);
  if (!agent_enrol(agent, &code))
    return code;

  agent_work(agent);
  return agent->code;
}

static void run_stop(void *context) {
  struct agent *agent = context;
  MAGIC_CHECK(agent, AGENT_MAGIC);
  log_info("agent: ends on a signal; it stops measuring and releases its leases");
  agent_stop(agent);
}

static int run_run(struct options *options) {
  struct agent agent = {.magic = AGENT_MAGIC,
                        .options = options,
                        .held = held_table_new(),
                        .stored = json_object(),
                        .worked_ms = clock_monotonic_ms()};
  pthread_mutex_init(&agent.mutex, NULL);
  condition_init(&agent.changed);
  random_hex(agent.boot, 16);
  struct supervisor supervisor = {.work = run_work, .stop = run_stop, .context = &agent};
  int code = supervise(&supervisor);
  agent_release(&agent);
  return code;
}

static const struct option_spec run_options[] = {
    {"url", OPTION_LIST, "URL", .help = HELP_URL},
    {"token", OPTION_TEXT, "TOKEN",
     .help = "an enrolment token, or a token with the role agent; better in WAVETUNE_TOKEN",
     .is_secret = true},
    OPTION_INSECURE_HTTP,
    OPTION_CLIENT_CERTIFICATE,
    OPTION_CLIENT_KEY,
    {"state", OPTION_TEXT, "FOLDER",
     .help = "folder of the agent's id, token, spool and compiled objects; default: "
             "/var/lib/wavetune-agent, for users other than root ~/.local/state/…"},
    {"name", OPTION_TEXT, "NAME", .help = "the agent's name in lists; default: the host's name"},
    {"device", OPTION_LIST, "NAME",
     .help = "work on this device only; default: all GPUs, else the CPU"},
    {"share-device", OPTION_FLAG,
     .help = "start although another agent of this machine may work on the same device: both "
             "disturb what "
             "the other measures"},
    {"trusted-key", OPTION_LIST, "FILE|FOLDER",
     .help =
         "a public key, or a folder of *.pub: compile and load only kernels and builds that one of "
         "them signed; more of them in WAVETUNE_TRUSTED_KEYS, separated by ':'"},
    OPTION_PYTHON,
    {"idle-exit", OPTION_INTEGER, "SECONDS", "0", 0, 86400,
     "end after this time without work; 0: never"},
    YIELD_OPTIONS,
    MEASURE_OPTIONS,
};

const struct command_spec run_command = {
    .name = "run",
    .arguments = "",
    .summary = "work for a server: lease, compile, measure, post",
    .description =
        "Works until SIGTERM or SIGINT, then releases its leases; a second signal ends "
        "it at once. Measurements are written to the disk before they are posted: nothing "
        "is lost when the server is away or the agent dies.",
    .options = run_options,
    .n_options = ARRAY_LENGTH(run_options),
    .run = run_run,
    .awaits_signals = true,
};
