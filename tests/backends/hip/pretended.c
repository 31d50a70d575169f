/* HIP's functions as its own header declares them: the compiler refuses any other signature.
   Each writes down what it was given; `told` returns that. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <stdio.h>
#include <string.h>

static char text[65536];
static size_t used;
static char block[64];

#define SAY(...) used += (size_t)snprintf(text + used, sizeof text - used, __VA_ARGS__)

const char *told(void) { return text; }

hipError_t hipInit(unsigned int flags) { SAY("hipInit %u\n", flags); return hipSuccess; }
hipError_t hipGetDeviceCount(int *count) { *count = 2; return hipSuccess; }
hipError_t hipRuntimeGetVersion(int *version) { *version = HIP_VERSION; return hipSuccess; }
hipError_t hipSetDevice(int device) { SAY("hipSetDevice %d\n", device); return hipSuccess; }
hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device) {
  *bytes = (size_t)206141652992 + (size_t)device;
  return hipSuccess;
}
hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device) {
  snprintf(name, (size_t)len, "Pretended %d", device);
  return device == 1 ? hipErrorInvalidDevice : hipSuccess;
}
hipError_t hipDeviceGetPCIBusId(char *id, int len, int device) {
  snprintf(id, (size_t)len, "0000:c%d:00.0", device);
  return hipSuccess;
}
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device) {
  memcpy(uuid->bytes, device == 1 ? "0123456789abcdef" : "XX\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device) {
  (void)device;
  switch (attribute) {
    case hipDeviceAttributeMultiprocessorCount: *value = 304; return hipSuccess;
    case hipDeviceAttributeL2CacheSize: *value = 4 << 20; return hipSuccess;
    case hipDeviceAttributeCanUseStreamWaitValue: *value = 1; return hipSuccess;
    default: return hipErrorInvalidValue;
  }
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t *found, int device) {
  memset(found, 0xff, sizeof *found);
  snprintf(found->gcnArchName, sizeof found->gcnArchName, "gfx94%d:sramecc+:xnack-", device + 2);
  return hipSuccess;
}
hipError_t hipMemGetInfo(size_t *available, size_t *total) {
  *available = (size_t)5 << 32;
  *total = (size_t)6 << 32;
  return hipSuccess;
}
hipError_t hipMalloc(void **address, size_t bytes) {
  SAY("hipMalloc %zu\n", bytes);
  if (bytes > (size_t)1 << 40) return hipErrorOutOfMemory;
  *address = (void *)0x7f0012345678;
  return hipSuccess;
}
hipError_t hipFree(void *address) { SAY("hipFree %p\n", address); return hipSuccess; }
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address) {
  for (int i = 0; i < HIP_IPC_HANDLE_SIZE; i++) handle->reserved[i] = (char)(i * 5);
  SAY("hipIpcGetMemHandle %p\n", address);
  return hipSuccess;
}
hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags) {
  for (int i = 0; i < HIP_IPC_HANDLE_SIZE; i++)
    if (handle.reserved[i] != (char)(i * 5)) return hipErrorInvalidValue;
  if (flags != hipIpcMemLazyEnablePeerAccess) return hipErrorInvalidValue;
  *address = (void *)0x7e0012345678;
  return hipSuccess;
}
hipError_t hipIpcCloseMemHandle(void *address) {
  SAY("hipIpcCloseMemHandle %p\n", address);
  return hipSuccess;
}
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
  *event = (hipEvent_t)0x7d0000000010;
  return flags == hipEventDefault ? hipSuccess : hipErrorInvalidValue;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  SAY("hipEventRecord %p %p\n", (void *)event, (void *)stream);
  return hipSuccess;
}
hipError_t hipEventQuery(hipEvent_t event) {
  return event == (hipEvent_t)0x7d0000000010 ? hipErrorNotReady : hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t event) {
  SAY("hipEventSynchronize %p\n", (void *)event);
  return hipErrorIllegalAddress;
}
hipError_t hipEventElapsedTime(float *ms, hipEvent_t start, hipEvent_t stop) {
  *ms = start == stop ? 0.0f : 0.125f;
  return hipSuccess;
}
hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags) {
  if (bytes > sizeof block) return hipErrorOutOfMemory;
  if (flags != (hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent))
    return hipErrorInvalidValue;
  *address = block;
  return hipSuccess;
}
hipError_t hipHostRegister(void *address, size_t bytes, unsigned int flags) {
  SAY("hipHostRegister %p %zu\n", address, bytes);
  return flags == (hipHostRegisterPortable | hipHostRegisterMapped) ? hipSuccess
                                                                    : hipErrorInvalidValue;
}
hipError_t hipHostGetDevicePointer(void **on_device, void *on_host, unsigned int flags) {
  *on_device = on_host;
  return flags == 0 ? hipSuccess : hipErrorInvalidValue;
}
hipError_t hipStreamWaitValue32(hipStream_t stream, void *address, uint32_t value,
                                unsigned int flags, uint32_t mask) {
  SAY("hipStreamWaitValue32 %p %p %u %08x\n", (void *)stream, address, value, mask);
  return flags == hipStreamWaitValueGte ? hipSuccess : hipErrorInvalidValue;
}
hipError_t hipStreamWriteValue32(hipStream_t stream, void *address, uint32_t value,
                                 unsigned int flags) {
  SAY("hipStreamWriteValue32 %p %p %u %u\n", (void *)stream, address, value, flags);
  return hipSuccess;
}
const char *hipGetErrorName(hipError_t error) {
  return error == hipErrorIllegalAddress ? "hipErrorIllegalAddress" : "another";
}
const char *hipGetErrorString(hipError_t error) {
  return error == hipErrorIllegalAddress ? "an illegal memory access" : "pretended";
}
