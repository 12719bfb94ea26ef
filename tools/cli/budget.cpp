// SPDX-License-Identifier: Apache-2.0
//
// What each rounding point of a contract costs on one case: the contract with that point alone, its
// expected error relative to the exact result. The author of a kernel sees which store to widen
// first.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "fixtures/cases/case.hpp"
#include "reference/oracle/evaluate.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"

namespace goldenrule::tools {
namespace {

struct Switch {
  std::string name;
  bounds::Contract contract;  // with this point alone
};

std::vector<Switch> switches(const bounds::Contract& contract) {
  bounds::Contract none = contract;
  none.rounding = {};
  none.unit_roundoff = 0.0;
  none.functions = {};
  std::vector<Switch> list{{"everything", contract}};
  for (std::size_t i = 0; i < bounds::kPoints; ++i) {
    if (!contract.rounding[i]) continue;
    bounds::Contract alone = none;
    alone.rounding[i] = contract.rounding[i];
    list.push_back({fmt::format("{} in {}", bounds::name_of(static_cast<bounds::Point>(i)),
                                bounds::info(*contract.rounding[i]).name),
                    alone});
  }
  if (contract.unit_roundoff > 0.0) {
    bounds::Contract alone = none;
    alone.unit_roundoff = contract.unit_roundoff;
    list.push_back({"arithmetic and state", alone});
  }
  bounds::for_each_function(contract.functions, [&](std::string_view name, double error) {
    if (error == 0.0) return;
    bounds::Contract alone = none;
    // The recursion runs only for contracts with arithmetic errors; this one is negligible.
    alone.unit_roundoff = 0x1p-80;
    bounds::for_each_function(alone.functions, [&](std::string_view other, double& field) {
      if (other == name) field = error;
    });
    list.push_back({fmt::format("function error: {}", name), alone});
  });
  return list;
}

// sqrt(sum (sigma^2 + bias^2) / sum golden^2): the relative error to expect.
double expected_error(const oracle::Expected& e) {
  double error2 = 0.0;
  double golden2 = 0.0;
  for (std::size_t i = 0; i < e.sigma.size(); ++i) {
    const auto sigma = static_cast<double>(e.sigma[i]);
    const auto bias = static_cast<double>(e.bias[i]);
    if (!std::isfinite(e.golden[i])) continue;
    error2 += sigma * sigma + bias * bias;
    golden2 += e.golden[i] * e.golden[i];
  }
  return golden2 == 0.0 ? 0.0 : std::sqrt(error2 / golden2);
}

// sqrt(sum (ulp/2)^2/3 / sum golden^2): rounding to the storage type.
double storage_error(const oracle::Expected& e, call::DType dtype) {
  double error2 = 0.0;
  double golden2 = 0.0;
  for (const double x : e.golden) {
    if (!std::isfinite(x)) continue;
    const double half = 0.5 * call::ulp(dtype, x);
    error2 += half * half / 3.0;
    golden2 += x * x;
  }
  return golden2 == 0.0 ? 0.0 : std::sqrt(error2 / golden2);
}

}  // namespace

int budget(const BudgetOptions& options) {
  const call::Record record = cases::make_record(cases::parse(options.case_line));
  std::string origin;
  const bounds::Contract contract = choose_contract(options.contract, record, origin);
  fmt::print("contract {} ({}): {}\n", contract.name, origin, contract.meaning);
  fmt::print("  {:<28} {:>14} {:>14}\n", "alone", "o, rel rms", "state, rel rms");
  for (const Switch& s : switches(contract)) {
    const oracle::Evaluation e = oracle::evaluate(record, scalar::Precision::kDouble,
                                                  {.certify = false,
                                                   .contract = &s.contract,
                                                   .components = true,
                                                   .intermediate_states = false});
    fmt::print("  {:<28} {:>14.3g} {:>14.3g}\n", s.name, expected_error(e.outputs.at("o")),
               expected_error(e.outputs.at("final_state")));
    if (s.name != "everything") continue;
    const call::DType io = record.inputs.at("v").dtype();
    fmt::print("  {:<28} {:>14.3g} {:>14.3g}\n", "storage of the result",
               storage_error(e.outputs.at("o"), io),
               storage_error(e.outputs.at("final_state"),
                             contract.state_dtype.value_or(call::DType::kF32)));
  }
  return 0;
}

}  // namespace goldenrule::tools
