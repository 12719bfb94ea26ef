// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/bounds/certificate.hpp"
#include "reference/bounds/running.hpp"
#include "reference/oracle/lane_io.hpp"
#include "reference/oracle/spread.hpp"
#include "reference/rule/lane.hpp"
#include "reference/rule/recurrent.hpp"

namespace goldenrule::oracle {
namespace {

using scalar::Precision;

// Tokens of one uninterrupted advance: bounds what a tile records at a time.
constexpr std::int64_t kBlockTokens = 64;
// Prepared lanes that are alive together.
constexpr std::int64_t kLaneBytes = std::int64_t{64} << 20;

// Whether the running error is followed beside the values.
bool is_followed(const call::Record& record, const Options& options) {
  return options.contract != nullptr && options.contract->kind == bounds::Kind::kRecurrent &&
         !is_emulated(record, *options.contract);
}

// `inner` axes are those of one row and head.
Expected allocate(call::Shape shape, std::size_t inner, bool followed, bool components) {
  Expected e;
  e.shape = std::move(shape);
  const auto n = static_cast<std::size_t>(call::element_count(e.shape));
  for (std::size_t i = e.shape.size() - inner; i < e.shape.size(); ++i) {
    e.block *= static_cast<std::size_t>(e.shape[i]);
  }
  e.touched.assign(n / e.block, Touch::kKept);
  e.golden.assign(n, 0.0);
  e.radius.assign(n, 0.0F);
  if (followed) {
    e.spread.assign(n, 0.0F);
    if (components) {
      e.sigma.assign(n, 0.0F);
      e.bias.assign(n, 0.0F);
    }
    e.multiple = bounds::deviation_multiple(std::ssize(e.golden));
  }
  return e;
}

struct LaneJob {
  const call::Sequence* sequence;
  std::int64_t head;
};

struct TileJob {
  std::int64_t lane;  // within the batch
  std::int64_t first_column;
};

template <class S>
class Evaluator {
 public:
  Evaluator(const call::Record& record, const call::Plan& plan, const Options& options)
      : record_(record),
        plan_(plan),
        dims_(plan.dims),
        options_(options),
        followed_(is_followed(record, options)),
        inputs_(record),
        index_(record, plan.dims) {}

  Evaluation run() {
    allocate_outputs();
    std::vector<LaneJob> jobs;
    for (const call::Sequence& sequence : plan_.sequences) {
      mark_touched(sequence);
      if (sequence.padded || sequence.token_count == 0) {
        copy_start_states(sequence);
        continue;
      }
      for (std::int64_t head = 0; head < dims_.HV; ++head) jobs.push_back({&sequence, head});
    }
    run_jobs(jobs);
    grant_flushing();
    if (options_.contract != nullptr && is_emulated(record_, *options_.contract)) {
      emulate_spread(record_, plan_, inputs_, *options_.contract, options_.components, evaluation_);
    }
    return std::move(evaluation_);
  }

 private:
  using Tile = rule::RecurrentTile<S>;
  static constexpr int kColumns = rule::kTileColumns<S>;

  // The errors of one tile, as far as the options ask for them, and from which number of tokens on
  // a column may hold what no finite number is: an input was none.
  struct Errors {
    std::optional<bounds::Certificate<S>> certificate;
    std::optional<bounds::RunningError<S>> spread;
    std::array<std::int64_t, static_cast<std::size_t>(kColumns)> first_nonfinite{};
  };

  [[nodiscard]] std::int64_t lane_bytes(std::int64_t tokens) const {
    const std::int64_t gates = call::gate_channels(record_, dims_.K);
    return tokens * ((2 * dims_.K + gates + 1) * static_cast<std::int64_t>(sizeof(S)) +
                     gates * static_cast<std::int64_t>(sizeof(double)) +
                     static_cast<std::int64_t>(sizeof(rule::TokenBounds)));
  }

  void allocate_outputs() {
    evaluation_.precision = scalar::Tier<S>::kPrecision;
    auto& outputs = evaluation_.outputs;
    const auto make = [&](const char* name, std::size_t inner) {
      Expected& e = outputs[name];
      e = allocate(call::output_shape(record_, dims_, name), inner, followed_, options_.components);
      return &e;
    };
    o_ = make("o", 1);
    if (options_.certify) o_->reach2.assign(o_->touched.size(), 0.0);
    if (options_.final_state) {
      final_state_ = make("final_state", 2);
      keep_untouched();
    }
    if (plan_.has_intermediate_states) {
      intermediate_ = make("intermediate_states", 2);
      mark_undefined();
    }
  }

  // Slots that nobody writes keep their content; it is exact.
  void keep_untouched() {
    if (inputs_.initial_state.empty()) return;
    std::vector<double>& golden = final_state_->golden;
    parallel::for_each_range(
        std::ssize(golden), [&](std::size_t, std::int64_t first, std::int64_t last) {
          inputs_.initial_state.read(first, last - first, golden.data() + first);
        });
  }

  // Nothing writes the intermediate rows of a padded row.
  void mark_undefined() {
    const auto row = static_cast<std::size_t>(dims_.T * dims_.HV * dims_.state_size());
    for (std::size_t b = 0; b < plan_.sequences.size(); ++b) {
      if (!plan_.sequences[b].padded) continue;
      intermediate_->undefined.resize(intermediate_->golden.size(), false);
      std::fill_n(intermediate_->undefined.begin() + static_cast<std::ptrdiff_t>(b * row), row,
                  true);
    }
  }

  void grant_flushing() {
    if (options_.contract == nullptr || options_.contract->kind == bounds::Kind::kIdeal) return;
    double largest = 1.0;
    for (const char* name : {"v", "initial_state"}) {
      const call::Tensor* x = record_.find_input(name);
      if (x != nullptr) largest = std::max(largest, largest_finite(*x));
    }
    for (auto& [name, expected] : evaluation_.outputs) {
      expected.flushed = static_cast<double>(dims_.K + 1) * 0x1p-126 * largest;
    }
  }

  static double largest_finite(const call::Tensor& x) {
    std::vector<double> largest(parallel::range_count(x.size()), 0.0);
    parallel::for_each_range(x.size(),
                             [&](std::size_t part, std::int64_t first, std::int64_t last) {
                               for (std::int64_t i = first; i < last; ++i) {
                                 const double y = std::fabs(x[i]);
                                 if (std::isfinite(y)) largest[part] = std::max(largest[part], y);
                               }
                             });
    return largest.empty() ? 0.0 : std::ranges::max(largest);
  }

  void mark_touched(const call::Sequence& sequence) {
    const auto heads = static_cast<std::size_t>(dims_.HV);
    const auto mark = [&](Expected& e, std::int64_t row, bool computed) {
      std::fill_n(
          e.touched.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * heads),
          heads, computed ? Touch::kComputed : Touch::kCopied);
    };
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      mark(*o_, sequence.first_token + t, !sequence.padded);
    }
    for (const call::Snapshot& s : sequence.snapshots) {
      mark(target(s.target), s.block, !sequence.padded && s.after > 0);
    }
  }

  Expected& target(call::Target t) {
    return t == call::Target::kFinalState ? *final_state_ : *intermediate_;
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

  // In batches of lanes, counted as one phase.
  void run_jobs(const std::vector<LaneJob>& jobs) {
    parallel::Phase phase("oracle", std::ssize(jobs) * tiles_of_a_lane());
    std::size_t begin = 0;
    while (begin < jobs.size()) {
      std::size_t end = begin;
      std::int64_t bytes = 0;
      while (end < jobs.size() && (end == begin || bytes < kLaneBytes)) {
        bytes += lane_bytes(jobs[end].sequence->token_count);
        ++end;
      }
      run_batch({jobs.data() + begin, end - begin}, phase);
      begin = end;
    }
  }

  [[nodiscard]] std::int64_t tiles_of_a_lane() const { return (dims_.V + kColumns - 1) / kColumns; }

  void run_batch(std::span<const LaneJob> jobs, parallel::Phase& phase) {
    std::vector<rule::Lane<S>> lanes(jobs.size());
    parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
      const LaneJob& job = jobs[static_cast<std::size_t>(i)];
      lanes[static_cast<std::size_t>(i)] = rule::prepare_lane<S>(
          record_, dims_, inputs_, job.sequence->first_token, job.sequence->token_count, job.head);
    });
    std::vector<TileJob> tiles;
    for (std::int64_t lane = 0; lane < std::ssize(jobs); ++lane) {
      for (std::int64_t c = 0; c < dims_.V; c += kColumns) tiles.push_back({lane, c});
    }
    std::vector<std::vector<double>> reach2(tiles.size());
    parallel::for_each_index(std::ssize(tiles), [&](std::int64_t i) {
      const TileJob& tile = tiles[static_cast<std::size_t>(i)];
      reach2[static_cast<std::size_t>(i)] =
          run_tile(jobs[static_cast<std::size_t>(tile.lane)],
                   lanes[static_cast<std::size_t>(tile.lane)], tile.first_column);
      phase.advance();
    });
    for (std::size_t i = 0; options_.certify && i < tiles.size(); ++i) {
      const LaneJob& job = jobs[static_cast<std::size_t>(tiles[i].lane)];
      for (std::size_t t = 0; t < reach2[i].size(); ++t) {
        const std::int64_t token = job.sequence->first_token + static_cast<std::int64_t>(t);
        o_->reach2[static_cast<std::size_t>(token * dims_.HV + job.head)] += reach2[i][t];
      }
    }
  }

  // v of the tile's columns, [tokens, columns].
  std::vector<double> tile_values(const LaneJob& job, std::int64_t first_column,
                                  int columns) const {
    const std::int64_t tokens = job.sequence->token_count;
    std::vector<double> v(static_cast<std::size_t>(tokens * columns));
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = (job.sequence->first_token + t) * dims_.HV + job.head;
      inputs_.v.read(row * dims_.V + first_column, columns, v.data() + t * columns);
    }
    return v;
  }

  // Returns, for each token, the tile's part of Expected::reach2.
  std::vector<double> run_tile(const LaneJob& job, const rule::Lane<S>& lane,
                               std::int64_t first_column) {
    const call::Sequence& sequence = *job.sequence;
    const auto columns = static_cast<int>(std::min<std::int64_t>(kColumns, dims_.V - first_column));
    const std::vector<double> v = tile_values(job, first_column, columns);
    Tile tile(lane, v.data(), columns, 0, columns);
    typename rule::ColumnNorms<S>::Row norm2{};
    if (sequence.start_block >= 0 && !inputs_.initial_state.empty()) {
      const std::vector<double> start =
          start_columns(inputs_, index_, sequence, job.head, first_column, columns);
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (int c = 0; c < columns; ++c) {
          const double x = start[static_cast<std::size_t>(i * columns + c)];
          tile.set_state(i, c, S(x));
          norm2[static_cast<std::size_t>(c)] += x * x;
        }
      }
    }
    Errors errors;
    for (int c = 0; c < columns; ++c) {
      errors.first_nonfinite[static_cast<std::size_t>(c)] = first_nonfinite(
          lane, sequence, job.head, first_column + c, norm2, v.data() + c, columns, c);
    }
    rule::Detail detail = rule::Detail::kValues;
    if (options_.certify) {
      detail = rule::Detail::kNorms;
      errors.certificate.emplace(lane, norm2);
    }
    if (followed_) {
      detail = rule::Detail::kSums;
      errors.spread.emplace(*options_.contract, lane, tile);
    }

    std::vector<double> reach2;
    if (errors.certificate) reach2.reserve(static_cast<std::size_t>(sequence.token_count));
    std::int64_t t = 0;
    auto snapshot = sequence.snapshots.begin();
    const auto take_snapshots = [&] {
      for (; snapshot != sequence.snapshots.end() && snapshot->after == t; ++snapshot) {
        store_state(*snapshot, job.head, first_column, tile, errors);
      }
    };
    take_snapshots();
    while (t < sequence.token_count) {
      // The running error of single elements needs the state after each token.
      std::int64_t end = std::min(sequence.token_count, t + (followed_ ? 1 : kBlockTokens));
      if (snapshot != sequence.snapshots.end()) end = std::min(end, snapshot->after);
      tile.advance(t, end, detail);
      for (std::int64_t i = t; i < end; ++i) {
        store_output(sequence, job.head, first_column, i, i - t, tile, errors);
        if (!errors.certificate) continue;
        reach2.push_back(reach_squared(lane.bounds[static_cast<std::size_t>(i)].q_norm,
                                       tile.norms()[static_cast<std::size_t>(i - t)], columns));
      }
      t = end;
      take_snapshots();
    }
    return reach2;
  }

  [[nodiscard]] double reach_squared(double q_norm, const rule::ColumnNorms<S>& norms,
                                     int columns) const {
    double sum = 0.0;
    for (int c = 0; c < columns; ++c) {
      const double one = q_norm * q_norm * norms.state2[static_cast<std::size_t>(c)] /
                         static_cast<double>(dims_.K);
      if (std::isfinite(one)) sum += one;
    }
    return sum;
  }

  // The number of tokens after which column `x` of the lane has met an input that is NaN or Inf: 0
  // where the start state holds one.
  std::int64_t first_nonfinite(const rule::Lane<S>& lane, const call::Sequence& sequence,
                               std::int64_t head, std::int64_t x,
                               const typename rule::ColumnNorms<S>::Row& start2, const double* v,
                               std::int64_t stride, int c) const {
    const double start = start2[static_cast<std::size_t>(c)];
    if (!std::isfinite(start) && !is_finite_start(sequence, head, x)) return 0;
    for (std::int64_t t = 0; t < lane.first_nonfinite; ++t) {
      if (!std::isfinite(v[t * stride])) return t + 1;
    }
    return lane.first_nonfinite + 1;
  }

  [[nodiscard]] bool is_finite_start(const call::Sequence& sequence, std::int64_t head,
                                     std::int64_t x) const {
    for (std::int64_t i = 0; i < dims_.K; ++i) {
      const double s = inputs_.initial_state[index_(sequence.start_block, head, i, x)];
      if (!std::isfinite(s)) return false;
    }
    return true;
  }

  void store_output(const call::Sequence& sequence, std::int64_t head, std::int64_t first_column,
                    std::int64_t t, std::int64_t row, const Tile& tile, Errors& errors) {
    const std::int64_t base =
        ((sequence.first_token + t) * dims_.HV + head) * dims_.V + first_column;
    if (errors.certificate) {
      errors.certificate->advance(t, tile.norms()[static_cast<std::size_t>(row)]);
    }
    if (errors.spread) errors.spread->advance(t, tile.norms()[static_cast<std::size_t>(row)], tile);
    for (int c = 0; c < tile.columns(); ++c) {
      const auto at = static_cast<std::size_t>(base + c);
      store(*o_, at, tile.output(row, c),
            errors.certificate ? errors.certificate->output_radius(c) : kUnbounded,
            errors.spread ? errors.spread->output(c) : bounds::Spread{},
            t + 1 >= errors.first_nonfinite[static_cast<std::size_t>(c)]);
    }
  }

  void store_state(const call::Snapshot& s, std::int64_t head, std::int64_t first_column,
                   const Tile& tile, Errors& errors) {
    Expected& to = target(s.target);
    for (std::int64_t i = 0; i < dims_.K; ++i) {
      for (int c = 0; c < tile.columns(); ++c) {
        store(to, index_(s.block, head, i, first_column + c), tile.state(i, c),
              errors.certificate ? errors.certificate->state_radius(c) : kUnbounded,
              errors.spread ? errors.spread->state(i, c) : bounds::Spread{},
              s.after >= errors.first_nonfinite[static_cast<std::size_t>(c)]);
      }
    }
  }

  static void store(Expected& to, std::size_t at, const S& x, double radius,
                    const bounds::Spread& spread, bool met_nonfinite) {
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
    to.radius[at] =
        call::f32_not_below(std::isnan(radius) ? std::numeric_limits<double>::infinity() : radius);
    if (to.spread.empty()) return;
    to.spread[at] = call::f32_not_below(to.multiple * spread.sigma + spread.bias);
    if (to.sigma.empty()) return;
    to.sigma[at] = call::f32_not_below(spread.sigma);
    to.bias[at] = call::f32_not_below(spread.bias);
  }

  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  const call::Record& record_;
  const call::Plan& plan_;
  const call::Dims& dims_;
  const Options& options_;
  const bool followed_;
  const rule::CallInputs inputs_;
  const StateIndex index_;
  Evaluation evaluation_;
  Expected* o_ = nullptr;
  Expected* final_state_ = nullptr;
  Expected* intermediate_ = nullptr;
};

}  // namespace

double Expected::max_radius() const {
  float largest = 0.0F;
  for (const float r : radius) largest = std::max(largest, r);
  return static_cast<double>(largest);
}

Evaluation evaluate(const call::Record& record, Precision precision, const Options& options) {
  const call::Plan plan = call::make_plan(record, options.intermediate_states, options.final_state);
  switch (precision) {
    case Precision::kDouble:
      return Evaluator<double>(record, plan, options).run();
    case Precision::kQuad:
      return Evaluator<scalar::Quad>(record, plan, options).run();
    case Precision::kMulti:
      return Evaluator<scalar::Multi>(record, plan, options).run();
  }
  return {};  // unreachable: every value is handled above
}

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::kDouble:
      return scalar::Tier<double>::kName;
    case Precision::kQuad:
      return scalar::Tier<scalar::Quad>::kName;
    case Precision::kMulti:
      return scalar::Tier<scalar::Multi>::kName;
  }
  return "";
}

int bits_of(Precision precision) {
  switch (precision) {
    case Precision::kDouble:
      return scalar::Tier<double>::kBits;
    case Precision::kQuad:
      return scalar::Tier<scalar::Quad>::kBits;
    case Precision::kMulti:
      return scalar::Tier<scalar::Multi>::kBits;
  }
  return 0;
}

}  // namespace goldenrule::oracle
