/* portfolio.h - the few variants that a problem is served by
 *
 * Of each kind of problem a survey (dfgnn-tune survey) measured every variant
 * on many graphs.  A portfolio keeps the few settings that together are nearly
 * as good as all of them, a condition that picks its default, and the measured
 * times of its members, from which their order on another graph is predicted.
 *
 * Portfolios are text, data/portfolios/README.md describes them, and travel in
 * the library.  A device that has none uses those of the device that is most
 * like it, and a problem that was not surveyed those of the nearest that was.
 * Everything here is a function of its arguments: every process and every rank
 * gets the same answers. */
#ifndef DFGNN_SELECT_PORTFOLIO_H
#define DFGNN_SELECT_PORTFOLIO_H

#include "lib/registry.h"

enum { DFGNN_PORTFOLIO_MOST = 32 }; /* members that a problem may have */

/* The members that run the problem, at most `capacity`; the first is the
 * default.  Families that no portfolio knows follow with a few settings each.
 * At least one if any variant that is no reference runs.  broken: by index of
 * the variant (dfgnn__variant_index), those to leave out; NULL: none. */
int dfgnn__portfolio(const dfgnn_variant **member, int capacity,
                     const dfgnn_setting *setting, const unsigned char *broken);

/* log_ratio[i]: the logarithm of member i's time over that of the best of all,
 * as predicted from the times on other graphs.  Returns 0, and writes nothing,
 * if no complete measurements answer for this problem and device. */
int dfgnn__portfolio_rank(double *log_ratio, const dfgnn_variant *const *member,
                          int count, const dfgnn_setting *setting);

/* Does the variant apply, and is it not broken? */
int dfgnn__variant_runs(const dfgnn_variant *v, const dfgnn_setting *setting,
                        const unsigned char *broken);

/* The member that the portfolio's conditions name, and why; NULL if no variant
 * runs. */
const dfgnn_variant *dfgnn__portfolio_default(const dfgnn_setting *setting,
                                              const unsigned char *broken,
                                              const char **because);

/* The cell whose portfolio serves, as "gt128 of sm_90"; "" if there is none. */
const char *dfgnn__portfolio_cell(const dfgnn_setting *setting);

/* Reads the portfolios, or the file that DFGNN_PORTFOLIOS names instead, once a
 * process; a context asks first, so that a wrong file is told. */
dfgnn_status dfgnn__portfolios_open(void);

/* A digest of all portfolios: what selection depends on beside a store. */
const char *dfgnn__portfolio_digest(void);

#endif
