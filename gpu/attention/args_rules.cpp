// SPDX-License-Identifier: Apache-2.0
//
// What the attention call has of its own among the checks and the parameters.
#include <algorithm>
#include <iterator>
#include <numbers>

#include "gpu/attention/args_fields.hpp"
#include "gpu/launch/check_args.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::attention {
namespace {

PageView page_view(const Tensor& tensor, const Strides& s, bool hnd) {
  const std::int64_t size = dtype_size(tensor.dtype);
  return {.data = static_cast<const char*>(tensor.data),
          .page = s[0] * size,
          .slot = narrow_bytes(s[hnd ? 2 : 1] * size),
          .head = narrow_bytes(s[hnd ? 1 : 2] * size)};
}

IndexView index_view(const Tensor& tensor, std::int64_t step) {
  return {.data = tensor.data, .step = step, .wide = is_wide(tensor)};
}

void pack_sizes(const Args& a, Params& p) {
  p.N = narrow(a.N);
  p.H = narrow(a.H);
  p.HV = narrow(a.HV);
  p.group = narrow(a.HV / a.H);
  p.K = narrow(a.K);
  p.V = narrow(a.V);
  const bool tiled = a.head_map == GOLDENRULE_GPU_HEADS_TILED;
  p.head_step = tiled ? p.H : 1;
  p.group_step = tiled ? 1 : p.group;
  p.total = narrow(a.total);
  p.fresh = narrow(a.fresh);
  p.pages = narrow(a.pages);
  p.page_size = narrow(a.page_size);
  p.table_width = narrow(a.table_width);
  p.table_size = narrow(a.table_size);
  p.by_group = Divisor::of(p.group);
  p.by_page = Divisor::of(p.page_size > 0 ? p.page_size : 1);
}

void pack_rule(const Args& a, Params& p) {
  p.mask = static_cast<std::uint8_t>(a.mask);
  p.blocks_of_segment = a.block_base == GOLDENRULE_GPU_BLOCKS_SEGMENT;
  p.in_cache = a.block_kv == GOLDENRULE_GPU_BLOCK_IN_CACHE;
  p.paged = a.page_size > 0;
  p.block = narrow(a.block);
  p.window_left = narrow(a.window_left);
  p.window_right = narrow(a.window_right);
  p.scale_log2 = static_cast<float>(a.scale * std::numbers::log2e);
  p.lse_factor = a.lse_base == GOLDENRULE_GPU_LSE_2 ? 1.F : std::numbers::ln2_v<float>;
}

}  // namespace

std::int64_t Group::extent_of(const Args& a, Axis axis) {
  const bool nhd = a.kv_layout == GOLDENRULE_GPU_PAGES_NHD;
  const bool by_token = a.lse_layout == GOLDENRULE_GPU_LSE_TH;
  switch (axis) {
    case kPacked:
      return a.total;
    case kSequence:
      return a.N;
    case kBound:
      return a.N + 1;
    case kFresh:
      return a.fresh;
    case kPage:
      return a.pages;
    case kOuter:
      return nhd ? a.page_size : a.H;
    case kInner:
      return nhd ? a.H : a.page_size;
    case kTableColumn:
      return a.table_width;
    case kTableEntry:
      return a.table_size;
    case kLseOuter:
      return by_token ? a.total : a.HV;
    case kLseInner:
      return by_token ? a.HV : a.total;
    default:
      return -1;
  }
}

NeedAndWhy Group::need_of(const Args& a, Presence presence) {
  const auto required_if = [](bool condition, const char* why) {
    return NeedAndWhy{condition ? Need::kRequired : Need::kForbidden, why};
  };
  const bool cache = a.page_size > 0;
  const bool list = a.page_indptr.data != nullptr || a.page_indices.data != nullptr;
  switch (presence) {
    case Presence::kCache:
      return required_if(cache, " (page_size)");
    case Presence::kFreshKeys: {
      if (a.block_kv == GOLDENRULE_GPU_BLOCK_IN_CACHE) {
        return {Need::kForbidden, " (GOLDENRULE_GPU_BLOCK_IN_CACHE)"};
      }
      const bool some =
          a.k.data != nullptr || a.v.data != nullptr || a.cu_seqlens_k.data != nullptr;
      return {!cache || some ? Need::kRequired : Need::kOptional,
              cache ? " (beside k, v or cu_seqlens_k)" : " (no cache)"};
    }
    case Presence::kTable:
      return required_if(cache && !list, list ? " (page_indptr)" : " (page_size)");
    case Presence::kPageList:
      return required_if(cache && list, cache ? " (beside page_indptr)" : " (page_size)");
    default:
      return {!cache ? Need::kForbidden
              : list ? Need::kRequired
                     : Need::kOptional,
              cache ? " (beside page_indices)" : " (page_size)"};
  }
}

void Group::check_sizes(const Args& a, Problem& problem) {
  if (a.page_size == 0 && a.block_kv == GOLDENRULE_GPU_BLOCK_IN_CACHE) {
    problem.invalid("page_size", "1 or more (GOLDENRULE_GPU_BLOCK_IN_CACHE)", a.page_size);
  }
  if (a.splits > 0 && std::ranges::find(kSplits, a.splits) == std::end(kSplits)) {
    problem.invalid("splits", "0, 1, 2, 4, 8, 9 or 16", a.splits);
  }
  if (a.total > 0 && a.most_q == 0) problem.invalid("most_q", "1 or more (total)", a.most_q);
  if (problem.ok() && a.total > kInt32Max / (2 * (a.HV / a.H))) {
    problem.invalid("total", "total * HV / H below 2^30", a.total);
  }
  // The largest cluster for each head.
  if (problem.ok() && a.N > kInt32Max / (a.HV * 16)) {
    problem.invalid("N", "N * HV below 2^27", a.N);
  }
}

void Group::pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p) {
  pack_sizes(a, p);
  pack_rule(a, p);
  using Place = TensorStrides<Group>::Place;
  const auto tokens = [&](Place tensor) {
    return token_view(a.*tensor.member, strides[tensor], 1);
  };
  p.q = tokens(&Args::q);
  p.k = tokens(&Args::k);
  p.v = tokens(&Args::v);
  p.o = tokens(&Args::o);
  p.type = element(a.q);
  p.o_type = element(a.o);
  const bool hnd = a.kv_layout == GOLDENRULE_GPU_PAGES_HND;
  p.k_cache = page_view(a.k_cache, strides[&Args::k_cache], hnd);
  p.v_cache = page_view(a.v_cache, strides[&Args::v_cache], hnd);
  const bool by_token = a.lse_layout == GOLDENRULE_GPU_LSE_TH;
  const Strides& l = strides[&Args::lse];
  p.lse = static_cast<float*>(a.lse.data);
  p.lse_token = l[by_token ? 0 : 1];
  p.lse_head = l[by_token ? 1 : 0];
  const auto each = [&](Place tensor) { return index_view(a.*tensor.member, strides[tensor][0]); };
  p.query_bounds = index_view(a.cu_seqlens_q, 1);
  p.fresh_bounds = index_view(a.cu_seqlens_k, 1);
  p.lengths = each(&Args::kv_lens);
  p.table = each(&Args::page_table);
  p.list_bounds = index_view(a.page_indptr, 1);
  p.list = index_view(a.page_indices, 1);
  p.offsets = each(&Args::q_offset);
  p.valid = each(&Args::valid_q);
}

}  // namespace goldenrule::gpu::attention
