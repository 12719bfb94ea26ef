// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/blind.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <type_traits>

#include "fixtures/call/error.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::explain {
namespace {

using call::Record;

// Numbers that kernels hard-code in the place of a convention's.
struct Usual {
  const char* attribute;
  std::vector<double> values;
};
const std::array<Usual, 5> kUsual{{{"l2_eps", {0.0, 1e-12, 1e-6, 1e-5, 1e-3}},
                                   {"softplus_beta", {1.0, 2.0}},
                                   {"softplus_threshold", {1.0, 5.0, 20.0}},
                                   {"lower_bound", {-1.0, -5.0, -10.0}},
                                   {"soft_cap", {0.0, 30.0, 50.0}}}};

std::string text_of(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", x);
  return text.data();
}

class Watcher {
 public:
  Watcher(const Record& record, const contract::Contract& contract,
          const verdict::Expectations& evaluation)
      : record_(record), contract_(contract), evaluation_(evaluation) {}

  /// Whether these outputs, stored as the capture's are, would pass.
  [[nodiscard]] bool pass(const call::TensorMap& outputs) const {
    return std::ranges::all_of(record_.outputs, [&](const auto& item) {
      const auto found = outputs.find(item.first);
      return found != outputs.end() && passes(item.first, item.second, found->second);
    });
  }

 private:
  [[nodiscard]] bool passes(const std::string& name, const call::Tensor& captured,
                            const call::Tensor& output) const {
    if (output.shape() != captured.shape()) return false;
    const verdict::Expected& expected = evaluation_.outputs.at(name);
    const verdict::Budget budget(name, captured.dtype(), expected, contract_);
    if (!budget.given()) return true;
    for (std::int64_t i = 0; i < output.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!expected.exact.is_defined(at)) continue;
      const double granted = std::isfinite(expected.exact.golden[at]) ? budget(at) : 0.0;
      const double y = call::round_to(captured.dtype(), output[i]);
      if (!verdict::passes(y, expected, at, granted)) return false;
    }
    return true;
  }

  const Record& record_;
  const contract::Contract& contract_;
  const verdict::Expectations& evaluation_;
};

// An attribute that a call reads only where another one has one of these values.
struct ReadWith {
  std::string_view attribute, other;
  std::vector<std::string_view> values;
};
const std::array<ReadWith, 5> kReadWith{
    {{"softplus_beta", "gate", {"softplus"}},
     {"softplus_threshold", "gate", {"softplus"}},
     {"lower_bound", "gate", {"bounded"}},
     {"gate_head", "gate", {"softplus", "bounded"}},
     {"l2_eps", "qk_l2norm", {"rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"}}}};

bool is_read(const call::Convention& convention, std::string_view attribute) {
  const auto with = std::ranges::find(kReadWith, attribute, &ReadWith::attribute);
  if (with == kReadWith.end()) return true;
  bool read = false;
  call::for_each_field(convention, [&](std::string_view name, const auto& field) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>) {
      read = read || (name == with->other &&
                      std::ranges::find(with->values, call::name_of(field)) != with->values.end());
    }
  });
  return read;
}

// Visits the other values of each convention that the call reads as f(attribute, value, record with
// that value).
template <class F>
void for_each_other_value(const Record& record, F&& f) {
  Record changed = record;
  changed.outputs.clear();
  const std::int64_t K = call::validate(record).K;
  const call::Family family = call::family_of(record.op);
  call::for_each_field_of(family, changed.convention, [&](const char* attribute, auto& field) {
    if (!is_read(record.convention, attribute)) return;
    using Field = std::remove_cvref_t<decltype(field)>;
    const Field declared = field;
    const auto try_value = [&](const Field& value, const std::string& text) {
      field = value;
      f(attribute, text, changed);
      field = declared;
    };
    if constexpr (std::is_enum_v<Field>) {
      using Names = call::EnumNames<Field>;
      for (std::size_t i = 0; i < Names::kNames.size(); ++i) {
        const auto value = static_cast<Field>(i);
        if (value != declared) try_value(value, std::string(Names::kNames[i]));
      }
    } else if constexpr (std::is_same_v<Field, double>) {
      for (const Usual& usual : kUsual) {
        if (std::string_view(usual.attribute) != attribute) continue;
        for (const double value : usual.values) {
          if (value != declared) try_value(value, text_of(value));
        }
      }
    } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
      const double used = call::resolved_scale(record.convention, K);
      for (const double value : {1.0, call::resolved_scale({}, K)}) {
        if (value != used) try_value(value, text_of(value));
      }
    }
  });
}

}  // namespace

Blindness find_blindness(const verdict::Judgement& judgement) {
  const Record& record = judgement.record;
  const calls::Kernel exact = verdict::exact_kernel(*judgement.slice);
  Blindness blind;
  const Watcher watcher(record, judgement.contract, judgement.expected);
  Record call = record;
  call.outputs.clear();
  // What the changed call asks for and the capture does not hold is refused: that is no silence.
  const auto unseen = [&](const auto& compute) {
    try {
      return watcher.pass(compute());
    } catch (const Error&) {
      return false;
    }
  };
  for (const calls::Mistake& m : judgement.slice->mistakes()) {
    if (!m.applies(call)) continue;
    ++blind.mistakes_tried;
    if (!unseen([&] { return m.commit(call, exact); })) continue;
    if (std::ranges::find(blind.mistakes, m.name) == blind.mistakes.end()) {
      blind.mistakes.emplace_back(m.name);
    }
  }
  for_each_other_value(
      record, [&](const char* attribute, const std::string& value, const Record& changed) {
        try {
          (void)call::validate(changed);
        } catch (const Error&) {
          return;
        }
        ++blind.values_tried;
        if (!unseen([&] { return exact(changed); })) return;
        if (blind.conventions.empty() || blind.conventions.back().attribute != attribute) {
          blind.conventions.push_back({attribute, {}});
        }
        blind.conventions.back().values.push_back(value);
      });
  return blind;
}

}  // namespace goldenrule::explain
