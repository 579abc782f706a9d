#include "passes/native/forms.h"

#include <string>
#include <unordered_map>

#include "passes/native/facts.h"

namespace veil {

namespace {

constexpr int32_t kNone = -1;

// How an operand is read.
enum Reading : int32_t { kConstant, kRepeated, kMade, kDrawn, kRead };

class Numbering {
 public:
  explicit Numbering(const FusedActions& actions)
      : a_(actions),
        near_(actions.facts.size()),
        met_(actions.facts.size(), kNone),
        number_(actions.facts.size()),
        made_(actions.facts.size(), kNone) {
    for (size_t i = 0; i < near_.size(); ++i) {
      const int32_t row = static_cast<int32_t>(i);
      near_[i] = is(row, kReshape) ? near_[a_.operands.of(i)[0]] : row;
    }
  }

  Forms run() {
    Forms found;
    std::unordered_map<std::u32string, int32_t> forms;
    for (size_t i = 0; i < a_.party.size(); ++i) {
      action_ = static_cast<int32_t>(i);
      form_.clear();
      count_ = 0;
      rows_ = &found.numbered.rows;
      for (int64_t k = a_.first[i]; k < a_.first[i + 1]; ++k) node(a_.nodes[k]);
      found.numbered.end();
      const auto next = static_cast<int32_t>(forms.size());
      const auto [known, is_new] = forms.try_emplace(form_, next);
      if (is_new) found.said.push_back(form_);
      found.form.push_back(known->second);
    }
    return found;
  }

 private:
  bool is(int32_t row, uint32_t facts) const { return (a_.facts[row] & facts) != 0; }

  void add(std::initializer_list<int32_t> facts) {
    for (const int32_t fact : facts) form_ += static_cast<char32_t>(fact);
  }

  int32_t numbered(int32_t row) {
    if (met_[row] != action_) {
      met_[row] = action_;
      number_[row] = count_++;
      rows_->push_back(row);
    }
    return number_[row];
  }

  void node(int32_t row) {
    const auto args = a_.operands.of(row);
    const bool receives = is(row, kSend) && a_.parties[row] == a_.party[action_];
    add({a_.ops[row], a_.kinds[row], a_.stored[row], static_cast<int32_t>(args.size())});
    add({is(row, kSend) ? receives : is(row, kDraw) ? 0 : a_.attributes[row]});
    if (is(row, kLookup)) {
      operand(row, args[0]);
      add({numbered(args[1])});
    } else if (!receives) {
      for (const int32_t arg : args) operand(row, arg);
    }
    add({numbered(row)});
    if (!is(row, kSend)) made_[row] = action_;
  }

  void operand(int32_t user, int32_t arg) {
    const int32_t near = near_[arg];
    if (is(near, kConst)) {
      add({numbered(near), kConstant, a_.kinds[near], a_.attributes[near]});
    } else if (a_.elements[near] != a_.elements[user]) {
      add({numbered(arg), kRepeated, a_.ops[near], a_.kinds[near]});
      add({a_.tensors[arg], a_.tensors[user]});
    } else if (made_[near] == action_) {
      add({numbered(near), kMade});
    } else if (is(near, kDraw) && is(user, kFusible) && in_phase(near)) {
      add({numbered(near), kDrawn, a_.kinds[near]});
    } else {
      const bool is_packed = is(near, kSend) && !a_.unpacked[near];
      add({numbered(near), kRead, a_.kinds[near], is_packed});
    }
  }

  // Whether a draw can be made again: one of setup in setup alone.
  bool in_phase(int32_t draw) const {
    return (a_.stages[draw] == 0) == (a_.at[action_] >> kLevelBits == 0);
  }

  const FusedActions& a_;
  std::vector<int32_t> near_;
  std::vector<int32_t> met_, number_, made_;  // by the action that did so last
  std::vector<int32_t>* rows_ = nullptr;
  std::u32string form_;
  int32_t action_ = 0, count_ = 0;
};

}  // namespace

Forms forms_of(const FusedActions& actions) { return Numbering(actions).run(); }

}  // namespace veil
