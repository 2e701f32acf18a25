/* stddef.h - size_t and NULL, for device code compiled without a C library */
#ifndef DFGNN_DEVICE_STDDEF_H
#define DFGNN_DEVICE_STDDEF_H

typedef unsigned long size_t;
#ifndef NULL
#define NULL 0
#endif
#define offsetof(type, member) __builtin_offsetof(type, member)

#endif
