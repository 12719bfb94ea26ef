// SPDX-License-Identifier: Apache-2.0
//
// Captures of kernels that make a known mistake, and a few plain mistakes that do not depend on the
// project's own table.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain::test {

using call::Record;
using call::TensorMap;
using calls::Kernel;
using calls::Mistake;

inline Record make_call(const std::string& line) { return cases::make_record(cases::parse(line)); }

/// `chain` as in Hypothesis: the first is the outermost.
inline Record capture_of(const std::string& line, const std::vector<const Mistake*>& chain) {
  Record record = make_call(line);
  const contract::Contract& contract = delta::default_contract(record);
  Kernel kernel = verdict::emulated_kernel(delta::slice(), contract, 7);
  for (auto m = chain.rbegin(); m != chain.rend(); ++m) {
    kernel = [mistake = *m, inner = kernel](const Record& r) { return mistake->commit(r, inner); };
  }
  record.outputs = calls::stored(record, contract, kernel(record));
  record.contract = contract.name;
  return record;
}

inline Diagnosis diagnosis_of(const Record& record, std::span<const Mistake> table) {
  const contract::Contract& contract = delta::default_contract(record);
  const auto judgement = verdict::judgement(
      delta::slice(), record, {.contract = contract, .precision = scalar::Precision::kDouble});
  return diagnose(judgement, table);
}

inline bool always(const Record&) { return true; }

inline const Mistake kGateLog2{
    .name = "gate_log2",
    .group = "test",
    .meaning = "reads the natural-log gate as base 2",
    .applies = [](const Record& r) { return r.convention.gate == call::Gate::kLog; },
    .commit =
        [](const Record& r, const Kernel& kernel) {
          Record changed = r;
          changed.convention.gate = call::Gate::kLog2;
          return kernel(changed);
        }};

inline const Mistake kScaleMissing{.name = "scale_missing",
                                   .group = "test",
                                   .meaning = "does not multiply q by the scale",
                                   .applies = always,
                                   .commit = [](const Record& r, const Kernel& kernel) {
                                     Record changed = r;
                                     changed.convention.scale = 1.0;
                                     return kernel(changed);
                                   }};

inline const Mistake kHeadTiled{.name = "head_tiled",
                                .group = "test",
                                .meaning = "value head j reads q head j % H",
                                .applies =
                                    [](const Record& r) {
                                      const call::Dims d = call::validate(r);
                                      return d.H > 1 && d.HV > d.H &&
                                             r.convention.head_map == call::HeadMap::kGrouped;
                                    },
                                .commit =
                                    [](const Record& r, const Kernel& kernel) {
                                      Record changed = r;
                                      changed.convention.head_map = call::HeadMap::kTiled;
                                      return kernel(changed);
                                    }};

/// K == V only: the start state is read with its axes exchanged.
inline const Mistake kStateTransposed{
    .name = "state_transposed",
    .group = "test",
    .meaning = "reads the initial state with its last two axes exchanged",
    .applies =
        [](const Record& r) {
          const call::Dims d = call::validate(r);
          return d.K == d.V && r.find_input("initial_state") != nullptr;
        },
    .commit =
        [](const Record& r, const Kernel& kernel) {
          Record changed = r;
          call::Tensor& state = changed.inputs.at("initial_state");
          const call::Tensor before = state;
          const std::int64_t n = state.shape().back();
          for (std::int64_t i = 0; i < state.size(); ++i) {
            const std::int64_t block = i / (n * n);
            state.set(i, before[block * n * n + i % n * n + i / n % n]);
          }
          return kernel(changed);
        }};

inline const Mistake kIntermediateBySlot{
    .name = "intermediate_by_slot",
    .group = "test",
    .meaning = "stores the intermediate states of row b in row state_indices[b]",
    .applies =
        [](const Record& r) {
          return r.mode == call::Mode::kMtp && r.find_input("state_indices") != nullptr;
        },
    .commit =
        [](const Record& r, const Kernel& kernel) {
          TensorMap outputs = kernel(r);
          call::Tensor& states = outputs.at("intermediate_states");
          const call::Tensor right = states;
          const std::vector<std::int64_t> slots = r.inputs.at("state_indices").to_integers();
          const std::int64_t row = states.size() / std::ssize(slots);
          for (std::int64_t i = 0; i < states.size(); ++i) {
            states.set(i, calls::kUnwritten);
          }
          for (std::int64_t b = 0; b < std::ssize(slots); ++b) {
            const std::int64_t to = slots[static_cast<std::size_t>(b)];
            for (std::int64_t i = 0; i < row && to >= 0 && to < std::ssize(slots); ++i) {
              states.set(to * row + i, right[b * row + i]);
            }
          }
          return outputs;
        }};

/// Value channels from 32 on are not written.
inline const Mistake kTailUnwritten{
    .name = "v_tail_unwritten",
    .group = "test",
    .meaning = "does not write o from value channel 32 on",
    .applies = [](const Record& r) { return call::validate(r).V > 32; },
    .commit =
        [](const Record& r, const Kernel& kernel) {
          TensorMap outputs = kernel(r);
          call::Tensor& o = outputs.at("o");
          const std::int64_t V = o.shape().back();
          for (std::int64_t i = 0; i < o.size(); ++i) {
            if (i % V >= 32) o.set(i, calls::kUnwritten);
          }
          return outputs;
        }};

inline std::vector<Mistake> local_table() {
  return {kGateLog2,        kScaleMissing,       kHeadTiled,
          kStateTransposed, kIntermediateBySlot, kTailUnwritten};
}

inline const std::string kDecode = "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=64 slots=permuted";
inline const std::string kDecodeLog =
    "op=kda mode=decode B=3 H=2 HV=4 K=64 V=64 gate=log slots=permuted";
inline const std::string kMtp =
    "op=gdn mode=mtp B=2 T=4 H=2 HV=4 K=64 V=64 gate=log slots=permuted P=5";
inline const std::string kPrefill =
    "op=gdn mode=prefill lens=70,33,1 H=2 HV=4 K=64 V=64 gate=log h0=1";

}  // namespace goldenrule::explain::test
