/* unmeasured.h - notes the problems that no measurement answered
 *
 * With DFGNN_RECORD=FOLDER a process writes HOST-PID.jsonl there, a line for
 * each problem that met a graph without measurements, and each such graph once,
 * as FINGERPRINT.npz: what `dfgnn-tune run --recorded FOLDER` measures. */
#ifndef DFGNN_LIB_UNMEASURED_H
#define DFGNN_LIB_UNMEASURED_H

#include "lib/plan.h"

/* Notes a choice for a complete problem, unless it was measured or is not the
 * library's own.  A failure is logged once, and changes nothing else. */
void dfgnn__note_unmeasured(dfgnn_graph *graph, const dfgnn_problem *problem,
                            const dfgnn_choice *choice);

#endif
