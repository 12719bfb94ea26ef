// SPDX-License-Identifier: Apache-2.0
//
// A contract declares what arithmetic a kernel is allowed: which values are rounded to which format
// and how accurately its elementary functions are evaluated. It is data; the budget follows from
// it and from the data of the call (running.hpp and spread.hpp of delta/budget), and nothing is
// tuned.
//
// What the kernel is, its model, is *ideal*, which returns the exact result rounded once, or one of
// its family (delta_models.hpp, attention_models.hpp). The types of stored states and the errors of
// functions are common to all.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "fixtures/call/convention.hpp"
#include "fixtures/call/dtype.hpp"
#include "reference/contract/attention_models.hpp"
#include "reference/contract/backward_models.hpp"
#include "reference/contract/delta_models.hpp"

namespace goldenrule::contract {

/// The exact result, rounded once to the type that it is stored in.
struct Ideal {};

/// Its keys in JSON, as delta_models.hpp has them.
template <class C, class M, class F>
requires std::same_as<std::remove_const_t<M>, Ideal>
void for_each_key(C& contract, M& /*model*/, F&& f) { f("state", contract.state_dtype); }

using Model = std::variant<Ideal, Recurrent, Chunked, Softmax, ChunkedAdjoint>;
inline constexpr std::array<std::string_view, 5> kModelNames{"ideal", "recurrent", "chunked",
                                                             "softmax", "chunked_adjoint"};
static_assert(kModelNames.size() == std::variant_size_v<Model>);

/// What the families may declare (delta_contracts, attention_contracts).
inline constexpr std::array kContractTables{delta_contracts, attention_contracts,
                                            backward_contracts};

struct Contract {
  std::string name;
  std::string meaning;  ///< one line for a person
  /// Storage of states; absent: whatever type the dataset has.
  std::optional<call::DType> state_dtype{};
  FunctionErrors functions{};  ///< none of an ideal kernel
  Model model{};

  [[nodiscard]] std::string_view model_name() const { return kModelNames[model.index()]; }
  [[nodiscard]] bool is_ideal() const { return std::holds_alternative<Ideal>(model); }
  /// Whether kernels of that family may declare it; an ideal one is of all.
  [[nodiscard]] bool is_of(call::Family family) const {
    const auto own = std::visit(
        []<class M>(const M&) -> std::optional<call::Family> {
          if constexpr (std::is_same_v<M, Ideal>)
            return std::nullopt;
          else
            return M::kFamily;
        },
        model);
    return !own || *own == family;
  }
  /// Nothing unless the kernel is one of attention.
  [[nodiscard]] const Softmax* softmax() const { return std::get_if<Softmax>(&model); }
  /// Nothing unless the kernel is one of the backward pass.
  [[nodiscard]] const ChunkedAdjoint* adjoint() const {
    return std::get_if<ChunkedAdjoint>(&model);
  }
  /// Nothing unless the kernel is chunked.
  [[nodiscard]] const Chunked* chunked() const { return std::get_if<Chunked>(&model); }

  /// What every kernel can be asked. Unit roundoff of its arithmetic; 0 in an ideal contract only.
  [[nodiscard]] double unit_roundoff() const;
  /// Every rounding point of the delta rule that this model has, by number: none, the activations,
  /// or all.
  [[nodiscard]] std::span<const Rounding> roundings() const;
  [[nodiscard]] std::span<Rounding> roundings();
  [[nodiscard]] Rounding at(Activation activation) const;
  /// Tokens whose results are computed together, so that a NaN in one may reach all of them.
  [[nodiscard]] std::int64_t tokens_together() const;
};

/// The contracts that are built in, roughly from the tightest to the widest.
[[nodiscard]] const std::vector<Contract>& contracts();

/// Those that kernels of that family may declare.
[[nodiscard]] const std::vector<Contract>& contracts_of(call::Family family);

/// Throws Error(kArgument) naming every known contract.
[[nodiscard]] const Contract& find_contract(std::string_view name);

/// Whether whatever keeps `a` keeps `b` as well, so that judging by `a` can only be stricter. A
/// partial order, read off the declarations: types, unit roundoffs and function errors.
[[nodiscard]] bool is_no_wider(const Contract& a, const Contract& b);

}  // namespace goldenrule::contract
