// SPDX-License-Identifier: Apache-2.0
//
// Calls with right outputs, to plant mistakes in: every output is the exact result rounded once.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::verdict::test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

using goldenrule::cases::record_of;

/// Golden values and everything that `contract` grants, in 106 bits.
inline verdict::Expectations expect(const call::Record& record,
                                    const contract::Contract& contract) {
  return verdict::expect(delta::slice(), record, contract, scalar::Precision::kQuad);
}

/// Outputs of `type`, rounded once; NaN where no kernel writes.
inline void set_right_outputs(call::Record& record, const verdict::Expectations& expected,
                              call::DType type) {
  for (const auto& [name, e] : expected.outputs) {
    call::Tensor t(type, e.exact.shape, e.exact.golden);
    for (std::size_t i = 0; i < e.exact.undefined.size(); ++i) {
      if (e.exact.undefined[i]) t.set(static_cast<std::int64_t>(i), kNaN);
    }
    record.outputs[name] = std::move(t);
  }
}

/// A call with right outputs and what is expected of them.
struct Judged {
  call::Record record;
  const contract::Contract* contract;
  verdict::Expectations expected;

  Judged(const std::string& line, const std::string& contract_name, call::DType type)
      : record(record_of(line)),
        contract(&contract::find_contract(contract_name)),
        expected(expect(record, *contract)) {
    set_right_outputs(record, expected, type);
  }

  [[nodiscard]] TensorReport judge(const std::string& name) const {
    return verdict::judge(name, record.outputs.at(name), expected.outputs.at(name), *contract);
  }
  [[nodiscard]] CaseReport judge_all() const {
    return judge_record(delta::slice(), record,
                        {.contract = *contract, .precision = scalar::Precision::kQuad});
  }
};

inline const TensorReport& tensor(const CaseReport& report, const std::string& name) {
  for (const TensorReport& t : report.tensors) {
    if (t.name == name) return t;
  }
  FAIL("no report on " << name);
  return report.tensors.front();
}

/// One call of every mode, with pools, pads, accepted counts and empty sequences.
inline const std::initializer_list<const char*> kCalls{
    "op=gdn mode=decode B=4 H=1 HV=2 K=16 V=12 slots=padded",
    "op=kda mode=decode B=4 H=1 HV=2 K=16 V=12 slots=separate state_layout=kv",
    "op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=16 V=12 slots=padded accepted=mixed",
    "op=kda mode=mtp B=3 T=3 H=1 HV=2 K=16 V=12 slots=scatter state_layout=kv gate=bounded",
    "op=gdn mode=prefill lens=5,0,9 H=1 HV=2 K=16 V=12 gate=log h0=1",
    "op=kda mode=prefill lens=20 H=2 HV=2 K=16 V=12 gate=log2 state_layout=kv"};

}  // namespace goldenrule::verdict::test
