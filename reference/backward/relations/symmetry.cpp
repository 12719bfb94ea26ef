// SPDX-License-Identifier: Apache-2.0
//
// Length: five identities, and the sums that they share.
//
// Symmetries of the forward pass. The loss L = <do, o> + <dS_T, S_T> does not change, or changes in
// a known way, when inputs move along a curve; so the gradients along it add up to a known number
// (Noether's theorem, for a finite sum). No exact gradient is asked for: o and S_T are those of the
// forward pass, by the oracle. With the rule S_t = alpha_t S_{t-1} (1 - beta_t k^ k^') + beta_t k^
// v', o_t = S_t' q^ (states [K,V] in rows k), of every token t and key head h with value heads j:
//
// euler. L of a sequence and value head is a linear function of (v, S_0), so
//
//   <v, dv> + <S_0, dS_0> = <do, o> + <dS_T, S_T>,    <a, b> the sum over tokens and channels,
//
// whatever the gates, norms and betas are. It sees what is lost or counted twice on the way from do
// and dS_T to dv and dS_0, and nothing of dq, dk, dg and dbeta. A finding stands at the first
// element of dv of its sequence and head.
//
// query_scale. o_t is linear in q^_t alone:
//
//   <q^_t, dL/dq^_t> = sum_j <do_tj, o_tj>.
//
// key_scale. k^_t -> c k^_t, v_t -> c v_t, beta_t -> beta_t / c^2 leaves S_t what it is:
//
//   <k^_t, dL/dk^_t> + sum_j (<v_tj, dv_tj> - 2 beta_tj dL/dbeta_tj) = 0.
//
// What is given is q, and q^ = q / D(|q|). Along q itself its direction stays, so that
//
//   <q, dq> = r <q^, dL/dq^>,    r = 1 without a norm, else d ln |q^| / d ln |q|:
//   eps / (n^2 + eps),  eps / (n + eps),  and 0 above, 1 below eps for x / max(n, eps).
//
// With a norm r is about 0: the radial part must be gone from dq and dk. Both sides have
// (1 - r) times what a kernel without the adjoint of the norm would leave, to have a size.
//
// state_scale. All states from token t on times c: v_s -> c v_s and q^_s -> q^_s / c for s >= t,
// alpha_t -> c alpha_t, S_T -> c S_T. The same from t + 1 on subtracted, with the first identity in
// place of dL/dq^ (so it holds whatever the norm is, and of each value head by itself):
//
//   G_t - G_{t+1} + <v_t, dv_t> = <do_t, o_t> (+ <dS_T, S_T> for the last t, where G_{t+1} = 0),
//
// G the sum over gates of dL/d log alpha, which is da over the slope of its gate. Tokens of which a
// slope or an alpha is 0 are left out, and those before them.
//
// rotation. One gate for all key channels: q, k and the rows of all states may be rotated, norms
// stay. In the plane of the channels a and b, with [x, y] = x_a y_b - x_b y_a,
//
//   sum_t [dq_t, q_t] + [dk_t, k_t] + sum_j,v [dS_0, S_0] = sum_j,v [dS_T, S_T],
//
// for the K / 2 planes (a, a + K / 2) of a sequence and key head.
//
// Together the last four fix each dg given dv, each radial part of dq and dk, and half of a call's
// number of planes of dk given dq: a scaled dk, or dg and dbeta that are wrong by a factor, keep
// Euler's identity, linearity and the causal relations. Bounds: composed.hpp.
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/backward/relations/composed.hpp"
#include "reference/backward/relations/forward.hpp"
#include "reference/backward/relations/pairing.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {
namespace {

using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

// d ln |x^| / d ln |x| at |x| = n.
double radial_share(const call::Convention& c, double n2) {
  const double eps = c.l2_eps;
  const double n = std::sqrt(n2);
  switch (c.qk_l2norm) {
    case call::QkNorm::kNone:
      return 1.0;
    case call::QkNorm::kRsqrtSumEps:
      return n2 + eps > 0.0 ? eps / (n2 + eps) : 1.0;
    case call::QkNorm::kMaxNormEps:
      return n > eps ? 0.0 : 1.0;
    case call::QkNorm::kNormPlusEps:
      return n + eps > 0.0 ? eps / (n + eps) : 1.0;
  }
  return 1.0;
}

// The groups of a call, and the two sides of an identity in one of them.
class Symmetries {
 public:
  explicit Symmetries(Trial& trial)
      : trial_(trial),
        record_(trial.base().record),
        d_(trial.base().plan.dims),
        gates_(call::gate_channels(record_, d_.K)),
        state_(call::output_strides(record_, d_, "dinitial_state")),
        forward_(forward_outputs(record_)),
        groups_(groups_of(record_, d_, trial.contract())) {}

  // The sides of one identity in every group.
  using Identity = void (Symmetries::*)(const Group&, std::vector<Sides>&);
  void claim(Identity identity) {
    claim_composed(trial_, [&](const Run& made, const Runner&, bool grants) {
      made_ = &made;
      grants_ = grants;
      std::vector<Sides> all;
      for (const Group& g : groups_) (this->*identity)(g, all);
      return all;
    });
  }

  void euler(const Group& g, std::vector<Sides>& all) {
    const call::Tensor* start = record_.find_input("initial_state");
    for (const std::int64_t j : g.heads) {
      Pairing gradients;
      Pairing losses;
      for (std::int64_t t = 0; t < g.tokens.count; ++t) {
        add_values(g, t, j, 1.0, gradients);
        add_loss(g, t, j, losses);
      }
      for (std::int64_t i = 0; start != nullptr && i < d_.state_size(); ++i) {
        const std::size_t at = state(g, j, i);
        add_gradient("dinitial_state", at, element(*start, at), gradients);
      }
      add_final(g, j, losses);
      const std::size_t at = head(g, 0, j) * static_cast<std::size_t>(d_.V);
      push("dv", at, losses.sum(), gradients.sum(), gradients, losses, all);
    }
  }

  void query_scale(const Group& g, std::vector<Sides>& all) {
    const call::Tensor& q = record_.inputs.at("q");
    for (std::int64_t t = 0; t < g.tokens.count; ++t) {
      Pairing radial;
      const std::size_t at = row(g, t);
      const double r = pair_row(q, "dq", at, radial);
      Pairing loss;
      for (const std::int64_t j : g.heads) add_loss(g, t, j, loss);
      push("dq", at, loss.sum(), radial.sum() + (1.0 - r) * loss.sum(), radial, loss, all);
    }
  }

  void key_scale(const Group& g, std::vector<Sides>& all) {
    const call::Tensor& k = record_.inputs.at("k");
    const std::string name = beta_output(record_.convention);
    for (std::int64_t t = 0; t < g.tokens.count; ++t) {
      Pairing gradients;
      const std::size_t at = row(g, t);
      const double r = pair_row(k, "dk", at, gradients);
      double betas = 0.0;
      bool is_known = true;
      for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
        add_values(g, t, g.heads[lane], r, gradients);
        const double weight = 2.0 * beta_over_slope(g, lane, t);
        const std::size_t place = head(g, t, g.heads[lane]);
        is_known = is_known && std::isfinite(weight);
        betas += weight * made_->outputs.at(name)[static_cast<std::int64_t>(place)];
        add_gradient(name, place, -r * weight, gradients);
      }
      // -r betas is in the sum of the gradients: betas on both sides.
      if (is_known) push("dk", at, betas, gradients.sum() + betas, gradients, {}, all);
    }
  }

  void state_scale(const Group& g, std::vector<Sides>& all) {
    const std::string name = gate_output(record_.convention);
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      const std::int64_t j = g.heads[lane];
      for (std::int64_t t = 0; t < g.tokens.count; ++t) {
        const bool is_last = t + 1 == g.tokens.count;
        Pairing gradients;
        Pairing losses;
        bool is_known = add_gates(g, lane, t, 1.0, name, gradients);
        if (!is_last) is_known = add_gates(g, lane, t + 1, -1.0, name, gradients) && is_known;
        if (!is_known) continue;
        add_values(g, t, j, 1.0, gradients);
        add_loss(g, t, j, losses);
        if (is_last) add_final(g, j, losses);
        const std::size_t at = head(g, t, j) * static_cast<std::size_t>(gates_);
        push(name, at, losses.sum(), gradients.sum(), gradients, losses, all);
      }
    }
  }

  void rotation(const Group& g, std::vector<Sides>& all) {
    const call::Tensor* start = record_.find_input("initial_state");
    for (std::int64_t a = 0; a < d_.K / 2; ++a) {
      const std::int64_t b = a + d_.K / 2;
      Pairing queries;
      Pairing others;
      Pairing end;
      for (std::int64_t t = 0; t < g.tokens.count; ++t) {
        const std::size_t at = row(g, t);
        turn(record_.inputs.at("q"), "dq", at, {a, b}, 1.0, queries);
        turn(record_.inputs.at("k"), "dk", at, {a, b}, -1.0, others);
      }
      for (const std::int64_t j : g.heads) {
        for (std::int64_t v = 0; v < d_.V; ++v) {
          const std::size_t of_a = state_(g.sequence, j, a, v), of_b = state_(g.sequence, j, b, v);
          if (start != nullptr) {
            add_gradient("dinitial_state", of_a, -element(*start, of_b), others);
            add_gradient("dinitial_state", of_b, element(*start, of_a), others);
          }
          add_final(of_a, of_b, 1.0, end);
          add_final(of_b, of_a, -1.0, end);
        }
      }
      const double gradients = relations::sum_of(queries.independent(), others.independent());
      all.push_back({"dk", row(g, 0) + static_cast<std::size_t>(a), queries.sum(),
                     others.sum() + end.sum(), relations::sum_of(gradients, end.rounding())});
    }
  }

 private:
  [[nodiscard]] std::size_t row(const Group& g, std::int64_t t) const {
    return static_cast<std::size_t>(((g.tokens.first + t) * d_.H + g.qk_head) * d_.K);
  }
  [[nodiscard]] std::size_t head(const Group& g, std::int64_t t, std::int64_t j) const {
    return static_cast<std::size_t>((g.tokens.first + t) * d_.HV + j);
  }
  // Element i of a state, wherever it stands in it.
  [[nodiscard]] std::size_t state(const Group& g, std::int64_t j, std::int64_t i) const {
    return static_cast<std::size_t>((g.sequence * d_.HV + j) * d_.state_size() + i);
  }
  static double element(const call::Tensor& t, std::size_t at) {
    return t[static_cast<std::int64_t>(at)];
  }

  void add_gradient(const std::string& name, std::size_t at, double x, Pairing& to) {
    to.add_gradient(trial_, *made_, name, at, x, grants_);
  }

  // <x, dx> of a row of q or k; r of it.
  double pair_row(const call::Tensor& x, const char* name, std::size_t first, Pairing& to) {
    double n2 = 0.0;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(d_.K); ++i) {
      n2 += element(x, i) * element(x, i);
      add_gradient(name, i, element(x, i), to);
    }
    return radial_share(record_.convention, n2);
  }

  // sign [dx, x] in the plane of two channels.
  void turn(const call::Tensor& x, const char* name, std::size_t first,
            std::array<std::int64_t, 2> plane, double sign, Pairing& to) {
    const std::size_t a = first + static_cast<std::size_t>(plane[0]);
    const std::size_t b = first + static_cast<std::size_t>(plane[1]);
    add_gradient(name, a, sign * element(x, b), to);
    add_gradient(name, b, -sign * element(x, a), to);
  }

  void add_loss(const Group& g, std::int64_t t, std::int64_t j, Pairing& to) const {
    const std::size_t first = head(g, t, j) * static_cast<std::size_t>(d_.V);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(d_.V); ++i) {
      to.add(element(record_.inputs.at("do"), i), element(forward_.at("o"), i));
    }
  }

  // x <v, dv>.
  void add_values(const Group& g, std::int64_t t, std::int64_t j, double x, Pairing& to) {
    const std::size_t first = head(g, t, j) * static_cast<std::size_t>(d_.V);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(d_.V); ++i) {
      add_gradient("dv", i, x * element(record_.inputs.at("v"), i), to);
    }
  }

  // x dS_T at one place times S_T at another.
  void add_final(std::size_t of_gradient, std::size_t of_state, double x, Pairing& to) const {
    const call::Tensor* end = record_.find_input("dfinal_state");
    if (end != nullptr) to.add(x * element(*end, of_gradient), final_state(of_state));
  }
  void add_final(const Group& g, std::int64_t j, Pairing& to) const {
    for (std::int64_t i = 0; i < d_.state_size(); ++i) {
      add_final(state(g, j, i), state(g, j, i), 1.0, to);
    }
  }
  [[nodiscard]] double final_state(std::size_t at) const {
    return element(forward_.at("final_state"), at);
  }

  // beta over its slope, by what is given.
  [[nodiscard]] double beta_over_slope(const Group& g, std::size_t lane, std::int64_t t) const {
    const double b = element(
        record_.inputs.at(record_.convention.beta == call::BetaForm::kDirect ? "beta" : "b"),
        head(g, t, g.heads[lane]));
    return record_.convention.beta == call::BetaForm::kDirect ? b : 1.0 + std::exp(b);
  }

  // x times the sum over gates of dL/d log alpha; false where one of them cannot be told.
  bool add_gates(const Group& g, std::size_t lane, std::int64_t t, double x,
                 const std::string& name, Pairing& to) {
    const bool by_alpha = record_.convention.gate == call::Gate::kLinear;
    bool is_known = true;
    for (std::int64_t i = 0; i < gates_; ++i) {
      const auto at = static_cast<std::size_t>(t * gates_ + i);
      const double alpha = g.lanes[lane].alpha[at];
      const double slope = by_alpha ? 1.0 / alpha : g.gates[lane][at].input;
      is_known = is_known && alpha > 0.0 && slope != 0.0 && std::isfinite(slope);
      if (!is_known) return false;
      add_gradient(name,
                   head(g, t, g.heads[lane]) * static_cast<std::size_t>(gates_) +
                       static_cast<std::size_t>(i),
                   x / slope, to);
    }
    return true;
  }

  void push(const std::string& tensor, std::size_t at, double expected, double actual,
            const Pairing& gradients, const Pairing& losses, std::vector<Sides>& all) const {
    all.push_back({tensor, at, expected, actual,
                   relations::sum_of(gradients.independent(), losses.rounding())});
  }

  Trial& trial_;
  const call::Record& record_;
  const call::Dims& d_;
  std::int64_t gates_;
  call::Strides state_;
  call::TensorMap forward_;
  std::vector<Group> groups_;
  const Run* made_ = nullptr;  // of which the sides are made
  bool grants_ = false;
};

bool has_tokens(const call::Record& r, const contract::Contract&) {
  return call::validate(r).tokens > 0;
}
bool has_gates(const call::Record& r, const contract::Contract& contract) {
  return has_tokens(r, contract) && r.convention.gate != call::Gate::kNone;
}
bool rotates(const call::Record& r, const contract::Contract& contract) {
  const call::Dims d = call::validate(r);
  const bool one_gate = r.convention.gate == call::Gate::kNone || call::gate_channels(r, d.K) == 1;
  return has_tokens(r, contract) && one_gate && d.K > 1;
}

bool has_outputs(const Trial& trial, const std::vector<std::string>& names) {
  return std::ranges::all_of(
      names, [&](const std::string& name) { return trial.base().outputs.contains(name); });
}

std::vector<std::string> with_states(const Trial& trial, std::vector<std::string> names) {
  if (trial.base().record.find_input("initial_state") != nullptr) {
    names.emplace_back("dinitial_state");
  }
  return names;
}

void euler(Trial& trial) {
  if (has_outputs(trial, with_states(trial, {"dv"}))) Symmetries(trial).claim(&Symmetries::euler);
}
void query_scale(Trial& trial) {
  if (has_outputs(trial, {"dq"})) Symmetries(trial).claim(&Symmetries::query_scale);
}
void key_scale(Trial& trial) {
  const std::string beta = beta_output(trial.base().record.convention);
  if (has_outputs(trial, {"dk", "dv", beta})) Symmetries(trial).claim(&Symmetries::key_scale);
}
void state_scale(Trial& trial) {
  const std::string gate = gate_output(trial.base().record.convention);
  if (has_outputs(trial, {"dv", gate})) Symmetries(trial).claim(&Symmetries::state_scale);
}
void rotation(Trial& trial) {
  if (has_outputs(trial, with_states(trial, {"dq", "dk"}))) {
    Symmetries(trial).claim(&Symmetries::rotation);
  }
}

constexpr std::array kSymmetryRelations{
    Relation{"euler",
             "<v, dv> + <initial_state, dinitial_state> = <do, o> + <dfinal_state, final_state> of "
             "every sequence and value head",
             Demand::kBudget, has_tokens, euler},
    Relation{"query_scale",
             "<q, dq> = <do, o> of every token and key head without a norm of q, 0 with one",
             Demand::kBudget, has_tokens, query_scale},
    Relation{"key_scale",
             "<k, dk> + <v, dv> = 2 beta dbeta of every token and key head without a norm of k; "
             "<k, dk> = 0 with one",
             Demand::kBudget, has_tokens, key_scale},
    Relation{"state_scale",
             "dg of a token less that of the next one = <do, o> - <v, dv>, of every value head",
             Demand::kBudget, has_gates, state_scale},
    Relation{"rotation",
             "dq, dk and dinitial_state agree with each other under rotations of the key channels",
             Demand::kBudget, rotates, rotation},
};

}  // namespace

std::span<const Relation> symmetry_relations() { return kSymmetryRelations; }

}  // namespace goldenrule::backward
