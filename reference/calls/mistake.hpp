// SPDX-License-Identifier: Apache-2.0
//
// Named mistakes: what kernel authors get wrong. One table serves three masters: the kill matrix
// (can a suite see the mistake?), the explanation of a failing capture (which mistake reproduces
// it?) and the documentation. A mistake is a change around a kernel, not a kernel: most of them
// hand changed inputs or conventions to the kernel they are given, or change where its outputs go,
// so that the oracle stays plain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/calls/kernel.hpp"

namespace goldenrule::calls {

/// The mistake may be none but a convention that was not declared: attribute `name` of the call has
/// the value `from`, the kernel means `to`.
struct Meant {
  std::string_view name, from, to;  ///< `from` empty: any value
};

/// By what a call may be cut without changing what a mistake does to the rest: by value channels,
/// and to the first tokens of each sequence.
enum class CutBy : std::uint8_t { kNothing, kValues, kValuesAndTokens };

/// One of the words that the name of a mistake is made of, and what it means.
struct Aspect {
  std::string_view name, meaning;
};

struct Mistake {
  /// "gate_log2": stable, used in reports and scripts. Rows of one name are ways to make one
  /// mistake.
  std::string_view name;
  std::string_view group;    ///< the heading under which the table documents it
  std::string_view meaning;  ///< one sentence to the author: what the kernel does
  /// Whether the mistake can be made in this call at all (its mode, conventions and shapes).
  bool (*applies)(const call::Record& record);
  /// The outputs of a kernel that makes the mistake, from one that does not.
  call::TensorMap (*commit)(const call::Record& record, const Kernel& kernel);
  std::span<const Meant> meant = {};
  /// It rounds what is not rounded otherwise: a number near a tie may go either way, so that single
  /// elements cannot be predicted (explain/ties.hpp).
  bool rounds = false;
  /// Why `contract` permits the mistake, empty where it does not; null: no contract does. A kernel
  /// whose contract stores its operands in bf16 may truncate them to tf32: the mistake is then
  /// equivalent to a right kernel, and a suite that does not see it has no hole. That follows from
  /// the declaration of the contract, never from what a suite happened to see; the kill matrix
  /// prints the largest deviation over budget beside it as evidence.
  std::string_view (*permitted_by)(const contract::Contract& contract) = nullptr;
  /// Where it was made in public, "vLLM #53877, SGLang #38975"; empty: not known.
  std::string_view reported = {};
  /// Asked of mistakes that a generator enumerates (Slice::generated).
  CutBy cut_by = CutBy::kNothing;
  /// What name and meaning are joined of, the kind of the mistake first. Where several of a kind
  /// explain a call, only what they share is said. Empty: the name is one word.
  std::span<const Aspect> aspects = {};
};
inline constexpr bool kRounds = true;

/// "merge_part_lost_last"
[[nodiscard]] std::string joined_name(std::span<const Aspect> aspects);
/// "leaves a part out of the merge, the last part"
[[nodiscard]] std::string joined_meaning(std::span<const Aspect> aspects);
/// Whether the names of both have aspects, and their first is the same.
[[nodiscard]] bool are_of_a_kind(const Mistake& a, const Mistake& b);
/// Of what a mistake shares with others of its kind (empty: there were none) leaves what it shares
/// with `other` too.
void share(const Mistake& mistake, const Mistake& other, std::vector<Aspect>& shared);
/// Whether `name` is that of `mistake`, or some of its words.
[[nodiscard]] bool is_name_of(const Mistake& mistake, std::string_view name);

/// Why `contract` permits `mistake`; empty where it does not.
[[nodiscard]] inline std::string_view permitted_by(const Mistake& mistake,
                                                   const contract::Contract& contract) {
  return mistake.permitted_by == nullptr ? "" : mistake.permitted_by(contract);
}

/// "head_map=tiled": what would have to be declared in this call for `mistake` to be none.
[[nodiscard]] std::optional<std::string> meant_convention(const Mistake& mistake,
                                                          const call::Record& record);

/// A mistake of the person who captured a call, not of the kernel.
struct CaptureMistake {
  std::string name;
  std::string meaning;    ///< one clause to that person
  bool accounts = false;  ///< it makes the failures right; else a note
};

}  // namespace goldenrule::calls
