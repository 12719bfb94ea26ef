/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine does before its first call: is the library the one that the header is of, and does
 * it take the call? Tensors have a shape and no memory yet. Exit 0: yes.
 */
#include <stdio.h>

#include "gpu/goldenrule_gpu.h"

static goldenrule_gpu_tensor tensor(size_t number, int32_t dtype) {
  goldenrule_gpu_tensor t = {0};
  t.data = (char*)0 + (number << 40);
  t.dtype = dtype;
  t.dense = 1;
  return t;
}

int main(void) {
  if (goldenrule_gpu_version() < GOLDENRULE_GPU_VERSION) return 1;
  goldenrule_gpu_recurrent_args args;
  goldenrule_gpu_recurrent_defaults(&args, sizeof args);
  args.gate_kind = GOLDENRULE_GPU_GATE_LOG;
  args.B = args.slots = 3;
  args.T = 1;
  args.H = 2;
  args.HV = 4;
  args.K = args.V = 128;
  args.q = tensor(1, GOLDENRULE_GPU_BF16);
  args.k = tensor(2, GOLDENRULE_GPU_BF16);
  args.v = tensor(3, GOLDENRULE_GPU_BF16);
  args.gate = tensor(4, GOLDENRULE_GPU_F32);
  args.beta = tensor(5, GOLDENRULE_GPU_F32);
  args.o = tensor(6, GOLDENRULE_GPU_BF16);
  args.state = tensor(7, GOLDENRULE_GPU_F32);
  char message[256] = "";
  const goldenrule_gpu_status status =
      goldenrule_gpu_recurrent_validate(&args, message, sizeof message);
  printf("interface %d: %s%s%s\n", goldenrule_gpu_version(), goldenrule_gpu_status_name(status),
         message[0] == 0 ? "" : ": ", message);
  return status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE ? 0 : 1;
}
