/* absent.h - devices that are described though they are not here */
#ifndef DFGNN_LIB_ABSENT_H
#define DFGNN_LIB_ABSENT_H

#include "db/store.h"

/* Describes a GPU of an architecture, such as "sm_90", by what selection looks
 * at, from NVIDIA's tables of compute capabilities; an architecture that is not
 * in the tables is described as the newest that is not newer. */
void dfgnn__absent_device(dfgnn_device_info *device, const char *arch);

/* Describes the device "ARCH[,MODEL]": with a model, as the rows have it whose
 * architecture is ARCH and whose model's name contains MODEL, else by the
 * tables. Without one, by any row of the architecture, else by
 * dfgnn__absent_device. DFGNN_ERROR_INVALID: the text is no architecture, or
 * nobody knows the model.
 */
dfgnn_status dfgnn__absent_named(dfgnn_device_info *device, const char *text,
                                 const dfgnn_measurement *rows, size_t count);

#endif
