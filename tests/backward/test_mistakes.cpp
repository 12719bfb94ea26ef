// SPDX-License-Identifier: Apache-2.0
//
// The table of mistakes of backward passes: what a variant or a chain changes is the mistake alone,
// for with every switch in its right position they are the oracle; and every mistake can be made,
// and changes an output where it says that it does.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"
#include "reference/backward/slice.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using namespace goldenrule::backward;
using goldenrule::cases::record_of;

namespace {

// The last ones hide much: no decay to speak of, or nothing but decay, beta = 0, one channel.
constexpr const char* kLines[] = {
    "op=kda_backward mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K=32 V=24 h0=1 dstate=1 io=f32",
    "op=gdn_backward mode=prefill lens=70,64 H=1 HV=4 K=16 V=16 dstate=1 pattern=production",
    "op=kda_backward mode=prefill lens=300,7 H=2 HV=4 K=16 V=80 gate=bounded head_map=tiled "
    "gate_head=qk",
    "op=gdn_backward mode=prefill lens=3,40,20 H=2 HV=2 K=16 V=8 gate=log2 beta=sigmoid2 h0=1",
    "op=kda_backward mode=prefill lens=50 H=2 HV=2 K=8 V=16 pattern=I beta=direct gate=log",
    "op=kda_backward mode=prefill lens=66,2 H=1 HV=1 K=16 V=8 pattern=J100",
    "op=gdn_backward mode=prefill lens=20,1 H=2 HV=4 K=12 V=4 gate=linear qk_l2norm=norm_plus_eps",
    "op=gdn_backward mode=prefill lens=70 H=1 HV=1 K=8 V=8 gate=none qk_l2norm=none h0=1",
    "op=kda_backward mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K=32 V=24 h0=1 dstate=1 pattern=E "
    "io=f32",
    "op=gdn_backward mode=prefill lens=70,64 H=1 HV=4 K=16 V=16 dstate=1 pattern=B95 "
    "gate=softplus",
    "op=kda_backward mode=prefill lens=80 H=1 HV=2 K=16 V=8 gate=bounded pattern=Dbound h0=1",
    "op=kda_backward mode=prefill lens=70 H=2 HV=4 K=12 V=4 pattern=Derase h0=1 dstate=1",
    "op=kda_backward mode=prefill lens=30 H=2 HV=2 K=16 V=4 pattern=Dmixed",
    "op=gdn_backward mode=prefill lens=40 H=2 HV=4 K=16 V=4 pattern=Dmixed",
    "op=gdn_backward mode=prefill lens=33 H=1 HV=2 K=8 V=8 gate=log beta=direct pattern=C000 "
    "dstate=1 state_layout=kv",
    "op=gdn_backward mode=prefill lens=1,129 H=1 HV=1 K=1 V=1 qk_l2norm=max_norm_eps dstate=1",
};

call::TensorMap exact(const call::Record& record) {
  call::TensorMap outputs;
  for (auto& [name, e] : evaluate(record, scalar::Precision::kDouble, {.certify = false}).outputs) {
    outputs[name] = call::Tensor(call::DType::kF64, e.exact.shape, e.exact.take_output());
  }
  return outputs;
}

// The largest difference of an output, relative to its largest element; infinite where one is
// finite and the other is not.
double difference(const call::Tensor& x, const call::Tensor& right) {
  REQUIRE(x.shape() == right.shape());
  double largest = 0.0;
  double worst = 0.0;
  for (std::int64_t i = 0; i < right.size(); ++i) {
    if (std::isfinite(x[i]) != std::isfinite(right[i])) return HUGE_VAL;
    if (!std::isfinite(right[i])) continue;
    largest = std::max(largest, std::fabs(right[i]));
    worst = std::max(worst, std::fabs(x[i] - right[i]));
  }
  return worst == 0.0 ? 0.0 : worst / largest;
}

double difference(const call::TensorMap& outputs, const call::TensorMap& right) {
  REQUIRE(outputs.size() == right.size());
  double worst = 0.0;
  for (const auto& output : right) {
    CAPTURE(output.first);
    worst = std::max(worst, difference(outputs.at(output.first), output.second));
  }
  return worst;
}

}  // namespace

TEST_CASE("mistakes of backward passes: chain and variants without a switch are the oracle") {
  // Chunks cancel where gates decay strongly: dg is of size e^g, its terms are not.
  constexpr double kRounding = 1e-12;
  constexpr double kCancelled = 1e-11;
  for (const char* line : kLines) {
    CAPTURE(std::string(line));
    const call::Record record = record_of(line);
    const call::TensorMap right = exact(record);
    const call::Record plain = plain_call(record);
    const double chain = difference(through(kRightChain, record, exact(plain)), right);
    const double tokens = difference(commit_variant<TokenVariant{}>(record, exact), right);
    MESSAGE("chain " << chain << ", tokens " << tokens);
    CHECK(chain <= kRounding);
    CHECK(tokens <= kRounding);
    if (!has_chunk_form(record)) continue;
    const double chunks = difference(commit_variant<ChunkVariant{}>(record, exact), right);
    MESSAGE("chunks " << chunks);
    const bool decays = std::string(line).find("pattern=D") != std::string::npos;
    CHECK(chunks <= (decays ? kCancelled : kRounding));
  }
}

// An output that is not there, or an element of it that is not finite, is as wrong as can be. Of a
// call whose numbers hide a mistake, as one with beta = 0 hides most, `applies` knows nothing: the
// first call is one that shows it.
TEST_CASE("mistakes of backward passes: each can be made, and shows in the first of its calls") {
  constexpr double kVisible = 1e-3;
  constexpr double kVisibleRounding = 1e-5;
  std::vector<call::Record> records;
  std::vector<call::TensorMap> right;
  for (const char* line : kLines) {
    records.push_back(record_of(line));
    right.push_back(exact(records.back()));
  }
  std::set<std::string_view> names;
  for (const calls::Mistake& mistake : backward::mistakes()) {
    names.insert(mistake.name);
    CAPTURE(std::string(mistake.name));
    const double visible = mistake.rounds ? kVisibleRounding : kVisible;
    std::ostringstream hidden;
    int made = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (!mistake.applies(records[i])) continue;
      const double changed = difference(mistake.commit(records[i], exact), right[i]);
      if (made++ == 0) {
        MESSAGE(std::string(mistake.name) << " changes " << changed << " in line " << i);
        CHECK(changed > visible);
      } else if (changed <= visible) {
        hidden << ' ' << i << " (" << changed << ')';
      }
    }
    if (!hidden.str().empty())
      MESSAGE(std::string(mistake.name) << " is hidden in" << hidden.str());
    CHECK_MESSAGE(made > 0, "applies to no line");
  }
  MESSAGE(names.size() << " names");
  CHECK(names.size() == 75);
}
