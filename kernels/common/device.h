/* device.h - how functions of device code are declared */
#ifndef DFGNN_KERNELS_DEVICE_H
#define DFGNN_KERNELS_DEVICE_H

/* A function that is inline wherever it is called. */
#define DEVICE __device__ __forceinline__

#endif
