// SPDX-License-Identifier: Apache-2.0
//
// The boundary matrix: every shape at which a kernel has a tail, in every layout and type, and
// every convention.
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

constexpr std::int64_t kKs[] = {1, 16, 32, 60, 64, 80, 96, 100, 128, 136, 160, 192, 255, 256};
constexpr std::int64_t kVs[] = {1,   3,   8,   17,  31,  32,  33,  63,  64, 65,
                                100, 127, 128, 129, 136, 192, 255, 256, 320};

TEST_CASE("every K with V = 128 and a tail of V") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (const std::int64_t K : kKs) {
      for (const std::int64_t V : {128, 33}) {
        for (const std::int64_t T : {1, 3}) {
          c.K = K;
          c.V = V;
          c.T = T;
          c.H = 1;
          c.HV = 2;
          cases.push_back(c);
        }
      }
    }
  });
  check_cases(cases);
}

TEST_CASE("every V with K = 128 and a tail of K") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (const std::int64_t V : kVs) {
      for (const std::int64_t K : {128, 60}) {
        c.K = K;
        c.V = V;
        c.T = V % 2 == 0 ? 1 : 2;
        c.H = 1;
        c.HV = 2;
        cases.push_back(c);
      }
    }
  });
  check_cases(cases);
}

TEST_CASE("every T and head group") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (std::int64_t T = 0; T <= 16; ++T) {
      c.T = T;
      c.V = 64;
      cases.push_back(c);
    }
    c.T = 2;
    for (const std::int64_t group : {1, 2, 3, 4, 8}) {
      for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
        for (const GateHead gate_head : {GateHead::kV, GateHead::kQK}) {
          c.H = 3;
          c.HV = 3 * group;
          c.head_map = map;
          c.gate_head = gate_head;
          c.V = 32;
          cases.push_back(c);
        }
      }
    }
  });
  check_cases(cases);
}

TEST_CASE("every gate, beta and norm") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    c.T = 2;
    c.V = 64;
    for (const std::int64_t K : {128, 100}) {
      c.K = K;
      for (const Values values : {Values::kGaussian, Values::kExtreme}) {
        c.values = values;
        for (const Gate gate : {Gate::kSoftplus, Gate::kBounded, Gate::kLog, Gate::kLog2,
                                Gate::kLinear, Gate::kNone}) {
          for (const BetaForm beta : {BetaForm::kSigmoid, BetaForm::kSigmoid2, BetaForm::kDirect}) {
            c.gate = gate;
            c.beta = beta;
            c.norm = QkNorm::kRsqrtSumEps;
            cases.push_back(c);
          }
        }
        c.gate = Gate::kSoftplus;
        c.beta = BetaForm::kSigmoid;
        for (const QkNorm norm : {QkNorm::kMaxNormEps, QkNorm::kNormPlusEps}) {
          for (const double eps : {1e-6, 1e-2}) {
            c.norm = norm;
            c.l2_eps = eps;
            cases.push_back(c);
          }
        }
        c.l2_eps = 1e-6;
      }
      c.values = Values::kExact;
      c.norm = QkNorm::kNone;
      cases.push_back(c);
    }
  });
  check_cases(cases);
}

TEST_CASE("every type of q, k, v, o and gates") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (const DType io : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType gates : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const std::int64_t K : {128, 64, 60}) {
          for (const std::int64_t T : {1, 4}) {
            c.io = io;
            c.gates = gates;
            c.K = K;
            c.T = T;
            cases.push_back(c);
          }
        }
      }
    }
  });
  check_cases(cases);
}

TEST_CASE("strides with gaps and misaligned data") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (const std::int64_t gap : {1, 2, 4, 8, 24}) {
      for (const std::int64_t shift : {0, 1, 2, 4}) {
        for (const std::int64_t K : {128, 100}) {
          c.gap = gap;
          c.shift = shift;
          c.K = K;
          c.T = 3;
          c.intermediates = true;
          c.slots = Slots::kPermuted;
          cases.push_back(c);
        }
      }
    }
  });
  check_cases(cases);
}

TEST_CASE("correlated keys, and batches on both sides of the choice of the kernel") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for_each_family([&](Case c) {
    for (const std::int64_t B : {1, 15, 17, 33, 67}) {
      for (const std::int64_t T : {1, 5}) {
        c.B = B;
        c.T = T;
        c.values = Values::kCorrelated;
        c.slots = Slots::kPermuted;
        cases.push_back(c);
      }
    }
  });
  check_cases(cases);
}

}  // namespace
}  // namespace goldenrule::test
