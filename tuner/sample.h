/* sample.h - the nodes of a large graph whose results are checked */
#ifndef DFGNN_TUNER_SAMPLE_H
#define DFGNN_TUNER_SAMPLE_H

#include "tuner/tensors.h"

/* Chooses all destinations of a matrix on the host, if they and their edges are
 * together not more than `most`, else a sample of about so many: see the file.
 * nodes->index is in order.  0: no memory. */
int dfgnn__sample_nodes(dfgnn_checked *nodes, const dfgnn_matrix *matrix,
                        double most);

#endif
