/* SPDX-License-Identifier: Apache-2.0
 *
 * The header is C, and a C program can make a call. Exit 0: as it should be.
 */
#include <stdio.h>
#include <string.h>

#include "gpu/goldenrule_gpu.h"

int main(void) {
  goldenrule_gpu_recurrent_args args;
  char message[256];
  goldenrule_gpu_recurrent_defaults(&args, sizeof args);
  args.K = 1000;
  args.V = args.H = args.HV = 1;
  if (goldenrule_gpu_recurrent_validate(&args, message, sizeof message) !=
      GOLDENRULE_GPU_INVALID_ARGUMENT) {
    return 1;
  }
  if (strcmp(message, "K: expected 1 to 256, actual 1000") != 0) {
    puts(message);
    return 1;
  }
  goldenrule_gpu_prefill_args prefill;
  goldenrule_gpu_prefill_defaults(&prefill, sizeof prefill);
  prefill.V = prefill.H = prefill.HV = prefill.K = 1;
  prefill.flags = GOLDENRULE_GPU_FLAG_PRECISE | GOLDENRULE_GPU_FLAG_NEVER_SPLIT;
  prefill.N = -3;
  if (goldenrule_gpu_prefill_validate(&prefill, message, sizeof message) !=
          GOLDENRULE_GPU_INVALID_ARGUMENT ||
      strcmp(message, "N: expected 0 to 2147483646, actual -3") != 0) {
    puts(message);
    return 1;
  }
  return strcmp(goldenrule_gpu_status_name(GOLDENRULE_GPU_OK), "ok") == 0 ? 0 : 1;
}
