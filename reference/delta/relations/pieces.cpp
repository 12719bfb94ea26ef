// SPDX-License-Identifier: Apache-2.0
//
// The same tokens in other calls: a sequence is cut into pieces, each piece is a call that starts
// from the state which the one before it stored. Exactly computed, nothing changes.
//
// Bound. Let e be a bound on ||S^ - S||_2 for a value column of the state that is handed over,
// stored S^ against exact S. One exact step maps the difference by (I - beta k k^T) D, of norm at
// most phi a (delta/oracle/certificate.hpp), so after tokens s .. t of the next piece it is at most
//
//   e Phi_t,   Phi_t = prod of phi a over the tokens s .. t,
//
// in the norm of the column, hence in each of its elements, and at most ||q^_t|| e Phi_t in the
// output of token t, which reads the updated state. The piece itself is an honest call on what it
// was given: it adds its own grant b (budget and radius), and so does the original call, which
// this is compared with:
//
//   |o^_t - o_t| <= b + ||q^_t|| e Phi_t,      |S^_i - S_i| <= b_i + e Phi.
//
// What a piece adds to e. Its roundings are zero-mean and independent of those of other pieces:
// in any direction they are sub-Gaussian with a deviation of at most the norm of the column's
// (Cauchy-Schwarz, whatever their correlation), and deviations of independent pieces add in
// squares. So e = r + c with r^2 = lambda^2 sum of squares, the multiple lambda being that of the
// budget and the rounding to storage counting as uniform, and c the sum of what may be the same
// in all calls (errors of functions, the radius):
//
//   r^2 <- r^2 Phi^2 + sum_i lambda^2 (sigma_i^2 + ulp_i^2 / 12),     c <- c Phi + ||c_i||_2.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::relations {
namespace {

using call::Mode;
using call::Record;

// Ends of the pieces of a sequence of `count` tokens, ascending; the last is `count`.
using Cuts = std::vector<std::int64_t> (*)(std::int64_t count);

// At most `size` tokens each.
template <std::int64_t size>
std::vector<std::int64_t> pieces_of(std::int64_t count) {
  std::vector<std::int64_t> ends;
  for (std::int64_t end = size; end < count; end += size) ends.push_back(end);
  if (count > 0) ends.push_back(count);
  return ends;
}
std::vector<std::int64_t> halves(std::int64_t count) {
  if (count < 2) return pieces_of<1>(count);
  return {(count + 1) / 2, count};
}
std::vector<std::int64_t> whole(std::int64_t count) {
  return count == 0 ? std::vector<std::int64_t>() : std::vector{count};
}

// e of a value column.
struct Carried {
  double random2 = 0.0, sure = 0.0;  // r^2 and c
  [[nodiscard]] double error() const { return std::sqrt(random2) + sure; }
};

class Chain {
 public:
  Chain(Trial& trial, Mode mode, Cuts cuts)
      : trial_(trial),
        base_(trial.base()),
        d_(base_.plan.dims),
        mode_(mode),
        inputs_(base_.record),
        index_(base_.record, d_),
        carried_(base_.plan.sequences.size() * lane_size()) {
    for (const call::Sequence& s : base_.plan.sequences) {
      ends_.push_back(s.padded ? std::vector<std::int64_t>() : cuts(s.token_count));
    }
    states_ = start_states();
  }

  void run() {
    for (std::size_t step = 0;; ++step) {
      std::map<std::int64_t, std::vector<calls::Stretch>>
          calls;  // by tokens in a row; prefill takes any
      for (std::size_t n = 0; n < ends_.size(); ++n) {
        if (step >= ends_[n].size()) continue;
        const std::int64_t begin = step == 0 ? 0 : ends_[n][step - 1];
        const std::int64_t count = ends_[n][step] - begin;
        calls[mode_ == Mode::kPrefill ? 0 : count].push_back(
            {static_cast<std::int64_t>(n), begin, count});
      }
      if (calls.empty()) return;
      std::optional<call::Tensor> stored;
      for (const auto& [count, stretches] : calls) run_call(stretches, stored);
      states_ = std::move(*stored);
    }
  }

  // From checkpoint j of every sequence that has so many, for every j. The original call kept it
  // and went on, so what it owes to its own roundings is what the checkpoint was granted.
  void restart() {
    const call::Tensor& kept = base_.outputs.at("checkpoints");
    for (std::size_t j = 0;; ++j) {
      std::vector<calls::Stretch> stretches;
      bool any = false;
      std::int64_t row = 0;
      states_ = call::Tensor(kept.dtype(), states_.shape());
      std::ranges::fill(carried_, Carried());
      for (std::size_t n = 0; n < base_.plan.sequences.size(); ++n) {
        const call::Sequence& s = base_.plan.sequences[n];
        const std::int64_t first = std::exchange(row, row + std::ssize(s.checkpoints));
        if (j >= s.checkpoints.size()) continue;
        any = true;
        const std::int64_t count = s.token_count - s.checkpoints[j];
        if (s.padded || count == 0) continue;
        start_from(static_cast<std::int64_t>(n), first + static_cast<std::int64_t>(j), kept);
        stretches.push_back({static_cast<std::int64_t>(n), s.checkpoints[j], count});
      }
      if (!any) return;
      std::optional<call::Tensor> stored;
      if (!stretches.empty()) run_call(stretches, stored);
    }
  }

 private:
  [[nodiscard]] std::size_t lane_size() const { return static_cast<std::size_t>(d_.HV * d_.V); }

  void start_from(std::int64_t sequence, std::int64_t checkpoint, const call::Tensor& kept) {
    const std::int64_t block = d_.HV * d_.state_size();
    for (std::int64_t i = 0; i < block; ++i) {
      states_.set(sequence * block + i, kept[checkpoint * block + i]);
    }
    const std::vector<Grant>& granted = trial_.base_granted().at("checkpoints");
    for (std::int64_t head = 0; head < d_.HV; ++head) {
      for (std::int64_t x = 0; x < d_.V; ++x) {
        Carried sum;  // squares of both parts
        for (std::int64_t i = 0; i < d_.K; ++i) {
          const Grant& grant = granted[index_(checkpoint, head, i, x)];
          sum.random2 += grant.random2;
          sum.sure += grant.sure * grant.sure;
        }
        carried_[static_cast<std::size_t>(sequence) * lane_size() +
                 static_cast<std::size_t>(head * d_.V + x)] = {sum.random2, std::sqrt(sum.sure)};
      }
    }
  }

  // The state of each sequence before its first token, [sequences,HV,state].
  call::Tensor start_states() const {
    std::vector<std::int64_t> blocks;
    for (const call::Sequence& s : base_.plan.sequences) {
      blocks.push_back(std::max<std::int64_t>(s.start_block, 0));  // of a padded row: not read
    }
    const call::Tensor* given = base_.record.find_input("initial_state");
    if (given != nullptr) {
      call::Tensor states = call::take(*given, 0, blocks);
      const std::int64_t block = d_.HV * d_.state_size();
      calls::change(states, [&](std::int64_t i, double x) {
        const auto n = static_cast<std::size_t>(i / block);
        return base_.plan.sequences[n].start_block < 0 ? 0.0 : x;
      });
      return states;
    }
    call::Shape shape = base_.outputs.at("final_state").shape();
    shape[0] = std::ssize(blocks);
    return {call::DType::kF32, shape};
  }

  void run_call(const std::vector<calls::Stretch>& stretches, std::optional<call::Tensor>& stored) {
    const Run run =
        trial_.run(calls::stretch_call(base_.record, base_.plan, mode_, stretches, states_));
    const Grants granted = trial_.granted(run);
    const call::Tensor& states = run.outputs.at("final_state");
    if (!stored) stored.emplace(states.dtype(), states_.shape());
    for (std::size_t row = 0; row < stretches.size(); ++row) {
      const auto r = static_cast<std::int64_t>(row);
      for (std::int64_t head = 0; head < d_.HV; ++head) {
        follow_lane(stretches[row], r, head, run, granted);
      }
      const std::int64_t block = d_.HV * d_.state_size();
      for (std::int64_t i = 0; i < block; ++i) {
        stored->set(stretches[row].sequence * block + i, states[r * block + i]);
      }
    }
  }

  void follow_lane(const calls::Stretch& s, std::int64_t row, std::int64_t head, const Run& run,
                   const Grants& granted) {
    const call::Sequence& sequence = base_.plan.sequences[static_cast<std::size_t>(s.sequence)];
    const auto lane = delta::prepare_lane<double>(base_.record, d_, inputs_,
                                                  sequence.first_token + s.begin, s.count, head);
    const std::int64_t first = run.plan.sequences[static_cast<std::size_t>(row)].first_token;
    for (std::int64_t x = 0; x < d_.V; ++x) {
      Carried& carried = carried_[static_cast<std::size_t>(s.sequence) * lane_size() +
                                  static_cast<std::size_t>(head * d_.V + x)];
      for (std::int64_t t = 0; t < s.count; ++t) {
        const delta::TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
        const double step = b.spectral * b.alpha_max;
        carried = {carried.random2 * step * step, carried.sure * step};
        const std::size_t at = index_.o(sequence.first_token + s.begin + t, head, x);
        const std::size_t there = index_.o(first + t, head, x);
        claim("o", at, run, there,
              sum_of(granted.at("o")[there].bound, b.q_norm * carried.error()));
      }
      Carried added;
      for (std::int64_t i = 0; i < d_.K; ++i) {
        const std::size_t there = index_(row, head, i, x);
        const Grant& grant = granted.at("final_state")[there];
        claim_states(sequence, s.begin + s.count, head, i, x, run, there,
                     sum_of(grant.bound, carried.error()));
        added.random2 += grant.random2;
        added.sure += grant.sure * grant.sure;
      }
      carried = {carried.random2 + added.random2, carried.sure + std::sqrt(added.sure)};
    }
  }

  // What the original call stores after `tokens` tokens.
  void claim_states(const call::Sequence& sequence, std::int64_t tokens, std::int64_t head,
                    std::int64_t i, std::int64_t x, const Run& run, std::size_t there,
                    double bound) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.after != tokens) continue;
      claim(std::string(call::name_of(snapshot.target)), index_(snapshot.block, head, i, x), run,
            there, bound);
    }
  }

  // `there` is a place in o, or in the final_state of `run` for states.
  void claim(const std::string& tensor, std::size_t at, const Run& run, std::size_t there,
             double bound) {
    const call::Tensor& from = run.outputs.at(tensor == "o" ? "o" : "final_state");
    trial_.claim(tensor, at, from[static_cast<std::int64_t>(there)],
                 base_.outputs.at(tensor)[static_cast<std::int64_t>(at)],
                 sum_of(trial_.base_granted().at(tensor)[at].bound, bound));
  }

  Trial& trial_;
  const Run& base_;
  const call::Dims& d_;
  const Mode mode_;
  const delta::CallInputs inputs_;
  const delta::OutputIndex index_;
  std::vector<std::vector<std::int64_t>> ends_;
  call::Tensor states_;
  std::vector<Carried> carried_;  // of every sequence, head and value column
};

template <Mode mode, Cuts cuts>
void in_pieces(Trial& trial) {
  Chain(trial, mode, cuts).run();
}

void restart(Trial& trial) { Chain(trial, Mode::kPrefill, whole).restart(); }

template <Mode mode>
bool is_other_mode(const Record& r, const contract::Contract&) {
  return r.mode != mode && !call::has_tree(r) && call::validate(r).tokens > 0;
}

constexpr std::array kPiecesRelations{
    Relation{"split", "a prefill of each half of every sequence, one after the other",
             Demand::kBudget,
             [](const Record& r, const contract::Contract&) {
               return calls::is_prefill(r) && calls::longest_sequence(r) > 1;
             },
             in_pieces<Mode::kPrefill, halves>},
    Relation{"restart", "a prefill of what follows each checkpoint, from that checkpoint",
             Demand::kBudget,
             [](const Record& r, const contract::Contract&) {
               const call::Plan plan = call::make_plan(r, true);
               return std::ranges::any_of(plan.sequences, [](const call::Sequence& s) {
                 return !s.padded && !s.checkpoints.empty() &&
                        s.checkpoints.front() < s.token_count;
               });
             },
             restart},
    Relation{"as_prefill", "one prefill of all rows", Demand::kBudget,
             is_other_mode<Mode::kPrefill>, in_pieces<Mode::kPrefill, whole>, Mode::kPrefill},
    Relation{"as_decode", "one decode call after the other, token by token", Demand::kBudget,
             is_other_mode<Mode::kDecode>, in_pieces<Mode::kDecode, pieces_of<1>>, Mode::kDecode},
    Relation{"as_mtp", "MTP calls of up to 16 tokens, one after the other", Demand::kBudget,
             is_other_mode<Mode::kMtp>, in_pieces<Mode::kMtp, pieces_of<16>>, Mode::kMtp},
};

}  // namespace

std::span<const Relation> piece_relations() { return kPiecesRelations; }

}  // namespace goldenrule::relations
