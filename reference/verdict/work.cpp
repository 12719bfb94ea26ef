// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/work.hpp"

#include <cstdio>
#include <string>

#include "fixtures/call/error.hpp"

namespace goldenrule::verdict {
namespace {

thread_local WorkLimited* current = nullptr;

std::string seconds(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g core-seconds", x);
  return text;
}

}  // namespace

WorkLimited::WorkLimited(const WorkLimit& limit) : limit_(limit), before_(current) {
  current = this;
}

WorkLimited::~WorkLimited() { current = before_; }

void admit_work(scalar::Precision tier, const std::function<double()>& core_seconds) {
  if (current == nullptr) return;
  const WorkLimit& limit = current->limit_;
  const double more = core_seconds();
  current->begun_ += more;
  if (current->begun_ > limit.core_seconds) {
    throw Error(ErrorKind::kUnsafe, "",
                "a call that can be judged in " + seconds(limit.core_seconds) + " (--work)",
                "one that takes about " + seconds(current->begun_) + " in tier " +
                    std::string(scalar::name_of(tier)));
  }
  if (limit.announce != nullptr) limit.announce(more);
}

}  // namespace goldenrule::verdict
