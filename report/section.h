/* section.h - the sections of the page, one file each */
#ifndef DFGNN_REPORT_SECTION_H
#define DFGNN_REPORT_SECTION_H

#include "report/data.h"
#include "report/page.h"

typedef void (*report_section)(dfgnn_page *page, const report_data *data);

void dfgnn__report_head(dfgnn_page *page, const report_data *data);
void dfgnn__report_map(dfgnn_page *page, const report_data *data);
void dfgnn__report_problems(dfgnn_page *page, const report_data *data);
void dfgnn__report_parameters(dfgnn_page *page, const report_data *data);
void dfgnn__report_graphs(dfgnn_page *page, const report_data *data);
void dfgnn__report_cost(dfgnn_page *page, const report_data *data);
void dfgnn__report_unseen(dfgnn_page *page, const report_data *data);
void dfgnn__report_against(dfgnn_page *page, const report_data *data);

/* Adds a link to a problem's details, with its graph and shape as text. */
void dfgnn__report_link(dfgnn_page *page, const report_data *data,
                        const report_problem *problem);
/* The geometric mean of the values that are finite and above zero; NaN if there
 * are none.  count (may be NULL) gets their number. */
double dfgnn__report_mean(size_t *count, const double *value, size_t values);

#endif
