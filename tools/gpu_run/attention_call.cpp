// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_run/attention_call.hpp"

#include <algorithm>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "gpu/attention/args_fields.hpp"
#include "tools/gpu_run/numbering.hpp"

namespace goldenrule::gpu {
namespace {

static_assert(same(call::Mask::kFull, GOLDENRULE_GPU_MASK_FULL) &&
              same(call::Mask::kCausal, GOLDENRULE_GPU_MASK_CAUSAL) &&
              same(call::Mask::kBlockCausal, GOLDENRULE_GPU_MASK_BLOCK_CAUSAL));
static_assert(same(call::BlockBase::kAbsolute, GOLDENRULE_GPU_BLOCKS_ABSOLUTE) &&
              same(call::BlockBase::kSegment, GOLDENRULE_GPU_BLOCKS_SEGMENT));
static_assert(same(call::BlockKv::kSeparate, GOLDENRULE_GPU_BLOCK_SEPARATE) &&
              same(call::BlockKv::kInCache, GOLDENRULE_GPU_BLOCK_IN_CACHE));
static_assert(same(call::KvLayout::kNhd, GOLDENRULE_GPU_PAGES_NHD) &&
              same(call::KvLayout::kHnd, GOLDENRULE_GPU_PAGES_HND));
static_assert(same(call::LseBase::kE, GOLDENRULE_GPU_LSE_E) &&
              same(call::LseBase::k2, GOLDENRULE_GPU_LSE_2));
static_assert(same(call::LseLayout::kTh, GOLDENRULE_GPU_LSE_TH) &&
              same(call::LseLayout::kHt, GOLDENRULE_GPU_LSE_HT));

// What the kernels have no argument for.
void refuse_unknown(const call::Record& record) {
  if (record.convention.soft_cap != 0.0) {
    throw Error(ErrorKind::kValue, "/convention@soft_cap", "0, which the kernels compute",
                std::to_string(record.convention.soft_cap));
  }
  for (const char* name : {"key_positions", "visible_first", "visible_last"}) {
    if (record.find_input(name) == nullptr) continue;
    throw Error(ErrorKind::kSchema, "/inputs/" + std::string(name),
                "no dataset: the kernels know masks and windows, and keys in order", "a dataset");
  }
}

void set_sizes(const call::Record& record, goldenrule_gpu_attention_args& a) {
  const call::Dims d = call::validate(record);
  a.total = d.tokens;
  a.N = d.rows;
  const call::Tensor& bounds = record.inputs.at("cu_seqlens_q");
  for (std::int64_t n = 0; n < d.rows; ++n) {
    a.most_q = std::max(a.most_q, static_cast<std::int64_t>(bounds[n + 1] - bounds[n]));
  }
  a.fresh = d.fresh_keys;
  a.H = d.H;
  a.HV = d.HV;
  a.K = d.K;
  a.V = d.V;
  a.pages = d.pages;
  a.page_size = d.page_size;
  a.table_width = d.table_width;
  a.table_size = d.table_size;
  a.scale = call::resolved_scale(record.convention, d.K);
}

void set_rule(const call::Convention& c, goldenrule_gpu_attention_args& a) {
  a.mask = static_cast<std::int32_t>(c.mask);
  a.block_base = static_cast<std::int32_t>(c.block_base);
  a.block_kv = static_cast<std::int32_t>(c.block_kv);
  a.kv_layout = static_cast<std::int32_t>(c.kv_layout);
  a.head_map = static_cast<std::int32_t>(c.head_map);
  a.lse_base = static_cast<std::int32_t>(c.lse_base);
  a.lse_layout = static_cast<std::int32_t>(c.lse_layout);
  a.block = c.block;
  a.window_left = c.window_left;
  a.window_right = c.window_right;
}

}  // namespace

call::TensorMap make_attention_outputs(const call::Record& record) {
  const call::Dims d = call::validate(record);
  call::TensorMap outputs;
  outputs["o"] = call::Tensor(record.inputs.at("q").dtype(), call::output_shape(record, d, "o"));
  outputs["lse"] = call::Tensor(call::DType::kF32, call::output_shape(record, d, "lse"));
  return outputs;
}

goldenrule_gpu_attention_args make_attention_args(const call::Record& record, const Place& place) {
  refuse_unknown(record);
  goldenrule_gpu_attention_args a;
  goldenrule_gpu_attention_defaults(&a, sizeof a);
  set_sizes(record, a);
  set_rule(record.convention, a);
  for (const auto& tensor : attention::Group::kTensors) {
    for (const call::TensorMap* from : {&record.inputs, &record.outputs}) {
      const auto it = from->find(tensor.field.name);
      if (it == from->end()) continue;
      goldenrule_gpu_tensor& to = a.*tensor.field.member;
      to = place(tensor.field.name, it->second);
      to.dtype = static_cast<std::int32_t>(it->second.dtype());
    }
  }
  return a;
}

}  // namespace goldenrule::gpu
