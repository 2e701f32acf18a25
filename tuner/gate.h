/* gate.h - waits until the device is quiet, and notes what was not
 *
 * A gate stands before every sample.  It looks at what the device's system
 * counts (lib/base/load.h) and at what each sample says of itself: threads that
 * were ready and had no processor, a clock that is lower than it was.  While
 * others use the device it holds samples back, for a bounded time; samples
 * that are disturbed all the same are marked. */
#ifndef DFGNN_TUNER_GATE_H
#define DFGNN_TUNER_GATE_H

#include "lib/base/load.h"
#include "lib/context.h"

enum { DFGNN_GATE_TEXT = 160 };

typedef struct dfgnn_gate {
  const dfgnn_backend *backend;
  dfgnn_device *device;
  int threads;                /* that kernels run on; 0: none of the host's */
  double most_s;              /* seconds that it may wait in all */
  double waited_s;            /* seconds that it did */
  dfgnn_load last;            /* the last reading */
  int again;                  /* that is the one of the gate before */
  int quiet;                  /* was the device quiet before it? */
  double top_mhz;             /* the fastest clock of the last samples */
  char seen[DFGNN_GATE_TEXT]; /* what disturbed last; "": nothing yet */
  void (*pause)(void *data, double seconds);
  void *data; /* of pause */
} dfgnn_gate;

/* Takes a first reading, or that of the context's last gate if it was just now:
 * many short tunings shall not pause for a look each.  budget_s is that of the
 * measurements (infinity: none), of which waiting takes a fifth at most. */
void dfgnn__gate_open(dfgnn_gate *gate, dfgnn_context *ctx, double budget_s);
/* Leaves the last reading to the context's next gate. */
void dfgnn__gate_close(const dfgnn_gate *gate, dfgnn_context *ctx);

/* Looks at the time since the last look, after a pause if that was just now. 1:
 * the device is quiet; 0: gate->seen says what is not. */
int dfgnn__gate_look(dfgnn_gate *gate);

/* Waits until the device is quiet, for half a second at most, or there is no
 * time left to wait, or waiting is no use since this process has fewer
 * processors than threads.  Returns the last look. */
int dfgnn__gate_wait(dfgnn_gate *gate);

/* 1 if a sample was disturbed; gate->seen says by what, where it is known. */
int dfgnn__gate_disturbed(dfgnn_gate *gate, const dfgnn_sample *sample);

/* Warns, once in a context, if the device is not quiet: call it when the gate
 * has been open for a while. */
void dfgnn__gate_warn(dfgnn_gate *gate, dfgnn_context *ctx);

#endif
