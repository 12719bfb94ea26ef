// SPDX-License-Identifier: Apache-2.0
//
// What each rounding point of a contract costs on one case: the contract with that point alone, its
// expected error relative to the exact result. The author of a kernel sees which store to widen
// first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/contract/family.hpp"
#include "reference/suites/slices.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"

namespace goldenrule::tools {
namespace {

struct Switch {
  std::string name;
  contract::Contract contract;  // with this point alone
};

// `contract` with nothing but an arithmetic of this unit roundoff.
contract::Contract bare(contract::Contract contract, double unit_roundoff) {
  contract.functions = {};
  std::ranges::fill(contract.roundings(), std::nullopt);
  using contract::Chunked;
  using contract::Recurrent;
  if (auto* model = std::get_if<Recurrent>(&contract.model)) model->unit_roundoff = unit_roundoff;
  if (auto* model = std::get_if<Chunked>(&contract.model)) model->unit_roundoff = unit_roundoff;
  return contract;
}

std::vector<Switch> switches(const contract::Contract& contract) {
  std::vector<Switch> list{{"everything", contract}};
  const auto roundings = contract.roundings();
  for (std::size_t i = 0; i < roundings.size(); ++i) {
    if (!roundings[i]) continue;
    contract::Contract alone = bare(contract, 0.0);
    alone.roundings()[i] = roundings[i];
    list.push_back(
        {fmt::format("{} in {}", contract::point_name(i), contract::info(*roundings[i]).name),
         alone});
  }
  if (contract.unit_roundoff() > 0.0) {
    list.push_back({"arithmetic and state", bare(contract, contract.unit_roundoff())});
  }
  contract::for_each_function(contract.functions, [&](std::string_view name, double error) {
    if (error == 0.0) return;
    // The recursion runs only for contracts with arithmetic errors; this one is negligible.
    contract::Contract alone = bare(contract, 0x1p-80);
    contract::for_each_function(alone.functions, [&](std::string_view other, double& field) {
      if (other == name) field = error;
    });
    list.push_back({fmt::format("function error: {}", name), alone});
  });
  return list;
}

// sqrt(sum (sigma^2 + bias^2) / sum golden^2): the relative error to expect.
double expected_error(const verdict::Expected& e) {
  double error2 = 0.0;
  double golden2 = 0.0;
  for (std::size_t i = 0; i < e.grant.sigma.size(); ++i) {
    const auto sigma = static_cast<double>(e.grant.sigma[i]);
    const auto bias = static_cast<double>(e.grant.bias[i]);
    if (!std::isfinite(e.exact.golden[i])) continue;
    error2 += sigma * sigma + bias * bias;
    golden2 += e.exact.golden[i] * e.exact.golden[i];
  }
  return golden2 == 0.0 ? 0.0 : std::sqrt(error2 / golden2);
}

// sqrt(sum (ulp/2)^2/3 / sum golden^2): rounding to the storage type.
double storage_error(const verdict::Expected& e, call::DType dtype) {
  double error2 = 0.0;
  double golden2 = 0.0;
  for (const double x : e.exact.golden) {
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
  if (!call::operation(record.op).has_states) {
    throw Error(ErrorKind::kArgument, "CASE", "a case of the delta rule (others: check --terms)",
                "'" + options.case_line + "'");
  }
  const verdict::Slice& slice = suites::slice_of(record.op);
  const bool given = !options.contract.empty();
  const contract::Contract contract =
      given ? arbiter::named_contract(options.contract) : slice.default_contract(record);
  contract::require_family(contract, call::family_of(record.op));
  fmt::print("contract {} ({}): {}\n", contract.name, given ? "given" : "by mode and types",
             contract.meaning);
  fmt::print("  {:<28} {:>14} {:>14}\n", "alone", "o, rel rms", "state, rel rms");
  verdict::Expectations e =
      slice.evaluate(record, scalar::Precision::kDouble, {.certify = false, .kept_states = false});
  for (const Switch& s : switches(contract)) {
    slice.grant(record, s.contract, verdict::GrantDetail::kTerms, e);
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
