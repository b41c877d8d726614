/* What a test may ask of the HIP runtime without a GPU that it has loaded: found with dlsym, as the
 * agent finds the rest. */
#ifndef WAVETUNE_TESTS_FAKE_HIP_H
#define WAVETUNE_TESTS_FAKE_HIP_H

/* The calls since the log was cleared, a letter each: D fills a MiB or more, w less; H copies to
 * the host, U from it, C on the device; L launches fake_add, F the instruction flush, P the
 * fingerprint; E records an event, N makes one, W waits for the stream. The host needs two
 * milliseconds for those whose letters are in $FAKE_HIP_SLOW. */
const char *fake_hip_log(void);
void fake_hip_log_clear(void);

/* Where $FAKE_HIP_LAUNCH_US is set, events are stamped by a clock that stands still but for
 * this: */
#define FAKE_HIP_EVENT_US 2.0 /* an event; and a launch of fake_add takes $FAKE_HIP_LAUNCH_US */
#define FAKE_HIP_FLUSH_US 5.0
#define FAKE_HIP_BYTES_PER_US 50000.0

#endif
