// SPDX-License-Identifier: Apache-2.0
//
// Which draw of its thresholds or of its head answers a question. The rule stands before any kernel
// has run: the first under which the decision is clear to the reference, by its own numbers and the
// bounds beside them. The kernels' side takes the same draw and has no say.
#pragma once

#include <map>
#include <string>

#include "fixtures/call/error.hpp"
#include "tests/gpu/loop/model.hpp"

namespace goldenrule::test::loop {

class Draws {
 public:
  /// A decision is not clear with a probability p that the bounds make about 1 in 10 for a token
  /// and far less for signs; independent draws are all unclear with p^n: 10^-12 for a token.
  static constexpr int kMost = 12;

  /// The reference's answer; remembers the draw.
  std::int64_t lead(const Question& question, const Numbers& numbers) {
    ++decisions_;
    for (int draw = 0; draw < kMost; ++draw) {
      const Choice choice = decide(question, draw, numbers);
      if (!choice.clear) continue;
      draws_[question] = draw;
      redrawn_ += draw;
      return choice.value;
    }
    throw Error(ErrorKind::kValue,
                "request " + std::to_string(question.request) + ", position " +
                    std::to_string(question.position),
                "a clear decision in " + std::to_string(kMost) + " draws", "none");
  }
  /// The answer of anybody else, by the draw that the reference took.
  [[nodiscard]] std::int64_t follow(const Question& question, const Numbers& numbers) const {
    const auto it = draws_.find(question);
    return decide(question, it == draws_.end() ? 0 : it->second, numbers).value;
  }
  [[nodiscard]] int decisions() const { return decisions_; }
  [[nodiscard]] int redrawn() const { return redrawn_; }

 private:
  std::map<Question, int> draws_;
  int decisions_ = 0, redrawn_ = 0;
};

}  // namespace goldenrule::test::loop
