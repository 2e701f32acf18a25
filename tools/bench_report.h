/* bench_report.h - keeps the timed variants for a page about the run */
#ifndef DFGNN_TOOLS_BENCH_REPORT_H
#define DFGNN_TOOLS_BENCH_REPORT_H

#include "tools/common.h"
#include "tools/report/report.h"

typedef struct bench_report bench_report;

/* Returns NULL without memory. */
bench_report *bench_report_create(void);
void bench_report_free(bench_report *report);

/* Keeps a row, whose strings are copied.  Returns an exit status. */
int bench_report_add(bench_report *report, const dfgnn_measurement *row,
                     const dfgnn_report_note *note);

/* Writes the page.  gbps: the copy bandwidth of the run; 0: not known. */
int bench_report_write(const bench_report *report, const char *path,
                       const char *commit, double gbps);

#endif
