/* The gate of measurements, on a scripted clock: waits for a quiet device and
 * no longer than it may, and tells disturbed samples from calm ones. */
#include "tests/unit/fixture.h"

#include <math.h>

#include "tuner/gate.h"

/* The scripted device: others keep `others` of two cores busy until `ends`. */
static struct {
  double now, ends, others, busy, paused;
  double use, mhz, top_mhz;
} script;

static void read_script(dfgnn_device *device, dfgnn_load *load) {
  (void)device;
  *load = dfgnn__load_unknown();
  load->at = script.now;
  load->cores = 2;
  load->average = 2;
  load->own = 0;
  load->busy = script.busy;
  load->use = script.use;
  load->mhz = script.mhz;
  load->top_mhz = script.top_mhz;
}

static void pass(void *data, double seconds) {
  (void)data;
  const double loud = fmin(seconds, fmax(script.ends - script.now, 0));
  script.busy += script.others * loud;
  script.now += seconds;
  script.paused += seconds;
}

static const dfgnn_backend backend = {.load = read_script};
static dfgnn_context ctx;
static dfgnn_gate gate;

static void open_gate(const char *kind, double budget_s) {
  memset(&script, 0, sizeof script);
  script.use = script.mhz = script.top_mhz = DFGNN_UNKNOWN;
  ctx.backend = &backend;
  snprintf(ctx.info.backend, sizeof ctx.info.backend, "%s", kind);
  ctx.info.units = 2;
  dfgnn__gate_open(&gate, &ctx, budget_s);
  gate.pause = pass;
}

static void load(double others, double seconds) {
  script.others = others;
  script.ends = script.now + seconds;
}

TEST(the_next_gate_goes_on_from_the_last_reading) {
  open_gate("cpu", 10);
  ck_assert(dfgnn__gate_look(&gate));
  dfgnn__gate_close(&gate, &ctx);
  pass(NULL, 0.02);
  dfgnn__gate_open(&gate, &ctx, 10); /* a look needs 0.04 s more */
  gate.pause = pass;
  script.paused = 0;
  load(1.9, 0.04);
  ck_assert(!dfgnn__gate_look(&gate));
  ck_assert_double_eq_tol(script.paused, 0.04, 0.001);
  dfgnn__gate_close(&gate, &ctx);
  pass(NULL, 0.5);
  dfgnn__gate_open(&gate, &ctx, 10);
  gate.pause = pass;
  script.paused = 0;
  ck_assert(dfgnn__gate_look(&gate));
  ck_assert_double_eq(script.paused, 0);
  pass(NULL, 60); /* too long ago */
  dfgnn__gate_open(&gate, &ctx, 10);
  gate.pause = pass;
  script.paused = 0;
  ck_assert(dfgnn__gate_look(&gate));
  ck_assert_double_ge(script.paused, 0.05);
  ctx.load.at = 0;
}

TEST(waiting_takes_a_fifth_of_the_budget_at_most) {
  open_gate("cpu", 10);
  load(1.9, INFINITY);
  ck_assert(!dfgnn__gate_wait(&gate));
  ck_assert_double_le(script.paused, 2.01);
  for (int i = 0; i < 100; i++)
    ck_assert(!dfgnn__gate_wait(&gate));
  ck_assert_double_le(script.paused, 2.1);
  open_gate("cpu", INFINITY);
  load(1.9, INFINITY);
  ck_assert(!dfgnn__gate_wait(&gate));
  ck_assert_double_le(script.paused, 10.1);
}

TEST(a_thread_without_a_processor_of_its_own_is_not_waited_for) {
  open_gate("cpu", 10);
  gate.threads = 4;
  ck_assert(!dfgnn__gate_wait(&gate));
  ck_assert_double_le(script.paused, 0.1);
  ck_assert_str_eq(gate.seen, "4 threads on 2 cores");
}

TEST(a_tainted_sample_is_disturbed_and_explained) {
  open_gate("cpu", 10);
  dfgnn_sample sample = {.ms = 1, .waited = 0, .tainted = 1};
  ck_assert(dfgnn__gate_disturbed(&gate, &sample));
  ck_assert_str_eq(gate.seen, "the scheduler took processors away");
  open_gate("cuda", 10);
  ck_assert(dfgnn__gate_disturbed(&gate, &sample));
  ck_assert_str_eq(gate.seen, "heat or power slowed the GPU");
}

TEST(a_clock_that_falls_disturbs_until_it_is_normal) {
  open_gate("cuda", 10);
  dfgnn_sample sample = {.ms = 1, .waited = DFGNN_UNKNOWN, .clock_mhz = 1980};
  for (int i = 0; i < 9; i++)
    ck_assert(!dfgnn__gate_disturbed(&gate, &sample));
  sample.clock_mhz = 1935; /* as GPUs step */
  ck_assert(!dfgnn__gate_disturbed(&gate, &sample));
  sample.clock_mhz = 1410;
  ck_assert(dfgnn__gate_disturbed(&gate, &sample));
  ck_assert_ptr_nonnull(strstr(gate.seen, "the clock fell from 19"));
  int calls = 1;
  while (dfgnn__gate_disturbed(&gate, &sample) && calls < 1000)
    calls++;
  ck_assert_int_ge(calls, 20);
  ck_assert_int_le(calls, 200);
}

TEST(another_process_on_the_gpu_is_waited_for_and_named) {
  open_gate("cuda", 10);
  script.use = 0.62;
  for (int i = 0; i < 9; i++)
    ck_assert(!dfgnn__gate_wait(&gate));
  ck_assert_double_ge(script.paused, 1.9);
  ck_assert_str_eq(gate.seen, "others use the GPU 62 % of the time");
  open_gate("cuda", 10);
  script.use = 0;
  script.mhz = script.top_mhz = 1980;
  ck_assert(dfgnn__gate_wait(&gate));
}

TEST_MAIN("gate")
