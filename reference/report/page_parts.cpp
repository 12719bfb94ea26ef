// SPDX-License-Identifier: Apache-2.0
#include "reference/report/page_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fixtures/call/text.hpp"

namespace goldenrule::report {
namespace {

int rank_of(const std::string& verdict) {
  if (verdict == "OUT_OF_BUDGET") return 0;
  return verdict == "EXACT" || verdict == "WITHIN_BUDGET" ? 2 : 1;
}

}  // namespace

std::string escaped(const std::string& text) {
  constexpr std::size_t kLongest = 8000;  // a path has 4096 bytes
  std::string html;
  for (const char c : call::printable(text)) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // a character, in UTF-8
    if (begins && html.size() >= kLongest) return html + " [shortened]";
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string shown(const ordered_json& value, int digits) {
  if (value.is_number()) return fmt::format("{:.{}g}", value.get<double>(), digits);
  if (!value.is_string() || value == "nan") return "-";
  return escaped(value.get<std::string>());
}

std::string in_budgets(const ordered_json& ratio) {
  if (!ratio.is_number()) return ratio == "nan" ? "no budget" : shown(ratio) + " times its budget";
  const double times = ratio.get<double>();
  if (times <= 1.0) return shown(ratio) + " of its budget";
  struct Unit {
    double size;
    const char* word;
  };
  constexpr std::array<Unit, 3> kUnits{{{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}}};
  for (const Unit& unit : kUnits) {
    if (times < unit.size || times >= 1e3 * unit.size) continue;
    return fmt::format("{:.3g}{} times its budget", times / unit.size, unit.word);
  }
  if (times < 1e3 || times >= 1e6) return shown(ratio) + " times its budget";
  return counted(std::llround(times)) + " times its budget";
}

std::int64_t whole(const ordered_json& value) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 53;
  const std::int64_t number = value.is_number_float() ? 0 : value.get<std::int64_t>();
  return std::clamp(number, -kLargest, kLargest);
}

std::string counted(std::int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string place(const ordered_json& coordinates) {
  std::string text;
  for (const auto& [name, value] : coordinates.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + value.dump();
    if (name == "after") text += " " + call::plural(value.get<std::int64_t>(), "token");
  }
  return escaped(text);
}

std::string badge(const std::string& verdict) {
  constexpr std::array kCss{"bad", "weak", "good"};
  return fmt::format("<span class=\"badge {}\">{}</span>",
                     kCss[static_cast<std::size_t>(rank_of(verdict))], escaped(verdict));
}

std::string text_of(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::string paragraph(const char* css, const std::string& html) {
  return html.empty() ? "" : fmt::format("<p class=\"{}\">{}</p>", css, html);
}

std::string joined(const ordered_json& texts) {
  std::string html;
  for (const ordered_json& text : texts) {
    html += (html.empty() ? "" : "; ") + escaped(text.get<std::string>());
  }
  return html;
}

int rank(const ordered_json& item) { return rank_of(item.at("verdict").get<std::string>()); }

std::vector<const ordered_json*> ranked(const ordered_json& items) {
  std::vector<const ordered_json*> order;
  for (const ordered_json& item : items) order.push_back(&item);
  std::ranges::stable_sort(order, {}, [](const ordered_json* item) { return rank(*item); });
  return order;
}

}  // namespace goldenrule::report
