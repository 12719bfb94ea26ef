// SPDX-License-Identifier: Apache-2.0
//
// One decode step that can be done by hand, through the installed libraries and through a file:
//
//   S = (1, 2), alpha = 1, beta = 1/2, k = (1, 0), q = (1, 1), v = 3, no norm, scale 1
//   d = beta (v - S^T k) = 1     S' = S + k d = (2, 2)     o = S'^T q = 4
#include <cstdio>
#include <filesystem>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/delta/oracle/evaluate.hpp"

namespace {

using namespace goldenrule;

call::Record one_step() {
  const auto tensor = [](call::Shape shape, const std::vector<double>& values) {
    return call::Tensor(call::DType::kF32, std::move(shape), values);
  };
  call::Record record;
  record.convention.gate = call::Gate::kNone;
  record.convention.beta = call::BetaForm::kDirect;
  record.convention.qk_l2norm = call::QkNorm::kNone;
  record.convention.scale = 1.0;
  record.inputs = {{"q", tensor({1, 1, 1, 2}, {1.0, 1.0})},
                   {"k", tensor({1, 1, 1, 2}, {1.0, 0.0})},
                   {"v", tensor({1, 1, 1, 1}, {3.0})},
                   {"beta", tensor({1, 1, 1}, {0.5})},
                   {"initial_state", tensor({1, 1, 1, 2}, {1.0, 2.0})}};
  return record;
}

int fail(const char* what) {
  std::printf("FAILED: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: consumer FILE");
  const std::filesystem::path path(argv[1]);
  schema::Fixture fixture;
  fixture.record = one_step();
  for (const auto precision : {scalar::Precision::kDouble, scalar::Precision::kMulti}) {
    const verdict::Expectations result = delta::evaluate(fixture.record, precision, {});
    if (result.outputs.at("o").exact.golden != std::vector<double>{4.0}) return fail("o");
    if (result.outputs.at("final_state").exact.golden != std::vector<double>{2.0, 2.0}) {
      return fail("final_state");
    }
    for (const auto& [name, expected] : result.outputs) {
      fixture.golden[name] = {
          .value = call::Tensor(call::DType::kF64, expected.exact.shape, expected.exact.golden),
          .radius = expected.exact.max_radius()};
    }
  }
  schema::write_fixture(path, fixture);
  const schema::Fixture again = schema::read_fixture(path);
  if (again.golden.at("o").value.to_doubles() != std::vector<double>{4.0}) return fail("the file");
  if (!(again.record.convention == fixture.record.convention)) return fail("its conventions");
  if (cases::load_suite("smoke").cases.empty()) return fail("the smoke suite");
  std::printf("installed libraries: o = 4, final_state = (2, 2), as by hand\n");
  return 0;
}
