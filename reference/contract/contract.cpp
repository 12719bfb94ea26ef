// SPDX-License-Identifier: Apache-2.0
#include "reference/contract/contract.hpp"

#include <array>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/row_named.hpp"
#include "reference/contract/family.hpp"

namespace goldenrule::contract {
namespace {

const std::vector<Contract>& built_in() {
  static const std::vector<Contract> contracts = [] {
    std::vector<Contract> all{
        {.name = "ideal", .meaning = "the exact result, rounded once to the type it is stored in"}};
    for (const auto table : kContractTables) {
      for (Contract& contract : table()) all.push_back(std::move(contract));
    }
    return all;
  }();
  return contracts;
}

// The roundings of `c` at a point by its number: none where its model has no such point.
Rounding rounding_at(const Contract& c, std::size_t point) {
  const auto all = c.roundings();
  return point < all.size() ? all[point] : std::nullopt;
}

int significand_bits(const Rounding& r) { return r ? info(*r).significand_bits : 53; }

// The exponent of the smallest numbers that are told apart.
int smallest_exponent(const Rounding& r) {
  return r ? info(*r).min_exponent - info(*r).significand_bits : -1100;
}

// Value by value, of kernels that round the same ones.
bool rounds_no_more(const Contract& a, const Contract& b) {
  const auto bits = [](const Contract& c) {
    return c.state_dtype ? call::info(*c.state_dtype).significand_bits : 53;
  };
  if (bits(a) < bits(b) || a.unit_roundoff() > b.unit_roundoff()) return false;
  bool within = true;
  std::vector<double> granted;
  for_each_function(b.functions, [&](std::string_view, double error) { granted.push_back(error); });
  std::size_t i = 0;
  for_each_function(a.functions, [&](std::string_view, double error) {
    within = within && error <= granted[i++];
  });
  for (std::size_t point = 0; point < kPoints; ++point) {
    const Rounding of_a = rounding_at(a, point);
    const Rounding of_b = rounding_at(b, point);
    within = within && significand_bits(of_a) >= significand_bits(of_b) &&
             smallest_exponent(of_a) <= smallest_exponent(of_b);
  }
  return within;
}

// Every value that a model may round, where it names them one by one.
template <class R>
struct RoundingsOf {
  std::span<R> operator()(auto& model) const {
    if constexpr (requires { model.rounding; }) {
      return std::span<R>(model.rounding);
    } else {
      return {};
    }
  }
};

template <class... F>
struct Each : F... {
  using F::operator()...;
};
template <class... F>
Each(F...) -> Each<F...>;  // for compilers before P1816

}  // namespace

double Contract::unit_roundoff() const {
  return std::visit(Each{[](const Ideal&) { return 0.0; },
                         [](const auto& declared) { return declared.unit_roundoff; }},
                    model);
}

std::span<const Rounding> Contract::roundings() const {
  return std::visit(RoundingsOf<const Rounding>{}, model);
}

std::span<Rounding> Contract::roundings() { return std::visit(RoundingsOf<Rounding>{}, model); }

Rounding Contract::at(Activation activation) const {
  return rounding_at(*this, static_cast<std::size_t>(activation));
}

std::int64_t Contract::tokens_together() const {
  return std::visit(
      [](const auto& declared) -> std::int64_t {
        if constexpr (requires { declared.chunk; }) {
          return declared.chunk;
        } else {
          return 1;
        }
      },
      model);
}

const std::vector<Contract>& contracts() { return built_in(); }

const std::vector<Contract>& contracts_of(call::Family family) {
  const auto select = [](call::Family of) {
    std::vector<Contract> chosen;
    for (const Contract& c : built_in()) {
      if (c.is_of(of)) chosen.push_back(c);
    }
    return chosen;
  };
  static const auto kOf = [&] {
    std::array<std::vector<Contract>, call::kFamilyRows.size()> of;
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = select(call::kFamilyRows[i].family);
    return of;
  }();
  return kOf[static_cast<std::size_t>(family)];
}

const Contract& find_contract(std::string_view name) {
  return call::row_named(built_in(), name, ErrorKind::kArgument, "contract");
}

void require_family(const Contract& contract, call::Family family) {
  if (contract.is_of(family)) return;
  std::string known;
  for (const Contract& c : contracts_of(family)) known += (known.empty() ? "" : ", ") + c.name;
  throw Error(ErrorKind::kArgument, "contract",
              "one for family '" + std::string(call::name_of(family)) + "': " + known,
              "'" + contract.name + "'");
}

const Contract& claimed_or_implied(std::string_view claim, const Contract& implied,
                                   call::Family family) {
  if (claim.empty()) return implied;
  const Contract& claimed = find_contract(claim);
  return !claimed.is_of(family) || is_no_wider(claimed, implied) ? claimed : implied;
}

bool is_no_wider(const Contract& a, const Contract& b) {
  if (a.is_ideal()) return true;  // rounded once, to the type that is there
  if (b.is_ideal()) return false;
  return std::visit(
      [&](const auto& of_a, const auto& of_b) {
        if constexpr (requires { is_no_wider(of_a, of_b); }) {
          return is_no_wider(of_a, of_b) && rounds_no_more(a, b);
        } else {
          return false;
        }
      },
      a.model, b.model);
}

}  // namespace goldenrule::contract
