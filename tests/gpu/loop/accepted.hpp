// SPDX-License-Identifier: Apache-2.0
//
// What the acceptance of drafts decides, by the oracle of the operation: both worlds ask it, each
// with its own tokens, since the library has no kernel for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/drafts/rule/evaluate.hpp"

namespace goldenrule::test::loop {

/// The outputs of a draft acceptance, exact.
class Accepted {
 public:
  explicit Accepted(const call::Record& record) : outputs_(drafts::evaluate(record).outputs) {}
  [[nodiscard]] std::int64_t operator()(const char* name, std::size_t i) const {
    return static_cast<std::int64_t>(outputs_.at(name).exact.golden[i]);
  }

 private:
  std::map<std::string, verdict::Expected> outputs_;
};

}  // namespace goldenrule::test::loop
