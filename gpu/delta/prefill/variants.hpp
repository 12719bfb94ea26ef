// SPDX-License-Identifier: Apache-2.0
//
// The kernels of prefill as data: the first variant of kVariants that serves a call is launched. A
// variant is defined beside its kernels as a constant, and its line in kVariants is all that the
// rest of the library knows of it: places in the dispatch table, names, loading, counters and the
// size of the workspace follow.
//
// serves() sees shape, types, alignment and flags, and the kind of the device. It does not ask for
// N, total or the number of multiprocessors: the bits of a sequence would depend on its neighbours.
// Code for sm_90a runs on devices of capability 9.0 and on no others: its serves(), and runs_on of
// its kernels, ask for exactly that.
#pragma once

#include <cstddef>

#include "gpu/delta/prefill/params.hpp"
#include "gpu/launch/kernel_table.hpp"

namespace goldenrule::gpu::prefill {

/// A call that is about to be launched.
struct Launch {
  Params params;
  Device device;
  void* stream = nullptr;
  bool dependent = false;  ///< programmatic dependent launch, for the first kernel
  int first = 0;           ///< place of the variant's first kernel in the dispatch table

  /// Launches kernel `i` of the variant with the struct at `argument`. Only the first launch of a
  /// call may be dependent on what is in front of it; those behind it say so themselves.
  [[nodiscard]] Problem kernel(int i, std::int64_t blocks, void* argument, bool is_dependent) const;
};

/// What the workspace is a function of.
struct Sizes {
  bool kda = false, precise = false, never_split = false;
  std::int64_t total = 0, N = 0, H = 0, HV = 0, K = 0, V = 0, checkpoint_rows = 0;
};

/// That results keep (`goldenrule list contracts`); nullptr: those of the recurrent kernels.
struct Contracts {
  const char* f32_state = nullptr;
  const char* bf16_state = nullptr;
};

struct Variant {
  const char* name;
  Contracts contracts;
  Contracts contracts_of_segments;  ///< of calls that may_cut
  bool (*serves)(const Params&, const Device&);
  /// Whether a sequence of the call may be cut into segments, by what the host knows of it;
  /// nullptr: none is.
  bool (*may_cut)(const Params&);
  /// Bytes; 0 also for sizes that the variant cannot serve, and for N = 0. nullptr: none.
  std::size_t (*workspace)(const Sizes&);
  int kernels;            ///< in the dispatch table
  Kernel (*kernel)(int);  ///< 0 <= i < kernels; its name begins with "prefill_"
  /// Sets what is left of the parameters and launches; N > 0.
  Problem (*launch)(Launch&);
};

extern const Variant kGdnChunk64;  // gdn.cu
extern const Variant kKdaChunk32;  // kda.cu
extern const Variant kGdnChunk8;   // chunk8.cu
extern const Variant kKdaChunk8;   // chunk8_channel.cu
extern const Variant kGeneral;     // general.cu

/// In the order in which they are asked; the last serves every call.
inline constexpr const Variant* kVariants[] = {
    &kGdnChunk64, &kKdaChunk32, &kGdnChunk8, &kKdaChunk8, &kGeneral,
};

/// The variant that serves a call on a device for which kernels() is prepared.
[[nodiscard]] const Variant& select(const Params& params, const Device& device);

/// The most that any variant asks for; 0 for arguments of which one is refused by itself.
[[nodiscard]] std::size_t workspace_size(const goldenrule_gpu_prefill_args& args);

/// All kernels of all variants as the launcher sees them, with their counters.
KernelTable& kernels();

/// Where the first kernel of a variant stands in it.
[[nodiscard]] int first_kernel(const Variant& variant);

}  // namespace goldenrule::gpu::prefill
