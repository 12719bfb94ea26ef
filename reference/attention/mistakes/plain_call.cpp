// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/mistakes/plain_call.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::attention {
namespace {

using call::Integers;

constexpr std::int64_t kFar = kMaxRangeEnd;

// Whether the key heads are those of a head map, and of which.
std::optional<call::HeadMap> head_map_of(const Plan& plan) {
  for (const call::HeadMap map : {call::HeadMap::kGrouped, call::HeadMap::kTiled}) {
    bool same = true;
    for (std::int64_t j = 0; j < plan.dims.HV; ++j) {
      same = same && plan.key_head[static_cast<std::size_t>(j)] == plan.dims.qk_head(map, j);
    }
    if (same) return map;
  }
  return std::nullopt;
}

// Copies keys or values one by one, in the type that they have, or in f64 where cache and fresh
// ones differ.
class Gathered {
 public:
  Gathered(const Plan& plan, const call::Tensor* fresh, const call::Tensor* cache, std::int64_t dim,
           call::Shape shape)
      : plan_(plan), fresh_(fresh), cache_(cache), dim_(dim) {
    const call::Tensor& one = fresh != nullptr ? *fresh : *cache;
    copies_ = fresh == nullptr || cache == nullptr || fresh->dtype() == cache->dtype();
    tensor_ = call::Tensor(copies_ ? one.dtype() : call::DType::kF64, std::move(shape));
  }

  void add(Source source, std::int64_t row, std::int64_t key_head) {
    if (source != Source::kZeros) {
      const call::Tensor& from = source == Source::kCache ? *cache_ : *fresh_;
      const std::int64_t first = key_element(plan_, source, row, key_head, dim_);
      if (copies_) {
        const std::size_t bytes = call::info(from.dtype()).bytes;
        std::memcpy(tensor_.bytes().data() + static_cast<std::size_t>(next_) * bytes,
                    from.bytes().data() + static_cast<std::size_t>(first) * bytes,
                    static_cast<std::size_t>(dim_) * bytes);
      } else {
        for (std::int64_t i = 0; i < dim_; ++i) tensor_.set(next_ + i, from[first + i]);
      }
    }
    next_ += dim_;
  }
  call::Tensor take() { return std::move(tensor_); }

 private:
  const Plan& plan_;
  const call::Tensor *fresh_, *cache_;
  std::int64_t dim_, next_ = 0;
  bool copies_ = true;
  call::Tensor tensor_;
};

void gather_keys(const call::Record& record, const Plan& plan,
                 const std::vector<std::int64_t>& heads, call::TensorMap& inputs) {
  Integers bounds{0};
  Integers positions;
  for (const Request& request : plan.requests) {
    for (const Run& run : request.runs) {
      for (std::int64_t i = 0; i < run.count; ++i) positions.push_back(run.t + i);
    }
    bounds.push_back(std::ssize(positions));
  }
  const std::int64_t total = bounds.back();
  const Dims& d = plan.dims;
  Gathered k(plan, record.find_input("k"), record.find_input("k_cache"), d.K,
             {total, std::ssize(heads), d.K});
  Gathered v(plan, record.find_input("v"), record.find_input("v_cache"), d.V,
             {total, std::ssize(heads), d.V});
  for (const Request& request : plan.requests) {
    for (const Run& run : request.runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t row = run.source == Source::kZeros ? 0 : run.row + i;
        for (const std::int64_t head : heads) {
          k.add(run.source, row, head);
          v.add(run.source, row, head);
        }
      }
    }
  }
  inputs["k"] = k.take();
  inputs["v"] = v.take();
  inputs["cu_seqlens_k"] = call::integer_tensor(bounds);
  inputs["key_positions"] = call::integer_tensor(positions);
}

void put_ranges(const Plan& plan, call::TensorMap& inputs) {
  const auto tokens = static_cast<std::size_t>(plan.dims.tokens);
  Integers first(tokens, 0);
  Integers last(tokens, 0);
  Integers valid;
  for (const Request& request : plan.requests) {
    valid.push_back(request.valid);
    for (std::int64_t i = 0; i < request.valid; ++i) {
      const Range& range = request.visible[static_cast<std::size_t>(i)];
      const auto at = static_cast<std::size_t>(request.first_query + i);
      first[at] = std::clamp(range.first, -kFar, kFar);
      last[at] = std::clamp(range.last, -kFar, kFar);
    }
  }
  inputs["visible_first"] = call::integer_tensor(first);
  inputs["visible_last"] = call::integer_tensor(last);
  inputs["valid_q"] = call::integer_tensor(valid);
}

}  // namespace

call::Record call_of(const call::Record& record, const Plan& plan) {
  call::Record result = record;
  result.outputs.clear();
  Plan given = make_plan(record);
  given.scale = plan.scale;
  given.soft_cap = plan.soft_cap;
  result.convention.scale = plan.scale;
  result.convention.soft_cap = plan.soft_cap;
  if (given == plan) return result;
  result.inputs.clear();
  result.mode = call::Mode::kPrefill;
  const call::Convention standard;
  call::Convention& c = result.convention;
  c.mask = standard.mask;
  c.block = standard.block;
  c.block_base = standard.block_base;
  c.window_left = standard.window_left;
  c.window_right = standard.window_right;
  c.block_kv = standard.block_kv;
  c.kv_layout = standard.kv_layout;
  c.missing_page = standard.missing_page;
  const std::optional<call::HeadMap> map = head_map_of(plan);
  c.head_map = map.value_or(call::HeadMap::kGrouped);
  std::vector<std::int64_t> heads = plan.key_head;
  if (map) {
    heads.clear();
    for (std::int64_t h = 0; h < plan.dims.H; ++h) heads.push_back(h);
  }
  for (const char* name : {"q", "cu_seqlens_q"}) result.inputs[name] = record.inputs.at(name);
  gather_keys(record, plan, heads, result.inputs);
  put_ranges(plan, result.inputs);
  return result;
}

}  // namespace goldenrule::attention
