/* As much of the CUDA driver as the launchers of Triton call, on a machine that has none: a launch
 * does nothing. */
int cuCtxGetCurrent(void **context) {
  *context = (void *)1;
  return 0;
}

int cuGetErrorString(int error, const char **text) {
  (void)error;
  *text = "none";
  return 0;
}

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
  (void)attribute;
  *(unsigned long long *)data = pointer;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  (void)device;
  *context = (void *)1;
  return 0;
}

int cuCtxSetCurrent(void *context) {
  (void)context;
  return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  (void)attribute;
  (void)value;
  return 0;
}

int cuLaunchKernel(void) { return 0; }

int cuLaunchKernelEx(void) { return 0; }
