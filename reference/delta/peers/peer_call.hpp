// SPDX-License-Identifier: Apache-2.0
//
// The calls of other projects' tests (peers.hpp), filled tensor by tensor from their distributions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/peers/peers.hpp"

namespace goldenrule::peers::peer {

struct Extents {
  std::vector<std::int64_t> lengths{};  ///< prefill
  std::int64_t B = 0, T = 0;            ///< decode, MTP
  std::int64_t H = 0, HV = 0, K = 0, V = 0;
};

/// Element `index` of a tensor.
using Draw = std::function<double(const random::Stream& stream, std::int64_t index)>;

[[nodiscard]] Draw normal(double deviation);
[[nodiscard]] Draw uniform(double low, double high);
[[nodiscard]] Draw constant(double value);
/// logsigmoid(U[0,1)) / normalizer
[[nodiscard]] Draw fla_gate(double normalizer);
/// sigmoid(U[0,1))
[[nodiscard]] double fla_beta(const random::Stream& stream, std::int64_t index);

/// Builds one call, tensor by tensor.
class Call {
 public:
  Call(call::Op op, call::Mode mode, Extents extents, call::DType io, std::uint64_t seed);

  call::Convention& convention() { return record_.convention; }

  Call& vectors(const Draw& q, const Draw& k, const Draw& v);
  /// As torch.nn.functional.normalize, before the call.
  Call& normalized(const char* name);
  Call& given_gate(call::Gate gate, const Draw& g);
  Call& projected_gate(call::Gate gate, const Draw& a, const Draw& A_log, const Draw& dt_bias);
  Call& given_beta(const Draw& beta);
  Call& beta_logit(const Draw& b);
  Call& state(call::DType type, const Draw& x);
  Call& identity_slots();

  [[nodiscard]] PeerCase judged_by(PeerRule rule, std::string contract) const;

 private:
  [[nodiscard]] call::Shape tokens(const call::Shape& tail) const;
  [[nodiscard]] call::Shape gate_axes() const;
  void fill(const char* name, call::DType type, const call::Shape& shape, const Draw& draw);

  call::Record record_;
  const Extents extents_;
  const call::DType io_;
  const std::uint64_t seed_;
  call::Shape tokens_;
  std::int64_t rows_ = 0;
};

}  // namespace goldenrule::peers::peer
