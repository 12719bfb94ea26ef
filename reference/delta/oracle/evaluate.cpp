// SPDX-License-Identifier: Apache-2.0
//
// Length: the outputs of a call and what a tile stores in them, which are read together.
#include "reference/delta/oracle/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/oracle/column_reach.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/tile_walk.hpp"
#include "reference/delta/oracle/tree.hpp"

namespace goldenrule::delta {
namespace {

using scalar::Precision;
using verdict::EvaluationOptions;
using verdict::Exact;
using verdict::Expectations;
using verdict::Touch;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// `inner` axes are those of one row and head.
Exact allocate(call::Shape shape, std::size_t inner) {
  Exact e;
  e.shape = std::move(shape);
  const auto n = static_cast<std::size_t>(call::element_count(e.shape));
  for (std::size_t i = e.shape.size() - inner; i < e.shape.size(); ++i) {
    e.block *= static_cast<std::size_t>(e.shape[i]);
  }
  e.touched.assign(n / e.block, Touch::kKept);
  e.golden.assign(n, 0.0);
  e.radius.assign(n, 0.0F);
  return e;
}

// The outputs of a call and what happens to them beside the rule: slots that nobody writes, rows of
// padded requests, sequences without tokens.
class Outputs {
 public:
  Outputs(const call::Record& record, const call::Plan& plan, const EvaluationOptions& options,
          const CallInputs& inputs)
      : dims_(plan.dims), inputs_(inputs) {
    const auto make = [&](std::string_view output, std::size_t inner) {
      const std::string name(output);
      Exact& e = expected.outputs[name].exact;
      e = allocate(call::output_shape(record, dims_, name), inner);
      e.channels = static_cast<std::size_t>(dims_.V);
      return &e;
    };
    const auto make_states = [&](std::string_view output) {
      Exact* e = make(output, 2);
      if (record.convention.state_layout == call::StateLayout::kVK) {
        e->run = static_cast<std::size_t>(dims_.K);
      }
      if (options.certify)
        e->reach.assign(e->golden.size() / static_cast<std::size_t>(dims_.K), 0.0F);
      return e;
    };
    o = make("o", 1);
    if (options.certify) o->reach.assign(o->golden.size(), 0.0F);
    if (options.final_state) {
      final_state_ = make_states("final_state");
      keep_untouched();
    }
    if (plan.kept_states) {
      kept_ = make_states(call::name_of(*plan.kept_states));
      const call::Tensor* buffer = record.find_input("initial_intermediate_states");
      if (buffer != nullptr) kept_->golden = buffer->to_doubles();  // what nobody writes stays
      if (buffer == nullptr) mark_undefined(plan);
    }
    if (call::has_ring(record)) {
      rings_ = add_rings(record, plan, options.certify, expected);
    }
    for (const call::Sequence& sequence : plan.sequences) {
      mark_touched(sequence);
      if (sequence.padded || sequence.lane_tokens() == 0) copy_start_states(sequence);
    }
  }

  [[nodiscard]] Exact& target(call::Target t) const {
    return t == call::Target::kFinalState ? *final_state_ : *kept_;
  }

  /// ring_d, where the call has rings.
  [[nodiscard]] Exact* corrections() const { return rings_; }

  Expectations expected;
  Exact* o = nullptr;

 private:
  // Slots that nobody writes keep their content; it is exact.
  void keep_untouched() {
    if (inputs_.initial_state.empty()) return;
    std::vector<double>& golden = final_state_->golden;
    parallel::for_each_range(
        std::ssize(golden), [&](std::size_t, std::int64_t first, std::int64_t last) {
          inputs_.initial_state.read(first, last - first, golden.data() + first);
        });
  }

  // States on the way that no sequence leaves are those of padded rows: nothing writes them.
  void mark_undefined(const call::Plan& plan) {
    if (std::ranges::none_of(plan.sequences, &call::Sequence::padded)) return;
    kept_->undefined.assign(kept_->golden.size(), true);
    const std::int64_t block = dims_.HV * dims_.state_size();
    for (const call::Sequence& sequence : plan.sequences) {
      for (const call::Snapshot& s : sequence.snapshots) {
        if (s.target != *plan.kept_states) continue;
        std::fill_n(kept_->undefined.begin() + s.block * block, block, false);
      }
    }
  }

  void mark_touched(const call::Sequence& sequence) {
    const auto heads = static_cast<std::size_t>(dims_.HV);
    const auto mark = [&](Exact& e, std::int64_t row, bool computed) {
      std::fill_n(
          e.touched.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * heads),
          heads, computed ? Touch::kComputed : Touch::kCopied);
    };
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      mark(*o, sequence.first_token + t, !sequence.padded);
    }
    for (const call::Snapshot& s : sequence.snapshots) {
      mark(target(s.target), s.block, !sequence.padded && s.after > 0);
    }
  }

  // Zero tokens: every snapshot is the start state.
  void copy_start_states(const call::Sequence& sequence) {
    for (const call::Snapshot& s : sequence.snapshots) {
      const auto n = static_cast<std::size_t>(dims_.HV * dims_.state_size());
      for (std::size_t i = 0; i < n; ++i) {
        target(s.target).golden[static_cast<std::size_t>(s.block) * n + i] =
            sequence.start_block < 0
                ? 0.0
                : inputs_.initial_state[static_cast<std::size_t>(sequence.start_block) * n + i];
      }
    }
  }

  const call::Dims& dims_;
  const CallInputs& inputs_;
  Exact* final_state_ = nullptr;
  Exact* kept_ = nullptr;
  Exact* rings_ = nullptr;
};

// Stores the values of one tile with their radius.
template <class S>
class ExactTile {
 public:
  ExactTile(const TileStart<S>& start, const call::Dims& dims, const OutputIndex& index,
            const CallInputs& inputs, const EvaluationOptions& options, const Outputs& outputs)
      : job_(start.job),
        lane_(&start.lane),
        dims_(&dims),
        index_(&index),
        outputs_(&outputs),
        v_(start.v),
        columns_(static_cast<std::size_t>(start.tile.columns())),
        first_column_(start.first_column) {
    const int columns = start.tile.columns();
    for (int c = 0; c < columns; ++c) {
      first_nonfinite_[static_cast<std::size_t>(c)] = first_nonfinite(start, inputs, columns, c);
    }
    if (!options.certify) return;
    certificate_.emplace(start.lane, start.norm2);
    column_reach_.emplace(dims.K, start.norm2);
  }

  void token(std::int64_t t, std::int64_t row, const RecurrentTile<S>& tile) {
    const call::Sequence& sequence = *job_.sequence;
    const std::int64_t token = sequence.first_token + t - sequence.replay.count;
    const bool replayed = t < sequence.replay.count;
    if (certificate_) {
      const ColumnNorms<S>& norms = tile.norms()[static_cast<std::size_t>(row)];
      const TokenBounds& bounds = lane_->bounds[static_cast<std::size_t>(t)];
      certificate_->advance(t, norms);
      column_reach_->advance(bounds.alpha_max, norms.state2);
      for (std::size_t c = 0; !replayed && std::cmp_less(c, tile.columns()); ++c) {
        const std::int64_t column = first_column_ + static_cast<std::int64_t>(c);
        outputs_->o->reach[index_->o(token, job_.head, column)] =
            reach(column_reach_->read_by(bounds.q_norm, c));
        if (outputs_->corrections() == nullptr) continue;
        const double v = v_[static_cast<std::size_t>(t) * columns_ + c];
        const double read = column_reach_->read_by(bounds.k_norm, c);
        outputs_->corrections()->reach[index_->d(sequence, t, job_.head, column)] =
            reach(bounds.beta * std::sqrt(v * v + read * read));
      }
    }
    if (replayed) return;
    for (int c = 0; c < tile.columns(); ++c) {
      const bool met_nonfinite = t + 1 >= first_nonfinite_[static_cast<std::size_t>(c)];
      store(*outputs_->o, index_->o(token, job_.head, first_column_ + c), tile.output(row, c),
            certificate_ ? certificate_->output_radius(c) : kUnbounded, met_nonfinite);
      if (outputs_->corrections() == nullptr) continue;
      store(*outputs_->corrections(), index_->d(sequence, t, job_.head, first_column_ + c),
            tile.correction(row, c), certificate_ ? certificate_->correction_radius(c) : kUnbounded,
            met_nonfinite);
    }
  }

  void snapshot(const call::Snapshot& s, const RecurrentTile<S>& tile) {
    Exact& to = outputs_->target(s.target);
    for (std::int64_t i = 0; i < dims_->K; ++i) {
      for (int c = 0; c < tile.columns(); ++c) {
        store(to, (*index_)(s.block, job_.head, i, first_column_ + c), tile.state(i, c),
              certificate_ ? certificate_->state_radius(c) : kUnbounded,
              s.after >= first_nonfinite_[static_cast<std::size_t>(c)]);
      }
    }
    for (std::size_t c = 0; column_reach_ && std::cmp_less(c, tile.columns()); ++c) {
      const std::int64_t column = first_column_ + static_cast<std::int64_t>(c);
      to.reach[to.channel((*index_)(s.block, job_.head, 0, column))] =
          reach(column_reach_->norm(c));
    }
  }

 private:
  static float reach(double size) { return std::isfinite(size) ? static_cast<float>(size) : 0.0F; }

  // The number of tokens after which column `c` has met an input that is NaN or Inf: 0 where the
  // start state holds one.
  std::int64_t first_nonfinite(const TileStart<S>& start, const CallInputs& inputs, int columns,
                               int c) const {
    const bool finite = std::isfinite(start.norm2[static_cast<std::size_t>(c)]);
    if (!finite && !is_finite_start(inputs, first_column_ + c)) return 0;
    for (std::int64_t t = 0; t < start.lane.first_nonfinite.any(); ++t) {
      if (!std::isfinite(start.v[static_cast<std::size_t>(t * columns + c)])) return t + 1;
    }
    return start.lane.first_nonfinite.any() + 1;
  }

  [[nodiscard]] bool is_finite_start(const CallInputs& inputs, std::int64_t column) const {
    for (std::int64_t i = 0; i < dims_->K; ++i) {
      const std::size_t at = (*index_)(job_.sequence->start_block, job_.head, i, column);
      if (!std::isfinite(inputs.initial_state[at])) return false;
    }
    return true;
  }

  static void store(Exact& to, std::size_t at, const S& x, double radius, bool met_nonfinite) {
    const double golden = scalar::to_double(x);
    to.golden[at] = golden;
    if (!std::isfinite(golden)) {
      if (!met_nonfinite) to.radius[at] = std::numeric_limits<float>::infinity();
      return;
    }
    // A tier wider than double is rounded once more here.
    if constexpr (scalar::Tier<S>::kPrecision != Precision::kDouble) {
      radius += std::fabs(golden) * 0x1p-53 + 0x1p-1074;
    }
    to.radius[at] = call::f32_bound(std::isnan(radius) ? kUnbounded : radius);
  }

  LaneJob job_;
  const Lane<S>* lane_;
  const call::Dims* dims_;
  const OutputIndex* index_;
  const Outputs* outputs_;
  std::span<const double> v_;  // [tokens, columns]; while the tile runs
  std::size_t columns_;
  std::int64_t first_column_;
  std::array<std::int64_t, static_cast<std::size_t>(kTileColumns<S>)> first_nonfinite_{};
  std::optional<Certificate<S>> certificate_;
  std::optional<ColumnReach<typename ColumnNorms<S>::Row>> column_reach_;
};

template <class S>
Expectations run(const call::Record& record, const call::Plan& plan,
                 const EvaluationOptions& options) {
  const TileWalk<S> walk(record, plan);
  Outputs outputs(record, plan, options, walk.inputs());
  outputs.expected.precision = scalar::Tier<S>::kPrecision;
  const auto make = [&](const TileStart<S>& start) {
    return ExactTile<S>(start, plan.dims, walk.index(), walk.inputs(), options, outputs);
  };
  walk.run({.phase = "oracle", .detail = options.certify ? Detail::kNorms : Detail::kValues}, make,
           [](const LaneJob&, const ExactTile<S>&) {});
  if (call::has_ring(record)) {
    evaluate_rings<S>(record, plan, walk.inputs(), options.certify, outputs.expected);
  }
  return std::move(outputs.expected);
}

}  // namespace

Expectations evaluate(const call::Record& record, Precision precision,
                      const EvaluationOptions& options) {
  if (call::has_tree(record)) {
    const Paths paths(record);
    Expectations expected = evaluate(paths.without_tree(), precision, options);
    const Expectations along = evaluate(paths.unfolded(), precision, options);
    for (auto& [name, e] : expected.outputs)
      paths.fold(along.outputs.at(name).exact, name, e.exact);
    return expected;
  }
  const call::Plan plan = call::make_plan(record, options.kept_states, options.final_state);
  switch (precision) {
    case Precision::kDouble:
      return run<double>(record, plan, options);
    case Precision::kQuad:
      return run<scalar::Quad>(record, plan, options);
    case Precision::kMulti:
      return run<scalar::Multi>(record, plan, options);
  }
  return {};  // unreachable: every value is handled above
}

}  // namespace goldenrule::delta
