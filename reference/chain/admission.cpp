// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/admission.hpp"

#include <map>
#include <string>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/operation.hpp"

namespace goldenrule::chain {
namespace {

// A pool has one type, and a call that stores none of it says which, as a recorder has it that
// may widen (widening.hpp). What the pool itself is counts where such a call came first. Returns
// what forbids the call to go on.
std::string other_pool(const Call& call, const call::Record& record, Memory& memory,
                       std::vector<Finding>& findings) {
  const call::Tensor* pool = record.find_input("initial_state");
  if (pool == nullptr) return {};
  const PoolType now{.declared = call.record.inputs.at("initial_state").dtype(),
                     .call = call.index,
                     .held = has_states(record)};
  const std::optional<PoolType> before = memory.pool_type;
  const call::DType expected = memory.layout->pool;
  if (!before || (now.held && !before->held)) {
    memory.pool_type = now;
    memory.layout->pool = pool->dtype();
  }
  if (!before || pool->dtype() == expected) return {};
  const bool both = before->held && now.held;
  if (!both && before->declared == now.declared) return {};
  std::string differs =
      "/inputs/initial_state: expected " + std::string(call::info(expected).name) +
      ", the type of the pool" + (before->held ? "" : " of no slots") + " in call " +
      std::to_string(before->call) + ", actual " + std::string(call::info(pool->dtype()).name);
  if (before->held || !now.held) return differs;
  findings.push_back(input_finding(call.index, std::move(differs)));
  return {};
}

bool is_same_kind(const Call& call, const call::Record& record, const call::Dims& dims,
                  Memory& memory, std::vector<Finding>& findings) {
  if (!memory.layout) {
    memory.kind.op = record.op;
    memory.kind.convention = record.convention;
    memory.dims = dims;
    memory.layout.emplace(record, dims);
  }
  std::string differs = differing_extent({{"HV", memory.dims.HV, dims.HV},
                                          {"H", memory.dims.H, dims.H},
                                          {"K", memory.dims.K, dims.K},
                                          {"V", memory.dims.V, dims.V}});
  if (record.op != memory.kind.op) differs = "op: another than that of the first call";
  if (record.convention.state_layout != memory.kind.convention.state_layout) {
    differs = "state_layout: another than that of the first call";
  }
  if (differs.empty()) differs = other_pool(call, record, memory, findings);
  if (differs.empty()) return true;
  findings.push_back(input_finding(call.index, differs + "; the call is left out of the chain"));
  return false;
}

// Two requests that write one slot, each with its row; the plan would only name the slot. Several
// may start from one: a prefix that they share.
void shared_slots(const Call& call, const call::Record& record, const call::Dims& dims,
                  std::vector<Finding>& findings) {
  const call::Tensor* slots = record.find_input("output_state_indices");
  if (slots == nullptr) slots = record.find_input("state_indices");
  if (slots == nullptr) return;
  const std::vector<call::ChainRow> rows = call::chain_rows(record, dims);
  std::map<std::int64_t, std::size_t> users;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto slot = static_cast<std::int64_t>((*slots)[static_cast<std::int64_t>(i)]);
    if (slot == record.convention.pad_slot || rows[i].request == call::kNoRequest) continue;
    const auto [user, is_new] = users.emplace(slot, i);
    if (is_new) continue;
    Finding finding = input_finding(
        call.index, "requests " + std::to_string(rows[user->second].request) + " and " +
                        std::to_string(rows[i].request) + " share the slot");
    finding.request = rows[i].request;
    finding.slot = slot;
    finding.row = static_cast<std::int64_t>(i);
    findings.push_back(std::move(finding));
  }
}

}  // namespace

std::string differing_extent(std::initializer_list<LayerExtent> extents) {
  for (const auto& [name, expected, actual] : extents) {
    if (expected == actual) continue;
    return std::string(name) + ": expected " + std::to_string(expected) + ", actual " +
           std::to_string(actual);
  }
  return {};
}

Finding input_finding(std::int64_t index, std::string text) {
  Finding finding;
  finding.verdict = verdict::Verdict::kError;
  finding.call = index;
  finding.text = std::move(text);
  return finding;
}

bool admit(const Call& call, const call::Record& record, const call::Dims& dims, Memory& memory,
           std::vector<Finding>& findings) {
  if (!call::has_pool(record)) {
    findings.push_back(input_finding(call.index,
                                     "/inputs/state_indices: expected the slot of each "
                                     "sequence; a chain goes on in a pool"));
    return false;
  }
  if (!is_same_kind(call, record, dims, memory, findings)) return false;
  memory.refuse_beyond(record, dims);
  shared_slots(call, record, dims, findings);
  return true;
}

}  // namespace goldenrule::chain
