// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the library, with the types of their parameters: all of decode and MTP, of
// attention, and a line for each variant of prefill.
#include "gpu/attention/table.hpp"
#include "gpu/delta/prefill/sm90/gdn.cuh"
#include "gpu/delta/prefill/sm90/kda.cuh"
#include "gpu/delta/prefill/variants.hpp"
#include "gpu/delta/recurrent/table.hpp"

namespace goldenrule::simt {
namespace {

/// The kernels of a variant, which take one P.
template <class P>
void add_variant(const gpu::prefill::Variant& variant) {
  for (int i = 0; i < variant.kernels; ++i) {
    const gpu::Kernel kernel = variant.kernel(i);
    add_kernel(reinterpret_cast<void (*)(P)>(const_cast<void*>(kernel.function)), kernel.name);
  }
}

}  // namespace

void add_library_kernels() {
  for (int i = 0; i < gpu::recurrent::kTableSize; ++i) {
    const gpu::recurrent::Entry& entry = gpu::recurrent::table_entry(i);
    add_kernel(entry.kernel, entry.name.text);
  }
  for (int i = 0; i < gpu::attention::kTableSize; ++i) {
    add_kernel(gpu::attention::entry_function(i), gpu::attention::kernels().name(i));
  }
  add_variant<gpu::prefill::GdnCall>(gpu::prefill::kGdnChunk64);
  add_variant<gpu::prefill::KdaCall>(gpu::prefill::kKdaChunk32);
  add_variant<gpu::prefill::Params>(gpu::prefill::kGdnChunk8);
  add_variant<gpu::prefill::Params>(gpu::prefill::kKdaChunk8);
  add_variant<gpu::prefill::Params>(gpu::prefill::kGeneral);
}

}  // namespace goldenrule::simt
