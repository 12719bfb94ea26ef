// SPDX-License-Identifier: Apache-2.0
//
// The table of stages and their forms.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/f32_bound.hpp"
#include "reference/delta/oracle/stages.hpp"

namespace goldenrule::delta {
namespace {

using verdict::ExpectedStage;
using verdict::StageForm;
using verdict::StageRow;
using verdict::StageWalk;

constexpr std::array kGateForms{
    StageForm{"log", "natural logarithm"},
    StageForm{"log2", "binary logarithm, G / ln 2"},
};
constexpr std::array kQueryForms{
    StageForm{"scaled", "q^ has its scale"},
    StageForm{"unscaled", "q^ / scale: the scale is applied later"},
};
constexpr std::array kSquareForms{
    StageForm{"plus", "A as in T = (I + A)^-1"},
    StageForm{"minus", "-A, as in T = (I - A)^-1"},
};
constexpr std::array kStateForms{
    StageForm{"call", "in the state_layout of the call"},
    StageForm{"other", "in the other one: [K,V] where the call has [V,K]"},
};

constexpr std::array kTable{
    StageRow{"G", "tokens,HV(,K)",
             "G_i = sum of log alpha_l from the first token of the chunk to token i, which counts; "
             "of each key channel for KDA",
             "from a linear gate below 2^-126 to the end of its chunk", StageWalk::kNone,
             kGateForms},
    StageRow{"beta", "tokens,HV", "beta_i, after its sigmoid", "", StageWalk::kNone, {}},
    StageRow{"q", "tokens,H,K", "q^_i = scale * norm(q_i)", "", StageWalk::kNone, kQueryForms},
    StageRow{"k", "tokens,H,K", "k^_i = norm(k_i)", "", StageWalk::kNone, {}},
    StageRow{
        "A", "tokens,HV,C",
        "A_ij = beta_i < k^_i exp(G_i - G_j), k^_j > for tokens j before i of the chunk: beta of "
        "the row, with its decay",
        "the diagonal, what is above it, columns behind the end of the sequence", StageWalk::kNone,
        kSquareForms},
    StageRow{"T",
             "tokens,HV,C",
             "T = (I + A)^-1, with its diagonal of ones; no beta in it",
             "what is above the diagonal, columns behind the end of the sequence",
             StageWalk::kNone,
             {}},
    StageRow{
        "w", "tokens,HV,K", "w = T (beta k^ exp(G)), with its decay", "", StageWalk::kNone, {}},
    StageRow{"u", "tokens,HV,V", "u = T (beta v), without decay", "", StageWalk::kNone, {}},
    StageRow{"h", "chunks,HV,state",
             "h = the state at the start of the chunk, the initial state of the first one; chunks "
             "count up through the sequences",
             "", StageWalk::kForward, kStateForms},
    StageRow{"v_new",
             "tokens,HV,V",
             "v_new = u - w h, before any decay to the end of the chunk",
             "",
             StageWalk::kForward,
             {}},
};

// The last two axes exchanged.
template <class T>
std::vector<T> exchanged(const std::vector<T>& x, std::size_t rows, std::size_t columns) {
  std::vector<T> y(x.size());
  const std::size_t block = rows * columns;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t in = i % block;
    y[i / block * block + in % columns * rows + in / columns] = x[i];
  }
  return y;
}

}  // namespace

ExpectedStage scaled_stage(ExpectedStage stage, double factor) {
  verdict::Expected& e = stage.expected;
  const double size = std::fabs(factor);
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    double& golden = e.exact.golden[i];
    golden *= factor;
    e.exact.radius[i] = call::f32_not_below(static_cast<double>(e.exact.radius[i]) * size +
                                            std::fabs(golden) * 0x1p-52);
  }
  for (float& spread : e.grant.spread) {
    spread = call::f32_not_below(static_cast<double>(spread) * size);
  }
  for (float& flushed : e.grant.flushed) {
    flushed = call::f32_not_below(static_cast<double>(flushed) * std::max(size, 1.0));
  }
  for (float& reach : e.exact.reach) reach *= static_cast<float>(size);
  return stage;
}

ExpectedStage transposed_stage(ExpectedStage stage) {
  verdict::Expected& e = stage.expected;
  const auto rows = static_cast<std::size_t>(e.exact.shape[2]);
  const auto columns = static_cast<std::size_t>(e.exact.shape[3]);
  e.exact.golden = exchanged(e.exact.golden, rows, columns);
  e.exact.radius = exchanged(e.exact.radius, rows, columns);
  e.exact.undefined = exchanged(e.exact.undefined, rows, columns);
  e.grant.spread = exchanged(e.grant.spread, rows, columns);
  std::swap(e.exact.shape[2], e.exact.shape[3]);
  e.exact.run = e.exact.run > 1 ? 1 : e.exact.block / e.exact.channels;
  std::swap(stage.axes[2], stage.axes[3]);
  return stage;
}

std::span<const StageRow> stage_table() { return kTable; }

bool is_first_form(const StageRow& row, std::string_view form) {
  const auto found = std::ranges::find(row.forms, form, &StageForm::name);
  if (found == row.forms.end()) {
    std::string known;
    for (const StageForm& f : row.forms) {
      known += known.empty() ? "one of " : ", ";
      known += f.name;
    }
    throw Error(ErrorKind::kValue, "/stages/" + std::string(row.name) + "@form",
                known.empty() ? "no form: there is only one" : known, std::string(form));
  }
  return found == row.forms.begin();
}

ExpectedStage stage_in_form(const call::Record& record, const std::string& name,
                            std::string_view form, const ExpectedStage& stage) {
  const auto row = std::ranges::find(kTable, name, &StageRow::name);
  if (is_first_form(*row, form)) return stage;
  constexpr double kLog2OfE = 1.4426950408889634;
  if (name == "G") return scaled_stage(stage, kLog2OfE);
  if (name == "A") return scaled_stage(stage, -1.0);
  if (name == "h") return transposed_stage(stage);
  return scaled_stage(stage,
                      1.0 / call::resolved_scale(record.convention, stage.expected.exact.shape[2]));
}

}  // namespace goldenrule::delta
