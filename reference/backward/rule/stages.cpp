// SPDX-License-Identifier: Apache-2.0
//
// Length: a row and a shape per stage, and where each is stored.
#include "reference/backward/rule/stages.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/rule/lane_stages.hpp"
#include "reference/backward/rule/pooled.hpp"
#include "reference/delta/oracle/stage_fill.hpp"
#include "reference/delta/oracle/stage_reach.hpp"
#include "reference/delta/oracle/stages.hpp"

namespace goldenrule::backward {
namespace {

using delta::FilledStage;
using delta::Matrix;
using delta::StageTensors;
using verdict::ExpectedStage;
using verdict::ExpectedStages;
using verdict::StageForm;
using verdict::StageRow;
using verdict::StageWalk;

constexpr std::array kScaleForms{
    StageForm{"scaled", "q^ has its scale"},
    StageForm{"unscaled", "divided by the scale, which is applied later"},
};
constexpr std::array kQueryGradientForms{
    StageForm{"normed", "by norm(q): it has the factor scale"},
    StageForm{"scaled", "by q^ = scale * norm(q): without it"},
};
constexpr std::string_view kLower = "what is above the diagonal, columns behind the last token";

StageRow forward_row(std::string_view name, StageWalk walk, bool saved) {
  const auto table = delta::stage_table();
  StageRow row = *std::ranges::find(table, name, &StageRow::name);
  row.walk = walk;
  row.saved = saved;
  return row;
}

StageRow inverse_gradient_row() {
  return {"dM",
          "tokens,HV,C",
          "dM = -stril(T^T (dw (beta k^ exp(G))^T + du (beta v)^T) T^T), the gradient by A of "
          "T = (I + A)^-1, with zeros on the diagonal",
          kLower,
          StageWalk::kReverse,
          {}};
}

const std::vector<StageRow>& rows() {
  using enum StageWalk;
  static const std::vector<StageRow> table = [] {
    const StageRow h = forward_row("h", kForward, true);
    return std::vector<StageRow>{
        forward_row("T", kNone, true),
        {"P", "tokens,HV,C",
         "P_ij = < q^_i exp(G_i - G_j), k^_j > for tokens j up to i of the chunk, with decay and "
         "scale",
         kLower, kNone, kScaleForms, true},
        forward_row("w", kNone, false),
        forward_row("u", kNone, false),
        h,
        forward_row("v_new", kForward, false),
        {"o",
         "tokens,HV,V",
         "o = (q^ exp(G)) h + P v_new, the output of the forward pass",
         "",
         kForward,
         {},
         true},
        {"dh", "chunks,HV,state",
         "dh = the gradient by the state at the end of the chunk, dfinal_state of the last one", "",
         kReverse, h.forms},
        {"du",
         "tokens,HV,V",
         "du = P^T do + (k^ exp(G_C - G)) dh, the gradient by v_new with its state held",
         "",
         kReverse,
         {}},
        {"dP",
         "tokens,HV,C",
         "dP_ij = < do_i, v_new_j > for tokens j up to i of the chunk, without decay and scale",
         kLower,
         kReverse,
         {}},
        {"dw", "tokens,HV,K", "dw = -du h^T", "", kReverse, {}},
        inverse_gradient_row(),
        {"dq", "tokens,HV,K",
         "the gradient by norm(q) of each value head: before those of a query/key head are added "
         "up, and before the adjoint of the norm",
         "", kReverse, kQueryGradientForms},
        {"dk",
         "tokens,HV,K",
         "the gradient by k^ = norm(k) of each value head: before they are added up, and before "
         "the adjoint of the norm",
         "",
         kReverse,
         {}},
        {"raw",
         "tokens,HV(,K)",
         "the gradient by G of each token: the gradient by log alpha_t is the sum of raw from "
         "token t to the end of the chunk",
         "",
         kReverse,
         {}},
    };
  }();
  return table;
}

StageTensors blank(const call::Record& record, const call::Dims& d, std::int64_t C,
                   std::int64_t chunks, const std::vector<std::string>& names) {
  StageTensors to(names);
  const bool vk = record.convention.state_layout == call::StateLayout::kVK;
  const std::int64_t gates = call::gate_channels(record, d.K);
  for (const char* name : {"T", "P", "dP", "dM"}) {
    to.add(name, {d.tokens, d.HV, C}, {"token", "head", "column"}, C);
  }
  for (const char* name : {"w", "dw", "dq", "dk"}) {
    to.add(name, {d.tokens, d.HV, d.K}, {"token", "head", "key"}, d.K);
  }
  for (const char* name : {"u", "v_new", "o", "du"}) to.add_values(name, d.tokens, d);
  for (const char* name : {"h", "dh"}) to.add_states(name, chunks, d, vk);
  if (gates == 1) {
    to.add("raw", {d.tokens, d.HV}, {"token", "head"}, 1);
  } else {
    to.add("raw", {d.tokens, d.HV, gates}, {"token", "head", "key"}, gates);
  }
  for (const char* name : {"dM", "dq", "dk", "raw"}) {
    FilledStage* f = to.find(name);
    if (f != nullptr) f->exact().reach.assign(f->exact().touched.size(), 0.0F);
  }
  if (FilledStage* raw = to.find("raw"); raw != nullptr) {
    raw->exact().unit.assign(raw->exact().golden.size(), 0.0F);
  }
  return to;
}

// Stores the stages of one lane.
template <class S>
class StoreLane {
 public:
  StoreLane(const call::Record& record, const call::Dims& d, StageTensors& tensors,
            const Sequence& tokens, std::int64_t first_chunk, std::int64_t head)
      : record_(record),
        d_(d),
        tensors_(tensors),
        tokens_(tokens),
        first_chunk_(first_chunk),
        head_(head),
        places_(record, d, tokens, first_chunk, head) {}

  void run(const delta::Lane<S>& lane, const LaneInputs& given, std::int64_t C) {
    const LaneStages<S> of = lane_stages<S>(lane, given, C);
    const delta::ChunkErrors& e = of.errors;
    const auto in_chunk = [C](std::int64_t t, std::int64_t j) { return j <= t % C; };
    const auto all = [](std::int64_t, std::int64_t) { return true; };
    store("T", of.forward.T, e.T, in_chunk);
    store("P", of.P.value, of.P.error, in_chunk);
    store("dP", of.dP.value, of.dP.error, in_chunk);
    store("dM", of.dM.value, of.dM.error, in_chunk);
    store("w", of.forward.w, e.w.replicate(1, d_.K), all);
    store("u", of.forward.u, e.u, all);
    store("v_new", of.forward.v_new, e.v_new, all);
    store("o", of.o.value, of.o.error, all);
    store("du", of.du.value, of.du.error, all);
    store("dw", of.dw.value, of.dw.error, all);
    const double scale = call::resolved_scale(record_.convention, d_.K);
    Matrix<S> dq = of.dq.value;
    for (std::int64_t i = 0; i < dq.size(); ++i) dq.data()[i] *= S(scale);
    store("dq", dq, of.dq.error * (std::fabs(scale) * delta::kHigherOrder), all);
    store("dk", of.dk.value, of.dk.error, all);
    store("raw", of.raw.value, of.raw.error, all);
    store_reaches(lane, given, of, C);
    for (std::size_t c = 0; c < of.dh.size(); ++c) {
      store_state("h", c, of.forward.h[c], e.h[c].replicate(d_.K, 1));
      store_state("dh", c, of.dh[c].value, of.dh[c].error);
    }
  }

 private:
  template <class E, class D>
  void store(const char* name, const Matrix<S>& values, const E& errors, const D& defined) {
    FilledStage* f = tensors_.find(name);
    if (f == nullptr) return;
    for (std::int64_t t = 0; t < values.rows(); ++t) {
      const std::size_t row = f->row(tokens_.first + t, head_);
      for (std::int64_t i = 0; i < values.cols(); ++i) {
        const bool is_defined = defined(t, i);
        f->put(row + static_cast<std::size_t>(i), values(t, i), errors(t, i), is_defined);
      }
      f->exact().touched[row / f->exact().block] = verdict::Touch::kComputed;
    }
  }

  template <class E>
  void store_state(const char* name, std::size_t chunk, const Matrix<S>& state, const E& errors) {
    FilledStage* f = tensors_.find(name);
    if (f == nullptr) return;
    const auto n = static_cast<std::int64_t>(chunk);
    const std::size_t block = f->row(first_chunk_ + n, head_);
    for (std::int64_t i = 0; i < d_.K; ++i) {
      for (std::int64_t x = 0; x < d_.V; ++x) {
        f->put(places_.of_state(n * d_.K + i, x), state(i, x), errors(i, x), true);
      }
    }
    f->exact().touched[block / f->exact().block] = verdict::Touch::kComputed;
  }

  void store_reaches(const delta::Lane<S>& lane, const LaneInputs& given, const LaneStages<S>& of,
                     std::int64_t C) {
    const auto put = [&](const char* name, std::int64_t t, const auto& row) {
      FilledStage* f = tensors_.find(name);
      if (f == nullptr) return;
      std::copy_n(
          row.data(), row.size(),
          f->exact().reach.begin() + static_cast<std::ptrdiff_t>(f->row(tokens_.first + t, head_)));
    };
    const auto v = Matrix<double>::Map(given.v.data(), lane.tokens, d_.V);
    for (std::int64_t t = 0; t < lane.tokens; ++t) {
      put("u", t, delta::correction_reach(lane, v, of.forward, C, t, false));
      put("v_new", t, delta::correction_reach(lane, v, of.forward, C, t, true));
      put("o", t, Eigen::RowVectorXf(of.o_reach.row(t)));
      put("du", t, Eigen::RowVectorXf(of.du_reach.row(t)));
    }
    const double scale = std::fabs(call::resolved_scale(record_.convention, d_.K));
    store_sizes("dq", of.dq_size, scale);
    store_sizes("dk", of.dk_size, 1.0);
    store_sizes("dM", of.dM_size, 1.0);
    store_sizes("raw", among_neighbours(of.raw_size, kNeighbours), 1.0);
    FilledStage* raw = tensors_.find("raw");
    for (std::int64_t t = 0; raw != nullptr && t < lane.tokens; ++t) {
      const std::size_t row = raw->row(tokens_.first + t, head_);
      const auto at = static_cast<std::size_t>(t);
      std::fill_n(raw->exact().unit.begin() + static_cast<std::ptrdiff_t>(row), raw->width,
                  static_cast<float>(of.raw_size[at]));
    }
  }

  // One size for each token.
  void store_sizes(const char* name, const std::vector<double>& sizes, double factor) {
    FilledStage* f = tensors_.find(name);
    for (std::size_t t = 0; f != nullptr && t < sizes.size(); ++t) {
      const std::size_t row = f->row(tokens_.first + static_cast<std::int64_t>(t), head_);
      f->exact().reach[row / f->exact().block] = static_cast<float>(factor * sizes[t]);
    }
  }

  const call::Record& record_;
  const call::Dims& d_;
  StageTensors& tensors_;
  const Sequence& tokens_;
  std::int64_t first_chunk_, head_;
  LanePlaces places_;
};

bool all_numbers(const std::vector<double>& x) {
  return std::ranges::all_of(x, [](double y) { return std::isfinite(y); });
}

template <class S>
std::vector<ExpectedStages> evaluate_in(const call::Record& record, std::int64_t C,
                                        const std::vector<std::string>& names,
                                        std::span<const std::vector<std::int64_t>> blocks) {
  const call::Dims d = call::validate(record);
  const std::vector<Sequence> sequences = sequences_of(record, d);
  const std::vector<std::int64_t> first = first_chunks(sequences, C);
  const delta::CallInputs inputs(record);
  std::vector<StageTensors> tensors;
  std::vector<call::Dims> dims;                               // of each block
  std::vector<std::pair<std::size_t, std::int64_t>> members;  // block, place of the head in it
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    dims.push_back(d);
    dims.back().HV = std::ssize(blocks[b]);
    tensors.push_back(blank(record, dims.back(), C, first.back(), names));
    for (std::int64_t i = 0; i < dims.back().HV; ++i) members.emplace_back(b, i);
  }
  const parallel::Phase phase("stages");
  const std::int64_t lanes = std::ssize(members);
  parallel::for_each_index(std::ssize(sequences) * lanes, [&](std::int64_t job) {
    const std::int64_t n = job / lanes;
    const auto [b, place] = members[static_cast<std::size_t>(job % lanes)];
    const std::int64_t head = blocks[b][static_cast<std::size_t>(place)];
    const Sequence& tokens = sequences[static_cast<std::size_t>(n)];
    if (tokens.count == 0) return;
    const auto lane = delta::prepare_lane<S>(record, d, inputs, tokens.first, tokens.count, head);
    const LaneInputs given = lane_inputs(record, d, n, tokens, head);
    const bool finite = lane.first_nonfinite.any() >= lane.tokens && all_numbers(given.v) &&
                        all_numbers(given.output_gradient) && all_numbers(given.start) &&
                        all_numbers(given.state_gradient);
    if (!finite) return;
    StoreLane<S>(record, dims[b], tensors[b], tokens, first[static_cast<std::size_t>(n)], place)
        .run(lane, given, C);
  });
  std::vector<ExpectedStages> stages;
  for (StageTensors& of : tensors) stages.push_back(std::move(of).take());
  return stages;
}

}  // namespace

std::map<std::string, call::Shape> stage_shapes(const call::Record& record, const call::Dims& dims,
                                                std::int64_t C, std::int64_t chunks) {
  std::vector<std::string> names;
  for (const StageRow& row : rows()) names.emplace_back(row.name);
  StageTensors tensors = blank(record, dims, C, chunks, names);
  std::map<std::string, call::Shape> shapes;
  for (const std::string& name : names) shapes[name] = tensors.find(name)->exact().shape;
  return shapes;
}

std::span<const StageRow> stage_table() { return rows(); }

LanePlaces::LanePlaces(const call::Record& record, const call::Dims& dims, const Sequence& tokens,
                       std::int64_t first_chunk, std::int64_t head)
    : HV_(dims.HV),
      K_(dims.K),
      V_(dims.V),
      first_token_(tokens.first),
      first_chunk_(first_chunk),
      head_(head),
      vk_(record.convention.state_layout == call::StateLayout::kVK) {}

std::size_t LanePlaces::of_token(std::int64_t t, std::int64_t i, std::int64_t width) const {
  return static_cast<std::size_t>(((first_token_ + t) * HV_ + head_) * width + i);
}

std::size_t LanePlaces::of_state(std::int64_t row, std::int64_t x) const {
  const std::int64_t i = row % K_;
  const std::int64_t block = (first_chunk_ + row / K_) * HV_ + head_;
  return static_cast<std::size_t>(block * K_ * V_ + (vk_ ? x * K_ + i : i * V_ + x));
}

std::vector<std::int64_t> first_chunks(const std::vector<Sequence>& sequences, std::int64_t C) {
  std::vector<std::int64_t> first{0};
  for (const Sequence& s : sequences) first.push_back(first.back() + (s.count + C - 1) / C);
  return first;
}

std::vector<ExpectedStages> evaluate_stages_of(const call::Record& record, std::int64_t C,
                                               const std::vector<std::string>& names,
                                               scalar::Precision precision,
                                               std::span<const std::vector<std::int64_t>> blocks) {
  if (C < 1) throw Error(ErrorKind::kArgument, "stages", "a chunk size >= 1", std::to_string(C));
  switch (precision) {
    case scalar::Precision::kDouble:
      return evaluate_in<double>(record, C, names, blocks);
    case scalar::Precision::kQuad:
      return evaluate_in<scalar::Quad>(record, C, names, blocks);
    case scalar::Precision::kMulti:
      break;
  }
  return evaluate_in<scalar::Multi>(record, C, names, blocks);
}

ExpectedStages evaluate_stages(const call::Record& record, std::int64_t C,
                               const std::vector<std::string>& names, scalar::Precision precision) {
  std::array all{std::vector<std::int64_t>(static_cast<std::size_t>(call::validate(record).HV))};
  std::iota(all[0].begin(), all[0].end(), 0);
  return std::move(evaluate_stages_of(record, C, names, precision, all).front());
}

ExpectedStage stage_in_form(const call::Record& record, const std::string& name,
                            std::string_view form, const ExpectedStage& stage) {
  const StageRow& row = *std::ranges::find(rows(), name, &StageRow::name);
  if (delta::is_first_form(row, form)) return stage;
  if (name == "h" || name == "dh") return delta::transposed_stage(stage);
  const std::int64_t K = record.inputs.at("q").shape().back();
  return delta::scaled_stage(stage, 1.0 / call::resolved_scale(record.convention, K));
}

}  // namespace goldenrule::backward
