/* operator_tensor.c - the table of lib/operator.c for other languages */
#include "base/descriptor.h"
#include "base/error.h"
#include "lib/operator.h"

static void name_shape(char shape[8], uint32_t dims) {
  static const char letters[] = "NMEHDF"; /* by the bits of DFGNN_DIM_... */
  for (int bit = 0; letters[bit]; bit++)
    if (dims & (1u << bit))
      *shape++ = letters[bit];
}

dfgnn_status dfgnn_operator_tensor(dfgnn_tensor_info *info, dfgnn_op op,
                                   dfgnn_pass pass, int i) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("info", dfgnn_tensor_info, "DFGNN_TENSOR_INFO_INIT");
  const dfgnn_operator *found = dfgnn__operator(op, pass);
  dfgnn_tensor_info whole = {0};
  dfgnn_status status = dfgnn__can_give(info, &kind);
  int count = 0;
  if (status)
    return status;
  if (!found)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "there is no operator %d with a pass %d", (int)op,
                       (int)pass);
  while (found->tensors[count].name)
    count++;
  if (i < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "tensor %d of %s, expected a number from 0", i,
                       found->name);
  if (i < count) {
    const dfgnn_tensor *tensor = &found->tensors[i];
    whole.name = tensor->name;
    name_shape(whole.shape, tensor->shape);
    whole.role = tensor->role;
    whole.element = tensor->element;
    whole.flag = tensor->flag;
    whole.strided = tensor->strides != 0;
  }
  dfgnn__give(info, &whole, &kind);
  return DFGNN_OK;
}
