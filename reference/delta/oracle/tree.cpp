// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/tree.hpp"

#include <algorithm>
#include <string_view>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/call/token_tree.hpp"

namespace goldenrule::delta {
namespace {

// Blocks of `width` values; vectors that one of both does not have are left.
template <class T, class Moves>
void copy_blocks(const std::vector<T>& from, std::vector<T>& to, const Moves& moves,
                 std::size_t width) {
  if (from.empty() || to.empty()) return;
  for (const auto& m : moves) {
    std::copy_n(
        from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(m.from) * width), width,
        to.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(m.to) * width));
  }
}

}  // namespace

Paths::Paths(const call::Record& record) : chain_(record) {
  chain_.inputs.erase("parent_tokens");
  call::erase_chain_inputs(chain_);  // said of the tree
  chain_.outputs.clear();
  const call::Plan plan = call::make_plan(record, true);
  heads_ = static_cast<std::size_t>(plan.dims.HV);
  limit_ = kMostPathTokens * plan.dims.tokens;
  for (const call::Sequence& row : plan.sequences) add_row(row);
  gather(record, plan.dims);
}

void Paths::add_row(const call::Sequence& row) {
  Integers owner(static_cast<std::size_t>(row.token_count), -1);
  std::vector<bool> is_parent(owner.size(), false);
  for (const std::int64_t parent : row.parents) {
    if (parent >= 0) is_parent[static_cast<std::size_t>(parent)] = true;
  }
  for (std::int64_t t = 0; t < row.token_count; ++t) {
    if (!is_parent[static_cast<std::size_t>(t)]) add_path(row, t, owner);
  }
  add_writes(row, owner);
}

// `owner` tells for each token of the row which token of the unfolded call has it first.
void Paths::add_path(const call::Sequence& row, std::int64_t leaf, Integers& owner) {
  for (const std::int64_t t : call::path_to(row.parents, leaf + 1)) {
    std::int64_t& first = owner[static_cast<std::size_t>(t)];
    if (first < 0) first = std::ssize(tokens_);
    tokens_.push_back(row.first_token + t);
    path_.push_back(std::ssize(starts_));
  }
  if (std::ssize(tokens_) > limit_) {
    throw Error(ErrorKind::kValue, "/inputs/parent_tokens",
                "paths of together at most " + std::to_string(limit_) + " tokens, " +
                    std::to_string(kMostPathTokens) + " times those of the call",
                "at least " + std::to_string(tokens_.size()));
  }
  bounds_.push_back(std::ssize(tokens_));
  starts_.push_back(row.padded ? -1 : row.start_block);
  writes_.emplace_back();
}

// What the rule leaves: o of each token, and states after one token or more.
void Paths::add_writes(const call::Sequence& row, const Integers& owner) {
  for (std::int64_t t = 0; t < row.token_count && !row.padded; ++t) {
    o_.push_back({owner[static_cast<std::size_t>(t)], row.first_token + t});
  }
  for (const call::Snapshot& s : row.snapshots) {
    if (s.after == 0) continue;
    const std::int64_t from = owner[static_cast<std::size_t>(s.after - 1)];
    if (s.target == call::Target::kIntermediateStates) kept_.push_back({from, s.block});
    if (s.target != call::Target::kFinalState) continue;
    final_state_.push_back({s.block, s.block});
    auto path = static_cast<std::size_t>(path_[static_cast<std::size_t>(from)]);
    const std::int64_t place = from - bounds_[path];
    const auto taken = [&](const call::Snapshot& other) { return other.after == place + 1; };
    if (std::ranges::any_of(writes_[path], taken)) {  // a second slot takes a path of its own
      Integers again = owner;
      add_path(row, s.after - 1, again);
      path = writes_.size() - 1;
    }
    writes_[path].push_back({place + 1, s.target, s.block});
  }
}

void Paths::gather(const call::Record& record, const call::Dims& dims) {
  unfolded_ = {.op = record.op,
               .mode = record.mode,
               .convention = record.convention,
               .source = {},
               .contract = {},
               .case_line = {},
               .inputs = {},
               .outputs = {}};
  unfolded_.convention.pad_slot = -1;
  const std::size_t rank = call::token_rank(record);
  call::for_each_input(record, dims, [&](const auto& row, const auto&, const call::Tensor& given) {
    const std::string name(row.name);
    if (row.is_per_token()) {
      unfolded_.inputs[name] =
          call::take(call::with_leading(given, rank, {dims.tokens}), 0, tokens_);
    } else if (name == "A_log" || name == "dt_bias" || name == "initial_state") {
      unfolded_.inputs[name] = given;
    }
  });
  const std::int64_t rows = std::ssize(starts_);
  std::int64_t steps = 1;
  for (std::size_t p = 0; p < starts_.size(); ++p) {
    steps = std::max(steps, bounds_[p + 1] - bounds_[p]);
  }
  // A slot for each token says what is left in the pool, whatever the tree's call says it with.
  Integers slots(static_cast<std::size_t>(rows * steps), -1);
  for (std::size_t p = 0; p < starts_.size(); ++p) {
    for (const call::Snapshot& s : writes_[p]) {
      slots[p * static_cast<std::size_t>(steps) + static_cast<std::size_t>(s.after - 1)] = s.block;
    }
  }
  unfolded_.inputs["cu_seqlens"] = call::integer_tensor(bounds_, {rows + 1});
  unfolded_.inputs["state_indices"] = call::integer_tensor(starts_, {rows});
  unfolded_.inputs["ssm_state_indices"] = call::integer_tensor(slots, {rows, steps});
}

const std::vector<Paths::Move>& Paths::moves(const std::string& name) const {
  if (name == "o") return o_;
  return name == "final_state" ? final_state_ : kept_;
}

void Paths::fold(const verdict::Exact& from, const std::string& name, verdict::Exact& to) const {
  copy_blocks(from.golden, to.golden, moves(name), to.block * heads_);
  copy_blocks(from.radius, to.radius, moves(name), to.block * heads_);
  copy_blocks(from.touched, to.touched, moves(name), heads_);
  copy_blocks(from.reach, to.reach, moves(name), heads_ * to.channels);
}

void Paths::fold(const verdict::Grant& from, const std::string& name, const verdict::Exact& exact,
                 verdict::Grant& to) const {
  const std::size_t block = exact.block * heads_;
  copy_blocks(from.spread, to.spread, moves(name), block);
  copy_blocks(from.sigma, to.sigma, moves(name), block);
  copy_blocks(from.bias, to.bias, moves(name), block);
  copy_blocks(from.flushed, to.flushed, moves(name), heads_ * exact.channels);
}

void Paths::fold(const call::TensorMap& from, call::TensorMap& to) const {
  const call::Dims dims = call::validate(chain_);
  for (auto& [name, tensor] : to) {
    const auto unfolded = from.find(name);
    if (unfolded == from.end()) continue;
    std::vector<double> values = tensor.to_doubles();
    const call::Strides at = call::output_strides(chain_, dims, name);
    copy_blocks(unfolded->second.to_doubles(), values, moves(name),
                static_cast<std::size_t>(at.row));
    tensor = call::Tensor(call::DType::kF64, tensor.shape(), values);
  }
}

}  // namespace goldenrule::delta
