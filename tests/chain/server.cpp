// SPDX-License-Identifier: Apache-2.0
#include "tests/chain/server.hpp"

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/token_tree.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/slice.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::testing {
namespace {

constexpr std::int64_t kStateSize = Server::kHV * Server::kK * Server::kV;

call::Tensor integers(const std::vector<std::int64_t>& values) {
  const std::vector<double> numbers(values.begin(), values.end());
  return {call::DType::kI64, {std::ssize(values)}, numbers};
}

call::Tensor zeros(call::DType dtype, std::int64_t blocks) {
  return {dtype, {blocks, Server::kHV, Server::kV, Server::kK}};
}

}  // namespace

Server::Server(const ServerOptions& options)
    : options_(options), pool_(zeros(options.pool, kSlots)) {
  for (std::int64_t slot = 0; slot < kSlots; ++slot) {  // what earlier requests left
    const random::Stream stream(options.seed, "old " + std::to_string(slot));
    for (std::int64_t i = 0; i < kStateSize; ++i) {
      pool_.set(slot * kStateSize + i, stream.uniform(i, -0.5, 0.5));
    }
  }
}

call::Tensor Server::draw(const std::string& name, call::Shape shape, double low, double high) {
  const std::int64_t call = options_.repeats ? 0 : index;
  const random::Stream stream(options_.seed, name + " " + std::to_string(call));
  call::Tensor tensor(call::DType::kF32, std::move(shape));
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, stream.uniform(i, low, high));
  return tensor;
}

void Server::draw_tokens(const call::Shape& tokens, call::Record& r) {
  const auto shape = [&](std::initializer_list<std::int64_t> more) {
    call::Shape all = tokens;
    all.insert(all.end(), more);
    return all;
  };
  r.convention.gate = call::Gate::kLog;
  r.convention.beta = call::BetaForm::kDirect;
  r.inputs["q"] = draw("q", shape({kH, kK}), -1, 1);
  r.inputs["k"] = draw("k", shape({kH, kK}), -1, 1);
  call::Tensor& v = r.inputs["v"] = draw("v", shape({kHV, kV}), -1, 1);
  for (std::int64_t i = 0; options_.v && i < v.size(); ++i) v.set(i, options_.v(i, v[i]));
  r.inputs["g"] = draw("g", r.op == call::Op::kKda ? shape({kHV, kK}) : shape({kHV}),
                       options_.fastest_decay, options_.slowest_decay);
  r.inputs["beta"] = draw("beta", shape({kHV}), 0.2, 1.0);
}

chain::Call Server::serve(call::Mode mode, const std::vector<ServedRow>& rows) {
  const bool prefill = mode == call::Mode::kPrefill;
  const bool mtp = mode == call::Mode::kMtp;
  const bool packed = prefill || (mtp && options_.packed);
  std::vector<std::int64_t> ids, slots, flags, at, restored, bounds{0}, kept, cu_kept{0};
  std::vector<std::int64_t> accepted, last, told, parents;
  bool is_tree = false;
  for (const ServedRow& row : rows) {
    ids.push_back(row.request);
    slots.push_back(row.slot);
    flags.push_back(row.fresh ? 0 : 1);
    if (row.fresh) positions[row.request] = 0;
    at.push_back(row.request < 0 ? 0 : positions[row.request]);
    restored.push_back(row.restored_from);
    is_tree = is_tree || !row.parents.empty();
    const std::int64_t drafts = options_.packed ? row.tokens : kDrafts;
    for (std::int64_t t = 0; mtp && t < drafts; ++t) {
      parents.push_back(row.parents.empty() ? t - 1 : row.parents[static_cast<std::size_t>(t)]);
    }
    last.push_back(row.parents.empty() ? row.accepted - 1 : row.last);
    told.push_back(last.back() + 1);
    accepted.push_back(call::depth_of(row.parents, told.back()));
    bounds.push_back(bounds.back() + row.tokens);
    for (std::int64_t t = 8; t <= row.tokens; t += 8) kept.push_back(t);
    cu_kept.push_back(std::ssize(kept));
    if (row.request >= 0) {
      positions[row.request] += prefill ? row.tokens : mtp ? accepted.back() : 1;
    }
  }
  const std::int64_t B = std::ssize(rows);
  const call::Shape tokens =
      packed ? call::Shape{bounds.back()} : call::Shape{B, mtp ? kDrafts : 1};
  chain::Call call{.chain = "test", .index = index, .record = {}};
  call::Record& r = call.record;
  r.op = options_.op;
  r.mode = mode;
  draw_tokens(tokens, r);
  r.inputs["initial_state"] = pool_;
  r.inputs["state_indices"] = integers(slots);
  r.inputs["request_ids"] = integers(ids);
  r.inputs["positions"] = integers(at);
  r.inputs["restored_from"] = integers(restored);
  if (!mtp) r.inputs["has_initial_state"] = integers(flags);
  if (mtp) {
    r.inputs["accepted_tokens"] = integers(told);
    r.inputs["accepted_counts"] = integers(accepted);
  }
  if (is_tree) {
    r.inputs["accepted_last"] = integers(last);
    r.inputs["parent_tokens"] = call::integer_tensor(parents, tokens);
  }
  if (packed) r.inputs["cu_seqlens"] = integers(bounds);
  if (prefill) {
    r.inputs["checkpoint_offsets"] = integers(kept);
    r.inputs["cu_checkpoints"] = integers(cu_kept);
  }
  compute(r);
  ++index;
  return call;
}

chain::Call Server::serve_prompts() {
  return serve(call::Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 9, .fresh = true},
                                      {.request = 2, .slot = 0, .tokens = 5, .fresh = true}});
}

void Server::compute(call::Record& r) {
  const verdict::Slice& slice = delta::slice();
  const auto exact = slice.emulate(r, slice.default_contract(r), options_.seed + 7);
  for (const auto& [name, values] : exact) {
    const bool state = name != "o";
    r.outputs[name] = call::Tensor(state ? options_.pool : call::DType::kF32, values.shape(),
                                   values.to_doubles());
  }
  last_ = r.outputs;
  pool_ = r.outputs.at("final_state");
}

std::vector<double> Server::state(std::int64_t slot) const {
  std::vector<double> values(static_cast<std::size_t>(kStateSize));
  pool_.read(slot * kStateSize, kStateSize, values.data());
  return values;
}

void Server::put(std::int64_t slot, const std::vector<double>& state) {
  for (std::int64_t i = 0; i < kStateSize; ++i) {
    pool_.set(slot * kStateSize + i, state[static_cast<std::size_t>(i)]);
  }
}

std::vector<double> Server::left(const std::string& output, std::int64_t at) const {
  std::vector<double> values(static_cast<std::size_t>(kStateSize));
  last_.at(output).read(at * kStateSize, kStateSize, values.data());
  return values;
}

Judged judge(const std::vector<chain::Call>& calls, chain::Options options) {
  chain::Judge judge(suites::slice_of, std::move(options));
  Judged result;
  for (const chain::Call& call : calls) {
    for (chain::Finding& finding : judge.add(call)) result.findings.push_back(std::move(finding));
  }
  result.summary = judge.finish();
  return result;
}

chain::Call without_states(chain::Call call) {
  call.record.inputs["initial_state"] = zeros(call.record.inputs.at("initial_state").dtype(), 0);
  call.record.outputs.clear();
  return call;
}

chain::Call with_o_alone(const chain::Call& call) {
  chain::Call bare = without_states(call);
  bare.record.outputs["o"] = call.record.outputs.at("o");
  return bare;
}

}  // namespace goldenrule::testing
