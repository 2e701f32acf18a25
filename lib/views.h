/* views.h - views of a graph in host memory */
#ifndef DFGNN_LIB_VIEWS_H
#define DFGNN_LIB_VIEWS_H

#include "kernels/common/variant.h"

/* Builds view->request; its arrays are the caller's to free. */
dfgnn_status dfgnn__view_build(dfgnn_view *view, const dfgnn_matrix *matrix);

#endif
